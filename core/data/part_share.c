/* Where the shares of files begin. */
#include "core/data/part.h"

#include "core/base/again.h"
#include "core/base/assert.h"
#include "core/base/str.h"
#include "core/store/store.h"
#include "core/text/source.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct file {
    uint64_t begin, bytes; /* begin: of the files before it */
    int64_t mtime;
};

struct tern_data_shares {
    struct tern_data_share_how how;
    struct file *files;
    uint64_t bytes;
};

static int look_at(const char *path, struct file *f, struct tern_err *err)
{
    struct stat st;

    if (strcmp(path, "-") == 0)
        return tern_err_set(err, TERN_USAGE,
                            "standard input cannot be shared: it has no parts that another process "
                            "could read. Give files.");
    if (tern_store_is(path))
        return tern_err_set(
            err, TERN_USAGE,
            "%s: is read by one process alone. `tern fetch` brings it to a disk that "
            "all tasks see.",
            path);
    if (TERN_AGAIN(stat(path, &st)) < 0) {
        tern_err_sys(err, "%s: cannot open", path);
        if (err && errno == ENOENT)
            err->code = TERN_USAGE;
        return -1;
    }
    if (!S_ISREG(st.st_mode))
        return tern_err_set(err, TERN_USAGE, "%s: is %s and cannot be shared. Give files.", path,
                            S_ISDIR(st.st_mode) ? "a folder" : "a pipe or device");
    f->bytes = (uint64_t)st.st_size;
    f->mtime = (int64_t)st.st_mtime;
    return 0;
}

struct tern_data_shares *tern_data_shares_open(const struct tern_data_share_how *how,
                                               struct tern_err *err)
{
    struct tern_data_shares *s = tern_alloc(1, sizeof *s, "shares", err);

    if (!s)
        return NULL;
    s->how = *how;
    s->files = tern_alloc(how->n_paths, sizeof *s->files, "shares", err);
    if (!s->files)
        goto fail;
    for (size_t i = 0; i < how->n_paths; i++) {
        if (look_at(how->paths[i], &s->files[i], err) < 0)
            goto fail;
        s->files[i].begin = s->bytes;
        s->bytes += s->files[i].bytes;
    }
    return s;
fail:
    tern_data_shares_close(s);
    return NULL;
}

void tern_data_shares_close(struct tern_data_shares *s)
{
    if (!s)
        return;
    free(s->files);
    free(s);
}

uint64_t tern_data_shares_bytes(const struct tern_data_shares *s)
{
    return s->bytes;
}

/* The last file that begins at byte `at` of all or before it. */
static size_t file_at(const struct tern_data_shares *s, uint64_t at)
{
    size_t lo = 0, hi = s->how.n_paths;

    while (hi - lo > 1) {
        const size_t mid = lo + (hi - lo) / 2;
        if (s->files[mid].begin <= at)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

/* A place at byte `at` of a file or near it: where a document begins, or one of the file's ends. */
static int place_in(const struct tern_data_shares *s, size_t i, uint64_t at,
                    struct tern_data_place *ret_place, struct tern_err *err)
{
    const struct file *f = &s->files[i];
    struct tern_text_source *source = tern_text_source_open(s->how.paths[i], &s->how.text, err);
    uint64_t byte = at < f->bytes - at ? 0 : f->bytes;
    int rc = 0;

    if (!source)
        return -1;
    if (tern_text_source_cuttable(source))
        rc = tern_text_source_boundary(source, at, &byte, err);
    tern_text_source_close(source);
    if (rc == 0)
        *ret_place = byte < f->bytes ? (struct tern_data_place){i, byte}
                                     : (struct tern_data_place){i + 1, 0};
    return rc;
}

int tern_data_shares_place(const struct tern_data_shares *s, uint64_t k, uint64_t n,
                           struct tern_data_place *ret_place, struct tern_err *err)
{
    tern_assert(n > 0 && n <= TERN_DATA_SHARES_MAX && k <= n, "%llu of %llu", (unsigned long long)k,
                (unsigned long long)n);
    /* bytes * k / n without overflow: k and n are below 2^17 */
    const uint64_t at = s->bytes / n * k + s->bytes % n * k / n;
    const size_t i = file_at(s, at);

    if (k == 0 || k == n) {
        *ret_place = (struct tern_data_place){k == 0 ? 0 : s->how.n_paths, 0};
        return 0;
    }
    if (at == s->files[i].begin) {
        *ret_place = (struct tern_data_place){i, 0};
        return 0;
    }
    return place_in(s, i, at - s->files[i].begin, ret_place, err);
}

uint64_t tern_data_shares_between(const struct tern_data_shares *s, struct tern_data_place from,
                                  struct tern_data_place to)
{
    const size_t n = s->how.n_paths;
    const uint64_t a = from.path < n ? s->files[from.path].begin + from.byte : s->bytes,
                   b = to.path < n ? s->files[to.path].begin + to.byte : s->bytes;

    return b - a;
}

void tern_data_shares_digest(const struct tern_data_shares *s, char ret_hex[TERN_SHA256_HEX])
{
    uint8_t digest[TERN_SHA256_BYTES];
    struct tern_sha256 *h = tern_sha256_new();

    for (size_t i = 0; i < s->how.n_paths; i++) {
        const uint64_t numbers[] = {s->files[i].bytes, (uint64_t)s->files[i].mtime};
        tern_sha256_add(h, s->how.paths[i], strlen(s->how.paths[i]) + 1);
        tern_sha256_add(h, numbers, sizeof numbers);
    }
    tern_sha256_end(h, digest);
    tern_hex(ret_hex, digest, sizeof digest);
}
