/* Environment profiles: the variables that a node, a fabric and a trainer want. Each has its value
 * here, the reason, and the public source that says so.
 *
 *     struct tern_env_facts f;
 *     tern_env_facts_gather(&f, &err);                      facts of node, job and rank
 *     tern_env_build(NULL, &f, environ, &rows, &err);     NULL: the profile that fits the node
 *     tern_env_apply(&rows, &err);                        set the profile's in this process
 *     tern_env_rows_free(&rows);
 *
 * A value that the user has set always wins, and is shown as the user's.  TERN_PROFILE_SET lists
 * the variables that an outer call has set, each with a hash of its value.  An outer call is `tern
 * run` around a task, or the plugin around `tern run`.  Those are not taken for the user's.
 *
 * Building reads no file: it depends on its arguments alone.  Not thread-safe where it calls
 * setenv(3): apply and forget.
 */
#ifndef TERN_ENV_ENV_H
#define TERN_ENV_ENV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"

/* ------------------------------------------------------------------ facts */

/* A variable of the site's settings. */
struct tern_env_setting {
    const char *name, *value;
};

/* Plain data; 0 and "" mean "not known" unless said otherwise. */
struct tern_env_facts {
    /* the node */
    char kernel[65];         /* uname -r */
    char instance[64];       /* "trn1.32xlarge", as the firmware names the machine */
    int cpus;                /* CPUs that this process may use (its affinity) */
    int cores;               /* the cores that they are hardware threads of */
    int node_cpus;           /* CPUs of the node that are online */
    int neuron_devices;      /* /dev/neuron* */
    int neuron_cores;        /* NeuronCores of the node */
    int neuron_chips;        /* that the instance type should have */
    int efa_devices;         /* /dev/infiniband/uverbs* */
    bool container;          /* inside a container, perhaps with a network name space of its own */
    char interface[16];      /* the network interface of the default route */
    char sdk[16];            /* Neuron SDK, "2.31"; newer than all known profiles: as found */
    char sdk_from[160];      /* where that was found: a path and a version */
    char blas[24];           /* OpenBLAS core type to force, because it misjudges this CPU */
    char blas_why[96];       /* what it takes the CPU for */
    char ports[256];         /* net.ipv4.ip_local_reserved_ports */
    int port_low, port_high; /* net.ipv4.ip_local_port_range */
    /* the job; defaults are those of one process on its own */
    uint32_t job;       /* Slurm's id (of a heterogeneous job: its leader's); 0 outside Slurm */
    int nodes;          /* of the job or step, all components; 1 */
    int node;           /* index of this one, from 0 */
    int tasks_per_node; /* processes that the launcher starts here; 1 */
    int task;           /* which of them this one is (local rank), from 0 */
    int tasks_to_come;  /* in a batch script: tasks a node that its job requested; 0 */
    int workers;        /* processes that each task starts itself (torchrun); 1 */
    int cpus_per_task;  /* Slurm's; 0: not said */
    int omp_threads;    /* OMP_NUM_THREADS as it is; 0: not set */
    char master[256];   /* host of rank 0; "" outside Slurm */
    char provider[32];  /* TERN_FABRIC_PROVIDER */
    bool launched;      /* by `tern run`, whose values for the whole job stay */
    bool forked;        /* neither Slurm nor mpirun starts the tasks and binds them to CPUs */
    /* the recipe */
    bool trainer;      /* tern's own, which computes on CPUs wherever it runs */
    int pipeline;      /* pipeline stages; 0 */
    int tensor;        /* degree of tensor parallelism; 0 */
    double parameters; /* of the model; 0 */
    char precision[8]; /* "bf16": all of it; "mixed": with an fp32 master copy; "" */
    char cache[512];   /* compile cache, TERN_COMPILE_CACHE: folder or s3:// */
    /* the site: the caller's, for as long as rows are built from it */
    const struct tern_env_setting *site;
    size_t n_site;
};

/* Facts of this process: its node's devices and kernel, its environment of Slurm or Open MPI. Reads
 * a dozen small files, no configuration of Slurm.  A value that is no number or no host name counts
 * as not known.  `blas` costs up to 20 ms on CPUs that OpenBLAS may misjudge: tern_env_facts_blas()
 * finds it. */
int tern_env_facts_gather(struct tern_env_facts *f, struct tern_err *err);
/* The same, reading all files under `root` ("" for /): for tests. */
int tern_env_facts_under(const char *root, struct tern_env_facts *f, struct tern_err *err);
void tern_env_facts_blas(struct tern_env_facts *f);
/* Set one fact by its name, as `tern env --assume nodes=16` does. */
int tern_env_facts_assume(struct tern_env_facts *f, const char *assignment, struct tern_err *err);
/* CPUs, NeuronCores and EFA devices of an instance type; -1 when it is not known. */
int tern_env_facts_instance(struct tern_env_facts *f, const char *type, struct tern_err *err);

