/* A real Slurm (munged, slurmctld, slurmd) on one machine.
 *
 *     tern_vcluster_up(layout, &opts, &up, err);            // returns when every node is idle
 *     tern_vcluster_exec("trn1-4", NULL, argv, &status, err);
 *     tern_vcluster_down("trn1-4", err);
 *
 * Every virtual node is its own network, UTS, mount, IPC and PID namespace with its own address,
 * /tmp, /run, /dev and /dev/shm.  It sees the host's programs and files.  The head's pid 1 is the
 * supervisor.  All other processes live in its PID namespace: its end is the cluster's end.  An
 * ordinary user gets the same inside a user namespace with the identity map.  Where the kernel
 * refuses that, several slurmd run on ports of their own in the host's namespaces ("plain").
 *
 * State: one folder a cluster under $TERN_CLUSTER_HOME, mode 0700:
 *     folders  words: what all nodes see, and what each has for itself
 *     lock     flock'ed by `up` and then by the supervisor, as long as it lives; its removal, with
 *              the folder or alone, ends the cluster within a second
 *     ctl      the supervisor's socket (protocol: ctl.h)
 *     etc/ log/ state/     Slurm's
 *     fs/<MountDir>        the shared storage; mounted at MountDir on every node
 *     nodes/<name>/tmp     a node's /tmp
 *
 * Not thread-safe: the calls fork.
 */
#ifndef TERN_VCLUSTER_VCLUSTER_H
#define TERN_VCLUSTER_VCLUSTER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "core/base/err.h"
#include "core/layout/layout.h"

enum tern_vcluster_mode {
    TERN_VCLUSTER_AUTO,       /* namespaces, else plain with a warning */
    TERN_VCLUSTER_NAMESPACES, /* or fail */
    TERN_VCLUSTER_PLAIN,
};

struct tern_vcluster_options {
    const char *name; /* NULL: the layout's */
    enum tern_vcluster_mode mode;
    const char *plugin;       /* path of tern_spank.so and its arguments, or NULL */
    const char *slurm;        /* the prefix of the Slurm to run; NULL: that of the libslurm in use,
                                 then one on PATH or in a usual place */
    const char *const *share; /* NULL-ended: folders under /tmp, /run or /dev/shm that every node
                                 shall see; or NULL.  The current folder is always seen. */
    bool accounting;          /* MariaDB and slurmdbd on the head; not in plain mode */
    double timeout_s;         /* until every node is idle; 0: 30 s and 0.1 s a node */
};

struct tern_vcluster_up {
    char name[64];
    enum tern_vcluster_mode mode; /* what it became */
    bool user_namespace;
    char missing[900]; /* why it is plain and which features it lacks; "" otherwise */
    size_t n_nodes;    /* that are idle now */
    size_t n_fleet;    /* that Slurm starts when a job wants them */
    double seconds;
};

/* Bring `l` up.  On success the supervisor lives on by itself.  On failure, and when SIGINT,
 * SIGTERM or SIGHUP arrives meanwhile (TERN_FAILED, "interrupted"), nothing is left.  A name in
 * use is TERN_USAGE; remains of a cluster that crashed are removed, and its jobs ended. */
int tern_vcluster_up(const struct tern_layout *l, const struct tern_vcluster_options *options,
                     struct tern_vcluster_up *up, struct tern_err *err);

/* End it, with what a crash has left of its jobs, and remove its folder.  A name that is not there
 * is TERN_USAGE. */
int tern_vcluster_down(const char *name, struct tern_err *err);

/* Run argv[0] (found on PATH) on the head, or on `node`, in the current folder, with the caller's
 * environment and files.  Signals sent to the caller are passed on.  *status is the exit status,
 * 128 + n after signal n. */
int tern_vcluster_exec(const char *name, const char *node, char *const *argv, int *status,
                       struct tern_err *err);

/* The state folder of the virtual cluster around this process, as seen from inside; NULL outside of
 * any.  The text belongs to the room. */
const char *tern_vcluster_local_folder(void);

/* Power cut of `node` (on = false), or its return.  `name` NULL: in the cluster around this
 * process. Only the cluster's owner may.  *ret_lost (or NULL), set in any case: it cannot be
 * started as its capacity is lost (TERN_VCLUSTER_NO_CAPACITY or TERN_VCLUSTER_SPOT_RECLAIM). */
