/* Lines of logs as they are printed: time, rank, visible text; the last ones. */
#include "cmd/logs/logs.h"

#include "core/base/clock.h"
#include "core/base/json.h"
#include "core/base/str.h"
#include "core/logs/logs.h"

#include <stdlib.h>
#include <string.h>

bool logs_choose(void *self, int64_t rank, const char *node)
{
    bool in = logs.n_ranks == 0;

    (void)self;
    for (size_t i = 0; i < logs.n_ranks; i++)
        in = in || (rank >= logs.ranks[i].from && rank <= logs.ranks[i].to);
    return in && (!logs.node || strcmp(node, logs.node) == 0);
}

static bool wanted(const struct tern_logs_line *l)
{
    static char text[TERN_LOGS_TEXT_MAX + 1];

    if (l->wall_ns < logs.since_ns || (l->mark == '~' && !logs.progress) ||
        (l->stream == 't' && (logs.raw || tern_logs_is_end(l->text, l->len))))
        return false;
    if (!logs.has_grep)
        return true;
    size_t n = l->len < sizeof text ? l->len : sizeof text - 1;
    memcpy(text, l->text, n);
    text[n] = '\0';
    return regexec(&logs.grep, text, 0, NULL, 0) == 0;
}

/* ---------------------------------------------------------------- visible text */

static void add_visible(struct tern_buf *b, const char *text, size_t len)
{
    const unsigned char *s = (const unsigned char *)text;

    for (size_t i = 0; i < len;) {
        size_t plain = i;
        while (plain < len && s[plain] >= 0x20 && s[plain] < 0x7f)
            plain++;
        tern_buf_add(b, text + i, plain - i);
        i = plain;
        if (i == len)
            return;
        size_t n = tern_str_character(text + i, len - i);
        if (s[i] == '\t')
            tern_buf_add(b, "\t", 1);
        else if (n > 0)
            tern_buf_add(b, text + i, n);
        else if (s[i] < 0x20 || s[i] == 0x7f)
            tern_buf_printf(b, "^%c", s[i] ^ 0x40);
        else
            tern_buf_printf(b, "\\x%02x", s[i]);
        i += n ? n : 1;
    }
}

/* ---------------------------------------------------------------- lines */

/* The text of a second is formatted once. */
static const char *time_text(int64_t wall_ns)
{
    static char text[64];
    static int64_t second = -1;
    char iso[32];

    if (wall_ns / 1000000000 != second) {
        second = wall_ns / 1000000000;
        tern_clock_iso8601(iso, sizeof iso, wall_ns);
        snprintf(text, sizeof text, "%.19s.000%s", iso, iso + 19); /* its end is the zone */
    }
    int ms = (int)(wall_ns / 1000000 % 1000);
    text[20] = (char)('0' + ms / 100);
    text[21] = (char)('0' + ms / 10 % 10);
    text[22] = (char)('0' + ms % 10);
    return text;
}

static void print_json(const struct tern_logs_line *l, unsigned attempt)
{
    static struct tern_buf b;
    json_t *text = json_stringn(l->text, l->len);

    if (!text) { /* no UTF-8 */
        tern_buf_clear(&b);
        add_visible(&b, l->text, l->len);
        text = json_string(b.data ? b.data : "");
    }
    json_t *j = json_pack("{s:s, s:I, s:i, s:s, s:s, s:s, s:o}", "time", time_text(l->wall_ns),
                          "ns", (json_int_t)l->wall_ns, "attempt", (int)attempt, "rank", l->name,
                          "node", l->node, "stream",
                          l->stream == 'o'   ? "stdout"
                          : l->stream == 'e' ? "stderr"
                                             : "tern",
                          "text", text);
    if (j && l->mark == '+')
        json_object_set_new(j, "partial", json_true());
    if (j && l->mark == '~')
        json_object_set_new(j, "overwritten", json_true());
    if (j) {
        tern_json_line(stdout, j);
    }
    json_decref(j);
}

static void print_text(const struct tern_logs_line *l)
{
    static const char *const colors[] = {"\033[36m", "\033[33m", "\033[32m",
                                         "\033[35m", "\033[34m", "\033[31m"};
    static struct tern_buf b;
    const char *begin = "", *end = "";

    if (logs.color) {
        begin = l->rank < 0 ? "\033[1m" : colors[l->rank % 6];
        end = "\033[0m";
    }
    tern_buf_clear(&b);
    tern_buf_puts(&b, begin);
    if (!logs.no_time)
        tern_buf_printf(&b, "%s ", time_text(l->wall_ns));
    tern_buf_printf(&b, "%4s ", l->name);
    add_visible(&b, l->node, strlen(l->node));
    tern_buf_printf(&b, " %c%s ", l->stream, end);
    add_visible(&b, l->text, l->len);
    tern_buf_puts(&b, "\n");
    fwrite(b.data, 1, b.len, stdout);
}

