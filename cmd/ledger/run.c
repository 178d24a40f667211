/* tern ledger show: everything about one run. */
#include "cmd/ledger/recipe.h"
#include "cmd/ledger/show.h"

#include "core/base/clock.h"
#include "core/base/str.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static bool only_attempts, only_checkpoints, only_evals, only_events, only_recipe, only_health,
    only_mix, only_metrics;

static const struct tern_report_field attempt_fields[] = {
    {"attempt", "its number in the run", true},
    {"kind", "train; precompile, trial, smoke, health: values do not count", false},
    {"jobid", "Slurm job", true},
    {"restarts", "Slurm's restart count of that job", true},
    {"outcome", "how it ended; running, or no end: its owner died", false},
    {"exit", "exit status", true},
    {"signal", "that ended it", true},
    {"begin", "when it began", false},
    {"end", "when it ended", false},
    {"took", "from its beginning to its end", true},
    {"resumed", "step of the checkpoint it began from", true},
    {"first", "first step with values", true},
    {"last", "last step with values", true},
    {"world", "ranks", true},
    {"nodes", "its nodes", false},
    {"host", "where its owner ran", false},
    {"cause", "what ended it", false},
    {"checkpoint", "path of the checkpoint it began from", false},
};
static const struct tern_report_field checkpoint_fields[] = {
    {"step", "of which", true},
    {"state", "writing, published, verified, failed, deleted, foreign", false},
    {"attempt", "that made it", true},
    {"effective", "no: a later attempt began before it", false},
    {"size", "of all shards", true},
    {"shards", "how many", true},
    {"time", "of its newest record", false},
    {"path", "where it is", false},
    {"manifest", "SHA-256 of its manifest", false},
};
static const struct tern_report_field event_fields[] = {
    {"time", "when", false},
    {"attempt", "of the run", true},
    {"severity", "info, warn, error", false},
    {"kind", "one word", false},
    {"node", "where", false},
    {"text", "what happened", false},
    {"writer", "process that reported it", false},
};
static const struct tern_report_field health_fields[] = {
    {"time", "when", false},
    {"attempt", "that ran the check", true},
    {"node", "that was looked at; empty: all of them together", false},
    {"check", "its id", false},
    {"verdict", "ok, node_bad, fabric_bad, storage_bad, unknown, skipped", false},
    {"severity", "info, warn, error", false},
    {"value", "what was measured", true},
    {"unit", "of it", false},
    {"seconds", "that it took", true},
    {"text", "what was found", false},
};
#define COUNT(a) (sizeof(a) / sizeof *(a))

static void cell_took(struct show_cells *t, const struct tern_ledger_attempt *a)
{
    const double seconds = (double)(a->end_ns - a->begin_ns) * 1e-9;
    char text[32];

    if (!a->begin_ns || !a->end_ns)
        show_cell_text(t, NULL);
    else if (show.parsable)
        show_cell_text(t, tern_str_exact(text, sizeof text, seconds));
    else
        show_cell_text(t, show_short_seconds(text, seconds));
}

static struct show_cells attempt_cells(const struct tern_ledger_rows *rows)
{
    struct show_cells t = {.fields = attempt_fields, .n_fields = COUNT(attempt_fields)};
    char job[TERN_LEDGER_JOB_SIZE];

    for (size_t i = 0; i < rows->n; i++) {
        const struct tern_ledger_attempt *a = &rows->attempts[i];
        show_cell_int(&t, a->attempt, -1);
        show_cell_text(&t, a->kind);
        show_cell_text(&t, tern_ledger_job_name(job, a->job_id, a->array_job, a->array_task));
        show_cell_int(&t, a->restart_count, -1);
        const bool alive = i + 1 == rows->n && !show_silent(a->run_id);
        show_cell_text(&t, a->outcome ? a->outcome : alive ? "running" : "no end");
        if (a->outcome)
            show_cell_int(&t, a->exit_code, -1);
        else
            show_cell_text(&t, NULL);
        show_cell_int(&t, a->signal, 0);
        show_cell_time(&t, a->begin_ns);
        show_cell_time(&t, a->end_ns);
        cell_took(&t, a);
        show_cell_int(&t, a->resumed_step, -1);
        show_cell_int(&t, a->first_step, -1);
        show_cell_int(&t, a->last_step, -1);
        show_cell_int(&t, a->world, 0);
        show_cell_text(&t, a->nodes);
        show_cell_text(&t, a->host);
        show_cell_text(&t, a->cause);
        show_cell_text(&t, a->resumed_checkpoint);
    }
    return t;
}

