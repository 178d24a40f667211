/* config.json to struct and back. */
#include "core/model/model.h"

#include "core/base/again.h"
#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    /* The published ones are 1 KiB; a runaway file is not a config. */
    CONFIG_BYTES_MAX = 1 << 20,
    /* Above every model in sight, and low enough that products of three fit in 64 bits. */
    SIZE_MAX_EACH = 1 << 24,
    LAYERS_MAX = 4096,
};

/* The text that is read, for messages. */
struct reader {
    const json_t *root;
    const char *what;
    struct tern_err *err;
    bool failed;
};

static bool absent(const json_t *j)
{
    return !j || json_is_null(j);
}

/* A value for a message, as the file has it.  malloc'ed. */
static char *shown(const json_t *j)
{
    char *text = tern_json_python_restore(json_dumps(j, JSON_ENCODE_ANY));

    return text ? text : tern_strdup("?");
}

/* `def` < 0: the key must be there. */
static int get_int(struct reader *r, const json_t *from, const char *key, int def, int lo, int hi)
{
    const json_t *j = json_object_get(from, key);

    if (r->failed)
        return 0;
    if (absent(j) && def >= 0)
        return def;
    if (absent(j)) {
        tern_err_set(r->err, TERN_USAGE, "%s: no %s.  It must be a whole number from %d to %d.",
                     r->what, key, lo, hi);
    } else if (!json_is_integer(j) || json_integer_value(j) < lo || json_integer_value(j) > hi) {
        char *text = shown(j);

        tern_err_set(r->err, TERN_USAGE, "%s: %s is %.60s; it must be a whole number from %d to %d",
                     r->what, key, text, lo, hi);
        free(text);
    } else {
        return (int)json_integer_value(j);
    }
    r->failed = true;
    return 0;
}

static double get_real(struct reader *r, const json_t *from, const char *key, double def, double lo,
                       double hi)
{
    const json_t *j = json_object_get(from, key);

    if (r->failed || !j)
        return def;
    if (json_is_number(j) && json_number_value(j) > lo && json_number_value(j) <= hi)
        return json_number_value(j);
    /* Also of null: transformers computes with no default there, and fails. */
    tern_err_set(r->err, TERN_USAGE, "%s: %s must be a number above %g and at most %g%s", r->what,
                 key, lo, hi, json_is_null(j) ? ". Give it, or take null out" : "");
    r->failed = true;
    return def;
}

static bool get_bool(struct reader *r, const char *key, bool def)
{
    const json_t *j = json_object_get(r->root, key);

    if (r->failed || absent(j))
        return def;
    if (json_is_boolean(j))
        return json_is_true(j);
    tern_err_set(r->err, TERN_USAGE, "%s: %s must be true or false", r->what, key);
    r->failed = true;
    return def;
}

static void refuse(struct reader *r, const char *key, const char *found, const char *allowed)
{
    if (!r->failed)
        tern_err_set(r->err, TERN_USAGE, "%s: %s is %.60s; tern computes %s only", r->what, key,
                     tern_json_python_shown(found), allowed);
    r->failed = true;
}

/* Keys that would make another network of the same shapes. */
static void read_kind(struct reader *r)
{
    const char *type = json_string_value(json_object_get(r->root, "model_type"));
    const json_t *given = json_object_get(r->root, "hidden_act");
    const char *act = json_string_value(given);

    if (!type)
        refuse(r, "model_type", "absent", "\"llama\"");
    else if (strcmp(type, "llama") != 0)
        refuse(r, "model_type", type, "\"llama\"");
    if (given && (!act || strcmp(act, "silu") != 0))
        refuse(r, "hidden_act", act ? act : "no text", "\"silu\"");
    if (get_bool(r, "attention_bias", false))
        refuse(r, "attention_bias", "true", "models without biases");
    if (get_bool(r, "mlp_bias", false))
        refuse(r, "mlp_bias", "true", "models without biases");
    if (get_bool(r, "rope_interleaved", false))
        refuse(r, "rope_interleaved", "true", "rotate-half RoPE");
}

static void refuse_rope(struct reader *r, const char *what)
{
    if (!r->failed)
        tern_err_set(r->err, TERN_USAGE, "%s: rope_scaling: %s", r->what, what);
    r->failed = true;
}

