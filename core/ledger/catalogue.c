/* ledger.db: the rows of all runs, without their points. */
#include "core/base/again.h"
#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/ledger/fold.h"
#include "core/ledger/homes.h"
#include "core/ledger/schema.h"
#include "core/ledger/texts.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    MAX_RUNS = 1 << 20,
    MAX_RACES = 20,
};

static int by_text(const void *x, const void *y)
{
    return strcmp(*(const char *const *)x, *(const char *const *)y);
}

int tern_ledger_ids(const char *ledger_dir, struct tern_ledger_rows *out, struct tern_err *err)
{
    char *dir = tern_fs_join(ledger_dir, "runs");
    struct tern_ledger_rows rows = {0};
    DIR *d = NULL;
    uint32_t uid; /* a user without a home has no runs */
    int rc = 0;

    errno = ENOENT;
    if (tern_ledger_home_sound(ledger_dir, S_IFDIR) && tern_ledger_home_sound(dir, S_IFDIR))
        d = TERN_AGAIN_PTR(opendir(dir));

    if (!d && errno != ENOENT)
        rc = tern_err_sys(err, "%s: cannot open folder", dir);
    else if (!d && !tern_fs_exists(ledger_dir) && !tern_ledger_home_uid(ledger_dir, &uid))
        rc = tern_err_set(err, TERN_USAGE, "%s: no such ledger folder", ledger_dir);
    for (struct dirent *e; d && rc == 0 && (errno = 0, e = readdir(d));) {
        char *run = tern_ledger_ulid_valid(e->d_name) ? tern_fs_join(dir, e->d_name) : NULL;
        bool sound = run && tern_ledger_home_sound(run, S_IFDIR);
        free(run);
        if (!sound)
            continue;
        const char **name = tern_ledger_rows_add(&rows, sizeof *name, MAX_RUNS, err);
        if (!name)
            rc = -1;
        else
            *name = tern_ledger_text(&rows.texts, e->d_name);
    }
    if (d && rc == 0 && errno)
        rc = tern_err_sys(err, "%s: cannot read folder", dir);
    if (d)
        closedir(d);
    free(dir);
    if (rc < 0) {
        tern_ledger_rows_free(&rows);
        return -1;
    }
    if (rows.n)
        qsort(rows.names, rows.n, sizeof *rows.names, by_text);
    *out = rows;
    return 0;
}

static int remove_run(sqlite3 *db, const char *run_id, struct tern_err *err)
{
    static const char *const sql[] = {
        "DELETE FROM run WHERE id = ?", "DELETE FROM attempt WHERE run_id = ?",
        "DELETE FROM checkpoint WHERE run_id = ?", "DELETE FROM source WHERE run_id = ?"};
    int rc = 0;

    for (int i = 0; i < 4 && rc == 0; i++) {
        sqlite3_stmt *st = tern_ledger_db_prepare(db, sql[i], err);
        if (!st)
            return -1;
        sqlite3_bind_text(st, 1, run_id, -1, SQLITE_STATIC);
        rc = tern_ledger_db_run(st, err);
        sqlite3_finalize(st);
    }
    return rc;
}

int tern_ledger_catalogue_take(sqlite3 *catalogue, const char *run_id, sqlite3 *run,
                               const struct tern_ledger_db_stamp *stamp, struct tern_err *err)
{
    sqlite3_stmt *st =
        tern_ledger_db_prepare(catalogue, "INSERT OR REPLACE INTO source VALUES(?, ?, ?, ?)", err);

    if (!st)
        return -1;
    sqlite3_bind_text(st, 1, run_id, -1, SQLITE_STATIC);
    sqlite3_bind_int64(st, 2, (int64_t)stamp->inode);
    sqlite3_bind_int64(st, 3, stamp->mtime_ns);
    sqlite3_bind_int64(st, 4, stamp->bytes);
    int rc = remove_run(catalogue, run_id, err);
    if (rc == 0)
        rc = tern_ledger_db_run(st, err);
    sqlite3_finalize(st);
    if (rc < 0 ||
        tern_ledger_db_copy(run, "SELECT " TERN_SCHEMA_RUN_COLUMNS " FROM run_row", catalogue,
                            "run", err) < 0 ||
        tern_ledger_db_copy(run, "SELECT " TERN_SCHEMA_ATTEMPT_COLUMNS " FROM attempt_row",
                            catalogue, "attempt", err) < 0)
        return -1;
    return tern_ledger_db_copy(
        run,
        "SELECT run_id, attempt, step, path, bytes, shards, manifest_sha256, state,"
        " effective, wall_ns FROM checkpoint_row",
        catalogue, "checkpoint", err);
}

