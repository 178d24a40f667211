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

#endif
