#include "cmd/ledger/watch.h"

#include "core/base/clock.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
    LEAST_COLUMNS = 56, /* of a screen with panes; a smaller one has the header alone */
    LEAST_ROWS = 16,
    USUAL_COLUMNS = 80,
    REST = 4, /* a look that takes long is followed by a rest of so many times that */
};
static const double every_least = 0.1, every_most = 3600;

static const char *const pane_names[WATCH_PANES] = {"curves", "phases", "ranks", "events",
                                                    "checkpoints"};

static double every;
static bool once, ascii;
static const char *pane_typed;

struct watch {
    const char *home;
    char id[TERN_ULID_SIZE];
    struct watch_run run;
    struct tern_err lost; /* of the newest look; code 0: it went well */
    int64_t next_ns;      /* of the next look, by the boot clock */

    enum watch_pane pane;
    size_t metric;
    bool log_y, paused, help;
    /* The body's first line among those of its pane; follow: the last one stays in sight. */
    size_t top[WATCH_PANES], lines, room;
    bool follow[WATCH_PANES];
    bool utf8, color, over; /* over: the user has quit */
};

/* ---------------------------------------------------------------- reading */

static void run_free(struct watch_run *r)
{
    tern_ledger_close(r->ledger);
    tern_ledger_rows_free(&r->runs);
    tern_ledger_rows_free(&r->attempts);
    tern_ledger_rows_free(&r->checkpoints);
    tern_ledger_rows_free(&r->evals);
    tern_ledger_rows_free(&r->events);
    tern_ledger_rows_free(&r->metrics);
    *r = (struct watch_run){0};
}

/* A new look; one that fails leaves the view before it, and `lost` says why. */
static void look(struct watch *w)
{
    struct watch_run r = {0};
    struct tern_err err = {0};
    const int64_t from = tern_clock_boot_ns();

    r.ledger = tern_ledger_open_run(w->home, w->id, &err);
    if (r.ledger && tern_ledger_runs(r.ledger, &r.runs, &err) == 0 &&
        tern_ledger_attempts(r.ledger, &r.attempts, &err) == 0 &&
        tern_ledger_checkpoints(r.ledger, &r.checkpoints, &err) == 0 &&
        tern_ledger_evals(r.ledger, &r.evals, &err) == 0 &&
        tern_ledger_events(r.ledger, &r.events, &err) == 0 &&
        tern_ledger_metrics(r.ledger, &r.metrics, &err) == 0) {
        r.run = r.runs.n ? &r.runs.runs[0] : NULL;
        r.state = r.run ? show_state(r.run) : NULL;
        /* Names are sorted: one that is new would move those behind it. */
        w->metric = watch_metric_number(&r, watch_metric_name(&w->run, w->metric));
        run_free(&w->run);
        w->run = r;
        w->lost = (struct tern_err){0};
    } else {
        run_free(&r);
        w->lost = err;
        w->lost.code = err.code ? err.code : TERN_FAILED;
    }
    const int64_t now = tern_clock_boot_ns(), rest = (int64_t)(every * 1e9);
    w->next_ns = now + (rest > REST * (now - from) ? rest : REST * (now - from));
}

/* ---------------------------------------------------------------- the header */

/* Parts of the header, which stand on one line where they fit. */
struct items {
    char *list[16];
    size_t n;
};

static void item(struct items *i, char *text)
{
    tern_str_mask(text);
    i->list[i->n++] = text;
}

