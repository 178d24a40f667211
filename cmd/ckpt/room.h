/* tern ckpt du and prune. */
#ifndef TERN_CMD_CKPT_ROOM_H
#define TERN_CMD_CKPT_ROOM_H

#include "cmd/cmd.h"

extern const struct tern_cmd ckpt_du_cmd, ckpt_prune_cmd;

#endif
