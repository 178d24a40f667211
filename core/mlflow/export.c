/* A run of the ledger as a run of MLflow. */
#include "core/base/json.h"
#include "core/base/progress.h"
#include "core/base/str.h"
#include "core/mlflow/history.h"
#include "core/mlflow/key.h"
#include "core/store/url.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Of one request, by MLflow; older servers take params of 500 bytes. */
enum { METRICS = 1000, PARAMS = 100, PARAM_MAX = 500, TAG_MAX = 5000, NOTE_ROWS = 1000 };
#define RUN_TAG "tern.run_id"

struct job {
    struct tern_mlflow *m;
    struct tern_ledger *run;
    const struct tern_mlflow_what *what;
    const struct tern_ledger_run *r;
    struct tern_ledger_rows runs, metrics, evals, attempts;
    char experiment[64];
    json_t *batch; /* metrics to be sent */
    struct tern_mlflow_done done;
    bool check; /* only compare */
};

/* ---------------------------------------------------------------- experiment and run */

/* Ids are texts; what is none could lead to another call. */
static bool is_id(const char *s)
{
    return s && *s && strlen(s) < 64 &&
           strspn(s, "0123456789abcdefghijklmnopqrstuvwxyz"
                     "ABCDEFGHIJKLMNOPQRSTUVWXYZ-_") == strlen(s);
}

/* A call that is made once, and after a passing failure only when `find` has not found what it may
 * have made. */
struct making {
    int (*find)(struct job *j, bool *ret_found, struct tern_err *err);
    const char *call, *outer, *inner; /* where the id stands in the answer: outer NULL: on top */
    const json_t *body;
    char *id; /* of 64 bytes */
};

static int take_id(struct job *j, const char *call, const json_t *id, char to[64],
                   struct tern_err *err)
{
    const char *s = json_string_value(id);

    if (!is_id(s))
        return tern_mlflow_strange(j->m, call, err);
    snprintf(to, 64, "%s", s);
    return 0;
}

static int make(struct job *j, const struct making *k, bool *ret_made, struct tern_err *err)
{
    struct tern_mlflow_tries t = {0};

    for (;;) {
        bool found = false;
        json_t *answer = NULL;
        if (k->find(j, &found, err) < 0)
            return -1;
        *ret_made = !found;
        if (found)
            return 0;
        enum tern_mlflow_answer a = tern_mlflow_try(j->m, k->call, k->body, &t, &answer, err);
        if (a == TERN_MLFLOW_DONE) {
            const json_t *at =
                k->outer ? json_object_get(json_object_get(answer, k->outer), "info") : answer;
            int rc = take_id(j, k->call, json_object_get(at, k->inner), k->id, err);
            json_decref(answer);
            return rc;
        }
        if (a == TERN_MLFLOW_ABSENT)
            return tern_mlflow_strange(j->m, k->call, err);
        if (a == TERN_MLFLOW_THERE)
            snprintf(t.why, sizeof t.why, "%s: it is there, and is not found", k->call);
        if (a == TERN_MLFLOW_FAILED || tern_mlflow_pause(j->m, &t, err) < 0)
            return -1;
    }
}

static int find_experiment(struct job *j, bool *ret_found, struct tern_err *err)
{
    struct tern_buf call = {0};
    json_t *answer = NULL;

    tern_buf_puts(&call, "experiments/get-by-name?experiment_name=");
    tern_store_encode(&call, j->what->experiment, /* slashes= */ false);
    int rc = tern_buf_check(&call, "a request", err);
    if (rc == 0)
        rc = (int)tern_mlflow_do(j->m, call.data, NULL, &answer, err);
    const json_t *e = json_object_get(answer, "experiment");
    const char *stage = json_string_value(json_object_get(e, "lifecycle_stage"));
    *ret_found = rc == TERN_MLFLOW_DONE;
    if (rc == TERN_MLFLOW_DONE && stage && strcmp(stage, "active") != 0)
        rc = tern_err_set(err, TERN_USAGE,
                          "%s: experiment '%s' is deleted there. Restore it, or give another one "
                          "with --experiment.",
                          tern_mlflow_url(j->m), j->what->experiment);
    else if (rc == TERN_MLFLOW_DONE)
        rc = take_id(j, call.data, json_object_get(e, "experiment_id"), j->experiment, err);
    else if (rc > 0)
        rc = 0;
    json_decref(answer);
    tern_buf_free(&call);
    return rc;
}

