/* Publish a checkpoint: every rank writes, rank 0 makes it visible, and all return the same. */
#include "core/ckpt/save.h"

#include "core/base/again.h"
#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/ckpt/table.h"

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* The kernel gives a thread of nice 10 a tenth of a core on which another computes (weights 110 and
 * 1024, sched(7)). A step, which waits for its slowest thread, then takes a tenth longer, and a
 * save ends. */
enum { WRITER_NICE = 10 };

/* Exchange results.  After a failure `err` is, on every rank, that of the first rank that failed.
 */
static int exchange(struct tern_ckpt_saving *s, int rc, struct tern_err *err)
{
    struct tern_ckpt_report *mine = &s->mine;

    if (rc < 0) {
        mine->code = err->code ? (int32_t)err->code : TERN_FAILED;
        snprintf(mine->text, sizeof mine->text, "%.*s", (int)sizeof mine->text - 1, err->text);
    }
    if (s->size == 1)
        s->reports[0] = *mine;
    else if (s->peers.all_gather(s->peers.ctx, mine, s->reports, sizeof *mine, err) < 0)
        return tern_err_prefix(err, "checkpoint of step %llu", (unsigned long long)s->o.step);
    for (int r = 0; r < s->size; r++) {
        struct tern_ckpt_report *p = &s->reports[r];
        if (p->code == 0)
            continue;
        p->text[sizeof p->text - 1] = '\0';
        if (s->size == 1)
            return tern_err_set(err, (enum tern_code)p->code, "%s", p->text);
        return tern_err_set(err, (enum tern_code)p->code, "rank %d: %s", r, p->text);
    }
    return 0;
}

/* ------------------------------------------------------------------ what is to be written
 */

static int array_check(const struct tern_ckpt_array *a, struct tern_err *err)
{
    uint64_t bytes;

    if (!a->name || !*a->name || strlen(a->name) > TERN_CKPT_NAME_MAX)
        return tern_err_set(err, TERN_FAILED, "an array's name is empty or above %d bytes",
                            TERN_CKPT_NAME_MAX);
    if (a->ndim < 0 || a->ndim > TERN_CKPT_DIMS)
        return tern_err_set(err, TERN_FAILED, "array '%s' has %d dimensions", a->name, a->ndim);
    for (int d = 0; d < a->ndim; d++)
        if (a->start[d] > a->global[d] || a->shape[d] > a->global[d] - a->start[d])
            return tern_err_set(err, TERN_FAILED, "array '%s': the slice sticks out of it",
                                a->name);
    if (tern_ckpt_shape_bytes(a->global, a->ndim, a->type, &bytes) < 0)
        return tern_err_set(err, TERN_FAILED, "array '%s' has an impossible shape", a->name);
    return 0;
}

int tern_ckpt_save_plan(struct tern_ckpt_saving *s, struct tern_err *err)
{
    struct tern_ckpt_info *infos = tern_alloc(s->o.n + 1, sizeof *infos, "list of arrays", err);
    uint64_t data_bytes, elements;
    int rc = -1;

    s->own = tern_alloc(s->o.n + 1, sizeof *s->own, "list of arrays", err);
    if (!infos || !s->own)
        goto out;
    for (size_t i = 0; i < s->o.n; i++) {
        const struct tern_ckpt_array *a = &s->o.arrays[i];
        if (array_check(a, err) < 0)
            goto out;
        if (!a->owner || tern_ckpt_shape_elements(a->shape, a->ndim, &elements) < 0 ||
            elements == 0)
            continue;
        infos[s->n_own] =
            (struct tern_ckpt_info){.name = a->name, .type = a->type, .ndim = a->ndim};
        memcpy(infos[s->n_own].shape, a->shape, sizeof a->shape);
        s->own[s->n_own++] = a;
    }
    rc = tern_ckpt_safetensors_head(infos, s->n_own, &s->head, &s->head_len, &data_bytes, err);
    if (rc == 0)
        s->bytes = s->head_len + data_bytes;
out:
    free(infos);
    return rc;
}

/* Ranks that disagree about the step would publish a mixture. */
static int same_step(const struct tern_ckpt_saving *s, struct tern_err *err)
{
    for (int r = 1; r < s->size; r++)
        if (s->reports[r].step != s->o.step)
            return tern_err_set(err, TERN_FAILED, "ranks %d and %d save steps %llu and %llu", 0, r,
                                (unsigned long long)s->reports[0].step,
                                (unsigned long long)s->reports[r].step);
    return 0;
}

