/* A metric's effective points, by parts. */
#include "core/ledger/db.h"
#include "core/ledger/parts.h"
#include "core/ledger/view.h"

#include <stdlib.h>

/* Parts that are made from rows, of an attempt: where there are more, nothing is spared. */
enum { MADE_MAX = 64 };

struct tern_ledger_curve {
    struct tern_ledger *ledger;
    sqlite3_stmt *rows; /* of tern_ledger_parts_rows */
    int64_t metric_id;
    struct tern_ledger_part *parts; /* [n] */
    int64_t *attempts;              /* [n] */
    size_t n, room;
    double step[TERN_LEDGER_PART_POINTS], value[TERN_LEDGER_PART_POINTS];
};

/* Values done again behind a known resume hold step by step: such a metric has no parts. */
static const char sql_metric[] =
    "SELECT id FROM metric m WHERE name = ? AND NOT EXISTS"
    " (SELECT 1 FROM span n WHERE n.metric_id = m.id AND n.again_step NOT NULL)";
/* Attempts with the step up to which their values hold. */
static const char sql_attempts[] =
    "SELECT n.attempt, min(coalesce(n.to_step, n.last_step), coalesce(s.to_step, n.last_step),"
    " n.last_step) FROM span n CROSS JOIN attempt s ON s.attempt = n.attempt WHERE n.metric_id = ?"
    " ORDER BY n.attempt";

void tern_ledger_curve_free(struct tern_ledger_curve *c)
{
    if (!c)
        return;
    sqlite3_finalize(c->rows);
    free(c->parts);
    free(c->attempts);
    free(c);
}

const struct tern_ledger_part *tern_ledger_curve_parts(const struct tern_ledger_curve *c,
                                                       size_t *ret_n)
{
    *ret_n = c->n;
    return c->parts;
}

static int add_part(struct tern_ledger_curve *c, const struct tern_ledger_part *p, int64_t attempt)
{
    if (c->n == c->room) {
        const size_t room = c->room ? 2 * c->room : 1024;
        struct tern_ledger_part *parts = realloc(c->parts, room * sizeof *parts);
        c->parts = parts ? parts : c->parts;
        int64_t *attempts = realloc(c->attempts, room * sizeof *attempts);
        c->attempts = attempts ? attempts : c->attempts;
        if (!parts || !attempts)
            return -1;
        c->room = room;
    }
    c->attempts[c->n] = attempt;
    c->parts[c->n++] = *p;
    return 0;
}

static void bind_rows(struct tern_ledger_curve *c, int64_t attempt, int64_t behind, int64_t to)
{
    sqlite3_reset(c->rows);
    sqlite3_bind_int64(c->rows, 1, c->metric_id);
    sqlite3_bind_int64(c->rows, 2, attempt);
    sqlite3_bind_int64(c->rows, 3, behind);
    sqlite3_bind_int64(c->rows, 4, to);
}

/* The attempt's points behind one step, up to another, in parts that are made here. */
static int add_rows(struct tern_ledger_curve *c, int64_t attempt, int64_t behind, int64_t to)
{
    struct tern_ledger_part p = {0};
    const size_t before = c->n;
    int step = SQLITE_DONE, rc = 0;

    bind_rows(c, attempt, behind, to);
    while (rc == 0 && (step = sqlite3_step(c->rows)) == SQLITE_ROW) {
        tern_ledger_part_add(&p, sqlite3_column_int64(c->rows, 0),
                             tern_ledger_db_column_real(c->rows, 1));
        if (p.points == TERN_LEDGER_PART_POINTS) {
            rc = c->n - before < MADE_MAX ? add_part(c, &p, attempt) : -1;
            p = (struct tern_ledger_part){0};
        }
    }
    if (rc == 0 && step != SQLITE_DONE)
        rc = -1;
    return rc == 0 && p.points ? add_part(c, &p, attempt) : rc;
}

/* *ret_kept: parts that did not have to be made. */
static int add_attempt(struct tern_ledger_curve *c, int64_t attempt, int64_t to, size_t *ret_kept)
{
    size_t n, i = 0;
    struct tern_ledger_part *kept = tern_ledger_parts_get(c->ledger->db, c->metric_id, attempt, &n);
    int64_t behind = -1;
    int rc = 0;

    for (; i < n && kept[i].to <= to && rc == 0; i++) {
        rc = add_part(c, &kept[i], attempt);
        behind = kept[i].to;
    }
    free(kept);
    *ret_kept = i;
    return rc == 0 ? add_rows(c, attempt, behind, to) : rc;
}

/* 0, or 1 where the curve has no parts that spare anything, or cannot be read. */
static int read_curve(struct tern_ledger_curve *c, const char *metric)
{
    sqlite3 *db = c->ledger->db;
    sqlite3_stmt *find = tern_ledger_db_prepare(db, sql_metric, NULL), *attempts = NULL;
    size_t kept = 0, more;
    int rc = 1, step = SQLITE_DONE;

    c->rows = tern_ledger_db_prepare(db, tern_ledger_parts_rows, NULL);
    attempts = tern_ledger_db_prepare(db, sql_attempts, NULL);
    if (!find || !c->rows || !attempts)
        goto out;
    sqlite3_bind_text(find, 1, metric, -1, SQLITE_STATIC);
    if (sqlite3_step(find) != SQLITE_ROW)
        goto out;
    c->metric_id = sqlite3_column_int64(find, 0);
    sqlite3_bind_int64(attempts, 1, c->metric_id);
    while ((step = sqlite3_step(attempts)) == SQLITE_ROW) {
        if (add_attempt(c, sqlite3_column_int64(attempts, 0), sqlite3_column_int64(attempts, 1),
                        &more) < 0)
            goto out;
        kept += more;
    }
    rc = step == SQLITE_DONE && kept > 0 ? 0 : 1;
out:
    sqlite3_finalize(find);
    sqlite3_finalize(attempts);
    return rc;
}

int tern_ledger_curve_open(struct tern_ledger *l, const char *metric,
                           struct tern_ledger_curve **ret_curve)
{
    struct tern_ledger_curve *c = l->catalogue ? NULL : tern_alloc(1, sizeof *c, "a curve", NULL);

    if (!c)
        return 1;
    c->ledger = l;
    if (read_curve(c, metric) != 0) {
        tern_ledger_curve_free(c);
        return 1;
    }
    *ret_curve = c;
    return 0;
}

int tern_ledger_curve_read(struct tern_ledger_curve *c, size_t i, const double **ret_step,
                           const double **ret_value, size_t *ret_n, struct tern_err *err)
{
    const struct tern_ledger_part *p = &c->parts[i];
    size_t n = 0;
    int step = SQLITE_DONE;

    bind_rows(c, c->attempts[i], p->from - 1, p->to);
    while (n < p->points && (step = sqlite3_step(c->rows)) == SQLITE_ROW) {
        c->step[n] = tern_ledger_view_step(sqlite3_column_int64(c->rows, 0));
        c->value[n++] = tern_ledger_db_column_real(c->rows, 1);
    }
    sqlite3_reset(c->rows);
    if (step != SQLITE_ROW && step != SQLITE_DONE)
        return tern_ledger_db_fail(c->ledger->db, err, c->ledger->what);
    if (n != p->points)
        return tern_err_set(err, TERN_FAILED, "%s: parts of a curve are not its rows",
                            c->ledger->what);
    *ret_step = c->step;
    *ret_value = c->value;
    *ret_n = n;
    return 0;
}
