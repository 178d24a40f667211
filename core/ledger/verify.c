/* Is everything there, and as it was written? */
#include "core/base/fs.h"
#include "core/base/hash.h"
#include "core/ledger/apply.h"
#include "core/ledger/db.h"
#include "core/ledger/digest.h"
#include "core/ledger/files.h"
#include "core/ledger/fold.h"
#include "core/ledger/parts.h"
#include "core/ledger/schema.h"

#include <stdlib.h>
#include <string.h>

/* What run.db says: every table, in an order that does not depend on how it came about (metric ids
 * do). */
static const char *const contents[] = {
    "SELECT * FROM run",
    "SELECT * FROM attempt ORDER BY attempt",
    "SELECT name, attempt, step, value, class, wall_ns FROM metric ORDER BY name",
    "SELECT m.name, s.attempt, s.first_step, s.last_step, s.to_step, s.again_step, s.value,"
    " s.class, s.wall_ns FROM metric m JOIN span s ON s.metric_id = m.id"
    " ORDER BY m.name, s.attempt",
    "SELECT m.name, p.attempt, p.step, p.value, p.class, p.wall_ns FROM metric m JOIN point p"
    " ON p.metric_id = m.id ORDER BY m.name, p.attempt, p.step",
    "SELECT * FROM checkpoint ORDER BY path",
    "SELECT * FROM eval ORDER BY attempt, step, set_name",
    "SELECT * FROM event WHERE NOT (" TERN_APPLY_LIMIT_ROW ") ORDER BY writer_id, seq",
    /* Which record came first over the limit depends on the order of folds. */
    "SELECT severity, node, text FROM event WHERE " TERN_APPLY_LIMIT_ROW,
    "SELECT * FROM param ORDER BY attempt, name",
    "SELECT * FROM health ORDER BY writer_id, seq",
    "SELECT * FROM ingest ORDER BY file",
    "SELECT * FROM damage ORDER BY file, from_byte",
    /* What the joins above leave out. */
    "SELECT (SELECT count(*) FROM span WHERE metric_id NOT IN (SELECT id FROM metric)),"
    " (SELECT count(*) FROM point WHERE metric_id NOT IN (SELECT id FROM metric))",
    NULL,
};

static int digest(sqlite3 *db, uint8_t out[TERN_SHA256_BYTES], struct tern_err *err)
{
    return tern_ledger_digest(db, contents, /* bind= */ NULL, out, err);
}

/* ---------------------------------------------------------------- spools */

struct verify {
    struct tern_ledger_check check;
    struct tern_buf *findings;
    bool in_flight;
};

static int on_frame(void *arg, const struct tern_ledger_record_head *head,
                    const struct tern_ledger_frame *f, struct tern_err *err)
{
    struct verify *v = arg;

    (void)head, (void)err;
    v->check.records += f->type != TERN_FRAME_HEAD;
    return 0;
}

static int on_find(void *arg, const struct tern_ledger_spool_file *file,
                   const struct tern_ledger_spool_find *f, struct tern_err *err)
{
    struct verify *v = arg;

    (void)err;
    if (f->found == TERN_FRAME_TORN || f->found == TERN_FRAME_ZEROS) {
        v->in_flight = true;
        return 0;
    }
    v->check.damaged++;
    tern_buf_printf(v->findings, "%s: bytes %llu to %llu ", file->path, (unsigned long long)f->from,
                    (unsigned long long)f->to);
    if (f->seq_after > f->seq_before + 1)
        tern_buf_printf(v->findings, "are damaged: records %llu to %llu are lost\n",
                        (unsigned long long)f->seq_before + 1,
                        (unsigned long long)f->seq_after - 1);
    else if (f->found == TERN_FRAME_BREAK)
        tern_buf_printf(v->findings, "do not continue record %llu\n",
                        (unsigned long long)f->seq_before);
    else
        tern_buf_printf(v->findings, "are damaged, behind record %llu\n",
                        (unsigned long long)f->seq_before);
    return 0;
}

/* A file that the database has read further than it is long has lost its end. */
static void check_length(struct verify *v, const struct tern_ledger_spool_file *file, sqlite3 *db)
{
    char *sql = sqlite3_mprintf("SELECT bytes FROM ingest WHERE file = %Q", file->name);
    int64_t known = sql ? tern_ledger_db_int(db, sql, 0) : 0;

    sqlite3_free(sql);
    if ((uint64_t)known > file->bytes) {
        v->check.damaged++;
        tern_buf_printf(v->findings, "%s: bytes %llu to %lld, which run.db has read, are gone\n",
                        file->path, (unsigned long long)file->bytes, (long long)known);
    }
}

