/* core/ckpt, saves in the background: what is published is what the arrays held when the save
 * began; a failure on any rank is one on all, leaves nothing, and the next save works. */
#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/ckpt/ckpt.h"
#include "tests/unit/tap.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static char work[] = "/tmp/tern-ckpt-save-XXXXXX";

static char *in_work(const char *name)
{
    return tern_fs_join(work, name);
}

/* ------------------------------------------------------------------ what happens during a save */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t opened = PTHREAD_COND_INITIALIZER;
static const char *held;             /* a shard whose writer waits while this is set */
static const char *refused;          /* a shard for which there is no room */
static int writer_cpus, writer_nice; /* of the thread that wrote last */

static int cpus(void)
{
    cpu_set_t set;

    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
}

static pthread_t folder_maker; /* the thread that made the last folder */

int mkdir(const char *path, mode_t mode)
{
    pthread_mutex_lock(&lock);
    folder_maker = pthread_self();
    while (held && strcmp(held, "mkdir") == 0 && strstr(path, ".tmp-"))
        pthread_cond_wait(&opened, &lock);
    pthread_mutex_unlock(&lock);
    return (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}

int fallocate(int fd, int mode, off_t from, off_t len)
{
    char link[64], path[512];

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = '\0';
    pthread_mutex_lock(&lock);
    writer_cpus = cpus();
    writer_nice = getpriority(PRIO_PROCESS, 0);
    while (held && strstr(path, held))
        pthread_cond_wait(&opened, &lock);
    const bool full = refused && strstr(path, refused);
    pthread_mutex_unlock(&lock);
    if (full) {
        errno = ENOSPC;
        return -1;
    }
    return (int)syscall(SYS_fallocate, fd, mode, from, len);
}

static void hold(const char *shard)
{
    pthread_mutex_lock(&lock);
    held = shard;
    pthread_cond_broadcast(&opened);
    pthread_mutex_unlock(&lock);
}

static void *let_go(void *nothing)
{
    (void)nothing;
    hold(NULL);
    return NULL;
}

/* ------------------------------------------------------------------ ranks as threads */

enum { RANKS_MAX = 5, ROWS = 1200, COLS = 1000, FIXED = 7 }; /* rows of 4.8 MB: two pieces */

struct world {
    int size;
    pthread_barrier_t barrier;
    const void *in[RANKS_MAX];
};

struct job {
    struct world *w;
    int rank;
    const char *dir;
    uint64_t step;
    struct tern_ckpt_lease *lease;
    bool background, bound; /* bound: this rank's thread, to one core */
    void (*meanwhile)(struct job *j, struct tern_ckpt_saving *s); /* behind begin; may be NULL */
    float *m;
    struct tern_ckpt_staging *staging;
    int rc;
    struct tern_ckpt_saved saved;
    struct tern_err err;
};

static int gather(void *ctx, const void *in, void *out, size_t bytes, struct tern_err *err)
{
    struct job *j = ctx;

    (void)err;
    j->w->in[j->rank] = in;
    pthread_barrier_wait(&j->w->barrier);
    for (int i = 0; i < j->w->size; i++)
        memcpy((char *)out + (size_t)i * bytes, j->w->in[i], bytes);
    pthread_barrier_wait(&j->w->barrier);
    return 0;
}

/* Rows of this rank; what rank 0 alone has, and never changes. */
static const float fixed[FIXED] = {1, 2, 3, 5, 8, 13, 21};

static void fill(struct job *j, struct tern_ckpt_array a[2])
{
    const uint64_t from = ROWS * (uint64_t)j->rank / (uint64_t)j->w->size;
    const uint64_t to = ROWS * (uint64_t)(j->rank + 1) / (uint64_t)j->w->size;

    a[0] = (struct tern_ckpt_array){.name = "model/w",
                                    .type = TERN_CKPT_F32,
                                    .ndim = 2,
                                    .global = {ROWS, COLS},
                                    .start = {from, 0},
                                    .shape = {to - from, COLS},
                                    .data = j->m,
                                    .owner = true};
    a[1] = (struct tern_ckpt_array){.name = "base/b",
                                    .type = TERN_CKPT_F32,
                                    .ndim = 1,
                                    .global = {FIXED},
                                    .shape = {FIXED},
                                    .data = fixed,
                                    .owner = j->rank == 0,
                                    .constant = true};
    for (uint64_t i = 0; i < (to - from) * COLS; i++)
        j->m[i] = (float)(from * COLS + i) * 0.5f + (float)j->step;
}

static void bind_to_one(void)
{
    cpu_set_t set, one;
    int k = 0;

    sched_getaffinity(0, sizeof set, &set);
    while (!CPU_ISSET(k, &set))
        k++;
    CPU_ZERO(&one);
    CPU_SET(k, &one);
    sched_setaffinity(0, sizeof one, &one);
}

static void *run_rank(void *arg)
{
    struct job *j = arg;
    struct tern_ckpt_peers peers = {j->rank, j->w->size, j, NULL, gather};
    struct tern_ckpt_array a[2];
    struct tern_ckpt_saving *s = NULL;

    j->m = calloc(ROWS * COLS, sizeof *j->m);
    if (j->bound)
        bind_to_one();
    fill(j, a);
    /* As a trainer does: what begin was given is gone when it returns. */
    char *dir = tern_strdup(j->dir), *text = tern_strdup("{}");
    struct tern_ckpt_file file = {.name = "config.json", .text = text};
    json_t *meta = json_pack("{s:i}", "sample", 77);
    struct tern_ckpt_save_options o = {.dir = dir,
                                       .step = j->step,
                                       .arrays = a,
                                       .n = 2,
                                       .meta = meta,
                                       .files = &file,
                                       .n_files = 1,
                                       .peers = &peers,
                                       .lease = j->lease};
    if (!j->background) {
        j->rc = tern_ckpt_save(&o, &j->saved, &j->err);
    } else {
        if (!j->staging)
            j->staging = tern_ckpt_staging_new(tern_ckpt_staging_bytes(a, 2), &j->err);
        j->rc = tern_ckpt_save_begin(&o, j->staging, &s, &j->err);
        memset(j->m, 0xff, ROWS * COLS * sizeof *j->m);
    }
    memset(a, 0xff, sizeof a);
    memset(&o, 0xff, sizeof o);
    json_object_clear(meta);
    json_decref(meta);
    free(dir), free(text);
    if (s && j->meanwhile)
        j->meanwhile(j, s);
    while (s && j->rc == 0)
        j->rc = tern_ckpt_save_advance(s, &j->saved, &j->err);
    tern_ckpt_save_free(s);
    free(j->m);
    return NULL;
}

/* There is no thread for a save while this is set. */
static bool no_threads;

int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *), void *arg)
{
    int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

    *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    return no_threads && start != run_rank ? EAGAIN : real(thread, attr, start, arg);
}

