/* core/report: tables and plots, as a terminal shows them. */
#include "tests/unit/tap.h"

#include "core/report/page.h"
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
    is(b.data, "name        steps cause\n01234+bcdef     1 0123456\n",
       "a column that may be cut keeps its first and last characters");
    tern_buf_clear(&b);
    tern_report_table(
        &b, &(struct tern_report_table){fields,
                                        3,
                                        cut,
                                        3,
                                        (const char *[]){"äöü3456789abcdëß", "1", "0123456"},
                                        1,
                                        {.columns = 22}});
    is(b.data, "name     steps cause\näöü+cdëß     1 0123456\n",
       "a cell is cut between characters, not bytes");
    const struct tern_report_field keys[] = {{"env.path", "", false}, {"env.PATH", "", false}};
    struct tern_report_column c[TERN_REPORT_MAX_COLUMNS];
    size_t n;
    ok(tern_report_columns(keys, 2, "env.PATH,env.path,ENV.path", c, &n, &err) == 0 && n == 3 &&
           c[0].field == 1 && c[1].field == 0 && c[2].field == 0,
       "of two fields that differ in the case the one as typed is taken");
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

static const struct tern_report_mark marks[] = {{.x = 0, .sign = 'C'}, {.x = 250000, .sign = 'R'}};
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
    struct tern_report_line l = {.label = "loss", .x = x, .y = y, .n = N};
    struct tern_report_plot p = million;
    p.lines = &l;

    y[500000] = 10;
    const char *s = plot(p);
    printf("%s", s);
    int rows_with_spike = rows_with_dots(s);
    ok(rows_with_spike == 12, "a spike of one in a million reaches the top (%d rows)",
       rows_with_spike);
    has(s, "R\n           R restart\n", "restarts are marked, and a line below explains the mark");
    has(s, "10 ┤", "the axis has round ticks");
    has(s, "800k", "the axis has short numbers");
    p.utf8 = false;
    s = plot(p);
    bool ascii = true;
    for (const char *c = s; *c; c++)
        ascii = ascii && (unsigned char)*c < 128;
    ok(ascii && strchr(s, '+'), "ASCII without UTF-8");
    printf("%s", s);

    for (int i = 0; i < N; i++)
        y[i] = NAN;
    has(plot(p), "nothing to draw", "a curve of NaN alone has nothing to draw");
}

