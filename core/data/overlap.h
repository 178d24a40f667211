/* How much of a held-out set occurs in training sets. It counts n-grams of ids, as for the 13-grams
 * of GPT-3 (Brown et al. 2020, arXiv 2005.14165, appendix C).
 *
 * Exact: an n-gram is found by its hash, then compared id by id.  N-grams lie inside a document;
 * BOS and EOS are in none.  The held-out set is in memory with a table of its n-grams: 24 to 44
 * bytes a token.  Training sets are read once, by all threads, a MiB of tokens each.
 */
#ifndef TERN_DATA_OVERLAP_H
#define TERN_DATA_OVERLAP_H

#include "core/data/data.h"

enum { TERN_DATA_OVERLAP_GRAM_MAX = 64, TERN_DATA_OVERLAP_THREADS_MAX = 512 };

struct tern_data_overlap_how {
    unsigned gram; /* ids of an n-gram: 1 to TERN_DATA_OVERLAP_GRAM_MAX */
    unsigned threads;
    /* Called by the caller's thread from time to time: tokens of training read, of all.  NULL: not
     * called.  Not 0: the work ends with TERN_FAILED. */
    int (*progress)(void *ctx, uint64_t done, uint64_t all);
    void *ctx;
};

/* Of a held-out document, or of all. */
struct tern_data_overlap_count {
    uint64_t grams; /* 0: it has fewer ids than an n-gram */
    uint64_t found; /* of them, that occur in a training set */
};

struct tern_data_overlap {
    struct tern_data_overlap_count all;
    struct tern_data_overlap_count *docs; /* [n_docs], malloc'ed */
    uint64_t n_docs;
};

/* All sets are of one vocabulary, which is checked; the held-out set has fewer than 2^31 tokens. */
int tern_data_overlap(struct tern_data_set *const *train, size_t n_train,
                      const struct tern_data_set *held_out, const struct tern_data_overlap_how *how,
                      struct tern_data_overlap *ret_overlap, struct tern_err *err);
void tern_data_overlap_free(struct tern_data_overlap *o);

#endif
