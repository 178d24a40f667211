/* Optimum Neuron's metadata of a pipeline rank, as rules. */
#include "core/convert/nxd_specs.h"

#include "core/base/str.h"

#include <stdlib.h>
#include <string.h>

/* While one file is read. */
struct input {
    const char *what, *name;
    char found[TERN_CKPT_NAME_MAX + 1]; /* the adapter, where no name was given */
    bool several;                       /* and there are others */
    struct tern_convert_nxd_specs *to;
    struct tern_err *err;
};

static int bad(struct input *in, const char *of, const char *key)
{
    return tern_err_set(in->err, TERN_USAGE, "%s: %.200s has no '%s' that tern understands",
                        in->what, of, key);
}

static int get_number(struct input *in, const json_t *o, const char *of, const char *key,
                      int64_t least, int64_t *ret_number)
{
    const json_t *v = json_object_get(o, key);

    if (!json_is_integer(v) || json_integer_value(v) < least ||
        json_integer_value(v) > INT32_MAX / 4)
        return bad(in, of, key);
    *ret_number = json_integer_value(v);
    return 0;
}

static int get_text(struct input *in, const json_t *o, const char *of, const char *key,
                    const char **ret_text)
{
    *ret_text = json_string_value(json_object_get(o, key));
    return *ret_text && **ret_text && strlen(*ret_text) < TERN_CKPT_NAME_MAX / 2 ? 0
                                                                                 : bad(in, of, key);
}

/* ------------------------------------------------------------------ rules */

/* Takes r.from and r.to. */
static int add(struct input *in, struct tern_convert_nxd_rule r)
{
    struct tern_convert_nxd_specs *s = in->to;

    if (s->n == s->room) {
        size_t room = s->room ? 2 * s->room : 256;
        void *more = realloc(s->rules, room * sizeof *s->rules);
        if (!more) {
            free(r.from);
            free(r.to);
            return tern_err_set(in->err, TERN_TEMPFAIL, "%s: no memory for %zu rules", in->what,
                                room);
        }
        s->rules = more;
        s->room = room;
    }
    if (!json_object_get(s->first, r.from))
        json_object_set_new(s->first, r.from, json_integer((json_int_t)s->n));
    s->rules[s->n++] = r;
    return 0;
}

/* MODULE.lora_A.weight of each of the `n` modules is the fused module's. */
static int share_a(struct input *in, const char *module, const char *fused,
                   const char *const *names, size_t n)
{
    json_t *own = json_array();
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < n; i++) {
        json_array_append_new(own, json_string(names[i]));
        rc = add(in, (struct tern_convert_nxd_rule){
                         .from = tern_strf("%s.%s.lora_A.weight", module, fused),
                         .to = tern_strf("%s.%s.lora_A.weight", module, names[i]),
                         .kind = TERN_MODEL_NORM,
                         .axis = -1});
    }
    json_object_set_new(in->to->fused, fused, own);
    return rc;
}

/* ------------------------------------------------------------------ FusedLinearsSpec */

static int read_fused(struct input *in, const char *module, const json_t *spec)
{
    enum { MODULES_MAX = 16 };
    const json_t *list = json_object_get(spec, "linear_names");
    const json_t *dims = json_object_get(spec, "original_dims");
    const char *fused, *names[MODULES_MAX];
    size_t n = json_array_size(list);
    int64_t axis, rows[MODULES_MAX], all = 0, first = 0, ranks = in->to->plan.tensor;

    if (get_text(in, spec, module, "fused_linear_name", &fused) < 0 ||
        get_number(in, spec, module, "fuse_axis", 0, &axis) < 0)
        return -1;
    if (axis != 0)
        return tern_err_set(in->err, TERN_USAGE,
                            "%s: %.200s has columns fused (fuse_axis %d), which Optimum Neuron "
                            "does not with adapters",
                            in->what, module, (int)axis);
    if (n == 0 || n > MODULES_MAX || json_array_size(dims) != n)
        return bad(in, module, "linear_names");
    for (size_t i = 0; i < n; i++) {
        const json_t *d = json_array_get(dims, i);
        names[i] = json_string_value(json_array_get(list, i));
        rows[i] = json_integer_value(d);
        if (!names[i] || strlen(names[i]) > TERN_CKPT_NAME_MAX / 2)
            return bad(in, module, "linear_names");
        if (!json_is_integer(d) || rows[i] < 1 || rows[i] > INT32_MAX || rows[i] % ranks != 0)
            return bad(in, module, "original_dims");
        rows[i] /= ranks;
        all += rows[i];
    }
    if (share_a(in, module, fused, names, n) < 0)
        return -1;
    for (size_t i = 0; i < n; first += rows[i++])
        if (add(in, (struct tern_convert_nxd_rule){
                        .from = tern_strf("%s.%s.lora_B.weight", module, fused),
                        .to = tern_strf("%s.%s.lora_B.weight", module, names[i]),
                        .kind = TERN_MODEL_GATE,
                        .first = first,
                        .count = rows[i],
                        .all = all}) < 0)
            return -1;
    return 0;
}

