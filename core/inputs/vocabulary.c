/* Are the token sets of the model's vocabulary? */
#include "core/inputs/inputs.h"

#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/convert/convert.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

int tern_inputs_at_line(const struct tern_recipe *r, const char *key, struct tern_err *err)
{
    if (!err)
        return -1;
    struct tern_err cause = *err;
    return tern_recipe_fail(r, key, err, "%s", cause.text);
}

enum { PADDING = 128 };

/* Of a Hugging Face folder without tokenizer.model. */
static void name_by_json(struct tern_inputs_vocabulary *v, const char *path)
{
    struct tern_err why = {0};
    int rc = tern_token_json_hash(path, v->hash, &why);

    if (rc < 0)
        tern_warn("%s: token sets are compared with the model's vocabulary by size alone",
                  why.text);
    v->n_hashes = rc > 0 ? TERN_TOKEN_NAMES : 0;
}

/* The tokenizer beside the model, where there is one that we read, names the vocabulary. */
static int find_in(const struct tern_recipe *r, const char *where, struct tern_inputs_vocabulary *v,
                   struct tern_err *err)
{
    char *inside = tern_fs_join(where, "tokenizer.model"),
         *json = tern_fs_join(where, "tokenizer.json");
    const bool model = tern_str_ends(where, ".model") || tern_fs_exists(inside);
    const bool is_json = tern_str_ends(where, ".json");
    if (!model && (r->data.n_stages || r->data.held_out.n) && (is_json || tern_fs_exists(json)))
        name_by_json(v, is_json ? where : json);
    free(inside);
    free(json);
    snprintf(v->source, sizeof v->source, "%s", model ? "tokenizer.model" : "tokenizer.json");
    if (!model)
        return 0;
    struct tern_token *t = tern_token_load(where, err);
    if (!t)
        return tern_inputs_at_line(r, r->model.tokenizer ? "model.tokenizer" : "model.from", err);
    tern_token_hash(t, v->hash[0]);
    v->n_hashes = 1;
    tern_token_free(t);
    return 0;
}

int tern_inputs_vocabulary_find(const struct tern_recipe *r, struct tern_inputs_vocabulary *v,
                                struct tern_err *err)
{
    char *where = r->model.tokenizer ? tern_strdup(r->model.tokenizer) : tern_inputs_model_from(r);
    int rc = 0;

    if (where && tern_fs_exists(where))
        rc = find_in(r, where, v, err);
    else if (r->model.tokenizer)
        rc = tern_recipe_fail(r, "model.tokenizer", err, "'%s' does not exist.", where);
    free(where);
    return rc;
}

/* Without a tokenizer whose vocabulary has a name only sizes can be compared.  A model may have
 * more ids than its tokenizer: some tokens added, then up to a multiple of 128. */
static int check_sizes(const struct tern_recipe *r, const char *key, const struct tern_data_set *s,
                       const struct tern_inputs_vocabulary *v, struct tern_err *err)
{
    const int64_t set = tern_data_set_n_vocab(s), model = v->config.vocab;

    if (!v->have_config)
        return 0;
    if (set > model)
        return tern_recipe_fail(r, key, err,
                                "%s: was tokenised with %" PRId64 " ids, but the model's "
                                "vocabulary has %" PRId64 ". Build it with the model's tokenizer.",
                                tern_data_set_path(s), set, model);
    if (v->n_hashes || model - set < PADDING)
        return 0;
    return tern_recipe_fail(r, key, err,
                            "%s: was tokenised with %" PRId64 " ids, but the model's vocabulary "
                            "has %" PRId64
                            ", and padding cannot explain %d more. Build it with the "
                            "model's tokenizer; if it was, name that in model.tokenizer.",
                            tern_data_set_path(s), set, model, (int)(model - set));
}

static bool same_vocabulary(const struct tern_inputs_vocabulary *v, const uint8_t *hash)
{
    for (size_t i = 0; i < v->n_hashes; i++)
        if (memcmp(v->hash[i], hash, TERN_SHA256_BYTES) == 0)
            return true;
    return v->n_hashes == 0;
}

static int check_set(const struct tern_recipe *r, const char *key, const char *path,
                     const struct tern_inputs_vocabulary *v, struct tern_err *err)
{
    struct tern_data_set *s = tern_data_set_open(path, err);

    if (!s)
        return tern_inputs_at_line(r, key, err);
    int rc = 0;
    if (tern_data_set_n_tokens(s) == 0)
        rc = tern_recipe_fail(r, key, err, "%s: holds no tokens.", path);
    else if (check_sizes(r, key, s, v, err) < 0)
        rc = -1;
    else if (!same_vocabulary(v, tern_data_set_vocab_hash(s)))
        rc = tern_recipe_fail(r, key, err,
                              "%s: was tokenised with another vocabulary than the model's (%s). "
                              "Build it with the model's tokenizer%s.",
                              path, v->source,
                              v->n_hashes > 1 ? ", or name that in model.tokenizer" : "");
    tern_data_set_free(s);
    return rc;
}

int tern_inputs_vocabulary_compare(const struct tern_recipe *r,
                                   const struct tern_inputs_vocabulary *v, struct tern_err *err)
{
    for (size_t k = 0; k < r->data.n_stages; k++) {
        const struct tern_recipe_stage *s = &r->data.stages[k];
        for (size_t i = 0; i < s->train.n; i++)
            if (check_set(r, s->key, s->train.sets[i].path, v, err) < 0)
                return -1;
    }
    for (size_t i = 0; i < r->data.held_out.n; i++)
        if (check_set(r, "data.held_out", r->data.held_out.sets[i].path, v, err) < 0)
            return -1;
    return 0;
}

int tern_inputs_check_vocabulary(const struct tern_recipe *r, struct tern_err *err)
{
    struct tern_inputs_vocabulary v = {0};

    /* A run that goes on does so without the model that it began with. */
    if (r->model.tokenizer && !tern_fs_exists(r->model.tokenizer))
        return 0;
    if (tern_inputs_vocabulary_find(r, &v, err) < 0)
        return -1;
    char *from = tern_inputs_model_from(r);
    const char *model = from ? from : r->model.config;
    v.have_config = model && tern_convert_config(model, &v.config, NULL) == 0;
    free(from);
    return tern_inputs_vocabulary_compare(r, &v, err);
}

static int hash_of_sets(const struct tern_recipe_sets *sets, uint8_t ret_hash[TERN_SHA256_BYTES])
{
    for (size_t i = 0; i < sets->n; i++) {
        struct tern_data_set *s = tern_data_set_open(sets->sets[i].path, NULL);
        if (!s)
            continue;
        memcpy(ret_hash, tern_data_set_vocab_hash(s), TERN_SHA256_BYTES);
        tern_data_set_free(s);
        return 0;
    }
    return -1;
}

int tern_inputs_vocabulary_hash(const struct tern_recipe *r, uint8_t ret_hash[TERN_SHA256_BYTES])
{
    struct tern_inputs_vocabulary v = {0};
    struct tern_err why; /* of a folder that has none to read */

    for (size_t k = 0; k < r->data.n_stages; k++)
        if (hash_of_sets(&r->data.stages[k].train, ret_hash) == 0)
            return 0;
    if (hash_of_sets(&r->data.held_out, ret_hash) == 0)
        return 0;
    if (tern_inputs_vocabulary_find(r, &v, &why) < 0 || v.n_hashes == 0)
        return -1;
    memcpy(ret_hash, v.hash[0], TERN_SHA256_BYTES);
    return 0;
}
