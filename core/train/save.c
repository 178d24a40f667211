#include "core/train/state.h"

#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/str.h"

#include <stdlib.h>
#include <string.h>

static int barrier(void *ctx, struct tern_err *err)
{
    return tern_comm_barrier(((struct train *)ctx)->world, err);
}

static int all_gather(void *ctx, const void *in, void *out, size_t bytes_per_rank,
                      struct tern_err *err)
{
    return tern_comm_all_gather(((struct train *)ctx)->world, in, out, bytes_per_rank, TERN_U8,
                                err);
}

static struct tern_ckpt_array whole(const struct tern_model_tensor *w, const char *name,
                                    const tern_real *data, bool owner)
{
    struct tern_ckpt_array a = {
        .name = name,
        .type = sizeof *data == 8 ? TERN_CKPT_F64 : TERN_CKPT_F32,
        .ndim = w->ndim,
        .data = data + w->offset,
        .owner = owner,
    };

    for (int d = 0; d < w->ndim; d++)
        a.global[d] = a.shape[d] = (uint64_t)w->shape[d];
    return a;
}

/* Every rank holds everything; each writes what makes their shares alike: the next tensor goes to
 * the rank that has least so far.  The same on every rank. */
static void deal(const struct train *t, int *owner)
{
    const struct tern_model_config *c = tern_llama_config(t->model);
    uint64_t *load = calloc((size_t)t->size, sizeof *load);

    for (size_t i = 0; i < tern_model_tensors(c); i++) {
        struct tern_model_tensor w;
        int least = 0;
        tern_model_tensor(c, i, &w);
        for (int r = 1; load && r < t->size; r++)
            if (load[r] < load[least])
                least = r;
        if (load)
            load[least] += w.count;
        owner[i] = least;
    }
    free(load);
}

static json_t *describe(const struct train *t)
{
    const struct tern_recipe *r = t->recipe;
    char identity[TERN_SHA256_HEX], full[TERN_SHA256_HEX];
    char *config = tern_model_config_json(tern_llama_config(t->model), "float32");
    const char *tokenizer = r->model.tokenizer ? r->model.tokenizer : r->model.from;

    tern_recipe_hashes(r, identity, full);
    json_t *meta = json_pack(
        "{s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:b, s:I, s:{s:i, s:i, s:i, s:i}, s:s, s:s, s:s, s:i, "
        "s:o, s:s}",
        "run", t->run_id, "name", r->name, "identity_hash", identity, "full_hash", full, "step",
        (json_int_t)t->step, "sample", (json_int_t)t->sample, "optimizer_step",
        (json_int_t)t->opt_step, "evaluated", t->evaluated, "seed", (json_int_t)r->data.seed,
        "layout", "world", t->size, "data", (int)t->data_ranks, "tensor", (int)r->parallel.tensor,
        "pipeline", (int)r->parallel.pipeline, "kernels", tern_tensor_kernels(), "blas",
        tern_tensor_blas(), "core", tern_tensor_core(), "threads", tern_tensor_threads(), "config",
        json_loads(config, 0, NULL), "tokenizer", tokenizer ? tokenizer : "");
    free(config);
    return meta;
}

/* The small files that make a checkpoint complete on its own: those of the folder that the weights
 * came from, or config.json for random weights; and the tokenizer's, unless that folder had one. */
static size_t find_files(const struct train *t, struct tern_ckpt_file *files)
{
    const struct tern_recipe *r = t->recipe;
    struct tern_ckpt_file more[TERN_CKPT_COMPANIONS];
    size_t n = t->files_dir ? tern_ckpt_companions(t->files_dir, files) : 0;

    if (!t->files_dir)
        files[n++] = (struct tern_ckpt_file){"config.json", tern_strdup(r->model.config)};
    size_t n_more = r->model.tokenizer ? tern_ckpt_companions(r->model.tokenizer, more) : 0;
    for (size_t i = 0; i < n_more; i++) {
        size_t j = 0;
        while (j < n && strcmp(files[j].name, more[i].name) != 0)
            j++;
        if (j == n)
            files[n++] = more[i];
        else
            tern_ckpt_companions_free(&more[i], 1);
    }
    return n;
}

