/* A rank's part of a save: its shard, digested on the way, durable and of the right size. */
#include "core/ckpt/save.h"

#include "core/base/again.h"
#include "core/base/assert.h"
#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/hash.h"
#include "core/base/str.h"
#include "core/ckpt/manifest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    PIECE = 4 << 20,     /* bytes digested and written at a time */
    TABLE_MAX = 64 << 20 /* of one rank: 300,000 slices */
};

/* Make `bytes` of room or fail early; what a file system cannot promise comes later as ENOSPC. */
static int reserve(int fd, uint64_t bytes, const char *path, struct tern_err *err)
{
    if (bytes && TERN_AGAIN(fallocate(fd, 0, 0, (off_t)bytes)) < 0 &&
        (errno == ENOSPC || errno == EDQUOT))
        return tern_err_sys(err, "%s: no room for its %llu bytes", path, (unsigned long long)bytes);
    return 0;
}

int tern_ckpt_save_seal(int fd, uint64_t bytes, const char *path, struct tern_err *err)
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

int tern_ckpt_save_create(const char *path, uint64_t bytes, struct tern_err *err)
{
    const int fd = create(path, err);

    if (fd < 0 || reserve(fd, bytes, path, err) == 0)
        return fd;
    const int why = errno;
    close(fd);
    errno = why;
    return -1;
}

/* May `path`, whose writing failed, be written anew?  Its handle must have gone stale, and nothing
 * of it be left. */
static bool anew(struct tern_again *a, const char *path)
{
    return tern_again_stale(a) && (TERN_AGAIN(unlink(path)) == 0 || errno == ENOENT);
}

