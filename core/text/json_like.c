#include "core/text/json_like.h"

#include "core/base/str.h"
#include "core/text/line.h"
#include "core/text/mark.h"

#include <string.h>

enum { FIRST_LINES = 8 };

/* A part of the text, and whether more of the text follows that was not read. */
struct part {
    const char *at, *end;
    bool more;
};

/* Blanks, control characters (RFC 7464 has one before each record) and byte order marks. */
static const char *skip_blanks(const char *s, const char *end)
{
    for (;;) {
        const char *before = s;
        s += tern_text_marks(s, (size_t)(end - s));
        while (s < end && (unsigned char)*s <= ' ')
            s++;
        if (s == before)
            return s;
    }
}

static const char *line_end(const char *s, const char *end)
{
    while (s < end && *s != '\n' && *s != '\r')
        s++;
    return s;
}

/* Behind the string that begins with the quote at `s` and ends in its line; NULL where it does
 * not; the end where what was read does not have it. */
static const char *skip_quoted(const char *s, const struct part *p)
{
    const char quote = *s++;

    for (; s < p->end && *s != quote; s++) {
        if (*s == '\n' || *s == '\r')
            return NULL;
        if (*s == '\\' && s + 1 < p->end)
            s++;
    }
    return s < p->end ? s + 1 : p->more ? p->end : NULL;
}

/* Is there a string, also in Python's quotes, and one of `after` behind it? */
static bool has_quoted(const char *s, const struct part *p, const char *after)
{
    if (s == p->end || (*s != '"' && *s != '\''))
        return false;
    s = skip_quoted(s, p);
    if (!s)
        return false;
    s = skip_blanks(s, p->end);
    return s == p->end ? p->more : strchr(after, *s) != NULL;
}

static bool begins_object(const struct part *p)
{
    return p->at < p->end && *p->at == '{' &&
           has_quoted(skip_blanks(p->at + 1, p->end), p, /* after= */ ":");
}

static bool begins_array(const struct part *p)
{
    struct part inside = *p;

    if (p->at == p->end || *p->at != '[')
        return false;
    while (inside.at < p->end && *inside.at == '[')
        inside.at = skip_blanks(inside.at + 1, p->end);
    return begins_object(&inside) || has_quoted(inside.at, p, /* after= */ ",]");
}

/* ---- lines ---- */

struct lines {
    size_t n, blank, objects, strings;
    size_t first_n, first_objects; /* of FIRST_LINES */
};

static bool is_object(const struct part *line)
{
    const struct tern_text_field any = tern_text_field_of("text");
    struct tern_text_line_text text;
    struct tern_buf room = {0};

    if (!begins_object(line))
        return false;
    const enum tern_text_line_found found =
        tern_text_line_field(line->at, (size_t)(line->end - line->at), &any, &room, &text);
    tern_buf_free(&room);
    return found != TERN_TEXT_LINE_NO_JSON;
}

static bool is_string(const struct part *line)
{
    return line->at < line->end && *line->at == '"' && skip_quoted(line->at, line) == line->end;
}

static void count_line(struct lines *l, struct part line)
{
    line.at = skip_blanks(line.at, line.end);
    while (line.at < line.end && (unsigned char)line.end[-1] <= ' ')
        line.end--;
    if (line.at < line.end && line.end[-1] == ',') /* as in an array */
        line.end--;
    if (line.at == line.end) {
        l->blank++;
        return;
    }
    const bool object = is_object(&line);
    l->n++;
    l->objects += object;
    l->strings += is_string(&line);
    if (l->n <= FIRST_LINES) {
        l->first_n = l->n;
        l->first_objects += object;
    }
}

static struct lines count_lines(const struct part *p)
{
    struct lines l = {0};

    for (const char *s = p->at, *next; s < p->end; s = next) {
        const char *end = line_end(s, p->end);
        if (end == p->end && p->more)
            break; /* it was not read whole */
        count_line(&l, (struct part){s, end, false});
        next = end < p->end ? end + 1 : end;
        next += end + 1 < p->end && end[0] == '\r' && end[1] == '\n';
    }
    return l;
}

const char *tern_text_json_like(const char *bytes, size_t n, bool whole)
{
    struct part p = {bytes, bytes + n, !whole};

    p.at = skip_blanks(p.at, p.end);
    const struct lines l = count_lines(&p);
    while (p.end - p.at >= 2 && p.at[0] == '/' && p.at[1] == '/')
        p.at = skip_blanks(line_end(p.at, p.end), p.end);
    if (begins_object(&p))
        return "begins like JSON, and its first line is no whole object";
    if (begins_array(&p))
        return "is a JSON array";
    if (l.objects && (2 * l.objects >= l.n || 2 * l.first_objects >= l.first_n))
        return "has JSON objects as lines, and its first line is none";
    /* Quoted speech is in paragraphs, and seldom all of a text. */
    return l.strings > 1 && l.strings == l.n && l.blank == 0 ? "has a JSON string a line" : NULL;
}
