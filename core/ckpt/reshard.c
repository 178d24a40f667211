/* A checkpoint dealt to another number of files. */
#include "core/ckpt/reshard.h"

#include "core/base/again.h"
#include "core/base/fs.h"
#include "core/base/progress.h"
#include "core/base/str.h"
#include "core/ckpt/folder.h"
#include "core/ckpt/read.h"
#include "core/ckpt/save.h"
#include "core/ckpt/table.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum {
    THREADS = 4,         /* if no one says how many: digests are then no slower than most storage */
    ROW_MAX = 1024 << 20 /* bytes of a row, which each thread has in memory */
};

struct deal {
    const struct tern_ckpt_reshard *r;
    struct tern_ckpt *c;            /* of the thread that deals; the others have their own */
    struct tern_ckpt_saving *saves; /* [r->shards], as if each were a rank's */
    const char *to;                 /* what is read back: the new checkpoint, before its rename */
    atomic_uint next;               /* of the shards, or arrays, the first that no thread has */
    atomic_bool halt;               /* a thread has failed; its error: */
    struct tern_err err;
};

static int is_halted(const struct deal *d, struct tern_err *err)
{
    if (d->r->stop && *d->r->stop)
        return tern_err_set(err, TERN_FAILED, "interrupted; nothing was left behind");
    return atomic_load(&d->halt) ? tern_err_set(err, TERN_FAILED, "another thread failed") : 0;
}

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
static size_t deal_arrays(const struct deal *d, unsigned k, struct tern_ckpt_array *arrays)
{
    const uint64_t total = bytes_of_all(d->c);
    const uint64_t from = cut(total, k, d->r->shards), to = cut(total, k + 1, d->r->shards);
    uint64_t at = 0;
    size_t n = 0;

    for (size_t i = 0; i < d->c->n_entries; i++) {
        const struct tern_ckpt_info *t = &d->c->entries[i].info;
        const uint64_t first = row_at(t, at, from), end = row_at(t, at, to);
        /* One without elements is no one's, and known to the last. */
        const bool empty = bytes_of(t) == 0 && k + 1 == d->r->shards;
        at += bytes_of(t);
        if (first >= end && !empty)
            continue;
        arrays[n] = (struct tern_ckpt_array){
            .name = tern_strdup(t->name), .type = t->type, .ndim = t->ndim, .owner = !empty};
        memcpy(arrays[n].global, t->shape, sizeof t->shape);
        memcpy(arrays[n].shape, t->shape, sizeof t->shape);
        if (t->ndim && !empty) {
            arrays[n].start[0] = first;
            arrays[n].shape[0] = end - first;
        }
        n++;
    }
    return n;
}

static int deal_files(const struct deal *d, struct tern_ckpt_saving *s, struct tern_err *err)
{
    const size_t n = d->c->n_files;
    struct tern_ckpt_file *files = tern_alloc(n + 1, sizeof *files, "list of files", err);

    s->files = json_array();
    s->o.files = files;
    if (!files)
        return -1;
    for (; s->o.n_files < n; s->o.n_files++)
        files[s->o.n_files] = (struct tern_ckpt_file){
            .name = tern_strdup(d->c->files[s->o.n_files].name),
            .path = tern_fs_join(d->c->path, d->c->files[s->o.n_files].name)};
    return 0;
}

/* Shard `k`, ready to be written. */
static int deal_shard(struct deal *d, unsigned k, struct tern_err *err)
{
    struct tern_ckpt_saving *s = &d->saves[k];
    struct tern_ckpt_array *arrays =
        tern_alloc(d->c->n_entries + 1, sizeof *arrays, "list of arrays", err);

    if (is_halted(d, err) < 0) {
        free(arrays);
        return -1;
    }
    s->rank = (int)k;
    s->size = (int)d->r->shards;
    s->o.arrays = arrays;
    if (!arrays)
        return -1;
    s->o.n = deal_arrays(d, k, arrays);
    struct tern_ckpt_array *less = realloc(arrays, (s->o.n + 1) * sizeof *arrays);
    s->o.arrays = less ? less : arrays;
    s->o.dir = tern_strdup(d->r->dir);
    s->o.step = d->c->step;
    s->final = tern_strf("%s/step-%08llu", d->r->dir, (unsigned long long)d->c->step);
    s->temp = tern_strf("%s.tmp-0", s->final);
    if (k == 0 && deal_files(d, s, err) < 0)
        return -1;
    return tern_ckpt_save_plan(s, err);
}

