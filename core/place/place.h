/* Where an attempt runs: the nodes of a Slurm job, or this machine. */
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
    uint32_t step;                 /* in_step: its number */
    bool auto_resume;              /* HyperPod's agent repeats that step (core/run/auto_resume.h) */
    uint32_t job;                  /* 0 outside Slurm */
    int64_t array_job, array_task; /* of a member of a job array; else array_job is 0 */
    int64_t restarts;              /* how often Slurm has started the job again */
    int64_t nodes;
    int64_t ranks_per_node;
    int64_t cpus_per_rank; /* for --cpus-per-task; 0: srun gets no such option */
    char node_list[4096];  /* "trn1-[1-4]"; the host's name outside Slurm */
    bool chosen;           /* node_list has only some of the job's nodes */
    char host[256];
    int groups;                                /* of a heterogeneous job; else 1 */
    uint32_t group_job[TERN_PLACE_GROUPS_MAX]; /* the job of each */
};

/* Read the job's shape from its environment.  `ranks` on this machine outside Slurm; 0: the
 * recipe's.  Variables of a srun step around this process, or left from another step, are unset:
 * ranks must not inherit them (core/env/env.h).
 *
 * Every node gets the same number of ranks, the recipe's.  An error says what to request instead
 * when
 *   - a node has fewer CPUs than ranks, as in an uneven allocation, or than ranks x
 *     --cpus-per-task;
 *   - groups of a heterogeneous job request different numbers of tasks a node;
 *   - the ranks do not divide over tensor x pipeline;
 *   - this process is one of several tasks of a step.
 * A --ntasks-per-node or -n that differs from the recipe is logged; the recipe counts. */
int tern_place_read(struct tern_place *p, const struct tern_recipe *r, int64_t ranks,
                    struct tern_err *err);

/* Ranks on a node; of a workload, the workers of its tasks (workload.workers_per_node). */
int64_t tern_place_ranks_on_node(const struct tern_place *p, const struct tern_recipe *r);

/* Before a run, fill in what is known of a Slurm job's machines: node_memory, larger,
 * device_memory, cluster_nodes and partition.  The job has known->nodes nodes (0: the fewest that
 * the recipe needs) and the recipe's spares.  A job is in one partition: that of `partition`
 * ("a,b": one of them).  For NULL it is that of SBATCH_PARTITION, of the job around this process,
 * or Slurm's default. "", as TERN_ANY_PARTITION, and a Slurm without a default: the largest node of
 * any partition. Without Slurm, fill in the memory of this machine.  The controller is queried
 * once; an unknown value stays 0.  TERN_USAGE when Slurm has no such partition. */
int tern_place_find_machines(const struct tern_recipe *r, const char *partition,
                             struct tern_check_options *known, struct tern_err *err);

/* "128(x4),64" -> the least number in it; -1 when it is no such list. */
int64_t tern_place_least_cpus(const char *list);

#endif
