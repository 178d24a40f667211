/* The folder that holds a run's checkpoints: names and renames. */
#ifndef TERN_CKPT_FOLDER_H
#define TERN_CKPT_FOLDER_H

#include "core/ckpt/ckpt.h"

/* rename(2) that fails when `to` exists. */
int tern_ckpt_rename_new(const char *from, const char *to, struct tern_err *err);

/* If `path` has a checkpoint's name: is it that of this step? */
int tern_ckpt_step_check(uint64_t step, const char *path, struct tern_err *err);
/* If `path` has a checkpoint's name: is it no link? */
int tern_ckpt_link_check(const char *path, struct tern_err *err);

/* A name in the folder. */
struct tern_ckpt_name {
    uint64_t step;
    enum tern_ckpt_state state; /* GOOD: by its name alone */
    unsigned attempt;           /* of a TEMP */
    char *text;
};

/* The checkpoints' names in `dir`, lowest step first, to be freed.  0 or -1. */
int tern_ckpt_names_read(const char *dir, struct tern_ckpt_name **ret_names, size_t *ret_n,
                         struct tern_err *err);
void tern_ckpt_names_free(struct tern_ckpt_name *names, size_t n);
/* As tern_ckpt_open, for a name found in the folder. */
struct tern_ckpt *tern_ckpt_open_named(const char *path, struct tern_err *err);

#endif
