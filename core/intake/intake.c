#include "core/intake/intake.h"

#include "core/base/log.h"
#include "core/base/str.h"
#include "core/intake/metric.h"
#include "core/intake/state.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t second = 1000000000;

enum { EVENT_FILES_S = 2 }; /* between two looks at event files */

/* ------------------------------------------------------------------ opening */

static int compile(regex_t *to, const char *pattern, char *why, size_t size)
{
    int rc = regcomp(to, pattern, REG_EXTENDED);

    if (rc)
        regerror(rc, to, why, size);
    return rc ? -1 : 0;
}

static int add_row(struct tern_intake *i, enum tern_intake_pattern_kind kind, const char *must,
                   const char *pattern, const char *const *names, struct tern_err *err)
{
    char why[100];

    if (i->n_rows == ROWS_MAX)
        return tern_err_set(err, TERN_USAGE, "workload.metrics: more than %d patterns", ROWS_MAX);
    struct row *r = &i->rows[i->n_rows];
    if (compile(&r->regex, pattern, why, sizeof why) < 0)
        return tern_err_set(err, TERN_USAGE, "workload.metrics: pattern '%s': %s", pattern, why);
    i->n_rows++;
    r->kind = kind;
    r->must = must;
    for (size_t k = 0; names && names[k] && k < TERN_RECIPE_GROUPS; k++) {
        r->names[k] = tern_strdup(names[k]);
        r->has_step = r->has_step || strcmp(names[k], "step") == 0;
    }
    return 0;
}

static int add_known(struct tern_intake *i, const char *trainer, struct tern_err *err)
{
    int rc = 0;

    for (const struct tern_intake_pattern *k = tern_intake_patterns; k->trainer && rc == 0; k++)
        if (strcmp(k->trainer, trainer) == 0)
            rc = add_row(i, k->kind, k->must, k->pattern, k->names, err);
    return rc;
}

/* A line of the text; its bytes are changed. */
static int configure(struct tern_intake *i, char *line, int64_t now_ns, struct tern_err *err)
{
    const char *names[TERN_RECIPE_GROUPS + 1] = {NULL};
    size_t n = 0;
    char *at = NULL, *what = strtok_r(line, "\t", &at), *value = strtok_r(NULL, "\t", &at), *name;

    if (!what || !value)
        return 0;
    if (strcmp(what, "known") == 0)
        return add_known(i, value, err);
    if (i->rank != 0)
        return 0;
    if (strcmp(what, "tensorboard") == 0) {
        if (i->counts)
            return 0;
        if (i->n_tb == TERN_RECIPE_EVENTS)
            return tern_err_set(err, TERN_USAGE, "workload.metrics: more than %d folders",
                                TERN_RECIPE_EVENTS);
        i->tb[i->n_tb++] = tern_intake_tb_open(value, (double)now_ns / 1e9);
        return 0;
    }
    while (n < TERN_RECIPE_GROUPS && (name = strtok_r(NULL, "\t", &at)))
        names[n++] = name;
    return add_row(i, TERN_INTAKE_PATTERN_GROUPS, NULL, value, names, err);
}

static struct tern_intake *open_intake(const char *spool_dir, int64_t rank, const char *text,
                                       bool counts, int64_t now_ns, struct tern_err *err)
{
    struct tern_intake *i = tern_alloc(1, sizeof *i, "metrics", err);
    char *copy = NULL, *at = NULL;
    int rc = -1;

    if (!i)
        return NULL;
    i->spool_dir = spool_dir ? tern_strdup(spool_dir) : NULL;
    i->rank = rank;
    i->bar_step = i->bar_total = i->shown_step = -1;
    i->counts = counts;
    i->m = tern_alloc(1, sizeof *i->m, "metrics", err);
    i->words = tern_alloc(1, LINE_MAX_BYTES + 1, "metrics", err);
    if (!i->m || !i->words)
        goto out;
    copy = tern_strdup(text ? text : "");
    rc = 0;
    for (char *line = strtok_r(copy, "\n", &at); line && rc == 0; line = strtok_r(NULL, "\n", &at))
        rc = configure(i, line, now_ns, err);
    if (rc == 0 && i->n_tb) {
        i->events = tern_alloc(1, sizeof *i->events, "metrics", err);
        i->tags = tern_alloc(TERN_INTAKE_METRIC_VALUES, sizeof *i->tags, "metrics", err);
        rc = i->events && i->tags ? 0 : -1;
        if (rc == 0)
            tern_intake_metric_clear(i->events);
    }
out:
    free(copy);
    if (rc < 0) {
        tern_intake_close(i);
        return NULL;
    }
    return i;
}

struct tern_intake *tern_intake_open(const char *spool_dir, int64_t rank, const char *text,
                                     int64_t now_ns, struct tern_err *err)
{
    return open_intake(spool_dir, rank, text, /* counts= */ false, now_ns, err);
}

/* ------------------------------------------------------------------ counting */

