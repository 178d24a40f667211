#include "core/ledger/db.h"

#include "core/base/again.h"
#include "core/base/assert.h"
#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/ledger/calls.h"
#include "core/ledger/homes.h"
#include "core/ledger/pages.h"
#include "core/ledger/parts.h"
#include "core/ledger/schema.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* A run of ten million points is 300 MB. */
static const int64_t max_bytes = (int64_t)16 << 30;

/* Of tern before 0.4, whose tables are STRICT; version 3 has its columns. */
enum {
    VERSION_STRICT = 2,
    VERSION_WITHOUT_SPANS = 3,
    VERSION_TABLES = 6, /* has today's tables, and the run.db no seal */
};

int tern_ledger_db_fail(sqlite3 *db, struct tern_err *err, const char *what)
{
    int code = sqlite3_errcode(db);
    bool passing = code == SQLITE_FULL || code == SQLITE_IOERR || code == SQLITE_NOMEM;

    /* The system's word where there is one: a quota and a broken disk are both "disk I/O error". */
    errno = code == SQLITE_FULL                               ? ENOSPC
            : code == SQLITE_IOERR || code == SQLITE_CANTOPEN ? sqlite3_system_errno(db)
                                                              : 0;
    if (errno && (!passing || code == SQLITE_FULL))
        return tern_err_sys(err, "%s", what);
    return tern_err_set(err, passing ? TERN_TEMPFAIL : TERN_FAILED, "%s: %s", what,
                        errno ? strerror(errno) : sqlite3_errmsg(db));
}

int tern_ledger_db_exec(sqlite3 *db, const char *sql, struct tern_err *err)
{
    return sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK
               ? 0
               : tern_ledger_db_fail(db, err, "ledger");
}

sqlite3_stmt *tern_ledger_db_prepare(sqlite3 *db, const char *sql, struct tern_err *err)
{
    sqlite3_stmt *st;

    if (sqlite3_prepare_v2(db, sql, -1, &st, NULL) == SQLITE_OK)
        return st;
    tern_ledger_db_fail(db, err, "ledger");
    return NULL;
}

int tern_ledger_db_run(sqlite3_stmt *st, struct tern_err *err)
{
    int rc = sqlite3_step(st);

    if (rc != SQLITE_DONE)
        tern_ledger_db_fail(sqlite3_db_handle(st), err, "ledger");
    sqlite3_reset(st);
    return rc == SQLITE_DONE ? 0 : -1;
}

int64_t tern_ledger_db_int(sqlite3 *db, const char *sql, int64_t def)
{
    sqlite3_stmt *st = tern_ledger_db_prepare(db, sql, NULL);
    int64_t v = def;

    if (st && sqlite3_step(st) == SQLITE_ROW)
        v = sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    return v;
}

/* A view belongs to one thread at a time (ledger.h): SQLite need not lock for it.  Nor for a file
 * (unix-none), which no process writes to once it has its name. */
static int open_db(const char *name, sqlite3 **db, struct tern_err *err)
{
    tern_ledger_calls();
    if (sqlite3_open_v2(name, db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX,
                        "unix-none") == SQLITE_OK)
        return 0;
    tern_ledger_db_fail(*db, err, "SQLite");
    sqlite3_close(*db);
    *db = NULL;
    return -1;
}

/* Every page of `from` to `to`; returns SQLite's code.  (sqlite3_serialize would do it without
 * files, but Red Hat builds SQLite without it.) */
static int copy_pages(sqlite3 *from, sqlite3 *to)
{
    sqlite3_backup *b = sqlite3_backup_init(to, "main", from, "main");

    if (!b)
        return sqlite3_errcode(to);
    sqlite3_backup_step(b, -1);
    return sqlite3_backup_finish(b);
}

