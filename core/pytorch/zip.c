#include "core/pytorch/zip.h"

#include "core/base/le.h"
#include "core/base/str.h"

#include <stdlib.h>
#include <string.h>

enum {
    LOCAL = 0x04034b50,
    CENTRAL = 0x02014b50,
    END = 0x06054b50,
    END64 = 0x06064b50,
    END64_LOCATOR = 0x07064b50,
    LOCAL_BYTES = 30,
    CENTRAL_BYTES = 46,
    END_BYTES = 22,
    END64_BYTES = 56,
    LOCATOR_BYTES = 20,
    COMMENT_MAX = 65535,
    ENTRIES_MAX = 1 << 20, /* a tensor each, as many as a checkpoint may have */
};

/* The file, and where messages say that they come from. */
struct file {
    const uint8_t *data;
    uint64_t len;
    const char *path;
    struct tern_err *err;
};

bool tern_pytorch_zip_is(const uint8_t *data, size_t len)
{
    return len >= 4 && tern_le_get32(data) == LOCAL;
}

static int damaged(const struct file *f, const char *what)
{
    return tern_err_set(f->err, TERN_USAGE, "%s: is a damaged zip archive: %s", f->path, what);
}

/* ---------------------------------------------------------------- its end */

struct end {
    uint64_t n, at, bytes; /* entries; the directory */
    uint64_t limit;        /* of the directory */
};

/* Where the record at the archive's end begins: its comment reaches to the end of the file. */
static int find_end(const struct file *f, uint64_t *at)
{
    const uint64_t least = f->len > END_BYTES + COMMENT_MAX ? f->len - END_BYTES - COMMENT_MAX : 0;

    if (f->len < END_BYTES)
        return tern_err_set(f->err, TERN_USAGE, "%s: is cut off: %llu bytes are no zip archive",
                            f->path, (unsigned long long)f->len);
    for (uint64_t i = f->len - END_BYTES;; i--) {
        if (tern_le_get32(f->data + i) == END &&
            i + END_BYTES + tern_le_get16(f->data + i + 20) == f->len) {
            *at = i;
            return 0;
        }
        if (i == least)
            return tern_err_set(f->err, TERN_USAGE,
                                "%s: is cut off: its zip archive has no directory at the end",
                                f->path);
    }
}

static int read_end64(const struct file *f, uint64_t end, struct end *e)
{
    const uint8_t *locator = f->data + end - LOCATOR_BYTES;

    if (end < LOCATOR_BYTES || tern_le_get32(locator) != END64_LOCATOR)
        return damaged(f, "it has no zip64 directory");
    const uint64_t at = tern_le_get64(locator + 8);
    if (at > end - LOCATOR_BYTES || end - LOCATOR_BYTES - at < END64_BYTES ||
        tern_le_get32(f->data + at) != END64)
        return damaged(f, "its zip64 directory is not where it says");
    e->n = tern_le_get64(f->data + at + 32);
    e->bytes = tern_le_get64(f->data + at + 40);
    e->at = tern_le_get64(f->data + at + 48);
    e->limit = at;
    return 0;
}

static int read_end(const struct file *f, struct end *e)
{
    uint64_t at = 0;

    if (find_end(f, &at) < 0)
        return -1;
    *e = (struct end){.n = tern_le_get16(f->data + at + 10),
                      .bytes = tern_le_get32(f->data + at + 12),
                      .at = tern_le_get32(f->data + at + 16),
                      .limit = at};
    if ((e->n == UINT16_MAX || e->bytes == UINT32_MAX || e->at == UINT32_MAX) &&
        read_end64(f, at, e) < 0)
        return -1;
    if (e->at > e->limit || e->bytes > e->limit - e->at)
        return damaged(f, "its directory is not where it says");
    if (e->n > ENTRIES_MAX || e->n > e->bytes / CENTRAL_BYTES)
        return damaged(f, "its directory names more entries than it has room for");
    return 0;
}

/* ---------------------------------------------------------------- its entries */

/* Numbers that do not fit stand in the extra field 1, in this order. */
static int read_extra(const uint8_t *extra, size_t len, uint64_t *const values[3])
{
    while (len >= 4) {
        const size_t id = tern_le_get16(extra), n = tern_le_get16(extra + 2);
        size_t at = 0;
        if (n > len - 4)
            return -1;
        for (int i = 0; id == 1 && i < 3; i++) {
            if (*values[i] != UINT32_MAX)
                continue;
            if (n - at < 8)
                return -1;
            *values[i] = tern_le_get64(extra + 4 + at);
            at += 8;
        }
        if (id == 1)
            return 0;
        extra += 4 + n;
        len -= 4 + n;
    }
    return 0;
}

