/* A trained model put to use: weights from disk into memory, and perplexity.
 *
 * Weights come from a Hugging Face folder or from a checkpoint of ours; a path that ends in
 * "/latest" is the newest verified checkpoint of that folder.
 */
#ifndef TERN_INFER_INFER_H
#define TERN_INFER_INFER_H

#include <signal.h>
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
};

/* `path`: a Hugging Face folder, a checkpoint, or DIR/latest.  Checks that every tensor of the
 * config is there with its shape; the error names the first that is not. */
int tern_infer_open(const char *path, struct tern_infer_source *out, struct tern_err *err);
void tern_infer_close(struct tern_infer_source *s);

/* Read the arrays whose names begin with `prefix` ("model/", "exp_avg/") into `to`, laid out as
 * tern_model_tensor's offsets say.  Digests are checked on the way. */
int tern_infer_read(const struct tern_infer_source *s, const char *prefix, tern_real *to,
                    struct tern_err *err);

/* Perplexity's parts. */
struct tern_infer_eval {
    double nll;      /* nats, over all targets */
    uint64_t tokens; /* targets */
    uint64_t bytes;  /* of text behind them */
};

/* Over all rows of `set`, cut at seq_len, `batch` rows at a time (at most what `m` was made for);
 * rows are dealt to the ranks of `comm`, and every rank gets the same sums.  Collective: 1, and no
 * sums, on the ranks that did their part when another could not, and on all when a rank saw *stop
 * (may be NULL) become other than 0 on the way. */
int tern_infer_evaluate(struct tern_llama *m, const struct tern_set *set, uint32_t seq_len,
                        int batch, struct tern_comm *comm, const volatile sig_atomic_t *stop,
                        struct tern_infer_eval *out, struct tern_err *err);

#endif
