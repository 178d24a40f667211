#include "core/ckpt/manifest.h"

#include "core/base/assert.h"
#include "core/base/again.h"
#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/str.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define TAIL_HEAD "\n,\"digest\":\""
#define TAIL_END "\"}\n"
enum { VERSION = 1, TAIL = sizeof TAIL_HEAD - 1 + 64 + sizeof TAIL_END - 1 };

int tern_ckpt_manifest_seal(const json_t *body, char **text, size_t *len,
                            char digest[TERN_SHA256_HEX], struct tern_err *err)
{
    char *json = json_dumps(body, JSON_COMPACT);
    size_t n = json ? strlen(json) : 0;
    uint8_t sha[TERN_SHA256_BYTES];

    if (!json || n > TERN_CKPT_MANIFEST_MAX - TAIL) {
        free(json);
        return tern_err_set(err, TERN_FAILED, "the manifest has %zu bytes (1 to %d)", n,
                            TERN_CKPT_MANIFEST_MAX - TAIL);
    }
    n--; /* the closing brace comes after the digest */
    tern_sha256(json, n, sha);
    tern_hex(digest, sha, sizeof sha);
    *text = tern_strf("%.*s%s%s%s", (int)n, json, TAIL_HEAD, digest, TAIL_END);
    *len = n + TAIL;
    tern_assert_cmp(strlen(*text), ==, *len);
    free(json);
    return 0;
}

bool tern_ckpt_name_is_plain(const char *name)
{
    return name && *name && *name != '.' && !strchr(name, '/') && strlen(name) <= 255;
}

/* ------------------------------------------------------------------ read */

