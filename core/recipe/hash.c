/* The hashes of a recipe: of all of it, and of what makes a run the same run. */
#include "core/base/str.h"
#include "core/base/yaml.h"
#include "core/recipe/keys.h"
#include "core/recipe/lists.h"

#include <inttypes.h>
#include <string.h>

/* Paths count as they are written: a run continues after its folder was moved, and from any current
 * folder. */
static const char *as_written(const struct tern_yaml_node *n)
{
    const char *text = n ? tern_yaml_text(n) : NULL;

    return text ? text : "";
}

static void add_sets(struct tern_buf *b, const char *name, struct tern_yaml_node *list,
                     const struct tern_recipe_sets *s)
{
    for (size_t i = 0; i < s->n; i++)
        tern_buf_printf(b, "%s[%zu]=%s %s %.17g\n", name, i,
                        as_written(tern_yaml_get(tern_yaml_at(list, i), "path")),
                        s->sets[i].name ? s->sets[i].name : "", s->sets[i].weight);
}

/* They say where a stage ends, as `until` does.  The end of the run is no part of its identity. */
static void add_limits(struct tern_buf *b, const struct tern_recipe *r)
{
    for (size_t i = 0; i < r->data.n_stages; i++) {
        const struct tern_recipe_stage *s = &r->data.stages[i];
        for (size_t k = 0; k < s->train.n; k++)
            if (s->train.sets[k].epochs)
                tern_buf_printf(b, "%s[%zu].epochs=%" PRId64 "\n", s->key, k,
                                s->train.sets[k].epochs);
    }
}

static void add_data(struct tern_buf *b, const struct tern_recipe *r)
{
    struct tern_yaml_node *stages = NULL, *train = NULL;

    tern_recipe_look_up(r, "data.train", &train, NULL);
    tern_recipe_look_up(r, "data.stages", &stages, NULL);
    for (size_t i = 0; i < r->data.n_stages; i++) {
        const struct tern_recipe_stage *s = &r->data.stages[i];
        if (stages)
            tern_buf_printf(b, "data.stages[%zu].until=%" PRId64 "\n", i, s->written);
        add_sets(b, s->key, stages ? tern_yaml_get(tern_yaml_at(stages, i), "train") : train,
                 &s->train);
    }
    if (stages)
        add_limits(b, r);
}

static bool is_default(const struct tern_recipe_key *k, const char *from)
{
    switch (k->kind) {
    case KEY_TEXT:
    case KEY_PATH:
        return !*(char *const *)from;
    case KEY_REAL:
        return *(const double *)from == k->def;
    case KEY_YESNO:
        return *(const bool *)from == (k->def != 0);
    case KEY_COUNT:
    case KEY_WORD:
        return *(const int64_t *)from == (int64_t)k->def;
    }
    return false;
}

static void add_key(struct tern_buf *b, const struct tern_recipe *r,
                    const struct tern_recipe_key *k)
{
    const char *from = k->offset == KEY_NOWHERE ? NULL : (const char *)r + k->offset;
    struct tern_yaml_node *n = NULL;

    tern_recipe_look_up(r, k->name, &n, NULL);
    if (from && k->late && is_default(k, from))
        return;
    if (!from)
        tern_buf_printf(b, "%s=%s\n", k->name, k->words[0]);
    else if (k->by_word)
        tern_buf_printf(b, "%s=%s\n", k->name, k->words[*(const int64_t *)from]);
    else if (k->kind == KEY_TEXT || k->kind == KEY_PATH)
        tern_buf_printf(b, "%s=%s\n", k->name, as_written(n));
    else if (k->kind == KEY_YESNO)
        tern_buf_printf(b, "%s=%d\n", k->name, *(const bool *)from);
    else if (k->kind == KEY_REAL)
        tern_buf_printf(b, "%s=%.17g\n", k->name, *(const double *)from);
    else if (from == (const char *)&r->steps && (r->epochs > 0 || r->tokens > 0))
        tern_buf_printf(b, "%s=0\n", k->name); /* as written: the same before tern_recipe_resolve */
    else if (from == (const char *)&r->steps && r->asked_steps)
        tern_buf_printf(b, "%s=%" PRId64 "\n", k->name, r->asked_steps);
    else
        tern_buf_printf(b, "%s=%" PRId64 "\n", k->name, *(const int64_t *)from);
}

/* Keys without a row in the table. */
static void add_identity(struct tern_buf *b, const struct tern_recipe *r)
{
    tern_buf_printf(b, "optimizer.betas=%.17g %.17g\n", r->optimizer.beta1, r->optimizer.beta2);
    add_data(b, r);
    if (r->precision != TERN_PRECISION_FP32) /* every run was fp32 before there was a choice */
        tern_buf_printf(b, "precision=%" PRId64 "\n", r->precision);
    if (r->lora.rank)
        tern_buf_printf(b, "lora.targets=%#x\n", r->lora.targets);
}

static void hash_text(const struct tern_buf *b, char hex[TERN_SHA256_HEX])
{
    uint8_t digest[TERN_SHA256_BYTES];

    tern_sha256(b->data, b->len, digest);
    tern_hex(hex, digest, sizeof digest);
}

void tern_recipe_hashes(const struct tern_recipe *r, char identity[TERN_SHA256_HEX],
                        char full[TERN_SHA256_HEX])
{
    struct tern_yaml_node *held_out = NULL;
    struct tern_buf b = {0};

    for (size_t i = 0; i < tern_recipe_n_keys; i++)
        if (tern_recipe_keys[i].identity)
            add_key(&b, r, &tern_recipe_keys[i]);
    add_identity(&b, r);
    hash_text(&b, identity);
    for (size_t i = 0; i < tern_recipe_n_keys; i++)
        if (!tern_recipe_keys[i].identity)
            add_key(&b, r, &tern_recipe_keys[i]);
    tern_recipe_look_up(r, "data.held_out", &held_out, NULL);
    add_sets(&b, "data.held_out", held_out, &r->data.held_out);
    if (!tern_recipe_given(r, "data.stages"))
        add_limits(&b, r);
    for (char **c = r->workload.command; c && *c; c++)
        tern_buf_printf(&b, "workload.command=%s\n", *c);
    for (char **c = r->workload.precompile.command; c && *c; c++)
        tern_buf_printf(&b, "workload.precompile.command=%s\n", *c);
    hash_text(&b, full);
    tern_buf_free(&b);
}

bool tern_recipe_is_identity(const char *key)
{
    static const char *const others[] = {"data.train", "data.stages",  "optimizer.betas",
                                         "precision",  "lora.targets", NULL}; /* add_identity */

    for (size_t i = 0; i < tern_recipe_n_keys; i++)
        if (strcmp(tern_recipe_keys[i].name, key) == 0)
            return tern_recipe_keys[i].identity;
    for (const char *const *o = others; *o; o++)
        if (strcmp(*o, key) == 0)
            return true;
    return false;
}
