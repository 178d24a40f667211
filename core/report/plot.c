/* Line plots for terminals: braille has two dots across and four down in a character. */
#include "core/report/report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
    MIN_COLUMNS = 30,
    MAX_COLUMNS = 1000,
    MIN_ROWS = 8,
    MAX_ROWS = 200,
    MAX_TICKS = 16,
    LABEL = 9, /* characters of a y label: "-1.25e-10" */
};

struct canvas {
    int columns, rows; /* characters inside the axes */
    int across, down;  /* dots in a character */
    uint8_t *dots;     /* [rows][columns]: bits as in braille */
    uint8_t *line;     /* [rows][columns]: which line drew there last, from 1 */
    double x0, x1, y0, y1;
};

static int dot_columns(const struct canvas *c)
{
    return c->columns * c->across;
}

static int dot_rows(const struct canvas *c)
{
    return c->rows * c->down;
}

static void set(struct canvas *c, int x, int y, int line)
{
    /* Unicode 15, block 2800: the bit of (column, row from the top). */
    static const uint8_t bits[2][4] = {{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}};

    if (x < 0 || y < 0 || x >= dot_columns(c) || y >= dot_rows(c))
        return;
    y = dot_rows(c) - 1 - y;
    size_t at = (size_t)(y / c->down) * (size_t)c->columns + (size_t)(x / c->across);
    /* A later line takes the character over, so that colours do not mix. */
    if (c->line[at] != line)
        c->dots[at] = 0;
    c->line[at] = (uint8_t)line;
    c->dots[at] |= bits[x % c->across][y % c->down];
}

static int place(double v, double lo, double hi, int n)
{
    double t = hi > lo ? (v - lo) / (hi - lo) : 0.5;
    int i = (int)floor(t * (n - 1) + 0.5);

    return i < 0 ? 0 : i >= n ? n - 1 : i;
}

/* y as drawn; false when it breaks the line. */
static bool height(const struct tern_report_plot *p, double y, double *out)
{
    if (!isfinite(y) || (p->log_y && y <= 0))
        return false;
    *out = p->log_y ? log10(y) : y;
    return true;
}

/* What falls into one column of dots: first, last, lowest, highest. */
struct slot {
    bool used, joined; /* joined: no break between the slot before and this one */
    int first, last, low, high;
};

static void draw(struct canvas *c, const struct tern_report_plot *p,
                 const struct tern_report_line *l, int number, struct slot *slots)
{
    int n = dot_columns(c);
    bool broken = true;

    memset(slots, 0, (size_t)n * sizeof *slots);
    for (size_t i = 0; i < l->n; i++) {
        double y;
        if (!isfinite(l->x[i]) || !height(p, l->y[i], &y)) {
            broken = true;
            continue;
        }
        struct slot *s = &slots[place(l->x[i], c->x0, c->x1, n)];
        int at = place(y, c->y0, c->y1, dot_rows(c));
        if (!s->used)
            *s = (struct slot){true, !broken, at, at, at, at};
        s->last = at;
        s->low = at < s->low ? at : s->low;
        s->high = at > s->high ? at : s->high;
        broken = false;
    }
    for (int x = 0, before = -1; x < n; x++) {
        const struct slot *s = &slots[x];
        if (!s->used)
            continue;
        for (int y = s->low; y <= s->high; y++)
            set(c, x, y, number);
        /* From the last dot drawn straight to this one's first. */
        for (int i = before; s->joined && before >= 0 && i < x; i++) {
            int a = slots[before].last, w = x - before;
            int from = a + (int)lround((double)(s->first - a) * (i - before) / w);
            int to = a + (int)lround((double)(s->first - a) * (i + 1 - before) / w);
            for (int y = from < to ? from : to; y <= (from < to ? to : from); y++)
                set(c, y == from ? i : i + 1, y, number);
        }
        before = x;
    }
}

/* Steps of 1, 2 or 5 times a power of ten, at most `max` of them in [lo, hi]. */
static double tick_step(double lo, double hi, int max)
{
    double raw = (hi - lo) / max;
    double power = pow(10, floor(log10(raw)));
    double m = raw / power;

    return power * (m <= 1.0000001 ? 1 : m <= 2.0000001 ? 2 : m <= 5.0000001 ? 5 : 10);
}

static int ticks(double lo, double hi, int max, double to[MAX_TICKS])
{
    int n = 0;

    if (!(hi > lo)) {
        to[0] = lo;
        return 1;
    }
    double step = tick_step(lo, hi, max);
    for (double i = ceil(lo / step - 1e-9); i * step <= hi + step * 1e-9 && n < MAX_TICKS; i++)
        to[n++] = i * step;
    return n;
}

