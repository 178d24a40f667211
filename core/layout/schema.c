/* A file beside the table of keys: every unknown or missing key, every value of a wrong type,
 * range or form. */
#include "core/layout/keys.h"
#include "core/layout/notes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check_value(struct tern_layout *l, const struct tern_yaml_node *n,
                        const struct tern_layout_key *k);

static void unknown_key(struct tern_layout *l, const struct tern_yaml_node *map, size_t i,
                        const struct tern_layout_key *keys)
{
    const char *key = tern_yaml_key(map, i), *names[64];
    size_t n = 0;

    for (; keys[n].name && n + 1 < sizeof names / sizeof *names; n++)
        names[n] = keys[n].name;
    names[n] = NULL;
    const char *near = tern_str_nearest(key, names);
    if (near) {
        tern_layout_error(l, "key-unknown", tern_yaml_at(map, i), "unknown key. Did you mean '%s'?",
                          near);
        return;
    }
    struct tern_buf all = {0};
    for (size_t k = 0; k < n; k++)
        tern_buf_printf(&all, "%s%s", k ? ", " : "", names[k]);
    tern_layout_error(l, "key-unknown", tern_yaml_at(map, i),
                      "unknown key. Remove it; the keys here are: %s.", all.data);
    tern_buf_free(&all);
}

void tern_layout_check_keys(struct tern_layout *l, const struct tern_yaml_node *map,
                            const struct tern_layout_key *keys)
{
    for (size_t i = 0; i < tern_yaml_count(map); i++) {
        const struct tern_layout_key *k = keys;
        while (k->name && strcmp(k->name, tern_yaml_key(map, i)) != 0)
            k++;
        if (k->name)
            check_value(l, tern_yaml_at(map, i), k);
        else
            unknown_key(l, map, i, keys);
    }
    for (const struct tern_layout_key *k = keys; k->name; k++)
        if (k->required && !tern_yaml_get(map, k->name))
            tern_layout_error(l, "key-missing", map, "'%s' is missing. Add it.", k->name);
}

/* "A|B|C" has it; else the nearest of these as "Did you mean 'B'?" in `hint`. */
static bool is_word(const char *words, const char *text, char *hint, size_t size)
{
    char *copy = tern_strdup(words), *rest = copy;
    const char *all[32];
    size_t n = 0;
    bool found = false;

    for (const char *w; (w = strsep(&rest, "|")) && n + 1 < sizeof all / sizeof *all;) {
        all[n++] = w;
        found = found || strcmp(w, text) == 0;
    }
    all[n] = NULL;
    const char *near = tern_str_nearest(text, all);
    snprintf(hint, size, near ? " Did you mean '%s'?" : "%s", near ? near : "");
    free(copy);
    return found;
}

static void wrong_word(struct tern_layout *l, const struct tern_yaml_node *n, const char *words,
                       const char *text, const char *hint)
{
    struct tern_buf all = {0};

    for (const char *s = words; *s; s++)
        tern_buf_printf(&all, *s == '|' ? ", " : "%c", *s);
    tern_layout_error(l, "value-word", n, "'%s' is not one of: %s.%s", text, all.data,
                      *hint ? hint : " Write one of them.");
    tern_buf_free(&all);
}

