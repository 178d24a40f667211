/* The supervisor: takes a recipe through its attempts and accounts for them in the ledger.
 *
 * It runs in the batch script (or by hand on one machine).  It takes the lease on the run's
 * checkpoints, writes the run and its attempt to the ledger, and launches the ranks.  It passes
 * signals on to them, folds the ledger while they work, and reports the end and its reason.  The
 * ranks are tern's own trainer or whatever `workload.command` names; under Slurm they are one srun
 * step, else processes of this machine.
 *
 * After an attempt that ended for a reason outside the run (75), another one begins.  It runs on
 * good nodes of the job, if enough are left, else in the same job after it was queued again.  The
 * run ends after three attempts in a row without a newer checkpoint, unless a lost node excuses
 * them.  The process belongs to the supervisor meanwhile: its signals are blocked and read, its
 * children are waited for.
 */
#ifndef TERN_RUN_RUN_H
#define TERN_RUN_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/recipe/recipe.h"
#include "core/site/site.h"

struct tern_run_options {
    const struct tern_recipe *recipe;
    const char *recipe_path; /* absolute: the ranks read it too */
    const char *const *overrides;
    size_t n_overrides;  /* of `overrides`, which the recipe has applied already */
    const char *trainer; /* path of tern-train, for ranks without workload.command */
    const char *task;    /* path of tern-task, which every rank runs under; NULL: none */
    const char *inside;  /* of tern-inside, likewise in a container; NULL: none */
    bool accept;         /* resume although settings that must not change in a run have changed, or
                            from a mirror's copy of a run that is not known here */
    int64_t ranks;       /* processes outside Slurm; 0: the recipe's for a node */
    const char *kind;    /* of attempt, the ledger's; NULL: train */
    int64_t restarts;    /* attempts after the first; -1: the job's, else the recipe's */
    /* Its ceilings apply; NULL: none. */
    const struct tern_site *site;
};

struct tern_run_result {
    char run_id[27]; /* ULID */
    unsigned attempt;
    /* A word of the ledger: done, stopped, halted, time_limit, preempted, reservation, cancelled,
     * requeued, node_fail, killed, fault, refused, failed, precompile_failed. */
    const char *outcome;
    int status;    /* exit status of `tern run`: DESIGN 3, or that of the workload */
    int signal;    /* that ended the ranks; 0: none did */
    char why[512]; /* a sentence; "" when it is done */
};

/* 0 when an attempt took place, however the last one ended.  -1 when none could begin; then nothing
 * is recorded.  A damaged ledger does not stop a run that resumes; it is logged. */
int tern_run(const struct tern_run_options *options, struct tern_run_result *result,
             struct tern_err *err);

struct tern_place;
struct tern_place_order;

/* The command line that a first attempt on `place`, its nodes in this order, would run, NULL-ended;
 * freed with tern_recipe_words_free.  What only a launch knows stands there by its name: RUN,
 * CACHE, HOSTS (a file).  Sets TERN_COMPILE_CACHE and MASTER_ADDR of this process to that. */
char **tern_run_predict_command(const struct tern_run_options *options,
                                const struct tern_place *place,
                                const struct tern_place_order *order, struct tern_err *err);

/* The recipe that the job carries (`--tern`), or NULL: TERN_RECIPE, which the plugin sets on the
 * node.  Fails when the job carries --tern and the plugin did not run here. */
int tern_run_job_recipe(const char **path, struct tern_err *err);

#endif