/* ------------------------------------------------------------------ GQAQKVColumnParallelLinearSpec
 */

enum { HEADS_MAX = 1 << 16 }; /* bounds what is kept for each */

struct gqa {
    const char *fused, *names[3], *output;
    int64_t heads, keys, copies, q_rows, k_rows; /* rows of a rank */
    bool fuse;
};

/* How heads are dealt: the same in all layers. */
static int plan_heads(struct input *in, const char *module, const struct gqa *g)
{
    struct tern_convert_nxd_plan *p = &in->to->plan;
    int64_t ranks = p->tensor, rows = g->q_rows * ranks / g->heads;

    if (g->heads > HEADS_MAX || g->heads % ranks != 0 || g->keys * g->copies % ranks != 0 ||
        ranks % g->copies != 0 || g->heads % (g->keys * g->copies) != 0 || rows < 1 ||
        rows * g->heads != g->q_rows * ranks || g->k_rows * ranks != g->keys * g->copies * rows)
        return tern_err_set(in->err, TERN_USAGE,
                            "%s: %.200s has %d query and %d key heads in %d copies, %d and %d rows "
                            "of them on each of %d ranks, which does not fit together",
                            in->what, module, (int)g->heads, (int)g->keys, (int)g->copies,
                            (int)g->q_rows, (int)g->k_rows, (int)ranks);
    struct tern_convert_nxd_plan own = {
        .tensor = p->tensor, .pipeline = 1, .parts = 1, .copies = (int)g->copies};
    own.config.heads = (int)g->heads;
    own.config.kv_heads = (int)g->keys;
    own.config.head_dim = (int)rows;
    own.slots = (int)(g->keys * g->copies / ranks);
    if (p->slots &&
        (p->config.heads != own.config.heads || p->config.kv_heads != own.config.kv_heads ||
         p->config.head_dim != own.config.head_dim || p->copies != own.copies))
        return tern_err_set(in->err, TERN_USAGE, "%s: %.200s has other heads than modules before",
                            in->what, module);
    *p = own;
    return 0;
}

static int read_gqa_fields(struct input *in, const char *m, const json_t *spec, struct gqa *g)
{
    const json_t *fuse = json_object_get(spec, "fuse_qkv");

    if (!json_is_boolean(fuse))
        return bad(in, m, "fuse_qkv");
    g->fuse = json_is_true(fuse);
    return get_text(in, spec, m, "gqa_qkv_projection_name", &g->fused) < 0 ||
                   get_text(in, spec, m, "query_projection_name", &g->names[0]) < 0 ||
                   get_text(in, spec, m, "key_projection_name", &g->names[1]) < 0 ||
                   get_text(in, spec, m, "value_projection_name", &g->names[2]) < 0 ||
                   get_text(in, spec, m, "output_projection_name", &g->output) < 0 ||
                   get_number(in, spec, m, "num_attention_heads", 1, &g->heads) < 0 ||
                   get_number(in, spec, m, "num_key_value_heads", 1, &g->keys) < 0 ||
                   get_number(in, spec, m, "kv_size_multiplier", 1, &g->copies) < 0 ||
                   get_number(in, spec, m, "q_output_size_per_partition", 1, &g->q_rows) < 0 ||
                   get_number(in, spec, m, "kv_output_size_per_partition", 1, &g->k_rows) < 0
               ? -1
               : 0;
}