/* All ranks; `staging` of an earlier run of as many ranks is used again. */
static void run_world(int size, struct job *jobs, const struct job *like)
{
    struct world w = {.size = size};
    pthread_t t[RANKS_MAX];

    pthread_barrier_init(&w.barrier, NULL, (unsigned)size);
    for (int r = 0; r < size; r++) {
        struct tern_ckpt_staging *staging = jobs[r].staging;
        jobs[r] = *like;
        jobs[r].w = &w;
        jobs[r].rank = r;
        jobs[r].staging = staging;
        jobs[r].lease = r == 0 ? like->lease : NULL;
        pthread_create(&t[r], NULL, run_rank, &jobs[r]);
    }
    for (int r = 0; r < size; r++)
        pthread_join(t[r], NULL);
    pthread_barrier_destroy(&w.barrier);
}

static void free_stagings(struct job *jobs, int n)
{
    for (int r = 0; r < n; r++)
        tern_ckpt_staging_free(jobs[r].staging);
}

static int names_in(const char *dir)
{
    DIR *d = opendir(dir);
    int n = 0;

    for (struct dirent *e; d && (e = readdir(d));)
        n += e->d_name[0] != '.';
    if (d)
        closedir(d);
    return n;
}

/* ------------------------------------------------------------------ the same bits */