static int find_run(struct job *j, bool *ret_found, struct tern_err *err)
{
    char *filter = tern_strf("tags.`" RUN_TAG "` = '%s'", j->r->id);
    json_t *answer = NULL, *body = json_pack("{s:[s], s:s, s:i}", "experiment_ids", j->experiment,
                                             "filter", filter, "max_results", 2);
    enum tern_mlflow_answer a = tern_mlflow_do(j->m, "runs/search", body, &answer, err);
    const json_t *list = json_object_get(answer, "runs");
    int rc = 0;

    *ret_found = false;
    if (a != TERN_MLFLOW_DONE) {
        rc = a == TERN_MLFLOW_FAILED ? -1 : tern_mlflow_strange(j->m, "runs/search", err);
    } else if (json_array_size(list) > 1) {
        rc = tern_err_set(err, TERN_USAGE,
                          "%s: experiment '%s' has two runs of tag " RUN_TAG
                          "=%s. Delete one of them there.",
                          tern_mlflow_url(j->m), j->what->experiment, j->r->id);
    } else if (json_array_size(list) == 1) {
        const json_t *info = json_object_get(json_array_get(list, 0), "info");
        *ret_found = true;
        rc = take_id(j, "runs/search", json_object_get(info, "run_id"), j->done.run_id, err);
    }
    json_decref(body);
    json_decref(answer);
    free(filter);
    return rc;
}

/* ---------------------------------------------------------------- tags and params */

/* `s` in at most `max` bytes, malloc'ed; whole characters of UTF-8. */
static char *cut(const char *s, size_t max, unsigned *cuts)
{
    size_t n = strlen(s);

    if (n <= max)
        return tern_strdup(s);
    for (n = max - 3; n > 0 && ((unsigned char)s[n] & 0xc0) == 0x80;)
        n--;
    ++*cuts;
    return tern_strf("%.*s...", (int)n, s);
}

static void add_tag(struct job *j, json_t *to, const char *key, const char *value)
{
    if (!value || !*value)
        return;
    char *text = cut(value, TAG_MAX, &j->done.cut);
    json_array_append_new(to, json_pack("{s:s, s:o}", "key", key, "value", tern_json_text(text)));
    free(text);
}

static void add_notes(struct job *j, json_t *to)
{
    struct tern_ledger_table t = {0};
    struct tern_buf notes = {0};

    if (tern_ledger_sql(j->run, "SELECT text FROM note ORDER BY number", NOTE_ROWS, 10, &t, NULL) <
        0)
        return;
    for (size_t i = 0; i < t.n_rows * t.n_columns; i++)
        tern_buf_printf(&notes, "%s%s", i ? "\n\n" : "", t.cells[i].text ? t.cells[i].text : "");
    add_tag(j, to, "mlflow.note.content", notes.data);
    tern_buf_free(&notes);
    tern_ledger_table_free(&t);
}

