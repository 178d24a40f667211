/* Keys with one value, as a table that reads them, hashes them and prints their help. */
#ifndef TERN_RECIPE_KEYS_H
#define TERN_RECIPE_KEYS_H

#include "core/recipe/recipe.h"

enum { TERN_RECIPE_STEPS_MAX = 1 << 30 };

/* Keys with one allowed word are read and checked, and stored nowhere. */
#define KEY_NOWHERE SIZE_MAX

enum tern_recipe_kind { KEY_TEXT, KEY_PATH, KEY_COUNT, KEY_REAL, KEY_WORD, KEY_YESNO };

struct tern_recipe_key {
    const char *name; /* dotted */
    enum tern_recipe_kind kind;
    size_t offset;      /* in struct tern_recipe */
    double lo, hi, def; /* of COUNT, REAL; def also the index of WORD, and of YESNO */
    const char *const *words;
    bool identity; /* may not change within a run */
    bool late; /* came after runs were made: enters the hashes only where it is not its default */
    bool by_word;   /* enters them by its word, not its index */
    bool automatic; /* COUNT: the word auto is TERN_RECIPE_AUTO */
    const char *help;
};

extern const struct tern_recipe_key tern_recipe_keys[];
extern const size_t tern_recipe_n_keys;

/* Into the recipe, or its default. */
int tern_recipe_read_key(struct tern_recipe *r, const struct tern_recipe_key *k,
                         struct tern_err *err);

/* The recipe of `source`, which is taken over also by a failure (NULL: one went before). */
struct tern_recipe *tern_recipe_from(const char *path, struct tern_yaml *source,
                                     const char *const *overrides, size_t n, struct tern_err *err);

#endif
