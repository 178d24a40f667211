/* The bytes of an open checkpoint: any slice, any type, out of whatever shards hold it. */
#include "core/base/again.h"
#include "core/base/assert.h"
#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/base/progress.h"
#include "core/base/str.h"
#include "core/ckpt/folder.h"
#include "core/ckpt/local.h"
#include "core/ckpt/manifest.h"
#include "core/ckpt/read.h"
#include "core/ckpt/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    OPEN_MAX = 64,               /* shards held open: far below the usual 1024 descriptors */
    AHEAD = 4 * TERN_CKPT_PIECE, /* bytes that the storage is asked for before they are read */
};

/* The shard's descriptor, opened on first use; with OPEN_MAX open, another one is closed. */
static int shard_fd(struct tern_ckpt *c, unsigned i, const char *path, struct tern_err *err)
{
    struct tern_ckpt_shard *s = &c->shards[i];

    if (s->fd >= 0)
        return s->fd;
    unsigned open_now = 0;
    for (size_t k = 0; k < c->n_shards; k++)
        open_now += c->shards[k].fd >= 0;
    while (open_now >= OPEN_MAX) {
        struct tern_ckpt_shard *old = &c->shards[c->opened++ % c->n_shards];
        if (old->fd < 0)
            continue;
        close(old->fd);
        old->fd = -1;
        open_now--;
    }
    /* Ours are plain files (load.c); a Hugging Face cache is made of links. */
    s->ahead = 0;
    s->fd = TERN_AGAIN(open(path, O_RDONLY | O_CLOEXEC | (c->manifest ? O_NOFOLLOW : 0)));
    if (s->fd < 0)
        tern_err_sys(err, "%s: cannot open", path);
    return s->fd;
}

/* The storage works while what was read is used: asked for what follows, as far as `until`. */
static void read_ahead(struct tern_ckpt_shard *s, uint64_t offset, size_t len, uint64_t until)
{
    const uint64_t end = offset + len, to = until < end + AHEAD ? until : end + AHEAD;

    if (offset != s->next)
        s->ahead = 0;
    const uint64_t from = s->ahead > end ? s->ahead : end;
    if (to > from) {
        posix_fadvise(s->fd, (off_t)from, (off_t)(to - from), POSIX_FADV_WILLNEED);
        s->ahead = to;
    }
    s->next = end;
}

int tern_ckpt_shard_pread(struct tern_ckpt *c, unsigned i, const char *path,
                          const struct tern_ckpt_extent *p, void *to, struct tern_err *err)
{
    struct tern_ckpt_shard *s = &c->shards[i];
    struct tern_again a = {0};

    for (;;) {
        errno = 0;
        if (shard_fd(c, i, path, err) < 0)
            return -1;
        read_ahead(s, p->offset, p->len, p->until);
        if (tern_fs_pread(s->fd, to, p->len, p->offset, path, err) == 0)
            return 0;
        if (!tern_again_stale(&a) || tern_fs_reopen(s->fd, path, err) < 0)
            return -1;
        struct stat st;
        if (fstat(s->fd, &st) == 0 && (uint64_t)st.st_size != s->bytes)
            return tern_err_set(err, TERN_TEMPFAIL,
                                "%s: another file has taken its place while it was read", path);
    }
}

/* Elements [at, at + n) of slice `s`, which lie in `piece`: those wanted are put in their place.
 * Row by row of the last dimension. */
static void scatter(const struct tern_ckpt_info *info, const struct tern_ckpt_slice *s,
                    const struct tern_ckpt_request *w, const char *piece, uint64_t at, uint64_t n)
{
    int last = info->ndim - 1;
    size_t from_bytes = tern_ckpt_type_bytes(info->type), to_bytes = tern_ckpt_type_bytes(w->type);

    if (last < 0) {
        tern_ckpt_convert(w->to, w->type, piece, info->type, 1);
        return;
    }
    uint64_t row = s->shape[last], end = at + n;
    for (uint64_t e = at; e < end;) {
        uint64_t r = e / row, col = e % row, len = row - col < end - e ? row - col : end - e;
        uint64_t pitch = w->shape[last], to = 0;
        bool inside = true;
        for (int d = last - 1; d >= 0 && inside; d--) {
            uint64_t i = s->start[d] + r % s->shape[d];
            r /= s->shape[d];
            inside = i >= w->start[d] && i - w->start[d] < w->shape[d];
            to += (i - w->start[d]) * pitch;
            pitch *= w->shape[d];
        }
        uint64_t lo = s->start[last] + col, hi = lo + len, w_end = w->start[last] + w->shape[last];
        lo = lo > w->start[last] ? lo : w->start[last];
        hi = hi < w_end ? hi : w_end;
        if (inside && lo < hi)
            tern_ckpt_convert(w->to + (to + lo - w->start[last]) * to_bytes, w->type,
                              piece + (e - at + lo - s->start[last] - col) * from_bytes, info->type,
                              hi - lo);
        e += len;
    }
}

