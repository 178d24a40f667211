/* core/ckpt, a checkpoint dealt to another number of files: the same arrays, meta and small files,
 * in files of nearly the same size. */
#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/ckpt/ckpt.h"
#include "core/ckpt/reshard.h"
#include "tests/unit/tap.h"

#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

static char work[] = "/tmp/tern-ckpt-reshard-XXXXXX";

static const char *volatile flipped; /* a part of a file's name: its next bytes are wrong */

static void flip(int fd, char *to, ssize_t n)
{
    char link[64], path[512];

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, path, sizeof path - 1);
    path[len > 0 ? len : 0] = '\0';
    if (n > 100 || (n > 0 && strstr(path, "config.json")))
        if (flipped && strstr(path, flipped) && strstr(path, work) && !strstr(path, ".tmp-")) {
            flipped = NULL;
            to[n / 2] ^= 1;
        }
}

ssize_t pread(int fd, void *to, size_t n, off_t at)
{
    ssize_t got = syscall(SYS_pread64, fd, to, n, at);

    flip(fd, to, got);
    return got;
}

ssize_t read(int fd, void *to, size_t n)
{
    ssize_t got = syscall(SYS_read, fd, to, n);

    flip(fd, to, got);
    return got;
}

enum { ARRAYS = 8 };
static struct tern_ckpt_array arrays[ARRAYS] = {
    {.name = "model/embed", .type = TERN_CKPT_F32, .ndim = 2, .global = {803, 17}},
    {.name = "model/norm", .type = TERN_CKPT_BF16, .ndim = 1, .global = {91}},
    {.name = "step", .type = TERN_CKPT_I64, .ndim = 0},
    {.name = "none", .type = TERN_CKPT_F64, .ndim = 2, .global = {0, 5}},
    {.name = "cube", .type = TERN_CKPT_U8, .ndim = 3, .global = {5, 3, 7}},
    {.name = "large", .type = TERN_CKPT_F32, .ndim = 2, .global = {1300, 1000}}, /* two pieces */
    {.name = "wide", .type = TERN_CKPT_F32, .ndim = 2, .global = {2, 1200000}}, /* rows of 4.8 MB */
    {.name = "last", .type = TERN_CKPT_F64, .ndim = 1, .global = {2}},
};

static size_t bytes_of(const struct tern_ckpt_array *a)
{
    size_t n = tern_ckpt_type_bytes(a->type);

    for (int d = 0; d < a->ndim; d++)
        n *= a->global[d];
    return n;
}

static char *save(const char *dir)
{
    struct tern_ckpt_file file = {.name = "config.json", .text = "{\"a\": 1}\n"};
    json_t *meta = json_pack("{s:s,s:I}", "run", "01ARZ3NDEKTSV4RRFFQ69G5FAV", "sample", 1234ll);
    struct tern_ckpt_save_options o = {.dir = dir,
                                       .step = 12,
                                       .arrays = arrays,
                                       .n = ARRAYS,
                                       .meta = meta,
                                       .files = &file,
                                       .n_files = 1};
    struct tern_ckpt_saved saved;
    struct tern_err err = {0};

    for (int i = 0; i < ARRAYS; i++) {
        char *data = malloc(bytes_of(&arrays[i]) + 1);
        for (size_t k = 0; k < bytes_of(&arrays[i]); k++)
            data[k] = (char)(k * 31 + k / 251 + (size_t)i);
        arrays[i].data = data;
        arrays[i].owner = true;
        memcpy(arrays[i].shape, arrays[i].global, sizeof arrays[i].shape);
    }
    ok(tern_ckpt_save(&o, &saved, &err) == 0, "a checkpoint to deal (%s)", err.text);
    json_decref(meta);
    return tern_strdup(saved.path);
}

static bool is_same(const char *path, struct tern_err *err)
{
    struct tern_ckpt *c = tern_ckpt_open(path, err);
    bool same = c && tern_ckpt_count(c) == ARRAYS && tern_ckpt_step(c) == 12;

    for (int i = 0; same && i < ARRAYS; i++) {
        const size_t n = bytes_of(&arrays[i]);
        struct tern_ckpt_info info;
        char *got = malloc(n + 1);
        same = tern_ckpt_find(c, arrays[i].name, &info) && info.type == arrays[i].type &&
               info.ndim == arrays[i].ndim &&
               tern_ckpt_read(c, arrays[i].name, arrays[i].type, NULL, NULL, got, err) == 0 &&
               memcmp(got, arrays[i].data, n) == 0;
        free(got);
    }
    tern_ckpt_close(c);
    return same;
}

static bool has_the_rest(const char *path, const char *source)
{
    struct tern_ckpt *a = tern_ckpt_open(path, NULL), *b = tern_ckpt_open(source, NULL);
    char *text = NULL;
    size_t len;
    bool same = a && b && json_equal(tern_ckpt_meta(a), tern_ckpt_meta(b)) &&
                tern_ckpt_file_read(a, "config.json", &text, &len, NULL) == 0 &&
                strcmp(text, "{\"a\": 1}\n") == 0;

    free(text);
    tern_ckpt_close(a);
    tern_ckpt_close(b);
    return same;
}

