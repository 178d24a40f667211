/* Documents: a line of JSONL, a file, or a part of one. */
#include "core/text/parse.h"

#include "core/base/json.h"
#include "core/text/article.h"
#include "core/text/invalid.h"
#include "core/text/line.h"
#include "core/text/mark.h"
#include "core/text/table.h"
#include "core/text/utf8.h"
#include "core/token/token.h"

#include <stdio.h>
#include <string.h>

size_t tern_text_fields(const struct tern_text_how *how, enum tern_text_format format,
                        struct tern_text_field ret_field[TERN_TEXT_FIELDS_MAX])
{
    /* S2ORC of 2020: paragraphs; Semantic Scholar's data sets, and their second version. */
    static const char *const s2orc[] = {"body_text[].text", "content.text", "body.text"};
    const size_t n = format == TERN_TEXT_S2ORC ? sizeof s2orc / sizeof s2orc[0] : 1;

    for (size_t i = 0; i < n; i++)
        ret_field[i] = tern_text_field_of(n > 1 ? s2orc[i] : how->field ? how->field : "text");
    return n;
}

void tern_text_parser_begin(struct tern_text_parser *p, const struct tern_text_how *how,
                            const char *path, enum tern_text_format format,
                            struct tern_text_chunk *chunk)
{
    p->how = how;
    p->path = path;
    p->format = format;
    p->n_fields = tern_text_fields(how, format, p->field);
    p->chunk = chunk;
    p->given = false;
    p->line = chunk->line;
    p->counts = (struct tern_text_counts){0};
    p->doc.max = p->whole.max = p->unmarked.max = TERN_TOKEN_TEXT_MAX;
}

void tern_text_parser_free(struct tern_text_parser *p)
{
    tern_buf_free(&p->doc);
    tern_buf_free(&p->whole);
    tern_buf_free(&p->unmarked);
}

uint64_t tern_text_parser_line(const struct tern_text_parser *p)
{
    return tern_text_lines(p->path, p->chunk->from) + p->line;
}

bool tern_text_parser_take_line(struct tern_text_parser *p, const char **line, size_t *len)
{
    struct tern_text_chunk *c = p->chunk;
    const char *start = c->bytes + c->at;

    if (c->at == c->end)
        return false;
    const char *nl = memchr(start, '\n', c->end - c->at);
    *line = start;
    *len = nl ? (size_t)(nl - start) : c->end - c->at;
    p->from = c->base + c->at;
    p->line++;
    p->counts.lines++;
    c->at += *len + (nl != NULL);
    const size_t marks = tern_text_marks(*line, *len);
    *line += marks;
    *len -= marks;
    p->counts.marks += marks / TERN_TEXT_MARK_BYTES;
    return true;
}

/* The reason of a bad line that is left out is not printed; its number may cost reading half a
 * file.
 */
static bool is_unread(const struct tern_text_parser *p)
{
    return p->how->skip_bad && (p->format == TERN_TEXT_JSONL || p->format == TERN_TEXT_S2ORC);
}

/* Where byte `first` of a text is in its file; false where that cannot be known.  A text that had
 * escapes is no part of its line.  It is if the line has as many such bytes as the text. */
static bool place_of(const struct tern_text_parser *p, const char *s, size_t first, size_t bad,
                     uint64_t *ret_at)
{
    const struct tern_text_chunk *c = p->chunk;

    if (p->format != TERN_TEXT_JSONL && p->format != TERN_TEXT_S2ORC) {
        *ret_at = p->from + first;
        return p->format == TERN_TEXT_PLAIN;
    }
    if (s >= c->bytes && s < c->bytes + c->end) {
        *ret_at = c->base + (uint64_t)(s - c->bytes) + first;
        return true;
    }
    *ret_at = c->base + (uint64_t)(p->raw - c->bytes) + tern_text_utf8_good(p->raw, p->n_raw);
    return tern_text_utf8_bad(p->raw, p->n_raw) == bad;
}

