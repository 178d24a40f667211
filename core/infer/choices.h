/* Multiple choice by likelihood: of which continuation of a context is a model most certain?
 *
 * Tokens, log-likelihoods and choices are those of lm-eval 0.4.13 (loglikelihood of causal models,
 * output_type multiple_choice).
 */
#ifndef TERN_INFER_CHOICES_H
#define TERN_INFER_CHOICES_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/llama/llama.h"
#include "core/token/token.h"

/* A tokenizer at work. */
struct tern_infer_tokens {
    const struct tern_token *token;
    struct tern_token_encoder *encoder; /* of it, one that finds special tokens in text */
    bool bos;                           /* BOS stands before each context */
};

/* A context and its continuation as a row of ids. */
struct tern_infer_row {
    int32_t *ids; /* [n], malloc'ed */
    size_t n;
    size_t scored; /* ids at the end that are the continuation's */
    size_t cut;    /* ids that were left out at the beginning, as the model was made for fewer */
};

/* Context and continuation are encoded as one text, and the continuation has the ids behind as many
 * as the context has by itself.  Blanks at the context's end count to the continuation.  An empty
 * context is BOS, else EOS.  At most `max` + 1 ids are kept, those at the end.  TERN_USAGE where no
 * id is the continuation's, or more than `max` are. */
int tern_infer_row_encode(const struct tern_infer_tokens *t, const char *context,
                          const char *continuation, size_t max, struct tern_infer_row *ret_row,
                          struct tern_err *err);

/* The sum of the logarithms of the probabilities, in nats, that the model gives the scored ids of
 * the row. One id fewer than the row has must be positions of `m`, a whole model. */
int tern_infer_row_score(struct tern_llama *m, const struct tern_infer_row *row, double *ret_nats,
                         struct tern_err *err);

/* The index of the greatest nats[i] / lengths[i] (`lengths` NULL: of nats[i]), the first among
 * equals; that of the first NaN, where there is one. */
size_t tern_infer_choose(const double *nats, const double *lengths, size_t n);

/* The standard error of the mean of `n` answers, `right` of which are right.  It is the deviation
 * of a sample (n - 1), divided by the root of n.  NAN for fewer than two. */
double tern_infer_standard_error(uint64_t right, uint64_t n);

#endif
