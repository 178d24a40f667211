/* The trainer: the one place where the model meets the fabric.
 *
 * world = tensor x data x pipeline ranks.  Tensor ranks share each layer, pipeline stages the
 * layers (1F1B or interleaved), data ranks the samples of each global batch.  With ZeRO-1, data
 * ranks share the optimizer's state, too.  Sums over ranks are taken in a fixed order.  Sample i of
 * the run depends on the recipe alone.  So a step sees the same samples however many ranks share
 * it, and a resumed run goes on with the next sample.  A checkpoint loads into any layout.
 *
 * Same recipe, layout, kernels, unit for bf16, BLAS core type and threads: the same bits, however
 * often the run was killed on the way.
 */
#ifndef TERN_TRAIN_TRAIN_H
#define TERN_TRAIN_TRAIN_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/fabric/fabric.h"
#include "core/recipe/recipe.h"

/* A stop request, which takes effect at the next step's end.  A request of any rank holds for all;
 * the larger wins. */
enum tern_train_stop {
    TERN_TRAIN_GO_ON,
    TERN_TRAIN_CONTINUE_LATER, /* time limit, preemption: exit status 76 */
    TERN_TRAIN_HALT,           /* a user's SIGINT: 77 */
};

struct tern_train_options {
    const struct tern_recipe *recipe;
    /* Taken over: it is closed before arrays are freed that operations may still use. */
    struct tern_fabric *fabric;
    /* TERN_RUN_SPOOL: the attempt's spool folder, which names ledger, run and attempt.  NULL: there
     * is no supervisor, nothing is recorded, and rank 0 takes the lease on the checkpoint folder
     * itself.  The same on all ranks. */
    const char *spool_dir;
    /* File for a Chrome trace of one step of all ranks: the third, or the last if there are fewer.
     * Rank 0 writes it, or logs why it cannot.  The same on all ranks; NULL: none. */
    const char *profile;
    bool accept;                       /* go on although the recipe's identity has changed */
    const volatile sig_atomic_t *stop; /* enum tern_train_stop, set by a signal handler */
    void (*watch)(void *ctx, uint64_t step, double loss); /* after each step; may be NULL */
    void *watch_ctx;
};

struct tern_train_result {
    uint64_t step;             /* finished */
    double loss;               /* of the last step; NaN when none was taken */
    enum tern_train_stop stop; /* why it ended before the last step, if it did */
};

/* May options->profile be written?  TERN_USAGE where a file is there that is no profile: it would
 * be replaced. */
int tern_train_profile_check(const char *path, struct tern_err *err);

/* Train from the newest verified checkpoint, else from the recipe's model, to the last step. A stop
 * request of a rank ends it at the end of that step. A checkpoint of the last step is published.
 * Collective.  Where one rank fails, all do, and `err` names that rank and its cause.  The fabric
 * is closed on return in every case. */
int tern_train_run(const struct tern_train_options *options, struct tern_train_result *ret_result,
                   struct tern_err *err);

#endif