/* Before anything is written: what no thread could hold. */
static int check_rows(const struct deal *d, struct tern_err *err)
{
    for (size_t i = 0; i < d->c->n_entries; i++) {
        const struct tern_ckpt_info *t = &d->c->entries[i].info;
        const uint64_t row = t->ndim && t->shape[0] ? bytes_of(t) / t->shape[0] : bytes_of(t);
        if (row > ROW_MAX)
            return tern_err_set(err, TERN_USAGE,
                                "%s: array '%s' has rows of %llu bytes: reshard can deal rows of "
                                "at most 1 GiB",
                                d->c->path, t->name, (unsigned long long)row);
    }
    return 0;
}

/* ------------------------------------------------------------------ threads */

/* Its slices are compared with their digests elsewhere: read once, not twice. */
static struct tern_ckpt *open_unchecked(const char *path, struct tern_err *err)
{
    struct tern_ckpt *c = tern_ckpt_open(path, err);

    for (size_t i = 0; c && i < c->n_entries; i++)
        for (size_t k = 0; k < c->entries[i].n; k++)
            c->entries[i].slices[k].checked = true;
    return c;
}

static unsigned threads_for(const struct tern_ckpt_reshard *r)
{
    cpu_set_t set;
    const int cpus = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    unsigned n = r->threads ? r->threads : cpus < THREADS ? (unsigned)cpus : THREADS;

    n = n < r->shards ? n : r->shards;
    return n ? n : 1;
}

/* The first failure is the one that is reported. */
static void fail(struct deal *d, const struct tern_err *err)
{
    if (!atomic_exchange(&d->halt, true))
        d->err = *err;
}

/* `work` in threads, this one among them; those that cannot be had are done without. */
static int in_threads(struct deal *d, void *(*work)(void *deal), struct tern_err *err)
{
    const unsigned n = threads_for(d->r);
    pthread_t *threads = tern_alloc(n, sizeof *threads, "threads", err);
    sigset_t all, before;
    unsigned begun = 0;

    if (!threads)
        return -1;
    atomic_store(&d->next, 0);
    sigfillset(&all); /* this thread has the signals */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (begun + 1 < n && pthread_create(&threads[begun], NULL, work, d) == 0)
        begun++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    work(d);
    for (unsigned i = 0; i < begun; i++)
        pthread_join(threads[i], NULL);
    free(threads);
    return atomic_load(&d->halt) ? tern_err_set(err, d->err.code, "%s", d->err.text) : 0;
}

/* ------------------------------------------------------------------ writing */

/* A thread's own handle, and whose arrays are asked for. */
struct source {
    const struct deal *deal;
    struct tern_ckpt *c;
    const struct tern_ckpt_array *arrays;
};

static int read_rows(void *ctx, size_t i, uint64_t first, uint64_t n, void *to,
                     struct tern_err *err)
{
    const struct source *s = ctx;
    const struct tern_ckpt_array *a = &s->arrays[i];
    uint64_t start[TERN_CKPT_DIMS], shape[TERN_CKPT_DIMS], bytes = 0;

    memcpy(start, a->start, sizeof start);
    memcpy(shape, a->shape, sizeof shape);
    if (a->ndim) {
        start[0] += first;
        shape[0] = n;
    }
    if (is_halted(s->deal, err) < 0 ||
        tern_ckpt_read(s->c, a->name, a->type, start, shape, to, err) < 0)
        return -1;
    tern_ckpt_shape_bytes(shape, a->ndim, a->type, &bytes);
    tern_progress_add(bytes);
    return 0;
}

