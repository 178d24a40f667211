/* core/ckpt: what is saved by any number of ranks is read back by any slice, and nothing damaged,
 * hostile or of another kind is taken for a checkpoint. */
#include "core/base/fs.h"
#include "core/base/hash.h"
#include "core/base/str.h"
#include "core/ckpt/ckpt.h"
#include "core/ckpt/manifest.h"
#include "tests/unit/tap.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char work[] = "/tmp/tern-ckpt-XXXXXX";

static char *in_work(const char *name)
{
    return tern_fs_join(work, name);
}

/* ------------------------------------------------------------------ ranks as threads */

enum { RANKS_MAX = 8 };

struct world {
    int size;
    pthread_barrier_t barrier;
    const void *in[RANKS_MAX];
};

struct rank {
    struct world *w;
    int rank;
};

static int world_barrier(void *ctx, struct tern_err *err)
{
    struct rank *r = ctx;

    (void)err;
    pthread_barrier_wait(&r->w->barrier);
    return 0;
}

static int world_gather(void *ctx, const void *in, void *out, size_t bytes, struct tern_err *err)
{
    struct rank *r = ctx;

    (void)err;
    r->w->in[r->rank] = in;
    pthread_barrier_wait(&r->w->barrier);
    for (int i = 0; i < r->w->size; i++)
        memcpy((char *)out + (size_t)i * bytes, r->w->in[i], bytes);
    pthread_barrier_wait(&r->w->barrier);
    return 0;
}

/* ------------------------------------------------------------------ a model of three arrays */

enum { ROWS = 13, COLS = 10, BIAS = 5 };

static float matrix_at(uint64_t i, uint64_t j)
{
    return (float)(i * 100 + j) / 8;
}

/* First row of rank r of n: uneven on purpose. */
static uint64_t cut(int r, int n, uint64_t rows)
{
    return rows * (uint64_t)r / (uint64_t)n;
}

enum how { BY_ROWS, BY_COLS };

struct job {
    struct rank r;
    const char *dir;
    uint64_t step;
    enum how how;
    int fails; /* rank that gives a slice that sticks out; -1 none */
    bool hole; /* no rank owns the bias */
    int rc;
    struct tern_ckpt_saved out;
    struct tern_err err;
};

static void *save_rank(void *arg)
{
    struct job *j = arg;
    int r = j->r.rank, n = j->r.w->size;
    struct tern_ckpt_peers peers = {r, n, &j->r, world_barrier, world_gather};
    float m[ROWS * COLS], bias[BIAS] = {0.5f, 1, NAN, INFINITY, -0.0f};
    double scalar = 3.25;
    struct tern_ckpt_array a[3] = {
        {"model/w", TERN_CKPT_F32, 2, {ROWS, COLS}, {0, 0}, {ROWS, COLS}, m, .owner = true},
        {"model/b", TERN_CKPT_F32, 1, {BIAS}, {0}, {BIAS}, bias, .owner = r == n - 1 && !j->hole},
        {"rng", TERN_CKPT_F64, 0, {0}, {0}, {0}, &scalar, .owner = r == 0},
    };
    int d = j->how == BY_ROWS ? 0 : 1;
    a[0].start[d] = cut(r, n, a[0].global[d]);
    a[0].shape[d] = cut(r + 1, n, a[0].global[d]) - a[0].start[d];
    for (uint64_t i = 0, k = 0; i < a[0].shape[0]; i++)
        for (uint64_t c = 0; c < a[0].shape[1]; c++)
            m[k++] = matrix_at(a[0].start[0] + i, a[0].start[1] + c);
    if (j->fails == r)
        a[0].start[1] = COLS;
    json_t *meta = json_pack("{s:i,s:s}", "sample", 77, "kernel", "avx512");
    const struct tern_ckpt_save_options o = {
        .dir = j->dir, .step = j->step, .arrays = a, .n = 3, .meta = meta, .peers = &peers};
    j->rc = tern_ckpt_save(&o, &j->out, &j->err);
    json_decref(meta);
    return NULL;
}