/* Byte `first` of the text is the first of `bad` that are not UTF-8. */
static int refuse_bytes(const struct tern_text_parser *p, const char *s, size_t first, size_t bad,
                        struct tern_err *err)
{
    char line[24] = "", at[40], count[64];
    struct tern_text_invalid_bytes all;
    uint64_t place;

    if (p->format != TERN_TEXT_PLAIN)
        snprintf(line, sizeof line, ":%llu", (unsigned long long)tern_text_parser_line(p));
    if (place_of(p, s, first, bad, &place))
        snprintf(at, sizeof at, "byte %llu", (unsigned long long)place);
    else
        snprintf(at, sizeof at, "byte %zu of the text", first);
    if (p->format != TERN_TEXT_ARROW && tern_text_invalid_count(p->path, p->how->stop, &all) == 0 &&
        all.bytes) /* none: an escape stands for half a character */
        snprintf(count, sizeof count, "%llu such bytes in %s", (unsigned long long)all.bytes,
                 all.whole ? "the file" : "its first GiB");
    else
        snprintf(count, sizeof count, "%zu such bytes in its %s", bad,
                 p->format == TERN_TEXT_PLAIN ? "document" : "text");
    return tern_err_set(err, TERN_USAGE,
                        "%s%s: is not UTF-8: 0x%02x at %s, %s. Convert the file (iconv), or say "
                        "--invalid replace or skip.",
                        p->path, line, (unsigned char)s[first], at, count);
}

/* 1 and a text in UTF-8, 0 when it is left out, or -1. */
static int check_text(struct tern_text_parser *p, const char **text, size_t *len,
                      struct tern_err *err)
{
    const char *s = *text;
    size_t n = *len, good = tern_text_utf8_good(s, n), bad = 0;

    if (good == n)
        return 1;
    if (p->how->invalid == TERN_TEXT_SKIP) {
        p->counts.skipped++;
        return 0;
    }
    tern_buf_clear(&p->whole);
    const size_t first = good;
    for (size_t at = 0; at < n; at += good) {
        good = tern_text_utf8_good(s + at, n - at);
        tern_buf_add(&p->whole, s + at, good);
        if (at + good < n) {
            tern_buf_add(&p->whole, "\xef\xbf\xbd", 3);
            bad++;
            good++;
        }
    }
    if (p->how->invalid == TERN_TEXT_REFUSE && is_unread(p))
        return tern_err_set(err, TERN_USAGE, "%s: is not UTF-8", p->path);
    if (p->how->invalid == TERN_TEXT_REFUSE)
        return refuse_bytes(p, s, first, bad, err);
    p->counts.replaced += bad;
    if (tern_buf_check(&p->whole, p->path, err) < 0)
        return -1;
    *text = p->whole.data;
    *len = p->whole.len;
    return 1;
}

/* ---- documents ---- */

static int no_field(const struct tern_text_parser *p, const json_t *object, struct tern_err *err)
{
    struct tern_buf keys = {.max = 200}, wanted = {0};
    const char *key;
    json_t *value;

    for (size_t i = 0; i < p->n_fields; i++)
        tern_buf_printf(&wanted, "%s'%s'", i ? " and no " : "", p->field[i].whole);
    json_object_foreach((json_t *)object, key, value)
        tern_buf_printf(&keys, "%s%s", keys.len ? ", " : "", key);
    tern_err_set(err, TERN_USAGE, "%s:%llu: no field %s%s%s%s. Choose one with --field.", p->path,
                 (unsigned long long)tern_text_parser_line(p), wanted.data ? wanted.data : "",
                 object ? " (found: " : "",
                 !object    ? ""
                 : keys.len ? keys.data
                            : "none",
                 object ? ")" : "");
    tern_buf_free(&keys);
    tern_buf_free(&wanted);
    return -1;
}

static bool is_blank(const char *line, size_t len)
{
    while (len && (line[len - 1] == ' ' || line[len - 1] == '\t' || line[len - 1] == '\r'))
        len--;
    return len == 0;
}

/* Why a line has no text: the words of a strict reader, where it finds something. */
static int bad_line(const struct tern_text_parser *p, const char *line, size_t n,
                    enum tern_text_line_found found, struct tern_err *err)
{
    json_error_t je;
    json_t *object = json_loadb(line, n, JSON_ALLOW_NUL, &je);
    int rc;