int tern_ledger_db_new(const char *schema, sqlite3 **out, struct tern_err *err)
{
    sqlite3 *db;
    /* A row of the catalogue has a recipe of some kB: on pages of 4 KiB each would fill one, and
     * twice the bytes be read.  run.db has many tables, and may be small. */
    const int page_bytes = strcmp(schema, tern_schema_catalogue) == 0 ? 32768 : 4096;
    char head[140];

    snprintf(head, sizeof head,
             "PRAGMA page_size = %d; PRAGMA application_id = %d; PRAGMA user_version = %d;",
             page_bytes, TERN_SCHEMA_APPLICATION, TERN_SCHEMA_VERSION);
    if (open_db(":memory:", &db, err) < 0)
        return -1;
    if (tern_ledger_db_exec(db, head, err) < 0 || tern_ledger_db_exec(db, schema, err) < 0) {
        sqlite3_close(db);
        return -1;
    }
    *out = db;
    return 0;
}

/* Has `db` the tables and views of `schema`, and nothing else?  A strange view under a table's name
 * could keep a reader busy for ever. */
static bool same_schema(sqlite3 *db, const char *schema)
{
    sqlite3_stmt *st = tern_ledger_db_prepare(
        db,
        "SELECT sql, type = 'index' AND name LIKE 'sqlite_autoindex_%' FROM sqlite_master"
        " ORDER BY rowid",
        NULL);
    int rc = SQLITE_ERROR;

    while (st && (rc = sqlite3_step(st)) == SQLITE_ROW) {
        const char *sql = (const char *)sqlite3_column_text(st, 0);
        size_t len = sql ? strlen(sql) : 0;
        if (!sql && sqlite3_column_int(st, 1))
            continue; /* SQLite's own, of a primary key */
        if (!sql || strncmp(schema, sql, len) != 0 || schema[len] != ';')
            break;
        schema += len + 1;
        while (*schema == '\n')
            schema++;
    }
    sqlite3_finalize(st);
    return rc == SQLITE_DONE && !*schema;
}

/* Is `db` a snapshot that can be read here?  0 or 1 as tern_ledger_db_load. */
static int check_kind(sqlite3 *db, const char *path, const char *schema, int64_t *version,
                      struct tern_ledger_db_stamp *stamp)
{
    *version = tern_ledger_db_int(db, "PRAGMA user_version", -1);
    if (*version < 0 && tern_ledger_db_damaged(db)) {
        tern_warn("%s: is damaged, or was changed; the spools are read instead", path);
        return 1;
    }
    if (tern_ledger_db_int(db, "PRAGMA application_id", -1) != TERN_SCHEMA_APPLICATION ||
        tern_ledger_db_int(db, "SELECT count(*) FROM sqlite_master", 0) == 0) {
        tern_warn("%s: is no ledger database; the spools are read instead", path);
        return 1;
    }
    if (*version >= VERSION_TABLES)
        stamp->other_tables = !same_schema(db, schema);
    if (*version > TERN_SCHEMA_VERSION) {
        stamp->newer = *version;
        return 1;
    }
    if (stamp->other_tables) {
        tern_warn("%s: its tables or views are not tern's; the spools are read instead", path);
        return 1;
    }
    stamp->older = *version < TERN_SCHEMA_VERSION;
    if (!stamp->older && strcmp(schema, tern_schema_run) == 0 && !tern_ledger_pages_sealed(db)) {
        tern_warn("%s: is damaged, or was changed; the spools are read instead", path);
        return 1;
    }
    return *version >= VERSION_STRICT ? 0 : 1;
}

static bool quick_check(sqlite3 *db, const char *sql)
{
    sqlite3_stmt *st = tern_ledger_db_prepare(db, sql, NULL);
    bool sound = st && sqlite3_step(st) == SQLITE_ROW && sqlite3_column_text(st, 0) &&
                 strcmp((const char *)sqlite3_column_text(st, 0), "ok") == 0;

    sqlite3_finalize(st);
    return sound;
}

bool tern_ledger_db_sound(sqlite3 *db)
{
    return quick_check(db, "PRAGMA quick_check(1)");
}

