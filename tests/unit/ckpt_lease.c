/* core/ckpt: one run and one attempt own a checkpoint folder; the lease passes on when its owner is
 * dead, and fences it. */
#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/ckpt/ckpt.h"
#include "tests/unit/tap.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char work[] = "/tmp/tern-lease-XXXXXX";
static struct tern_err err;

static char *in_work(const char *name)
{
    return tern_fs_join(work, name);
}

static int acquire(const char *dir, struct tern_ckpt_lease **lease)
{
    return tern_ckpt_lease_acquire(dir, /* attempt= */ 0, "test", lease, &err);
}

/* As old as a lease whose owner is gone. */
static void make_old(const char *file)
{
    const struct timespec past[2] = {{time(NULL) - 100, 0}, {time(NULL) - 100, 0}};

    if (utimensat(AT_FDCWD, file, past, 0) < 0)
        abort();
}

static bool is_young(const char *file)
{
    struct stat st;

    return stat(file, &st) == 0 && st.st_mtime > time(NULL) - 50;
}

/* A lease of job 9 on another node. */
static void put_far(const char *file)
{
    static const char far[] =
        "{\"owner\":\"job 9\",\"host\":\"far\",\"boot\":\"x\",\"pid_namespace\":\"y\","
        "\"pid\":7,\"start\":8,\"cluster\":\"c\",\"job\":\"9\",\"restart\":0}";

    if (tern_fs_replace(file, far, strlen(far), 0644, &err) < 0)
        abort();
}

static void test_identity(void)
{
    char *dir = in_work("identity"), one[TERN_CKPT_ULID] = "01J00000000000000000000001",
         two[TERN_CKPT_ULID] = "01J00000000000000000000002", got[TERN_CKPT_ULID] = "";

    ok(tern_ckpt_run_read(dir, got, &err) == 1, "a folder that is not there belongs to no run");
    ok(tern_ckpt_run_identity(dir, one, &err) == 0, "a run puts its ULID into a new folder");
    ok(tern_ckpt_run_identity(dir, two, &err) == 0 && strcmp(one, two) == 0,
       "a later process gets the ULID that is there");
    char *file = in_work("identity/run.id");
    ok(tern_fs_replace(file, "no ULID\n", 8, 0644, &err) == 0 &&
           tern_ckpt_run_read(dir, got, &err) < 0,
       "a run.id that holds no ULID is refused");
    has(err.text, "holds no run's ULID", "a run.id that holds no ULID is refused by name");
    free(file), free(dir);
}

static void test_heartbeat(void)
{
    char *dir = in_work("beats"), *file = in_work("beats/claim-000001");
    struct tern_ckpt_lease *a = NULL, *b = NULL;

    ok(acquire(dir, &a) == 0 && tern_ckpt_lease_attempt(a) == 1, "attempt 1 takes the lease");
    ok(tern_ckpt_lease_attach(dir, 1, &b, &err) == 0, "another process attaches to a lease");
    make_old(file);
    ok(tern_ckpt_lease_renew(a, &err) == 0 && is_young(file),
       "a heartbeat renews the lease's file");
    make_old(file);
    ok(tern_ckpt_lease_check(b, &err) == 0 && is_young(file),
       "a rank that checks its lease renews it");
    tern_ckpt_lease_free(b, false);
    tern_ckpt_lease_free(a, true);
    free(dir), free(file);
}

static int save(const char *dir, uint64_t step, struct tern_ckpt_lease *lease)
{
    struct tern_ckpt_array x = {"x", TERN_CKPT_F64, 0, {0}, {0}, {0}, &(double){1}, .owner = true};
    json_t *meta = json_object();
    struct tern_ckpt_save_options o = {
        .dir = dir, .step = step, .arrays = &x, .n = 1, .meta = meta, .lease = lease};
    int rc = tern_ckpt_save(&o, NULL, &err);

    json_decref(meta);
    return rc;
}

