#include "core/run/pace.h"

#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/ledger/ledger.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    SAMPLE = 100,    /* newest steps to look at */
    START_S = 60,    /* wait for nodes, checks, loading */
    SLACK_PART = 10, /* evaluations, checkpoints, a restart */
    FEW = 5,         /* times between values: compiling is among the first ones */
    SAVES = 8,       /* newest checkpoints to look at */
    END_S = 30,      /* a slow storage's last pieces, srun, and the job's queueing */
    NAMES = 8,       /* metrics to look at; trainers report theirs together */
};

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double tern_run_median(double *v, size_t n)
{
    qsort(v, n, sizeof *v, by_value);
    return v[n / 2];
}

/* Seconds a step at point i: its value. For a workload that reports none it is the time since the
 * values before it, 0 for values that came together; -1: not known. */
static double seconds_at(const struct tern_ledger_series *s, size_t i, bool by_clock)
{
    if (!by_clock)
        return s->value[i] > 0 ? s->value[i] : -1;
    if (i == 0 || s->attempt[i - 1] != s->attempt[i] || s->step[i] <= s->step[i - 1])
        return -1;
    return (double)(s->wall_ns[i] - s->wall_ns[i - 1]) / 1e9 / (s->step[i] - s->step[i - 1]);
}

static bool counts(const struct tern_ledger_attempt *a, int64_t world)
{
    return a->world == world && strcmp(a->kind, "precompile") != 0;
}

/* The newest attempt on this number of ranks with measurements, and the median of its newest steps.
 */
static void measure(struct tern_run_pace *p, const struct tern_ledger_series *s,
                    const struct tern_ledger_rows *attempts, int64_t world, bool by_clock)
{
    double sample[SAMPLE];
    size_t n = 0;

    for (size_t a = attempts->n; a-- > 0 && n == 0;) {
        if (!counts(&attempts->attempts[a], world))
            continue;
        p->attempt = attempts->attempts[a].attempt;
        for (size_t i = s->n; i-- > 0 && n < SAMPLE;)
            if (s->attempt[i] == p->attempt && seconds_at(s, i, by_clock) >= 0)
                sample[n++] = seconds_at(s, i, by_clock);
        n = by_clock && n < FEW ? 0 : n;
    }
    if (n == 0)
        return;
    p->step_seconds = tern_run_median(sample, n);
}

/* From the times at which the ledger got a workload's values. */
static void measure_by_clock(struct tern_run_pace *p, struct tern_ledger *l,
                             const struct tern_ledger_rows *attempts, int64_t world)
{
    struct tern_ledger_rows names = {0};

    if (tern_ledger_metrics(l, &names, NULL) < 0)
        return;
    for (size_t i = 0; i < names.n && i < NAMES && p->step_seconds <= 0; i++) {
        struct tern_ledger_series s = {0};
        if (tern_ledger_series(l, names.names[i], true, &s, NULL) == 0)
            measure(p, &s, attempts, world, true);
        tern_ledger_series_free(&s);
    }
    tern_ledger_rows_free(&names);
}

/* The longest of the newest saves of an attempt, as its trainer says; 0: it says nothing. */
static double seconds_of_saves(const struct tern_ledger_series *saves, uint32_t attempt)
{
    double longest = 0;
    size_t left = SAVES;

    for (size_t i = saves->n; i-- > 0 && left;)
        if (saves->attempt[i] == attempt) {
            longest = saves->value[i] > longest ? saves->value[i] : longest;
            left--;
        }
    return longest;
}

/* Else it is the time from the step to the publication: a save that goes on beside steps is
 * published later than it was written. */
static double seconds_to_publish(const struct tern_ledger_rows *made,
                                 const struct tern_ledger_series *steps, uint32_t attempt)
{
    double longest = 0;
    size_t left = SAVES;

    for (size_t k = made->n; k-- > 0 && left;) {
        const struct tern_ledger_checkpoint *c = &made->checkpoints[k];
        for (size_t i = steps->n; c->attempt == attempt && i-- > 0;) {
            if (steps->attempt[i] != attempt || (int64_t)steps->step[i] != c->step)
                continue;
            const double took = (double)(c->wall_ns - steps->wall_ns[i]) / 1e9;
            longest = took > longest ? took : longest;
            left--;
            break;
        }
    }
    return longest;
}

/* Of the newest attempt on this number of ranks that has a save. One that goes on makes its first
 * save late, and the others of them took as long. */
