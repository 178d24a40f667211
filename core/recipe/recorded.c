/* A recipe as the ledger has it: its text, and behind it what --set changed. */
#include "core/recipe/keys.h"

#include "core/base/str.h"
#include "core/base/yaml.h"

#include <stdlib.h>
#include <string.h>

static const char set_mark[] = "# --set ";

size_t tern_recipe_settings(const char *recorded, char *sets[TERN_RECIPE_SETS], size_t *ret_body)
{
    size_t n = 0;

    *ret_body = strlen(recorded);
    for (const char *line = recorded; *line;) {
        size_t len = strcspn(line, "\n");
        if (strncmp(line, set_mark, sizeof set_mark - 1) == 0) {
            if (n == 0)
                *ret_body = (size_t)(line - recorded);
            if (n < TERN_RECIPE_SETS)
                sets[n++] = tern_strf("%.*s", (int)(len - (sizeof set_mark - 1)),
                                      line + sizeof set_mark - 1);
        } else if (n) { /* it was a comment of the recipe's own */
            while (n)
                free(sets[--n]);
            *ret_body = strlen(recorded);
        }
        line += len + (line[len] == '\n');
    }
    return n;
}

struct tern_recipe *tern_recipe_recorded(const char *path, const char *recorded,
                                         const char *const *overrides, size_t n,
                                         struct tern_err *err)
{
    char *sets[TERN_RECIPE_SETS];
    size_t body, n_sets = tern_recipe_settings(recorded, sets, &body);
    const char **all = tern_alloc(n_sets + n + 1, sizeof *all, "a recipe's settings", err);
    struct tern_recipe *r = NULL;

    if (all) {
        for (size_t i = 0; i < n_sets; i++)
            all[i] = sets[i];
        for (size_t i = 0; i < n; i++)
            all[n_sets + i] = overrides[i];
        r = tern_recipe_from(path, tern_yaml_parse(recorded, body, path, err), all, n_sets + n,
                             err);
    }
    free(all);
    while (n_sets)
        free(sets[--n_sets]);
    return r;
}
