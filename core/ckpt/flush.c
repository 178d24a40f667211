/* A save out of the nodes' copies: files are copied, and each byte is compared with its digest. */
#include "core/ckpt/save.h"

#include "core/base/assert.h"
#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/hash.h"
#include "core/base/str.h"
#include "core/ckpt/manifest.h"
#include "core/ckpt/walk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The node's copy, and which of its files this rank brings.  Without `parts`: its own shard, and on
 * rank 0 the small files. */
static int open_copy(struct tern_ckpt_saving *s, const unsigned char *parts, const char *digest,
                     struct tern_err *err)
{
    s->from = tern_ckpt_local_open(s->from_path, err);
    if (s->from && digest && strcmp(s->from->digest, digest) != 0) {
        tern_ckpt_close(s->from);
        s->from = NULL;
        return tern_err_set(err, TERN_FAILED, "%s: is another checkpoint of that step",
                            s->from_path);
    }
    if (!s->from)
        return -1;
    const size_t n = tern_ckpt_parts(s->from);
    s->parts = tern_alloc(n, 1, "list of files", err);
    if (!s->parts)
        return -1;
    for (size_t i = 0; i < n; i++) {
        const bool shard = i < s->from->n_shards;
        s->parts[i] = parts ? parts[i] : shard ? i == (size_t)s->rank : s->rank == 0;
    }
    return 0;
}

int tern_ckpt_flush_plan(struct tern_ckpt_saving *s, const struct tern_ckpt_flush_options *o,
                         struct tern_err *err)
{
    struct tern_err why;

    s->from_path = tern_strf("%s/step-%08llu", o->from, (unsigned long long)o->step);
    s->bytes = s->rank == 0 ? o->bytes : 0;
    s->with_parts = o->parts;
    if (!o->parts || open_copy(s, o->parts, o->digest, &why) == 0)
        return 0;
    /* A node that has nothing to bring need not have the manifest, unless it is rank 0's. */
    if (!s->from && s->rank != 0)
        return 0;
    *err = why;
    return -1;
}

/* Where the bytes of a shard go, as they are read. */
struct copy {
    const struct tern_ckpt_saving *s;
    int fd;
    uint64_t at;
    const char *path;
};

static int take(void *ctx, const void *data, size_t n, struct tern_err *err)
{
    struct copy *to = ctx;

    if (atomic_load(&to->s->halt))
        return tern_err_set(err, TERN_FAILED, "%s: the copy was given up", to->path);
    if (tern_fs_write_at(to->fd, to->at, data, n, to->path, err) < 0)
        return -1;
    to->at += n;
    return 0;
}

static int copy_shard(struct tern_ckpt_saving *s, unsigned i, const char *path,
                      struct tern_err *err)
{
    const uint64_t bytes = s->from->shards[i].bytes;
    struct copy to = {.s = s, .fd = tern_ckpt_save_create(path, bytes, err), .path = path};

    if (to.fd < 0)
        return -1;
    if (tern_ckpt_walk(s->from, i, take, &to, err) == 0) {
        tern_assert_cmp(to.at, ==, bytes);
        return tern_ckpt_save_seal(to.fd, bytes, path, err);
    }
    close(to.fd);
    return -1;
}

static int copy_small(struct tern_ckpt_saving *s, const char *name, const char *path,
                      struct tern_err *err)
{
    char *text = NULL;
    size_t len;
    int rc = tern_ckpt_file_read(s->from, name, &text, &len, err);

    if (rc == 0)
        rc = tern_ckpt_save_small(path, text, len, err);
    free(text);
    return rc < 0 ? -1 : 0;
}

int tern_ckpt_flush_write(struct tern_ckpt_saving *s, struct tern_err *err)
{
    const int64_t from = tern_clock_boot_ns();
    int rc =
        s->from || s->with_parts ? 0 : open_copy(s, /* parts= */ NULL, /* digest= */ NULL, err);
    const size_t n = s->from ? tern_ckpt_parts(s->from) : 0;

    s->mine.bytes = 0;
    s->mine.shards = s->from ? (uint32_t)s->from->n_shards : 0;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        uint64_t bytes;
        const char *name = tern_ckpt_part(s->from, i, &bytes);
        if (!s->parts[i])
            continue;
        s->mine.bytes += bytes;
        char *path = tern_fs_join(s->temp, name);
        rc = i < s->from->n_shards ? copy_shard(s, (unsigned)i, path, err)
                                   : copy_small(s, name, path, err);
        free(path);
    }
    s->mine.write_ns = tern_clock_boot_ns() - from;
    return rc;
}

int tern_ckpt_flush_manifest(struct tern_ckpt_saving *s, char **ret_text, size_t *ret_len,
                             struct tern_err *err)
{
    char *path = tern_strf("%s/%s", s->from->path, TERN_CKPT_MANIFEST);
    const int rc = tern_fs_read(path, TERN_CKPT_MANIFEST_MAX, ret_text, ret_len, err);

    memcpy(s->digest, s->from->digest, sizeof s->digest);
    free(path);
    return rc;
}
