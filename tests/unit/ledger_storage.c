/* core/ledger: a disk that is full, and a folder that is moved away. */
#include "tests/unit/ledger.h"

#include "core/ledger/db.h"
#include "core/ledger/frame.h"
#include "core/ledger/schema.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
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

/* The frames of the file at `path` get other seqs; its length stays. */
/* Of a writer with several files only the newest is written once more; the loss of the others is
 * reported, once. */
static void test_removed_full(void)
{
    enum { PIECE = 1 << 19, PIECES = (64 << 20) / PIECE + 2 };
    char run[TERN_ULID_SIZE], *big = tern_alloc(PIECE + 1, 1, "a text", NULL), want[100];
    struct tern_ledger_rows events = {0};
    const char *told = "";
    int n_told = 0;

    memset(big, 'x', PIECE);
    tern_ledger_ulid_new(run);
    struct tern_ledger_spool *w = tern_ledger_spool_open(dir, run, 1, "rank0", &err);
    char *folder = tern_strf("%s/runs/%s", dir, run);
    for (int i = 1; i <= 7; i++)
        step(w, i, i);
    for (int i = 0; i < PIECES; i++)
        tern_ledger_spool_event(
            w, &(struct tern_ledger_event){.kind = "k", .severity = "info", .text = big}, &err);
    for (int i = 8; i <= 12; i++) {
        if (i == 10 || i == 11) { /* the second time, nothing more is lost */
            ok(tern_fs_remove_tree(folder, NULL) == 0, "a run's folder with two files is removed");
            usleep(1100000);
        }
        step(w, i, i);
    }
    ok(tern_ledger_spool_dropped(w) > 7 && tern_ledger_spool_dropped(w) < 7 + PIECES,
       "the records of the first file are lost (%d)", (int)tern_ledger_spool_dropped(w));
    snprintf(want, sizeof want,
             "%d records lost (steps 1 to 7): the files that had them were removed",
             (int)tern_ledger_spool_dropped(w));
    ok(tern_ledger_spool_close(w, &err) == 0, "the spool of a lost folder closes without an error");
    struct tern_ledger *l = tern_ledger_open_run(dir, run, &err);
    if (l)
        tern_ledger_events(l, &events, &err);
    for (size_t i = 0; i < events.n; i++)
        if (strcmp(events.events[i].kind, "gap") == 0 && ++n_told)
            told = events.events[i].text;
    is(told, want, "the ledger says how many, and of which steps");
    ok(n_told == 1, "the event of lost records is there once (%d)", n_told);
    tern_ledger_rows_free(&events);
    tern_ledger_close(l);
    free(folder);
    free(big);
}

static void renumber(const char *path, uint64_t by)
{
    struct tern_buf all = {0}, one = {0};
    struct tern_ledger_frame f;
    char *data;
    size_t len;
    uint32_t prev = 0;

    if (tern_fs_read(path, 1 << 20, &data, &len, &err) < 0)
        abort();
    struct tern_ledger_frame_scan scan = {.data = (const uint8_t *)data, .len = len};
    while (tern_ledger_frame_next(&scan, &f) == TERN_FRAME_OK) {
        f.seq += by;
        f.prev = prev;
        tern_ledger_frame_encode(&one, &f);
        prev = f.crc;
        tern_buf_add(&all, one.data, one.len);
    }
    int fd = open(path, O_WRONLY);
    if (fd < 0 || all.len > len || pwrite(fd, all.data, all.len, 0) != (ssize_t)all.len)
        abort();
    close(fd);
    free(data);
    tern_buf_free(&all);
    tern_buf_free(&one);
}

/* A file that lost its name, with sound records in it that are not this writer's. */
static void test_renumbered(uint64_t by, int lost)
{
    char run[TERN_ULID_SIZE];
    struct tern_ledger_value v = {"loss", 6};
    struct tern_ledger_series s = {0};
    struct tern_ledger_rows rows = {0};

    tern_ledger_ulid_new(run);
    struct tern_ledger_spool *w = tern_ledger_spool_open(dir, run, 1, "rank0", &err);
    char *path = tern_strf("%s/runs/%s/spool/1/rank0.0.spool", dir, run);
    for (int i = 1; i <= 5; i++)
        step(w, i, i);
    renumber(path, by);
    ok(unlink(path) == 0, "a spool's file lost its name");
    usleep(1100000); /* it is looked for once a second */
    for (int i = 6; i <= 10; i++)
        tern_ledger_spool_step(w, i, &v, 1, &err);
    ok(tern_ledger_spool_dropped(w) == (uint64_t)lost,
       "of 5 records with seqs %+lld %d are counted as lost (%d)", (long long)by, lost,
       (int)tern_ledger_spool_dropped(w));
    tern_ledger_spool_close(w, &err);
    struct tern_ledger *l = tern_ledger_open_run(dir, run, &err);
    char *want = tern_strf("%d record%s lost: cannot be read back", lost, lost == 1 ? "" : "s");
    ok(l && tern_ledger_events(l, &rows, &err) == 0 && rows.n > 0,
       "records with wrong seqs are a recorded loss");
    is(rows.n ? rows.events[0].text : NULL, want, "a recorded loss has the number of records");
    ok(l && tern_ledger_series(l, "loss", false, &s, &err) == 0, "the losses are read");
    ok(s.n >= 5 && s.step[s.n - 1] == 10, "steps after records with wrong seqs are written (%d)",
       (int)s.n);
    free(want);
    tern_ledger_rows_free(&rows);
    tern_ledger_series_free(&s);
    tern_ledger_close(l);
    free(path);
}

