/* core/ledger: a spool that several threads write. */
#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/ledger/ledger.h"
#include "tests/unit/tap.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static char work[] = "/tmp/tern-spool-XXXXXX";

/* ------------------------------------------------------------------ what happens during a sync */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool holds, entered; /* the next sync waits while `holds` is set; it has begun */
static int syncs;
static char synced[512]; /* the file of the last one */

enum { LIMIT_S = 20 }; /* of a wait that would never end */

/* Until *what is `wanted`; false: it never was.  With the lock. */
static bool wait_for(const bool *what, bool wanted)
{
    struct timespec end;

    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += LIMIT_S;
    while (*what != wanted && pthread_cond_timedwait(&changed, &lock, &end) == 0) {
    }
    return *what == wanted;
}

int fdatasync(int fd)
{
    char link[64];

    pthread_mutex_lock(&lock);
    entered = true;
    pthread_cond_broadcast(&changed);
    wait_for(&holds, false);
    syncs++;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(link, synced, sizeof synced - 1);
    synced[n > 0 ? n : 0] = '\0';
    pthread_mutex_unlock(&lock);
    return (int)syscall(SYS_fdatasync, fd);
}

static void hold(bool on)
{
    pthread_mutex_lock(&lock);
    holds = on;
    entered = on ? false : entered;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void until_entered(void)
{
    pthread_mutex_lock(&lock);
    if (!wait_for(&entered, true))
        abort();
    pthread_mutex_unlock(&lock);
}

/* ------------------------------------------------------------------ the spool */

static struct tern_ledger_spool *spool;
static char id[TERN_ULID_SIZE];

static bool put(int64_t step)
{
    const struct tern_ledger_value v = {"loss", (double)step};

    return tern_ledger_spool_step(spool, step, &v, 1, NULL) == 0;
}

static void *sync_it(void *ret)
{
    *(int *)ret = tern_ledger_spool_sync(spool, NULL);
    return NULL;
}

static bool written;

static void *put_one(void *nothing)
{
    (void)nothing;
    const bool good = put(2);

    pthread_mutex_lock(&lock);
    written = good;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void test_beside(void)
{
    pthread_t syncer, writer;
    int rc = -1;

    put(1);
    hold(true);
    pthread_create(&syncer, NULL, sync_it, &rc);
    until_entered();
    pthread_create(&writer, NULL, put_one, NULL);
    pthread_mutex_lock(&lock);
    const bool at_once = wait_for(&written, true);
    pthread_mutex_unlock(&lock);
    ok(at_once, "a record does not wait for the storage that makes earlier ones durable");
    hold(false);
    pthread_join(syncer, NULL);
    pthread_join(writer, NULL);
    ok(rc == 0, "the sync succeeds");
    const int before = syncs;
    ok(tern_ledger_spool_sync(spool, NULL) == 0 && syncs == before + 1,
       "a record that was written during a sync is not taken for durable");
    ok(tern_ledger_spool_sync(spool, NULL) == 0 && syncs == before + 1,
       "without a new record a sync asks the storage for nothing");
}

/* The ledger's folder is moved away while the storage works. */
static void test_replaced(const char *ledger)
{
    char *aside = tern_strf("%s-aside", ledger), *first;
    pthread_t syncer;
    int rc = -1;

    put(3);
    tern_ledger_spool_sync(spool, NULL);
    first = tern_strdup(synced);
    put(4);
    hold(true);
    pthread_create(&syncer, NULL, sync_it, &rc);
    until_entered();
    if (rename(ledger, aside) < 0)
        abort();
    sleep(2); /* a spool looks once a second whether its file is there */
    put(5);
    hold(false);
    pthread_join(syncer, NULL);
    ok(rc == 0 && strcmp(synced, first) != 0 && tern_str_starts(synced, ledger) &&
           !tern_str_starts(synced, aside),
       "a file that is replaced during a sync: the new one is synced, too (%s)", synced);
    tern_fs_remove_tree(aside, NULL);
    free(aside), free(first);
}

enum { THREADS = 4, EACH = 500, FROM = 1000 };

static void *put_many(void *ctx)
{
    const int64_t from = FROM + (int64_t)(intptr_t)ctx * EACH;

    for (int64_t i = 0; i < EACH; i++)
        if (!put(from + i) || (i % 50 == 0 && tern_ledger_spool_sync(spool, NULL) < 0))
            abort();
    return NULL;
}

static void test_many(const char *ledger)
{
    struct tern_ledger_series s = {0};
    struct tern_err err = {0};
    pthread_t t[THREADS];
    size_t good = 0;

    for (intptr_t i = 0; i < THREADS; i++)
        pthread_create(&t[i], NULL, put_many, (void *)i);
    for (int i = 0; i < THREADS; i++)
        pthread_join(t[i], NULL);
    ok(tern_ledger_spool_dropped(spool) == 0 && tern_ledger_spool_close(spool, &err) == 0,
       "%d threads write one spool", THREADS);
    struct tern_ledger *l = tern_ledger_open_run(ledger, id, &err);
    if (!l || tern_ledger_series(l, "loss", /* all= */ true, &s, &err) < 0)
        printf("# %s\n", err.text);
    for (size_t i = 0; i < s.n; i++)
        good += s.step[i] >= FROM && s.value[i] == (double)s.step[i];
    ok(good == THREADS * EACH, "each record is there once, with its own value (%zu)", good);
    tern_ledger_series_free(&s);
    tern_ledger_close(l);
    struct tern_ledger_check c = {0};
    ok(tern_ledger_verify(ledger, id, &c, /* findings= */ NULL, &err) == 0 && c.damaged == 0 &&
           c.records >= THREADS * EACH,
       "the spool verifies: %s", err.text);
}

int main(void)
{
    struct tern_err err = {0};

    if (!mkdtemp(work))
        return 1;
    char *ledger = tern_fs_join(work, "ledger");
    tern_ledger_ulid_new(id);
    spool = tern_ledger_spool_open(ledger, id, 1, "rank0", &err);
    if (!spool || tern_ledger_spool_run(spool, &(struct tern_ledger_run){.name = "x"}, &err) < 0 ||
        tern_ledger_spool_attempt_begin(spool, &(struct tern_ledger_attempt){.world = 1}, &err) < 0)
        return 1;
    test_beside();
    test_replaced(ledger);
    test_many(ledger);
    free(ledger);
    tern_fs_remove_tree(work, NULL);
    return tap_done();
}