/* The data lie behind the local header, which repeats the name. */
static int find_data(const struct file *f, uint64_t limit, struct tern_pytorch_zip_entry *e)
{
    if (e->header > limit || limit - e->header < LOCAL_BYTES ||
        tern_le_get32(f->data + e->header) != LOCAL)
        return damaged(f, "an entry is not where its directory says");
    const uint64_t name = tern_le_get16(f->data + e->header + 26),
                   extra = tern_le_get16(f->data + e->header + 28);
    e->at = e->header + LOCAL_BYTES + name + extra;
    if (e->at > limit || e->bytes > limit - e->at)
        return damaged(f, "an entry reaches outside");
    if (name != e->name_len || memcmp(f->data + e->header + LOCAL_BYTES, e->name, name) != 0)
        return damaged(f, "an entry has two names");
    return 0;
}

/* The entry at *at of the directory; *at goes behind it. */
static int read_entry(const struct file *f, const struct end *d, uint64_t *at,
                      struct tern_pytorch_zip_entry *e)
{
    const uint64_t left = d->at + d->bytes - *at;
    const uint8_t *c = f->data + *at;

    if (left < CENTRAL_BYTES || tern_le_get32(c) != CENTRAL)
        return damaged(f, "its directory is cut off");
    const size_t name = tern_le_get16(c + 28), extra = tern_le_get16(c + 30),
                 comment = tern_le_get16(c + 32);
    if (left - CENTRAL_BYTES < name + extra + comment)
        return damaged(f, "its directory is cut off");
    uint64_t packed = tern_le_get32(c + 20), bytes = tern_le_get32(c + 24);
    *e = (struct tern_pytorch_zip_entry){
        .name = (const char *)c + CENTRAL_BYTES, .name_len = name, .header = tern_le_get32(c + 42)};
    uint64_t *const values[] = {&bytes, &packed, &e->header};
    if (read_extra(c + CENTRAL_BYTES + name, extra, values) < 0)
        return damaged(f, "an entry's zip64 field is cut off");
    e->bytes = packed;
    e->plain = tern_le_get16(c + 10) == 0 && (tern_le_get16(c + 8) & 1) == 0;
    if (e->plain && packed != bytes)
        return damaged(f, "an entry has two sizes");
    *at += CENTRAL_BYTES + name + extra + comment;
    return find_data(f, d->at, e);
}

static int by_place(const void *a, const void *b)
{
    const struct tern_pytorch_zip_entry *x = a, *y = b;

    return (x->header > y->header) - (x->header < y->header);
}

static int by_name(const void *a, const void *b)
{
    const struct tern_pytorch_zip_entry *x = a, *y = b;
    const size_t n = x->name_len < y->name_len ? x->name_len : y->name_len;
    const int order = memcmp(x->name, y->name, n);

    return order ? order : (x->name_len > y->name_len) - (x->name_len < y->name_len);
}

static int read_entries(const struct file *f, const struct end *d, struct tern_pytorch_zip *z)
{
    uint64_t at = d->at;

    for (; z->n < d->n; z->n++)
        if (read_entry(f, d, &at, &z->entries[z->n]) < 0)
            return -1;
    qsort(z->entries, z->n, sizeof *z->entries, by_place);
    for (size_t i = 1; i < z->n; i++)
        if (z->entries[i].header < z->entries[i - 1].at + z->entries[i - 1].bytes)
            return damaged(f, "two entries overlap");
    qsort(z->entries, z->n, sizeof *z->entries, by_name);
    for (size_t i = 1; i < z->n; i++)
        if (by_name(&z->entries[i - 1], &z->entries[i]) == 0)
            return damaged(f, "a name is there twice");
    return 0;
}

int tern_pytorch_zip_read(const uint8_t *data, size_t len, const char *path,
                          struct tern_pytorch_zip *ret_zip, struct tern_err *err)
{
    const struct file f = {data, len, path, err};
    struct tern_pytorch_zip z = {0};
    struct end e;

    if (read_end(&f, &e) < 0)
        return -1;
    z.entries = tern_alloc(e.n + 1, sizeof *z.entries, path, err);
    if (!z.entries)
        return -1;
    if (read_entries(&f, &e, &z) < 0) {
        tern_pytorch_zip_free(&z);
        return -1;
    }
    *ret_zip = z;
    return 0;
}

void tern_pytorch_zip_free(struct tern_pytorch_zip *z)
{
    free(z->entries);
    *z = (struct tern_pytorch_zip){0};
}

const struct tern_pytorch_zip_entry *tern_pytorch_zip_find(const struct tern_pytorch_zip *z,
                                                           const char *name, size_t len)
{
    const struct tern_pytorch_zip_entry key = {.name = name, .name_len = len};

    return bsearch(&key, z->entries, z->n, sizeof *z->entries, by_name);
}
