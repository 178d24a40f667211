/* Folders that save_to_disk of Hugging Face's `datasets` wrote. */
#include "core/arrow/arrow.h"

#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/str.h"

#include <stdlib.h>
#include <string.h>

static const char dict_file[] = "dataset_dict.json", state_file[] = "state.json";
static const size_t json_max = 64 << 20; /* a million files of 60 bytes */

static bool has_file(const char *dir, const char *name)
{
    char *path = tern_fs_join(dir, name);
    const bool there = tern_fs_exists(path);

    free(path);
    return there;
}

bool tern_arrow_is_dataset(const char *dir)
{
    return has_file(dir, state_file) || has_file(dir, dict_file);
}

static int is_dict(const char *dir, struct tern_err *err)
{
    char *path = tern_fs_join(dir, dict_file);
    json_t *j = tern_json_load(path, json_max, err);
    struct tern_buf list = {.max = 400};
    size_t i;
    json_t *split;

    free(path);
    if (!j)
        return -1;
    json_array_foreach(json_object_get(j, "splits"), i, split) if (json_is_string(split))
        tern_buf_printf(&list, "%s%s/%s", i ? ", " : "", dir, json_string_value(split));
    if (list.data)
        tern_str_mask(list.data);
    tern_err_set(err, TERN_USAGE, "%s: several data sets in one folder. Name one of them: %s", dir,
                 list.data ? list.data : "it has none");
    tern_buf_free(&list);
    json_decref(j);
    return -1;
}

/* A name in the folder itself. */
static bool is_plain(const char *name)
{
    return name && *name && *name != '.' && !strchr(name, '/');
}

static int add_files(const char *dir, const char *path, const json_t *state,
                     struct tern_arrow_dataset *d, struct tern_err *err)
{
    const json_t *files = json_object_get(state, "_data_files");
    const json_t *indices = json_object_get(state, "_indices_data_files");

    if (!json_is_array(files))
        return tern_err_set(err, TERN_USAGE, "%s: no list _data_files; it is not of `datasets`",
                            path);
    if (json_array_size(indices) > 0)
        return tern_err_set(err, TERN_USAGE,
                            "%s: its rows are chosen by a table of indices. Save it again by "
                            "datasets 2.0 or newer.",
                            path);
    d->path = tern_alloc(json_array_size(files) + 1, sizeof *d->path, "files of a data set", err);
    if (!d->path)
        return -1;
    for (size_t i = 0; i < json_array_size(files); i++) {
        const char *name = json_string_value(json_object_get(json_array_get(files, i), "filename"));
        if (!is_plain(name))
            return tern_err_set(err, TERN_USAGE, "%s: file %zu has no name in this folder", path,
                                i);
        d->path[d->n++] = tern_fs_join(dir, name);
    }
    return 0;
}

int tern_arrow_dataset_list(const char *dir, struct tern_arrow_dataset *ret_dataset,
                            struct tern_err *err)
{
    struct tern_arrow_dataset d = {0};

    if (!has_file(dir, state_file) && has_file(dir, dict_file))
        return is_dict(dir, err);
    char *path = tern_fs_join(dir, state_file);
    json_t *state = tern_json_load(path, json_max, err);
    const int rc = state ? add_files(dir, path, state, &d, err) : -1;
    json_decref(state);
    free(path);
    if (rc < 0)
        tern_arrow_dataset_free(&d);
    else
        *ret_dataset = d;
    return rc;
}

void tern_arrow_dataset_free(struct tern_arrow_dataset *d)
{
    for (size_t i = 0; i < d->n; i++)
        free(d->path[i]);
    free(d->path);
    *d = (struct tern_arrow_dataset){0};
}
