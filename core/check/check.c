#include "core/check/check.h"

#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/data/data.h"
#include "core/model/model.h"
#include "core/token/token.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Pass the cause on, at the recipe's line. */
static int at_line(const struct tern_recipe *r, const char *key, struct tern_err *err)
{
    if (!err)
        return -1;
    struct tern_err cause = *err;
    return tern_recipe_fail(r, key, err, "%s", cause.text);
}

/* Weights in a folder: ours, or Hugging Face's. */
static bool has_weights(const char *dir)
{
    static const char *const names[] = {"manifest.json", "model.safetensors",
                                        "model.safetensors.index.json", NULL};
    bool found = false;

    for (const char *const *n = names; *n && !found; n++) {
        char *path = tern_fs_join(dir, *n);
        found = tern_fs_exists(path);
        free(path);
    }
    return found;
}

/* 1 when there is a model and `config` is set, 0 when it may still come. */
static int check_model(const struct tern_recipe *r, bool submission,
                       struct tern_model_config *config, struct tern_err *err)
{
    const char *from = r->model.from;

    if (!from)
        return tern_model_config_load(r->model.config, config, err) < 0
                   ? at_line(r, "model.config", err)
                   : 1;
    if (tern_str_ends(from, "/latest"))
        return 0; /* which step that is turns up when it starts */
    if (!tern_fs_exists(from)) {
        if (submission && r->model.pending)
            return 0;
        return tern_recipe_fail(r, "model.from", err,
                                "'%s' does not exist. If a job that this one waits for makes it, "
                                "say 'pending: true'.",
                                from);
    }
    if (!has_weights(from))
        return tern_recipe_fail(r, "model.from", err,
                                "'%s' holds neither model.safetensors (or its index) nor a "
                                "checkpoint's manifest.json.",
                                from);
    return tern_model_config_load(from, config, err) < 0 ? at_line(r, "model.from", err) : 1;
}

/* The tokenizer beside the model, where there is one that we read, names the vocabulary. */
static int vocabulary_of_model(const struct tern_recipe *r, bool *known,
                               uint8_t hash[TERN_SHA256_BYTES], struct tern_err *err)
{
    const char *where = r->model.tokenizer ? r->model.tokenizer : r->model.from;

    *known = false;
    if (!where || !tern_fs_exists(where)) {
        if (r->model.tokenizer)
            return tern_recipe_fail(r, "model.tokenizer", err, "'%s' does not exist.", where);
        return 0;
    }
    char *inside = tern_fs_join(where, "tokenizer.model");
    bool there = tern_str_ends(where, ".model") || tern_fs_exists(inside);
    free(inside);
    if (!there)
        return 0;
    struct tern_token *t = tern_token_load(where, err);
    if (!t)
        return at_line(r, r->model.tokenizer ? "model.tokenizer" : "model.from", err);
    tern_token_hash(t, hash);
    *known = true;
    tern_token_free(t);
    return 0;
}

struct vocabulary {
    bool have_config, have_hash;
    struct tern_model_config config;
    uint8_t hash[TERN_SHA256_BYTES];
};

static int check_set(const struct tern_recipe *r, const char *key, const char *path,
                     const struct vocabulary *v, struct tern_err *err)
{
    struct tern_set *s = tern_set_open(path, err);

    if (!s)
        return at_line(r, key, err);
    int rc = 0;
    if (tern_set_n_tokens(s) == 0)
        rc = tern_recipe_fail(r, key, err, "%s: holds no tokens.", path);
    else if (v->have_config && tern_set_n_vocab(s) > (uint32_t)v->config.vocab)
        rc = tern_recipe_fail(r, key, err,
                              "%s: was tokenised with %u ids, but the model's vocabulary has %d. "
                              "Build it with the model's tokenizer.",
                              path, tern_set_n_vocab(s), v->config.vocab);
    else if (v->have_hash && memcmp(v->hash, tern_set_vocab_hash(s), sizeof v->hash) != 0)
        rc = tern_recipe_fail(r, key, err,
                              "%s: was tokenised with another vocabulary than the model's. Build "
                              "it with the model's tokenizer.",
                              path);
    tern_set_free(s);
    return rc;
}

static int check_data(const struct tern_recipe *r, const struct vocabulary *v, struct tern_err *err)
{
    for (size_t k = 0; k < r->data.n_stages; k++)
        for (size_t i = 0; i < r->data.stages[k].train.n; i++)
            if (check_set(r, r->data.stages[k].key, r->data.stages[k].train.sets[i].path, v, err) < 0)
                return -1;
    for (size_t i = 0; i < r->data.held_out.n; i++)
        if (check_set(r, "data.held_out", r->data.held_out.sets[i].path, v, err) < 0)
            return -1;
    return 0;
}

/* Can it be made, or written to if it is there?  The nearest folder above that exists tells. */
static int check_folder(const struct tern_recipe *r, const char *key, const char *dir,
                        struct tern_err *err)
{
    char *at = tern_strdup(dir);

    while (!tern_fs_exists(at)) {
        char *up = tern_fs_dirname(at);
        free(at);
        at = up;
    }
    bool writable = access(at, W_OK | X_OK) == 0;
    free(at);
    if (!writable)
        return tern_recipe_fail(r, key, err, "'%s' is not writable for you.", dir);
    return 0;
}

int tern_check_recipe(const struct tern_recipe *r, const struct tern_check_options *options,
                      struct tern_err *err)
{
    struct vocabulary v = {0};
    int64_t data_ranks, micro_batches;

    if (!r->ledger.dir)
        return tern_recipe_fail(r, "ledger.dir", err, "is missing.");
    if (check_folder(r, "ledger.dir", r->ledger.dir, err) < 0)
        return -1;
    if (r->workload.command)
        return 0;
    if (check_folder(r, "checkpoint.dir", r->checkpoint.dir, err) < 0)
        return -1;
    int have = check_model(r, options->submission, &v.config, err);
    if (have < 0 || vocabulary_of_model(r, &v.have_hash, v.hash, err) < 0)
        return -1;
    v.have_config = have > 0;
    if (v.have_config && r->batch.seq_len > v.config.max_position)
        return tern_recipe_fail(r, "batch.seq_len", err,
                                "%lld tokens, but the model was made for %d "
                                "(max_position_embeddings).",
                                (long long)r->batch.seq_len, v.config.max_position);
    if (check_data(r, &v, err) < 0)
        return -1;
    /* Whatever the number of nodes, the ranks of one must divide the batch. */
    int64_t ranks = options->ranks ? options->ranks : r->launch.ranks_per_node;
    if (!options->ranks && ranks % (r->parallel.tensor * r->parallel.pipeline))
        return 0;
    return tern_recipe_split(r, ranks, &data_ranks, &micro_batches, err);
}

int tern_check_same_run(const struct tern_recipe *r, const char *path, const char *identity,
                        struct tern_err *err)
{
    char mine[TERN_SHA256_HEX], full[TERN_SHA256_HEX];

    tern_recipe_hashes(r, mine, full);
    if (!identity || strcmp(identity, mine) == 0)
        return 0;
    return tern_err_set(err, TERN_USAGE,
                        "%s: model, data, seed, batch, optimizer or schedule of %s are not those "
                        "that checkpoint was trained with. Use another checkpoint.dir for a new "
                        "run, or say --accept.",
                        path, r->path);
}
