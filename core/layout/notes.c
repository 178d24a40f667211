#include "core/layout/notes.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void note(struct tern_layout *l, bool error, const char *text)
{
    for (size_t i = 0; i < l->n_notes; i++)
        if (strcmp(l->notes[i].text, text) == 0)
            return;
    l->n_errors += error; /* counted even when it is not kept */
    if (!l->notes)
        l->notes = tern_alloc(TERN_LAYOUT_MAX_NOTES, sizeof *l->notes, "notes", NULL);
    if (l->notes && l->n_notes < TERN_LAYOUT_MAX_NOTES)
        l->notes[l->n_notes++] =
            (struct tern_layout_note){.error = error, .text = tern_strdup(text)};
}

static void note_at(struct tern_layout *l, bool error, const struct tern_yaml_node *n,
                    const char *fmt, va_list ap)
{
    struct tern_err err = {0};
    char text[sizeof err.text];

    vsnprintf(text, sizeof text, fmt, ap);
    tern_yaml_fail(n, &err, "%s", text);
    note(l, error, err.text);
}

void tern_layout_error(struct tern_layout *l, const struct tern_yaml_node *n, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    note_at(l, true, n, fmt, ap);
    va_end(ap);
}

void tern_layout_warn(struct tern_layout *l, const struct tern_yaml_node *n, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    note_at(l, false, n, fmt, ap);
    va_end(ap);
}

void tern_layout_note(struct tern_layout *l, const struct tern_err *err)
{
    note(l, true, err->text);
}

struct tern_yaml_node *tern_layout_get(struct tern_layout *l, const struct tern_yaml_node *map,
                                       const char *key, bool required)
{
    struct tern_yaml_node *n = tern_yaml_get(map, key);

    if (!n && required && map)
        tern_layout_error(l, map, "'%s' is missing. Add it.", key);
    return n;
}

static struct tern_yaml_node *of_kind(struct tern_layout *l, struct tern_yaml_node *n,
                                      enum tern_yaml_kind kind)
{
    struct tern_err err;

    if (tern_yaml_want(n, kind, &err) == 0)
        return n;
    tern_layout_note(l, &err);
    return NULL;
}

struct tern_yaml_node *tern_layout_map(struct tern_layout *l, const struct tern_yaml_node *map,
                                       const char *key, bool required)
{
    return of_kind(l, tern_layout_get(l, map, key, required), TERN_YAML_MAP);
}

struct tern_yaml_node *tern_layout_list(struct tern_layout *l, const struct tern_yaml_node *map,
                                        const char *key, bool required)
{
    return of_kind(l, tern_layout_get(l, map, key, required), TERN_YAML_LIST);
}

struct tern_yaml_node *tern_layout_text(struct tern_layout *l, const struct tern_yaml_node *map,
                                        const char *key, bool required, char **out)
{
    struct tern_yaml_node *n = tern_layout_get(l, map, key, required);
    struct tern_err err;

    if (tern_yaml_read_text(n, out, &err) == 0)
        return n;
    tern_layout_note(l, &err);
    return NULL;
}

struct tern_yaml_node *tern_layout_bool(struct tern_layout *l, const struct tern_yaml_node *map,
                                        const char *key, bool *out)
{
    struct tern_yaml_node *n = tern_yaml_get(map, key);
    struct tern_err err;

    if (tern_yaml_read_bool(n, out, &err) == 0)
        return n;
    tern_layout_note(l, &err);
    return NULL;
}

struct tern_yaml_node *tern_layout_int(struct tern_layout *l, const struct tern_yaml_node *map,
                                       const char *key, int64_t lo, int64_t hi, int64_t *out)
{
    struct tern_yaml_node *n = tern_yaml_get(map, key);
    struct tern_err err;

    if (tern_yaml_read_int(n, lo, hi, out, &err) == 0)
        return n;
    tern_layout_note(l, &err);
    return NULL;
}

static void accept_all(const struct tern_yaml_node *n)
{
    if (!n || tern_yaml_kind(n) == TERN_YAML_TEXT)
        return;
    for (size_t i = 0; i < tern_yaml_count(n); i++) {
        if (tern_yaml_kind(n) == TERN_YAML_MAP)
            tern_yaml_key(n, i);
        accept_all(tern_yaml_at(n, i));
    }
}

void tern_layout_accept(const struct tern_yaml_node *map, const char *const *keys)
{
    for (; map && *keys; keys++)
        accept_all(tern_yaml_get(map, *keys));
}

void tern_layout_no_others(struct tern_layout *l, const struct tern_yaml_node *map)
{
    struct tern_err err;

    if (tern_yaml_no_others(map, &err) < 0)
        tern_layout_note(l, &err);
}