int tern_ckpt_save_small(const char *path, const char *text, size_t len, struct tern_err *err)
{
    struct tern_again a = {0};
    int rc;

    do {
        errno = 0;
        int fd = create(path, err);
        rc = fd < 0 ? -1 : tern_fs_write_at(fd, 0, text, len, path, err);
        if (rc == 0)
            rc = tern_ckpt_save_seal(fd, len, path, err);
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

/* A shard that is written. */
struct output {
    const struct tern_ckpt_saving *save;
    int fd;
    const char *path;
    char *room;      /* of a source's pieces, else NULL */
    uint64_t offset; /* of the next array */
    json_t *list;    /* gets an entry for each array */
};

static uint64_t row_bytes(const struct tern_ckpt_array *a)
{
    uint64_t bytes = 0;

    tern_ckpt_shape_bytes(a->shape, a->ndim, a->type, &bytes);
    return a->ndim && a->shape[0] ? bytes / a->shape[0] : bytes;
}

/* A source gives whole rows: as many as PIECE holds, or one. */
static uint64_t room_bytes(const struct tern_ckpt_saving *s)
{
    uint64_t most = PIECE;

    for (size_t i = 0; i < s->n_own; i++)
        if (row_bytes(s->own[i]) > most)
            most = row_bytes(s->own[i]);
    return most;
}

/* What comes of array `a`, of `bytes`, at byte `at`: where it is, and how long. */
static int next_piece(const struct output *o, const struct tern_ckpt_array *a, uint64_t at,
                      uint64_t bytes, const char **ret_piece, uint64_t *ret_n, struct tern_err *err)
{
    const struct tern_ckpt_saving *s = o->save;
    const uint64_t row = row_bytes(a), most = row > PIECE ? row : PIECE;

    if (atomic_load(&s->halt))
        return tern_err_set(err, TERN_FAILED, "%s: the save was given up", o->path);
    *ret_n = bytes - at < most ? bytes - at : most;
    if (!s->source) {
        *ret_piece = (const char *)a->data + at;
        return 0;
    }
    *ret_n -= *ret_n % row;
    *ret_piece = o->room;
    return s->source(s->source_ctx, (size_t)(a - s->o.arrays), at / row, *ret_n / row, o->room,
                     err);
}

static int write_array(struct output *o, const struct tern_ckpt_array *a, struct tern_err *err)
{
    uint64_t bytes = 0;
    uint8_t sha[TERN_SHA256_BYTES];
    char hex[TERN_SHA256_HEX];
    struct tern_sha256 *sum = tern_sha256_new();

    tern_ckpt_shape_bytes(a->shape, a->ndim, a->type, &bytes);
    for (uint64_t at = 0, n = 0; at < bytes; at += n) {
        const char *p = NULL;
        int rc = next_piece(o, a, at, bytes, &p, &n, err);
        if (rc == 0) {
            tern_sha256_add(sum, p, n);
            rc = tern_fs_write(o->fd, p, n, o->path, err);
        }
        if (rc < 0) {
            tern_sha256_end(sum, NULL);
            return -1;
        }
    }
    tern_sha256_end(sum, sha);
    json_t *j =
        json_pack("{s:s,s:s,s:o,s:I,s:o,s:o,s:s}", "name", a->name, "dtype",
                  tern_ckpt_type_name(a->type), "global", list_of(a->global, a->ndim), "offset",
                  (json_int_t)o->offset, "start", list_of(a->start, a->ndim), "shape",
                  list_of(a->shape, a->ndim), "sha256", tern_hex(hex, sha, sizeof sha));
    json_array_append_new(o->list, j);
    o->offset += bytes;
    return 0;
}

/* Arrays that this rank knows and does not write: one that no rank writes must not go missing. */
static void list_others(const struct tern_ckpt_saving *s, json_t *list)
{
    uint64_t n;

    for (size_t i = 0; i < s->o.n; i++) {
        const struct tern_ckpt_array *a = &s->o.arrays[i];
        tern_ckpt_shape_elements(a->shape, a->ndim, &n);
        if (!a->owner || n == 0)
            json_array_append_new(list, json_pack("{s:s,s:s,s:o}", "name", a->name, "dtype",
                                                  tern_ckpt_type_name(a->type), "global",
                                                  list_of(a->global, a->ndim)));
    }
}

static int write_all(struct output *o, struct tern_err *err)
{
    const struct tern_ckpt_saving *s = o->save;
    int rc = tern_fs_write(o->fd, s->head, s->head_len, o->path, err);

    for (size_t i = 0; rc == 0 && i < s->n_own; i++)
        rc = write_array(o, s->own[i], err);
    return rc;
}

/* The shard's bytes; `list` gets an entry for each array. */
static int write_arrays(const struct tern_ckpt_saving *s, const char *path, json_t *list,
                        struct tern_err *err)
{
    struct output o = {.save = s, .path = path, .offset = s->head_len, .list = list};
    int rc = -1;

    json_array_clear(list);
    tern_assert_cmp(s->head_len % 8, ==, 0);
    tern_assert_cmp(s->head_len, <=, s->bytes);
    o.room = s->source ? tern_alloc(room_bytes(s), 1, path, err) : NULL;
    if (s->source && !o.room)
        return -1;
    o.fd = tern_ckpt_save_create(path, s->bytes, err);
    if (o.fd >= 0)
        rc = write_all(&o, err);
    free(o.room);
    if (rc == 0) {
        tern_assert_cmp(o.offset, ==, s->bytes);
        return tern_ckpt_save_seal(o.fd, s->bytes, path, err);
    }
    const int why = errno;
    if (o.fd >= 0)
        close(o.fd);
    errno = why;
    return -1;
}

/* What a manifest begins with; rank 0 knows it. */
static json_t *head_of_manifest(const struct tern_ckpt_saving *s)
{
    char when[32];

    return json_pack("{s:s,s:O,s:O}", "written",
                     tern_clock_iso8601(when, sizeof when, tern_clock_wall_ns()), "meta", s->o.meta,
                     "files", s->files);
}

/* Write this rank's shard, and its table: what leaders need to know of it. */
static int write_shard(struct tern_ckpt_saving *s, struct tern_err *err)
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
    json_t *head = s->rank == 0 ? head_of_manifest(s) : NULL;
    if (s->rank == 0 && !head) {
        json_decref(table);
        rc = tern_err_set(err, TERN_FAILED, "the checkpoint's meta is no JSON object");
        goto out;
    }
    if (head)
        json_object_set_new(table, "manifest", head);
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

static int copy_file(struct tern_ckpt_saving *s, const struct tern_ckpt_file *f,
                     struct tern_err *err)
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
    int rc = tern_ckpt_save_small(path, text, len, err);
    tern_sha256(text, len, sha);
    json_array_append_new(s->files,
                          json_pack("{s:s,s:I,s:s}", "name", f->name, "bytes", (json_int_t)len,
                                    "sha256", tern_hex(hex, sha, sizeof sha)));
    s->total += len;
    free(path);
    free(text);
    return rc;
}

int tern_ckpt_save_write(struct tern_ckpt_saving *s, struct tern_err *err)
{
    const int64_t from = tern_clock_boot_ns();
    int rc = 0;

    for (size_t i = 0; s->rank == 0 && rc == 0 && i < s->o.n_files; i++)
        rc = copy_file(s, &s->o.files[i], err);
    if (rc == 0)
        rc = write_shard(s, err);
    s->mine.table_bytes = rc == 0 ? strlen(s->table) + 1 : 0;
    s->mine.write_ns = tern_clock_boot_ns() - from;
    return rc;
}