/* ------------------------------------------------------------------ room */

static int space_check(const struct tern_ckpt_saving *s, struct tern_err *err)
{
    struct statvfs v;
    char need[32], have[32];

    if (TERN_AGAIN(statvfs(s->o.dir, &v)) < 0)
        return tern_err_sys(err, "%s: cannot ask for free space", s->o.dir);
    uint64_t avail = (uint64_t)v.f_bavail * v.f_frsize;
    /* Some file systems do not know and say 0 blocks of 0. */
    if (v.f_blocks && avail < s->room)
        return tern_err_set(
            err, TERN_TEMPFAIL,
            "%s: the checkpoint of step %llu needs %s and %s are free. Free space%s.", s->o.dir,
            (unsigned long long)s->o.step, tern_str_bytes(need, sizeof need, s->room),
            tern_str_bytes(have, sizeof have, avail),
            s->source || s->o.local ? "" : ", or lower checkpoint.keep");
    return 0;
}

static struct tern_ckpt_file *copy_files(const struct tern_ckpt_file *files, size_t n,
                                         struct tern_err *err)
{
    struct tern_ckpt_file *list = tern_alloc(n + 1, sizeof *list, "list of files", err);

    for (size_t i = 0; list && i < n; i++)
        list[i] = (struct tern_ckpt_file){
            .name = tern_strdup(files[i].name),
            .path = files[i].path ? tern_strdup(files[i].path) : NULL,
            .text = files[i].path ? NULL : tern_strdup(files[i].text),
        };
    return list;
}

static int find_files(struct tern_ckpt_saving *s, struct tern_err *err)
{
    struct tern_ckpt_file found[TERN_CKPT_COMPANIONS];

    if (!s->o.find_files || s->rank != 0)
        return 0;
    const size_t n = s->o.find_files(s->o.ctx, found);
    struct tern_ckpt_file *list = copy_files(found, n, err);
    tern_ckpt_companions_free(found, n);
    if (!list)
        return -1;
    free((void *)s->o.files);
    s->o.files = list;
    s->o.n_files = n;
    return 0;
}

int tern_ckpt_save_prepare(struct tern_ckpt_saving *s, struct tern_err *err)
{
    struct stat st;

    if (s->o.local) {
        if (tern_ckpt_local_make(s->o.dir, err) < 0 ||
            tern_ckpt_local_prune(s->o.dir, s->o.kept, err) < 0)
            return -1;
    } else if (!tern_fs_exists(s->o.dir) && (tern_fs_mkdirs(s->o.dir, 0777, err) < 0 ||
                                             tern_fs_sync_parent(s->o.dir, err) < 0)) {
        return -1;
    }
    if (s->lease && tern_ckpt_lease_check(s->lease, err) < 0)
        return -1;
    if (TERN_AGAIN(lstat(s->final, &st)) == 0)
        return tern_err_set(err, TERN_FAILED, "%s: already exists; each step is published once",
                            s->final);
    /* What this attempt left here when an earlier save of the step failed. */
    if (tern_fs_remove_tree(s->temp, err) < 0 || space_check(s, err) < 0 || find_files(s, err) < 0)
        return -1;
    s->made = true;
    if (TERN_AGAIN(mkdir(s->temp, 0777)) < 0)
        return tern_err_sys(err, "%s: cannot make folder", s->temp);
    return 0;
}

/* ------------------------------------------------------------------ stages and their threads */

void tern_ckpt_make_way(void)
{
    cpu_set_t all, one;
    DIR *d = opendir("/proc/self/task");

    CPU_ZERO(&all);
    for (struct dirent *e; d && (e = readdir(d));)
        if (e->d_name[0] != '.' &&
            sched_getaffinity((pid_t)strtol(e->d_name, NULL, 10), sizeof one, &one) == 0)
            CPU_OR(&all, &all, &one);
    if (d)
        closedir(d);
    sched_setaffinity(0, sizeof all, &all); /* 0: this thread */
    errno = 0;
    const int now = getpriority(PRIO_PROCESS, 0);
    if (errno == 0)
        setpriority(PRIO_PROCESS, 0, now + WRITER_NICE);
}