struct tern_intake *tern_intake_open_counter(int64_t rank, const char *text, struct tern_err *err)
{
    return open_intake(/* spool_dir= */ NULL, rank, text, /* counts= */ true, /* now_ns= */ 0, err);
}

struct tern_ledger_lost tern_intake_counted(const struct tern_intake *i)
{
    return i->counted;
}

static void count(struct tern_ledger_lost *to, const struct tern_intake_metric *m)
{
    if (m->resumed >= 0)
        tern_ledger_lost_join(to, 1, -1, -1);
    tern_ledger_lost_join(to, (m->n > 0) + (m->checkpoint != NULL), m->step, m->step);
}

void tern_intake_let_look(struct tern_intake *i, struct tern_intake_unwritten *to)
{
    i->look = to;
}

/* ------------------------------------------------------------------ into the ledger */

/* Is there a file to write to?  A spool that failed once may work again. */
static bool spool(struct tern_intake *i, struct tern_err *err)
{
    char writer[40];

    if (!i->spool && i->spool_dir) {
        snprintf(writer, sizeof writer, "task%" PRId64, i->rank);
        i->spool = tern_ledger_spool_open_dir(i->spool_dir, writer, err);
        if (i->look)
            tern_ledger_spool_show(i->spool, &i->look->waiting);
    }
    return i->spool != NULL;
}

static int write_record(struct tern_intake *i, const struct tern_intake_metric *m,
                        struct tern_err *err)
{
    bool reported = i->spool_failed;

    if (spool(i, err))
        return tern_intake_metric_record(i->spool, m, err);
    i->spool_failed = i->spool_dir != NULL;
    return i->spool_failed && !reported ? -1 : 0;
}

static int record(struct tern_intake *i, const struct tern_intake_metric *m, struct tern_err *err)
{
    struct tern_ledger_lost one = {0};

    if (tern_intake_metric_check(m, NULL) == 0)
        count(i->counts ? &i->counted : &one, m);
    if (i->counts)
        return 0;
    if (i->look)
        tern_ledger_unwritten_set(&i->look->at_hand, &one);
    const int rc = write_record(i, m, err);
    if (i->look)
        tern_ledger_unwritten_set(&i->look->at_hand, &(struct tern_ledger_lost){0});
    return rc;
}

void tern_intake_record_or_warn(struct tern_intake *i, const struct tern_intake_metric *m)
{
    struct tern_err err = {0};

    if ((m->n || m->resumed >= 0) && record(i, m, &err) < 0)
        tern_warn("a metric is lost: %s", err.text);
}

/* ------------------------------------------------------------------ lines of the descriptor */

/* Logged once: a program that writes bad lines writes many. */
static void refuse(struct tern_intake *i, struct tern_err *err)
{
    for (char *c = err->text; *c; c++)
        if (iscntrl((unsigned char)*c))
            *c = '?';
    if (i->refused++ == 0 && !i->counts)
        tern_warn("TERN_METRIC_FD: %s (further ones are counted)", err->text);
}

void tern_intake_take_metrics(struct tern_intake *i, char *line, size_t len)
{
    struct tern_err err = {0};

    tern_intake_metric_clear(i->m);
    if (len >= TERN_INTAKE_METRIC_LINE) {
        tern_err_set(&err, TERN_USAGE, "a line of %zu bytes and more (%d at most)", len,
                     TERN_INTAKE_METRIC_LINE - 1);
        refuse(i, &err);
        return;
    }
    if (tern_intake_metric_parse_line(i->m, line, &err) < 0) {
        refuse(i, &err);
        return;
    }
    if ((i->m->n || i->m->step >= 0 || i->m->checkpoint || i->m->resumed >= 0) &&
        record(i, i->m, &err) < 0)
        refuse(i, &err);
}

void tern_intake_note_cut(struct tern_intake *i)
{
    struct tern_err err = {0};

    tern_err_set(&err, TERN_USAGE, "a line without its end is left out");
    refuse(i, &err);
}

void tern_intake_note_lost(struct tern_intake *i, uint64_t lines)
{
    if (i->lost == 0)
        tern_warn("rank %" PRId64
                  ": lines of TERN_METRIC_FD come faster than they can be recorded: "
                  "some are lost (a line may have many values)",
                  i->rank);
    i->lost += lines;
    if (i->look)
        atomic_store(&i->look->lost, i->lost);
}

/* ------------------------------------------------------------------ event files */

static void flush_events(struct tern_intake *i)
{
    tern_intake_record_or_warn(i, i->events);
    i->events->n = 0;
}

static void take_event(void *self, const struct tern_intake_tb_value *v)
{
    struct tern_intake *i = self;
    struct tern_intake_metric *m = i->events;

    if (v->restart) {
        flush_events(i);
        tern_intake_metric_clear(i->m);
        i->m->resumed = v->step - 1;
        tern_intake_record_or_warn(i, i->m);
        return;
    }
    if (m->n == TERN_INTAKE_METRIC_VALUES || (m->n && m->step != v->step))
        flush_events(i);
    m->step = v->step;
    memcpy(i->tags[m->n], v->tag, sizeof *i->tags);
    m->values[m->n] = (struct tern_ledger_value){.name = i->tags[m->n], .value = v->value};
    m->n++;
}

