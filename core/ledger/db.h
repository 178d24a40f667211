/* SQLite for this room: snapshots in memory, put in place whole.
 *
 *     run.db --load--> memory --apply records--> memory --write--> run.db.tmp-X
 *                                     fsync of run.db.tmp-X, rename to run.db, fsync of the folder
 *
 *     +---------------------------------------------+---------------------+---------------+
 *     | SQLite's header: application_id, version 7  | tables of schema.h  | views on them |
 *     +---------------------------------------------+---------------------+---------------+
 *
 * Behind the pages that SQLite counts, run.db has a seal of each page (pages.h), and may have parts
 * of curves (parts.h).  ledger.db, which is read whole, has a seal of 16 bytes there:
 *
 *     +----------+------------------------------------+------------------------------+
 *     | ternseal | CRC-32C of the pages (LE)          | 0                            |
 *     +----------+------------------------------------+------------------------------+
 *
 * So no journal, lock or half-written database is ever on a disk. */
#ifndef TERN_LEDGER_DB_H
#define TERN_LEDGER_DB_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/base/err.h"

/* Which file a snapshot was read from. */
struct tern_ledger_db_stamp {
    uint64_t inode;
    int64_t mtime_ns, bytes; /* bytes 0: there was none; -1: a folder or so lies there */
    bool older;              /* an older tern made it: worth publishing as it is */
    int64_t newer;           /* the version of the newer tern that made it; 0: none did */
    bool other_tables;       /* of a newer one: its tables are not this tern's, either */
    bool parts_lost; /* worth publishing, too: parts of curves are missing or damaged (parts.h); of
                        a run.db that was loaded */
};

/* The stamp of the file at `path` now; none is no error. */
void tern_ledger_db_stamp(const char *path, struct tern_ledger_db_stamp *stamp);
/* The same of a path from the folder `dir`, and of an open file. */
void tern_ledger_db_stamp_at(int dir, const char *path, struct tern_ledger_db_stamp *stamp);
void tern_ledger_db_stamp_of(int fd, struct tern_ledger_db_stamp *stamp);
/* Are they of one file, which did not change? */
bool tern_ledger_db_stamp_same(const struct tern_ledger_db_stamp *a,
                               const struct tern_ledger_db_stamp *b);

/* Fill `err` with what SQLite says; returns -1. */
int tern_ledger_db_fail(sqlite3 *db, struct tern_err *err, const char *what);
int tern_ledger_db_exec(sqlite3 *db, const char *sql, struct tern_err *err);
sqlite3_stmt *tern_ledger_db_prepare(sqlite3 *db, const char *sql, struct tern_err *err);
/* Run to the end and reset.  `st` must not return rows. */
int tern_ledger_db_run(sqlite3_stmt *st, struct tern_err *err);
/* The first column of the first row, or `def`. */
int64_t tern_ledger_db_int(sqlite3 *db, const char *sql, int64_t def);

/* A new database in memory with `schema`. */
int tern_ledger_db_new(const char *schema, sqlite3 **out, struct tern_err *err);
/* Read the snapshot at `path` into memory, to be extended; its tables are those of `schema`, also
 * when an older tern made it.  1 when there is none, or it is no sound database of this kind and
 * can be made again.  1 also when a newer tern made it (stamp->newer, silently).  -1 when it cannot
 * be read. */
int tern_ledger_db_load(const char *path, const char *schema, sqlite3 **out,
                        struct tern_ledger_db_stamp *stamp, struct tern_err *err);
/* The snapshot where it lies, without locks: it never changes.  As tern_ledger_db_load otherwise,
 * but that an older tern's is as it was: stamp->older. */
int tern_ledger_db_open(const char *path, const char *schema, sqlite3 **out,
                        struct tern_ledger_db_stamp *stamp, struct tern_err *err);
/* A file that may be damaged, or no database, to look into; only what is found sound counts. */
int tern_ledger_db_open_any(const char *path, sqlite3 **out, struct tern_err *err);
/* Does SQLite find every row of it sound?  Reads all of it. */
bool tern_ledger_db_sound(sqlite3 *db);
/* The same of one table, by its name. */
bool tern_ledger_db_sound_table(sqlite3 *db, const char *table);
/* Was the newest failure of `db` one of the file's content? */
bool tern_ledger_db_damaged(sqlite3 *db);

/* Every row of `select` in `from` becomes a row of `table` in `to`, column by column; rows that are
 * there already are replaced. */
int tern_ledger_db_copy(sqlite3 *from, const char *select, sqlite3 *to, const char *table,
                        struct tern_err *err);

/* Appends what stands behind the pages of `db` to its new file `fd`, of path `path`. */
typedef int tern_ledger_db_finish(sqlite3 *db, int fd, const char *path, struct tern_err *err);
/* A seal: such a function. */
int tern_ledger_db_seal(sqlite3 *db, int fd, const char *path, struct tern_err *err);
/* Is the file at `path` that of `stamp`, with its seal?  Then its bytes are those that were
 * published.  A change since, by a disk or by SQL, leaves a seal that does not fit. */
bool tern_ledger_db_is_sealed(const char *path, const struct tern_ledger_db_stamp *stamp);

/* Put the database at `path`, with what `finish` appends (NULL: nothing), read-only, readable as
 * `bits` (permissions of a folder) are.  If the file there is no more the one of `base`: 1, and
 * nothing is done.  TERN_USAGE where that file, or the folder `of`, is another user's: it stays as
 * it is. */
int tern_ledger_db_publish(sqlite3 *db, const char *path, const char *of, mode_t bits,
                           tern_ledger_db_finish *finish, const struct tern_ledger_db_stamp *base,
                           struct tern_err *err);

/* Remove the temporaries that killed folders left beside `path`, when they are old. */
void tern_ledger_db_sweep(const char *path);

/* NaN for NULL. */
double tern_ledger_db_column_real(sqlite3_stmt *st, int i);
/* 0 finite, 1 NaN, 2 +Inf, 3 -Inf: point.class. */
int tern_ledger_db_class(double v);

#endif
