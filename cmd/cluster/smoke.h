#ifndef TERN_CMD_CLUSTER_SMOKE_H
#define TERN_CMD_CLUSTER_SMOKE_H

#include "core/base/opt.h"

/* `tern cluster smoke`. */
extern const struct tern_cmd smoke_cmd;

#endif