static bool same_file(const char *a, const char *b, const char *name)
{
    char *path[] = {tern_fs_join(a, name), tern_fs_join(b, name)}, *text[2] = {0};
    size_t len[2] = {0, 1};
    bool same = true;

    for (int i = 0; i < 2; i++)
        same = tern_fs_read(path[i], 64 << 20, &text[i], &len[i], NULL) == 0 && same;
    same = same && len[0] == len[1] && memcmp(text[0], text[1], len[0]) == 0;
    for (int i = 0; i < 2; i++)
        free(path[i]), free(text[i]);
    return same;
}

/* Without its time, and the digest that depends on it. */
static json_t *manifest(const char *path)
{
    char *file = tern_fs_join(path, "manifest.json");
    json_t *j = json_load_file(file, 0, NULL);

    json_object_del(j, "written");
    json_object_del(j, "digest");
    free(file);
    return j;
}

static void test_same(void)
{
    static const int sizes[] = {1, 2, 3, 5};
    char *sync = in_work("sync"), *back = in_work("back");

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const int n = sizes[i];
        struct job a[RANKS_MAX] = {{0}}, b[RANKS_MAX] = {{0}};
        const struct job one = {.dir = sync, .step = i},
                         other = {.dir = back, .step = i, .background = true};
        run_world(n, a, &one);
        run_world(n, b, &other);
        bool good = true;
        for (int r = 0; r < n; r++)
            good = good && a[r].rc == 0 && b[r].rc == 1 &&
                   strcmp(b[r].saved.digest, b[0].saved.digest) == 0;
        ok(good, "%d ranks save in the background, and all know it: %s", n, b[0].err.text);
        for (int r = 0; r < n; r++) {
            char *name = tern_strf("shard-%05d-of-%05d.safetensors", r, n);
            ok(same_file(a[r].saved.path, b[r].saved.path, name),
               "%d ranks: shard %d has the bytes of one that was saved while all waited", n, r);
            free(name);
        }
        json_t *x = manifest(a[0].saved.path), *y = manifest(b[0].saved.path);
        ok(x && json_equal(x, y), "%d ranks: so has the manifest, but for its time", n);
        json_decref(x), json_decref(y);
        struct tern_err err = {0};
        ok(tern_ckpt_verify(b[0].saved.path, true, &err) == 0 &&
               b[0].saved.bytes == a[0].saved.bytes && b[0].saved.write_seconds > 0,
           "%d ranks: it verifies, and its bytes and time are known", n);
        free_stagings(b, n);
    }
    free(sync), free(back);
}

/* ------------------------------------------------------------------ in the background */

static char *final_path;
static bool went_on[RANKS_MAX], hidden, published;

static void until_ready(const struct tern_ckpt_saving *s)
{
    while (!tern_ckpt_save_is_ready(s))
        usleep(1000);
}

/* The folder is there, and each rank writes. */
static void until_writing(struct job *j, struct tern_ckpt_saving *s)
{
    until_ready(s);
    if (tern_ckpt_save_advance(s, &j->saved, &j->err) != 0)
        abort();
}

/* The last rank's writer is held until every rank has found itself beyond begin. */
static void go_on(struct job *j, struct tern_ckpt_saving *s)
{
    const int last = j->w->size - 1;

    until_writing(j, s);
    went_on[j->rank] = j->rank != last || !tern_ckpt_save_is_ready(s);
    if (j->rank != last)
        until_ready(s);
    pthread_barrier_wait(&j->w->barrier);
    if (j->rank == last) {
        hidden = !tern_fs_exists(final_path) && !tern_ckpt_save_is_ready(s);
        hold(NULL);
    }
    until_ready(s);
    if (tern_ckpt_save_advance(s, &j->saved, &j->err) == 0)
        until_ready(s);
    if (j->rank == 0)
        published = tern_fs_exists(final_path);
}