/* Letters of UTF-8. */
static int64_t letters(const char *s)
{
    int64_t n = 0;

    for (; *s; s++)
        n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

static void check_text(struct tern_layout *l, const struct tern_yaml_node *n,
                       const struct tern_layout_key *k)
{
    const char *text = tern_layout_as_text(n);
    char hint[80];

    if (!text && tern_yaml_kind(n) == TERN_YAML_TEXT) {
        if (tern_layout_kind(n) == TERN_LAYOUT_NULL)
            tern_layout_error(l, "value-null", n, "has no value. Write one, or remove the key.");
        else
            tern_layout_error(l, "value-type", n,
                              "%s is %s, where a text is expected. Write \"%s\", with the quotes.",
                              tern_yaml_text(n), tern_layout_kind_name(n), tern_yaml_text(n));
        return;
    }
    if (!text) {
        tern_layout_error(l, "value-type", n, "is %s, where a text is expected. Write one value.",
                          tern_layout_kind_name(n));
        return;
    }
    if (k->words && !is_word(k->words, text, hint, sizeof hint)) {
        wrong_word(l, n, k->words, text, hint);
        return;
    }
    if (k->form && strstr(text, "${"))
        tern_layout_error(l, "value-variable", n,
                          "'%s' is a variable. Give its value in a file with --vars.", text);
    else if (k->form && !tern_layout_matches(k->form->pattern, text))
        tern_layout_error(l, "value-form", n, "'%s' has a wrong form. Write one such as %s.", text,
                          k->form->example);
    int64_t long_as = letters(text);
    if (k->type == TEXT && k->hi && (long_as < k->lo || long_as > k->hi))
        tern_layout_error(l, "value-length", n,
                          "has %lld letters; %lld to %lld are allowed. Write another.",
                          (long long)long_as, (long long)k->lo, (long long)k->hi);
}

static void wrong_range(struct tern_layout *l, const struct tern_yaml_node *n,
                        const struct tern_layout_key *k)
{
    if (k->hi == INT64_MAX)
        tern_layout_error(l, "value-range", n, "%s is too small. The least is %lld.",
                          tern_yaml_text(n), (long long)k->lo);
    else
        tern_layout_error(l, "value-range", n, "%s is out of range. Write %lld to %lld.",
                          tern_yaml_text(n), (long long)k->lo, (long long)k->hi);
}

static void wrong_type(struct tern_layout *l, const struct tern_yaml_node *n, const char *expected,
                       const char *example)
{
    const char *text = tern_yaml_text(n);

    if (text && tern_layout_kind(n) == TERN_LAYOUT_NULL)
        tern_layout_error(l, "value-null", n, "has no value. Write one, or remove the key.");
    else if (text)
        tern_layout_error(l, "value-type", n, "'%s' is %s, where %s is expected. Write %s.", text,
                          tern_layout_kind_name(n), expected, example);
    else
        tern_layout_error(l, "value-type", n, "is %s, where %s is expected. Write %s.",
                          tern_layout_kind_name(n), expected, example);
}

static void check_int(struct tern_layout *l, const struct tern_yaml_node *n,
                      const struct tern_layout_key *k)
{
    int64_t value;
    bool exact;
    char hint[80], decimal[32];

    if (!tern_layout_as_int(n, &value, &exact)) {
        wrong_type(l, n, "a whole number", "digits, such as 4");
        return;
    }
    const char *text = tern_yaml_text(n);
    snprintf(decimal, sizeof decimal, "%lld", (long long)value);
    if (!exact)
        tern_layout_warn(l, "value-cut", n, "%s is taken as %s. Write that.", text, decimal);
    else if (tern_layout_kind(n) == TERN_LAYOUT_INT &&
             strspn(text, "+-0123456789_") != strlen(text) + (text[0] == '0' && text[1]))
        tern_layout_warn(l, "value-base", n, "%s is read as %s (YAML 1.1). Write that.", text,
                         decimal);
    if (k->words && !is_word(k->words, decimal, hint, sizeof hint))
        wrong_word(l, n, k->words, decimal, "");
    if (k->hi && (value < k->lo || value > k->hi))
        wrong_range(l, n, k);
}

static void check_real(struct tern_layout *l, const struct tern_yaml_node *n,
                       const struct tern_layout_key *k)
{
    double value;

    if (!tern_layout_as_real(n, &value))
        wrong_type(l, n, "a number", "one, such as 20.5");
    else if (k->hi && (value < (double)k->lo || value > (double)k->hi))
        wrong_range(l, n, k);
}

static void check_list(struct tern_layout *l, const struct tern_yaml_node *n,
                       const struct tern_layout_key *k)
{
    size_t members = tern_yaml_count(n);

    if (k->hi && ((int64_t)members < k->lo || (int64_t)members > k->hi)) {
        if (k->hi == INT64_MAX)
            tern_layout_error(l, "list-length", n, "is empty. Add a member.");
        else
            tern_layout_error(l, "list-length", n, "has %zu members; %lld to %lld are allowed. %s",
                              members, (long long)k->lo, (long long)k->hi,
                              members ? "Remove some." : "Add one.");
    }
    for (size_t i = 0; i < members; i++) {
        const struct tern_yaml_node *m = tern_yaml_at(n, i);
        if (k->type == TEXTS)
            check_text(l, m, k);
        else if (tern_yaml_kind(m) != TERN_YAML_MAP)
            wrong_type(l, m, "a map (key: value)", "its keys");
        else if (k->of)
            tern_layout_check_keys(l, m, k->of);
    }
}

static void check_action(struct tern_layout *l, const struct tern_yaml_node *n,
                         const struct tern_layout_key *k)
{
    bool script = tern_yaml_get(n, "Script"), sequence = tern_yaml_get(n, "Sequence");

    if (script && sequence)
        tern_layout_error(l, "action-both", n, "has Script and Sequence. Keep one.");
    else if (!script && !sequence)
        tern_layout_error(l, "key-missing", n, "'Script' is missing. Add it, or a Sequence.");
    tern_layout_check_keys(l, n, k->of);
}

static void check_value(struct tern_layout *l, const struct tern_yaml_node *n,
                        const struct tern_layout_key *k)
{
    bool yes;

    switch (k->type) {
    case TEXT:
        check_text(l, n, k);
        return;
    case INT:
        check_int(l, n, k);
        return;
    case REAL:
        check_real(l, n, k);
        return;
    case BOOL:
        if (!tern_layout_as_bool(n, &yes))
            wrong_type(l, n, "true or false", "one of the two");
        return;
    case ANY:
        if (tern_yaml_kind(n) == TERN_YAML_TEXT && tern_layout_kind(n) == TERN_LAYOUT_NULL)
            wrong_type(l, n, "a value", "one");
        return;
    case TEXTS:
    case LIST:
    case SETTINGS_LIST:
        if (tern_yaml_kind(n) == TERN_YAML_LIST)
            check_list(l, n, k);
        else
            wrong_type(l, n, "a list", "a '-' before each member");
        return;
    case MAP:
    case ACTION:
    case SETTINGS:
        if (tern_yaml_kind(n) != TERN_YAML_MAP)
            wrong_type(l, n, "a map (key: value)", "its keys");
        else if (k->type == ACTION)
            check_action(l, n, k);
        else if (k->of)
            tern_layout_check_keys(l, n, k->of);
        return;
    }
}