    if (found == TERN_TEXT_LINE_NO_STRING)
        rc = tern_err_set(err, TERN_USAGE, "%s:%llu: field '%s' is not a string", p->path,
                          (unsigned long long)tern_text_parser_line(p), p->field[0].whole);
    else if (found == TERN_TEXT_LINE_NO_FIELD)
        rc = no_field(p, object, err);
    else
        rc = tern_err_set(err, TERN_USAGE, "%s:%llu: not a JSON object%s%s", p->path,
                          (unsigned long long)tern_text_parser_line(p),
                          json_is_array(object) ? "" : " on one line: ",
                          json_is_array(object)    ? ""
                          : json_is_object(object) ? "a NUL byte" /* jansson skips some */
                                                   : je.text);
    json_decref(object);
    return rc;
}

/* The text of one line: 1, 0 when it is left out, or -1. */
static int read_line(struct tern_text_parser *p, const char *line, size_t n, const char **text,
                     size_t *len, struct tern_err *err)
{
    struct tern_text_line_text found;
    enum tern_text_line_found what = TERN_TEXT_LINE_NO_FIELD;

    p->raw = line;
    p->n_raw = n;
    if (p->how->records) {
        *text = line;
        *len = n;
        return check_text(p, text, len, err);
    }
    for (size_t i = 0; i < p->n_fields && what == TERN_TEXT_LINE_NO_FIELD; i++)
        what = tern_text_line_field(line, n, &p->field[i], &p->doc, &found);
    if (tern_buf_check(&p->doc, p->path, err) < 0)
        return -1;
    if (what != TERN_TEXT_LINE_STRING && is_unread(p))
        return tern_err_set(err, TERN_USAGE, "%s: a bad line", p->path);
    if (what != TERN_TEXT_LINE_STRING)
        return bad_line(p, line, n, what, err);
    *text = found.s;
    *len = found.len;
    return found.ascii ? 1 : check_text(p, text, len, err);
}

void tern_text_parser_bad(struct tern_text_parser *p)
{
    if (p->counts.bad < TERN_TEXT_BAD_NAMED)
        p->counts.bad_line[p->counts.bad] = p->line;
    p->counts.bad++;
}

static int next_json(struct tern_text_parser *p, const char **text, size_t *len,
                     struct tern_err *err)
{
    struct tern_err why = {0};
    const char *line;
    size_t n;

    while (tern_text_parser_take_line(p, &line, &n)) {
        while (n && *line == '\x1e') { /* RFC 7464 has it before each record */
            line++;
            n--;
        }
        if (is_blank(line, n))
            continue;
        int rc = read_line(p, line, n, text, len, &why);
        if (rc > 0)
            return 1;
        if (rc < 0 && !(p->how->skip_bad && why.code == TERN_USAGE)) {
            if (err)
                *err = why;
            return -1;
        }
        if (rc < 0)
            tern_text_parser_bad(p);
    }
    return 0;
}

static int next_whole(struct tern_text_parser *p, const char **text, size_t *len)
{
    struct tern_text_chunk *c = p->chunk;

    if (p->given)
        return 0;
    p->given = true;
    p->from = c->base + c->at;
    *text = c->end ? c->bytes + c->at : "";
    *len = c->end - c->at;
    c->at = c->end;
    return 1;
}

static int next_split(struct tern_text_parser *p, const char **text, size_t *len)
{
    const struct tern_text_chunk *c = p->chunk;
    const size_t from = c->at;
    size_t end = from, n;
    const char *line = NULL;
    bool parted = false;

    while (!parted && tern_text_parser_take_line(p, &line, &n)) {
        parted = tern_text_is_split(p->how->split, line, n);
        if (!parted) /* without the newline before what follows */
            end = (size_t)(line - c->bytes) + n;
    }
    if (!line)
        return 0;
    if (end > from && end < c->end && c->bytes[end] == '\n' && c->bytes[end - 1] == '\r')
        end--; /* of the same newline, of Windows */
    p->from = c->base + from;
    *text = c->bytes + from;
    *len = end - from;
    return 1;
}