static int width_of(const char *s)
{
    int n = 0;

    for (; *s; s++)
        n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

/* On `lines` lines, empty ones among them: what is below stays where it is when a number grows.
 * Items behind the last line are left out.  0: as many as they need. */
static void put_items(struct watch_frame *f, struct items *list, int lines)
{
    const int first = f->n;
    struct tern_buf b = {0};
    int at = 0;

    for (size_t i = 0; i < list->n; i++) {
        const int width = width_of(list->list[i]);
        if (at && at + 2 + width > f->columns) {
            watch_frame_add(f, b.data, b.len);
            tern_buf_clear(&b);
            at = 0;
        }
        if (lines == 0 || f->n < first + lines)
            tern_buf_printf(&b, "%s%s", at ? "  " : "", list->list[i]);
        at += width + (at ? 2 : 0);
        free(list->list[i]);
    }
    if (b.len)
        watch_frame_add(f, b.data, b.len);
    while (f->n < first + lines)
        watch_frame_add(f, "", 0);
    tern_buf_free(&b);
    list->n = 0;
}

static bool has_panes(const struct watch_frame *f)
{
    return f->columns >= LEAST_COLUMNS && f->rows >= LEAST_ROWS;
}

static bool has_ended(const struct watch_run *r)
{
    return r->state && strcmp(r->state, "running") != 0 && strcmp(r->state, "silent") != 0;
}

static char *step_text(const struct tern_ledger_run *r, int64_t steps)
{
    if (r->last_step < 0)
        return tern_strdup("no step yet");
    if (steps <= 0)
        return tern_strf("step %" PRId64, r->last_step);
    return tern_strf("step %" PRId64 "/%" PRId64 " (%.0f %%)", r->last_step, steps,
                     floor(100 * (double)r->last_step / (double)steps));
}

static void put_header(struct watch_frame *f, const struct watch *w)
{
    const struct tern_ledger_run *r = w->run.run;
    struct items list = {0};
    char text[16];

    if (r && r->name)
        item(&list, tern_strdup(r->name));
    item(&list, tern_strdup(w->id));
    if (r && w->run.state)
        item(&list, tern_strf("%s%s", has_ended(&w->run) ? "ended: " : "", w->run.state));
    if (w->run.attempts.n)
        item(&list, tern_strf("attempt %u",
                              (unsigned)w->run.attempts.attempts[w->run.attempts.n - 1].attempt));
    if (w->paused)
        item(&list, tern_strdup("PAUSED"));
    put_items(f, &list, 0);
    if (r) {
        const int64_t steps = show_steps(r);
        const double left = show_seconds_left(r, w->run.state, steps), age = show_age(r);
        item(&list, step_text(r, steps));
        if (isfinite(r->tokens_per_second))
            item(&list, tern_strf("%s tokens/s", show_short_count(text, r->tokens_per_second)));
        if (isfinite(left))
            item(&list, tern_strf("%s left", show_short_seconds(text, left)));
        if (isfinite(age))
            item(&list, tern_strf("record %s ago", show_short_seconds(text, age)));
        if (r->has_loss)
            item(&list, tern_strf("loss %.4f", r->last_loss));
    } else {
        item(&list, tern_strdup("no record yet"));
    }
    put_items(f, &list, !has_panes(f) ? 0 : f->columns < USUAL_COLUMNS ? 2 : 1);
    if (w->lost.code) {
        item(&list, tern_strf("LEDGER LOST, trying again: %s", w->lost.text));
        put_items(f, &list, 1);
    }
}

/* "[1 curves]  2 phases  ..."; the chosen one is reversed where there is colour, too. */
static void put_tabs(struct watch_frame *f, const struct watch *w)
{
    struct tern_buf b = {0};

    for (int i = 0; i < WATCH_PANES; i++) {
        const bool chosen = i == (int)w->pane && !w->help;
        tern_buf_printf(&b, "%s%s%d %s%s%s", chosen && f->color ? "\033[7m" : "",
                        chosen ? "[" : " ", i + 1, pane_names[i], chosen ? "]" : " ",
                        chosen && f->color ? "\033[0m" : "");
    }
    watch_frame_add(f, b.data, b.len);
    tern_buf_free(&b);
}

/* ---------------------------------------------------------------- the body */

static const char help_text[] = "  1 to 5, Tab    choose the pane\n"
                                "  m, M           curves: next, previous metric\n"
                                "  l              curves: a logarithmic axis\n"
                                "  up, down, k, j scroll by a line\n"
                                "  PgUp, PgDn     by a page; b and f, too\n"
                                "  g, G           to the first line, to the last\n"
                                "  p, space       pause: the ledger is not read\n"
                                "  r              read the ledger now\n"
                                "  Ctrl-L         draw the screen again\n"
                                "  Ctrl-Z         to the shell; fg comes back\n"
                                "  h, ?           this page; any key leaves it\n"
                                "  q, Escape      quit; the run goes on\n";

/* The lines of what is shown; a pane that failed shows why. */
static void body_text(struct watch *w, const struct watch_frame *f, int rows, struct tern_buf *to)
{
    const struct watch_place place = {.columns = f->columns,
                                      .rows = rows,
                                      .utf8 = f->utf8,
                                      .color = f->color,
                                      .metric = w->metric,
                                      .log_y = w->log_y};
    struct tern_err err = {0};

    if (w->help)
        tern_buf_puts(to, help_text);
    else if (!w->run.run)
        tern_buf_puts(to, "  the run has no record yet\n");
    else if (watch_pane(to, w->pane, &w->run, &place, &err) < 0)
        show_wrap(to, f->columns, "", "%s", err.text);
}

/* The lines in sight. */
static void put_body(struct watch *w, struct watch_frame *f, int rows)
{
    struct tern_buf b = {0};
    size_t n = 0, line = 0;

    body_text(w, f, rows, &b);
    for (size_t i = 0; i < b.len; i++)
        n += b.data[i] == '\n';
    w->lines = n;
    w->room = (size_t)rows;
    const size_t last = n > w->room ? n - w->room : 0;
    size_t top = w->help ? 0 : w->top[w->pane];
    if (!w->help && (w->follow[w->pane] || top > last))
        top = w->top[w->pane] = last;
    for (const char *s = b.data, *end; s && *s; s = end + 1, line++) {
        end = strchr(s, '\n');
        if (line >= top && line < top + w->room)
            watch_frame_add(f, s, (size_t)(end - s));
    }
    tern_buf_free(&b);
}

static void put_footer(struct watch_frame *f, const struct watch *w)
{
    const bool scrolls = w->lines > w->room && !w->help;
    const size_t top = w->top[w->pane];
    char *place = scrolls ? tern_strf("  lines %zu-%zu of %zu", top + 1, top + w->room, w->lines)
                          : tern_strdup("");
    char *curves =
        w->pane == WATCH_CURVES && !w->help
            ? tern_strf("  m metric (%zu of %zu)  l log", w->metric + 1, watch_metrics(&w->run) + 1)
            : tern_strdup("");
    char *text = tern_strf("q quit  h help  Tab next%s%s  p %s%s", curves,
                           scrolls ? "  up/down scroll" : "", w->paused ? "go on" : "pause", place);

    while (f->n < f->rows - 1)
        watch_frame_add(f, "", 0);
    watch_frame_add(f, text, strlen(text));
    free(curves);
    free(text);
    free(place);
}

/* `footer`: the line of keys. */
static void put_frame(struct watch *w, struct watch_frame *f, bool footer)
{
    f->utf8 = w->utf8;
    f->color = w->color;
    put_header(f, w);
    if (!has_panes(f)) {
        char *text = tern_strf("(panes need %d x %d; q quits)", LEAST_COLUMNS, LEAST_ROWS);
        watch_frame_add(f, text, strlen(text));
        free(text);
        return;
    }
    put_tabs(f, w);
    put_body(w, f, f->rows - f->n - footer);
    if (footer)
        put_footer(f, w);
}

/* ---------------------------------------------------------------- keys */

static void scroll(struct watch *w, long by)
{
    const size_t last = w->lines > w->room ? w->lines - w->room : 0;
    size_t *top = &w->top[w->pane];

    if (by < 0)
        *top = (size_t)-by < *top ? *top - (size_t)-by : 0;
    else
        *top = (size_t)by < last - (*top < last ? *top : last) ? *top + (size_t)by : last;
    w->follow[w->pane] = w->pane == WATCH_EVENTS && *top == last;
}

static void choose_metric(struct watch *w, bool next)
{
    const size_t n = watch_metrics(&w->run) + 1;

    w->metric = (w->metric + (next ? 1 : n - 1)) % n;
}

/* Keys that move in a pane; false: it is none of them. */
static bool moves(struct watch *w, int key)
{
    const long page = w->room > 1 ? (long)w->room - 1 : 1, all = 1L << 30;

    switch (key) {
    case 'k':
    case WATCH_KEY_UP:
        scroll(w, -1);
        return true;
    case 'j':
    case '\r':
    case WATCH_KEY_DOWN:
        scroll(w, 1);
        return true;
    case 'b':
    case WATCH_KEY_PAGE_UP:
        scroll(w, -page);
        return true;
    case 'f':
    case WATCH_KEY_PAGE_DOWN:
        scroll(w, page);
        return true;
    case 'g':
    case WATCH_KEY_HOME:
        scroll(w, -all);
        return true;
    case 'G':
    case WATCH_KEY_LAST:
        scroll(w, all);
        return true;
    default:
        return false;
    }
}

static void take_key(struct watch *w, int key)
{
    enum { CTRL_L = 'L' - '@' };

    if (w->help && key != 'q' && key >= 0) {
        w->help = false;
        return;
    }
    if (moves(w, key))
        return;
    switch (key) {
    case 'q':
    case WATCH_KEY_ESCAPE:
    case WATCH_KEY_END:
        w->over = true;
        break;
    case 'h':
    case '?':
        w->help = true;
        break;
    case '\t':
    case WATCH_KEY_RIGHT:
        w->pane = (w->pane + 1) % WATCH_PANES;
        break;
    case WATCH_KEY_BACK_TAB:
    case WATCH_KEY_LEFT:
        w->pane = (w->pane + WATCH_PANES - 1) % WATCH_PANES;
        break;
    case 'm':
    case 'M':
        if (w->pane == WATCH_CURVES)
            choose_metric(w, key == 'm');
        break;
    case 'l':
        w->log_y = w->log_y != (w->pane == WATCH_CURVES);
        break;
    case 'p':
    case ' ':
        w->paused = !w->paused;
        w->next_ns = 0;
        break;
    case 'r':
        w->next_ns = 0;
        break;
    case CTRL_L:
        watch_screen_again();
        break;
    default:
        if (key >= '1' && key < '1' + WATCH_PANES)
            w->pane = (enum watch_pane)(key - '1');
    }
}

/* ---------------------------------------------------------------- the command */

static int watch_screen(struct watch *w, struct tern_err *err)
{
    static struct watch_frame f;
    int rc = watch_screen_open(err);

    w->color = tern_cmd_color(1);
    for (bool first = true; rc == 0 && !w->over; first = false) {
        int columns, rows;
        if (!first && !w->paused && tern_clock_boot_ns() >= w->next_ns)
            look(w);
        watch_screen_size(&columns, &rows);
        watch_frame_begin(&f, columns, rows);
        put_frame(w, &f, /* footer= */ true);
        rc = watch_screen_draw(&f, err);
        const int64_t left = w->next_ns - tern_clock_boot_ns();
        if (rc == 0)
            take_key(w, watch_screen_key(w->paused  ? every_most
                                         : left > 0 ? (double)left * 1e-9
                                                    : 0));
    }
    watch_frame_free(&f);
    watch_screen_close();
    return rc;
}

/* One frame, without colours. */
static int print_frame(struct watch *w, struct tern_err *err)
{
    enum { ROWS = 24 };
    static struct watch_frame f;
    struct tern_buf b = {0};

    watch_frame_begin(&f, tern_cmd_columns(), ROWS);
    put_frame(w, &f, /* footer= */ false);
    for (int i = 0; i < f.n; i++)
        tern_buf_printf(&b, "%s\n", f.lines[i]);
    watch_frame_free(&f);
    return show_buf(&b, err);
}

static int choose_pane(enum watch_pane *ret_pane, struct tern_err *err)
{
    for (int i = 0; i < WATCH_PANES; i++)
        if (strcasecmp(pane_typed, pane_names[i]) == 0) {
            *ret_pane = (enum watch_pane)i;
            return 0;
        }
    char *hint = show_did_you_mean(pane_typed, pane_names, WATCH_PANES);
    tern_err_set(err, TERN_USAGE,
                 "--pane '%.80s': wanted curves, phases, ranks, events or checkpoints%s",
                 pane_typed, hint);
    free(hint);
    return -1;
}

static int run(int n_args, char **args, struct tern_err *err)
{
    struct watch w = {.follow[WATCH_EVENTS] = true, .utf8 = !ascii && tern_report_utf8()};

    if (!(every >= every_least && every <= every_most))
        return tern_err_set(err, TERN_USAGE, "--every: wanted %g to %g seconds", every_least,
                            every_most);
    if (choose_pane(&w.pane, err) < 0 || show_find(n_args ? args[0] : NULL, w.id, err) < 0)
        return -1;
    w.home = show.ledger;
    look(&w);
    if (w.lost.code) {
        *err = w.lost;
        return -1;
    }
    int rc = once || !watch_screen_can() ? print_frame(&w, err) : watch_screen(&w, err);
    run_free(&w.run);
    return rc;
}

static const struct tern_opt opts[] = {
    SHOW_OPT_LEDGER,
    {"every", 0, TERN_OPT_REAL, "SECONDS", "2", .to.real = &every,
     .help = "seconds between two looks at the ledger"},
    {"pane", 0, TERN_OPT_TEXT, "NAME", "curves", .to.text = &pane_typed,
     .help = "what is shown first: curves, phases, ranks, events or checkpoints"},
    {"once", 0, TERN_OPT_FLAG, .to.flag = &once,
     .help = "print it once, 24 lines without colour, and end"},
    {"ascii", 0, TERN_OPT_FLAG, .to.flag = &ascii, .help = "no braille (also without UTF-8)"},
    {0},
};

const struct tern_cmd ledger_watch = {
    .name = "watch",
    .args = "[RUN]",
    .summary = "show a run on the whole screen while it goes on",
    .about =
        "The header has the run's state, step, tokens a second, time left and the age of its "
        "newest "
        "record. Below it is one of five panes, which keys 1 to 5 choose. 1: curves of loss and "
        "held-out perplexity, or of a metric. 2: seconds of a step by phase. 3: the slowest ranks. "
        "4: events. 5: attempts and checkpoints. Key h lists the keys, q quits; the run goes on. "
        "Only lines that changed are sent, so that a slow line will do. Where stdout is no "
        "terminal, or TERM is dumb, it is as with --once. Without RUN: the newest run.",
    .examples = "  tern ledger watch latest\n"
                "  tern ledger watch pubmed-cpt --pane events --every 10\n"
                "  tern ledger watch pubmed-cpt --pane ranks --once\n",
    .opts = opts,
    .args_max = 1,
    .run = run,
};