/* Takes shards until none is left, or a thread has failed. */
static void *write_shards(void *ctx)
{
    struct deal *d = ctx;
    struct tern_err err = {0};
    struct source source = {.deal = d, .c = open_unchecked(d->c->path, &err)};
    int rc = source.c ? 0 : -1;
    unsigned k;

    if (rc == 0 && strcmp(tern_ckpt_digest(source.c), tern_ckpt_digest(d->c)) != 0)
        rc = tern_err_set(&err, TERN_TEMPFAIL, "%s: another checkpoint has taken its place",
                          d->c->path);
    while (rc == 0 && is_halted(d, &err) == 0 &&
           (k = atomic_fetch_add(&d->next, 1)) < d->r->shards) {
        source.arrays = d->saves[k].o.arrays;
        d->saves[k].source = read_rows;
        d->saves[k].source_ctx = &source;
        rc = tern_ckpt_save_write(&d->saves[k], &err);
    }
    if (rc < 0 || is_halted(d, &err) < 0)
        fail(d, &err);
    tern_ckpt_close(source.c);
    return NULL;
}

/* ------------------------------------------------------------------ reading back */

/* Slice `s` of the source, as the new checkpoint `c` has it, by the digest that the source has. */
static int compare_slice(const struct deal *d, struct tern_ckpt *c, const struct tern_ckpt_info *t,
                         const struct tern_ckpt_slice *s, char **room, struct tern_err *err)
{
    uint64_t bytes = 0, start[TERN_CKPT_DIMS], shape[TERN_CKPT_DIMS];
    uint8_t sha[TERN_SHA256_BYTES];

    tern_ckpt_shape_bytes(s->shape, t->ndim, t->type, &bytes);
    const uint64_t rows = bytes == 0 ? 0 : t->ndim ? s->shape[0] : 1;
    const uint64_t row = rows ? bytes / rows : 0;
    const uint64_t most = row && row < TERN_CKPT_PIECE ? TERN_CKPT_PIECE / row : 1;
    char *larger = row * most > TERN_CKPT_PIECE ? realloc(*room, row * most) : *room;
    if (!larger)
        return tern_err_set(err, TERN_FAILED, "no memory for a row of array '%s'", t->name);
    *room = larger;
    memcpy(start, s->start, sizeof start);
    memcpy(shape, s->shape, sizeof shape);
    struct tern_sha256 *sum = tern_sha256_new();
    int rc = 0;
    for (uint64_t at = 0, n; rc == 0 && at < rows; at += n) {
        n = rows - at < most ? rows - at : most;
        if (t->ndim) {
            start[0] = s->start[0] + at;
            shape[0] = n;
        }
        rc = is_halted(d, err);
        if (rc == 0)
            rc = tern_ckpt_read(c, t->name, t->type, start, shape, *room, err);
        if (rc == 0)
            tern_sha256_add(sum, *room, n * row);
        tern_progress_add(n * row);
    }
    tern_sha256_end(sum, sha);
    if (rc == 0 && memcmp(sha, s->sha256, sizeof sha) != 0)
        rc =
            tern_err_set(err, TERN_USAGE, "%s/%s: is damaged: array '%s' does not match its digest",
                         d->c->path, d->c->shards[s->shard].name, t->name);
    return rc;
}

/* Takes arrays until none is left, or a thread has failed. */
static void *compare_arrays(void *ctx)
{
    struct deal *d = ctx;
    struct tern_err err = {0};
    struct tern_ckpt *c = open_unchecked(d->to, &err);
    char *room = c ? tern_alloc(TERN_CKPT_PIECE, 1, d->to, &err) : NULL;
    int rc = room ? 0 : -1;
    unsigned i;

    while (rc == 0 && (i = atomic_fetch_add(&d->next, 1)) < d->c->n_entries) {
        const struct tern_ckpt_table_entry *e = &d->c->entries[i];
        for (size_t k = 0; rc == 0 && k < e->n; k++)
            rc = compare_slice(d, c, &e->info, &e->slices[k], &room, &err);
    }
    if (rc < 0)
        fail(d, &err);
    free(room);
    tern_ckpt_close(c);
    return NULL;
}

