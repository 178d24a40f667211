#ifndef TERN_CMD_HEALTH_H
#define TERN_CMD_HEALTH_H

#include "core/health/health.h"

/* Rows and judgement on stdout, as JSON or for people (`all`: also what is well). */
int health_print(const struct tern_health_rows *rows, const struct tern_health_judged *judged,
                 bool json, struct tern_err *err);
/* The table of checks. */
int health_print_checks(bool json, struct tern_err *err);

/* ---- root.c: as Slurm's Prolog and HealthCheckProgram ---- */

/* Ends the process, with the status of a check that was not possible, before Slurm would kill it.
 */
void health_root_begin(bool prolog);
/* Check this node; `drains`: drain it when it is bad, and undo tern's own drain when it is well.
 * The exit status, or -1 with `err`. */
int health_root_check(struct tern_health_options *o, bool drains, struct tern_err *err);
/* Slurm drains a node when its Prolog fails in any way: the status of a bad node alone is kept. */
int health_root_prolog_status(int rc, const struct tern_err *err);

#endif
