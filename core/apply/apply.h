/* A layout's nodes and partitions in a Slurm that is there already.
 *
 * They are one file, tern-nodes.conf, beside slurm.conf, which includes it.  All else in slurm.conf
 * is the site's.
 *
 *     struct tern_apply a;
 *     if (tern_apply_open(&a, true, err) < 0) ...        // slurm.conf and the files it includes
 *     tern_layout_nodes_text(l, !a.other_default, &a.text, err);
 *     tern_apply_plan(&a, err);                          // a.changes: Slurm's nodes, and the
 * text's tern_apply_check(&a, &options, err);               // what speaks against it
 *     tern_apply_commit(&a, &options, &done, err);       // file, slurmctld, comparison
 *     tern_apply_close(&a);
 *
 * The file is replaced by a rename: after a kill at any moment it is the old or the new one.  The
 * same call again ends what was begun.  Where slurmctld does not take it, the old one is put back.
 * One thread; one apply of a slurm.conf at a time (a lock on that file).
 */
#ifndef TERN_APPLY_APPLY_H
#define TERN_APPLY_APPLY_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/err.h"
#include "core/base/str.h"
#include "core/slurm/slurm.h"

/* ------------------------------------------------------------------ changes */

enum tern_apply_kind { TERN_APPLY_ADD, TERN_APPLY_CHANGE, TERN_APPLY_REMOVE };

/* Things to which the same happens. */
struct tern_apply_change {
    enum tern_apply_kind kind;
    bool partition; /* else nodes */
    char **names;   /* NULL-ended */
    size_t n;
    char *what; /* of a CHANGE: "RealMemory 1000 -> 2000, Gres none -> neuron:trn1:16" */
};

struct tern_apply_changes {
    size_t n;
    struct tern_apply_change *at;
};

/* malloc'ed: "add node a[1-4]", "change partition p: MaxTime 1:00:00 -> unlimited". */
char *tern_apply_change_text(const struct tern_apply_change *c);

/* ------------------------------------------------------------------ one apply */

/* Nodes and partitions as a file has them.  Numbers that it does not say are 0, a weight -1. */
struct tern_apply_expected {
    struct tern_slurm_nodes nodes;
    struct tern_slurm_partitions partitions;
};

/* A line of another file than tern-nodes.conf that defines nodes or a partition. */
struct tern_apply_def {
    bool partition;
    char *names, *file;
    int line;
};

struct tern_apply {
    char *conf;          /* slurm.conf, without links */
    char *file;          /* tern-nodes.conf beside it */
    bool included;       /* slurm.conf has its line */
    bool gres_neuron;    /* GresTypes has neuron */
    char *other_default; /* the default partition in another file, or NULL */
    size_t n_defs;       /* of other files */
    struct tern_apply_def *def;
    struct tern_buf before, after; /* the texts of all files around tern-nodes.conf's */
    int lock;

    char *old; /* its text now; NULL: there is none */
    struct tern_buf text;
    struct tern_apply_expected want;
    struct tern_apply_changes changes; /* from Slurm's to the text's */
    char *version;                     /* slurmctld's */
};

/* Read slurm.conf and what it includes; `lock`: and keep others from applying.  TERN_USAGE where an
 * included file is not there, or another apply is at work. */
int tern_apply_open(struct tern_apply *a, bool lock, struct tern_err *err);
/* Make a->text the newest backup: to take the last apply back.  TERN_USAGE where there is none. */
int tern_apply_use_backup(struct tern_apply *a, struct tern_err *err);
/* Read a->text, and compare it with the other files (a node or partition that is defined twice,
 * devices that gres.conf lacks: TERN_USAGE) and with slurmctld.  The first of the calls that asks
 * slurmctld. */
int tern_apply_plan(struct tern_apply *a, struct tern_err *err);
/* Only the comparison of a->text with slurmctld: for any user. */
int tern_apply_compare_now(struct tern_apply *a, struct tern_err *err);
/* Is there nothing to do? */
bool tern_apply_is_done(const struct tern_apply *a);

struct tern_apply_options {
    bool init;           /* slurm.conf may get the line that includes the file */
    const char *restart; /* the shell's command that restarts slurmctld, or NULL */
    double timeout_s;    /* until slurmctld has taken it */
};

/* What speaks against it: no line in slurm.conf, jobs on nodes that would go, names of nodes that
 * this release takes at a restart only.  TERN_USAGE. */
int tern_apply_check(const struct tern_apply *a, const struct tern_apply_options *o,
                     struct tern_err *err);

struct tern_apply_done {
    char backup[4096]; /* the replaced file's copy; "" where the file was right already */
    bool added_line;   /* to slurm.conf */
    bool restarted;    /* by the command */
};

/* Replace the file, tell slurmctld, and wait until its nodes and partitions are the text's.  On
 * failure the old file is back, and `err` says whether slurmctld has it. */
int tern_apply_commit(struct tern_apply *a, const struct tern_apply_options *o,
                      struct tern_apply_done *ret, struct tern_err *err);
void tern_apply_close(struct tern_apply *a);

#endif
