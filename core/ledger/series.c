/* The points of one metric. */
#include "core/ledger/db.h"
#include "core/ledger/schema.h"
#include "core/ledger/view.h"

#include <math.h>
#include <stdlib.h>

int tern_ledger_db_class(double v)
{
    return isfinite(v) ? 0 : isnan(v) ? 1 : v > 0 ? 2 : 3;
}

double tern_ledger_db_column_real(sqlite3_stmt *st, int i)
{
    return sqlite3_column_type(st, i) == SQLITE_NULL ? NAN : sqlite3_column_double(st, i);
}

static int series_alloc(struct tern_ledger_series *s, size_t n, struct tern_err *err)
{
    s->step = tern_alloc(n + 1, sizeof *s->step, "a series", err);
    s->value = tern_alloc(n + 1, sizeof *s->value, "a series", err);
    s->attempt = tern_alloc(n + 1, sizeof *s->attempt, "a series", err);
    s->wall_ns = tern_alloc(n + 1, sizeof *s->wall_ns, "a series", err);
    return s->step && s->value && s->attempt && s->wall_ns ? 0 : -1;
}

void tern_ledger_series_free(struct tern_ledger_series *s)
{
    free(s->step);
    free(s->value);
    free(s->attempt);
    free(s->wall_ns);
    *s = (struct tern_ledger_series){0};
}

double tern_ledger_view_step(int64_t step)
{
    return fmin((double)step, 0x1p63 - 0x1p10);
}

/* Attempts follow one another in step, but where a later one did steps again. */
#define SERIES                                                                                     \
    "SELECT p.step, p.value, p.attempt, p.wall_ns FROM span n CROSS JOIN attempt s ON"             \
    " s.attempt = n.attempt CROSS JOIN point p ON p.metric_id = n.metric_id AND p.attempt = "      \
    "n.attempt"                                                                                    \
    " WHERE n.metric_id = ?1"
static const char sql_again[] =
    "SELECT count(*) FROM span WHERE metric_id = ? AND again_step NOT NULL";

int tern_ledger_series(struct tern_ledger *l, const char *metric, bool all,
                       struct tern_ledger_series *out, struct tern_err *err)
{
    struct tern_ledger_series s = {0};
    int rc = -1, step = SQLITE_DONE;
    int64_t id = -1;

    if (tern_ledger_view_need_run(l, err) < 0)
        return -1;
    sqlite3_stmt *find = tern_ledger_db_prepare(l->db, "SELECT id FROM metric WHERE name = ?", err);
    sqlite3_stmt *count =
        tern_ledger_db_prepare(l->db, "SELECT count(*) FROM point WHERE metric_id = ?", err);
    sqlite3_stmt *again = tern_ledger_db_prepare(l->db, sql_again, err), *st = NULL;
    if (!find || !count || !again)
        goto out;
    sqlite3_bind_text(find, 1, metric, -1, SQLITE_STATIC);
    if (sqlite3_step(find) != SQLITE_ROW) {
        tern_err_set(err, TERN_USAGE, "%s: no metric is called '%s'", l->what, metric);
        goto out;
    }
    id = sqlite3_column_int64(find, 0);
    sqlite3_bind_int64(count, 1, id);
    if (sqlite3_step(count) != SQLITE_ROW) {
        tern_ledger_db_fail(l->db, err, l->what);
        goto out;
    }
    size_t n = (size_t)sqlite3_column_int64(count, 0);
    if (series_alloc(&s, n, err) < 0)
        goto out;
    sqlite3_bind_int64(again, 1, id);
    bool sort = sqlite3_step(again) == SQLITE_ROW && sqlite3_column_int64(again, 0) > 0;
    st = tern_ledger_db_prepare(l->db,
                                all    ? SERIES " ORDER BY n.attempt, p.step"
                                : sort ? SERIES " AND " TERN_SCHEMA_EFFECTIVE " ORDER BY p.step"
                                       : SERIES " AND " TERN_SCHEMA_EFFECTIVE
                                                " ORDER BY n.attempt, p.step",
                                err);
    if (!st)
        goto out;
    sqlite3_bind_int64(st, 1, id);
    while (s.n < n && (step = sqlite3_step(st)) == SQLITE_ROW) {
        s.step[s.n] = tern_ledger_view_step(sqlite3_column_int64(st, 0));
        s.value[s.n] = tern_ledger_db_column_real(st, 1);
        s.attempt[s.n] = (uint32_t)sqlite3_column_int64(st, 2);
        s.wall_ns[s.n++] = sqlite3_column_int64(st, 3);
    }
    if (step != SQLITE_DONE && step != SQLITE_ROW) {
        tern_ledger_db_fail(l->db, err, l->what);
        goto out;
    }
    *out = s;
    rc = 0;
out:
    if (rc < 0)
        tern_ledger_series_free(&s);
    sqlite3_finalize(find);
    sqlite3_finalize(count);
    sqlite3_finalize(again);
    sqlite3_finalize(st);
    if (rc < 0 && tern_ledger_view_heal(l))
        return tern_ledger_series(l, metric, all, out, err);
    return rc;
}

/* A statement about the points of `which`, whose first three parameters are bound. */
static sqlite3_stmt *points_of(struct tern_ledger *l, const struct tern_ledger_points *which,
                               const char *sql, struct tern_err *err)
{
    sqlite3_stmt *st =
        tern_ledger_view_need_run(l, err) < 0 ? NULL : tern_ledger_db_prepare(l->db, sql, err);

    if (!st)
        return NULL;
    sqlite3_bind_text(st, 1, which->metric, -1, SQLITE_STATIC);
    sqlite3_bind_int64(st, 2, which->attempt);
    sqlite3_bind_int64(st, 3, which->behind);
    return st;
}

#define POINTS                                                                                     \
    " FROM point WHERE metric_id = (SELECT id FROM metric WHERE name = ?1) AND attempt = ?2"

int tern_ledger_points(struct tern_ledger *l, const struct tern_ledger_points *which,
                       tern_ledger_take_point *take, void *self, struct tern_err *err)
{
    int rc = 0, step = SQLITE_DONE;
    sqlite3_stmt *st = points_of(
        l, which,
        which->later_ns == INT64_MAX
            ? "SELECT step, value, wall_ns" POINTS " AND step > ?3 ORDER BY step"
            : "SELECT step, value, wall_ns" POINTS " AND (step > ?3 OR wall_ns > ?4) ORDER BY step",
        err);

    if (!st)
        return -1;
    if (which->later_ns != INT64_MAX)
        sqlite3_bind_int64(st, 4, which->later_ns);
    while (rc == 0 && (step = sqlite3_step(st)) == SQLITE_ROW) {
        struct tern_ledger_point p = {.step = sqlite3_column_int64(st, 0),
                                      .value = tern_ledger_db_column_real(st, 1),
                                      .wall_ns = sqlite3_column_int64(st, 2)};
        rc = take(self, &p, err);
    }
    if (rc == 0 && step != SQLITE_DONE)
        rc = tern_ledger_db_fail(l->db, err, l->what);
    sqlite3_finalize(st);
    return rc;
}

int tern_ledger_points_count(struct tern_ledger *l, const struct tern_ledger_points *which,
                             uint64_t *ret_n, struct tern_err *err)
{
    sqlite3_stmt *st = points_of(l, which, "SELECT count(*)" POINTS " AND step <= ?3", err);
    int rc = !st                              ? -1
             : sqlite3_step(st) == SQLITE_ROW ? 0
                                              : tern_ledger_db_fail(l->db, err, l->what);

    if (rc == 0)
        *ret_n = (uint64_t)sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    return rc;
}