int tern_vcluster_power(const char *name, const char *node, bool on, bool *ret_lost,
                        struct tern_err *err);

/* ------------------------------------------------------------------ trouble */

/* What may befall a node; one at a time. */
enum tern_vcluster_trouble {
    TERN_VCLUSTER_WELL,
    TERN_VCLUSTER_KILL,         /* a power cut */
    TERN_VCLUSTER_FREEZE,       /* every process of the node is stopped */
    TERN_VCLUSTER_SLOW,         /* they run a tenth of the time */
    TERN_VCLUSTER_PARTITION,    /* no message reaches the node or leaves it; no error, either */
    TERN_VCLUSTER_ONE_WAY,      /* it sends, and receives nothing */
    TERN_VCLUSTER_READ_ONLY,    /* /tmp and the shared storage, as that node sees them */
    TERN_VCLUSTER_DISK_FULL,    /* /tmp has no block left; needs a /tmp of limited size */
    TERN_VCLUSTER_NO_CAPACITY,  /* once off, it cannot be had again */
    TERN_VCLUSTER_SPOT_RECLAIM, /* a power cut, and it cannot be had again */
    TERN_VCLUSTER_TROUBLES
};

/* "freeze"; NULL for a number that is none. */
const char *tern_vcluster_trouble_word(enum tern_vcluster_trouble trouble);
/* One line about it, for a help text. */
const char *tern_vcluster_trouble_about(enum tern_vcluster_trouble trouble);

/* Bring `trouble` upon `node`, until it is mended, loses its power, or the cluster ends.  A node
 * that has one already, and in plain mode any but kill, is TERN_USAGE.  Only the cluster's owner
 * may. */
int tern_vcluster_break(const char *name, const char *node, enum tern_vcluster_trouble trouble,
                        struct tern_err *err);
/* Undo it.  *ret_trouble is what it was.  A node that is well is TERN_USAGE. */
int tern_vcluster_mend(const char *name, const char *node, enum tern_vcluster_trouble *ret_trouble,
                       struct tern_err *err);

/* *ret_trouble is what `node` has, or TERN_VCLUSTER_WELL. */
int tern_vcluster_trouble_of(const char *name, const char *node,
                             enum tern_vcluster_trouble *ret_trouble, struct tern_err *err);

/* ------------------------------------------------------------------ looking */

/* Sentences about the folders that all nodes of cluster `name` share, and those that each has for
 * itself; malloc'ed, NULL with `err`. */
char *tern_vcluster_about_folders(const char *name, struct tern_err *err);

struct tern_vcluster_info {
    char *name;
    bool alive; /* false: left over by a crash or a reboot; `down` or `up` removes it */
    enum tern_vcluster_mode mode;
    pid_t pid; /* of the supervisor; 0 when not alive */
    size_t n_nodes;
    char *layout; /* absolute path of its cluster.yaml */
    char *folder;
};

/* All clusters under $TERN_CLUSTER_HOME, sorted by name; malloc'ed, freed with
 * tern_vcluster_list_free. */
int tern_vcluster_list(struct tern_vcluster_info **list, size_t *n, struct tern_err *err);
void tern_vcluster_list_free(struct tern_vcluster_info *list, size_t n);

/* The path of a layout, malloc'ed: `cluster` itself where it is a file, else what the virtual
 * cluster of that name was made from.  NULL with `err` (TERN_USAGE) when it is neither. */
char *tern_vcluster_layout(const char *cluster, struct tern_err *err);

/* The live cluster `name`; with NULL the only live one.  Its name, malloc'ed; NULL with `err` when
 * it is not alive, or none or several are. */
char *tern_vcluster_find(const char *name, struct tern_err *err);

/* Call fn(arg) in a process of the head and pass its struct of `size` bytes back: how a caller uses
 * libslurm on the cluster.  `fn` returns 0 or -1 with `err`. */
int tern_vcluster_call(const char *name, int (*fn)(void *out, struct tern_err *err), void *out,
                       size_t size, struct tern_err *err);

#endif
