/* Documents from text files: JSONL or plain, gzip or not. */
#include "core/data/data.h"

#include "core/base/again.h"
#include "core/base/json.h"
#include "core/base/str.h"
#include "core/base/fs.h"
#include "core/data/bytes.h"
#include "core/data/line.h"
#include "core/data/utf8.h"
#include "core/token/token.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

/* A read of this size keeps system calls below a thousandth of the work. */
enum { PIECE = 256 << 10 };

struct tern_data_text {
    char *path;
    enum tern_data_text_format format;
    char *field, *split;
    struct tern_data_bytes *file;
    uint64_t file_bytes;
    /* Bytes read and not yet returned: buffer[at .. end). */
    char *buffer;
    size_t at, end, cap;
    bool eof, given;     /* given: a plain file that is one document has been */
    uint64_t base;       /* of buffer[0] in the text */
    uint64_t line, from; /* of the line, or the document, given last: its number, its place */
    struct tern_buf doc, whole; /* a document that is no piece of the buffer; one that was mended */
    enum tern_data_text_invalid invalid;
    bool skip_bad;
    struct tern_data_text_counts counts;
};

/* ---- lines ---- */

/* Read more behind buffer[end]. */
static int fill(struct tern_data_text *t, struct tern_err *err)
{
    if (t->at && (t->at == t->end || t->cap - t->end < PIECE)) {
        memmove(t->buffer, t->buffer + t->at, t->end - t->at);
        t->base += t->at;
        t->end -= t->at;
        t->at = 0;
    }
    if (t->end > TERN_TOKEN_TEXT_MAX)
        return tern_err_set(err, TERN_USAGE,
                            "%s:%llu: longer than %d MiB. Split it into documents.", t->path,
                            (unsigned long long)t->line + 1, TERN_TOKEN_TEXT_MAX >> 20);
    if (t->cap - t->end < PIECE) {
        size_t cap = 2 * t->cap + 2 * PIECE;
        char *grown = realloc(t->buffer, cap);
        if (!grown)
            return tern_err_sys(err, "%s: a line", t->path);
        t->buffer = grown;
        t->cap = cap;
    }
    ptrdiff_t n = tern_data_bytes_read(t->file, t->buffer + t->end, PIECE, err);
    if (n < 0)
        return -1;
    t->end += (size_t)n;
    t->eof = n == 0;
    return 0;
}

/* 1 and the next line without its newline, 0 at the end, -1. */
static int next_line(struct tern_data_text *t, char **line, size_t *len, struct tern_err *err)
{
    size_t seen = 0;

    for (;;) {
        char *start = t->buffer + t->at;
        char *nl = t->end - t->at > seen ? memchr(start + seen, '\n', t->end - t->at - seen) : NULL;
        if (nl || (t->eof && t->at < t->end)) {
            *line = start;
            t->from = t->base + t->at;
            *len = nl ? (size_t)(nl - start) : t->end - t->at;
            t->at += *len + (nl != NULL);
            t->line++;
            return 1;
        }
        if (t->eof)
            return 0;
        seen = t->end - t->at;
        if (fill(t, err) < 0)
            return -1;
    }
}

/* ---- opening ---- */

/* Does a name have `.word`, in any case, at its end or before a suffix
 * ("shard-1.jsonl-of-8", "data.jsonl.bak")? */
static bool has_suffix(const char *name, const char *word)
{
    const size_t n = strlen(word);

    for (const char *dot = strchr(name, '.'); dot; dot = strchr(dot + 1, '.'))
        if (strncasecmp(dot + 1, word, n) == 0 && !isalnum((unsigned char)dot[1 + n]))
            return true;
    return false;
}

static int ask(const struct tern_data_text *t, const char *what, struct tern_err *err)
{
    return tern_err_set(err, TERN_USAGE,
                        "%s: %s. Say --format jsonl if each line is an object, or --format text.",
                        t->path, what);
}

