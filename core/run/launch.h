/* Starting the ranks and ending them. */
#ifndef TERN_RUN_LAUNCH_H
#define TERN_RUN_LAUNCH_H

#include <stdbool.h>
#include <stddef.h>
#include <signal.h>
#include <sys/types.h>

#include "core/run/place.h"
#include "core/run/run.h"

struct tern_run_ranks {
    size_t n;           /* children: 1 (srun), or the ranks themselves */
    pid_t *pid;         /* [n]; 0 once it has ended */
    int *status;        /* [n]; wait(2)'s, of those that have */
    char step[32];      /* srun's --job-name */
    uint32_t job;       /* 0 outside Slurm */
    char **argv;        /* what was run */
    sigset_t *old_mask; /* the caller's, given back to the children */
};

/* The arguments of the ranks' common command line, ended by NULL: srun's and the program's.
 * malloc'ed, as are its texts. */
char **tern_run_command(const struct tern_run_place *p, const struct tern_run_options *o,
                        const char *step, struct tern_err *err);

int tern_run_ranks_start(struct tern_run_ranks *r, const struct tern_run_place *p,
                         const struct tern_run_options *o, unsigned attempt, struct tern_err *err);
/* Pass `sig` on to every rank that is there. */
void tern_run_ranks_signal(struct tern_run_ranks *r, int sig);
void tern_run_ranks_free(struct tern_run_ranks *r);

#endif
