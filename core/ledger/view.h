/* What an open view is. */
#ifndef TERN_LEDGER_VIEW_H
#define TERN_LEDGER_VIEW_H

#include <sqlite3.h>

#include "core/ledger/ledger.h"

struct tern_ledger {
    sqlite3 *db;
    bool catalogue;
    char *what;       /* for messages: the ledger's folder, or the run's */
    char *ledger_dir; /* of a run, until its run.db was found damaged; NULL */
    char run_id[TERN_ULID_SIZE];
};

/* After a failure of l->db: is it a run's, damaged, and what the spools say there instead now? */
bool tern_view_heal(struct tern_ledger *l);

#endif
