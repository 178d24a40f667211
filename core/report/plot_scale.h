/* Scales of a plot: ranges of values, the lines that share one, ticks. */
#ifndef TERN_REPORT_PLOT_SCALE_H
#define TERN_REPORT_PLOT_SCALE_H

#include "core/report/report.h"

enum { TERN_REPORT_TICKS = 16 };

/* From the least to the greatest of the values that were added; start from {0}. */
struct tern_report_range {
    double lo, hi;
    bool any;
};
void tern_report_range_add(struct tern_report_range *r, double v);

/* Lines in pieces: all of one that has its points, else a part each.  Start from {.line, .log_y}.
 */
struct tern_report_walk {
    const struct tern_report_line *line;
    bool log_y, failed; /* failed: a part could not be read */
    /* Are these places one in the picture?  Then the part between them is its first, least,
     * greatest and last point.  NULL: they are, of any part. */
    bool (*one)(const void *canvas, double x0, double x1);
    const void *canvas;
    const double *x, *y; /* of the piece, [n] */
    size_t n, at;
    double room_x[6], room_y[6];
};
/* The next piece; false at the end. */
bool tern_report_walk_next(struct tern_report_walk *w);

/* y as drawn, on a logarithmic axis its decimal logarithm; false when it breaks the line. */
bool tern_report_height(bool log_y, double y, double *ret_height);

/* The range of the heights of line `l`; not `any`: there is nothing to draw. */
struct tern_report_range tern_report_heights(const struct tern_report_line *l, bool log_y);
/* The range of places that have a height. */
struct tern_report_range tern_report_places(const struct tern_report_line *l, bool log_y);

/* Give each line its scale, ret_right [n_lines]: 0 the left one, 1 the right one.  Lines of one
 * quantity share a scale.  There is a second one where some quantity would lie flat on the other's.
 * Returns whether there are two. */
bool tern_report_scales(const struct tern_report_plot *p, uint8_t *ret_right);

/* Heights of ticks in [lo, hi], at most `max`, of round values.  Returns how many. */
int tern_report_ticks(double lo, double hi, int max, double to[TERN_REPORT_TICKS]);
/* The same of a logarithmic axis; lo and hi are logarithms. */
int tern_report_log_ticks(double lo, double hi, int max, double to[TERN_REPORT_TICKS]);

/* A number of an axis, short: 1500, 0.05, 2.5e-05, 150k, 2M. */
void tern_report_tick_label(char *to, size_t n, double v);

#endif
