/* SQL for people: one statement, only reading, bounded.
 *
 * SQLite looks at the clock between its steps alone, and one function may work for hours within one
 * (instr() of two megabytes in four; LIKE with many %).  So the statement runs in a child, which is
 * ended when its time is up, and sends the table when it is done:
 *
 *     struct head, the error's text or the columns' names, then the cells: struct sent, text */
#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/hash.h"
#include "core/ledger/db.h"
#include "core/ledger/texts.h"
#include "core/ledger/view.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    MAX_TEXT = 64 << 20,
    MAX_CELL = 4 << 20,  /* a record has 2 MiB */
    MAX_PATTERN = 200,   /* of LIKE and GLOB, whose time grows with its % without bound */
    MAX_COLUMNS = 500,   /* of one result */
    MAX_HEAP = 512,      /* MiB beyond the ledger's own, where SQLite has such a limit (3.31) */
    CHECK_EVERY = 10000, /* virtual machine steps: well under a millisecond */
    MAX_SECONDS = 1000000000,
    GRACE_MS = 500, /* behind the deadline, for SQLite to stop by itself */
};

static int only_reads(void *arg, int action, const char *a, const char *b, const char *c,
                      const char *d)
{
    (void)arg, (void)b, (void)c, (void)d;
    switch (action) {
    case SQLITE_SELECT:
    case SQLITE_READ:
    case SQLITE_RECURSIVE:
        return SQLITE_OK;
    case SQLITE_FUNCTION:
        return b && sqlite3_stricmp(b, "load_extension") == 0 ? SQLITE_DENY : SQLITE_OK;
    case SQLITE_PRAGMA: /* those that describe tables, and set nothing */
        return a && (sqlite3_strnicmp(a, "table_", 6) == 0 ||
                     sqlite3_strnicmp(a, "index_", 6) == 0 ||
                     ((sqlite3_stricmp(a, "user_version") == 0 ||
                       sqlite3_stricmp(a, "application_id") == 0) &&
                      !b))
                   ? SQLITE_OK
                   : SQLITE_DENY;
    default:
        return SQLITE_DENY;
    }
}

static int too_late(void *deadline)
{
    return tern_clock_boot_ns() > *(const int64_t *)deadline;
}

/* ---------------------------------------------------------------- in the child */

/* A blob as hex, any other value as SQLite prints it; 0, or 1 when it has no room. */
static int take_cell(sqlite3_stmt *st, int i, struct tern_ledger_table *t, size_t *bytes)
{
    struct tern_ledger_cell *c = &t->cells[t->n_rows * t->n_columns + (size_t)i];
    const int type = sqlite3_column_type(st, i);
    size_t n = (size_t)sqlite3_column_bytes(st, i);

    *c = (struct tern_ledger_cell){.kind = TERN_LEDGER_NULL};
    if (type == SQLITE_NULL)
        return 0;
    *bytes += type == SQLITE_BLOB ? 2 * n : n;
    if (*bytes > MAX_TEXT)
        return 1;
    if (type == SQLITE_BLOB) {
        const uint8_t *p = sqlite3_column_blob(st, i);
        char *hex = malloc(2 * n + 1);
        if (!hex)
            abort();
        tern_hex(hex, p ? p : (const uint8_t *)"", n);
        c->kind = TERN_LEDGER_TEXT;
        c->text = tern_ledger_text(&t->texts, hex);
        free(hex);
        return 0;
    }
    c->kind = type == SQLITE_INTEGER ? TERN_LEDGER_INT
              : type == SQLITE_FLOAT ? TERN_LEDGER_REAL
                                     : TERN_LEDGER_TEXT;
    c->integer = sqlite3_column_int64(st, i);
    c->real = sqlite3_column_double(st, i);
    const char *text = (const char *)sqlite3_column_text(st, i);
    c->text = tern_ledger_text(&t->texts, text ? text : "");
    return 0;
}

/* 1: the row has no room. */
static int take_row(sqlite3_stmt *st, struct tern_ledger_table *t, size_t *bytes)
{
    for (size_t i = 0; i < t->n_columns; i++)
        if (take_cell(st, (int)i, t, bytes) > 0)
            return 1;
    t->n_rows++;
    return 0;
}

static int fetch(sqlite3_stmt *st, size_t max_rows, struct tern_ledger_table *t,
                 struct tern_err *err)
{
    size_t room = 0, bytes = 0;
    int rc;

    t->n_columns = (size_t)sqlite3_column_count(st);
    t->names = tern_alloc(t->n_columns + 1, sizeof *t->names, "a table", err);
    if (!t->names)
        return -1;
    for (size_t i = 0; i < t->n_columns; i++)
        t->names[i] = tern_ledger_text(&t->texts, sqlite3_column_name(st, (int)i));
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        if (t->n_rows == max_rows) {
            t->cut = true;
            return 0;
        }
        if (t->n_rows == room) {
            room = room ? 2 * room : 64;
            void *more = realloc(t->cells, room * t->n_columns * sizeof *t->cells);
            if (!more)
                return tern_err_set(err, TERN_TEMPFAIL, "no memory for %zu rows", room);
            t->cells = more;
        }
        if (take_row(st, t, &bytes) > 0) {
            t->cut = t->n_rows > 0;
            return t->cut ? 0
                          : tern_err_set(err, TERN_FAILED,
                                         "a row has more than the %d MiB of text that are shown",
                                         MAX_TEXT >> 20);
        }
    }
    return rc == SQLITE_DONE ? 0 : -2;
}

