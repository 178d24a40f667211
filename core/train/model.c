/* This rank's part of the model: made, and filled from disk. */
#include "core/train/state.h"

#include "core/base/log.h"
#include "core/base/progress.h"
#include "core/base/str.h"
#include "core/ckpt/local.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void *alloc_shared(void *ctx, size_t bytes, struct tern_err *err)
{
    struct train *t = ctx;

    return tern_fabric_alloc(t->options->fabric, bytes, err);
}

/* Arrays that ranks of one node combine lie where they reach them, so that nothing is staged.  They
 * are gradients, parameters that data ranks exchange with ZeRO, and activations of tensor ranks and
 * pipeline neighbours.  All other arrays are this process's alone: a node peer's memory that is
 * read here counts as resident here, too.  Freed by tern_fabric_close. */
static struct tern_llama_memory shared_memory(struct train *t, const struct tern_model_config *c)
{
    const struct train_node_peers peers = tern_train_find_node_peers(t, c);

    return (struct tern_llama_memory){
        .ctx = t,
        .wanted = {[TERN_LLAMA_BLOCK_PARAMS] = peers.data && t->recipe->parallel.zero,
                   [TERN_LLAMA_BLOCK_GRADS] =
                       peers.data || peers.kv_heads || peers.tied ||
                       (peers.tensor && /* of norms; of what adapters have whole */
                        (t->recipe->parallel.sequence || t->recipe->lora.rank > 0)),
                   [TERN_LLAMA_BLOCK_ACTIVATIONS] = peers.tensor || peers.neighbours},
        .alloc = alloc_shared,
    };
}

static int make_model(struct train *t, const struct tern_model_config *config, struct tern_err *err)
{
    struct train_optimizer *o = &t->optimizer;
    const struct tern_llama_peers peers = tern_train_make_peers(t);
    struct tern_llama_memory memory;
    struct tern_llama_options options;

    if (tern_plan_check_positions(t->recipe, config, err) < 0 || tern_train_pass_open(t, err) < 0)
        return -1;
    tern_plan_llama(t->recipe, config, &t->me, t->passes.plan.slots, &options);
    options.peers = &peers;
    memory = shared_memory(t, config);
    options.memory = &memory;
    t->model = tern_llama_open(&options, err);
    if (!t->model || tern_train_units_open(t, err) < 0)
        return -1;
    t->weights.params = tern_llama_trainable(t->model, NULL);
    t->weights.grads = tern_llama_grads(t->model, NULL);
    if (!t->weights.params) {
        t->weights.bf16 = tern_llama_params_bf16(t->model, NULL);
        o->master = tern_alloc(o->n, sizeof *o->master, "the master copy", err);
        if (!o->master)
            return -1;
    }
    o->exp_avg = tern_alloc(o->n, sizeof *o->exp_avg, "AdamW's first moment", err);
    o->exp_avg_sq = tern_alloc(o->n, sizeof *o->exp_avg_sq, "AdamW's second moment", err);
    return o->exp_avg && o->exp_avg_sq ? 0 : -1;
}

/* The master copy begins as what the parameters are. */
static void copy_master(struct train *t)
{
    const struct tern_model_shard *shard = tern_llama_trained(t->model);
    struct train_rows w;

    for (size_t i = 0; t->optimizer.master && i < shard->n_parts; i++)
        if (tern_train_find_rows(t, i, false, &w))
            tern_tensor_from_bf16(t->optimizer.master + w.state, t->weights.bf16 + w.offset,
                                  w.count);
}

/* This rank's rows of the arrays `prefix`NAME of what is trained. */
static int read_rows(struct train *t, const struct tern_infer_source *s, const char *prefix,
                     tern_real *to, struct tern_err *err)
{
    const struct tern_model_shard *shard = tern_llama_trained(t->model);

    for (size_t i = 0; i < shard->n_parts; i++) {
        struct tern_model_part p = shard->parts[i];
        struct train_rows w;
        if (!tern_train_find_rows(t, i, false, &w))
            continue;
        p.start[0] += w.from;
        p.shape[0] = w.rows;
        tern_progress_expect(w.count);
        if (tern_infer_read_part(s, prefix, &p, to + w.state, err) < 0)
            return -1;
        tern_progress_add(w.count);
    }
    return 0;
}

