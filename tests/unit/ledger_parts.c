/* core/ledger and core/report: a picture from parts of curves is the picture from all points,
 * whatever attempts, records and damage the run has. */
#include "tests/unit/ledger.h"

#include "core/report/report.h"

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { METRICS = 3, ATTEMPTS = 4, STEPS = 3000, ROUNDS = 12 };

static const char *const names[METRICS] = {"loss", "acc", "grad"};

static int64_t draw_int(int64_t n)
{
    return (int64_t)(drand48() * (double)n);
}

/* Of every kind that a metric may have; more of a kind in some metrics than in others. */
static double draw_value(int metric, int64_t at)
{
    const int64_t kind = draw_int(1000);

    if (metric == 1 && at % 700 < 200) /* longer than a part */
        return NAN;
    if (kind < 3 * metric)
        return kind == 0 ? NAN : kind == 1 ? INFINITY : kind == 2 ? -INFINITY : 0;
    if (kind == 999)
        return 50; /* a spike is the greatest of its column */
    return 3 * exp(-(double)at / 1000) + drand48() - (metric == 2 ? 0.5 : 0);
}

/* An attempt writes the steps [from, to) that are not left out, a metric of them now and then. */
static void write_steps(struct tern_ledger_spool *w, int64_t from, int64_t to)
{
    for (int64_t s = from; s < to; s++)
        for (int m = 0; m < METRICS; m++)
            if (m == 0 || draw_int(10) < 9)
                tern_ledger_spool_step(
                    w, s, &(struct tern_ledger_value){names[m], draw_value(m, s)}, 1, &err);
}

/* *from: where it began. */
static struct tern_ledger_spool *begin_attempt(const char *run, unsigned attempt, int64_t done,
                                               int64_t *from)
{
    struct tern_ledger_spool *w = tern_ledger_spool_open(dir, run, attempt, "rank0", &err);
    const int64_t back = draw_int(3) == 0 ? 0 : draw_int(done < 400 ? done + 1 : 400);
    const bool known = draw_int(2) == 0;

    struct tern_ledger_attempt begin = {.kind = draw_int(8) == 0 ? "trial" : "train",
                                        .resumed_step = known ? done - back : -1};
    *from = done - back + 1;
    tern_ledger_spool_attempt_begin(w, &begin, &err);
    if (known && draw_int(3) == 0) /* an evaluation of the step it resumed from */
        write_steps(w, *from - 1, *from);
    return w;
}

/* ---------------------------------------------------------------- curve and series */