static void record(struct train *t, const struct tern_ckpt_saved *saved)
{
    const struct tern_ledger_checkpoint row = {
        .step = (int64_t)t->step,
        .path = saved->path,
        .bytes = (int64_t)saved->bytes,
        .shards = saved->shards,
        .manifest_sha256 = saved->digest,
        .state = "published",
    };
    struct tern_err err;

    if (tern_spool_checkpoint(t->spool, &row, &err) < 0 || tern_spool_sync(t->spool, &err) < 0)
        tern_warn("%s", err.text);
}

/* Rank 0: make room, and tell the ledger what is gone.  A failure costs disk, not the run. */
static void prune(struct train *t)
{
    const struct tern_recipe *r = t->recipe;
    struct tern_ckpt_entry *had = NULL;
    size_t n = 0;
    struct tern_err err;

    if (tern_ckpt_list(r->checkpoint.dir, &had, &n, &err) < 0 ||
        tern_ckpt_prune(r->checkpoint.dir, (unsigned)r->checkpoint.keep,
                        (uint64_t)r->checkpoint.keep_every, t->claim, NULL, &err) < 0)
        tern_warn("old checkpoints stay: %s", err.text);
    for (size_t i = 0; i < n; i++) {
        const struct tern_ledger_checkpoint row = {
            .step = (int64_t)had[i].step,
            .path = had[i].path,
            .bytes = (int64_t)had[i].bytes,
            .shards = had[i].shards,
            .manifest_sha256 = had[i].digest,
            .state = "deleted",
        };
        if (had[i].state == TERN_CKPT_GOOD && !tern_fs_exists(had[i].path) &&
            tern_spool_checkpoint(t->spool, &row, &err) < 0)
            tern_warn("%s", err.text);
    }
    tern_ckpt_list_free(had, n);
}

int tern_train_save(struct train *t, struct tern_err *err)
{
    static const char *const prefixes[] = {"model/", "exp_avg/", "exp_avg_sq/"};
    const tern_real *const data[] = {t->params, t->exp_avg, t->exp_avg_sq};
    const struct tern_model_config *c = tern_llama_config(t->model);
    const size_t tensors = tern_model_tensors(c);
    const struct tern_ckpt_peers peers = {t->rank, t->size, t, barrier, all_gather};
    struct tern_ckpt_array *arrays = tern_alloc(3 * tensors, sizeof *arrays, "a checkpoint", err);
    int *owner = tern_alloc(tensors, sizeof *owner, "a checkpoint", err);
    struct tern_ckpt_file files[TERN_CKPT_COMPANIONS];
    struct tern_ckpt_saved saved;
    size_t n = 0;

    int rc = tern_train_agree(t, arrays && owner ? 0 : -1, err);
    if (rc < 0)
        goto out;
    deal(t, owner);
    for (size_t k = 0; k < 3; k++) {
        for (size_t i = 0; i < tensors; i++) {
            struct tern_model_tensor w;
            tern_model_tensor(c, i, &w);
            arrays[n++] =
                whole(&w, tern_strf("%s%s", prefixes[k], w.name), data[k], owner[i] == t->rank);
        }
    }
    size_t n_files = find_files(t, files);
    json_t *meta = describe(t);
    rc = tern_ckpt_save(t->recipe->checkpoint.dir, t->step, arrays, n, meta, files, n_files, &peers,
                        t->claim, &saved, err);
    json_decref(meta);
    tern_ckpt_companions_free(files, n_files);
    for (size_t i = 0; i < n; i++)
        free((char *)arrays[i].name);
    if (rc < 0)
        goto out;
    free(t->files_dir);
    t->files_dir = tern_strdup(saved.path); /* the newest is never pruned */
    if (t->rank == 0) {
        record(t, &saved);
        prune(t);
    }
    /* A rank that ends before rank 0 is done would take it along (srun --kill-on-bad-exit). */
    rc = tern_comm_barrier(t->world, err);
out:
    free(owner);
    free(arrays);
    return rc;
}
