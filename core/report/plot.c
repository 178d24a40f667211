/* Line plots for terminals: braille has two dots across and four down in a character. */
#include "core/report/plot_scale.h"

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
    MAX_LINES = 255,
    LABEL = 9,    /* characters of a y label: "-1.25e-10" */
    SIGN_GAP = 6, /* characters between signs of a line */
};

struct canvas {
    int columns, rows; /* characters inside the axes */
    int across, down;  /* dots in a character */
    uint8_t *dots;     /* [rows][columns]: bits as in braille */
    uint8_t *line;     /* [rows][columns]: which line drew there last, from 1 */
    char *sign;        /* [rows][columns]: in place of the dots */
    double x0, x1;
    struct tern_report_range y[2]; /* of the left scale, and the right one */
    bool two;                      /* there is a right one */
    bool failed;                   /* a part of a line could not be read */
    uint8_t right[MAX_LINES];      /* which of them a line has */
};

static int clamp(int v, int lo, int hi)
{
    return v < lo ? lo : v > hi ? hi : v;
}

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

/* Do these places fall into one column of dots? */
static bool one_column(const void *canvas, double x0, double x1)
{
    const struct canvas *c = canvas;

    return place(x0, c->x0, c->x1, dot_columns(c)) == place(x1, c->x0, c->x1, dot_columns(c));
}

static struct tern_report_walk walk(const struct canvas *c, const struct tern_report_plot *p,
                                    const struct tern_report_line *l)
{
    return (struct tern_report_walk){.line = l, .log_y = p->log_y, .one = one_column, .canvas = c};
}

/* What falls into one column of dots: first, last, lowest, highest. */
struct slot {
    bool used, joined; /* joined: no break between the slot before and this one */
    int first, last, low, high;
};

/* The points of line `l` into slots [dot_columns], which are empty. */
static void fill(struct canvas *c, const struct tern_report_plot *p,
                 const struct tern_report_line *l, struct tern_report_range scale,
                 struct slot *slots)
{
    struct tern_report_walk w = walk(c, p, l);
    bool broken = true;

    while (tern_report_walk_next(&w))
        for (size_t i = 0; i < w.n; i++) {
            double y;
            if (!isfinite(w.x[i]) || !tern_report_height(p->log_y, w.y[i], &y)) {
                broken = true;
                continue;
            }
            struct slot *s = &slots[place(w.x[i], c->x0, c->x1, dot_columns(c))];
            int at = place(y, scale.lo, scale.hi, dot_rows(c));
            if (!s->used)
                *s = (struct slot){true, !broken, at, at, at, at};
            s->last = at;
            s->low = at < s->low ? at : s->low;
            s->high = at > s->high ? at : s->high;
            broken = false;
        }
    c->failed |= w.failed;
}

