/* Slurm behind plain structs: the only room with <slurm/slurm.h>, so that a change of Slurm's API
 * is mended here alone.  Nothing parses what scontrol, squeue or sinfo print.
 *
 *     if (!tern_slurm_available()) ...             // no configuration: not a Slurm machine
 *     if (tern_slurm_job_load(id, &job, err) < 0) ...
 *     tern_slurm_job_free(job);
 *
 * Calls that need the controller read the configuration once a process, at the first of them; a
 * process that wants another cluster sets SLURM_CONF before that.  A dead controller is an error
 * after about 10 s (MessageTimeout), TERN_TEMPFAIL.  One thread at a time.
 *
 * Jobs are submitted by running sbatch, never from here: only sbatch calls the plugins that
 * register --tern and knows every site's options and defaults.
 */
#ifndef TERN_SLURM_SLURM_H
#define TERN_SLURM_SLURM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "core/base/err.h"

/* The configuration file that libslurm would use, or NULL when there is none: SLURM_CONF, else the
 * usual places.  Looked for first because slurm_init() ends the process when it finds none.  The
 * text belongs to the room. */
const char *tern_slurm_conf(void);
bool tern_slurm_available(void);

/* ------------------------------------------------------------------ jobs */

enum tern_slurm_job_state {
    TERN_SLURM_JOB_PENDING, /* also requeued and waiting */
    TERN_SLURM_JOB_RUNNING, /* also suspended */
    TERN_SLURM_JOB_COMPLETING,
    TERN_SLURM_JOB_ENDED,
};

struct tern_slurm_job {
    uint32_t id;
    enum tern_slurm_job_state state;
    const char *word;  /* Slurm's name of the state: "RUNNING", "NODE_FAIL"; static */
    uint32_t restarts; /* times it was requeued: SLURM_RESTART_COUNT */
    uint32_t n_nodes;
    uint32_t uid;
    int exit_status; /* as wait(2) gives it; of an ended job */
    time_t start,
        end;      /* seconds since 1970; `end` is the time limit while it runs, 0 without one */
    bool requeue; /* may be requeued */
    char *name, *partition, *nodes, *comment; /* "" when there is none */
};

/* *job is to be freed with tern_slurm_job_free (NULL is fine).  A job that the controller has
 * forgotten (MinJobAge, 300 s after its end) is an error, TERN_FAILED. */
int tern_slurm_job_load(uint32_t id, struct tern_slurm_job **job, struct tern_err *err);
void tern_slurm_job_free(struct tern_slurm_job *job);

/* The next three are for the caller's own jobs, or for an admin. */
int tern_slurm_job_set_comment(uint32_t id, const char *comment, struct tern_err *err);
/* End the job and queue it again under its id; `hold` keeps it from starting. */
int tern_slurm_job_requeue(uint32_t id, bool hold, struct tern_err *err);
/* Send `sig` to every task of the job's newest step called `name` (srun --job-name).  This, and not
 * a signal to srun itself, which takes SIGTERM as the wish to kill the step.  Fine when the job
 * is being ended already: Slurm has then told them. */
int tern_slurm_step_signal(uint32_t job, const char *name, int sig, struct tern_err *err);

/* ------------------------------------------------------------------ nodes */

struct tern_slurm_node {
    char *name, *addr;
    char state[40]; /* sinfo's word: "idle", "mixed", "drained", "down*" */
    bool usable;    /* can run work now or when its jobs end: not down, drained or powered off */
    bool down;      /* gone: down, or it does not answer */
    uint32_t cpus;
    uint64_t memory_mib;
    char *gres;   /* "neuron:16"; "" when there is none */
    char *reason; /* "" when there is none */
};

struct tern_slurm_nodes {
    size_t n;
    struct tern_slurm_node *node; /* in slurm.conf's order */
};

int tern_slurm_nodes_load(struct tern_slurm_nodes **nodes, struct tern_err *err);
void tern_slurm_nodes_free(struct tern_slurm_nodes *nodes);

/* ------------------------------------------------------------------ host lists; no configuration
 */

/* "a[1-2],b" -> {"a1", "a2", "b", NULL}, in order; *n counts without the NULL.  More than 65536
 * (Slurm's own limit of a range) are refused.  Freed with tern_slurm_hosts_free. */
int tern_slurm_hosts_expand(const char *list, char ***hosts, size_t *n, struct tern_err *err);
void tern_slurm_hosts_free(char **hosts);
/* The reverse, malloc'ed; "" for none. */
char *tern_slurm_hosts_compress(char *const *hosts, size_t n);

#endif
