/* tern ledger report: runs as a page of HTML. */
#include "cmd/ledger/compare.h"
#include "cmd/ledger/report.h"

#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/progress.h"
#include "core/base/version.h"
#include "core/report/page.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *path, *baseline;

/* The runs of a page: of each only its recipe stays in memory. */
struct runs {
    struct compare recipes; /* its runs have recipes and names alone */
    size_t n;
    int n_args;
    char **args;
    double usd_hour;
};

/* The run at `i`, of which the last may be the baseline. */
static const char *typed(const struct runs *r, size_t i)
{
    return i < (size_t)r->n_args ? r->args[i] : i == 0 && !r->n_args ? NULL : baseline;
}

static int put_run(struct runs *r, size_t i, struct tern_report_page *page, struct tern_err *err)
{
    struct compare_run *kept = &r->recipes.runs[i];
    struct show_facts f;
    json_t *j = NULL;

    if (show_facts_read(typed(r, i), &f, err) < 0)
        return -1;
    const char *const named = show.ledger;
    show.ledger = f.home; /* where its state is looked for */
    int rc = f.timed ? show_facts_sum_node_hours(&f, err) : 0;
    if (rc == 0)
        rc = report_run(&f, r->usd_hour, &j, err);
    show.ledger = named;
    if (rc == 0) {
        json_object_set_new(j, "baseline", json_boolean(baseline && i + 1 == r->n));
        kept->facts.recipe = f.recipe;
        f.recipe = (struct show_recipe){0};
        rc = tern_report_page_data(page, "run", j, err);
    }
    show_facts_free(&f);
    tern_progress_add(1);
    return rc;
}

/* Of the page as a whole: when it was made, and how the recipes differ. */
static json_t *json_page(const struct runs *r)
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
    if (rc == 0)
        *ret_name = tern_strf("%.100s", name ? name : "run");
    tern_ledger_rows_free(&rows);
    tern_ledger_close(l);
    show_forget_home(named);
    return rc;
}

/* The page's title, "lora, full and 3 more", and the first name; both malloc'ed.  A run that is not
 * there is an error before anything is written. */
static int make_title(const struct runs *r, char **ret_title, char **ret_name, struct tern_err *err)
{
    enum { NAMED = 4 };
    struct tern_buf b = {0};
    char *first = NULL;
    int rc = 0;

    for (size_t i = 0; i < r->n && rc == 0; i++) {
        char *name = NULL;
        rc = find_name(typed(r, i), &name, err);
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

static int write_page(struct runs *r, int fd, const char *name, const char *title,
                      uint64_t *ret_bytes, struct tern_err *err)
{
    struct tern_report_page *page = tern_report_page_open(fd, name, title, err);

    if (!page)
        return -1;
    int rc = 0;
    for (size_t i = 0; i < r->n && rc == 0; i++)
        rc = put_run(r, i, page, err);
    if (rc == 0)
        rc = tern_report_page_data(page, "page", json_page(r), err);
    const uint64_t bytes = tern_report_page_size(page);
    if (tern_report_page_close(page, rc == 0 ? err : NULL) < 0)
        rc = -1;
    if (rc == 0)
        *ret_bytes = bytes;
    return rc;
}

/* NAME.html, in which a name is a file's; malloc'ed. */
static char *file_of(const char *name)
{
    char *file = tern_strf("%s.html", *name ? name : "run");

    for (char *s = file; *s; s++)
        if (!isalnum((unsigned char)*s) && (!strchr("-_.", *s) || (s == file && *s != '_')))
            *s = '_';
    return file;
}

static int write_file(struct runs *r, const char *to, const char *title, struct tern_err *err)
{
    enum { MODE = 0644 }; /* as other outputs */
    struct tern_fs_new f;
    uint64_t bytes = 0;
    char text[32];

    if (!tern_report_page_is(to))
        return tern_err_set(err, TERN_USAGE,
                            "%s: exists and is no page of tern ledger report; it is left as it "
                            "is. Name another file with -o.",
                            to);
    if (tern_fs_new_open(&f, to, MODE, err) < 0)
        return -1;
    tern_progress_begin("runs", "%s", to);
    tern_progress_expect(r->n);
    int rc = write_page(r, f.fd, to, title, &bytes, err);
    tern_progress_end();
    if (rc < 0) {
        tern_fs_new_abort(&f);
        return -1;
    }
    if (tern_fs_new_commit(&f, err) < 0)
        return -1;
    char *clean = tern_strdup(to);
    tern_str_mask(clean);
    printf("%s: %s\n", clean, tern_str_bytes(text, sizeof text, bytes));
    free(clean);
    return 0;
}

static int run(int n_args, char **args, struct tern_err *err)
{
    struct runs r = {.n = (size_t)(n_args ? n_args : 1) + (baseline ? 1 : 0),
                     .n_args = n_args,
                     .args = args,
                     .recipes.n = 0};
    char *title = NULL, *name = NULL;
    uint64_t bytes = 0;
    int rc = -1;

    if (r.n > COMPARE_RUNS_MAX)
        return tern_err_set(err, TERN_USAGE, "more than %d runs", COMPARE_RUNS_MAX);
    if (show_want_ledger(err) < 0 || show_price(&r.usd_hour, err) < 0 ||
        make_title(&r, &title, &name, err) < 0)
        return -1;
    r.recipes.runs = tern_alloc(r.n, sizeof *r.recipes.runs, "runs", err);
    r.recipes.n = r.n;
    if (!r.recipes.runs)
        goto out;
    char *own = path ? NULL : file_of(name);
    const char *to = path ? path : own;
    rc = strcmp(to, "-") == 0 ? write_page(&r, STDOUT_FILENO, "stdout", title, &bytes, err)
                              : write_file(&r, to, title, err);
    free(own);
out:
    for (size_t i = 0; r.recipes.runs && i < r.n; i++)
        show_recipe_free(&r.recipes.runs[i].facts.recipe);
    free(r.recipes.runs);
    free(title);
    free(name);
    return rc;
}

static const struct tern_opt opts[] = {
    SHOW_OPT_LEDGER,
    {"out", 'o', TERN_OPT_TEXT, "FILE", .to.text = &path,
     .help = "write the page there, - for stdout (default: NAME.html of the first run)"},
    {"baseline", 0, TERN_OPT_TEXT, "RUN", .to.text = &baseline,
     .help = "also this run: its newest perplexities are lines to compare with"},
    SHOW_OPT_PRICE,
    {0},
};

const struct tern_cmd ledger_report = {
    .name = "report",
    .args = "[RUN...]",
    .summary = "write runs as a page of HTML: curves, attempts, checkpoints, cost",
    .about =
        "The page is one file that any browser shows, without a network. It has perplexities of "
        "held-out sets against tokens, steps, time and cost; losses, with a logarithmic axis and "
        "smoothing; tokens a second and the phases of a step; attempts, nodes and causes of "
        "failures in time; checkpoints; the data mix as planned and as it was; goodput and cost; "
        "differences of recipes. Superseded values are left out. Point at a curve for its "
        "values, drag to zoom, double-click to return; a click on a run's name hides it. A curve "
        "of more than 2,000 points is drawn as 1,000 means, with the least and greatest value "
        "of each. A file that exists is replaced only if it is such a page. Without RUN: the "
        "newest run.",
    .examples = "  tern ledger report pubmed-cpt\n"
                "  tern ledger report cpt lora --baseline base -o runs.html\n",
    .opts = opts,
    .args_max = -1,
    .run = run,
};
