/* tern ledger report: the data of a page. */
#ifndef TERN_CMD_LEDGER_REPORT_H
#define TERN_CMD_LEDGER_REPORT_H

#include "cmd/ledger/facts.h"

enum {
    REPORT_POINTS = 2000,     /* of a curve: more than a screen has columns */
    REPORT_CHECKPOINTS = 500, /* the newest; also of held-out sets */
    REPORT_EVIDENCE = 20,     /* of each attempt */
};

/* A run as page.js takes it; show.ledger is its home, and its node-hours are summed up. `usd_hour`:
 * NAN where it is not known. */
int report_run(const struct show_facts *f, double usd_hour, json_t **ret_run, struct tern_err *err);

#endif
