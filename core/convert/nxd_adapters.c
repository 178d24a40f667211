/* Adapters (LoRA) on Optimum Neuron's ranks, in. */
#include "core/convert/nxd_adapters.h"

#include "core/base/again.h"
#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/str.h"
#include "core/convert/nxd_pieces.h"
#include "core/convert/nxd_specs.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#define SHARDS "adapter_shards"

enum {
    CONFIG_MAX = 1 << 20,
    META_MAX = 64 << 20, /* 200 bytes a parameter, 300,000 parameters */
};

/* ------------------------------------------------------------------ which folder */

static bool has_shards(const char *dir)
{
    char *path = tern_fs_join(dir, SHARDS "/model");
    bool is = tern_fs_exists(path);

    free(path);
    return is;
}

/* Is a whole model beside them? */
static bool has_model(const char *dir)
{
    char *path = tern_fs_join(dir, "shards/model");
    bool is = tern_fs_exists(path);

    free(path);
    return is;
}

/* Folders below `dir` that have them: how many, and the first in *ret_dir. */
static size_t find_below(const char *dir, char **ret_dir, struct tern_buf *names)
{
    DIR *d = TERN_AGAIN_PTR(opendir(dir));
    size_t n = 0;

    for (struct dirent *e; d && (e = readdir(d));) {
        char *below = tern_fs_join(dir, e->d_name);
        if (e->d_name[0] != '.' && has_shards(below)) {
            if (n++ < 5)
                tern_buf_printf(names, "%s%s", n > 1 ? ", " : "", e->d_name);
            if (n == 1) {
                *ret_dir = below;
                continue;
            }
        }
        free(below);
    }
    if (d)
        closedir(d);
    return n;
}

int tern_convert_nxd_adapters_find(const char *path, char **ret_dir, struct tern_err *err)
{
    char *real = realpath(path, NULL), *dir = NULL;
    struct tern_buf names = {.max = 600};
    size_t n = 0;

    if (real && has_shards(real)) {
        n = 1;
        dir = tern_strdup(path);
    } else if (real && strcmp(tern_fs_basename(real), SHARDS) == 0) {
        dir = tern_fs_dirname(real);
        n = has_shards(dir);
    } else if (real && !has_model(real)) {
        n = find_below(path, &dir, &names);
    }
    if (n > 1)
        tern_err_set(err, TERN_USAGE, "%s: holds several adapters: %s. Give the folder of one.",
                     path, names.data);
    if (n == 1)
        *ret_dir = dir;
    else
        free(dir);
    tern_buf_free(&names);
    free(real);
    return n > 1 ? -1 : (int)n;
}

/* ------------------------------------------------------------------ arrays */

struct reader {
    const char *dir; /* the folder of adapter_shards */
    const char *name;
    struct tern_convert_nxd_ranks ranks;
    struct tern_convert_nxd_specs specs; /* of one pipeline rank */
    struct tern_convert_nxd_pieces pieces;
    json_t *known; /* {name: true}: what one of the pipeline ranks may hold */
    json_t *fused; /* of all pipeline ranks, see nxd_specs.h */
};

/* The shape of the array that the rule makes. */
static int shape_of(const struct reader *r, const struct tern_convert_nxd_rule *rule,
                    struct tern_model_tensor *ret_whole, struct tern_err *err)
{
    const struct tern_pytorch_tensor *t = r->ranks.found[0].t;
    const struct tern_model_config *c = &r->pieces.plan.config;
    struct tern_model_tensor whole = {.kind = rule->kind, .ndim = t->ndim};
    char shape[100];
    bool good = t->ndim >= 1 && t->ndim <= 2 && rule->axis < t->ndim;