static void *work(void *ctx)
{
    struct tern_ckpt_saving *s = ctx;

    if (s->threaded)
        tern_ckpt_make_way();
    s->err = (struct tern_err){0};
    if (s->stage == TERN_CKPT_WRITES)
        s->rc = s->from_path ? tern_ckpt_flush_write(s, &s->err) : tern_ckpt_save_write(s, &s->err);
    else if (!s->leads)
        s->rc = 0;
    else
        s->rc = s->stage == TERN_CKPT_PREPARES ? tern_ckpt_save_prepare(s, &s->err)
                                               : tern_ckpt_save_publish(s, &s->err);
    atomic_store(&s->ready, true);
    return NULL;
}

/* Begin a stage: at once in a thread, which gets no signals, or in tern_ckpt_save_advance. */
static void enter(struct tern_ckpt_saving *s, enum tern_ckpt_stage stage, bool threaded)
{
    sigset_t all, before;

    s->stage = stage;
    s->threaded = false;
    atomic_store(&s->ready, false);
    if (!threaded)
        return;
    if (stage != TERN_CKPT_WRITES && !s->leads) {
        work(s);
        return;
    }
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    s->threaded = true;
    const int rc = pthread_create(&s->thread, NULL, work, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc != 0) { /* not at the next save: until then there would be no checkpoint */
        s->threaded = false;
        tern_warn("the checkpoint of step %llu is waited for: cannot start a thread: %s",
                  (unsigned long long)s->o.step, strerror(rc));
        work(s);
    }
}

/* The stage's work is done, here where no thread does it; its result. */
static int leave(struct tern_ckpt_saving *s, struct tern_err *err)
{
    if (s->threaded)
        pthread_join(s->thread, NULL);
    else if (!atomic_load(&s->ready))
        work(s);
    s->threaded = false;
    if (s->rc < 0)
        *err = s->err;
    return s->rc;
}

bool tern_ckpt_save_is_ready(const struct tern_ckpt_saving *s)
{
    return atomic_load(&s->ready);
}

/* ------------------------------------------------------------------ the whole */

/* What the caller may free. */
static int take_options(struct tern_ckpt_saving *s, const struct tern_ckpt_save_options *o,
                        struct tern_err *err)
{
    struct tern_ckpt_array *arrays = tern_alloc(o->n + 1, sizeof *arrays, "list of arrays", err);
    struct tern_ckpt_file *files = copy_files(o->files, o->n_files, err);

    for (size_t i = 0; arrays && i < o->n; i++) {
        arrays[i] = o->arrays[i];
        arrays[i].name = o->arrays[i].name ? tern_strdup(o->arrays[i].name) : NULL;
    }
    s->o = (struct tern_ckpt_save_options){
        .dir = tern_strdup(o->dir),
        .step = o->step,
        .arrays = arrays,
        .n = arrays ? o->n : 0,
        .meta = json_deep_copy(o->meta),
        .files = files,
        .n_files = files ? o->n_files : 0,
        .find_files = o->find_files,
        .tell = o->tell,
        .ctx = o->ctx,
        .local = o->local,
        .node = o->node,
    };
    memcpy(s->o.kept, o->kept, sizeof s->o.kept);
    s->files = json_array();
    return arrays && files ? 0 : -1;
}

static int gather_tables(struct tern_ckpt_saving *s, struct tern_err *err)
{
    uint64_t longest = 0;
    char *mine, *all;

    for (int r = 0; r < s->size; r++)
        if (s->reports[r].table_bytes > longest)
            longest = s->reports[r].table_bytes;
    mine = tern_alloc(longest, 1, "table of slices", err);
    all = tern_alloc((size_t)s->size, longest, "tables of slices", err);
    int rc = exchange(s, mine && all ? 0 : -1, err);
    if (rc == 0) {
        memcpy(mine, s->table, strlen(s->table) + 1);
        if (s->size == 1)
            memcpy(all, mine, longest);
        else
            rc = s->peers.all_gather(s->peers.ctx, mine, all, longest, err);
    }
    free(mine);
    if (rc < 0 || !s->leads) {
        free(all);
        return rc;
    }
    s->tables = all;
    s->pitch = longest;
    return 0;
}

/* Rank 0 makes the folder and gives it its name; of a local save the first rank of each node. */
static void choose_leaders(struct tern_ckpt_saving *s)
{
    s->leads = true;
    s->total = s->room = 0;
    for (int r = 0; r < s->size; r++) {
        const bool here = !s->o.local || s->reports[r].node == s->o.node;
        s->total += s->reports[r].bytes;
        s->room += here ? s->reports[r].bytes : 0;
        s->leads &= r >= s->rank || !here;
    }
}

