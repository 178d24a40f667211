/* Where an attempt runs: a Slurm job's nodes, or this machine. */
#ifndef TERN_RUN_PLACE_H
#define TERN_RUN_PLACE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/recipe/recipe.h"

struct tern_run_place {
    bool slurm;
    uint32_t job;     /* 0 outside Slurm */
    int64_t restarts; /* times that Slurm has started the job anew */
    int64_t nodes;
    int64_t ranks_per_node;
    int64_t cpus_per_rank; /* of Slurm's; 0: do not say */
    char node_list[4096];  /* "trn1-[1-4]"; the host's name outside Slurm */
    char host[256];
};

/* Read the job's shape from its environment.  `ranks`: asked for outside Slurm, 0 for none.
 * Refuses a job whose nodes have fewer CPUs than ranks, as an uneven allocation has, and one that
 * is inside a parallel step already. */
int tern_run_place(struct tern_run_place *p, const struct tern_recipe *r, int64_t ranks,
                   struct tern_err *err);

/* "128(x4),64" -> the least number in it; -1 when it is no such list. */
int64_t tern_run_least_cpus(const char *list);

#endif
