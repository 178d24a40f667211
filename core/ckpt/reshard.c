/* A checkpoint dealt to another number of files. */
#include "core/ckpt/reshard.h"

#include "core/base/assert.h"
#include "core/base/fs.h"
#include "core/base/progress.h"
#include "core/base/str.h"
#include "core/ckpt/folder.h"
#include "core/ckpt/save.h"
#include "core/ckpt/table.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Threads if no one says how many: with four, digests are no slower than most storage. */
enum { THREADS = 4 };

struct deal {
    const struct tern_ckpt_reshard *r;
    const char *path;
    struct tern_ckpt *c;            /* of the thread that deals; the others have their own */
    struct tern_ckpt_saving *saves; /* [r->shards], as if each were a rank's */
    atomic_uint next;               /* shard that no thread has yet */
    atomic_bool halt;               /* a thread has failed */
};

/* ------------------------------------------------------------------ which file has what */

static uint64_t bytes_of(const struct tern_ckpt_info *t)
{
    uint64_t bytes = 0;

    tern_ckpt_shape_bytes(t->shape, t->ndim, t->type, &bytes);
    return bytes;
}

static uint64_t bytes_of_all(const struct tern_ckpt *c)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < c->n_entries; i++)
        sum += bytes_of(&c->entries[i].info);
    return sum;
}

/* Where shard `i` of `n` begins, of `total` bytes: no product of them fits into 64 bits. */
static uint64_t cut(uint64_t total, unsigned i, unsigned n)
{
    return total / n * i + total % n * i / n;
}

/* The first row of array `t`, which begins at byte `at` of all, that lies at `where` or later. */
static uint64_t row_at(const struct tern_ckpt_info *t, uint64_t at, uint64_t where)
{
    const uint64_t rows = t->ndim ? t->shape[0] : 1, bytes = bytes_of(t);

    if (where <= at || bytes == 0)
        return 0;
    const uint64_t row = bytes / rows, n = (where - at + row - 1) / row;
    return n < rows ? n : rows;
}

/* The arrays of shard `k`: rows whose first byte lies between two cuts. */
static int deal_arrays(const struct deal *d, unsigned k, struct tern_ckpt_array *arrays)
{
    const uint64_t total = bytes_of_all(d->c);
    const uint64_t from = cut(total, k, d->r->shards), to = cut(total, k + 1, d->r->shards);
    uint64_t at = 0;
    size_t n = 0;

    for (size_t i = 0; i < d->c->n_entries; i++) {
        const struct tern_ckpt_info *t = &d->c->entries[i].info;
        const bool last = k + 1 == d->r->shards; /* arrays without elements, too */
        const uint64_t end = last ? (t->ndim ? t->shape[0] : 1) : row_at(t, at, to);
        const uint64_t first = row_at(t, at, from);
        at += bytes_of(t);
        if (first >= end && !last)
            continue;
        arrays[n] = (struct tern_ckpt_array){
            .name = tern_strdup(t->name), .type = t->type, .ndim = t->ndim, .owner = first < end};
        memcpy(arrays[n].global, t->shape, sizeof t->shape);
        memcpy(arrays[n].shape, t->shape, sizeof t->shape);
        if (t->ndim) {
            arrays[n].start[0] = first;
            arrays[n].shape[0] = end - first;
        }
        n++;
    }
    return (int)n;
}

static int deal_files(const struct deal *d, struct tern_ckpt_saving *s, struct tern_err *err)
{
    const size_t n = d->c->n_files;
    struct tern_ckpt_file *files = tern_alloc(n + 1, sizeof *files, "list of files", err);

    s->files = json_array();
    s->o.files = files;
    if (!files)
        return -1;
    for (; s->o.n_files < n; s->o.n_files++) {
        char *text;
        size_t len;
        if (tern_ckpt_file_read(d->c, d->c->files[s->o.n_files].name, &text, &len, err) != 0)
            return -1;
        free(text); /* its digest was right; it is copied later */
        files[s->o.n_files] = (struct tern_ckpt_file){
            .name = tern_strdup(d->c->files[s->o.n_files].name),
            .path = tern_fs_join(d->c->path, d->c->files[s->o.n_files].name)};
    }
    return 0;
}

/* Shard `k`, ready to be written. */
static int deal_shard(struct deal *d, unsigned k, struct tern_err *err)
{
    struct tern_ckpt_saving *s = &d->saves[k];
    struct tern_ckpt_array *arrays =
        tern_alloc(d->c->n_entries + 1, sizeof *arrays, "list of arrays", err);

    s->rank = (int)k;
    s->size = (int)d->r->shards;
    s->o.arrays = arrays;
    if (!arrays)
        return -1;
    s->o.n = (size_t)deal_arrays(d, k, arrays);
    s->o.dir = tern_strdup(d->r->dir);
    s->o.step = d->c->step;
    s->final = tern_strf("%s/step-%08llu", d->r->dir, (unsigned long long)d->c->step);
    s->temp = tern_strf("%s.tmp-0", s->final);
    if (k == 0 && deal_files(d, s, err) < 0)
        return -1;
    return tern_ckpt_save_plan(s, err);
}

/* ------------------------------------------------------------------ writing */

/* A thread's own handle, and whose arrays are asked for. */
struct source {
    struct deal *deal;
    struct tern_ckpt *c;
    const struct tern_ckpt_array *arrays;
};

static int read_rows(void *ctx, size_t i, uint64_t first, uint64_t n, void *to,
                     struct tern_err *err)
{
    const struct source *s = ctx;
    const struct tern_ckpt_array *a = &s->arrays[i];
    const struct tern_ckpt_reshard *r = s->deal->r;
    uint64_t start[TERN_CKPT_DIMS], shape[TERN_CKPT_DIMS], bytes = 0;

