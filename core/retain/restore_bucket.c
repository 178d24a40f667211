/* Copies in object storage, and the way back from there. */
#include "core/retain/restore_parts.h"

#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/base/vars.h"
#include "core/fetch/fetch.h"
#include "core/retain/bucket.h"
#include "core/store/store.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    STEPS_MAX = 1000000, /* of a mirror: as many as a folder of checkpoints may hold */
    FETCH_THREADS = 8,   /* files at once */
    PROBE_S = 15,        /* for a server that answers at all */
    POLL_NS = 20000000,  /* for a signal */
};

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
    *f = (struct tern_fetch_file){.name = tern_strdup(e->name),
                                  .path = tern_strdup(path),
                                  .bytes = e->bytes,
                                  .judged_later = true};
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

/* The copy's manifest; NULL with the reason.  One that makes no sense is read again. */
static struct tern_ckpt *
read_manifest(struct tern_store *s, const struct tern_retain_restored *copy, struct tern_err *err)
{
    char *name = tern_retain_bucket_seal(copy->name, /* own= */ true);
    struct tern_ckpt *c = NULL;
    struct tern_err why = {0};

    for (int i = 0, rc = 0; i < TERN_RETAIN_RESTORE_TRIES && rc == 0 && !c; i++) {
        char *text = NULL;
        size_t len;
        rc = tern_store_text(s, name, TERN_CKPT_MANIFEST_MAX, &text, &len, /* ret_next= */ NULL,
                             &why);
        if (rc == 0)
            c = tern_ckpt_open_manifest(copy->path, text, len, &why);
        free(text);
    }
    if (!c)
        *err = why;
    free(name);
    return c;
}

/* Is the copy of `step` complete, and of the run?  1, 0, -1. */
static int look_at(const struct tern_retain_restore *how, struct tern_store *s, uint64_t step,
                   struct tern_retain_restored *copy, struct tern_retain_restore_passed *passed,
                   const int *stop, struct tern_err *err)
{
    struct tern_fetch_list l = {0};
    struct tern_err why = {0};

    copy->name = tern_strf("step-%08" PRIu64, step);
    copy->path = place_of(how->mirror, copy->name);
    struct tern_ckpt *c = read_manifest(s, copy, &why);
    if (!c && (why.code == TERN_TEMPFAIL || is_stopped(stop)))
        return tern_err_set(err, why.code, "%s", why.text);
    if (c && !tern_retain_restore_take(how, c, copy))
        return 0;
    if (c && list_files(s, copy, &l, &copy->bytes, err) < 0) {
        files_free(&l);
        return -1;
    }
    if (c && copy->step != step)
        tern_err_set(&why, TERN_USAGE, "%s: its manifest is of step %" PRIu64, copy->path,
                     copy->step);
    else if (c && l.n != tern_ckpt_parts(c) + 1)
        tern_err_set(&why, TERN_USAGE, "%s: only %zu of its %zu files are there with their sizes",
                     copy->path, l.n, tern_ckpt_parts(c) + 1);
    files_free(&l);
    if (c && !why.code)
        return 1;
    tern_retain_restore_pass(passed, &why);
    return 0;
}

/* ---- looking, until a signal comes: the supervisor has its signals blocked */

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
        if (tern_retain_restore_is_ended(g->how))
            __atomic_store_n(&g->stop, 1, __ATOMIC_RELAXED);
        tern_clock_sleep_ns(POLL_NS);
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

/* A server that does not answer is known soon.  Lists of large buckets may take longer. */
static struct tern_store_how soon(const int *stop)
{
    const char *deadline = tern_var("TERN_STORE_DEADLINE");
    struct tern_store_how how = {.stop = stop, .deadline_s = PROBE_S};

    if (deadline && tern_str_real(deadline, 0.001, PROBE_S, &how.deadline_s) < 0)
        how.deadline_s = PROBE_S;
    return how;
}

static int probe(const char *mirror, const int *stop, struct tern_err *err)
{
    const struct tern_store_how how = soon(stop);

    return tern_retain_bucket_probe_by(mirror, &how, err);
}

