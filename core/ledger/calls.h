/* The system calls that SQLite makes for itself: made again where they fail for a reason that
 * passes (core/base/again.h), as our own are. */
#ifndef TERN_LEDGER_CALLS_H
#define TERN_LEDGER_CALLS_H

/* Before a database is opened; more than once is harmless.  Any thread. */
void tern_ledger_calls(void);

#endif