static void test_background(void)
{
    struct job jobs[RANKS_MAX] = {{0}};
    char *dir = in_work("goes-on");
    const struct job like = {.dir = dir, .step = 4, .background = true, .meanwhile = go_on};

    final_path = in_work("goes-on/step-00000004");
    hold("shard-00002");
    run_world(3, jobs, &like);
    ok(went_on[0] && went_on[1] && went_on[2], "a rank goes on while a shard is being written");
    ok(hidden, "no checkpoint is there before every rank has written");
    ok(published, "rank 0 publishes without the other ranks");
    ok(jobs[0].rc == 1 && jobs[2].rc == 1, "all ranks hear of the published checkpoint: %s",
       jobs[0].err.text);
    free_stagings(jobs, 3);
    free(final_path), free(dir);
}

static bool folder_waited;

static void see_folder(struct job *j, struct tern_ckpt_saving *s)
{
    folder_waited = j->rank != 0 || !tern_ckpt_save_is_ready(s);
    hold(NULL);
    until_ready(s);
    folder_waited = folder_waited && !pthread_equal(folder_maker, pthread_self());
}

static void test_folder(void)
{
    struct job jobs[RANKS_MAX] = {{0}};
    char *dir = in_work("folder");
    const struct job like = {.dir = dir, .step = 1, .background = true, .meanwhile = see_folder};

    hold("mkdir");
    run_world(1, jobs, &like);
    ok(folder_waited && jobs[0].rc == 1,
       "begin does not wait for the folder, which another thread makes: %s", jobs[0].err.text);
    free_stagings(jobs, 1);
    free(dir);
}

/* A rank computes on every core that it has, by threads that are bound to one each. */
static void test_cores(void)
{
    struct job jobs[RANKS_MAX] = {{0}};
    char *dir = in_work("cores");
    const struct job like = {.dir = dir, .step = 1, .background = true, .bound = true};

    run_world(1, jobs, &like);
    ok(jobs[0].rc == 1 && writer_cpus == cpus(),
       "the writer of a rank that is bound to one core has all cores of the process");
    const int nice = getpriority(PRIO_PROCESS, 0);
    ok(writer_nice == (nice < 9 ? nice + 10 : 19),
       "the writer goes ten steps behind threads that compute, however nice the process is");
    free_stagings(jobs, 1);
    free(dir);
}

static bool done_at_once;

static void see_done(struct job *j, struct tern_ckpt_saving *s)
{
    done_at_once = tern_ckpt_save_is_ready(s) &&
                   tern_ckpt_save_advance(s, &j->saved, &j->err) == 0 && tern_ckpt_save_is_ready(s);
}

/* A limit of processes: the save must not wait for the next one to be written. */
static void test_no_thread(void)
{
    struct job jobs[RANKS_MAX] = {{0}};
    char *dir = in_work("no-thread");
    const struct job like = {.dir = dir, .step = 1, .background = true, .meanwhile = see_done};

    no_threads = true;
    run_world(1, jobs, &like);
    no_threads = false;
    ok(done_at_once, "without a thread the folder is made and the shard is written at once");
    ok(jobs[0].rc == 1, "without a thread the checkpoint is published: %s", jobs[0].err.text);
    free_stagings(jobs, 1);
    free(dir);
}

static void test_failures(void)
{
    static const char *const shards[] = {"shard-00000", "shard-00001", "shard-00002"};
    struct job jobs[RANKS_MAX] = {{0}};
    char *dir = in_work("failures");
    struct job like = {.dir = dir, .step = 1, .background = true};

    for (int bad = 0; bad < 3; bad++) {
        refused = shards[bad];
        run_world(3, jobs, &like);
        refused = NULL;
        bool all = true;
        char *says = tern_strf("rank %d: ", bad);
        for (int r = 0; r < 3; r++)
            all = all && jobs[r].rc < 0 && jobs[r].err.code == TERN_TEMPFAIL &&
                  strstr(jobs[r].err.text, says) && strstr(jobs[r].err.text, "No space left");
        ok(all, "no room for rank %d's shard: every rank learns of it: %s", bad, jobs[0].err.text);
        ok(names_in(dir) == 0, "nothing is left of a save that failed on rank %d", bad);
        free(says);
    }
    run_world(3, jobs, &like);
    ok(jobs[0].rc == 1 && jobs[2].rc == 1, "with room the next save of that step is published");
    run_world(3, jobs, &like);
    ok(jobs[0].rc < 0 && jobs[2].rc < 0 && names_in(dir) == 1, "a step that is there is refused");
    has(jobs[1].err.text, "already exists; each step is published once",
        "a step that is there is named");
    free_stagings(jobs, 3);
    free(dir);
}

