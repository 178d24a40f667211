/* What the files of this room share. */
#ifndef TERN_TRAIN_STATE_H
#define TERN_TRAIN_STATE_H

#include "core/ckpt/ckpt.h"
#include "core/data/data.h"
#include "core/fabric/fabric.h"
#include "core/infer/infer.h"
#include "core/ledger/ledger.h"
#include "core/llama/llama.h"
#include "core/recipe/recipe.h"
#include "core/train/train.h"

struct train {
    const struct tern_train_options *options;
    const struct tern_recipe *recipe;
    struct tern_comm *world;
    int rank, size;
    int64_t data_ranks, micro_batches; /* tern_recipe_split */

    struct tern_llama *model;
    uint64_t n;                      /* parameters */
    tern_real *params, *grads;       /* [n], the model's */
    tern_real *exp_avg, *exp_avg_sq; /* [n], AdamW's moments */
    struct tern_mix *mix;
    struct tern_set **held_out; /* [recipe->data.held_out.n] */

    /* One micro-batch: [micro, seq_len], and a row with its last target. */
    int32_t *tokens, *targets, *row;
    uint8_t *mask;

    struct tern_spool *spool;      /* of rank 0, else NULL */
    struct tern_ckpt_claim *claim; /* of rank 0, else NULL */
    int64_t beat_ns;               /* when it was last kept alive (boot clock) */
    char run_id[TERN_ULID_SIZE];
    char *files_dir;   /* where config.json and the tokenizer are copied from at the next save */
    char *resumed;     /* the checkpoint this attempt began from, or NULL */
    uint64_t sample;   /* the next one of the run */
    uint64_t opt_step; /* updates that the moments have seen */
    bool evaluated;    /* the held-out sets, at this step */
    uint64_t step;     /* finished */
    int bad_steps;     /* in a row whose gradient was not finite */
    double loss;       /* of the last step */
};

/* ---- setup.c ---- */

/* Everything up to the first step.  Collective. */
int tern_train_setup(struct train *t, struct tern_err *err);
void tern_train_teardown(struct train *t);

/* ---- agree.c ---- */

/* Ranks compare `rc` of what they just did: where any failed, all return -1 with the error of the
 * first that did, "rank 2 (node): ...".  Collective. */
int tern_train_agree(struct train *t, int rc, struct tern_err *err);
/* The strongest wish of any rank.  Collective. */
int tern_train_agree_stop(struct train *t, enum tern_train_stop *stop, struct tern_err *err);

/* ---- step.c ---- */

/* One optimizer step, recorded.  *stop is what the ranks agree on.  Collective. */
int tern_train_step(struct train *t, enum tern_train_stop *stop, struct tern_err *err);

/* ---- save.c ---- */

/* Publish a checkpoint of the present step, record it, prune.  Collective. */
int tern_train_save(struct train *t, struct tern_err *err);

#endif
