#include "core/base/yaml.h"

#include "core/base/fs.h"
#include "core/base/str.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

enum { MAX_BYTES = 1 << 20, MAX_DEPTH = 32, MAX_NODES = 100000 };

struct tern_yaml_node {
    struct tern_yaml *doc;
    enum tern_yaml_kind kind;
    int line; /* 0: from --set */
    char *where;
    char *text;
    bool quoted;
    size_t n, cap;
    struct tern_yaml_node **values;
    char **keys;  /* of a map */
    bool *asked;  /* of a map: somebody knows this key */
    char **known; /* of a map: keys asked for and absent, for suggestions */
    size_t n_known;
};

struct tern_yaml {
    char *path;
    struct tern_yaml_node *root;
    size_t nodes;
};

static void node_free(struct tern_yaml_node *n)
{
    if (!n)
        return;
    for (size_t i = 0; i < n->n; i++) {
        node_free(n->values[i]);
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

static struct tern_yaml_node *node_new(struct tern_yaml *doc, enum tern_yaml_kind kind, int line,
                                       char *where)
{
    struct tern_yaml_node *n = calloc(1, sizeof *n);

    if (!n)
        abort();
    *n = (struct tern_yaml_node){.doc = doc, .kind = kind, .line = line, .where = where};
    doc->nodes++;
    return n;
}

static void node_add(struct tern_yaml_node *n, char *key, struct tern_yaml_node *value)
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

static size_t find(const struct tern_yaml_node *map, const char *key)
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

/* ------------------------------------------------------------------ reading events */

struct reader {
    struct tern_yaml *doc;
    yaml_parser_t parser;
    const char *set; /* the key of a --set value, else NULL */
    struct tern_err *err;
};

static int at(const struct reader *r, const yaml_event_t *e)
{
    return r->set ? 0 : (int)e->start_mark.line + 1;
}

static int refuse(struct reader *r, int line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static int refuse(struct reader *r, int line, const char *fmt, ...)
{
    char what[512];
    va_list args;

    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    if (r->set)
        return tern_err_set(r->err, TERN_USAGE, "--set %s: %s", r->set, what);
    return tern_err_set(r->err, TERN_USAGE, "%s:%d: %s", r->doc->path, line, what);
}

static int next(struct reader *r, yaml_event_t *e)
{
    if (yaml_parser_parse(&r->parser, e))
        return 0;
    const yaml_parser_t *p = &r->parser;
    size_t line = p->problem_mark.line ? p->problem_mark.line : p->context_mark.line;
    return refuse(r, (int)line + 1, "not valid YAML: %s%s%s",
                  p->problem ? p->problem : "unreadable", p->context ? ", " : "",
                  p->context ? p->context : "");
}

static struct tern_yaml_node *read_value(struct reader *r, yaml_event_t *e, char *where, int depth);

static struct tern_yaml_node *read_text(struct reader *r, yaml_event_t *e, char *where)
{
    if (e->data.scalar.anchor || e->data.scalar.tag) {
        refuse(r, at(r, e), "anchors and tags are not allowed; write the value out");
        free(where);
        return NULL;
    }
    if (strlen((const char *)e->data.scalar.value) != e->data.scalar.length) {
        refuse(r, at(r, e), "a NUL byte inside a value");
        free(where);
        return NULL;
    }
    struct tern_yaml_node *n = node_new(r->doc, TERN_YAML_TEXT, at(r, e), where);
    n->text = tern_strdup((const char *)e->data.scalar.value);
    n->quoted = e->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    return n;
}

static int read_map_entry(struct reader *r, struct tern_yaml_node *n, yaml_event_t *e, int depth)
{
    if (e->type != YAML_SCALAR_EVENT || e->data.scalar.anchor || e->data.scalar.tag)
        return refuse(r, at(r, e), "a key must be plain text, without anchor or tag");
    char *key = tern_strdup((const char *)e->data.scalar.value);
    int line = at(r, e);
    size_t old = find(n, key);
    if (old < n->n) {
        char first[40] = "";
        if (!r->set)
            snprintf(first, sizeof first, " (first on line %d)", n->values[old]->line);
        refuse(r, line, "key '%s' is given twice%s. Keep one.", key, first);
        free(key);
        return -1;
    }
    yaml_event_t ve;
    if (next(r, &ve) < 0) {
        free(key);
        return -1;
    }
    char *where = tern_strf("%s%s%s", n->where, *n->where ? "." : "", key);
    struct tern_yaml_node *v = read_value(r, &ve, where, depth + 1);
    yaml_event_delete(&ve);
    if (!v) {
        free(key);
        return -1;
    }
    if (v->kind == TERN_YAML_TEXT || v->line == 0)
        v->line = line; /* the key's line is where a reader looks */
    node_add(n, key, v);
    return 0;
}

static struct tern_yaml_node *read_collection(struct reader *r, yaml_event_t *first, char *where,
                                              int depth)
{
    bool map = first->type == YAML_MAPPING_START_EVENT;
    const void *anchor = map ? first->data.mapping_start.anchor : first->data.sequence_start.anchor;
    const void *tag = map ? first->data.mapping_start.tag : first->data.sequence_start.tag;
    struct tern_yaml_node *n =
        node_new(r->doc, map ? TERN_YAML_MAP : TERN_YAML_LIST, at(r, first), where);

    if (anchor || tag) {
        refuse(r, at(r, first), "anchors and tags are not allowed; write the value out");
        node_free(n);
        return NULL;
    }
    for (;;) {
        yaml_event_t e;
        if (next(r, &e) < 0)
            break;
        if (e.type == YAML_MAPPING_END_EVENT || e.type == YAML_SEQUENCE_END_EVENT) {
            yaml_event_delete(&e);
            return n;
        }
        int rc = 0;
        if (map) {
            rc = read_map_entry(r, n, &e, depth);
        } else {
            struct tern_yaml_node *v =
                read_value(r, &e, tern_strf("%s[%zu]", n->where, n->n), depth + 1);
            if (v)
                node_add(n, NULL, v);
            rc = v ? 0 : -1;
        }
        yaml_event_delete(&e);
        if (rc < 0)
            break;
    }
    node_free(n);
    return NULL;
}

/* Takes over `where`. */
static struct tern_yaml_node *read_value(struct reader *r, yaml_event_t *e, char *where, int depth)
{
    if (depth > MAX_DEPTH)
        refuse(r, at(r, e), "nested more than 32 levels deep");
    else if (r->doc->nodes >= MAX_NODES)
        refuse(r, at(r, e), "more than 100000 values");
    else if (e->type == YAML_SCALAR_EVENT)
        return read_text(r, e, where);
    else if (e->type == YAML_MAPPING_START_EVENT || e->type == YAML_SEQUENCE_START_EVENT)
        return read_collection(r, e, where, depth);
    else
        refuse(r, at(r, e), "aliases are not allowed; write the value out");
    free(where);
    return NULL;
}

/* Reads the one document of the stream; NULL with r->err on failure. */
static struct tern_yaml_node *read_document(struct reader *r, const char *where)
{
    struct tern_yaml_node *root = NULL;
    int documents = 0;

    for (;;) {
        yaml_event_t e;
        if (next(r, &e) < 0)
            break;
        yaml_event_type_t type = e.type;
        if (type == YAML_DOCUMENT_START_EVENT && ++documents > 1) {
            refuse(r, at(r, &e), "a second document; one is allowed");
            yaml_event_delete(&e);
            break;
        }
        bool value = type != YAML_STREAM_START_EVENT && type != YAML_STREAM_END_EVENT &&
                     type != YAML_DOCUMENT_START_EVENT && type != YAML_DOCUMENT_END_EVENT;
        if (value)
            root = read_value(r, &e, tern_strdup(where), 0);
        yaml_event_delete(&e);
        if (value && !root)
            return NULL;
        if (type == YAML_STREAM_END_EVENT)
            return root ? root : node_new(r->doc, TERN_YAML_MAP, 1, tern_strdup(where));
    }
    node_free(root);
    return NULL;
}

struct tern_yaml *tern_yaml_parse(const char *text, size_t len, const char *name,
                                  struct tern_err *err)
{
    struct tern_yaml *doc = calloc(1, sizeof *doc);
    struct reader r = {.doc = doc, .err = err};

    if (!doc || !yaml_parser_initialize(&r.parser))
        abort();
    doc->path = tern_strdup(name);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, len);
    doc->root = read_document(&r, "");
    yaml_parser_delete(&r.parser);
    if (!doc->root) {
        tern_yaml_free(doc);
        return NULL;
    }
    return doc;
}

struct tern_yaml *tern_yaml_load(const char *path, struct tern_err *err)
{
    char *text;
    size_t len;

    if (tern_fs_read(path, MAX_BYTES, &text, &len, err) < 0)
        return NULL;
    struct tern_yaml *doc = tern_yaml_parse(text, len, path, err);
    free(text);
    return doc;
}

void tern_yaml_free(struct tern_yaml *doc)
{
    if (doc) {
        node_free(doc->root);
        free(doc->path);
        free(doc);
    }
}

/* ------------------------------------------------------------------ asking */

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
    return n->values[i];
}

const char *tern_yaml_key(const struct tern_yaml_node *map, size_t i)
{
    map->asked[i] = true;
    return map->keys[i];
}

struct tern_yaml_node *tern_yaml_get(const struct tern_yaml_node *map, const char *key)
{
    if (!map || map->kind != TERN_YAML_MAP)
        return NULL;
    /* Being asked is bookkeeping, not a change of the value. */
    struct tern_yaml_node *m = (struct tern_yaml_node *)map;
    size_t i = find(m, key);
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

int tern_yaml_want(const struct tern_yaml_node *n, enum tern_yaml_kind kind, struct tern_err *err)
{
    static const char *const names[] = {"a single value", "a map (key: value)", "a list"};

    if (!n || n->kind == kind)
        return 0;
    return tern_yaml_fail(n, err, "is %s where %s is wanted.", names[n->kind], names[kind]);
}

int tern_yaml_read_text(const struct tern_yaml_node *n, char **out, struct tern_err *err)
{
    if (!n)
        return 0;
    if (tern_yaml_want(n, TERN_YAML_TEXT, err) < 0)
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
    if (tern_yaml_want(n, TERN_YAML_TEXT, err) < 0)
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
    if (tern_yaml_want(n, TERN_YAML_TEXT, err) < 0)
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
    if (tern_yaml_want(n, TERN_YAML_TEXT, err) < 0)
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
    if (tern_yaml_want(n, TERN_YAML_TEXT, err) < 0)
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

/* ------------------------------------------------------------------ overriding */

static struct tern_yaml_node *parse_override(struct tern_yaml *doc, const char *dotted,
                                             const char *value, struct tern_err *err)
{
    struct reader r = {.doc = doc, .set = dotted, .err = err};

    if (!yaml_parser_initialize(&r.parser))
        abort();
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)value, strlen(value));
    struct tern_yaml_node *v = read_document(&r, dotted);
    yaml_parser_delete(&r.parser);
    if (v && v->kind == TERN_YAML_MAP && v->n == 0 && value[strspn(value, " \t\n")] == '\0') {
        node_free(v); /* nothing: a text without letters, as `key:` is in a file */
        v = node_new(doc, TERN_YAML_TEXT, 0, tern_strdup(dotted));
        v->text = tern_strdup("");
    }
    if (v)
        v->line = 0;
    return v;
}

static void remove_key(struct tern_yaml_node *map, size_t i)
{
    if (i == map->n)
        return;
    node_free(map->values[i]);
    free(map->keys[i]);
    map->n--;
    memmove(&map->values[i], &map->values[i + 1], (map->n - i) * sizeof *map->values);
    memmove(&map->keys[i], &map->keys[i + 1], (map->n - i) * sizeof *map->keys);
    memmove(&map->asked[i], &map->asked[i + 1], (map->n - i) * sizeof *map->asked);
}

int tern_yaml_override(struct tern_yaml *doc, const char *dotted, const char *value,
                       struct tern_err *err)
{
    struct tern_yaml_node *map = doc->root, *v = parse_override(doc, dotted, value, err);

    if (!v)
        return -1;
    for (const char *s = dotted;;) {
        size_t len = strcspn(s, ".");
        if (len == 0 || map->kind != TERN_YAML_MAP) {
            node_free(v);
            return tern_err_set(err, TERN_USAGE, "--set %s: no such place in %s", dotted,
                                doc->path);
        }
        char *key = tern_strf("%.*s", (int)len, s);
        size_t i = find(map, key);
        bool last = s[len] == '\0';
        if (last && tern_yaml_is_null(v) && *v->text) {
            remove_key(map, i);
            node_free(v);
            free(key);
            return 0;
        }
        if (last && i < map->n) {
            node_free(map->values[i]);
            map->values[i] = v;
            free(key);
            return 0;
        }
        if (i == map->n)
            node_add(map, tern_strdup(key),
                     last ? v
                          : node_new(doc, TERN_YAML_MAP, 0,
                                     tern_strf("%.*s", (int)(s + len - dotted), dotted)));
        free(key);
        if (last)
            return 0;
        map = map->values[i];
        s += len + 1;
    }
}

char *tern_yaml_setting(const char *key, const char *text)
{
    struct tern_buf b = {0};

    tern_buf_printf(&b, "%s='", key);
    for (; *text; text++)
        tern_buf_puts(&b, *text == '\'' ? "''" : (char[]){*text, '\0'});
    tern_buf_puts(&b, "'");
    return b.data;
}

/* ------------------------------------------------------------------ writing */

/* In double quotes where a line or a control byte is in it, else in single ones; bare where every
 * reader takes it for the same text. */
static void write_text(struct tern_buf *to, const char *s, bool quoted)
{
    static const char bare[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./+-=";
    bool control = false;

    for (const char *c = s; *c; c++)
        control |= (unsigned char)*c < ' ' || *c == 0x7f;
    if (!quoted && *s && strspn(s, bare) == strlen(s) && (*s != '-' || s[1]) && *s != '=') {
        tern_buf_puts(to, s);
    } else if (!quoted && (!*s || strcmp(s, "~") == 0)) {
        tern_buf_puts(to, "null");
    } else if (control) {
        tern_buf_puts(to, "\"");
        for (const char *c = s; *c; c++) {
            if ((unsigned char)*c < ' ' || *c == 0x7f)
                tern_buf_printf(to, "\\x%02x", (unsigned char)*c);
            else
                tern_buf_printf(to, *c == '"' || *c == '\\' ? "\\%c" : "%c", *c);
        }
        tern_buf_puts(to, "\"");
    } else {
        tern_buf_puts(to, "'");
        for (const char *c = s; *c; c++)
            tern_buf_puts(to, *c == '\'' ? "''" : (char[]){*c, '\0'});
        tern_buf_puts(to, "'");
    }
}

void tern_yaml_write(struct tern_buf *to, const struct tern_yaml_node *n)
{
    if (n->kind == TERN_YAML_TEXT) {
        write_text(to, n->text, n->quoted);
        return;
    }
    tern_buf_puts(to, n->kind == TERN_YAML_MAP ? "{" : "[");
    for (size_t i = 0; i < n->n; i++) {
        tern_buf_puts(to, i ? ", " : "");
        if (n->kind == TERN_YAML_MAP) {
            write_text(to, n->keys[i], false);
            tern_buf_puts(to, ": ");
        }
        tern_yaml_write(to, n->values[i]);
    }
    tern_buf_puts(to, n->kind == TERN_YAML_MAP ? "}" : "]");
}

/* A value behind its key or dash, which stand in `to` already from `from` on. */
static void write_block(struct tern_buf *to, const struct tern_yaml_node *n, size_t from,
                        int indent, size_t columns)
{
    struct tern_buf line = {0};

    tern_yaml_write(&line, n);
    if (n->kind == TERN_YAML_TEXT || n->n == 0 || to->len - from + 1 + line.len <= columns) {
        tern_buf_printf(to, " %s\n", line.data);
        tern_buf_free(&line);
        return;
    }
    tern_buf_free(&line);
    for (size_t i = 0; i < n->n; i++) {
        tern_buf_puts(to, i ? "" : "\n");
        from = to->len;
        tern_buf_printf(to, "%*s", indent, "");
        if (n->kind == TERN_YAML_MAP) {
            write_text(to, n->keys[i], false);
            tern_buf_puts(to, ":");
        } else {
            tern_buf_puts(to, "-");
        }
        write_block(to, n->values[i], from, indent + 2, columns);
    }
}

void tern_yaml_write_document(struct tern_buf *to, const struct tern_yaml *doc, size_t columns)
{
    for (size_t i = 0; i < doc->root->n; i++) {
        size_t from = to->len;
        write_text(to, doc->root->keys[i], false);
        tern_buf_puts(to, ":");
        write_block(to, doc->root->values[i], from, 2, columns);
    }
}

bool tern_yaml_same(const struct tern_yaml_node *a, const struct tern_yaml_node *b)
{
    struct tern_buf x = {0}, y = {0};

    if (!a || !b)
        return a == b;
    tern_yaml_write(&x, a);
    tern_yaml_write(&y, b);
    bool same = strcmp(x.data, y.data) == 0;
    tern_buf_free(&x);
    tern_buf_free(&y);
    return same;
}
