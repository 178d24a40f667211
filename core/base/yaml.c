/* Values of a document: making, finding and reading them. */
#include "core/base/yaml_node.h"

#include "core/base/assert.h"
#include "core/base/str.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void tern_yaml_node_free(struct tern_yaml_node *n)
{
    if (!n)
        return;
    for (size_t i = 0; i < n->n; i++) {
        tern_yaml_node_free(n->values[i]);
        if (n->keys)
            free(n->keys[i]);
    }
    free(n->values);
    free(n->keys);
    free(n->asked);
    for (size_t i = 0; i < n->n_known; i++)
        free(n->known[i]);
    free(n->known);
    free(n->text);
    free(n->where);
    free(n);
}

struct tern_yaml_node *tern_yaml_node_new(struct tern_yaml *doc, enum tern_yaml_kind kind, int line,
                                          char *where)
{
    struct tern_yaml_node *n = calloc(1, sizeof *n);

    if (!n)
        abort();
    *n = (struct tern_yaml_node){.doc = doc, .kind = kind, .line = line, .where = where};
    doc->nodes++;
    return n;
}

void tern_yaml_node_add(struct tern_yaml_node *n, char *key, struct tern_yaml_node *value)
{
    if (n->n == n->cap) {
        n->cap = n->cap ? 2 * n->cap : 8;
        n->values = reallocarray(n->values, n->cap, sizeof *n->values);
        if (n->kind == TERN_YAML_MAP) {
            n->keys = reallocarray(n->keys, n->cap, sizeof *n->keys);
            n->asked = reallocarray(n->asked, n->cap, sizeof *n->asked);
        }
        if (!n->values || (n->kind == TERN_YAML_MAP && (!n->keys || !n->asked)))
            abort();
    }
    if (n->kind == TERN_YAML_MAP) {
        n->keys[n->n] = key;
        n->asked[n->n] = false;
    }
    n->values[n->n++] = value;
}

size_t tern_yaml_node_find(const struct tern_yaml_node *map, const char *key)
{
    size_t i = 0;

    while (i < map->n && strcmp(map->keys[i], key) != 0)
        i++;
    return i;
}

int tern_yaml_fail(const struct tern_yaml_node *n, struct tern_err *err, const char *fmt, ...)
{
    char text[800];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    const char *colon = *n->where ? ": " : "";
    if (n->line)
        return tern_err_set(err, TERN_USAGE, "%s:%d: %s%s%s", n->doc->path, n->line, n->where,
                            colon, text);
    return tern_err_set(err, TERN_USAGE, "--set %s%s%s", n->where, colon, text);
}

void tern_yaml_free(struct tern_yaml *doc)
{
    if (doc) {
        for (size_t i = 0; i < doc->n_remarks; i++)
            free(doc->remarks[i].text);
        free(doc->remarks);
        tern_yaml_node_free(doc->root);
        tern_yaml_node_free(doc->spare);
        free(doc->path);
        free(doc);
    }
}

struct tern_yaml_node *tern_yaml_root(struct tern_yaml *doc)
{
    return doc->root;
}

const char *tern_yaml_path(const struct tern_yaml *doc)
{
    return doc->path;
}

enum tern_yaml_kind tern_yaml_kind(const struct tern_yaml_node *n)
{
    return n->kind;
}

int tern_yaml_line(const struct tern_yaml_node *n)
{
    return n->line;
}

const char *tern_yaml_where(const struct tern_yaml_node *n)
{
    return n->where;
}

const char *tern_yaml_text(const struct tern_yaml_node *n)
{
    return n->text;
}

void tern_yaml_set_text(struct tern_yaml_node *n, const char *text)
{
    char *copy = tern_strdup(text);

    tern_assert(n->kind == TERN_YAML_TEXT, "%s", n->where);
    free(n->text);
    n->text = copy;
    n->quoted = true;
}

bool tern_yaml_is_plain(const struct tern_yaml_node *n)
{
    return n->text && !n->quoted;
}

const struct tern_yaml_remark *tern_yaml_remarks(const struct tern_yaml *doc, size_t *n)
{
    *n = doc->n_remarks;
    return doc->remarks;
}

const char *tern_yaml_file(const struct tern_yaml_node *n)
{
    return n->doc->path;
}

bool tern_yaml_is_null(const struct tern_yaml_node *n)
{
    return n->text && !n->quoted &&
           (!*n->text || strcmp(n->text, "~") == 0 || strcmp(n->text, "null") == 0);
}

size_t tern_yaml_count(const struct tern_yaml_node *n)
{
    return n->n;
}

struct tern_yaml_node *tern_yaml_at(const struct tern_yaml_node *n, size_t i)
{
    tern_assert_cmp(i, <, n->n);
    return n->values[i];
}

const char *tern_yaml_key(const struct tern_yaml_node *map, size_t i)
{
    tern_assert(map->kind == TERN_YAML_MAP, "%s", map->where);
    tern_assert_cmp(i, <, map->n);
    map->asked[i] = true;
    return map->keys[i];
}

