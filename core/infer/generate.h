/* Text generation: prompts of ids in, tokens out, several rows at a time. */
#ifndef TERN_INFER_GENERATE_H
#define TERN_INFER_GENERATE_H

#include <signal.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/infer/sample.h"
#include "core/llama/llama.h"

struct tern_infer_prompt {
    const int32_t *ids; /* [n], at least one */
    int n;
    uint64_t stream; /* of the random numbers: equal ones draw the same */
};

enum tern_infer_end {
    TERN_INFER_EOS,     /* the last token ends a text */
    TERN_INFER_STOPPED, /* `token` said so */
    TERN_INFER_TOKENS,  /* max_tokens are there */
    TERN_INFER_CONTEXT, /* the model's positions are full */
    TERN_INFER_GIVEN_UP /* a stop request */
};

struct tern_infer_generation {
    int batch;          /* rows at a time; 1 or more */
    int max_tokens;     /* of each prompt; 1 or more */
    int positions;      /* of a row: prompt and tokens, at most max_position_embeddings */
    const int32_t *eos; /* [n_eos] */
    int n_eos;
    struct tern_infer_sampling sampling;
    const volatile sig_atomic_t *stop; /* not 0: give up; may be NULL */
    void *ctx;
    bool logprobs; /* are they wanted? */
    /* A token of a prompt, an EOS among them, with the natural logarithm of its probability before
     * temperature, top_k and top_p.  It is 0 where it is not wanted.  0, or 1 to end this prompt;
     * -1 with `err` ends all. */
    int (*token)(void *ctx, size_t prompt, int32_t id, double logprob, struct tern_err *err);
    /* A prompt's last token was given out (with GIVEN_UP there may be none). */
    int (*end)(void *ctx, size_t prompt, enum tern_infer_end why, struct tern_err *err);
};

/* What was done, and how long it took; the prompts' last tokens give the first generated ones. */
struct tern_infer_rates {
    uint64_t read, made; /* tokens of prompts; tokens by steps of one token a row */
    double read_s, made_s;
};

/* Continue the prompts, the first ones first; as one ends, the next one takes its row.  A prompt's
 * tokens depend neither on the others nor on threads.  1: a stop request ended it. */
int tern_infer_generate(struct tern_llama *m, const struct tern_infer_generation *g,
                        const struct tern_infer_prompt *prompts, size_t n,
                        struct tern_infer_rates *ret_rates, struct tern_err *err);

/* Bytes of the cache, and of the rest beside the model itself. */
uint64_t tern_infer_generate_bytes(const struct tern_model_config *c, int batch, int positions,
                                   int threads, uint64_t *ret_cache);

#endif
