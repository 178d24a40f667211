/* Open a checkpoint or a Hugging Face folder, and list its arrays. */
#include "core/base/again.h"
#include "core/base/assert.h"
#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/ckpt/folder.h"
#include "core/ckpt/index.h"
#include "core/ckpt/local.h"
#include "core/ckpt/manifest.h"
#include "core/ckpt/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ------------------------------------------------------------------ open and close */

struct tern_ckpt *tern_ckpt_table_new(const char *path)
{
    struct tern_ckpt *c = tern_alloc(1, sizeof *c, path, NULL);

    if (!c)
        abort(); /* as tern_strdup: not data */
    c->path = tern_strdup(path);
    size_t n = strlen(c->path);
    while (n > 1 && c->path[n - 1] == '/')
        c->path[--n] = '\0';
    return c;
}

void tern_ckpt_close(struct tern_ckpt *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < c->n_shards; i++) {
        if (c->shards[i].fd >= 0)
            close(c->shards[i].fd);
        free(c->shards[i].name);
    }
    for (size_t i = 0; i < c->n_entries; i++) {
        free((char *)c->entries[i].info.name);
        free(c->entries[i].slices);
    }
    for (size_t i = 0; i < c->n_files; i++)
        free(c->files[i].name);
    json_decref(c->manifest);
    free(c->shards);
    free(c->entries);
    free(c->by_name);
    free(c->piece);
    free(c->files);
    free(c->near);
    free(c->path);
    free(c);
}

/* One of a checkpoint's own files is plain: a link would let its bytes change behind the digest.
 * With `some`, it may be absent. */
static int size_is(const struct tern_ckpt *c, const char *name, uint64_t bytes, bool some,
                   struct tern_err *err)
{
    struct stat st;
    char *path = tern_strf("%s/%s", c->path, name);
    int rc = 0;

    if (TERN_AGAIN(lstat(path, &st)) < 0) {
        if (!some || errno != ENOENT)
            rc = tern_err_sys(err, "%s: is missing from its checkpoint", path);
        if (!some && errno == ENOENT)
            tern_err_set(err, TERN_USAGE, "%s: is missing from its checkpoint", path);
    } else if (!S_ISREG(st.st_mode)) {
        rc = tern_err_set(err, TERN_USAGE, "%s: is %s, where a plain file is wanted", path,
                          S_ISLNK(st.st_mode) ? "a symbolic link" : "no file");
    } else if ((uint64_t)st.st_size != bytes) {
        rc = tern_err_set(err, TERN_USAGE, "%s: has %lld bytes; the manifest says %llu", path,
                          (long long)st.st_size, (unsigned long long)bytes);
    }
    free(path);
    return rc;
}

static int sizes_check(const struct tern_ckpt *c, bool some, struct tern_err *err)
{
    for (size_t i = 0; i < c->n_shards; i++)
        if (size_is(c, c->shards[i].name, c->shards[i].bytes, some, err) < 0)
            return -1;
    for (size_t i = 0; i < c->n_files; i++)
        if (size_is(c, c->files[i].name, c->files[i].bytes, some, err) < 0)
            return -1;
    return 0;
}

struct tern_ckpt *tern_ckpt_open_manifest(const char *path, const char *text, size_t len,
                                          struct tern_err *err)
{
    struct tern_ckpt *c = tern_ckpt_table_new(path);
    char *manifest = tern_strf("%s/%s", c->path, TERN_CKPT_MANIFEST);
    const int rc = tern_ckpt_manifest_parse(c, manifest, text, len, err);

    free(manifest);
    if (rc == 0)
        return c;
    tern_ckpt_close(c);
    return NULL;
}

size_t tern_ckpt_parts(const struct tern_ckpt *c)
{
    return c->n_shards + c->n_files;
}

const char *tern_ckpt_part(const struct tern_ckpt *c, size_t i, uint64_t *ret_bytes)
{
    const bool shard = i < c->n_shards;

    tern_assert_cmp(i, <, tern_ckpt_parts(c));
    *ret_bytes = shard ? c->shards[i].bytes : c->files[i - c->n_shards].bytes;
    return shard ? c->shards[i].name : c->files[i - c->n_shards].name;
}

/* `some`: some of its files will do. */
static struct tern_ckpt *open_folder(const char *path, bool some, struct tern_err *err)
{
    struct tern_ckpt *c = tern_ckpt_table_new(path);
    struct stat st;

    if (TERN_AGAIN(stat(path, &st)) < 0) {
        tern_err_sys(err, "%s: cannot open checkpoint", path);
        if (err && errno == ENOENT)
            err->code = TERN_USAGE;
    } else if (!S_ISDIR(st.st_mode)) {
        tern_err_set(err, TERN_USAGE, "%s: is no checkpoint: not a folder", path);
    } else if (!tern_ckpt_is_ours(path)) {
        tern_err_set(err, TERN_USAGE, "%s: is no checkpoint: it has no %s", path,
                     TERN_CKPT_MANIFEST);
    } else if (tern_ckpt_manifest_read(c, err) == 0 &&
               tern_ckpt_step_check(c->step, path, err) == 0 && sizes_check(c, some, err) == 0) {
        return c;
    }
    tern_ckpt_close(c);
    return NULL;
}

