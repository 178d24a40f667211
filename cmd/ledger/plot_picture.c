/* The axes, marks and the printing of tern ledger plot. */
#include "cmd/ledger/plot.h"

#include "core/base/log.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

struct plot_options plot;

int plot_axis_parse(struct plot_axis *ret_axis, struct tern_err *err)
{
    static const char *const names[] = {"steps", "tokens", "seconds", "dollars"};
    static const struct plot_axis axes[] = {{SHOW_STEPS, "step", 1},
                                            {SHOW_TOKENS, "tokens", 1},
                                            {SHOW_SECONDS, "seconds", 1},
                                            {SHOW_NODE_HOURS, "USD", 1}};
    enum { N = sizeof names / sizeof *names };
    size_t i = 0;
    double usd_hour;

    while (i < N && strcmp(plot.against, names[i]) != 0)
        i++;
    if (i == N) {
        char *hint = show_did_you_mean(plot.against, names, N);
        tern_err_set(err, TERN_USAGE,
                     "--against '%.80s': wanted steps, tokens, seconds or dollars%s", plot.against,
                     hint);
        free(hint);
        return -1;
    }
    *ret_axis = axes[i];
    if (show_price(&usd_hour, err) < 0)
        return -1;
    if (axes[i].kind == SHOW_NODE_HOURS && isnan(usd_hour))
        return tern_err_set(
            err, TERN_USAGE,
            "--against dollars: the ledger knows no prices. Give --instance TYPE or "
            "--usd-hour USD.");
    ret_axis->unit = axes[i].kind == SHOW_NODE_HOURS ? usd_hour : 1;
    return 0;
}

int plot_axis_read(const struct plot_axis *axis, struct show_facts *f, struct tern_err *err)
{
    const struct show_sum *const sums[] = {
        [SHOW_TOKENS] = &f->tokens, [SHOW_SECONDS] = &f->seconds, [SHOW_NODE_HOURS] = &f->seconds};

    if (axis->kind != SHOW_STEPS && sums[axis->kind]->n == 0)
        return tern_err_set(err, TERN_USAGE,
                            "--against %s: run %s has no metric '%s'. Its trainer records it, or "
                            "tern metric.",
                            plot.against, f->run->name ? f->run->name : f->id,
                            axis->kind == SHOW_TOKENS ? "tokens" : "step_seconds");
    return axis->kind == SHOW_NODE_HOURS && f->node_hours_sum.n == 0
               ? show_facts_sum_node_hours(f, err)
               : 0;
}

double plot_axis_at(const struct plot_axis *axis, const struct show_facts *f, double step)
{
    return axis->kind == SHOW_STEPS ? step : show_facts_at(f, axis->kind, step) * axis->unit;
}

/* ---------------------------------------------------------------- marks */

static void add(struct plot_marks *m, double x, char sign, size_t row)
{
    if (isfinite(x) && m->n < PLOT_MARKS_MAX)
        m->marks[m->n++] = (struct tern_report_mark){x, sign, row};
}

int plot_marks_add(struct plot_marks *m, struct tern_ledger *l, const struct show_facts *f,
                   const struct plot_axis *axis, size_t row, struct tern_err *err)
{
    struct tern_ledger_rows a = {0}, c = {0};
    bool first = true;
    int rc = -1;

    if (!m->marks && !(m->marks = tern_alloc(PLOT_MARKS_MAX, sizeof *m->marks, "marks", err)))
        return -1;
    if (tern_ledger_attempts(l, &a, err) < 0 || tern_ledger_checkpoints(l, &c, err) < 0)
        goto out;
    for (size_t i = 0; i < a.n; i++) {
        const struct tern_ledger_attempt *t = &a.attempts[i];
        const int64_t from = t->resumed_step >= 0 ? t->resumed_step + 1 : t->first_step;
        if (!show_attempt_trains(t))
            continue;
        if (!first && from >= 0)
            add(m, plot_axis_at(axis, f, (double)from), 'R', row);
        first = false;
    }
    for (size_t i = 0; i < c.n; i++) {
        const struct tern_ledger_checkpoint *k = &c.checkpoints[i];
        if (k->effective && k->state &&
            (strcmp(k->state, "published") == 0 || strcmp(k->state, "verified") == 0))
            add(m, plot_axis_at(axis, f, (double)k->step), 'C', row);
    }
    rc = 0;
out:
    tern_ledger_rows_free(&a);
    tern_ledger_rows_free(&c);
    return rc;
}

/* ---------------------------------------------------------------- the picture */

static int picture_rows(void)
{
    enum { ROWS = 20 };
    struct winsize w;

    if (plot.rows)
        return (int)(plot.rows < 200 ? plot.rows : 200);
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_row >= ROWS + 4)
        return w.ws_row / 2 > ROWS ? w.ws_row / 2 : ROWS;
    return ROWS;
}

int plot_print(struct tern_report_plot *p, const struct plot_marks *m, struct tern_err *err)
{
    struct tern_buf b = {0};

    p->columns = tern_cmd_columns();
    p->rows = picture_rows();
    p->utf8 = !plot.ascii && tern_report_utf8();
    p->color = tern_cmd_color(STDOUT_FILENO);
    p->log_y = plot.log_y;
    p->marks = m->marks;
    p->n_marks = m->n;
    p->mark_help = "R restart, C checkpoint";
    tern_report_plot(&b, p);
    return show_buf(&b, err);
}

void plot_smooth_odd(void)
{
    if (plot.smooth == 0 || plot.smooth % 2 == 1)
        return;
    plot.smooth++;
    if (!show.json)
        tern_warn("--smooth: means of %" PRId64 " values, as many before as behind each",
                  plot.smooth);
}

const char *plot_smooth_words(char to[40])
{
    *to = '\0';
    if (plot.smooth > 1)
        snprintf(to, 40, ", means of %" PRId64, plot.smooth);
    return to;
}

const double *plot_smoothed(const double *y, size_t n, double **ret_made)
{
    *ret_made = plot.smooth > 1 ? tern_alloc(n + 1, sizeof **ret_made, "a curve", NULL) : NULL;
    if (!*ret_made)
        return y;
    tern_report_smooth(*ret_made, y, n, (size_t)plot.smooth);
    return *ret_made;
}