static json_t *make_tags(struct job *j)
{
    const struct tern_ledger_run *r = j->r;
    json_t *tags = json_array();
    char job[TERN_LEDGER_JOB_SIZE], attempts[24];

    snprintf(attempts, sizeof attempts, "%" PRIu32, r->attempts);
    add_tag(j, tags, RUN_TAG, r->id);
    add_tag(j, tags, "mlflow.runName", r->name);
    add_tag(j, tags, "mlflow.user", r->user);
    add_tag(j, tags, "mlflow.source.name", "tern");
    add_tag(j, tags, "mlflow.source.type", "JOB");
    add_tag(j, tags, "tern.name", r->name);
    add_tag(j, tags, "tern.state", r->state);
    add_tag(j, tags, "tern.model", r->model);
    add_tag(j, tags, "tern.identity_hash", r->identity_hash);
    add_tag(j, tags, "tern.recipe_hash", r->full_hash);
    add_tag(j, tags, "tern.attempts", attempts);
    add_tag(j, tags, "tern.job", tern_ledger_job_name(job, r->job_id, r->array_job, r->array_task));
    add_tag(j, tags, "tern.tags", r->tags);
    add_notes(j, tags);
    return tags;
}

/* What the run there has already: params never change. */
static int get_params(struct job *j, json_t **ret_params, struct tern_err *err)
{
    char *call = tern_strf("runs/get?run_id=%s", j->done.run_id);
    json_t *answer = NULL;
    enum tern_mlflow_answer a = tern_mlflow_do(j->m, call, NULL, &answer, err);
    const json_t *list =
        json_object_get(json_object_get(json_object_get(answer, "run"), "data"), "params");
    int rc = a == TERN_MLFLOW_DONE     ? 0
             : a == TERN_MLFLOW_FAILED ? -1
                                       : tern_mlflow_strange(j->m, call, err);

    *ret_params = json_object();
    for (size_t i = 0; rc == 0 && i < json_array_size(list); i++) {
        const json_t *p = json_array_get(list, i);
        const char *key = json_string_value(json_object_get(p, "key"));
        if (key)
            json_object_set(*ret_params, key, json_object_get(p, "value"));
    }
    json_decref(answer);
    free(call);
    return rc;
}

/* A batch of one kind, which is then empty. */
static int send(struct job *j, const char *kind, json_t *list, struct tern_err *err)
{
    if (json_array_size(list) == 0)
        return 0;
    json_t *body = json_pack("{s:s, s:O}", "run_id", j->done.run_id, kind, list);
    enum tern_mlflow_answer a = tern_mlflow_do(j->m, "runs/log-batch", body, NULL, err);

    json_decref(body);
    json_array_clear(list);
    if (a > 0)
        return tern_err_set(err, TERN_TEMPFAIL, "%s: the run was deleted there meanwhile",
                            tern_mlflow_url(j->m));
    return a == TERN_MLFLOW_DONE ? 0 : -1;
}

static int send_params(struct job *j, struct tern_err *err)
{
    json_t *there = NULL, *list = json_array();
    int rc = get_params(j, &there, err);

    for (size_t i = 0; rc == 0 && i < j->what->n_params; i++) {
        const struct tern_mlflow_param *p = &j->what->params[i];
        bool changed;
        char *key = tern_mlflow_key(p->key, &changed),
             *value = cut(p->value, PARAM_MAX, &j->done.cut);
        json_t *text = tern_json_text(value), *old = json_object_get(there, key);
        if (old)
            j->done.kept += !json_equal(old, text);
        else
            json_array_append_new(list, json_pack("{s:s, s:O}", "key", key, "value", text));
        if (json_array_size(list) == PARAMS)
            rc = send(j, "params", list, err);
        json_decref(text);
        free(value);
        free(key);
    }
    if (rc == 0)
        rc = send(j, "params", list, err);
    json_decref(list);
    json_decref(there);
    return rc;
}

/* ---------------------------------------------------------------- values */

static int refuse_change(struct job *j, const char *key, int64_t step, struct tern_err *err)
{
    return tern_err_set(
        err, TERN_USAGE,
        "%s: run %s has a value of '%s' at step %" PRId64
        " that the ledger's run has not, or not any "
        "more: a later attempt did steps again. MLflow takes no value back. Delete that run there "
        "(mlflow runs delete --run-id %s) and export again.",
        tern_mlflow_url(j->m), j->done.run_id, key, step, j->done.run_id);
}

