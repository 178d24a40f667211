/* A tensor's parts on NxD's ranks, put into their places. */
#ifndef TERN_CONVERT_NXD_PIECES_H
#define TERN_CONVERT_NXD_PIECES_H

#include "core/convert/nxd_plan.h"
#include "core/convert/nxd_ranks.h"

struct tern_convert_nxd_pieces {
    struct tern_convert_nxd_plan plan; /* set by the caller */
    struct tern_convert_nxd_run *runs; /* [slots]: room */
    struct tern_ckpt_piece *at;        /* [tensor ranks x slots]: the pieces that were found last */
    bool *seen;                        /* [key heads]: room */
};

/* Room for the pieces by `p->plan`.  Freed by tern_convert_nxd_pieces_free in any case. */
int tern_convert_nxd_pieces_alloc(struct tern_convert_nxd_pieces *p, const char *what,
                                  struct tern_err *err);
void tern_convert_nxd_pieces_free(struct tern_convert_nxd_pieces *p);

/* Rows (axis 0) or columns (1) `run` of `whole`, which lie on tensor rank `t`. They stand in the
 * tensor that r->found holds, from row or column `local` on. */
struct tern_ckpt_piece tern_convert_nxd_piece(const struct tern_convert_nxd_ranks *r, int t,
                                              int axis, const struct tern_model_tensor *whole,
                                              struct tern_convert_nxd_run run, int64_t local);

/* Of the tensor that r->found holds, the pieces that make `whole`, in p->at: how many.  Of each
 * rank they begin at row or column *base, which is set behind them.  Copies of a key head: the
 * first.  `axis` -1: tensor rank 0 has it whole. */
size_t tern_convert_nxd_pieces_find(struct tern_convert_nxd_pieces *p,
                                    const struct tern_convert_nxd_ranks *r,
                                    const struct tern_model_tensor *whole, int axis, int64_t *base);

#endif
