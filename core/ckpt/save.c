/* Publish a checkpoint: every rank writes, rank 0 makes it visible, and all return the same. */
#include "core/base/again.h"
#include "core/base/assert.h"
#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/str.h"
#include "core/ckpt/folder.h"
#include "core/ckpt/manifest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum {
    PIECE = 4 << 20,     /* bytes digested and written at a time */
    TABLE_MAX = 64 << 20 /* of one rank: 300,000 slices */
};

/* What the ranks exchange after each stage. */
struct report {
    int32_t code; /* enum tern_code */
    uint32_t attempt;
    uint64_t step, bytes, table_bytes;
    char text[960];
};

struct save {
    const struct tern_ckpt_save_options *o;
    struct tern_ckpt_lease *lease; /* of rank 0, else NULL */
    int rank, size;
    /* This rank's shard. */
    const struct tern_ckpt_array **own; /* [n_own] */
    size_t n_own, head_len;
    char *head, *table;
    uint64_t bytes; /* of the shard */
    /* The same on every rank. */
    struct report *reports; /* [size] */
    char *temp, *final;
    uint64_t total;
    struct tern_ckpt_saved out;
};

/* Exchange results.  After a failure `err` is, on every rank, that of the first rank that failed.
 */
static int exchange(struct save *s, int rc, struct report *mine, struct tern_err *err)
{
    if (rc < 0) {
        mine->code = err->code ? (int32_t)err->code : TERN_FAILED;
        snprintf(mine->text, sizeof mine->text, "%.*s", (int)sizeof mine->text - 1, err->text);
    }
    if (s->size == 1)
        s->reports[0] = *mine;
    else if (s->o->peers->all_gather(s->o->peers->ctx, mine, s->reports, sizeof *mine, err) < 0)
        return tern_err_prefix(err, "checkpoint of step %llu", (unsigned long long)s->o->step);
    for (int r = 0; r < s->size; r++) {
        struct report *p = &s->reports[r];
        if (p->code == 0)
            continue;
        p->text[sizeof p->text - 1] = '\0';
        if (s->size == 1)
            return tern_err_set(err, (enum tern_code)p->code, "%s", p->text);
        return tern_err_set(err, (enum tern_code)p->code, "rank %d: %s", r, p->text);
    }
    return 0;
}

/* ------------------------------------------------------------------ stage 1: what is to be written
 */

static int array_check(const struct tern_ckpt_array *a, struct tern_err *err)
{
    uint64_t bytes;

    if (!a->name || !*a->name || strlen(a->name) > TERN_CKPT_NAME_MAX)
        return tern_err_set(err, TERN_FAILED, "an array's name is empty or above %d bytes",
                            TERN_CKPT_NAME_MAX);
    if (a->ndim < 0 || a->ndim > TERN_CKPT_DIMS)
        return tern_err_set(err, TERN_FAILED, "array '%s' has %d dimensions", a->name, a->ndim);
    for (int d = 0; d < a->ndim; d++)
        if (a->start[d] > a->global[d] || a->shape[d] > a->global[d] - a->start[d])
            return tern_err_set(err, TERN_FAILED, "array '%s': the slice sticks out of it",
                                a->name);
    if (tern_ckpt_shape_bytes(a->global, a->ndim, a->type, &bytes) < 0)
        return tern_err_set(err, TERN_FAILED, "array '%s' has an impossible shape", a->name);
    return 0;
}

static int plan(struct save *s, struct tern_err *err)
{
    struct tern_ckpt_info *infos = tern_alloc(s->o->n + 1, sizeof *infos, "list of arrays", err);
    uint64_t data_bytes, elements;
    int rc = -1;

    s->own = tern_alloc(s->o->n + 1, sizeof *s->own, "list of arrays", err);
    if (!infos || !s->own)
        goto out;
    for (size_t i = 0; i < s->o->n; i++) {
        const struct tern_ckpt_array *a = &s->o->arrays[i];
        if (array_check(a, err) < 0)
            goto out;
        if (!a->owner || tern_ckpt_shape_elements(a->shape, a->ndim, &elements) < 0 ||
            elements == 0)
            continue;
        infos[s->n_own] =
            (struct tern_ckpt_info){.name = a->name, .type = a->type, .ndim = a->ndim};
        memcpy(infos[s->n_own].shape, a->shape, sizeof a->shape);
        s->own[s->n_own++] = a;
    }
    rc = tern_ckpt_safetensors_head(infos, s->n_own, &s->head, &s->head_len, &data_bytes, err);
    if (rc == 0)
        s->bytes = s->head_len + data_bytes;
out:
    free(infos);
    return rc;
}