static int put_point(struct job *j, const char *key, const struct tern_mlflow_point *p,
                     struct tern_err *err)
{
    json_array_append_new(j->batch, json_pack("{s:s, s:o, s:I, s:I}", "key", key, "value",
                                              tern_json_real(p->value), "timestamp",
                                              (json_int_t)p->time_ms, "step", (json_int_t)p->step));
    j->done.sent++;
    tern_progress_add(1);
    return json_array_size(j->batch) < METRICS ? 0 : send(j, "metrics", j->batch, err);
}

/* `here` is in order of step. */
static int put_points(struct job *j, const char *name, const struct tern_mlflow_points *here,
                      struct tern_err *err)
{
    struct tern_mlflow_points there = {0};
    bool changed;
    char *key = tern_mlflow_key(name, &changed);
    int rc = j->done.new_run ? 0 : tern_mlflow_history(j->m, j->done.run_id, key, &there, err);

    for (size_t i = 0; rc == 0 && j->check && i < there.n; i++)
        if (!tern_mlflow_points_have(here, &there.point[i]))
            rc = refuse_change(j, key, there.point[i].step, err);
    for (size_t i = 0; rc == 0 && !j->check && i < here->n; i++) {
        if (!tern_mlflow_points_have(&there, &here->point[i])) {
            rc = put_point(j, key, &here->point[i], err);
        } else {
            j->done.there++;
            tern_progress_add(1);
        }
    }
    j->done.renamed += changed && !j->check;
    tern_mlflow_points_free(&there);
    free(key);
    return rc;
}

static int put_metric(struct job *j, const char *name, struct tern_err *err)
{
    struct tern_ledger_series s = {0};
    struct tern_mlflow_points here = {0};
    int rc = tern_ledger_series(j->run, name, /* all= */ false, &s, err);

    for (size_t i = 0; rc == 0 && i < s.n; i++)
        rc = tern_mlflow_points_add(&here, (int64_t)s.step[i], s.wall_ns[i] / 1000000, s.value[i],
                                    err);
    if (rc == 0 && !j->check)
        tern_progress_expect(here.n);
    if (rc == 0)
        rc = put_points(j, name, &here, err);
    tern_mlflow_points_free(&here);
    tern_ledger_series_free(&s);
    return rc;
}

static int put_set(struct job *j, const char *set, bool bytes, struct tern_err *err)
{
    struct tern_mlflow_points here = {0};
    char *name = tern_strf("held_out/%s/perplexity_%s", set, bytes ? "byte" : "token");
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < j->evals.n; i++) {
        const struct tern_ledger_eval *e = &j->evals.evals[i];
        if (!e->effective || strcmp(e->set, set) != 0 || (bytes ? e->bytes : e->tokens) <= 0)
            continue;
        rc = tern_mlflow_points_add(&here, e->step, e->wall_ns / 1000000,
                                    bytes ? e->ppl_byte : e->ppl_token, err);
    }
    if (rc == 0)
        rc = put_points(j, name, &here, err);
    tern_mlflow_points_free(&here);
    free(name);
    return rc;
}

/* Each set once: at its first evaluation. */
static int put_evals(struct job *j, struct tern_err *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < j->evals.n; i++) {
        bool first = true;
        for (size_t k = 0; k < i && first; k++)
            first = strcmp(j->evals.evals[k].set, j->evals.evals[i].set) != 0;
        if (first && (put_set(j, j->evals.evals[i].set, /* bytes= */ false, err) < 0 ||
                      put_set(j, j->evals.evals[i].set, /* bytes= */ true, err) < 0))
            rc = -1;
    }
    return rc;
}

static int put_values(struct job *j, bool check, struct tern_err *err)
{
    int rc = 0;

    j->check = check;
    for (size_t i = 0; rc == 0 && i < j->metrics.n; i++)
        rc = put_metric(j, j->metrics.names[i], err);
    if (rc == 0)
        rc = put_evals(j, err);
    return rc == 0 ? send(j, "metrics", j->batch, err) : rc;
}

/* ---------------------------------------------------------------- the whole */

