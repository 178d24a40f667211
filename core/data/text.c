/* Documents from text files: JSONL or plain, gzip or not. */
#include "core/data/data.h"

#include "core/base/json.h"
#include "core/base/str.h"
#include "core/data/bytes.h"
#include "core/token/token.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A read of this size keeps system calls below a thousandth of the work. */
enum { PIECE = 256 << 10 };

struct tern_text {
    char *path;
    enum tern_text_format format;
    char *field, *split;
    struct tern_bytes *file;
    uint64_t file_bytes;
    /* What is read and not yet given: buffer[at .. end). */
    char *buffer;
    size_t at, end, cap;
    bool eof, given; /* given: a plain file that is one document has been */
    uint64_t line;
    json_t *object; /* holds the document given last */
    struct tern_buf doc;
};

/* ---- lines ---- */

/* Read more behind buffer[end]. */
static int fill(struct tern_text *t, struct tern_err *err)
{
    if (t->at && t->at == t->end)
        t->at = t->end = 0;
    if (t->at && t->cap - t->end < PIECE) {
        memmove(t->buffer, t->buffer + t->at, t->end - t->at);
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
    ptrdiff_t n = tern_bytes_read(t->file, t->buffer + t->end, PIECE, err);
    if (n < 0)
        return -1;
    t->end += (size_t)n;
    t->eof = n == 0;
    return 0;
}

/* 1 and the next line without its newline, 0 at the end, -1. */
static int next_line(struct tern_text *t, char **line, size_t *len, struct tern_err *err)
{
    size_t seen = 0;

    for (;;) {
        char *start = t->buffer + t->at;
        char *nl = t->end - t->at > seen ? memchr(start + seen, '\n', t->end - t->at - seen) : NULL;
        if (nl || (t->eof && t->at < t->end)) {
            *line = start;
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

static int format_of(const char *path, enum tern_text_format *format, struct tern_err *err)
{
    char *name = tern_strdup(path);
    size_t n = strlen(name);

    if (tern_str_ends(name, ".gz"))
        name[n - 3] = '\0';
    bool json = tern_str_ends(name, ".json");
    *format = tern_str_ends(name, ".jsonl") || tern_str_ends(name, ".ndjson") ? TERN_TEXT_JSONL
                                                                              : TERN_TEXT_PLAIN;
    free(name);
    return json ? tern_err_set(err, TERN_USAGE,
                               "%s: one JSON document or JSONL? Say --format jsonl if each line is "
                               "an object.",
                               path)
                : 0;
}

static int open_fd(const char *path, uint64_t *bytes, struct tern_err *err)
{
    struct stat st;
    int fd = strcmp(path, "-") == 0 ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0 || fstat(fd, &st) < 0) {
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

struct tern_text *tern_text_open(const char *path, const struct tern_text_how *how,
                                 struct tern_err *err)
{
    struct tern_text *t = tern_alloc(1, sizeof *t, "a text", err);

    if (!t)
        return NULL;
    t->path = tern_strdup(strcmp(path, "-") == 0 ? "standard input" : path);
    t->field = tern_strdup(how->field ? how->field : "text");
    t->split = how->split ? tern_strdup(how->split) : NULL;
    t->format = how->format;
    t->doc.max = TERN_TOKEN_TEXT_MAX;
    if (t->format == TERN_TEXT_AUTO && format_of(path, &t->format, err) < 0)
        goto fail;
    int fd = open_fd(path, &t->file_bytes, err);
    if (fd < 0)
        goto fail;
    t->file = tern_bytes_open(fd, t->path, err);
    if (!t->file)
        goto fail;
    return t;
fail:
    tern_text_close(t);
    return NULL;
}

void tern_text_close(struct tern_text *t)
{
    if (!t)
        return;
    tern_bytes_close(t->file);
    json_decref(t->object);
    tern_buf_free(&t->doc);
    free(t->buffer);
    free(t->field);
    free(t->split);
    free(t->path);
    free(t);
}

void tern_text_progress(const struct tern_text *t, uint64_t *done_bytes, uint64_t *all_bytes)
{
    *done_bytes = tern_bytes_done(t->file);
    *all_bytes = t->file_bytes;
}

/* ---- documents ---- */

static int no_field(const struct tern_text *t, struct tern_err *err)
{
    struct tern_buf keys = {.max = 200};
    const char *key;
    json_t *value;

    json_object_foreach(t->object, key, value)
        tern_buf_printf(&keys, "%s%s", keys.len ? ", " : "", key);
    tern_err_set(err, TERN_USAGE, "%s:%llu: no field '%s' (found: %s). Choose one with --field.",
                 t->path, (unsigned long long)t->line, t->field, keys.len ? keys.data : "none");
    tern_buf_free(&keys);
    return -1;
}

static bool is_blank(const char *line, size_t len)
{
    while (len && (line[len - 1] == ' ' || line[len - 1] == '\t' || line[len - 1] == '\r'))
        len--;
    return len == 0;
}

static int next_json(struct tern_text *t, const char **text, size_t *len, struct tern_err *err)
{
    json_error_t je;
    char *line;
    size_t n;
    int rc;

    do {
        rc = next_line(t, &line, &n, err);
        if (rc <= 0)
            return rc;
    } while (is_blank(line, n));
    json_decref(t->object);
    t->object = json_loadb(line, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &je);
    if (!t->object)
        return tern_err_set(err, TERN_USAGE, "%s:%llu: not a JSON object on one line: %s", t->path,
                            (unsigned long long)t->line, je.text);
    json_t *value = json_object_get(t->object, t->field);
    if (!json_is_object(t->object))
        return tern_err_set(err, TERN_USAGE, "%s:%llu: not a JSON object", t->path,
                            (unsigned long long)t->line);
    if (!value)
        return no_field(t, err);
    if (!json_is_string(value))
        return tern_err_set(err, TERN_USAGE, "%s:%llu: field '%s' is not a string", t->path,
                            (unsigned long long)t->line, t->field);
    *text = json_string_value(value);
    *len = json_string_length(value);
    return 1;
}

static int next_whole(struct tern_text *t, const char **text, size_t *len, struct tern_err *err)
{
    if (t->given)
        return 0;
    while (!t->eof)
        if (fill(t, err) < 0)
            return -1;
    t->given = true;
    *text = t->end ? t->buffer : "";
    *len = t->end;
    return 1;
}

static bool is_split(const struct tern_text *t, const char *line, size_t len)
{
    if (len && line[len - 1] == '\r')
        len--;
    return strlen(t->split) == len && memcmp(line, t->split, len) == 0;
}

static int next_split(struct tern_text *t, const char **text, size_t *len, struct tern_err *err)
{
    bool any = false;
    char *line;
    size_t n;
    int rc;

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
    *text = t->doc.data ? t->doc.data : "";
    *len = t->doc.len;
    return 1;
}

int tern_text_next(struct tern_text *t, const char **text, size_t *len, struct tern_err *err)
{
    if (t->format == TERN_TEXT_JSONL)
        return next_json(t, text, len, err);
    int rc = t->split ? next_split(t, text, len, err) : next_whole(t, text, len, err);
    const char *nul = rc > 0 ? memchr(*text, '\0', *len) : NULL;
    if (nul)
        return tern_err_set(err, TERN_USAGE,
                            "%s: is not text: byte %zu of a document is NUL. Leave the file out.",
                            t->path, (size_t)(nul - *text));
    return rc;
}
