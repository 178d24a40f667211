#include "core/retain/restore.h"

#include "core/base/again.h"
#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/base/tree.h"
#include "core/base/vars.h"
#include "core/fetch/fetch.h"
#include "core/ledger/ledger.h"
#include "core/retain/bucket.h"
#include "core/store/store.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    STEPS_MAX = 1000000, /* of a mirror: as many as a folder of checkpoints may hold */
    FETCH_THREADS = 8,   /* files at once */
    TRIES = 2,           /* one wrong bit on the way is no damage */
    PROBE_S = 15,        /* for a server that answers at all */
    REPORT_S = 60,
};

void tern_retain_restore_free(struct tern_retain_restored *copy)
{
    free(copy->path);
    free(copy->name);
    tern_ckpt_close(copy->manifest);
    *copy = (struct tern_retain_restored){0};
}

/* May this be the run?  Fills what `copy` says of the manifest, which it takes. */
static bool take_manifest(const struct tern_retain_restore *how, struct tern_ckpt *c,
                          struct tern_retain_restored *copy)
{
    const char *run = json_string_value(json_object_get(tern_ckpt_meta(c), "run"));

    copy->manifest = c;
    copy->step = tern_ckpt_step(c);
    snprintf(copy->run_id, sizeof copy->run_id, "%s", run ? run : "");
    if (!run || !tern_ledger_ulid_valid(run))
        return false;
    if (*how->run_id)
        return strcmp(how->run_id, run) == 0;
    return !how->other || !how->other(how->ctx, run);
}

static int still_ours(const struct tern_retain_restore *how, struct tern_err *err)
{
    return how->still ? how->still(how->ctx, err) : 0;
}

/* Is it the copy that is at fault, and not what reads it? */
static bool is_damage(const struct tern_err *err)
{
    return err->code == TERN_USAGE;
}

/* ------------------------------------------------------------------ in a folder */

static int find_in_folder(const struct tern_retain_restore *how, uint64_t before,
                          struct tern_retain_restored *copy, struct tern_err *err)
{
    struct tern_ckpt_entry *have = NULL;
    size_t n = 0;
    int rc = 0;

    if (!tern_fs_exists(how->mirror))
        return 0;
    if (tern_ckpt_list(how->mirror, &have, &n, err) < 0)
        return -1;
    for (size_t i = n; i-- > 0 && rc == 0;) {
        if (have[i].step >= before)
            continue;
        if (have[i].state == TERN_CKPT_BROKEN)
            tern_warn("passed over as a copy: %s", have[i].why);
        struct tern_ckpt *c =
            have[i].state == TERN_CKPT_GOOD ? tern_ckpt_open(have[i].path, NULL) : NULL;
        if (!c)
            continue;
        rc = take_manifest(how, c, copy);
        copy->path = tern_strdup(have[i].path);
        copy->name = tern_strdup(tern_fs_basename(have[i].path));
        copy->bytes = have[i].bytes;
        if (rc == 0)
            tern_retain_restore_free(copy);
    }
    tern_ckpt_list_free(have, n);
    return rc;
}

static int bring_from_folder(const struct tern_retain_restore *how,
                             const struct tern_retain_restored *copy, const char *aside,
                             const char *to, struct tern_err *err)
{
    struct tern_tree t = {0};
    int rc = tern_ckpt_verify(copy->path, /* full= */ true, err);

    if (rc < 0)
        return is_damage(err) ? 1 : -1;
    rc = tern_tree_take(copy->path, &t, err);
    if (rc == 0)
        rc = still_ours(how, err);
    if (rc == 0)
        rc = tern_tree_copy(copy->path, &t, aside, to, err);
    tern_tree_free(&t);
    return rc;
}

/* ------------------------------------------------------------------ in object storage */

struct steps {
    uint64_t *v;
    size_t n;
};

