/* The runs of a page of tern ledger report and serve. */
#include "cmd/ledger/report.h"

#include "core/base/clock.h"
#include "core/base/version.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int report_runs_open(struct report_runs *r, int n_args, char **args, const char *baseline,
                     double usd_hour, struct tern_err *err)
{
    *r = (struct report_runs){.n = (size_t)(n_args ? n_args : 1) + (baseline ? 1 : 0),
                              .n_args = n_args,
                              .args = args,
                              .baseline = baseline,
                              .usd_hour = usd_hour};
    if (r->n > COMPARE_RUNS_MAX)
        return tern_err_set(err, TERN_USAGE, "more than %d runs", COMPARE_RUNS_MAX);
    r->recipes.runs = tern_alloc(r->n, sizeof *r->recipes.runs, "runs", err);
    r->recipes.n = r->recipes.runs ? r->n : 0;
    return r->recipes.runs ? 0 : -1;
}

void report_runs_close(struct report_runs *r)
{
    for (size_t i = 0; i < r->recipes.n; i++)
        show_recipe_free(&r->recipes.runs[i].facts.recipe);
    free(r->recipes.runs);
    *r = (struct report_runs){0};
}

const char *report_runs_typed(const struct report_runs *r, size_t i)
{
    return i < (size_t)r->n_args ? r->args[i] : i == 0 && !r->n_args ? NULL : r->baseline;
}

int report_runs_read(struct report_runs *r, size_t i, json_t **ret_run, struct tern_err *err)
{
    struct compare_run *kept = &r->recipes.runs[i];
    struct show_facts f;
    json_t *j = NULL;

    if (show_facts_read(report_runs_typed(r, i), &f, err) < 0)
        return -1;
    const char *const named = show.ledger;
    show.ledger = f.home; /* where its state is looked for */
    int rc = f.timed ? show_facts_sum_node_hours(&f, err) : 0;
    if (rc == 0)
        rc = report_run(&f, r->usd_hour, &j, err);
    show.ledger = named;
    if (rc == 0) {
        json_object_set_new(j, "baseline", json_boolean(r->baseline && i + 1 == r->n));
        show_recipe_free(&kept->facts.recipe);
        kept->facts.recipe = f.recipe;
        f.recipe = (struct show_recipe){0};
        *ret_run = j;
    }
    show_facts_free(&f);
    return rc;
}

json_t *report_runs_page(const struct report_runs *r)
{
    json_t *j = json_object(), *rows = json_array();
    size_t n = 0;
    struct compare_difference *d = r->n > 1 ? compare_differences(&r->recipes, &n) : NULL;

    for (size_t k = 0; k < n; k++) {
        json_t *values = json_array();
        for (size_t i = 0; i < r->n; i++)
            json_array_append_new(values, show_json_text(d[k].values[i]));
        json_array_append_new(
            rows, json_pack("{s:o, s:o}", "key", show_json_text(d[k].key), "values", values));
    }
    free(d);
    json_object_set_new(j, "version", json_string(TERN_VERSION));
    json_object_set_new(j, "made", show_json_time(tern_clock_wall_ns()));
    json_object_set_new(j, "usd_hour",
                        isfinite(r->usd_hour) ? json_real(r->usd_hour) : json_null());
    json_object_set_new(j, "most_points", json_integer(REPORT_POINTS));
    json_object_set_new(j, "recipe", rows);
    return j;
}

/* From the catalogue: a run's own view costs more.  *ret_name is malloc'ed. */
static int find_name(const char *run, char **ret_name, struct tern_err *err)
{
    struct tern_ledger_rows rows = {0};
    char id[TERN_ULID_SIZE];
    const char *const named = show.ledger, *name = NULL;
    struct tern_ledger *l = show_find(run, id, err) < 0 ? NULL : tern_ledger_open(show.ledger, err);
    int rc = l ? tern_ledger_runs(l, &rows, err) : -1;

    for (size_t i = 0; i < rows.n; i++)
        if (strcmp(rows.runs[i].id, id) == 0)
            name = rows.runs[i].name;
    name = name ? name : "run";
    if (rc == 0)
        *ret_name = tern_strf("%.*s", (int)tern_str_first(name, 100), name);
    tern_ledger_rows_free(&rows);
    tern_ledger_close(l);
    show_forget_home(named);
    return rc;
}

int report_runs_title(const struct report_runs *r, char **ret_title, char **ret_name,
                      struct tern_err *err)
{
    enum { NAMED = 4 };
    struct tern_buf b = {0};
    char *first = NULL;
    int rc = 0;

    for (size_t i = 0; i < r->n && rc == 0; i++) {
        char *name = NULL;
        rc = find_name(report_runs_typed(r, i), &name, err);
        if (rc == 0 && i < NAMED)
            tern_buf_printf(&b, "%s%s", i ? ", " : "", name);
        if (rc == 0 && i == 0)
            first = tern_strdup(name);
        free(name);
    }
    if (rc == 0 && r->n > NAMED)
        tern_buf_printf(&b, " and %zu more", r->n - NAMED);
    if (rc < 0) {
        free(first);
        tern_buf_free(&b);
        return -1;
    }
    *ret_title = b.data;
    *ret_name = first;
    return 0;
}
