/* The models of a blend. */
#include "core/convert/blend_models.h"

#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/token/token.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* As they are in the files. */
static int check_types(const struct tern_convert_export *x, struct tern_err *err)
{
    for (size_t i = 0; i < x->n; i++) {
        struct tern_ckpt_info own;
        char *name = tern_strf("%s%s", x->prefix, x->tensors[i].name);
        const bool is_float =
            tern_ckpt_find(x->from, name, &own) && tern_ckpt_can_convert(TERN_CKPT_F32, own.type);
        free(name);
        if (!is_float)
            return tern_err_set(err, TERN_USAGE, "%s: tensor '%s' is %s, no kind of float",
                                tern_ckpt_path(x->from), x->tensors[i].name,
                                tern_ckpt_type_name(own.type));
    }
    return 0;
}

int tern_convert_blend_open(struct tern_convert_export *x, const char *path, struct tern_err *err)
{
    const bool ours = tern_ckpt_is_ours(path) || tern_str_starts(tern_fs_basename(path), "step-");
    struct tern_model_adapters adapters;

    x->c = x->from =
        ours ? tern_ckpt_open(path, err) : tern_convert_open(path, /* key= */ NULL, err);
    x->prefix = ours ? "model/" : "";
    if (!x->c)
        return -1;
    if (ours && tern_convert_adapters(x->c, &adapters))
        return tern_err_set(err, TERN_USAGE,
                            "%s: holds adapters beside its weights. `tern ckpt merge` makes a "
                            "folder of both, which can be blended",
                            path);
    if (tern_convert_load_config(x, err) < 0 || tern_convert_list_tensors(x, err) < 0)
        return -1;
    return check_types(x, err);
}

int tern_convert_blend_compare(const struct tern_convert_export *x,
                               const struct tern_convert_export *first, struct tern_err *err)
{
    const struct tern_model_config *a = &x->config, *b = &first->config;
    const struct {
        const char *key;
        double a, b;
    } keys[] = {
        {"vocab_size", a->vocab, b->vocab},
        {"hidden_size", a->dim, b->dim},
        {"intermediate_size", a->ffn, b->ffn},
        {"num_hidden_layers", a->layers, b->layers},
        {"num_attention_heads", a->heads, b->heads},
        {"num_key_value_heads", a->kv_heads, b->kv_heads},
        {"head_dim", a->head_dim, b->head_dim},
        {"tie_word_embeddings", a->tied, b->tied},
        {"rms_norm_eps", a->norm_eps, b->norm_eps},
        {"rope_theta", a->rope_theta, b->rope_theta},
    };

    if (tern_model_config_same(a, b))
        return 0;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (fabs(keys[i].a - keys[i].b) > 1e-6 * fabs(keys[i].b))
            return tern_err_set(err, TERN_USAGE,
                                "%s: %s is %.10g in its config, %.10g in that of %s. Only models "
                                "of one kind can be blended",
                                tern_ckpt_path(x->c), keys[i].key, keys[i].a, keys[i].b,
                                tern_ckpt_path(first->c));
    return tern_err_set(err, TERN_USAGE,
                        "%s: rope_scaling in its config is another one than in that of %s. Only "
                        "models of one kind can be blended",
                        tern_ckpt_path(x->c), tern_ckpt_path(first->c));
}

/* The model's tokenizer; NULL where it has none, or one that tern does not read. */
static struct tern_token *load_tokenizer(const struct tern_convert_export *x)
{
    static const char *const files[] = {"tokenizer.model", "tokenizer.json"};
    const char *named = json_string_value(json_object_get(tern_ckpt_meta(x->c), "tokenizer"));

    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (tern_ckpt_file_read(x->c, files[i], NULL, NULL, NULL) == 0)
            return tern_token_load(tern_ckpt_path(x->c), NULL);
    return named && tern_fs_exists(named) ? tern_token_load(named, NULL) : NULL;
}

/* Formats spell pieces in their own ways; their names are compared then. */
static bool same_vocabulary(const struct tern_token *a, const struct tern_token *b)
{
    const struct tern_token *const both[] = {a, b};
    uint8_t name[2][TERN_SHA256_BYTES], other[TERN_TOKEN_NAMES][TERN_SHA256_BYTES];

    tern_token_hash(a, name[0]);
    tern_token_hash(b, name[1]);
    if (memcmp(name[0], name[1], sizeof *name) == 0)
        return true;
    for (int i = 0; i < 2; i++)
        if (strcmp(tern_token_format(both[i]), "tokenizer.json") == 0 &&
            tern_token_json_hash(tern_token_path(both[i]), other, NULL) == 1)
            for (int k = 0; k < TERN_TOKEN_NAMES; k++)
                if (memcmp(other[k], name[1 - i], sizeof *name) == 0)
                    return true;
    return false;
}

/* The first id whose pieces differ, in words. */
static char *first_difference(const struct tern_token *a, const struct tern_token *b)
{
    const uint32_t n_a = tern_token_n_vocab(a), n_b = tern_token_n_vocab(b);

    if (strcmp(tern_token_format(a), tern_token_format(b)) != 0)
        return tern_strf("%s there, %s here", tern_token_format(b), tern_token_format(a));
    for (uint32_t id = 0; id < n_a && id < n_b; id++) {
        size_t len_a, len_b;
        const char *p_a = tern_token_piece(a, id, &len_a), *p_b = tern_token_piece(b, id, &len_b);
        if (len_a == len_b && (len_a == 0 || memcmp(p_a, p_b, len_a) == 0))
            continue;
        char *t_a = tern_strf("%.*s", len_a < 40 ? (int)len_a : 40, len_a ? p_a : "");
        char *t_b = tern_strf("%.*s", len_b < 40 ? (int)len_b : 40, len_b ? p_b : "");
        tern_str_mask(t_a);
        tern_str_mask(t_b);
        char *words = tern_strf("id %u is '%s' here and '%s' there", id, t_a, t_b);
        free(t_a);
        free(t_b);
        return words;
    }
    if (n_a != n_b)
        return tern_strf("%u ids here and %u there", n_a, n_b);
    return tern_strdup("the same pieces in another order of merges");
}

int tern_convert_blend_compare_tokenizers(const struct tern_convert_export *x,
                                          const struct tern_convert_export *first,
                                          struct tern_err *err)
{
    struct tern_token *a = load_tokenizer(x), *b = a ? load_tokenizer(first) : NULL;
    int rc = 0;

    if (a && b && !same_vocabulary(a, b)) {
        char *words = first_difference(a, b);
        rc = tern_err_set(err, TERN_USAGE,
                          "%s: its tokenizer has another vocabulary than that of %s (%s). If ids "
                          "mean the same in both models, name the tokenizer to take (--tokenizer)",
                          tern_ckpt_path(x->c), tern_ckpt_path(first->c), words);
        free(words);
    }
    tern_token_free(b);
    tern_token_free(a);
    return rc;
}