/* All ranks are to save this step in `dir`, or none does: `rc` is of what this rank did before. */
static int meet(struct tern_ckpt_saving *s, int rc, struct tern_err *err)
{
    s->mine = (struct tern_ckpt_report){.step = s->o.step,
                                        .node = s->o.node,
                                        .shards = (uint32_t)s->size,
                                        .bytes = s->bytes,
                                        .copy_ns = s->mine.copy_ns};
    s->mine.attempt = s->lease ? tern_ckpt_lease_attempt(s->lease) : 0;
    if (exchange(s, rc, err) < 0 || same_step(s, err) < 0)
        return -1;
    choose_leaders(s);
    s->final = tern_strf("%s/step-%08llu", s->o.dir, (unsigned long long)s->o.step);
    s->temp = tern_strf("%s.tmp-%u", s->final, s->reports[0].attempt);
    return 0;
}

/* A save of `peers`, with nothing in it yet. */
static struct tern_ckpt_saving *new_saving(const struct tern_ckpt_peers *peers,
                                           struct tern_ckpt_lease *lease, struct tern_err *err)
{
    struct tern_ckpt_saving *s = tern_alloc(1, sizeof *s, "a save", err);

    if (!s)
        return NULL;
    s->rank = peers ? peers->rank : 0;
    s->size = peers ? peers->size : 1;
    if (peers)
        s->peers = *peers;
    s->lease = s->rank == 0 ? lease : NULL;
    s->reports = tern_alloc((size_t)s->size, sizeof *s->reports, "reports of ranks", err);
    if (s->reports)
        return s;
    free(s);
    return NULL;
}

int tern_ckpt_save_begin(const struct tern_ckpt_save_options *o, struct tern_ckpt_staging *staging,
                         struct tern_ckpt_saving **ret_saving, struct tern_err *err)
{
    struct tern_err own = {0};

    if (!err)
        err = &own; /* its text travels to the other ranks */
    struct tern_ckpt_saving *s = new_saving(o->peers, o->lease, err);
    if (!s)
        return -1;
    int rc = take_options(s, o, err);
    if (rc == 0)
        rc = tern_ckpt_save_plan(s, err);
    if (rc == 0 && staging)
        rc = tern_ckpt_save_stage(s, staging, err);
    if (meet(s, rc, err) < 0) {
        tern_ckpt_save_free(s);
        return -1;
    }
    s->staged = staging != NULL;
    enter(s, TERN_CKPT_PREPARES, s->staged);
    *ret_saving = s;
    return 0;
}

int tern_ckpt_save_redirect(struct tern_ckpt_saving *s, const char *dir, struct tern_err *err)
{
    if (s->made)
        tern_fs_remove_tree(s->temp, NULL); /* a rest is pruned later */
    s->made = false;
    tern_ckpt_save_forget(s);
    free((char *)s->o.dir);
    s->o.dir = tern_strdup(dir);
    s->o.local = false;
    s->o.node = 0;
    json_array_clear(s->files);
    if (meet(s, 0, err) < 0)
        return -1;
    enter(s, TERN_CKPT_PREPARES, s->staged);
    return 0;
}

int tern_ckpt_flush_begin(const struct tern_ckpt_flush_options *o, bool background,
                          struct tern_ckpt_saving **ret_saving, struct tern_err *err)
{
    struct tern_ckpt_saving *s = new_saving(o->peers, o->lease, err);

    if (!s)
        return -1;
    s->o = (struct tern_ckpt_save_options){
        .dir = tern_strdup(o->dir), .step = o->step, .tell = o->tell, .ctx = o->ctx};
    if (meet(s, tern_ckpt_flush_plan(s, o, err), err) < 0) {
        tern_ckpt_save_free(s);
        return -1;
    }
    s->staged = background;
    enter(s, TERN_CKPT_PREPARES, s->staged);
    *ret_saving = s;
    return 0;
}

void tern_ckpt_save_fill(const struct tern_ckpt_saving *s, const char *digest, uint64_t bytes,
                         struct tern_ckpt_saved *ret_saved)
{
    int64_t copy = 0, write = 0;