struct tern_yaml_node *tern_yaml_get(const struct tern_yaml_node *map, const char *key)
{
    if (!map || map->kind != TERN_YAML_MAP)
        return NULL;
    /* Marking a key as read changes no value. */
    struct tern_yaml_node *m = (struct tern_yaml_node *)map;
    size_t i = tern_yaml_node_find(m, key);
    if (i < m->n) {
        m->asked[i] = true;
        return m->values[i];
    }
    for (size_t k = 0; k < m->n_known; k++)
        if (strcmp(m->known[k], key) == 0)
            return NULL;
    m->known = reallocarray(m->known, m->n_known + 1, sizeof *m->known);
    if (!m->known)
        abort();
    m->known[m->n_known++] = tern_strdup(key);
    return NULL;
}

int tern_yaml_expect(const struct tern_yaml_node *n, enum tern_yaml_kind kind, struct tern_err *err)
{
    static const char *const names[] = {"a single value", "a map (key: value)", "a list"};

    if (!n || n->kind == kind)
        return 0;
    return tern_yaml_fail(n, err, "is %s where %s is expected.", names[n->kind], names[kind]);
}

int tern_yaml_read_text(const struct tern_yaml_node *n, char **out, struct tern_err *err)
{
    if (!n)
        return 0;
    if (tern_yaml_expect(n, TERN_YAML_TEXT, err) < 0)
        return -1;
    if (tern_yaml_is_null(n))
        return tern_yaml_fail(n, err, "has no value.");
    free(*out);
    *out = tern_strdup(n->text);
    return 0;
}

int tern_yaml_read_bool(const struct tern_yaml_node *n, bool *out, struct tern_err *err)
{
    if (!n)
        return 0;
    if (tern_yaml_expect(n, TERN_YAML_TEXT, err) < 0)
        return -1;
    bool yes = strcmp(n->text, "true") == 0;
    if (!yes && strcmp(n->text, "false") != 0)
        return tern_yaml_fail(n, err, "'%s' is not true or false.", n->text);
    *out = yes;
    return 0;
}

int tern_yaml_read_int(const struct tern_yaml_node *n, int64_t lo, int64_t hi, int64_t *out,
                       struct tern_err *err)
{
    if (!n)
        return 0;
    if (tern_yaml_expect(n, TERN_YAML_TEXT, err) < 0)
        return -1;
    if (tern_str_int(n->text, lo, hi, out) < 0)
        return tern_yaml_fail(n, err, "'%s' is not a whole number from %lld to %lld.", n->text,
                              (long long)lo, (long long)hi);
    return 0;
}

int tern_yaml_read_real(const struct tern_yaml_node *n, double lo, double hi, double *out,
                        struct tern_err *err)
{
    if (!n)
        return 0;
    if (tern_yaml_expect(n, TERN_YAML_TEXT, err) < 0)
        return -1;
    if (tern_str_real(n->text, lo, hi, out) < 0)
        return tern_yaml_fail(n, err, "'%s' is not a number from %g to %g.", n->text, lo, hi);
    return 0;
}

int tern_yaml_read_word(const struct tern_yaml_node *n, const char *const *words, int *out,
                        struct tern_err *err)
{
    if (!n)
        return 0;
    if (tern_yaml_expect(n, TERN_YAML_TEXT, err) < 0)
        return -1;
    struct tern_buf all = {0};
    for (int i = 0; words[i]; i++) {
        if (strcmp(words[i], n->text) == 0) {
            *out = i;
            tern_buf_free(&all);
            return 0;
        }
        tern_buf_printf(&all, "%s%s", i ? ", " : "", words[i]);
    }
    tern_yaml_fail(n, err, "'%s' is not one of: %s.", n->text, all.data ? all.data : "");
    tern_buf_free(&all);
    return -1;
}

static int refuse_key(const struct tern_yaml_node *map, size_t i, struct tern_err *err)
{
    const struct tern_yaml_node *v = map->values[i];
    const char **names = calloc(map->n_known + map->n + 1, sizeof *names);
    size_t n = 0;

    if (!names)
        abort();
    for (size_t k = 0; k < map->n_known; k++)
        names[n++] = map->known[k];
    for (size_t k = 0; k < map->n; k++)
        if (map->asked[k])
            names[n++] = map->keys[k];
    const char *near = tern_str_nearest(map->keys[i], names);
    free(names);
    if (near)
        return tern_yaml_fail(v, err, "unknown key. Did you mean '%s'?", near);
    return tern_yaml_fail(v, err, "unknown key%s%s%s.", *map->where ? " in '" : "", map->where,
                          *map->where ? "'" : "");
}

int tern_yaml_no_others(const struct tern_yaml_node *n, struct tern_err *err)
{
    if (!n)
        return 0;
    for (size_t i = 0; i < n->n; i++) {
        if (n->kind == TERN_YAML_MAP && !n->asked[i])
            return refuse_key(n, i, err);
        if (tern_yaml_no_others(n->values[i], err) < 0)
            return -1;
    }
    return 0;
}
