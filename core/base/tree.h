/* A folder of files as a list with every file's size and digest.  The list is taken from a folder,
 * stored as JSON, compared with a folder, and copied with it.
 *
 *     struct tern_tree t = {0};
 *     if (tern_tree_take("out/step_100", &t, err) < 0 ||
 *         tern_tree_copy("out/step_100", &t, "mirror/.step_100.new", "mirror/step_100", err) < 0)
 *         ...
 *     tern_tree_free(&t);
 *
 * Files are regular ones, and symbolic links that stay inside the folder: a link is its target's
 * text and is never followed.  Anything else in the folder (a device, a mount, a link that leads
 * out) is an error that names it: the list would be incomplete.  Empty folders are ignored.
 *
 * Nothing here holds state between calls.  The calls read much: a process with urgent work runs
 * them in a child.
 */
#ifndef TERN_BASE_TREE_H
#define TERN_BASE_TREE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/base/hash.h"

enum {
    TERN_TREE_FILES = 1 << 20, /* a 70B trainer's state, one file a tensor and rank, has 300,000 */
    TERN_TREE_DEPTH = 32,      /* of folders */
};

struct tern_tree_file {
    char *name;                   /* from the folder down: "model/dp_rank_00.pt" */
    char *link;                   /* a symbolic link's target; NULL for a regular file */
    uint64_t bytes;               /* 0 for a link */
    unsigned mode;                /* permission bits; those of the copy */
    int64_t changed_ns;           /* its time of change when it was taken; 0 when read from JSON */
    char sha256[TERN_SHA256_HEX]; /* of the content, or of the link's text; "" when only listed */
};

struct tern_tree {
    struct tern_tree_file *file; /* [n], sorted by name */
    size_t n;
    uint64_t bytes;               /* of all files */
    char digest[TERN_SHA256_HEX]; /* of names, sizes and digests: names the content */
};

/* The files of `dir` without their digests. */
int tern_tree_list(const char *dir, struct tern_tree *out, struct tern_err *err);
/* The same of regular files alone: links, devices, mounts and what lies too deep are passed over.
 */
int tern_tree_list_files(const char *dir, struct tern_tree *out, struct tern_err *err);
/* With them.  A file that changes meanwhile is an error (TERN_TEMPFAIL): try again later. */
int tern_tree_take(const char *dir, struct tern_tree *out, struct tern_err *err);
void tern_tree_free(struct tern_tree *t);

/* {"bytes": ..., "digest": ..., "files": [{"name", "bytes", "mode", "sha256"} or {"name", "link",
 * "sha256"}]}; a new reference. */
json_t *tern_tree_json(const struct tern_tree *t);
/* From JSON; `what` is a path for messages.  Names that lead out of the folder and a digest that is
 * not the list's are refused. */
int tern_tree_parse(const json_t *j, const char *what, struct tern_tree *out, struct tern_err *err);

/* Compare `dir` with `t`.  The error (TERN_FAILED) names the first file that is missing, new, of
 * another size or (with `full`) of another content. */
int tern_tree_verify(const char *dir, const struct tern_tree *t, bool full, struct tern_err *err);

/* Copy `from` to `to`, which must not exist and appears whole.  The files are written under `aside`
 * (in the same folder as `to`, used by one caller), made durable, read back, compared with `t` and
 * renamed.  Files that an ended process left under `aside` are reused.  On error `aside` is
 * removed. */
int tern_tree_copy(const char *from, const struct tern_tree *t, const char *aside, const char *to,
                   struct tern_err *err);

#endif