static void save_world(int size, struct job *jobs, const struct job *like)
{
    struct world w = {.size = size};
    pthread_t t[RANKS_MAX];

    pthread_barrier_init(&w.barrier, NULL, (unsigned)size);
    for (int r = 0; r < size; r++) {
        jobs[r] = *like;
        jobs[r].r = (struct rank){&w, r};
        pthread_create(&t[r], NULL, save_rank, &jobs[r]);
    }
    for (int r = 0; r < size; r++)
        pthread_join(t[r], NULL);
    pthread_barrier_destroy(&w.barrier);
}

/* Every rectangle of the matrix, as F32. */
static bool all_slices_right(struct tern_ckpt *c)
{
    float got[ROWS * COLS];
    struct tern_err err;

    for (uint64_t i = 0; i < ROWS; i += 2)
        for (uint64_t n = 1; i + n <= ROWS; n += 3)
            for (uint64_t j = 0; j < COLS; j++)
                for (uint64_t k = 1; j + k <= COLS; k++) {
                    uint64_t start[] = {i, j}, shape[] = {n, k};
                    if (tern_ckpt_read(c, "model/w", TERN_CKPT_F32, start, shape, got, &err) < 0)
                        return false;
                    for (uint64_t x = 0; x < n * k; x++)
                        if (got[x] != matrix_at(i + x / k, j + x % k))
                            return false;
                }
    return true;
}

static void test_layouts(void)
{
    static const int sizes[] = {1, 2, 3, 4, 5, 8};
    struct job jobs[RANKS_MAX];
    char *dir = in_work("layouts");

    for (size_t i = 0; i < 2 * sizeof sizes / sizeof *sizes; i++) {
        int n = sizes[i / 2];
        struct job like = {.dir = dir, .step = i, .how = i % 2 ? BY_COLS : BY_ROWS, .fails = -1};
        save_world(n, jobs, &like);
        bool same = true;
        for (int r = 0; r < n; r++)
            same = same && jobs[r].rc == 0 && strcmp(jobs[r].out.digest, jobs[0].out.digest) == 0;
        ok(same && jobs[0].out.shards == (unsigned)n, "%d ranks save by %s, and all know it", n,
           i % 2 ? "columns" : "rows");
        struct tern_err err = {0};
        struct tern_ckpt *c = tern_ckpt_open(jobs[0].out.path, &err);
        if (!ok(c != NULL, "a checkpoint opens"))
            printf("# %s\n", err.text);
        float b[BIAS];
        double s = 0;
        ok(c && all_slices_right(c), "every rectangle of a saved matrix reads back");
        ok(tern_ckpt_read(c, "model/b", TERN_CKPT_F32, NULL, NULL, b, &err) == 0 && isnan(b[2]) &&
               isinf(b[3]) && signbit(b[4]) && b[1] == 1,
           "NaN, infinity and -0 read back from a checkpoint");
        ok(tern_ckpt_read(c, "rng", TERN_CKPT_F64, NULL, NULL, &s, &err) == 0 && s == 3.25,
           "a scalar reads back from a checkpoint");
        ok(json_integer_value(json_object_get(tern_ckpt_meta(c), "sample")) == 77 &&
               tern_ckpt_step(c) == i,
           "meta and step read back from a checkpoint");
        tern_ckpt_close(c);
        ok(tern_ckpt_verify(jobs[0].out.path, true, &err) == 0, "a checkpoint verifies in full");
    }
    free(dir);
}