static void draw(struct canvas *c, const struct tern_report_plot *p,
                 const struct tern_report_line *l, int number, struct slot *slots)
{
    int n = dot_columns(c);

    memset(slots, 0, (size_t)n * sizeof *slots);
    fill(c, p, l, c->y[c->right[number - 1]], slots);
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

/* Dashes across the picture. */
static void draw_level(struct canvas *c, const struct tern_report_plot *p, int number)
{
    const struct tern_report_range scale = c->y[c->right[number - 1]];
    double y;

    if (!tern_report_height(p->log_y, p->lines[number - 1].y[0], &y))
        return;
    for (int x = 0; x < c->columns; x++)
        for (int i = 0; x % 3 < 2 && i < c->across; i++)
            set(c, x * c->across + i, place(y, scale.lo, scale.hi, dot_rows(c)), number);
}

/* Signs at points of the line, SIGN_GAP apart.  Where points are dense, lines begin one behind the
 * other, so that curves that run together show both signs. */
static void draw_signs(struct canvas *c, const struct tern_report_plot *p, int number)
{
    const struct tern_report_line *l = &p->lines[number - 1];
    const struct tern_report_range scale = c->y[c->right[number - 1]];
    int next = l->n * SIGN_GAP > (size_t)c->columns ? 2 * (number - 1) : 0;

    struct tern_report_walk w = walk(c, p, l);

    while (l->sign && tern_report_walk_next(&w))
        for (size_t i = 0; i < w.n; i++) {
            double y;
            if (!isfinite(w.x[i]) || !tern_report_height(p->log_y, w.y[i], &y))
                continue;
            int x = place(w.x[i], c->x0, c->x1, dot_columns(c)) / c->across;
            int row = c->rows - 1 - place(y, scale.lo, scale.hi, dot_rows(c)) / c->down;
            if (x < next)
                continue;
            const size_t at = (size_t)row * (size_t)c->columns + (size_t)x;
            c->sign[at] = l->sign;
            c->line[at] = (uint8_t)number;
            next = x + SIGN_GAP;
        }
    c->failed |= w.failed;
}

static bool find_ranges(const struct tern_report_plot *p, struct canvas *c)
{
    struct tern_report_range x = {0};

    for (size_t k = 0; k < p->n_lines; k++) {
        const struct tern_report_line *l = &p->lines[k];
        const struct tern_report_range r = tern_report_heights(l, p->log_y);
        if (!r.any)
            continue;
        tern_report_range_add(&c->y[c->right[k]], r.lo);
        tern_report_range_add(&c->y[c->right[k]], r.hi);
        if (l->level)
            continue;
        const struct tern_report_range places = tern_report_places(l, p->log_y);
        tern_report_range_add(&x, places.lo);
        tern_report_range_add(&x, places.hi);
    }
    c->x0 = x.lo;
    c->x1 = x.hi;
    return c->y[0].any && x.any;
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

/* The labels of a row, of the left and the right scale; "" where there is no tick. */
struct labels {
    char text[2][32];
};

static void put_row(struct tern_buf *to, const struct tern_report_plot *p, const struct canvas *c,
                    int row, const struct labels *labels)
{
    const char *left = labels->text[0], *right = labels->text[1];
    int last = c->two ? c->columns - 1 : -1, now = 0;
    size_t base = (size_t)row * (size_t)c->columns;

    tern_buf_printf(to, "%*s %s", LABEL, left, p->utf8 ? (*left ? "┤" : "│") : *left ? "+" : "|");
    for (int x = 0; x < c->columns; x++)
        if (c->dots[base + (size_t)x] || c->sign[base + (size_t)x])
            last = c->two ? last : x;
    for (int x = 0; x <= last; x++) {
        const size_t at = base + (size_t)x;
        int line = c->dots[at] || c->sign[at] ? c->line[at] : now;
        if (line != now)
            color(to, p, line);
        now = line;
        if (c->sign[at])
            tern_buf_add(to, &c->sign[at], 1);
        else
            put_dots(to, p->utf8, c->dots[at]);
    }
    if (now)
        color(to, p, 0);
    if (c->two)
        tern_buf_printf(to, "%s%s%s",
                        p->utf8  ? (*right ? "├" : "│")
                        : *right ? "+"
                                 : "|",
                        *right ? " " : "", right);
    tern_buf_puts(to, "\n");
}

/* About `want` ticks; where that leaves none, up to `most`: a low picture has a scale, too. */
static int find_ticks(struct tern_report_range r, bool log, int want, int most,
                      double to[TERN_REPORT_TICKS])
{
    int n, max = clamp(want, 1, TERN_REPORT_TICKS - 1);

    do
        n = log ? tern_report_log_ticks(r.lo, r.hi, max, to)
                : tern_report_ticks(r.lo, r.hi, max, to);
    while (n == 0 && ++max <= most);
    return n;
}

static void put_rows(struct tern_buf *to, const struct tern_report_plot *p, const struct canvas *c)
{
    double at[2][TERN_REPORT_TICKS];
    int n[2] = {0, 0};

    for (int k = 0; k <= c->two; k++)
        n[k] = find_ticks(c->y[k], p->log_y, c->rows / 3, c->rows, at[k]);
    for (int row = 0; row < c->rows; row++) {
        struct labels labels = {{"", ""}};
        for (int k = 0; k <= c->two; k++)
            for (int i = 0; i < n[k]; i++) {
                int y = dot_rows(c) - 1 - place(at[k][i], c->y[k].lo, c->y[k].hi, dot_rows(c));
                if (y / c->down == row)
                    tern_report_tick_label(labels.text[k], sizeof labels.text[k],
                                           p->log_y ? pow(10, at[k][i]) : at[k][i]);
            }
        put_row(to, p, c, row, &labels);
    }
}

static void put_clean(struct tern_buf *to, const char *text)
{
    char *s = tern_strdup(text ? text : "");

    tern_str_mask(s);
    tern_buf_puts(to, s);
    free(s);
}

/* Characters, each of which takes a column. */
static int width(const char *s)
{
    int n = 0;

    for (; *s; s++)
        n += (*s & 0xc0) != 0x80;
    return n;
}

/* `text` with at most `max` characters, right aligned there; a longer one has a '+' in its middle.
 */
static void put_fixed(struct tern_buf *to, const char *text, int max)
{
    char *s = tern_strdup(text);

    tern_str_mask(s);
    if (width(s) > max)
        tern_report_cut(to, s, max);
    else
        tern_buf_printf(to, "%*s%s", max - width(s), "", s);
    free(s);
}

static void put_marks(struct tern_buf *to, const struct tern_report_plot *p, const struct canvas *c,
                      size_t which)
{
    char *row = malloc((size_t)c->columns + 1);

    if (!row)
        return;
    memset(row, ' ', (size_t)c->columns);
    row[c->columns] = '\0';
    for (size_t i = 0; i < p->n_marks; i++) {
        double x = p->marks[i].x;
        if (p->marks[i].row != which || !(x >= c->x0 && x <= c->x1))
            continue;
        char *at = &row[place(x, c->x0, c->x1, dot_columns(c)) / c->across];
        /* Where two fall together the rarer, a restart, is shown. */
        if (*at != 'R')
            *at = p->marks[i].sign;
    }
    for (int n = c->columns; n && row[n - 1] == ' ';)
        row[--n] = '\0';
    if (*row) {
        put_fixed(to, p->mark_labels ? p->mark_labels[which] : "", LABEL);
        tern_buf_printf(to, "  %s\n", row);
    }
    free(row);
}

static void put_x_axis(struct tern_buf *to, const struct tern_report_plot *p,
                       const struct canvas *c)
{
    double at[TERN_REPORT_TICKS];
    const struct tern_report_range all = {c->x0, c->x1, true};
    int n = find_ticks(all, /* log= */ false, c->columns / 12, c->columns / 6, at);
    struct tern_buf marks = {0};
    int used = 0, placed = 0;

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
        tern_report_tick_label(s, sizeof s, at[i]);
        int len = (int)strlen(s), x = place(at[i], c->x0, c->x1, dot_columns(c)) / c->across;
        int start = clamp(x - len / 2, 0, c->columns > len ? c->columns - len : 0);
        if (start < used)
            continue;
        tern_buf_printf(&marks, "%*s%s", start - placed, "", s);
        placed = start + len;
        used = placed + 1;
    }
    put_fixed(to, p->x_label ? p->x_label : "", LABEL);
    tern_buf_printf(to, "  %s\n", marks.data ? marks.data : "");
    tern_buf_free(&marks);
}

/* One entry a line of the picture, several in a row of the terminal where they fit. */
static void put_legend(struct tern_buf *to, const struct tern_report_plot *p,
                       const struct canvas *c)
{
    const int end = clamp(p->columns, MIN_COLUMNS, MAX_COLUMNS) - 1;
    int used = LABEL + 2;

    tern_buf_printf(to, "%*s  ", LABEL, "");
    if (p->title) {
        put_clean(to, p->title);
        used += width(p->title);
    }
    for (size_t i = 0; i < p->n_lines && (p->n_lines > 1 || !p->title); i++) {
        const struct tern_report_line *l = &p->lines[i];
        const char sign[] = {l->sign, ' ', '\0'};
        const char *side = !c->two ? "" : c->right[i] ? " (right)" : " (left)";
        const int room = end - LABEL - 2 - 2 - width(side), need = 2 + width(side);
        const int text = width(l->label) < room ? width(l->label) : room;
        if (used > LABEL + 2 && used + 3 + need + text > end) {
            tern_buf_printf(to, "\n%*s  ", LABEL, "");
            used = LABEL + 2;
        } else if (used > LABEL + 2) {
            tern_buf_puts(to, "   ");
            used += 3;
        }
        color(to, p, (int)i + 1);
        tern_buf_puts(to, l->level  ? (p->utf8 ? "╌ " : "- ")
                          : l->sign ? sign
                          : p->utf8 ? "━ "
                                    : "- ");
        put_fixed(to, l->label, text);
        tern_buf_puts(to, side);
        color(to, p, 0);
        used += need + text;
    }
    tern_buf_puts(to, "\n");
}

static void put_picture(struct tern_buf *to, const struct tern_report_plot *p, struct canvas *c)
{
    const size_t mark_rows = p->n_mark_rows ? p->n_mark_rows : 1;

    put_legend(to, p, c);
    put_rows(to, p, c);
    put_x_axis(to, p, c);
    for (size_t i = 0; p->n_marks && i < mark_rows; i++)
        put_marks(to, p, c, i);
    if (p->n_marks && p->mark_help)
        tern_buf_printf(to, "%*s  %s\n", LABEL, "", p->mark_help);
}

void tern_report_plot(struct tern_buf *to, const struct tern_report_plot *given)
{
    struct tern_report_plot q = *given;
    const struct tern_report_plot *p = &q;
    q.n_lines = q.n_lines < MAX_LINES ? q.n_lines : MAX_LINES;

    struct canvas c = {
        .columns = clamp(p->columns, MIN_COLUMNS, MAX_COLUMNS) - LABEL - 3,
        .rows = clamp(p->rows, MIN_ROWS, MAX_ROWS) - 3 - (p->n_marks > 0), /* title, axis, labels */
        .across = p->utf8 ? 2 : 1,
        .down = p->utf8 ? 4 : 3,
    };
    if (p->n_lines)
        c.two = tern_report_scales(p, c.right);
    c.columns -= c.two ? LABEL + 2 : 0;
    size_t cells = (size_t)c.columns * (size_t)c.rows;
    struct slot *slots = calloc((size_t)dot_columns(&c), sizeof *slots);

    c.dots = calloc(cells, 1);
    c.line = calloc(cells, 1);
    c.sign = calloc(cells, 1);
    if (!slots || !c.dots || !c.line || !c.sign) {
        to->failed = true;
    } else if (!find_ranges(p, &c)) {
        put_clean(to, p->title ? p->title : "plot");
        tern_buf_puts(to, ": nothing to draw: no finite value\n");
    } else {
        for (size_t i = 0; i < p->n_lines; i++)
            if (p->lines[i].level)
                draw_level(&c, p, (int)i + 1);
        for (size_t i = 0; i < p->n_lines; i++)
            if (!p->lines[i].level)
                draw(&c, p, &p->lines[i], (int)i + 1, slots);
        for (size_t i = 0; i < p->n_lines; i++)
            draw_signs(&c, p, (int)i + 1);
        put_picture(to, p, &c);
    }
    to->failed |= c.failed;
    free(slots);
    free(c.dots);
    free(c.line);
    free(c.sign);
}

char tern_report_sign(size_t i)
{
    static const char signs[] = "ox+*#@%&";

    return signs[i % (sizeof signs - 1)];
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
