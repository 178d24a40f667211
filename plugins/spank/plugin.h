/* tern's SPANK plugin: --tern=RECIPE, --tern-health, --tern-restarts and --tern-profile for sbatch,
 * salloc, srun and #SBATCH lines.
 *
 *   tern_spank.c  everywhere; sends each hook to its context, reads plugstack.conf's arguments
 *   options.c     everywhere; the options: table, ranges, names in environments
 *   client.c      sbatch, salloc, srun, as the user: checks the options, refuses, hands them over
 *   check.c       the same: runs `tern run --check` and `tern env`
 *   remote.c      slurmstepd, root and user: receipt and options for the task; notes its end
 *   profile.c     the task, as the user: --tern-profile runs `tern env`, sets what it says
 *   prolog.c      each node's prolog, as root: health=prolog runs `tern health quick --prolog`
 *   child.c       for check.c, profile.c and prolog.c: a child with a limit on its time and words
 *
 * Hooks return 0 or -1 only (newer Slurms take any other value as an error).  It is shipped as
 * `optional` in plugstack.conf, where a hook's failure is ignored, and that is wanted: a broken
 * plugin must not drain nodes.  Only an option's callback still refuses then, so that is where the
 * options are checked.  What can fail on the node fails in task_init, by ending the task, which is
 * this plugin's process there: with status 75, and 2 for a step that srun has refused.  Nothing
 * else suffers; any earlier hook that failed under `required` would drain the node, and a batch job
 * would end COMPLETED without having run.  The trainer asks for the receipt, so that a node without
 * the plugin is noticed.
 *
 * Root code (slurmstepd until the task is the user's, prolog) reads plugstack.conf's arguments and
 * integers of Slurm's, and of an option only that it was given: no path, text or variable of the
 * user's.
 *
 *     optional /usr/local/lib/slurm/tern_spank.so tern=/usr/local/bin/tern
 *
 *   tern=PATH       the program that checks recipes, settles profiles and, in the prolog, health;
 *                   default: `tern`, found by the user's PATH
 *   health=prolog   check a node's health before each job there (tern= must be absolute then, and
 *                   only root's to change).  Where the plugin is `required`, a bad node refuses the
 *                   job and is drained; where it is `optional`, Slurm ignores the answer and only
 *                   slurmd's log has it.  Every other result lets the job start
 *   bin=DIR         srun and the others of this Slurm, where a login does not find them: each task
 *   conf=FILE       has DIR in front of its PATH and, unless it has one, FILE as SLURM_CONF, also
 *                   with --export=NONE (virtual clusters)
 */
#ifndef TERN_SPANK_PLUGIN_H
#define TERN_SPANK_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The hooks are declared there, and they are what this library shows (exports.map). */
#pragma GCC visibility push(default)
#include <slurm/spank.h>
#pragma GCC visibility pop

/* What a node's plugin and the marker's readers agree on (core/task/marker.h).  The major number
 * changes when what is handed over changes its meaning, the minor number when something is added:
 * 1.0 knew --tern alone. */
#define TERN_SPANK_MAJOR 1
#ifndef TERN_SPANK_MINOR
#define TERN_SPANK_MINOR 1
#endif

/* Path names in messages and in the job's environment; PATH_MAX with its NUL. */
enum { TERN_SPANK_PATH = 4096 };

/* plugstack.conf's arguments. */
struct tern_spank_config {
    const char *program; /* lives as long as plugstack.conf's arguments */
    bool health_prolog;
    const char *bin, *conf; /* likewise, or NULL */
};

/* ---- options.c */

enum tern_spank_option {
    TERN_SPANK_RECIPE,
    TERN_SPANK_HEALTH,
    TERN_SPANK_RESTARTS,
    TERN_SPANK_PROFILE,
    TERN_SPANK_OPTIONS
};

/* Of an option other than --tern; with its NUL. */
enum { TERN_SPANK_VALUE = 33 };

