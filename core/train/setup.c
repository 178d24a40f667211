#include "core/train/state.h"

#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/check/check.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Is `path` whole?  1 when it is; 0 when it is damaged and now has a name under which nobody takes
 * it for a checkpoint; -1 when storage or the claim does not let us tell. */
static int whole_or_set_aside(struct train *t, const char *path, struct tern_err *err)
{
    struct tern_err why;
    char *to = NULL;

    if (tern_ckpt_verify(path, true, &why) == 0)
        return 1;
    if (why.code == TERN_TEMPFAIL) {
        *err = why; /* storage that fails now is no damage */
        return -1;
    }
    if (tern_ckpt_claim_check(t->claim, err) < 0 || tern_ckpt_mark_bad(path, &to, err) < 0)
        return -1;
    tern_warn("%s; it is now %s", why.text, to);
    free(to);
    return 0;
}

/* Rank 0: the newest checkpoint whose every byte verifies; *found is NULL when there is none. Newer
 * ones that are damaged are set aside: their steps are to be published again. */
static int newest_whole(struct train *t, char **found, struct tern_err *err)
{
    struct tern_ckpt_entry *had = NULL;
    size_t n = 0;
    int rc = 0;

    *found = NULL;
    if (!tern_fs_exists(t->recipe->checkpoint.dir))
        return 0;
    if (tern_ckpt_list(t->recipe->checkpoint.dir, &had, &n, err) < 0)
        return -1;
    for (size_t i = n; i-- > 0 && rc == 0;) {
        if (had[i].state != TERN_CKPT_GOOD && had[i].state != TERN_CKPT_BROKEN)
            continue;
        rc = whole_or_set_aside(t, had[i].path, err);
        if (rc > 0)
            *found = tern_strdup(had[i].path);
    }
    tern_ckpt_list_free(had, n);
    return rc < 0 ? -1 : 0;
}

/* The checkpoint to go on from as rank 0 sees it, told to all.  "" when there is none. */
static int find_checkpoint(struct train *t, char path[1024], struct tern_err *err)
{
    char *found = NULL;
    int rc = 0;

    memset(path, 0, 1024);
    if (t->rank == 0) {
        rc = newest_whole(t, &found, err);
        if (rc == 0 && found && strlen(found) >= 1024)
            rc = tern_err_set(err, TERN_USAGE, "%s: the path is too long", found);
        if (rc == 0 && found)
            snprintf(path, 1024, "%s", found);
        free(found);
    }
    if (tern_train_agree(t, rc, err) < 0)
        return -1;
    return tern_comm_broadcast(t->world, path, 1024, TERN_U8, 0, err);
}

static int make_model(struct train *t, const struct tern_model_config *config, struct tern_err *err)
{
    if (t->recipe->batch.seq_len > config->max_position)
        return tern_recipe_fail(t->recipe, "batch.seq_len", err,
                                "%" PRId64 " tokens, but the model was made for %d "
                                "(max_position_embeddings).",
                                t->recipe->batch.seq_len, config->max_position);
    t->model = tern_llama_new(config, (int)t->recipe->batch.micro, (int)t->recipe->batch.seq_len,
                              true, err);
    if (!t->model)
        return -1;
    t->params = tern_llama_params(t->model, &t->n);
    t->grads = tern_llama_grads(t->model, NULL);
    t->exp_avg = tern_alloc(t->n, sizeof *t->exp_avg, "AdamW's first moment", err);
    t->exp_avg_sq = tern_alloc(t->n, sizeof *t->exp_avg_sq, "AdamW's second moment", err);
    return t->exp_avg && t->exp_avg_sq ? 0 : -1;
}

static int read_moments(struct train *t, const struct tern_infer_source *s, struct tern_err *err)
{
    if (tern_infer_read(s, "exp_avg/", t->exp_avg, err) < 0)
        return -1;
    return tern_infer_read(s, "exp_avg_sq/", t->exp_avg_sq, err);
}

