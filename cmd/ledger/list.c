/* tern ledger list: a row a run. */
#include "cmd/ledger/list.h"

#include "core/base/log.h"

#include <stdlib.h>
#include <string.h>

/* The fields without -o: for a terminal, and with -P, which scripts know. Of one user and of
 * several; without and with records that were lost. */
static const char *const usual[2][2][2] = {
    {{"id%-12,name,state,jobid,progress,loss,tok/s,left,age",
      "id%-12,name,state,jobid,progress,loss,lost,tok/s,left,age"},
     {"id%-12,user,name,state,jobid,progress,loss,tok/s,left,age",
      "id%-12,user,name,state,jobid,progress,loss,lost,tok/s,left,age"}},
    {{"id,name,state,jobid,attempts,step,loss,ckpt,updated",
      "id,name,state,jobid,attempts,step,loss,ckpt,lost,updated"},
     {"id,user,name,state,jobid,attempts,step,loss,ckpt,updated",
      "id,user,name,state,jobid,attempts,step,loss,ckpt,lost,updated"}}};

static const char *sort_by;
static bool openmetrics;

struct list {
    bool recipes; /* a field or filter needs them */
    struct list_home *homes;
    size_t n_homes;
    struct list_row *rows;
    size_t n;
};

static int read_home(struct list_home *h, bool recipes, struct tern_err *err)
{
    struct tern_ledger *l = tern_ledger_open(h->dir, err);
    int rc = !l || (recipes ? tern_ledger_runs : tern_ledger_runs_brief)(l, &h->runs, err) < 0 ||
                     (list_filter.jobs.n && tern_ledger_attempts(l, &h->attempts, err) < 0)
                 ? -1
                 : 0;

    tern_ledger_close(l);
    return rc;
}

static int by_id(const void *x, const void *y)
{
    const struct list_row *a = x, *b = y;
    int rc = strcmp(a->run->id, b->run->id);

    return rc ? rc : strcmp(a->home->dir, b->home->dir);
}

static int make_rows(struct list *list, struct tern_err *err)
{
    size_t total = 0;

    for (size_t i = 0; i < list->n_homes; i++)
        total += list->homes[i].runs.n;
    list->rows = tern_alloc(total + 1, sizeof *list->rows, "a list of runs", err);
    if (!list->rows)
        return -1;
    for (size_t i = 0; i < list->n_homes; i++) {
        const struct list_home *h = &list->homes[i];
        show.ledger = h->dir; /* where its state is looked for */
        for (size_t k = 0; k < h->runs.n; k++) {
            const struct tern_ledger_run *r = &h->runs.runs[k];
            list->rows[list->n++] = (struct list_row){
                .home = h, .run = r, .state = show_state(r), .steps = show_steps(r)};
        }
    }
    if (list->n && list->n_homes > 1)
        qsort(list->rows, list->n, sizeof *list->rows, by_id);
    return 0;
}

static int read_homes(struct list *list, const struct tern_ledger_rows *dirs, struct tern_err *err)
{
    list->homes = tern_alloc(dirs->n, sizeof *list->homes, "the homes of a ledger", err);
    if (!list->homes)
        return -1;
    for (; list->n_homes < dirs->n; list->n_homes++) {
        list->homes[list->n_homes].dir = dirs->names[list->n_homes];
        if (read_home(&list->homes[list->n_homes], list->recipes, err) == 0)
            continue;
        if (dirs->n == 1)
            return -1;
        tern_warn("%s: is left out: %s", dirs->names[list->n_homes], err->text);
    }
    return make_rows(list, err);
}

static void free_list(struct list *list)
{
    for (size_t i = 0; i < list->n; i++)
        show_recipe_free(&list->rows[i].recipe);
    for (size_t i = 0; i < list->n_homes; i++) {
        tern_ledger_rows_free(&list->homes[i].runs);
        tern_ledger_rows_free(&list->homes[i].attempts);
    }
    free(list->homes);
    free(list->rows);
}

static int print(struct list_fields *fields, struct list *list, struct tern_err *err)
{
    struct show_cells t = {.fields = fields->fields, .n_fields = fields->n};
    json_t *j = show.json ? json_array() : NULL;
    bool lost = false;

    for (size_t i = 0; i < list->n; i++)
        lost |= list->rows[i].run->lost > 0;
    const char *format = usual[show.parsable][show.all][lost];
    if (list_fields_show(fields, show.format ? show.format : format, err) < 0)
        return -1;
    for (size_t i = 0; i < list->n; i++) {
        if (show.json)
            json_array_append_new(j, list_fields_json(&list->rows[i]));
        else
            list_fields_cells(fields, &t, &list->rows[i]);
    }
    if (show.json)
        return show_json(j, err);
    return show_table(&t, format, "name,user", err);
}

