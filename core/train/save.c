/* What a checkpoint of a training run holds, and its record. */
#include "core/train/state.h"

#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/str.h"

#include <stdlib.h>
#include <string.h>

static int barrier(void *ctx, struct tern_err *err)
{
    return tern_fabric_barrier(((struct train *)ctx)->world, err);
}

static int all_gather(void *ctx, const void *in, void *out, size_t bytes_per_rank,
                      struct tern_err *err)
{
    struct train *t = ctx;
    int rc = tern_fabric_all_gather(t->world, in, out, bytes_per_rank, TERN_U8, err);

    t->checkpoint.met = rc == 0;
    return rc;
}

/* Rows [from, from + rows) of a part, which begin at `data`, of type TRAIN_REAL or TERN_BF16. */
static struct tern_ckpt_array slice(const struct tern_model_part *p, int64_t from, int64_t rows,
                                    const char *prefix, enum tern_type type, const void *data)
{
    struct tern_ckpt_array a = {
        .name = tern_strf("%s%s", prefix, p->whole.name),
        .type = type == TERN_BF16  ? TERN_CKPT_BF16
                : type == TERN_F64 ? TERN_CKPT_F64
                                   : TERN_CKPT_F32,
        .ndim = p->whole.ndim,
        .data = data,
        .owner = true,
    };

    for (int d = 0; d < p->whole.ndim; d++) {
        a.global[d] = (uint64_t)p->whole.shape[d];
        a.start[d] = (uint64_t)p->start[d];
        a.shape[d] = (uint64_t)p->shape[d];
    }
    a.start[0] += (uint64_t)from;
    a.shape[0] = (uint64_t)rows;
    return a;
}

/* Of what is trained, and its moments: each row is one rank's.  Returns how many; names are
 * malloc'ed. */
static size_t trained(const struct train *t, struct tern_ckpt_array *arrays)
{
    const struct tern_model_shard *s = tern_llama_trained(t->model);
    const char *prefix = tern_llama_adapters(t->model) ? "lora/" : "model/";
    size_t n = 0;

    for (size_t i = 0; i < s->n_parts; i++) {
        const struct tern_model_part *p = &s->parts[i];
        struct train_rows w;
        if (!p->owner || !tern_train_find_rows(t, i, true, &w))
            continue;
        enum tern_type type;
        const void *params = tern_train_params_at(&t->weights, w.offset, &type);
        const struct {
            const char *prefix;
            const tern_real *data;
        } state[] = {{"master/", t->optimizer.master},
                     {"exp_avg/", t->optimizer.exp_avg},
                     {"exp_avg_sq/", t->optimizer.exp_avg_sq}};
        arrays[n++] = slice(p, w.from, w.rows, prefix, type, params);
        for (size_t k = 0; k < sizeof state / sizeof *state; k++)
            if (state[k].data)
                arrays[n++] =
                    slice(p, w.from, w.rows, state[k].prefix, TRAIN_REAL, state[k].data + w.state);
    }
    return n;
}

/* The weights that adapters stand beside.  Not by the names of a whole model: a reader that knows
 * nothing of adapters would take them for the trained model. */
static size_t frozen(const struct train *t, struct tern_ckpt_array *arrays)
{
    const struct tern_model_shard *s = tern_llama_shard(t->model);
    const tern_real *params = tern_llama_params(t->model, NULL);
    const uint16_t *half = tern_llama_params_bf16(t->model, NULL);
    size_t n = 0;

    for (size_t i = 0; i < s->n_parts && tern_llama_adapters(t->model); i++) {
        const struct tern_model_part *p = &s->parts[i];
        int64_t from = p->shape[0] * t->me.data_rank / t->me.data;
        int64_t to = p->shape[0] * (t->me.data_rank + 1) / t->me.data;
        uint64_t at = p->offset + (uint64_t)(from * p->shape[1]);
        if (!p->owner || to <= from)
            continue;
        arrays[n] = slice(p, from, to - from, "base/", half ? TERN_BF16 : TRAIN_REAL,
                          half ? (const void *)(half + at) : params + at);
        arrays[n++].constant = true;
    }
    return n;
}

size_t tern_train_most_arrays(const struct train *t)
{
    return 4 * tern_llama_trained(t->model)->n_parts + tern_llama_shard(t->model)->n_parts;
}

size_t tern_train_arrays(const struct train *t, struct tern_ckpt_array *arrays)
{
    size_t n = trained(t, arrays);

    return n + frozen(t, arrays + n);
}

