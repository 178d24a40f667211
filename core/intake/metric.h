/* Values of somebody else's trainer: the words `step=7 loss=2.31 lr=1e-4`, `checkpoint=DIR`,
 * `resumed_step=N`, which `tern metric` takes as arguments and TERN_METRIC_FD as lines. */
#ifndef TERN_INTAKE_METRIC_H
#define TERN_INTAKE_METRIC_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/ledger/ledger.h"

enum {
    TERN_INTAKE_METRIC_VALUES = 1024,  /* of one step: what a ledger record takes */
    TERN_INTAKE_METRIC_LINE = 1 << 16, /* bytes of a line: as many of them */
};

/* One line's worth of words.  Start from {0} with a step of -1 for none. */
struct tern_intake_metric {
    int64_t step;           /* -1: not said */
    const char *checkpoint; /* a path as given; NULL: none */
    int64_t resumed;        /* the attempt goes on behind this step; -1: not said */
    struct tern_ledger_value values[TERN_INTAKE_METRIC_VALUES];
    size_t n;
};

void tern_intake_metric_clear(struct tern_intake_metric *m);
/* Take a word, which is written to, and must stay as long as `m` is used. */
int tern_intake_metric_parse_word(struct tern_intake_metric *m, char *word, struct tern_err *err);
/* All words of a line, likewise. */
int tern_intake_metric_parse_line(struct tern_intake_metric *m, char *line, struct tern_err *err);
/* Is there something to record, and all that it needs?  0, or -1 with what is missing. */
int tern_intake_metric_check(const struct tern_intake_metric *m, struct tern_err *err);
/* Into the ledger; also asks whether it is ready.  0, or -1; what a spool has told already is 0. */
int tern_intake_metric_record(struct tern_ledger_spool *s, const struct tern_intake_metric *m,
                              struct tern_err *err);

/* A number, or nan, inf, infinity with or without a sign, as trainers print it; no hex.  -1 and
 * *out untouched when `s` is none. */
int tern_intake_metric_parse_value(const char *s, double *out);
/* Does a name have control characters, ASCII's or C1 in UTF-8?  It goes to the terminals of those
 * who read the ledger, by whatever tool.  `len` bytes, and one more can be read. */
bool tern_intake_metric_has_controls(const char *name, size_t len);

#endif