static void test_fence(void)
{
    char *dir = in_work("fence"), *one = in_work("fence/step-00000001");
    struct tern_ckpt_lease *a = NULL, *b = NULL, *c = NULL;
    int status;

    ok(acquire(dir, &a) == 0 && tern_ckpt_lease_attach(dir, 1, &b, &err) == 0,
       "attempt 1 has the lease");
    pid_t pid = fork();
    if (pid == 0) {
        struct tern_ckpt_lease *child;
        int rc = tern_ckpt_lease_acquire(dir, 2, "child", &child, &err);
        _exit(rc < 0 && err.code == TERN_FAILED && strstr(err.text, "which is running") ? 0 : 1);
    }
    waitpid(pid, &status, 0);
    ok(status == 0, "a second live owner is refused the lease");
    ok(tern_ckpt_lease_acquire(dir, 1, "test", &c, &err) < 0, "an attempt takes the lease once");
    ok(tern_ckpt_lease_acquire(dir, 3, "test", &c, &err) == 0,
       "the owner of the lease may take it again, as attempt 3");
    ok(tern_ckpt_lease_check(a, &err) < 0, "attempt 1 has lost the lease then");
    has(err.text, "lost its lease to attempt 3", "a lost lease names its new owner");
    const struct tern_ckpt_prune_how two = {.keep = 2, .best = -1, .lease = b};
    ok(tern_ckpt_prune(dir, &two, NULL, &err) < 0, "an attempt without the lease prunes nothing");
    ok(save(dir, 1, b) < 0 && !tern_fs_exists(one),
       "an attempt without the lease publishes nothing");
    ok(save(dir, 1, c) == 0, "the attempt with the lease publishes");
    tern_ckpt_lease_free(a, true);
    tern_ckpt_lease_free(b, false);
    tern_ckpt_lease_free(c, false);
    free(dir), free(one);
}

struct pruned {
    char *file; /* of the lease */
    unsigned told, young;
    bool lost; /* another attempt takes the lease while the first one goes */
    sig_atomic_t stop, stop_at;
};

static void grow_old(void *ctx, const char *path, enum tern_ckpt_state state)
{
    struct pruned *p = ctx;
    char *later = in_work("prune/claim-000009");

    (void)path, (void)state;
    p->told++;
    p->young += is_young(p->file);
    make_old(p->file);
    if (p->lost)
        put_far(later);
    p->stop = p->told == (unsigned)p->stop_at;
    free(later);
}

static void test_prune(void)
{
    char *dir = in_work("prune");
    struct tern_ckpt_lease *a = NULL;
    struct pruned p = {.file = in_work("prune/claim-000001"), .stop_at = 1};
    struct tern_ckpt_prune_how how = {
        .keep = 2, .best = -1, .each = grow_old, .ctx = &p, .stop = &p.stop};
    unsigned removed = 0, last = 7;

    ok(acquire(dir, &a) == 0, "an attempt has the lease");
    for (uint64_t step = 1; step <= 8; step++)
        if (save(dir, step, a) < 0)
            abort();
    ok(tern_ckpt_lease_last(dir, &last, &err) == 0 && last == 1,
       "the folder's last lease is of attempt 1");
    how.lease = a;
    ok(tern_ckpt_prune(dir, &how, &removed, &err) < 0 && p.told == 1, "a stop ends a prune");
    has(err.text, "interrupted", "a prune that was stopped names the interruption");
    p.stop_at = p.stop = 0;
    p.told = p.young = 0;
    how.keep = 4;
    ok(tern_ckpt_prune(dir, &how, &removed, &err) == 0 && removed == 3 && p.told == 3,
       "a prune after a stopped one removes the three that are left");
    ok(p.young == 3, "a prune renews its lease before each (%u of 3)", p.young);
    p.lost = true;
    how.keep = 2;
    p.told = 0;
    ok(tern_ckpt_prune(dir, &how, &removed, &err) < 0 && p.told == 1,
       "a prune that loses its lease removes nothing more");
    tern_ckpt_lease_free(a, true);
    free(dir), free(p.file);
}

static bool refuses; /* the removal of a file `stuck` */

int unlinkat(int fd, const char *path, int flags)
{
    if (refuses && strcmp(path, "stuck") == 0) {
        errno = EBUSY;
        return -1;
    }
    return (int)syscall(SYS_unlinkat, fd, path, flags);
}

static void make_stuck(const char *dir)
{
    char *file = tern_fs_join(dir, "stuck");

    if (mkdir(dir, 0755) < 0 || tern_fs_replace(file, "x", 1, 0644, &err) < 0)
        abort();
    free(file);
}

static int entries(const char *dir, const char *start)
{
    DIR *d = opendir(dir);
    int n = 0;

    for (struct dirent *e; d && (e = readdir(d));)
        n += tern_str_starts(e->d_name, start);
    if (d)
        closedir(d);
    return n;
}

