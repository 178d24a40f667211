/* What the ledger has of an attempt when it begins. */
#ifndef TERN_RUN_ROWS_H
#define TERN_RUN_ROWS_H

#include "core/run/attempt.h"

/* Opens a->spool and writes the rows of the run, the attempt and what it reads.  Whoever comes
 * after finds ledger, spool and recipe in the environment. */
int tern_run_rows_open(struct tern_run_attempt *a, struct tern_err *err);
/* The attempt's row anew: its place has changed. */
int tern_run_rows_begin(struct tern_run_attempt *a, struct tern_err *err);
/* An event where the recipe's file was changed after the job had read it. */
void tern_run_rows_recipe(struct tern_run_attempt *a);

#endif
