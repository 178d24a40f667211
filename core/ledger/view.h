/* What an open view is. */
#ifndef TERN_LEDGER_VIEW_H
#define TERN_LEDGER_VIEW_H

#include <sqlite3.h>

#include "core/ledger/ledger.h"

struct tern_ledger {
    sqlite3 *db;
    bool catalogue;
    char *what; /* for messages: the ledger's folder, or the run's */
};

#endif