static int run(int n_args, char **args, struct tern_err *err)
{
    struct tern_ledger_rows dirs = {0};
    struct list_fields fields = {0};
    struct list list = {0};
    int rc = -1;

    (void)n_args, (void)args;
    if (openmetrics && (show.json || show.format || show.parsable))
        return tern_err_set(err, TERN_USAGE, "--openmetrics goes without --json, -P and -o");
    if (list_fields_make(&fields, show.format, sort_by, err) < 0)
        return -1;
    if (show_has_fields()) {
        rc = show_fields(fields.fields, fields.n);
        goto out;
    }
    show.all |= list_filter.users.n > 0;
    list.recipes = list_filter.where.n > 0 || list_fields_have_keys(&fields);
    if (show_need_ledger(err) < 0 || tern_ledger_homes(show.ledger, show.all, &dirs, err) < 0 ||
        read_homes(&list, &dirs, err) < 0 || list_filter_apply(list.rows, &list.n, err) < 0 ||
        (sort_by && list_fields_sort(&fields, sort_by, list.rows, list.n, err) < 0))
        goto out;
    rc = openmetrics ? 0 : print(&fields, &list, err);
    if (openmetrics)
        list_openmetrics(list.rows, list.n);
out:
    free_list(&list);
    list_fields_free(&fields);
    tern_ledger_rows_free(&dirs);
    return rc;
}

static const struct tern_opt opts[] = {
    SHOW_OPT_LEDGER,
    SHOW_OPT_ALL,
    {"user", 'u', TERN_OPT_LIST, "USER", .to.list = &list_filter.users,
     .help = "only runs of these users (commas allowed, as in the next four); in a shared ledger "
             "of them alone"},
    {"name", 'N', TERN_OPT_LIST, "GLOB", .to.list = &list_filter.names,
     .help = "only runs of these names: 'cpt-*'"},
    {"state", 's', TERN_OPT_LIST, "STATE", .to.list = &list_filter.states,
     .help = "only runs in these states: running, silent, done, failed, node_fail, ..."},
    {"tag", 't', TERN_OPT_LIST, "TAG", .to.list = &list_filter.tags,
     .help = "only runs that have all these tags"},
    {"jobs", 'j', TERN_OPT_LIST, "JOBID", .to.list = &list_filter.jobs,
     .help = "only runs of these jobs (4711, 4711_3)"},
    {"since", 'S', TERN_OPT_TEXT, "TIME", .to.text = &list_filter.since,
     .help = "only runs with records since TIME: YYYY-MM-DD[THH:MM[:SS][+HH:MM]], now-3days"},
    {"until", 'E', TERN_OPT_TEXT, "TIME", .to.text = &list_filter.until,
     .help = "only runs that began until TIME"},
    {"starttime", 0, TERN_OPT_TEXT, "TIME", .to.text = &list_filter.since,
     .help = "--since, as sacct has it"},
    {"endtime", 0, TERN_OPT_TEXT, "TIME", .to.text = &list_filter.until,
     .help = "--until, as sacct has it"},
    {"where", 'w', TERN_OPT_LIST, "KEY=VALUE", .to.list = &list_filter.where,
     .help = "only runs whose recipe has that value: optimizer.lr=1e-4, 'lora.rank>8', "
             "'model.from=*base*'; also != < <= >=; a key that a recipe does not write fits none"},
    {"sort", 0, TERN_OPT_TEXT, "FIELDS", .to.text = &sort_by,
     .help = "in this order, -FIELD from the greatest on: state,-loss"},
    SHOW_OPT_FORMAT,
    SHOW_OPT_STYLE,
    {"openmetrics", 0, TERN_OPT_FLAG, .to.flag = &openmetrics,
     .help = "as OpenMetrics text, which Prometheus's text file collector takes: step, loss, rate, "
             "checkpoint, attempts and age of each run"},
    {0},
};

const struct tern_cmd ledger_list = {
    .name = "list",
    .summary = "list runs, the newest last",
    .about =
        "Without -o the table fits the terminal, and names are cut; -o and -P show them whole. -o "
        "and --sort take keys of the recipe, too: optimizer.lr, and recipe.steps for one without a "
        "dot. Under -P a cell has \\x7c for |, and \\\\ for \\.\n"
        "In a ledger that users share (its folder lets others write) each user has a folder, "
        "LEDGER/u/UID, to which no other user writes. Your runs are listed, with -a those of all "
        "users that you may read. A run named by its id may be another user's.",
    .examples = "  tern ledger list -S now-7days -s running\n"
                "  tern ledger list -w optimizer.lr=1e-4 --sort -loss -o name,optimizer.lr,loss\n"
                "  tern ledger list -j 4711 -n -o id\n",
    .opts = opts,
    .run = run,
};