/* What a failed save of the running attempt left, because it could not be removed then. */
static void test_left(void)
{
    char *dir = in_work("left"), *own = in_work("left/step-00000009.tmp-1"),
         *later = in_work("left/step-00000009.tmp-2");
    const struct tern_ckpt_prune_how no_lease = {.keep = 2, .best = -1};
    struct tern_ckpt_prune_how how = no_lease;
    struct tern_ckpt_lease *a = NULL;

    ok(acquire(dir, &a) == 0, "an attempt has the lease");
    for (uint64_t step = 1; step <= 4; step++)
        if (save(dir, step, a) < 0)
            abort();
    how.lease = a;
    make_stuck(own);
    make_stuck(later);
    refuses = true;
    ok(tern_ckpt_prune(dir, &how, NULL, &err) < 0, "a folder that cannot be removed is an error");
    has(err.text, "stuck", "a folder that cannot be removed: the error names its file");
    ok(entries(dir, "step-") == 3 && tern_fs_exists(later),
       "a folder that cannot be removed holds up no other: two checkpoints are pruned");
    ok(save(dir, 5, a) == 0 && tern_ckpt_prune(dir, &how, NULL, &err) < 0 &&
           entries(dir, "step-") == 3,
       "a folder that cannot be removed does not hold up the next prune");
    refuses = false;
    ok(tern_ckpt_prune(dir, &how, NULL, &err) == 0 && !tern_fs_exists(own) &&
           entries(dir, ".trash") == 0,
       "a temporary folder of the attempt itself goes as soon as it can be removed");
    ok(tern_ckpt_prune(dir, &no_lease, NULL, &err) == 0 && tern_fs_exists(later),
       "a temporary folder of a later attempt stays, and all do without a lease");
    tern_ckpt_lease_free(a, true);
    free(dir), free(own), free(later);
}

/* An owner on another node: only its heartbeat, and its job, are known. */
static void test_elsewhere(void)
{
    char *dir = in_work("far"), *three = in_work("far/claim-000003"),
         *five = in_work("far/lease-000005");
    struct tern_ckpt_lease *c = NULL;

    tern_fs_mkdirs(dir, 0777, NULL);
    put_far(three);
    ok(acquire(dir, &c) < 0 && err.code == TERN_TEMPFAIL,
       "a lease with a young heartbeat on another node is not taken over");
    setenv("SLURM_JOB_ID", "9", 1);
    setenv("SLURM_CLUSTER_NAME", "c", 1);
    setenv("SLURM_RESTART_COUNT", "0", 1);
    ok(acquire(dir, &c) < 0 && err.code == TERN_TEMPFAIL,
       "a lease of the same start of the job is not taken over");
    setenv("SLURM_RESTART_COUNT", "1", 1);
    ok(acquire(dir, &c) == 0 && tern_ckpt_lease_attempt(c) == 4,
       "a requeued job takes the lease of its earlier start");
    unsetenv("SLURM_JOB_ID");
    tern_ckpt_lease_free(c, true);
    put_far(five);
    ok(acquire(dir, &c) < 0 && err.code == TERN_TEMPFAIL,
       "a lease by its other name, lease-N, counts as well");
    make_old(five);
    ok(acquire(dir, &c) == 0 && tern_ckpt_lease_attempt(c) == 6,
       "a lease whose heartbeat is old is taken over");
    tern_ckpt_lease_free(c, false);
    free(dir), free(three), free(five);
}

static void test_release(void)
{
    char *dir = in_work("release"), *old = in_work("release/lease-000004"),
         *now = in_work("release/claim-000002.released"), *most = in_work("release/claim-99999999");
    struct tern_ckpt_lease *b = NULL, *c = NULL;

    ok(acquire(dir, &c) == 0, "attempt 1 takes the lease to release it");
    tern_ckpt_lease_free(c, true);
    ok(acquire(dir, &c) == 0 && tern_ckpt_lease_attempt(c) == 2,
       "a released lease is free at once, and its number is spent");
    tern_ckpt_lease_withdraw(c);
    ok(acquire(dir, &c) == 0 && tern_ckpt_lease_attempt(c) == 2,
       "the number of a withdrawn lease is free again");
    ok(tern_ckpt_lease_attach(dir, 2, &b, &err) == 0,
       "a rank attaches to the lease of its supervisor");
    tern_ckpt_lease_withdraw(b);
    ok(tern_ckpt_lease_check(c, &err) == 0, "a rank cannot withdraw the lease of its supervisor");
    tern_ckpt_lease_free(c, true);
    ok(tern_fs_exists(now), "a lease has the name that a supervisor of tern 0.3 looks for");
    put_far(old);
    ok(tern_ckpt_lease_attach(dir, 4, &b, &err) == 0,
       "a rank attaches to a lease by its other name");
    put_far(old); /* another file of that name */
    ok(tern_ckpt_lease_check(b, &err) < 0, "another file under a lease's name is no lease");
    ok(unlink(old) == 0 && tern_ckpt_lease_check(b, &err) < 0, "a lease that was removed is lost");
    tern_ckpt_lease_free(b, false);
    put_far(most);
    make_old(most);
    ok(acquire(dir, &c) < 0 && err.code == TERN_USAGE && strstr(err.text, "claim-99999999"),
       "after the highest number of an attempt the file with that number is named");
    free(dir), free(old), free(now), free(most);
}