static int read_moments(struct train *t, const struct tern_infer_source *s, struct tern_err *err)
{
    tern_progress_phase("values", "the optimizer's state");
    if (read_rows(t, s, "exp_avg/", t->optimizer.exp_avg, err) < 0)
        return -1;
    return read_rows(t, s, "exp_avg_sq/", t->optimizer.exp_avg_sq, err);
}

/* The weights of the source, and the master copy of those in bf16.  Where only the source has a
 * master copy, it is the weights, exactly. */
static int read_weights(struct train *t, const struct tern_infer_source *s, bool resume,
                        struct tern_err *err)
{
    const struct tern_model_shard *shard = tern_llama_shard(t->model);
    char name[TERN_CKPT_NAME_MAX + 1];

    if (t->rank == 0) /* the one line of the run */
        tern_progress_begin("parameters", "%s", tern_ckpt_path(s->ckpt));
    if ((resume ? tern_infer_resume(s, t->model, err) : tern_infer_read(s, t->model, err)) < 0)
        return -1;
    snprintf(name, sizeof name, "master/%s", shard->parts[0].whole.name);
    bool has = tern_ckpt_find(s->ckpt, name, NULL);
    if (t->optimizer.master && s->adapters.rank) { /* they are in the weights by now */
        copy_master(t);
        return 0;
    }
    tern_progress_phase("parameters", "the master copy");
    if (t->optimizer.master)
        return read_rows(t, s, has ? "master/" : s->prefix, t->optimizer.master, err);
    tern_real *params = tern_llama_params(t->model, NULL);
    for (size_t i = 0; has && params && i < shard->n_parts; i++)
        if (tern_infer_read_part(s, "master/", &shard->parts[i], params + shard->parts[i].offset,
                                 err) < 0)
            return -1;
    return 0;
}

static uint64_t meta_count(json_t *meta, const char *key, uint64_t otherwise)
{
    json_t *j = json_object_get(meta, key);

    return json_is_integer(j) && json_integer_value(j) >= 0 ? (uint64_t)json_integer_value(j)
                                                            : otherwise;
}

/* Most schedules reach down to the last step: with another one the rate goes on elsewhere.  A
 * schedule that changes later steps alone (wsd) is no surprise to a user who adds steps. */
static void warn_of_length(const struct train *t, int64_t was)
{
    struct tern_recipe before = *t->recipe;
    const int64_t next = (int64_t)t->progress.step + 1, steps = t->recipe->steps;

    before.steps = was;
    double old = tern_recipe_lr(&before, next), new = tern_recipe_lr(t->recipe, next);
    if (t->rank != 0 || steps == was || next > steps || fabs(new - old) <= 1e-3 * old)
        return;
    tern_warn("the run had %" PRId64 " steps and has %" PRId64 " now: step %" PRId64
              " goes on at a learning rate of %g, where it %s %g",
              was, steps, next, new, next > was ? "had ended at" : "was to be", old);
}

/* Whatever --accept allows, adapters of one shape cannot go on as others. */
static int same_adapters(const struct train *t, const char *path,
                         const struct tern_model_adapters *theirs, struct tern_err *err)
{
    static const struct tern_model_adapters none;
    const struct tern_model_adapters *mine = tern_llama_adapters(t->model);

    mine = mine ? mine : &none;
    if (mine->rank == theirs->rank && mine->targets == theirs->targets &&
        mine->dora == theirs->dora)
        return 0;
    return tern_recipe_fail(t->recipe, "lora", err,
                            "%s has adapters of rank %d%s beside %d kinds of weights, the recipe "
                            "of rank %d%s beside %d (rank 0: none), and one cannot go on as the "
                            "other. Begin a run from it: model.from, and another checkpoint.dir.",
                            path, theirs->rank, theirs->dora ? " with magnitudes (dora)" : "",
                            __builtin_popcount(theirs->targets), mine->rank,
                            mine->dora ? " with magnitudes (dora)" : "",
                            __builtin_popcount(mine->targets));
}

/* Go on from a checkpoint of this run: parameters, moments, place in the data.  `after`: the JSON
 * of tern_train_save_evaluated, or "". */
