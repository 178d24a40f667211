/* Bytes of a record batch's body, compressed or not. */
#include "core/arrow/read.h"

#include "core/base/fs.h"

#include <stdlib.h>
#include <string.h>
#ifdef TERN_WITH_ZSTD
#include <zstd.h>
#endif

int tern_arrow_reserve(struct tern_arrow_bytes *b, size_t len, struct tern_err *err)
{
    if (len + 8 > b->cap) {
        free(b->data);
        b->cap = 0;
        b->data = malloc(len + 8);
        if (!b->data)
            return tern_err_sys(err, "%zu bytes of an Arrow file", len);
        b->cap = len + 8;
    }
    b->len = 0;
    return 0;
}

static int too_large(const struct tern_arrow *a, uint64_t len, struct tern_err *err)
{
    return tern_err_set(err, TERN_USAGE,
                        "%s: a column has %llu bytes in one record batch; at most %d are read. "
                        "Write it in smaller batches.",
                        a->path, (unsigned long long)len, TERN_ARROW_BUFFER_MAX);
}

static int read_plain(struct tern_arrow *a, uint64_t offset, uint64_t len,
                      struct tern_arrow_bytes *to, struct tern_err *err)
{
    if (len > TERN_ARROW_BUFFER_MAX)
        return too_large(a, len, err);
    if (tern_arrow_reserve(to, (size_t)len, err) < 0 ||
        tern_fs_pread(a->fd, to->data, (size_t)len, a->body + offset, a->path, err) < 0)
        return -1;
    to->len = (size_t)len;
    return 0;
}

static int decompress(struct tern_arrow *a, uint64_t len, struct tern_arrow_bytes *to,
                      struct tern_err *err)
{
#ifdef TERN_WITH_ZSTD
    if (tern_arrow_reserve(to, (size_t)len, err) < 0)
        return -1;
    const size_t n = ZSTD_decompress(to->data, (size_t)len, a->packed.data, a->packed.len);
    if (ZSTD_isError(n) || n != len)
        return tern_arrow_bad(a, "a column does not decompress", err);
    to->len = n;
    return 0;
#else
    (void)len;
    (void)to;
    return tern_err_set(err, TERN_USAGE,
                        "%s: compressed by Zstandard, and this tern was built without libzstd. "
                        "Write it without compression.",
                        a->path);
#endif
}

/* A compressed array is i64 its length, -1 where it is stored as it is, and its frame. */
static int read_packed(struct tern_arrow *a, uint64_t offset, uint64_t len,
                       struct tern_arrow_bytes *to, struct tern_err *err)
{
    int64_t plain;

    if (len < sizeof plain)
        return tern_arrow_bad(a, "a compressed column has no length", err);
    if (tern_fs_pread(a->fd, &plain, sizeof plain, a->body + offset, a->path, err) < 0)
        return -1;
    offset += sizeof plain;
    len -= sizeof plain;
    if (plain == -1)
        return read_plain(a, offset, len, to, err);
    if (plain < 0 || plain > TERN_ARROW_BUFFER_MAX)
        return too_large(a, (uint64_t)plain, err);
    if (read_plain(a, offset, len, &a->packed, err) < 0)
        return -1;
    return decompress(a, (uint64_t)plain, to, err);
}

int tern_arrow_body_read(struct tern_arrow *a, uint64_t offset, uint64_t len,
                         struct tern_arrow_bytes *to, struct tern_err *err)
{
    if (offset > a->body_bytes || len > a->body_bytes - offset)
        return tern_arrow_bad(a, "a column lies outside its record batch", err);
    if (len == 0) {
        to->len = 0;
        return tern_arrow_reserve(to, 0, err);
    }
    return a->codec == TERN_ARROW_PLAIN ? read_plain(a, offset, len, to, err)
                                        : read_packed(a, offset, len, to, err);
}
