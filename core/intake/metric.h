/* Values of a workload's trainer: `step=7 loss=2.31 lr=1e-4`, `checkpoint=DIR`, `resumed_step=N`.
 * `tern metric` takes them as arguments, TERN_METRIC_FD as lines. */
#ifndef TERN_INTAKE_METRIC_H
#define TERN_INTAKE_METRIC_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/ledger/ledger.h"

enum {
    TERN_INTAKE_METRIC_VALUES = 1024,  /* of one step: the limit of a ledger record */
    TERN_INTAKE_METRIC_LINE = 1 << 16, /* bytes of a line: room for that many */
};

/* The words of one line.  Start from {0} with a step of -1 for none. */
struct tern_intake_metric {
    int64_t step;           /* -1: none given */
    const char *checkpoint; /* a path as given; NULL: none */
    int64_t resumed;        /* the attempt resumes after this step; -1: none given */
    struct tern_ledger_value values[TERN_INTAKE_METRIC_VALUES];
    size_t n;
};

void tern_intake_metric_clear(struct tern_intake_metric *m);
/* Parse a word.  Its bytes are changed, and `m` points into it. */
int tern_intake_metric_parse_word(struct tern_intake_metric *m, char *word, struct tern_err *err);
/* Parse all words of a line, likewise. */
int tern_intake_metric_parse_line(struct tern_intake_metric *m, char *line, struct tern_err *err);
/* Is there a value to record, with all that it needs?  0, or -1 with what is missing. */
int tern_intake_metric_check(const struct tern_intake_metric *m, struct tern_err *err);
/* Check and record it in the ledger.  An error that the spool has logged already gives 0. */
int tern_intake_metric_record(struct tern_ledger_spool *s, const struct tern_intake_metric *m,
                              struct tern_err *err);

/* A number, or nan, inf, infinity with or without a sign, as trainers print it; no hex.  -1 and
 * *out untouched when `s` is none. */
int tern_intake_metric_parse_value(const char *s, double *out);
/* Is the name UTF-8 whose characters are safe on a terminal?  Readers of the ledger print it there,
 * and in JSON. */
bool tern_intake_metric_name_is_good(const char *name, size_t len);

#endif
