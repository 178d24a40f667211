/* A driver for tests of checkpoints: small models, saves by several processes, endless saves to be
 * killed, comparison.
 *
 *     ckpt-tool model DIR [VOCABULARY]    a small random Hugging Face folder
 *     ckpt-tool save DIR STEP RANKS SRC   save SRC's tensors as RANKS processes, split by rows
 *     ckpt-tool loop DIR RANKS SRC        lease, resume, save step after step; "saved N" to stdout
 *     ckpt-tool same A B                  do both hold the same tensors?  (either kind of folder)
 */
#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/rand.h"
#include "core/base/str.h"
#include "core/ckpt/ckpt.h"
#include "core/convert/convert.h"
#include "core/model/model.h"

#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static int say(const struct tern_err *err)
{
    fprintf(stderr, "ckpt-tool: %s\n", err->text);
    return err->code ? (int)err->code : TERN_FAILED;
}

/* ------------------------------------------------------------------ ranks as processes */

enum { RANKS_MAX = 8, SLOT = 1 << 20 };

struct shared {
    atomic_int arrived[RANKS_MAX]; /* barriers passed */
    char slot[RANKS_MAX][SLOT];
};

struct rank {
    struct shared *mem;
    int rank, size, round;
};

/* A rank that is gone is an error after two seconds, never a hang. */
static int barrier(void *ctx, struct tern_err *err)
{
    struct rank *r = ctx;
    int64_t end = tern_clock_boot_ns() + 2000000000;

    r->round++;
    atomic_store(&r->mem->arrived[r->rank], r->round);
    for (int i = 0; i < r->size; i++) {
        while (atomic_load(&r->mem->arrived[i]) < r->round) {
            if (tern_clock_boot_ns() > end)
                return tern_err_set(err, TERN_TEMPFAIL, "rank %d waits for rank %d in vain",
                                    r->rank, i);
            usleep(50);
        }
    }
    return 0;
}

static int all_gather(void *ctx, const void *in, void *out, size_t bytes, struct tern_err *err)
{
    struct rank *r = ctx;

    if (bytes > SLOT)
        return tern_err_set(err, TERN_FAILED, "%zu bytes are too many for the test", bytes);
    memcpy(r->mem->slot[r->rank], in, bytes);
    if (barrier(ctx, err) < 0)
        return -1;
    for (int i = 0; i < r->size; i++)
        memcpy((char *)out + (size_t)i * bytes, r->mem->slot[i], bytes);
    return barrier(ctx, err);
}

/* ------------------------------------------------------------------ a source of arrays */

struct source {
    struct tern_ckpt_array *arrays;
    size_t n;
    json_t *meta;
    struct tern_ckpt_file files[TERN_CKPT_COMPANIONS];
    size_t n_files;
};

/* Rows [rank/size, (rank + 1)/size) of tensor `i`. */
static int array_read(struct tern_ckpt *c, size_t i, int rank, int size, struct tern_ckpt_array *a,
                      struct tern_err *err)
{
    struct tern_ckpt_info info;
    uint64_t bytes;

    tern_ckpt_info(c, i, &info);
    *a = (struct tern_ckpt_array){.name = tern_strf("model/%s", info.name),
                                  .type = info.type,
                                  .ndim = info.ndim,
                                  .owner = true};
    memcpy(a->global, info.shape, sizeof info.shape);
    memcpy(a->shape, info.shape, sizeof info.shape);
    a->start[0] = info.shape[0] * (uint64_t)rank / (uint64_t)size;
    a->shape[0] = info.shape[0] * (uint64_t)(rank + 1) / (uint64_t)size - a->start[0];
    bytes = tern_ckpt_type_bytes(info.type);
    for (int d = 0; d < info.ndim; d++)
        bytes *= a->shape[d];
    void *data = tern_alloc(bytes + 1, 1, "array", err);
    a->data = data;
    return data ? tern_ckpt_read(c, info.name, info.type, a->start, a->shape, data, err) : -1;
}

static int source_read(const char *path, int rank, int size, struct source *s, struct tern_err *err)
{
    struct tern_ckpt *c = tern_ckpt_open_hf(path, err);
    char *config = tern_fs_join(path, "config.json");

    if (!c)
        return -1;
    *s = (struct source){.n = tern_ckpt_count(c)};
    s->arrays = tern_alloc(s->n, sizeof *s->arrays, "arrays", err);
    for (size_t i = 0; i < s->n; i++)
        if (array_read(c, i, rank, size, &s->arrays[i], err) < 0)
            return -1;
    tern_ckpt_close(c);
    json_t *j = tern_json_load(config, 1 << 20, err);
    free(config);
    if (!j)
        return -1;
    s->meta = json_pack("{s:o,s:s}", "config", j, "tokenizer", path);
    s->n_files = tern_ckpt_companions(path, s->files);
    return 0;
}

