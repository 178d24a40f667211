/* tern ckpt reshard. */
#ifndef TERN_CMD_CKPT_RESHARD_H
#define TERN_CMD_CKPT_RESHARD_H

#include "cmd/cmd.h"

extern const struct tern_cmd ckpt_reshard_cmd;

#endif