/* Of one table since SQLite 3.33; an older one checks all of them. */
bool tern_ledger_db_sound_table(sqlite3 *db, const char *table)
{
    char *sql = sqlite3_mprintf("PRAGMA quick_check(%Q)", table);
    bool sound = sql && quick_check(db, sql);

    sqlite3_free(sql);
    return sound;
}

bool tern_ledger_db_damaged(sqlite3 *db)
{
    switch (sqlite3_errcode(db)) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_IOERR:
    case SQLITE_MISMATCH:
    case SQLITE_CONSTRAINT: /* of rows that came from a snapshot */
        return true;
    default:
        return false;
    }
}

/* A file: URI; %, ? and # mean something there. */
static char *uri(const char *path)
{
    struct tern_buf b = {0};

    tern_buf_puts(&b, "file:");
    for (const char *s = path; *s; s++) {
        if (strchr("%?#", *s))
            tern_buf_printf(&b, "%%%02X", (unsigned)*s);
        else
            tern_buf_add(&b, s, 1);
    }
    tern_buf_puts(&b, "?mode=ro&immutable=1");
    return b.data;
}

/* `vfs` NULL: SQLite's own. */
static int open_file(const char *path, const char *vfs, sqlite3 **out, struct tern_err *err)
{
    sqlite3 *db = NULL;
    char *u = uri(path);

    tern_ledger_calls();
    int rc =
        sqlite3_open_v2(u, &db, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX, vfs);
    free(u);
    if (rc != SQLITE_OK) {
        tern_ledger_db_fail(db, err, path);
        sqlite3_close(db);
        return -1;
    }
    /* The file is data, never code. */
    sqlite3_exec(db, "PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON", NULL, NULL, NULL);
    *out = db;
    return 0;
}

int tern_ledger_db_open_any(const char *path, sqlite3 **out, struct tern_err *err)
{
    return open_file(path, /* vfs= */ NULL, out, err);
}

static int open_snapshot(const char *path, const char *schema, sqlite3 **out, int64_t *version,
                         struct tern_ledger_db_stamp *stamp, struct tern_err *err)
{
    sqlite3 *db = NULL;

    *stamp = (struct tern_ledger_db_stamp){0};
    if (!tern_ledger_home_sound(path, S_IFREG)) {
        struct stat st;
        if (TERN_AGAIN(lstat(path, &st)) == 0 && !S_ISREG(st.st_mode)) /* no snapshot */
            tern_ledger_db_stamp(path, stamp);
        return 1;
    }
    tern_ledger_db_stamp(path, stamp);
    if (!stamp->bytes)
        return 1;
    if (stamp->bytes < 0) {
        tern_warn("%s: is no file; the spools are read instead", path);
        return 1;
    }
    if (TERN_AGAIN(access(path, R_OK)) < 0 &&
        errno == EACCES) { /* a reader of the spools needs none */
        tern_debug("%s: may not be read; the spools are read instead", path);
        return 1;
    }
    if (stamp->bytes > max_bytes)
        return tern_err_set(err, TERN_FAILED, "%s: %lld bytes are more than a ledger may have",
                            path, (long long)stamp->bytes);
    if (open_file(path, tern_ledger_pages_vfs(), &db, err) < 0)
        return -1;
    int rc = check_kind(db, path, schema, version, stamp);
    if (rc != 0) {
        sqlite3_close(db);
        return rc;
    }
    *out = db;
    return 0;
}

int tern_ledger_db_open(const char *path, const char *schema, sqlite3 **out,
                        struct tern_ledger_db_stamp *stamp, struct tern_err *err)
{
    int64_t version;

    return open_snapshot(path, schema, out, &version, stamp, err);
}