/* Few points: a single one, a hole, a logarithmic axis. */
static void test_few_points(void)
{
    struct tern_report_plot p = million;
    double one = 3;
    struct tern_report_line single = {.label = "x", .x = &one, .y = &one, .n = 1};
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
    struct tern_report_line gap = {.label = "x", .x = gx, .y = gy, .n = 9};
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

/* ---------------------------------------------------------------- several lines */

static const double steps[] = {0, 100, 200, 300}, low[] = {12, 11, 10, 9},
                    near_low[] = {14, 12, 11, 9.5}, high[] = {900, 700, 500, 200};

static const char *two_lines(const double *a, const double *b, int quantity, bool color)
{
    const struct tern_report_line lines[] = {
        {.label = "one", .x = steps, .y = a, .n = 4, .sign = 'o'},
        {.label = "two", .x = steps, .y = b, .n = 4, .sign = 'x', .quantity = quantity}};

    return plot((struct tern_report_plot){.title = "two",
                                          .x_label = "step",
                                          .columns = 80,
                                          .rows = 12,
                                          .utf8 = true,
                                          .color = color,
                                          .lines = lines,
                                          .n_lines = 2});
}

static void test_scales(void)
{
    const char *s = two_lines(low, high, 1, false);

    printf("%s", s);
    has(s, "o one (left)", "a quantity that would lie flat: the first line has the left scale");
    has(s, "x two (right)", "a quantity that would lie flat: the other has the right one");
    has(s, "├ 500", "the right scale has its own ticks");
    has(s, "12 ┤", "the left scale has its own ticks");
    ok(strstr(s, "\033") == NULL, "no colour where none is wanted");
    s = two_lines(high, low, 1, false);
    has(s, "o one (left)", "the first line has the left scale, also where it is the greater");
    has(s, "├ 12", "the smaller quantity is then at the right");
    s = two_lines(low, near_low, 1, false);
    ok(!strstr(s, "(right)") && !strstr(s, "├"), "quantities of one magnitude share a scale");
    s = two_lines(low, high, 0, false);
    ok(!strstr(s, "(right)"), "lines of one quantity share a scale, whatever they are");
    s = two_lines(low, high, 1, true);
    has(s, "\033[36mo one (left)\033[0m", "the legend has the colour of its line");
    has(s, "\033[33mx", "signs have the colour of their line");
}

static void test_level(void)
{
    const double y = 7;
    const struct tern_report_line lines[] = {
        {.label = "one", .x = steps, .y = low, .n = 4, .sign = 'o'},
        {.label = "before", .y = &y, .n = 1, .level = true}};
    const struct tern_report_plot p = {
        .title = "t", .columns = 80, .rows = 12, .lines = lines, .n_lines = 2};
    const char *s = plot(p);

    printf("%s", s);
    has(s, "- before", "a level has its place in the legend");
    has(s, "|.. .. .. ", "a level is dashes across the picture, inside its range");
}

static void test_mark_rows(void)
{
    static const char *const names[] = {"lora", "sweep-lr-1e-4"};
    const struct tern_report_line line = {.label = "one", .x = steps, .y = low, .n = 4};
    const struct tern_report_mark marked[] = {{.x = 100, .sign = 'C'},
                                              {.x = 100, .sign = 'R', .row = 1}};
    const char *s = plot((struct tern_report_plot){.title = "t",
                                                   .x_label = "seconds of training",
                                                   .columns = 80,
                                                   .rows = 12,
                                                   .lines = &line,
                                                   .n_lines = 1,
                                                   .marks = marked,
                                                   .n_marks = 2,
                                                   .mark_labels = names,
                                                   .n_mark_rows = 2});

    printf("%s", s);
    has(s, "\n     lora                        C\n", "marks of a run have a row with its name");
    has(s, "\nswee+1e-4                        R\n", "a long name of a row keeps its end");
    has(s, "\nseco+ning  0 ", "a long name of the axis is cut");
}

/* Of a picture as low as can be. */
static void test_low(void)
{
    static const double values[][4] = {{11, 13, 17, 19}, {41, 43, 44, 47}, {1.2, 1.5, 1.3, 1.9}};
    const struct tern_report_mark mark = {.x = 100, .sign = 'C'};
    int least = 99;

    for (int rows = 8; rows < 12; rows++)
        for (size_t i = 0; i < 3; i++) {
            const struct tern_report_line line = {
                .label = "one", .x = steps, .y = values[i], .n = 4};
            const char *s = plot((struct tern_report_plot){.title = "t",
                                                           .columns = 80,
                                                           .rows = rows,
                                                           .utf8 = true,
                                                           .lines = &line,
                                                           .n_lines = 1,
                                                           .marks = &mark,
                                                           .n_marks = 1});
            int n = 0;
            for (const char *at = s; (at = strstr(at, "┤")); at++)
                n++;
            least = n < least ? n : least;
        }
    ok(least >= 1, "a picture of few rows has a number at its side");
    const struct tern_report_line two[] = {
        {.label = "one", .x = steps, .y = low, .n = 4},
        {.label = "two", .x = steps, .y = high, .n = 4, .quantity = 1}};
    has(plot((struct tern_report_plot){.columns = 30, .rows = 8, .lines = two, .n_lines = 2}),
        "\n           0", "a narrow picture has a number below it");
}

static void test_log_ticks(void)
{
    const double decade[] = {9, 11, 20, 42};
    const struct tern_report_line line = {.label = "one", .x = steps, .y = decade, .n = 4};
    struct tern_report_plot p = {
        .columns = 80, .rows = 24, .lines = &line, .n_lines = 1, .log_y = true};

    has(plot(p), "\n       40 +", "ticks of a logarithmic axis are round values");
    has(plot(p), "\n       10 +", "ticks of a logarithmic axis within a decade");
    const double zero[] = {9, 11, 0, 42}, hole[] = {9, 11, NAN, 42};
    struct tern_report_line broken = {.label = "one", .x = steps, .y = hole, .n = 4};
    p.lines = &broken;
    char *want = tern_strdup(plot(p));
    broken.y = zero;
    is(plot(p), want, "zero breaks the line on a logarithmic axis");
    free(want);
    const double decades[] = {0.5, 20, 300, 2000};
    const struct tern_report_line more = {.label = "one", .x = steps, .y = decades, .n = 4};
    p.lines = &more;
    for (const char *const *t = (const char *const[]){"1", "10", "100", "1000", NULL}; *t; t++) {
        char tick[32];
        snprintf(tick, sizeof tick, "\n%9s +", *t);
        has(plot(p), tick, "a tick at a power of ten");
    }
}

static void test_smooth(void)
{
    const double y[] = {1, 2, 6, NAN, 8, 10};
    double to[6];

    tern_report_smooth(to, y, 6, 3);
    ok(to[0] == 1 && to[5] == 10, "smoothing keeps the first and the last value");
    ok(to[1] == 3, "smoothing: the mean of three");
    ok(to[2] == 4 && isnan(to[3]) && to[4] == 9, "smoothing: a NaN stays, and enters no mean");
    tern_report_smooth(to, y, 6, 2);
    ok(to[1] == 3 && to[2] == 4 && to[4] == 9, "smoothing over two takes one more");
    tern_report_smooth(to, y, 6, 0);
    ok(to[1] == 2 && to[4] == 8, "smoothing over nothing changes nothing");
    tern_report_smooth(to, y, 6, 100);
    ok(to[1] == 3 && to[0] == 1, "smoothing over more than there is");
    ok(tern_report_sign(0) != tern_report_sign(1) && tern_report_sign(8) == tern_report_sign(0),
       "signs of lines");
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

/* ---- curves of pages */

static void test_thin_few(void)
{
    const double x[] = {1, 2, 5, 5}, y[] = {3, NAN, INFINITY, -2};
    struct tern_report_thin t = {0};

    ok(tern_report_thin(x, y, 0, 4, &t, &err) == 0 && t.n == 0, "a curve without points has none");
    tern_report_thin_free(&t);
    ok(tern_report_thin(x, y, 4, 4, &t, &err) == 0 && t.n == 4,
       "a curve of few points has them all");
    ok(t.x[2] == 5 && t.value[0] == 3 && t.low[0] == 3 && t.high[3] == -2 && t.count[1] == 1,
       "a point of a whole curve is itself");
    ok(isnan(t.value[1]) && isnan(t.value[2]) && t.class[0] == 0 && t.class[1] == 1 &&
           t.class[2] == 2,
       "a value that is not finite is NaN, with its class");
    tern_report_thin_free(&t);
    const double same[] = {7, 7, 7, 7, 7}, five[] = {1, 2, 3, 4, 5};
    ok(tern_report_thin(same, five, 5, 4, &t, &err) == 0 && t.n == 1 && t.count[0] == 5 &&
           t.value[0] == 3,
       "points at one place become one");
    tern_report_thin_free(&t);
}

static void test_thin(void)
{
    double *x = malloc(N * sizeof *x), *y = malloc(N * sizeof *y);
    struct tern_report_thin t = {0};
    size_t count = 0;
    double least = INFINITY, most = -INFINITY;
    bool ordered = true;

    for (int i = 0; i < N; i++) {
        x[i] = i + 1;
        y[i] = i == N / 3 ? NAN : 2;
    }
    y[N / 2] = -50;
    y[N - 1] = 80;
    ok(tern_report_thin(x, y, N, 100, &t, &err) == 0 && t.n == 50,
       "a curve of many points becomes half of what it may have");
    for (size_t i = 0; i < t.n; i++) {
        count += t.count[i];
        least = fmin(least, t.low[i]);
        most = fmax(most, t.high[i]);
        ordered &= i == 0 || t.x[i] > t.x[i - 1];
    }
    ok(count == N && ordered && t.x[t.n - 1] == N,
       "each point is in one part, the last at its end");
    ok(least == -50 && most == 80, "single low and high values are kept");
    ok(t.class[16] == 1 && fabs(t.value[16] - 2) < 1e-12 && t.class[17] == 0,
       "a NaN marks its part and does not enter its mean");
    tern_report_thin_free(&t);
    free(x);
    free(y);
}

int main(void)
{
    test_table();
    test_thin_few();
    test_thin();
    test_plot();
    test_scales();
    test_level();
    test_mark_rows();
    test_low();
    test_log_ticks();
    test_smooth();
    return tap_done();
}