/* First and one past the last element of `s` that `w` wants; false when it wants none. */
static bool range(const struct tern_ckpt_info *info, const struct tern_ckpt_slice *s,
                  const struct tern_ckpt_request *w, uint64_t *first, uint64_t *end)
{
    uint64_t a = 0, b = 0;

    for (int d = 0; d < info->ndim; d++) {
        uint64_t lo = s->start[d] > w->start[d] ? s->start[d] : w->start[d];
        uint64_t s_end = s->start[d] + s->shape[d], w_end = w->start[d] + w->shape[d];
        uint64_t hi = s_end < w_end ? s_end : w_end;
        if (lo >= hi)
            return false;
        a = a * s->shape[d] + (lo - s->start[d]);
        b = b * s->shape[d] + (hi - 1 - s->start[d]);
    }
    *first = a;
    *end = b + 1;
    return true;
}

static char *shard_path(const struct tern_ckpt *c, unsigned i)
{
    return tern_fs_join(c->shards[i].near ? c->near : c->path, c->shards[i].name);
}

/* Stream slice `s`: digest it when that was not done yet, scatter what `w` (may be NULL) wants. */
static int slice_read(struct tern_ckpt *c, const struct tern_ckpt_info *info,
                      struct tern_ckpt_slice *s, const struct tern_ckpt_request *w,
                      struct tern_err *err)
{
    char *piece = c->piece ? c->piece : tern_alloc(TERN_CKPT_PIECE, 1, info->name, err);
    size_t size = tern_ckpt_type_bytes(info->type);
    uint64_t first = 0, end = 0, whole = 0;
    uint8_t sha[TERN_SHA256_BYTES];
    int rc = -1;

    c->piece = piece;
    if (!piece)
        return -1;
    tern_assert_cmp(s->shard, <, c->n_shards);
    if (s->strided)
        return w ? tern_ckpt_strided_read(c, info, s, w, err) : 0;
    if (w && !range(info, s, w, &first, &end))
        return 0;
    bool digest = s->digested && !s->checked;
    tern_ckpt_shape_elements(s->shape, info->ndim, &whole);
    if (digest) {
        first = 0;
        end = whole;
    }
    struct tern_sha256 *sum = digest ? tern_sha256_new() : NULL;
    char *path = shard_path(c, s->shard);
    /* Rows of a slice that were not read at once will be read next. */
    const bool on = first > 0 && c->shards[s->shard].next == s->offset + first * size;
    for (uint64_t at = first, n; at < end; at += n) {
        n = end - at < TERN_CKPT_PIECE / size ? end - at : TERN_CKPT_PIECE / size;
        const struct tern_ckpt_extent p = {.offset = s->offset + at * size,
                                           .len = n * size,
                                           .until = s->offset + (on ? whole : end) * size};
        if (tern_ckpt_shard_pread(c, s->shard, path, &p, piece, err) < 0)
            goto out;
        if (digest)
            tern_sha256_add(sum, piece, n * size);
        if (w)
            scatter(info, s, w, piece, at, n);
        else
            tern_progress_add(n * size);
    }
    if (digest) {
        tern_sha256_end(sum, sha);
        sum = NULL;
        if (memcmp(sha, s->sha256, sizeof sha) != 0) {
            tern_err_set(err, TERN_USAGE, "%s: is damaged: array '%s' does not match its digest",
                         path, info->name);
            goto out;
        }
        s->checked = true;
    }
    rc = 0;
out:
    if (sum)
        tern_sha256_end(sum, NULL);
    free(path);
    return rc;
}

/* Shard `i` could not be read on this node: is there another place for it? */
static bool leave_near(struct tern_ckpt *c, unsigned i, const struct tern_err *why)
{
    struct tern_ckpt_shard *s = &c->shards[i];

    if (!s->near)
        return false;
    tern_warn("%s; it is read from %s", why->text, c->path);
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
    s->near = false;
    return true;
}

