/* A layout as YAML in one form: the file's values by the table of keys, with what lets its nodes
 * run tern. */
#include "core/layout/keys.h"
#include "core/layout/notes.h"
#include "core/layout/value.h"
#include "core/layout/vars.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

struct form {
    struct tern_buf *to;
    const struct tern_layout_more *more;
    int with_role;
};

/* These keys come first, wherever they are; the others are in the table's order. */
static const char *const first[] = {"Region", "Image",  "HeadNode", "LoginNodes",   "Scheduling",
                                    "Name",   "Script", "MountDir", "InstanceType", NULL};

static void put_map(struct form *f, const struct tern_yaml_node *map,
                    const struct tern_layout_key *keys, int indent);

/* ------------------------------------------------------------------ scalars */

/* Does YAML 1.1 take the bare word for a text? */
static bool is_bare(const char *s)
{
    static const char *const words[] = {"y",   "n",    "yes",   "no",   "on",
                                        "off", "true", "false", "null", NULL};

    if (!isalpha((unsigned char)*s) && *s != '/')
        return false;
    for (const char *const *w = words; *w; w++)
        if (strcasecmp(s, *w) == 0)
            return false;
    while (isalnum((unsigned char)*s) || (*s && strchr("_./-", *s)))
        s++;
    return *s == '\0';
}

/* Bytes of the character at `s` if it may stand in quotes as it is. It must be visible, and no end
 * of a line, as U+2028 and U+2029 are to YAML 1.1. */
static size_t shown(const char *s, size_t len)
{
    const bool ends =
        len > 2 && memcmp(s, "\xe2\x80", 2) == 0 && (s[2] == '\xa8' || s[2] == '\xa9');

    return ends ? 0 : tern_str_character(s, len);
}

/* In double quotes.  What a terminal does not show, among it all that YAML takes for the end of a
 * line, is escaped; none of it is beyond U+FFFF. */
static void put_escaped(struct tern_buf *to, const char *s)
{
    tern_buf_puts(to, "\"");
    for (const unsigned char *c = (const unsigned char *)s; *c;) {
        size_t n = shown((const char *)c, strlen((const char *)c));
        if (n == 0 && c[0] >= 0xe0 && c[1] && c[2]) {
            tern_buf_printf(to, "\\u%04x", (c[0] & 15) << 12 | (c[1] & 63) << 6 | (c[2] & 63));
            c += 3;
        } else if (n == 0 && c[0] >= 0xc0 && c[1]) {
            tern_buf_printf(to, "\\u%04x", (c[0] & 31) << 6 | (c[1] & 63));
            c += 2;
        } else if (n == 0) {
            tern_buf_printf(to, "\\x%02x", *c++);
        } else {
            tern_buf_printf(to, *c == '"' || *c == '\\' ? "\\%.*s" : "%.*s", (int)n,
                            (const char *)c);
            c += n;
        }
    }
    tern_buf_puts(to, "\"");
}

static void put_text(struct tern_buf *to, const char *s)
{
    bool plain = true;

    for (size_t i = 0, n, len = strlen(s); plain && i < len; i += n)
        plain = (n = shown(s + i, len - i)) > 0;
    if (is_bare(s)) {
        tern_buf_puts(to, s);
    } else if (!plain) {
        put_escaped(to, s);
    } else {
        tern_buf_puts(to, "'");
        for (const char *c = s; *c; c++)
            tern_buf_puts(to, *c == '\'' ? "''" : (char[]){*c, '\0'});
        tern_buf_puts(to, "'");
    }
}

/* A scalar of the key's type; `type` ANY: of the type that YAML gives it. */
static void put_scalar(struct tern_buf *to, const struct tern_yaml_node *n,
                       enum tern_layout_key_type type)
{
    const enum tern_layout_kind kind = tern_layout_kind(n);
    const bool free_form = type != TEXT && type != INT && type != REAL && type != BOOL;
    int64_t number;
    bool yes, exact;

    if ((type == BOOL || (free_form && kind == TERN_LAYOUT_BOOL)) && tern_layout_as_bool(n, &yes))
        tern_buf_puts(to, yes ? "true" : "false");
    else if ((type == INT || (free_form && kind == TERN_LAYOUT_INT)) &&
             tern_layout_as_int(n, &number, &exact))
        tern_buf_printf(to, "%lld", (long long)number);
    else if (kind != TERN_LAYOUT_TEXT && type != TEXT)
        tern_buf_puts(to, tern_yaml_text(n));
    else
        put_text(to, tern_yaml_text(n));
}

static void put_key(struct form *f, const char *key, int indent)
{
    /* Behind the dash of a list, the line has its indentation already. */
    if (f->to->len == 0 || f->to->data[f->to->len - 1] == '\n')
        tern_buf_printf(f->to, "%*s", indent, "");
    put_text(f->to, key);
    tern_buf_puts(f->to, ":");
}

static void put_line(struct form *f, const char *key, const char *value, int indent)
{
    put_key(f, key, indent);
    tern_buf_puts(f->to, " ");
    put_text(f->to, value);
    tern_buf_puts(f->to, "\n");
}

