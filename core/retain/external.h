/* Checkpoints that a workload's trainer writes: finding them, choosing which to prune, and a record
 * of each.
 *
 * An external checkpoint is a folder that `workload.progress.glob` matches and that holds the file
 * `progress.marker`.  A number in its name is its step ("step_100", "checkpoint-1251").  Links,
 * such as a "latest" beside them, are passed over.
 *
 * The record of each is LEDGER/runs/RUN/external/NAME.json, never a file in the trainer's folder:
 * "path", "step", "written", "mirror", "state" (seen, verified, deleted).  The record of a verified
 * checkpoint has its files with sizes and digests (core/base/tree.h).
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
    char written[TERN_RETAIN_WRITTEN]; /* identifies one writing of that path: the marker's time and
                                               inode */
};

struct tern_retain_founds {
    struct tern_retain_found *v; /* [n], lowest step first */
    size_t n;
};

/* `glob` NULL finds none.  A folder that cannot be read (permissions, a storage error) is
 * an error: its checkpoints are unknown. */
int tern_retain_external_find(const char *glob, const char *marker, struct tern_retain_founds *out,
                              struct tern_err *err);
/* Is the folder `path` there, with the file `marker` (NULL: any folder)?  1, with *st of that file
 * (without a marker: of the folder); 0: no; -1: the storage gives an error. */
int tern_retain_external_there(const char *path, const char *marker, struct stat *st,
                               struct tern_err *err);
void tern_retain_external_free(struct tern_retain_founds *f);

/* The length of the folders before the first wildcard of `glob`, with their last slash. */
size_t tern_retain_external_fixed(const char *glob);
/* The step in a folder's name: its last number; -1 for none. */
int64_t tern_retain_external_step(const char *name);

/* Choose which to prune: mark them in `drop` [n].  `may` [n] marks the candidates: verified, and
 * mirrored where the recipe has a mirror.  Of these the newest `keep` stay, and the multiples of
 * `keep_every` (0: none), and those of the newest step of all.  `step` [n] ascends.  `keep` 0 drops
 * none. */
void tern_retain_external_choose(const int64_t *step, const bool *may, size_t n, int64_t keep,
                                 int64_t keep_every, bool *drop);

/* ------------------------------------------------------------------ what is written down */

struct tern_retain_record {
    char *path, *name;
    int64_t step;
    char written[TERN_RETAIN_WRITTEN];
    bool verified; /* its files are in the record; when neither this nor deleted: only seen */
    bool deleted;
    bool in_glob;   /* the glob found it, so it may be pruned; else prune.c checks more */
    char *mirror;   /* its copy; NULL: none */
    char *replaces; /* the copy of the former checkpoint of this path, to be replaced; or NULL */
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
/* Read `file`; `t` NULL: its files are not wanted. */
int tern_retain_record_read(const char *file, struct tern_retain_record *r, struct tern_tree *t,
                            struct tern_err *err);
void tern_retain_record_free(struct tern_retain_record *r);

#endif
