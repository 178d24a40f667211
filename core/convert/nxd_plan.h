/* Which part of which tensor each of NxD's ranks holds. */
#ifndef TERN_CONVERT_NXD_PLAN_H
#define TERN_CONVERT_NXD_PLAN_H

#include "core/convert/nxd.h"

struct tern_convert_nxd_plan {
    struct tern_model_config config;
    int tensor, pipeline, parts;   /* of the layers: pipeline x interleave */
    int copies;                    /* of a key head */
    int slots;                     /* key heads of a tensor rank, copies counted */
    enum tern_convert_nxd_qkv qkv; /* not AUTO */
    enum tern_convert_nxd_hw hw;
};

/* Defaults filled in.  TERN_USAGE where the trainer cannot cut the model so; `what` begins the
 * message. */
int tern_convert_nxd_plan(const struct tern_model_config *c, const struct tern_convert_nxd *o,
                          const char *what, struct tern_convert_nxd_plan *ret_plan,
                          struct tern_err *err);

/* Part `i`: its first layer, and how many; pipeline rank i % pipeline has it. */
void tern_convert_nxd_part(const struct tern_convert_nxd_plan *p, int i, int *ret_first,
                           int *ret_layers);

/* One tensor of a rank's file: parts of 1 to 3 tensors of the model, one below the other. */
struct tern_convert_nxd_tensor {
    char name[96];
    int axis; /* where the tensor ranks cut it: 0 rows, 1 columns, -1 all have it whole */
    int sources;
    size_t source[3]; /* in the model's table */
    int ndim;
    uint64_t shape[2]; /* of one rank */
};

/* The tensors of a pipeline rank, [*ret_n], malloc'ed; shapes are those of every tensor rank. */
int tern_convert_nxd_list(const struct tern_convert_nxd_plan *p, int pipeline_rank,
                          struct tern_convert_nxd_tensor **ret_tensors, size_t *ret_n,
                          struct tern_err *err);

struct tern_convert_nxd_run {
    int64_t start, count; /* rows or columns of the model's tensor */
};

/* The rows or columns of `t` (a weight that ranks cut) that tensor rank `rank` holds, in order:
 * `to` has room for p->slots runs; neighbours are one run.  How many. */
size_t tern_convert_nxd_runs(const struct tern_convert_nxd_plan *p,
                             const struct tern_model_tensor *t, int rank,
                             struct tern_convert_nxd_run *to);

#endif
