/* tern ledger why: what ended each attempt of a run, how that is known, and what was lost. */
#include "cmd/ledger/facts.h"

#include "core/base/clock.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { SQL_SECONDS = 30, EVIDENCE_MAX = 8, NAME_SHOWN = 40 };

static bool whole;

struct past {
    const struct show_facts *facts;
    struct tern_ledger_rows events, health;
    struct tern_ledger_table lost; /* attempt, steps, seconds: done again by a later attempt */
};

/* What was lost with an attempt; -1 and NAN: not known. */
struct loss {
    int64_t steps;
    double seconds; /* of training */
    double pause;   /* until the next attempt began */
    int64_t from;   /* the next attempt's first step; -1: there is none, or it is not known */
};

static int read_past(const struct show_facts *facts, struct past *p, struct tern_err *err)
{
    static const char sql[] =
        "SELECT attempt, count(*), sum(CASE name WHEN 'step_seconds' THEN value END) FROM step_all"
        " JOIN attempt USING(attempt) WHERE name = (SELECT name FROM metric WHERE name IN"
        " ('step_seconds', 'loss') ORDER BY name = 'loss' LIMIT 1) AND NOT effective AND"
        " kind = 'train' GROUP BY attempt";

    p->facts = facts;
    return tern_ledger_events(p->facts->ledger, &p->events, err) < 0 ||
                   tern_ledger_health_rows(p->facts->ledger, &p->health, err) < 0 ||
                   tern_ledger_sql(p->facts->ledger, sql, SIZE_MAX, SQL_SECONDS, &p->lost, err) < 0
               ? -1
               : 0;
}

static void free_past(struct past *p)
{
    tern_ledger_rows_free(&p->events);
    tern_ledger_rows_free(&p->health);
    tern_ledger_table_free(&p->lost);
}

static const struct tern_ledger_attempt *next_of(const struct past *p, size_t i)
{
    for (size_t k = i + 1; k < p->facts->attempts.n; k++)
        if (show_attempt_trains(&p->facts->attempts.attempts[k]))
            return &p->facts->attempts.attempts[k];
    return NULL;
}

static struct loss find_loss(const struct past *p, size_t i)
{
    const struct tern_ledger_attempt *a = &p->facts->attempts.attempts[i], *next = next_of(p, i);
    struct loss loss = {.steps = 0, .seconds = p->facts->timed ? 0 : NAN, .pause = NAN, .from = -1};

    for (size_t k = 0; k < p->lost.n_rows; k++) {
        const struct tern_ledger_cell *c = &p->lost.cells[3 * k];
        if (c[0].integer != a->attempt)
            continue;
        loss.steps = c[1].integer;
        loss.seconds = c[2].kind == TERN_LEDGER_REAL ? c[2].real : NAN;
    }
    if (!next)
        return loss;
    loss.from = next->resumed_step >= 0 ? next->resumed_step + 1 : -1;
    if (a->end_ns && next->begin_ns > a->end_ns)
        loss.pause = (double)(next->begin_ns - a->end_ns) * 1e-9;
    return loss;
}

/* How it ended, in words; malloc'ed. */
static char *ending(const struct past *p, size_t i)
{
    const struct tern_ledger_attempt *a = &p->facts->attempts.attempts[i];
    const bool newest = i + 1 == p->facts->attempts.n;
    struct tern_buf b = {0};

    if (!a->outcome && newest && p->facts->state && strcmp(p->facts->state, "running") == 0)
        return tern_strdup("it is running");
    if (!a->outcome)
        return tern_strdup(newest ? "no end is recorded, and its owner is silent: the node, or the "
                                    "supervisor, is gone"
                                  : "no end is recorded: the node, or the supervisor, was gone at "
                                    "once");
    tern_buf_printf(&b, "%s", a->outcome);
    if (a->cause && *a->cause)
        tern_buf_printf(&b, ": %s", a->cause);
    if (a->exit_code || a->signal) {
        tern_buf_printf(&b, " (exit status %" PRId64, a->exit_code);
        if (a->signal)
            tern_buf_printf(&b, ", signal %" PRId64, a->signal);
        tern_buf_puts(&b, ")");
    }
    return b.data;
}

