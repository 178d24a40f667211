/* tern ledger report: the data of a page. */
#ifndef TERN_CMD_LEDGER_REPORT_H
#define TERN_CMD_LEDGER_REPORT_H

#include "cmd/ledger/compare.h"

enum {
    REPORT_POINTS = 2000,     /* of a curve: more than a screen has columns */
    REPORT_CHECKPOINTS = 500, /* the newest; also of held-out sets */
    REPORT_EVIDENCE = 20,     /* of each attempt */
};

/* A run as page.js takes it; show.ledger is its home, and its node-hours are summed up. `usd_hour`:
 * NAN where it is not known. */
int report_run(const struct show_facts *f, double usd_hour, json_t **ret_run, struct tern_err *err);

/* The runs of a page: of each only its recipe stays in memory. */
struct report_runs {
    struct compare recipes; /* its runs have recipes and names alone */
    size_t n;
    int n_args;
    char **args;
    const char *baseline; /* the last one; NULL: there is none */
    double usd_hour;
};

/* Those that `args` name (none: the newest), and the baseline.  Start from {0}; close it also when
 * this failed. */
int report_runs_open(struct report_runs *r, int n_args, char **args, const char *baseline,
                     double usd_hour, struct tern_err *err);
void report_runs_close(struct report_runs *r);
/* As a user named the run at `i`; NULL: the newest. */
const char *report_runs_typed(const struct report_runs *r, size_t i);
/* The page's title, "lora, full and 3 more", and the first name; both malloc'ed.  A run that is not
 * there is an error. */
int report_runs_title(const struct report_runs *r, char **ret_title, char **ret_name,
                      struct tern_err *err);
/* The run at `i` as page.js takes it. */
int report_runs_read(struct report_runs *r, size_t i, json_t **ret_run, struct tern_err *err);
/* Of the page as a whole, when all runs were read: its time, and how the recipes differ. */
json_t *report_runs_page(const struct report_runs *r);

#endif
