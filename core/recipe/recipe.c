#include "core/recipe/recipe.h"

#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/base/yaml.h"
#include "core/recipe/keys.h"
#include "core/recipe/lists.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

int tern_recipe_look_up(const struct tern_recipe *r, const char *name, struct tern_yaml_node **out,
                        struct tern_err *err)
{
    struct tern_yaml_node *n = tern_yaml_root(r->source);
    char part[64];

    for (const char *s = name; n; s += strlen(part) + 1) {
        size_t len = strcspn(s, ".");
        snprintf(part, sizeof part, "%.*s", (int)len, s);
        if (tern_yaml_expect(n, TERN_YAML_MAP, err) < 0)
            return -1;
        n = tern_yaml_get(n, part);
        if (!s[len])
            break;
    }
    *out = n;
    return 0;
}

void tern_recipe_join(const struct tern_recipe *r, char **path)
{
    if (!*path || strstr(*path, "://"))
        return;
    char *dir = tern_fs_dirname(r->path);
    char *joined = strcmp(dir, ".") == 0 ? tern_strdup(*path) : tern_fs_join(dir, *path);
    free(dir);
    free(*path);
    *path = joined;
}

static int read_version(struct tern_recipe *r, struct tern_err *err)
{
    struct tern_yaml_node *n = tern_yaml_get(tern_yaml_root(r->source), "version");
    int64_t version;

    if (!n)
        return tern_err_set(err, TERN_USAGE, "%s:1: no 'version'. Begin with 'version: 1'.",
                            r->path);
    if (tern_yaml_read_int(n, 1, 1000000, &version, err) < 0)
        return -1;
    if (version != 1)
        return tern_yaml_fail(n, err, "%" PRId64 " is newer than this tern, which reads 1.",
                              version);
    return 0;
}

/* ------------------------------------------------------------------ refused combinations */

static int check_name(const struct tern_recipe *r, struct tern_err *err)
{
    if (!r->name)
        return tern_err_set(err, TERN_USAGE, "%s:1: no 'name'. Give the run a name.", r->path);
    const char *fault = tern_str_run_name_fault(r->name);
    return fault ? tern_recipe_fail(r, "name", err, "'%s' %s", r->name, fault) : 0;
}

static int read_all(struct tern_recipe *r, struct tern_err *err)
{
    if (read_version(r, err) < 0)
        return -1;
    for (size_t i = 0; i < tern_recipe_n_keys; i++)
        if (tern_recipe_read_key(r, &tern_recipe_keys[i], err) < 0)
            return -1;
    if (tern_recipe_read_length(r, err) < 0 || tern_recipe_read_data(r, err) < 0 ||
        tern_recipe_read_held_out(r, err) < 0 || tern_recipe_read_betas(r, err) < 0 ||
        tern_recipe_read_targets(r, err) < 0 ||
        tern_recipe_read_command(r, "workload.command", &r->workload.command, err) < 0 ||
        tern_recipe_read_command(r, "workload.precompile.command", &r->workload.precompile.command,
                                 err) < 0 ||
        tern_recipe_read_metrics(r, err) < 0 ||
        tern_yaml_no_others(tern_yaml_root(r->source), err) < 0 || check_name(r, err) < 0)
        return -1;
    if (!r->workload.workers_per_node)
        r->workload.workers_per_node = r->workload.tasks_per_node;
    if (tern_recipe_check_mirror(r, err) < 0 || tern_recipe_find_length(r, err) < 0)
        return -1;
    return r->workload.command ? tern_recipe_check_workload(r, err)
                               : tern_recipe_check_trainer(r, err);
}

