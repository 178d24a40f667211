#include "core/run/array.h"

#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/base/yaml.h"
#include "core/inputs/inputs.h"

#include <stdlib.h>
#include <string.h>

enum {
    MEMBERS_MAX = 1000,    /* Slurm's MaxArraySize is 1001 unless a site raised it */
    NAME_MAX_BYTES = 64,   /* of a recipe's name */
    FOLDER_MAX_BYTES = 200 /* of a folder's; file systems take 255 */
};

/* Bytes of the value that `s` begins with: up to a comma outside of brackets and quotes. */
static size_t value_length(const char *s)
{
    size_t n = 0;
    int depth = 0;
    char quote = '\0';

    for (; s[n] && (quote || depth > 0 || s[n] != ','); n++) {
        if (quote)
            quote = s[n] == quote ? '\0' : quote;
        else if (s[n] == '"' || s[n] == '\'')
            quote = s[n];
        else
            depth += (s[n] == '[' || s[n] == '{') - (s[n] == ']' || s[n] == '}');
    }
    return n;
}

static int read_key(struct tern_run_array_key *k, const char *spec, struct tern_err *err)
{
    const char *eq = strchr(spec, '=');

    if (!eq || eq == spec)
        return tern_err_set(err, TERN_USAGE,
                            "--array %s: is not KEY=VALUE,VALUE, such as optimizer.lr=1e-4,2e-4",
                            spec);
    k->name = tern_strf("%.*s", (int)(eq - spec), spec);
    k->values = tern_alloc(strlen(eq), sizeof *k->values, "an array's values", err);
    if (!k->values)
        return -1;
    for (const char *s = eq + 1;; s++) {
        size_t n = value_length(s);
        if (n == 0)
            return tern_err_set(err, TERN_USAGE, "--array %s: an empty value", spec);
        k->values[k->n++] = tern_strf("%.*s", (int)n, s);
        for (size_t i = 0; i + 1 < k->n; i++)
            if (strcmp(k->values[i], k->values[k->n - 1]) == 0)
                return tern_err_set(err, TERN_USAGE, "--array %.*s=: the value %s is given twice",
                                    (int)(eq - spec), spec, k->values[i]);
        s += n;
        if (!*s)
            return 0;
    }
}

/* The later list would win, and members would be one run. */
static bool is_twice(const struct tern_run_array *a, struct tern_err *err)
{
    const char *newest = a->keys[a->n_keys - 1].name;

    for (size_t i = 0; i + 1 < a->n_keys; i++)
        if (strcmp(a->keys[i].name, newest) == 0) {
            tern_err_set(err, TERN_USAGE,
                         "--array %s: given twice: put its values in one list, %s=V1,V2", newest,
                         newest);
            return true;
        }
    return false;
}

int tern_run_array_read(struct tern_run_array *a, const char *const *specs, size_t n_specs,
                        struct tern_err *err)
{
    struct tern_run_array got = {.n = n_specs ? 1 : 0};

    if (n_specs) {
        got.keys = tern_alloc(n_specs, sizeof *got.keys, "an array's keys", err);
        if (!got.keys)
            return -1;
    }
    for (size_t i = 0; i < n_specs; i++) {
        got.n_keys++;
        if (read_key(&got.keys[i], specs[i], err) < 0 || is_twice(&got, err))
            goto fail;
        got.n *= got.keys[i].n;
        if (got.n > MEMBERS_MAX) {
            tern_err_set(err, TERN_USAGE, "--array: more than %d combinations", MEMBERS_MAX);
            goto fail;
        }
    }
    *a = got;
    return 0;
fail:
    tern_run_array_free(&got);
    return -1;
}

void tern_run_array_free(struct tern_run_array *a)
{
    for (size_t i = 0; i < a->n_keys; i++) {
        for (size_t v = 0; v < a->keys[i].n; v++)
            free(a->keys[i].values[v]);
        free(a->keys[i].values);
        free(a->keys[i].name);
    }
    free(a->keys);
    while (a->n_texts)
        free(a->texts[--a->n_texts]);
    free(a->texts);
    *a = (struct tern_run_array){0};
}

/* The value of key `k` in member `i`. */
static const char *value_of(const struct tern_run_array *a, size_t k, size_t i)
{
    for (size_t later = a->n_keys; later-- > k + 1;)
        i /= a->keys[later].n;
    return a->keys[k].values[i % a->keys[k].n];
}

/* Its settings, but not key `without`; NULL when none is left. */
static char *settings_without(const struct tern_run_array *a, size_t i, size_t without)
{
    struct tern_buf b = {0};

    for (size_t k = 0; k < a->n_keys; k++)
        if (k != without)
            tern_buf_printf(&b, "%s%s=%s", b.len ? "," : "", a->keys[k].name, value_of(a, k, i));
    return b.data;
}