/* Refuse RoPE of a part of a head, or of each kind of layer by itself. */
static void check_rope_keys(struct reader *r, const json_t *p)
{
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)p, key, v) if (json_is_object(v))
        refuse_rope(r, "is of each kind of layer by itself; tern has one RoPE for all");
    const json_t *part = json_object_get(p, "partial_rotary_factor");
    part = part ? part : json_object_get(r->root, "partial_rotary_factor");
    if (!absent(part) && json_number_value(part) != 1)
        refuse_rope(r, "partial_rotary_factor: tern turns whole heads");
}

/* rope_scaling, or rope_parameters as transformers 5 writes it, with the defaults of transformers
 * for absent keys (5.24, modeling_rope_utils.py).  A guess would be another model. */
static void read_rope(struct reader *r, struct tern_model_config *c)
{
    const json_t *p = json_object_get(r->root, "rope_scaling");

    if (absent(p) || (json_is_object(p) && json_object_size(p) == 0))
        p = json_object_get(r->root, "rope_parameters");
    c->rope_theta = get_real(r, r->root, "rope_theta", 10000, 0, 1e12);
    if (absent(p))
        return;
    if (!json_is_object(p)) {
        refuse_rope(r, "must be an object or null");
        return;
    }
    check_rope_keys(r, p);
    c->rope_theta = get_real(r, p, "rope_theta", c->rope_theta, 0, 1e12);
    const json_t *type = json_object_get(p, "rope_type");
    type = type ? type : json_object_get(p, "type");
    const char *word = type ? json_string_value(type) : "default";
    if (!type && (json_object_get(p, "factor") || json_object_get(p, "low_freq_factor"))) {
        refuse_rope(r, "has factors and no rope_type: transformers makes plain RoPE of that. Say "
                       "\"rope_type\": \"llama3\" if it is meant, or take the factors out.");
        return;
    }
    if (word && strcmp(word, "default") == 0)
        return;
    if (!word || strcmp(word, "llama3") != 0) {
        refuse(r, "rope_scaling", word ? word : "of no type", "null or \"llama3\"");
        return;
    }
    static const char *const factors[] = {"factor", "low_freq_factor", "high_freq_factor"};
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++) {
        char what[60];
        snprintf(what, sizeof what, "\"llama3\" has no %s", factors[i]);
        if (absent(json_object_get(p, factors[i])))
            refuse_rope(r, what);
    }
    c->rope = TERN_MODEL_ROPE_LLAMA3;
    c->rope_factor = get_real(r, p, "factor", 8, 0, 1e6);
    c->rope_low_freq_factor = get_real(r, p, "low_freq_factor", 1, 0, 1e6);
    c->rope_high_freq_factor = get_real(r, p, "high_freq_factor", 4, 0, 1e6);
    const json_t *outside = json_object_get(r->root, "original_max_position_embeddings");
    if (absent(outside) && json_is_null(json_object_get(p, "original_max_position_embeddings")))
        refuse_rope(r, "original_max_position_embeddings is null. Give it, or take null out.");
    c->rope_original_max_position =
        get_int(r, absent(outside) ? p : r->root, "original_max_position_embeddings",
                c->max_position, 1, SIZE_MAX_EACH);
}

/* An id, also a negative one, as older configs have it for none. */
static int get_id(struct reader *r, const char *key, const json_t *j)
{
    if (r->failed || (json_is_integer(j) && json_integer_value(j) >= INT32_MIN &&
                      json_integer_value(j) <= INT32_MAX))
        return (int)json_integer_value(j);
    char *text = shown(j);
    tern_err_set(r->err, TERN_USAGE, "%s: %s: %.60s is no id, which is a whole number", r->what,
                 key, text);
    free(text);
    r->failed = true;
    return -1;
}

static void read_ids(struct reader *r, struct tern_model_config *c)
{
    const json_t *eos = json_object_get(r->root, "eos_token_id");
    const json_t *bos = json_object_get(r->root, "bos_token_id");
    const json_t *pad = json_object_get(r->root, "pad_token_id");
    const size_t n = json_is_array(eos) ? json_array_size(eos) : !absent(eos);

    c->bos_id = absent(bos) ? -1 : get_id(r, "bos_token_id", bos);
    c->pad_id = absent(pad) ? -1 : get_id(r, "pad_token_id", pad);
    /* As torch.nn.Embedding has it, which transformers gives this id: -1 is the last one. */
    if (!r->failed && (c->pad_id >= c->vocab || c->pad_id < -c->vocab)) {
        tern_err_set(r->err, TERN_USAGE,
                     "%s: pad_token_id is %d; it must be an id of the vocabulary of %d. "
                     "transformers does not load it, either",
                     r->what, c->pad_id, c->vocab);
        r->failed = true;
    }
    c->n_eos = 0;
    if (n > TERN_MODEL_EOS_MAX && !r->failed) {
        tern_err_set(r->err, TERN_USAGE, "%s: eos_token_id: a list of %zu; tern keeps %d at most",
                     r->what, n, TERN_MODEL_EOS_MAX);
        r->failed = true;
    }
    for (size_t i = 0; i < n && !r->failed; i++)
        c->eos_ids[c->n_eos++] =
            get_id(r, "eos_token_id", json_is_array(eos) ? json_array_get(eos, i) : eos);
}