/* ------------------------------------------------------------------ given up */

static void give_up(struct job *j, struct tern_ckpt_saving *s)
{
    pthread_t t;

    until_writing(j, s);
    j->rc = -2; /* no advance */
    pthread_create(&t, NULL, let_go, NULL);
    pthread_detach(t);
}

static void test_given_up(void)
{
    struct job jobs[RANKS_MAX] = {{0}};
    char *dir = in_work("given-up");
    struct job like = {.dir = dir, .step = 1, .background = true, .meanwhile = give_up};

    hold("shard-00000");
    run_world(1, jobs, &like);
    ok(jobs[0].rc == -2 && tern_fs_exists(dir) && names_in(dir) == 0,
       "nothing is left of a save that is given up while it writes");
    free_stagings(jobs, 1);
    free(dir);
}

static char *lease_dir;

static void lose_lease(struct job *j, struct tern_ckpt_saving *s)
{
    struct tern_ckpt_lease *later = NULL;

    until_writing(j, s);
    if (tern_ckpt_lease_acquire(lease_dir, 0, "a later attempt", &later, &j->err) < 0)
        abort();
    tern_ckpt_lease_free(later, false);
    hold(NULL);
}

static void test_lease(void)
{
    struct job jobs[RANKS_MAX] = {{0}};
    struct tern_err err = {0};
    struct tern_ckpt_lease *lease = NULL;
    char *dir = lease_dir = in_work("lease"), *one = in_work("lease/step-00000001");

    if (tern_ckpt_lease_acquire(dir, 0, "test", &lease, &err) < 0)
        abort();
    struct job like = {
        .dir = dir, .step = 1, .background = true, .lease = lease, .meanwhile = lose_lease};
    hold("shard-00000");
    run_world(1, jobs, &like);
    ok(jobs[0].rc < 0 && !tern_fs_exists(one),
       "an attempt that loses its lease while it writes in the background publishes nothing");
    tern_ckpt_lease_free(lease, false);
    free_stagings(jobs, 1);
    free(dir), free(one);
}

static void test_staging(void)
{
    struct world w = {.size = 1};
    struct job j = {.w = &w};
    struct tern_ckpt_array a[2];
    struct tern_err err = {0};
    char *dir = in_work("small");

    j.m = calloc(ROWS * COLS, sizeof *j.m);
    fill(&j, a);
    ok(tern_ckpt_staging_bytes(a, 2) == ROWS * COLS * sizeof(float),
       "what never changes needs no room in a staging");
    a[0].owner = false;
    ok(tern_ckpt_staging_bytes(a, 2) == 0, "an array that another rank writes needs no staging");
    free(j.m);
    struct job jobs[RANKS_MAX] = {{.staging = tern_ckpt_staging_new(1000, &err)}};
    struct job like = {.dir = dir, .step = 1, .background = true};
    run_world(2, jobs, &like);
    ok(jobs[0].rc < 0 && jobs[1].rc < 0 && names_in(dir) == 0,
       "a staging that is too small on one rank fails the save on all");
    has(jobs[1].err.text, "rank 0: a save of 2400000 bytes, with a staging of 1000",
        "a staging that is too small is named with both sizes");
    free_stagings(jobs, 2);
    ok(tern_ckpt_staging_new(1ULL << 60, &err) == NULL && err.code == TERN_TEMPFAIL,
       "no memory for a staging shows when it is made: %s", err.text);
    free(dir);
}

int main(void)
{
    if (!mkdtemp(work))
        return 1;
    test_same();
    test_background();
    test_folder();
    test_cores();
    test_no_thread();
    test_failures();
    test_given_up();
    test_lease();
    test_staging();
    tern_fs_remove_tree(work, NULL);
    return tap_done();
}
