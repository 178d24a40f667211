/* Is it the same run?  A checkpoint's meta against the recipe and the files that it names now. */
#include "core/inputs/inputs.h"

#include "core/base/fs.h"
#include "core/base/hash.h"
#include "core/base/str.h"
#include "core/convert/convert.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static int same_identity(const struct tern_recipe *r, const char *path, const char *was,
                         struct tern_err *err)
{
    char mine[TERN_SHA256_HEX], full[TERN_SHA256_HEX];

    tern_recipe_hashes(r, mine, full);
    if (!was || strcmp(was, mine) == 0)
        return 0;
    return tern_err_set(
        err, TERN_USAGE,
        "%s: model, precision, data, seed, batch, optimizer or schedule of %s are not "
        "those that checkpoint was trained with. Use another checkpoint.dir for a new "
        "run, or say --accept.",
        path, r->path);
}

/* ---------------------------------------------------------------- the model */

/* 1 with *c. 0 when there is no model any more where the recipe names one, or it is another's
 * newest or best checkpoint. -1 when it cannot be read. */
static int named_model(const struct tern_recipe *r, struct tern_model_config *c,
                       struct tern_err *err)
{
    const char *from = r->model.from;

    if (from && tern_ckpt_is_word(from))
        return 0;
    if (from ? !tern_convert_has_config(from) : !tern_fs_exists(r->model.config))
        return 0;
    return tern_convert_config(from ? from : r->model.config, c, err) < 0 ? -1 : 1;
}

char *tern_inputs_model_from(const struct tern_recipe *r)
{
    char *at = NULL;
    struct tern_err err;

    return r->model.from && tern_ckpt_resolve(r->model.from, &at, &err) == 0 ? at : NULL;
}

json_t *tern_inputs_model(const struct tern_recipe *r)
{
    struct tern_model_config c;
    struct tern_err err;

    if (named_model(r, &c, &err) <= 0)
        return json_null();
    char *text = tern_model_config_json(&c, "float32");
    json_t *j = json_loads(text, 0, NULL);
    free(text);
    return j;
}

/* Of the weights, config.json says sizes alone: others of the same sizes are not noticed. */
static int same_model(const struct tern_recipe *r, const char *path, json_t *was,
                      struct tern_err *err)
{
    struct tern_model_config mine, theirs;
    char *text = json_is_object(was) ? json_dumps(was, 0) : NULL;

    if (!text)
        return 0;
    int rc = tern_model_config_parse(text, strlen(text), path, &theirs, err);
    free(text);
    int named = rc == 0 ? named_model(r, &mine, err) : 0;
    if (rc < 0 || named < 0)
        return -1;
    if (!named || tern_model_config_same(&mine, &theirs))
        return 0;
    return tern_recipe_fail(r, r->model.from ? "model.from" : "model.config", err,
                            "%s is another model than %s was trained with (sizes, tied or not, "
                            "norms' eps, RoPE). Use another checkpoint.dir for a new run, or say "
                            "--accept to go on with that checkpoint's.",
                            r->model.from ? r->model.from : r->model.config, path);
}

/* ---------------------------------------------------------------- the data */

/* Stages end at steps of the recipe's batch: with several batch sizes in a run, the samples of each
 * stage would not be known. */
static int same_batches(const struct tern_recipe *r, const char *path, json_t *meta,
                        struct tern_err *err)
{
    json_int_t step = json_integer_value(json_object_get(meta, "step"));
    json_t *sample = json_object_get(meta, "sample");

    if (r->data.n_stages < 2 || !sample ||
        json_integer_value(sample) == step * (json_int_t)r->batch.global)
        return 0;
    return tern_recipe_fail(r, "batch.global", err,
                            "%s was not trained with %" PRId64 " sequences a step throughout, and "
                            "data.stages end by the step. Begin a run from it: model.from, and "
                            "another checkpoint.dir.",
                            path, r->batch.global);
}

static int same_set(const struct tern_recipe *r, const char *path, const char *set, json_t *was,
                    struct tern_err *err)
{
    char hex[TERN_SHA256_HEX];
    uint8_t digest[TERN_SHA256_BYTES];

    if (!json_is_string(was))
        return 0;
    struct tern_data_set *s = tern_data_set_open(set, err);
    if (!s)
        return -1;
    tern_data_set_digest(s, digest);
    tern_data_set_free(s);
    if (strcmp(tern_hex(hex, digest, sizeof digest), json_string_value(was)) == 0)
        return 0;
    return tern_recipe_fail(r, "data", err,
                            "%s is another set than the one that %s was trained on. Use another "
                            "checkpoint.dir for a new run, or say --accept.",
                            set, path);
}

/* The recipe names sets by their paths; those there must be the sets of the training. */
static int same_data(const struct tern_recipe *r, const char *path, json_t *was,
                     struct tern_err *err)
{
    for (size_t i = 0; i < r->data.n_stages; i++)
        for (size_t k = 0; k < r->data.stages[i].train.n; k++) {
            const char *set = r->data.stages[i].train.sets[k].path;
            if (same_set(r, path, set, json_object_get(was, set), err) < 0)
                return -1;
        }
    return 0;
}

int tern_inputs_same_run(const struct tern_recipe *r, const char *path, json_t *meta, bool accept,
                         struct tern_err *err)
{
    json_t *model = json_object_get(meta, "model");

    if (same_batches(r, path, meta, err) < 0)
        return -1;
    if (accept)
        return 0;
    if (same_identity(r, path, json_string_value(json_object_get(meta, "identity_hash")), err) < 0)
        return -1;
    if (!json_is_object(model)) /* no other model was accepted than the checkpoint's own */
        model = json_object_get(meta, "config");
    if (same_model(r, path, model, err) < 0)
        return -1;
    return same_data(r, path, json_object_get(meta, "data"), err);
}
