/* A recipe from its text. */
#ifndef TESTS_UNIT_RECIPE_TEXT_H
#define TESTS_UNIT_RECIPE_TEXT_H

#include "core/base/fs.h"
#include "core/recipe/recipe.h"
#include "tests/unit/tap.h"

#include <unistd.h>

/* In a file in the current folder; NULL after a failed assertion. */
static inline struct tern_recipe *recipe(const char *text)
{
    static const char path[] = "tern-test-run.yaml";
    struct tern_err err = {0};

    tern_fs_replace(path, text, strlen(text), 0600, &err);
    struct tern_recipe *r = tern_recipe_load(path, NULL, 0, &err);
    if (!ok(r != NULL, "a recipe"))
        printf("# %s\n", err.text);
    unlink(path);
    return r;
}

#endif
