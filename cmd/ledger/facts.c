#include "cmd/ledger/facts.h"

#include "core/layout/layout.h"
#include "core/slurm/slurm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PARAMS_MAX = 10000, SQL_SECONDS = 30 };

const char *show_instance;
double show_usd_hour = NAN;

int show_price(double *ret_usd_hour, struct tern_err *err)
{
    if (show_usd_hour < 0)
        return tern_err_set(err, TERN_USAGE, "--usd-hour %g: a price is 0 or more", show_usd_hour);
    *ret_usd_hour = show_usd_hour;
    if (!show_instance)
        return 0;
    const struct tern_layout_instance *i = tern_layout_instance(show_instance);
    const char *near = i ? NULL : tern_layout_instance_near(show_instance);
    if (!i)
        return tern_err_set(err, TERN_USAGE, "no instance type '%.100s'%s%s%s", show_instance,
                            near ? "; did you mean '" : "", near ? near : "", near ? "'?" : ".");
    if (isnan(*ret_usd_hour) && !(i->usd_hour > 0))
        return tern_err_set(err, TERN_USAGE, "the price of %s is not known. Give --usd-hour.",
                            i->name);
    if (isnan(*ret_usd_hour))
        *ret_usd_hour = i->usd_hour;
    return 0;
}

/* ---------------------------------------------------------------- attempts */

bool show_attempt_trains(const struct tern_ledger_attempt *a)
{
    return !a->kind || strcmp(a->kind, "train") == 0;
}

double show_attempt_seconds(const struct tern_ledger_attempt *a, int64_t newest_ns)
{
    int64_t end = a->end_ns ? a->end_ns : newest_ns;

    return a->begin_ns && end > a->begin_ns ? (double)(end - a->begin_ns) * 1e-9 : 0;
}

uint64_t show_attempt_nodes(const struct tern_ledger_attempt *a)
{
    char **hosts = NULL;
    size_t n = 0;

    if (!a->nodes || tern_slurm_hosts_expand(a->nodes, &hosts, &n, NULL) < 0)
        return 1;
    tern_slurm_hosts_free(hosts);
    return n ? n : 1;
}

/* ---------------------------------------------------------------- sums */

static int read_sum(struct tern_ledger *l, const char *metric, struct show_sum *ret_sum)
{
    struct tern_ledger_series s = {0};
    double total = 0;

    if (tern_ledger_series(l, metric, /* all= */ false, &s, NULL) < 0 || s.n == 0) {
        tern_ledger_series_free(&s);
        return -1;
    }
    for (size_t i = 0; i < s.n; i++) {
        total += isfinite(s.value[i]) ? s.value[i] : 0;
        s.value[i] = total;
    }
    *ret_sum = (struct show_sum){s.n, s.step, s.value};
    s.step = s.value = NULL;
    tern_ledger_series_free(&s);
    return 0;
}

double show_sum_step(const struct show_sum *s, double limit)
{
    double step = -1;

    for (size_t i = 0; i < s->n && s->total[i] <= limit * (1 + 1e-12); i++)
        step = s->step[i];
    return step;
}

double show_sum_at(const struct show_sum *s, double step)
{
    size_t lo = 0, hi = s->n; /* steps before lo are at most `step`, those from hi are more */

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (s->step[mid] <= step)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo ? s->total[lo - 1] : NAN;
}

double show_facts_at(const struct show_facts *f, enum show_axis axis, double step)
{
    const struct show_sum *const sums[] = {[SHOW_TOKENS] = &f->tokens,
                                           [SHOW_SECONDS] = &f->seconds,
                                           [SHOW_NODE_HOURS] = &f->node_hours_sum};

    if (axis == SHOW_STEPS)
        return step;
    return sums[axis]->n && step <= 0 ? 0 : show_sum_at(sums[axis], step);
}

/* ---------------------------------------------------------------- time */

/* What an attempt's points tell. */
struct points {
    double seconds; /* of its steps */
    uint64_t n;
    int64_t first_ns, newest_ns;
    double first_s;
};

static void add_points(const struct tern_ledger_series *all, uint32_t attempt, struct points *p)
{
    *p = (struct points){0};
    for (size_t i = 0; i < all->n; i++) {
        if (all->attempt[i] != attempt)
            continue;
        if (p->n++ == 0) {
            p->first_ns = all->wall_ns[i];
            p->first_s = isfinite(all->value[i]) ? all->value[i] : 0;
        }
        p->seconds += isfinite(all->value[i]) ? all->value[i] : 0;
        p->newest_ns = all->wall_ns[i] > p->newest_ns ? all->wall_ns[i] : p->newest_ns;
    }
}