static uint64_t meta_count(json_t *meta, const char *key, uint64_t otherwise)
{
    json_t *j = json_object_get(meta, key);

    return json_is_integer(j) && json_integer_value(j) >= 0 ? (uint64_t)json_integer_value(j)
                                                            : otherwise;
}

/* Go on from a checkpoint of this run: parameters, moments, place in the data. */
static int resume(struct train *t, const char *path, struct tern_err *err)
{
    struct tern_infer_source s;
    int rc = -1;

    if (tern_infer_open(path, &s, err) < 0)
        return -1;
    json_t *meta = tern_ckpt_meta(s.ckpt);
    const char *identity = json_string_value(json_object_get(meta, "identity_hash"));
    if (!t->options->accept && tern_check_same_run(t->recipe, path, identity, err) < 0)
        goto out;
    if (make_model(t, &s.config, err) < 0 || tern_infer_read(&s, s.prefix, t->params, err) < 0 ||
        read_moments(t, &s, err) < 0)
        goto out;
    t->step = tern_ckpt_step(s.ckpt);
    t->sample = meta_count(meta, "sample", t->step * (uint64_t)t->recipe->batch.global);
    t->opt_step = meta_count(meta, "optimizer_step", t->step);
    t->evaluated = json_is_true(json_object_get(meta, "evaluated"));
    t->resumed = tern_strdup(path);
    t->files_dir = tern_strdup(path);
    rc = 0;
out:
    tern_infer_close(&s);
    return rc;
}

/* Begin from the recipe's model: weights of a folder, or random ones. */
static int begin(struct train *t, struct tern_err *err)
{
    const struct tern_recipe *r = t->recipe;
    struct tern_infer_source s = {0};
    struct tern_model_config config;

    if (!r->model.from) {
        if (tern_model_config_load(r->model.config, &config, err) < 0 ||
            make_model(t, &config, err) < 0)
            return -1;
        tern_llama_init(t->model, (uint64_t)r->data.seed, r->model.init_std);
        return 0;
    }
    if (tern_infer_open(r->model.from, &s, err) < 0)
        return -1;
    int rc = make_model(t, &s.config, err);
    if (rc == 0)
        rc = tern_infer_read(&s, s.prefix, t->params, err);
    if (rc == 0 && r->model.optimizer == TERN_OPTIMIZER_KEEP) {
        if (tern_ckpt_is_ours(tern_ckpt_path(s.ckpt))) {
            rc = read_moments(t, &s, err);
            t->opt_step =
                meta_count(tern_ckpt_meta(s.ckpt), "optimizer_step", tern_ckpt_step(s.ckpt));
        } else {
            rc = tern_recipe_fail(r, "model.optimizer", err,
                                  "'keep', but %s has no optimizer state. Say 'reset'.",
                                  r->model.from);
        }
    }
    t->files_dir = tern_strdup(tern_ckpt_path(s.ckpt));
    tern_infer_close(&s);
    return rc;
}

static int open_data(struct train *t, struct tern_err *err)
{
    const struct tern_recipe *r = t->recipe;
    const struct tern_recipe_sets *train = &r->data.stages[0].train, *held_out = &r->data.held_out;
    const uint32_t vocab = (uint32_t)tern_llama_config(t->model)->vocab;
    struct tern_mix_source *sources = tern_alloc(train->n, sizeof *sources, "data sources", err);

    if (!sources)
        return -1;
    for (size_t i = 0; i < train->n; i++)
        sources[i] = (struct tern_mix_source){train->sets[i].path, train->sets[i].weight};
    t->mix =
        tern_mix_open(sources, train->n, (uint32_t)r->batch.seq_len, (uint64_t)r->data.seed, err);
    free(sources);
    t->held_out = tern_alloc(held_out->n, sizeof(struct tern_set *), "held-out sets", err);
    if (!t->mix || !t->held_out)
        return -1;
    for (size_t i = 0; i < held_out->n; i++) {
        t->held_out[i] = tern_set_open(held_out->sets[i].path, err);
        if (!t->held_out[i])
            return -1;
    }
    for (size_t i = 0; i < train->n + held_out->n; i++) {
        const struct tern_set *s =
            i < train->n ? tern_mix_set(t->mix, i) : t->held_out[i - train->n];
        if (tern_set_n_vocab(s) > vocab)
            return tern_recipe_fail(r, "data", err,
                                    "%s: was tokenised with %u ids, but the model's vocabulary has "
                                    "%u. Build it with the model's tokenizer.",
                                    tern_set_path(s), tern_set_n_vocab(s), vocab);
    }
    return 0;
}

