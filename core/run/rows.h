/* The ledger's rows of an attempt when it begins. */
#ifndef TERN_RUN_ROWS_H
#define TERN_RUN_ROWS_H

#include "core/run/attempt.h"

/* Opens a->spool and writes the rows of the run, the attempt and what it reads.  Sets ledger,
 * spool and recipe in the environment for later processes. */
int tern_run_rows_open(struct tern_run_attempt *a, struct tern_err *err);
/* Write the attempt's row again: its place has changed. */
int tern_run_rows_begin(struct tern_run_attempt *a, struct tern_err *err);
/* Record an event when the recipe's file was changed after the job had read it. */
void tern_run_rows_recipe(struct tern_run_attempt *a);

#endif