static int number(const json_t *o, const char *key, uint64_t *v)
{
    const json_t *j = json_object_get(o, key);

    if (!json_is_integer(j) || json_integer_value(j) < 0)
        return -1;
    *v = (uint64_t)json_integer_value(j);
    return 0;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int digest_of(const json_t *o, const char *key, uint8_t to[TERN_SHA256_BYTES])
{
    const char *s = json_string_value(json_object_get(o, key));

    if (!s || strlen(s) != 64)
        return -1;
    for (int i = 0; i < TERN_SHA256_BYTES; i++) {
        int hi = hex_digit(s[2 * i]), lo = hex_digit(s[2 * i + 1]);
        if (hi < 0 || lo < 0)
            return -1;
        to[i] = (uint8_t)(hi << 4 | lo);
    }
    return 0;
}

static int numbers(const json_t *a, int n, uint64_t *v)
{
    if (!json_is_array(a) || json_array_size(a) != (size_t)n)
        return -1;
    for (int d = 0; d < n; d++) {
        const json_t *j = json_array_get(a, (size_t)d);
        if (!json_is_integer(j) || json_integer_value(j) < 0)
            return -1;
        v[d] = (uint64_t)json_integer_value(j);
    }
    return 0;
}

static int bad(const char *path, const char *what, struct tern_err *err)
{
    return tern_err_set(err, TERN_USAGE, "%s: is no manifest that tern wrote: %s", path, what);
}

static int read_shards(struct tern_ckpt *c, const char *path, struct tern_err *err)
{
    const json_t *list = json_object_get(c->manifest, "shards");
    size_t n = json_array_size(list);

    if (!json_is_array(list) || n == 0 || n > TERN_CKPT_SHARDS_MAX)
        return bad(path, "its list of shards", err);
    c->shards = tern_alloc(n, sizeof *c->shards, path, err);
    if (!c->shards)
        return -1;
    for (size_t i = 0; i < n; i++) {
        struct tern_ckpt_shard *s = &c->shards[i];
        const json_t *o = json_array_get(list, i);
        const char *name = json_string_value(json_object_get(o, "name"));
        if (!tern_ckpt_name_is_plain(name) || number(o, "bytes", &s->bytes) < 0 ||
            number(o, "header_bytes", &s->header_bytes) < 0 || s->header_bytes > s->bytes ||
            digest_of(o, "header_sha256", s->header_sha256) < 0)
            return bad(path, "an entry of its list of shards", err);
        s->name = tern_strdup(name);
        s->fd = -1;
        c->n_shards++;
    }
    return 0;
}

static int read_files(struct tern_ckpt *c, const char *path, struct tern_err *err)
{
    const json_t *list = json_object_get(c->manifest, "files");
    size_t n = json_array_size(list);

    if (!json_is_array(list) || n > TERN_CKPT_FILES_MAX)
        return bad(path, "its list of files", err);
    c->files = tern_alloc(n + 1, sizeof *c->files, path, err);
    if (!c->files)
        return -1;
    for (size_t i = 0; i < n; i++) {
        struct tern_ckpt_extra *f = &c->files[i];
        const json_t *o = json_array_get(list, i);
        const char *name = json_string_value(json_object_get(o, "name"));
        if (!tern_ckpt_name_is_plain(name) || number(o, "bytes", &f->bytes) < 0 ||
            f->bytes > TERN_CKPT_FILE_MAX || digest_of(o, "sha256", f->sha256) < 0)
            return bad(path, "an entry of its list of files", err);
        f->name = tern_strdup(name);
        c->n_files++;
    }
    return 0;
}

static int read_slice(const json_t *o, int ndim, struct tern_ckpt_slice *s)
{
    uint64_t shard;

    if (number(o, "shard", &shard) < 0 || shard >= TERN_CKPT_SHARDS_MAX ||
        number(o, "offset", &s->offset) < 0 ||
        numbers(json_object_get(o, "start"), ndim, s->start) < 0 ||
        numbers(json_object_get(o, "shape"), ndim, s->shape) < 0 ||
        digest_of(o, "sha256", s->sha256) < 0)
        return -1;
    s->shard = (unsigned)shard;
    s->digested = true;
    return 0;
}

static int read_array(struct tern_ckpt *c, const char *name, const json_t *o, const char *path,
                      struct tern_err *err)
{
    struct tern_ckpt_table_entry *e = &c->entries[c->n_entries];
    const char *dtype = json_string_value(json_object_get(o, "dtype"));
    const json_t *shape = json_object_get(o, "shape"), *slices = json_object_get(o, "slices");
    size_t n = json_array_size(slices);

    if (!dtype || tern_ckpt_type_parse(dtype, &e->info.type) < 0 || !*name ||
        strlen(name) > TERN_CKPT_NAME_MAX || json_array_size(shape) > TERN_CKPT_DIMS ||
        n > TERN_CKPT_SHARDS_MAX)
        return bad(path, "an entry of its arrays", err);
    e->info.ndim = (int)json_array_size(shape);
    if (numbers(shape, e->info.ndim, e->info.shape) < 0)
        return bad(path, "the shape of an array", err);
    e->slices = tern_alloc(n + 1, sizeof *e->slices, path, err);
    if (!e->slices)
        return -1;
    e->info.name = tern_strdup(name);
    c->n_entries++;
    for (; e->n < n; e->n++)
        if (read_slice(json_array_get(slices, e->n), e->info.ndim, &e->slices[e->n]) < 0)
            return bad(path, "a slice of an array", err);
    return 0;
}

static int read_arrays(struct tern_ckpt *c, const char *path, struct tern_err *err)
{
    json_t *arrays = json_object_get(c->manifest, "arrays"), *v;
    const char *name;

    if (!json_is_object(arrays) || json_object_size(arrays) > TERN_CKPT_ENTRIES_MAX)
        return bad(path, "its arrays", err);
    c->entries = tern_alloc(json_object_size(arrays) + 1, sizeof *c->entries, path, err);
    if (!c->entries)
        return -1;
    json_object_foreach(arrays, name, v)
    {
        if (read_array(c, name, v, path, err) < 0)
            return -1;
    }
    return 0;
}

/* The text's own digest, before anything in it is believed. */
static int check_digest(const char *text, size_t len, char digest[TERN_SHA256_HEX],
                        const char *path, struct tern_err *err)
{
    uint8_t sha[TERN_SHA256_BYTES];

    if (len < TAIL + 2 || memcmp(text + len - TAIL, TAIL_HEAD, sizeof TAIL_HEAD - 1) != 0 ||
        memcmp(text + len - (sizeof TAIL_END - 1), TAIL_END, sizeof TAIL_END - 1) != 0)
        return tern_err_set(err, TERN_USAGE, "%s: is truncated, or no manifest that tern wrote",
                            path);
    tern_sha256(text, len - TAIL, sha);
    tern_hex(digest, sha, sizeof sha);
    if (memcmp(digest, text + len - TAIL + sizeof TAIL_HEAD - 1, 64) != 0)
        return tern_err_set(err, TERN_USAGE, "%s: is damaged: its digest does not match", path);
    return 0;
}

static int fill(struct tern_ckpt *c, const char *path, struct tern_err *err)
{
    uint64_t version;

    if (!json_is_object(c->manifest) || number(c->manifest, "version", &version) < 0 ||
        number(c->manifest, "step", &c->step) < 0 ||
        !json_is_object(json_object_get(c->manifest, "meta")))
        return bad(path, "version, step or meta", err);
    if (version > VERSION)
        return tern_err_set(err, TERN_USAGE,
                            "%s: has version %llu; this tern reads up to %d. Use a newer tern.",
                            path, (unsigned long long)version, VERSION);
    if (read_shards(c, path, err) < 0 || read_files(c, path, err) < 0 ||
        read_arrays(c, path, err) < 0)
        return -1;
    if (tern_ckpt_table_check(c, err) < 0)
        return tern_err_prefix(err, "%s", path);
    return 0;
}

int tern_ckpt_manifest_parse(struct tern_ckpt *c, const char *path, const char *text, size_t len,
                             struct tern_err *err)
{
    if (check_digest(text, len, c->digest, path, err) < 0)
        return -1;
    c->manifest = tern_json_parse(text, len, path, err);
    return c->manifest ? fill(c, path, err) : -1;
}

int tern_ckpt_manifest_read(struct tern_ckpt *c, struct tern_err *err)
{
    char *path = tern_strf("%s/%s", c->path, TERN_CKPT_MANIFEST), *text = NULL;
    struct stat st;
    size_t len;
    int rc;

    if (TERN_AGAIN(lstat(path, &st)) == 0 && S_ISLNK(st.st_mode))
        rc = tern_err_set(err, TERN_USAGE, "%s: is a symbolic link, where a plain file is wanted",
                          path);
    else
        rc = tern_fs_read(path, TERN_CKPT_MANIFEST_MAX, &text, &len, err);
    if (rc == 0)
        rc = tern_ckpt_manifest_parse(c, path, text, len, err);
    free(text);
    free(path);
    return rc;
}
