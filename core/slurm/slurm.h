/* Slurm behind plain structs.  Only this room includes <slurm/slurm.h>: a change of Slurm's API
 * changes this room alone.  No code parses the output of squeue or sinfo.
 *
 *     if (!tern_slurm_available()) ...             // no configuration: not a Slurm machine
 *     if (tern_slurm_job_load(id, &job, err) < 0) ...
 *     tern_slurm_job_free(job);
 *
 * The first call that needs the controller reads the configuration, once a process: set SLURM_CONF
 * for another cluster before that.  A dead controller is an error after about 10 s
 * (MessageTimeout), TERN_TEMPFAIL.  One thread at a time.
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
 * usual places.  It is looked for first because slurm_init() ends the process when it finds none.
 * The text belongs to the room. */
const char *tern_slurm_conf(void);
/* There is one, or a controller that serves it (SLURM_CONF_SERVER, of configless clusters). */
bool tern_slurm_available(void);

/* "22.05": the release of the headers that tern was built with.  A plugin works in its own release
 * only. */
const char *tern_slurm_release(void);
/* The path of the loaded libslurm, malloc'ed; NULL when unknown.  Its release is the headers': its
 * file name has a number that changes with every release. */
char *tern_slurm_library(void);

/* The controller's facts about itself and its nodes; unknown texts are "". */
struct tern_slurm_about {
    char *version; /* slurmctld's: "22.05.8" */
    char *conf, *plugstack, *plugin_dir, *tmp_fs;
    char *mpi_default, *auth_info, *scheduler, *task_plugin;
    bool requeue, prolog_alloc; /* JobRequeue; PrologFlags has Alloc */
    int return_to_service, kill_wait_s;
    size_t n;
    struct tern_slurm_about_node {
        char *name, *version; /* slurmd's; "" while it never answered */
        char *partition;      /* the first of them */
    } * node;                 /* in slurm.conf's order */
};
int tern_slurm_about_load(struct tern_slurm_about **about, struct tern_err *err);
void tern_slurm_about_free(struct tern_slurm_about *about);
/* JobFileAppend: a job that is queued again appends to its output, unless it says otherwise. */
int tern_slurm_file_append_load(bool *ret_append, struct tern_err *err);
/* TCPTimeout: seconds for a connection from one of Slurm's programs to another. */
int tern_slurm_tcp_timeout_load(int *ret_s, struct tern_err *err);

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
    uint32_t array_job;   /* of a member of a job array; else 0 */
    int cpus_per_task;    /* 1 where the job gave no number */
    int n_tasks;          /* --ntasks, or as Slurm counts them */
    int tasks_per_node;   /* --ntasks-per-node; 0 where the job gave no number */
    int threads_per_core; /* that it may use (--threads-per-core, --hint); 0: no such limit */
    int exit_status;      /* as wait(2) gives it; of an ended job */
    time_t start,
        end; /* seconds since 1970; `end` is the time limit while it runs, 0 without one */
    int64_t suspended;                        /* seconds of a running job, between start and end */
    time_t preempt;                           /* when it was warned of preemption; 0: it was not */
    bool requeue;                             /* may be requeued */
    bool batch;                               /* has a batch script */
    char *reservation;                        /* that it runs in; "" for none */
    char *reason;                             /* why it is pending, as squeue has it; else "" */
    char *name, *partition, *nodes, *comment; /* "" when there is none */
    char *admin_comment;                      /* likewise */
};

/* *job is to be freed with tern_slurm_job_free (NULL is fine).  A job that the controller has
 * forgotten (MinJobAge, 300 s after its end) is an error, TERN_FAILED. */
int tern_slurm_job_load(uint32_t id, struct tern_slurm_job **job, struct tern_err *err);
void tern_slurm_job_free(struct tern_slurm_job *job);

/* Seconds before its end at which a job gets the signal of sbatch --signal; 60 is Slurm's default.
 * -1: the script asks for none.  The controller gives the script alone, and no option of sbatch's
 * command line.  For the job's user, or for an admin. */
int tern_slurm_job_signal_load(uint32_t id, int64_t *ret_seconds, struct tern_err *err);
/* The same of a script's text, and of the option's value ("B:USR1@600"); -1: none, or malformed. */
int64_t tern_slurm_signal_in_script(const char *script);
int64_t tern_slurm_signal_read(const char *value);

/* When a reservation takes the job's nodes (`nodes`, a list of hosts) from it.  That is the end of
 * the job's own reservation and ResvOverRun (never with FLEX).  Or it is the begin of one for
 * maintenance (MAINT, or MaxStartDelay) on a node of the job.  The earliest; 0 without any that the
 * caller may see. */
int tern_slurm_job_find_reservation(const struct tern_slurm_job *job, const char *nodes,
                                    time_t *ret_when, struct tern_err *err);

