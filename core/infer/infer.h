/* A trained model put to use: weights from disk into memory, and perplexity.
 *
 * Weights come from a Hugging Face folder or from a checkpoint of ours; a path that ends in
 * "/latest" is the newest verified checkpoint of that folder.
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

/* `path`: a Hugging Face folder, a checkpoint, or DIR/latest.  Checks that every tensor of the
 * config is there with its shape; the error names the first that is not. */
int tern_infer_open(const char *path, struct tern_infer_source *out, struct tern_err *err);
void tern_infer_close(struct tern_infer_source *s);

/* Read a slice (its name, start and shape) of array `prefix`NAME ("model/", "exp_avg/") into
 * to[count of the slice].  Digests are checked on the way. */
int tern_infer_read_part(const struct tern_infer_source *s, const char *prefix,
                         const struct tern_model_part *p, tern_real *to, struct tern_err *err);
/* Read the parameters of `m`, a model or a shard of one.  Adapters of the source are put into the
 * weights that they stand beside; those of `m` are left alone. */
int tern_infer_read(const struct tern_infer_source *s, struct tern_llama *m, struct tern_err *err);
/* The same to go on with a run: adapters of `m` are read, too, and its weights as they stand beside
 * them. */
int tern_infer_resume(const struct tern_infer_source *s, struct tern_llama *m,
                      struct tern_err *err);

/* Perplexity's parts. */
struct tern_infer_eval {
    double nll;      /* nats, over all targets */
    uint64_t tokens; /* targets */
    uint64_t bytes;  /* of text behind them; 0: not known, in a set where not all tokens are */
};

/* Who computes what of an evaluation.  A gang is one rank with a whole model, or several that share
 * one and go through the same batches together. */
struct tern_infer_gang {
    void *ctx;
    const struct tern_llama *model; /* what batches must be fit for */
    /* The loss of one batch; ranks of a gang may return zeros but for one (see `counts`). */
    int (*loss)(void *ctx, const struct tern_llama_batch *b, struct tern_llama_loss *out,
                struct tern_err *err);
    /* Does somebody of the gang want an end?  *stop is this rank's wish on entry, and the same
     * answer on all of them on return.  Asked now and then.  NULL: a gang of one. */
    int (*stop)(void *ctx, bool *stop, struct tern_err *err);
    /* This rank is asked to end; may be NULL. */
    const volatile sig_atomic_t *asked;
    int gang, gangs; /* rows are dealt to the gangs */
    bool counts;     /* this rank's losses enter the sum */
    bool isolate;    /* documents of a row do not see each other */
};

/* Over all rows of `set`, cut at seq_len, `batch` rows at a time (the last batch is filled up with
 * rows that do not count); every rank of `comm` gets the same sums.  Collective: 1, and no sums, on
 * the ranks that did their part when another could not, and on all when one was asked to end. */
int tern_infer_evaluate(const struct tern_infer_gang *g, const struct tern_data_set *set,
                        uint32_t seq_len, int batch, struct tern_comm *comm,
                        struct tern_infer_eval *out, struct tern_err *err);

/* A gang of each rank of `comm` alone, with `m` whole. */
struct tern_infer_gang tern_infer_alone(struct tern_llama *m, const struct tern_comm *comm,
                                        const volatile sig_atomic_t *asked);

#endif
