/* The index of several files of weights. */
#include "core/ckpt/index.h"

#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/ckpt/table.h"

#include <stdlib.h>
#include <string.h>

enum {
    INDEX_MAX = 64 << 20, /* 200 bytes a tensor: 300,000 of them */
    SHOWN = 3,            /* names in a message */
};

int tern_ckpt_index_load(const char *path, struct tern_ckpt_index *x, struct tern_err *err)
{
    json_t *root = tern_json_python_load(path, INDEX_MAX, err);
    json_t *map = json_object_get(root, "weight_map");
    const size_t n = json_object_size(map);

    if (!root)
        return -1;
    if (!json_is_object(map) || n == 0 || n > TERN_CKPT_ENTRIES_MAX) {
        json_decref(root);
        return tern_err_set(err, TERN_USAGE, "%s: has no weight_map", path);
    }
    x->path = tern_strdup(path);
    x->root = root;
    x->map = map;
    x->stray = json_object();
    return 0;
}

void tern_ckpt_index_free(struct tern_ckpt_index *x)
{
    json_decref(x->root);
    json_decref(x->stray);
    free(x->path);
    *x = (struct tern_ckpt_index){0};
}

bool tern_ckpt_index_idle(const char *tensor)
{
    return tern_str_ends(tensor, ".rotary_emb.inv_freq") || strcmp(tensor, "lm_head.weight") == 0;
}

static bool may_be_absent(const struct tern_ckpt_index *x, const char *tensor)
{
    return x->spare ? x->spare(x->ctx, tensor) : tern_ckpt_index_idle(tensor);
}

bool tern_ckpt_index_takes(struct tern_ckpt_index *x, const char *tensor, const char *file)
{
    const char *home = json_string_value(json_object_get(x->map, tensor));

    if (!home || strcmp(home, file) == 0)
        return true;
    json_object_set_new(x->stray, tensor, json_true());
    return false;
}

bool tern_ckpt_index_wants(const struct tern_ckpt_index *x, const char *file)
{
    const char *tensor;
    json_t *v;

    json_object_foreach(x->map, tensor, v)
    {
        const char *home = json_string_value(v);
        if (home && strcmp(home, file) == 0 && !may_be_absent(x, tensor))
            return true;
    }
    return false;
}

int tern_ckpt_index_check(const struct tern_ckpt_index *x, const struct tern_ckpt *c,
                          struct tern_err *err)
{
    struct tern_buf names = {.max = 600};
    const char *tensor;
    size_t absent = 0;
    json_t *v;
    int rc = 0;

    json_object_foreach(x->map, tensor, v)
    {
        if (tern_ckpt_find(c, tensor, NULL))
            continue;
        /* One that lies in another file is not absent: it would be dropped. */
        if (!may_be_absent(x, tensor) || json_object_get(x->stray, tensor)) {
            rc = tern_err_set(err, TERN_USAGE, "%s: tensor '%s' is not in %s", x->path, tensor,
                              json_string_value(v));
            break;
        }
        if (!tern_ckpt_index_idle(tensor) && absent++ < SHOWN)
            tern_buf_printf(&names, "%s'%s'", absent > 1 ? ", " : "", tensor);
    }
    if (rc == 0 && absent)
        tern_warn("%s: names %zu tensor%s that no file has and the config does not need: %s%s. "
                  "They are left out.",
                  x->path, absent, absent > 1 ? "s" : "", names.data,
                  absent > SHOWN ? ", ..." : "");
    tern_buf_free(&names);
    return rc;
}
