/* tern ckpt show. */
#ifndef TERN_CMD_CKPT_SHOW_H
#define TERN_CMD_CKPT_SHOW_H

#include "cmd/cmd.h"

extern const struct tern_cmd ckpt_show_cmd;

#endif