static bool has_table(sqlite3 *db, const char *name)
{
    char *sql = sqlite3_mprintf("SELECT count(*) FROM sqlite_master WHERE type = 'table' AND"
                                " name = %Q AND sql NOT LIKE 'CREATE VIRTUAL%%'",
                                name);
    bool has = sql && tern_ledger_db_int(db, sql, 0) == 1;

    sqlite3_free(sql);
    return has;
}

/* Reals that are none were texts before version 4. */
#define OLD_REAL(column)                                                                           \
    "CASE " column " WHEN 'NaN' THEN NULL WHEN 'Infinity' THEN 9e999 WHEN '-Infinity' THEN -9e999" \
    " ELSE " column " END"
#define OLD_CLASS(column)                                                                          \
    "CASE " column " WHEN 'NaN' THEN 1 WHEN 'Infinity' THEN 2 WHEN '-Infinity' THEN 3 ELSE 0 END"

/* How to read tables of older versions, up to `last`, whose columns differ. */
static const struct {
    const char *schema, *table;
    int64_t last;
    const char *select;
} old_tables[] = {
    {tern_schema_run, "attempt", 3, "SELECT *, resumed_step, NULL, 0, 0 FROM attempt"},
    {tern_schema_run, "span", 3,
     "SELECT metric_id, attempt, (SELECT min(step) FROM point f WHERE f.metric_id = p.metric_id AND"
     " f.attempt = p.attempt), max(step), NULL, NULL, value, class, wall_ns FROM point p"
     " GROUP BY 1, 2"}, /* SQLite takes the others from the row of the max */
    {tern_schema_run, "span", 5,
     "SELECT n.*, p.value, coalesce(p.class, 1), coalesce(p.wall_ns, 0) FROM span n LEFT JOIN"
     " point p ON p.metric_id = n.metric_id AND p.attempt = n.attempt AND p.step = n.last_step"},
    {tern_schema_run, "checkpoint", 5,
     "SELECT *, CASE WHEN bytes > 0 OR manifest_sha256 NOT NULL THEN wall_ns ELSE 0 END"
     " FROM checkpoint"},
    {tern_schema_run, "eval", 3,
     "SELECT attempt, step, set_name, " OLD_REAL("nll") ", " OLD_CLASS(
         "nll") ", tokens, bytes, " OLD_REAL("ppl_token") ", " OLD_REAL("ppl_byte") ", wall_ns"
                                                                                    " FROM eval"},
    {tern_schema_catalogue, "attempt", 3, "SELECT *, 0, 0 FROM attempt"},
    {tern_schema_catalogue, "run", 3,
     "SELECT id, name, user, recipe_path, recipe, identity_hash, full_hash, model, created_ns,"
     " state, attempts, job_id, 0, 0, last_step, " OLD_REAL(
         "last_loss") ", CASE WHEN last_loss NOT NULL"
                      " THEN " OLD_CLASS("last_loss") " END, updated_ns, ckpt_step, 0, NULL, NULL,"
                                                      " NULL, NULL FROM run"},
    {tern_schema_catalogue, "run", 4, "SELECT *, NULL, NULL, NULL, NULL FROM run"},
};

static char *select_old(const char *schema, const char *table, int64_t version)
{
    for (size_t i = 0; i < sizeof old_tables / sizeof *old_tables; i++)
        if (version <= old_tables[i].last && strcmp(old_tables[i].schema, schema) == 0 &&
            strcmp(old_tables[i].table, table) == 0)
            return tern_strdup(old_tables[i].select);
    return tern_strf("SELECT * FROM %s", table);
}

/* The rows of `old`, of that version, in tables of today's schema. */
static int renew(sqlite3 *old, int64_t version, const char *schema, sqlite3 **out,
                 struct tern_err *err)
{
    sqlite3_stmt *tables = NULL;
    sqlite3 *db = NULL;
    int rc = tern_ledger_db_new(schema, &db, err);

