/* Views and their rows. */
#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/ledger/fold.h"
#include "core/ledger/homes.h"
#include "core/ledger/schema.h"
#include "core/ledger/texts.h"
#include "core/ledger/view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ROWS = 1 << 22 };

/* In a shared ledger the owner of a run's folder owns the run, whatever its rows say; in SQL, too.
 */
static void tell_owners(sqlite3 *db, const char *ledger_dir)
{
    struct tern_buf b = {0};

    if (!tern_ledger_home_shared(ledger_dir))
        return;
    sqlite3_stmt *ids = tern_ledger_db_prepare(db, "SELECT id FROM run", NULL);
    while (ids && sqlite3_step(ids) == SQLITE_ROW) {
        const char *id = (const char *)sqlite3_column_text(ids, 0);
        char *user =
            id && tern_ledger_ulid_valid(id) ? tern_ledger_home_user(ledger_dir, id) : NULL;
        char *sql =
            user ? sqlite3_mprintf("UPDATE run SET user = %Q WHERE id = %Q;", user, id) : NULL;
        tern_buf_puts(&b, sql ? sql : "");
        sqlite3_free(sql);
        free(user);
    }
    sqlite3_finalize(ids);
    if (b.len)
        tern_ledger_db_exec(db, b.data, NULL);
    tern_buf_free(&b);
}

static struct tern_ledger *view(sqlite3 *db, bool catalogue, char *what)
{
    struct tern_ledger *l = tern_alloc(1, sizeof *l, "ledger", NULL);

    if (!l)
        abort();
    *l = (struct tern_ledger){.db = db, .catalogue = catalogue, .what = what};
    return l;
}

struct tern_ledger *tern_ledger_open(const char *ledger_dir, struct tern_err *err)
{
    char *path = tern_fs_join(ledger_dir, "ledger.db");
    struct tern_ledger_db_stamp stamp;
    sqlite3 *db = NULL;
    bool changed, anew;
    int rc = tern_ledger_catalogue_load(path, &db, &stamp, &anew, err);

    free(path);
    if (rc == 0)
        rc = tern_ledger_catalogue_refresh(ledger_dir, db, true, &changed, err);
    if (rc == 0) {
        tell_owners(db, ledger_dir);
        return view(db, true, tern_strdup(ledger_dir));
    }
    sqlite3_close(db);
    return NULL;
}

/* Those of `from` whose ids are taken in `to` get ids of their own. */
static int rename_taken(sqlite3 *to, sqlite3 *from, const char *home, struct tern_err *err)
{
    static const char *const update[] = {"UPDATE run SET id = %Q WHERE id = %Q",
                                         "UPDATE attempt SET run_id = %Q WHERE run_id = %Q",
                                         "UPDATE checkpoint SET run_id = %Q WHERE run_id = %Q"};
    sqlite3_stmt *ids = tern_ledger_db_prepare(to, "SELECT id FROM run", err);
    uint32_t uid = 0;
    int rc = ids ? 0 : -1;

    tern_ledger_home_uid(home, &uid);
    while (rc == 0 && sqlite3_step(ids) == SQLITE_ROW) {
        const char *id = (const char *)sqlite3_column_text(ids, 0);
        char *other = tern_strf("%s@%u", id ? id : "", (unsigned)uid);
        for (int i = 0; i < 3 && rc == 0; i++) {
            char *sql = sqlite3_mprintf(update[i], other, id);
            rc = tern_ledger_db_exec(from, sql, err);
            sqlite3_free(sql);
        }
        free(other);
    }
    sqlite3_finalize(ids);
    return rc;
}

static int add_catalogue(sqlite3 *to, const char *home, struct tern_err *err)
{
    static const char *const tables[] = {"run", "attempt", "checkpoint"};
    struct tern_ledger *l = tern_ledger_open(home, err);
    int rc = l ? rename_taken(to, l->db, home, err) : -1;

    for (int i = 0; i < 3 && rc == 0; i++) {
        char *select = tern_strf("SELECT * FROM %s", tables[i]);
        rc = tern_ledger_db_copy(l->db, select, to, tables[i], err);
        free(select);
    }
    tern_ledger_close(l);
    return rc;
}

