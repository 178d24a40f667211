/* core/ledger: a disk that is full, and a folder that is moved away. */
#include "tests/unit/ledger.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static bool clock_stands; /* the wall clock */

int clock_gettime(clockid_t clock, struct timespec *now)
{
    if (clock != CLOCK_REALTIME || !clock_stands)
        return (int)syscall(SYS_clock_gettime, clock, now);
    *now = (struct timespec){.tv_sec = 1700000000};
    return 0;
}

/* Of two values of a step the newer holds, also when the clock stands still between them. */
static void test_clock(void)
{
    char run[TERN_ULID_SIZE];
    struct tern_ledger_series s = {0};

    tern_ledger_ulid_new(run);
    struct tern_ledger_spool *w = tern_ledger_spool_open(dir, run, 1, "rank0", &err);
    clock_stands = true;
    step(w, 1, 1.0);
    step(w, 1, 2.0);
    clock_stands = false;
    ok(tern_ledger_spool_close(w, &err) == 0, "two values of one step are written");
    struct tern_ledger *l = tern_ledger_open_run(dir, run, &err);
    ok(l && tern_ledger_series(l, "loss", false, &s, &err) == 0 && s.n == 1 && s.value[0] == 2.0,
       "of two values of one step the newer holds, also on a clock that stands");
    tern_ledger_series_free(&s);
    tern_ledger_close(l);
}

static struct rlimit old, small = {4096, RLIM_INFINITY};

/* A file system that is full: nothing stops, and the loss is counted and reported. */
static void test_full(void)
{
    char run[TERN_ULID_SIZE];
    struct tern_ledger_rows rows = {0};
    struct tern_ledger_series s = {0};
    int lost = 0, quiet = 0, written = 0;

    tern_ledger_ulid_new(run);
    struct tern_ledger_spool *w = tern_ledger_spool_open(dir, run, 1, "rank0", &err);
    for (int i = 1; i <= 100; i++) {
        if (i == 20)
            setrlimit(RLIMIT_FSIZE, &small);
        if (i == 90)
            setrlimit(RLIMIT_FSIZE, &old);
        struct tern_ledger_value v = {"loss", i};
        int rc = tern_ledger_spool_step(w, i, &v, 1, &err);
        written += rc == 0;
        lost += rc < 0;
        quiet += rc > 0;
    }
    ok(lost == 1 && quiet > 10 && tern_ledger_spool_dropped(w) == 0,
       "a full disk is reported once, %d more records wait silently, %d were written", quiet,
       written);
    ok(tern_ledger_spool_close(w, &err) == 0, "a spool closes when the disk has room again");
    struct tern_ledger_check c;
    struct tern_buf found = {0};
    ok(tern_ledger_verify(dir, run, &c, &found, &err) == 0 && c.damaged == 0,
       "parts of records on a full disk were taken back %s", found.data ? found.data : "");
    struct tern_ledger *l = tern_ledger_open_run(dir, run, &err);
    bool right = l && tern_ledger_series(l, "loss", false, &s, &err) == 0 && s.n == 100;
    for (size_t i = 0; right && i < s.n; i++)
        right = s.value[i] == (double)(i + 1);
    ok(right, "all records that waited are in the ledger");
    tern_ledger_series_free(&s);
    ok(tern_ledger_events(l, &rows, &err) == 0 && rows.n == 0,
       "no gap is reported when all records were written");
    tern_ledger_rows_free(&rows);
    tern_ledger_close(l);
    tern_buf_free(&found);
}

