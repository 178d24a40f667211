/* Values of somebody else's trainer: the words `step=7 loss=2.31 lr=1e-4`, `checkpoint=DIR`,
 * `resumed_step=N`, which `tern metric` takes as arguments and TERN_METRIC_FD as lines. */
#ifndef TERN_RUN_METRIC_H
#define TERN_RUN_METRIC_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/ledger/ledger.h"

enum {
    TERN_RUN_METRIC_VALUES = 1024,  /* of one step: what a ledger record takes */
    TERN_RUN_METRIC_LINE = 1 << 16, /* bytes of a line: as many of them */
};

/* One line's worth of words.  Start from {0} with a step of -1 for none. */
struct tern_run_metric {
    int64_t step;           /* -1: not said */
    const char *checkpoint; /* a path as given; NULL: none */
    int64_t resumed;        /* the attempt goes on behind this step; -1: not said */
    struct tern_ledger_value values[TERN_RUN_METRIC_VALUES];
    size_t n;
};

void tern_run_metric_clear(struct tern_run_metric *m);
/* Take a word, which is written to, and must stay as long as `m` is used. */
int tern_run_metric_word(struct tern_run_metric *m, char *word, struct tern_err *err);
/* All words of a line, likewise. */
int tern_run_metric_line(struct tern_run_metric *m, char *line, struct tern_err *err);
/* Is there something to record, and all that it needs?  0, or -1 with what is missing. */
int tern_run_metric_ready(const struct tern_run_metric *m, struct tern_err *err);
/* Into the ledger; also asks whether it is ready.  0, or -1; what a spool has told already is 0. */
int tern_run_metric_record(struct tern_spool *s, const struct tern_run_metric *m,
                           struct tern_err *err);

/* A number, or nan, inf, infinity with or without a sign, as trainers print it; no hex.  -1 and
 * *out untouched when `s` is none. */
int tern_run_metric_value(const char *s, double *out);
/* Does a name have control characters, ASCII's or C1 in UTF-8?  It goes to the terminals of those
 * who read the ledger, by whatever tool.  `len` bytes, and one more can be read. */
bool tern_run_metric_commands(const char *name, size_t len);

#endif