void tern_intake_tick(struct tern_intake *i, int64_t now_ns, int end)
{
    tern_intake_dicts_tick(i, now_ns, end);
    if (!i->n_tb || (now_ns < i->tb_next_ns && !end))
        return;
    for (size_t k = 0; k < i->n_tb; k++)
        if (i->tb[k])
            tern_intake_tb_look(i->tb[k], take_event, i, end);
    flush_events(i);
    i->tb_next_ns = now_ns + EVENT_FILES_S * second;
}

void tern_intake_note_gap(struct tern_intake *i)
{
    tern_intake_dicts_stop(i);
}

void tern_intake_add_event(struct tern_intake *i, const char *kind, const char *severity,
                           const char *text)
{
    const struct tern_ledger_event e = {.kind = kind, .severity = severity, .text = text};
    struct tern_err err = {0};

    if (spool(i, &err))
        tern_ledger_spool_event(i->spool, &e, &err);
}

/* ------------------------------------------------------------------ closing */

static void report_lost(struct tern_intake *i)
{
    char text[120];

    snprintf(text, sizeof text,
             "%" PRIu64
             " records lost: lines of TERN_METRIC_FD came faster than they could be written",
             i->lost);
    tern_intake_add_event(i, "gap", "warn", text);
}

/* What is left out is in the rank's log and in the ledger. */
static void tell(struct tern_intake *i, const char *text)
{
    char whole[600];

    snprintf(whole, sizeof whole, "workload.metrics: %s", text);
    tern_warn("rank %" PRId64 ": %s", i->rank, whole);
    tern_intake_add_event(i, "metrics", "warn", whole);
}

static void report_left(struct tern_intake *i, enum left kind)
{
    static const char *const why[N_LEFT] = {
        [LEFT_DICT] =
            "hf: %" PRIu64 " dicts of values are left out: no progress bar gives their "
            "step (disable_tqdm: false; or report_to: tensorboard and {tensorboard: DIR})",
        [LEFT_LATE] =
            "hf: %" PRIu64 " dicts of values are left out: they and the progress bar's redraws do "
            "not come one by one (stdout goes through a buffer or a program, or more dicts are "
            "printed), so their step is not known. PYTHONUNBUFFERED=1, and 2>&1 before a pipe, "
            "keep "
            "them together; or report_to: tensorboard and {tensorboard: DIR}",
        [LEFT_BAR] =
            "lightning: the values of %" PRIu64 " bars are left out: a bar counts batches. "
            "A bar with global_step gives the step; {tensorboard: lightning_logs} reads "
            "what its logger writes",
        [LEFT_SHOWN] =
            "lightning: %" PRIu64 " values are left out: the bar may show them with a later step "
            "than their own (logged at an epoch's end, or refresh_rate is above 1). {tensorboard: "
            "lightning_logs} reads what its logger writes",
        [LEFT_PATTERN] = "%" PRIu64 " lines that match a pattern without a group 'step' are left "
                         "out: their step is not known",
    };
    char text[500];

    snprintf(text, sizeof text, why[kind], i->left[kind]);
    tell(i, text);
}

static void report_unsure(struct tern_intake *i, const struct tern_intake_tb *t)
{
    char text[500];

    snprintf(text, sizeof text,
             "{tensorboard: %.200s}: event files are left out: several programs write there, and "
             "which are this run's is not known. Give each run a folder of its own",
             tern_intake_tb_dir(t));
    tell(i, text);
}

void tern_intake_close(struct tern_intake *i)
{
    struct tern_err err = {0};

    if (!i)
        return;
    if (i->refused > 1 && !i->counts)
        tern_warn("TERN_METRIC_FD: %" PRIu64 " lines in all could not be read", i->refused);
    for (int k = 0; k < N_LEFT && !i->counts; k++)
        if (i->left[k])
            report_left(i, (enum left)k);
    for (size_t k = 0; k < i->n_tb; k++)
        if (i->tb[k] && tern_intake_tb_is_unsure(i->tb[k]))
            report_unsure(i, i->tb[k]);
    if (i->lost)
        report_lost(i);
    if (i->spool && tern_ledger_spool_close(i->spool, &err) < 0)
        tern_warn("%s", err.text);
    for (size_t k = 0; k < i->n_rows; k++) {
        regfree(&i->rows[k].regex);
        for (size_t n = 0; i->rows[k].names[n]; n++)
            free(i->rows[k].names[n]);
    }
    for (size_t k = 0; k < i->n_tb; k++)
        tern_intake_tb_close(i->tb[k]);
    tern_intake_dicts_forget(i, i->n_dicts);
    tern_intake_shown_free(i);
    free(i->newest);
    free(i->events);
    free(i->tags);
    free(i->m);
    free(i->words);
    free(i->spool_dir);
    free(i);
}
