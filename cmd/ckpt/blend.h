/* tern ckpt blend. */
#ifndef TERN_CMD_CKPT_BLEND_H
#define TERN_CMD_CKPT_BLEND_H

#include "cmd/cmd.h"

extern const struct tern_cmd ckpt_blend_cmd;

#endif