/* Two ranks of which one is there: the other says the same.  Before the tables are exchanged,
 * another attempt takes the lease. */
static int gather_and_lose(void *ctx, const void *in, void *out, size_t bytes, struct tern_err *e)
{
    int *calls = ctx;

    (void)e;
    memcpy(out, in, bytes);
    memcpy((char *)out + bytes, in, bytes);
    if (++*calls == 4) {
        char *file = in_work("late/claim-000009");
        put_far(file);
        free(file);
    }
    return 0;
}

static void test_late(void)
{
    char *dir = in_work("late"), *one = in_work("late/step-00000001");
    struct tern_ckpt_lease *a = NULL;
    int calls = 0;
    const struct tern_ckpt_peers peers = {
        .rank = 0, .size = 2, .ctx = &calls, .all_gather = gather_and_lose};
    struct tern_ckpt_save_options o = {.dir = dir, .step = 1, .peers = &peers};

    o.meta = json_object();
    ok(acquire(dir, &a) == 0, "attempt 1 takes the lease to save");
    o.lease = a;
    ok(tern_ckpt_save(&o, NULL, &err) < 0 && !tern_fs_exists(one),
       "a save that loses the lease while it writes publishes nothing");
    has(err.text, "lost its lease to attempt 9", "a save that loses the lease names the owner");
    json_decref(o.meta);
    tern_ckpt_lease_free(a, false);
    free(dir), free(one);
}

/* A process that has ended, and that its parent has not waited for, holds no lease. */
static void test_zombie(void)
{
    char *dir = in_work("zombie");
    struct tern_ckpt_lease *lease = NULL;
    siginfo_t info;
    pid_t pid = fork();

    if (pid == 0)
        _exit(tern_ckpt_lease_acquire(dir, 0, "child", &lease, &err) < 0);
    waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT);
    ok(info.si_status == 0 && acquire(dir, &lease) == 0, "the lease of a zombie is taken over");
    waitpid(pid, NULL, 0);
    tern_ckpt_lease_free(lease, true);
    free(dir);
}

/* Eight processes reach for the folder at once: one gets it. */
static void test_race(void)
{
    char *dir = in_work("race");
    enum { RACERS = 8 };
    int go[2], tried[2], stay[2], status, winners = 0;
    char c;

    for (int round = 0; round < 10; round++) {
        tern_fs_remove_tree(dir, NULL);
        if (pipe(go) < 0 || pipe(tried) < 0 || pipe(stay) < 0)
            abort();
        for (int i = 0; i < RACERS; i++) {
            if (fork() == 0) {
                struct tern_ckpt_lease *lease;
                close(go[1]);
                close(stay[1]);
                int rc = (int)read(go[0], &c, 1); /* returns when all are there */
                rc = tern_ckpt_lease_acquire(dir, 0, "racer", &lease, NULL);
                if (write(tried[1], &c, 1) != 1 || read(stay[0], &c, 1) != 0)
                    abort(); /* alive until all have tried */
                _exit(rc == 0);
            }
        }
        close(go[0]);
        close(go[1]);
        for (int i = 0; i < RACERS; i++)
            if (read(tried[0], &c, 1) != 1)
                abort();
        close(stay[1]);
        close(stay[0]);
        close(tried[0]);
        close(tried[1]);
        while (wait(&status) > 0)
            winners += WIFEXITED(status) && WEXITSTATUS(status) == 1;
    }
    ok(winners == 10,
       "of eight processes that take the lease at once, one gets it (%d of 10 rounds)", winners);
    free(dir);
}

int main(void)
{
    if (!mkdtemp(work))
        return 1;
    test_identity();
    test_heartbeat();
    test_fence();
    test_prune();
    test_left();
    test_elsewhere();
    test_release();
    test_late();
    test_zombie();
    test_race();
    tern_fs_remove_tree(work, NULL);
    return tap_done();
}
