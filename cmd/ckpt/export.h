/* tern ckpt export and merge. */
#ifndef TERN_CMD_CKPT_EXPORT_H
#define TERN_CMD_CKPT_EXPORT_H

#include "cmd/cmd.h"

extern const struct tern_cmd ckpt_export_cmd, ckpt_merge_cmd;

#endif
