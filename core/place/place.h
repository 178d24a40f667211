/* Where an attempt runs: a Slurm job's nodes, or this machine. */
#ifndef TERN_PLACE_PLACE_H
#define TERN_PLACE_PLACE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/recipe/recipe.h"

struct tern_check_options; /* core/check/check.h */

enum { TERN_PLACE_GROUPS_MAX = 16 };

struct tern_place {
    bool slurm;
    bool in_step;                  /* srun started this process: the ranks' step lies beside it */
    uint32_t job;                  /* 0 outside Slurm */
    int64_t array_job, array_task; /* of a member of a job array; else array_job is 0 */
    int64_t restarts;              /* times that Slurm has started the job anew */
    int64_t nodes;
    int64_t ranks_per_node;
    int64_t cpus_per_rank; /* of Slurm's; 0: do not say */
    char node_list[4096];  /* "trn1-[1-4]"; the host's name outside Slurm */
    bool chosen;           /* node_list is a part of the job's nodes */
    char host[256];
    int groups;                                /* of a heterogeneous job; else 1 */
    uint32_t group_job[TERN_PLACE_GROUPS_MAX]; /* the job of each */
};

/* Read the job's shape from its environment.  `ranks`: asked for outside Slurm, 0 for none.
 * Variables of a step of srun around this process, or left of another one, are unset: they are not
 * the ranks' (core/env/env.h).
 *
 * Every node gets the same number of ranks, the recipe's.  Refused, with what to ask for: a job
 * whose nodes have fewer CPUs than ranks, as an uneven allocation has, or than ranks x
 * --cpus-per-task; groups of a heterogeneous job that ask for different numbers of tasks a node;
 * ranks that do not divide over tensor x pipeline; a call by one of several tasks of
 * a step.  Told in the log:
 * --ntasks-per-node or -n that say something else than the recipe, which counts. */
int tern_place_read(struct tern_place *p, const struct tern_recipe *r, int64_t ranks,
                    struct tern_err *err);

/* Ranks on a node: of a workload, those that its tasks start (workload.workers_per_node). */
int64_t tern_place_ranks_on_node(const struct tern_place *p, const struct tern_recipe *r);

/* What is known of the machines that a recipe is to run on, before it runs: fills the number of
 * nodes of the Slurm cluster, the memory of the largest, and of a NeuronCore where nodes have them;
 * without Slurm, the memory of this machine.  The controller is queried once; what cannot be found
 * out stays 0. */
void tern_place_find_machines(struct tern_check_options *known);

/* "128(x4),64" -> the least number in it; -1 when it is no such list. */
int64_t tern_place_least_cpus(const char *list);

#endif