/* "step-00001500/manifest.json" */
static int add_step(void *ctx, const struct tern_store_entry *e)
{
    struct steps *s = ctx;
    char again[80];
    char *end;

    const uint64_t step = strtoull(e->name + strlen("step-"), &end, 10);
    snprintf(again, sizeof again, "step-%08" PRIu64 "/" TERN_CKPT_MANIFEST, step);
    if (strcmp(again, e->name) != 0)
        return 0;
    if (s->n == STEPS_MAX)
        return -1;
    if ((s->n & (s->n - 1)) == 0) { /* room for the next power of two */
        void *more = reallocarray(s->v, s->n ? 2 * s->n : 1, sizeof *s->v);
        if (!more)
            return -1;
        s->v = more;
    }
    s->v[s->n++] = step;
    return 0;
}

static int by_step(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

static bool is_part(const struct tern_ckpt *c, const char *name, uint64_t bytes)
{
    uint64_t wanted;

    for (size_t i = 0; i < tern_ckpt_parts(c); i++)
        if (strcmp(tern_ckpt_part(c, i, &wanted), name) == 0)
            return wanted == bytes;
    return strcmp(name, TERN_CKPT_MANIFEST) == 0;
}

/* What lies under the copy's name, for the list of a fetch. */
struct parts {
    const struct tern_ckpt *c;
    struct tern_fetch_list *l;
    size_t n_name; /* bytes of "step-N/" */
    uint64_t bytes;
};

static int add_file(void *ctx, const struct tern_store_entry *e)
{
    struct parts *p = ctx;
    struct tern_fetch_list *l = p->l;
    const char *path = e->name + p->n_name;

    if (!is_part(p->c, path, e->bytes))
        return 0;
    if ((l->n & (l->n - 1)) == 0) {
        void *more = reallocarray(l->files, l->n ? 2 * l->n : 1, sizeof *l->files);
        if (!more)
            return -1;
        l->files = more;
    }
    struct tern_fetch_file *f = &l->files[l->n++];
    *f = (struct tern_fetch_file){
        .name = tern_strdup(e->name), .path = tern_strdup(path), .bytes = e->bytes};
    tern_fetch_file_etag(f, e->etag);
    p->bytes += e->bytes;
    return 0;
}

/* The files of the copy, from the server's list; those that are missing are not in it. */
static int list_files(struct tern_store *s, const struct tern_retain_restored *copy,
                      struct tern_fetch_list *l, uint64_t *ret_bytes, struct tern_err *err)
{
    char *under = tern_strf("%s/", copy->name);
    struct parts p = {.c = copy->manifest, .l = l, .n_name = strlen(under)};
    const int rc = tern_store_list(s, under, add_file, &p, err);

    *ret_bytes = p.bytes;
    free(under);
    return rc;
}

static void files_free(struct tern_fetch_list *l)
{
    l->store = NULL; /* the caller's */
    tern_fetch_list_free(l);
}

static char *place_of(const char *mirror, const char *name)
{
    size_t n = strlen(mirror);

    while (n > 1 && mirror[n - 1] == '/')
        n--;
    return tern_strf("%.*s/%s", (int)n, mirror, name);
}

static bool is_stopped(const int *stop)
{
    return __atomic_load_n(stop, __ATOMIC_RELAXED);
}

/* Is the copy of `step` complete, and of the run?  1, 0, -1. */
static int look_at(const struct tern_retain_restore *how, struct tern_store *s, uint64_t step,
                   const int *stop, struct tern_retain_restored *copy, struct tern_err *err)
{
    struct tern_fetch_list l = {0};
    struct tern_err why = {0};
    char *text = NULL;
    size_t len;

    copy->name = tern_strf("step-%08" PRIu64, step);
    copy->path = place_of(how->mirror, copy->name);
    char *manifest = tern_strf("%s/" TERN_CKPT_MANIFEST, copy->name);
    int rc = tern_store_text(s, manifest, TERN_CKPT_MANIFEST_MAX, &text, &len,
                             /* ret_next= */ NULL, err);
    struct tern_ckpt *c = rc == 0 ? tern_ckpt_open_manifest(copy->path, text, len, &why) : NULL;
    free(manifest);
    free(text);
    if (rc < 0 && err->code != TERN_TEMPFAIL && !is_stopped(stop)) {
        tern_warn("passed over as a copy: %s", err->text); /* gone since the list, or forbidden */
        return 0;
    }
    if (rc == 0 && c)
        rc = take_manifest(how, c, copy);
    if (rc > 0)
        rc = list_files(s, copy, &l, &copy->bytes, err) < 0 ? -1 : 1;
    if (c && rc > 0 && (copy->step != step || l.n != tern_ckpt_parts(c) + 1)) {
        rc = tern_err_set(&why, TERN_FAILED,
                          "%s: only %zu of its %zu files are there with their sizes", copy->path,
                          l.n, tern_ckpt_parts(c) + 1);
        rc = 0;
    }
    if (rc == 0 && why.code)
        tern_warn("passed over as a copy: %s", why.text);
    files_free(&l);
    return rc;
}

/* ---- looking, until a signal comes: the supervisor has its signals blocked */

static const int64_t second = 1000000000;

static bool is_ended(const struct tern_retain_restore *how)
{
    sigset_t pending;

    return how->ends && sigpending(&pending) == 0 &&
           sigandset(&pending, &pending, how->ends) == 0 && !sigisemptyset(&pending);
}

struct guard {
    const struct tern_retain_restore *how;
    pthread_t thread;
    bool runs;
    int stop; /* atomic: a signal came */
    int over; /* atomic: nothing is to be stopped any more */
};

static void *wait_for_signal(void *ctx)
{
    struct guard *g = ctx;

    while (!is_stopped(&g->over) && !is_stopped(&g->stop)) {
        if (is_ended(g->how))
            __atomic_store_n(&g->stop, 1, __ATOMIC_RELAXED);
        tern_clock_sleep_ns(second / 50);
    }
    return NULL;
}

static void guard_begin(struct guard *g)
{
    g->runs = g->how->ends && pthread_create(&g->thread, NULL, wait_for_signal, g) == 0;
}

static void guard_end(struct guard *g)
{
    __atomic_store_n(&g->over, 1, __ATOMIC_RELAXED);
    if (g->runs)
        pthread_join(g->thread, NULL);
}

/* A server that does not answer is known soon: lists of large buckets may take longer. */
static int probe(const char *mirror, const int *stop, struct tern_err *err)
{
    const char *deadline = tern_var("TERN_STORE_DEADLINE");
    struct tern_store_how how = {.stop = stop, .deadline_s = PROBE_S};

    if (deadline && tern_str_real(deadline, 0.001, PROBE_S, &how.deadline_s) < 0)
        how.deadline_s = PROBE_S;
    return tern_retain_bucket_probe_by(mirror, &how, err);
}

static int find_newest(const struct tern_retain_restore *how, uint64_t before, const int *stop,
                       struct tern_retain_restored *copy, struct tern_err *err)
{
    const struct tern_store_how by = {.stop = stop};
    struct steps steps = {0};
    struct tern_store *s =
        probe(how->mirror, stop, err) == 0 ? tern_store_open(how->mirror, &by, err) : NULL;
    int rc = s ? tern_store_list(s, "step-", add_step, &steps, err) : -1;

    if (steps.n)
        qsort(steps.v, steps.n, sizeof *steps.v, by_step);
    for (size_t i = steps.n; i-- > 0 && rc == 0;) {
        if (steps.v[i] >= before)
            continue;
        rc = look_at(how, s, steps.v[i], stop, copy, err);
        if (rc <= 0)
            tern_retain_restore_free(copy);
    }
    free(steps.v);
    tern_store_close(s);
    return rc;
}

static int find_in_bucket(const struct tern_retain_restore *how, uint64_t before,
                          struct tern_retain_restored *copy, struct tern_err *err)
{
    struct guard g = {.how = how};

    guard_begin(&g);
    const int rc = find_newest(how, before, &g.stop, copy, err);
    guard_end(&g);
    if (rc < 0 && is_stopped(&g.stop))
        return tern_err_set(err, TERN_TEMPFAIL, "a signal came while copies were looked for in %s",
                            how->mirror);
    return rc;
}

/* Between the child that brings the copy and its parent. */
struct shared {
    uint64_t done_bytes; /* atomic; of one from object storage */
    int rc;
    struct tern_err err;
};

static void note_progress(void *ctx, uint64_t done_bytes, uint64_t all_bytes)
{
    struct shared *s = ctx;

    (void)all_bytes;
    __atomic_store_n(&s->done_bytes, done_bytes, __ATOMIC_RELAXED);
}

/* All files into `aside`, which keeps what an interrupted call has brought. */
static int fetch(const struct tern_retain_restore *how, const struct tern_retain_restored *copy,
                 const char *aside, struct shared *shared, struct tern_err *err)
{
    const struct tern_fetch_how get = {
        .threads = FETCH_THREADS, .progress = note_progress, .ctx = shared};
    struct tern_fetch_list l = {.shown = tern_strdup(copy->path)};
    struct tern_fetch_done done;
    uint64_t bytes;

    l.store = tern_store_open(how->mirror, NULL, err);
    int rc = l.store ? list_files(l.store, copy, &l, &bytes, err) : -1;
    if (rc == 0 && l.n != tern_ckpt_parts(copy->manifest) + 1)
        rc = tern_err_set(err, TERN_TEMPFAIL, "%s: files of it have vanished", copy->path);
    if (rc == 0)
        rc = tern_fetch_get(&l, aside, &get, &done, err);
    tern_fetch_list_free(&l);
    return rc;
}

/* 1: the copy is damaged: its bytes came twice, and were wrong each time. */
static int fetch_whole(const struct tern_retain_restore *how,
                       const struct tern_retain_restored *copy, const char *aside,
                       struct shared *shared, struct tern_err *err)
{
    for (int i = 0; i < TRIES; i++) {
        if (tern_fs_mkdirs(aside, 0777, err) < 0 || fetch(how, copy, aside, shared, err) < 0)
            return -1;
        if (tern_ckpt_verify(aside, /* full= */ true, err) == 0)
            return 0;
        if (!is_damage(err))
            return -1;
        tern_fs_remove_tree(aside, NULL);
    }
    return 1;
}

static int bring_from_bucket(const struct tern_retain_restore *how,
                             const struct tern_retain_restored *copy, const char *aside,
                             const char *to, struct shared *shared, struct tern_err *err)
{
    int rc = fetch_whole(how, copy, aside, shared, err);

    if (rc == 0)
        rc = tern_fs_sync_dir(aside, err);
    if (rc == 0)
        rc = still_ours(how, err);
    if (rc == 0 && tern_fs_rename(aside, to, /* only_new= */ true) < 0)
        rc = tern_err_sys(err, "%s: cannot be put in place", to);
    return rc != 0 ? rc : tern_fs_sync_parent(to, err);
}

/* What interrupted calls have brought of other copies. */
static void sweep(const char *dir, const char *aside)
{
    DIR *d = TERN_AGAIN_PTR(opendir(dir));

    for (struct dirent *e; d && (e = readdir(d));) {
        if (!tern_str_starts(e->d_name, ".step-") || !tern_str_ends(e->d_name, ".back") ||
            strcmp(e->d_name, tern_fs_basename(aside)) == 0)
            continue;
        char *path = tern_fs_join(dir, e->d_name);
        tern_fs_remove_tree(path, NULL);
        free(path);
    }
    if (d)
        closedir(d);
}

/* ------------------------------------------------------------------ both */

int tern_retain_restore_find(const struct tern_retain_restore *how, uint64_t before,
                             struct tern_retain_restored *ret_copy, struct tern_err *err)
{
    struct tern_retain_restored copy = {0};
    const int rc = tern_store_is(how->mirror) ? find_in_bucket(how, before, &copy, err)
                                              : find_in_folder(how, before, &copy, err);

    if (rc > 0)
        *ret_copy = copy;
    else
        tern_retain_restore_free(&copy);
    return rc;
}

/* What has the name of the checkpoint, and is none. */
static int set_aside(const struct tern_retain_restore *how, const char *to, struct tern_err *err)
{
    struct tern_err why = {0};

    if (tern_ckpt_verify(to, /* full= */ false, &why) == 0)
        return tern_err_set(err, TERN_TEMPFAIL,
                            "%s: verifies now. The next attempt goes on from it.", to);
    if (why.code == TERN_TEMPFAIL) {
        *err = why; /* storage that fails now is no damage */
        return -1;
    }
    return still_ours(how, err) < 0 ? -1 : tern_ckpt_mark_bad(to, NULL, err);
}

static int bring(const struct tern_retain_restore *how, const struct tern_retain_restored *copy,
                 const char *dir, struct shared *shared, struct tern_err *err)
{
    char *to = tern_fs_join(dir, copy->name);
    char *aside = tern_strf("%s/.%s.%s.back", dir, copy->name, copy->run_id);
    int rc = tern_fs_mkdirs(dir, 0777, err);

    sweep(dir, aside);
    if (rc == 0 && tern_fs_exists(to))
        rc = set_aside(how, to, err);
    if (rc == 0)
        rc = tern_store_is(how->mirror) ? bring_from_bucket(how, copy, aside, to, shared, err)
                                        : bring_from_folder(how, copy, aside, to, err);
    free(to);
    free(aside);
    return rc;
}

static void report(const struct tern_retain_restored *copy, const struct shared *s,
                   int64_t began_ns)
{
    const uint64_t done = __atomic_load_n(&s->done_bytes, __ATOMIC_RELAXED);
    const double took = (double)(tern_clock_boot_ns() - began_ns) / (double)second;
    const double rate = (double)done / took;

    if (done == 0)
        tern_info("%s: for %.0f s now", copy->path, took);
    else
        tern_info("%s: %.0f %% at %.1f MiB/s, %.0f s left", copy->path,
                  100.0 * (double)done / (double)copy->bytes, rate / 0x1p20,
                  (double)(copy->bytes > done ? copy->bytes - done : 0) / rate);
}

/* The child's end; false: a signal came first, and the child was killed. */
static bool wait_for(pid_t pid, const struct tern_retain_restore *how,
                     const struct tern_retain_restored *copy, const struct shared *s)
{
    const int64_t began = tern_clock_boot_ns();
    int64_t report_at = began + REPORT_S * second;

    while (TERN_AGAIN(waitpid(pid, NULL, WNOHANG)) == 0) {
        if (is_ended(how)) {
            kill(pid, SIGKILL);
            TERN_AGAIN(waitpid(pid, NULL, 0));
            return false;
        }
        if (tern_clock_boot_ns() >= report_at) {
            report_at += REPORT_S * second;
            report(copy, s, began);
        }
        tern_clock_sleep_ns(second / 50);
    }
    return true;
}

int tern_retain_restore_bring(const struct tern_retain_restore *how,
                              const struct tern_retain_restored *copy, const char *dir,
                              struct tern_err *err)
{
    const pid_t parent = getpid();
    struct shared *s =
        mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (s == MAP_FAILED)
        return tern_err_sys(err, "%s: cannot be brought back", copy->path);
    s->rc = tern_err_set(&s->err, TERN_TEMPFAIL, "%s: the process that brought it back was killed",
                         copy->path);
    const pid_t pid = tern_again_fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == parent)
            s->rc = bring(how, copy, dir, s, &s->err);
        _exit(0);
    }
    int rc = pid < 0 ? tern_err_sys(err, "%s: cannot be brought back", copy->path) : 0;
    if (rc == 0 && !wait_for(pid, how, copy, s)) {
        rc = tern_err_set(
            err, TERN_CONTINUED,
            "a signal came while %s was brought back. The next attempt goes on there.", copy->path);
    } else if (rc == 0) {
        rc = s->rc;
        if (rc != 0)
            *err = s->err;
    }
    munmap(s, sizeof *s);
    return rc;
}

static int refuse_in_bucket(const struct tern_retain_restore *how,
                            const struct tern_retain_restored *copy, struct tern_err *err)
{
    struct tern_retain_bucket *b = tern_retain_bucket_open(how->mirror, copy->run_id, err);
    char *text = NULL;
    size_t len = 0;
    int rc = b ? tern_retain_bucket_sealed(b, copy->name, /* own= */ true, &text, &len, err) : -1;

    if (rc == 0 && text)
        rc = tern_retain_bucket_mark_bad(b, copy->name, text, len, err);
    free(text);
    tern_retain_bucket_close(b);
    return rc;
}

int tern_retain_restore_refuse(const struct tern_retain_restore *how,
                               const struct tern_retain_restored *copy, struct tern_err *err)
{
    return tern_store_is(how->mirror) ? refuse_in_bucket(how, copy, err)
                                      : tern_ckpt_mark_bad(copy->path, NULL, err);
}
