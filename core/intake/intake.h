/* From what a trainer prints and writes to values in the ledger: one task's part of it.
 *
 * Nothing here ends a training run: what cannot be read or recorded is told once and left out.
 */
#ifndef TERN_INTAKE_INTAKE_H
#define TERN_INTAKE_INTAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"

struct tern_intake;

/* `text`: TERN_RUN_METRICS, a line for each of the recipe's workload.metrics, its parts divided by
 * tabs: "known TRAINER", "pattern ERE NAME...", "tensorboard DIR"; or NULL.  `rank`: of the task;
 * own patterns and event files are for rank 0 alone, printed lines of known trainers for every
 * task, since each of those trainers prints on one rank of its own choice (Hugging Face's with
 * disable_tqdm on one a node: their values are of the same steps).  `spool_dir`:
 * TERN_RUN_SPOOL; a file is made there with the first value. */
struct tern_intake *tern_intake_open(const char *spool_dir, int64_t rank, const char *text,
                                     int64_t now_ns, struct tern_err *err);
/* A line of stdout or stderr.  One that is not `whole` yet comes again when it is; only what tells
 * its step is taken from it. */
void tern_intake_take_printed(struct tern_intake *i, int64_t wall_ns, const char *line, size_t len,
                              bool whole);
/* A line of TERN_METRIC_FD: `step=7 loss=2.31`.  It is written to. */
void tern_intake_take_metrics(struct tern_intake *i, char *line, size_t len);
/* One of them was cut: its writer ended within it. */
void tern_intake_note_cut(struct tern_intake *i);
/* So many lines of TERN_METRIC_FD came faster than they could be recorded, and are lost. */
void tern_intake_note_lost(struct tern_intake *i, uint64_t lines);
/* A word for the ledger about this task. */
void tern_intake_add_event(struct tern_intake *i, const char *kind, const char *severity,
                           const char *text);
/* Does what is due: event files, values that wait for their step. */
void tern_intake_tick(struct tern_intake *i, int64_t now_ns, int end);
void tern_intake_close(struct tern_intake *i);

#endif