static int finish(struct job *j, struct tern_err *err)
{
    const struct tern_ledger_run *r = j->r;
    const char *state = r->state ? r->state : "running";
    const int64_t end_ns = j->attempts.n ? j->attempts.attempts[j->attempts.n - 1].end_ns : 0;
    const bool runs = strcmp(state, "running") == 0, stopped = strcmp(state, "halted") == 0 ||
                                                               strcmp(state, "preempted") == 0 ||
                                                               strcmp(state, "time_limit") == 0;
    json_t *body = json_pack("{s:s, s:s}", "run_id", j->done.run_id, "status",
                             runs                         ? "RUNNING"
                             : strcmp(state, "done") == 0 ? "FINISHED"
                             : stopped                    ? "KILLED"
                                                          : "FAILED");
    json_t *tags = make_tags(j);
    int rc = send(j, "tags", tags, err);

    if (!runs && end_ns)
        json_object_set_new(body, "end_time", json_integer(end_ns / 1000000));
    if (rc == 0) {
        enum tern_mlflow_answer a = tern_mlflow_do(j->m, "runs/update", body, NULL, err);
        rc = a == TERN_MLFLOW_DONE     ? 0
             : a == TERN_MLFLOW_FAILED ? -1
                                       : tern_mlflow_strange(j->m, "runs/update", err);
    }
    json_decref(tags);
    json_decref(body);
    return rc;
}

static int find_or_make(struct job *j, struct tern_err *err)
{
    json_t *name = tern_json_text(j->what->experiment);
    json_t *experiment = json_pack("{s:O}", "name", name), *run = NULL;
    const struct making e = {find_experiment, "experiments/create", NULL,
                             "experiment_id", experiment,           j->experiment};
    bool made;
    int rc = make(j, &e, &made, err);

    if (rc == 0) {
        int64_t begin = j->r->created_ns ? j->r->created_ns
                        : j->attempts.n  ? j->attempts.attempts[0].begin_ns
                                         : 0;
        run = json_pack("{s:s, s:I, s:o, s:o}", "experiment_id", j->experiment, "start_time",
                        (json_int_t)(begin / 1000000), "run_name",
                        tern_json_text(j->r->name && *j->r->name ? j->r->name : j->r->id), "tags",
                        make_tags(j));
        const struct making r = {find_run, "runs/create", "run", "run_id", run, j->done.run_id};
        rc = make(j, &r, &j->done.new_run, err);
    }
    json_decref(run);
    json_decref(experiment);
    json_decref(name);
    j->done.cut = 0;
    return rc;
}

int tern_mlflow_export(struct tern_mlflow *m, struct tern_ledger *run,
                       const struct tern_mlflow_what *what, struct tern_mlflow_done *ret_done,
                       struct tern_err *err)
{
    struct job j = {.m = m, .run = run, .what = what, .batch = json_array()};
    int rc = -1;

    if (tern_ledger_runs(run, &j.runs, err) < 0 || tern_ledger_metrics(run, &j.metrics, err) < 0 ||
        tern_ledger_evals(run, &j.evals, err) < 0 ||
        tern_ledger_attempts(run, &j.attempts, err) < 0)
        goto out;
    if (j.runs.n != 1) {
        tern_err_set(err, TERN_USAGE, "the run has no records yet");
        goto out;
    }
    j.r = &j.runs.runs[0];
    if (find_or_make(&j, err) < 0 ||
        (!j.done.new_run && put_values(&j, /* check= */ true, err) < 0))
        goto out;
    if (send_params(&j, err) < 0 || put_values(&j, /* check= */ false, err) < 0 ||
        finish(&j, err) < 0)
        goto out;
    *ret_done = j.done;
    rc = 0;
out:
    json_decref(j.batch);
    tern_ledger_rows_free(&j.runs);
    tern_ledger_rows_free(&j.metrics);
    tern_ledger_rows_free(&j.evals);
    tern_ledger_rows_free(&j.attempts);
    return rc;
}