static int make_buffers(struct train *t, struct tern_err *err)
{
    size_t row = (size_t)t->recipe->batch.seq_len, n = (size_t)t->recipe->batch.micro * row;

    t->tokens = tern_alloc(n, sizeof *t->tokens, "a micro-batch", err);
    t->targets = tern_alloc(n, sizeof *t->targets, "a micro-batch", err);
    t->row = tern_alloc(row + 1, sizeof *t->row, "a row", err);
    t->mask = tern_alloc(n, 1, "a micro-batch", err);
    return t->tokens && t->targets && t->row && t->mask ? 0 : -1;
}

/* Rank 0's links to the outside: the ledger's spool, the claim on the checkpoint folder. */
static int open_records(struct train *t, struct tern_err *err)
{
    const char *dir = t->recipe->checkpoint.dir, *spool = t->options->spool_dir;
    char *ledger_dir, host[256] = "", owner[320];
    unsigned attempt = 0;

    if (t->rank != 0)
        return 0;
    if (spool) {
        if (tern_spool_dir_parse(spool, &ledger_dir, t->run_id, &attempt, err) < 0)
            return -1;
        free(ledger_dir);
        struct tern_err lost;
        t->spool = tern_spool_open_dir(spool, "rank0", &lost);
        if (!t->spool)
            tern_warn("nothing will be recorded: %s", lost.text);
        return tern_ckpt_claim_attach(dir, attempt, &t->claim, err);
    }
    tern_info("no supervisor (tern run): nothing is recorded in the ledger");
    tern_ulid_new(t->run_id);
    gethostname(host, sizeof host - 1);
    snprintf(owner, sizeof owner, "tern train on %s", host);
    if (tern_ckpt_run_identity(dir, t->run_id, err) < 0)
        return -1;
    return tern_ckpt_claim(dir, 0, owner, &t->claim, err);
}

int tern_train_setup(struct train *t, struct tern_err *err)
{
    char path[1024];

    t->loss = NAN;
    if (tern_recipe_split(t->recipe, t->size, &t->data_ranks, &t->micro_batches, err) < 0)
        return -1; /* the same on every rank */
    if (tern_train_agree(t, open_records(t, err), err) < 0 || find_checkpoint(t, path, err) < 0)
        return -1;
    int rc = *path ? resume(t, path, err) : begin(t, err);
    if (rc == 0 && (open_data(t, err) < 0 || make_buffers(t, err) < 0))
        rc = -1;
    return tern_train_agree(t, rc, err);
}

void tern_train_teardown(struct train *t)
{
    struct tern_err err;

    if (tern_spool_close(t->spool, &err) < 0)
        tern_warn("%s", err.text);
    tern_ckpt_claim_free(t->claim, t->options->spool_dir == NULL);
    for (size_t i = 0; t->held_out && i < t->recipe->data.held_out.n; i++)
        tern_set_free(t->held_out[i]);
    free(t->held_out);
    tern_mix_free(t->mix);
    tern_llama_free(t->model);
    free(t->exp_avg);
    free(t->exp_avg_sq);
    free(t->tokens);
    free(t->targets);
    free(t->row);
    free(t->mask);
    free(t->files_dir);
    free(t->resumed);
}