/* The run's token sets, {path: digest}. */
static json_t *data(const struct train *t)
{
    json_t *sets = json_object();

    for (size_t i = 0; i < tern_data_stages_n(t->sets.stages); i++) {
        const struct tern_data_mix *m = tern_data_stages_mix(t->sets.stages, i);
        for (size_t k = 0; k < tern_data_mix_n_sources(m); k++) {
            uint8_t digest[TERN_SHA256_BYTES];
            char hex[TERN_SHA256_HEX];
            tern_data_set_digest(tern_data_mix_set(m, k), digest);
            json_object_set_new(sets, tern_data_set_path(tern_data_mix_set(m, k)),
                                json_string(tern_hex(hex, digest, sizeof digest)));
        }
    }
    return sets;
}

static json_t *layout(const struct train *t)
{
    const struct tern_recipe *r = t->recipe;

    return json_pack("{s:i, s:i, s:i, s:i, s:i, s:b, s:i}", "world", t->size, "data", t->me.data,
                     "tensor", (int)r->parallel.tensor, "pipeline", (int)r->parallel.pipeline,
                     "interleave", (int)r->parallel.interleave, "sequence", r->parallel.sequence,
                     "zero", (int)r->parallel.zero);
}

/* What tern_convert_adapters and an export want to know of adapters. */
static json_t *adapters(const struct train *t)
{
    const struct tern_model_adapters *a = tern_llama_adapters(t->model);
    const struct tern_recipe *r = t->recipe;

    return a ? json_pack("{s:i, s:i, s:f, s:b, s:f, s:f, s:b, s:s?}", "rank", a->rank, "targets",
                         (int)a->targets, "scale", a->scale, "dora", a->dora, "alpha",
                         r->lora.alpha, "dropout", a->dropout, "rslora", r->lora.rslora, "base",
                         r->model.from)
             : json_null();
}

static json_t *describe(const struct train *t)
{
    const struct train_progress *at = &t->progress;
    const struct tern_recipe *r = t->recipe;
    char identity[TERN_SHA256_HEX], full[TERN_SHA256_HEX];
    bool half = r->precision == TERN_PRECISION_BF16;
    char *config =
        tern_model_config_json(tern_llama_config(t->model), half ? "bfloat16" : "float32");
    const char *tokenizer = r->model.tokenizer ? r->model.tokenizer : r->model.from;

    tern_recipe_hashes(r, identity, full);
    json_t *meta = json_pack(
        "{s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:b, s:I, s:o, s:o, s:s, s:s, s:s, s:i, s:o, s:s, "
        "s:o, "
        "s:o, s:o, s:o, s:I, s:O?, s:s?}",
        "run", t->run_id, "name", r->name, "identity_hash", identity, "full_hash", full, "step",
        (json_int_t)at->step, "sample", (json_int_t)at->sample, "optimizer_step",
        (json_int_t)at->updates, "evaluated", at->evaluated, "seed", (json_int_t)r->data.seed,
        "layout", layout(t), "lora", adapters(t), "kernels", tern_tensor_kernels(), "blas",
        tern_tensor_blas(), "core", tern_tensor_core(), "threads", tern_tensor_threads(), "config",
        json_loads(config, 0, NULL), "tokenizer", tokenizer ? tokenizer : "", "guard",
        tern_train_guard_save(&at->guard), "stop", tern_train_stop_save(&at->stop_rule), "ended",
        at->ended ? tern_train_stop_describe(&at->stop_rule) : json_null(), "data", data(t),
        "steps", (json_int_t)r->steps, "model", t->checkpoint.model, "model_from", r->model.from);
    free(config);
    return meta;
}

/* The small files that make a checkpoint complete on its own. They are those of the folder that the
 * weights came from, or config.json for random weights. The tokenizer's are among them, unless that
 * folder had one. Meta's folders have no config.json: it is checkpoint.config.  In the save's
 * thread: a flush changes files_dir meanwhile. */
