/* A part of a file: where documents begin, and reading from there on. */
#include "core/text/source.h"

#include "core/base/again.h"
#include "core/base/assert.h"
#include "core/base/str.h"
#include "core/text/bytes.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WINDOW = 1 << 20 }; /* more than a line of most files, and few system calls */

bool tern_text_source_cuttable(const struct tern_text_source *s)
{
    const bool lines = s->format == TERN_TEXT_JSONL || s->format == TERN_TEXT_S2ORC,
               parted = s->format == TERN_TEXT_PLAIN && s->how->split;

    return (lines || parted) && !s->is_latin1 && tern_text_bytes_plain(s->file) >= 0;
}

/* A file seen through a window that moves on. */
struct window {
    const char *path;
    int fd;
    uint64_t base; /* of bytes[0] */
    size_t n;
    char *bytes;
};

/* Let the window begin at `base`: how many bytes are in it, or -1. */
static ptrdiff_t look(struct window *w, uint64_t base, struct tern_err *err)
{
    ssize_t n = TERN_AGAIN(pread(w->fd, w->bytes, WINDOW, (off_t)base));

    if (n < 0)
        return tern_err_sys(err, "%s: cannot read at byte %llu", w->path, (unsigned long long)base);
    w->base = base;
    w->n = (size_t)n;
    return n;
}

/* The byte behind the first newline that is `at` or behind it; *ret_at is the end of the file
 * where there is none. */
static int next_line(struct window *w, uint64_t at, uint64_t *ret_at, struct tern_err *err)
{
    for (;;) {
        if (at < w->base || at >= w->base + w->n) {
            ptrdiff_t n = look(w, at, err);
            if (n < 0)
                return -1;
            if (n == 0)
                break;
        }
        const char *from = w->bytes + (at - w->base),
                   *nl = memchr(from, '\n', w->n - (size_t)(at - w->base));
        at = nl ? w->base + (uint64_t)(nl - w->bytes) + 1 : w->base + w->n;
        if (nl)
            break;
    }
    *ret_at = at;
    return 0;
}

/* Is the line from .. to - 1 (with its newline) the one that parts documents?  1, 0, -1. */
static int is_split(struct window *w, const char *split, uint64_t from, uint64_t to,
                    struct tern_err *err)
{
    if (to - from > strlen(split) + 2)
        return 0;
    if ((from < w->base || to > w->base + w->n) && look(w, from, err) < 0)
        return -1;
    if (to > w->base + w->n) /* the file has shrunk */
        return 0;
    const char *line = w->bytes + (from - w->base);
    return line[to - from - 1] == '\n' && tern_text_is_split(split, line, (size_t)(to - from - 1));
}

/* Behind the first parting line that ends at byte `at` or behind it. */
static int next_part(struct window *w, const struct tern_text_source *s, uint64_t at,
                     uint64_t *ret_at, struct tern_err *err)
{
    const size_t longest = strlen(s->how->split) + 2; /* with "\r\n" */
    const bool inside = at > s->base + longest + 1;
    uint64_t from = inside ? at - longest - 1 : s->base, to;
    int rc;

    if (inside && next_line(w, from, &from, err) < 0)
        return -1;
    for (;; from = to) {
        if (next_line(w, from, &to, err) < 0)
            return -1;
        if (to == from) /* the file's end */
            break;
        rc = is_split(w, s->how->split, from, to, err);
        if (rc < 0)
            return -1;
        if (rc && to >= at)
            break;
    }
    *ret_at = to;
    return 0;
}

int tern_text_source_boundary(const struct tern_text_source *s, uint64_t at, uint64_t *ret_at,
                              struct tern_err *err)
{
    struct window w = {.path = s->path, .fd = tern_text_bytes_plain(s->file)};
    int rc;

    tern_assert(tern_text_source_cuttable(s), "%s", s->path);
    if (at == 0) {
        *ret_at = 0;
        return 0;
    }
    w.bytes = tern_alloc(1, WINDOW, s->path, err);
    if (!w.bytes)
        return -1;
    rc = s->format == TERN_TEXT_PLAIN ? next_part(&w, s, at, ret_at, err)
                                      : next_line(&w, at - 1, ret_at, err);
    free(w.bytes);
    return rc;
}

int tern_text_source_range(struct tern_text_source *s, uint64_t from, uint64_t to,
                           struct tern_err *err)
{
    const uint64_t begin = from < s->base ? s->base : from; /* behind a byte order mark */

    tern_assert(tern_text_source_cuttable(s) && !s->given && from <= to, "%s", s->path);
    if (tern_text_bytes_range(s->file, begin < to ? begin : to, to, err) < 0)
        return -1;
    s->n_rest = 0;
    s->eof = false;
    s->base = begin;
    s->from = from;
    s->file_bytes = to - from;
    return 0;
}

uint64_t tern_text_lines(const char *path, uint64_t from)
{
    uint64_t lines = 0;
    int fd = from ? TERN_AGAIN(open(path, O_RDONLY | O_CLOEXEC)) : -1;
    char *bytes = fd >= 0 ? malloc(WINDOW) : NULL;

    for (uint64_t at = 0; bytes && at < from;) {
        ssize_t n = TERN_AGAIN(
            pread(fd, bytes, from - at < WINDOW ? (size_t)(from - at) : WINDOW, (off_t)at));
        if (n <= 0)
            break;
        for (const char *nl = bytes; (nl = memchr(nl, '\n', (size_t)(bytes + n - nl))); nl++)
            lines++;
        at += (uint64_t)n;
    }
    free(bytes);
    if (fd >= 0)
        close(fd);
    return lines;
}
