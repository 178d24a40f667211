#include "core/layout/vars.h"

#include "core/layout/notes.h"

#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"

struct tern_layout_vars {
    char *path;
    json_t *values; /* an object of texts */
};

/* Lines NAME=value, as a shell would read them: an export, a comment and quotes around the value
 * are taken.  NULL where a line is no such one. */
static json_t *read_lines(char *text, const char *path, struct tern_err *err)
{
    json_t *all = json_object();
    int number = 0;

    for (char *line; (line = strsep(&text, "\n"));) {
        number++;
        line += strspn(line, " \t");
        line[strcspn(line, "\r")] = '\0';
        if (!*line || *line == '#')
            continue;
        line += tern_str_starts(line, "export ") ? strlen("export ") : 0;
        char *value = strchr(line, '=');
        const size_t len = value ? (size_t)(value - line) : 0;
        if (len == 0 || strspn(line, NAME_LETTERS) != len) {
            json_decref(all);
            tern_err_set(err, TERN_USAGE, "%s:%d: is no line NAME=value. Write one, or JSON.", path,
                         number);
            return NULL;
        }
        *value++ = '\0';
        size_t n = strlen(value);
        if (n > 1 && (*value == '"' || *value == '\'') && value[n - 1] == *value) {
            value[n - 1] = '\0';
            value++;
        }
        json_object_set_new(all, line, tern_json_text(value));
    }
    return all;
}

/* The file as JSON, whichever of both it is. */
static json_t *read_values(const char *path, struct tern_err *err)
{
    enum { MAX_BYTES = 4 << 20 };
    char *text;
    size_t len;

    if (tern_fs_read(path, MAX_BYTES, &text, &len, err) < 0)
        return NULL;
    const char first = text[strspn(text, " \t\r\n")];
    json_t *all = first == '{' || first == '[' ? tern_json_parse(text, len, path, err)
                                               : read_lines(text, path, err);
    free(text);
    return all;
}

/* A text, a whole number, true or false.  Nothing, and a text in <angle brackets>, is a place to
 * fill in; lists and objects belong to whatever else the file is for. */
static int take_value(json_t *to, const char *key, const json_t *value, const char *path,
                      struct tern_err *err)
{
    const char *text = json_string_value(value);
    char number[32];

    if (json_is_integer(value)) {
        snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        text = number;
    } else if (json_is_boolean(value)) {
        text = json_is_true(value) ? "true" : "false";
    } else if (json_is_real(value)) { /* 3.10 is read as 3.1 */
        return tern_err_set(err, TERN_USAGE,
                            "%s: %s: a number with a point loses its last zeros. Write it in "
                            "quotes.",
                            path, key);
    }
    if (text && *text && *text != '<')
        json_object_set_new(to, key, tern_json_text(text));
    return 0;
}

/* The outputs of CloudFormation: [{"OutputKey": ..., "OutputValue": ...}, ...]. */
static int take_outputs(json_t *to, json_t *list, const char *path, struct tern_err *err)
{
    size_t i;
    json_t *m;

    json_array_foreach(list, i, m)
    {
        const char *key = json_string_value(json_object_get(m, "OutputKey"));
        if (key && take_value(to, key, json_object_get(m, "OutputValue"), path, err) < 0)
            return -1;
    }
    return 0;
}

/* All values that `from` has, in whichever of the forms. */
static int take(json_t *to, json_t *from, const char *path, struct tern_err *err)
{
    const char *key;
    json_t *value;
    size_t i;

    if (json_is_array(from))
        return take_outputs(to, from, path, err);
    json_array_foreach(json_object_get(from, "Stacks"), i, value)
    {
        if (take_outputs(to, json_object_get(value, "Outputs"), path, err) < 0)
            return -1;
    }
    if (take_outputs(to, json_object_get(from, "Outputs"), path, err) < 0)
        return -1;
    json_object_foreach(from, key, value)
    {
        if (take_value(to, key, value, path, err) < 0)
            return -1;
    }
    return 0;
}

struct tern_layout_vars *tern_layout_vars_load(const char *path, struct tern_err *err)
{
    json_t *from = read_values(path, err);

    if (!from)
        return NULL;
    struct tern_layout_vars *v = tern_alloc(1, sizeof *v, "variables", err);
    if (!v) {
        json_decref(from);
        return NULL;
    }
    v->path = tern_strdup(path);
    v->values = json_object();
    int rc = take(v->values, from, path, err);
    json_decref(from);
    if (rc == 0 && json_object_size(v->values) == 0)
        rc = tern_err_set(
            err, TERN_USAGE,
            "%s: has no values. Write {\"NAME\": \"value\"} or lines NAME=value, or save "
            "what `aws cloudformation describe-stacks` prints.",
            path);
    if (rc == 0)
        return v;
    tern_layout_vars_free(v);
    return NULL;
}

void tern_layout_vars_free(struct tern_layout_vars *v)
{
    if (!v)
        return;
    json_decref(v->values);
    free(v->path);
    free(v);
}

const char *tern_layout_value(const struct tern_layout *l, const char *name)
{
    return l->vars ? json_string_value(json_object_get(l->vars->values, name)) : NULL;
}

static void note_unknown(struct tern_layout *l, const struct tern_layout_vars *v,
                         const struct tern_yaml_node *n, const char *name)
{
    const char *names[200], *key;
    size_t count = 0;
    json_t *value;

    json_object_foreach(v->values, key, value) if (count + 1 < sizeof names / sizeof *names)
        names[count++] = key;
    names[count] = NULL;
    const char *near = tern_str_nearest(name, names);
    tern_layout_warn(l, "var-unknown", n, "%s has no value for '${%s}'.%s%s%s", v->path, name,
                     near ? " Did you mean '" : " Add it.", near ? near : "", near ? "'?" : "");
}

/* The text with its variables' values, malloc'ed. */
static char *filled(struct tern_layout *l, const struct tern_layout_vars *v,
                    const struct tern_yaml_node *n)
{
    struct tern_buf to = {0};

    tern_buf_puts(&to, "");
    for (const char *s = tern_yaml_text(n); *s;) {
        size_t len = s[0] == '$' && s[1] == '{' ? strcspn(s + 2, "}") : 0;
        if (len == 0 || s[2 + len] != '}') {
            tern_buf_printf(&to, "%c", *s++);
            continue;
        }
        char *name = tern_strf("%.*s", (int)len, s + 2);
        const char *value = json_string_value(json_object_get(v->values, name));
        if (!value)
            note_unknown(l, v, n, name);
        if (value)
            tern_buf_puts(&to, value);
        else
            tern_buf_printf(&to, "${%s}", name);
        free(name);
        s += len + 3;
    }
    char *text = tern_strdup(to.data ? to.data : "");
    tern_buf_free(&to);
    return text;
}

void tern_layout_vars_fill(struct tern_layout *l, const struct tern_layout_vars *v,
                           struct tern_yaml_node *n)
{
    if (tern_yaml_kind(n) == TERN_YAML_TEXT) {
        if (!strstr(tern_yaml_text(n), "${"))
            return;
        char *text = filled(l, v, n);
        tern_yaml_set_text(n, text);
        free(text);
        return;
    }
    for (size_t i = 0; i < tern_yaml_count(n); i++)
        tern_layout_vars_fill(l, v, tern_yaml_at(n, i));
}