    for (int d = 0; good && d < t->ndim; d++) {
        good = t->shape[d] > 0 && t->shape[d] <= INT32_MAX;
        whole.shape[d] = (int64_t)t->shape[d];
    }
    tern_convert_nxd_shape(shape, sizeof shape, t->ndim, t->shape);
    if (!good)
        return tern_err_set(err, TERN_USAGE, "%s: '%s' is %s, which is no adapter's", r->ranks.dir,
                            rule->from, shape);
    if (rule->all && whole.shape[rule->axis] != rule->all)
        return tern_err_set(err, TERN_USAGE,
                            "%s: '%s' is %s on each of %d tensor ranks, and the transformations of "
                            "Optimum Neuron imply %lld %s",
                            r->ranks.dir, rule->from, shape, r->ranks.tensor, (long long)rule->all,
                            rule->axis == 1 ? "columns" : "rows");
    if (rule->kind == TERN_MODEL_GATE || rule->kind == TERN_MODEL_DOWN)
        whole.shape[rule->axis] =
            (rule->count ? rule->count : whole.shape[rule->axis]) * r->ranks.tensor;
    else if (rule->axis >= 0)
        whole.shape[rule->axis] =
            (int64_t)c->head_dim *
            (rule->kind == TERN_MODEL_K || rule->kind == TERN_MODEL_V ? c->kv_heads : c->heads);
    snprintf(whole.name, sizeof whole.name, "%s", rule->to);
    *ret_whole = whole;
    return 0;
}

static int add_array(struct reader *r, const struct tern_convert_nxd_rule *rule,
                     struct tern_err *err)
{
    struct tern_model_tensor whole;
    int64_t base = rule->first;

    if (shape_of(r, rule, &whole, err) < 0)
        return -1;
    size_t n = tern_convert_nxd_pieces_find(&r->pieces, &r->ranks, &whole, rule->axis, &base);
    struct tern_ckpt_info info = {
        .name = rule->to, .type = r->ranks.found[0].t->type, .ndim = whole.ndim};
    for (int d = 0; d < whole.ndim; d++)
        info.shape[d] = (uint64_t)whole.shape[d];
    return tern_convert_foreign_array(&r->ranks.list, &info, r->pieces.at, n, err);
}

/* Every array that tensor `name` of the pipeline rank becomes part of. */
static int take(struct reader *r, int pipeline, const char *name, struct tern_err *err)
{
    const json_t *first = json_object_get(r->specs.first, name);

    if (!first) /* of another pipeline rank, as the rest will tell */
        return 0;
    const struct tern_convert_nxd_rule *rule = r->specs.rules + json_integer_value(first);
    const struct tern_convert_nxd_rule *end = r->specs.rules + r->specs.n;
    json_object_del(r->specs.wanted, name);
    json_object_set_new(r->known, name, json_true());
    if (tern_convert_nxd_ranks_find(&r->ranks, pipeline, name, rule->axis < 0, err) < 0)
        return -1;
    for (; rule < end && strcmp(rule->from, name) == 0; rule++)
        if (add_array(r, rule, err) < 0)
            return -1;
    return 0;
}

/* ------------------------------------------------------------------ pipeline ranks */

/* Of "sharded_metadata.NAME.partition_dim": NAME, malloc'ed; else NULL. */
static char *cut_name(const struct tern_pytorch_tensor *t)
{
    static const char before[] = "sharded_metadata.", behind[] = ".partition_dim";
    size_t len = strlen(t->name), least = strlen(before) + strlen(behind);

    return t->reference >= 0 && len > least && tern_str_starts(t->name, before) &&
                   tern_str_ends(t->name, behind)
               ? tern_strf("%.*s", (int)(len - least), t->name + strlen(before))
               : NULL;
}

/* Older releases wrote Python's pickle: the axes of what is cut are its numbers, and all else is
 * whole on each rank. */