struct tern_ledger *tern_ledger_open_homes(const struct tern_ledger_rows *homes,
                                           struct tern_err *err)
{
    struct tern_ledger *l = tern_ledger_open(homes->names[0], err);
    struct tern_err why;

    for (size_t i = 1; l && i < homes->n; i++)
        if (add_catalogue(l->db, homes->names[i], &why) < 0)
            tern_warn("%s: is left out: %s", homes->names[i], why.text);
    return l;
}

struct tern_ledger *tern_ledger_open_run(const char *ledger_dir, const char *run_id,
                                         struct tern_err *err)
{
    sqlite3 *db;
    char *what = tern_strf("%s/runs/%s", ledger_dir, run_id);

    if (!tern_fs_exists(what) || !tern_ledger_home_sound(ledger_dir, S_IFDIR) ||
        !tern_ledger_home_sound(what, S_IFDIR)) {
        tern_err_set(err, TERN_USAGE, "%s: no such run. See 'tern ledger list'.", what);
        free(what);
        return NULL;
    }
    if (tern_ledger_fold_whole(ledger_dir, run_id, &db, err) == 0) {
        struct tern_ledger *l = view(db, false, what);
        l->user = tern_ledger_home_user(ledger_dir, run_id);
        l->ledger_dir = tern_strdup(ledger_dir);
        snprintf(l->run_id, sizeof l->run_id, "%s", run_id);
        return l;
    }
    free(what);
    return NULL;
}

bool tern_ledger_view_mend(struct tern_ledger *l, const char *why)
{
    sqlite3 *db = NULL;

    if (!l->ledger_dir)
        return false;
    tern_warn("%s/run.db: %s; the spools are read instead", l->what, why);
    bool made = tern_ledger_fold_spools(l->ledger_dir, l->run_id, &db, &(struct tern_err){0}) == 0;
    if (made) {
        sqlite3_close(l->db);
        l->db = db;
    }
    free(l->ledger_dir); /* once */
    l->ledger_dir = NULL;
    return made;
}

bool tern_ledger_view_heal(struct tern_ledger *l)
{
    return tern_ledger_db_damaged(l->db) && tern_ledger_view_mend(l, sqlite3_errmsg(l->db));
}

void tern_ledger_close(struct tern_ledger *l)
{
    if (!l)
        return;
    sqlite3_close(l->db);
    free(l->ledger_dir);
    free(l->user);
    free(l->what);
    free(l);
}

/* ---------------------------------------------------------------- rows
 *
 * A row is read column by column, in the order of its statement. */

struct cursor {
    sqlite3_stmt *st;
    int i;
    void **texts;
};

static const char *text(struct cursor *c)
{
    return tern_ledger_text(c->texts, (const char *)sqlite3_column_text(c->st, c->i++));
}

static int64_t integer(struct cursor *c, int64_t null)
{
    int i = c->i++;

    return sqlite3_column_type(c->st, i) == SQLITE_NULL ? null : sqlite3_column_int64(c->st, i);
}

static double real(struct cursor *c)
{
    return tern_ledger_db_column_real(c->st, c->i++);
}

static int rows(struct tern_ledger *l, const char *sql, size_t size,
                void (*take)(struct cursor *c, void *row), struct tern_ledger_rows *out,
                struct tern_err *err)
{
    struct tern_ledger_rows got = {0};
    struct cursor c = {.st = tern_ledger_db_prepare(l->db, sql, err), .texts = &got.texts};
    int step;

    if (!c.st) {
        tern_err_prefix(err, "%s", l->what);
        return tern_ledger_view_heal(l) ? rows(l, sql, size, take, out, err) : -1;
    }
    while ((step = sqlite3_step(c.st)) == SQLITE_ROW) {
        void *row = tern_ledger_rows_add(&got, size, MAX_ROWS, err);
        if (!row)
            break;
        c.i = 0;
        take(&c, row);
    }
    if (step != SQLITE_DONE && step != SQLITE_ROW)
        tern_ledger_db_fail(l->db, err, l->what);
    sqlite3_finalize(c.st);
    if (step != SQLITE_DONE) {
        tern_ledger_rows_free(&got);
        return tern_ledger_view_heal(l) ? rows(l, sql, size, take, out, err) : -1;
    }
    *out = got;
    return 0;
}