static bool is_evidence(const struct tern_ledger_event *e, uint32_t attempt)
{
    return e->attempt == attempt && (whole || (e->severity && strcmp(e->severity, "info") != 0 &&
                                               strcmp(e->severity, "ok") != 0));
}

static bool is_finding(const struct tern_ledger_health *h, uint32_t attempt)
{
    return h->attempt == attempt && h->verdict &&
           (whole || (strcmp(h->verdict, "ok") != 0 && strcmp(h->verdict, "skipped") != 0));
}

/* ---------------------------------------------------------------- words */

static void print_events(const struct past *p, uint32_t attempt)
{
    size_t n = 0, skip = 0;

    for (size_t i = 0; i < p->events.n; i++)
        n += is_evidence(&p->events.events[i], attempt);
    skip = !whole && n > EVIDENCE_MAX ? n - EVIDENCE_MAX : 0;
    if (skip)
        show_wrapped("evidence", "%zu earlier events are left out (--all shows them)", skip);
    for (size_t i = 0; i < p->events.n; i++) {
        const struct tern_ledger_event *e = &p->events.events[i];
        char at[40];
        if (!is_evidence(e, attempt) || (skip && skip-- > 0))
            continue;
        tern_clock_iso8601(at, sizeof at, e->wall_ns);
        at[19] = '\0';
        show_wrapped("evidence", "%s %s %s%s%s: %s", at + 11, e->severity ? e->severity : "",
                     e->kind ? e->kind : "", e->node ? " on " : "", e->node ? e->node : "",
                     e->text ? e->text : "");
    }
}

static void print_findings(const struct past *p, uint32_t attempt)
{
    for (size_t i = 0; i < p->health.n; i++) {
        const struct tern_ledger_health *h = &p->health.health[i];
        if (!is_finding(h, attempt))
            continue;
        char *value = isfinite(h->value) ? tern_strf(" (%.6g %s)", h->value, h->unit ? h->unit : "")
                                         : tern_strdup("");
        show_wrapped("evidence", "check %s%s%s: %s%s%s%s", h->check ? h->check : "",
                     h->node ? " of " : "", h->node ? h->node : "", h->verdict, value,
                     h->text ? ": " : "", h->text ? h->text : "");
        free(value);
    }
}

/* Its values came from files of another program: there are no logs and no checkpoints of it. */
static bool is_imported(const struct tern_ledger_attempt *a)
{
    return a->outcome && strcmp(a->outcome, "imported") == 0;
}

static void print_loss(const struct past *p, size_t i)
{
    const struct tern_ledger_attempt *a = &p->facts->attempts.attempts[i], *next = next_of(p, i);
    const struct loss loss = find_loss(p, i);
    char text[16] = "";

    if (isfinite(loss.seconds))
        show_short_seconds(text, loss.seconds);
    if (loss.steps > 0 && loss.from > 0)
        show_wrapped("lost",
                     "%" PRId64 " steps%s%s: attempt %" PRIu32 " began again with step %" PRId64,
                     loss.steps, *text ? ", " : "", text, next->attempt, loss.from);
    else if (loss.steps > 0)
        show_wrapped("lost", "%" PRId64 " steps%s%s: a later attempt did them again", loss.steps,
                     *text ? ", " : "", text);
    else if (next)
        show_wrapped("lost", "no step");
    if (isfinite(loss.pause))
        show_wrapped("", "%s until attempt %" PRIu32 " began", show_short_seconds(text, loss.pause),
                     next->attempt);
    if (next || !a->outcome || strcmp(a->outcome, "done") == 0 || is_imported(a) ||
        a->last_step < 0)
        return;
    if (p->facts->run->ckpt_step >= a->last_step)
        show_wrapped("lost", "no step: the checkpoint of step %" PRId64 " has all of them",
                     p->facts->run->ckpt_step);
    else if (p->facts->run->ckpt_step > 0)
        show_wrapped("lost", "%" PRId64 " steps, behind the newest checkpoint, of step %" PRId64,
                     a->last_step - p->facts->run->ckpt_step, p->facts->run->ckpt_step);
    else
        show_wrapped("lost", "%" PRId64 " steps: there is no checkpoint", a->last_step);
}