struct tern_recipe *tern_recipe_from(const char *path, struct tern_yaml *source,
                                     const char *const *overrides, size_t n, struct tern_err *err)
{
    struct tern_recipe *r = source ? tern_alloc(1, sizeof *r, "a recipe", err) : NULL;

    if (!r) {
        tern_yaml_free(source);
        return NULL;
    }
    r->path = tern_strdup(path);
    r->source = source;
    if (tern_yaml_expect(tern_yaml_root(r->source), TERN_YAML_MAP, err) < 0)
        goto fail;
    for (size_t i = 0; i < n; i++) {
        const char *eq = strchr(overrides[i], '=');
        if (!eq || eq == overrides[i]) {
            tern_err_set(err, TERN_USAGE, "--set %s: is not KEY=VALUE, such as optimizer.lr=1e-4",
                         overrides[i]);
            goto fail;
        }
        char *key = tern_strf("%.*s", (int)(eq - overrides[i]), overrides[i]);
        int rc = tern_yaml_override(r->source, key, eq + 1, err);
        free(key);
        if (rc < 0)
            goto fail;
    }
    if (read_all(r, err) == 0)
        return r;
fail:
    tern_recipe_free(r);
    return NULL;
}

struct tern_recipe *tern_recipe_load(const char *path, const char *const *overrides, size_t n,
                                     struct tern_err *err)
{
    return tern_recipe_from(path, tern_yaml_load(path, err), overrides, n, err);
}

void tern_recipe_free(struct tern_recipe *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < tern_recipe_n_keys; i++) {
        const struct tern_recipe_key *k = &tern_recipe_keys[i];
        if (k->kind == KEY_TEXT || k->kind == KEY_PATH)
            free(*(char **)((char *)r + k->offset));
    }
    tern_recipe_free_lists(r);
    tern_yaml_free(r->source);
    free(r->path);
    free(r);
}

int tern_recipe_fail(const struct tern_recipe *r, const char *key, struct tern_err *err,
                     const char *fmt, ...)
{
    struct tern_yaml_node *n = tern_yaml_root(r->source);
    int line = 1;
    char part[64], text[800];
    va_list ap;

    for (const char *s = key; n && tern_yaml_kind(n) == TERN_YAML_MAP;) {
        size_t len = strcspn(s, "."), name = strcspn(s, ".[");
        snprintf(part, sizeof part, "%.*s", (int)name, s);
        n = tern_yaml_get(n, part);
        if (n && name < len && tern_yaml_kind(n) == TERN_YAML_LIST)
            n = tern_yaml_at(n, strtoul(s + name + 1, NULL, 10));
        if (n)
            line = tern_yaml_line(n);
        if (!s[len])
            break;
        s += len + 1;
    }
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (line == 0)
        return tern_err_set(err, TERN_USAGE, "--set %s: %s", key, text);
    return tern_err_set(err, TERN_USAGE, "%s:%d: %s: %s", r->path, line, key, text);
}

bool tern_recipe_given(const struct tern_recipe *r, const char *key)
{
    struct tern_yaml_node *n = NULL;

    return tern_recipe_look_up(r, key, &n, NULL) == 0 && n;
}

int tern_recipe_split(const struct tern_recipe *r, int64_t world, int64_t *data_ranks,
                      int64_t *micro_batches, struct tern_err *err)
{
    int64_t model_ranks = r->parallel.tensor * r->parallel.pipeline;

    if (world % model_ranks)
        return tern_recipe_fail(r, "parallel", err,
                                "%" PRId64 " ranks are not a multiple of tensor x pipeline "
                                "(%" PRId64 ").",
                                world, model_ranks);
    int64_t data = world / model_ranks;
    if (r->batch.global % (data * r->batch.micro))
        return tern_recipe_fail(r, "batch.global", err,
                                "%" PRId64 " sequences do not divide over %" PRId64
                                " data-parallel ranks x %" PRId64
                                " (batch.micro). Use a multiple of %" PRId64 ".",
                                r->batch.global, data, r->batch.micro, data * r->batch.micro);
    int64_t micro = r->batch.global / (data * r->batch.micro);
    if (r->parallel.interleave > 1 && micro % r->parallel.pipeline)
        return tern_recipe_fail(r, "parallel.interleave", err,
                                "%" PRId64 " micro-batches a rank are not a multiple of "
                                "parallel.pipeline (%" PRId64
                                "), as interleaving needs. Change batch.global or take it out.",
                                micro, r->parallel.pipeline);
    *data_ranks = data;
    *micro_batches = micro;
    return 0;
}
