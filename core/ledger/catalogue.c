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
#include <fcntl.h>
#include <stdio.h>
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
    /* A row of another run in that file would stay: no later fold of this run removes it. */
    static const struct {
        const char *table, *select;
    } rows[] = {
        {"run", "SELECT " TERN_SCHEMA_RUN_COLUMNS " FROM run_row WHERE id = '%s'"},
        {"attempt", "SELECT " TERN_SCHEMA_ATTEMPT_COLUMNS " FROM attempt_row WHERE run_id = '%s'"},
        {"checkpoint",
         "SELECT " TERN_SCHEMA_CHECKPOINT_COLUMNS " FROM checkpoint_row WHERE run_id = '%s'"},
    };
    for (size_t i = 0; rc == 0 && i < sizeof rows / sizeof *rows; i++) {
        char *select = sqlite3_mprintf(rows[i].select, run_id);
        rc = tern_ledger_db_copy(run, select, catalogue, rows[i].table, err);
        sqlite3_free(select);
    }
    return rc;
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

/* A run in the catalogue: the run.db that its rows came from, and whether it went on then. */
struct source {
    char id[TERN_ULID_SIZE];
    struct tern_ledger_db_stamp stamp;
    bool running;
};

struct refresh {
    const char *ledger_dir;
    sqlite3 *db;
    int runs;   /* the folder of the runs */
    bool fresh; /* with the tails of the spools */
    struct source *sources;
    size_t n, cap; /* of `sources`, in the order of their ids */
    size_t hidden;
    bool *changed;
};

static int add_source(struct refresh *r, sqlite3_stmt *st, struct tern_err *err)
{
    const char *id = (const char *)sqlite3_column_text(st, 0);
    const char *state = (const char *)sqlite3_column_text(st, 4);

    if (!id)
        return 0;
    if (r->n == r->cap) {
        const size_t cap = r->cap ? 2 * r->cap : 256;
        struct source *more = cap > MAX_RUNS ? NULL : realloc(r->sources, cap * sizeof *more);
        if (!more)
            return tern_err_set(err, TERN_FAILED, "%s: too many runs", r->ledger_dir);
        r->sources = more;
        r->cap = cap;
    }
    struct source *s = &r->sources[r->n++];
    snprintf(s->id, sizeof s->id, "%s", id);
    s->stamp = (struct tern_ledger_db_stamp){.inode = (uint64_t)sqlite3_column_int64(st, 1),
                                             .mtime_ns = sqlite3_column_int64(st, 2),
                                             .bytes = sqlite3_column_int64(st, 3)};
    s->running = !state || strcmp(state, "running") == 0;
    return 0;
}