static void take_run(struct cursor *c, void *row)
{
    struct tern_ledger_run *r = row;

    r->id = text(c);
    r->name = text(c);
    r->user = text(c);
    r->recipe_path = text(c);
    r->recipe = text(c);
    r->identity_hash = text(c);
    r->full_hash = text(c);
    r->model = text(c);
    r->created_ns = integer(c, 0);
    r->state = text(c);
    r->attempts = (uint32_t)integer(c, 0);
    r->job_id = integer(c, 0);
    r->array_job = integer(c, 0);
    r->array_task = integer(c, 0);
    r->last_step = integer(c, -1);
    r->last_loss = real(c);
    r->has_loss = integer(c, -1) >= 0;
    r->updated_ns = integer(c, 0);
    r->ckpt_step = integer(c, -1);
    r->lost = integer(c, 0);
    r->steps = integer(c, -1);
    r->tokens_per_second = real(c);
    r->step_seconds = real(c);
    r->tags = text(c);
}

/* ULIDs sort by time of creation. */
static int read_runs(struct tern_ledger *l, const char *sql, struct tern_ledger_rows *out,
                     struct tern_err *err)
{
    int rc = rows(l, sql, sizeof *out->runs, take_run, out, err);

    for (size_t i = 0; rc == 0 && l->user && i < out->n; i++)
        out->runs[i].user = tern_ledger_text(&out->texts, l->user);
    return rc;
}

int tern_ledger_runs(struct tern_ledger *l, struct tern_ledger_rows *out, struct tern_err *err)
{
    return read_runs(l, "SELECT " TERN_SCHEMA_RUN_COLUMNS " FROM run_row ORDER BY id", out, err);
}

int tern_ledger_runs_brief(struct tern_ledger *l, struct tern_ledger_rows *out,
                           struct tern_err *err)
{
    return read_runs(l,
                     "SELECT " TERN_SCHEMA_RUN_COLUMNS_BUT(
                         "CASE WHEN steps > 0 THEN NULL ELSE recipe END") " FROM run_row"
                                                                          " ORDER BY id",
                     out, err);
}

static void take_attempt(struct cursor *c, void *row)
{
    struct tern_ledger_attempt *a = row;

    a->run_id = text(c);
    a->attempt = (uint32_t)integer(c, 0);
    a->kind = text(c);
    a->job_id = integer(c, 0);
    a->restart_count = integer(c, 0);
    a->nodes = text(c);
    a->host = text(c);
    a->pid = integer(c, 0);
    a->world = integer(c, 0);
    a->resumed_checkpoint = text(c);
    a->resumed_step = integer(c, -1);
    a->full_hash = text(c);
    a->begin_ns = integer(c, 0);
    a->end_ns = integer(c, 0);
    a->outcome = text(c);
    a->exit_code = integer(c, 0);
    a->signal = integer(c, 0);
    a->cause = text(c);
    a->first_step = integer(c, -1);
    a->last_step = integer(c, -1);
    a->array_job = integer(c, 0);
    a->array_task = integer(c, 0);
}

int tern_ledger_attempts(struct tern_ledger *l, struct tern_ledger_rows *out, struct tern_err *err)
{
    return rows(l,
                "SELECT " TERN_SCHEMA_ATTEMPT_COLUMNS " FROM attempt_row ORDER BY run_id, attempt",
                sizeof *out->attempts, take_attempt, out, err);
}

static void take_checkpoint(struct cursor *c, void *row)
{
    struct tern_ledger_checkpoint *k = row;

    k->run_id = text(c);
    k->attempt = (uint32_t)integer(c, 0);
    k->step = integer(c, -1);
    k->path = text(c);
    k->bytes = integer(c, 0);
    k->shards = integer(c, 0);
    k->manifest_sha256 = text(c);
    k->state = text(c);
    k->effective = integer(c, 0);
    k->wall_ns = integer(c, 0);
}