static int attempts(const struct tern_ledger_rows *rows, struct tern_err *err)
{
    struct show_cells t = attempt_cells(rows);

    return show_table(&t,
                      "attempt,kind,jobid,restarts,outcome,exit,begin,end,resumed,last,nodes,cause",
                      NULL, err);
}

int show_attempts(struct tern_buf *to, const struct tern_ledger_rows *rows, int columns,
                  struct tern_err *err)
{
    struct show_cells t = attempt_cells(rows);

    return show_table_put(to, &t, "attempt,jobid,outcome,begin,took,resumed,last,nodes",
                          "outcome,nodes", columns, err);
}

/* Bytes of the folder that all of them lie in, its last '/' among them; 0: in several. */
static size_t folder_of(const struct tern_ledger_rows *rows)
{
    const char *first = rows->n ? rows->checkpoints[0].path : "";
    const char *slash = strrchr(first, '/');
    size_t len = slash ? (size_t)(slash - first) + 1 : 0;

    for (size_t i = 1; i < rows->n && len; i++) {
        const char *path = rows->checkpoints[i].path;
        if (strncmp(path, first, len) != 0 || strchr(path + len, '/'))
            len = 0;
    }
    return len;
}

/* Of each path `skip` bytes are left out. */
static struct show_cells checkpoint_cells(const struct tern_ledger_rows *rows, size_t skip)
{
    struct show_cells t = {.fields = checkpoint_fields, .n_fields = COUNT(checkpoint_fields)};
    char size[32];

    for (size_t i = 0; i < rows->n; i++) {
        const struct tern_ledger_checkpoint *c = &rows->checkpoints[i];
        show_cell_int(&t, c->step, -1);
        show_cell_text(&t, c->state);
        show_cell_int(&t, c->attempt, -1);
        show_cell_text(&t, c->effective ? "yes" : "no");
        if (show.parsable)
            show_cell_int(&t, c->bytes, 0);
        else
            show_cell_text(&t,
                           c->bytes ? tern_str_bytes(size, sizeof size, (uint64_t)c->bytes) : NULL);
        show_cell_int(&t, c->shards, 0);
        show_cell_time(&t, c->wall_ns);
        show_cell_text(&t, c->path + skip);
        show_cell_text(&t, c->manifest_sha256);
    }
    return t;
}

static int checkpoints(const struct tern_ledger_rows *rows, struct tern_err *err)
{
    struct show_cells t = checkpoint_cells(rows, 0);

    return show_table(&t, "step,state,attempt,effective,size,shards,time,path", NULL, err);
}

int show_checkpoints(struct tern_buf *to, const struct tern_ledger_rows *rows, int columns,
                     struct tern_err *err)
{
    const size_t len = folder_of(rows);

    if (rows->n == 0)
        return 0;
    struct show_cells t = checkpoint_cells(rows, len);
    char *heading =
        tern_strf("checkpoints%s%.*s", len ? " in " : "", (int)len, rows->checkpoints[0].path);
    tern_str_mask(heading);
    tern_buf_printf(to, "%s\n", heading);
    free(heading);
    return show_table_put(to, &t, "step,state,attempt,effective,size,path", "", columns, err);
}

