#include "core/ledger/fold.h"

#include "core/base/again.h"
#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/ledger/apply.h"
#include "core/ledger/files.h"
#include "core/ledger/pages.h"
#include "core/ledger/schema.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    /* Times to begin again because another process published first.  Each of them made progress. */
    MAX_RACES = 20,
};

static const char *const tables[] = {"run",   "attempt", "metric", "span",   "checkpoint", "eval",
                                     "event", "health",  "param",  "ingest", "damage",     NULL};

char *tern_ledger_run_db(const char *ledger_dir, const char *run_id)
{
    return tern_strf("%s/runs/%s/run.db", ledger_dir, run_id);
}

/* ---------------------------------------------------------------- the tail of every spool */

struct tail {
    struct tern_ledger_apply *apply;
    sqlite3_stmt *get, *set, *forget, *damage;
    uint64_t records, findings;
};

static int on_frame(void *arg, const struct tern_ledger_record_head *head,
                    const struct tern_ledger_frame *f, struct tern_err *err)
{
    struct tail *t = arg;

    t->records++;
    return tern_ledger_apply_frame(t->apply, head, f, err);
}

static int on_find(void *arg, const struct tern_ledger_spool_file *file,
                   const struct tern_ledger_spool_find *f, struct tern_err *err)
{
    struct tail *t = arg;
    char what[200];

    if (f->found == TERN_FRAME_TORN || f->found == TERN_FRAME_ZEROS)
        return 0;
    t->findings++;
    if (f->seq_after)
        snprintf(what, sizeof what, "records %llu to %llu are not what was written",
                 (unsigned long long)f->seq_before + 1, (unsigned long long)f->seq_after - 1);
    else
        snprintf(what, sizeof what, "not what was written, behind record %llu",
                 (unsigned long long)f->seq_before);
    sqlite3_bind_text(t->damage, 1, file->name, -1, SQLITE_STATIC);
    sqlite3_bind_int64(t->damage, 2, (int64_t)f->from);
    sqlite3_bind_int64(t->damage, 3, (int64_t)f->to);
    sqlite3_bind_text(t->damage, 4, what, -1, SQLITE_STATIC);
    return tern_ledger_db_run(t->damage, err);
}

static void get_mark(sqlite3_stmt *get, const char *name, struct tern_ledger_spool_mark *mark)
{
    *mark = (struct tern_ledger_spool_mark){0};
    sqlite3_bind_text(get, 1, name, -1, SQLITE_STATIC);
    if (sqlite3_step(get) == SQLITE_ROW)
        *mark = (struct tern_ledger_spool_mark){.bytes = (uint64_t)sqlite3_column_int64(get, 0),
                                                .crc = (uint32_t)sqlite3_column_int64(get, 1),
                                                .seq = (uint64_t)sqlite3_column_int64(get, 2),
                                                .wall_ns = sqlite3_column_int64(get, 3)};
    sqlite3_reset(get);
}

static int take_file(struct tail *t, const struct tern_ledger_spool_file *file, const char *run_id,
                     bool *changed, struct tern_err *err)
{
    struct tern_ledger_spool_mark mark, old;
    struct tern_ledger_spool_reader reader = {on_frame, on_find, t};

    get_mark(t->get, file->name, &mark);
    if (file->bytes == mark.bytes)
        return 0;
    old = mark;
    /* Damage is read anew at each fold: the bytes may only have been on their way. */
    sqlite3_bind_text(t->forget, 1, file->name, -1, SQLITE_STATIC);
    if (tern_ledger_db_run(t->forget, err) < 0 ||
        tern_ledger_spool_file_read(file, run_id, &mark, &reader, err) < 0)
        return -1;
    if (mark.bytes == old.bytes)
        return 0;
    *changed = true;
    sqlite3_bind_text(t->set, 1, file->name, -1, SQLITE_STATIC);
    sqlite3_bind_int64(t->set, 2, (int64_t)mark.bytes);
    sqlite3_bind_int64(t->set, 3, mark.crc);
    sqlite3_bind_int64(t->set, 4, (int64_t)mark.seq);
    sqlite3_bind_int64(t->set, 5, mark.wall_ns);
    return tern_ledger_db_run(t->set, err);
}

static const char sql_get[] = "SELECT bytes, crc, seq, wall_ns FROM ingest WHERE file = ?";

