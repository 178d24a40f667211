/* A run's recipe as the ledger has it. */
#ifndef TERN_CMD_LEDGER_RECIPE_H
#define TERN_CMD_LEDGER_RECIPE_H

#include "core/base/yaml.h"

#include <stddef.h>
#include <stdint.h>

/* The recipe that an attempt recorded, with its settings in it; NULL with `err`. */
struct tern_yaml *show_recipe_parse(const char *text, struct tern_err *err);

/* Its values, sorted by key: "optimizer.lr", "data.train[0].path". */
struct show_setting {
    char *key, *value;
};
struct show_recipe {
    size_t n;
    struct show_setting *settings;
};
int show_recipe_read(const char *text, struct show_recipe *ret_recipe, struct tern_err *err);
void show_recipe_free(struct show_recipe *r);
/* NULL: it is not written there. */
const char *show_recipe_get(const struct show_recipe *r, const char *key);

/* `steps` of a recipe, without parsing it; -1: not found. */
int64_t show_recipe_steps(const char *text);

#endif