static int events(const struct tern_ledger_rows *rows, struct tern_err *err)
{
    struct show_cells t = {.fields = event_fields, .n_fields = COUNT(event_fields)};

    for (size_t i = 0; i < rows->n; i++) {
        const struct tern_ledger_event *e = &rows->events[i];
        show_cell_time(&t, e->wall_ns);
        show_cell_int(&t, e->attempt, -1);
        show_cell_text(&t, e->severity);
        show_cell_text(&t, e->kind);
        show_cell_text(&t, e->node);
        show_cell_text(&t, e->text);
        show_cell_text(&t, e->writer);
    }
    return show_table(&t, "time,attempt,severity,kind,node,text", NULL, err);
}

static int health(const struct tern_ledger_rows *rows, struct tern_err *err)
{
    struct show_cells t = {.fields = health_fields, .n_fields = COUNT(health_fields)};

    for (size_t i = 0; i < rows->n; i++) {
        const struct tern_ledger_health *h = &rows->health[i];
        show_cell_time(&t, h->wall_ns);
        show_cell_int(&t, h->attempt, -1);
        show_cell_text(&t, h->node);
        show_cell_text(&t, h->check);
        show_cell_text(&t, h->verdict);
        show_cell_text(&t, h->severity);
        show_cell_real(&t, h->value, !isnan(h->value));
        show_cell_text(&t, h->unit);
        show_cell_real(&t, h->seconds, true);
        show_cell_text(&t, h->text);
    }
    return show_table(&t, "time,attempt,node,check,verdict,value,unit,text", NULL, err);
}

struct everything {
    struct tern_ledger *ledger;
    struct tern_ledger_rows run, attempts, checkpoints, evals, evaluated, events, health, metrics;
};

static int read_all(struct tern_ledger *l, struct everything *e, struct tern_err *err)
{
    return tern_ledger_runs(l, &e->run, err) < 0 ||
                   tern_ledger_attempts(l, &e->attempts, err) < 0 ||
                   tern_ledger_checkpoints(l, &e->checkpoints, err) < 0 ||
                   tern_ledger_evals(l, &e->evals, err) < 0 ||
                   tern_ledger_evaluated_rows(l, &e->evaluated, err) < 0 ||
                   tern_ledger_events(l, &e->events, err) < 0 ||
                   tern_ledger_health_rows(l, &e->health, err) < 0 ||
                   tern_ledger_metrics(l, &e->metrics, err) < 0
               ? -1
               : 0;
}

static void release(struct everything *e)
{
    tern_ledger_rows_free(&e->run);
    tern_ledger_rows_free(&e->attempts);
    tern_ledger_rows_free(&e->checkpoints);
    tern_ledger_rows_free(&e->evals);
    tern_ledger_rows_free(&e->evaluated);
    tern_ledger_rows_free(&e->events);
    tern_ledger_rows_free(&e->health);
    tern_ledger_rows_free(&e->metrics);
}

static json_t *json_health(const struct tern_ledger_health *h)
{
    json_t *j = json_object();

    json_object_set_new(j, "time", show_json_time(h->wall_ns));
    json_object_set_new(j, "attempt", json_integer(h->attempt));
    json_object_set_new(j, "node", show_json_text(h->node));
    json_object_set_new(j, "check", show_json_text(h->check));
    json_object_set_new(j, "verdict", show_json_text(h->verdict));
    json_object_set_new(j, "severity", show_json_text(h->severity));
    json_object_set_new(j, "value", isnan(h->value) ? json_null() : tern_json_real(h->value));
    json_object_set_new(j, "unit", show_json_text(h->unit));
    json_object_set_new(j, "seconds", tern_json_real(h->seconds));
    json_object_set_new(j, "text", show_json_text(h->text));
    return j;
}

