#include "core/text/article.h"

#include <ctype.h>
#include <string.h>

#define BEGIN "<doc "
#define MARK "ENDOFARTICLE." /* the last line of an article of the published files */
#define BLANKS " \t\n\r\f\v"

static bool starts(const char *s, size_t n, const char *with)
{
    return n >= strlen(with) && memcmp(s, with, strlen(with)) == 0;
}

static bool is(const char *s, size_t n, const char *line)
{
    return n == strlen(line) && memcmp(s, line, n) == 0;
}

static bool is_blank(char c)
{
    return c && strchr(BLANKS, c);
}

static bool all_blank(const char *s, size_t n)
{
    while (n && is_blank(s[n - 1]))
        n--;
    return n == 0;
}

bool tern_text_article_begins(const char *bytes, size_t n)
{
    return starts(bytes, n, "<doc id=");
}

/* ---- tagged files ---- */

/* "Himno himno NCMS000 07034009" */
static bool is_tagged_line(const char *s, size_t n)
{
    const char *word[5], *end = s + n;
    size_t n_words = 0;

    while (s < end && n_words < 5) {
        word[n_words++] = s;
        while (s < end && !is_blank(*s))
            s++;
        while (s < end && is_blank(*s))
            s++;
    }
    return n_words == 4 && isupper((unsigned char)*word[2]) && isdigit((unsigned char)*word[3]);
}

bool tern_text_article_tagged(const char *bytes, size_t n)
{
    enum { ENOUGH = 5 };
    const char *at = bytes, *end = bytes + n, *nl;
    int n_tagged = 0;

    for (; n_tagged < ENOUGH && (nl = memchr(at, '\n', (size_t)(end - at))); at = nl + 1) {
        const size_t len = (size_t)(nl - at);
        if (all_blank(at, len) || starts(at, len, BEGIN))
            continue;
        if (!is_tagged_line(at, len))
            return false;
        n_tagged++;
    }
    return n_tagged == ENOUGH;
}

/* ---- articles ---- */

/* Something is wrong at a line: -1, or 0 where it is to be left out. */
static int bad(struct tern_text_parser *p, uint64_t line, const char *why, struct tern_err *err)
{
    const uint64_t now = p->line;

    p->line = line;
    int rc = tern_err_set(err, TERN_USAGE,
                          "%s:%llu: %s. Is the file whole? --skip-bad leaves such articles out.",
                          p->path, (unsigned long long)p->line, why);
    if (p->how->skip_bad) {
        tern_text_parser_bad(p);
        rc = 0;
    }
    p->line = now;
    return rc;
}

static void trim(struct tern_text_parser *p, const char **text, size_t *len)
{
    const char *s = p->doc.data ? p->doc.data : "", *end = s + p->doc.len;

    while (s < end && is_blank(*s))
        s++;
    while (s < end && is_blank(end[-1]))
        end--;
    *text = s;
    *len = (size_t)(end - s);
}

/* Where the lines are inside an article and outside. */
struct place {
    bool inside, stray;
};

/* One line, without its end: 1 where it ends an article. */
static int take_line(struct tern_text_parser *p, struct place *at, const char *line, size_t n,
                     struct tern_err *err)
{
    if (starts(line, n, BEGIN)) {
        if (at->inside && bad(p, p->doc_line, "the article has no line </doc>", err) < 0)
            return -1;
        *at = (struct place){.inside = true};
        p->doc_line = p->line;
        tern_buf_clear(&p->doc);
    } else if (is(line, n, TERN_TEXT_ARTICLE_END)) {
        if (at->inside)
            return 1;
        return bad(p, p->line, "</doc> without a line <doc ...> before it", err);
    } else if (at->inside && !is(line, n, MARK)) {
        tern_buf_add(&p->doc, line, n);
        tern_buf_add(&p->doc, "\n", 1);
    } else if (!at->inside && !at->stray && !all_blank(line, n)) {
        at->stray = true;
        return bad(p, p->line, "text outside of <doc ...> and </doc>", err);
    }
    return 0;
}

int tern_text_article_next(struct tern_text_parser *p, const char **text, size_t *len,
                           struct tern_err *err)
{
    struct place at = {0};
    const char *line;
    size_t n;

    tern_buf_clear(&p->doc);
    while (tern_text_parser_take_line(p, &line, &n)) {
        if (n && line[n - 1] == '\r')
            n--;
        int rc = take_line(p, &at, line, n, err);
        if (rc < 0 || (rc > 0 && tern_buf_check(&p->doc, p->path, err) < 0))
            return -1;
        if (rc > 0) {
            trim(p, text, len);
            return 1;
        }
    }
    return at.inside ? bad(p, p->doc_line, "the article has no line </doc>", err) : 0;
}