static void measure_saves(struct tern_run_pace *p, struct tern_ledger *l,
                          const struct tern_ledger_series *steps,
                          const struct tern_ledger_rows *attempts, int64_t world)
{
    struct tern_ledger_series saves = {0};
    struct tern_ledger_rows made = {0};

    /* Without that metric its series is empty: the trainer does not say how long a save takes. */
    tern_ledger_series(l, "checkpoint_write_seconds", true, &saves, NULL);
    tern_ledger_checkpoints_made(l, &made, NULL);
    for (size_t i = attempts->n; i-- > 0 && p->save_seconds <= 0;) {
        const struct tern_ledger_attempt *a = &attempts->attempts[i];
        if (!counts(a, world))
            continue;
        p->save_seconds = seconds_of_saves(&saves, a->attempt);
        if (p->save_seconds <= 0)
            p->save_seconds = seconds_to_publish(&made, steps, a->attempt);
    }
    tern_ledger_series_free(&saves);
    tern_ledger_rows_free(&made);
}

int tern_run_pace_read(struct tern_run_pace *out, const struct tern_recipe *r, const char *run_id,
                       int64_t world, struct tern_err *err)
{
    struct tern_ledger_rows runs = {0}, attempts = {0};
    struct tern_ledger_series s = {0};
    struct tern_run_pace p = {0};
    char *folder = tern_strf("%s/runs/%s", r->ledger.dir, run_id);
    bool there = tern_fs_exists(folder);
    int rc = -1;

    free(folder);
    *out = p;
    if (!there)
        return 0;
    struct tern_ledger *l = tern_ledger_open_run(r->ledger.dir, run_id, err);
    if (!l)
        return -1;
    if (tern_ledger_runs(l, &runs, err) < 0 || tern_ledger_attempts(l, &attempts, err) < 0)
        goto out;
    if (runs.n && runs.runs[0].last_step > 0)
        p.done = runs.runs[0].last_step;
    if (tern_ledger_series(l, "step_seconds", true, &s, NULL) == 0)
        measure(&p, &s, &attempts, world, false);
    if (p.step_seconds > 0)
        measure_saves(&p, l, &s, &attempts, world);
    if (r->workload.command && p.step_seconds <= 0)
        measure_by_clock(&p, l, &attempts, world);
    *out = p;
    rc = 0;
out:
    tern_ledger_series_free(&s);
    tern_ledger_rows_free(&runs);
    tern_ledger_rows_free(&attempts);
    tern_ledger_close(l);
    return rc;
}

int64_t tern_run_pace_left(const struct tern_run_pace *p, const struct tern_recipe *r)
{
    int64_t left = r->steps - p->done;

    if (p->step_seconds <= 0 || left <= 0)
        return 0;
    double seconds = (double)left * p->step_seconds;
    return (int64_t)(seconds + seconds / SLACK_PART) + START_S + TERN_RUN_WARN_S;
}

int64_t tern_run_pace_need(const struct tern_run_pace *p)
{
    if (p->save_seconds <= 0 || p->step_seconds <= 0)
        return TERN_RUN_WARN_S;
    return (int64_t)(2 * p->step_seconds + 2 * p->save_seconds) + END_S;
}

int64_t tern_run_pace_warn(const struct tern_run_pace *p, int64_t seconds)
{
    const int64_t need = tern_run_pace_need(p);

    return seconds && seconds < 2 * need ? seconds / 2 : need;
}

int tern_run_pace_fits(const struct tern_run_pace *p, int64_t seconds, struct tern_err *err)
{
    int64_t warn = tern_run_pace_warn(p, seconds);
    char step[32];

    if (!seconds || p->step_seconds <= (double)(seconds - warn))
        return 0;
    return tern_err_set(err, TERN_USAGE,
                        "not one step of %s (measured in attempt %" PRIu32
                        ") fits before the warning, %" PRId64 " s before the end",
                        tern_str_seconds(step, sizeof step, p->step_seconds), p->attempt, warn);
}

void tern_run_pace_tell(const struct tern_recipe *r, const char *run_id, int64_t world,
                        int64_t seconds)
{
    struct tern_run_pace p = {0};
    struct tern_err err = {0};
    char left[32], need[32], step[32];

    tern_str_seconds(left, sizeof left, (double)seconds);
    if (seconds < TERN_RUN_WARN_S)
        tern_warn("the job ends in %s. Give it more --time; a step and a checkpoint must fit.",
                  left);
    if (tern_run_pace_read(&p, r, run_id, world, &err) < 0)
        return;
    int64_t wanted = tern_run_pace_left(&p, r);
    if (wanted <= seconds)
        return;
    tern_info("the rest takes some %s at %s a step, as attempt %" PRIu32 " measured, and the job "
              "ends in %s: it will stop%s, to be continued",
              tern_str_seconds(need, sizeof need, (double)wanted),
              tern_str_seconds(step, sizeof step, p.step_seconds), p.attempt, left,
              r->workload.command ? "" : " with a checkpoint");
}
