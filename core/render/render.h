/* Files made from a layout for the tools that make nodes: ParallelCluster, CloudFormation,
 * HyperPod, AWS Batch, and Slurm itself.
 *
 *     struct tern_render r;
 *     if (tern_render_make(&r, layout, "batch", &err) < 0) ...
 *     tern_render_write(&r, "batch", &err);        // the whole folder, or nothing
 *     tern_render_free(&r);
 *
 * The same layout with the same file of variables gives the same bytes.  A value that neither has
 * stays in the files as ${Name}; `missing` has their names.  Programs among the files refuse to run
 * while one is missing.
 *
 * Names of values, in --vars and as outputs of the rendered CloudFormation stack: values.c.
 */
#ifndef TERN_RENDER_RENDER_H
#define TERN_RENDER_RENDER_H

#include <stdbool.h>
#include <stdio.h>

#include "core/base/err.h"
#include "core/base/str.h"
#include "core/layout/layout.h"

/* "slurm, pcluster, ...": what tern_render_make takes. */
extern const char tern_render_forms[];
bool tern_render_is_form(const char *form);

struct tern_render_file {
    char *name;           /* "create.sh", "lifecycle/on_create.sh" */
    bool program;         /* it may be run */
    struct tern_buf text; /* whole after tern_render_make */
    struct tern_buf sets; /* of a program: lines NAME=WORD, until then */
};

enum tern_render_phase { TERN_RENDER_BUILD, TERN_RENDER_USE, TERN_RENDER_REMOVE };

/* A command that a program among the files runs, for a shell in their folder. */
struct tern_render_step {
    enum tern_render_phase phase;
    char *command; /* one line */
    char *effect;  /* on what is paid for from there on, or until when it is repeated; or NULL */
};

enum { TERN_RENDER_MAX_FILES = 16, TERN_RENDER_MAX_NAMES = 64 };

struct tern_render {
    const struct tern_layout *layout;
    const char *form;
    size_t n_files;
    struct tern_render_file file[TERN_RENDER_MAX_FILES];
    size_t n_missing; /* names of values that are not known, each once, in order of need */
    char *missing[TERN_RENDER_MAX_NAMES];
    size_t n_kept; /* texts that values were made of */
    char **kept;
    struct tern_buf said; /* lines about what was decided, for the user */
    size_t n_steps;       /* none of --to slurm */
    struct tern_render_step *step;
    struct tern_buf left, unpriced; /* lines: what still costs after the last step; what costs and
                                       has no price here */
    struct tern_yaml *file_again;   /* the layout's file, for what the model does not have */
};

/* Make the files of `form` from a layout whose only errors, if any, are variables without a value.
 * TERN_USAGE where the form cannot have what the layout says.  `l` must outlive `ret`. */
int tern_render_make(struct tern_render *ret, const struct tern_layout *l, const char *form,
                     struct tern_err *err);
void tern_render_free(struct tern_render *r);

/* Put them in folder `dir`, which is absent, empty, or of an earlier rendering of this form: then
 * it is replaced at once.  TERN_USAGE, and nothing changed, where it has a file that tern did not
 * render, or one that was edited since.
 *
 * Of form slurm: file by file, into a folder that may have others, such as /etc/slurm.  Files of an
 * earlier rendering that are no longer needed are removed, which `said` tells.
 *
 * Signals that end a program wait until the folder is whole. */
int tern_render_write(struct tern_render *r, const char *dir, struct tern_err *err);

/* Print a unified diff from the files in `dir` to these, and which become programs or are none.
 * Files that tern did not render are left out.  `clean`: bytes that are unsafe on a terminal are
 * masked.  TERN_USAGE where `dir` is no folder, or has another form. */
int tern_render_diff(const struct tern_render *r, const char *dir, FILE *to, bool clean,
                     bool *ret_differs, struct tern_err *err);

#endif