int tern_ledger_checkpoints(struct tern_ledger *l, struct tern_ledger_rows *out,
                            struct tern_err *err)
{
    return rows(l,
                "SELECT " TERN_SCHEMA_CHECKPOINT_COLUMNS
                " FROM checkpoint_row ORDER BY run_id, step, attempt, path",
                sizeof *out->checkpoints, take_checkpoint, out, err);
}

int tern_ledger_view_need_run(struct tern_ledger *l, struct tern_err *err)
{
    return l->catalogue
               ? tern_err_set(err, TERN_FAILED, "%s: the catalogue holds no such rows", l->what)
               : 0;
}

int tern_ledger_checkpoints_made(struct tern_ledger *l, struct tern_ledger_rows *out,
                                 struct tern_err *err)
{
    return tern_ledger_view_need_run(l, err) < 0
               ? -1
               : rows(l,
                      "SELECT run_id, attempt, step, path, bytes, shards, manifest_sha256, state, "
                      "effective, made_ns FROM checkpoint_row WHERE made_ns > 0 "
                      "ORDER BY step, attempt, path",
                      sizeof *out->checkpoints, take_checkpoint, out, err);
}

static void take_eval(struct cursor *c, void *row)
{
    struct tern_ledger_eval *e = row;

    e->attempt = (uint32_t)integer(c, 0);
    e->step = integer(c, 0);
    e->set = text(c);
    e->nll = real(c);
    e->tokens = integer(c, 0);
    e->bytes = integer(c, 0);
    e->ppl_token = real(c);
    e->ppl_byte = real(c);
    e->wall_ns = integer(c, 0);
    e->effective = integer(c, 0);
}

int tern_ledger_evals(struct tern_ledger *l, struct tern_ledger_rows *out, struct tern_err *err)
{
    if (tern_ledger_view_need_run(l, err) < 0)
        return -1;
    return rows(l,
                "SELECT attempt, step, set_name, nll, tokens, bytes, ppl_token, ppl_byte, wall_ns,"
                " EXISTS (SELECT 1 FROM eval_effective f WHERE f.attempt = e.attempt AND f.step ="
                " e.step AND f.set_name = e.set_name) FROM eval e ORDER BY step, attempt, set_name",
                sizeof *out->evals, take_eval, out, err);
}

static void take_event(struct cursor *c, void *row)
{
    struct tern_ledger_event *e = row;

    e->attempt = (uint32_t)integer(c, 0);
    e->writer = text(c);
    e->wall_ns = integer(c, 0);
    e->kind = text(c);
    e->severity = text(c);
    e->node = text(c);
    e->text = text(c);
}

int tern_ledger_events(struct tern_ledger *l, struct tern_ledger_rows *out, struct tern_err *err)
{
    if (tern_ledger_view_need_run(l, err) < 0)
        return -1;
    return rows(l,
                "SELECT attempt, writer, wall_ns, kind, severity, node, text FROM event"
                " ORDER BY attempt, wall_ns, writer_id, seq",
                sizeof *out->events, take_event, out, err);
}

static void take_health(struct cursor *c, void *row)
{
    struct tern_ledger_health *h = row;

    h->attempt = (uint32_t)integer(c, 0);
    h->writer = text(c);
    h->wall_ns = integer(c, 0);
    h->check = text(c);
    h->node = text(c);
    h->verdict = text(c);
    h->severity = text(c);
    h->text = text(c);
    h->value = real(c);
    h->unit = text(c);
    h->seconds = real(c);
}

int tern_ledger_health_rows(struct tern_ledger *l, struct tern_ledger_rows *out,
                            struct tern_err *err)
{
    if (tern_ledger_view_need_run(l, err) < 0)
        return -1;
    return rows(l,
                "SELECT attempt, writer, wall_ns, check_id, node, verdict, severity, text, value,"
                " unit, seconds FROM health ORDER BY attempt, wall_ns, writer_id, seq",
                sizeof *out->health, take_health, out, err);
}

