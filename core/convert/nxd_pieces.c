/* A tensor's parts on NxD's ranks, put into their places. */
#include "core/convert/nxd_pieces.h"

#include "core/base/str.h"

#include <stdlib.h>
#include <string.h>

int tern_convert_nxd_pieces_alloc(struct tern_convert_nxd_pieces *p, const char *what,
                                  struct tern_err *err)
{
    size_t slots = (size_t)p->plan.slots, ranks = (size_t)p->plan.tensor;

    p->runs = tern_alloc(slots, sizeof *p->runs, what, err);
    p->at = tern_alloc(slots * ranks, sizeof *p->at, what, err);
    p->seen = tern_alloc((size_t)p->plan.config.kv_heads, sizeof *p->seen, what, err);
    return p->runs && p->at && p->seen ? 0 : -1;
}

void tern_convert_nxd_pieces_free(struct tern_convert_nxd_pieces *p)
{
    free(p->runs);
    free(p->at);
    free(p->seen);
    *p = (struct tern_convert_nxd_pieces){0};
}

struct tern_ckpt_piece tern_convert_nxd_piece(const struct tern_convert_nxd_ranks *r, int t,
                                              int axis, const struct tern_model_tensor *whole,
                                              struct tern_convert_nxd_run run, int64_t local)
{
    const struct tern_convert_nxd_found *f = &r->found[t];
    struct tern_ckpt_piece p = {.file = f->file, .offset = f->t->offset};

    for (int d = 0; d < whole->ndim; d++) {
        p.shape[d] = (uint64_t)whole->shape[d];
        p.stride[d] = f->t->stride[d];
    }
    p.start[axis] = (uint64_t)run.start;
    p.shape[axis] = (uint64_t)run.count;
    p.offset += (uint64_t)local * f->t->stride[axis] * tern_ckpt_type_bytes(f->t->type);
    return p;
}

/* The source's part on rank `t`, from `local` on; each key head once.  How many pieces. */
static size_t add_pieces(struct tern_convert_nxd_pieces *p, const struct tern_convert_nxd_ranks *r,
                         const struct tern_model_tensor *whole, int axis, int t, int64_t *local,
                         struct tern_ckpt_piece *to)
{
    bool keys = whole->kind == TERN_MODEL_K || whole->kind == TERN_MODEL_V;
    size_t n = 0, runs = tern_convert_nxd_runs(&p->plan, whole, t, p->runs);
    int64_t rows = p->plan.config.head_dim;

    for (size_t i = 0; i < runs; i++) {
        struct tern_convert_nxd_run run = p->runs[i];
        int64_t step = keys ? rows : run.count;
        for (int64_t at = 0; at < run.count; at += step, *local += step) {
            struct tern_convert_nxd_run one = {run.start + at, step};
            if (keys && p->seen[one.start / rows])
                continue;
            if (keys)
                p->seen[one.start / rows] = true;
            to[n++] = tern_convert_nxd_piece(r, t, axis, whole, one, *local);
        }
    }
    return n;
}

size_t tern_convert_nxd_pieces_find(struct tern_convert_nxd_pieces *p,
                                    const struct tern_convert_nxd_ranks *r,
                                    const struct tern_model_tensor *whole, int axis, int64_t *base)
{
    int64_t local = *base;
    size_t n = 0;

    memset(p->seen, 0, (size_t)p->plan.config.kv_heads * sizeof *p->seen);
    if (axis < 0) {
        p->at[0] = tern_convert_nxd_piece(r, 0, 0, whole,
                                          (struct tern_convert_nxd_run){0, whole->shape[0]}, 0);
        return 1;
    }
    for (int k = 0; k < r->tensor; k++) {
        local = *base;
        n += add_pieces(p, r, whole, axis, k, &local, p->at + n);
    }
    *base = local;
    return n;
}
