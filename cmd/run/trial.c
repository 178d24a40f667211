#include "cmd/run/trial.h"

#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/base/yaml.h"
#include "core/ledger/ledger.h"
#include "core/run/pace.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The first steps fill caches and start threads. */
enum { WARM_UP = 2 };

static int set(struct trial *t, struct tern_opt_list *overrides, char *text, struct tern_err *err)
{
    t->set[t->n++] = text;
    if (overrides->n == sizeof overrides->values / sizeof *overrides->values)
        return tern_err_set(err, TERN_USAGE, "--trial: too many --set beside it");
    overrides->values[overrides->n++] = text;
    return 0;
}

int trial_begin(struct trial *t, const struct tern_recipe *r, int64_t steps,
                struct tern_opt_list *overrides, struct tern_err *err)
{
    char host[64] = "";

    if (r->workload.command)
        return tern_recipe_fail(r, "workload.command", err,
                                "--trial is for tern's own trainer: how few steps this one makes "
                                "its own arguments say. What compiles its graphs first is "
                                "workload.precompile.");
    if (steps < 1 || steps > 1000000)
        return tern_err_set(err, TERN_USAGE, "--trial: from 1 to 1000000 steps");
    gethostname(host, sizeof host - 1);
    t->folder = tern_strf("%s.trial-%s-%d", r->checkpoint.dir, host, (int)getpid());
    char *whole = NULL;
    if (*t->folder != '/') { /* the path of a --set is relative to the recipe's folder */
        char cwd[4096];
        if (!getcwd(cwd, sizeof cwd))
            return tern_err_sys(err, "cannot determine the current folder");
        whole = tern_fs_join(cwd, t->folder);
        free(t->folder);
        t->folder = whole;
    }
    int rc = set(t, overrides, tern_strf("name=%.57s-trial", r->name), err);
    if (rc == 0)
        rc = set(t, overrides, tern_strf("steps=%" PRId64, steps), err);
    if (rc == 0)
        rc = set(t, overrides, tern_yaml_setting("checkpoint.dir", t->folder), err);
    if (rc == 0)
        rc = set(t, overrides, tern_strdup("checkpoint.every=0"), err);
    if (rc == 0)
        rc = set(t, overrides, tern_strdup("evaluate={every: 0}"), err);
    if (rc == 0)
        rc = set(t, overrides, tern_strdup("data.held_out=[]"), err);
    if (rc == 0 && r->schedule.warmup + r->schedule.cooldown + r->schedule.decay > steps)
        rc = set(t, overrides,
                 tern_strf("schedule={kind: constant, warmup: %" PRId64 "}",
                           r->schedule.warmup < steps ? r->schedule.warmup : steps),
                 err);
    return rc;
}

/* The median of the steps after the warm-up, or of all when there are no others; NaN: none.  A
 * trial reads superseded values, too. */
static double median(struct tern_ledger *l, const char *metric, size_t *n, struct tern_err *err)
{
    struct tern_ledger_series s = {0};
    double result = NAN;

    if (tern_ledger_series(l, metric, true, &s, err) < 0)
        return NAN;
    size_t skip = s.n > WARM_UP ? WARM_UP : 0;
    *n = s.n - skip;
    if (*n)
        result = tern_run_median(s.value + skip, *n);
    tern_ledger_series_free(&s);
    return result;
}

int trial_print(const char *ledger_dir, const char *run_id, struct tern_err *err)
{
    struct tern_ledger *l = tern_ledger_open_run(ledger_dir, run_id, err);
    char text[40];
    size_t n = 0, m = 0;

    if (!l)
        return -1;
    double seconds = median(l, "step_seconds", &n, err);
    double tokens = median(l, "tokens_per_second", &n, err);
    double memory = median(l, "memory_bytes_max", &m, err); /* with several ranks */
    if (isnan(memory))
        memory = median(l, "memory_bytes", &m, err);
    tern_ledger_close(l);
    if (isnan(seconds) || isnan(tokens))
        return tern_err_set(err, TERN_FAILED, "the trial recorded no step");
    printf("tokens/s  %.0f\nstep      %s\n", tokens, tern_str_seconds(text, sizeof text, seconds));
    if (!isnan(memory))
        printf("memory    %s (peak of the rank that needs most)\n",
               tern_str_bytes(text, sizeof text, (uint64_t)memory));
    printf("(medians of %zu steps after the warm-up)\n", n);
    return 0;
}

void trial_end(struct trial *t)
{
    struct tern_err err = {0};

    if (t->folder && tern_fs_remove_tree(t->folder, &err) < 0)
        tern_warn("%s", err.text);
    for (size_t i = 0; i < t->n; i++)
        free(t->set[i]);
    free(t->folder);
    *t = (struct trial){0};
}