static void print_attempt(const struct past *p, size_t i)
{
    const struct tern_ledger_attempt *a = &p->facts->attempts.attempts[i];
    char job[TERN_LEDGER_JOB_SIZE], begin[40] = "", took[16];
    struct tern_buf b = {0};

    tern_ledger_job_name(job, a->job_id, a->array_job, a->array_task);
    if (a->begin_ns)
        tern_clock_iso8601(begin, sizeof begin, a->begin_ns);
    begin[a->begin_ns ? 19 : 0] = '\0';
    tern_buf_printf(&b, "\nattempt %" PRIu32, a->attempt);
    if (!show_attempt_trains(a))
        tern_buf_printf(&b, " (%s)", a->kind);
    if (*job)
        tern_buf_printf(&b, ", job %s", job);
    if (a->begin_ns)
        tern_buf_printf(
            &b, ", %s, %s", begin,
            show_short_seconds(took, show_attempt_seconds(a, p->facts->run->updated_ns)));
    putchar('\n');
    tern_cmd_say("%s", b.data + 1);
    tern_buf_free(&b);
    if (a->nodes)
        show_wrapped("nodes", "%s", a->nodes);
    if (a->last_step >= 0)
        show_wrapped("steps", "%" PRId64 " to %" PRId64 "%s%s", a->first_step, a->last_step,
                     a->resumed_checkpoint ? ", from " : "",
                     a->resumed_checkpoint ? a->resumed_checkpoint : "");
    char *ended = ending(p, i);
    show_wrapped("ended", "%s", ended);
    free(ended);
    print_findings(p, a->attempt);
    print_events(p, a->attempt);
    if (show_attempt_trains(a))
        print_loss(p, i);
    if (a->outcome && strcmp(a->outcome, "done") != 0 && !is_imported(a))
        show_wrapped("logs", "tern logs %s --attempt %" PRIu32, p->facts->id, a->attempt);
}

static void print(const struct past *p)
{
    const struct show_facts *f = p->facts;
    const char *name = f->run->name ? f->run->name : "";
    const size_t shown = tern_str_first(name, NAME_SHOWN);
    char wall[16], again[16], waited[16];

    tern_cmd_say("run %s  %.*s%s: %s", f->id, (int)shown, name, name[shown] ? "+" : "",
                 f->state ? f->state : "unknown");
    show_wrapped("time", "%s in %u attempts; %s of it between them",
                 show_short_seconds(wall, f->wall_s), (unsigned)f->run->attempts,
                 show_short_seconds(waited, f->waiting_s));
    if (f->repeated_steps)
        show_wrapped("lost", "%" PRIu64 " steps were done again%s%s", f->repeated_steps,
                     f->timed ? ", " : "",
                     f->timed ? show_short_seconds(again, f->repeated_s) : "");
    for (size_t i = 0; i < f->attempts.n; i++)
        print_attempt(p, i);
}

/* ---------------------------------------------------------------- JSON */