static int too_long(double seconds, struct tern_err *err)
{
    return tern_err_set(err, TERN_FAILED, "stopped after %g s. Ask for less or give it more time.",
                        seconds);
}

static void set_limits(sqlite3 *db, int64_t *deadline)
{
    char heap[80];

    snprintf(heap, sizeof heap, "PRAGMA hard_heap_limit = %lld",
             (long long)(sqlite3_memory_used() + ((int64_t)MAX_HEAP << 20)));
    sqlite3_exec(db, heap, NULL, NULL, NULL);
    sqlite3_limit(db, SQLITE_LIMIT_LENGTH, MAX_CELL);
    sqlite3_limit(db, SQLITE_LIMIT_LIKE_PATTERN_LENGTH, MAX_PATTERN);
    sqlite3_limit(db, SQLITE_LIMIT_COLUMN, MAX_COLUMNS);
    sqlite3_set_authorizer(db, only_reads, NULL);
    sqlite3_progress_handler(db, CHECK_EVERY, too_late, deadline);
}

static int query(sqlite3 *db, const char *sql, size_t max_rows, double seconds, int64_t *deadline,
                 struct tern_ledger_table *t, struct tern_err *err)
{
    sqlite3_stmt *st = NULL;
    const char *rest = "";

    set_limits(db, deadline);
    if (sqlite3_prepare_v2(db, sql, -1, &st, &rest) != SQLITE_OK)
        return sqlite3_errcode(db) == SQLITE_AUTH
                   ? tern_err_set(err, TERN_USAGE, "the ledger can only be read: %s",
                                  sqlite3_errmsg(db))
                   : tern_err_set(err, TERN_USAGE, "%s", sqlite3_errmsg(db));
    while (isspace((unsigned char)*rest) || *rest == ';')
        rest++;
    if (!st || *rest)
        return tern_err_set(err, TERN_USAGE,
                            !st ? "the statement is empty" : "one statement at a time, please");
    int rc = fetch(st, max_rows, t, err);
    if (rc == -2 && sqlite3_errcode(db) == SQLITE_INTERRUPT)
        return too_long(seconds, err);
    if (rc == -2 && sqlite3_errcode(db) == SQLITE_NOMEM)
        return tern_err_set(err, TERN_FAILED, "needs more than %d MiB of memory. Ask for less.",
                            (int)MAX_HEAP);
    return rc == -2 ? tern_err_set(err, TERN_USAGE, "%s", sqlite3_errmsg(db)) : rc;
}

/* ---------------------------------------------------------------- between the two */

struct head {
    int32_t rc, code;
    bool damaged, cut;
    uint64_t n_rows, n_columns, text; /* text: bytes of the error's */
};

struct sent {
    int64_t integer;
    double real;
    uint32_t kind, len;
};

static void put_table(struct tern_buf *b, const struct tern_ledger_table *t)
{
    for (size_t i = 0; i < t->n_columns; i++) {
        const struct sent s = {.len = (uint32_t)strlen(t->names[i])};
        tern_buf_add(b, &s, sizeof s);
        tern_buf_add(b, t->names[i], s.len);
    }
    for (size_t i = 0; i < t->n_rows * t->n_columns; i++) {
        const struct tern_ledger_cell *c = &t->cells[i];
        const struct sent s = {.integer = c->integer,
                               .real = c->real,
                               .kind = c->kind,
                               .len = c->text ? (uint32_t)strlen(c->text) : 0};
        tern_buf_add(b, &s, sizeof s);
        tern_buf_add(b, c->text, s.len);
    }
}

static _Noreturn void child(struct tern_ledger *l, const char *sql, size_t max_rows, double seconds,
                            int64_t *deadline, int to)
{
    struct tern_ledger_table t = {0};
    struct tern_err err = {0};
    struct tern_buf b = {.max = SIZE_MAX};

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_IGN);
    struct head h = {.rc = query(l->db, sql, max_rows, seconds, deadline, &t, &err)};
    h.damaged = h.rc < 0 && tern_ledger_db_damaged(l->db);
    h.code = (int32_t)err.code;
    h.cut = t.cut;
    h.text = h.rc < 0 ? strlen(err.text) : 0;
    if (h.rc == 0) {
        h.n_rows = t.n_rows;
        h.n_columns = t.n_columns;
        put_table(&b, &t);
    }
    if (b.failed)
        _exit(1);
    int rc = tern_fs_write(to, &h, sizeof h, "the answer", NULL);
    if (rc == 0)
        rc = tern_fs_write(to, err.text, h.text, "the answer", NULL);
    if (rc == 0)
        rc = tern_fs_write(to, b.data, b.len, "the answer", NULL);
    _exit(rc < 0);
}

