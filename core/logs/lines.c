#include "core/logs/lines.h"

#include "core/logs/logs.h"

#include <stdlib.h>
#include <string.h>

static const int64_t second = 1000000000;

/* A program that fills a buffer before it writes may cut a line in the middle of a number.  Only
 * bars are written in one piece. */
static void match(struct tern_logs_lines *l, bool whole)
{
    if (!l->to.line || l->len == 0 || l->broken)
        return;
    if (!whole && (!l->redrawn || l->matched == l->len))
        return;
    l->text[l->len] = '\0';
    l->to.line(l->to.self, l->wall_ns, l->stream, l->text, l->len, whole);
    l->matched = l->len;
}

static void begin(struct tern_logs_lines *l, bool redrawn)
{
    l->len = l->logged = l->matched = 0;
    l->redrawn = redrawn;
    l->broken = false;
}

static bool blank(const char *s, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (s[i] != ' ')
            return false;
    return true;
}

static void draw(struct tern_logs_lines *l, int64_t wall_ns, const char *text, size_t len)
{
    l->to.log(l->to.self, wall_ns, l->stream, '~', text, len);
    l->drawn_ns = wall_ns;
}

/* The overwritten text is kept for a moment: it may be the last, as in "text\r\n". */
static void on_return(struct tern_logs_lines *l)
{
    match(l, true);
    if (!blank(l->text, l->len)) {
        if (!l->drawn_ns)
            l->drawn_ns = l->wall_ns;
        if (l->before_len && l->before_ns - l->drawn_ns >= second)
            draw(l, l->before_ns, l->before, l->before_len);
        l->before_len = l->logged == l->len ? 0 : l->len;
        l->before_ns = l->wall_ns;
        memcpy(l->before, l->text, l->before_len);
    }
    begin(l, true);
}

static void on_newline(struct tern_logs_lines *l)
{
    match(l, true);
    if (l->len == 0 && l->before_len)
        l->to.log(l->to.self, l->before_ns, l->stream, ' ', l->before, l->before_len);
    else if (l->len > l->logged || !l->redrawn || l->missing) {
        size_t from = l->redrawn ? 0 : l->logged; /* the text drawn before is drawn again */
        l->to.log(l->to.self, l->len > from ? l->wall_ns : l->newest_ns, l->stream, ' ',
                  l->text + from, l->len - from);
    }
    l->before_len = 0;
    begin(l, false);
    l->missing = false;
}

/* A line longer than a record goes on in the next record. */
static void on_full(struct tern_logs_lines *l)
{
    l->to.log(l->to.self, l->wall_ns, l->stream, '+', l->text + l->logged, l->len - l->logged);
    begin(l, false);
    l->broken = true;
}

void tern_logs_lines_gap(struct tern_logs_lines *l, bool inside)
{
    l->broken = l->missing = true;
    if (l->before_len && l->len == 0)
        draw(l, l->before_ns, l->before, l->before_len);
    if (l->len > l->logged)
        l->to.log(l->to.self, l->wall_ns, l->stream, '+', l->text + l->logged, l->len - l->logged);
    l->before_len = 0;
    begin(l, false);
    l->broken = l->missing = inside;
}

static void add(struct tern_logs_lines *l, const char *data, size_t len)
{
    while (len) {
        size_t n = TERN_LOGS_TEXT_MAX - l->len;
        if (l->len == l->logged)
            l->wall_ns = l->newest_ns;
        n = n < len ? n : len;
        memcpy(l->text + l->len, data, n);
        l->len += n;
        data += n;
        len -= n;
        if (len)
            on_full(l);
    }
}

void tern_logs_lines_take(struct tern_logs_lines *l, int64_t wall_ns, const char *data, size_t len)
{
    const char *end = data + len;

    if (!l->text) {
        l->text = malloc(TERN_LOGS_TEXT_MAX + 1);
        l->before = malloc(TERN_LOGS_TEXT_MAX);
        if (!l->text || !l->before)
            abort();
    }
    l->newest_ns = wall_ns;
    while (data < end) {
        const char *newline = memchr(data, '\n', (size_t)(end - data));
        const char *stop = newline ? newline : end;
        const char *back;
        while ((back = memchr(data, '\r', (size_t)(stop - data)))) {
            add(l, data, (size_t)(back - data));
            on_return(l);
            data = back + 1;
        }
        add(l, data, (size_t)(stop - data));
        data = stop;
        if (newline) {
            on_newline(l);
            data++;
        }
    }
}

void tern_logs_lines_idle(struct tern_logs_lines *l, int64_t now_ns, bool end)
{
    if (!l->text)
        return;
    match(l, end);
    if (!end && now_ns - l->newest_ns < second)
        return;
    if (l->before_len && blank(l->text, l->len))
        draw(l, l->before_ns, l->before, l->before_len);
    l->before_len = 0;
    if (l->len > l->logged && !blank(l->text, l->len)) {
        if (l->redrawn)
            draw(l, l->wall_ns, l->text, l->len);
        else
            l->to.log(l->to.self, l->wall_ns, l->stream, '+', l->text + l->logged,
                      l->len - l->logged);
        l->logged = l->len;
    }
}

void tern_logs_lines_free(struct tern_logs_lines *l)
{
    free(l->text);
    free(l->before);
    l->text = l->before = NULL;
}
