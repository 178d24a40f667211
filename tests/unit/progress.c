/* core/base/progress: the line's text, and the line itself on a terminal and in a file. */
#include "core/base/clock.h"
#include "tests/unit/tap.h"

/* The line's clock is this test's while it is held, at what is not 0. */
static int64_t held_ns;

static int64_t clock_ns(void)
{
    return held_ns ? held_ns : tern_clock_boot_ns();
}

#define tern_clock_boot_ns clock_ns
#include "core/base/progress.c"
#undef tern_clock_boot_ns

#include "core/base/log.h"
#include "core/base/progress.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define S INT64_C(1000000000)
#define GB UINT64_C(1000000000)

/* ---- the text ---- */

static const char *text(const struct tern_progress_state *s, int columns)
{
    static char to[512];

    return tern_progress_text(to, sizeof to, s, columns);
}

static void test_text(void)
{
    struct tern_progress_state s = {
        .name = "corpus.tds", .done = 90 * GB, .all = 200 * GB, .now_ns = 100 * S};

    is(text(&s, 0), "corpus.tds: 45 %, 900 MB/s, 2 min left",
       "a line has share, rate and time left");
    s.now_ns = 75 * S;
    is(text(&s, 80), "corpus.tds: 45 %, 1.2 GB/s, 2 min left", "a rate has two digits");
    s.since = 60 * GB;
    s.since_ns = 50 * S;
    is(text(&s, 80), "corpus.tds: 45 %, 1.2 GB/s, 2 min left",
       "the rate is that since the time given");
    s.done = 199 * GB + GB / 2;
    is(text(&s, 80), "corpus.tds: 99 %, 5.6 GB/s, 1 s left",
       "the share is 100 %% at the end alone");
    s.done = 200 * GB;
    is(text(&s, 80), "corpus.tds: 100 %, 5.6 GB/s", "at the end no time is left");
    s.done = 201 * GB;
    is(text(&s, 80), "corpus.tds: 100 %, 5.6 GB/s", "more than all is 100 %%");
    s.all = 0;
    is(text(&s, 80), "corpus.tds: 201 GB, 5.6 GB/s",
       "without a total, the amount stands for the share");
    s.done = s.since;
    is(text(&s, 80), "corpus.tds: 60 GB", "without work no rate is shown");
    s.all = 100 * GB;
    is(text(&s, 80), "corpus.tds: 60 %", "without a rate there is no time left");
    s = (struct tern_progress_state){.name = "a\033[31m\xff", .all = 1, .now_ns = S};
    is(text(&s, 80), "a?[31m?: 0 %", "a name is masked");
}