    for (int r = 0; r < s->size; r++) {
        copy = s->reports[r].copy_ns > copy ? s->reports[r].copy_ns : copy;
        write = s->reports[r].write_ns > write ? s->reports[r].write_ns : write;
    }
    snprintf(ret_saved->path, sizeof ret_saved->path, "%s", s->final);
    snprintf(ret_saved->digest, sizeof ret_saved->digest, "%.64s", digest);
    ret_saved->bytes = bytes;
    ret_saved->shards = s->reports[0].shards;
    ret_saved->copy_seconds = (double)copy * 1e-9;
    ret_saved->write_seconds = (double)write * 1e-9;
}

/* The bytes that the ranks have brought in a flush. */
static void add_up(struct tern_ckpt_saving *s)
{
    s->total = 0;
    for (int r = 0; r < s->size; r++)
        s->total += s->reports[r].bytes;
}

/* Each node has written the manifest of a local save: they are one. */
static int same_manifest(const struct tern_ckpt_saving *s, struct tern_err *err)
{
    for (int r = 1; s->stage == TERN_CKPT_PUBLISHES && r < s->size; r++)
        if (s->reports[r].text[0] && strcmp(s->reports[r].text, s->reports[0].text) != 0)
            return tern_err_set(err, TERN_FAILED, "ranks 0 and %d wrote different manifests", r);
    return 0;
}

int tern_ckpt_save_advance(struct tern_ckpt_saving *s, struct tern_ckpt_saved *ret_saved,
                           struct tern_err *err)
{
    struct tern_err own = {0};

    if (!err)
        err = &own;
    int rc = leave(s, err);
    if (s->stage == TERN_CKPT_PUBLISHES) {
        s->mine.bytes = s->whole;
        if (rc == 0)
            snprintf(s->mine.text, sizeof s->mine.text, "%s", s->digest);
        s->made &= rc < 0;
    }
    if (exchange(s, rc, err) < 0 || same_manifest(s, err) < 0)
        return -1;
    if (s->stage == TERN_CKPT_PREPARES) {
        enter(s, TERN_CKPT_WRITES, s->staged);
        return 0;
    }
    if (s->stage == TERN_CKPT_WRITES) {
        if (s->from_path)
            add_up(s);
        else if (gather_tables(s, err) < 0)
            return -1;
        enter(s, TERN_CKPT_PUBLISHES, s->staged);
        return 0;
    }
    if (ret_saved)
        tern_ckpt_save_fill(s, s->reports[0].text, s->reports[0].bytes, ret_saved);
    return 1;
}

void tern_ckpt_save_forget(struct tern_ckpt_saving *s)
{
    free(s->table);
    free(s->tables);
    free(s->temp);
    free(s->final);
    s->table = s->tables = s->temp = s->final = NULL;
}

void tern_ckpt_save_clear(struct tern_ckpt_saving *s)
{
    for (size_t i = 0; i < s->o.n; i++)
        free((char *)s->o.arrays[i].name);
    for (size_t i = 0; i < s->o.n_files; i++) {
        free((char *)s->o.files[i].name);
        free((char *)s->o.files[i].path);
        free((char *)s->o.files[i].text);
    }
    free((void *)s->o.arrays);
    free((void *)s->o.files);
    free((char *)s->o.dir);
    json_decref(s->o.meta);
    json_decref(s->files);
    tern_ckpt_close(s->from);
    free(s->from_path);
    free(s->parts);
    free(s->reports);
    free(s->own);
    free(s->head);
    tern_ckpt_save_forget(s);
}

void tern_ckpt_save_free(struct tern_ckpt_saving *s)
{
    if (!s)
        return;
    atomic_store(&s->halt, true);
    if (s->threaded)
        leave(s, &s->err);
    if (s->made)
        tern_fs_remove_tree(s->temp, NULL); /* a rest is pruned later */
    tern_ckpt_save_clear(s);
    free(s);
}

int tern_ckpt_save(const struct tern_ckpt_save_options *o, struct tern_ckpt_saved *ret_saved,
                   struct tern_err *err)
{
    struct tern_ckpt_saving *s;
    int rc;

    if (tern_ckpt_save_begin(o, /* staging= */ NULL, &s, err) < 0)
        return -1;
    do
        rc = tern_ckpt_save_advance(s, ret_saved, err);
    while (rc == 0);
    tern_ckpt_save_free(s);
    return rc < 0 ? -1 : 0;
}