/* ------------------------------------------------------------------ values */

/* A value without a table of keys: a map, a list or a scalar, as it is. */
static void put_any(struct form *f, const struct tern_yaml_node *n, int indent)
{
    const size_t count = tern_yaml_count(n);

    if (tern_yaml_kind(n) == TERN_YAML_TEXT) {
        tern_buf_puts(f->to, " ");
        put_scalar(f->to, n, ANY);
        tern_buf_puts(f->to, "\n");
        return;
    }
    if (count == 0) {
        tern_buf_puts(f->to, tern_yaml_kind(n) == TERN_YAML_MAP ? " {}\n" : " []\n");
        return;
    }
    tern_buf_puts(f->to, "\n");
    for (size_t i = 0; i < count; i++) {
        if (tern_yaml_kind(n) == TERN_YAML_MAP)
            put_key(f, tern_yaml_key(n, i), indent + 2);
        else
            tern_buf_printf(f->to, "%*s-", indent + 2, "");
        put_any(f, tern_yaml_at(n, i), indent + 2);
    }
}

static void put_list(struct form *f, const struct tern_yaml_node *n,
                     const struct tern_layout_key *k, int indent)
{
    const size_t count = tern_yaml_count(n);

    tern_buf_puts(f->to, count ? "\n" : " []\n");
    for (size_t i = 0; i < count; i++) {
        const struct tern_yaml_node *m = tern_yaml_at(n, i);
        tern_buf_printf(f->to, "%*s- ", indent + 2, "");
        if (tern_yaml_kind(m) != TERN_YAML_TEXT) {
            put_map(f, m, k->of, indent + 4);
            continue;
        }
        put_scalar(f->to, m, TEXT);
        tern_buf_puts(f->to, "\n");
    }
}

static void put_value(struct form *f, const struct tern_yaml_node *n,
                      const struct tern_layout_key *k, int indent)
{
    put_key(f, k->name, indent);
    if (tern_yaml_kind(n) == TERN_YAML_TEXT) {
        tern_buf_puts(f->to, " ");
        put_scalar(f->to, n, k->type);
        tern_buf_puts(f->to, "\n");
    } else if (k->type == TEXTS || (k->type == LIST && k->of)) {
        put_list(f, n, k, indent);
    } else if (k->of && tern_yaml_count(n)) {
        tern_buf_puts(f->to, "\n");
        put_map(f, n, k->of, indent + 2);
    } else {
        put_any(f, n, indent);
    }
}

/* ------------------------------------------------------------------ what tern adds */

/* The head node, or a queue, whose nodes shall run tern. */
static bool is_nodes(const struct tern_yaml_node *n)
{
    static const char queues[] = "Scheduling.SlurmQueues[";
    const char *where = tern_yaml_where(n);

    return strcmp(where, "HeadNode") == 0 ||
           (strncmp(where, queues, sizeof queues - 1) == 0 && !strchr(where + sizeof queues, '.'));
}

/* A member of a Sequence, or with `indent` the one Script of an action. */
static void put_script(struct form *f, const char *script, const char *arg, int indent)
{
    put_line(f, "Script", script, indent);
    put_key(f, "Args", indent);
    tern_buf_printf(f->to, "\n%*s- ", indent + 2, "");
    put_text(f->to, arg);
    tern_buf_puts(f->to, "\n");
}

static bool has_script(const struct tern_yaml_node *action, const char *script)
{
    const struct tern_yaml_node *all = tern_layout_list(action, "Sequence");
    const char *one = tern_layout_text(action, "Script");
    bool found = one && strcmp(one, script) == 0;

    for (size_t i = 0; i < tern_layout_count(all); i++) {
        one = tern_layout_text(tern_yaml_at(all, i), "Script");
        found |= one && strcmp(one, script) == 0;
    }
    return found;
}

/* OnNodeConfigured with tern's script, behind those of the layout. */
static void put_configured(struct form *f, const struct tern_yaml_node *action,
                           const struct tern_layout_key *k, int indent)
{
    const struct tern_layout_key *script = tern_layout_action_keys;
    const struct tern_yaml_node *all = tern_layout_list(action, "Sequence");

    if (action && has_script(action, f->more->script)) {
        put_value(f, action, k, indent);
        return;
    }
    put_key(f, k->name, indent);
    tern_buf_puts(f->to, "\n");
    if (!action) {
        put_script(f, f->more->script, f->more->arg, indent + 2);
        return;
    }
    put_key(f, "Sequence", indent + 2);
    tern_buf_puts(f->to, "\n");
    for (size_t i = 0; i < tern_layout_count(all); i++) {
        tern_buf_printf(f->to, "%*s- ", indent + 4, "");
        put_map(f, tern_yaml_at(all, i), script, indent + 6);
    }
    if (!all) {
        tern_buf_printf(f->to, "%*s- ", indent + 4, "");
        put_map(f, action, script, indent + 6);
    }
    tern_buf_printf(f->to, "%*s- ", indent + 4, "");
    put_script(f, f->more->script, f->more->arg, indent + 6);
}