int tern_model_config_parse(const char *text, size_t len, const char *what,
                            struct tern_model_config *ret_config, struct tern_err *err)
{
    struct tern_model_config c = {0};
    json_t *root = tern_json_python_parse(text, len, what, err);
    struct reader r = {root, what, err, false};

    if (!root)
        return -1;
    if (!json_is_object(root)) {
        json_decref(root);
        return tern_err_set(err, TERN_USAGE, "%s: not a JSON object", what);
    }
    read_kind(&r);
    c.dim = get_int(&r, root, "hidden_size", -1, 1, SIZE_MAX_EACH);
    c.ffn = get_int(&r, root, "intermediate_size", -1, 1, SIZE_MAX_EACH);
    c.layers = get_int(&r, root, "num_hidden_layers", -1, 1, LAYERS_MAX);
    c.heads = get_int(&r, root, "num_attention_heads", -1, 1, SIZE_MAX_EACH);
    c.kv_heads = get_int(&r, root, "num_key_value_heads", c.heads, 1, SIZE_MAX_EACH);
    c.vocab = get_int(&r, root, "vocab_size", -1, 1, SIZE_MAX_EACH);
    c.max_position = get_int(&r, root, "max_position_embeddings", 2048, 1, 1 << 30);
    /* 0 stands for absent: all heads are then as wide as the model. */
    c.head_dim = get_int(&r, root, "head_dim", 0, 1, SIZE_MAX_EACH);
    c.norm_eps = get_real(&r, root, "rms_norm_eps", 1e-6, 0, 1);
    c.init_std = get_real(&r, root, "initializer_range", 0.02, 0, 100);
    c.tied = get_bool(&r, "tie_word_embeddings", false);
    read_rope(&r, &c);
    read_ids(&r, &c);
    json_decref(root);
    if (r.failed)
        return -1;
    if (c.head_dim == 0) {
        if (c.dim % c.heads != 0)
            return tern_err_set(err, TERN_USAGE,
                                "%s: hidden_size %d is no multiple of num_attention_heads %d.  "
                                "Give head_dim when the heads are not as wide as the model.",
                                what, c.dim, c.heads);
        c.head_dim = c.dim / c.heads;
    }
    if (tern_model_config_check(&c, what, err) < 0)
        return -1;
    *ret_config = c;
    return 0;
}

int tern_model_config_load(const char *path, struct tern_model_config *ret_config,
                           struct tern_err *err)
{
    struct stat st;
    char *file, *text = NULL;
    size_t len;
    int rc;

    file = TERN_AGAIN(stat(path, &st)) == 0 && S_ISDIR(st.st_mode)
               ? tern_fs_join(path, "config.json")
               : tern_strdup(path);
    rc = tern_fs_read(file, CONFIG_BYTES_MAX, &text, &len, err);
    if (rc == 0)
        rc = tern_model_config_parse(text, len, file, ret_config, err);
    free(text);
    free(file);
    return rc;
}

int tern_model_config_check(const struct tern_model_config *c, const char *what,
                            struct tern_err *err)
{
    const struct {
        const char *key;
        int value, max;
    } sizes[] = {
        {"hidden_size", c->dim, SIZE_MAX_EACH},
        {"intermediate_size", c->ffn, SIZE_MAX_EACH},
        {"num_hidden_layers", c->layers, LAYERS_MAX},
        {"num_attention_heads", c->heads, SIZE_MAX_EACH},
        {"num_key_value_heads", c->kv_heads, SIZE_MAX_EACH},
        {"head_dim", c->head_dim, SIZE_MAX_EACH},
        {"vocab_size", c->vocab, SIZE_MAX_EACH},
    };

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        if (sizes[i].value < 1 || sizes[i].value > sizes[i].max)
            return tern_err_set(err, TERN_USAGE, "%s: %s is %d; it must lie in 1 .. %d", what,
                                sizes[i].key, sizes[i].value, sizes[i].max);
    if (c->heads % c->kv_heads != 0)
        return tern_err_set(err, TERN_USAGE,
                            "%s: num_attention_heads %d is no multiple of num_key_value_heads %d",
                            what, c->heads, c->kv_heads);
    if (c->head_dim % 2 != 0)
        return tern_err_set(err, TERN_USAGE,
                            "%s: head_dim is %d; rotary positions need an even one", what,
                            c->head_dim);
    if ((int64_t)c->heads * c->head_dim > SIZE_MAX_EACH)
        return tern_err_set(err, TERN_USAGE,
                            "%s: %d heads of head_dim %d are wider than %d together", what,
                            c->heads, c->head_dim, SIZE_MAX_EACH);
    if (c->rope == TERN_MODEL_ROPE_LLAMA3 && c->rope_high_freq_factor <= c->rope_low_freq_factor)
        return tern_err_set(err, TERN_USAGE,
                            "%s: rope_scaling: high_freq_factor %g must be above low_freq_factor "
                            "%g",
                            what, c->rope_high_freq_factor, c->rope_low_freq_factor);
    return 0;
}