struct tern_slurm_found {
    uint32_t job;   /* 0: none */
    uint32_t whole; /* the array that it is a member of, or the job: for --dependency */
    char name[32];  /* as squeue has it: "12" or "12_3" */
    char word[24];  /* of its state, as above */
};
enum { TERN_SLURM_ID = 27 }; /* bytes of a ULID with its NUL */

/* For each of `n` ids the caller's newest job that waits or runs and whose Comment begins with it:
 * ret[n]. */
int tern_slurm_jobs_find(const char (*id)[TERN_SLURM_ID], size_t n, struct tern_slurm_found *ret,
                         struct tern_err *err);

/* The next six are for the caller's own jobs, or for an admin. */
int tern_slurm_job_set_comment(uint32_t id, const char *comment, struct tern_err *err);
/* Set the AdminComment of each job that waits for `node` to boot, or runs there; for an admin. */
int tern_slurm_jobs_set_admin_comment(const char *node, const char *text, struct tern_err *err);
/* End the job and queue it again under its id; `hold` keeps it from starting. */
int tern_slurm_job_requeue(uint32_t id, bool hold, struct tern_err *err);
/* Set the earliest begin of a pending job, or of one that is held after a requeue. */
int tern_slurm_job_set_begin(uint32_t id, time_t when, struct tern_err *err);
/* scancel. */
int tern_slurm_job_cancel(uint32_t id, struct tern_err *err);
/* Send `sig` to every task of the job's newest step called `name` (srun --job-name).  A SIGTERM to
 * srun itself would kill the step instead.  Succeeds when Slurm is ending the job already: its
 * tasks have a signal then. */
int tern_slurm_step_signal(uint32_t job, const char *name, int sig, struct tern_err *err);

/* Has the job a step called `name` that is neither over nor still waiting for nodes? */
int tern_slurm_step_exists(uint32_t job, const char *name, bool *there, struct tern_err *err);

/* Append the job's steps that srun started: "12.0 (sleep on n[1-2]), 12.3 (bash on n1)"; the first
 * few of many.  Those whose name begins with `except` are left out. */
struct tern_buf;
int tern_slurm_steps_describe(uint32_t job, const char *except, struct tern_buf *to,
                              struct tern_err *err);

/* The command line that started a step, such as "srun -N1 tern run"; malloc'ed. */
int tern_slurm_step_load_line(uint32_t job, uint32_t step, char **ret_line, struct tern_err *err);

/* The end of a step of a running job by its own time limit, or by the job's if that comes first; 0
 * without either. */
int tern_slurm_step_get_end(uint32_t job, uint32_t step, time_t *end, struct tern_err *err);

/* ------------------------------------------------------------------ nodes */

struct tern_slurm_node {
    char *name, *addr;
    char state[40]; /* as sinfo prints it: "idle", "mixed", "drained", "down*" */
    bool usable;    /* can run work now or when its jobs end: not down, drained or powered off */
    bool down;      /* gone: down, or it does not answer */
    uint32_t cpus;
    uint64_t memory_mib;
    char *gres;                  /* "neuron:16"; "" when there is none */
    char *reason;                /* "" when there is none */
    char *features;              /* "static,trn1.32xlarge"; "" when there are none */
    int sockets, cores, threads; /* cores a socket, threads a core */
    int64_t weight;
    bool future;  /* FUTURE: known, and nothing waits for it */
    bool dynamic; /* it came by itself (slurmd -Z), and stands in no file */
};

struct tern_slurm_nodes {
    size_t n;
    struct tern_slurm_node *node; /* in slurm.conf's order */
};

/* The second has FUTURE nodes, too. */
int tern_slurm_nodes_load(struct tern_slurm_nodes **nodes, struct tern_err *err);
int tern_slurm_nodes_load_all(struct tern_slurm_nodes **nodes, struct tern_err *err);
/* How many nodes the cluster can have: all known ones (also down, powered down and FUTURE), or
 * slurm.conf's MaxNodeCount where dynamic nodes may come. */
int tern_slurm_nodes_count_max(int64_t *most, struct tern_err *err);
void tern_slurm_nodes_free(struct tern_slurm_nodes *nodes);

/* A node's state, for draining and replacing it. */
struct tern_slurm_node_state {
    bool drained;                /* or draining */
    bool failed;                 /* FAIL or FAILING */
    bool down;                   /* down, or it does not answer */
    bool given_up;               /* down: its jobs have ended, or lost it */
    bool powered_down, powering; /* off by power saving; on the way up or down */
    time_t started;              /* when its slurmd did; 0 when not known */
    char word[24];               /* the above in one: "drained" */
    char reason[512];            /* cut there; "" when there is none */
    char gres[256];              /* "neuron:trn1:16"; likewise */
    uint64_t memory_mib;         /* RealMemory */
};
/* A node that is not there is TERN_FAILED. */
int tern_slurm_node_load_state(const char *name, struct tern_slurm_node_state *state,
                               struct tern_err *err);

