/* `tern cluster doctor`. */
#ifndef TERN_CMD_CLUSTER_DOCTOR_H
#define TERN_CMD_CLUSTER_DOCTOR_H

#include "core/base/opt.h"

extern const struct tern_cmd doctor_cmd;

#endif