int tern_train_resume(struct train *t, const char *path, const char *after, struct tern_err *err)
{
    struct train_progress *at = &t->progress;
    struct tern_infer_source s;
    int rc = -1;

    if (tern_infer_open(path, &s, err) < 0)
        return -1;
    if (t->checkpoint.local.dir)
        tern_ckpt_read_near(s.ckpt, t->checkpoint.local.dir);
    json_t *meta = tern_ckpt_meta(s.ckpt);
    if (make_model(t, &s.config, err) < 0 || same_adapters(t, path, &s.adapters, err) < 0 ||
        read_weights(t, &s, true, err) < 0 || read_moments(t, &s, err) < 0)
        goto out;
    at->step = tern_ckpt_step(s.ckpt);
    at->sample = meta_count(meta, "sample", at->step * (uint64_t)t->recipe->batch.global);
    warn_of_length(t, (int64_t)meta_count(meta, "steps", (uint64_t)t->recipe->steps));
    at->updates = meta_count(meta, "optimizer_step", at->step);
    json_t *since = json_loads(after, 0, NULL);
    at->evaluated = json_is_true(json_object_get(since ? since : meta, "evaluated"));
    tern_train_guard_load(&at->guard, json_object_get(meta, "guard"));
    tern_train_stop_load(&at->stop_rule, json_object_get(since ? since : meta, "stop"));
    json_decref(since);
    snprintf(t->checkpoint.digest, sizeof t->checkpoint.digest, "%s", tern_ckpt_digest(s.ckpt));
    at->ended = json_is_string(json_object_get(meta, "ended")) && /* of less patience, perhaps */
                tern_train_stop_is_over(&at->stop_rule);
    t->checkpoint.resumed_from = tern_strdup(path);
    free(t->checkpoint.files_dir); /* of one that was brought from the nodes */
    t->checkpoint.files_dir = tern_strdup(path);
    rc = 0;
out:
    tern_progress_end();
    tern_infer_close(&s);
    return rc;
}

/* The run whose checkpoint the weights are from. */
static void record_parent(const struct train *t, const struct tern_ckpt *c)
{
    const char *run = json_string_value(json_object_get(tern_ckpt_meta(c), "run"));
    char step[24];

    if (t->rank != 0 || !run || !tern_ledger_ulid_valid(run))
        return;
    snprintf(step, sizeof step, "%" PRIu64, tern_ckpt_step(c));
    tern_ledger_spool_param(t->spool, TERN_LEDGER_PARENT_RUN, run, NULL);
    tern_ledger_spool_param(t->spool, TERN_LEDGER_PARENT_STEP, step, NULL);
}

/* Begin from the recipe's model: weights of the folder `from`, or random ones. */
int tern_train_begin(struct train *t, const char *from, struct tern_err *err)
{
    const struct tern_recipe *r = t->recipe;
    struct tern_infer_source s = {0};
    struct tern_model_config config;

    if (!from) {
        if (tern_model_config_load(r->model.config, &config, err) < 0 ||
            make_model(t, &config, err) < 0)
            return -1;
        tern_llama_init(t->model, (uint64_t)r->data.seed, r->model.init_std);
        tern_llama_adapters_init(t->model);
        copy_master(t);
        return 0;
    }
    if (tern_infer_open(from, &s, err) < 0)
        return -1;
    int rc = make_model(t, &s.config, err);
    if (rc == 0)
        rc = read_weights(t, &s, false, err);
    if (rc == 0)
        tern_llama_adapters_init(t->model);
    if (rc == 0 && r->model.optimizer == TERN_OPTIMIZER_KEEP) {
        if (s.adapters.rank) { /* to keep them for new ones is refused before */
            rc = tern_recipe_fail(r, "model.optimizer", err,
                                  "'keep', but %s has optimizer state of adapters alone. Say "
                                  "'reset'.",
                                  from);
        } else if (tern_ckpt_is_ours(tern_ckpt_path(s.ckpt))) {
            rc = read_moments(t, &s, err);
            t->progress.updates =
                meta_count(tern_ckpt_meta(s.ckpt), "optimizer_step", tern_ckpt_step(s.ckpt));
        } else {
            rc = tern_recipe_fail(r, "model.optimizer", err,
                                  "'keep', but %s has no optimizer state. Say 'reset'.", from);
        }
    }
    t->checkpoint.files_dir = tern_strdup(tern_ckpt_path(s.ckpt));
    if (rc == 0)
        record_parent(t, s.ckpt);
    tern_progress_end();
    tern_infer_close(&s);
    return rc;
}
