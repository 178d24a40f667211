/* Tables and plots for terminals, from plain structs: tables like those of Slurm's tools, line
 * plots in braille.  Everything is rendered into a buffer; nothing is printed here. */
#ifndef TERN_REPORT_REPORT_H
#define TERN_REPORT_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/base/str.h"

/* ---------------------------------------------------------------- tables */

/* What a column can show: a static table of these per command. */
struct tern_report_field {
    const char *name; /* "jobid": what -o takes, in any case, and the heading */
    const char *help;
    bool right; /* numbers stand right */
};

/* A column that is shown. */
struct tern_report_column {
    size_t field;
    int width; /* in characters, longer cells are cut; 0: as wide as the widest */
    bool right;
    int least; /* where the line is too long, it may be cut to so many, with a '+' in place of its
                  middle; 0: it stays */
};

enum { TERN_REPORT_MAX_COLUMNS = 64 };

/* Choose columns as sacct(1) does: "name,state%12,cause%-40": `%N` right and `%-N` left aligned in
 * N characters.  Of two names that differ in the case alone, the one as typed is taken.  Fills at
 * most TERN_REPORT_MAX_COLUMNS of `to`, *n with their number. */
int tern_report_columns(const struct tern_report_field *fields, size_t n_fields, const char *format,
                        struct tern_report_column *to, size_t *n, struct tern_err *err);

/* Names and help of all fields, for --helpformat. */
void tern_report_fields(struct tern_buf *to, const struct tern_report_field *fields,
                        size_t n_fields);

/* Add the first and the last characters of `text`, `width` with a '+' between them.  Names of a
 * sweep begin alike, and paths differ at their end.  `text` has more, and is safe on a terminal. */
void tern_report_cut(struct tern_buf *to, const char *text, int width);

struct tern_report_style {
    bool parsable;  /* -P: cells between '|', no padding, no final '|' */
    bool no_header; /* -n */
    int columns;    /* a line ends here: columns with a `least` are cut, then the last if it stands
                       left; 0: no limit */
};

struct tern_report_table {
    const struct tern_report_field *fields; /* [n_fields] */
    size_t n_fields;
    const struct tern_report_column *columns; /* [n_columns]: those that are shown */
    size_t n_columns;
    const char *const *cells; /* [n_rows][n_fields], NULL for an empty one; UTF-8 */
    size_t n_rows;
    struct tern_report_style style;
};

/* A character that is unsafe in a line is written as "\n", "\t" or "\x1b", byte by byte.  With
 * `parsable` so are '|' and, doubled, '\', so that a cell reads back as it was. */
void tern_report_table(struct tern_buf *to, const struct tern_report_table *t);

/* ---------------------------------------------------------------- plots */

/* Consecutive points of a line, summed up.  Those whose y is finite: */
struct tern_report_part {
    size_t finite;                     /* how many */
    double x0, x1;                     /* places of the first and the last */
    double first, last, low, high;     /* y */
    bool broken_before, broken_behind; /* there is a y that is not finite before the first, or
                                          behind the last; both where none is finite */
};

/* The points of part `i`: *ret_x and *ret_y [*ret_n] hold until the next call.  -1: not to be had.
 */
typedef int tern_report_read(void *self, size_t i, const double **ret_x, const double **ret_y,
                             size_t *ret_n);

struct tern_report_line {
    const char *label;
    const double *x, *y; /* [n], x not decreasing; a y that is not finite breaks the line */
    size_t n;
    /* Or, in their place, parts [n_parts], of n points together.  Only those are read whose points
     * come apart in the picture, which is the same. */
    const struct tern_report_part *parts;
    size_t n_parts;
    tern_report_read *read;
    void *self;
    int quantity; /* lines of one number measure the same, and share a scale */
    char sign;    /* one ASCII character at its points, where there is room; 0: none */
    bool level;   /* not a curve: dashes at the height y[0], n is 1 */
};

/* A vertical mark under the picture. */
struct tern_report_mark {
    double x;
    char sign; /* one ASCII character: 'R' restart, 'C' checkpoint */
    size_t row;
};

struct tern_report_plot {
    const char *title, *x_label; /* or NULL; of x_label nine characters are shown */
    int columns, rows;           /* of the picture without its legend's further lines and mark_help,
                                    at least 30 by 8 */
    bool utf8;                   /* braille; else ASCII */
    bool color;                  /* ANSI colours, one a line */
    bool log_y;                  /* values at or below 0 break the line */
    const struct tern_report_line *lines;
    size_t n_lines;
    const struct tern_report_mark *marks; /* in any order */
    size_t n_marks;
    const char *const *mark_labels; /* [n_mark_rows], of rows of marks; NULL: one row without */
    size_t n_mark_rows;
    const char *mark_help; /* "R restart, C checkpoint"; shown when there are marks */
};

/* Draws with the smallest and largest value of every column of dots, so that no spike is averaged
 * away.  Ticks are at 1, 2 or 5 times a power of ten.  Where one quantity would lie flat on the
 * other's scale, there is a second one at the right.  The legend says which line is on which. Says
 * so when there is nothing to draw.  Where a part cannot be read, to->failed is set. */
void tern_report_plot(struct tern_buf *to, const struct tern_report_plot *p);

/* The sign of line `i`: o x + * ..., again and again. */
char tern_report_sign(size_t i);

/* to[n]: means of up to `window` values around each, of as many before as behind, so an even window
 * is one more.  A value that is not finite stays, and enters no mean.  `to` and `from` may not
 * overlap. */
void tern_report_smooth(double *to, const double *from, size_t n, size_t window);

/* Does the environment's locale (LC_ALL, LC_CTYPE, LANG) speak UTF-8? */
bool tern_report_utf8(void);

#endif
