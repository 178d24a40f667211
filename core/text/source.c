/* Opening files of text, and cutting them where documents end. */
#include "core/text/source.h"

#include "core/base/again.h"
#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/store/reader.h"
#include "core/text/article.h"
#include "core/text/bytes.h"
#include "core/text/json_like.h"
#include "core/text/kind.h"
#include "core/text/line.h"
#include "core/text/mark.h"
#include "core/text/names.h"
#include "core/text/table.h"
#include "core/token/token.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A piece stays in a core's cache, and system calls are below a thousandth of the work. */
enum { PIECE = 256 << 10 };

/* ---- opening ---- */

static int ask(const struct tern_text_source *s, const char *what, struct tern_err *err)
{
    return tern_err_set(err, TERN_USAGE,
                        "%s: %s. Say --format jsonl if each line is an object (jq -c writes other "
                        "JSON so), or --format text.",
                        s->path, what);
}

/* The first byte that is no byte order mark, no blank, and not RFC 7464's. */
static size_t first_byte(const struct tern_text_source *s)
{
    size_t at = tern_text_marks(s->rest, s->n_rest);

    while (at < s->n_rest && s->rest[at] && strchr(" \t\r\n\x1e", s->rest[at]))
        at++;
    return at;
}

/* Find the format by the first line, where the name does not tell it. */
static int look_inside(struct tern_text_source *s, struct tern_err *err)
{
    const struct tern_text_field field = tern_text_field_of(s->how->field ? s->how->field : "text");
    const size_t at = first_byte(s);
    const char *line = s->rest + at, *nl = memchr(line, '\n', s->n_rest - at);
    const size_t n = nl ? (size_t)(nl - line) : s->n_rest - at;
    struct tern_text_line_text text;
    struct tern_buf room = {0};

    s->format = TERN_TEXT_PLAIN;
    if (!s->how->split && tern_text_article_begins(line, s->n_rest - at)) {
        s->format = TERN_TEXT_WIKICORPUS;
        return 0;
    }
    enum tern_text_line_found found = TERN_TEXT_LINE_NO_JSON;
    if (n && (nl || s->eof)) /* not longer than what was read */
        found = tern_text_line_field(line, n, &field, &room, &text);
    tern_buf_free(&room);
    if (found == TERN_TEXT_LINE_STRING || (found != TERN_TEXT_LINE_NO_JSON && s->how->records)) {
        s->format = TERN_TEXT_JSONL;
        return 0;
    }
    if (found != TERN_TEXT_LINE_NO_JSON)
        return ask(s, "its first line is a JSON object", err);
    if (s->how->records) /* they are not read as plain text */
        return 0;
    const char *like = tern_text_json_like(s->rest, s->n_rest, s->eof);
    return like ? ask(s, like, err) : 0;
}

static int find_format(struct tern_text_source *s, const char *path, struct tern_err *err)
{
    switch (tern_text_name_of(tern_fs_basename(path))) {
    case TERN_TEXT_NAME_JSONL:
        s->format = TERN_TEXT_JSONL;
        return 0;
    case TERN_TEXT_NAME_JSON:
        return tern_err_set(err, TERN_USAGE,
                            "%s: one JSON document or JSONL? Say --format jsonl if each line is "
                            "an object.",
                            path);
    default:
        return look_inside(s, err);
    }
}

/* The first bytes, which may show that the file is no text. */
static int begin(struct tern_text_source *s, const char *path, struct tern_err *err)
{
    s->rest = tern_alloc(1, PIECE, s->path, err);
    if (!s->rest)
        return -1;
    while (!s->eof && s->n_rest < PIECE) {
        ptrdiff_t n = tern_text_bytes_read(s->file, s->rest + s->n_rest, PIECE - s->n_rest, err);
        if (n < 0)
            return -1;
        s->n_rest += (size_t)n;
        s->eof = n == 0;
    }
    if (s->how->format == TERN_TEXT_AUTO && tern_text_table_is(s->rest, s->n_rest) &&
        strcmp(path, "-") != 0 && !tern_store_is(path) && !tern_text_bytes_packed(s->file)) {
        s->format = TERN_TEXT_ARROW;
        s->table = tern_text_table_open(s->path, s->how, err);
        return s->table ? 0 : -1;
    }
    return tern_text_kind_check(s->path, s->rest, s->n_rest, err);
}

