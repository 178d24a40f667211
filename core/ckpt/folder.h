/* The folder that holds a run's checkpoints: names and renames. */
#ifndef TERN_CKPT_FOLDER_H
#define TERN_CKPT_FOLDER_H

#include "core/ckpt/ckpt.h"

/* rename(2) that fails when `to` exists. */
int ckpt_rename_new(const char *from, const char *to, struct tern_err *err);

#endif