static void test_failures(void)
{
    struct job jobs[RANKS_MAX];
    char *dir = in_work("failures");
    struct job like = {.dir = dir, .step = 5, .fails = 2};
    struct tern_ckpt_entry *e;
    struct tern_err err = {0};
    size_t n;

    save_world(4, jobs, &like);
    bool all = true;
    for (int r = 0; r < 4; r++)
        all = all && jobs[r].rc < 0 && strstr(jobs[r].err.text, "rank 2: array 'model/w'");
    ok(all, "when one rank fails to save, every rank names it and its reason");
    like.fails = -1;
    like.hole = true;
    save_world(3, jobs, &like);
    ok(jobs[0].rc < 0 && jobs[2].rc < 0, "an array with a hole is not published");
    like.hole = false;
    int listed = tern_ckpt_list(dir, &e, &n, &err);
    ok(listed == 0 && n == 0 && access(dir, F_OK) == 0,
       "a failed save leaves nothing in the folder");
    if (listed == 0)
        tern_ckpt_list_free(e, n);
    save_world(2, jobs, &like);
    ok(jobs[0].rc == 0 && jobs[1].rc == 0, "a step whose save failed can be saved");
    struct tern_ckpt_saved first = jobs[0].out;
    save_world(3, jobs, &like);
    ok(jobs[0].rc < 0 && jobs[2].rc < 0, "a step is not published twice");
    has(jobs[1].err.text, "already exists; each step is published once",
        "a step that is published twice is refused by name");
    struct tern_ckpt *c = tern_ckpt_open(first.path, &err);
    ok(c && strcmp(tern_ckpt_digest(c), first.digest) == 0,
       "a refused second save leaves the first checkpoint");
    tern_ckpt_close(c);
    free(dir);
}

/* ------------------------------------------------------------------ types */

static void test_read_types(void)
{
    struct tern_err err = {0};
    char *p = in_work("layouts/step-00000006");
    struct tern_ckpt *c = tern_ckpt_open(p, &err);
    uint16_t b[COLS];
    double d[COLS];
    uint64_t start[] = {2, 0}, shape[] = {1, COLS}, far[] = {2, 1};

    ok(tern_ckpt_read(c, "model/w", TERN_CKPT_BF16, start, shape, b, &err) == 0 && b[0] == 0x41c8,
       "an F32 array is read as BF16");
    ok(tern_ckpt_read(c, "model/w", TERN_CKPT_F64, start, shape, d, &err) == 0 && d[3] == 25.375,
       "an F32 array is read as F64");
    ok(tern_ckpt_read(c, "model/w", TERN_CKPT_I32, start, shape, d, &err) < 0,
       "an F32 array is not read as I32");
    ok(tern_ckpt_read(c, "model/w", TERN_CKPT_F32, far, shape, d, &err) < 0,
       "a slice beyond an array's end is refused");
    has(err.text, "dimension 1", "a slice beyond an array's end is refused with its dimension");
    ok(tern_ckpt_read(c, "model/nope", TERN_CKPT_F32, NULL, NULL, d, &err) < 0,
       "an array that is not there is refused");
    tern_ckpt_close(c);
    free(p);
}

/* ------------------------------------------------------------------ hostile and damaged */

static void spill(const char *path, const void *data, size_t len)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);

    if (fd < 0 || tern_fs_write(fd, data, len, path, NULL) < 0)
        abort();
    close(fd);
}

/* A fresh one-rank checkpoint at step 1 of folder `name`. */
static char *fresh(const char *name)
{
    struct job jobs[1];
    char *dir = in_work(name), *path = tern_strf("%s/step-00000001", dir);
    struct job like = {.dir = dir, .step = 1, .fails = -1};

    tern_fs_remove_tree(dir, NULL);
    save_world(1, jobs, &like);
    free(dir);
    return path;
}

/* Change the manifest by `edit` and seal it anew, as a liar with SHA-256 would. */
static void forge(const char *path, void (*edit)(json_t *manifest))
{
    struct tern_err err;
    char *file = tern_strf("%s/manifest.json", path), *text, digest[TERN_SHA256_HEX];
    size_t len;
    json_t *m = json_load_file(file, 0, NULL);

    json_object_del(m, "digest");
    edit(m);
    if (tern_ckpt_manifest_seal(m, &text, &len, digest, &err) < 0)
        abort();
    spill(file, text, len);
    json_decref(m);
    free(text);
    free(file);
}

static json_t *array_w(json_t *m)
{
    return json_object_get(json_object_get(m, "arrays"), "model/w");
}

static json_t *slice_w(json_t *m)
{
    return json_array_get(json_object_get(array_w(m), "slices"), 0);
}