/* Find the format by the first line, where the name does not tell it. */
static int look_inside(struct tern_data_text *t, struct tern_err *err)
{
    size_t at = t->at, n;

    while (at < t->end && strchr(" \t\r\n", t->buffer[at]) && t->buffer[at])
        at++;
    const char *line = t->buffer + at, *nl;
    t->format = TERN_DATA_TEXT_PLAIN;
    if (at == t->end || *line != '{')
        return 0;
    nl = memchr(line, '\n', t->end - at);
    n = nl ? (size_t)(nl - line) : t->end - at;
    if (!nl && !t->eof) /* longer than what was read */
        return n > 1 && line[1] == '"' ? ask(t, "does it hold one JSON object a line?", err) : 0;
    struct tern_data_line_text text;
    switch (tern_data_line_field(line, n, t->field, &t->whole, &text)) {
    case TERN_DATA_LINE_STRING:
        t->format = TERN_DATA_TEXT_JSONL;
        return 0;
    case TERN_DATA_LINE_NO_JSON:
        return 0;
    default:
        return ask(t, "its first line is a JSON object", err);
    }
}

static int find_format(struct tern_data_text *t, const char *path, struct tern_err *err)
{
    static const char *const words[] = {"jsonl", "jsonlines", "ndjson", "ldjson", NULL};
    const char *name = tern_fs_basename(path);
    size_t n = strlen(name);

    for (const char *const *w = words; *w; w++)
        if (has_suffix(name, *w)) {
            t->format = TERN_DATA_TEXT_JSONL;
            return 0;
        }
    if ((n >= 5 && strcasecmp(name + n - 5, ".json") == 0) ||
        (n >= 8 && strcasecmp(name + n - 8, ".json.gz") == 0))
        return tern_err_set(err, TERN_USAGE,
                            "%s: one JSON document or JSONL? Say --format jsonl if each line is "
                            "an object.",
                            path);
    return look_inside(t, err);
}

/* The first bytes: a byte order mark of UTF-8 is skipped, one of UTF-16 or 32 is refused. */
static int begin(struct tern_data_text *t, struct tern_err *err)
{
    while (!t->eof && t->end < PIECE)
        if (fill(t, err) < 0)
            return -1;
    if (t->end >= 3 && memcmp(t->buffer, "\xef\xbb\xbf", 3) == 0)
        t->at = 3;
    else if (t->end >= 2 && t->invalid == TERN_DATA_TEXT_REFUSE &&
             (memcmp(t->buffer, "\xff\xfe", 2) == 0 || memcmp(t->buffer, "\xfe\xff", 2) == 0))
        return tern_err_set(err, TERN_USAGE,
                            "%s: begins as UTF-16 does, and text is UTF-8 here. Convert it: iconv "
                            "-f UTF-16 -t UTF-8.",
                            t->path);
    return 0;
}

static int open_fd(const char *path, uint64_t *bytes, struct tern_err *err)
{
    struct stat st;
    int fd =
        strcmp(path, "-") == 0 ? dup(STDIN_FILENO) : TERN_AGAIN(open(path, O_RDONLY | O_CLOEXEC));

    if (fd < 0 || TERN_AGAIN(fstat(fd, &st)) < 0) {
        tern_err_sys(err, "%s: cannot open", path);
        if (err && errno == ENOENT)
            err->code = TERN_USAGE;
        goto fail;
    }
    if (S_ISDIR(st.st_mode)) {
        tern_err_set(err, TERN_USAGE, "%s: is a folder. Name the files in it.", path);
        goto fail;
    }
    *bytes = S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
    return fd;
fail:
    if (fd >= 0)
        close(fd);
    return -1;
}

struct tern_data_text *tern_data_text_open(const char *path, const struct tern_data_text_how *how,
                                           struct tern_err *err)
{
    struct tern_data_text *t = tern_alloc(1, sizeof *t, "a text", err);

    if (!t)
        return NULL;
    t->path = tern_strdup(strcmp(path, "-") == 0 ? "standard input" : path);
    t->field = tern_strdup(how->field ? how->field : "text");
    t->split = how->split ? tern_strdup(how->split) : NULL;
    t->format = how->format;
    t->invalid = how->invalid;
    t->skip_bad = how->skip_bad;
    t->doc.max = t->whole.max = TERN_TOKEN_TEXT_MAX;
    int fd = open_fd(path, &t->file_bytes, err);
    if (fd < 0)
        goto fail;
    t->file = tern_data_bytes_open(fd, t->path, err);
    if (!t->file || begin(t, err) < 0 ||
        (t->format == TERN_DATA_TEXT_AUTO && find_format(t, path, err) < 0))
        goto fail;
    return t;
fail:
    tern_data_text_close(t);
    return NULL;
}

