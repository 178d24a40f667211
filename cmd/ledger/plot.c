/* tern ledger plot: curves in the terminal. */
#include "cmd/ledger/show.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { MAX_LINES = 6, MAX_MARKS = 4096, ROWS = 20 };

static bool all, log_y, ascii;
static int64_t rows;

/* The first step of `attempt` that is drawn; -1 for none. */
static int64_t first_drawn(const struct tern_ledger_series *s, uint32_t attempt)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->attempt[i] == attempt)
            return (int64_t)s->step[i];
    return -1;
}

/* Restarts (where a later attempt began) and effective checkpoints. */
static size_t find_marks(struct tern_ledger *l, const struct tern_ledger_series *drawn,
                         struct tern_report_mark *to)
{
    struct tern_ledger_rows a = {0}, c = {0};
    size_t n = 0;

    if (tern_ledger_attempts(l, &a, NULL) == 0 && tern_ledger_checkpoints(l, &c, NULL) == 0) {
        for (size_t i = 1; i < a.n && n < MAX_MARKS; i++) {
            const struct tern_ledger_attempt *t = &a.attempts[i];
            int64_t from =
                t->resumed_step >= 0 ? t->resumed_step + 1 : first_drawn(drawn, t->attempt);
            if (from >= 0)
                to[n++] = (struct tern_report_mark){(double)from, 'R'};
        }
        for (size_t i = 0; i < c.n && n < MAX_MARKS; i++) {
            const struct tern_ledger_checkpoint *k = &c.checkpoints[i];
            if (k->effective && k->state &&
                (strcmp(k->state, "published") == 0 || strcmp(k->state, "verified") == 0))
                to[n++] = (struct tern_report_mark){(double)k->step, 'C'};
        }
    }
    tern_ledger_rows_free(&a);
    tern_ledger_rows_free(&c);
    return n;
}

static int picture_rows(void)
{
    struct winsize w;

    if (rows)
        return (int)(rows < 200 ? rows : 200);
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_row >= ROWS + 4)
        return w.ws_row / 2 > ROWS ? w.ws_row / 2 : ROWS;
    return ROWS;
}

static int draw(struct tern_ledger *l, const struct tern_ledger_series *s,
                const struct tern_report_line *lines, size_t n, struct tern_err *err)
{
    struct tern_report_mark *marks = tern_alloc(MAX_MARKS, sizeof *marks, "marks", err);
    struct tern_ledger_rows run = {0};
    struct tern_buf b = {0};

    if (!marks || tern_ledger_runs(l, &run, err) < 0) {
        free(marks);
        return -1;
    }
    char *title = tern_strf("%s  %s%s", run.n && run.runs[0].name ? run.runs[0].name : "",
                            n == 1 ? lines[0].label : "", log_y ? "  (log)" : "");
    struct tern_report_plot p = {.title = title,
                                 .x_label = "step",
                                 .columns = tern_cmd_columns(),
                                 .rows = picture_rows(),
                                 .utf8 = !ascii && tern_report_utf8(),
                                 .color = tern_cmd_color(STDOUT_FILENO),
                                 .log_y = log_y,
                                 .lines = lines,
                                 .n_lines = n,
                                 .marks = marks,
                                 .n_marks = find_marks(l, s, marks),
                                 .mark_help = "R restart, C checkpoint"};
    tern_report_plot(&b, &p);
    free(title);
    free(marks);
    tern_ledger_rows_free(&run);
    return show_buf(&b, err);
}

static int print_json(const struct tern_ledger_series *s, char *const *names, size_t n,
                      struct tern_err *err)
{
    json_t *top = json_object();

    for (size_t k = 0; k < n; k++) {
        json_t *points = json_array();
        for (size_t i = 0; i < s[k].n; i++) {
            json_t *p = json_object();
            json_object_set_new(p, "step", json_integer((json_int_t)s[k].step[i]));
            tern_json_set_real(p, "value", "class", s[k].value[i]);
            json_object_set_new(p, "attempt", json_integer(s[k].attempt[i]));
            json_object_set_new(p, "time", show_json_time(s[k].wall_ns[i]));
            json_array_append_new(points, p);
        }
        json_object_set_new(top, names[k], points);
    }
    return show_json(top, err);
}

/* The error of an unknown name lists the known ones. */
static int name_metrics(struct tern_ledger *l, struct tern_err *err)
{
    struct tern_ledger_rows m = {0};
    struct tern_buf b = {0};

    if (tern_ledger_metrics(l, &m, NULL) == 0 && err && m.n) {
        for (size_t i = 0; i < m.n && i < 20; i++)
            tern_buf_printf(&b, " %s", m.names[i]);
        char *text = tern_strdup(err->text);
        tern_err_set(err, err->code, "%s. There are:%s%s", text, b.data, m.n > 20 ? " ..." : "");
        free(text);
    }
    tern_buf_free(&b);
    tern_ledger_rows_free(&m);
    return -1;
}

static int run(int n_args, char **args, struct tern_err *err)
{
    static char *loss[] = {"loss"};
    struct tern_ledger_series s[MAX_LINES] = {{0}};
    struct tern_report_line lines[MAX_LINES];
    char **names = n_args > 1 ? args + 1 : loss;
    size_t n = n_args > 1 ? (size_t)n_args - 1 : 1;
    int rc = -1;
    struct tern_ledger *l = show_open_run(n_args ? args[0] : NULL, err);

    if (!l)
        return -1;
    for (size_t k = 0; k < n; k++) {
        if (tern_ledger_series(l, names[k], all, &s[k], err) < 0) {
            name_metrics(l, err);
            goto out;
        }
        lines[k] = (struct tern_report_line){names[k], s[k].step, s[k].value, s[k].n};
    }
    rc = show.json ? print_json(s, names, n, err) : draw(l, s, lines, n, err);
out:
    for (size_t k = 0; k < n; k++)
        tern_ledger_series_free(&s[k]);
    tern_ledger_close(l);
    return rc;
}

static const struct tern_opt opts[] = {
    SHOW_OPT_LEDGER,
    {"all", 0, TERN_OPT_FLAG, .to.flag = &all,
     .help = "also values that a later attempt superseded"},
    {"log", 0, TERN_OPT_FLAG, .to.flag = &log_y, .help = "logarithmic values"},
    {"ascii", 0, TERN_OPT_FLAG, .to.flag = &ascii, .help = "no braille (also without UTF-8)"},
    {"rows", 0, TERN_OPT_INT, "N", .to.integer = &rows,
     .help = "lines of the picture (default: half the terminal, at least 20)"},
    {"json", 0, TERN_OPT_FLAG, .to.flag = &show.json, .help = "print the points as JSON"},
    {0},
};

const struct tern_cmd ledger_plot = {
    .name = "plot",
    .args = "[RUN [METRIC...]]",
    .summary = "draw metrics of a run over its steps",
    .about = "Without METRIC the training loss; up to 6 share one picture. Every column keeps its "
             "smallest and largest value.",
    .examples = "  tern ledger plot latest\n"
                "  tern ledger plot pubmed-cpt grad_norm --log\n",
    .opts = opts,
    .args_max = 1 + MAX_LINES,
    .run = run,
};
