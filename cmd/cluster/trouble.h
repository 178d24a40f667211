/* tern cluster node, break and mend: what befalls a node of a virtual cluster. */
#ifndef TERN_CMD_CLUSTER_TROUBLE_H
#define TERN_CMD_CLUSTER_TROUBLE_H

#include "cmd/cmd.h"

extern const struct tern_cmd node_cmd, break_cmd, mend_cmd;

#endif
