/* tern ledger sql: queries in SQL. */
#include "cmd/ledger/show.h"

#include "core/base/log.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int64_t max_rows;
static double seconds;

/* JSON has no infinity: null, and which it was in a key beside it. */
static void set_real(json_t *row, const char *name, double v)
{
    char *class = tern_strf("%s_class", name);

    if (isfinite(v))
        json_object_set_new(row, name, json_real(v));
    else
        tern_json_set_real(row, name, class, v);
    free(class);
}

/* In JSON a row is an object: the later of two columns of one name would hide the other. */
static int check_names(const struct tern_ledger_table *t, struct tern_err *err)
{
    for (size_t j = 0; j < t->n_columns; j++)
        for (size_t k = 0; k < j; k++)
            if (strcmp(t->names[j], t->names[k]) == 0)
                return tern_err_set(err, TERN_USAGE,
                                    "columns %zu and %zu are both called '%.100s': for --json give "
                                    "one another name with AS",
                                    k + 1, j + 1, t->names[j]);
    return 0;
}

static int print_json(const struct tern_ledger_table *t, struct tern_err *err)
{
    if (check_names(t, err) < 0)
        return -1;
    json_t *rows = json_array();

    for (size_t i = 0; i < t->n_rows; i++) {
        json_t *row = json_object();
        for (size_t j = 0; j < t->n_columns; j++) {
            const struct tern_ledger_cell *c = &t->cells[i * t->n_columns + j];
            if (c->kind == TERN_LEDGER_REAL)
                set_real(row, t->names[j], c->real);
            else
                json_object_set_new(row, t->names[j],
                                    c->kind == TERN_LEDGER_INT ? json_integer(c->integer)
                                                               : show_json_text(c->text));
        }
        json_array_append_new(rows, row);
    }
    return show_json(rows, err);
}

static int print_table(const struct tern_ledger_table *t, struct tern_err *err)
{
    struct tern_report_field *fields = tern_alloc(t->n_columns + 1, sizeof *fields, "a table", err);
    struct tern_report_column columns[TERN_REPORT_MAX_COLUMNS];
    const char **cells = tern_alloc(t->n_rows * t->n_columns + 1, sizeof *cells, "a table", err);
    struct tern_report_style style = {.parsable = show.parsable, .no_header = show.no_header};
    char *exact = tern_alloc(show.parsable ? t->n_rows * t->n_columns + 1 : 1, 32, "a table", err);
    struct tern_buf b = {0};
    int rc = -1;

    if (t->n_columns > TERN_REPORT_MAX_COLUMNS) {
        tern_err_set(err, TERN_USAGE, "%zu columns are more than the %d a table shows",
                     t->n_columns, TERN_REPORT_MAX_COLUMNS);
        goto out;
    }
    if (!fields || !cells || !exact)
        goto out;
    for (size_t j = 0; j < t->n_columns; j++) {
        bool right = true;
        for (size_t i = 0; i < t->n_rows; i++) {
            const struct tern_ledger_cell *c = &t->cells[i * t->n_columns + j];
            cells[i * t->n_columns + j] = c->text;
            if (show.parsable && c->kind == TERN_LEDGER_REAL) /* SQLite writes 15 digits */
                cells[i * t->n_columns + j] =
                    tern_str_exact(exact + 32 * (i * t->n_columns + j), 32, c->real);
            right = right && c->kind != TERN_LEDGER_TEXT;
        }
        fields[j] = (struct tern_report_field){t->names[j], "", right};
        columns[j] = (struct tern_report_column){.field = j, .right = right};
    }
    const struct tern_report_table table = {fields, t->n_columns, columns, t->n_columns,
                                            cells,  t->n_rows,    style};
    tern_report_table(&b, &table);
    rc = show_buf(&b, err);
out:
    free(fields);
    free(cells);
    free(exact);
    return rc;
}

static struct tern_ledger *open_catalogue(struct tern_err *err)
{
    struct tern_ledger_rows homes = {0};

    if (tern_ledger_homes(show.ledger, show.all, &homes, err) < 0)
        return NULL;
    struct tern_ledger *l = tern_ledger_open_homes(&homes, err);
    tern_ledger_rows_free(&homes);
    return l;
}

static int run(int n_args, char **args, struct tern_err *err)
{
    struct tern_ledger_table t = {0};

    (void)n_args;
    if (show_need_ledger(err) < 0)
        return -1;
    struct tern_ledger *l = show.run ? show_open_run(show.run, err) : open_catalogue(err);
    int rc =
        l ? tern_ledger_sql(l, args[0], max_rows ? (size_t)max_rows : SIZE_MAX, seconds, &t, err)
          : -1;
    if (rc == 0) {
        rc = show.json ? print_json(&t, err) : print_table(&t, err);
        if (t.cut)
            tern_warn("cut after %zu rows; --max-rows shows more", t.n_rows);
    }
    tern_ledger_table_free(&t);
    tern_ledger_close(l);
    return rc;
}

static const struct tern_opt opts[] = {
    SHOW_OPT_LEDGER,
    SHOW_OPT_ALL,
    {"run", 'r', TERN_OPT_TEXT, "RUN", .to.text = &show.run,
     .help = "ask that run's database (tables run, attempt, checkpoint, eval, event, health, "
             "param; views "
             "step, step_all, eval_effective) instead of the catalogue (run, attempt, checkpoint)"},
    {"max-rows", 0, TERN_OPT_INT, "N", "10000", .to.integer = &max_rows,
     .help = "stop after N rows, 0 for no limit"},
    {"seconds", 0, TERN_OPT_REAL, "SECONDS", "30", .to.real = &seconds,
     .help = "stop after that long"},
    SHOW_OPT_STYLE,
    {0},
};

const struct tern_cmd ledger_sql = {
    .name = "sql",
    .args = "QUERY",
    .summary = "query the ledger in SQL, read-only",
    .about =
        "The answer includes what is not folded yet. Plain `sqlite3 LEDGER/ledger.db` and "
        "`sqlite3 LEDGER/runs/RUN/run.db` work too, as of the last fold; where a file system "
        "refuses locks, as 'file:ledger.db?immutable=1'. NaN is NULL with class 1; the "
        "infinities are values with classes 2 and 3. Of a ledger that users share, your runs are "
        "queried, with -a those of all users; plain `sqlite3` finds them in LEDGER/u/UID.",
    .examples =
        "  tern ledger sql 'SELECT name, state, last_step FROM run'\n"
        "  tern ledger sql -r latest \"SELECT step, value FROM step WHERE name = 'loss'\"\n",
    .opts = opts,
    .args_min = 1,
    .args_max = 1,
    .run = run,
};
