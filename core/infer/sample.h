/* The next token from its logits.
 *
 * A draw is a pure function of (seed, stream, place, logits): tern_rand_unit(seed, stream, place)
 * of core/base/rand.h, SplitMix64's finaliser in three rounds.  Neither threads nor the other rows
 * of a batch change it.
 */
#ifndef TERN_INFER_SAMPLE_H
#define TERN_INFER_SAMPLE_H

#include <stdint.h>

#include "core/base/err.h"
#include "core/tensor/tensor.h"

struct tern_infer_sampling {
    double temperature; /* logits are divided by it; 0: the largest logit, the first of equals */
    int top_k;          /* of the largest logits alone; 0: of all */
    double top_p;       /* of the most probable tokens whose share, after top_k, is this at least
                           (Holtzman et al. 2019, arXiv 1904.09751); 1: of all */
    uint64_t seed;
};

/* Memory for n tokens. */
struct tern_infer_sampler;
struct tern_infer_sampler *tern_infer_sampler_new(const struct tern_infer_sampling *how, int n,
                                                  struct tern_err *err);
void tern_infer_sampler_free(struct tern_infer_sampler *s); /* NULL is fine */

/* The token: 0 .. n - 1.  -1 with `err` where a logit is not a number, or infinite. */
int32_t tern_infer_sample(struct tern_infer_sampler *s, const tern_real *logits, uint64_t stream,
                          uint64_t place, struct tern_err *err);
/* The natural logarithm of a token's probability, softmax(logits[n])[id]. */
double tern_infer_logprob(const tern_real *logits, int n, int32_t id);

#endif