/* Ranks that disagree about the step would publish a mixture. */
static int same_step(const struct save *s, struct tern_err *err)
{
    for (int r = 1; r < s->size; r++)
        if (s->reports[r].step != s->o->step)
            return tern_err_set(err, TERN_FAILED, "ranks %d and %d save steps %llu and %llu", 0, r,
                                (unsigned long long)s->reports[0].step,
                                (unsigned long long)s->reports[r].step);
    return 0;
}

/* ------------------------------------------------------------------ stage 2: rank 0 makes room */

static int space_check(const struct save *s, struct tern_err *err)
{
    struct statvfs v;
    char need[32], have[32];

    if (TERN_AGAIN(statvfs(s->o->dir, &v)) < 0)
        return tern_err_sys(err, "%s: cannot ask for free space", s->o->dir);
    uint64_t avail = (uint64_t)v.f_bavail * v.f_frsize;
    /* Some file systems do not know and say 0 blocks of 0. */
    if (v.f_blocks && avail < s->total)
        return tern_err_set(err, TERN_TEMPFAIL,
                            "%s: the checkpoint of step %llu needs %s and %s are free. Free space, "
                            "or lower checkpoint.keep.",
                            s->o->dir, (unsigned long long)s->o->step,
                            tern_str_bytes(need, sizeof need, s->total),
                            tern_str_bytes(have, sizeof have, avail));
    return 0;
}

static int prepare(struct save *s, struct tern_err *err)
{
    struct stat st;

    if (!tern_fs_exists(s->o->dir) &&
        (tern_fs_mkdirs(s->o->dir, 0777, err) < 0 || tern_fs_sync_parent(s->o->dir, err) < 0))
        return -1;
    if (s->lease && tern_ckpt_lease_check(s->lease, err) < 0)
        return -1;
    if (TERN_AGAIN(lstat(s->final, &st)) == 0)
        return tern_err_set(err, TERN_FAILED, "%s: already exists; each step is published once",
                            s->final);
    /* What this attempt left here when an earlier save of the step failed. */
    if (tern_fs_remove_tree(s->temp, err) < 0 || space_check(s, err) < 0)
        return -1;
    if (TERN_AGAIN(mkdir(s->temp, 0777)) < 0)
        return tern_err_sys(err, "%s: cannot make folder", s->temp);
    return 0;
}

/* ------------------------------------------------------------------ stage 3: every rank writes */

/* Make `bytes` of room or fail early; what a file system cannot promise comes later as ENOSPC. */
static int reserve(int fd, uint64_t bytes, const char *path, struct tern_err *err)
{
    if (bytes && TERN_AGAIN(fallocate(fd, 0, 0, (off_t)bytes)) < 0 &&
        (errno == ENOSPC || errno == EDQUOT))
        return tern_err_sys(err, "%s: no room for its %llu bytes", path, (unsigned long long)bytes);
    return 0;
}

/* Durable, closed, and as long as it was meant to be; closes `fd` in any case. */
static int seal(int fd, uint64_t bytes, const char *path, struct tern_err *err)
{
    struct stat st;
    int rc = 0;

    if (tern_fs_sync(fd) < 0)
        rc = tern_err_sys(err, "%s: cannot make it durable", path);
    if (tern_fs_close(fd) < 0 && rc == 0)
        rc = tern_err_sys(err, "%s: cannot close", path);
    if (rc == 0 && TERN_AGAIN(stat(path, &st)) < 0)
        rc = tern_err_sys(err, "%s: cannot stat what was written", path);
    if (rc == 0 && (uint64_t)st.st_size != bytes)
        rc = tern_err_set(err, TERN_TEMPFAIL, "%s: has %lld bytes after %llu were written", path,
                          (long long)st.st_size, (unsigned long long)bytes);
    return rc;
}

static int create(const char *path, struct tern_err *err)
{
    int fd = TERN_AGAIN(open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));

    return fd < 0 ? tern_err_sys(err, "%s: cannot create", path) : fd;
}

/* May `path`, whose writing failed, be written anew?  Its handle must have gone stale, and nothing
 * of it be left. */
static bool anew(struct tern_again *a, const char *path)
{
    return tern_again_stale(a) && (TERN_AGAIN(unlink(path)) == 0 || errno == ENOENT);
}

/* A whole small file. */
static int write_small(const char *path, const char *text, size_t len, struct tern_err *err)
{
    struct tern_again a = {0};
    int rc;

    do {
        errno = 0;
        int fd = create(path, err);
        rc = fd < 0 ? -1 : tern_fs_write(fd, text, len, path, err);
        if (rc == 0)
            rc = seal(fd, len, path, err);
        else if (fd >= 0)
            close(fd);
    } while (rc < 0 && anew(&a, path));
    return rc;
}

