/* Meta's params.json as a config: what it says, and what transformers'
 * convert_llama_weights_to_hf.py takes where it says nothing. */
#include "core/convert/foreign.h"

#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/str.h"

#include <stdlib.h>
#include <string.h>

enum { PARAMS_MAX = 1 << 20 };

struct params {
    json_t *j;
    const char *path;
    struct tern_err *err;
    bool failed;
};

/* A whole number; `def` when it is absent or null, which is an error where `def` is -1. */
static int whole(struct params *p, const char *key, int def, int lo)
{
    const json_t *v = json_object_get(p->j, key);
    const bool absent = !v || json_is_null(v);

    if (p->failed || (absent && def != -1))
        return def;
    if (!absent && json_is_integer(v) && json_integer_value(v) >= lo &&
        json_integer_value(v) <= 1 << 20)
        return (int)json_integer_value(v);
    tern_err_set(p->err, TERN_USAGE, "%s: %s %s", p->path, key,
                 absent ? "is missing" : "is no whole number of that kind");
    p->failed = true;
    return def;
}

static double real(struct params *p, const char *key, double def)
{
    const json_t *v = json_object_get(p->j, key);
    const bool absent = !v || json_is_null(v);

    if (p->failed || (absent && def > 0))
        return def;
    if (json_is_number(v) && json_number_value(v) > 0 && json_number_value(v) < 1e12)
        return json_number_value(v);
    tern_err_set(p->err, TERN_USAGE, "%s: %s %s", p->path, key,
                 absent ? "is missing" : "is no number above 0");
    p->failed = true;
    return def;
}

/* Sizes of Llama 3.2, whose RoPE is stretched further than 3.1's and whose head is its embedding;
 * params.json says neither. */
static bool is_llama_3_2(const struct tern_model_config *c)
{
    return (c->dim == 2048 && c->layers == 16) || (c->dim == 3072 && c->layers == 28);
}

/* What Meta's files leave open, as transformers' script sets it for each version. */
static void fill_version(struct params *p, struct tern_model_config *c)
{
    const bool llama_3 = c->rope_theta == 500000; /* Code Llama has 1,000,000 */

    c->pad_id = -1;
    c->bos_id = llama_3 ? 128000 : 1;
    c->eos_ids[0] = llama_3 ? 128001 : 2;
    c->n_eos = 1;
    c->init_std = 0.02;
    if (!llama_3)
        c->max_position = c->rope_theta > 10000 ? 16384 : c->norm_eps < 5e-6 ? 2048 : 4096;
    else
        c->max_position = 8192;
    if (!json_is_true(json_object_get(p->j, "use_scaled_rope")))
        return;
    c->max_position = 131072;
    c->rope = TERN_MODEL_ROPE_LLAMA3;
    c->rope_factor = is_llama_3_2(c) ? 32 : 8;
    c->rope_low_freq_factor = 1;
    c->rope_high_freq_factor = 4;
    c->rope_original_max_position = 8192;
    c->tied = is_llama_3_2(c);
}

/* Every key is one of a plain Llama's, or null. */
static int check_keys(const struct params *p)
{
    static const char *const known[] = {
        "dim",         "n_layers",           "n_heads",        "n_kv_heads",
        "vocab_size",  "multiple_of",        "norm_eps",       "rope_theta",
        "max_seq_len", "ffn_dim_multiplier", "max_batch_size", "use_scaled_rope",
    };
    const json_t *scaled = json_object_get(p->j, "use_scaled_rope");
    const char *key;
    json_t *v;

    json_object_foreach(p->j, key, v)
    {
        bool is_known = json_is_null(v);
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            is_known |= strcmp(known[i], key) == 0;
        if (!is_known) {
            tern_err_set(p->err, TERN_USAGE,
                         "%s: has %.60s, which tern does not know: it may be another model than "
                         "tern computes. Get the folder in Hugging Face's layout",
                         p->path, key);
            if (p->err)
                tern_str_mask(p->err->text);
            return -1;
        }
    }
    if (scaled && !json_is_null(scaled) && !json_is_boolean(scaled))
        return tern_err_set(p->err, TERN_USAGE, "%s: use_scaled_rope is neither true nor false",
                            p->path);
    return 0;
}

int tern_convert_params_read(const char *dir, struct tern_model_config *c, struct tern_err *err)
{
    char *path = tern_fs_join(dir, "params.json");
    json_t *root = tern_json_python_load(path, PARAMS_MAX, err),
           *in = json_object_get(root, "model");
    struct params p = {.j = json_is_object(in) ? in : root, .path = path, .err = err};
    int rc = !root ? -1 : check_keys(&p);

    *c = (struct tern_model_config){0};
    if (rc == 0) {
        c->dim = whole(&p, "dim", -1, 1);
        c->layers = whole(&p, "n_layers", -1, 1);
        c->heads = whole(&p, "n_heads", -1, 1);
        c->kv_heads = whole(&p, "n_kv_heads", c->heads, 1);
        c->vocab = whole(&p, "vocab_size", 0, -1);
        c->vocab = c->vocab < 0 ? 0 : c->vocab;
        c->norm_eps = real(&p, "norm_eps", 0);
        c->rope_theta = real(&p, "rope_theta", 10000);
        const double multiplier = real(&p, "ffn_dim_multiplier", 1);
        const int multiple = whole(&p, "multiple_of", 256, 1);
        rc = p.failed ? -1 : 0;
        if (rc == 0 && c->dim % c->heads != 0)
            rc = tern_err_set(err, TERN_USAGE, "%s: dim %d is no multiple of n_heads %d", path,
                              c->dim, c->heads);
        if (rc == 0) {
            const double ffn = multiplier * (double)(8 * (int64_t)c->dim / 3);
            const int64_t blocks = ((int64_t)(ffn < 1e9 ? ffn : 1e9) + multiple - 1) / multiple;
            c->head_dim = c->dim / c->heads;
            c->ffn = (int)(blocks * multiple < 1 << 30 ? blocks * multiple : 1 << 30);
            fill_version(&p, c);
        }
    }
    json_decref(root);
    free(path);
    return rc;
}

bool tern_convert_params_is(const char *dir)
{
    char *params = tern_fs_join(dir, "params.json"), *config = tern_fs_join(dir, "config.json");
    const bool is = tern_fs_exists(params) && !tern_fs_exists(config);

    free(config);
    free(params);
    return is;
}

void tern_convert_params_warn(const char *path, const struct tern_model_config *c)
{
    if (tern_convert_params_is(path))
        tern_warn("%s: params.json tells neither max_position_embeddings nor eos_token_id nor "
                  "tie_word_embeddings: config.json says %d, %d and %s, as Llama's base models "
                  "have them.%s",
                  path, c->max_position, c->eos_ids[0], c->tied ? "true" : "false",
                  c->eos_ids[0] == 128001 ? " An Instruct model ends with 128009, too." : "");
}
