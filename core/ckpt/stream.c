#include "core/ckpt/stream.h"

#include "core/base/again.h"
#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/ckpt/save.h"
#include "core/ckpt/table.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

struct tern_ckpt_stream {
    struct tern_ckpt *c;
    bool writes;
    size_t first, last; /* its files: part `first`, and those from n_shards up to `last` */
    uint64_t bytes, at; /* of all; written so far */
    size_t open;        /* the part that is open */
    int fd;             /* -1: none is */
    char *path;         /* of it */
};

/* The part that byte `at` is in, and where in it; `at` is less than the stream's bytes. */
static size_t part_at(const struct tern_ckpt_stream *s, uint64_t at, uint64_t *ret_in,
                      uint64_t *ret_bytes)
{
    size_t i = s->first;

    for (tern_ckpt_part(s->c, i, ret_bytes); at >= *ret_bytes; tern_ckpt_part(s->c, i, ret_bytes)) {
        at -= *ret_bytes;
        i = i == s->first ? s->c->n_shards : i + 1;
    }
    *ret_in = at;
    return i;
}

static void close_part(struct tern_ckpt_stream *s)
{
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
    free(s->path);
    s->path = NULL;
}

static int open_part(struct tern_ckpt_stream *s, size_t i, uint64_t bytes, struct tern_err *err)
{
    uint64_t same;
    const char *name = tern_ckpt_part(s->c, i, &same);

    if (s->fd >= 0 && s->open == i)
        return 0;
    close_part(s);
    s->open = i;
    s->path = tern_strf("%s/%s%s", s->c->path, s->writes ? ".part-" : "", name);
    if (!s->writes) {
        s->fd = TERN_AGAIN(open(s->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
        return s->fd < 0 ? tern_err_sys(err, "%s: cannot open", s->path) : 0;
    }
    unlink(s->path); /* of an earlier try */
    s->fd = tern_ckpt_save_create(s->path, bytes, err);
    return s->fd < 0 ? -1 : 0;
}

struct tern_ckpt_stream *tern_ckpt_stream_open(const char *dir, uint64_t step, int rank,
                                               bool writes, struct tern_err *err)
{
    struct tern_ckpt_stream *s = tern_alloc(1, sizeof *s, "a copy of a checkpoint", err);
    char *path = tern_strf("%s/step-%08llu", dir, (unsigned long long)step);

    if (s) {
        *s = (struct tern_ckpt_stream){.writes = writes, .fd = -1, .first = (size_t)rank};
        s->c = tern_ckpt_local_open(path, err);
    }
    free(path);
    if (!s || !s->c || s->first >= s->c->n_shards) {
        if (s && s->c)
            tern_err_set(err, TERN_FAILED, "%s: has no shard of rank %d", s->c->path, rank);
        tern_ckpt_stream_end(s);
        return NULL;
    }
    s->last = rank == 0 ? tern_ckpt_parts(s->c) : s->c->n_shards;
    for (size_t i = s->first; i < s->last; i = i < s->c->n_shards ? s->c->n_shards : i + 1) {
        uint64_t bytes;
        tern_ckpt_part(s->c, i, &bytes);
        s->bytes += bytes;
    }
    return s;
}

uint64_t tern_ckpt_stream_bytes(const struct tern_ckpt_stream *s)
{
    return s->bytes;
}

int tern_ckpt_stream_read(struct tern_ckpt_stream *s, uint64_t at, size_t n, char *to,
                          struct tern_err *err)
{
    for (size_t done = 0, len; done < n; done += len) {
        uint64_t in, bytes;
        const size_t i = part_at(s, at + done, &in, &bytes);
        len = bytes - in < n - done ? bytes - in : n - done;
        if (open_part(s, i, bytes, err) < 0 ||
            tern_fs_pread(s->fd, to + done, len, in, s->path, err) < 0)
            return -1;
    }
    return 0;
}

/* The part that is open is whole.  Its name need not be durable yet: without it there is no copy.
 */
static int name_part(struct tern_ckpt_stream *s, uint64_t bytes, struct tern_err *err)
{
    uint64_t same;
    char *name = tern_fs_join(s->c->path, tern_ckpt_part(s->c, s->open, &same));
    int rc = tern_ckpt_save_seal(s->fd, bytes, s->path, err);

    s->fd = -1;
    if (rc == 0 && tern_fs_rename(s->path, name, /* only_new= */ false) < 0)
        rc = tern_err_sys(err, "%s: cannot be put in place", name);
    free(name);
    return rc;
}

/* The last byte is written: files without any come into being, and all names are durable. */
static int finish_writing(struct tern_ckpt_stream *s, struct tern_err *err)
{
    int rc = 0;

    for (size_t i = s->c->n_shards; rc == 0 && i < s->last; i++) {
        uint64_t bytes;
        const char *name = tern_ckpt_part(s->c, i, &bytes);
        if (bytes > 0)
            continue;
        char *path = tern_fs_join(s->c->path, name);
        unlink(path); /* of an earlier try */
        rc = tern_ckpt_save_small(path, "", 0, err);
        free(path);
    }
    return rc < 0 ? -1 : tern_fs_sync_dir(s->c->path, err);
}

int tern_ckpt_stream_write(struct tern_ckpt_stream *s, const char *data, size_t n,
                           struct tern_err *err)
{
    for (size_t len; n > 0 && s->at < s->bytes; data += len, n -= len) {
        uint64_t in, bytes;
        const size_t i = part_at(s, s->at, &in, &bytes);
        len = bytes - in < n ? bytes - in : n;
        if (open_part(s, i, bytes, err) < 0 ||
            tern_fs_write_at(s->fd, in, data, len, s->path, err) < 0 ||
            (in + len == bytes && name_part(s, bytes, err) < 0))
            return -1;
        s->at += len;
        if (s->at == s->bytes && finish_writing(s, err) < 0)
            return -1;
    }
    return 0;
}

void tern_ckpt_stream_end(struct tern_ckpt_stream *s)
{
    if (!s)
        return;
    if (s->writes && s->fd >= 0)
        unlink(s->path);
    close_part(s);
    tern_ckpt_close(s->c);
    free(s);
}
