#include "core/store/xml.h"

#include "core/base/str.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAX = 12, PATH_MAX_BYTES = 256 };

struct scan {
    char *at, *end;
    const char *what;
    char path[PATH_MAX_BYTES];
    size_t n_path[DEPTH_MAX + 1]; /* length of the path at each depth */
    char *text[DEPTH_MAX + 1];    /* where the text of that element is put together */
    size_t n_text[DEPTH_MAX + 1];
    unsigned depth;
    bool closed; /* the root is */
};

static int bad(const struct scan *s, const char *why, struct tern_err *err)
{
    return tern_err_set(err, TERN_TEMPFAIL, "%s: the server's answer is not XML as S3 sends it: %s",
                        s->what, why);
}

static bool name_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c && strchr("_-.:", c));
}

static size_t put_utf8(char *to, uint32_t c)
{
    if (c < 0x80) {
        to[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        to[0] = (char)(0xc0 | c >> 6);
        to[1] = (char)(0x80 | (c & 63));
        return 2;
    }
    if (c < 0x10000) {
        to[0] = (char)(0xe0 | c >> 12);
        to[1] = (char)(0x80 | (c >> 6 & 63));
        to[2] = (char)(0x80 | (c & 63));
        return 3;
    }
    to[0] = (char)(0xf0 | c >> 18);
    to[1] = (char)(0x80 | (c >> 12 & 63));
    to[2] = (char)(0x80 | (c >> 6 & 63));
    to[3] = (char)(0x80 | (c & 63));
    return 4;
}

/* An entity at s->at into `to` (it is never longer than what stood there); bytes written, 0: none.
 */
static size_t entity(struct scan *s, char *to)
{
    static const struct {
        const char *name;
        char c;
    } known[] = {{"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}};
    const size_t left = (size_t)(s->end - s->at);

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const size_t n = strlen(known[i].name);
        if (left >= n && memcmp(s->at, known[i].name, n) == 0) {
            s->at += n;
            *to = known[i].c;
            return 1;
        }
    }
    char *after;
    if (left < 4 || s->at[1] != '#')
        return 0;
    const bool hex = s->at[2] == 'x';
    const char *digits = s->at + 2 + hex;
    if (!((*digits >= '0' && *digits <= '9') ||
          (hex && strchr("abcdefABCDEF", *digits) && *digits)))
        return 0;
    const unsigned long c = strtoul(digits, &after, hex ? 16 : 10);
    if (after >= s->end || *after != ';' || c == 0 || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
        return 0;
    s->at = after + 1;
    return put_utf8(to, (uint32_t)c);
}

/* Text up to the next '<', onto the text of the element that it lies in. */
static int text(struct scan *s, struct tern_err *err)
{
    char *to = s->text[s->depth] + s->n_text[s->depth];

    while (s->at < s->end && *s->at != '<') {
        if (*s->at == '\0')
            return bad(s, "a NUL", err);
        if (*s->at == '&') {
            const size_t n = entity(s, to);
            if (n == 0)
                return bad(s, "an unknown entity", err);
            to += n;
        } else {
            *to++ = *s->at++;
        }
    }
    s->n_text[s->depth] = (size_t)(to - s->text[s->depth]);
    return 0;
}

static int open_element(struct scan *s, struct tern_err *err)
{
    const char *name = s->at;
    size_t n = 0;

    while (s->at + n < s->end && name_byte(name[n]))
        n++;
    if (n == 0 || (s->depth == 0 && s->closed))
        return bad(s, "an element was expected", err);
    const size_t before = s->n_path[s->depth], slash = before ? 1 : 0;
    if (s->depth == DEPTH_MAX || before + slash + n + 1 > sizeof s->path)
        return bad(s, "elements are nested too deeply", err);
    if (slash)
        s->path[before] = '/';
    memcpy(s->path + before + slash, name, n);
    s->path[before + slash + n] = '\0';
    s->at += n;
    char quote = 0;
    while (s->at < s->end && (quote || *s->at != '>')) { /* attributes */
        if (*s->at == quote)
            quote = 0;
        else if (!quote && (*s->at == '"' || *s->at == '\''))
            quote = *s->at;
        else if (*s->at == '<')
            return bad(s, "an element is not closed", err);
        s->at++;
    }
    if (s->at == s->end)
        return bad(s, "it ends inside an element", err);
    s->depth++;
    s->n_path[s->depth] = before + slash + n;
    s->text[s->depth] = s->at; /* over the '>', which is read */
    s->n_text[s->depth] = 0;
    s->at++;
    return 0;
}

static int close_element(struct scan *s, int (*each)(void *, const char *, const char *), void *ctx)
{
    s->text[s->depth][s->n_text[s->depth]] = '\0';
    const int rc = each(ctx, s->path, s->text[s->depth]);
    s->depth--;
    s->path[s->n_path[s->depth]] = '\0';
    s->closed = s->depth == 0;
    return rc;
}

/* "</name>" of the element that is open. */
static bool at_end_tag(struct scan *s)
{
    const size_t above = s->n_path[s->depth - 1];
    const char *name = s->path + above + (above ? 1 : 0);
    const size_t n = strlen(name);

    if ((size_t)(s->end - s->at) < n + 1 || memcmp(s->at, name, n) != 0)
        return false;
    s->at += n;
    while (s->at < s->end && strchr(" \t\r\n", *s->at) && *s->at)
        s->at++;
    return s->at < s->end && *s->at++ == '>';
}

int tern_store_xml(char *data, size_t len, const char *what,
                   int (*each)(void *ctx, const char *path, const char *value), void *ctx,
                   struct tern_err *err)
{
    char nothing[1];
    struct scan s = {.at = data, .end = data + len, .what = what, .text = {nothing}};
    int rc = 0;

    if (len >= 5 && memcmp(data, "<?xml", 5) == 0) {
        char *after = memchr(data, '>', len);
        if (!after || after[-1] != '?')
            return bad(&s, "its first line", err);
        s.at = after + 1;
    }
    while (s.at < s.end && rc == 0) {
        if (*s.at != '<') {
            if (s.depth == 0 && !strchr(" \t\r\n", *s.at))
                return bad(&s, "text outside its elements", err);
            if (s.depth == 0)
                s.at++;
            else if (text(&s, err) < 0)
                return -1;
        } else if (s.end - s.at > 1 && s.at[1] == '/') {
            s.at += 2;
            if (s.depth == 0 || !at_end_tag(&s))
                return bad(&s, "an element ends that is not open", err);
            rc = close_element(&s, each, ctx);
        } else {
            s.at++;
            if (open_element(&s, err) < 0)
                return -1;
            if (s.at[-2] == '/')
                rc = close_element(&s, each, ctx);
        }
    }
    if (rc == 0 && (s.depth || !s.closed))
        return bad(&s, "it ends too early", err);
    return rc;
}

const char *tern_store_xml_below(const char *path)
{
    const char *slash = strchr(path, '/');

    return slash ? slash + 1 : "";
}