static void test_units(void)
{
    static const struct {
        double seconds;
        uint64_t done, all;
        const char *unit, *line;
    } cases[] = {
        {1, 830, 0, NULL, "830 B, 830 B/s"},
        {1, 999, 0, NULL, "999 B, 999 B/s"},
        {1, 9949, 0, NULL, "9.9 kB, 9.9 kB/s"},
        {1, 9999, 0, NULL, "10 kB, 10 kB/s"},
        {1, 999500, 0, NULL, "1.0 MB, 1.0 MB/s"},
        {2, 3000000, 6000000, "tokens", "50 %, 1.5 M tokens/s, 2 s left"},
        {1, 120, 240, "rows", "50 %, 120 rows/s, 1 s left"},
        {2, 3, 6, "batches", "50 %, 1.5 batches/s, 2 s left"},
        {8, 1, 2, "batches", "50 %, 7.5 batches/min, 8 s left"},
        {100, 1, 2, "files", "50 %, 36 files/h, 2 min left"},
        {59, 1, 2, "files", "50 %, 1.0 files/min, 59 s left"},
        {60, 1, 2, "files", "50 %, 1 files/min, 1 min left"},
        {3600, 1, 2, "files", "50 %, 1 files/h, 1 h 00 min left"},
        {7500, 1, 2, "files", "50 %, 0.5 files/h, 2 h 05 min left"},
        {400000, 1, 2, "files", "50 %, 5 days left"},
        {1e9, 1, 2, "files", "50 %, years left"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct tern_progress_state s = {.name = "x",
                                              .unit = cases[i].unit,
                                              .done = cases[i].done,
                                              .all = cases[i].all,
                                              .now_ns = (int64_t)(cases[i].seconds * 1e9)};
        is(text(&s, 0) + strlen("x: "), cases[i].line, "%llu %s in %g s",
           (unsigned long long)cases[i].done, cases[i].unit ? cases[i].unit : "bytes",
           cases[i].seconds);
    }
}

static void test_widths(void)
{
    struct tern_progress_state s = {
        .name = "/shared/data/corpus.tds", .done = 90 * GB, .all = 200 * GB, .now_ns = 75 * S};
    size_t longest = 0;

    is(text(&s, 79), "/shared/data/corpus.tds: 45 %, 1.2 GB/s, 2 min left", "80 columns hold all");
    is(text(&s, 39), "...rpus.tds: 45 %, 1.2 GB/s, 2 min left", "40 columns hold the name's end");
    is(text(&s, 35), "45 %, 1.2 GB/s, 2 min left", "a line of 35 columns leaves out the name");
    is(text(&s, 19), "45 %, 2 min left", "20 columns hold share and time");
    is(text(&s, 9), "45 %", "10 columns hold the share");
    is(text(&s, 3), "", "3 columns hold nothing");
    for (int columns = 1; columns < 100; columns++)
        if (strlen(text(&s, columns)) > (size_t)columns)
            longest = (size_t)columns;
    ok(longest == 0, "no line is wider than its terminal");
    s.name = "x";
    is(text(&s, 29), "x: 45 %, 1.2 GB/s, 2 min left", "a short name stays in a narrow line");
    s.name = "\xe8\xaa\x9e\xe6\x96\x99\xe5\xba\xab\xe8\xaa\x9e\xe6\x96\x99\xe5\xba\xab";
    is(text(&s, 28 + 8), "...\xe6\x96\x99\xe5\xba\xab: 45 %, 1.2 GB/s, 2 min left",
       "wide characters count as two columns, and are cut whole");
}

/* ---- the line ---- */

/* `body` in a child, whose stderr is a terminal of `columns`; what it wrote there. */
static char *on_terminal(int columns, void (*body)(void), int *ret_status)
{
    static char seen[65536];
    const struct winsize w = {.ws_row = 24, .ws_col = (unsigned short)columns};
    const int master = posix_openpt(O_RDWR | O_NOCTTY);
    size_t n = 0;

    if (master < 0 || grantpt(master) < 0 || unlockpt(master) < 0)
        abort();
    const pid_t child = fork();
    if (child == 0) {
        setsid();
        const int slave = open(ptsname(master), O_RDWR); /* now its controlling terminal */
        ioctl(slave, TIOCSWINSZ, &w);
        dup2(slave, 0);
        dup2(slave, 2);
        close(slave);
        close(master);
        body();
        exit(0);
    }
    /* EIO when the last descriptor of the other side is closed. */
    for (ssize_t got; (got = read(master, seen + n, sizeof seen - 1 - n)) > 0;)
        n += (size_t)got;
    seen[n] = '\0';
    close(master);
    waitpid(child, ret_status, 0);
    return seen;
}

static unsigned count(const char *in, const char *what)
{
    unsigned n = 0;

    for (const char *at = in; (at = strstr(at, what)); at += strlen(what))
        n++;
    return n;
}

static void body_work(void)
{
    setenv("TERN_PROGRESS_MS", "0", 1);
    tern_progress_begin("rows", "%s", "table");
    tern_progress_expect(4);
    tern_progress_add(1);
    tern_warn("disk is slow");
    tern_progress_add(1);
    tern_progress_hide();
    dprintf(2, "plain\n");
    tern_progress_set(3, 4);
    tern_progress_end();
    tern_progress_add(1);
    tern_info("done");
}

/* Work that is at its end after `ms`. */
static void work_for(int64_t ms)
{
    held_ns = S;
    tern_progress_begin(NULL, "soon");
    tern_progress_set(1, 2);
    held_ns += ms * (S / 1000);
    tern_progress_set(2, 2);
    tern_progress_end();
}

static void body_soon(void)
{
    work_for(499);
}

static void body_later(void)
{
    work_for(500);
}

static void body_interrupted(void)
{
    setenv("TERN_PROGRESS_MS", "0", 1);
    tern_progress_begin(NULL, "long");
    tern_progress_set(1, 2);
    raise(SIGINT);
}

static void body_own_handler(void)
{
    struct sigaction now;

    signal(SIGTERM, SIG_IGN);
    tern_progress_begin(NULL, "long");
    signal(SIGINT, SIG_IGN);
    tern_progress_end();
    sigaction(SIGINT, NULL, &now);
    const bool int_stays = now.sa_handler == SIG_IGN;
    sigaction(SIGTERM, NULL, &now);
    const bool term_stays = now.sa_handler == SIG_IGN;
    sigaction(SIGQUIT, NULL, &now);
    exit(int_stays && term_stays && now.sa_handler == SIG_DFL ? 0 : 1);
}

static void body_background(void)
{
    setenv("TERN_PROGRESS_MS", "0", 1);
    signal(SIGTTOU, SIG_IGN);
    const pid_t child = fork();
    if (child == 0) {
        setpgid(0, 0);
        tern_progress_begin(NULL, "behind");
        tern_progress_set(1, 2);
        tern_progress_end();
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

static void body_forked(void)
{
    setenv("TERN_PROGRESS_MS", "0", 1);
    tern_progress_begin(NULL, "parent");
    tern_progress_set(1, 4);
    const pid_t child = fork();
    if (child == 0) {
        tern_progress_set(2, 4);
        tern_progress_end();
        _exit(0);
    }
    waitpid(child, NULL, 0);
    tern_progress_set(3, 4);
    tern_progress_end();
}

static void body_quiet(void)
{
    setenv("TERN_PROGRESS_MS", "0", 1);
    tern_log_threshold(TERN_LOG_WARN);
    tern_progress_begin(NULL, "silent");
    tern_progress_set(1, 2);
    tern_progress_end();
}

enum { THREADS = 4, ADDS = 2000 };

static void *add_rows(void *unused)
{
    for (int i = 0; i < ADDS; i++)
        tern_progress_add(1);
    return unused;
}

static void body_threads(void)
{
    pthread_t threads[THREADS];

    setenv("TERN_PROGRESS_MS", "1", 1);
    tern_progress_begin("rows", "threads");
    tern_progress_expect(THREADS * ADDS + 1);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, add_rows, NULL);
    for (int i = 0; i < 20; i++)
        tern_warn("message %d", i);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; !tern_progress_due() && i < 1000; i++)
        usleep(1000);
    tern_progress_add(1);
    tern_progress_end();
}

static void body_phases(void)
{
    setenv("TERN_PROGRESS_MS", "0", 1);
    tern_progress_phase("files", "before the begin");
    tern_progress_begin(NULL, "out");
    tern_progress_phase("files", "opening them");
    tern_progress_expect(4);
    tern_progress_add(1);
    tern_progress_phase(NULL, NULL);
    tern_progress_set(60, 100);
    tern_progress_set(70, 100);
    tern_progress_end();
}

static void body_dumb(void)
{
    setenv("TERM", "dumb", 1);
    body_work();
}

/* Each message begins at the start of a line, which holds nothing else. */
static bool messages_are_alone(const char *seen, unsigned n)
{
    unsigned alone = 0;

    for (const char *at = seen; (at = strstr(at, "tern: warning: message ")); at++)
        alone += at - seen >= 4 && memcmp(at - 4, "\r\033[K", 4) == 0;
    return alone == n && count(seen, "\n") == n;
}

static void test_terminal(void)
{
    int status;
    const char *seen = on_terminal(80, body_work, &status);

    has(seen, "\r\033[Ktable: 25 %", "the line is drawn over what stood there");
    has(seen, "\r\033[Ktern: warning: disk is slow\r\n", "a message clears the line first");
    has(seen, "\r\033[Kplain\r\n", "other words do after tern_progress_hide");
    has(seen, "\r\033[Ktable: 75 %", "the line is drawn again after other words");
    has(seen, "left\r\033[Ktern: done\r\n", "the end clears it, and then nothing is drawn");
    ok(count(seen, "table: ") == 3, "each call draws once");
    seen = on_terminal(20, body_work, &status);
    ok(!strstr(seen, "table") && strstr(seen, "\r\033[K75 %"), "20 columns hold no name");
    is(on_terminal(80, body_soon, &status), "", "work of less than half a second draws nothing");
    has(on_terminal(80, body_later, &status), "soon: 100 %",
        "work of half a second draws its line");
    is(on_terminal(80, body_quiet, &status), "", "TERN_LOG_LEVEL above info draws nothing");
    is(on_terminal(80, body_background, &status), "", "a process in the background draws nothing");
    seen = on_terminal(80, body_forked, &status);
    ok(count(seen, "parent: ") == 2 && !strstr(seen, "50 %"), "a child of fork() draws nothing");
}

static void test_phases(void)
{
    int status;
    const char *seen = on_terminal(80, body_phases, &status);

    has(seen, "\r\033[Kout, opening them: 25 %, ", "a phase has its words and counts anew");
    has(seen, "\r\033[Kout: 60 %\r\033[K", "what was done before has no rate");
    has(seen, "\r\033[Kout: 70 %, ", "what was done since has one");
    ok(count(seen, "before") == 0, "without a line there is no phase");
}

static void test_signals(void)
{
    int status;
    const char *seen = on_terminal(80, body_interrupted, &status);

    is(seen, "\r\033[Klong: 50 %\r\033[K", "a signal that ends the process clears the line");
    ok(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT, "a signal ends the process as before");
    on_terminal(80, body_own_handler, &status);
    ok(WIFEXITED(status) && WEXITSTATUS(status) == 0,
       "handlers of the command stay, and others are the default again");
}

static void test_threads(void)
{
    int status;
    const char *seen = on_terminal(80, body_threads, &status);

    ok(messages_are_alone(seen, 20), "messages between draws of several threads stand alone");
    has(seen, "threads: 100 %", "what several threads add is summed");
    ok(strlen(seen) > 4 && strcmp(seen + strlen(seen) - 4, "\r\033[K") == 0,
       "the line is cleared in the end");
}

static void test_log(void)
{
    int status;

    has(on_terminal(80, body_dumb, &status), "tern: table: 25 %, ",
        "TERM=dumb: lines are messages");
    ok(!strchr(on_terminal(80, body_dumb, &status), '\033'), "TERM=dumb: messages move no cursor");
}

int main(void)
{
    unsetenv("TERM");
    unsetenv("TERN_LOG_LEVEL");
    unsetenv("TERN_PROGRESS_MS");
    test_text();
    test_units();
    test_widths();
    test_terminal();
    test_phases();
    test_signals();
    test_threads();
    test_log();
    return tap_done();
}
