/* SQL for people: one statement, only reading, bounded. */
#include "core/base/clock.h"
#include "core/ledger/db.h"
#include "core/ledger/texts.h"
#include "core/ledger/view.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_TEXT = 64 << 20,
    MAX_CELL = 4 << 20, /* a record has 2 MiB */
    MAX_PATTERN = 200,
    CHECK_EVERY = 10000, /* virtual machine steps: well under a millisecond */
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
    case SQLITE_PRAGMA: /* what tells about tables, and sets nothing */
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

static void take_cell(sqlite3_stmt *st, int i, struct tern_ledger_table *t, size_t *bytes)
{
    struct tern_ledger_cell *c = &t->cells[t->n_rows * t->n_columns + (size_t)i];

    *c = (struct tern_ledger_cell){.kind = TERN_LEDGER_NULL};
    switch (sqlite3_column_type(st, i)) {
    case SQLITE_NULL:
        return;
    case SQLITE_INTEGER:
        c->kind = TERN_LEDGER_INT;
        c->integer = sqlite3_column_int64(st, i);
        break;
    case SQLITE_FLOAT:
        c->kind = TERN_LEDGER_REAL;
        c->real = sqlite3_column_double(st, i);
        break;
    default:
        c->kind = TERN_LEDGER_TEXT;
    }
    if (sqlite3_column_type(st, i) == SQLITE_BLOB) {
        const uint8_t *p = sqlite3_column_blob(st, i);
        size_t n = (size_t)sqlite3_column_bytes(st, i);
        struct tern_buf b = {0};
        for (size_t k = 0; k < n; k++)
            tern_buf_printf(&b, "%02x", p[k]);
        c->text = tern_ledger_text(&t->texts, b.data ? b.data : "");
        tern_buf_free(&b);
    } else {
        c->text = tern_ledger_text(&t->texts, (const char *)sqlite3_column_text(st, i));
    }
    *bytes += strlen(c->text);
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
        if (t->n_rows == max_rows || bytes > MAX_TEXT) {
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
        for (size_t i = 0; i < t->n_columns; i++)
            take_cell(st, (int)i, t, &bytes);
        t->n_rows++;
    }
    return rc == SQLITE_DONE ? 0 : -2;
}

int tern_ledger_sql(struct tern_ledger *l, const char *sql, size_t max_rows, double seconds,
                    struct tern_ledger_table *out, struct tern_err *err)
{
    struct tern_ledger_table t = {0};
    int64_t deadline = tern_clock_boot_ns() + (int64_t)(seconds * 1e9);
    sqlite3_stmt *st = NULL;
    const char *rest = "";
    bool damaged;

    /* Within one function SQLite looks at no clock: what it works on is bounded. */
    int length = sqlite3_limit(l->db, SQLITE_LIMIT_LENGTH, MAX_CELL);
    int pattern = sqlite3_limit(l->db, SQLITE_LIMIT_LIKE_PATTERN_LENGTH, MAX_PATTERN);
    sqlite3_set_authorizer(l->db, only_reads, NULL);
    sqlite3_progress_handler(l->db, CHECK_EVERY, too_late, &deadline);
    int rc = -1;
    if (sqlite3_prepare_v2(l->db, sql, -1, &st, &rest) != SQLITE_OK) {
        if (sqlite3_errcode(l->db) == SQLITE_AUTH)
            tern_err_set(err, TERN_USAGE, "the ledger can only be read: %s", sqlite3_errmsg(l->db));
        else
            tern_err_set(err, TERN_USAGE, "%s", sqlite3_errmsg(l->db));
        goto out;
    }
    while (isspace((unsigned char)*rest) || *rest == ';')
        rest++;
    if (!st || *rest) {
        tern_err_set(err, TERN_USAGE,
                     !st ? "the statement is empty" : "one statement at a time, please");
        goto out;
    }
    rc = fetch(st, max_rows, &t, err);
    if (rc == -2 && sqlite3_errcode(l->db) == SQLITE_INTERRUPT)
        tern_err_set(err, TERN_FAILED, "stopped after %g s. Ask for less or give it more time.",
                     seconds);
    else if (rc == -2)
        tern_err_set(err, TERN_USAGE, "%s", sqlite3_errmsg(l->db));
out:
    damaged = rc < 0 && tern_db_damaged(l->db);
    sqlite3_finalize(st);
    sqlite3_progress_handler(l->db, 0, NULL, NULL);
    sqlite3_set_authorizer(l->db, NULL, NULL);
    sqlite3_limit(l->db, SQLITE_LIMIT_LENGTH, length);
    sqlite3_limit(l->db, SQLITE_LIMIT_LIKE_PATTERN_LENGTH, pattern);
    if (rc < 0) {
        tern_ledger_table_free(&t);
        return damaged && tern_view_heal(l) ? tern_ledger_sql(l, sql, max_rows, seconds, out, err)
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