/* The largest and the smallest shard lie no more than two rows and a header apart. */
static bool is_even(const char *path)
{
    struct tern_ckpt *c = tern_ckpt_open(path, NULL);
    uint64_t least = UINT64_MAX, most = 0;

    for (size_t i = 0; c && i < tern_ckpt_parts(c); i++) {
        uint64_t bytes;
        if (!tern_str_starts(tern_ckpt_part(c, i, &bytes), "shard-"))
            continue;
        least = bytes < least ? bytes : least;
        most = bytes > most ? bytes : most;
    }
    tern_ckpt_close(c);
    return most - least <= 2 * 4800000 + 1000;
}

static void deals(const char *source)
{
    static const struct {
        unsigned shards, threads;
    } tries[] = {{1, 0}, {2, 1}, {3, 2}, {7, 3}, {64, 4}, {3000, 2}};

    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
        char *dir = tern_strf("%s/to-%u", work, tries[i].shards), *last = dir;
        struct tern_ckpt_reshard r = {
            .dir = dir, .shards = tries[i].shards, .threads = tries[i].threads};
        struct tern_ckpt_saved saved = {0};
        struct tern_err err = {0};
        ok(tern_ckpt_reshard(source, &r, &saved, &err) == 0,
           "a checkpoint is written anew in %u files (%s)", r.shards, err.text);
        ok(saved.shards == r.shards && tern_ckpt_verify(saved.path, true, &err) == 0,
           "in %u files: every byte verifies (%s)", r.shards, err.text);
        ok(is_same(saved.path, &err), "in %u files: the same arrays (%s)", r.shards, err.text);
        ok(has_the_rest(saved.path, source), "in %u files: the same meta and small files",
           r.shards);
        ok(is_even(saved.path), "in %u files: they are of nearly the same size", r.shards);
        /* And back, from what was dealt. */
        r.dir = last = tern_strf("%s/back-%u", work, tries[i].shards);
        r.shards = 2;
        ok(tern_ckpt_reshard(saved.path, &r, &saved, &err) == 0 && is_same(saved.path, &err),
           "from %u files to two: the same arrays (%s)", tries[i].shards, err.text);
        free(last);
        free(dir);
    }
}

static void refuses(const char *source)
{
    char *dir = tern_fs_join(work, "refused");
    struct tern_ckpt_reshard r = {.dir = dir, .shards = 2};
    volatile sig_atomic_t stop = SIGINT;
    struct tern_err err = {0};

    r.stop = &stop;
    ok(tern_ckpt_reshard(source, &r, NULL, &err) < 0, "a call that is interrupted fails");
    has(err.text, "interrupted", "the error of an interrupted call says so");
    char *left = tern_strf("%s/step-00000012.tmp-0", dir);
    ok(!tern_fs_exists(left), "an interrupted call leaves nothing");
    free(left);
    r.stop = NULL;
    r.shards = 0;
    ok(tern_ckpt_reshard(source, &r, NULL, &err) < 0 && err.code == TERN_USAGE,
       "no files at all are refused");
    r.shards = 2;
    r.dir = work;
    ok(tern_ckpt_reshard(source, &r, NULL, &err) < 0, "a step that is there is not replaced");
    has(err.text, "already exists", "the error names the step that is there");
    ok(tern_ckpt_verify(source, true, &err) == 0, "the step that was there is whole");
    free(dir);
}

/* What comes from the storage is wrong once, and the files are right. */
static void notices(const char *source)
{
    static const char *const parts[] = {"shard-00000", "config.json"};

    for (int i = 0; i < 2; i++) {
        char *dir = tern_strf("%s/flipped-%d", work, i);
        char *left = tern_strf("%s/step-00000012.tmp-0", dir);
        struct tern_ckpt_reshard r = {.dir = dir, .shards = 3};
        struct tern_err err = {0};
        flipped = parts[i];
        ok(tern_ckpt_reshard(source, &r, NULL, &err) < 0, "%s: a bit that is read wrong once",
           parts[i]);
        has(err.text, "does not match its digest", "%s: the error says what is damaged", parts[i]);
        ok(flipped == NULL && !tern_fs_exists(left), "%s: nothing is left of it", parts[i]);
        ok(tern_ckpt_reshard(source, &r, NULL, &err) == 0, "%s: read right, it is dealt (%s)",
           parts[i], err.text);
        free(left);
        free(dir);
    }
}

int main(void)
{
    if (!mkdtemp(work))
        return 1;
    char *source = save(work);
    deals(source);
    refuses(source);
    notices(source);
    tern_fs_remove_tree(work, NULL);
    free(source);
    for (int i = 0; i < ARRAYS; i++)
        free((void *)arrays[i].data);
    return tap_done();
}