/* Everything the child says until it ends; 1 when its time is up. */
static int listen_to(int from, int64_t deadline, struct tern_buf *all)
{
    static char piece[1 << 16];

    for (;;) {
        int64_t left = (deadline - tern_clock_boot_ns()) / 1000000 + GRACE_MS;
        struct pollfd p = {.fd = from, .events = POLLIN};
        int n = poll(&p, 1, left > 0 ? (int)(left < 1000000 ? left : 1000000) : 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0 && left > 0)
            continue;
        if (n <= 0)
            return 1;
        ssize_t got = read(from, piece, sizeof piece);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return 0;
        tern_buf_add(all, piece, (size_t)got);
    }
}

static const char *get(const struct tern_buf *b, size_t *at, void *to, size_t len)
{
    if (b->len - *at < len)
        return NULL;
    const char *p = b->data + *at;
    if (to)
        memcpy(to, p, len);
    *at += len;
    return p;
}

static const char *get_text(const struct tern_buf *b, size_t *at, size_t len, void **texts)
{
    const char *p = get(b, at, NULL, len);
    char *s = p ? tern_strf("%.*s", (int)len, p) : NULL;
    const char *kept = tern_ledger_text(texts, s);

    free(s);
    return kept;
}

static int get_table(const struct tern_buf *b, size_t at, const struct head *h,
                     struct tern_ledger_table *t, struct tern_err *err)
{
    struct sent s;

    t->cut = h->cut;
    t->n_columns = h->n_columns;
    t->names = tern_alloc(h->n_columns + 1, sizeof *t->names, "a table", err);
    t->cells = tern_alloc(h->n_rows * h->n_columns + 1, sizeof *t->cells, "a table", err);
    if (!t->names || !t->cells)
        return -1;
    for (size_t i = 0; i < h->n_columns; i++)
        if (!get(b, &at, &s, sizeof s) || !(t->names[i] = get_text(b, &at, s.len, &t->texts)))
            return tern_err_set(err, TERN_FAILED, "the answer is cut off");
    for (size_t i = 0; i < h->n_rows * h->n_columns; i++) {
        if (!get(b, &at, &s, sizeof s))
            return tern_err_set(err, TERN_FAILED, "the answer is cut off");
        struct tern_ledger_cell *c = &t->cells[i];
        *c = (struct tern_ledger_cell){(enum tern_ledger_cell_kind)s.kind, s.integer, s.real, NULL};
        if (c->kind != TERN_LEDGER_NULL && !(c->text = get_text(b, &at, s.len, &t->texts)))
            return tern_err_set(err, TERN_FAILED, "the answer is cut off");
    }
    t->n_rows = h->n_rows;
    return 0;
}

/* ---------------------------------------------------------------- in the caller */

static int ask(struct tern_ledger *l, const char *sql, size_t max_rows, double seconds,
               struct tern_buf *all, struct tern_err *err)
{
    int64_t deadline = tern_clock_boot_ns() + (int64_t)(fmin(seconds, MAX_SECONDS) * 1e9);
    int pipes[2], status = 0;

    if (pipe(pipes) < 0)
        return tern_err_sys(err, "cannot ask the ledger");
    pid_t pid = fork();
    if (pid == 0) {
        close(pipes[0]);
        child(l, sql, max_rows, seconds, &deadline, pipes[1]);
    }
    close(pipes[1]);
    int late = pid < 0 ? 0 : listen_to(pipes[0], deadline, all);
    close(pipes[0]);
    if (pid < 0)
        return tern_err_sys(err, "cannot ask the ledger");
    kill(pid, SIGKILL); /* it has sent all, and ends */
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (late)
        return too_long(seconds, err);
    return all->len < sizeof(struct head)
               ? tern_err_set(err, TERN_FAILED, "ended without an answer; was memory short?")
               : tern_buf_check(all, "the answer", err);
}

int tern_ledger_sql(struct tern_ledger *l, const char *sql, size_t max_rows, double seconds,
                    struct tern_ledger_table *out, struct tern_err *err)
{
    struct tern_ledger_table t = {0};
    struct tern_buf all = {.max = SIZE_MAX};
    struct head h = {0};
    size_t at = 0;
    int rc = ask(l, sql, max_rows, seconds, &all, err);

    if (rc == 0) {
        get(&all, &at, &h, sizeof h);
        const char *text = get(&all, &at, NULL, h.text);
        rc = h.rc < 0 ? tern_err_set(err, (enum tern_code)h.code, "%.*s", text ? (int)h.text : 0,
                                     text ? text : "")
                      : get_table(&all, at, &h, &t, err);
    }
    tern_buf_free(&all);
    if (rc < 0) {
        tern_ledger_table_free(&t);
        return h.damaged && tern_ledger_view_mend(l, err ? err->text : "is damaged")
                   ? tern_ledger_sql(l, sql, max_rows, seconds, out, err)
                   : -1;
    }
    *out = t;
    return 0;
}

void tern_ledger_table_free(struct tern_ledger_table *t)
{
    free(t->names);
    free(t->cells);
    tern_ledger_texts_free(&t->texts);
    *t = (struct tern_ledger_table){0};
}
