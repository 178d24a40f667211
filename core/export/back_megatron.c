/* Megatron's files, read with every count and place checked. */
#include "core/export/back.h"

#include "core/base/again.h"
#include "core/base/assert.h"
#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/export/folder.h"
#include "core/export/megatron.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE = 1 << 16 };

/* A file, and numbers of one width in it, of which a piece is in memory. */
struct numbers {
    int fd;
    char *path;
    uint64_t size, offset, n; /* bytes of the file; where number 0 is; how many */
    unsigned bytes;
    bool is_signed;
    uint64_t first;
    size_t have;
    uint8_t piece[PIECE];
};

static int numbers_open(struct numbers *v, const char *prefix, const char *suffix,
                        struct tern_err *err)
{
    struct stat st;

    v->path = tern_strf("%s%s", prefix, suffix);
    v->fd = TERN_AGAIN(open(v->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (v->fd < 0 || TERN_AGAIN(fstat(v->fd, &st)) < 0) {
        tern_err_sys(err, "%s: cannot open", v->path);
        if (err && err->code == TERN_FAILED)
            err->code = TERN_USAGE;
        return -1;
    }
    if (!S_ISREG(st.st_mode))
        return tern_err_set(err, TERN_USAGE, "%s: not a regular file", v->path);
    v->size = (uint64_t)st.st_size;
    return 0;
}

static void numbers_close(struct numbers *v)
{
    if (!v)
        return;
    if (v->fd >= 0)
        close(v->fd);
    free(v->path);
    free(v);
}

static int numbers_at(struct numbers *v, uint64_t i, int64_t *ret, struct tern_err *err)
{
    uint64_t x = 0;

    tern_assert_cmp(i, <, v->n);
    if (i < v->first || i >= v->first + v->have) {
        const uint64_t most = PIECE / v->bytes, left = v->n - i;
        v->have = 0;
        const size_t n = left < most ? (size_t)left : (size_t)most;
        if (tern_fs_pread(v->fd, v->piece, n * v->bytes, v->offset + i * v->bytes, v->path, err) <
            0)
            return -1;
        v->first = i;
        v->have = n;
    }
    memcpy(&x, v->piece + (i - v->first) * v->bytes, v->bytes);
    const unsigned shift = 64 - 8 * v->bytes;
    *ret = v->is_signed ? (int64_t)(x << shift) >> shift : (int64_t)x;
    return 0;
}

struct index {
    struct numbers *lengths, *places, *documents, *ids;
    uint64_t n_tokens; /* of the sequences so far */
};

static int bad(const struct index *x, const char *why, struct tern_err *err)
{
    return tern_err_set(err, TERN_USAGE, "%s: damaged index: %s", x->lengths->path, why);
}

static int set_type(struct index *x, unsigned type, struct tern_err *err)
{
    static const uint8_t bytes[] = {
        [TERN_EXPORT_U8] = 1,  [TERN_EXPORT_I8] = 1,  [TERN_EXPORT_I16] = 2,
        [TERN_EXPORT_I32] = 4, [TERN_EXPORT_I64] = 8, [TERN_EXPORT_U16] = 2};

    if (type >= sizeof bytes || bytes[type] == 0)
        return tern_err_set(err, TERN_USAGE, "%s: ids of type %u, which are no whole numbers",
                            x->lengths->path, type);
    x->ids->bytes = bytes[type];
    x->ids->is_signed = type != TERN_EXPORT_U8 && type != TERN_EXPORT_U16;
    x->ids->n = x->ids->size / bytes[type];
    return 0;
}

/* The file is as long as its counts say. */
static int read_head(struct index *x, struct tern_err *err)
{
    struct tern_export_megatron_head head;
    const uint64_t size = x->lengths->size;

    if (size < sizeof head)
        return bad(x, "it is too short", err);
    if (tern_fs_pread(x->lengths->fd, &head, sizeof head, 0, x->lengths->path, err) < 0)
        return -1;
    if (memcmp(head.magic, TERN_EXPORT_MEGATRON_MAGIC, sizeof head.magic) != 0)
        return tern_err_set(err, TERN_USAGE, "%s: not an index of Megatron's (no MMIDIDX)",
                            x->lengths->path);
    if (head.version != 1)
        return bad(x, "a version that is not known", err);
    if (set_type(x, head.type, err) < 0)
        return -1;
    const uint64_t n = head.n_sequences, d = head.n_documents;
    if (n > size / 12 || d > size / 8 || d == 0 || sizeof head + 12 * n + 8 * d != size)
        return bad(x, "it is not as long as its counts say", err);
    x->lengths->offset = sizeof head;
    x->places->offset = sizeof head + 4 * n;
    x->documents->offset = sizeof head + 12 * n;
    x->lengths->n = x->places->n = n;
    x->documents->n = d;
    x->lengths->bytes = 4;
    x->places->bytes = x->documents->bytes = 8;
    x->lengths->is_signed = x->places->is_signed = x->documents->is_signed = true;
    return 0;
}

static int read_sequence(struct tern_export_reading *r, struct index *x, uint64_t i,
                         struct tern_err *err)
{
    int64_t length, place, id;
    char where[600];

    if (numbers_at(x->lengths, i, &length, err) < 0 || numbers_at(x->places, i, &place, err) < 0)
        return -1;
    if (length < 0 || place < 0 || place % x->ids->bytes ||
        (uint64_t)place / x->ids->bytes > x->ids->n ||
        (uint64_t)length > x->ids->n - (uint64_t)place / x->ids->bytes)
        return bad(x, "a document lies outside the .bin", err);
    x->n_tokens += (uint64_t)length;
    if (x->n_tokens > x->ids->n) /* or a small file has endless work to do */
        return bad(x, "its documents overlap", err);
    snprintf(where, sizeof where, "%s: sequence %llu", x->ids->path, (unsigned long long)i);
    for (int64_t k = 0; k < length; k++)
        if (numbers_at(x->ids, (uint64_t)place / x->ids->bytes + (uint64_t)k, &id, err) < 0 ||
            tern_export_back_token(r, id, /* target= */ true, where, err) < 0)
            return -1;
    return 0;
}

static int read_documents(struct tern_export_reading *r, struct index *x, struct tern_err *err)
{
    int64_t first, end;

    if (numbers_at(x->documents, 0, &end, err) < 0)
        return -1;
    if (end != 0)
        return bad(x, "its documents do not begin with the first sequence", err);
    for (uint64_t d = 1; d < x->documents->n; d++) {
        first = end;
        if (numbers_at(x->documents, d, &end, err) < 0)
            return -1;
        if (end < first || (uint64_t)end > x->lengths->n)
            return bad(x, "its documents are out of order", err);
        for (int64_t i = first; i < end; i++)
            if (read_sequence(r, x, (uint64_t)i, err) < 0)
                return -1;
        if (tern_export_back_end(r, x->lengths->path, err) < 0 ||
            tern_export_stopped(r->from->stop, r->from->path, err) < 0)
            return -1;
        if (r->from->progress)
            r->from->progress(x->n_tokens * x->ids->bytes, x->ids->size);
    }
    return (uint64_t)end == x->lengths->n ? 0 : bad(x, "sequences that are in no document", err);
}

int tern_export_back_megatron(struct tern_export_reading *r, const char *prefix,
                              struct tern_err *err)
{
    struct index x;
    struct numbers *all[4];
    int rc = 0;

    for (int i = 0; i < 4; i++) {
        all[i] = tern_alloc(1, sizeof *all[i], "an index", rc == 0 ? err : NULL);
        if (!all[i])
            rc = -1;
        else
            all[i]->fd = -1;
    }
    x = (struct index){.lengths = all[0], .places = all[1], .documents = all[2], .ids = all[3]};
    if (rc == 0 && r->from->mask)
        rc = tern_err_set(err, TERN_USAGE, "%s: --mask: Megatron's files have none", prefix);
    for (int i = 0; i < 4 && rc == 0; i++)
        rc = numbers_open(all[i], prefix, i < 3 ? ".idx" : ".bin", err);
    if (rc == 0)
        rc = read_head(&x, err);
    if (rc == 0)
        rc = read_documents(r, &x, err);
    for (int i = 0; i < 4; i++)
        numbers_close(all[i]);
    return rc;
}