/* What was written is what the source's digests are of, the small files, too. */
static int compare(void *ctx, const char *temp, struct tern_err *err)
{
    struct deal *d = ctx;
    struct tern_ckpt *c = tern_ckpt_open(temp, err);
    int rc = c ? 0 : -1;

    for (size_t i = 0; rc == 0 && i < d->c->n_files; i++)
        if (c->n_files != d->c->n_files ||
            memcmp(c->files[i].sha256, d->c->files[i].sha256, TERN_SHA256_BYTES) != 0)
            rc = tern_err_set(err, TERN_USAGE, "%s/%s: is damaged: it does not match its digest",
                              d->c->path, d->c->files[i].name);
    tern_ckpt_close(c);
    d->to = temp;
    return rc < 0 ? -1 : in_threads(d, compare_arrays, err);
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
    s->check = compare;
    s->check_ctx = d;
    return tern_ckpt_save_publish(s, err);
}

/* The folder of the new checkpoint belongs to no run, whose retention would take the work for
 * leftovers.  It belongs to this process alone, as far as its file system knows locks.  *ret_fd
 * holds the lock. */
static int own_folder(const char *dir, int *ret_fd, struct tern_err *err)
{
    unsigned attempt = 0;

    if (tern_fs_mkdirs(dir, 0777, err) < 0 || tern_ckpt_lease_last(dir, &attempt, err) < 0)
        return -1;
    if (attempt > 0)
        return tern_err_set(err, TERN_USAGE,
                            "%s: a run has its checkpoints there. Choose another folder.", dir);
    *ret_fd = TERN_AGAIN(open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (*ret_fd >= 0 && flock(*ret_fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK)
        return tern_err_set(err, TERN_TEMPFAIL,
                            "%s: another tern ckpt reshard is writing there. Try again later.",
                            dir);
    return 0;
}

static int reshard(struct deal *d, struct tern_err *err)
{
    struct tern_ckpt_saving *s = &d->saves[0];

    for (unsigned k = 0; k < d->r->shards; k++) {
        if (deal_shard(d, k, err) < 0)
            return -1;
        s->total += d->saves[k].bytes;
    }
    s->leads = true;
    s->room = s->total;
    tern_progress_expect(2 * bytes_of_all(d->c)); /* written, and read back */
    s->source = read_rows;
    s->o.meta = json_incref(tern_ckpt_meta(d->c));
    s->reports = tern_alloc(1, sizeof *s->reports, "report", err);
    if (!s->reports)
        return -1;
    s->reports[0].attempt =
        (uint32_t)json_integer_value(json_object_get(tern_ckpt_manifest(d->c), "attempt"));
    if (tern_ckpt_save_prepare(s, err) < 0)
        return -1;
    if (in_threads(d, write_shards, err) == 0 && publish(d, err) == 0)
        return 0;
    tern_fs_remove_tree(s->temp, NULL);
    return -1;
}

int tern_ckpt_reshard(const char *path, const struct tern_ckpt_reshard *r,
                      struct tern_ckpt_saved *ret_saved, struct tern_err *err)
{
    struct deal d = {.r = r};
    int rc = -1, fd = -1;

    if (r->shards == 0 || r->shards > TERN_CKPT_SHARDS_MAX)
        return tern_err_set(err, TERN_USAGE, "%u files: from 1 to %d are possible", r->shards,
                            TERN_CKPT_SHARDS_MAX);
    d.c = tern_ckpt_open(path, err);
    d.saves = d.c ? tern_alloc(r->shards, sizeof *d.saves, "shards", err) : NULL;
    if (d.saves && check_rows(&d, err) == 0 && own_folder(r->dir, &fd, err) == 0)
        rc = reshard(&d, err);
    if (fd >= 0)
        close(fd);
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