char *tern_run_array_describe(const struct tern_run_array *a, size_t i)
{
    return settings_without(a, i, a->n_keys);
}

static void keep_only(char *s, const char *allowed)
{
    for (; *s; s++)
        if (!strchr(allowed, *s))
            *s = '_';
}

/* The array owns `setting` from here on. */
static int add(struct tern_run_array *a, struct tern_opt_list *l, char *setting,
               struct tern_err *err)
{
    const size_t room = sizeof l->values / sizeof *l->values;

    char **texts = reallocarray(a->texts, a->n_texts + 1, sizeof *texts);

    if (!texts) {
        free(setting);
        return tern_err_set(err, TERN_FAILED, "no memory for an array's settings");
    }
    a->texts = texts;
    a->texts[a->n_texts++] = setting;
    if (l->n == room)
        return tern_err_set(err, TERN_USAGE, "--array and --set: more than %zu settings", room);
    l->values[l->n++] = setting;
    return 0;
}

/* "cpt.lr-1e-4": the run's name with the member's settings. */
static char *name_of(const struct tern_run_array *a, size_t i, const char *base)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    struct tern_buf b = {0};

    tern_buf_printf(&b, "%s", base);
    for (size_t k = 0; k < a->n_keys; k++) {
        const char *dot = strrchr(a->keys[k].name, '.');
        tern_buf_printf(&b, ".%s-%s", dot ? dot + 1 : a->keys[k].name, value_of(a, k, i));
    }
    if (b.len > NAME_MAX_BYTES) {
        tern_buf_clear(&b);
        tern_buf_printf(&b, "%.56s.%zu", base, i);
    }
    keep_only(b.data, plain);
    return b.data;
}

/* "optimizer.lr=1e-4", and the member's number when that was cut; NULL when members differ only
 * in key `without`. */
static char *folder_of(const struct tern_run_array *a, size_t i, size_t without)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "._-=,+";
    char *settings = settings_without(a, i, without);

    if (!settings)
        return NULL;
    if (strlen(settings) <= FOLDER_MAX_BYTES && strspn(settings, plain) == strlen(settings))
        return settings;
    keep_only(settings, plain);
    char *folder = tern_strf("%.*s.%zu", FOLDER_MAX_BYTES, settings, i);
    free(settings);
    return folder;
}

/* The index of key `name` in the array; n_keys: it has none. */
static size_t key_of(const struct tern_run_array *a, const char *name)
{
    size_t k = 0;

    while (k < a->n_keys && strcmp(a->keys[k].name, name) != 0)
        k++;
    return k;
}

/* The member's own folder for key `name`: below the array's value of that key, or below `base`. */
static int add_folder(struct tern_run_array *a, size_t i, const char *name, const char *base,
                      struct tern_opt_list *settings, struct tern_err *err)
{
    const size_t given = key_of(a, name);
    const char *below = given < a->n_keys ? value_of(a, given, i) : base;
    char *folder = folder_of(a, i, given);
    int rc = 0;

    if (below && folder) {
        char *dir = tern_fs_join(below, folder);
        rc = add(a, settings, tern_yaml_setting(name, dir), err);
        free(dir);
    }
    free(folder);
    return rc;
}

static int add_all(struct tern_run_array *a, size_t i, const struct tern_recipe *base,
                   struct tern_opt_list *settings, struct tern_err *err)
{
    char *name = name_of(a, i, base->name);
    int rc = add(a, settings, tern_strf("name=%s", name), err);

    free(name);
    for (size_t k = 0; k < a->n_keys && rc == 0; k++)
        rc = add(a, settings, tern_strf("%s=%s", a->keys[k].name, value_of(a, k, i)), err);
    if (rc == 0)
        rc = add_folder(a, i, "checkpoint.dir", base->checkpoint.dir, settings, err);
    /* Copies of two runs under one name would be a mistake. */
    if (rc == 0)
        rc = add_folder(a, i, "checkpoint.mirror", base->checkpoint.mirror, settings, err);
    return rc;
}

struct tern_recipe *tern_run_array_load(struct tern_run_array *a, size_t i, const char *path,
                                        struct tern_opt_list *settings, struct tern_err *err)
{
    struct tern_recipe *r = tern_recipe_load(path, settings->values, settings->n, err);

    if (r && a->n) {
        int rc = add_all(a, i, r, settings, err);
        tern_recipe_free(r);
        r = rc < 0 ? NULL : tern_recipe_load(path, settings->values, settings->n, err);
    }
    if (r && tern_inputs_length(r, err) == 0)
        return r;
    tern_recipe_free(r);
    return NULL;
}
