/* Parts of curves: what a picture of a long run needs of every 128 points.
 *
 * They are made from run.db's rows whenever it is published, and stand behind SQLite's pages and
 * their seal (pages.h). SQLite, and a tern that does not know them, pass over them:
 *
 *     +----------------+------------------------------------+-----+-------------------+------+
 *     | pages and seal | parts of a metric in one attempt   | ... | index             | foot |
 *     +----------------+------------------------------------+-----+-------------------+------+
 *
 *     part   72 bytes: from, to, first_step, last_step, first, last, low, high (8 each),
 *            finite (4), 0 (4)
 *     index  32 bytes each: metric_id (8), attempt (4), CRC-32C of its parts (4), offset (8),
 *            number (8)
 *     foot   40 bytes: "ternpart", version (4), entries of the index (4), its offset (8), its
 *            CRC-32C (4), bytes 24 to 31 of the file (SQLite's counters of changes and pages),
 *            CRC-32C of the foot so far (4)
 *
 * All numbers are little-endian.  Parts never overlap: part i has the points [128 i, 128 i + 128)
 * of its metric and attempt in order of step, superseded ones, too.  Only whole ones are kept; a
 * run of few points has none, and no foot.
 *
 * Nothing depends on them.  Where they are missing, damaged or of another version, the rows are
 * read instead, and the next fold makes them again.  A database in memory has those of the file it
 * was loaded from in temp.tern_part, as far as no newer record touched them (temp.tern_touched). */
#ifndef TERN_LEDGER_PARTS_H
#define TERN_LEDGER_PARTS_H

#include <sqlite3.h>

#include "core/ledger/ledger.h"

/* Make temp.tern_part and temp.tern_touched of a database in memory; those that are there stay. */
int tern_ledger_parts_begin(sqlite3 *db, struct tern_err *err);
/* Give `db` the parts of `file`, the snapshot it was copied from.  *ret_lost: some are missing
 * or damaged. */
int tern_ledger_parts_keep(sqlite3 *file, sqlite3 *db, bool *ret_lost, struct tern_err *err);

/* The parts that hold of a metric in one attempt, from a file or from memory: malloc'ed, or NULL
 * where *ret_n is 0.  Never an error: what is damaged is not there. */
struct tern_ledger_part *tern_ledger_parts_get(sqlite3 *db, int64_t metric_id, int64_t attempt,
                                               size_t *ret_n);

/* One more point for the part, {0} at first; in order of step. */
void tern_ledger_part_add(struct tern_ledger_part *p, int64_t step, double value);

/* A statement about step and value of the points of a metric and attempt behind one step, up to
 * another: parameters 1 to 4. */
extern const char tern_ledger_parts_rows[];

/* Append the parts of `db` to the file `fd`, behind its pages and their seal. */
int tern_ledger_parts_write(sqlite3 *db, int fd, const char *path, struct tern_err *err);
/* Does run.db, which was opened where it lies, have parts that are damaged or do not say what its
 * rows say? */
int tern_ledger_parts_check(sqlite3 *file, bool *ret_differ, struct tern_err *err);

#endif