/* Once the format is known: the byte order mark of UTF-8 is skipped; Latin-1 becomes UTF-8. */
static int begin_encoding(struct tern_text_source *s, struct tern_err *err)
{
    const enum tern_text_encoding wanted = s->how->encoding;
    const bool mark = tern_text_marks(s->rest, s->n_rest) > 0;

    s->is_latin1 = wanted == TERN_TEXT_LATIN1 || (wanted == TERN_TEXT_ENCODING_AUTO &&
                                                  s->format == TERN_TEXT_WIKICORPUS && !mark);
    s->latin1.sure = wanted == TERN_TEXT_LATIN1;
    if (mark && !s->is_latin1) {
        s->base = TERN_TEXT_MARK_BYTES; /* of several the others count as joined (parse.c) */
        s->n_rest -= s->base;
        memmove(s->rest, s->rest + s->base, s->n_rest);
    }
    if (!s->is_latin1)
        return 0;
    if (mark)
        return tern_err_set(err, TERN_USAGE,
                            "%s: begins with UTF-8's byte order mark. Say --encoding utf-8.",
                            s->path);
    if (tern_text_latin1_is_utf8(&s->latin1, s->rest, s->n_rest))
        return tern_text_latin1_refuse(s->path, err);
    char *wide = tern_alloc(2, PIECE, s->path, err);
    if (!wide)
        return -1;
    s->n_rest = tern_text_latin1_decode(s->rest, s->n_rest, wide);
    free(s->rest);
    s->rest = wide;
    return 0;
}

/* Up to `room` bytes of text: how many, 0 at the end, -1. */
static ptrdiff_t read_text(struct tern_text_source *s, char *to, size_t room, struct tern_err *err)
{
    return s->is_latin1 ? tern_text_latin1_read(&s->latin1, s->file, s->path, to, room, err)
                        : tern_text_bytes_read(s->file, to, room, err);
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
        tern_err_set(err, TERN_USAGE, "%s: is a folder", path);
        goto fail;
    }
    *bytes = S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
    return fd;
fail:
    if (fd >= 0)
        close(fd);
    return -1;
}

/* An object at a URL, or a file. */
static int open_file(struct tern_text_source *s, const char *path, struct tern_err *err)
{
    const struct tern_store_reader_how how = {.store = {.stop = s->how->stop}};

    if (tern_store_is(path)) {
        struct tern_store_reader *r = tern_store_reader_open(path, &how, err);
        if (!r)
            return -1;
        free(s->path);
        s->path = tern_strdup(tern_store_reader_url(r)); /* without its query */
        s->file_bytes = tern_store_reader_bytes(r);
        s->file = tern_text_bytes_open_url(r, s->path, err);
        return s->file ? 0 : -1;
    }
    const int fd = open_fd(path, &s->file_bytes, err);
    if (fd < 0)
        return -1;
    s->file = tern_text_bytes_open(fd, s->path, s->how->stop, err);
    return s->file ? 0 : -1;
}

const char *tern_text_source_name(const char *path)
{
    return strcmp(path, "-") == 0 ? "standard input" : path;
}

struct tern_text_source *tern_text_source_open(const char *path, const struct tern_text_how *how,
                                               struct tern_err *err)
{
    struct tern_text_source *s = tern_alloc(1, sizeof *s, "a text", err);

    if (!s)
        return NULL;
    s->path = tern_strdup(tern_text_source_name(path));
    s->how = how;
    s->format = how->format;
    if (open_file(s, path, err) < 0 || begin(s, path, err) < 0 ||
        (s->format == TERN_TEXT_AUTO && find_format(s, path, err) < 0) ||
        (!s->table && begin_encoding(s, err) < 0))
        goto fail;
    if (s->format == TERN_TEXT_WIKICORPUS && tern_text_article_tagged(s->rest, s->n_rest)) {
        tern_err_set(err, TERN_USAGE,
                     "%s: is of the tagged Wikicorpus. Take the raw one: raw.ca, raw.en, raw.es.",
                     s->path);
        goto fail;
    }
    return s;
fail:
    tern_text_source_close(s);
    return NULL;
}

uint64_t tern_text_source_done(const struct tern_text_source *s)
{
    return s->table ? tern_text_table_done(s->table) : tern_text_bytes_done(s->file);
}

void tern_text_source_close(struct tern_text_source *s)
{
    if (!s)
        return;
    tern_text_bytes_close(s->file);
    tern_text_table_close(s->table);
    free(s->rest);
    free(s->path);
    free(s);
}

/* ---- cutting ---- */

