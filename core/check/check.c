#include "core/check/check.h"

#include "core/base/again.h"
#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/check/workload.h"
#include "core/ckpt/ckpt.h"
#include "core/convert/convert.h"
#include "core/env/env.h"
#include "core/inputs/inputs.h"
#include "core/model/model.h"
#include "core/plan/plan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool has_moments(const char *dir)
{
    char *manifest = tern_fs_join(dir, "manifest.json");
    bool there = tern_fs_exists(manifest);

    free(manifest);
    return there;
}

/* Are all its files there, and as long as their headers say?  Their contents are not read. */
static int check_weights(const char *dir, struct tern_err *err)
{
    struct tern_ckpt *c =
        tern_ckpt_is_ours(dir) ? tern_ckpt_open(dir, err) : tern_convert_open(dir, NULL, err);

    tern_ckpt_close(c);
    return c ? 0 : -1;
}

/* 1 when there is a model and `config` is set, 0 when it may still come. */
static int check_model(const struct tern_recipe *r, bool submission,
                       struct tern_model_config *config, struct tern_err *err)
{
    const char *from = r->model.from;

    if (!from)
        return tern_model_config_load(r->model.config, config, err) < 0
                   ? tern_inputs_at_line(r, "model.config", err)
                   : 1;
    if (tern_ckpt_is_word(from))
        return 0; /* which step that is turns up when it starts */
    if (!tern_fs_exists(from)) {
        if (submission && r->model.pending)
            return 0;
        return tern_recipe_fail(r, "model.from", err,
                                "'%s' does not exist. If a job that this one waits for makes it, "
                                "say 'pending: true'.",
                                from);
    }
    if (r->workload.command) { /* its weights are its own business */
        if (!tern_convert_has_config(from))
            return 0;
    }
    if (!r->workload.command && check_weights(from, err) < 0)
        return tern_inputs_at_line(r, "model.from", err);
    if (r->model.optimizer == TERN_OPTIMIZER_KEEP && !r->workload.command && !has_moments(from))
        return tern_recipe_fail(r, "model.optimizer", err,
                                "'keep', but %s is no checkpoint of tern's and has no optimizer "
                                "state. Say 'reset'.",
                                from);
    return tern_convert_config(from, config, err) < 0 ? tern_inputs_at_line(r, "model.from", err)
                                                      : 1;
}

/* The run may be shortened for a try, so this is a warning and no refusal. */
static void warn_of_stages(const struct tern_recipe *r)
{
    for (size_t k = 0; k < r->data.n_stages; k++) {
        const struct tern_recipe_stage *s = &r->data.stages[k];
        const bool run = k + 1 == r->data.n_stages || s->until == r->steps;
        if (s->exhausted)
            tern_warn("%s: %s: %" PRId64 " steps asked, but %s is exhausted at step %" PRId64
                      " (%" PRId64 " epoch%s): the %s ends there",
                      r->path, s->key, s->asked, s->exhausted->path, run ? r->steps : s->until,
                      s->exhausted->epochs, s->exhausted->epochs == 1 ? "" : "s",
                      run ? "run" : "stage");
    }
    for (size_t k = 0; r->steps && k + 1 < r->data.n_stages; k++)
        if (r->data.stages[k].until >= r->steps && !r->data.stages[k].exhausted)
            tern_warn("%s: %s: this stage begins after step %" PRId64 ", and the run has %" PRId64,
                      r->path, r->data.stages[k + 1].key, r->data.stages[k].until, r->steps);
}

/* Records of a template, chats among them, share rows and see each other: seldom what is meant. */
static void warn_of_records(const struct tern_recipe *r)
{
    if (r->workload.command || r->data.isolate || r->data.packing == TERN_PACKING_PADDED)
        return;
    for (size_t k = 0; k < r->data.n_stages; k++) {
        const struct tern_recipe_stage *s = &r->data.stages[k];
        for (size_t i = 0; i < s->train.n; i++) {
            char *template = tern_inputs_template(s->train.sets[i].path);
            struct tern_err e = {0};
            if (!template)
                continue;
            tern_str_mask(template);
            tern_recipe_fail(r, s->key, &e,
                             "%s: its documents are records of template %.40s, and several share a "
                             "row: an answer sees the records before its own. data.isolate: true "
                             "parts them; so does data.packing: padded.",
                             s->train.sets[i].path, template);
            free(template);
            tern_warn("%s", e.text);
            return; /* one is enough */
        }
    }
}

