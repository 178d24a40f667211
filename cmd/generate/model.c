/* Beside the weights: the ids that end a text, and the memory that there is. */
#include "cmd/generate/generate.h"

#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/str.h"
#include "core/task/memory.h"

#include <stdio.h>
#include <stdlib.h>

static void add(int32_t *ids, int *n, int32_t id)
{
    for (int i = 0; i < *n; i++)
        if (ids[i] == id)
            return;
    if (id >= 0 && *n < GENERATE_ENDS)
        ids[(*n)++] = id;
}

/* eos_token_id, a number or a list of at most GENERATE_ENDS - 1; none where the key is missing or
 * null. */
static int add_listed(const json_t *config, const char *path, int32_t *ids, int *n,
                      struct tern_err *err)
{
    const json_t *v = json_object_get(config, "eos_token_id");
    const size_t count = json_is_array(v) ? json_array_size(v) : v && !json_is_null(v);

    if (count > GENERATE_ENDS - 1)
        return tern_err_set(err, TERN_USAGE, "%s: eos_token_id lists %zu ids; at most %d are read",
                            path, count, GENERATE_ENDS - 1);
    for (size_t i = 0; i < count; i++) {
        const json_t *id = json_is_array(v) ? json_array_get(v, i) : v;
        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) > INT32_MAX)
            return tern_err_set(err, TERN_USAGE, "%s: eos_token_id is no id, nor a list of them",
                                path);
        add(ids, n, (int32_t)json_integer_value(id));
    }
    return 0;
}

int generate_ends(const char *dir, const struct tern_model_config *c, const struct tern_token *t,
                  int32_t more, int32_t ret_ids[GENERATE_ENDS], struct tern_err *err)
{
    enum { CONFIG_MAX = 1 << 20 };
    char *path = tern_fs_join(dir, "generation_config.json");
    json_t *config = tern_fs_exists(path) ? tern_json_python_load(path, CONFIG_MAX, err) : NULL;
    int n = 0, rc = tern_fs_exists(path) && !config ? -1 : 0;

    if (rc == 0)
        rc = add_listed(config, path, ret_ids, &n, err);
    for (int i = 0, from_config = n == 0 ? c->n_eos : 0; i < from_config; i++)
        add(ret_ids, &n, c->eos_ids[i]);
    if (n == 0 && t)
        add(ret_ids, &n, tern_token_eos(t));
    add(ret_ids, &n, more);
    json_decref(config);
    free(path);
    return rc < 0 ? -1 : n;
}

/* Bytes that can be had without swapping, or below this process's limit; 0: not known. */
static uint64_t available(void)
{
    FILE *f = fopen("/proc/meminfo", "re");
    const struct tern_task_memory limit = tern_task_memory_read("");
    unsigned long long kib = 0;
    char line[128];

    while (f && kib == 0 && fgets(line, sizeof line, f))
        if (tern_str_starts(line, "MemAvailable:"))
            kib = strtoull(line + sizeof "MemAvailable:" - 1, NULL, 10);
    if (f)
        fclose(f);
    uint64_t bytes = (uint64_t)kib << 10;
    return limit.limit > 0 && (uint64_t)limit.limit < bytes ? (uint64_t)limit.limit : bytes;
}

int generate_check_memory(uint64_t weights, uint64_t cache, uint64_t rest, struct tern_err *err)
{
    const uint64_t there = available(), need = weights + cache + rest;
    char text[5][32];

    if (there == 0 || need <= there)
        return 0;
    return tern_err_set(
        err, TERN_FAILED,
        "%s of memory are needed (weights %s, keys and values %s, the rest %s), and "
        "%s are free. Take a smaller --batch or --max-tokens.",
        tern_str_bytes(text[0], sizeof text[0], need),
        tern_str_bytes(text[1], sizeof text[1], weights),
        tern_str_bytes(text[2], sizeof text[2], cache),
        tern_str_bytes(text[3], sizeof text[3], rest),
        tern_str_bytes(text[4], sizeof text[4], there));
}