/* Where its slurmd listens. */
struct tern_slurm_node_address {
    char address[256]; /* a name or a number */
    uint16_t port;
};
int tern_slurm_node_load_address(const char *name, struct tern_slurm_node_address *place,
                                 struct tern_err *err);

/* Is `uid` the controller's (SlurmUser)? */
bool tern_slurm_is_slurm_user(uint32_t uid);

enum tern_slurm_node_change {
    TERN_SLURM_NODE_DRAIN,     /* no further jobs; needs a reason */
    TERN_SLURM_NODE_UNDRAIN,   /* takes the drain back, whatever else holds */
    TERN_SLURM_NODE_RESUME,    /* back to work from down, drained or failed */
    TERN_SLURM_NODE_FAIL,      /* FAIL; needs a reason */
    TERN_SLURM_NODE_DOWN,      /* its jobs end; needs a reason */
    TERN_SLURM_NODE_POWER_OFF, /* power saving: at once, jobs or not */
};
/* For an admin (or SlurmUser or root); a refusal is TERN_FAILED.  `reason` may be NULL where none
 * is needed. */
int tern_slurm_node_update(const char *name, enum tern_slurm_node_change change, const char *reason,
                           struct tern_err *err);

/* ------------------------------------------------------------------ partitions */

struct tern_slurm_partition {
    char *name;
    char **nodes; /* NULL-ended */
    size_t n_nodes;
    int64_t max_time_s;             /* 0: no limit */
    bool is_default, up, exclusive; /* State=UP; OverSubscribe=EXCLUSIVE */
};

struct tern_slurm_partitions {
    size_t n;
    struct tern_slurm_partition *partition;
};

/* All of them, hidden ones too. */
int tern_slurm_partitions_load(struct tern_slurm_partitions **partitions, struct tern_err *err);
void tern_slurm_partitions_free(struct tern_slurm_partitions *partitions);

/* ------------------------------------------------------------------ the configuration */

/* Have slurmctld read its configuration again (scontrol reconfigure), and the nodes' slurmd
 * theirs.  For root and SlurmUser.  -1, too, where slurmctld ended over it. */
int tern_slurm_reconfigure(struct tern_err *err);
/* Does a slurmctld of that version ("22.05.8") take new names of nodes when it reads its
 * configuration again?  Before 23.11 it ends over them, and takes them at its start only. */
bool tern_slurm_reconfigure_takes_nodes(const char *version);
/* Does libslurm read the file without a complaint?  It is read in a child, before any call that
 * asks the controller.  TERN_USAGE with libslurm's words where it does not. */
int tern_slurm_conf_try(const char *path, struct tern_err *err);

/* Jobs that run on one of the nodes, or run or wait in one of the partitions. *n of them, the first
 * few appended as "12 (RUNNING on n[1-2])". */
int tern_slurm_jobs_describe(char *const *nodes, size_t n_nodes, char *const *partitions,
                             size_t n_partitions, struct tern_buf *to, size_t *ret_n,
                             struct tern_err *err);

/* ------------------------------------------------------------------ topology */

/* The switches above each of `hosts` as the controller knows them, root first and joined by dots:
 * "spine.leaf1"; blocks (topology/block) count as switches; "" where none is known, as without
 * topology.conf.  *where is [n], to be freed with tern_slurm_topology_free. */
int tern_slurm_topology_load(char *const *hosts, size_t n, char ***where, struct tern_err *err);
void tern_slurm_topology_free(char **where, size_t n);

/* ------------------------------------------------------------------ time limits; no configuration
 */

/* As sbatch(1) reads --time: minutes, M:S, H:M:S, D-H, D-H:M, D-H:M:S; 0 for UNLIMITED.  -1 when it
 * is none of these. */
int tern_slurm_time_read(const char *s, int64_t *seconds);
/* H:MM:SS or D-HH:MM:SS, in whole minutes; malloc'ed. */
char *tern_slurm_time_write(int64_t seconds);

/* ------------------------------------------------------------------ host lists; no configuration
 */

/* "a[1-2],b" -> {"a1", "a2", "b", NULL}, in order; *n counts without the NULL.  More than 65536
 * (Slurm's own limit of a range) are refused.  Freed with tern_slurm_hosts_free. */
int tern_slurm_hosts_expand(const char *list, char ***hosts, size_t *n, struct tern_err *err);
void tern_slurm_hosts_free(char **hosts);
/* The reverse, malloc'ed; "" for none. */
char *tern_slurm_hosts_compress(char *const *hosts, size_t n);

#endif