static json_t *list_of(const uint64_t *v, int n)
{
    json_t *a = json_array();

    for (int d = 0; d < n; d++)
        json_array_append_new(a, json_integer((json_int_t)v[d]));
    return a;
}

static int write_array(int fd, const struct tern_ckpt_array *a, const char *path, uint64_t *offset,
                       json_t *list, struct tern_err *err)
{
    uint64_t bytes = 0;
    uint8_t sha[TERN_SHA256_BYTES];
    char hex[TERN_SHA256_HEX];
    struct tern_sha256 *sum = tern_sha256_new();

    tern_ckpt_shape_bytes(a->shape, a->ndim, a->type, &bytes);
    for (uint64_t at = 0, n; at < bytes; at += n) {
        const char *p = (const char *)a->data + at;
        n = bytes - at < PIECE ? bytes - at : PIECE;
        tern_sha256_add(sum, p, n);
        if (tern_fs_write(fd, p, n, path, err) < 0) {
            tern_sha256_end(sum, NULL);
            return -1;
        }
    }
    tern_sha256_end(sum, sha);
    json_t *j =
        json_pack("{s:s,s:s,s:o,s:I,s:o,s:o,s:s}", "name", a->name, "dtype",
                  tern_ckpt_type_name(a->type), "global", list_of(a->global, a->ndim), "offset",
                  (json_int_t)*offset, "start", list_of(a->start, a->ndim), "shape",
                  list_of(a->shape, a->ndim), "sha256", tern_hex(hex, sha, sizeof sha));
    json_array_append_new(list, j);
    *offset += bytes;
    return 0;
}

/* Arrays that this rank knows and does not write: one that no rank writes must not go missing. */
static void list_others(const struct save *s, json_t *list)
{
    uint64_t n;

    for (size_t i = 0; i < s->o->n; i++) {
        const struct tern_ckpt_array *a = &s->o->arrays[i];
        tern_ckpt_shape_elements(a->shape, a->ndim, &n);
        if (!a->owner || n == 0)
            json_array_append_new(list, json_pack("{s:s,s:s,s:o}", "name", a->name, "dtype",
                                                  tern_ckpt_type_name(a->type), "global",
                                                  list_of(a->global, a->ndim)));
    }
}

/* The shard's bytes; `list` gets an entry for each array. */
static int write_arrays(const struct save *s, const char *path, json_t *list, struct tern_err *err)
{
    uint64_t offset = s->head_len;
    int fd = create(path, err), rc = -1;

    json_array_clear(list);
    if (fd < 0)
        return -1;
    tern_assert_cmp(s->head_len % 8, ==, 0);
    tern_assert_cmp(s->head_len, <=, s->bytes);
    rc = reserve(fd, s->bytes, path, err);
    if (rc == 0)
        rc = tern_fs_write(fd, s->head, s->head_len, path, err);
    for (size_t i = 0; rc == 0 && i < s->n_own; i++)
        rc = write_array(fd, s->own[i], path, &offset, list, err);
    if (rc == 0) {
        tern_assert_cmp(offset, ==, s->bytes);
        return seal(fd, s->bytes, path, err);
    }
    const int why = errno;
    close(fd);
    errno = why;
    return -1;
}

/* Write this rank's shard, and its table: what rank 0 needs to know of it. */
static int write_shard(struct save *s, struct tern_err *err)
{
    struct tern_again a = {0};
    char *name = tern_strf("shard-%05d-of-%05d.safetensors", s->rank, s->size);
    char *path = tern_strf("%s/%s", s->temp, name);
    json_t *list = json_array(), *table;
    uint8_t sha[TERN_SHA256_BYTES];
    char hex[TERN_SHA256_HEX];
    int rc;

    do {
        errno = 0;
        rc = write_arrays(s, path, list, err);
    } while (rc < 0 && anew(&a, path));
    if (rc < 0)
        goto out;
    list_others(s, list);
    tern_sha256(s->head, s->head_len, sha);
    table = json_pack("{s:s,s:I,s:I,s:s,s:O}", "name", name, "bytes", (json_int_t)s->bytes,
                      "header_bytes", (json_int_t)s->head_len, "header_sha256",
                      tern_hex(hex, sha, sizeof sha), "slices", list);
    s->table = table ? json_dumps(table, JSON_COMPACT) : NULL;
    json_decref(table);
    if (!s->table || strlen(s->table) > TABLE_MAX)
        rc = tern_err_set(err, TERN_FAILED, "%s: %zu slices are too many for one rank", path,
                          s->n_own);
out:
    json_decref(list);
    free(path);
    free(name);
    return rc;
}