static int check_spools(struct verify *v, const char *ledger_dir, const char *run_id, sqlite3 *db,
                        struct tern_err *err)
{
    struct tern_ledger_spool_files files;
    struct tern_ledger_spool_reader reader = {on_frame, on_find, v};
    int rc = 0;

    if (tern_ledger_spool_files_list(ledger_dir, run_id, &files, err) < 0)
        return -1;
    for (size_t i = 0; i < files.n && rc == 0; i++) {
        struct tern_ledger_spool_mark mark = {0};
        v->in_flight = false;
        rc = tern_ledger_spool_file_read(&files.files[i], run_id, &mark, &reader, err);
        v->check.files++;
        v->check.bytes += mark.bytes;
        v->check.in_flight += v->in_flight;
        if (db)
            check_length(v, &files.files[i], db);
    }
    tern_ledger_spool_files_free(&files);
    return rc;
}

/* ---------------------------------------------------------------- the database */

static void check_integrity(struct verify *v, const char *path, sqlite3 *db)
{
    sqlite3_stmt *st = tern_ledger_db_prepare(db, "PRAGMA integrity_check(3)", NULL);
    const char *said = st && sqlite3_step(st) == SQLITE_ROW
                           ? (const char *)sqlite3_column_text(st, 0)
                           : sqlite3_errmsg(db);

    if (strcmp(said, "ok") != 0) {
        v->check.damaged++;
        tern_buf_printf(v->findings, "%s: %s. Make it again: tern ledger fold --rebuild\n", path,
                        said);
    }
    sqlite3_finalize(st);
}

/* What pictures are drawn from, against the rows that it was made from. */
static int check_parts(struct verify *v, const char *path, sqlite3 *db, struct tern_err *err)
{
    bool differ = false;
    int rc = tern_ledger_parts_check(db, &differ, err);

    if (rc == 0 && differ) {
        v->check.damaged++;
        tern_buf_printf(v->findings,
                        "%s: its parts of curves, from which pictures are drawn, are not what its "
                        "rows say. Make it again: tern ledger fold --rebuild\n",
                        path);
    }
    return rc;
}

/* Records that are as they were written and make no sense. */
static int check_sense(struct verify *v, const char *run_id, sqlite3 *anew, struct tern_err *err)
{
    sqlite3_stmt *st = tern_ledger_db_prepare(
        anew, "SELECT file, from_byte, to_byte, what FROM damage ORDER BY file, from_byte", err);
    enum { SHOWN = 5 };
    uint64_t n = 0;

    if (!st)
        return -1;
    for (; sqlite3_step(st) == SQLITE_ROW; n++)
        if (n < SHOWN)
            tern_buf_printf(
                v->findings, "%s/%s: bytes %lld to %lld make no sense: %s\n", run_id,
                (const char *)sqlite3_column_text(st, 0), (long long)sqlite3_column_int64(st, 1),
                (long long)sqlite3_column_int64(st, 2), (const char *)sqlite3_column_text(st, 3));
    if (n > SHOWN)
        tern_buf_printf(v->findings, "%s: %llu more make no sense\n", run_id,
                        (unsigned long long)(n - SHOWN));
    v->check.damaged += n;
    sqlite3_finalize(st);
    return 0;
}

/* What writers could not write is no damage, and the ledger lacks it. */
static int tell_lost(struct verify *v, const char *run_id, sqlite3 *anew, struct tern_err *err)
{
    sqlite3_stmt *st = tern_ledger_db_prepare(
        anew, "SELECT attempt, writer, text FROM event WHERE kind = 'gap' ORDER BY wall_ns", err);

    if (!st)
        return -1;
    for (; sqlite3_step(st) == SQLITE_ROW; v->check.lost++)
        tern_buf_printf(v->findings, "%s: attempt %d, %s: %s\n", run_id, sqlite3_column_int(st, 0),
                        (const char *)sqlite3_column_text(st, 1),
                        (const char *)sqlite3_column_text(st, 2));
    sqlite3_finalize(st);
    return 0;
}

/* Columns that a tern of an older schema did not take, or took by another rule. */
static const char sql_newer[] =
    "UPDATE attempt SET recipe = NULL; UPDATE run SET created_ns = NULL; UPDATE checkpoint SET"
    " bytes = 0, shards = 0, manifest_sha256 = NULL, sized_ns = 0";

/* A rebuild.  Of too many names the order of folds decides which are kept: here those that `ours`
 * (NULL: none) has. */