    if (r->stop && *r->stop)
        return tern_err_set(err, TERN_FAILED, "interrupted; nothing was left behind");
    memcpy(start, a->start, sizeof start);
    memcpy(shape, a->shape, sizeof shape);
    if (a->ndim) {
        start[0] += first;
        shape[0] = n;
    }
    if (tern_ckpt_read(s->c, a->name, a->type, start, shape, to, err) < 0)
        return -1;
    tern_ckpt_shape_bytes(shape, a->ndim, a->type, &bytes);
    tern_progress_add(bytes);
    return 0;
}

struct worker {
    struct deal *deal;
    pthread_t thread;
    int rc;
    struct tern_err err;
};

/* Takes shards until none is left, or a thread has failed. */
static void *work(void *ctx)
{
    struct worker *w = ctx;
    struct deal *d = w->deal;
    struct source source = {.deal = d, .c = tern_ckpt_open(d->path, &w->err)};
    unsigned k;

    w->rc = source.c ? 0 : -1;
    while (w->rc == 0 && !atomic_load(&d->halt) &&
           (k = atomic_fetch_add(&d->next, 1)) < d->r->shards) {
        source.arrays = d->saves[k].o.arrays;
        d->saves[k].source = read_rows;
        d->saves[k].source_ctx = &source;
        w->rc = tern_ckpt_save_write(&d->saves[k], &w->err);
    }
    if (w->rc < 0)
        atomic_store(&d->halt, true);
    tern_ckpt_close(source.c);
    return NULL;
}

static unsigned threads_for(const struct tern_ckpt_reshard *r)
{
    const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    unsigned n = r->threads ? r->threads : cpus < THREADS ? (unsigned)cpus : THREADS;

    n = n < r->shards ? n : r->shards;
    return n ? n : 1;
}

static int write_shards(struct deal *d, struct tern_err *err)
{
    const unsigned n = threads_for(d->r);
    struct worker *workers = tern_alloc(n, sizeof *workers, "threads", err);
    unsigned begun = 0;
    int rc = 0;

    if (!workers)
        return -1;
    for (unsigned i = 0; i < n; i++)
        workers[i].deal = d;
    while (begun + 1 < n &&
           pthread_create(&workers[begun].thread, NULL, work, &workers[begun]) == 0)
        begun++;
    work(&workers[begun]); /* this thread is one of them; with no other, all */
    for (unsigned i = 0; i <= begun; i++) {
        if (i < begun)
            pthread_join(workers[i].thread, NULL);
        if (workers[i].rc < 0 && rc == 0)
            rc = tern_err_set(err, workers[i].err.code, "%s", workers[i].err.text);
    }
    free(workers);
    return rc;
}

/* ------------------------------------------------------------------ the whole */

static int publish(struct deal *d, struct tern_err *err)
{
    struct tern_ckpt_saving *s = &d->saves[0];

    for (unsigned k = 0; k < d->r->shards; k++) {
        const size_t len = strlen(d->saves[k].table) + 1;
        s->pitch = len > s->pitch ? len : s->pitch;
    }
    s->tables = tern_alloc(d->r->shards, s->pitch, "tables of slices", err);
    if (!s->tables)
        return -1;
    for (unsigned k = 0; k < d->r->shards; k++)
        memcpy(s->tables + (size_t)k * s->pitch, d->saves[k].table, strlen(d->saves[k].table) + 1);
    return tern_ckpt_save_publish(s, err);
}

static int reshard(struct deal *d, struct tern_err *err)
{
    struct tern_ckpt_saving *s = &d->saves[0];

    for (unsigned k = 0; k < d->r->shards; k++) {
        if (deal_shard(d, k, err) < 0)
            return -1;
        s->total += d->saves[k].bytes;
    }
    tern_progress_expect(bytes_of_all(d->c));
    s->o.meta = json_incref(tern_ckpt_meta(d->c));
    s->reports = tern_alloc(1, sizeof *s->reports, "report", err);
    if (!s->reports)
        return -1;
    s->reports[0].attempt =
        (uint32_t)json_integer_value(json_object_get(tern_ckpt_manifest(d->c), "attempt"));
    if (tern_ckpt_save_prepare(s, err) < 0)
        return -1;
    if (write_shards(d, err) == 0 && publish(d, err) == 0)
        return 0;
    tern_fs_remove_tree(s->temp, NULL);
    return -1;
}

int tern_ckpt_reshard(const char *path, const struct tern_ckpt_reshard *r,
                      struct tern_ckpt_saved *ret_saved, struct tern_err *err)
{
    struct deal d = {.r = r, .path = path};
    int rc = -1;

    if (r->shards == 0 || r->shards > TERN_CKPT_SHARDS_MAX)
        return tern_err_set(err, TERN_USAGE, "%u files: from 1 to %d are possible", r->shards,
                            TERN_CKPT_SHARDS_MAX);
    d.c = tern_ckpt_open(path, err);
    d.saves = d.c ? tern_alloc(r->shards, sizeof *d.saves, "shards", err) : NULL;
    if (d.saves)
        rc = reshard(&d, err);
    if (rc == 0 && ret_saved) {
        *ret_saved = (struct tern_ckpt_saved){.bytes = d.saves[0].whole, .shards = r->shards};
        snprintf(ret_saved->path, sizeof ret_saved->path, "%s", d.saves[0].final);
        snprintf(ret_saved->digest, sizeof ret_saved->digest, "%s", d.saves[0].digest);
    }
    for (unsigned k = 0; d.saves && k < r->shards; k++)
        tern_ckpt_save_clear(&d.saves[k]);
    free(d.saves);
    tern_ckpt_close(d.c);
    return rc;
}
