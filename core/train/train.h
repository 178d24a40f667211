/* The trainer: the one place where the model meets the fabric.
 *
 * world = tensor x data x pipeline ranks.  Tensor ranks share each layer, pipeline stages the
 * layers (1F1B or interleaved), data ranks the samples of each global batch and, with ZeRO-1, the
 * optimizer's state; sums over ranks are taken in a fixed order.  Sample i of the run depends on
 * the recipe alone, so that what a step sees does not depend on how many ranks share it, and a
 * resumed run goes on with the next sample.  A checkpoint loads into any layout.
 *
 * Same recipe, layout, kernels, BLAS core type and threads: the same bits, however often the run
 * was killed on the way.
 */
#ifndef TERN_TRAIN_TRAIN_H
#define TERN_TRAIN_TRAIN_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/fabric/fabric.h"
#include "core/recipe/recipe.h"

/* Why a run should stop at the next step's end; any rank's wish is everybody's.  The larger wins.
 */
enum tern_train_stop {
    TERN_TRAIN_GO_ON,
    TERN_TRAIN_CONTINUE_LATER, /* time limit, preemption: exit status 76 */
    TERN_TRAIN_HALT,           /* a person said so: 77 */
};

struct tern_train_options {
    const struct tern_recipe *recipe;
    /* Taken over: it is closed before what operations may still be under way on is freed. */
    struct tern_fabric *fabric;
    /* TERN_RUN_SPOOL: the attempt's spool folder, which names ledger, run and attempt.  NULL when
     * there is no supervisor: nothing is recorded, and rank 0 claims the checkpoints itself.  All
     * ranks alike. */
    const char *spool_dir;
    /* A Chrome trace of one step of all ranks: the third, or the last if there are fewer; rank 0
     * writes it, or says why it cannot.  All ranks alike; NULL: none. */
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

/* Train from the newest verified checkpoint, else from the recipe's model, to the last step, or to
 * the end of the step in which somebody wants it to stop; then a checkpoint lies there.
 * Collective.  Where one rank fails, all do, and `err` names the rank that did and its cause.
 * Either way the fabric is closed on return. */
int tern_train(const struct tern_train_options *options, struct tern_train_result *result,
               struct tern_err *err);

#endif
