/* A trained model put to use: weights from disk into memory, and perplexity.
 *
 * Weights come from a Hugging Face folder or from a checkpoint of ours. A path that ends in
 * "/latest" or "/best" is a checkpoint of that folder (tern_ckpt_resolve).
 */
#ifndef TERN_INFER_INFER_H
#define TERN_INFER_INFER_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/ckpt/ckpt.h"
#include "core/data/data.h"
#include "core/fabric/fabric.h"
#include "core/llama/llama.h"
#include "core/model/model.h"

/* Weights on disk, opened. */
struct tern_infer_source {
    struct tern_ckpt *ckpt; /* owned */
    const char *prefix;     /* of the parameters' names in it: "model/" or "" */
    struct tern_model_config config;
    struct tern_model_adapters adapters; /* of a checkpoint that has some beside frozen weights */
};

/* `path`: a Hugging Face folder, a checkpoint, DIR/latest or DIR/best.  Checks that every tensor of
 * the config is there with its shape; the error names the first that is not. */
int tern_infer_open(const char *path, struct tern_infer_source *ret_source, struct tern_err *err);
void tern_infer_close(struct tern_infer_source *s);

/* Read a slice (its name, start and shape) of array `prefix`NAME ("model/", "exp_avg/") into
 * to[count of the slice].  Digests are checked on the way. */
int tern_infer_read_part(const struct tern_infer_source *s, const char *prefix,
                         const struct tern_model_part *p, tern_real *to, struct tern_err *err);
/* Read the parameters of `m`, a model or a shard of one.  Adapters of the source are put into the
 * weights that they stand beside; those of `m` are left alone. */
int tern_infer_read(const struct tern_infer_source *s, struct tern_llama *m, struct tern_err *err);
/* The same to go on with a run: adapters of `m` are read, too, and its weights without them. */
int tern_infer_resume(const struct tern_infer_source *s, struct tern_llama *m,
                      struct tern_err *err);

/* Perplexity's parts. */
struct tern_infer_eval {
    double nll;      /* nats, over all targets */
    uint64_t tokens; /* targets */
    uint64_t bytes;  /* of text behind them; 0: not known, where a set has a mask */
};

/* A model-parallel group in an evaluation: one rank with a whole model, or several that share one
 * and go through the same batches together. */
struct tern_infer_group {
    void *ctx;
    const struct tern_llama *model; /* batches are checked against it */
    /* The loss of one batch; all ranks of a group but one may return zeros (see `counts`). */
    int (*loss)(void *ctx, const struct tern_llama_batch *b, struct tern_llama_loss *ret_loss,
                struct tern_err *err);
    /* Has any rank of the group a stop request?  *stop: this rank's on entry, the group's on
     * return. Called every few batches.  NULL: a group of one rank. */
    int (*agree_stop)(void *ctx, bool *stop, struct tern_err *err);
    const volatile sig_atomic_t *stop; /* this rank's stop request; may be NULL */
    int index, groups;                 /* this group; all of them, to which rows are dealt */
    bool counts;                       /* this rank's losses enter the sum */
    bool isolate;                      /* documents of a row do not see each other */
};

/* Over all rows of `set`, cut at seq_len, `batch` rows at a time (the last batch is filled up with
 * rows that do not count).  Every rank of `comm` gets the same sums.  Collective.  1, without sums:
 * another rank failed, or a rank had a stop request. */
int tern_infer_evaluate(const struct tern_infer_group *g, const struct tern_data_set *set,
                        uint32_t seq_len, int batch, struct tern_comm *comm,
                        struct tern_infer_eval *ret_eval, struct tern_err *err);

/* Each rank of `comm` is a group of its own, with `m` whole. */
struct tern_infer_group tern_infer_alone(struct tern_llama *m, const struct tern_comm *comm,
                                         const volatile sig_atomic_t *stop);

#endif
