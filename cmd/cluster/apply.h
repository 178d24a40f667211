/* `tern cluster apply` and `drift`. */
#ifndef TERN_CMD_CLUSTER_APPLY_H
#define TERN_CMD_CLUSTER_APPLY_H

#include "core/base/opt.h"

extern const struct tern_cmd apply_cmd, drift_cmd;

#endif