void tern_data_text_close(struct tern_data_text *t)
{
    if (!t)
        return;
    tern_data_bytes_close(t->file);
    tern_buf_free(&t->doc);
    tern_buf_free(&t->whole);
    free(t->buffer);
    free(t->field);
    free(t->split);
    free(t->path);
    free(t);
}

void tern_data_text_progress(const struct tern_data_text *t, uint64_t *done_bytes,
                             uint64_t *all_bytes)
{
    *done_bytes = tern_data_bytes_done(t->file);
    *all_bytes = t->file_bytes;
}

struct tern_data_text_counts tern_data_text_counts(const struct tern_data_text *t)
{
    return t->counts;
}

/* ---- UTF-8 ---- */

/* 1 and a text in UTF-8, 0 when it is left out, or -1. */
static int check_text(struct tern_data_text *t, const char **text, size_t *len,
                      struct tern_err *err)
{
    const char *s = *text;
    size_t n = *len, good = tern_data_utf8_good(s, n), bad = 0;

    if (good == n)
        return 1;
    if (t->invalid == TERN_DATA_TEXT_SKIP) {
        t->counts.skipped++;
        return 0;
    }
    tern_buf_clear(&t->whole);
    const size_t first = good;
    for (size_t at = 0; at < n; at += good) {
        good = tern_data_utf8_good(s + at, n - at);
        tern_buf_add(&t->whole, s + at, good);
        if (at + good < n) {
            tern_buf_add(&t->whole, "\xef\xbf\xbd", 3);
            bad++;
            good++;
        }
    }
    if (t->invalid == TERN_DATA_TEXT_REFUSE && t->format == TERN_DATA_TEXT_JSONL)
        return tern_err_set(
            err, TERN_USAGE,
            "%s:%llu: is not UTF-8: 0x%02x at byte %zu of the text, %zu such bytes in "
            "it. Convert the file, or say --invalid replace or skip.",
            t->path, (unsigned long long)t->line, (unsigned char)s[first], first, bad);
    if (t->invalid == TERN_DATA_TEXT_REFUSE)
        return tern_err_set(
            err, TERN_USAGE,
            "%s: is not UTF-8: 0x%02x at byte %llu, %zu such bytes in its document. "
            "Convert it (iconv), or say --invalid replace or skip.",
            t->path, (unsigned char)s[first], (unsigned long long)(t->from + first), bad);
    t->counts.replaced += bad;
    if (tern_buf_check(&t->whole, t->path, err) < 0)
        return -1;
    *text = t->whole.data;
    *len = t->whole.len;
    return 1;
}

/* ---- documents ---- */

static int no_field(const struct tern_data_text *t, const json_t *object, struct tern_err *err)
{
    struct tern_buf keys = {.max = 200};
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)object, key, value)
        tern_buf_printf(&keys, "%s%s", keys.len ? ", " : "", key);
    tern_err_set(err, TERN_USAGE, "%s:%llu: no field '%s'%s%s%s. Choose one with --field.", t->path,
                 (unsigned long long)t->line, t->field, object ? " (found: " : "",
                 !object    ? ""
                 : keys.len ? keys.data
                            : "none",
                 object ? ")" : "");
    tern_buf_free(&keys);
    return -1;
}

static bool is_blank(const char *line, size_t len)
{
    while (len && (line[len - 1] == ' ' || line[len - 1] == '\t' || line[len - 1] == '\r'))
        len--;
    return len == 0;
}

/* Why a line has no text: the words of a strict reader, where it finds something. */
static int bad_line(const struct tern_data_text *t, const char *line, size_t n,
                    enum tern_data_line_found found, struct tern_err *err)
{
    json_error_t je;
    json_t *object = json_loadb(line, n, JSON_ALLOW_NUL, &je);
    int rc;