static int read_gqa(struct input *in, const char *module, const json_t *spec)
{
    static const char *const parts[] = {"q", "k", "v"};
    static const enum tern_model_kind kinds[] = {TERN_MODEL_Q, TERN_MODEL_K, TERN_MODEL_V};
    struct gqa g = {0};

    if (read_gqa_fields(in, module, spec, &g) < 0 || plan_heads(in, module, &g) < 0 ||
        share_a(in, module, g.fused, g.names, 3) < 0)
        return -1;
    for (int i = 0; i < 3; i++) {
        int64_t rows = i == 0 ? g.q_rows : g.k_rows;
        if (add(in, (struct tern_convert_nxd_rule){
                        .from = tern_strf("%s.%s.lora_B.weight_%s", module, g.fused,
                                          g.fuse ? "qkv" : parts[i]),
                        .to = tern_strf("%s.%s.lora_B.weight", module, g.names[i]),
                        .kind = kinds[i],
                        .first = !g.fuse || i == 0 ? 0 : g.q_rows + (i - 1) * g.k_rows,
                        .count = rows,
                        .all = g.fuse ? g.q_rows + 2 * g.k_rows : rows}) < 0)
            return -1;
    }
    char *output = tern_strf("%s.%s.lora_A.weight", module, g.output);
    return add(in, (struct tern_convert_nxd_rule){.from = output,
                                                  .to = tern_strdup(output),
                                                  .kind = TERN_MODEL_O,
                                                  .axis = 1,
                                                  .all = g.q_rows});
}

static int read_specs(struct input *in, const json_t *list)
{
    const json_t *of, *one;
    size_t i, k;

    json_array_foreach(list, i, of)
    {
        const char *module;
        if (get_text(in, of, "a transformation", "module_fully_qualified_name", &module) < 0)
            return -1;
        json_array_foreach(json_object_get(of, "specs"), k, one)
        {
            const char *class = json_string_value(json_array_get(one, 0));
            const json_t *spec = json_array_get(one, 1);
            int rc;
            if (class && strcmp(class, "FusedLinearsSpec") == 0)
                rc = read_fused(in, module, spec);
            else if (class && strcmp(class, "GQAQKVColumnParallelLinearSpec") == 0)
                rc = read_gqa(in, module, spec);
            else
                rc = tern_err_set(in->err, TERN_USAGE,
                                  "%s: %.200s has a transformation that tern does not know: %.80s",
                                  in->what, module, class ? class : "without a name");
            if (rc < 0)
                return -1;
        }
    }
    return 0;
}

/* ------------------------------------------------------------------ parameters */

/* Is the parameter one of our adapter?  Then its name in the ranks' files: without that of the
 * adapter (malloc'ed); else NULL. */
static char *strip(struct input *in, const char *param)
{
    static const char *const before[] = {".lora_A.", ".lora_B.", ".lora_embedding_A.",
                                         ".lora_embedding_B.", ".modules_to_save."};
    enum { SAVED = 4 };

    for (size_t i = 0; i < sizeof before / sizeof *before; i++) {
        const char *at = strstr(param, before[i]);
        if (!at)
            continue;
        const char *adapter = at + strlen(before[i]);
        size_t len = strcspn(adapter, ".");
        const char *wanted = in->name ? in->name : in->found;
        if (!*wanted && len < sizeof in->found)
            memcpy(in->found, adapter, len);
        if (strlen(wanted) != len || strncmp(wanted, adapter, len) != 0) {
            in->several = !in->name;
            return NULL;
        }
        size_t kept = (size_t)(at - param) + (i == SAVED ? 0 : strlen(before[i]) - 1);
        return tern_strf("%.*s%s", (int)kept, param, adapter + len);
    }
    return NULL;
}

/* A fused module's name means nothing to PEFT. */
static int check_module(struct input *in, const char *name)
{
    const char *fused;
    json_t *own;

    json_object_foreach(in->to->fused, fused, own)
    {
        char *part = tern_strf(".%s.", fused);
        bool is = strstr(name, part);
        free(part);
        if (is)
            return tern_err_set(in->err, TERN_USAGE,
                                "%s: no transformation takes the parameter '%.200s' apart",
                                in->what, name);
    }
    return 0;
}

