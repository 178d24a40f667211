/* From text to a document, and --set over it. */
#include "core/base/yaml_node.h"

#include "core/base/fs.h"
#include "core/base/str.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

enum { MAX_BYTES = 1 << 20, MAX_DEPTH = 32, MAX_NODES = 100000, MAX_REMARKS = 100 };

/* A value that has an anchor. */
struct anchor {
    char *name;
    const struct tern_yaml_node *value;
};

struct reader {
    struct tern_yaml *doc;
    yaml_parser_t parser;
    const char *set; /* the key of a --set value, else NULL */
    bool loose;      /* tern_yaml_load_1_1 */
    size_t n_anchors;
    struct anchor *anchors;
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

/* Keep a remark on `line`; takes over `text`. */
static void remark(struct reader *r, enum tern_yaml_remark_kind kind, int line, char *text)
{
    struct tern_yaml *d = r->doc;

    if (d->n_remarks == MAX_REMARKS) {
        free(text);
        return;
    }
    d->remarks = reallocarray(d->remarks, d->n_remarks + 1, sizeof *d->remarks);
    if (!d->remarks)
        abort();
    d->remarks[d->n_remarks++] =
        (struct tern_yaml_remark){.kind = kind, .line = line, .text = text};
}

/* The tag of YAML's own types, "str" of "tag:yaml.org,2002:str"; NULL for any other. */
static const char *own_tag(const char *tag)
{
    static const char own[] = "tag:yaml.org,2002:";

    return strncmp(tag, own, strlen(own)) == 0 ? tag + strlen(own) : NULL;
}

/* Is the tag of a value of `kind` taken?  Any other is a remark, and the value stands without it.
 */
static void read_tag(struct reader *r, const char *tag, int line, struct tern_yaml_node *n)
{
    static const char *const of[][6] = {
        [TERN_YAML_TEXT] = {"str", "int", "bool", "float", "null", NULL},
        [TERN_YAML_MAP] = {"map", NULL},
        [TERN_YAML_LIST] = {"seq", NULL},
    };
    const char *own = tag ? own_tag(tag) : NULL;

    if (!tag || strcmp(tag, "!") == 0)
        return;
    for (size_t i = 0; own && of[n->kind][i]; i++)
        if (strcmp(own, of[n->kind][i]) == 0) {
            n->quoted = n->kind == TERN_YAML_TEXT && i == 0;
            return;
        }
    remark(r, TERN_YAML_TAG, line, own ? tern_strf("!!%s", own) : tern_strdup(tag));
}

/* Remember a value for aliases. */
static int read_anchor(struct reader *r, const char *name, const struct tern_yaml_node *n)
{
    if (!name)
        return 0;
    for (size_t i = 0; i < r->n_anchors; i++)
        if (strcmp(r->anchors[i].name, name) == 0)
            return refuse(r, n->line, "anchor &%s is given twice (first on line %d). Rename one.",
                          name, r->anchors[i].value->line);
    r->anchors = reallocarray(r->anchors, r->n_anchors + 1, sizeof *r->anchors);
    if (!r->anchors)
        abort();
    r->anchors[r->n_anchors++] = (struct anchor){tern_strdup(name), n};
    return 0;
}

/* A copy of `n` and all below it, reached by `where` (taken over).  NULL where the document would
 * grow beyond its limit: a few aliases of aliases stand for billions of values. */
static struct tern_yaml_node *copy(struct reader *r, const struct tern_yaml_node *n, char *where,
                                   int line, int depth)
{
    if (r->doc->nodes >= MAX_NODES || depth > MAX_DEPTH) {
        refuse(r, line,
               depth > MAX_DEPTH ? "nested more than 32 levels deep" : "more than 100000 values");
        free(where);
        return NULL;
    }
    struct tern_yaml_node *to = tern_yaml_node_new(r->doc, n->kind, line, where);
    to->text = n->text ? tern_strdup(n->text) : NULL;
    to->quoted = n->quoted;
    for (size_t i = 0; i < n->n; i++) {
        const char *key = n->keys ? n->keys[i] : NULL;
        char *below = key ? tern_strf("%s%s%s", to->where, *to->where ? "." : "", key)
                          : tern_strf("%s[%zu]", to->where, i);
        struct tern_yaml_node *v = copy(r, n->values[i], below, n->values[i]->line, depth + 1);
        if (!v) {
            tern_yaml_node_free(to);
            return NULL;
        }
        tern_yaml_node_add(to, key ? tern_strdup(key) : NULL, v);
    }
    return to;
}

static struct tern_yaml_node *read_alias(struct reader *r, yaml_event_t *e, char *where, int depth)
{
    const char *name = (const char *)e->data.alias.anchor;