static void put_actions(struct form *f, const struct tern_yaml_node *n,
                        const struct tern_layout_key *k, int indent)
{
    put_key(f, k->name, indent);
    tern_buf_puts(f->to, "\n");
    for (const struct tern_layout_key *a = k->of; a->name; a++) {
        const struct tern_yaml_node *action = tern_layout_map(n, a->name);
        if (strcmp(a->name, "OnNodeConfigured") == 0)
            put_configured(f, action, a, indent + 2);
        else if (action)
            put_value(f, action, a, indent + 2);
    }
}

static bool reads_bucket(const struct tern_yaml_node *iam, const char *bucket)
{
    const struct tern_yaml_node *all = tern_layout_list(iam, "S3Access");
    bool found = false;

    for (size_t i = 0; i < tern_layout_count(all); i++) {
        const char *name = tern_layout_text(tern_yaml_at(all, i), "BucketName");
        found |= name && (strcmp(name, bucket) == 0 || strcmp(name, "*") == 0);
    }
    return found;
}

/* Iam with the right to read the bucket; a role of the site's own is left alone. */
static void put_iam(struct form *f, const struct tern_yaml_node *n, const struct tern_layout_key *k,
                    int indent)
{
    const bool role = tern_layout_text(n, "InstanceRole") || tern_layout_text(n, "InstanceProfile");
    const struct tern_yaml_node *all = tern_layout_list(n, "S3Access");

    f->with_role += role;
    if (n && (role || reads_bucket(n, f->more->bucket))) {
        put_value(f, n, k, indent);
        return;
    }
    put_key(f, k->name, indent);
    tern_buf_puts(f->to, "\n");
    for (const struct tern_layout_key *a = k->of; a->name; a++) {
        const struct tern_yaml_node *value = tern_yaml_get(n, a->name);
        if (strcmp(a->name, "S3Access") != 0) {
            if (value)
                put_value(f, value, a, indent + 2);
            continue;
        }
        put_key(f, a->name, indent + 2);
        tern_buf_puts(f->to, "\n");
        for (size_t i = 0; i < tern_layout_count(all); i++) {
            tern_buf_printf(f->to, "%*s- ", indent + 4, "");
            put_map(f, tern_yaml_at(all, i), a->of, indent + 6);
        }
        tern_buf_printf(f->to, "%*s- ", indent + 4, "");
        put_line(f, "BucketName", f->more->bucket, indent + 6);
    }
}

/* What stands for the key where tern has a part in it. */
static bool put_own(struct form *f, const struct tern_yaml_node *map,
                    const struct tern_layout_key *k, int indent)
{
    const struct tern_yaml_node *n = tern_layout_map(map, k->name);

    if (f->more->script && is_nodes(map) && strcmp(k->name, "CustomActions") == 0)
        put_actions(f, n, k, indent);
    else if (f->more->bucket && is_nodes(map) && strcmp(k->name, "Iam") == 0)
        put_iam(f, n, k, indent);
    else if (f->more->file_system && n && strcmp(k->name, "FsxLustreSettings") == 0) {
        put_key(f, k->name, indent);
        tern_buf_puts(f->to, "\n");
        put_line(f, "FileSystemId", f->more->file_system, indent + 2);
    } else
        return false;
    return true;
}

/* ------------------------------------------------------------------ the whole */

static bool is_first(const char *name)
{
    const char *const *s = first;

    while (*s && strcmp(*s, name) != 0)
        s++;
    return *s;
}

static void put_entry(struct form *f, const struct tern_yaml_node *map,
                      const struct tern_layout_key *k, int indent)
{
    const struct tern_yaml_node *n = tern_yaml_get(map, k->name);

    if (!put_own(f, map, k, indent) && n)
        put_value(f, n, k, indent);
}

static void put_map(struct form *f, const struct tern_yaml_node *map,
                    const struct tern_layout_key *keys, int indent)
{
    const size_t begin = f->to->len;

    for (const char *const *name = first; *name; name++)
        for (const struct tern_layout_key *k = keys; k->name; k++)
            if (strcmp(k->name, *name) == 0)
                put_entry(f, map, k, indent);
    for (const struct tern_layout_key *k = keys; k->name; k++)
        if (!is_first(k->name))
            put_entry(f, map, k, indent);
    if (f->to->len == begin)
        tern_buf_puts(f->to, "{}\n");
}

int tern_layout_normalise(const struct tern_layout *l, const struct tern_layout_more *more,
                          struct tern_buf *to, int *ret_with_role, struct tern_err *err)
{
    struct tern_yaml *doc = tern_yaml_load_1_1(l->path, err);
    struct tern_layout notes = {.path = l->path}; /* they have been reported already */
    struct form f = {.to = to, .more = more};

    if (!doc)
        return -1;
    if (l->vars)
        tern_layout_vars_fill(&notes, l->vars, tern_yaml_root(doc));
    if (tern_yaml_kind(tern_yaml_root(doc)) == TERN_YAML_MAP)
        put_map(&f, tern_yaml_root(doc), tern_layout_cluster_keys, 0);
    tern_yaml_free(doc);
    tern_layout_notes_free(&notes);
    *ret_with_role = f.with_role;
    return tern_buf_check(to, "the layout", err);
}