static json_t *load_old_meta(const struct reader *r, const struct tern_convert_nxd_rank *k,
                             const char *path, struct tern_err *err)
{
    json_t *cut = json_object(), *heads = json_object();
    struct tern_pytorch_file f = {0};
    int rc = tern_pytorch_open_numbers(path, &f, err);

    for (size_t i = 0; i < f.n; i++) {
        char *name = cut_name(&f.tensors[i]);
        if (name)
            json_object_set_new(cut, name,
                                json_pack("{s:s, s:I}", "kind", "sharded", "partition_dim",
                                          (json_int_t)f.tensors[i].reference));
        if (strcmp(f.tensors[i].name, "gqa_qkv_metadata.num_attention_heads") == 0)
            json_object_set_new(heads, "num_attention_heads",
                                json_integer((json_int_t)f.tensors[i].reference));
        free(name);
    }
    if (rc == 0 && r->ranks.tensor > 1 && json_object_size(cut) == 0)
        rc = tern_err_set(err, TERN_USAGE,
                          "%s: does not tell how tensors are cut for %d ranks, as Optimum Neuron's "
                          "releases before 0.2 do in such a file",
                          path, r->ranks.tensor);
    for (size_t i = 0; rc == 0 && i < k->file.n; i++)
        if (!json_object_get(cut, k->file.tensors[i].name + k->skip))
            json_object_set_new(cut, k->file.tensors[i].name + k->skip,
                                json_pack("{s:s}", "kind", "tied"));
    tern_pytorch_free(&f);
    json_t *meta = json_pack("{s:o, s:o}", "sharded_metadata", cut, "gqa_qkv_metadata", heads);
    if (rc == 0)
        return meta;
    json_decref(meta);
    return NULL;
}

static json_t *load_meta(const struct reader *r, int pipeline, char **ret_path,
                         struct tern_err *err)
{
    const struct tern_convert_nxd_rank *k = &r->ranks.ranks[pipeline * r->ranks.tensor];
    char *path = tern_strf("%s/mp_metadata_pp_rank_%d.json", r->ranks.dir, pipeline);
    char *old = tern_strf("%s/mp_metadata_pp_rank_%d.pt", r->ranks.dir, pipeline);
    json_t *j = NULL;

    if (tern_fs_exists(path))
        j = tern_json_load(path, META_MAX, err);
    else if (tern_fs_exists(old))
        j = load_old_meta(r, k, old, err);
    else
        tern_err_set(err, TERN_USAGE,
                     "%s: is missing; it tells how the parts of pipeline rank %d become adapters",
                     path, pipeline);
    free(old);
    *ret_path = path;
    return j;
}

static int read_pipeline_rank(struct reader *r, int pipeline, struct tern_err *err)
{
    const struct tern_convert_nxd_rank *k = &r->ranks.ranks[pipeline * r->ranks.tensor];
    char *path;
    json_t *meta = load_meta(r, pipeline, &path, err);
    int rc = meta
                 ? tern_convert_nxd_specs_read(meta, r->name, r->ranks.tensor, path, &r->specs, err)
                 : -1;

    if (rc == 0) {
        r->pieces.plan = r->specs.plan;
        if (!r->pieces.plan.slots) { /* none by heads */
            r->pieces.plan.slots = r->pieces.plan.copies = 1;
            r->pieces.plan.config.heads = r->pieces.plan.config.kv_heads = 1;
        }
        json_object_update(r->fused, r->specs.fused);
        rc = tern_convert_nxd_pieces_alloc(&r->pieces, r->dir, err);
    }
    for (size_t i = 0; rc == 0 && i < k->file.n; i++)
        rc = take(r, pipeline, k->file.tensors[i].name + k->skip, err);
    const char *missing = rc == 0 ? json_object_iter_key(json_object_iter(r->specs.wanted)) : NULL;
    if (missing)
        rc =
            tern_err_set(err, TERN_USAGE, "%s: names '%s', which %s lacks", path, missing, k->name);
    tern_convert_nxd_pieces_free(&r->pieces);
    tern_convert_nxd_specs_free(&r->specs);
    json_decref(meta);
    free(path);
    return rc;
}

/* Every pipeline rank's file may have the names of all of them. */
static bool is_known(const void *user, const char *name)
{
    return json_object_get(user, name);
}

/* A without B computes nothing, and B without A. */
static int check_pairs(struct tern_ckpt *c, struct tern_err *err)
{
    static const char *const ends[][2] = {{"A.weight", "B.weight"},
                                          {"B.weight", "A.weight"},
                                          {"embedding_A", "embedding_B"},
                                          {"embedding_B", "embedding_A"}};
    struct tern_ckpt_info info;

    for (size_t i = 0; i < tern_ckpt_count(c); i++) {
        tern_ckpt_info(c, i, &info);
        for (size_t k = 0; k < sizeof ends / sizeof *ends; k++) {
            char *own = tern_strf(".lora_%s", ends[k][0]);
            char *other = tern_strf("%.*s.lora_%s", (int)(strlen(info.name) - strlen(own)),
                                    info.name, ends[k][1]);
            bool alone = tern_str_ends(info.name, own) && !tern_ckpt_find(c, other, NULL);
            int rc = alone ? tern_err_set(err, TERN_USAGE, "%s: has '%s', and no '%s'",
                                          tern_ckpt_path(c), info.name, other)
                           : 0;
            free(other);
            free(own);
            if (rc < 0)
                return -1;
        }
    }
    return 0;
}

