/* tern ledger export --mlflow: a run at an MLflow tracking server. */
#include "cmd/ledger/export.h"

#include "cmd/ledger/recipe.h"
#include "cmd/ledger/show.h"
#include "core/base/log.h"
#include "core/base/progress.h"
#include "core/mlflow/mlflow.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

static int stopped; /* atomic */

static void on_signal(int sig)
{
    __atomic_store_n(&stopped, sig, __ATOMIC_RELAXED);
}

/* Keys of the recipe as the newest attempt ran it; a run of another program has none. */
static void read_recipe(const struct tern_ledger_run *r, struct show_recipe *ret_recipe)
{
    struct tern_err why = {0};

    if (r->recipe && *r->recipe && show_recipe_read(r->recipe, ret_recipe, &why) < 0)
        tern_warn("run %s: no params are exported: %s", r->id, why.text);
}

static void say(const char *url, const char *experiment, const struct tern_mlflow_done *d)
{
    tern_cmd_say("%s: run %s%s of experiment %s: %" PRIu64 " values sent, %" PRIu64 " were there",
                 url, d->run_id, d->new_run ? " (new)" : "", experiment, d->sent, d->there);
    if (d->renamed)
        tern_info("%u metrics have names that MLflow does not take: a sum is at their end there",
                  d->renamed);
    if (d->cut)
        tern_info("%u params or tags were longer than MLflow takes, and are cut", d->cut);
    if (d->kept)
        tern_warn("%u params have another value there, which MLflow never changes", d->kept);
}

int export_mlflow(struct tern_ledger *run, const char *url, const char *experiment,
                  struct tern_err *err)
{
    const struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_RESETHAND};
    struct tern_ledger_rows runs = {0};
    struct show_recipe recipe = {0};
    struct tern_mlflow_param *params = NULL;
    struct tern_mlflow_what what = {.experiment = experiment};
    struct tern_mlflow_done done;
    struct tern_mlflow *m = NULL;
    int rc = -1;

    if (tern_ledger_runs(run, &runs, err) < 0)
        return -1;
    if (runs.n)
        read_recipe(&runs.runs[0], &recipe);
    params = tern_alloc(recipe.n + 1, sizeof *params, "params", err);
    m = params ? tern_mlflow_open(url, &stopped, err) : NULL;
    if (!m)
        goto out;
    for (size_t i = 0; i < recipe.n; i++)
        params[i] = (struct tern_mlflow_param){recipe.settings[i].key, recipe.settings[i].value};
    what.params = params;
    what.n_params = recipe.n;
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
    tern_progress_begin("values", "%s", runs.n && runs.runs[0].name ? runs.runs[0].name : "run");
    rc = tern_mlflow_export(m, run, &what, &done, err);
    tern_progress_end();
    if (rc == 0)
        say(url, experiment, &done);
    else if (stopped)
        rc = 128 + stopped;
out:
    tern_mlflow_close(m);
    free(params);
    show_recipe_free(&recipe);
    tern_ledger_rows_free(&runs);
    return rc;
}