    if (rc == 0 && !(tables = tern_ledger_db_prepare(
                         db, "SELECT name FROM sqlite_master WHERE type = 'table'", err)))
        rc = -1;
    while (rc == 0 && sqlite3_step(tables) == SQLITE_ROW) {
        const char *table = (const char *)sqlite3_column_text(tables, 0);
        const bool of_points = version <= VERSION_WITHOUT_SPANS && strcmp(table, "span") == 0;
        const char *from = of_points ? "point" : table;
        char *select = select_old(schema, table, version);
        rc = has_table(old, from) ? tern_ledger_db_copy(old, select, db, table, err)
                                  : tern_err_set(err, TERN_FAILED, "it has no table %s", from);
        free(select);
    }
    sqlite3_finalize(tables);
    if (rc < 0)
        sqlite3_close(db);
    else
        *out = db;
    return rc;
}

int tern_ledger_db_load(const char *path, const char *schema, sqlite3 **out,
                        struct tern_ledger_db_stamp *stamp, struct tern_err *err)
{
    sqlite3 *file = NULL, *db = NULL;
    int64_t version;
    int rc = open_snapshot(path, schema, &file, &version, stamp, err);

    if (rc != 0)
        return rc;
    if (stamp->older) {
        rc = renew(file, version, schema, &db, err);
        if (rc < 0 && err && err->code != TERN_TEMPFAIL) {
            tern_warn("%s: %s; the spools are read instead", path, err->text);
            rc = 1;
        }
    } else if ((rc = open_db(":memory:", &db, err)) == 0) {
        int code = copy_pages(file, db) & 0xff;
        if (code == SQLITE_CORRUPT || code == SQLITE_NOTADB) {
            tern_warn("%s: %s; the spools are read instead", path, sqlite3_errstr(code));
            rc = 1;
        } else if (code != SQLITE_OK) {
            rc = tern_ledger_db_fail(db, err, path);
        }
        if (rc == 0 && strcmp(schema, tern_schema_run) == 0)
            rc = tern_ledger_parts_keep(file, db, &stamp->parts_lost, err);
        if (rc != 0)
            sqlite3_close(db);
    }
    sqlite3_close(file);
    if (rc == 0)
        *out = db;
    return rc;
}

int tern_ledger_db_copy(sqlite3 *from, const char *select, sqlite3 *to, const char *table,
                        struct tern_err *err)
{
    int rc = -1, step;
    sqlite3_stmt *in = tern_ledger_db_prepare(from, select, err), *add = NULL;
    struct tern_buf sql = {0};

    if (!in)
        goto out;
    int n = sqlite3_column_count(in);
    tern_buf_printf(&sql, "INSERT OR REPLACE INTO %s VALUES(?", table);
    for (int i = 1; i < n; i++)
        tern_buf_puts(&sql, ",?");
    tern_buf_puts(&sql, ")");
    add = tern_ledger_db_prepare(to, sql.data, err);
    if (!add)
        goto out;
    while ((step = sqlite3_step(in)) == SQLITE_ROW) {
        for (int i = 0; i < n; i++)
            sqlite3_bind_value(add, i + 1, sqlite3_column_value(in, i));
        if (tern_ledger_db_run(add, err) < 0)
            goto out;
    }
    rc = step == SQLITE_DONE ? 0 : tern_ledger_db_fail(from, err, "ledger");
out:
    sqlite3_finalize(in);
    sqlite3_finalize(add);
    tern_buf_free(&sql);
    return rc;
}

/* As tern_ledger_db_int, but what cannot be read is an error. */
static int read_number(sqlite3 *db, const char *sql, int64_t *ret_value, struct tern_err *err)
{
    sqlite3_stmt *st = tern_ledger_db_prepare(db, sql, NULL);
    int rc = st && sqlite3_step(st) == SQLITE_ROW ? 0 : tern_ledger_db_fail(db, err, sql);

    if (rc == 0)
        *ret_value = sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    return rc;
}