int tern_ledger_fold_tail(const char *ledger_dir, const char *run_id, sqlite3 *db, bool points,
                          bool *changed, struct tern_err *err)
{
    struct tern_ledger_spool_files files = {0};
    struct tail t = {0};
    int rc = -1;
    int64_t known = tern_ledger_db_int(db, "SELECT count(*) FROM damage", 0);

    *changed = false;
    t.apply = tern_ledger_apply_new(db, points, err);
    t.get = tern_ledger_db_prepare(db, sql_get, err);
    t.set = tern_ledger_db_prepare(db, "INSERT OR REPLACE INTO ingest VALUES(?, ?, ?, ?, ?)", err);
    t.forget = tern_ledger_db_prepare(db, "DELETE FROM damage WHERE file = ?", err);
    t.damage = tern_ledger_db_prepare(db, "INSERT OR REPLACE INTO damage VALUES(?, ?, ?, ?)", err);
    if (!t.apply || !t.get || !t.set || !t.forget || !t.damage ||
        tern_ledger_spool_files_list(ledger_dir, run_id, &files, err) < 0 ||
        tern_ledger_db_exec(db, "BEGIN", err) < 0)
        goto out;
    for (size_t i = 0; i < files.n; i++)
        if (take_file(&t, &files.files[i], run_id, changed, err) < 0)
            goto out;
    if (tern_ledger_apply_end(t.apply, err) < 0 || tern_ledger_db_exec(db, "COMMIT", err) < 0)
        goto out;
    if (tern_ledger_db_int(db, "SELECT count(*) FROM damage", 0) != known)
        *changed = true;
    rc = 0;
out:
    tern_ledger_spool_files_free(&files);
    tern_ledger_apply_free(t.apply);
    sqlite3_finalize(t.get);
    sqlite3_finalize(t.set);
    sqlite3_finalize(t.forget);
    sqlite3_finalize(t.damage);
    return rc;
}

int tern_ledger_fold_behind(const char *ledger_dir, const char *run_id, sqlite3 *db, bool *behind,
                            struct tern_err *err)
{
    struct tern_ledger_spool_files files;
    sqlite3_stmt *get = tern_ledger_db_prepare(db, sql_get, err);

    *behind = false;
    if (!get || tern_ledger_spool_files_list(ledger_dir, run_id, &files, err) < 0) {
        sqlite3_finalize(get);
        return -1;
    }
    for (size_t i = 0; i < files.n && !*behind; i++) {
        struct tern_ledger_spool_mark mark;
        get_mark(get, files.files[i].name, &mark);
        *behind = mark.bytes != files.files[i].bytes;
    }
    tern_ledger_spool_files_free(&files);
    sqlite3_finalize(get);
    return 0;
}

int tern_ledger_fold_gone(const char *ledger_dir, const char *run_id, sqlite3 *db, bool *gone,
                          struct tern_err *err)
{
    struct tern_ledger_spool_files files;
    sqlite3_stmt *st = tern_ledger_db_prepare(db, "SELECT file, bytes FROM ingest", err);

    *gone = false;
    if (!st || tern_ledger_spool_files_list(ledger_dir, run_id, &files, err) < 0) {
        sqlite3_finalize(st);
        return -1;
    }
    int step = SQLITE_DONE, rc = 0;
    while (!*gone && (step = sqlite3_step(st)) == SQLITE_ROW) {
        const char *name = (const char *)sqlite3_column_text(st, 0);
        bool there = false;
        for (size_t i = 0; name && i < files.n && !there; i++)
            there = strcmp(files.files[i].name, name) == 0 &&
                    files.files[i].bytes >= (uint64_t)sqlite3_column_int64(st, 1);
        *gone = name && !there;
    }
    if (step != SQLITE_ROW && step != SQLITE_DONE)
        rc = tern_ledger_db_fail(db, err, "ledger");
    tern_ledger_spool_files_free(&files);
    sqlite3_finalize(st);
    return rc;
}

/* ---------------------------------------------------------------- publishing */

enum snapshot { SNAPSHOT_NONE, SNAPSHOT_USED, SNAPSHOT_BAD };

/* A run's database with all that the spools say. */
struct folded {
    sqlite3 *db;
    struct tern_ledger_db_stamp base; /* of the snapshot */
    enum snapshot how;                /* was the snapshot used? */
    bool changed;                     /* there were new records */
};

/* A newer tern made this run.db, or a flipped bit of its version says so. 1, with a word, where the
 * spools have all that it was made of. */
static int pass_newer(const char *ledger_dir, const char *run_id, const char *path,
                      const struct tern_ledger_db_stamp *stamp, struct tern_err *err)
{
    const char *why = tern_ledger_aside_only_copy(ledger_dir, run_id, path);

    if (why)
        return tern_err_set(err, TERN_FAILED,
                            "%s: version %lld is newer than this tern's %d, and %s. Use a newer "
                            "tern.",
                            path, (long long)stamp->newer, TERN_SCHEMA_VERSION, why);
    tern_warn("%s: version %lld is newer than this tern's %d; the spools are read instead", path,
              (long long)stamp->newer, TERN_SCHEMA_VERSION);
    return 1;
}

