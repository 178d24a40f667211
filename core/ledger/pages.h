/* The seal of run.db: a checksum for every page.
 *
 * It stands behind SQLite's pages, before the parts of curves, and SQLite passes over it:
 *
 *     +-------+------+---------------------+-------------------+
 *     | pages | head | checksum of page 1  | ... of page n     | parts.h
 *     +-------+------+---------------------+-------------------+
 *
 *     head   32 bytes: "ternpage", version (4), bytes of a page (4), pages (4), CRC-32C of the
 *            checksums (4), 0 (4), CRC-32C of the head so far (4)
 *
 * A checksum is the CRC-32C of a page (4 bytes).  All numbers are little-endian.
 *
 * A page is compared whenever SQLite reads it.  So a look at a few rows of a long run costs no look
 * at all of them.  Every change by SQL changes page 1, too, which SQLite reads first.  What differs
 * is SQLITE_CORRUPT, as other damage is: the spools are read instead. */
#ifndef TERN_LEDGER_PAGES_H
#define TERN_LEDGER_PAGES_H

#include <sqlite3.h>
#include <stdbool.h>

#include "core/base/err.h"

/* The name of an SQLite file system that compares pages of databases that have a seal. */
const char *tern_ledger_pages_vfs(void);
/* Has `db`, opened by it, a whole seal? */
bool tern_ledger_pages_sealed(sqlite3 *db);

/* Append the seal, and the parts of curves, to the file `fd` of the pages of `db`: run.db's
 * tern_ledger_db_finish. */
int tern_ledger_pages_finish(sqlite3 *db, int fd, const char *path, struct tern_err *err);

#endif
