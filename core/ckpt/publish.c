/* A leader's part of a save: the manifest, and the rename that makes a checkpoint of what the ranks
 * wrote. */
#include "core/ckpt/save.h"

#include "core/base/assert.h"
#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/str.h"
#include "core/ckpt/folder.h"
#include "core/ckpt/manifest.h"

#include <stdlib.h>
#include <string.h>

/* One entry of rank `r`'s table joins its array in the manifest. */
static int merge_slice(json_t *arrays, json_t *slice, int r, struct tern_err *err)
{
    const char *name = json_string_value(json_object_get(slice, "name"));
    json_t *dtype = json_object_get(slice, "dtype"), *global = json_object_get(slice, "global");
    json_t *array = json_object_get(arrays, name);

    if (!array) {
        array = json_pack("{s:O,s:O,s:[]}", "dtype", dtype, "shape", global, "slices");
        json_object_set_new(arrays, name, array);
    } else if (!json_equal(json_object_get(array, "dtype"), dtype) ||
               !json_equal(json_object_get(array, "shape"), global)) {
        return tern_err_set(err, TERN_FAILED,
                            "array '%s': rank %d has another type or global shape", name, r);
    }
    json_t *kept =
        json_pack("{s:i,s:O,s:O,s:O,s:O}", "shard", r, "offset", json_object_get(slice, "offset"),
                  "start", json_object_get(slice, "start"), "shape",
                  json_object_get(slice, "shape"), "sha256", json_object_get(slice, "sha256"));
    json_array_append_new(json_object_get(array, "slices"), kept);
    return 0;
}

/* Rank 0's head of the manifest joins it. */
static void merge_head(json_t *body, json_t *head)
{
    static const char *const keys[] = {"written", "meta", "files"};

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        json_object_set(body, keys[i], json_object_get(head, keys[i]));
}

static int merge(const struct tern_ckpt_saving *s, json_t *body, struct tern_err *err)
{
    json_t *shards = json_object_get(body, "shards"), *arrays = json_object_get(body, "arrays");

    for (int r = 0; r < s->size; r++) {
        const char *text = s->tables + (size_t)r * s->pitch;
        size_t i;
        json_t *slice, *t = tern_json_parse(text, strnlen(text, s->pitch), "table of slices", err);
        if (!t)
            return -1;
        int rc = 0;
        json_array_foreach(json_object_get(t, "slices"), i, slice)
        {
            if (rc == 0)
                rc = merge_slice(arrays, slice, r, err);
        }
        merge_head(body, json_object_get(t, "manifest"));
        json_object_del(t, "manifest");
        json_object_del(t, "slices");
        json_array_append(shards, t);
        json_decref(t);
        if (rc < 0)
            return -1;
    }
    return 0;
}

static int make_manifest(struct tern_ckpt_saving *s, char **ret_text, size_t *ret_len,
                         struct tern_err *err)
{
    json_t *body = json_pack("{s:s,s:i,s:I,s:n,s:i,s:n,s:n,s:[],s:{}}", "format", "tern checkpoint",
                             "version", 1, "step", (json_int_t)s->o.step, "written", "attempt",
                             (int)s->reports[0].attempt, "meta", "files", "shards", "arrays");
    int rc = merge(s, body, err);

    if (rc == 0)
        rc = tern_ckpt_manifest_seal(body, ret_text, ret_len, s->digest, err);
    json_decref(body);
    return rc;
}

/* Writes the manifest and reads it back: what no reader would accept is not published (a slice that
 * is missing, two that overlap). */
static int write_manifest(struct tern_ckpt_saving *s, struct tern_err *err)
{
    char *path = tern_strf("%s/%s", s->temp, TERN_CKPT_MANIFEST), *text = NULL;
    size_t len = 0;
    int rc = s->from_path ? tern_ckpt_flush_manifest(s, &text, &len, err)
                          : make_manifest(s, &text, &len, err);

    if (rc == 0) {
        tern_assert(len > 0 && strlen(s->digest) == TERN_SHA256_HEX - 1, "%s: %zu bytes, digest %s",
                    path, len, s->digest);
        rc = tern_ckpt_save_small(path, text, len, err);
    }
    free(text);
    free(path);
    if (rc < 0)
        return -1;
    struct tern_ckpt *c =
        s->o.local ? tern_ckpt_local_open(s->temp, err) : tern_ckpt_open(s->temp, err);
    if (!c)
        return -1;
    /* Another process may have written there, as one of another host that shares no lease. */
    if (c->step != s->o.step || strcmp(c->digest, s->digest) != 0 ||
        (!s->from_path && c->n_shards != (size_t)s->size))
        rc = tern_err_set(err, TERN_TEMPFAIL, "%s: another manifest is read than was written",
                          s->temp);
    tern_ckpt_close(c);
    if (rc < 0)
        return -1;
    s->whole = s->total + len;
    return tern_fs_sync_dir(s->temp, err);
}

static int put_in_place(const struct tern_ckpt_saving *s, struct tern_err *err)
{
    if (s->lease && tern_ckpt_lease_check(s->lease, err) < 0)
        return -1;
    if (tern_ckpt_rename_new(s->temp, s->final, err) < 0)
        return -1;
    if (tern_fs_sync_dir(s->o.dir, err) < 0) {
        /* Not acknowledged, so not to be seen. */
        if (tern_fs_rename(s->final, s->temp, false) == 0)
            tern_fs_sync_dir(s->o.dir, NULL);
        return -1;
    }
    return 0;
}

static void tell(const struct tern_ckpt_saving *s, enum tern_ckpt_word word)
{
    struct tern_ckpt_saved saved;

    if (!s->o.tell || s->o.local) /* only of checkpoints that all nodes can read */
        return;
    tern_ckpt_save_fill(s, s->digest, s->whole, &saved);
    s->o.tell(s->o.ctx, word, &saved);
}

int tern_ckpt_save_publish(struct tern_ckpt_saving *s, struct tern_err *err)
{
    int rc = write_manifest(s, err);

    if (rc == 0 && s->check)
        rc = s->check(s->check_ctx, s->temp, err);
    if (rc < 0)
        return -1;
    /* An attempt that has lost its lease says nothing of a step that may be another's. */
    if (s->lease && tern_ckpt_lease_check(s->lease, err) < 0)
        return -1;
    tell(s, TERN_CKPT_WRITTEN);
    rc = put_in_place(s, err);
    tell(s, rc == 0 ? TERN_CKPT_PUBLISHED : TERN_CKPT_REFUSED);
    return rc;
}