static const char *denied; /* a pragma */

static int deny(void *arg, int what, const char *name, const char *value, const char *base,
                const char *trigger)
{
    (void)arg, (void)value, (void)base, (void)trigger;
    return what == SQLITE_PRAGMA && strcmp(name, denied) == 0 ? SQLITE_DENY : SQLITE_OK;
}

/* A database that cannot be read any more is not published, and nothing aborts. */
static void test_unreadable(void)
{
    static const char *const pragmas[] = {"application_id", "user_version", "page_count"};
    char *path = tern_strf("%s/unreadable.db", dir);

    for (size_t i = 0; i < sizeof pragmas / sizeof *pragmas; i++) {
        struct tern_ledger_db_stamp none = {0};
        sqlite3 *db = NULL;
        if (tern_ledger_db_new(tern_schema_run, &db, &err) < 0)
            abort();
        denied = pragmas[i];
        sqlite3_set_authorizer(db, deny, NULL);
        ok(tern_ledger_db_publish(db, path, dir, 0644, /* finish= */ NULL, &none, &err) == -1 &&
               err.text[0],
           "a database whose %s cannot be read is an error: %s", denied, err.text);
        ok(!tern_fs_exists(path), "a database that cannot be read is not published");
        sqlite3_close(db);
    }
    free(path);
}

/* A flipped bit anywhere in it, a cut, or more bytes: a seal says no more that all is well. */
static void test_seal(void)
{
    struct tern_ledger_db_stamp none = {0}, stamp;
    char *path = tern_strf("%s/sealed.db", dir), *plain = tern_strf("%s/plain.db", dir);
    sqlite3 *db = NULL;
    unsigned char c = 0;
    int missed = 0;

    ok(tern_ledger_db_new(tern_schema_catalogue, &db, &err) == 0 &&
           tern_ledger_db_publish(db, path, dir, 0644, tern_ledger_db_seal, &none, &err) == 0 &&
           tern_ledger_db_publish(db, plain, dir, 0644, /* finish= */ NULL, &none, &err) == 0,
       "a catalogue is published, with a seal and without one: %s", err.text);
    sqlite3_close(db);
    tern_ledger_db_stamp(path, &stamp);
    ok(tern_ledger_db_is_sealed(path, &stamp), "a published database has its seal");
    ok(tern_ledger_db_load(path, tern_schema_catalogue, &db, &stamp, &err) == 0 &&
           tern_ledger_db_sound(db),
       "SQLite finds it sound: %s", err.text);
    sqlite3_close(db);
    tern_ledger_db_stamp(plain, &stamp);
    ok(!tern_ledger_db_is_sealed(plain, &stamp), "a copied database has no seal");
    ok(!tern_ledger_db_is_sealed(path, &stamp), "the seal of another file than was read is none");
    chmod(path, 0600);
    const int fd = open(path, O_RDWR);
    const int64_t bytes = lseek(fd, 0, SEEK_END);
    for (int64_t at = 0; at < bytes; at += at < bytes - 5000 ? 997 : 1) {
        if (pread(fd, &c, 1, at) != 1)
            abort();
        const unsigned char other = c ^ 4;
        if (pwrite(fd, &other, 1, at) != 1)
            abort();
        tern_ledger_db_stamp(path, &stamp);
        missed += tern_ledger_db_is_sealed(path, &stamp);
        if (pwrite(fd, &c, 1, at) != 1)
            abort();
    }
    ok(missed == 0, "a flipped bit is seen, in the pages and in the seal");
    tern_ledger_db_stamp(path, &stamp);
    ok(tern_ledger_db_is_sealed(path, &stamp), "(as it was, it has its seal)");
    ok(pwrite(fd, &c, 1, bytes) == 1, "(another byte behind it)");
    ok(!tern_ledger_db_is_sealed(path, &stamp), "a file that changed since is not taken for it");
    tern_ledger_db_stamp(path, &stamp);
    ok(!tern_ledger_db_is_sealed(path, &stamp), "more bytes are seen");
    ok(ftruncate(fd, bytes - 1) == 0, "(the file is cut to its old length)");
    tern_ledger_db_stamp(path, &stamp);
    ok(!tern_ledger_db_is_sealed(path, &stamp), "a cut is seen");
    close(fd);
    free(path), free(plain);
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
    test_removed_full();
    test_renumbered((uint64_t)-1, 1);
    test_renumbered((uint64_t)-3, 3);
    test_renumbered(7, 5);
    test_unreadable();
    test_seal();
    return ledger_end();
}