/* ------------------------------------------------------------------ stage 4: rank 0 publishes */

/* Every rank's table, padded to the longest, on every rank: the only gather there is. */
static int gather_tables(struct save *s, char **all, size_t *pitch, struct tern_err *err)
{
    uint64_t longest = 0;

    for (int r = 0; r < s->size; r++)
        if (s->reports[r].table_bytes > longest)
            longest = s->reports[r].table_bytes;
    char *mine = tern_alloc(longest, 1, "table of slices", err);
    char *to = tern_alloc((size_t)s->size, longest, "tables of slices", err);
    int rc = -1;
    if (mine && to) {
        memcpy(mine, s->table, strlen(s->table) + 1);
        if (s->size == 1) {
            memcpy(to, mine, longest);
            rc = 0;
        } else {
            rc = s->o->peers->all_gather(s->o->peers->ctx, mine, to, longest, err);
        }
    }
    free(mine);
    if (rc < 0) {
        free(to);
        return -1;
    }
    *all = to;
    *pitch = longest;
    return 0;
}

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

static int merge(const struct save *s, const char *tables, size_t pitch, json_t *body,
                 struct tern_err *err)
{
    json_t *shards = json_object_get(body, "shards"), *arrays = json_object_get(body, "arrays");

    for (int r = 0; r < s->size; r++) {
        const char *text = tables + (size_t)r * pitch;
        size_t i;
        json_t *slice, *t = tern_json_parse(text, strnlen(text, pitch), "table of slices", err);
        if (!t)
            return -1;
        int rc = 0;
        json_array_foreach(json_object_get(t, "slices"), i, slice)
        {
            if (rc == 0)
                rc = merge_slice(arrays, slice, r, err);
        }
        json_object_del(t, "slices");
        json_array_append(shards, t);
        json_decref(t);
        if (rc < 0)
            return -1;
    }
    return 0;
}

/* Writes the manifest and reads it back: what no reader would accept is not published (a slice that
 * is missing, two that overlap). */
static int write_manifest(struct save *s, const json_t *body, struct tern_err *err)
{
    char *path = tern_strf("%s/%s", s->temp, TERN_CKPT_MANIFEST), *text = NULL;
    size_t len = 0;
    int rc = tern_ckpt_manifest_seal(body, &text, &len, s->out.digest, err);

    if (rc == 0)
        rc = write_small(path, text, len, err);
    free(text);
    free(path);
    if (rc < 0)
        return -1;
    struct tern_ckpt *c = tern_ckpt_open(s->temp, err);
    if (!c)
        return -1;
    /* Another process may have written there, as one of another host that shares no lease. */
    if (c->step != s->o->step || c->n_shards != (size_t)s->size ||
        strcmp(c->digest, s->out.digest) != 0)
        rc = tern_err_set(err, TERN_TEMPFAIL, "%s: another manifest is read than was written",
                          s->temp);
    tern_ckpt_close(c);
    if (rc < 0)
        return -1;
    s->out.bytes = s->total + len;
    return tern_fs_sync_dir(s->temp, err);
}

static int publish(struct save *s, const char *tables, size_t pitch, json_t *files,
                   struct tern_err *err)
{
    char when[32];
    json_t *body = json_pack("{s:s,s:i,s:I,s:s,s:i,s:O,s:O,s:[],s:{}}", "format", "tern checkpoint",
                             "version", 1, "step", (json_int_t)s->o->step, "written",
                             tern_clock_iso8601(when, sizeof when, tern_clock_wall_ns()), "attempt",
                             (int)s->reports[0].attempt, "meta", s->o->meta, "files", files,
                             "shards", "arrays");

    if (!body)
        return tern_err_set(err, TERN_FAILED, "the checkpoint's meta is no JSON object");
    int rc = merge(s, tables, pitch, body, err);
    if (rc == 0)
        rc = write_manifest(s, body, err);
    json_decref(body);
    if (rc < 0)
        return -1;
    if (s->lease && tern_ckpt_lease_check(s->lease, err) < 0)
        return -1;
    if (tern_ckpt_rename_new(s->temp, s->final, err) < 0)
        return -1;
    if (tern_fs_sync_dir(s->o->dir, err) < 0) {
        /* Not acknowledged, so not to be seen. */
        if (tern_fs_rename(s->final, s->temp, false) == 0)
            tern_fs_sync_dir(s->o->dir, NULL);
        return -1;
    }
    return 0;
}