/* The pages of `db` become those of the new file `f`. */
static int write_pages(sqlite3 *db, const struct tern_fs_new *f, struct tern_err *err)
{
    sqlite3 *file;

    if (open_db(f->temp, &file, err) < 0)
        return -1;
    /* One that is not whole is thrown away, and tern_fs_new_commit syncs. */
    int rc = tern_ledger_db_exec(file, "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF", err);
    if (rc == 0 && copy_pages(db, file) != SQLITE_OK) {
        errno = sqlite3_system_errno(file);
        rc = errno ? tern_err_sys(err, "%s: cannot write", f->path)
                   : tern_ledger_db_fail(file, err, f->path);
    }
    int64_t pages, written;
    if (rc == 0)
        rc = read_number(db, "PRAGMA page_count", &pages, err);
    if (rc == 0)
        rc = read_number(file, "PRAGMA page_count", &written, err);
    if (rc == 0)
        tern_assert_cmp(written, ==, pages);
    sqlite3_close(file);
    return rc;
}

static int not_ours(const char *path, const struct stat *st, struct tern_err *err)
{
    char *owner = tern_ledger_user(st->st_uid);
    int rc = tern_err_set(err, TERN_USAGE, "%s: belongs to %s; only its owner may %s it", path,
                          owner, S_ISDIR(st->st_mode) ? "fold" : "replace");

    free(owner);
    return rc;
}

/* Would `f` take the place of another user's file, or come into another user's folder?  The owner
 * of the new file counts, which storage may decide. */
static int check_owner(const struct tern_fs_new *f, const char *of, struct tern_err *err)
{
    const char *const paths[] = {f->path, of};
    struct stat own, st;

    for (size_t i = 0; TERN_AGAIN(fstat(f->fd, &own)) == 0 && i < 2; i++)
        if (TERN_AGAIN(lstat(paths[i], &st)) == 0 && st.st_uid != own.st_uid)
            return not_ours(paths[i], &st, err);
    return 0;
}

static int publish_once(sqlite3 *db, const char *path, const char *of, mode_t bits,
                        tern_ledger_db_finish *finish, const struct tern_ledger_db_stamp *base,
                        struct tern_err *err)
{
    struct tern_fs_new f;
    struct tern_ledger_db_stamp now;
    int64_t application, version;
    int rc;

    if (read_number(db, "PRAGMA application_id", &application, err) < 0 ||
        read_number(db, "PRAGMA user_version", &version, err) < 0)
        return -1;
    tern_assert_cmp(application, ==, TERN_SCHEMA_APPLICATION);
    tern_assert_cmp(version, ==, TERN_SCHEMA_VERSION);
    if (tern_fs_new_open(&f, path, 0600, err) < 0) {
        struct stat st;
        return errno == EACCES && TERN_AGAIN(stat(of, &st)) == 0 && st.st_uid != geteuid()
                   ? not_ours(of, &st, err)
                   : -1;
    }
    rc = check_owner(&f, of, err);
    if (rc == 0)
        rc = write_pages(db, &f, err);
    if (rc == 0 && finish)
        rc = finish(db, f.fd, path, err);
    if (rc == 0 && fchmod(f.fd, (bits & 0444) | 0400) < 0)
        rc = tern_err_sys(err, "%s: cannot set its mode", path);
    if (rc == 0) {
        tern_ledger_db_stamp(path, &now);
        if (tern_ledger_db_stamp_same(&now, base))
            return tern_fs_new_commit(&f, err);
        rc = 1;
    }
    tern_fs_new_abort(&f);
    return rc;
}

int tern_ledger_db_publish(sqlite3 *db, const char *path, const char *of, mode_t bits,
                           tern_ledger_db_finish *finish, const struct tern_ledger_db_stamp *base,
                           struct tern_err *err)
{
    struct tern_again a = {0};
    int rc;

    do {
        errno = 0;
        rc = publish_once(db, path, of, bits, finish, base, err);
    } while (rc < 0 && tern_again_stale(&a));
    return rc;
}
