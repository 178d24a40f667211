#include "core/base/progress.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/base/vars.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* ---- the text ---- */

enum {
    NAME = 256,
    NAME_LEAST = 8, /* columns: a shorter rest of a name says nothing */
    SHOWN_MAX = 512,
};

/* "1.2 G", "45 k", "830", "0.4"; parted from its unit by a space. */
static char *scaled(char *to, size_t n, double v)
{
    static const char *const prefixes[] = {"", "k", "M", "G", "T", "P"};
    int p = 0;

    /* 999.5 would be written as 1000. */
    for (; v >= 999.5 && p < 5; p++)
        v /= 1000;
    snprintf(to, n,
             v < 9.95 && (p || v < (double)(int)v || v > (double)(int)v) ? "%.1f %s" : "%.0f %s", v,
             prefixes[p]);
    return to;
}

/* "1.2 GB", "45 k rows", "830 rows". */
static char *amount(char *to, size_t n, double v, const char *unit)
{
    char number[32];
    const size_t len = strlen(scaled(number, sizeof number, v));

    snprintf(to, n, "%s%s%s", number, unit && number[len - 1] != ' ' ? " " : "", unit ? unit : "B");
    return to;
}

/* Slow work is shown by the minute or hour: 0.02 batches/s says little, and 0.0 nothing. */
static char *rate_text(char *to, size_t n, double per_s, const char *unit)
{
    char text[64];

    if (per_s >= 1 || !unit)
        snprintf(to, n, "%s/s", amount(text, sizeof text, per_s, unit));
    else if (per_s * 60 >= 1)
        snprintf(to, n, "%s/min", amount(text, sizeof text, per_s * 60, unit));
    else if (per_s * 3600 >= 0.05)
        snprintf(to, n, "%s/h", amount(text, sizeof text, per_s * 3600, unit));
    else
        *to = '\0';
    return to;
}

static char *left_text(char *to, size_t n, double seconds)
{
    if (seconds < 59.5)
        snprintf(to, n, "%.0f s left", seconds < 1 ? 1 : seconds);
    else if (seconds < 59.5 * 60)
        snprintf(to, n, "%.0f min left", seconds / 60);
    else if (seconds < 48 * 3600)
        snprintf(to, n, "%d h %02d min left", (int)(seconds / 3600), (int)(seconds / 60) % 60);
    else if (seconds < 1000 * 86400.0)
        snprintf(to, n, "%.0f days left", seconds / 86400);
    else
        snprintf(to, n, "years left");
    return to;
}

/* Columns of a text; characters from U+1100 on, of which some are wide, count as two. */
static int columns_of(const char *s)
{
    int n = 0;

    for (size_t len = strlen(s), k; len; s += k, len -= k) {
        k = tern_str_utf8(s, len);
        k = k ? k : 1;
        n += k > 3 || (k == 3 && (unsigned char)*s >= 0xe1) ? 2 : 1;
    }
    return n;
}

/* "...rpus.tds": its end, which tells files apart, in `columns`. */
static void cut_name(char *name, int columns)
{
    const char *rest = name;

    if (columns_of(name) <= columns)
        return;
    while (columns_of(rest) > columns - 3) {
        const size_t k = tern_str_utf8(rest, strlen(rest));
        rest += k ? k : 1;
    }
    /* Four columns or more are gone, and so are as many bytes. */
    memmove(name + 3, rest, strlen(rest) + 1);
    memcpy(name, "...", 3);
}

/* The parts behind the name, of which the rate and the time may be "". */
struct parts {
    char share[48], rate[64], left[32];
};

static void make_parts(struct parts *p, const struct tern_progress_state *s)
{
    const double seconds = (double)(s->now_ns - s->since_ns) / 1e9;
    const double rate =
        seconds > 0 && s->done > s->since ? (double)(s->done - s->since) / seconds : 0;

    *p = (struct parts){0};
    if (s->all)
        snprintf(p->share, sizeof p->share, "%d %%",
                 s->done >= s->all ? 100 : (int)(100.0 * (double)s->done / (double)s->all));
    else
        amount(p->share, sizeof p->share, (double)s->done, s->unit);
    if (rate > 0)
        rate_text(p->rate, sizeof p->rate, rate, s->unit);
    if (rate > 0 && s->done < s->all)
        left_text(p->left, sizeof p->left, (double)(s->all - s->done) / rate);
}