/* Does the catalogue hold what run.db holds?  *running: its newest attempt has no end there. */
static bool up_to_date(sqlite3_stmt *get, const char *run_id,
                       const struct tern_ledger_db_stamp *now, bool *running)
{
    bool same = false;

    *running = true;
    sqlite3_bind_text(get, 1, run_id, -1, SQLITE_STATIC);
    if (sqlite3_step(get) == SQLITE_ROW) {
        same = (uint64_t)sqlite3_column_int64(get, 0) == now->inode &&
               sqlite3_column_int64(get, 1) == now->mtime_ns &&
               sqlite3_column_int64(get, 2) == now->bytes;
        const char *state = (const char *)sqlite3_column_text(get, 3);
        *running = !state || strcmp(state, "running") == 0;
    }
    sqlite3_reset(get);
    return same;
}

/* The run's snapshot, or its spools where the snapshot cannot be copied from. */
static int open_sound(const char *ledger_dir, const char *run_id, const char *path, sqlite3 **run,
                      struct tern_ledger_db_stamp *stamp, struct tern_err *err)
{
    int rc = tern_ledger_db_open(path, tern_schema_run, run, stamp, err);

    if ((rc == 0 && !stamp->older) || (rc == 1 && !stamp->bytes))
        return rc;
    if (rc == 0)
        sqlite3_close(*run);
    *run = NULL;
    return rc < 0 ? -1 : tern_ledger_fold_whole(ledger_dir, run_id, run, err);
}

/* Bring one run's rows up to date, from its snapshot or (`fresh`) with the tail of its spools. */
static int refresh_run(const char *ledger_dir, const char *run_id, sqlite3 *db, sqlite3_stmt *get,
                       bool fresh, bool *changed, struct tern_err *err)
{
    char *path = tern_ledger_run_db(ledger_dir, run_id);
    struct tern_ledger_db_stamp stamp;
    sqlite3 *run = NULL;
    bool running;
    int rc = 1;

    tern_ledger_db_stamp(path, &stamp);
    bool same = up_to_date(get, run_id, &stamp, &running);
    if (fresh && (!same || running))
        rc = tern_ledger_fold_light(ledger_dir, run_id, &run, err);
    else if (!same)
        rc = open_sound(ledger_dir, run_id, path, &run, &stamp, err);
    if (rc == 0) {
        *changed = true;
        rc = tern_ledger_catalogue_take(db, run_id, run, &stamp, err);
    }
    sqlite3_close(run);
    free(path);
    return rc < 0 ? -1 : 0;
}

/* Rows of runs whose folder is gone are removed. */
static int forget(sqlite3 *db, const struct tern_ledger_rows *ids, bool *changed,
                  struct tern_err *err)
{
    struct tern_ledger_rows gone = {0};
    sqlite3_stmt *st = tern_ledger_db_prepare(db, "SELECT run_id FROM source", err);
    int rc = st ? 0 : -1;

    while (rc == 0 && sqlite3_step(st) == SQLITE_ROW) {
        const char *id = (const char *)sqlite3_column_text(st, 0);
        if (!id)
            continue;
        if (ids->n && bsearch(&id, ids->names, ids->n, sizeof *ids->names, by_text))
            continue;
        const char **name = tern_ledger_rows_add(&gone, sizeof *name, MAX_RUNS, err);
        if (!name)
            rc = -1;
        else
            *name = tern_ledger_text(&gone.texts, id);
    }
    sqlite3_finalize(st);
    for (size_t i = 0; rc == 0 && i < gone.n; i++) {
        *changed = true;
        rc = remove_run(db, gone.names[i], err);
    }
    tern_ledger_rows_free(&gone);
    return rc;
}

/* Another user's private run is nothing to complain about. */
static bool may_read(const char *ledger_dir, const char *run_id)
{
    char *run = tern_strf("%s/runs/%s", ledger_dir, run_id);
    bool may = TERN_AGAIN(access(run, R_OK | X_OK)) == 0 || errno != EACCES;

    free(run);
    return may;
}

int tern_ledger_catalogue_refresh(const char *ledger_dir, sqlite3 *db, bool fresh, bool *changed,
                                  struct tern_err *err)
{
    struct tern_ledger_rows ids = {0};
    size_t hidden = 0;
    sqlite3_stmt *get = tern_ledger_db_prepare(
        db,
        "SELECT s.inode, s.mtime_ns, s.bytes, r.state FROM source s LEFT JOIN run r ON"
        " r.id = s.run_id WHERE s.run_id = ?",
        err);
    int rc = -1;