void tern_text_chunk_free(struct tern_text_chunk *c)
{
    free(c->bytes);
    *c = (struct tern_text_chunk){0};
}

static int grow(struct tern_text_chunk *c, size_t cap, const char *path, struct tern_err *err)
{
    if (cap <= c->cap)
        return 0;
    char *grown = realloc(c->bytes, cap);
    if (!grown)
        return tern_err_sys(err, "%s: a document", path);
    c->bytes = grown;
    c->cap = cap;
    return 0;
}

/* A piece more, or all that is left. */
static int fill(struct tern_text_source *s, struct tern_text_chunk *c, struct tern_err *err)
{
    const size_t want = c->end < PIECE ? PIECE : c->end + PIECE;

    if (c->end > TERN_TOKEN_TEXT_MAX)
        return tern_err_set(err, TERN_USAGE,
                            "%s:%llu: longer than %d MiB. Split it into documents.", s->path,
                            (unsigned long long)(tern_text_lines(s->path, s->from) + s->line + 1),
                            TERN_TOKEN_TEXT_MAX >> 20);
    if (want > c->cap && grow(c, want > PIECE ? 2 * want : want, s->path, err) < 0)
        return -1;
    while (!s->eof && c->end < want) {
        ptrdiff_t n = read_text(s, c->bytes + c->end, want - c->end, err);
        if (n < 0)
            return -1;
        c->end += (size_t)n;
        s->eof = n == 0;
    }
    return 0;
}

bool tern_text_is_split(const char *split, const char *line, size_t len)
{
    if (len && line[len - 1] == '\r')
        len--;
    return strlen(split) == len && memcmp(line, split, len) == 0;
}

/* Behind the last document of bytes[from .. end), 0 if none ends there; *ret_from: where to look
 * on when there are more bytes. */
static size_t last_end(const struct tern_text_source *s, const struct tern_text_chunk *c,
                       size_t from, size_t *ret_from)
{
    const char *nl, *at = c->bytes + from, *end = c->bytes + c->end;
    size_t last = 0;

    *ret_from = c->end;
    if (s->format == TERN_TEXT_JSONL || s->format == TERN_TEXT_S2ORC) {
        nl = memrchr(at, '\n', c->end - from);
        return nl ? (size_t)(nl + 1 - c->bytes) : 0;
    }
    const char *split = s->format == TERN_TEXT_WIKICORPUS ? TERN_TEXT_ARTICLE_END : s->how->split;
    if (!split)
        return 0;
    for (; (nl = memchr(at, '\n', (size_t)(end - at))); at = nl + 1)
        if (tern_text_is_split(split, at, (size_t)(nl - at)))
            last = (size_t)(nl + 1 - c->bytes);
    *ret_from = (size_t)(at - c->bytes);
    return last;
}

/* Keep what lies behind byte `end` for the next time. */
static int keep(struct tern_text_source *s, struct tern_text_chunk *c, size_t end,
                struct tern_err *err)
{
    s->n_rest = c->end - end;
    if (s->n_rest > PIECE) {
        char *grown = realloc(s->rest, s->n_rest);
        if (!grown)
            return tern_err_sys(err, "%s: a document", s->path);
        s->rest = grown;
    }
    if (s->n_rest)
        memcpy(s->rest, c->bytes + end, s->n_rest);
    c->end = end;
    s->base += end;
    s->given = true;
    return 1;
}

int tern_text_source_cut(struct tern_text_source *s, struct tern_text_chunk *c,
                         struct tern_err *err)
{
    const bool one = s->format == TERN_TEXT_PLAIN && !s->how->split;
    size_t from = 0, end;

    if (s->table)
        return tern_text_table_cut(s->table, c, PIECE, err);
    if (s->eof && s->n_rest == 0 && (s->given || !one))
        return 0;
    if (grow(c, s->n_rest > PIECE ? s->n_rest : PIECE, s->path, err) < 0)
        return -1;
    memcpy(c->bytes, s->rest, s->n_rest);
    c->at = 0;
    c->end = s->n_rest;
    c->base = s->base;
    c->line = s->line;
    c->from = s->from;
    s->n_rest = 0;
    if (c->end < PIECE && fill(s, c, err) < 0)
        return -1;
    while ((end = last_end(s, c, from, &from)) == 0 && !s->eof)
        if (fill(s, c, err) < 0)
            return -1;
    if (s->eof)
        end = c->end;
    return end || one ? keep(s, c, end, err) : 0;
}