/* When it ended, as far as that is known. */
static int64_t end_of(const struct show_facts *f, size_t i, const struct points *p)
{
    const struct tern_ledger_attempt *a = &f->attempts.attempts[i];
    bool last = i + 1 == f->attempts.n;

    if (a->end_ns)
        return a->end_ns;
    if (last)
        return f->run->updated_ns;
    return p->newest_ns > a->begin_ns ? p->newest_ns : a->begin_ns;
}

static double hours_until(const struct tern_ledger_attempt *a, int64_t until_ns)
{
    return until_ns > a->begin_ns ? (double)(until_ns - a->begin_ns) * 1e-9 / 3600 : 0;
}

int show_facts_sum_node_hours(struct show_facts *f, struct tern_err *err)
{
    struct tern_ledger_series all = {0}, s = {0};
    double *hours = NULL;
    int rc = -1;

    if (tern_ledger_series(f->ledger, "step_seconds", /* all= */ true, &all, err) < 0 ||
        tern_ledger_series(f->ledger, "step_seconds", /* all= */ false, &s, err) < 0 ||
        !(hours = tern_alloc(s.n + 1, sizeof *hours, "node-hours", err)))
        goto out;
    for (size_t k = 0; k < f->attempts.n; k++) {
        const struct tern_ledger_attempt *a = &f->attempts.attempts[k];
        const double nodes = (double)show_attempt_nodes(a);
        struct points p;
        add_points(&all, a->attempt, &p);
        const int64_t end = end_of(f, k, &p);
        for (size_t i = 0; a->begin_ns && i < s.n; i++)
            hours[i] += hours_until(a, s.wall_ns[i] < end ? s.wall_ns[i] : end) * nodes;
    }
    f->node_hours_sum = (struct show_sum){s.n, s.step, hours};
    s.step = NULL;
    rc = 0;
out:
    tern_ledger_series_free(&all);
    tern_ledger_series_free(&s);
    return rc;
}

static void add_times(struct show_facts *f, const struct tern_ledger_series *all)
{
    int64_t before_ns = 0, begin_ns = 0;
    double steps_s = 0;

    for (size_t i = 0; i < f->attempts.n; i++) {
        const struct tern_ledger_attempt *a = &f->attempts.attempts[i];
        struct points p;
        if (!a->begin_ns)
            continue;
        add_points(all, a->attempt, &p);
        const int64_t end = end_of(f, i, &p);
        const double s = end > a->begin_ns ? (double)(end - a->begin_ns) * 1e-9 : 0;
        f->nodes = show_attempt_nodes(a);
        f->node_hours += hours_until(a, end) * (double)f->nodes;
        f->rank_hours += s * (double)(a->world > 0 ? a->world : 1) / 3600;
        if (!show_attempt_trains(a))
            continue;
        begin_ns = begin_ns ? begin_ns : a->begin_ns;
        if (before_ns && a->begin_ns > before_ns)
            f->waiting_s += (double)(a->begin_ns - before_ns) * 1e-9;
        before_ns = end > before_ns ? end : before_ns;
        if (p.n)
            f->startup_s += fmax(0, (double)(p.first_ns - a->begin_ns) * 1e-9 - p.first_s);
        steps_s += p.seconds;
    }
    f->wall_s = (double)(before_ns - begin_ns) * 1e-9;
    f->training_s = f->seconds.n ? f->seconds.total[f->seconds.n - 1] : 0;
    f->repeated_s = fmax(0, steps_s - f->training_s);
}

static void add_repeated(struct show_facts *f)
{
    struct tern_ledger_table t = {0};

    if (tern_ledger_sql(f->ledger,
                        "SELECT count(*) FROM step_all JOIN attempt USING(attempt) WHERE name ="
                        " (SELECT name FROM metric WHERE name IN ('step_seconds', 'loss')"
                        " ORDER BY name = 'loss' LIMIT 1) AND NOT effective AND kind = 'train'",
                        1, SQL_SECONDS, &t, NULL) == 0 &&
        t.n_rows)
        f->repeated_steps = (uint64_t)t.cells[0].integer;
    tern_ledger_table_free(&t);
}

static void read_times(struct show_facts *f)
{
    struct tern_ledger_series all = {0}, stalls = {0};

    f->timed = read_sum(f->ledger, "step_seconds", &f->seconds) == 0;
    if (f->timed)
        tern_ledger_series(f->ledger, "step_seconds", /* all= */ true, &all, NULL);
    if (tern_ledger_series(f->ledger, "checkpoint_stall_seconds", /* all= */ true, &stalls, NULL) ==
        0)
        for (size_t i = 0; i < stalls.n; i++)
            f->stall_s += isfinite(stalls.value[i]) ? stalls.value[i] : 0;
    add_times(f, &all);
    add_repeated(f);
    const double known = f->training_s + f->repeated_s + f->stall_s + f->startup_s + f->waiting_s;
    if (f->wall_s < known) /* clocks that were set, and stalls inside a step */
        f->wall_s = known;
    f->other_s = f->wall_s - known;
    tern_ledger_series_free(&all);
    tern_ledger_series_free(&stalls);
}

