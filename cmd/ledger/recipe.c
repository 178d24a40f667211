/* A run's recipe as the ledger has it: its text, and behind it what --set changed. */
#include "cmd/ledger/recipe.h"

#include "core/base/str.h"
#include "core/recipe/recipe.h"

#include <stdlib.h>
#include <string.h>

struct tern_yaml *show_recipe_parse(const char *text, struct tern_err *err)
{
    char *sets[TERN_RECIPE_SETS];
    size_t body, n = tern_recipe_settings(text, sets, &body);
    struct tern_yaml *y = tern_yaml_parse(text, body, "the recipe in the ledger", err);

    if (y && tern_yaml_expect(tern_yaml_root(y), TERN_YAML_MAP, err) < 0) {
        tern_yaml_free(y);
        y = NULL;
    }
    for (size_t i = 0; i < n; i++) {
        char *value = y ? strchr(sets[i], '=') : NULL;
        if (value) {
            *value = '\0';
            if (tern_yaml_override(y, sets[i], value + 1, err) < 0) {
                tern_yaml_free(y);
                y = NULL;
            }
        }
        free(sets[i]);
    }
    return y;
}

/* ---------------------------------------------------------------- one value a key */

static void add(struct show_recipe *r, const char *key, char *value)
{
    if ((r->n & (r->n - 1)) == 0) { /* full at each power of two */
        struct show_setting *more =
            realloc(r->settings, (r->n ? 2 * r->n : 1) * sizeof *r->settings);
        if (!more)
            abort();
        r->settings = more;
    }
    r->settings[r->n++] = (struct show_setting){tern_strdup(key), value};
}

static void flatten(struct show_recipe *r, const struct tern_yaml_node *node)
{
    size_t n = tern_yaml_count(node);

    if (tern_yaml_kind(node) == TERN_YAML_TEXT) {
        add(r, tern_yaml_where(node), tern_strdup(tern_yaml_text(node)));
    } else if (n == 0) {
        add(r, tern_yaml_where(node),
            tern_strdup(tern_yaml_kind(node) == TERN_YAML_MAP ? "{}" : "[]"));
    }
    for (size_t i = 0; i < n; i++)
        flatten(r, tern_yaml_at(node, i));
}

static int by_key(const void *x, const void *y)
{
    const struct show_setting *a = x, *b = y;

    return strcmp(a->key, b->key);
}

int show_recipe_read(const char *text, struct show_recipe *ret_recipe, struct tern_err *err)
{
    struct tern_yaml *y = show_recipe_parse(text, err);
    struct show_recipe r = {0};

    if (!y)
        return -1;
    for (size_t i = 0; i < tern_yaml_count(tern_yaml_root(y)); i++)
        flatten(&r, tern_yaml_at(tern_yaml_root(y), i));
    tern_yaml_free(y);
    if (r.n)
        qsort(r.settings, r.n, sizeof *r.settings, by_key);
    *ret_recipe = r;
    return 0;
}

const char *show_recipe_get(const struct show_recipe *r, const char *key)
{
    const struct show_setting wanted = {(char *)key, NULL};
    const struct show_setting *s =
        r->n ? bsearch(&wanted, r->settings, r->n, sizeof *r->settings, by_key) : NULL;

    return s ? s->value : NULL;
}

void show_recipe_free(struct show_recipe *r)
{
    for (size_t i = 0; i < r->n; i++) {
        free(r->settings[i].key);
        free(r->settings[i].value);
    }
    free(r->settings);
    *r = (struct show_recipe){0};
}

/* The number of steps at `text`; -1 where there is none. */
static int64_t read_steps(const char *text)
{
    char *end;
    const long long n = strtoll(text, &end, 10);

    return n > 0 && (!*end || strchr(" \t\r\n#", *end)) ? n : -1;
}

int64_t show_recipe_steps(const char *text)
{
    static const char plain[] = "steps:", set[] = "steps=";
    char *sets[TERN_RECIPE_SETS];
    size_t body, n_sets = text ? tern_recipe_settings(text, sets, &body) : 0;
    int64_t steps = -1, n;

    for (const char *line = text; line && line < text + body;) {
        size_t len = strcspn(line, "\n");
        if (strncmp(line, plain, sizeof plain - 1) == 0 &&
            (n = read_steps(line + sizeof plain - 1)) > 0)
            steps = n;
        line += len + (line[len] == '\n');
    }
    for (size_t i = 0; i < n_sets; i++) {
        if (strncmp(sets[i], set, sizeof set - 1) == 0 &&
            (n = read_steps(sets[i] + sizeof set - 1)) > 0)
            steps = n;
        free(sets[i]);
    }
    return steps;
}