char *tern_progress_text(char *to, size_t n, const struct tern_progress_state *s, int columns)
{
    char name[NAME], rest[SHOWN_MAX], brief[SHOWN_MAX];
    struct parts p;

    snprintf(name, sizeof name, "%s", s->name);
    for (size_t end = strlen(name); end && (name[end - 1] & 0x80) && end > sizeof name - 5;)
        name[--end] = '\0'; /* perhaps half a character */
    tern_str_mask(name);
    make_parts(&p, s);
    snprintf(rest, sizeof rest, "%s%s%s%s%s", p.share, *p.rate ? ", " : "", p.rate,
             *p.left ? ", " : "", p.left);
    snprintf(brief, sizeof brief, "%s%s%s", p.share, *p.left ? ", " : "", p.left);
    const int room = columns ? columns - columns_of(rest) - 2 : NAME;
    if (room >= NAME_LEAST || room >= columns_of(name)) {
        cut_name(name, room);
        snprintf(to, n, "%s: %s", name, rest);
    } else if (columns_of(rest) <= columns) {
        snprintf(to, n, "%s", rest);
    } else if (columns_of(brief) <= columns) {
        snprintf(to, n, "%s", brief);
    } else {
        snprintf(to, n, "%s", columns_of(p.share) <= columns ? p.share : "");
    }
    return to;
}

/* ---- the line ---- */

enum {
    FIRST_MS = 500, /* on a terminal */
    DRAW_MS = 200,
    LOG_MS = 60 * 1000, /* elsewhere */
    /* Rates are of the last 30 to 60 seconds: files that were cached do not count for ever. */
    MARK_S = 30,
};

#define MS INT64_C(1000000)
#define CLEAR "\r\033[K"

struct mark {
    uint64_t done;
    int64_t ns;
};

static struct {
    char work[NAME - 64], name[NAME]; /* as tern_progress_begin was given it; as it is shown */
    const char *unit;
    bool terminal;
    pid_t pid;
    int64_t first_ns, every_ns;
    struct mark old, young; /* of the one that draws */
    bool handles;           /* signals, as `handled` says */

    /* Of all threads. */
    bool open;    /* the others say something */
    bool counted; /* a first call of tern_progress_set or _add was there */
    bool drawing; /* a thread has what follows for itself, and the marks */
    bool drawn;   /* there is something to be cleared */
    uint64_t done, all;
    int64_t due_ns;
} line;

#define LOAD(x) __atomic_load_n(&(x), __ATOMIC_ACQUIRE)
#define STORE(x, v) __atomic_store_n(&(x), v, __ATOMIC_RELEASE)

static const int ends[] = {SIGINT, SIGTERM, SIGQUIT};
enum { ENDS = sizeof ends / sizeof *ends };
static bool handled[ENDS];

/* A thread draws, or changes what is drawn. */
static void take(void)
{
    while (__atomic_exchange_n(&line.drawing, true, __ATOMIC_ACQUIRE))
        sched_yield();
}

static void give(void)
{
    STORE(line.drawing, false);
}

static void put(const char *text, size_t len)
{
    if (write(STDERR_FILENO, text, len) < 0) {
        /* nowhere left to say it */
    }
}

static void on_end(int sig)
{
    /* The default action is back (SA_RESETHAND), and the signal comes again. */
    if (LOAD(line.drawn) && getpid() == line.pid)
        put(CLEAR, sizeof CLEAR - 1);
    raise(sig);
}

static void handle_ends(void)
{
    const struct sigaction sa = {.sa_handler = on_end, .sa_flags = (int)SA_RESETHAND | SA_NODEFER};
    struct sigaction now;

    for (int i = 0; i < ENDS; i++) {
        handled[i] = sigaction(ends[i], NULL, &now) == 0 && now.sa_handler == SIG_DFL;
        if (handled[i])
            sigaction(ends[i], &sa, NULL);
    }
}

/* A command may have taken a signal for itself meanwhile. */
static void leave_ends(void)
{
    struct sigaction now;

    for (int i = 0; i < ENDS; i++)
        if (handled[i] && sigaction(ends[i], NULL, &now) == 0 && now.sa_handler == on_end)
            signal(ends[i], SIG_DFL);
}

static bool is_terminal(void)
{
    const char *term = getenv("TERM");

    return isatty(STDERR_FILENO) && !(term && strcmp(term, "dumb") == 0);
}

static void start_counting(const char *unit, const char *what, int64_t now)
{
    snprintf(line.name, sizeof line.name, "%s%s%.60s", line.work, what ? ", " : "",
             what ? what : "");
    line.unit = unit;
    line.old = line.young = (struct mark){.ns = now};
    STORE(line.done, 0);
    STORE(line.all, 0);
    STORE(line.counted, false);
}

