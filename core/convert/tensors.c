/* The config and the tensors of an export. */
#include "core/convert/export.h"
#include "core/convert/foreign.h"

#include "core/base/json.h"
#include "core/base/str.h"

#include <stdlib.h>
#include <string.h>

static const char head[] = "lm_head.weight", embed[] = "model.embed_tokens.weight";

/* ------------------------------------------------------------------ the config */

/* Meta's folders have none: what their params.json makes. */
static json_t *make_config(const char *path, struct tern_err *err)
{
    struct tern_model_config c;

    if (!tern_convert_has_config(path)) {
        tern_err_set(err, TERN_USAGE, "%s: holds no model's config", path);
        return NULL;
    }
    if (tern_convert_config(path, &c, err) < 0)
        return NULL;
    tern_convert_params_warn(path, &c);
    char *text = tern_model_config_json(&c, "float32");
    json_t *j = tern_json_parse(text, strlen(text), path, err);
    free(text);
    return j;
}

int tern_convert_load_config(struct tern_convert_export *x, struct tern_err *err)
{
    struct tern_ckpt *c = x->peft ? x->base : x->c;
    const char *path = tern_ckpt_path(c);
    char *text = NULL;
    size_t len = 0;
    json_t *j = json_object_get(tern_ckpt_meta(c), "config");

    if (x->config_json)
        return 0; /* it came with the source */
    if (json_is_object(j)) {
        x->config_json = json_deep_copy(j);
    } else {
        int rc = tern_ckpt_file_read(c, "config.json", &text, &len, err);
        if (rc > 0)
            x->config_json = make_config(path, err);
        if (rc == 0)
            x->config_json = tern_json_python_parse(text, len, path, err);
        free(text);
    }
    if (!x->config_json)
        return -1;
    text = tern_json_python_restore(json_dumps(x->config_json, JSON_COMPACT));
    int rc = tern_model_config_parse(text, strlen(text), path, &x->config, err);
    free(text);
    return rc;
}

/* ------------------------------------------------------------------ the tensors */

static enum tern_ckpt_type wanted_type(enum tern_convert_dtype d, enum tern_ckpt_type own)
{
    switch (d) {
    case TERN_CONVERT_F32:
        return TERN_CKPT_F32;
    case TERN_CONVERT_BF16:
        return TERN_CKPT_BF16;
    case TERN_CONVERT_F16:
        return TERN_CKPT_F16;
    default:
        return own;
    }
}

int tern_convert_add_tensor(struct tern_convert_export *x, const struct tern_model_tensor *t,
                            struct tern_err *err)
{
    const char *path = tern_ckpt_path(x->from);
    struct tern_ckpt_info info;
    char *name = tern_strf("%s%s", x->prefix, t->name);
    bool there = tern_ckpt_find(x->from, name, &info);

    free(name);
    if (!there)
        return tern_err_set(err, TERN_USAGE,
                            "%s: its config wants tensor '%s', which is not "
                            "there",
                            path, t->name);
    if (info.type == TERN_CKPT_OTHER)
        return tern_err_set(err, TERN_USAGE,
                            "%s: tensor '%s' is of type %s, which tern does not read", path,
                            t->name, tern_ckpt_info_type(&info));
    bool same = info.ndim == t->ndim;
    for (int d = 0; same && d < t->ndim; d++)
        same = info.shape[d] == (uint64_t)t->shape[d];
    if (!same)
        return tern_err_set(err, TERN_USAGE,
                            "%s: tensor '%s' has not the shape that its "
                            "config implies",
                            path, t->name);
    info.name += strlen(x->prefix);
    enum tern_ckpt_type type = wanted_type(x->options->dtype, info.type);
    if (!tern_ckpt_can_convert(type, info.type))
        return tern_err_set(err, TERN_USAGE, "%s: tensor '%s' is %s, no kind of float", path,
                            t->name, tern_ckpt_type_name(info.type));
    info.type = type;
    x->tensors[x->n++] = info;
    return 0;
}

int tern_convert_list_arrays(struct tern_convert_export *x, struct tern_err *err)
{
    size_t n = tern_ckpt_count(x->from);

    x->tensors = tern_alloc(n, sizeof *x->tensors, "list of tensors", err);
    x->shard = tern_alloc(n, sizeof *x->shard, "list of tensors", err);
    if (!x->tensors || !x->shard)
        return -1;
    for (; x->n < n; x->n++) {
        struct tern_ckpt_info *t = &x->tensors[x->n];
        tern_ckpt_info(x->from, x->n, t);
        enum tern_ckpt_type type = wanted_type(x->options->dtype, t->type);
        if (t->type == TERN_CKPT_OTHER || !tern_ckpt_can_convert(type, t->type))
            return tern_err_set(err, TERN_USAGE, "%s: tensor '%s' is %s, no kind of float",
                                tern_ckpt_path(x->from), t->name, tern_ckpt_type_name(t->type));
        t->type = type;
    }
    return 0;
}