static size_t find_files(void *ctx, struct tern_ckpt_file *files)
{
    const struct train *t = ctx;
    const struct tern_recipe *r = t->recipe;
    struct tern_ckpt_file more[TERN_CKPT_COMPANIONS];
    size_t n =
        t->checkpoint.saving_files ? tern_ckpt_companions(t->checkpoint.saving_files, files) : 0;

    if (!t->checkpoint.saving_files)
        files[n++] =
            (struct tern_ckpt_file){.name = "config.json", .path = tern_strdup(r->model.config)};
    size_t k = 0;
    while (k < n && strcmp(files[k].name, "config.json") != 0)
        k++;
    if (k == n)
        files[n++] = (struct tern_ckpt_file){.name = "config.json", .text = t->checkpoint.config};
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

/* Of a save: its bytes and seconds, of its step.  A flush has not stalled training, and a local
 * save is not where its bytes are counted. */
static void record_values(struct train *t, const struct tern_ckpt_saved *saved,
                          enum train_saved where)
{
    const double write = saved->write_seconds > 0 ? saved->write_seconds : 1e-9;
    const struct tern_ledger_value values[] = {
        {"checkpoint_bytes", (double)saved->bytes},
        {"checkpoint_bytes_per_second", (double)saved->bytes / write},
        {"checkpoint_write_seconds", saved->write_seconds},
        {"checkpoint_copy_seconds", saved->copy_seconds},
        {"checkpoint_stall_seconds", (double)t->checkpoint.stall_ns * 1e-9},
        {"checkpoint_local_seconds", saved->write_seconds},
    };
    const size_t from = where == TRAIN_LOCAL ? 3 : 0;
    const size_t to = where == TRAIN_LOCAL ? 6 : where == TRAIN_FLUSHED ? 3 : 5;
    const uint64_t step =
        where == TRAIN_LOCAL ? t->checkpoint.saving_step : t->checkpoint.publishing_step;
    struct tern_err err;

    if (tern_ledger_spool_step(t->spool, (int64_t)step, values + from, to - from, &err) < 0)
        tern_warn("%s", err.text);
}

static int record(struct train *t, const struct tern_ledger_checkpoint *row)
{
    struct tern_err err;
    const int rc = tern_ledger_spool_checkpoint(t->spool, row, &err);

    if (rc < 0)
        tern_warn("%s", err.text);
    return rc == 0 ? 0 : -1;
}

/* ------------------------------------------------------------------ in the save's thread */

static void record_state(struct train *t, const struct tern_ckpt_saved *saved, const char *state)
{
    const struct tern_ledger_checkpoint row = {
        .step = (int64_t)t->checkpoint.publishing_step,
        .path = saved->path,
        .bytes = (int64_t)saved->bytes,
        .shards = saved->shards,
        .manifest_sha256 = saved->digest,
        .state = state,
    };
    struct tern_err err;

    if (record(t, &row) == 0 && tern_ledger_spool_sync(t->spool, &err) < 0)
        tern_warn("%s", err.text);
}

/* Paths of checkpoints that go. */
struct going {
    char **paths; /* [n] */
    size_t n;
};

static void note_going(void *ctx, const char *path, enum tern_ckpt_state state)
{
    struct going *g = ctx;
    char **more = state == TERN_CKPT_GOOD ? realloc(g->paths, (g->n + 1) * sizeof *g->paths) : NULL;

    if (!more)
        return;
    g->paths = more;
    g->paths[g->n++] = tern_strdup(path);
}

/* Make room, and record what is deleted.  A failure costs disk, not the run. */
static void prune(struct train *t)
{
    const struct tern_recipe *r = t->recipe;
    struct going going = {0};
    const struct tern_ckpt_prune_how how = {.keep = (unsigned)r->checkpoint.keep,
                                            .keep_every = (uint64_t)r->checkpoint.keep_every,
                                            .best = t->checkpoint.publishing_best,
                                            .kept = t->checkpoint.publishing_files,
                                            .lease = t->checkpoint.lease,
                                            .each = note_going,
                                            .ctx = &going};
    struct tern_err err;

    if (tern_ckpt_prune(r->checkpoint.dir, &how, /* removed= */ NULL, &err) < 0)
        tern_warn("old checkpoints stay: %s", err.text);
    for (size_t i = 0; i < going.n; i++) {
        const char *step = strrchr(going.paths[i], '-'); /* step-00001500 */
        const struct tern_ledger_checkpoint row = {.step = step ? strtoll(step + 1, NULL, 10) : -1,
                                                   .path = going.paths[i],
                                                   .state = "deleted"};
        if (!tern_fs_exists(going.paths[i]))
            record(t, &row);
        free(going.paths[i]);
    }
    free(going.paths);
}

/* Its row is there before it counts, and says so afterwards.  Rank 0. */
void tern_train_follow_save(void *ctx, enum tern_ckpt_word word,
                            const struct tern_ckpt_saved *saved)
{
    struct train *t = ctx;

    switch (word) {
    case TERN_CKPT_WRITTEN:
        record_state(t, saved, "writing");
        break;
    case TERN_CKPT_REFUSED: /* another attempt's checkpoint may have the name */
        if (!tern_fs_exists(saved->path))
            record_state(t, saved, "failed");
        break;
    case TERN_CKPT_PUBLISHED:
        t->checkpoint.published = true;
        record_state(t, saved, "published");
        prune(t);
        break;
    }
}

/* ------------------------------------------------------------------ beside it */

struct tern_ckpt_peers tern_train_save_peers(struct train *t)
{
    return (struct tern_ckpt_peers){t->rank, t->size, t, barrier, all_gather};
}

void tern_train_begin_publishing(struct train_checkpoint *c, uint64_t step, int64_t best)
{
    const bool beside = c->saving && c->saving_local && c->saving_files;

    c->publishing_step = step;
    c->publishing_best = best;
    c->published = false;
    free(c->publishing_files);
    c->publishing_files = beside ? tern_strdup(c->saving_files) : NULL;
}

int tern_train_begin_save(struct train *t, struct tern_ckpt_staging *staging, struct tern_err *err)
{
    const struct tern_ckpt_peers peers = tern_train_save_peers(t);
    const bool local = tern_train_local_is_used(t);
    struct tern_ckpt_array *arrays =
        tern_alloc(tern_train_most_arrays(t), sizeof *arrays, "a checkpoint", err);
    struct train_checkpoint *c = &t->checkpoint;
    size_t n = 0;

    int rc = tern_train_agree(t, arrays ? 0 : -1, err);
    if (rc == 0 && !local)
        rc = tern_train_local_give_way(t, err);
    if (rc < 0)
        goto out;
    n = tern_train_arrays(t, arrays);
    if (t->rank == 0 && !c->config)
        c->config = tern_model_config_json(tern_llama_config(t->model), "float32");
    json_t *meta = t->rank == 0 ? describe(t) : NULL;
    struct tern_ckpt_save_options options = {
        .dir = local ? t->checkpoint.local.dir : t->recipe->checkpoint.dir,
        .local = local,
        .node = local ? tern_fabric_node(t->options->fabric) : 0,
        .step = t->progress.step,
        .arrays = arrays,
        .n = n,
        .meta = meta,
        .find_files = find_files,
        .peers = &peers,
        .lease = c->lease,
        .tell = tern_train_follow_save,
        .ctx = t,
    };
    options.kept[0] = c->local.flush ? (uint64_t)c->local.done : 0;
    options.kept[1] = c->local.step > 0 ? (uint64_t)c->local.step : 0;
    options.kept[2] = c->local.first > c->local.done ? (uint64_t)c->local.first : 0;
    tern_train_partner_keeps(t, options.kept + 3);
    c->saving_step = t->progress.step;
    c->saving_best = t->progress.stop_rule.best_step;
    c->saving_local = local;
    free(c->saving_files);
    c->saving_files = c->files_dir ? tern_strdup(c->files_dir) : NULL;
    if (!local)
        tern_train_begin_publishing(c, c->saving_step, c->saving_best);
    rc = tern_ckpt_save_begin(&options, staging, &c->saving, err);
    json_decref(meta);
    if (rc == 0 && t->rank == 0)
        tern_train_record_mix(t);
out:
    for (size_t i = 0; i < n; i++)
        free((char *)arrays[i].name);
    free(arrays);
    return rc;
}

void tern_train_record_save(struct train *t, const struct tern_ckpt_saved *saved,
                            enum train_saved where)
{
    tern_train_note_save(t, saved->write_seconds);
    if (t->rank == 0)
        record_values(t, saved, where);
    if (where == TRAIN_LOCAL)
        return;
    t->checkpoint.failed = 0;
    t->checkpoint.local.owed = false;
    free(t->checkpoint.files_dir);
    t->checkpoint.files_dir = tern_strdup(saved->path); /* the newest is never pruned */
    snprintf(t->checkpoint.digest, sizeof t->checkpoint.digest, "%s", saved->digest);
}

void tern_train_save_evaluated(const struct train *t)
{
    struct tern_err err;

    if (t->rank != 0 || !t->progress.evaluated || !t->checkpoint.digest[0])
        return;
    json_t *after = json_pack("{s:b, s:o}", "evaluated", 1, "stop",
                              tern_train_stop_save(&t->progress.stop_rule));
    if (tern_ckpt_lease_check(t->checkpoint.lease, &err) < 0 ||
        tern_ckpt_after_write(t->recipe->checkpoint.dir, t->checkpoint.digest, after, &err) < 0)
        tern_warn("the next attempt of this run evaluates this step once more: %s", err.text);
    json_decref(after);
}