static bool same(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

/* What `p` has to be, by its points. */
static bool sums_up(const struct tern_ledger_part *p, const double *step, const double *value,
                    size_t n)
{
    size_t finite = 0, first = n, last = n;
    double low = INFINITY, high = -INFINITY;

    for (size_t i = 0; i < n; i++) {
        if (!isfinite(value[i]))
            continue;
        first = first == n ? i : first;
        last = i;
        finite++;
        low = fmin(low, value[i]);
        high = fmax(high, value[i]);
    }
    return n == p->points && finite == p->finite && (double)p->from == step[0] &&
           (double)p->to == step[n - 1] &&
           (finite == 0 || ((double)p->first_step == step[first] &&
                            (double)p->last_step == step[last] && p->first == value[first] &&
                            p->last == value[last] && p->low == low && p->high == high));
}

/* Are the parts those of the series, point by point?  `n_long`: parts of as many points as they
 * may have. */
static bool is_series(struct tern_ledger_curve *c, const struct tern_ledger_series *s,
                      size_t *n_long)
{
    size_t n_parts, at = 0;
    const struct tern_ledger_part *parts = tern_ledger_curve_parts(c, &n_parts);

    for (size_t i = 0; i < n_parts; i++) {
        const double *step, *value;
        size_t n;
        if (tern_ledger_curve_read(c, i, &step, &value, &n, &err) < 0 || at + n > s->n ||
            !sums_up(&parts[i], step, value, n))
            return false;
        for (size_t k = 0; k < n; k++, at++)
            if (step[k] != s->step[at] || !same(value[k], s->value[at]))
                return false;
        *n_long += n == TERN_LEDGER_PART_POINTS;
    }
    return at == s->n;
}

/* ---------------------------------------------------------------- pictures */

static int read_part(void *self, size_t i, const double **x, const double **y, size_t *n)
{
    return tern_ledger_curve_read(self, i, x, y, n, &err);
}

static struct tern_report_line by_parts(struct tern_ledger_curve *c, struct tern_report_part *to)
{
    size_t n;
    const struct tern_ledger_part *p = tern_ledger_curve_parts(c, &n);
    struct tern_report_line l = {.parts = to, .n_parts = n, .read = read_part, .self = c};

    for (size_t i = 0; i < n; i++) {
        to[i] = (struct tern_report_part){p[i].finite,
                                          (double)p[i].first_step,
                                          (double)p[i].last_step,
                                          p[i].first,
                                          p[i].last,
                                          p[i].low,
                                          p[i].high,
                                          !p[i].finite || p[i].first_step != p[i].from,
                                          !p[i].finite || p[i].last_step != p[i].to};
        l.n += p[i].points;
    }
    return l;
}

/* Both lines in every style: is the picture the same? */
static bool same_pictures(struct tern_report_line *a, struct tern_report_line *b)
{
    bool same = true;

    for (int style = 0; style < 12; style++) {
        struct tern_buf of_a = {0}, of_b = {0};
        struct tern_report_line two[2];
        struct tern_report_plot p = {.title = "run",
                                     .columns = (int[]){40, 80, 211}[style % 3],
                                     .rows = 24,
                                     .utf8 = style & 1,
                                     .log_y = style & 2};
        a->label = b->label = "metric";
        a->sign = b->sign = style & 4 ? 'o' : '\0';
        /* A level beside it stretches both axes. */
        two[1] = (struct tern_report_line){.label = "level",
                                           .x = (double[]){-50},
                                           .y = (double[]){400},
                                           .n = 1,
                                           .quantity = 1,
                                           .level = style & 4};
        p.lines = two;
        p.n_lines = style & 4 ? 2 : 1;
        two[0] = *a;
        tern_report_plot(&of_a, &p);
        two[0] = *b;
        tern_report_plot(&of_b, &p);
        if (of_a.failed || of_b.failed || strcmp(of_a.data, of_b.data) != 0) {
            printf("# style %d\n%s%s", style, of_a.data, of_b.data);
            same = false;
        }
        tern_buf_free(&of_a);
        tern_buf_free(&of_b);
    }
    return same;
}

struct seen {
    size_t curves, n_long, wrong, pictures; /* wrong curves and pictures */
};

static void look(const char *run, struct seen *seen)
{
    struct tern_ledger *l = tern_ledger_open_run(dir, run, &err);

    for (int m = 0; l && m < METRICS; m++) {
        struct tern_ledger_series s = {0};
        struct tern_ledger_curve *c = NULL;
        if (tern_ledger_series(l, names[m], /* all= */ false, &s, &err) < 0)
            seen->wrong++;
        if (tern_ledger_curve_open(l, names[m], &c) == 0) {
            size_t n;
            tern_ledger_curve_parts(c, &n);
            struct tern_report_part *parts = calloc(n + 1, sizeof *parts);
            struct tern_report_line a = {.x = s.step, .y = s.value, .n = s.n}, b;
            seen->curves++;
            seen->wrong += !is_series(c, &s, &seen->n_long);
            b = by_parts(c, parts);
            seen->pictures += !same_pictures(&a, &b);
            free(parts);
        }
        tern_ledger_curve_free(c);
        tern_ledger_series_free(&s);
    }
    seen->wrong += !l;
    tern_ledger_close(l);
}

/* Two parts, far from each other, of three points each: a line joins them unless there is a value
 * that is not finite at the end of the first or the beginning of the second. */
static void test_breaks(void)
{
    const double x[] = {0, 1, 2, 100000, 100001, 100002};
    char *joined = NULL;

    for (int where = 0; where < 4; where++) {
        const bool behind = where & 1, before = where & 2;
        double y[] = {1, 2, 3, 300, 200, 100};
        struct tern_report_part parts[] = {{.finite = behind ? 2 : 3,
                                            .x0 = 0,
                                            .x1 = behind ? 1 : 2,
                                            .first = 1,
                                            .last = behind ? 2 : 3,
                                            .low = 1,
                                            .high = behind ? 2 : 3,
                                            .broken_behind = behind},
                                           {.finite = before ? 2 : 3,
                                            .x0 = before ? 100001 : 100000,
                                            .x1 = 100002,
                                            .first = before ? 200 : 300,
                                            .last = 100,
                                            .low = 100,
                                            .high = before ? 200 : 300,
                                            .broken_before = before}};
        struct tern_report_line a = {.x = x, .y = y, .n = 6},
                                b = {.parts = parts, .n_parts = 2, .n = 6, .label = "metric"};
        y[2] = behind ? NAN : y[2];
        y[3] = before ? NAN : y[3];
        ok(same_pictures(&a, &b),
           "a value that is not finite %s%s%s: a picture from parts breaks "
           "its line where one from points does",
           behind ? "at a part's end" : "", behind && before ? ", and " : "",
           before   ? "at a part's beginning"
           : behind ? ""
                    : "nowhere");
        struct tern_report_plot p = {.columns = 80, .rows = 24, .lines = &b, .n_lines = 1};
        struct tern_buf drawn = {0};
        tern_report_plot(&drawn, &p);
        if (where)
            ok(strcmp(drawn.data, joined) != 0, "such a break is seen");
        else
            joined = tern_strdup(drawn.data);
        tern_buf_free(&drawn);
    }
    free(joined);
}

/* ---------------------------------------------------------------- runs of every kind */

/* Findings of verify. */
static uint64_t damage(const char *run, struct tern_buf *b)
{
    struct tern_ledger_check check = {0};

    tern_buf_clear(b);
    if (tern_ledger_verify(dir, run, &check, b, &err) < 0)
        return 999;
    return check.damaged;
}

static void random_run(const char *run, struct seen *folded, struct seen *live, uint64_t *bad)
{
    const int attempts = 1 + (int)draw_int(ATTEMPTS);
    int64_t done = 0, from = 0;
    struct tern_buf findings = {0};

    for (int a = 1; a <= attempts; a++) {
        const int64_t to = done + 1 + draw_int(STEPS / attempts);
        struct tern_ledger_spool *w = begin_attempt(run, (unsigned)a, done, &from);
        write_steps(w, from, (from + to) / 2);
        if (draw_int(2) == 0)
            tern_ledger_fold(dir, run, &err);
        write_steps(w, (from + to) / 2, to);
        look(run, live);
        /* Another process records old steps late, some of them anew. */
        struct tern_ledger_spool *late =
            draw_int(3) ? NULL : tern_ledger_spool_open(dir, run, (unsigned)a, "metric-7", &err);
        const int64_t again = from + draw_int(to - from + 1);
        write_steps(late, again, late ? again + 5 : again);
        look(run, live);
        tern_ledger_spool_close(late, &err);
        tern_ledger_spool_close(w, &err);
        tern_ledger_fold(dir, run, &err);
        look(run, folded);
        if (damage(run, &findings)) {
            printf("# %s", findings.data ? findings.data : err.text);
            ++*bad;
        }
        done = to - 1;
    }
    tern_buf_free(&findings);
}

static void test_random(void)
{
    struct seen folded = {0}, live = {0};
    uint64_t bad = 0;

    for (int i = 0; i < ROUNDS; i++) {
        char run[TERN_ULID_SIZE];
        random_run(tern_ledger_ulid_new(run), &folded, &live, &bad);
    }
    ok(folded.curves >= ROUNDS && live.curves >= ROUNDS && folded.n_long >= 100 &&
           live.n_long >= 100,
       "curves of folded and of growing runs come in parts of 128 points");
    ok(folded.wrong == 0, "folded runs: parts have every effective point once, and sum it up");
    ok(live.wrong == 0, "growing runs: parts have every effective point once, and sum it up");
    ok(folded.pictures == 0, "folded runs: pictures from parts are those from all points");
    ok(live.pictures == 0, "growing runs: pictures from parts are those from all points");
    ok(bad == 0, "verify finds nothing in the parts that folds made, with old ones kept");
}

/* ---------------------------------------------------------------- damage */

static off_t pages_of(const char *path)
{
    unsigned char head[32] = {0};
    int fd = open(path, O_RDONLY);

    if (fd < 0 || read(fd, head, sizeof head) != sizeof head)
        ok(0, "%s can be read", path);
    close(fd);
    return (off_t)(head[16] << 8 | head[17]) *
           (head[28] << 24 | head[29] << 16 | head[30] << 8 | head[31]);
}

static void flip(const char *path, off_t at)
{
    unsigned char byte = 0;
    int fd = open(path, O_RDWR);

    if (fd < 0 || pread(fd, &byte, 1, at) != 1)
        ok(0, "%s can be changed", path);
    byte ^= 0x10;
    if (pwrite(fd, &byte, 1, at) != 1)
        ok(0, "%s can be changed", path);
    close(fd);
}

static const char parts_damaged[] = "parts of curves", damaged[] = "is damaged, or was changed";

/* The curve must be right, from whatever it is read; verify says `found`; and the next fold must
 * mend the file. */
static void check_damaged(const char *what, const char *found)
{
    struct seen seen = {0};
    struct tern_buf findings = {0};

    look(id, &seen);
    ok(seen.wrong == 0 && seen.pictures == 0, "%s: no curve shows it", what);
    const uint64_t n = damage(id, &findings);
    ok(n == 1 && strstr(findings.data, found), "%s: verify finds it", what);
    ok(tern_ledger_fold(dir, id, &err) == 0 && damage(id, &findings) == 0,
       "%s: the next fold makes the parts again", what);
    seen = (struct seen){0};
    look(id, &seen);
    ok(seen.curves == METRICS && seen.wrong == 0, "%s: then curves come in parts again", what);
    tern_buf_free(&findings);
}

static void test_damage(void)
{
    char *path = tern_strf("%s/runs/%s/run.db", dir, id);
    struct tern_ledger_spool *w = tern_ledger_spool_open(dir, id, 1, "rank0", &err);
    struct stat st;

    for (int64_t s = 1; s <= 2000; s++)
        for (int m = 0; m < METRICS; m++)
            tern_ledger_spool_step(
                w, s, &(struct tern_ledger_value){names[m], 1 + draw_value(0, s)}, 1, &err);
    tern_ledger_spool_close(w, &err);
    ok(tern_ledger_fold(dir, id, &err) == 0, "a run of 2,000 steps is folded");
    const off_t pages = pages_of(path), parts = pages + 32 + 4 * (pages / 4096);
    ok(stat(path, &st) == 0 && st.st_size == parts + METRICS * (2000 / 128 * 72 + 32) + 40,
       "behind its pages, run.db has a checksum of each, 15 parts of 72 bytes of each metric, an "
       "index and a foot");
    const struct {
        const char *what;
        off_t at;
        const char *found;
    } places[] = {
        {"a bit of a part's value is flipped", parts + 32, parts_damaged},
        {"a bit of the last part is flipped", st.st_size - 40 - METRICS * 32 - 20, parts_damaged},
        {"a bit of the index is flipped", st.st_size - 40 - 8, parts_damaged},
        {"a bit of the foot is flipped", st.st_size - 30, parts_damaged},
        {"a bit of the seal's head is flipped", pages + 9, damaged},
        {"a bit of a page's checksum is flipped", parts - 5, damaged},
        {"a bit of SQLite's header is flipped", 70, damaged}};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        chmod(path, 0600);
        flip(path, places[i].at);
        check_damaged(places[i].what, places[i].found);
    }
    chmod(path, 0600);
    if (truncate(path, st.st_size - 100) < 0)
        ok(0, "run.db can be cut");
    check_damaged("the end is cut off", parts_damaged);
    chmod(path, 0600);
    if (truncate(path, pages) < 0)
        ok(0, "run.db can be cut");
    check_damaged("run.db has its pages alone", damaged);
    free(path);
}

int main(void)
{
    ledger_begin();
    srand48(7);
    test_breaks();
    test_random();
    test_damage();
    return ledger_end();
}