/* Short: 1500, 0.05, 2.5e-05, 150k, 2M. */
static void label(char *to, size_t n, double v)
{
    double a = fabs(v);

    if (a >= 1e6 && a < 1e12)
        snprintf(to, n, a >= 1e9 ? "%.4gG" : "%.4gM", a >= 1e9 ? v / 1e9 : v / 1e6);
    else if (a >= 1e4 && a < 1e6)
        snprintf(to, n, "%.5gk", v / 1e3);
    else
        snprintf(to, n, "%.4g", a < 1e-300 ? 0 : v);
}

static bool ranges(const struct tern_report_plot *p, struct canvas *c)
{
    bool any = false;

    for (size_t k = 0; k < p->n_lines; k++) {
        for (size_t i = 0; i < p->lines[k].n; i++) {
            double x = p->lines[k].x[i], y;
            if (!isfinite(x) || !height(p, p->lines[k].y[i], &y))
                continue;
            if (!any) {
                c->x0 = c->x1 = x;
                c->y0 = c->y1 = y;
            }
            any = true;
            c->x0 = x < c->x0 ? x : c->x0;
            c->x1 = x > c->x1 ? x : c->x1;
            c->y0 = y < c->y0 ? y : c->y0;
            c->y1 = y > c->y1 ? y : c->y1;
        }
    }
    return any;
}

static const char *const colors[] = {"\033[36m", "\033[33m", "\033[35m",
                                     "\033[32m", "\033[31m", "\033[34m"};

static void color(struct tern_buf *to, const struct tern_report_plot *p, int line)
{
    if (p->color)
        tern_buf_puts(to, line ? colors[(line - 1) % 6] : "\033[0m");
}

static void put_dots(struct tern_buf *to, bool utf8, uint8_t dots)
{
    if (!utf8) {
        /* One across, three down: where in the line the highest dot is. */
        tern_buf_puts(to, dots & 1 ? (dots & 4 ? "|" : "'") : dots & 2 ? "-" : dots ? "." : " ");
        return;
    }
    if (!dots) {
        tern_buf_puts(to, " ");
        return;
    }
    char s[4] = {(char)0xe2, (char)(0xa0 | dots >> 6), (char)(0x80 | (dots & 0x3f)), 0};
    tern_buf_puts(to, s);
}

static void put_row(struct tern_buf *to, const struct tern_report_plot *p, const struct canvas *c,
                    int row, const char *left)
{
    int last = -1, now = 0;
    size_t base = (size_t)row * (size_t)c->columns;

    tern_buf_printf(to, "%*s %s", LABEL, left, p->utf8 ? (*left ? "┤" : "│") : *left ? "+" : "|");
    for (int x = 0; x < c->columns; x++)
        if (c->dots[base + (size_t)x])
            last = x;
    for (int x = 0; x <= last; x++) {
        int line = c->dots[base + (size_t)x] ? c->line[base + (size_t)x] : now;
        if (line != now)
            color(to, p, line);
        now = line;
        put_dots(to, p->utf8, c->dots[base + (size_t)x]);
    }
    if (now)
        color(to, p, 0);
    tern_buf_puts(to, "\n");
}

static void put_rows(struct tern_buf *to, const struct tern_report_plot *p, const struct canvas *c)
{
    double at[MAX_TICKS];
    int n = ticks(c->y0, c->y1, c->rows / 3 < MAX_TICKS ? c->rows / 3 : MAX_TICKS - 1, at);

    for (int row = 0; row < c->rows; row++) {
        char left[32] = "";
        for (int i = 0; i < n; i++)
            if ((dot_rows(c) - 1 - place(at[i], c->y0, c->y1, dot_rows(c))) / c->down == row)
                label(left, sizeof left, p->log_y ? pow(10, at[i]) : at[i]);
        put_row(to, p, c, row, left);
    }
}

static void put_marks(struct tern_buf *to, const struct tern_report_plot *p, const struct canvas *c)
{
    char *row = malloc((size_t)c->columns + 1);

    if (!row)
        return;
    memset(row, ' ', (size_t)c->columns);
    row[c->columns] = '\0';
    for (size_t i = 0; i < p->n_marks; i++) {
        double x = p->marks[i].x;
        if (!(x >= c->x0 && x <= c->x1))
            continue;
        char *at = &row[place(x, c->x0, c->x1, dot_columns(c)) / c->across];
        /* Where two fall together the rarer, a restart, is shown. */
        if (*at != 'R')
            *at = p->marks[i].sign;
    }
    for (int n = c->columns; n && row[n - 1] == ' ';)
        row[--n] = '\0';
    if (*row)
        tern_buf_printf(to, "%*s  %s   %s\n", LABEL, "", row, p->mark_help ? p->mark_help : "");
    free(row);
}