/* ---------------------------------------------------------------- sizes */

static double param(const struct tern_ledger_table *t, const char *name)
{
    double v = NAN;

    for (size_t i = 0; i < t->n_rows; i++)
        if (t->cells[2 * i].text && strcmp(t->cells[2 * i].text, name) == 0 &&
            t->cells[2 * i + 1].text)
            tern_str_real(t->cells[2 * i + 1].text, 0, 1e18, &v);
    return v;
}

/* Rows of `set` that the run has had; 1 where that is not known, of the only set. */
static double samples_of(const struct show_facts *f, const char *set)
{
    struct tern_ledger_series s = {0};
    char *name = tern_strf("mix/%s/samples", set);
    double v = 0;

    if (tern_ledger_series(f->ledger, name, /* all= */ false, &s, NULL) == 0 && s.n)
        v = s.value[s.n - 1];
    tern_ledger_series_free(&s);
    free(name);
    return v;
}

/* Records that a row stands for, over the sets as they were mixed. */
static double records_per_row(const struct show_facts *f, const struct tern_ledger_table *t)
{
    static const char mark[] = "rows/";
    double rows = 0, records = 0, ratio = NAN;
    size_t n = 0;

    for (size_t i = 0; i < t->n_rows; i++) {
        const char *name = t->cells[2 * i].text;
        if (!name || !tern_str_starts(name, mark))
            continue;
        char *other = tern_strf("records/%s", name + sizeof mark - 1);
        const double r = param(t, other) / param(t, name);
        const double samples = samples_of(f, name + sizeof mark - 1);
        free(other);
        if (!isfinite(r))
            return NAN;
        n++;
        ratio = r;
        rows += samples;
        records += samples * r;
    }
    return n == 1 ? ratio : rows > 0 ? records / rows : NAN;
}

static int read_sizes(struct show_facts *f, struct tern_err *err)
{
    struct tern_ledger_table t = {0};
    const char *batch = show_recipe_get(&f->recipe, "batch.global");
    double global = NAN;

    if (tern_ledger_sql(f->ledger, "SELECT name, value FROM param ORDER BY attempt, name",
                        PARAMS_MAX, SQL_SECONDS, &t, err) < 0)
        return -1;
    f->parameters = param(&t, TERN_LEDGER_PARAMETERS);
    f->trainable = param(&t, TERN_LEDGER_TRAINABLE);
    if (batch)
        tern_str_real(batch, 0, 1e18, &global);
    f->rows_per_s = f->training_s > 0 ? global * (double)f->seconds.n / f->training_s : NAN;
    f->records_per_s = f->rows_per_s * records_per_row(f, &t);
    f->trained_tokens =
        read_sum(f->ledger, "tokens", &f->tokens) == 0 ? f->tokens.total[f->tokens.n - 1] : NAN;
    tern_ledger_table_free(&t);
    return 0;
}

int show_facts_read(const char *typed, struct show_facts *ret_facts, struct tern_err *err)
{
    struct show_facts f = {0};

    if (show_need_ledger(err) < 0)
        return -1;
    const char *const named = show.ledger; /* looking for a run changes it to the run's home */
    if (show_find(typed, f.id, err) < 0)
        return -1;
    f.home = (char *)show.ledger; /* of show_find */
    f.ledger = tern_ledger_open_run(f.home, f.id, err);
    if (!f.ledger || tern_ledger_runs(f.ledger, &f.runs, err) < 0 ||
        tern_ledger_attempts(f.ledger, &f.attempts, err) < 0)
        goto fail;
    if (f.runs.n == 0) {
        tern_err_set(err, TERN_USAGE, "%s/runs/%s: has no record yet", f.home, f.id);
        goto fail;
    }
    f.run = &f.runs.runs[0];
    f.state = show_state(f.run);
    if (f.run->recipe)
        show_recipe_read(f.run->recipe, &f.recipe, NULL);
    read_times(&f);
    if (read_sizes(&f, err) < 0)
        goto fail;
    show.ledger = named;
    *ret_facts = f;
    return 0;
fail:
    show.ledger = named;
    show_facts_free(&f);
    return -1;
}

void show_facts_free(struct show_facts *f)
{
    tern_ledger_close(f->ledger);
    free(f->home);
    tern_ledger_rows_free(&f->runs);
    tern_ledger_rows_free(&f->attempts);
    show_recipe_free(&f->recipe);
    free(f->tokens.step);
    free(f->tokens.total);
    free(f->seconds.step);
    free(f->seconds.total);
    free(f->node_hours_sum.step);
    free(f->node_hours_sum.total);
    *f = (struct show_facts){0};
}