static void huge_shape(json_t *m)
{
    json_object_set_new(array_w(m), "shape", json_pack("[I,I]", 1ll << 40, 1ll << 40));
    json_object_set_new(slice_w(m), "shape", json_pack("[I,I]", 1ll << 40, 1ll << 40));
}
static void wrapping_shape(json_t *m)
{
    json_object_set_new(array_w(m), "shape", json_pack("[I,I]", 1ll << 33, 1ll << 33));
}
static void far_offset(json_t *m)
{
    json_object_set_new(slice_w(m), "offset", json_integer(INT64_MAX));
}
static void negative_offset(json_t *m)
{
    json_object_set_new(slice_w(m), "offset", json_integer(-8));
}
static void offset_in_header(json_t *m)
{
    json_object_set_new(slice_w(m), "offset", json_integer(0));
}
static void far_start(json_t *m)
{
    json_object_set_new(slice_w(m), "start", json_pack("[I,I]", INT64_MAX, 0ll));
}
static void late_offset(json_t *m)
{
    json_int_t at = json_integer_value(json_object_get(slice_w(m), "offset"));

    json_object_set_new(slice_w(m), "offset", json_integer(at + (1 << 20)));
}
static void long_digest(json_t *m)
{
    char *text = tern_strf("%s00", json_string_value(json_object_get(slice_w(m), "sha256")));

    json_object_set_new(slice_w(m), "sha256", json_string(text));
    free(text);
}
static void folder_above(json_t *m)
{
    json_t *digest = json_object_get(slice_w(m), "sha256");

    json_object_set_new(m, "files",
                        json_pack("[{s:s,s:i,s:O}]", "name", "..", "bytes", 0, "sha256", digest));
}
static void no_such_shard(json_t *m)
{
    json_object_set_new(slice_w(m), "shard", json_integer(7));
}
static void twice(json_t *m)
{
    json_array_append(json_object_get(array_w(m), "slices"), slice_w(m));
}
/* 7 + 6 of 13 rows, but one of them twice and one not at all. */
static void overlapping(json_t *m)
{
    json_t *two = json_deep_copy(slice_w(m));

    json_object_set_new(slice_w(m), "shape", json_pack("[i,i]", 7, 10));
    json_object_set_new(two, "start", json_pack("[i,i]", 6, 0));
    json_object_set_new(two, "shape", json_pack("[i,i]", 6, 10));
    json_array_append_new(json_object_get(array_w(m), "slices"), two);
}
static void zero_slice(json_t *m)
{
    json_object_set_new(slice_w(m), "shape", json_pack("[i,i]", 0, 10));
}
static void escape(json_t *m)
{
    json_object_set_new(json_array_get(json_object_get(m, "shards"), 0), "name",
                        json_string("../../../etc/passwd"));
}
static void five_dims(json_t *m)
{
    json_object_set_new(array_w(m), "shape", json_pack("[i,i,i,i,i]", 1, 1, 1, 13, 10));
}
static void future(json_t *m)
{
    json_object_set_new(m, "version", json_integer(9));
}
static void no_shards(json_t *m)
{
    json_object_set_new(m, "shards", json_array());
}
static void arrays_list(json_t *m)
{
    json_object_set_new(m, "arrays", json_array());
}

static void test_forged(void)
{
    static const struct {
        const char *what;
        void (*edit)(json_t *);
        const char *says;
    } lies[] = {
        {"an absurd shape", huge_shape, "reaches outside"},
        {"a shape whose product wraps", wrapping_shape, "impossible shape"},
        {"an offset past the end", far_offset, "reaches outside"},
        {"a slice that begins in its shard and ends behind it", late_offset, "reaches outside"},
        {"a digest of 66 digits", long_digest, "a slice of an array"},
        {"a file called ..", folder_above, "list of files"},
        {"a negative offset", negative_offset, "a slice of an array"},
        {"an offset inside the header", offset_in_header, "reaches outside"},
        {"a start past the end", far_start, "sticks out"},
        {"a shard that is not there", no_such_shard, "names shard 7"},
        {"a slice given twice", twice, "more than once"},
        {"slices that overlap", overlapping, "overlap"},
        {"an empty slice", zero_slice, "sticks out"},
        {"a shard outside the folder", escape, "list of shards"},
        {"five dimensions", five_dims, "its arrays"},
        {"a newer version", future, "newer tern"},
        {"no shards", no_shards, "list of shards"},
        {"arrays that are a list", arrays_list, "its arrays"},
    };

    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        struct tern_err err = {0};
        char *path = fresh("forged");
        forge(path, lies[i].edit);
        ok(tern_ckpt_open(path, &err) == NULL && err.code == TERN_USAGE,
           "a forged manifest is refused: %s", lies[i].what);
        has(err.text, lies[i].says, "a damaged or forged checkpoint is refused with its reason");
        free(path);
    }
}

