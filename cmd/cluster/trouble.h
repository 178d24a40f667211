/* tern cluster break and mend: trouble for a node of a virtual cluster. */
#ifndef TERN_CMD_CLUSTER_TROUBLE_H
#define TERN_CMD_CLUSTER_TROUBLE_H

#include "cmd/cmd.h"

extern const struct tern_cmd break_cmd, mend_cmd;

#endif
