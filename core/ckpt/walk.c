#include "core/ckpt/walk.h"

#include "core/base/hash.h"
#include "core/base/str.h"
#include "core/ckpt/read.h"

#include <stdlib.h>
#include <string.h>

/* Bytes with one digest: a shard's header, or a slice. */
struct segment {
    uint64_t offset, bytes;
    const uint8_t *sha256;
    const char *name; /* of the slice's array; NULL: the header */
};

static int by_offset(const void *a, const void *b)
{
    const struct segment *x = a, *y = b;

    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* The segments of shard `i`, malloc'ed, in the order of the file: they cover it. */
static struct segment *segments(const struct tern_ckpt *c, unsigned i, size_t *ret_n,
                                struct tern_err *err)
{
    const struct tern_ckpt_shard *s = &c->shards[i];
    size_t n = 1;

    for (size_t e = 0; e < c->n_entries; e++)
        for (size_t k = 0; k < c->entries[e].n; k++)
            n += c->entries[e].slices[k].shard == i;
    struct segment *list = tern_alloc(n, sizeof *list, s->name, err);
    if (!list)
        return NULL;
    list[0] = (struct segment){.bytes = s->header_bytes, .sha256 = s->header_sha256};
    n = 1;
    for (size_t e = 0; e < c->n_entries; e++)
        for (size_t k = 0; k < c->entries[e].n; k++) {
            const struct tern_ckpt_slice *at = &c->entries[e].slices[k];
            if (at->shard != i)
                continue;
            list[n] = (struct segment){
                .offset = at->offset, .sha256 = at->sha256, .name = c->entries[e].info.name};
            tern_ckpt_slice_bytes(&c->entries[e].info, at, &list[n++].bytes);
        }
    qsort(list, n, sizeof *list, by_offset);
    *ret_n = n;
    return list;
}

int tern_ckpt_walk(struct tern_ckpt *c, unsigned i,
                   int (*take)(void *ctx, const void *data, size_t n, struct tern_err *err),
                   void *ctx, struct tern_err *err)
{
    char *path = tern_strf("%s/%s", c->path, c->shards[i].name);
    char *piece = tern_alloc(TERN_CKPT_PIECE, 1, path, err);
    size_t n = 0;
    struct segment *list = piece ? segments(c, i, &n, err) : NULL;
    uint64_t at = 0;
    int rc = list ? 0 : -1;

    for (size_t k = 0; rc == 0 && k < n; k++) {
        struct tern_sha256 *sum = tern_sha256_new();
        uint8_t sha[TERN_SHA256_BYTES];
        const uint64_t end = list[k].offset + list[k].bytes;
        if (list[k].offset != at)
            rc = tern_err_set(err, TERN_USAGE, "%s: no digest covers its byte %llu", path,
                              (unsigned long long)at);
        while (rc == 0 && at < end) {
            const size_t len = end - at < TERN_CKPT_PIECE ? end - at : TERN_CKPT_PIECE;
            const struct tern_ckpt_extent p = {
                .offset = at, .len = len, .until = c->shards[i].bytes};
            rc = tern_ckpt_shard_pread(c, i, path, &p, piece, err);
            if (rc == 0)
                tern_sha256_add(sum, piece, len);
            if (rc == 0 && take)
                rc = take(ctx, piece, len, err);
            at += len;
        }
        tern_sha256_end(sum, sha);
        if (rc == 0 && memcmp(sha, list[k].sha256, sizeof sha) != 0)
            rc = tern_err_set(err, TERN_USAGE, "%s: is damaged: %s%s does not match its digest",
                              path, list[k].name ? "array " : "its header",
                              list[k].name ? list[k].name : "");
    }
    if (rc == 0 && at != c->shards[i].bytes)
        rc = tern_err_set(err, TERN_USAGE, "%s: no digest covers its byte %llu", path,
                          (unsigned long long)at);
    free(list);
    free(piece);
    free(path);
    return rc;
}