/* Flip one bit at every byte of every file: a full verification finds each one. */
static void test_flips(void)
{
    char *path = fresh("flips"), *text;
    const char *files[] = {"manifest.json", "shard-00000-of-00001.safetensors"};
    size_t len, missed = 0, total = 0, unread = 0;
    struct tern_err err = {0};
    float got[ROWS * COLS];

    for (int f = 0; f < 2; f++) {
        char *file = tern_fs_join(path, files[f]);
        if (tern_fs_read(file, 1 << 20, &text, &len, &err) < 0)
            abort();
        for (size_t i = 0; i < len; i++, total++) {
            text[i] ^= (char)(1 << i % 8);
            spill(file, text, len);
            missed += tern_ckpt_verify(path, true, &err) == 0;
            struct tern_ckpt *c = tern_ckpt_open(path, &err);
            if (c && tern_ckpt_read(c, "model/w", TERN_CKPT_F32, NULL, NULL, got, &err) == 0)
                for (uint64_t x = 0; x < ROWS * COLS; x++)
                    unread += got[x] != matrix_at(x / COLS, x % COLS);
            tern_ckpt_close(c);
            text[i] ^= (char)(1 << i % 8);
        }
        for (size_t i = 0; i < len; i++, total++) {
            spill(file, text, i);
            missed += tern_ckpt_verify(path, false, &err) == 0;
        }
        spill(file, text, len);
        free(text);
        free(file);
    }
    ok(missed == 0, "of %zu flips and truncations of a checkpoint's files %zu were missed", total,
       missed);
    ok(unread == 0, "no flipped byte of a checkpoint reaches a reader");
    ok(tern_ckpt_verify(path, true, &err) == 0, "a checkpoint whose bytes are put back verifies");
    free(path);
}

/* A small file that was published with a checkpoint, and changed there. */
static void test_companion(void)
{
    char *dir = in_work("companion"), *from = in_work("config.json"), *data = NULL;
    const struct tern_ckpt_file file = {.name = "config.json", .path = from};
    struct tern_ckpt_save_options o = {
        .dir = dir, .meta = json_object(), .files = &file, .n_files = 1};
    struct tern_ckpt_saved saved;
    struct tern_err err = {0};

    spill(from, "{}\n", 3);
    ok(tern_ckpt_save(&o, &saved, &err) == 0, "a checkpoint with a companion file is saved");
    struct tern_ckpt *c = tern_ckpt_open(saved.path, &err);
    ok(c && tern_ckpt_file_read(c, "config.json", &data, NULL, &err) == 0 &&
           strcmp(data, "{}\n") == 0,
       "a companion file reads back");
    char *there = tern_fs_join(saved.path, "config.json");
    spill(there, "[]\n", 3);
    ok(c && tern_ckpt_file_read(c, "config.json", NULL, NULL, &err) < 0,
       "a changed companion file is refused");
    tern_ckpt_close(c);
    json_decref(o.meta);
    free(dir), free(from), free(data), free(there);
}