struct tern_ckpt *tern_ckpt_open(const char *path, struct tern_err *err)
{
    return open_folder(path, /* some= */ false, err);
}

bool tern_ckpt_is_misnamed(const char *path)
{
    struct tern_ckpt *c = tern_ckpt_table_new(path);
    const bool is = tern_ckpt_link_check(path, NULL) < 0 ||
                    (tern_ckpt_is_ours(path) && tern_ckpt_manifest_read(c, NULL) == 0 &&
                     tern_ckpt_step_check(c->step, path, NULL) < 0);

    tern_ckpt_close(c);
    return is;
}

struct tern_ckpt *tern_ckpt_local_open(const char *path, struct tern_err *err)
{
    return tern_ckpt_link_check(path, err) < 0 ? NULL : open_folder(path, /* some= */ true, err);
}

bool tern_ckpt_is_ours(const char *dir)
{
    char *path = tern_strf("%s/%s", dir, TERN_CKPT_MANIFEST);
    bool is = tern_fs_exists(path);

    free(path);
    return is;
}

/* ------------------------------------------------------------------ Hugging Face folders */

static int hf_header(const char *path, struct tern_ckpt_st_header *h, struct tern_err *err)
{
    int fd = TERN_AGAIN(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));

    if (fd < 0) {
        bool absent = errno == ENOENT;
        tern_err_sys(err, "%s: cannot open", path);
        if (absent && err)
            err->code = TERN_USAGE;
        return -1;
    }
    int rc = tern_ckpt_st_header_read(fd, path, h, err);
    close(fd);
    return rc;
}

/* Room for `more` entries behind those that are there. */
static int grow(struct tern_ckpt *c, size_t more, const char *path, struct tern_err *err)
{
    const size_t n = c->n_entries + more;

    if (n > TERN_CKPT_ENTRIES_MAX)
        return tern_err_set(err, TERN_USAGE, "%s: with it the files hold more than %d tensors",
                            path, TERN_CKPT_ENTRIES_MAX);
    void *bigger = reallocarray(c->entries, n + 1, sizeof *c->entries);
    if (!bigger)
        return tern_err_set(err, TERN_TEMPFAIL, "%s: no memory for %zu tensors", path, n);
    c->entries = bigger;
    memset(c->entries + c->n_entries, 0, (more + 1) * sizeof *c->entries);
    return 0;
}

/* Appends one file and those of its tensors that the index `x` takes from there; without an index,
 * all of them. */
static int hf_add_file(struct tern_ckpt *c, const char *name, struct tern_ckpt_index *x,
                       struct tern_err *err)
{
    char *path = tern_strf("%s/%s", c->path, name);
    struct tern_ckpt_st_header h = {0};
    struct tern_again a = {0};
    int rc;

    do {
        errno = 0;
        rc = hf_header(path, &h, err);
    } while (rc < 0 && tern_again_stale(&a));
    if (rc == 0)
        rc = grow(c, h.n, path, err);
    if (rc < 0)
        goto out;
    c->shards[c->n_shards++] = (struct tern_ckpt_shard){
        .name = tern_strdup(name), .bytes = h.file_size, .header_bytes = h.bytes, .fd = -1};
    for (size_t i = 0; i < h.n; i++) {
        if (x && !tern_ckpt_index_takes(x, h.tensors[i].info.name, name))
            continue;
        struct tern_ckpt_table_entry *e = &c->entries[c->n_entries];
        e->slices = tern_alloc(1, sizeof *e->slices, path, err);
        if (!e->slices) {
            rc = -1;
            goto out;
        }
        e->info = h.tensors[i].info;
        h.tensors[i].info.name = NULL; /* moved */
        memcpy(e->slices->shape, e->info.shape, sizeof e->info.shape);
        e->slices->offset = h.tensors[i].offset;
        e->slices->shard = (unsigned)c->n_shards - 1;
        e->n = h.tensors[i].bytes > 0;
        c->n_entries++;
    }
out:
    tern_ckpt_st_header_free(&h);
    free(path);
    return rc;
}

static bool has_shard(const struct tern_ckpt *c, const char *name)
{
    for (size_t i = 0; i < c->n_shards; i++)
        if (strcmp(c->shards[i].name, name) == 0)
            return true;
    return false;
}