static int find_newest(const struct tern_retain_restore *how, uint64_t before, const int *stop,
                       struct tern_retain_restored *copy, struct tern_err *err)
{
    const struct tern_store_how by = {.stop = stop};
    struct tern_retain_restore_passed passed = {0};
    struct steps steps = {0};
    struct tern_store *s =
        probe(how->mirror, stop, err) == 0 ? tern_store_open(how->mirror, &by, err) : NULL;
    int rc = s ? tern_store_list(s, "step-", add_step, &steps, err) : -1;

    if (steps.n)
        qsort(steps.v, steps.n, sizeof *steps.v, by_step);
    for (size_t i = steps.n; i-- > 0 && rc == 0;) {
        if (steps.v[i] >= before)
            continue;
        rc = look_at(how, s, steps.v[i], copy, &passed, stop, err);
        if (rc <= 0)
            tern_retain_restore_free(copy);
    }
    free(steps.v);
    tern_store_close(s);
    return rc == 0 ? tern_retain_restore_none(how, &passed, err) : rc;
}

int tern_retain_restore_bucket_find(const struct tern_retain_restore *how, uint64_t before,
                                    struct tern_retain_restored *copy, struct tern_err *err)
{
    struct guard g = {.how = how};

    guard_begin(&g);
    const int rc = find_newest(how, before, &g.stop, copy, err);
    guard_end(&g);
    if (rc < 0 && is_stopped(&g.stop))
        return tern_err_set(err, TERN_CONTINUED, "a signal came while copies were looked for in %s",
                            how->mirror);
    return rc;
}

static void note_progress(void *ctx, uint64_t done_bytes, uint64_t all_bytes)
{
    struct tern_retain_restore_shared *s = ctx;

    (void)all_bytes;
    __atomic_store_n(&s->done_bytes, done_bytes, __ATOMIC_RELAXED);
}

/* All files into `aside`, which keeps what an interrupted call has brought. */
static int fetch(const struct tern_retain_restore *how, const struct tern_retain_restored *copy,
                 const char *aside, struct tern_retain_restore_shared *shared, struct tern_err *err)
{
    const struct tern_fetch_how get = {
        .threads = FETCH_THREADS, .replace = true, .progress = note_progress, .ctx = shared};
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
                       struct tern_retain_restore_shared *shared, struct tern_err *err)
{
    for (int i = 0; i < TERN_RETAIN_RESTORE_TRIES; i++) {
        if (tern_fs_mkdirs(aside, 0777, err) < 0 || fetch(how, copy, aside, shared, err) < 0)
            return -1;
        if (tern_ckpt_verify(aside, /* full= */ true, err) == 0)
            return 0;
        if (!tern_retain_restore_is_damage(err))
            return -1;
        tern_fs_remove_tree(aside, NULL);
    }
    return 1;
}

int tern_retain_restore_bucket_bring(const struct tern_retain_restore *how,
                                     const struct tern_retain_restored *copy, const char *aside,
                                     const char *to, struct tern_retain_restore_shared *shared,
                                     struct tern_err *err)
{
    int rc = fetch_whole(how, copy, aside, shared, err);

    if (rc == 0)
        rc = tern_fs_sync_dir(aside, err);
    if (rc == 0)
        rc = tern_retain_restore_still(how, err);
    if (rc == 0 && tern_fs_rename(aside, to, /* only_new= */ true) < 0)
        rc = tern_err_sys(err, "%s: cannot be put in place", to);
    return rc != 0 ? rc : tern_fs_sync_parent(to, err);
}

static int refuse(const struct tern_retain_restore *how, const struct tern_retain_restored *copy,
                  const int *stop, struct tern_err *err)
{
    const struct tern_store_how by = soon(stop);
    struct tern_retain_bucket *b = tern_retain_bucket_open(how->mirror, copy->run_id, &by, err);
    char *text = NULL;
    size_t len = 0;
    int rc = b ? tern_retain_bucket_sealed(b, copy->name, /* own= */ true, &text, &len, err) : -1;

    if (rc == 0 && text)
        rc = tern_retain_bucket_mark_bad(b, copy->name, text, len, err);
    free(text);
    tern_retain_bucket_close(b);
    return rc;
}

int tern_retain_restore_bucket_refuse(const struct tern_retain_restore *how,
                                      const struct tern_retain_restored *copy, struct tern_err *err)
{
    struct guard g = {.how = how};

    guard_begin(&g);
    const int rc = refuse(how, copy, &g.stop, err);
    guard_end(&g);
    return rc;
}