static void source_free(struct source *s)
{
    for (size_t i = 0; i < s->n; i++) {
        free((char *)s->arrays[i].name);
        free((void *)s->arrays[i].data);
    }
    free(s->arrays);
    json_decref(s->meta);
    tern_ckpt_companions_free(s->files, s->n_files);
}

/* ------------------------------------------------------------------ save and loop */

struct task {
    const char *dir, *src;
    uint64_t step;
    bool loop;
};

/* Rank 0 leases and finds the newest; the others hear of it. */
static int loop_begin(const struct task *t, const struct tern_ckpt_peers *p,
                      struct tern_ckpt_lease **lease, uint64_t *step, struct tern_err *err)
{
    uint64_t mine = 0, all[RANKS_MAX];
    char *path = NULL;

    if (p->rank == 0) {
        if (tern_ckpt_lease_acquire(t->dir, 0, "ckpt-tool", lease, err) < 0 ||
            tern_ckpt_latest(t->dir, &path, &mine, err) < 0)
            return -1;
        if (path && tern_ckpt_verify(path, true, err) < 0)
            return -1;
        free(path);
    }
    if (p->all_gather(p->ctx, &mine, all, sizeof mine, err) < 0)
        return -1;
    *step = all[0];
    return 0;
}

static int rank_run(const struct task *t, struct rank *r, struct tern_err *err)
{
    struct tern_ckpt_peers p = {r->rank, r->size, r, barrier, all_gather};
    struct tern_ckpt_lease *lease = NULL;
    struct source s;
    uint64_t step = t->step;
    int rc = 0;

    if (source_read(t->src, r->rank, r->size, &s, err) < 0)
        return -1;
    struct tern_ckpt_save_options o = {.dir = t->dir,
                                       .step = step,
                                       .arrays = s.arrays,
                                       .n = s.n,
                                       .meta = s.meta,
                                       .files = s.files,
                                       .n_files = s.n_files,
                                       .peers = &p};
    if (!t->loop)
        rc = tern_ckpt_save(&o, NULL, err);
    else
        rc = loop_begin(t, &p, &lease, &step, err);
    while (t->loop && rc == 0) {
        o.step = ++step;
        o.lease = lease;
        rc = tern_ckpt_save(&o, NULL, err);
        if (rc == 0 && r->rank == 0) {
            printf("saved %" PRIu64 "\n", step);
            fflush(stdout);
            const struct tern_ckpt_prune_how how = {
                .keep = 3, .keep_every = 10, .best = -1, .lease = lease};
            rc = tern_ckpt_prune(t->dir, &how, NULL, err);
        }
    }
    tern_ckpt_lease_free(lease, true);
    source_free(&s);
    return rc;
}