static int rebuild(const char *ledger_dir, const char *run_id, sqlite3 *ours, sqlite3 **ret_anew,
                   struct tern_err *err)
{
    const bool over =
        ours &&
        tern_ledger_db_int(ours, "SELECT count(*) FROM event WHERE " TERN_APPLY_LIMIT_ROW, 0) > 0;
    sqlite3 *db = NULL;
    bool changed;
    int rc = tern_ledger_db_new(tern_schema_run, &db, err);

    if (rc == 0 && over)
        rc = tern_ledger_db_copy(ours,
                                 "SELECT id, name, NULL, NULL, NULL, 0, 0 FROM metric ORDER BY id",
                                 db, "metric", err);
    if (rc == 0)
        rc = tern_ledger_fold_tail(ledger_dir, run_id, db, true, &changed, err);
    if (rc == 0 && over) /* names that the spools do not have */
        rc = tern_ledger_db_exec(db, "DELETE FROM metric WHERE attempt IS NULL", err);
    if (rc == 0)
        *ret_anew = db;
    else
        sqlite3_close(db);
    return rc;
}

/* The snapshot with the tail laid over it, against a rebuild. */
static int compare(struct verify *v, const char *ledger_dir, const char *run_id, const char *path,
                   struct tern_err *err)
{
    sqlite3 *ours = NULL, *anew = NULL;
    struct tern_ledger_db_stamp stamp = {0};
    struct tern_err why = {0};
    uint8_t a[TERN_SHA256_BYTES] = {0}, b[TERN_SHA256_BYTES] = {1};
    bool changed;
    int rc = -1;

    /* A damaged database may fail anywhere: that is a finding. */
    const bool read = path &&
                      tern_ledger_db_load(path, tern_schema_run, &ours, &stamp, &why) == 0 &&
                      tern_ledger_fold_tail(ledger_dir, run_id, ours, true, &changed, &why) == 0;
    if (rebuild(ledger_dir, run_id, read ? ours : NULL, &anew, err) < 0 ||
        check_sense(v, run_id, anew, err) < 0 || tell_lost(v, run_id, anew, err) < 0)
        goto out;
    /* What an older tern did not take from the spools is no finding. */
    if (stamp.older && tern_ledger_db_exec(anew, sql_newer, err) < 0)
        goto out;
    rc = digest(anew, b, err);
    if (rc < 0 || !path)
        goto out;
    if (!read || (stamp.older && tern_ledger_db_exec(ours, sql_newer, &why) < 0) ||
        digest(ours, a, &why) < 0 || memcmp(a, b, sizeof a) != 0) {
        v->check.damaged++;
        tern_buf_printf(v->findings,
                        "%s: does not say what the spools say%s%s. Make it again: tern ledger fold "
                        "--rebuild\n",
                        path, *why.text ? ": " : "", why.text);
    }
out:
    sqlite3_close(ours);
    sqlite3_close(anew);
    return rc;
}

int tern_ledger_verify(const char *ledger_dir, const char *run_id, struct tern_ledger_check *out,
                       struct tern_buf *findings, struct tern_err *err)
{
    struct verify v = {.findings = findings};
    char *path = tern_ledger_run_db(ledger_dir, run_id);
    struct tern_ledger_db_stamp stamp;
    sqlite3 *db = NULL;
    bool behind = false;
    int rc = tern_ledger_db_open(path, tern_schema_run, &db, &stamp, err);

    if (rc < 0)
        goto out;
    if (rc == 1 && stamp.newer) {
        v.check.damaged++;
        tern_buf_printf(findings,
                        "%s: version %lld is newer than this tern's %d. Use a newer tern, or make "
                        "it again: tern ledger fold --rebuild\n",
                        path, (long long)stamp.newer, TERN_SCHEMA_VERSION);
    } else if (rc == 1 && stamp.bytes) {
        v.check.damaged++;
        tern_buf_printf(findings,
                        "%s: is no run's database, is damaged, or was changed. Make it again: tern "
                        "ledger fold\n",
                        path);
    }
    rc = check_spools(&v, ledger_dir, run_id, db, err);
    if (rc == 0 && db) {
        check_integrity(&v, path, db);
        rc = tern_ledger_fold_behind(ledger_dir, run_id, db, &behind, err);
        v.check.unfolded = behind;
    }
    if (rc == 0 && db && v.check.damaged == 0 && !stamp.older)
        rc = check_parts(&v, path, db, err);
    if (rc == 0 && v.check.damaged == 0)
        rc = compare(&v, ledger_dir, run_id, db ? path : NULL, err);
    if (rc == 0)
        *out = v.check;
out:
    sqlite3_close(db);
    free(path);
    return rc;
}