static json_t *json_event(const struct tern_ledger_event *e)
{
    json_t *j = json_object();

    json_object_set_new(j, "time", show_json_time(e->wall_ns));
    json_object_set_new(j, "attempt", json_integer(e->attempt));
    json_object_set_new(j, "severity", show_json_text(e->severity));
    json_object_set_new(j, "kind", show_json_text(e->kind));
    json_object_set_new(j, "node", show_json_text(e->node));
    json_object_set_new(j, "text", show_json_text(e->text));
    json_object_set_new(j, "writer", show_json_text(e->writer));
    return j;
}

static int print_json(const struct everything *e, struct tern_err *err)
{
    json_t *j = e->run.n ? show_json_run(&e->run.runs[0]) : json_object();
    json_t *a = json_array(), *c = json_array(), *v = json_array(), *k = json_array(),
           *m = json_array(), *h = json_array();

    for (size_t i = 0; i < e->attempts.n; i++)
        json_array_append_new(a, show_json_attempt(&e->attempts.attempts[i]));
    for (size_t i = 0; i < e->checkpoints.n; i++)
        json_array_append_new(c, show_json_checkpoint(&e->checkpoints.checkpoints[i]));
    for (size_t i = 0; i < e->evals.n; i++)
        json_array_append_new(v, show_json_eval(&e->evals.evals[i], &e->evaluated));
    for (size_t i = 0; i < e->events.n; i++)
        json_array_append_new(k, json_event(&e->events.events[i]));
    for (size_t i = 0; i < e->metrics.n; i++)
        json_array_append_new(m, show_json_text(e->metrics.names[i]));
    for (size_t i = 0; i < e->health.n; i++)
        json_array_append_new(h, json_health(&e->health.health[i]));
    /* "attempts" of the run is their number; the rows stand beside it. */
    json_object_set_new(j, "attempt_rows", a);
    json_object_set_new(j, "checkpoints", c);
    json_object_set_new(j, "evals", v);
    json_object_set_new(j, "events", k);
    json_object_set_new(j, "metrics", m);
    json_object_set_new(j, "health", h);
    json_object_set_new(j, "lineage", show_json_lineage(e->ledger, &e->attempts));
    json_object_set_new(j, "mix", show_json_mix(e->ledger, &e->metrics));
    if (e->run.n)
        json_object_set_new(j, "recipe", show_json_text(e->run.runs[0].recipe));
    return show_json(j, err);
}

/* All of them, of ranks the first one's alone. */
static void print_metrics(const struct tern_ledger_rows *m)
{
    struct tern_buf b = {0};
    size_t ranks = 0;

    for (size_t i = 0; i < m->n; i++) {
        if (show_rank_metric(m->names[i]))
            ranks++;
        else if (!show_is_mix(m->names[i]))
            tern_buf_printf(&b, "%s ", m->names[i]);
    }
    if (ranks)
        tern_buf_printf(&b, "and %zu of single ranks, rankN/... (tern ledger show --metrics)",
                        ranks);
    show_wrapped("metrics", "%s", b.data ? b.data : "none");
    tern_buf_free(&b);
}

static void print_notes(struct tern_ledger *l)
{
    struct tern_ledger_table t = {0};

    if (tern_ledger_sql(l, "SELECT number, text FROM note ORDER BY number", 1000, 10, &t, NULL) ==
        0)
        for (size_t i = 0; i < t.n_rows; i++)
            show_wrapped(i ? "" : "notes", "%lld: %s", (long long)t.cells[2 * i].integer,
                         t.cells[2 * i + 1].text ? t.cells[2 * i + 1].text : "");
    tern_ledger_table_free(&t);
}