/* A path below the folder: plain names, one below the other. */
static bool path_is_below(const char *path)
{
    char *copy = path ? tern_strdup(path) : NULL, *at = NULL;
    bool good = copy && path[0] != '/' && path[0];

    for (char *s = copy ? strtok_r(copy, "/", &at) : NULL; s && good; s = strtok_r(NULL, "/", &at))
        good = tern_ckpt_name_is_plain(s);
    free(copy);
    return good;
}

static int hf_add_files(struct tern_ckpt *c, struct tern_ckpt_index *x, struct tern_err *err)
{
    const char *tensor;
    json_t *v;

    json_object_foreach(x->map, tensor, v)
    {
        const char *file = json_string_value(v);
        if (!path_is_below(file) || !tern_str_ends(file, ".safetensors"))
            return tern_err_set(err, TERN_USAGE,
                                "%s: places tensor '%s' in a file that is no .safetensors", x->path,
                                tensor);
        if (has_shard(c, file))
            continue;
        if (c->n_shards == TERN_CKPT_SHARDS_MAX)
            return tern_err_set(err, TERN_USAGE, "%s: names more than %d files", x->path,
                                TERN_CKPT_SHARDS_MAX);
        char *whole = tern_fs_join(c->path, file);
        bool skip = !tern_fs_exists(whole) && !tern_ckpt_index_wants(x, file);
        free(whole);
        if (!skip && hf_add_file(c, file, x, err) < 0)
            return -1;
    }
    return 0;
}

/* `x` has been loaded. */
static int hf_open_index(struct tern_ckpt *c, struct tern_ckpt_index *x, struct tern_err *err)
{
    c->shards = tern_alloc(TERN_CKPT_SHARDS_MAX, sizeof *c->shards, x->path, err);
    if (!c->shards || hf_add_files(c, x, err) < 0)
        return -1;
    if (tern_ckpt_table_check(c, err) < 0)
        return tern_err_prefix(err, "%s", x->path);
    return tern_ckpt_index_check(x, c, err);
}

static int hf_open_single(struct tern_ckpt *c, const char *name, struct tern_err *err)
{
    c->shards = tern_alloc(1, sizeof *c->shards, c->path, err);
    if (!c->shards || hf_add_file(c, name, NULL, err) < 0)
        return -1;
    return tern_ckpt_table_check(c, err);
}

struct tern_ckpt *tern_ckpt_open_safetensors(const char *dir, const char *name,
                                             struct tern_err *err)
{
    struct tern_ckpt *c = tern_ckpt_table_new(dir);

    if (hf_open_single(c, name, err) == 0)
        return c;
    tern_ckpt_close(c);
    return NULL;
}

struct tern_ckpt *tern_ckpt_open_hf_with(const char *dir, struct tern_ckpt_index *x,
                                         struct tern_err *err)
{
    struct tern_ckpt *c = tern_ckpt_table_new(dir);
    char *index = tern_strf("%s/model.safetensors.index.json", c->path);
    char *single = tern_strf("%s/model.safetensors", c->path);
    int rc;

    if (tern_fs_exists(single))
        rc = hf_open_single(c, "model.safetensors", err);
    else if (tern_fs_exists(index))
        rc = tern_ckpt_index_load(index, x, err) < 0 ? -1 : hf_open_index(c, x, err);
    else
        rc = tern_err_set(err, TERN_USAGE,
                          "%s: has neither model.safetensors nor model.safetensors.index.json%s",
                          dir, tern_fs_exists(dir) ? "" : ": there is no such folder");
    tern_ckpt_index_free(x);
    free(index);
    free(single);
    if (rc == 0)
        return c;
    tern_ckpt_close(c);
    return NULL;
}

struct tern_ckpt *tern_ckpt_open_hf(const char *dir, struct tern_err *err)
{
    struct tern_ckpt_index x = {.spare = NULL};

    return tern_ckpt_open_hf_with(dir, &x, err);
}

/* ------------------------------------------------------------------ what is in it */

const char *tern_ckpt_path(const struct tern_ckpt *c)
{
    return c->path;
}

uint64_t tern_ckpt_step(const struct tern_ckpt *c)
{
    return c->step;
}

json_t *tern_ckpt_meta(const struct tern_ckpt *c)
{
    return json_object_get(c->manifest, "meta");
}

const char *tern_ckpt_digest(const struct tern_ckpt *c)
{
    return c->digest;
}

json_t *tern_ckpt_manifest(const struct tern_ckpt *c)
{
    return c->manifest;
}

size_t tern_ckpt_count(const struct tern_ckpt *c)
{
    return c->n_entries;
}

void tern_ckpt_info(const struct tern_ckpt *c, size_t i, struct tern_ckpt_info *info)
{
    *info = c->entries[i].info;
}

bool tern_ckpt_find(const struct tern_ckpt *c, const char *name, struct tern_ckpt_info *info)
{
    const struct tern_ckpt_table_entry *e = tern_ckpt_table_find(c, name);

    if (e && info)
        *info = e->info;
    return e != NULL;
}
