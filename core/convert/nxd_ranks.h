/* Files of NxD's ranks, while they are read: which ones a folder holds, and a tensor's place on
 * each tensor rank. */
#ifndef TERN_CONVERT_NXD_RANKS_H
#define TERN_CONVERT_NXD_RANKS_H

#include <signal.h>

#include "core/convert/foreign.h"
#include "core/pytorch/pytorch.h"

enum { TERN_CONVERT_NXD_RANKS_MAX = 1024 }; /* of each kind */

struct tern_convert_nxd_rank {
    char *name; /* of its file in the folder */
    struct tern_pytorch_file file;
    bool *found;      /* [file.n]: was it asked for */
    size_t skip;      /* bytes of each name: "model." where the trainer kept the weights so */
    unsigned in_list; /* number of the file for tern_ckpt_open_files */
};

/* A tensor on one tensor rank. */
struct tern_convert_nxd_found {
    unsigned file;
    const struct tern_pytorch_tensor *t; /* NULL: not opened */
    struct tern_pytorch_file own;        /* xser: the file with this tensor alone */
};

/* Starts as {.dir = ..., .stop = ..., .list = {.dir = ...}}. */
struct tern_convert_nxd_ranks {
    const char *dir;
    const volatile sig_atomic_t *stop; /* not 0: give up; NULL: never */
    size_t form;
    bool xser;
    int tensor, pipeline;                 /* ranks */
    struct tern_convert_nxd_rank *ranks;  /* [pipeline][tensor] */
    struct tern_convert_foreign list;     /* files so far, and arrays, which the caller adds */
    struct tern_convert_nxd_found *found; /* [tensor]: the tensor that was found last */
};

/* The names of a folder's rank files, by their form.  It is a path below the folder, with "%02d" in
 * place of the tensor and the pipeline rank; malloc'ed.  NULL when there is no such form. */
char *tern_convert_nxd_rank_name(size_t form, int tensor, int pipeline);

/* The names in all files, each file by a child without rights (core/pytorch/pytorch.h).  TERN_USAGE
 * for a folder without such files, where one is missing, and where the marker `checkpoint` stands
 * without the marker `done`.  In any case tern_convert_nxd_ranks_free comes after it. */
int tern_convert_nxd_ranks_open(struct tern_convert_nxd_ranks *r, struct tern_err *err);
void tern_convert_nxd_ranks_free(struct tern_convert_nxd_ranks *r);

/* The first pipeline rank that holds the tensor, or -1. */
int tern_convert_nxd_ranks_stage(const struct tern_convert_nxd_ranks *r, const char *name);

/* `name` of pipeline rank `pipeline` on every tensor rank, of one type and shape, in r->found.
 * `whole`: all ranks have the same, and with xser tensor rank 0's alone is opened. */
int tern_convert_nxd_ranks_find(struct tern_convert_nxd_ranks *r, int pipeline, const char *name,
                                bool whole, struct tern_err *err);

/* An error when the files hold tensors that were not taken, save those for which `may_be_left` is
 * true. It names three of them and ends in `hint`. */
int tern_convert_nxd_ranks_check_rest(const struct tern_convert_nxd_ranks *r,
                                      bool (*may_be_left)(const void *user, const char *name),
                                      const void *user, const char *hint, struct tern_err *err);

/* "[24, 32]" to `to`, which it returns. */
const char *tern_convert_nxd_shape(char *to, size_t size, int ndim, const uint64_t *shape);

#endif