static int ranks_run(const struct task *t, int size)
{
    struct tern_err err = {0};
    struct shared *mem =
        mmap(NULL, sizeof *mem, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int worst = 0, status;

    if (mem == MAP_FAILED)
        return TERN_FAILED;
    if (size == 1) {
        struct rank r = {mem, 0, 1, 0};
        return rank_run(t, &r, &err) < 0 ? say(&err) : 0;
    }
    for (int i = 0; i < size; i++) {
        if (fork() == 0) {
            struct rank r = {mem, i, size, 0};
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            _exit(rank_run(t, &r, &err) < 0 ? say(&err) : 0);
        }
    }
    while (wait(&status) > 0) {
        int rc = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        worst = rc > worst ? rc : worst;
    }
    return worst;
}

/* ------------------------------------------------------------------ model */

static int model_write(const char *dir, const char *config, const char *weights, size_t len,
                       struct tern_err *err)
{
    const struct {
        const char *name, *text;
        size_t len;
    } files[] = {
        {"config.json", config, strlen(config)},
        {"model.safetensors", weights, len},
        {"tokenizer.model", "no real tokenizer\n", 18},
        {"tokenizer_config.json", "{\"bos_token\": \"<s>\"}\n", 21},
        {"generation_config.json", "{\"eos_token_id\": 2}\n", 20},
    };
    int rc = tern_fs_mkdirs(dir, 0777, err);

    for (size_t i = 0; rc == 0 && i < sizeof files / sizeof *files; i++) {
        char *path = tern_fs_join(dir, files[i].name);
        rc = tern_fs_replace(path, files[i].text, files[i].len, 0644, err);
        free(path);
    }
    return rc;
}

static int model_make(const char *dir, int vocabulary, struct tern_err *err)
{
    const struct tern_model_config c = {.dim = 48,
                                        .ffn = 80,
                                        .layers = 3,
                                        .heads = 4,
                                        .kv_heads = 2,
                                        .head_dim = 12,
                                        .vocab = vocabulary,
                                        .max_position = 64,
                                        .norm_eps = 1e-5,
                                        .init_std = 0.02,
                                        .bos_id = 1,
                                        .n_eos = 1,
                                        .eos_ids = {2},
                                        .rope_theta = 1e4};
    size_t n = tern_model_tensors(&c), len;
    struct tern_model_tensor *t = tern_alloc(n, sizeof *t, "tensors", err);
    struct tern_ckpt_info *info = tern_alloc(n, sizeof *info, "tensors", err);
    char *head, *config = tern_model_config_json(&c, "float32");
    uint64_t data;

    for (size_t i = 0; i < n; i++) {
        tern_model_tensor(&c, i, &t[i]);
        info[i] =
            (struct tern_ckpt_info){.name = t[i].name, .type = TERN_CKPT_F32, .ndim = t[i].ndim};
        for (int d = 0; d < t[i].ndim; d++)
            info[i].shape[d] = (uint64_t)t[i].shape[d];
    }
    if (tern_ckpt_safetensors_head(info, n, &head, &len, &data, err) < 0)
        return -1;
    char *file = tern_alloc(len + data, 1, "model", err);
    memcpy(file, head, len);
    for (uint64_t i = 0; i < data / 4; i++) {
        float v = (float)tern_rand_normal(7, 1, i);
        memcpy(file + len + 4 * i, &v, 4);
    }
    int rc = model_write(dir, config, file, len + data, err);
    free(file);
    free(head);
    free(config);
    free(info);
    free(t);
    return rc;
}

/* ------------------------------------------------------------------ same */

static struct tern_ckpt *open_any(const char *path, struct tern_err *err)
{
    return tern_ckpt_is_ours(path) ? tern_ckpt_open(path, err) : tern_convert_open(path, NULL, err);
}

/* Array `i` of `a`, rounded to `b`'s type, is `b`'s. */
static int same_array(struct tern_ckpt *a, size_t i, struct tern_ckpt *b, struct tern_err *err)
{
    struct tern_ckpt_info x, y;
    int rc = -1;

    tern_ckpt_info(a, i, &x);
    const char *plain = tern_str_starts(x.name, "model/") ? x.name + 6 : x.name;
    char *other = tern_strf("%s%s", tern_ckpt_manifest(b) ? "model/" : "", plain), *p = NULL;
    if (!tern_ckpt_find(b, other, &y) || x.ndim != y.ndim ||
        memcmp(x.shape, y.shape, sizeof x.shape) != 0) {
        tern_err_set(err, TERN_FAILED, "%s differs in shape", plain);
        goto out;
    }
    uint64_t bytes = tern_ckpt_type_bytes(y.type);
    for (int d = 0; d < x.ndim; d++)
        bytes *= x.shape[d];
    p = tern_alloc(bytes, 2, "arrays", err);
    if (!p || tern_ckpt_read(a, x.name, y.type, NULL, NULL, p, err) < 0 ||
        tern_ckpt_read(b, other, y.type, NULL, NULL, p + bytes, err) < 0)
        goto out;
    rc = memcmp(p, p + bytes, bytes) == 0 ? 0 : tern_err_set(err, TERN_FAILED, "%s differs", plain);
out:
    free(p);
    free(other);
    return rc;
}

static int same(const char *a_path, const char *b_path, struct tern_err *err)
{
    struct tern_ckpt *a = open_any(a_path, err), *b = a ? open_any(b_path, err) : NULL;
    int rc = b ? 0 : -1;

    if (b && tern_ckpt_count(a) != tern_ckpt_count(b))
        rc = tern_err_set(err, TERN_FAILED, "%zu and %zu arrays", tern_ckpt_count(a),
                          tern_ckpt_count(b));
    for (size_t i = 0; rc == 0 && i < tern_ckpt_count(a); i++)
        rc = same_array(a, i, b, err);
    tern_ckpt_close(a);
    tern_ckpt_close(b);
    return rc;
}

int main(int argc, char **argv)
{
    struct tern_err err = {0};
    const char *verb = argc > 1 ? argv[1] : "";
    int64_t step = 0, ranks = 0;

    if (strcmp(verb, "model") == 0 &&
        (argc == 3 || (argc == 4 && tern_str_int(argv[3], 1, 100000, &step) == 0)))
        return model_make(argv[2], argc == 4 ? (int)step : 301, &err) < 0 ? say(&err) : 0;
    if (strcmp(verb, "same") == 0 && argc == 4)
        return same(argv[2], argv[3], &err) < 0 ? say(&err) : 0;
    if (strcmp(verb, "save") == 0 && argc == 6 &&
        tern_str_int(argv[3], 0, 1000000000, &step) == 0 &&
        tern_str_int(argv[4], 1, RANKS_MAX, &ranks) == 0)
        return ranks_run(&(struct task){argv[2], argv[5], (uint64_t)step, false}, (int)ranks);
    if (strcmp(verb, "loop") == 0 && argc == 5 && tern_str_int(argv[3], 1, RANKS_MAX, &ranks) == 0)
        return ranks_run(&(struct task){argv[2], argv[4], 0, true}, (int)ranks);
    fputs("usage: ckpt-tool model DIR | save DIR STEP RANKS SRC | loop DIR RANKS SRC | same A B\n",
          stderr);
    return TERN_USAGE;
}
