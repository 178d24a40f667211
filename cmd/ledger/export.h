/* Inside tern ledger export. */
#ifndef TERN_CMD_LEDGER_EXPORT_H
#define TERN_CMD_LEDGER_EXPORT_H

#include "core/ledger/ledger.h"

/* Send the run of a view to the tracking server at `url`, and say what was sent. */
int export_mlflow(struct tern_ledger *run, const char *url, const char *experiment,
                  struct tern_err *err);

#endif