/* The ranks in turn, or rank 0's; where no transformation has it. */
static int add_parameter(struct input *in, const char *name, bool cut, const json_t *axis)
{
    struct tern_convert_nxd_rule r = {.axis = -1, .kind = TERN_MODEL_NORM};

    if (json_object_get(in->to->first, name))
        return 0;
    if (check_module(in, name) < 0)
        return -1;
    if (cut &&
        (!json_is_integer(axis) || json_integer_value(axis) < 0 || json_integer_value(axis) > 1))
        return bad(in, name, "partition_dim");
    if (cut) {
        r.axis = (int)json_integer_value(axis);
        r.kind = r.axis == 0 ? TERN_MODEL_GATE : TERN_MODEL_DOWN;
    }
    r.from = tern_strdup(name);
    r.to = tern_strdup(name);
    return add(in, r);
}

static int read_parameters(struct input *in, json_t *list)
{
    const char *key;
    json_t *v;

    json_object_foreach(list, key, v)
    {
        char *name = strip(in, key);
        int rc = 0;
        if (name) {
            json_object_set_new(in->to->wanted, name, json_true());
            rc = add_parameter(in, name, json_is_true(json_object_get(v, "tensor_model_parallel")),
                               json_object_get(v, "partition_dim"));
        }
        free(name);
        if (rc < 0)
            return -1;
    }
    return in->several ? tern_err_set(in->err, TERN_USAGE,
                                      "%s: is of several adapters, '%.80s' among them. Name the "
                                      "folder of the one that is meant adapter_NAME, as Optimum "
                                      "Neuron does.",
                                      in->what, in->found)
                       : 0;
}

/* Of older releases: names are those in the files, also of what is not in them. */
static int read_old(struct input *in, const json_t *meta)
{
    const json_t *heads =
        json_object_get(json_object_get(meta, "gqa_qkv_metadata"), "num_attention_heads");
    const char *key;
    json_t *v;

    if (heads && !json_is_null(heads))
        return tern_err_set(in->err, TERN_USAGE,
                            "%s: has copies of key heads, which that release of Optimum Neuron "
                            "puts into no adapters",
                            in->what);
    json_object_foreach(json_object_get(meta, "sharded_metadata"), key, v)
    {
        const char *kind = json_string_value(json_object_get(v, "kind"));
        if (!kind || (strcmp(kind, "tied") != 0 && strcmp(kind, "sharded") != 0))
            return bad(in, key, "kind");
        if (add_parameter(in, key, strcmp(kind, "sharded") == 0,
                          json_object_get(v, "partition_dim")) < 0)
            return -1;
    }
    return 0;
}

/* ------------------------------------------------------------------ the whole */

int tern_convert_nxd_specs_read(const json_t *meta, const char *name, int tensor, const char *what,
                                struct tern_convert_nxd_specs *to, struct tern_err *err)
{
    struct input in = {.what = what, .name = name, .to = to, .err = err};
    json_t *parameters = json_object_get(meta, "parameters");
    const json_t *specs = json_object_get(meta, "model_weight_transformation_specs");
    const json_t *old = json_object_get(meta, "sharded_metadata");

    to->first = json_object();
    to->wanted = json_object();
    to->fused = json_object();
    to->plan.tensor = tensor;
    if (json_is_object(old))
        return read_old(&in, meta);
    if (!json_is_object(parameters) || !json_is_array(specs))
        return tern_err_set(err, TERN_USAGE,
                            "%s: is not Optimum Neuron's: it has no parameters with "
                            "model_weight_transformation_specs",
                            what);
    return read_specs(&in, specs) < 0 ? -1 : read_parameters(&in, parameters);
}

void tern_convert_nxd_specs_free(struct tern_convert_nxd_specs *s)
{
    for (size_t i = 0; i < s->n; i++) {
        free(s->rules[i].from);
        free(s->rules[i].to);
    }
    free(s->rules);
    json_decref(s->first);
    json_decref(s->wanted);
    json_decref(s->fused);
    *s = (struct tern_convert_nxd_specs){0};
}