/* Can it be made, or written to if it is there?  The nearest folder above that exists decides. */
static int check_folder(const struct tern_recipe *r, const char *key, const char *dir,
                        struct tern_err *err)
{
    char *at = tern_strdup(dir);

    while (!tern_fs_exists(at)) {
        char *up = tern_fs_dirname(at);
        free(at);
        at = up;
    }
    bool writable = TERN_AGAIN(access(at, W_OK | X_OK)) == 0;
    free(at);
    if (!writable)
        return tern_recipe_fail(r, key, err, "'%s' is not writable for you.", dir);
    return 0;
}

/* Processes of a node that hold a part of the model each. */
static int64_t ranks_per_node(const struct tern_recipe *r)
{
    return r->workload.command ? r->workload.workers_per_node : r->launch.ranks_per_node;
}

int64_t tern_check_fewest_nodes(const struct tern_recipe *r)
{
    const int64_t degrees = r->parallel.tensor * r->parallel.pipeline;
    int64_t a = degrees, b = ranks_per_node(r);

    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return degrees / a;
}

/* How many nodes there will be is not known.  Is there a number that works?  If one does, the
 * fewest does, too: its data-parallel ranks divide those of any other. */
static int check_any_nodes(const struct tern_recipe *r, const struct tern_check_options *options,
                           struct tern_err *err)
{
    const int64_t per_node = ranks_per_node(r), spares = r->launch.spares;
    const int64_t degrees = r->parallel.tensor * r->parallel.pipeline;
    const int64_t fewest = tern_check_fewest_nodes(r), data = fewest * per_node / degrees;

    if (options->cluster_nodes && fewest + spares > options->cluster_nodes)
        return tern_recipe_fail(
            r, fewest > options->cluster_nodes ? "parallel" : "launch.spares", err,
            "tensor x pipeline (%" PRId64 ") and %" PRId64 " rank%s a node need %" PRId64
            " nodes or a multiple, with "
            "%" PRId64 " in reserve; the cluster has %" PRId64 ".",
            degrees, per_node, per_node == 1 ? "" : "s", fewest, spares, options->cluster_nodes);
    if (r->batch.global && r->batch.global % (data * r->batch.micro))
        return tern_recipe_fail(r, "batch.global", err,
                                "%" PRId64 " sequences divide over no number of nodes: with "
                                "%" PRId64 " rank%s a node and tensor x pipeline (%" PRId64
                                ") the data-parallel ranks are a multiple of %" PRId64
                                "; times batch.micro, use a multiple of %" PRId64 ".",
                                r->batch.global, per_node, per_node == 1 ? "" : "s", degrees, data,
                                data * r->batch.micro);
    return 0;
}

/* A tensor group communicates in every layer: it fills nodes, or such groups fill a node. */
static int check_degrees(const struct tern_recipe *r, const struct tern_check_options *options,
                         struct tern_err *err)
{
    int64_t tensor = r->parallel.tensor, per_node = ranks_per_node(r);
    int64_t data_ranks, micro_batches;

    if (per_node % tensor && tensor % per_node)
        return tern_recipe_fail(r, "parallel.tensor", err,
                                "groups of %" PRId64 " ranks do not fit nodes of %" PRId64
                                ": one must divide the other.",
                                tensor, per_node);
    const int64_t ranks = options->ranks;
    if (!ranks)
        return check_any_nodes(r, options, err);
    if (r->batch.global)
        return tern_recipe_split(r, ranks, &data_ranks, &micro_batches, err);
    if (ranks % (tensor * r->parallel.pipeline))
        return tern_recipe_fail(r, "parallel", err,
                                "%" PRId64 " ranks are not a multiple of tensor x pipeline "
                                "(%" PRId64 ").",
                                ranks, tensor * r->parallel.pipeline);
    return 0;
}

/* Can the model be cut by the degrees?  Other trainers may pad. */
static int check_cuts(const struct tern_recipe *r, const struct tern_model_config *c,
                      struct tern_err *err)
{
    const int64_t tensor = r->parallel.tensor;
    const int64_t groups = r->parallel.pipeline * r->parallel.interleave;