    if (!r->loose) {
        refuse(r, at(r, e), "aliases are not allowed; write the value out");
        free(where);
        return NULL;
    }
    for (size_t i = r->n_anchors; i > 0; i--)
        if (strcmp(r->anchors[i - 1].name, name) == 0)
            return copy(r, r->anchors[i - 1].value, where, at(r, e), depth);
    refuse(r, at(r, e), "alias *%s: no value before it has the anchor &%s", name, name);
    free(where);
    return NULL;
}

static struct tern_yaml_node *read_text(struct reader *r, yaml_event_t *e, char *where)
{
    if (!r->loose && (e->data.scalar.anchor || e->data.scalar.tag)) {
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
    read_tag(r, (const char *)e->data.scalar.tag, n->line, n);
    if (read_anchor(r, (const char *)e->data.scalar.anchor, n) < 0) {
        tern_yaml_node_free(n);
        return NULL;
    }
    return n;
}

/* `<<: *base`: kept beside the map's own keys until all of those are known.  Takes over `v`. */
static int read_merge(struct reader *r, struct tern_yaml_node *merges, struct tern_yaml_node *v,
                      int line)
{
    bool maps = v->kind == TERN_YAML_MAP;

    for (size_t i = 0; v->kind == TERN_YAML_LIST && i < v->n; i++)
        maps = i == 0 || maps ? v->values[i]->kind == TERN_YAML_MAP : false;
    tern_yaml_node_add(maps ? merges : r->doc->spare, NULL, v);
    if (!maps)
        return refuse(r, line, "<< merges a map, or a list of maps; this is neither");
    remark(r, TERN_YAML_MERGE, line, tern_strdup("<<"));
    return 0;
}

/* The keys of `from` that `n` does not have. */
static int merge(struct reader *r, struct tern_yaml_node *n, const struct tern_yaml_node *from,
                 int depth)
{
    for (size_t i = 0; from->kind == TERN_YAML_LIST && i < from->n; i++)
        if (merge(r, n, from->values[i], depth) < 0)
            return -1;
    for (size_t i = 0; from->kind == TERN_YAML_MAP && i < from->n; i++) {
        const char *key = from->keys[i];
        if (tern_yaml_node_find(n, key) < n->n)
            continue;
        char *where = tern_strf("%s%s%s", n->where, *n->where ? "." : "", key);
        struct tern_yaml_node *v = copy(r, from->values[i], where, from->values[i]->line, depth);
        if (!v)
            return -1;
        tern_yaml_node_add(n, tern_strdup(key), v);
    }
    return 0;
}

/* A key that the map has already. */
static int refuse_second(struct reader *r, const struct tern_yaml_node *n, size_t old, int line)
{
    char first[40] = "";

    if (!r->set)
        snprintf(first, sizeof first, " (first on line %d)", n->values[old]->line);
    if (!r->loose)
        return refuse(r, line, "key '%s' is given twice%s. Keep one.", n->keys[old], first);
    remark(r, TERN_YAML_TWICE, line, tern_strf("'%s' is given twice%s", n->keys[old], first));
    return 0;
}

static int read_map_entry(struct reader *r, struct tern_yaml_node *n, struct tern_yaml_node *merges,
                          yaml_event_t *e, int depth)
{
    if (e->type != YAML_SCALAR_EVENT || e->data.scalar.anchor || e->data.scalar.tag)
        return refuse(r, at(r, e), "a key must be plain text, without anchor or tag");
    char *key = tern_strdup((const char *)e->data.scalar.value);
    int line = at(r, e);
    bool merged =
        r->loose && strcmp(key, "<<") == 0 && e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    size_t old = tern_yaml_node_find(n, key);
    if (old < n->n && refuse_second(r, n, old, line) < 0) {
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
    if (merged) {
        free(key);
        return read_merge(r, merges, v, line);
    }
    if (old < n->n) { /* an anchor inside it may still be asked for */
        tern_yaml_node_add(r->doc->spare, NULL, v);
        free(key);
        return 0;
    }
    tern_yaml_node_add(n, key, v);
    return 0;
}

/* Put the merged maps' keys into `n`, and keep the values: anchors may lie in them. */
static int finish_map(struct reader *r, struct tern_yaml_node *n, struct tern_yaml_node *merges,
                      int depth)
{
    int rc = 0;

    for (size_t i = 0; i < merges->n; i++) {
        if (rc == 0)
            rc = merge(r, n, merges->values[i], depth + 1);
        tern_yaml_node_add(r->doc->spare, NULL, merges->values[i]);
    }
    merges->n = 0;
    return rc;
}

/* The members up to the end of the collection. */
static int read_members(struct reader *r, struct tern_yaml_node *n, struct tern_yaml_node *merges,
                        int depth)
{
    for (;;) {
        yaml_event_t e;
        if (next(r, &e) < 0)
            return -1;
        if (e.type == YAML_MAPPING_END_EVENT || e.type == YAML_SEQUENCE_END_EVENT) {
            yaml_event_delete(&e);
            return 0;
        }
        int rc = 0;
        if (n->kind == TERN_YAML_MAP) {
            rc = read_map_entry(r, n, merges, &e, depth);
        } else {
            struct tern_yaml_node *v =
                read_value(r, &e, tern_strf("%s[%zu]", n->where, n->n), depth + 1);
            if (v)
                tern_yaml_node_add(n, NULL, v);
            rc = v ? 0 : -1;
        }
        yaml_event_delete(&e);
        if (rc < 0)
            return -1;
    }
}

static struct tern_yaml_node *read_collection(struct reader *r, yaml_event_t *first, char *where,
                                              int depth)
{
    bool map = first->type == YAML_MAPPING_START_EVENT;
    const yaml_char_t *anchor =
        map ? first->data.mapping_start.anchor : first->data.sequence_start.anchor;
    const yaml_char_t *tag = map ? first->data.mapping_start.tag : first->data.sequence_start.tag;
    struct tern_yaml_node *n =
        tern_yaml_node_new(r->doc, map ? TERN_YAML_MAP : TERN_YAML_LIST, at(r, first), where);
    struct tern_yaml_node *merges = tern_yaml_node_new(r->doc, TERN_YAML_LIST, 0, NULL);
    int rc = -1;

    r->doc->nodes--; /* it is no value */

    if (!r->loose && (anchor || tag))
        refuse(r, at(r, first), "anchors and tags are not allowed; write the value out");
    else
        rc = read_members(r, n, merges, depth);
    if (rc == 0)
        rc = finish_map(r, n, merges, depth);
    if (rc == 0)
        read_tag(r, (const char *)tag, n->line, n);
    if (rc == 0)
        rc = read_anchor(r, (const char *)anchor, n);
    tern_yaml_node_free(merges);
    if (rc < 0) {
        tern_yaml_node_free(n);
        return NULL;
    }
    return n;
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
        return read_alias(r, e, where, depth);
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

static struct tern_yaml *parse(const char *text, size_t len, const char *name, bool loose,
                               struct tern_err *err)
{
    struct tern_yaml *doc = calloc(1, sizeof *doc);
    struct reader r = {.doc = doc, .loose = loose, .err = err};

    if (!doc || !yaml_parser_initialize(&r.parser))
        abort();
    doc->path = tern_strdup(name);
    doc->spare = tern_yaml_node_new(doc, TERN_YAML_LIST, 0, NULL);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, len);
    doc->root = read_document(&r, "");
    yaml_parser_delete(&r.parser);
    for (size_t i = 0; i < r.n_anchors; i++)
        free(r.anchors[i].name);
    free(r.anchors);
    if (!doc->root) {
        tern_yaml_free(doc);
        return NULL;
    }
    return doc;
}

struct tern_yaml *tern_yaml_parse(const char *text, size_t len, const char *name,
                                  struct tern_err *err)
{
    return parse(text, len, name, /* loose= */ false, err);
}

static struct tern_yaml *load(const char *path, bool loose, struct tern_err *err)
{
    char *text;
    size_t len;

    if (tern_fs_read(path, MAX_BYTES, &text, &len, err) < 0)
        return NULL;
    struct tern_yaml *doc = parse(text, len, path, loose, err);
    free(text);
    return doc;
}

struct tern_yaml *tern_yaml_load(const char *path, struct tern_err *err)
{
    return load(path, /* loose= */ false, err);
}

struct tern_yaml *tern_yaml_load_1_1(const char *path, struct tern_err *err)
{
    return load(path, /* loose= */ true, err);
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