static int load_and_fold(const char *ledger_dir, const char *run_id, const char *path,
                         struct folded *ret_folded, struct tern_err *err)
{
    struct folded f = {0};
    sqlite3 *db = NULL;
    int rc = tern_ledger_db_load(path, tern_schema_run, &db, &f.base, err);

    if (rc == 1 && f.base.newer)
        rc = pass_newer(ledger_dir, run_id, path, &f.base, err);
    f.how = rc == 0 ? SNAPSHOT_USED : f.base.bytes ? SNAPSHOT_BAD : SNAPSHOT_NONE;
    /* The spools hold more than an older tern took from them, if they are all there. */
    bool gone = false;
    if (rc == 0 && f.base.older &&
        (rc = tern_ledger_fold_gone(ledger_dir, run_id, db, &gone, err)) == 0 && !gone) {
        sqlite3_close(db);
        db = NULL;
        rc = 1;
    }
    if (rc == 0 &&
        (rc = tern_ledger_fold_tail(ledger_dir, run_id, db, true, &f.changed, err)) < 0 &&
        !tern_ledger_db_sound(db)) {
        tern_warn("%s: %s; the spools are read instead", path, err ? err->text : "is damaged");
        sqlite3_close(db);
        db = NULL;
        f.how = SNAPSHOT_BAD;
        rc = 1;
    }
    if (rc > 0) {
        rc = tern_ledger_db_new(tern_schema_run, &db, err);
        if (rc == 0)
            rc = tern_ledger_fold_tail(ledger_dir, run_id, db, true, &f.changed, err);
    }
    if (rc < 0) {
        sqlite3_close(db);
        return -1;
    }
    f.db = db;
    *ret_folded = f;
    return 0;
}

/* In the run's folder, with that folder's permissions. */
static int publish(sqlite3 *db, const char *path, const struct tern_ledger_db_stamp *base,
                   struct tern_err *err)
{
    char *dir = tern_fs_dirname(path);
    struct stat st;
    mode_t bits = TERN_AGAIN(stat(dir, &st)) == 0 ? st.st_mode & 0777 : 0700;
    int rc = tern_ledger_db_publish(db, path, dir, bits, tern_ledger_pages_finish, base, err);

    free(dir);
    return rc;
}

/* 1 when another process published meanwhile. */
static int fold_once(const char *ledger_dir, const char *run_id, const char *path,
                     struct tern_err *err)
{
    struct folded f = {0};
    int rc = load_and_fold(ledger_dir, run_id, path, &f, err);

    if (rc == 0 && f.base.newer && f.base.other_tables) {
        /* Its tern makes it again from ours, and we from its: two that fold in turn had no end. */
        tern_warn("%s: is left to the newer tern. This tern's: tern ledger fold --rebuild", path);
        goto out;
    }
    if (rc == 0 && f.how == SNAPSHOT_BAD)
        rc = tern_ledger_aside_put(path, err);
    if (rc == 0 && (f.changed || f.how != SNAPSHOT_USED || f.base.older || f.base.parts_lost))
        rc = publish(f.db, path, &f.base, err);
out:
    sqlite3_close(f.db);
    return rc;
}

/* From the spools alone.  A run.db that has read files which are gone is not given for that. */
static int rebuild_once(const char *ledger_dir, const char *run_id, const char *path,
                        struct tern_err *err)
{
    struct tern_ledger_db_stamp base;
    sqlite3 *old = NULL, *db = NULL;
    bool changed = false, gone = false;
    int rc = tern_ledger_db_open(path, tern_schema_run, &old, &base, err);

    if (rc < 0) /* not to be read now */
        return -1;
    if (base.newer)
        tern_ledger_db_open_any(path, &old, NULL);
    const bool told = old && tern_ledger_fold_gone(ledger_dir, run_id, old, &gone, NULL) == 0;
    sqlite3_close(old);
    if (told && gone)
        rc = tern_err_set(err, TERN_USAGE,
                          "%s: holds more than the spools, of which some are gone. It is kept.",
                          path);
    else if ((rc != 0 || !told) && base.bytes)
        rc = tern_ledger_aside_put(path, err);
    else
        rc = 0;
    if (rc == 0)
        rc = tern_ledger_db_new(tern_schema_run, &db, err);
    if (rc == 0)
        rc = tern_ledger_fold_tail(ledger_dir, run_id, db, true, &changed, err);
    if (rc == 0)
        rc = publish(db, path, &base, err);
    sqlite3_close(db);
    return rc;
}

