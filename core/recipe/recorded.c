/* A recipe as the ledger has it: its text, and behind it what --set changed. */
#include "core/recipe/keys.h"

#include "core/base/str.h"
#include "core/base/yaml.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const char set_mark[] = "# --set ";

/* Between them where the text could be read as such settings, or as this line. */
static const char file_end[] = "# --- the end of the file; settings follow ---\n";

/* Do the last bytes of `text` before `at` read as file_end? */
static bool ends_file(const char *text, size_t at)
{
    const size_t len = sizeof file_end - 1;

    return at >= len && memcmp(text + at - len, file_end, len) == 0 &&
           (at == len || text[at - len - 1] == '\n');
}

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
    if (ends_file(recorded, *ret_body))
        *ret_body -= sizeof file_end - 1;
    return n;
}

/* "KEY=VALUE" on one line, malloc'ed. */
static char *on_one_line(const char *setting)
{
    const char *value = strchr(setting, '=');
    struct tern_yaml *doc =
        value && strchr(value, '\n') ? tern_yaml_parse("{}", 2, "a setting", NULL) : NULL;
    struct tern_buf b = {0};

    if (!doc || tern_yaml_override(doc, "value", value + 1, NULL) < 0) {
        tern_yaml_free(doc);
        return tern_strdup(setting);
    }
    tern_buf_add(&b, setting, (size_t)(value + 1 - setting));
    const struct tern_yaml_node *v = tern_yaml_get(tern_yaml_root(doc), "value");
    if (v)
        tern_yaml_write(&b, v);
    else /* it takes the key away */
        tern_buf_puts(&b, "null");
    tern_yaml_free(doc);
    return b.data;
}

char *tern_recipe_record(const char *text, const char *const *overrides, size_t n)
{
    char *sets[TERN_RECIPE_SETS];
    struct tern_buf b = {0};
    size_t body, n_sets;

    tern_buf_puts(&b, text);
    if (n && b.len && b.data[b.len - 1] != '\n')
        tern_buf_puts(&b, "\n");
    n_sets = tern_recipe_settings(b.data, sets, &body);
    if (n_sets || body != b.len) /* the file's own lines */
        tern_buf_printf(&b, "%s%s", b.data[b.len - 1] == '\n' ? "" : "\n", file_end);
    while (n_sets)
        free(sets[--n_sets]);
    for (size_t i = 0; i < n; i++) {
        char *setting = on_one_line(overrides[i]);
        tern_buf_printf(&b, "%s%s\n", set_mark, setting);
        free(setting);
    }
    return b.data;
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