/* At most `most` of each kind, the newest. */
static json_t *json_evidence(const struct past *p, uint32_t attempt, size_t most)
{
    json_t *list = json_array();
    size_t findings = 0, events = 0;

    for (size_t i = 0; i < p->health.n; i++)
        findings += is_finding(&p->health.health[i], attempt);
    for (size_t i = 0; i < p->events.n; i++)
        events += is_evidence(&p->events.events[i], attempt);

    for (size_t i = 0; i < p->health.n; i++) {
        const struct tern_ledger_health *h = &p->health.health[i];
        if (!is_finding(h, attempt) || findings-- > most)
            continue;
        json_t *j =
            json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "type", "check", "time",
                      show_json_time(h->wall_ns), "kind", show_json_text(h->check), "severity",
                      show_json_text(h->severity), "node", show_json_text(h->node), "verdict",
                      show_json_text(h->verdict), "text", show_json_text(h->text));
        show_json_number(j, "value", h->value);
        json_array_append_new(list, j);
    }
    for (size_t i = 0; i < p->events.n; i++) {
        const struct tern_ledger_event *e = &p->events.events[i];
        if (is_evidence(e, attempt) && events-- <= most)
            json_array_append_new(
                list, json_pack("{s:s, s:o, s:o, s:o, s:o, s:o}", "type", "event", "time",
                                show_json_time(e->wall_ns), "kind", show_json_text(e->kind),
                                "severity", show_json_text(e->severity), "node",
                                show_json_text(e->node), "text", show_json_text(e->text)));
    }
    return list;
}

static json_t *json_attempts(const struct past *p, size_t evidence)
{
    json_t *list = json_array();

    for (size_t i = 0; i < p->facts->attempts.n; i++) {
        const struct tern_ledger_attempt *a = &p->facts->attempts.attempts[i];
        const struct loss loss = find_loss(p, i);
        json_t *row = show_json_attempt(a);
        char *ended = ending(p, i);
        json_object_set_new(row, "ended", show_json_text(ended));
        free(ended);
        json_object_set_new(row, "evidence", json_evidence(p, a->attempt, evidence));
        json_object_set_new(row, "lost_steps", json_integer(loss.steps));
        show_json_number(row, "lost_seconds", loss.seconds);
        show_json_number(row, "seconds_until_next", loss.pause);
        json_array_append_new(list, row);
    }
    return list;
}

int show_json_attempts(const struct show_facts *f, size_t evidence, json_t **ret_rows,
                       struct tern_err *err)
{
    struct past p = {0};
    int rc = read_past(f, &p, err);

    if (rc == 0)
        *ret_rows = json_attempts(&p, evidence);
    free_past(&p);
    return rc;
}

static int print_json(const struct past *p, struct tern_err *err)
{
    show.ledger = p->facts->home; /* where its state is looked for */
    json_t *j = show_json_run(p->facts->run);

    json_object_set_new(j, "attempt_rows", json_attempts(p, SIZE_MAX));
    json_object_set_new(j, "lost_steps", json_integer((json_int_t)p->facts->repeated_steps));
    show_json_number(j, "lost_seconds", p->facts->timed ? p->facts->repeated_s : NAN);
    show_json_number(j, "waiting_seconds", p->facts->waiting_s);
    show_json_number(j, "wall_seconds", p->facts->wall_s);
    return show_json(j, err);
}

static int run(int n_args, char **args, struct tern_err *err)
{
    struct show_facts facts;
    struct past p = {0};

    if (show_facts_read(n_args ? args[0] : NULL, &facts, err) < 0)
        return -1;
    int rc = read_past(&facts, &p, err);
    if (rc == 0 && show.json)
        rc = print_json(&p, err);
    else if (rc == 0)
        print(&p);
    free_past(&p);
    show_facts_free(&facts);
    return rc;
}

static const struct tern_opt opts[] = {
    SHOW_OPT_LEDGER,
    {"all", 0, TERN_OPT_FLAG, .to.flag = &whole,
     .help = "every event and every check, also those without a fault"},
    {"json", 0, TERN_OPT_FLAG, .to.flag = &show.json, .help = "print JSON"},
    {0},
};

const struct tern_cmd ledger_why = {
    .name = "why",
    .args = "[RUN]",
    .summary = "tell what ended each attempt of a run, the evidence, and what was lost",
    .about =
        "The evidence is what tern recorded: checks of nodes that failed, warnings and errors. "
        "Steps are lost that a later attempt did again, since it began from a checkpoint "
        "before them. Of a newest attempt that failed, the steps behind its newest checkpoint "
        "would be lost.",
    .examples = "  tern ledger why\n"
                "  tern ledger why pubmed-cpt --all\n",
    .opts = opts,
    .args_max = 1,
    .run = run,
};
