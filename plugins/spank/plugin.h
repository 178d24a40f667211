/* tern's SPANK plugin: --tern=RECIPE, --tern-health, --tern-restarts and --tern-profile for sbatch,
 * salloc, srun and #SBATCH lines.
 *
 *   tern_spank.c  everywhere; sends each hook to its context, reads plugstack.conf's arguments
 *   options.c     everywhere; the options: table, ranges, names in environments
 *   client.c      sbatch, salloc, srun, as the user: checks the options, refuses, passes them on
 *   check.c       the same: runs `tern run --check` and `tern env`
 *   remote.c      slurmstepd, root and user: marker and options for the task; logs its end
 *   profile.c     the task, as the user: --tern-profile runs `tern env`, sets its variables
 *   prolog.c      each node's prolog, as root: health=prolog runs `tern health quick --prolog`
 *   child.c       for check.c, profile.c and prolog.c: a child with a limit on its time and output
 *
 * Hooks return 0 or -1 only (newer Slurms take any other value as an error).  The plugin is shipped
 * as `optional` in plugstack.conf, where a hook's failure is ignored: a broken plugin must not
 * drain nodes.  Only an option's callback can refuse then, so the options are checked there.
 * Failures on the node happen in task_init and end the task, which is this plugin's process there.
 * The status is 75, or 2 for a step that srun has refused.  An earlier hook that failed under
 * `required` would drain the node, and a batch job would end COMPLETED without having run.  The
 * trainer checks the marker, and so detects a node without the plugin.
 *
 * Root code (slurmstepd until it becomes the user, prolog) reads plugstack.conf's arguments,
 * Slurm's integers, and whether an option was given. It reads no path, text or variable of the
 * user's.
 *
 *     optional /usr/local/lib/slurm/tern_spank.so tern=/usr/local/bin/tern
 *
 *   tern=PATH       the program that checks recipes, profiles and, in the prolog, health;
 *                   default: `tern`, found by the user's PATH
 *   health=prolog   check a node's health before each job there (tern= must be absolute then, and
 *                   writable by root only).  Where the plugin is `required`, a bad node refuses the
 *                   job and is drained; where it is `optional`, Slurm ignores the result and only
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

/* Declares the hooks, which this library exports (exports.map). */
#pragma GCC visibility push(default)
#include <slurm/spank.h>
#pragma GCC visibility pop

/* The version of the marker (core/task/marker.h).  The major number changes with the meaning of
 * what is passed on, the minor number with an addition: 1.0 knew --tern alone. */
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
    const char *handed;    /* the client's variable, as it is called inside the job */
    const char *control;   /* the same for spank_job_control_setenv() */
    const char *variable;  /* the task's: TERN_HEALTH */
    struct spank_option o; /* val is its enum tern_spank_option */
    int since;             /* TERN_SPANK_MINOR */
};
extern struct tern_spank_names tern_spank_options[TERN_SPANK_OPTIONS];

int tern_spank_options_register(spank_t sp, spank_opt_cb_f callback);
/* The value of an option other than --tern in its one spelling; false when it is not allowed. */
bool tern_spank_value(char to[TERN_SPANK_VALUE], enum tern_spank_option which, const char *text);
/* The allowed values, for messages. */
const char *tern_spank_allowed(enum tern_spank_option which);

/* ---- client.c: sbatch, salloc, srun */

/* An option's callback on the submitting side: 0, or -1 after logging the reason. */
int tern_spank_client_option(const struct tern_spank_config *c, enum tern_spank_option which,
                             const char *value);
/* Once all options are read: passes them to the job. */
int tern_spank_client_ready(spank_t sp);
/* srun, once it has its step and before the step starts: does the recipe fit it?  If not, its tasks
 * end with status 2 before their program begins.  Of several groups of nodes (srun A : B) that
 * holds for one, which Slurm chooses; the others' programs are ended moments after they begin. */
void tern_spank_client_step(spank_t sp, const struct tern_spank_config *c);

/* ---- check.c: the same */

/* Facts about a step that only srun knows. */
struct tern_spank_step {
    uint32_t job, step, nodes, tasks;
};
/* Run `<program> run --check <recipe>` for at most 20 s.  0, or -1 after logging its output.  With
 * `step`: also check the step's shape and its time limit. */
int tern_spank_check(const char *program, const char *recipe, const struct tern_spank_step *step);
/* Is there such a profile?  -1 only if `<program> env` says that there is not. */
int tern_spank_check_profile(const char *program, const char *profile);

/* ---- remote.c: slurmstepd and the task */

/* An option arrived on the node. */
void tern_spank_remote_option(enum tern_spank_option which);
/* 0, or the status to end the task with, after logging the reason. */
int tern_spank_remote_task_init(spank_t sp, const struct tern_spank_config *c);
int tern_spank_remote_task_exit(spank_t sp);

/* ---- profile.c: the task, as the user */

/* Set the variables of `<program> env --profile` in the task's environment, except those that the
 * user has set.  0, or -1 after logging the reason. */
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
    size_t n_out; /* bytes in out, never more than out_size; a NUL is not added */
    bool more;    /* there was more than out_size, and the child was ended */
    bool late;    /* the limit was reached */
    int status;   /* wait(2)'s; 0 when it is not known */
    bool unseen;  /* status is not known: SIGCHLD is ignored, or another handler reaped the child */
    char said[4096]; /* its stderr, cut there */
};

/* Run a child to its end; nothing of its own is left open in it, stdin is /dev/null, its signals
 * are not blocked.  -1 with errno when it could not be started. */
int tern_spank_child(struct tern_spank_child *c);
/* Does a control character begin here: ASCII's, or one of C1 in UTF-8, which terminals obey too? */
bool tern_spank_control(const char *at);
/* Log every line of its stderr as "tern: ...", without control characters and without `own` before
 * it. */
void tern_spank_repeat(char *said, const char *own);

#endif
