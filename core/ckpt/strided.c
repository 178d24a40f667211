/* Slices whose elements do not follow each other: transposed, interleaved or repeated ones. */
#include "core/ckpt/read.h"

#include "core/base/str.h"

#include <stdlib.h>
#include <string.h>

/* The part of a slice that is wanted: a box. */
struct box {
    const struct tern_ckpt_info *info;
    const struct tern_ckpt_slice *s;
    const struct tern_ckpt_request *w;
    const char *path;
    uint64_t from[TERN_CKPT_DIMS], n[TERN_CKPT_DIMS]; /* in the slice */
};

static void copy_elements(char *to, const char *from, size_t size, uint64_t n, uint64_t stride)
{
    for (uint64_t i = 0; i < n; i++, to += size, from += size * stride)
        memcpy(to, from, size);
}

/* A row of the last dimension, converted. */
static void put_row(const struct box *b, const char *from, char *to, uint64_t n, uint64_t stride)
{
    enum { SOME = 512 };
    const size_t size = tern_ckpt_type_bytes(b->info->type);
    char some[SOME * 8];

    if (stride == 1 || n == 1) {
        tern_ckpt_convert(to, b->w->type, from, b->info->type, n);
        return;
    }
    for (uint64_t at = 0, k; at < n; at += k) {
        k = n - at < SOME ? n - at : SOME;
        copy_elements(some, from + at * stride * size, size, k, stride);
        tern_ckpt_convert(to + at * tern_ckpt_type_bytes(b->w->type), b->w->type, some,
                          b->info->type, k);
    }
}

/* The box lies in `piece`, its first element first. */
static void put_box(const struct box *b, const char *piece)
{
    const int last = b->info->ndim - 1;
    const size_t size = tern_ckpt_type_bytes(b->info->type);
    const size_t to_size = tern_ckpt_type_bytes(b->w->type);
    uint64_t rows = 1;

    for (int d = 0; d < last; d++)
        rows *= b->n[d];
    for (uint64_t row = 0; row < rows; row++) {
        uint64_t rest = row, from = 0, to = 0, pitch = last >= 0 ? b->w->shape[last] : 1;
        for (int d = last - 1; d >= 0; d--) {
            const uint64_t i = rest % b->n[d];
            rest /= b->n[d];
            from += i * b->s->stride[d];
            to += (b->s->start[d] + b->from[d] + i - b->w->start[d]) * pitch;
            pitch *= b->w->shape[d];
        }
        if (last >= 0)
            to += b->s->start[last] + b->from[last] - b->w->start[last];
        put_row(b, piece + from * size, b->w->to + to * to_size, last >= 0 ? b->n[last] : 1,
                last >= 0 ? b->s->stride[last] : 1);
    }
}

/* Reads the box in one go where a piece has room for it, else the halves of its longest way. */
static int read_box(struct tern_ckpt *c, const struct box *b, struct tern_err *err)
{
    const size_t size = tern_ckpt_type_bytes(b->info->type);
    uint64_t span = 1, first = 0, longest = 0;
    int cut = -1;

    for (int d = 0; d < b->info->ndim; d++) {
        const uint64_t way = (b->n[d] - 1) * b->s->stride[d];
        first += b->from[d] * b->s->stride[d];
        span += way;
        if (way > longest) {
            longest = way;
            cut = d;
        }
    }
    if (cut < 0 || span * size <= TERN_CKPT_PIECE) {
        const uint64_t at = b->s->offset + first * size, end = at + span * size;
        const struct tern_ckpt_extent p = {.offset = at, .len = span * size, .until = end};
        if (tern_ckpt_shard_pread(c, b->s->shard, b->path, &p, c->piece, err) < 0)
            return -1;
        put_box(b, c->piece);
        return 0;
    }
    struct box one = *b, two = *b;
    one.n[cut] = b->n[cut] / 2;
    two.n[cut] = b->n[cut] - one.n[cut];
    two.from[cut] += one.n[cut];
    return read_box(c, &one, err) < 0 ? -1 : read_box(c, &two, err);
}

int tern_ckpt_strided_read(struct tern_ckpt *c, const struct tern_ckpt_info *info,
                           const struct tern_ckpt_slice *s, const struct tern_ckpt_request *w,
                           struct tern_err *err)
{
    struct box b = {.info = info, .s = s, .w = w};

    for (int d = 0; d < info->ndim; d++) {
        const uint64_t s_end = s->start[d] + s->shape[d], w_end = w->start[d] + w->shape[d];
        const uint64_t lo = s->start[d] > w->start[d] ? s->start[d] : w->start[d];
        const uint64_t hi = s_end < w_end ? s_end : w_end;
        if (lo >= hi)
            return 0;
        b.from[d] = lo - s->start[d];
        b.n[d] = hi - lo;
    }
    char *path = tern_strf("%s/%s", c->path, c->shards[s->shard].name);
    b.path = path;
    int rc = read_box(c, &b, err);
    free(path);
    return rc;
}