/* "a[03-05,9]-x,b" -> "a03-x"; -1 when it is no host list or does not fit. */
int tern_env_first_host(const char *list, char *to, size_t size);

/* ------------------------------------------------------------------ profiles */

struct tern_env_profile {
    const char *name;    /* "trn1-2.31" */
    const char *summary; /* a sentence */
};

/* The `i`-th profile, or NULL past the last. */
const struct tern_env_profile *tern_env_profile(size_t i);

/* The profile's full name: NULL and "auto" choose by the node, "trn1" by the installed SDK.  `why`
 * (of `size` bytes) gets the reason.  NULL for an unknown name; `err` has the nearest one. */
const char *tern_env_resolve(const char *profile, const struct tern_env_facts *f, char *why,
                             size_t size, struct tern_err *err);

/* ------------------------------------------------------------------ rows */

enum tern_env_by {
    TERN_ENV_PROFILE, /* the profile sets it */
    TERN_ENV_USER,    /* it was there already: it stays */
    TERN_ENV_SITE,    /* site settings say so: for every node, before the profile */
    TERN_ENV_UNSET,   /* left unset, and `why` says why */
};

/* The value is the same throughout the job, the node, or for one rank alone. */
enum tern_env_scope { TERN_ENV_JOB, TERN_ENV_NODE, TERN_ENV_RANK };

struct tern_env_row {
    char *name;
    char *value; /* NULL when it is unset */
    char *why;
    const char *origin; /* the public source */
    enum tern_env_by by;
    enum tern_env_scope scope;
    char *would; /* of a user's value: what the profile would set, NULL for nothing */
};

struct tern_env_rows {
    size_t n;
    struct tern_env_row *row;
    const char *profile; /* "trn1-2.31" */
    char *profile_why;
    size_t n_stale;
    char **stale; /* names that an outer call has set and this one leaves out: to be unset */
    size_t n_advice;
    char **advice; /* settings that tern never changes itself: the kernel's */
};

/* `variables`, NULL-ended, is the environment that rows are built for.  *out is freed with
 * tern_env_rows_free.  Only a wrong profile name is an error. */
int tern_env_build(const char *profile, const struct tern_env_facts *f, char *const *variables,
                   struct tern_env_rows *out, struct tern_err *err);
void tern_env_rows_free(struct tern_env_rows *rows);

/* Leave out rows of narrower scope than `scope`: a launcher sets the environment of all ranks. */
void tern_env_limit(struct tern_env_rows *rows, enum tern_env_scope scope);

/* Set in this process what is the profile's or the site's, unset what an outer call set and this
 * one leaves out, and write TERN_PROFILE_SET. */
int tern_env_apply(const struct tern_env_rows *rows, struct tern_err *err);
/* The value of TERN_PROFILE_SET that says so; malloc'ed. */
char *tern_env_marks(const struct tern_env_rows *rows);
/* Unset in this process each variable of TERN_PROFILE_SET that still has the value that was set,
 * and the list itself. A new attempt starts from the user's own environment. */
void tern_env_forget(void);

/* "profile", "you", "site", "left unset". */
const char *tern_env_by_word(enum tern_env_by by);

/* ------------------------------------------------------------------ a step of srun around it */

/* srun sets variables for each task: its step, its place, its binding, its rendezvous.  A `tern
 * run` that srun has started (on its own, in salloc, in a batch script) starts an srun of its own.
 * That one takes such variables for its user's settings: a mask of CPUs of one node for every node,
 * another step's number of tasks.  The same variables come into a job that was submitted from a
 * step, since sbatch passes its environment on.
 *
 *     struct tern_env_step s;
 *     tern_env_step_look(&s, environ);
 *     if (s.inside) ...
 *     tern_env_step_leave(&s);       unsetenv(3) what is another step's
 *     tern_env_step_free(&s);
 *
 * A value that the user's script has exported stays. Names that srun always sets anew are excepted:
 * in a step such a value may be either's. */

/* A variable that describes a step, or is a setting of srun's. */
struct tern_env_left {
    char *name, *value;
    const char *why; /* static */
    bool stays;      /* it is the user's, and for the ranks' srun; else it is left out */
};

struct tern_env_step {
    bool inside;   /* this process is a task of a step that srun started in this job */
    char name[48]; /* "12.0"; "" where it is not inside one */
    size_t n;
    struct tern_env_left *left; /* [n], in the environment's order */
};

/* Found by the slurmstepd above this process; where none can be seen (another name space, /proc
 * with hidepid), by SLURM_STEP_ID.  `variables`: the environment to look at, NULL-ended. */
void tern_env_step_look(struct tern_env_step *s, char *const *variables);
/* Has job `job` a slurmstepd on this machine for a step of srun's?  True, too, where the processes
 * of others cannot be seen. */
bool tern_env_step_is_local(uint32_t job);
void tern_env_step_leave(const struct tern_env_step *s);
void tern_env_step_free(struct tern_env_step *s);

#endif