static void take_name(struct cursor *c, void *row)
{
    *(const char **)row = text(c);
}

int tern_ledger_metrics(struct tern_ledger *l, struct tern_ledger_rows *out, struct tern_err *err)
{
    if (tern_ledger_view_need_run(l, err) < 0)
        return -1;
    return rows(l, "SELECT name FROM metric ORDER BY name", sizeof *out->names, take_name, out,
                err);
}

/* ---------------------------------------------------------------- which run */

static int find_by(struct tern_ledger *l, const char *sql, const char *typed, int *n,
                   char run_id[TERN_ULID_SIZE], struct tern_err *err)
{
    sqlite3_stmt *st = tern_ledger_db_prepare(l->db, sql, err);

    if (!st)
        return -1;
    if (typed)
        sqlite3_bind_text(st, 1, typed, -1, SQLITE_STATIC);
    for (*n = 0; sqlite3_step(st) == SQLITE_ROW && *n < 2; ++*n)
        if (*n == 0)
            snprintf(run_id, TERN_ULID_SIZE, "%s", (const char *)sqlite3_column_text(st, 0));
    sqlite3_finalize(st);
    return 0;
}

int tern_ledger_view_find(struct tern_ledger *l, const char *typed, char run_id[TERN_ULID_SIZE],
                          struct tern_err *err)
{
    char id[TERN_ULID_SIZE] = "";
    int n = 0;

    if (!typed || strcmp(typed, "latest") == 0) {
        if (find_by(l, "SELECT id FROM run ORDER BY id DESC LIMIT 1", NULL, &n, id, err) < 0)
            return -1;
    } else {
        if (find_by(l, "SELECT id FROM run WHERE name = ?1 ORDER BY id DESC LIMIT 1", typed, &n, id,
                    err) < 0)
            return -1;
        /* An id's beginning, which is what no run is called. */
        if (n == 0 && strlen(typed) >= 4 &&
            find_by(l,
                    "SELECT id FROM run WHERE substr(id, 1, length(?1)) = upper(?1) COLLATE BINARY",
                    typed, &n, id, err) < 0)
            return -1;
        if (n > 1)
            return tern_err_set(err, TERN_USAGE,
                                "%s: several runs begin with '%s'. Give more of the id.", l->what,
                                typed);
    }
    if (n)
        memcpy(run_id, id, TERN_ULID_SIZE);
    return n ? 0 : 1;
}

/* "; did you mean 'X'?" of the names of runs there; malloc'ed. */
static char *near_name(const char *home, const char *typed)
{
    struct tern_ledger *l = tern_ledger_open(home, NULL);
    struct tern_ledger_rows runs = {0};
    const char *near = NULL;
    const char **names = NULL;
    size_t n = 0;

    if (l && tern_ledger_runs(l, &runs, NULL) == 0)
        names = tern_alloc(runs.n + 1, sizeof *names, "names", NULL);
    for (size_t i = 0; names && i < runs.n; i++)
        if (runs.runs[i].name)
            names[n++] = runs.runs[i].name;
    if (names)
        near = tern_str_nearest(typed, names);
    char *hint = near ? tern_strf("; did you mean '%.100s'?", near) : tern_strdup(".");
    free(names);
    tern_ledger_rows_free(&runs);
    tern_ledger_close(l);
    return hint;
}

int tern_ledger_view_none(const char *ledger, const char *home, const char *typed,
                          struct tern_err *err)
{
    if (!typed || strcmp(typed, "latest") == 0)
        return tern_err_set(err, TERN_USAGE, "%s: holds no run yet", ledger);
    char *hint = near_name(home, typed);
    tern_err_set(err, TERN_USAGE, "%s: no run is called '%.200s'%s 'tern ledger list' shows them.",
                 ledger, typed, hint);
    free(hint);
    return -1;
}

int tern_ledger_find(struct tern_ledger *l, const char *typed, char run_id[TERN_ULID_SIZE],
                     struct tern_err *err)
{
    int rc = tern_ledger_view_find(l, typed, run_id, err);

    return rc == 1 ? tern_ledger_view_none(l->what, l->what, typed, err) : rc;
}
