/* From text to a document, and --set over it. */
#include "core/base/yaml_node.h"

#include "core/base/fs.h"
#include "core/base/str.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

enum { MAX_BYTES = 1 << 20, MAX_DEPTH = 32, MAX_NODES = 100000 };

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
    struct tern_yaml_node *n = tern_yaml_node_new(r->doc, TERN_YAML_TEXT, at(r, e), where);
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
    size_t old = tern_yaml_node_find(n, key);
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
    tern_yaml_node_add(n, key, v);
    return 0;
}

static struct tern_yaml_node *read_collection(struct reader *r, yaml_event_t *first, char *where,
                                              int depth)
{
    bool map = first->type == YAML_MAPPING_START_EVENT;
    const void *anchor = map ? first->data.mapping_start.anchor : first->data.sequence_start.anchor;
    const void *tag = map ? first->data.mapping_start.tag : first->data.sequence_start.tag;
    struct tern_yaml_node *n =
        tern_yaml_node_new(r->doc, map ? TERN_YAML_MAP : TERN_YAML_LIST, at(r, first), where);

    if (anchor || tag) {
        refuse(r, at(r, first), "anchors and tags are not allowed; write the value out");
        tern_yaml_node_free(n);
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
                tern_yaml_node_add(n, NULL, v);
            rc = v ? 0 : -1;
        }
        yaml_event_delete(&e);
        if (rc < 0)
            break;
    }
    tern_yaml_node_free(n);
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
            return root ? root : tern_yaml_node_new(r->doc, TERN_YAML_MAP, 1, tern_strdup(where));
    }
    tern_yaml_node_free(root);
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
        tern_yaml_node_free(v); /* an empty text, as of `key:` in a file */
        v = tern_yaml_node_new(doc, TERN_YAML_TEXT, 0, tern_strdup(dotted));
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
    tern_yaml_node_free(map->values[i]);
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
            tern_yaml_node_free(v);
            return tern_err_set(err, TERN_USAGE, "--set %s: no such place in %s", dotted,
                                doc->path);
        }
        char *key = tern_strf("%.*s", (int)len, s);
        size_t i = tern_yaml_node_find(map, key);
        bool last = s[len] == '\0';
        if (last && tern_yaml_is_null(v) && *v->text) {
            remove_key(map, i);
            tern_yaml_node_free(v);
            free(key);
            return 0;
        }
        if (last && i < map->n) {
            tern_yaml_node_free(map->values[i]);
            map->values[i] = v;
            free(key);
            return 0;
        }
        if (i == map->n)
            tern_yaml_node_add(
                map, tern_strdup(key),
                last ? v
                     : tern_yaml_node_new(doc, TERN_YAML_MAP, 0,
                                          tern_strf("%.*s", (int)(s + len - dotted), dotted)));
        free(key);
        if (last)
            return 0;
        map = map->values[i];
        s += len + 1;
    }
}