/* Leave byte order marks at the beginning of lines out of a text.  The lines of a parted one have
 * been counted (tern_text_parser_take_line). */
static int leave_marks(struct tern_text_parser *p, const char **text, size_t *len,
                       struct tern_err *err)
{
    const char *s = *text, *end = s + *len, *from = s, *at = s;

    tern_buf_clear(&p->unmarked);
    for (; (at = memmem(at, (size_t)(end - at), TERN_TEXT_MARK, TERN_TEXT_MARK_BYTES));
         at += TERN_TEXT_MARK_BYTES) {
        if (at > from && at[-1] != '\n' && at[-1] != '\r')
            continue; /* inside a line it is a character */
        tern_buf_add(&p->unmarked, from, (size_t)(at - from));
        from = at + TERN_TEXT_MARK_BYTES;
        p->counts.marks += !p->how->split;
    }
    if (from == s)
        return 1;
    tern_buf_add(&p->unmarked, from, (size_t)(end - from));
    *text = p->unmarked.data ? p->unmarked.data : "";
    *len = p->unmarked.len;
    return tern_buf_check(&p->unmarked, p->path, err) < 0 ? -1 : 1;
}

/* The next document of text that is not JSONL, checked: as tern_text_parser_next. */
static int next_plain(struct tern_text_parser *p, const char **text, size_t *len,
                      struct tern_err *err)
{
    const bool articles = p->format == TERN_TEXT_WIKICORPUS;

    for (;;) {
        int rc = articles        ? tern_text_article_next(p, text, len, err)
                 : p->how->split ? next_split(p, text, len)
                                 : next_whole(p, text, len);
        if (rc <= 0)
            return rc;
        const char *nul = memchr(*text, '\0', *len);
        if (nul && p->how->invalid == TERN_TEXT_SKIP) {
            p->counts.skipped++;
            continue;
        }
        if (nul && articles)
            return tern_err_set(err, TERN_USAGE,
                                "%s:%llu: the article is not text: byte %zu of it is NUL. Say "
                                "--invalid skip to leave it out.",
                                p->path, (unsigned long long)p->doc_line, (size_t)(nul - *text));
        if (nul)
            return tern_err_set(err, TERN_USAGE,
                                "%s: is not text: byte %llu is NUL. Leave the file out.", p->path,
                                (unsigned long long)p->from + (uint64_t)(nul - *text));
        const uint64_t last = p->line;
        if (articles)
            p->line = p->doc_line;
        rc = check_text(p, text, len, err);
        p->line = last;
        if (rc > 0 && !articles) /* whose lines have none by now */
            rc = leave_marks(p, text, len, err);
        if (rc != 0)
            return rc;
    }
}

/* Rows of a table. */
static int next_row(struct tern_text_parser *p, const char **text, size_t *len,
                    struct tern_err *err)
{
    while (tern_text_table_take(p->chunk, text, len)) {
        p->line++;
        int rc = *text ? check_text(p, text, len, err) : 0;
        if (rc != 0)
            return rc;
        if (!*text && !p->how->skip_bad)
            return tern_err_set(err, TERN_USAGE,
                                "%s:%llu: the row has no text. --skip-bad leaves such rows out.",
                                p->path, (unsigned long long)p->line);
        if (!*text)
            tern_text_parser_bad(p);
    }
    return 0;
}

int tern_text_parser_next(struct tern_text_parser *p, const char **text, size_t *len,
                          struct tern_err *err)
{
    const bool json = p->format == TERN_TEXT_JSONL || p->format == TERN_TEXT_S2ORC;

    for (;;) {
        int rc = json                           ? next_json(p, text, len, err)
                 : p->format == TERN_TEXT_ARROW ? next_row(p, text, len, err)
                                                : next_plain(p, text, len, err);
        if (rc <= 0 || *len == 0 || *len >= p->how->min_bytes || p->how->records)
            return rc;
        p->counts.too_short++;
    }
}
