/* core/report: tables and plots, as a terminal shows them. */
#include "tests/unit/tap.h"

#include "core/report/report.h"

#include <math.h>

static const struct tern_report_field fields[] = {
    {"name", "what it is called", false}, {"steps", "how many", true}, {"cause", "why", false}};
static struct tern_err err;

static const char *table(const char *format, const char *const *cells, size_t rows,
                         struct tern_report_style style)
{
    static struct tern_buf b;
    struct tern_report_column c[TERN_REPORT_MAX_COLUMNS];
    size_t n;

    tern_buf_clear(&b);
    if (tern_report_columns(fields, 3, format, c, &n, &err) < 0)
        return err.text;
    tern_report_table(&b, &(struct tern_report_table){fields, 3, c, n, cells, rows, style});
    return b.data;
}

static void test_table(void)
{
    static const char *const cells[] = {"pubmed", "1500", "a|b\nc", "größe", "7", NULL};
    struct tern_report_style plain = {0}, parsable = {.parsable = true}, bare = {.no_header = true},
                             narrow = {.columns = 20};

    is(table("name,steps,cause", cells, 2, plain),
       "name   steps cause\npubmed  1500 a|b\\nc\ngröße      7 \n",
       "a table is aligned by letters, not bytes");
    is(table("STEPS,name", cells, 2, parsable), "steps|name\n1500|pubmed\n7|größe\n",
       "-P separates cells by '|'");
    is(table("cause", cells, 1, parsable), "cause\na\\x7cb\\nc\n",
       "a '|' in a cell is escaped with -P");
    is(table("name", (const char *[]){"\33[2Jx\\y", NULL, NULL}, 1, parsable),
       "name\n\\x1b[2Jx\\\\y\n", "a command of a terminal is escaped, a backslash doubled");
    is(table("name%3,steps%-6,name%4", cells, 2, bare), "pub 1500   pubm\ngrö 7      größ\n",
       "column widths cut and align cells");
    is(table("name,steps,cause", (const char *[]){"x", "1", "0123456789abcdef"}, 1, narrow),
       "name steps cause\nx        1 012345678\n",
       "the last column is cut at the terminal's width");
    struct tern_report_column cut[] = {
        {.field = 0, .least = 8}, {.field = 1, .right = true}, {.field = 2}};
    static struct tern_buf b;
    tern_report_table(
        &b, &(struct tern_report_table){fields,
                                        3,
                                        cut,
                                        3,
                                        (const char *[]){"0123456789abcdef", "1", "0123456"},
                                        1,
                                        {.columns = 25}});
    is(b.data, "name        steps cause\n0123456789+     1 0123456\n",
       "a column that may be cut is, until the line fits");
    has(table("nam", cells, 1, plain), "did you mean 'name'?",
        "an unknown field is refused with the nearest name");
    has(table("name%x", cells, 1, plain), "a width is %N", "a bad column width is refused");
    has(table("", cells, 1, plain), "no columns", "an empty list of fields is refused");
}

static const char *plot(struct tern_report_plot p)
{
    static struct tern_buf b;

    tern_buf_clear(&b);
    tern_report_plot(&b, &p);
    return b.data;
}

enum { N = 1000000 };

static const struct tern_report_mark marks[] = {{0, 'C'}, {250000, 'R'}};
static const struct tern_report_plot million = {.title = "loss",
                                                .x_label = "step",
                                                .columns = 80,
                                                .rows = 16,
                                                .utf8 = true,
                                                .n_lines = 1,
                                                .marks = marks,
                                                .n_marks = 2,
                                                .mark_help = "R restart"};

/* The rows of a picture in UTF-8 that have a dot of a line. */
static int rows_with_dots(const char *s)
{
    int rows = 0;

    for (const char *line = s; *line; line = strchr(line, '\n') + 1) {
        size_t n = strcspn(line, "\n");
        for (size_t i = 0; i + 1 < n; i++)
            if ((line[i] & 0xff) == 0xe2 &&
                ((line[i + 1] & 0xff) >= 0xa0 && (line[i + 1] & 0xff) <= 0xa3)) {
                rows++;
                break;
            }
    }
    return rows;
}

/* One point in a million stands out. */
static void test_spike(const double *x, double *y)
{
    struct tern_report_line l = {"loss", x, y, N};
    struct tern_report_plot p = million;
    p.lines = &l;

    y[500000] = 10;
    const char *s = plot(p);
    printf("%s", s);
    int rows_with_spike = rows_with_dots(s);
    ok(rows_with_spike == 12, "a spike of one in a million reaches the top (%d rows)",
       rows_with_spike);
    has(s, "R   R restart", "restarts are marked");
    has(s, "10 ┤", "the axis has round ticks");
    has(s, "800k", "and short numbers");
    p.utf8 = false;
    s = plot(p);
    bool ascii = true;
    for (const char *c = s; *c; c++)
        ascii = ascii && (unsigned char)*c < 128;
    ok(ascii && strchr(s, '+'), "ASCII without UTF-8");
    printf("%s", s);

    for (int i = 0; i < N; i++)
        y[i] = NAN;
    has(plot(p), "nothing to draw", "all NaN");
}

/* Few points: a single one, a hole, a logarithmic axis. */
static void test_few_points(void)
{
    struct tern_report_plot p = million;
    double one = 3;
    struct tern_report_line single = {"x", &one, &one, 1};
    p.lines = &single;
    p.utf8 = true;
    ok(plot(p) && strstr(plot(p), "3 ┤"), "a single point");
    /* NaN in the middle leaves a hole. */
    static double gx[9], gy[9];
    for (int i = 0; i < 9; i++) {
        gx[i] = i;
        gy[i] = i >= 3 && i <= 5 ? NAN : 1;
    }
    gy[8] = 1.5;
    struct tern_report_line gap = {"x", gx, gy, 9};
    p.lines = &gap;
    p.utf8 = false;
    has(plot(p), ".       ", "NaN breaks the line");
    p.log_y = true;
    gy[0] = -1;
    gy[8] = 1000;
    has(plot(p), "100", "a logarithmic axis");
    p.rows = p.columns = 0;
    ok(plot(p) != NULL, "the smallest picture");
}

static void test_plot(void)
{
    double *x = malloc(N * sizeof *x), *y = malloc(N * sizeof *y);

    for (int i = 0; i < N; i++) {
        x[i] = i;
        y[i] = 2;
    }
    test_spike(x, y);
    test_few_points();
    free(x);
    free(y);
}

int main(void)
{
    test_table();
    test_plot();
    return tap_done();
}
