/* An open view. */
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
    char *user; /* the owner of a run in a shared ledger, whatever its rows say; else NULL */
};

/* After a failure of l->db: was it a damaged run's, and is now made from the spools? */
bool tern_ledger_view_heal(struct tern_ledger *l);
/* The same where it is known to be damaged. */
bool tern_ledger_view_mend(struct tern_ledger *l, const char *why);

/* A step as a series has it.  An older tern took any; rounded up to 2^63 one would be no int64_t.
 */
double tern_ledger_view_step(int64_t step);

/* 0, or the error of a catalogue that is asked for rows of one run. */
int tern_ledger_view_need_run(struct tern_ledger *l, struct tern_err *err);

/* tern_ledger_find, with 1 for none; and the error of none, which tells the nearest name in `home`.
 */
int tern_ledger_view_find(struct tern_ledger *l, const char *typed, char run_id[TERN_ULID_SIZE],
                          struct tern_err *err);
int tern_ledger_view_none(const char *ledger, const char *home, const char *typed,
                          struct tern_err *err);

#endif
