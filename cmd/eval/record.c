#include "cmd/eval/record.h"

#include "core/base/log.h"
#include "core/base/str.h"
#include "core/base/version.h"
#include "core/tensor/tensor.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PARAMS_MAX = 10000, SECONDS = 30 };

static const char *precision_of(const struct tern_recipe *r)
{
    return r->precision == TERN_PRECISION_BF16 ? "bf16" : sizeof(tern_real) == 8 ? "fp64" : "fp32";
}

/* ---------------------------------------------------------------- is it as the run does it? */

/* The digest that the run recorded of the set that its recipe calls so; "" where it has none. */
static void digest_of_run(const struct eval_run *run, const struct tern_recipe *recorded,
                          const char *name, char to[TERN_SHA256_HEX])
{
    struct tern_ledger_table t = {0};

    to[0] = '\0';
    for (size_t i = 0; recorded && i < recorded->data.held_out.n; i++) {
        if (strcmp(recorded->data.held_out.sets[i].name, name) != 0)
            continue;
        char *sql = tern_strf("SELECT value FROM param WHERE name = 'input.data.held_out[%zu]' "
                              "ORDER BY attempt DESC LIMIT 1",
                              i);
        if (tern_ledger_sql(run->ledger, sql, PARAMS_MAX, SECONDS, &t, NULL) == 0 && t.n_rows &&
            t.cells[0].text && strlen(t.cells[0].text) >= TERN_SHA256_HEX - 1)
            snprintf(to, TERN_SHA256_HEX, "%.*s", TERN_SHA256_HEX - 1, t.cells[0].text);
        free(sql);
        tern_ledger_table_free(&t);
        return;
    }
}

/* One name means one set in a run: else its curve would be of several. */
static int check_sets(const struct eval_record *r, const struct tern_recipe *recorded,
                      struct tern_err *err)
{
    const struct eval_job *j = r->job;

    for (size_t i = 0; i < j->n_sets; i++) {
        char before[TERN_SHA256_HEX];
        digest_of_run(&j->run, recorded, j->sets[i].name, before);
        for (size_t k = 0; k < r->evaluated.n && !before[0]; k++)
            if (strcmp(r->evaluated.evaluated[k].eval.set, j->sets[i].name) == 0)
                snprintf(before, sizeof before, "%s", r->evaluated.evaluated[k].set_sha256);
        if (before[0] && strcmp(before, j->sets[i].sha256) != 0)
            return tern_err_set(err, TERN_USAGE,
                                "%s: is not the set '%s' that this run was evaluated on (SHA-256 "
                                "%.12s..., now %.12s...). Give it another name: --data NAME=%s",
                                j->sets[i].path, j->sets[i].name, before, j->sets[i].sha256,
                                j->sets[i].path);
    }
    return 0;
}

int eval_record_open(struct eval_record *r, const struct eval_job *job, struct tern_err *err)
{
    const struct eval_run *run = &job->run;
    const struct tern_recipe *now = job->recipe;
    const int ranks = tern_fabric_comm_size(job->world);

    *r = (struct eval_record){.job = job};
    r->by = tern_strf("tern %s, %s kernels, %d rank%s", TERN_VERSION, tern_tensor_kernels(), ranks,
                      ranks > 1 ? "s" : "");
    if (!run->ledger)
        return 0;
    const struct tern_ledger_run *row = &run->runs.runs[0];
    struct tern_recipe *recorded =
        tern_recipe_recorded(row->recipe_path ? row->recipe_path : "", row->recipe, NULL, 0, NULL);
    r->as_run = recorded && recorded->precision == now->precision &&
                recorded->batch.seq_len == now->batch.seq_len &&
                recorded->data.isolate == now->data.isolate;
    r->writable = true;
    int rc = tern_ledger_evals(run->ledger, &r->evals, err) < 0 ||
                     tern_ledger_evaluated_rows(run->ledger, &r->evaluated, err) < 0 ||
                     tern_ledger_checkpoints(run->ledger, &r->checkpoints, err) < 0 ||
                     check_sets(r, recorded, err) < 0
                 ? -1
                 : 0;
    tern_recipe_free(recorded);
    if (rc == 0 && !r->as_run)
        tern_warn("precision, batch.seq_len or data.isolate is not the run's: recorded, but not "
                  "among the run's own values");
    return rc;
}

/* ---------------------------------------------------------------- known and new */

const struct tern_ledger_evaluated *eval_record_known(const struct eval_record *r,
                                                      const struct tern_ckpt_entry *c, size_t i)
{
    const struct tern_recipe *recipe = r->job->recipe;
    const struct eval_set *set = &r->job->sets[i];

    for (size_t k = r->evaluated.n; k-- > 0;) {
        const struct tern_ledger_evaluated *e = &r->evaluated.evaluated[k];
        if (e->eval.step == (int64_t)c->step && strcmp(e->eval.set, set->name) == 0 &&
            strcmp(e->checkpoint_sha256, c->digest) == 0 &&
            strcmp(e->set_sha256, set->sha256) == 0 &&
            strcmp(e->precision, precision_of(recipe)) == 0 &&
            e->seq_len == recipe->batch.seq_len && e->isolate == recipe->data.isolate)
            return e;
    }
    return NULL;
}

