/* Spools into databases. */
#ifndef TERN_LEDGER_FOLD_H
#define TERN_LEDGER_FOLD_H

#include <sqlite3.h>

#include "core/ledger/db.h"
#include "core/ledger/ledger.h"

char *tern_ledger_run_db(const char *ledger_dir, const char *run_id);

/* Apply to `db` (run.db's tables) the records that are not in its ingest table; *changed: there
 * was something.  `points` as tern_ledger_apply_new. */
int tern_ledger_fold_tail(const char *ledger_dir, const char *run_id, sqlite3 *db, bool points,
                          bool *changed, struct tern_err *err);
/* Do the spools hold anything beyond `db`? */
int tern_ledger_fold_behind(const char *ledger_dir, const char *run_id, sqlite3 *db, bool *behind,
                            struct tern_err *err);
/* A run's database without its points, fresh. */
int tern_ledger_fold_light(const char *ledger_dir, const char *run_id, sqlite3 **out,
                           struct tern_err *err);
/* Has `db` read spool files, or parts of them, that are not there any more? */
int tern_ledger_fold_gone(const char *ledger_dir, const char *run_id, sqlite3 *db, bool *gone,
                          struct tern_err *err);
/* A run's database made from its spools alone, in memory. */
int tern_ledger_fold_spools(const char *ledger_dir, const char *run_id, sqlite3 **out,
                            struct tern_err *err);
/* A run's database with everything, fresh; in memory only as far as needed. */
int tern_ledger_fold_whole(const char *ledger_dir, const char *run_id, sqlite3 **out,
                           struct tern_err *err);

/* Keep what lies at `path`, and is no snapshot that can be used, as PATH.bad: it may be the only
 * copy of its rows.  A file stays at `path`, too; a link or a folder does not. */
int tern_ledger_aside_put(const char *path, struct tern_err *err);
/* Why the spools may lack something that the run.db at `path` has; NULL: they have it all. */
const char *tern_ledger_aside_only_copy(const char *ledger_dir, const char *run_id,
                                        const char *path);

/* Replace the rows of `run_id` in the catalogue by those of its database. */
int tern_ledger_catalogue_take(sqlite3 *catalogue, const char *run_id, sqlite3 *run,
                               const struct tern_ledger_db_stamp *stamp, struct tern_err *err);

/* The catalogue at `path` in memory, if it is as it was published; else 1, and in *ret_fault why;
 * NULL: there is none, or another tern made it. */
int tern_ledger_catalogue_read(const char *path, sqlite3 **out, struct tern_ledger_db_stamp *stamp,
                               const char **ret_fault, struct tern_err *err);
/* The same, or (*anew) an empty one, with a word. */
int tern_ledger_catalogue_load(const char *path, sqlite3 **out, struct tern_ledger_db_stamp *stamp,
                               bool *anew, struct tern_err *err);

/* Permissions of a file that shows all runs: its readers may read each of them. */
int tern_ledger_catalogue_bits(const char *ledger_dir, mode_t *bits, struct tern_err *err);

/* Bring the catalogue `db` up to all runs; `fresh`: with the tails of their spools, of those that
 * changed or still run. */
int tern_ledger_catalogue_refresh(const char *ledger_dir, sqlite3 *db, bool fresh, bool *changed,
                                  struct tern_err *err);

#endif