static int fold(const char *ledger_dir, const char *run_id, bool anew, struct tern_err *err)
{
    char *path = tern_ledger_run_db(ledger_dir, run_id), *dir = tern_fs_dirname(path);
    struct stat st;
    int rc = 1;

    if (TERN_AGAIN(stat(dir, &st)) < 0) {
        rc = tern_err_sys(err, "%s: no such run", dir);
        if (err)
            err->code = TERN_USAGE;
    }
    for (int i = 0; i < MAX_RACES && rc == 1; i++)
        rc = anew ? rebuild_once(ledger_dir, run_id, path, err)
                  : fold_once(ledger_dir, run_id, path, err);
    if (rc == 1)
        rc = tern_err_set(err, TERN_TEMPFAIL, "%s: others keep replacing it", path);
    tern_ledger_db_sweep(path);
    free(dir);
    free(path);
    return rc;
}

int tern_ledger_fold(const char *ledger_dir, const char *run_id, struct tern_err *err)
{
    return fold(ledger_dir, run_id, false, err);
}

int tern_ledger_rebuild(const char *ledger_dir, const char *run_id, struct tern_err *err)
{
    return fold(ledger_dir, run_id, true, err);
}

/* ---------------------------------------------------------------- fresh views */

int tern_ledger_fold_light(const char *ledger_dir, const char *run_id, sqlite3 **out,
                           struct tern_err *err)
{
    char *path = tern_ledger_run_db(ledger_dir, run_id);
    sqlite3 *old = NULL, *db = NULL;
    struct tern_ledger_db_stamp stamp;
    bool changed;
    int rc = tern_ledger_db_new(tern_schema_run, &db, err);

    if (rc == 0)
        rc = tern_ledger_db_open(path, tern_schema_run, &old, &stamp, err);
    if (rc == 1 && stamp.newer)
        rc = pass_newer(ledger_dir, run_id, path, &stamp, err);
    if (rc == 0 && stamp.older) { /* without a seal: from the spools, where they are all there */
        free(path);
        sqlite3_close(old);
        sqlite3_close(db);
        return tern_ledger_fold_whole(ledger_dir, run_id, out, err);
    }
    for (const char *const *t = tables; rc == 0 && *t; t++) {
        char *select = tern_strf("SELECT * FROM %s", *t);
        rc = tern_ledger_db_copy(old, select, db, *t, err);
        free(select);
    }
    if (rc >= 0)
        rc = tern_ledger_fold_tail(ledger_dir, run_id, db, false, &changed, err);
    if (rc < 0 && old && (tern_ledger_db_damaged(old) || !tern_ledger_db_sound(old))) {
        tern_warn("%s: %s; the spools are read instead", path, err ? err->text : "is damaged");
        sqlite3_close(db);
        db = NULL;
        rc = tern_ledger_db_new(tern_schema_run, &db, err);
        if (rc == 0)
            rc = tern_ledger_fold_tail(ledger_dir, run_id, db, false, &changed, err);
    }
    sqlite3_close(old);
    free(path);
    if (rc < 0) {
        sqlite3_close(db);
        return -1;
    }
    *out = db;
    return 0;
}

int tern_ledger_fold_spools(const char *ledger_dir, const char *run_id, sqlite3 **out,
                            struct tern_err *err)
{
    sqlite3 *db = NULL;
    bool changed;

    if (tern_ledger_db_new(tern_schema_run, &db, err) < 0)
        return -1;
    if (tern_ledger_fold_tail(ledger_dir, run_id, db, true, &changed, err) < 0) {
        sqlite3_close(db);
        return -1;
    }
    *out = db;
    return 0;
}

int tern_ledger_fold_whole(const char *ledger_dir, const char *run_id, sqlite3 **out,
                           struct tern_err *err)
{
    char *path = tern_ledger_run_db(ledger_dir, run_id);
    sqlite3 *db = NULL;
    struct tern_ledger_db_stamp stamp;
    struct folded f;
    bool behind = true;
    int rc = tern_ledger_db_open(path, tern_schema_run, &db, &stamp, err);

    if (rc == 0)
        rc = tern_ledger_fold_behind(ledger_dir, run_id, db, &behind, err);
    if (rc >= 0 && (behind || stamp.older)) {
        sqlite3_close(db);
        db = NULL;
        rc = load_and_fold(ledger_dir, run_id, path, &f, err);
        db = rc < 0 ? NULL : f.db;
    }
    free(path);
    if (rc < 0) {
        sqlite3_close(db);
        return -1;
    }
    *out = db;
    return 0;
}
