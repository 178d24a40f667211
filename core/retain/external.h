/* Checkpoints that somebody else's trainer writes: how they are found, which may go, and what is
 * written down about each.
 *
 * One is a folder that `workload.progress.glob` matches, that holds the file `progress.marker`, and
 * whose name has a number, its step ("step_100", "checkpoint-1251").  Links are passed over, so a
 * "latest" beside them counts for nothing.
 *
 * What is known of each stands in LEDGER/runs/RUN/external/NAME.json, never in the trainer's
 * folder: "path", "step", "written", "mirror", "state" (seen, verified, deleted), and of a verified
 * one its files with sizes and digests (core/base/tree.h).
 */
#ifndef TERN_RETAIN_EXTERNAL_H
#define TERN_RETAIN_EXTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "core/base/err.h"
#include "core/base/tree.h"

enum {
    TERN_RETAIN_EXTERNAL_MAX = 10000, /* found at once: a year of one every hour */
    TERN_RETAIN_WRITTEN = 48,
};

struct tern_retain_found {
    char *path; /* without links */
    char *name; /* below the glob's folder without wildcards: "step_100" */
    int64_t step;
    char written[TERN_RETAIN_WRITTEN]; /* which writing of that path: the marker's time and
                                               inode */
};

struct tern_retain_founds {
    struct tern_retain_found *v; /* [n], lowest step first */
    size_t n;
};

/* `glob` NULL finds none.  A folder that cannot be looked into (closed to this user, storage that
 * hiccups) is an error: nobody knows what lies there. */
int tern_retain_external_find(const char *glob, const char *marker, struct tern_retain_founds *out,
                              struct tern_err *err);
/* Is the folder `path` there, with the file `marker` (NULL: any folder)?  1, with that file's *st
 * (the folder's without a marker); 0: no; -1: the storage does not say. */
int tern_retain_external_there(const char *path, const char *marker, struct stat *st,
                               struct tern_err *err);
void tern_retain_external_free(struct tern_retain_founds *f);

/* The length of the folders before the first wildcard of `glob`, with their last slash. */
size_t tern_retain_external_fixed(const char *glob);
/* The step in a folder's name: its last number; -1 for none. */
int64_t tern_retain_external_step(const char *name);

/* Which may go: mark in `drop` [n] those of the verified (and where a mirror is wanted, mirrored)
 * ones, in `may`, that are neither among the newest `keep` of these nor a multiple of `keep_every`
 * (0: none).  `step` [n] ascends.  Never one as new as the newest of all.  `keep` 0 drops none. */
void tern_retain_external_choose(const int64_t *step, const bool *may, size_t n, int64_t keep,
                                 int64_t keep_every, bool *drop);

/* ------------------------------------------------------------------ what is written down */

struct tern_retain_record {
    char *path, *name;
    int64_t step;
    char written[TERN_RETAIN_WRITTEN];
    bool verified; /* its files are in the record; neither this nor deleted: only seen so far */
    bool deleted;
    bool in_glob;   /* found by the glob, so that it may be pruned; else mirror.c asks more */
    char *mirror;   /* the copy; NULL for none */
    char *replaces; /* the copy of what this path held before, to be replaced; or NULL */
    uint64_t bytes;
    size_t files;
    char digest[TERN_SHA256_HEX];
};

/* LEDGER/runs/RUN/external, or the folder "foreign" that tern 0.3 began there; malloc'ed. */
char *tern_retain_external_dir(const char *ledger_dir, const char *run_id);
/* The record's path in that folder; malloc'ed. */
char *tern_retain_record_path(const char *dir, const char *checkpoint);
/* Write it, with the files `t` (empty before it is verified), whole or not at all. */
int tern_retain_record_write(const char *dir, const struct tern_retain_record *r,
                             const struct tern_tree *t, struct tern_err *err);
/* Read `file`; `t` may be NULL for those who need no files. */
int tern_retain_record_read(const char *file, struct tern_retain_record *r, struct tern_tree *t,
                            struct tern_err *err);
void tern_retain_record_free(struct tern_retain_record *r);

#endif