/* Others' files may hold RoPE's frequencies, and the embedding once more as the head. */
static bool may_be_left(const struct tern_convert_export *x, const char *name)
{
    return !*x->prefix && (tern_str_ends(name, ".rotary_emb.inv_freq") ||
                           (x->config.tied && strcmp(name, head) == 0));
}

/* Rows r, r + 1, ... of the head and of the embedding, `rows` at most: are they the same? */
static int compare_rows(struct tern_ckpt *c, uint64_t r, uint64_t rows,
                        const struct tern_ckpt_info *of, float *room, bool *ret_same,
                        struct tern_err *err)
{
    const uint64_t left = of->shape[0] - r, n = left < rows ? left : rows;
    const uint64_t start[] = {r, 0}, shape[] = {n, of->shape[1]};
    float *other = room + rows * of->shape[1];

    if (tern_ckpt_read(c, head, TERN_CKPT_F32, start, shape, room, err) < 0 ||
        tern_ckpt_read(c, embed, TERN_CKPT_F32, start, shape, other, err) < 0)
        return -1;
    *ret_same = memcmp(room, other, sizeof *room * n * of->shape[1]) == 0;
    return 0;
}

int tern_convert_head_is_embedding(struct tern_ckpt *c, const volatile sig_atomic_t *stop,
                                   struct tern_err *err)
{
    enum { BLOCK = 1 << 20 };
    struct tern_ckpt_info a, b;

    if (!tern_ckpt_find(c, head, &a) || !tern_ckpt_find(c, embed, &b))
        return 0;
    bool same = a.ndim == 2 && a.shape[0] == b.shape[0] && a.shape[1] == b.shape[1];
    uint64_t rows = 1 + BLOCK / (sizeof(float) * (b.shape[1] + 1));
    float *room = tern_alloc(2 * rows * b.shape[1] + 1, sizeof *room, "rows to compare", err);
    int rc = room ? 0 : -1;
    for (uint64_t r = 0; rc == 0 && same && r < b.shape[0]; r += rows)
        rc = stop && *stop ? tern_err_set(err, TERN_FAILED, "interrupted; nothing was left behind")
                           : compare_rows(c, r, rows, &b, room, &same, err);
    free(room);
    return rc < 0 ? -1 : same;
}

/* The output matrix of a tied model, where one is there, would be left out. */
static int check_tied(const struct tern_convert_export *x, struct tern_err *err)
{
    if (*x->prefix || !x->config.tied || !tern_ckpt_find(x->from, head, NULL))
        return 0;
    const int same = tern_convert_head_is_embedding(x->from, x->options->stop, err);
    return same ? same < 0 ? -1 : 0
                : tern_err_set(err, TERN_USAGE,
                               "%s: its config says tie_word_embeddings, and lm_head.weight is not "
                               "the embedding. Say false in the config, or remove the tensor.",
                               tern_ckpt_path(x->from));
}

int tern_convert_list_tensors(struct tern_convert_export *x, struct tern_err *err)
{
    size_t n = tern_model_tensors(&x->config);
    struct tern_model_tensor t;
    struct tern_ckpt_info info;

    x->tensors = tern_alloc(n, sizeof *x->tensors, "list of tensors", err);
    x->shard = tern_alloc(n, sizeof *x->shard, "list of tensors", err);
    if (!x->tensors || !x->shard)
        return -1;
    for (size_t i = 0; i < n; i++) {
        tern_model_tensor(&x->config, i, &t);
        if (tern_convert_add_tensor(x, &t, err) < 0)
            return -1;
    }
    for (size_t i = 0; i < tern_ckpt_count(x->from) && (x->peft || x->from != x->base); i++) {
        tern_ckpt_info(x->from, i, &info);
        if (tern_str_starts(info.name, x->prefix) && !may_be_left(x, info.name) &&
            tern_model_tensor_find(&x->config, info.name + strlen(x->prefix)) < 0)
            return tern_err_set(err, TERN_USAGE, "%s: array '%s' has no place in its config",
                                tern_ckpt_path(x->from), info.name);
    }
    return check_tied(x, err);
}
