/* tern ckpt diff. */
#ifndef TERN_CMD_CKPT_DIFF_H
#define TERN_CMD_CKPT_DIFF_H

#include "cmd/cmd.h"

extern const struct tern_cmd ckpt_diff_cmd;

#endif