void tern_progress_begin(const char *unit, const char *fmt, ...)
{
    const char *ms = tern_var("TERN_PROGRESS_MS");
    const int64_t now = tern_clock_boot_ns();
    int64_t given;
    va_list ap;

    tern_progress_end();
    give(); /* a child of fork() has its parent's */
    line.terminal = is_terminal();
    line.pid = getpid();
    va_start(ap, fmt);
    vsnprintf(line.work, sizeof line.work, fmt, ap);
    va_end(ap);
    start_counting(unit, /* what= */ NULL, now);
    line.first_ns = (line.terminal ? FIRST_MS : LOG_MS) * MS;
    line.every_ns = (line.terminal ? DRAW_MS : LOG_MS) * MS;
    if (ms && tern_str_int(ms, 0, LOG_MS, &given) == 0)
        line.first_ns = line.every_ns = given * MS;
    line.drawn = false;
    line.due_ns = now + line.first_ns;
    if (!tern_log_says(TERN_LOG_INFO))
        return;
    if (line.terminal)
        handle_ends();
    STORE(line.open, true);
}

void tern_progress_phase(const char *unit, const char *what)
{
    if (!LOAD(line.open))
        return;
    take();
    start_counting(unit, what, tern_clock_boot_ns());
    give();
}

static int columns(void)
{
    const char *s = getenv("COLUMNS");
    struct winsize w;
    int64_t n;

    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col)
        return w.ws_col;
    return s && tern_str_int(s, 1, SHOWN_MAX, &n) == 0 ? (int)n : 80;
}

/* Of one thread at a time. */
static void draw(int64_t now)
{
    struct tern_progress_state s = {.name = line.name,
                                    .unit = line.unit,
                                    .done = LOAD(line.done),
                                    .all = LOAD(line.all),
                                    .now_ns = now};
    char text[sizeof CLEAR + SHOWN_MAX] = CLEAR;
    const size_t head = sizeof CLEAR - 1;

    if (now - line.young.ns >= MARK_S * INT64_C(1000000000)) {
        line.old = line.young;
        line.young = (struct mark){s.done, now};
    }
    s.since = line.old.done;
    s.since_ns = line.old.ns;
    if (!line.terminal) {
        tern_info("%s", tern_progress_text(text, sizeof text, &s, /* columns= */ 0));
        return;
    }
    /* In the background, the terminal belongs to another program. */
    const pid_t front = tcgetpgrp(STDERR_FILENO);
    if (front > 0 && front != getpgrp())
        return;
    /* The last column stays free: some terminals begin a new line behind it. */
    tern_progress_text(text + head, sizeof text - head, &s, columns() - 1);
    STORE(line.drawn, true);
    put(text, strlen(text));
}

bool tern_progress_due(void)
{
    return LOAD(line.open) && tern_clock_boot_ns() >= LOAD(line.due_ns);
}

static void draw_if_due(void)
{
    const int saved = errno;

    if (!tern_progress_due() || __atomic_exchange_n(&line.drawing, true, __ATOMIC_ACQUIRE))
        return;
    const int64_t now = tern_clock_boot_ns();
    if (LOAD(line.open) && now >= line.due_ns && getpid() == line.pid) {
        STORE(line.due_ns, now + line.every_ns);
        draw(now);
    }
    give();
    errno = saved;
}

void tern_progress_expect(uint64_t n)
{
    if (LOAD(line.open))
        __atomic_add_fetch(&line.all, n, __ATOMIC_RELAXED);
}

void tern_progress_add(uint64_t n)
{
    if (!LOAD(line.open))
        return;
    STORE(line.counted, true);
    __atomic_add_fetch(&line.done, n, __ATOMIC_RELAXED);
    draw_if_due();
}

void tern_progress_set(uint64_t done, uint64_t all)
{
    if (!LOAD(line.open))
        return;
    if (!__atomic_exchange_n(&line.counted, true, __ATOMIC_ACQ_REL)) {
        take();
        line.old = line.young = (struct mark){done, tern_clock_boot_ns()};
        give();
    }
    STORE(line.done, done);
    STORE(line.all, all);
    draw_if_due();
}

void tern_progress_show(void *unused, uint64_t done, uint64_t all)
{
    (void)unused;
    tern_progress_set(done, all);
}

const char *tern_progress_clear(void)
{
    return LOAD(line.open) && line.terminal ? CLEAR : "";
}

void tern_progress_hide(void)
{
    const char *clear = tern_progress_clear();

    if (*clear)
        put(clear, strlen(clear));
}

void tern_progress_end(void)
{
    if (!LOAD(line.open) || getpid() != line.pid)
        return;
    STORE(line.open, false);
    take();
    if (line.terminal)
        leave_ends();
    if (line.drawn)
        put(CLEAR, sizeof CLEAR - 1);
    give();
}