    if (found == TERN_DATA_LINE_NO_STRING)
        rc = tern_err_set(err, TERN_USAGE, "%s:%llu: field '%s' is not a string", t->path,
                          (unsigned long long)t->line, t->field);
    else if (found == TERN_DATA_LINE_NO_FIELD)
        rc = no_field(t, object, err);
    else
        rc =
            tern_err_set(err, TERN_USAGE, "%s:%llu: not a JSON object%s%s", t->path,
                         (unsigned long long)t->line, json_is_array(object) ? "" : " on one line: ",
                         json_is_array(object)    ? ""
                         : json_is_object(object) ? "a NUL byte" /* jansson skips some */
                                                  : je.text);
    json_decref(object);
    return rc;
}

/* The text of one line: 1, 0 when it is left out, or -1. */
static int read_line(struct tern_data_text *t, const char *line, size_t n, const char **text,
                     size_t *len, struct tern_err *err)
{
    struct tern_data_line_text found;
    enum tern_data_line_found what = tern_data_line_field(line, n, t->field, &t->doc, &found);

    if (what != TERN_DATA_LINE_STRING)
        return bad_line(t, line, n, what, err);
    if (tern_buf_check(&t->doc, t->path, err) < 0)
        return -1;
    *text = found.s;
    *len = found.len;
    return found.ascii ? 1 : check_text(t, text, len, err);
}

static int next_json(struct tern_data_text *t, const char **text, size_t *len, struct tern_err *err)
{
    char *line;
    size_t n;
    int rc;

    for (;;) {
        if ((rc = next_line(t, &line, &n, err)) <= 0)
            return rc;
        if (is_blank(line, n))
            continue;
        rc = read_line(t, line, n, text, len, err);
        if (rc > 0)
            return 1;
        if (rc < 0 && !(t->skip_bad && err && err->code == TERN_USAGE))
            return -1;
        t->counts.bad += rc < 0;
    }
}

static int next_whole(struct tern_data_text *t, const char **text, size_t *len,
                      struct tern_err *err)
{
    if (t->given)
        return 0;
    while (!t->eof)
        if (fill(t, err) < 0)
            return -1;
    t->given = true;
    t->from = t->base + t->at;
    *text = t->end ? t->buffer + t->at : "";
    *len = t->end - t->at;
    return 1;
}

static bool is_split(const struct tern_data_text *t, const char *line, size_t len)
{
    if (len && line[len - 1] == '\r')
        len--;
    return strlen(t->split) == len && memcmp(line, t->split, len) == 0;
}

static int next_split(struct tern_data_text *t, const char **text, size_t *len,
                      struct tern_err *err)
{
    bool any = false;
    char *line;
    size_t n;
    int rc;
    uint64_t from = t->base + t->at;

    tern_buf_clear(&t->doc);
    while ((rc = next_line(t, &line, &n, err)) > 0 && !is_split(t, line, n)) {
        if (any)
            tern_buf_add(&t->doc, "\n", 1);
        tern_buf_add(&t->doc, line, n);
        any = true;
    }
    if (rc < 0 || tern_buf_check(&t->doc, t->path, err) < 0)
        return -1;
    if (rc == 0 && !any)
        return 0;
    t->from = from;
    *text = t->doc.data ? t->doc.data : "";
    *len = t->doc.len;
    return 1;
}

int tern_data_text_next(struct tern_data_text *t, const char **text, size_t *len,
                        struct tern_err *err)
{
    if (t->format == TERN_DATA_TEXT_JSONL)
        return next_json(t, text, len, err);
    for (;;) {
        int rc = t->split ? next_split(t, text, len, err) : next_whole(t, text, len, err);
        if (rc <= 0)
            return rc;
        const char *nul = memchr(*text, '\0', *len);
        if (nul && t->invalid == TERN_DATA_TEXT_SKIP) {
            t->counts.skipped++;
            continue;
        }
        if (nul)
            return tern_err_set(err, TERN_USAGE,
                                "%s: is not text: byte %llu is NUL. Leave the file out.", t->path,
                                (unsigned long long)t->from + (uint64_t)(nul - *text));
        if ((rc = check_text(t, text, len, err)) != 0)
            return rc;
    }
}