static json_t *ids_json(const int *ids, int n)
{
    json_t *list;

    if (n == 0)
        return json_null();
    if (n == 1)
        return json_integer(ids[0]);
    list = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(list, json_integer(ids[i]));
    return list;
}

static json_t *rope_json(const struct tern_model_config *c)
{
    if (c->rope == TERN_MODEL_ROPE_PLAIN)
        return json_null();
    return json_pack("{s:s, s:f, s:f, s:f, s:i}", "rope_type", "llama3", "factor", c->rope_factor,
                     "low_freq_factor", c->rope_low_freq_factor, "high_freq_factor",
                     c->rope_high_freq_factor, "original_max_position_embeddings",
                     c->rope_original_max_position);
}

char *tern_model_config_json(const struct tern_model_config *c, const char *dtype)
{
    json_t *j = json_pack(
        "{s:[s], s:b, s:f, s:o, s:o, s:i, s:s, s:i, s:f, s:i, s:i, s:b, s:s, s:i, s:i, s:i, s:f, "
        "s:o, s:f, s:b, s:s, s:i}",
        "architectures", "LlamaForCausalLM", "attention_bias", 0, "attention_dropout", 0.0,
        "bos_token_id", ids_json(&c->bos_id, c->bos_id >= 0), "eos_token_id",
        ids_json(c->eos_ids, c->n_eos), "head_dim", c->head_dim, "hidden_act", "silu",
        "hidden_size", c->dim, "initializer_range", c->init_std, "intermediate_size", c->ffn,
        "max_position_embeddings", c->max_position, "mlp_bias", 0, "model_type", "llama",
        "num_attention_heads", c->heads, "num_hidden_layers", c->layers, "num_key_value_heads",
        c->kv_heads, "rms_norm_eps", c->norm_eps, "rope_scaling", rope_json(c), "rope_theta",
        c->rope_theta, "tie_word_embeddings", c->tied, "torch_dtype", dtype, "vocab_size",
        c->vocab);
    if (j && c->pad_id >= 0)
        json_object_set_new(j, "pad_token_id", json_integer(c->pad_id));
    /* 15 digits: 1e-5 stays so, which 17 would show as 1.0000000000000001e-5. */
    char *text = j ? json_dumps(j, JSON_INDENT(2) | JSON_REAL_PRECISION(15)) : NULL;
    char *out;

    if (!text)
        abort(); /* no memory for a kilobyte of text */
    out = tern_strf("%s\n", text);
    free(text);
    json_decref(j);
    return out;
}

/* Exports write 15 digits. */
static bool alike(double a, double b)
{
    double d = a > b ? a - b : b - a;

    return d <= 1e-12 * a;
}

bool tern_model_config_same(const struct tern_model_config *a, const struct tern_model_config *b)
{
    if (a->rope != b->rope)
        return false;
    if (a->rope == TERN_MODEL_ROPE_LLAMA3 &&
        (!alike(a->rope_factor, b->rope_factor) ||
         !alike(a->rope_low_freq_factor, b->rope_low_freq_factor) ||
         !alike(a->rope_high_freq_factor, b->rope_high_freq_factor) ||
         a->rope_original_max_position != b->rope_original_max_position))
        return false;
    return a->dim == b->dim && a->ffn == b->ffn && a->layers == b->layers && a->heads == b->heads &&
           a->kv_heads == b->kv_heads && a->head_dim == b->head_dim && a->vocab == b->vocab &&
           a->tied == b->tied && alike(a->norm_eps, b->norm_eps) &&
           alike(a->rope_theta, b->rope_theta);
}