void logs_line(const struct tern_logs_line *l, unsigned attempt)
{
    if (!wanted(l))
        return;
    if (logs.raw) {
        fwrite(l->text, 1, l->len, stdout);
        if (l->mark != '+')
            putchar('\n');
    } else if (logs.json) {
        print_json(l, attempt);
    } else {
        print_text(l);
    }
}

/* ---------------------------------------------------------------- the last ones */

/* A candidate for the last lines. */
struct kept {
    struct tern_logs_line line;
    unsigned attempt;
    char *texts; /* node, name, text */
};

struct ring {
    struct kept *v;
    size_t size, n; /* n: lines so far */
};

static void keep(struct ring *r, const struct tern_logs_line *l, unsigned attempt)
{
    struct kept *k = &r->v[r->n++ % r->size];
    size_t name = strlen(l->name) + 1, node = strlen(l->node) + 1;
    char *texts = malloc(name + node + l->len + 1);

    free(k->texts);
    *k = (struct kept){.line = *l, .attempt = attempt, .texts = texts};
    if (!texts)
        abort();
    k->line.name = memcpy(texts, l->name, name);
    k->line.node = memcpy(texts + name, l->node, node);
    k->line.text = memcpy(texts + name + node, l->text, l->len);
}

static void print_kept(struct ring *r)
{
    size_t first = r->n > r->size ? r->n - r->size : 0;

    for (size_t i = first; i < r->n; i++)
        logs_line(&r->v[i % r->size].line, r->v[i % r->size].attempt);
    for (size_t i = 0; i < r->size; i++)
        free(r->v[i].texts);
    free(r->v);
    *r = (struct ring){0};
}

static int ring_open(struct ring *ring, struct tern_err *err)
{
    *ring = (struct ring){.size = (size_t)logs.tail};
    ring->v = tern_alloc(ring->size, sizeof *ring->v, "lines", err);
    return ring->v ? 0 : -1;
}

/* Collect the candidates of one attempt. */
static void keep_last(struct ring *ring, struct tern_logs_reader *r, unsigned attempt)
{
    struct tern_logs_line line;

    if (!logs.has_grep && !logs.raw) /* the last lines of each log suffice */
        tern_logs_reader_tail(r, (uint64_t)logs.tail + TERN_LOGS_PARTS, logs.progress);
    tern_logs_reader_refresh(r);
    while (tern_logs_reader_next(r, &line))
        if (wanted(&line))
            keep(ring, &line, attempt);
}

int logs_tail(struct tern_logs_reader *r, unsigned attempt, struct tern_err *err)
{
    struct ring ring;

    if (ring_open(&ring, err) < 0)
        return -1;
    keep_last(&ring, r, attempt);
    print_kept(&ring);
    return 0;
}

int logs_print(const char *ledger, const char *id, unsigned first, unsigned last,
               struct tern_err *err)
{
    struct tern_logs_line line;
    struct ring ring = {0};
    struct tern_err unread = {0};
    size_t found = 0, chosen = 0;
    int rc = 0;

    if (logs.tail > 0 && ring_open(&ring, err) < 0)
        return -1;
    for (unsigned a = first; a <= last && rc == 0; a++) {
        char *dir = tern_logs_dir(ledger, id, a);
        struct tern_logs_reader *r = tern_logs_reader_open(dir, logs_choose, NULL, err);
        free(dir);
        if (!r) {
            rc = -1;
            break;
        }
        found += tern_logs_reader_count(r);
        if (logs.tail > 0) {
            keep_last(&ring, r, a);
        } else {
            tern_logs_reader_refresh(r);
            while (tern_logs_reader_next(r, &line) && !ferror(stdout))
                logs_line(&line, a);
        }
        chosen += tern_logs_reader_chosen(r);
        tern_logs_reader_check(r, &unread);
        tern_logs_reader_close(r);
    }
    print_kept(&ring);
    if (rc == 0 && unread.code) {
        *err = unread;
        return -1;
    }
    if (rc == 0 && !found)
        rc = tern_err_set(err, TERN_USAGE,
                          "run %s, attempt %u: no logs lie in %s/runs/%s/logs (TERN_LOG_BYTES=0, "
                          "or removed)",
                          id, last, ledger, id);
    else if (rc == 0 && !chosen)
        rc = tern_err_set(err, TERN_USAGE,
                          "run %s, attempt %u: none of the %zu logs is of %s%s%s. Without --rank "
                          "and --node all are shown.",
                          id, last, found, logs.n_ranks ? "that rank" : "",
                          logs.n_ranks && logs.node ? " on " : "", logs.node ? logs.node : "");
    return rc;
}