    if (r->workload.command)
        return 0;
    if (c->heads % tensor)
        return tern_recipe_fail(r, "parallel.tensor", err,
                                "%d attention heads do not divide over %" PRId64 " ranks.",
                                c->heads, tensor);
    if (c->kv_heads % tensor && tensor % c->kv_heads)
        return tern_recipe_fail(r, "parallel.tensor", err,
                                "%d key and value heads neither divide over %" PRId64
                                " ranks nor does a whole number of ranks share each.",
                                c->kv_heads, tensor);
    if (c->layers < groups)
        return tern_recipe_fail(r, "parallel.pipeline", err,
                                "%d layers for %" PRId64
                                " groups (pipeline x interleave): some would have none.",
                                c->layers, groups);
    return 0;
}

static int too_much(const struct tern_recipe *r, const struct tern_check_options *options,
                    const struct tern_plan_memory *m, struct tern_err *err)
{
    char each[32], all[32], room[32], parts[5][32], many[180] = "the largest node";
    const uint64_t have = options->node_memory;
    const int64_t n = r->launch.ranks_per_node;
    const bool staging = (m->total - m->staging) * (uint64_t)n <= have;

    const char *in = options->partition[0] ? "partition " : "one queue";
    if (options->larger)
        snprintf(many, sizeof many, "of %" PRId64 " nodes in %s%s the smallest",
                 (options->nodes ? options->nodes : tern_check_fewest_nodes(r)) + r->launch.spares,
                 in, options->partition);
    else if (options->partition[0])
        snprintf(many, sizeof many, "the largest node of partition %s", options->partition);
    return tern_recipe_fail(
        r, staging ? "checkpoint" : "model", err,
        "%" PRId64 " %s of %s (parameters %s, gradients %s, optimizer %s, activations %s, a copy "
        "to save %s) need %s, and %s has %s. %s%s",
        n, n == 1 ? "rank" : "ranks a node", tern_str_bytes(each, sizeof each, m->total),
        tern_str_bytes(parts[0], sizeof parts[0], m->params),
        tern_str_bytes(parts[1], sizeof parts[1], m->grads),
        tern_str_bytes(parts[2], sizeof parts[2], m->moments),
        tern_str_bytes(parts[3], sizeof parts[3], m->activations),
        tern_str_bytes(parts[4], sizeof parts[4], m->staging),
        tern_str_bytes(all, sizeof all, m->total * (uint64_t)n),
        options->here ? "this machine" : many, tern_str_bytes(room, sizeof room, have),
        staging ? "Say checkpoint.async: false: training then waits for each checkpoint."
                : "Take fewer ranks a node, a smaller batch.micro or seq_len, or higher parallel "
                  "degrees.",
        options->here ? " `tern run --check -c cluster.yaml` judges by a cluster's nodes." : "");
}

/* By an estimate of another trainer's memory: a warning, no refusal. */
static void warn_of_device(const struct tern_recipe *r, const struct tern_plan_memory *m,
                           uint64_t have)
{
    char all[32], room[32], parts[4][32];
    struct tern_err e = {0};

    tern_recipe_fail(
        r, "model", &e,
        "a worker usually needs about %s (bf16 weights %s, fp32 gradients %s, optimizer %s, "
        "activations with selective recomputation %s), and a NeuronCore has %s. If it runs out of "
        "memory: recompute more, a smaller batch.micro, or higher parallel degrees.",
        tern_str_bytes(all, sizeof all, m->total),
        tern_str_bytes(parts[0], sizeof parts[0], m->params),
        tern_str_bytes(parts[1], sizeof parts[1], m->grads),
        tern_str_bytes(parts[2], sizeof parts[2], m->moments),
        tern_str_bytes(parts[3], sizeof parts[3], m->activations),
        tern_str_bytes(room, sizeof room, have));
    tern_warn("%s", e.text);
}