int tern_ckpt_read(struct tern_ckpt *c, const char *name, enum tern_ckpt_type type,
                   const uint64_t *start, const uint64_t *shape, void *to, struct tern_err *err)
{
    struct tern_ckpt_table_entry *e = tern_ckpt_table_find(c, name);
    struct tern_ckpt_request w = {.type = type, .to = to};
    int rc = 0;

    if (!e)
        return tern_err_set(err, TERN_USAGE, "%s: has no array '%s'", c->path, name);
    if (!tern_ckpt_can_convert(type, e->info.type))
        return tern_err_set(err, TERN_USAGE, "%s: array '%s' is %s and cannot be read as %s",
                            c->path, name, tern_ckpt_type_name(e->info.type),
                            tern_ckpt_type_name(type));
    for (int d = 0; d < e->info.ndim; d++) {
        w.start[d] = start ? start[d] : 0;
        w.shape[d] = shape ? shape[d] : e->info.shape[d];
        if (w.start[d] > e->info.shape[d] || w.shape[d] > e->info.shape[d] - w.start[d])
            return tern_err_set(err, TERN_USAGE,
                                "%s: array '%s' has %llu elements in dimension %d; wanted to %llu",
                                c->path, name, (unsigned long long)e->info.shape[d], d,
                                (unsigned long long)(w.start[d] + w.shape[d]));
    }
    for (size_t i = 0; rc == 0 && i < e->n; i++) {
        struct tern_ckpt_slice *s = &e->slices[i];
        rc = slice_read(c, &e->info, s, &w, err);
        if (rc < 0 && leave_near(c, s->shard, err))
            rc = slice_read(c, &e->info, s, &w, err);
    }
    return rc;
}

void tern_ckpt_read_near(struct tern_ckpt *c, const char *dir)
{
    char *path = tern_strf("%s/step-%08llu", dir, (unsigned long long)c->step);
    struct tern_ckpt *near = tern_ckpt_is_ours(path) ? tern_ckpt_local_open(path, NULL) : NULL;

    if (near && !c->near && strcmp(near->digest, c->digest) == 0) {
        c->near = tern_strdup(path);
        for (size_t i = 0; i < c->n_shards; i++) {
            char *file = tern_fs_join(path, c->shards[i].name);
            c->shards[i].near = c->shards[i].fd < 0 && tern_fs_exists(file);
            free(file);
        }
    }
    tern_ckpt_close(near);
    free(path);
}

/* ------------------------------------------------------------------ verify */

/* The header's digest, and that it agrees with the manifest. */
static int header_verify(struct tern_ckpt *c, unsigned i, struct tern_err *err)
{
    struct tern_ckpt_shard *s = &c->shards[i];
    char *path = tern_strf("%s/%s", c->path, s->name), *head = NULL;
    uint8_t sha[TERN_SHA256_BYTES];
    struct tern_ckpt_st_header h;
    int rc = -1;

    if (s->header_bytes < 8 || s->header_bytes > TERN_CKPT_ST_HEADER_MAX + 8ull) {
        tern_err_set(err, TERN_USAGE, "%s: its header has %llu bytes in the manifest", path,
                     (unsigned long long)s->header_bytes);
        goto out;
    }
    const struct tern_ckpt_extent p = {.len = s->header_bytes, .until = s->header_bytes};
    head = tern_alloc(s->header_bytes, 1, path, err);
    if (!head || tern_ckpt_shard_pread(c, i, path, &p, head, err) < 0)
        goto out;
    tern_sha256(head, s->header_bytes, sha);
    if (memcmp(sha, s->header_sha256, sizeof sha) != 0) {
        tern_err_set(err, TERN_USAGE, "%s: is damaged: its header does not match its digest", path);
        goto out;
    }
    struct stat st;
    if (TERN_AGAIN(fstat(s->fd, &st)) < 0) {
        tern_err_sys(err, "%s: cannot stat", path);
        goto out;
    }
    rc = tern_ckpt_st_header_parse(head, s->header_bytes, (uint64_t)st.st_size, path, &h, err);
    if (rc == 0)
        tern_ckpt_st_header_free(&h);
out:
    free(head);
    free(path);
    return rc;
}

static void expect_bytes(const struct tern_ckpt *c)
{
    uint64_t n;

    for (size_t i = 0; i < c->n_entries; i++) {
        for (size_t k = 0; k < c->entries[i].n; k++) {
            const struct tern_ckpt_slice *s = &c->entries[i].slices[k];
            tern_ckpt_shape_elements(s->shape, c->entries[i].info.ndim, &n);
            tern_progress_expect(s->digested ? n * tern_ckpt_type_bytes(c->entries[i].info.type)
                                             : 0);
        }
    }
}

int tern_ckpt_verify(const char *path, bool full, struct tern_err *err)
{
    struct tern_ckpt *c = tern_ckpt_link_check(path, err) < 0 ? NULL : tern_ckpt_open(path, err);
    int rc = c ? 0 : -1;

    if (rc < 0 || !full) {
        tern_ckpt_close(c);
        return rc;
    }
    expect_bytes(c);
    for (unsigned i = 0; rc == 0 && i < c->n_shards; i++)
        rc = header_verify(c, i, err);
    for (size_t i = 0; rc == 0 && i < c->n_entries; i++)
        for (size_t k = 0; rc == 0 && k < c->entries[i].n; k++)
            rc = slice_read(c, &c->entries[i].info, &c->entries[i].slices[k], NULL, err);
    for (size_t i = 0; rc == 0 && i < c->n_files; i++)
        rc = tern_ckpt_file_read(c, c->files[i].name, NULL, NULL, err);
    tern_ckpt_close(c);
    return rc;
}
