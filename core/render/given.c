/* Values that the file has and the model has not: to look one up, and to tell of each that a form
 * leaves out. */
#include "core/base/yaml.h"
#include "core/render/parts.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

int tern_render_read_again(struct tern_render *r, struct tern_err *err)
{
    const struct tern_layout_more nothing = {0};
    struct tern_buf text = {0};
    int with_role;
    int rc = tern_layout_normalise(r->layout, &nothing, &text, &with_role, err);

    if (rc == 0) {
        r->file_again = tern_yaml_parse(text.data, text.len, r->layout->path, err);
        rc = r->file_again ? 0 : -1;
    }
    tern_buf_free(&text);
    return rc;
}

static const struct tern_yaml_node *find(const struct tern_yaml_node *n, const char *where)
{
    const struct tern_yaml_node *found = NULL;

    if (strcmp(tern_yaml_where(n), where) == 0)
        return n;
    if (tern_yaml_kind(n) == TERN_YAML_TEXT)
        return NULL;
    for (size_t i = 0; !found && i < tern_yaml_count(n); i++)
        found = find(tern_yaml_at(n, i), where);
    return found;
}

const char *tern_render_given(const struct tern_render *r, const char *fmt, ...)
{
    const struct tern_yaml_node *n;
    char where[300];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(where, sizeof where, fmt, ap);
    va_end(ap);
    n = find(tern_yaml_root(r->file_again), where);
    return n ? tern_yaml_text(n) : NULL;
}

/* ------------------------------------------------------------------ what is left out */

enum match { NONE, INSIDE, WHOLE };

/* "[]" of a key stands for any member. */
static enum match match(const char *key, const char *where)
{
    while (*where) {
        if (*where == '[' && key[0] == '[' && key[1] == ']') {
            key += 2;
            where += strcspn(where, "]") + 1;
        } else if (*key++ != *where++) {
            return NONE;
        }
    }
    return !*key ? WHOLE : *key == '.' || *key == '[' ? INSIDE : NONE;
}

/* Does a rendered JSON file have it as a value? */
static bool is_rendered(const struct tern_render *r, const char *text)
{
    char *quoted = tern_strf("\"%s\"", text);
    bool found = false;

    for (size_t i = 0; !found && i < r->n_files; i++)
        found = strstr(r->file[i].name, ".json") && strstr(r->file[i].text.data, quoted);
    free(quoted);
    return found;
}

static enum match best(const struct tern_render *r, const struct tern_yaml_node *n,
                       const char *const *keys)
{
    const char *text = tern_yaml_text(n);
    enum match best = NONE;

    for (; *keys; keys++) {
        const bool asks = **keys == '=';
        enum match m = match(*keys + asks, tern_yaml_where(n));
        if (m == WHOLE && asks && text && !is_rendered(r, text))
            m = NONE;
        if (m > best)
            best = m;
    }
    return best;
}

/* Of another queue or compute resource than the one that is rendered. */
static bool is_told(const struct tern_render_takes *t, const char *where)
{
    int queue, resource;
    const int n =
        sscanf(where, "Scheduling.SlurmQueues[%d].ComputeResources[%d]", &queue, &resource);

    return t->one && n > 0 && (queue != t->queue || (n == 2 && resource != t->resource));
}

static void tell(struct tern_render *r, const struct tern_render_takes *t,
                 const struct tern_yaml_node *n)
{
    const char *where = tern_yaml_where(n), *text = tern_yaml_text(n);
    const enum match m = *where ? best(r, n, t->keys) : INSIDE;

    if (m == WHOLE || is_told(t, where))
        return;
    if (m == NONE)
        tern_render_say(r, "left out: %s%s%s", where, text ? ": " : "", text ? text : "");
    for (size_t i = 0; m == INSIDE && !text && i < tern_yaml_count(n); i++)
        tell(r, t, tern_yaml_at(n, i));
}

void tern_render_say_left_out(struct tern_render *r, const struct tern_render_takes *t)
{
    tell(r, t, tern_yaml_root(r->file_again));
}

void tern_render_say_other_storage(struct tern_render *r, const char *why)
{
    const struct tern_layout *l = r->layout;

    for (size_t i = 0; i < l->n_storage; i++)
        if (&l->storage[i] != tern_render_lustre(l))
            tern_render_say(r, "left out: %s (%s): %s", l->storage[i].mount_dir, l->storage[i].type,
                            why);
}