static int check_device(const struct tern_recipe *r, const struct tern_check_options *options,
                        const struct tern_model_config *config, struct tern_err *err)
{
    char each[32], room[32];
    struct tern_plan_memory m;
    uint64_t have = options->device_memory;

    tern_plan_device(r, config, options->ranks / (r->parallel.tensor * r->parallel.pipeline), &m);
    if (m.params > have)
        return tern_recipe_fail(r, "model", err,
                                "a worker's weights alone are %s in bf16, and a NeuronCore has %s. "
                                "Take higher parallel degrees.",
                                tern_str_bytes(each, sizeof each, m.params),
                                tern_str_bytes(room, sizeof room, have));
    if (m.total > have)
        warn_of_device(r, &m, have);
    return 0;
}

/* With ZeRO-1 more data-parallel ranks need less each: where the nodes are not counted yet, as many
 * as the batch and the cluster allow. */
static int64_t data_ranks(const struct tern_recipe *r, const struct tern_check_options *options)
{
    const int64_t n = r->launch.ranks_per_node, group = r->parallel.tensor * r->parallel.pipeline;
    const int64_t ranks = options->ranks ? options->ranks : n;
    int64_t data = ranks % group ? 1 : ranks / group;

    if (options->ranks || !r->parallel.zero)
        return data;
    int64_t groups = r->parallel.interleave > 1 ? r->parallel.pipeline : 1;
    int64_t most = r->batch.global / r->batch.micro / groups;
    if (options->cluster_nodes && options->cluster_nodes * n / group < most)
        most = options->cluster_nodes * n / group;
    while (most > data && r->batch.global % (most * r->batch.micro * groups))
        most--;
    return most > data ? most : data;
}

static int check_memory(const struct tern_recipe *r, const struct tern_check_options *options,
                        const struct tern_model_config *config, struct tern_err *err)
{
    struct tern_plan_memory m;
    int64_t n = r->launch.ranks_per_node;

    if (!r->workload.command) {
        if (tern_plan_host(r, config, data_ranks(r, options), &m, err) < 0)
            return -1;
        if (options->node_memory && m.total > options->node_memory / (uint64_t)n)
            return too_much(r, options, &m, err);
        return 0;
    }
    return options->device_memory ? check_device(r, options, config, err) : 0;
}

int tern_check_fits(const struct tern_recipe *r, const struct tern_check_options *options,
                    const struct tern_model_config *config, struct tern_err *err)
{
    if (tern_plan_check_positions(r, config, err) < 0 || check_cuts(r, config, err) < 0 ||
        check_degrees(r, options, err) < 0)
        return -1;
    return check_memory(r, options, config, err);
}

/* The profile may be the recipe's or the site's. */
static int check_profile(const struct tern_recipe *r, struct tern_err *err)
{
    const struct tern_env_facts none = {.nodes = 1, .tasks_per_node = 1, .workers = 1};
    char why[400];

    if (!r->launch.profile || tern_env_resolve(r->launch.profile, &none, why, sizeof why, err))
        return 0;
    return tern_recipe_given(r, "launch.profile")
               ? tern_inputs_at_line(r, "launch.profile", err)
               : tern_err_prefix(err, "site settings: launch.profile");
}

int tern_check_recipe(const struct tern_recipe *r, const struct tern_check_options *options,
                      struct tern_err *err)
{
    struct tern_inputs_vocabulary v = {0};

    if (check_profile(r, err) < 0)
        return -1;
    if (r->ledger.dir && check_folder(r, "ledger.dir", r->ledger.dir, err) < 0)
        return -1;
    if (r->checkpoint.dir && check_folder(r, "checkpoint.dir", r->checkpoint.dir, err) < 0)
        return -1;
    if (r->model.from || r->model.config) {
        int have = check_model(r, options->submission, &v.config, err);
        if (have < 0 || tern_inputs_vocabulary_find(r, &v, err) < 0)
            return -1;
        v.have_config = have > 0;
    }
    if (v.have_config &&
        (tern_plan_check_positions(r, &v.config, err) < 0 || check_cuts(r, &v.config, err) < 0))
        return -1;
    warn_of_stages(r);
    if (tern_inputs_vocabulary_compare(r, &v, err) < 0 || check_degrees(r, options, err) < 0 ||
        tern_check_workload(r, options, err) < 0)
        return -1;
    warn_of_records(r);
    return v.have_config ? check_memory(r, options, &v.config, err) : 0;
}