/* More than memory takes; and a disk that stays full to the end. */
static void test_lost(void)
{
    char run[TERN_ULID_SIZE];
    struct tern_ledger_rows rows = {0};
    struct tern_ledger_check c;
    struct tern_buf found = {0};

    static char name[200];
    memset(name, 'm', sizeof name - 1);
    struct tern_ledger_value many[100];
    for (int i = 0; i < 100; i++)
        many[i] = (struct tern_ledger_value){name, i};
    for (int end = 0; end < 2; end++) {
        tern_ledger_ulid_new(run);
        struct tern_ledger_spool *w = tern_ledger_spool_open(dir, run, 1, "rank0", &err);
        setrlimit(RLIMIT_FSIZE, &small);
        for (int i = 1; i <= 400; i++)
            tern_ledger_spool_step(w, i, many, 100, &err);
        uint64_t dropped = tern_ledger_spool_dropped(w);
        if (!end)
            setrlimit(RLIMIT_FSIZE, &old);
        int rc = tern_ledger_spool_close(w, &err);
        setrlimit(RLIMIT_FSIZE, &old);
        if (end) {
            ok(rc < 0 && strstr(err.text, "400 records lost (steps 1 to 400): File too large"),
               "closing on a full disk reports the lost records: %s", err.text);
            continue;
        }
        ok(rc == 0 && dropped > 100 && dropped < 300, "of 400 large records %d had no room to wait",
           (int)dropped);
        struct tern_ledger *l = tern_ledger_open_run(dir, run, &err);
        char *want = tern_strf("%d records lost (steps %d to 400): File too large", (int)dropped,
                               401 - (int)dropped);
        ok(tern_ledger_events(l, &rows, &err) == 0 && rows.n == 1,
           "lost records are one gap event");
        is(rows.n ? rows.events[0].text : NULL, want,
           "a gap event has the number of records and their steps");
        free(want);
        tern_ledger_rows_free(&rows);
        ok(tern_ledger_runs(l, &rows, &err) == 0 && rows.runs[0].lost == (int64_t)dropped,
           "the run's row has the number of lost records");
        tern_ledger_rows_free(&rows);
        tern_ledger_close(l);
        tern_buf_clear(&found);
        ok(tern_ledger_verify(dir, run, &c, &found, &err) == 0 && c.damaged == 0 && c.lost == 1 &&
               found.data && strstr(found.data, "records lost"),
           "verify reports lost records");
    }
    tern_buf_free(&found);
}

/* The folder is removed, moved or replaced while a process writes. */
static void test_moved(void)
{
    for (int how = 0; how < 3; how++) {
        char run[TERN_ULID_SIZE], *away = tern_strf("%s-away", dir);
        struct tern_ledger_series s = {0};
        tern_ledger_ulid_new(run);
        struct tern_ledger_spool *w = tern_ledger_spool_open(dir, run, 1, "rank0", &err);
        for (int i = 1; i <= 30; i++) {
            if (i == 10) {
                char *folder = how == 0 ? tern_strf("%s/runs/%s", dir, run) : tern_strdup(dir);
                ok((how == 0 ? tern_fs_remove_tree(folder, NULL) : rename(folder, away)) == 0,
                   "the run's folder or the ledger is moved away (case %d)", how);
                if (how == 2) { /* and another ledger in its place */
                    char *other = tern_strf("%s/runs", dir);
                    tern_fs_mkdirs(other, 0777, NULL);
                    free(other);
                }
                free(folder);
            }
            if (i == 12)
                usleep(1100000); /* it is looked for once a second */
            step(w, i, i);
        }
        ok(tern_ledger_spool_close(w, &err) == 0, "a spool closes after its folder was moved");
        struct tern_ledger *l = tern_ledger_open_run(dir, run, &err);
        if (l)
            tern_ledger_series(l, "loss", false, &s, &err);
        struct tern_ledger_check c;
        struct tern_buf found = {0};
        ok(tern_ledger_verify(dir, run, &c, &found, &err) == 0 && c.damaged == 0,
           "records that were written once more verify %s", found.data ? found.data : "");
        tern_buf_free(&found);
        ok(s.n == 30, "all records are in the ledger's place again (%d)", (int)s.n);
        tern_ledger_series_free(&s);
        tern_ledger_close(l);
        if (how) {
            tern_fs_remove_tree(dir, NULL);
            ok(rename(away, dir) == 0, "the first ledger is moved back");
        }
        free(away);
    }
}

int main(void)
{
    ledger_begin();
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    small.rlim_max = old.rlim_max;
    test_clock();
    test_full();
    test_lost();
    test_moved();
    return ledger_end();
}
