/* Starting the ranks and ending them. */
#ifndef TERN_RUN_LAUNCH_H
#define TERN_RUN_LAUNCH_H

#include <stdbool.h>
#include <stddef.h>
#include <signal.h>
#include <sys/types.h>

#include "core/run/attempt.h"

struct tern_run_ranks {
    size_t n;               /* children: 1 (srun), or the ranks themselves */
    pid_t *pid;             /* [n]; 0 once it has ended */
    int *status;            /* [n]; wait(2)'s, of those that have */
    char step[32];          /* srun's --job-name */
    uint32_t job;           /* 0 outside Slurm */
    int64_t nodes;          /* of this attempt */
    int64_t per_node;       /* ranks, likewise */
    const uint32_t *groups; /* [n_groups]: the jobs of a heterogeneous job, else the job */
    size_t n_groups;
    bool in_step;       /* srun has started the supervisor (place.h) */
    bool mpirun;        /* the child is mpirun, not srun */
    bool trainer;       /* tern's own */
    bool wrapped;       /* a tern-task runs each rank */
    char **argv;        /* the command line */
    int hosts;          /* descriptor of the hosts in the ranks' order; -1: the job's order */
    sigset_t *old_mask; /* the caller's, restored in the children */
};

/* The arguments of the ranks' common command line, NULL-ended: the launcher's, then the program's.
 * Freed with tern_recipe_words_free.  `hosts`: a file with the host of each rank, in their order,
 * or NULL for the job's own order.  srun needs its name in SLURM_HOSTFILE, too. */
char **tern_run_argv_make(const struct tern_run_attempt *a, const char *step, const char *hosts,
                          struct tern_err *err);

/* Order the nodes (order.h), start the launcher or the ranks. */
int tern_run_ranks_start(struct tern_run_ranks *r, const struct tern_run_attempt *a,
                         struct tern_err *err);
/* Pass `sig` on to every rank. */
void tern_run_ranks_signal(struct tern_run_ranks *r, int sig);
/* End the rest of a step whose srun was killed. No other process ends it, and the next step on
 * these nodes would wait for it. */
void tern_run_ranks_leftover(const struct tern_run_ranks *r);
/* wait(2)'s of child `i`, after `asked` was passed on: mpirun's 1 becomes the
 * status that srun would give. */
int tern_run_ranks_status(const struct tern_run_ranks *r, int i, int asked);
void tern_run_ranks_free(struct tern_run_ranks *r);

#endif