    *changed = false;
    if (!get || tern_ledger_ids(ledger_dir, &ids, err) < 0 ||
        tern_ledger_db_exec(db, "BEGIN", err) < 0)
        goto out;
    for (size_t i = 0; i < ids.n; i++) {
        struct tern_err why = {0};
        if (!may_read(ledger_dir, ids.names[i])) {
            hidden++;
            continue;
        }
        /* One run that cannot be read must not hide the others. */
        if (refresh_run(ledger_dir, ids.names[i], db, get, fresh, changed, &why) < 0)
            tern_warn("run %s is left out: %s", ids.names[i], why.text);
    }
    if (hidden)
        tern_info("%s: %zu run%s there may not be read", ledger_dir, hidden,
                  hidden == 1 ? "" : "s");
    if (forget(db, &ids, changed, err) < 0 || tern_ledger_db_exec(db, "COMMIT", err) < 0)
        goto out;
    rc = 0;
out:
    sqlite3_finalize(get);
    tern_ledger_rows_free(&ids);
    return rc;
}

int tern_ledger_catalogue_load(const char *path, sqlite3 **out, struct tern_ledger_db_stamp *stamp,
                               bool *anew, struct tern_err *err)
{
    sqlite3 *db = NULL;
    int rc = tern_ledger_db_load(path, tern_schema_catalogue, &db, stamp, err);

    if (rc == 0 && !tern_ledger_db_sound(db)) {
        tern_warn("%s: is damaged; it is made again", path);
        sqlite3_close(db);
        rc = 1;
    }
    *anew = rc > 0;
    if (rc > 0)
        rc = tern_ledger_db_new(tern_schema_catalogue, &db, err);
    if (rc == 0)
        *out = db;
    return rc;
}

int tern_ledger_catalogue_bits(const char *ledger_dir, mode_t *bits, struct tern_err *err)
{
    struct tern_ledger_rows ids = {0};

    if (tern_ledger_ids(ledger_dir, &ids, err) < 0)
        return -1;
    *bits = 0777;
    for (size_t i = 0; i < ids.n; i++) {
        int run =
            tern_ledger_home_bits(ledger_dir, ids.names[i]); /* to read in a folder takes r and x */
        if (run >= 0)
            *bits &= (mode_t)run & (((mode_t)run & 0111) << 2);
    }
    tern_ledger_rows_free(&ids);
    return 0;
}

static int publish(const char *ledger_dir, const char *path, sqlite3 *db,
                   const struct tern_ledger_db_stamp *base, struct tern_err *err)
{
    char *runs = tern_fs_join(ledger_dir, "runs");
    mode_t bits;
    int rc = tern_ledger_catalogue_bits(ledger_dir, &bits, err);

    if (rc == 0)
        rc = tern_ledger_db_publish(db, path, runs, bits, base, err);
    free(runs);
    return rc;
}

/* A user that may not read a run may not read its rows here, either. */
static bool too_open(const char *ledger_dir, const char *path)
{
    struct stat st;
    mode_t bits;

    return TERN_AGAIN(stat(path, &st)) == 0 && st.st_uid == geteuid() &&
           tern_ledger_catalogue_bits(ledger_dir, &bits, NULL) == 0 && (st.st_mode & 0044 & ~bits);
}

static int fold_once(const char *ledger_dir, const char *path, bool *published,
                     struct tern_err *err)
{
    struct tern_ledger_db_stamp base;
    sqlite3 *db = NULL;
    bool changed, anew;
    int rc = tern_ledger_catalogue_load(path, &db, &base, &anew, err);

    *published = false;
    if (rc == 0)
        rc = tern_ledger_catalogue_refresh(ledger_dir, db, false, &changed, err);
    if (rc == 0 && (changed || anew || base.older || too_open(ledger_dir, path))) {
        rc = publish(ledger_dir, path, db, &base, err);
        *published = rc == 0;
    }
    sqlite3_close(db);
    return rc;
}

int tern_ledger_fold_catalog(const char *ledger_dir, struct tern_err *err)
{
    char *path = tern_fs_join(ledger_dir, "ledger.db");
    bool published = false;
    int rc = 1;

    /* Look once more after publishing: of two processes that replace it at once, the later may not
     * have seen the other's rows. */
    for (int i = 0; i < MAX_RACES && (rc == 1 || published); i++)
        rc = fold_once(ledger_dir, path, &published, err);
    if (rc == 1)
        rc = tern_err_set(err, TERN_TEMPFAIL, "%s: others keep replacing it", path);
    tern_ledger_db_sweep(path);
    free(path);
    return rc;
}
