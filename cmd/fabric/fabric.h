/* The verbs of tern fabric. */
#ifndef TERN_CMD_FABRIC_FABRIC_H
#define TERN_CMD_FABRIC_FABRIC_H

#include "cmd/cmd.h"

extern const struct tern_cmd fabric_info, fabric_plan, fabric_flight_report;

#endif