static int read_sources(struct refresh *r, struct tern_err *err)
{
    sqlite3_stmt *st = tern_ledger_db_prepare(
        r->db,
        "SELECT s.run_id, s.inode, s.mtime_ns, s.bytes, r.state FROM source s LEFT JOIN run r ON"
        " r.id = s.run_id ORDER BY s.run_id",
        err);
    int rc = st ? 0 : -1, step = SQLITE_DONE;

    while (rc == 0 && (step = sqlite3_step(st)) == SQLITE_ROW)
        rc = add_source(r, st, err);
    if (rc == 0 && step != SQLITE_DONE)
        rc = tern_ledger_db_fail(r->db, err, r->ledger_dir);
    sqlite3_finalize(st);
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

/* Bring one run's rows up to date, from its snapshot or with the tail of its spools.  `had`: what
 * the catalogue has of it, or NULL. */
static int refresh_run(struct refresh *r, const char *run_id, const struct source *had,
                       struct tern_err *err)
{
    char name[TERN_ULID_SIZE + sizeof "/run.db"];
    struct tern_ledger_db_stamp now;
    sqlite3 *run = NULL;
    int rc = 1;

    snprintf(name, sizeof name, "%s/run.db", run_id);
    tern_ledger_db_stamp_at(r->runs, name, &now);
    const bool same = had && tern_ledger_db_stamp_same(&had->stamp, &now);
    if (same && !(r->fresh && had->running))
        return 0;
    if (!may_read(r->ledger_dir, run_id)) {
        r->hidden++;
        return 0;
    }
    char *path = tern_ledger_run_db(r->ledger_dir, run_id);
    if (r->fresh)
        rc = tern_ledger_fold_light(r->ledger_dir, run_id, &run, err);
    else
        rc = open_sound(r->ledger_dir, run_id, path, &run, &now, err);
    if (rc == 0) {
        *r->changed = true;
        rc = tern_ledger_catalogue_take(r->db, run_id, run, &now, err);
    }
    if (rc < 0 && run && tern_ledger_db_damaged(run)) {
        tern_warn("%s: %s; the spools are read instead", path, sqlite3_errmsg(run));
        sqlite3_close(run);
        run = NULL;
        rc = tern_ledger_fold_spools(r->ledger_dir, run_id, &run, err);
        if (rc == 0)
            rc = tern_ledger_catalogue_take(r->db, run_id, run, &now, err);
    }
    sqlite3_close(run);
    free(path);
    return rc < 0 ? -1 : 0;
}

/* Rows of a run whose folder is gone are removed. */
static int forget(struct refresh *r, const struct source *s, struct tern_err *err)
{
    *r->changed = true;
    return remove_run(r->db, s->id, err);
}

/* Both lists are in order. */
static int refresh_all(struct refresh *r, const struct tern_ledger_rows *ids, struct tern_err *err)
{
    size_t k = 0;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < ids->n; i++) {
        const char *id = ids->names[i];
        const struct source *had = NULL;
        struct tern_err why = {0};
        for (int order = -1; rc == 0 && k < r->n && order < 0 && !had;) {
            order = strcmp(r->sources[k].id, id);
            if (order < 0)
                rc = forget(r, &r->sources[k++], err);
            else if (order == 0)
                had = &r->sources[k++];
        }
        /* One run that cannot be read must not hide the others. */
        if (rc == 0 && refresh_run(r, id, had, &why) < 0)
            tern_warn("run %s is left out: %s", id, why.text);
    }
    while (rc == 0 && k < r->n)
        rc = forget(r, &r->sources[k++], err);
    return rc;
}

int tern_ledger_catalogue_refresh(const char *ledger_dir, sqlite3 *db, bool fresh, bool *changed,
                                  struct tern_err *err)
{
    struct refresh r = {
        .ledger_dir = ledger_dir, .db = db, .runs = -1, .fresh = fresh, .changed = changed};
    struct tern_ledger_rows ids = {0};
    char *dir = tern_fs_join(ledger_dir, "runs");
    int rc = -1;

    *changed = false;
    if (tern_ledger_ids(ledger_dir, &ids, err) < 0 || read_sources(&r, err) < 0 ||
        tern_ledger_db_exec(db, "BEGIN", err) < 0)
        goto out;
    if (ids.n && (r.runs = TERN_AGAIN(open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC))) < 0) {
        tern_err_sys(err, "%s: cannot open folder", dir);
        goto out;
    }
    rc = refresh_all(&r, &ids, err);
    if (r.hidden)
        tern_info("%s: %zu run%s there may not be read", ledger_dir, r.hidden,
                  r.hidden == 1 ? "" : "s");
    if (rc == 0)
        rc = tern_ledger_db_exec(db, "COMMIT", err);
out:
    if (r.runs >= 0)
        close(r.runs);
    free(r.sources);
    free(dir);
    tern_ledger_rows_free(&ids);
    return rc;
}