struct tern_spank_names {
    const char *option;    /* --tern-health */
    const char *slurm;     /* where Slurm keeps the option's value for commands inside the job */
    const char *handed;    /* what the client hands over, as it looks inside the job */
    const char *control;   /* the same for spank_job_control_setenv() */
    const char *variable;  /* what the task finds: TERN_HEALTH */
    struct spank_option o; /* val is its enum tern_spank_option */
    int since;             /* TERN_SPANK_MINOR */
};
extern struct tern_spank_names tern_spank_options[TERN_SPANK_OPTIONS];

int tern_spank_options_register(spank_t sp, spank_opt_cb_f callback);
/* The value of an option other than --tern in its one spelling; false when it is not allowed. */
bool tern_spank_value(char to[TERN_SPANK_VALUE], enum tern_spank_option which, const char *text);
/* What is allowed, for messages. */
const char *tern_spank_allowed(enum tern_spank_option which);

/* ---- client.c: sbatch, salloc, srun */

/* An option's callback on the submitting side: 0, or -1 after saying why not. */
int tern_spank_client_option(const struct tern_spank_config *c, enum tern_spank_option which,
                             const char *value);
/* Once all options are read: hands them to the job. */
int tern_spank_client_ready(spank_t sp);
/* srun, once it has its step and before that starts: does the recipe fit it?  If not, its tasks end
 * with status 2 before their program begins; of several groups of nodes (srun A : B) those of one,
 * which Slurm chooses, and the others' within moments of their beginning. */
void tern_spank_client_step(spank_t sp, const struct tern_spank_config *c);

/* ---- check.c: the same */

/* A step of srun's: what only it knows. */
struct tern_spank_step {
    uint32_t job, step, nodes, tasks;
};
/* Run `<program> run --check <recipe>` for at most 20 s.  0, or -1 after saying what it said.
 * `step`, where there is one: is the recipe for its shape, and its time limit long enough? */
int tern_spank_check(const char *program, const char *recipe, const struct tern_spank_step *step);
/* Is there such a profile?  -1 only after `<program> env` said that there is not. */
int tern_spank_check_profile(const char *program, const char *profile);

/* ---- remote.c: slurmstepd and the task */

/* An option arrived on the node. */
void tern_spank_remote_option(enum tern_spank_option which);
/* 0, or the status that the task is to end with, after saying why. */
int tern_spank_remote_task_init(spank_t sp, const struct tern_spank_config *c);
int tern_spank_remote_task_exit(spank_t sp);

/* ---- profile.c: the task, as the user */

/* Set in the task's environment what `<program> env --profile` says for it, but nothing that the
 * user has set.  0, or -1 after saying why not. */
int tern_spank_profile(spank_t sp, const char *program, const char *profile);

/* ---- prolog.c */

/* 0, or -1 when the node is bad. */
int tern_spank_prolog(spank_t sp, const struct tern_spank_config *c);

/* ---- child.c */

struct tern_spank_child {
    const char *program;
    const char *(*find)(const char *program); /* what of it is run: asked in the child, since it
                                                 looks at files; NULL after saying why nothing is.
                                                 Or NULL */
    char *const *argv;
    char *const *env; /* the child's whole environment and where its PATH is; NULL: this one's */
    int limit_ms;     /* then it and its group are killed */
    char *out;        /* [out_size] its stdout, or NULL: that goes nowhere */
    size_t out_size;
    /* results */
    size_t n_out;    /* bytes in out, never more than out_size; a NUL is not added */
    bool more;       /* there was more than out_size, and the child was ended */
    bool late;       /* the limit was reached */
    int status;      /* wait(2)'s; 0 when it is not known */
    bool unseen;     /* it is not: SIGCHLD is ignored here, or somebody else's handler took it */
    char said[4096]; /* its stderr, cut there */
};

/* Run a child to its end; nothing of its own is left open in it, stdin is /dev/null, its signals
 * are not blocked.  -1 with errno when it could not be started. */
int tern_spank_child(struct tern_spank_child *c);
/* Does a control character begin here: ASCII's, or one of C1 in UTF-8, which terminals obey too? */
bool tern_spank_control(const char *at);
/* Log every line that it said, as "tern: ...", without controls and the words `own` before it. */
void tern_spank_repeat(char *said, const char *own);

#endif