static void print_head(const struct everything *e)
{
    if (!e->run.n)
        return;
    const struct tern_ledger_run *r = &e->run.runs[0];
    const char *state = show_state(r);
    const int64_t steps = show_steps(r);
    struct tern_buf b = {0};

    tern_cmd_say("run %s  %s", r->id, r->name ? r->name : "");
    tern_buf_printf(&b, "%s", state ? state : "unknown");
    if (r->last_step >= 0)
        tern_buf_printf(&b, ", step %lld", (long long)r->last_step);
    if (r->last_step >= 0 && steps > 0)
        tern_buf_printf(&b, " of %lld", (long long)steps);
    if (r->has_loss)
        tern_buf_printf(&b, ", loss %.4f", r->last_loss);
    show_wrapped("state", "%s", b.data);
    tern_buf_free(&b);
    if (r->lost)
        show_wrapped("lost",
                     "%lld records that the storage did not take (tern ledger show --events)",
                     (long long)r->lost);
    if (r->model)
        show_wrapped("model", "%s", r->model);
    if (r->recipe_path)
        show_wrapped("recipe", "%s%s%.12s", r->recipe_path, r->full_hash ? "  sha256 " : "",
                     r->full_hash ? r->full_hash : "");
    if (r->tags)
        show_wrapped("tags", "%s", r->tags);
    print_notes(e->ledger);
    print_metrics(&e->metrics);
}

void show_causes(struct tern_buf *to, const struct tern_ledger_rows *rows, int columns)
{
    for (size_t i = 0; i < rows->n; i++) {
        const struct tern_ledger_attempt *a = &rows->attempts[i];
        if (!a->cause || !*a->cause)
            continue;
        char *label = tern_strf("%u ended", (unsigned)a->attempt);
        show_wrap(to, columns, label, "%s", a->cause);
        free(label);
    }
}

/* Those of evaluations stand with their values. */
static bool is_evaluation(const struct tern_ledger_event *e)
{
    return e->kind && strcmp(e->kind, TERN_LEDGER_EVALUATED) == 0;
}

void show_events(struct tern_buf *to, const struct tern_ledger_rows *rows, int columns)
{
    for (size_t i = 0; i < rows->n; i++) {
        const struct tern_ledger_event *e = &rows->events[i];
        if (is_evaluation(e))
            continue;
        char at[40] = "", *label = tern_strf("attempt %u", (unsigned)e->attempt);
        if (e->wall_ns)
            tern_clock_iso8601(at, sizeof at, e->wall_ns);
        show_wrap(to, columns, label, "%.19s %s %s%s%s: %s", at, e->severity ? e->severity : "",
                  e->kind ? e->kind : "", e->node ? " on " : "", e->node ? e->node : "",
                  e->text ? e->text : "");
        free(label);
    }
}

static int print_all(const struct everything *e, struct tern_err *err)
{
    if (show.format)
        return tern_err_set(err, TERN_USAGE,
                            "-o needs one table: --attempts, --checkpoints, --evals, --mix, "
                            "--metrics or --events");
    print_head(e);
    const int columns = tern_cmd_columns();
    struct tern_buf b = {0};
    if (show_lineage(&b, e->ledger, &e->attempts, columns, err) < 0)
        goto fail;
    tern_buf_puts(&b, "\nattempts\n");
    if (show_attempts(&b, &e->attempts, columns, err) < 0)
        goto fail;
    show_causes(&b, &e->attempts, columns);
    tern_buf_puts(&b, e->checkpoints.n ? "\n" : "");
    if (show_checkpoints(&b, &e->checkpoints, columns, err) < 0)
        goto fail;
    if (show_buf(&b, err) < 0)
        return -1;
    if (show_has_mix(&e->metrics)) {
        printf("\ntraining sets\n");
        if (show_mix(e->ledger, &e->metrics, err) < 0)
            return -1;
    }
    if (e->evals.n) {
        printf("\nheld-out sets\n");
        if (show_evals(&e->evals, &e->evaluated, err) < 0)
            return -1;
    }
    show_events(&b, &e->events, columns);
    if (b.len)
        printf("\nevents\n");
    return show_buf(&b, err);
fail:
    tern_buf_free(&b);
    return -1;
}