/* ------------------------------------------------------------------ the whole */

static int copy_file(const struct save *s, const struct tern_ckpt_file *f, json_t *list,
                     uint64_t *bytes, struct tern_err *err)
{
    char *text = NULL, *path, hex[TERN_SHA256_HEX];
    uint8_t sha[TERN_SHA256_BYTES];
    size_t len;

    if (!tern_ckpt_name_is_plain(f->name) || strcmp(f->name, TERN_CKPT_MANIFEST) == 0 ||
        tern_str_ends(f->name, ".safetensors"))
        return tern_err_set(err, TERN_FAILED, "'%s' is not a valid file name in a checkpoint",
                            f->name);
    if (!f->path) {
        text = tern_strdup(f->text);
        len = strlen(text);
    } else if (tern_fs_read(f->path, TERN_CKPT_FILE_MAX, &text, &len, err) < 0) {
        return -1;
    }
    path = tern_strf("%s/%s", s->temp, f->name);
    int rc = write_small(path, text, len, err);
    tern_sha256(text, len, sha);
    json_array_append_new(list,
                          json_pack("{s:s,s:I,s:s}", "name", f->name, "bytes", (json_int_t)len,
                                    "sha256", tern_hex(hex, sha, sizeof sha)));
    *bytes += len;
    free(path);
    free(text);
    return rc;
}

/* The four stages, with an agreement after each.  *made: rank 0's temporary folder may exist. */
static int save_run(struct save *s, bool *made, struct tern_err *err)
{
    struct report mine = {.step = s->o->step};
    char *tables = NULL;
    size_t pitch = 0;

    int rc = plan(s, err);
    mine.bytes = s->bytes;
    mine.attempt = s->lease ? tern_ckpt_lease_attempt(s->lease) : 0;
    if (exchange(s, rc, &mine, err) < 0 || same_step(s, err) < 0)
        return -1;
    for (int r = 0; r < s->size; r++)
        s->total += s->reports[r].bytes;
    s->temp = tern_strf("%s.tmp-%u", s->final, s->reports[0].attempt);

    json_t *list = json_array();
    if (s->rank == 0) {
        rc = prepare(s, err);
        *made = rc == 0;
        for (size_t i = 0; rc == 0 && i < s->o->n_files; i++)
            rc = copy_file(s, &s->o->files[i], list, &s->total, err);
    }
    rc = exchange(s, rc, &mine, err);
    if (rc == 0) {
        rc = write_shard(s, err);
        mine.table_bytes = rc == 0 ? strlen(s->table) + 1 : 0;
        rc = exchange(s, rc, &mine, err);
    }
    if (rc == 0)
        rc = gather_tables(s, &tables, &pitch, err);
    if (rc == 0) {
        struct tern_ckpt_saved *o = &s->out;
        if (s->rank == 0)
            rc = publish(s, tables, pitch, list, err);
        mine.bytes = o->bytes;
        if (rc == 0)
            snprintf(mine.text, sizeof mine.text, "%s", o->digest);
        rc = exchange(s, rc, &mine, err);
    }
    json_decref(list);
    free(tables);
    return rc;
}

int tern_ckpt_save(const struct tern_ckpt_save_options *o, struct tern_ckpt_saved *ret_saved,
                   struct tern_err *err)
{
    struct tern_err own = {0};
    struct save s = {
        .o = o, .size = o->peers ? o->peers->size : 1, .rank = o->peers ? o->peers->rank : 0};
    bool made = false;
    int rc = -1;

    if (!err)
        err = &own; /* its text travels to the other ranks */
    s.lease = s.rank == 0 ? o->lease : NULL;
    s.final = tern_strf("%s/step-%08llu", o->dir, (unsigned long long)o->step);
    s.reports = tern_alloc((size_t)s.size, sizeof *s.reports, "reports of ranks", err);
    if (s.reports)
        rc = save_run(&s, &made, err);
    if (rc < 0 && made)
        tern_fs_remove_tree(s.temp, NULL); /* a rest is pruned later */
    if (rc == 0 && ret_saved) {
        snprintf(ret_saved->path, sizeof ret_saved->path, "%s", s.final);
        snprintf(ret_saved->digest, sizeof ret_saved->digest, "%.64s", s.reports[0].text);
        ret_saved->bytes = s.reports[0].bytes;
        ret_saved->shards = (unsigned)s.size;
    }
    free(s.reports);
    free(s.own);
    free(s.head);
    free(s.table);
    free(s.temp);
    free(s.final);
    return rc;
}
