#ifndef TERN_CMD_HEALTH_H
#define TERN_CMD_HEALTH_H

#include "core/health/health.h"

/* Rows and judgement on stdout, as JSON or for people (`all`: also what is well). */
int health_print(const struct tern_health_rows *rows, const struct tern_health_judged *judged,
                 bool json, struct tern_err *err);
/* The table of checks. */
int health_print_checks(bool json, struct tern_err *err);

#endif