/* Did the run evaluate the step itself? */
static bool own(const struct eval_record *r, uint64_t step, const char *set)
{
    for (size_t i = 0; i < r->evals.n; i++) {
        const struct tern_ledger_eval *e = &r->evals.evals[i];
        if (e->step == (int64_t)step && e->effective && strcmp(e->set, set) == 0 &&
            !tern_ledger_evaluated_of(&r->evaluated, e))
            return true;
    }
    return false;
}

/* Read again what the run evaluated: while it works, it may have evaluated the step by now. */
static int read_again(struct eval_record *r, struct tern_err *err)
{
    const struct eval_run *run = &r->job->run;
    struct tern_ledger_rows evals = {0}, evaluated = {0};
    struct tern_ledger *now = tern_ledger_open_run(run->home, run->id, err);
    int rc = now && tern_ledger_evals(now, &evals, err) == 0 &&
                     tern_ledger_evaluated_rows(now, &evaluated, err) == 0
                 ? 0
                 : -1;

    tern_ledger_close(now);
    if (rc < 0) {
        tern_ledger_rows_free(&evals);
        return -1;
    }
    tern_ledger_rows_free(&r->evals);
    tern_ledger_rows_free(&r->evaluated);
    r->evals = evals;
    r->evaluated = evaluated;
    return 0;
}

/* The attempt that made the checkpoint, by its digest, else by its step; else the newest. */
static unsigned attempt_of(const struct eval_record *r, const struct tern_ckpt_entry *c)
{
    const struct eval_run *run = &r->job->run;
    unsigned by_step = 0, last = 0;

    for (size_t i = 0; i < r->checkpoints.n; i++) {
        const struct tern_ledger_checkpoint *k = &r->checkpoints.checkpoints[i];
        if (k->manifest_sha256 && strcmp(k->manifest_sha256, c->digest) == 0)
            return k->attempt;
        if (k->step == (int64_t)c->step && k->effective)
            by_step = k->attempt;
    }
    if (!by_step && tern_ledger_last_attempt(run->home, run->id, &last, NULL) < 0)
        last = 0;
    return by_step ? by_step : last;
}

/* The spool of that attempt; the one before it is closed. */
static int turn_to(struct eval_record *r, unsigned attempt, struct tern_err *err)
{
    const struct eval_run *run = &r->job->run;

    if (r->spool && r->attempt == attempt)
        return 0;
    if (attempt == 0)
        return tern_err_set(err, TERN_USAGE, "%s: run %s has no attempt", run->home, run->id);
    int rc = r->spool ? tern_ledger_spool_close(r->spool, err) : 0;
    r->spool = NULL;
    if (rc < 0)
        return -1;
    r->spool = tern_ledger_evaluated_open(run->home, run->id, attempt, err);
    r->attempt = attempt;
    return r->spool ? 0 : -1;
}

void eval_record_add(struct eval_record *r, const struct tern_ckpt_entry *c, size_t i,
                     const struct tern_infer_eval *e)
{
    const struct eval_set *set = &r->job->sets[i];
    const struct tern_recipe *recipe = r->job->recipe;
    struct tern_ledger_evaluated row = {
        .eval = {.step = (int64_t)c->step,
                 .set = set->name,
                 .nll = e->nll,
                 .tokens = (int64_t)e->tokens,
                 .bytes = (int64_t)e->bytes},
        .checkpoint_sha256 = c->digest,
        .set_sha256 = set->sha256,
        .precision = precision_of(recipe),
        .seq_len = recipe->batch.seq_len,
        .isolate = recipe->data.isolate,
        .by = r->by,
    };
    struct tern_err why;

    if (!r->writable)
        return;
    int rc = turn_to(r, attempt_of(r, c), &why);
    if (rc == 0 && r->as_run)
        rc = read_again(r, &why);
    row.counts = r->as_run && !own(r, c->step, set->name);
    if (rc < 0 || tern_ledger_evaluated_add(r->spool, &row, &why) < 0) {
        tern_warn("%s: evaluations are not recorded", why.text);
        r->writable = false;
    }
}

double eval_record_tokens(const struct eval_record *r, uint64_t step)
{
    struct tern_ledger_table t = {0};
    double tokens = NAN;

    if (!r->job->run.ledger)
        return NAN;
    char *sql =
        tern_strf("SELECT sum(value) FROM step WHERE name = 'tokens' AND step <= %" PRIu64, step);
    if (tern_ledger_sql(r->job->run.ledger, sql, 1, SECONDS, &t, NULL) == 0 && t.n_rows &&
        t.cells[0].kind != TERN_LEDGER_NULL)
        tokens = t.cells[0].real;
    free(sql);
    tern_ledger_table_free(&t);
    return tokens;
}

void eval_record_close(struct eval_record *r)
{
    const struct eval_run *run = &r->job->run;
    struct tern_err why;
    const bool wrote = r->spool != NULL;

    if (wrote && tern_ledger_spool_close(r->spool, &why) < 0)
        tern_warn("%s", why.text);
    if (wrote && (tern_ledger_fold(run->home, run->id, &why) < 0 ||
                  tern_ledger_fold_catalog(run->home, &why) < 0))
        tern_warn("%s", why.text); /* a reader folds, too */
    tern_ledger_rows_free(&r->evals);
    tern_ledger_rows_free(&r->evaluated);
    tern_ledger_rows_free(&r->checkpoints);
    free(r->by);
}
