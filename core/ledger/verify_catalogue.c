/* Does ledger.db say what the run.db say? */
#include "core/base/fs.h"
#include "core/ledger/db.h"
#include "core/ledger/digest.h"
#include "core/ledger/fold.h"
#include "core/ledger/schema.h"

#include <stdlib.h>
#include <string.h>

/* What the catalogue says of one run. */
static const char *const contents[] = {
    "SELECT * FROM run WHERE id = ?1",
    "SELECT * FROM attempt WHERE run_id = ?1 ORDER BY attempt",
    "SELECT * FROM checkpoint WHERE run_id = ?1 ORDER BY path",
    NULL,
};

/* Rows of no run that is in the table source. */
static const char sql_strange[] =
    "SELECT count(*) FROM (SELECT id FROM run UNION ALL SELECT run_id FROM attempt UNION ALL"
    " SELECT run_id FROM checkpoint) WHERE id NOT IN (SELECT run_id FROM source)";

struct look {
    const char *ledger_dir, *path;
    sqlite3 *ours, *anew; /* anew: made of the run.db, for this */
    uint64_t damaged;
    struct tern_buf *findings;
};

/* The run.db that the rows of a run came from; false: there are none. */
static bool source_of(sqlite3 *db, const char *run_id, struct tern_ledger_db_stamp *ret_stamp)
{
    sqlite3_stmt *st = tern_ledger_db_prepare(
        db, "SELECT inode, mtime_ns, bytes FROM source WHERE run_id = ?", NULL);
    bool has = false;

    if (st) {
        sqlite3_bind_text(st, 1, run_id, -1, SQLITE_STATIC);
        has = sqlite3_step(st) == SQLITE_ROW;
    }
    if (has)
        *ret_stamp = (struct tern_ledger_db_stamp){.inode = (uint64_t)sqlite3_column_int64(st, 0),
                                                   .mtime_ns = sqlite3_column_int64(st, 1),
                                                   .bytes = sqlite3_column_int64(st, 2)};
    sqlite3_finalize(st);
    return has;
}

/* The catalogue is no judge of a run.db that changed since, or cannot be read. Readers look into
 * that again, and the run's own check tells of it. */
static int compare_run(struct look *l, const char *run_id, struct tern_err *err)
{
    uint8_t a[TERN_SHA256_BYTES] = {0}, b[TERN_SHA256_BYTES] = {0};
    struct tern_ledger_db_stamp had, stamp, now;
    sqlite3 *run = NULL;
    char *path = tern_ledger_run_db(l->ledger_dir, run_id);
    int rc = 0;

    if (!source_of(l->ours, run_id, &had) ||
        tern_ledger_db_open(path, tern_schema_run, &run, &stamp, NULL) != 0 || stamp.older ||
        !tern_ledger_db_stamp_same(&stamp, &had) ||
        tern_ledger_catalogue_take(l->anew, run_id, run, &stamp, NULL) < 0)
        goto out;
    tern_ledger_db_stamp(path, &now);
    if (!tern_ledger_db_stamp_same(&stamp, &now)) /* it was replaced meanwhile */
        goto out;
    if (tern_ledger_digest(l->ours, contents, run_id, a, err) < 0 ||
        tern_ledger_digest(l->anew, contents, run_id, b, err) < 0) {
        rc = -1;
    } else if (memcmp(a, b, sizeof a) != 0) {
        l->damaged++;
        tern_buf_printf(l->findings,
                        "%s: does not say what run.db says of run %s. Make it again: tern ledger "
                        "fold --rebuild\n",
                        l->path, run_id);
    }
out:
    sqlite3_close(run);
    free(path);
    return rc;
}

static int compare(struct look *l, const struct tern_ledger_rows *ids, struct tern_err *err)
{
    int rc = tern_ledger_db_new(tern_schema_catalogue, &l->anew, err);

    if (rc == 0 && tern_ledger_db_int(l->ours, sql_strange, 1) != 0) {
        l->damaged++;
        tern_buf_printf(
            l->findings,
            "%s: has rows of runs that it does not know. Make it again: tern ledger fold "
            "--rebuild\n",
            l->path);
    }
    for (size_t i = 0; rc == 0 && i < ids->n; i++)
        rc = compare_run(l, ids->names[i], err);
    sqlite3_close(l->anew);
    return rc;
}

int tern_ledger_verify_catalogue(const char *ledger_dir, const struct tern_ledger_rows *ids,
                                 uint64_t *ret_damaged, struct tern_buf *findings,
                                 struct tern_err *err)
{
    char *path = tern_fs_join(ledger_dir, "ledger.db");
    struct look l = {.ledger_dir = ledger_dir, .path = path, .findings = findings};
    struct tern_ledger_db_stamp stamp;
    const char *fault;
    int rc = tern_ledger_catalogue_read(path, &l.ours, &stamp, &fault, err);

    if (fault) {
        l.damaged++;
        tern_buf_printf(findings, "%s: %s. Make it again: tern ledger fold\n", path, fault);
    }
    if (rc == 0 && !stamp.older)
        rc = compare(&l, ids, err);
    if (rc >= 0)
        *ret_damaged = l.damaged;
    sqlite3_close(l.ours);
    free(path);
    return rc < 0 ? -1 : 0;
}
