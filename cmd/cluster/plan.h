/* `tern cluster plan`. */
#ifndef TERN_CMD_CLUSTER_PLAN_H
#define TERN_CMD_CLUSTER_PLAN_H

#include "core/base/opt.h"

extern const struct tern_cmd plan_cmd;

#endif
