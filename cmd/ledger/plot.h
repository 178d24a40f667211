/* tern ledger plot: what metrics of one run and held-out results of several have in common. */
#ifndef TERN_CMD_LEDGER_PLOT_H
#define TERN_CMD_LEDGER_PLOT_H

#include "cmd/ledger/compare.h"

enum { PLOT_MARKS_MAX = 4096 };

struct plot_options {
    bool all, log_y, ascii, held_out, a_byte;
    int64_t rows, smooth;
    const char *against, *baseline;
    struct tern_opt_list sets;
};
extern struct plot_options plot;

/* What stands along the x axis. */
struct plot_axis {
    enum show_axis kind;
    const char *label;
    double unit; /* dollars a node-hour; else 1 */
};
/* From --against and the price. */
int plot_axis_parse(struct plot_axis *ret_axis, struct tern_err *err);
/* Has the run what the axis shows?  Reads it. */
int plot_axis_read(const struct plot_axis *axis, struct show_facts *f, struct tern_err *err);
/* The place of a step of the run; `f` may be NULL where steps are the axis.  NAN: none. */
double plot_axis_at(const struct plot_axis *axis, const struct show_facts *f, double step);

/* Marks below the picture, a row each run. */
struct plot_marks {
    struct tern_report_mark *marks; /* [n], malloc'ed */
    size_t n;
};
/* Add the run's restarts (where a later attempt began) and effective checkpoints as row `row`. */
int plot_marks_add(struct plot_marks *m, struct tern_ledger *l, const struct show_facts *f,
                   const struct plot_axis *axis, size_t row, struct tern_err *err);

/* Print the picture: `p` has its title, labels, lines and rows of marks; the rest is set here. */
int plot_print(struct tern_report_plot *p, const struct plot_marks *m, struct tern_err *err);

/* An even number of --smooth becomes one more, and tern says so. */
void plot_smooth_odd(void);
/* ", means of 5"; "" without --smooth. */
const char *plot_smooth_words(char to[40]);
/* y [n], or with --smooth N a malloc'ed mean of it; free what *ret_made is set to. */
const double *plot_smoothed(const double *y, size_t n, double **ret_made);

/* tern ledger plot --held-out. */
int plot_held_out(int n_args, char **args, struct tern_err *err);

#endif