static void put_x_axis(struct tern_buf *to, const struct tern_report_plot *p,
                       const struct canvas *c)
{
    double at[MAX_TICKS];
    int n = ticks(c->x0, c->x1, c->columns / 12 < MAX_TICKS ? c->columns / 12 : MAX_TICKS - 1, at);
    struct tern_buf marks = {0};
    int used = 0;

    tern_buf_printf(to, "%*s %s", LABEL, "", p->utf8 ? "└" : "+");
    for (int x = 0, i = 0; x < c->columns; x++) {
        bool tick = false;
        for (; i < n && place(at[i], c->x0, c->x1, dot_columns(c)) / c->across <= x; i++)
            tick = true;
        tern_buf_puts(to, p->utf8 ? (tick ? "┬" : "─") : tick ? "+" : "-");
    }
    tern_buf_puts(to, "\n");
    for (int i = 0; i < n; i++) {
        char s[32];
        label(s, sizeof s, at[i]);
        int len = (int)strlen(s), x = place(at[i], c->x0, c->x1, dot_columns(c)) / c->across;
        int start = x - len / 2 < 0 ? 0 : x - len / 2;
        if (start < used)
            continue;
        tern_buf_printf(&marks, "%*s%s", start - used, "", s);
        used = start + len + 1;
        tern_buf_puts(&marks, " ");
    }
    tern_buf_printf(to, "%*s  %s%s\n", LABEL, "", marks.data ? marks.data : "",
                    p->x_label ? p->x_label : "");
    tern_buf_free(&marks);
}

static void put_clean(struct tern_buf *to, const char *text)
{
    char *s = tern_strdup(text ? text : "");

    tern_str_mask(s);
    tern_buf_puts(to, s);
    free(s);
}

static void put_legend(struct tern_buf *to, const struct tern_report_plot *p)
{
    if (p->title) {
        tern_buf_printf(to, "%*s  ", LABEL, "");
        put_clean(to, p->title);
    }
    for (size_t i = 0; i < p->n_lines && (p->n_lines > 1 || !p->title); i++) {
        tern_buf_puts(to, i || p->title ? "   " : "           ");
        color(to, p, (int)i + 1);
        tern_buf_puts(to, p->utf8 ? "━ " : "- ");
        put_clean(to, p->lines[i].label);
        color(to, p, 0);
    }
    tern_buf_puts(to, "\n");
}

static int clamp(int v, int lo, int hi)
{
    return v < lo ? lo : v > hi ? hi : v;
}

void tern_report_plot(struct tern_buf *to, const struct tern_report_plot *p)
{
    struct canvas c = {
        .columns = clamp(p->columns, MIN_COLUMNS, MAX_COLUMNS) - LABEL - 3,
        .rows = clamp(p->rows, MIN_ROWS, MAX_ROWS) - 3 - (p->n_marks > 0), /* title, axis, labels */
        .across = p->utf8 ? 2 : 1,
        .down = p->utf8 ? 4 : 3,
    };
    size_t cells = (size_t)c.columns * (size_t)c.rows;
    struct slot *slots = calloc((size_t)dot_columns(&c), sizeof *slots);

    c.dots = calloc(cells, 1);
    c.line = calloc(cells, 1);
    if (!slots || !c.dots || !c.line) {
        to->failed = true;
    } else if (!ranges(p, &c)) {
        put_clean(to, p->title ? p->title : "plot");
        tern_buf_puts(to, ": nothing to draw: no finite value\n");
    } else {
        for (size_t i = 0; i < p->n_lines && i < 255; i++)
            draw(&c, p, &p->lines[i], (int)i + 1, slots);
        put_legend(to, p);
        put_rows(to, p, &c);
        put_x_axis(to, p, &c);
        if (p->n_marks)
            put_marks(to, p, &c);
    }
    free(slots);
    free(c.dots);
    free(c.line);
}

bool tern_report_utf8(void)
{
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};

    for (int i = 0; i < 3; i++) {
        const char *v = getenv(names[i]);
        if (v && *v)
            return strcasestr(v, "utf-8") || strcasestr(v, "utf8");
    }
    return false;
}
