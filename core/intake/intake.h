/* Takes values from the lines and files of a trainer to the ledger, for one task.
 *
 * Nothing here ends a training run: a value that cannot be read or recorded is logged once and left
 * out.
 */
#ifndef TERN_INTAKE_INTAKE_H
#define TERN_INTAKE_INTAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/ledger/lost.h"

struct tern_intake;

/* `text`: TERN_RUN_METRICS, a line for each of the recipe's workload.metrics, its parts divided by
 * tabs: "known TRAINER", "pattern ERE NAME...", "tensorboard DIR"; or NULL.  `rank`: of the task.
 * Patterns of the recipe and event files are read on rank 0 alone.  Lines of known trainers are
 * read on every rank, since each trainer chooses the rank that prints.  Hugging Face's with
 * disable_tqdm prints on one a node, values of the same steps.  `spool_dir`: TERN_RUN_SPOOL; the
 * first value makes a file there. */
struct tern_intake *tern_intake_open(const char *spool_dir, int64_t rank, const char *text,
                                     int64_t now_ns, struct tern_err *err);
/* The same, but values are counted and nothing is recorded or said; event files are not read. */
struct tern_intake *tern_intake_open_counter(int64_t rank, const char *text, struct tern_err *err);
/* The records that a counter would have made. */
struct tern_ledger_lost tern_intake_counted(const struct tern_intake *i);

/* What is not in the ledger, for a look from another thread.  Starts as {0}. */
struct tern_intake_unwritten {
    struct tern_ledger_unwritten waiting; /* with the spool */
    struct tern_ledger_unwritten at_hand; /* being written */
    _Atomic uint64_t lost;                /* lines, of tern_intake_note_lost */
};
/* Keep *to so from now on.  It outlives the intake. */
void tern_intake_let_look(struct tern_intake *i, struct tern_intake_unwritten *to);

/* A line of stdout or stderr.  One that is not `whole` yet comes again when it is; until
 * then only its step is taken. */
void tern_intake_take_printed(struct tern_intake *i, const char *line, size_t len, bool whole);
/* Bytes of stdout or stderr are lost before the next ones: lines that belong together may not come
 * together. */
void tern_intake_note_gap(struct tern_intake *i);
/* A line of TERN_METRIC_FD: `step=7 loss=2.31`.  Its bytes are changed. */
void tern_intake_take_metrics(struct tern_intake *i, char *line, size_t len);
/* A line of TERN_METRIC_FD was cut: its writer ended within it. */
void tern_intake_note_cut(struct tern_intake *i);
/* `lines` of TERN_METRIC_FD are lost: they came faster than they could be recorded. */
void tern_intake_note_lost(struct tern_intake *i, uint64_t lines);
/* An event of this task, into the ledger. */
void tern_intake_add_event(struct tern_intake *i, const char *kind, const char *severity,
                           const char *text);
/* Do the due work: read event files, record values that wait for their step. */
void tern_intake_tick(struct tern_intake *i, int64_t now_ns, int end);
void tern_intake_close(struct tern_intake *i);

#endif