int tern_ledger_catalogue_read(const char *path, sqlite3 **out, struct tern_ledger_db_stamp *stamp,
                               const char **ret_fault, struct tern_err *err)
{
    sqlite3 *db = NULL;
    bool sealed = false, replaced = true;
    int rc = 0;

    *ret_fault = NULL;
    for (int i = 0; i < MAX_RACES && replaced; i++) {
        struct tern_ledger_db_stamp now;
        sqlite3_close(db);
        db = NULL;
        rc = tern_ledger_db_load(path, tern_schema_catalogue, &db, stamp, err);
        sealed = stamp->bytes > 0 && tern_ledger_db_is_sealed(path, stamp);
        tern_ledger_db_stamp(path, &now);
        replaced = rc >= 0 && stamp->bytes && !sealed && !tern_ledger_db_stamp_same(stamp, &now);
    }
    if (rc < 0)
        return -1;
    if (rc == 0 && sealed) {
        *out = db;
        return 0;
    }
    sqlite3_close(db);
    if (!sealed)
        stamp->newer = 0; /* a newer tern seals, too */
    /* Older ones did not. */
    if (stamp->bytes && !stamp->newer && !stamp->older && !replaced &&
        TERN_AGAIN(access(path, R_OK)) == 0)
        *ret_fault = stamp->bytes < 0 ? "is no file" : "is damaged, or was changed";
    return 1;
}

int tern_ledger_catalogue_load(const char *path, sqlite3 **out, struct tern_ledger_db_stamp *stamp,
                               bool *anew, struct tern_err *err)
{
    const char *fault;
    int rc = tern_ledger_catalogue_read(path, out, stamp, &fault, err);

    *anew = rc > 0;
    if (rc <= 0)
        return rc;
    if (stamp->newer)
        tern_warn("%s: version %lld is newer than this tern's %d; the runs are read instead", path,
                  (long long)stamp->newer, TERN_SCHEMA_VERSION);
    else if (fault)
        tern_warn("%s: %s; it is made again", path, fault);
    return tern_ledger_db_new(tern_schema_catalogue, out, err);
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
        rc = tern_ledger_db_publish(db, path, runs, bits, tern_ledger_db_seal, base, err);
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

/* `rebuild`: not from what is there. */
static int fold_once(const char *ledger_dir, const char *path, bool rebuild, bool *published,
                     struct tern_err *err)
{
    struct tern_ledger_db_stamp base;
    sqlite3 *db = NULL;
    bool changed, anew;
    int rc = tern_ledger_catalogue_load(path, &db, &base, &anew, err);

    *published = false;
    if (rc == 0 && rebuild) {
        sqlite3_close(db);
        db = NULL;
        anew = true;
        rc = tern_ledger_db_new(tern_schema_catalogue, &db, err);
    } else if (rc == 0 && base.newer) {
        /* Its readers bring it up to the runs, and two terns do not replace it in turn. */
        tern_info("%s: is left to the newer tern", path);
        goto out;
    }
    if (rc == 0 && base.bytes < 0) /* a folder there may hold what its owner wants */
        rc = tern_ledger_aside_put(path, err);
    if (rc == 0)
        rc = tern_ledger_catalogue_refresh(ledger_dir, db, false, &changed, err);
    if (rc == 0 && (changed || anew || base.older || too_open(ledger_dir, path))) {
        rc = publish(ledger_dir, path, db, &base, err);
        *published = rc == 0;
    }
out:
    sqlite3_close(db);
    return rc;
}

static int fold(const char *ledger_dir, bool rebuild, struct tern_err *err)
{
    char *path = tern_fs_join(ledger_dir, "ledger.db");
    bool published = false;
    int rc = 1;

    /* Look once more after publishing: of two processes that replace it at once, the later may not
     * have seen the other's rows. */
    for (int i = 0; i < MAX_RACES && (rc == 1 || published); i++)
        rc = fold_once(ledger_dir, path, rebuild && !published, &published, err);
    if (rc == 1)
        rc = tern_err_set(err, TERN_TEMPFAIL, "%s: others keep replacing it", path);
    tern_ledger_db_sweep(path);
    free(path);
    return rc;
}

int tern_ledger_fold_catalog(const char *ledger_dir, struct tern_err *err)
{
    return fold(ledger_dir, /* rebuild= */ false, err);
}

int tern_ledger_rebuild_catalog(const char *ledger_dir, struct tern_err *err)
{
    return fold(ledger_dir, /* rebuild= */ true, err);
}