static void test_links(void)
{
    char *path = fresh("links"), *shard = tern_fs_join(path, "shard-00000-of-00001.safetensors");
    char *moved = in_work("links/elsewhere"), *to = in_work("links/step-00000009"), *latest = NULL;
    struct tern_err err = {0};
    uint64_t step = 0;

    rename(shard, moved);
    ok(tern_ckpt_open(path, &err) == NULL, "a checkpoint with a missing shard does not open");
    has(err.text, "is missing", "a damaged or forged checkpoint is refused with its reason");
    ok(symlink(moved, shard) == 0 && tern_ckpt_open(path, &err) == NULL,
       "a checkpoint with a linked shard does not open");
    has(err.text, "symbolic link", "a damaged or forged checkpoint is refused with its reason");
    unlink(shard);
    rename(moved, shard);
    ok(symlink(path, to) == 0 && tern_ckpt_latest(work, &latest, &step, &err) == 0 && !latest,
       "a folder above checkpoints is no checkpoint");
    char *dir = in_work("links");
    ok(tern_ckpt_latest(dir, &latest, &step, &err) == 0 && latest && step == 1,
       "a link with a checkpoint's name is passed over");
    free(latest);
    free(dir), free(to), free(moved), free(shard), free(path);
}

/* ------------------------------------------------------------------ find and retire */

static void test_retire(void)
{
    char *dir = in_work("retire"), *latest, *marked, *typed = tern_fs_join(dir, "latest");
    struct job jobs[1];
    struct tern_err err = {0};
    struct tern_ckpt_entry *e;
    uint64_t step = 0;
    unsigned removed = 0;
    size_t n;

    ok(tern_ckpt_latest(dir, &latest, &step, &err) == 0 && !latest,
       "a folder that does not exist holds no checkpoint");
    for (uint64_t s = 10; s <= 70; s += 10) {
        struct job like = {.dir = dir, .step = s, .fails = -1};
        save_world(1, jobs, &like);
    }
    char *broken = tern_fs_join(dir, "step-00000070/manifest.json");
    spill(broken, "{", 1);
    ok(tern_ckpt_latest(dir, &latest, &step, &err) == 0 && step == 60,
       "a broken checkpoint is passed over for an older one");
    ok(tern_ckpt_mark_bad(latest, &marked, &err) == 0 && strstr(marked, "step-00000060.bad-1"),
       "a checkpoint is marked bad");
    free(latest);
    free(marked);
    ok(tern_ckpt_resolve(typed, &latest, &err) == 0 && strstr(latest, "step-00000050"),
       "DIR/latest is the newest good checkpoint");
    free(latest);
    struct tern_ckpt_prune_how how = {.keep = 1, .keep_every = 20, .best = -1, .dry_run = true};
    ok(tern_ckpt_prune(dir, &how, &removed, &err) == 0 && removed == 2 &&
           tern_ckpt_list(dir, &e, &n, &err) == 0 && n == 7,
       "a dry run counts what would go, and removes nothing (%zu)", n);
    tern_ckpt_list_free(e, n);
    how.dry_run = false;
    ok(tern_ckpt_prune(dir, &how, &removed, &err) == 0 && removed == 2,
       "prune keeps two and the milestones (%u gone)", removed);
    ok(tern_ckpt_list(dir, &e, &n, &err) == 0 && n == 5, "after prune five checkpoints are listed");
    static const struct {
        uint64_t step;
        enum tern_ckpt_state state;
    } want[] = {{20, TERN_CKPT_GOOD},
                {40, TERN_CKPT_GOOD},
                {50, TERN_CKPT_GOOD},
                {60, TERN_CKPT_BAD},
                {70, TERN_CKPT_BROKEN}};
    bool right = n == 5;
    for (size_t i = 0; right && i < 5; i++)
        right = e[i].step == want[i].step && e[i].state == want[i].state;
    ok(right, "prune leaves the newest two, milestones, bad and broken ones");
    ok(n == 5 && e[4].why && strstr(e[4].why, "manifest.json"),
       "the list says what is wrong with a broken checkpoint");
    tern_ckpt_list_free(e, n);
    free(broken), free(typed), free(dir);
}

int main(void)
{
    if (!mkdtemp(work))
        return 1;
    test_layouts();
    test_failures();
    test_read_types();
    test_forged();
    test_flips();
    test_companion();
    test_links();
    test_retire();
    tern_fs_remove_tree(work, NULL);
    return tap_done();
}