static int help_fields(void)
{
    if (only_checkpoints)
        return show_fields(checkpoint_fields, COUNT(checkpoint_fields));
    if (only_evals)
        return show_fields(show_eval_fields, SHOW_EVAL_FIELDS);
    if (only_events)
        return show_fields(event_fields, COUNT(event_fields));
    if (only_health)
        return show_fields(health_fields, COUNT(health_fields));
    if (only_metrics)
        return show_fields(show_metric_fields, SHOW_METRIC_FIELDS);
    if (only_mix)
        return show_fields(show_mix_fields, SHOW_MIX_FIELDS);
    return show_fields(attempt_fields, COUNT(attempt_fields));
}

static int run(int n_args, char **args, struct tern_err *err)
{
    struct everything e = {0};
    int rc = -1;

    if (show_has_fields())
        return help_fields();
    struct tern_ledger *l = show_open_run(n_args ? args[0] : NULL, err);
    if (!l || read_all(l, &e, err) < 0)
        goto out;
    e.ledger = l;
    if (show.json)
        rc = print_json(&e, err);
    else if (only_recipe)
        rc = e.run.n && e.run.runs[0].recipe
                 ? (fputs(e.run.runs[0].recipe, stdout) < 0 ? -1 : 0)
                 : tern_err_set(err, TERN_FAILED, "the run's recipe was not recorded");
    else if (only_attempts)
        rc = attempts(&e.attempts, err);
    else if (only_checkpoints)
        rc = checkpoints(&e.checkpoints, err);
    else if (only_evals)
        rc = show_evals(&e.evals, &e.evaluated, err);
    else if (only_events)
        rc = events(&e.events, err);
    else if (only_health)
        rc = health(&e.health, err);
    else if (only_metrics)
        rc = show_metrics(l, &e.metrics, err);
    else if (only_mix)
        rc = show_mix(l, &e.metrics, err);
    else
        rc = print_all(&e, err);
out:
    release(&e);
    tern_ledger_close(l);
    return rc;
}

static const struct tern_opt opts[] = {
    SHOW_OPT_LEDGER,
    {"attempts", 'a', TERN_OPT_FLAG, .to.flag = &only_attempts, .help = "only the attempts"},
    {"checkpoints", 'c', TERN_OPT_FLAG, .to.flag = &only_checkpoints,
     .help = "only the checkpoints"},
    {"evals", 0, TERN_OPT_FLAG, .to.flag = &only_evals, .help = "only the held-out sets"},
    {"events", 0, TERN_OPT_FLAG, .to.flag = &only_events, .help = "only the events"},
    {"health", 0, TERN_OPT_FLAG, .to.flag = &only_health,
     .help = "only what checks of the nodes found"},
    {"metrics", 'm', TERN_OPT_FLAG, .to.flag = &only_metrics,
     .help = "only the metrics: newest, least and greatest value of each"},
    {"mix", 0, TERN_OPT_FLAG, .to.flag = &only_mix,
     .help = "only the training sets: samples, tokens and epochs of each, up to the newest "
             "checkpoint"},
    {"recipe", 0, TERN_OPT_FLAG, .to.flag = &only_recipe, .help = "print the recipe it ran with"},
    SHOW_OPT_FORMAT,
    SHOW_OPT_STYLE,
    {0},
};

const struct tern_cmd ledger_show = {
    .name = "show",
    .args = "[RUN]",
    .summary = "show one run: attempts, checkpoints, held-out sets, events",
    .about =
        "Without an option that names one table all of them are shown, as wide as the "
        "terminal; those options, -o and -P show cells whole. The lineage has the base model "
        "with its digest, the token sets and the files that a workload's command names. It also "
        "has tern's version and the tokenizer's sha256, as in `tern data info`. Of a base that is "
        "a run's checkpoint it has that run and the step. "
        "RUN is an id, a unique beginning of one (at least 4 characters), a name (then the "
        "newest of that name) or 'latest'. Without RUN it is 'latest'.",
    .examples = "  tern ledger show\n"
                "  tern ledger show pubmed-cpt --attempts -o attempt,nodes,cause%-60\n",
    .opts = opts,
    .args_max = 1,
    .run = run,
};