static struct tern_ckpt *read_arrays(struct reader *r, struct tern_err *err)
{
    if (tern_convert_nxd_ranks_open(&r->ranks, err) < 0)
        return NULL;
    for (int p = 0; p < r->ranks.pipeline; p++)
        if (read_pipeline_rank(r, p, err) < 0)
            return NULL;
    if (tern_convert_nxd_ranks_check_rest(
            &r->ranks, is_known, r->known,
            "Optimum Neuron's metadata tells of none of this name how its parts are put together.",
            err) < 0)
        return NULL;
    struct tern_ckpt *c = tern_convert_foreign_open(&r->ranks.list, err);
    if (c && tern_ckpt_count(c) == 0)
        tern_err_set(err, TERN_USAGE, "%s: holds no adapters", r->dir);
    else if (c && check_pairs(c, err) == 0)
        return c;
    tern_ckpt_close(c);
    return NULL;
}

/* ------------------------------------------------------------------ adapter_config.json */

static bool is_empty(const json_t *v)
{
    return !v || json_is_null(v) || (json_is_object(v) && json_object_size(v) == 0);
}

/* Optimum Neuron trains fused modules: their own ones take their place. */
static int adapt_config(const struct reader *r, json_t *config, struct tern_err *err)
{
    static const char *const patterns[] = {"rank_pattern", "alpha_pattern"};
    json_t *targets = json_object_get(config, "target_modules"), *all = json_array(), *one, *own;
    size_t i, k;

    for (i = 0; i < 2 && json_object_size(r->fused); i++)
        if (!is_empty(json_object_get(config, patterns[i]))) {
            json_decref(all);
            return tern_err_set(err, TERN_USAGE,
                                "%s: adapter_config.json has a %s, which Optimum Neuron compares "
                                "with the names of fused modules, and PEFT with those of others",
                                r->dir, patterns[i]);
        }
    json_array_foreach(targets, i, one)
    {
        json_t *names = json_object_get(r->fused, json_string_value(one));
        if (!names)
            json_array_append(all, one);
        json_array_foreach(names, k, own) json_array_append(all, own);
    }
    if (json_is_array(targets))
        json_object_set(config, "target_modules", all);
    json_decref(all);
    return 0;
}

/* ------------------------------------------------------------------ the whole */

int tern_convert_nxd_adapters_open(const char *dir, const volatile sig_atomic_t *stop,
                                   struct tern_ckpt **ret_arrays, json_t **ret_config,
                                   struct tern_err *err)
{
    char *shards = tern_fs_join(dir, SHARDS), *path = tern_fs_join(dir, "adapter_config.json");
    char *real = realpath(dir, NULL); /* it may be given as "." */
    const char *base = real ? tern_fs_basename(real) : "";
    struct reader r = {.dir = dir,
                       .name = tern_str_starts(base, "adapter_") ? base + strlen("adapter_") : NULL,
                       .ranks = {.dir = shards, .stop = stop, .list = {.dir = shards}},
                       .known = json_object(),
                       .fused = json_object()};
    json_t *config = tern_json_python_load(path, CONFIG_MAX, err);
    struct tern_ckpt *c = config ? read_arrays(&r, err) : NULL;
    int rc = c ? adapt_config(&r, config, err) : -1;

    if (rc == 0) {
        *ret_arrays = c;
        *ret_config = config;
    } else {
        tern_ckpt_close(c);
        json_decref(config);
    }
    tern_convert_nxd_ranks_free(&r.ranks);
    json_decref(r.known);
    json_decref(r.fused);
    free(real);
    free(path);
    free(shards);
    return rc;
}
