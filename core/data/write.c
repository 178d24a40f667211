/* Writing token sets: tokens go straight to the file, documents and mask to unnamed files beside it
 * until their places are known, the header last. */
#include "core/data/data.h"

#include "core/base/again.h"
#include "core/base/assert.h"
#include "core/base/fs.h"
#include "core/base/lustre.h"
#include "core/base/str.h"
#include "core/data/format.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BUFFER = TERN_TDS_BLOCK };

/* A stream of bytes behind a buffer. */
struct sink {
    int fd;
    char *buffer;
    size_t n;
    uint64_t bytes; /* written and buffered */
};

struct tern_data_set_writer {
    struct tern_fs_new file;
    struct tern_data_set_kind kind;
    struct tern_tds_header head;
    struct sink tokens, docs, mask, hashes;
    uint8_t bits;     /* the mask's unfinished byte */
    const char *part; /* NULL of a set */

    /* Digests of the written bytes, block by block. */
    uint32_t crc;
    size_t in_block;
    uint32_t *digests;
    size_t n_digests, digests_cap;
};

/* ---- sinks ---- */

static int note_digest(struct tern_data_set_writer *w, struct tern_err *err)
{
    if (w->n_digests == w->digests_cap) {
        size_t cap = w->digests_cap ? 2 * w->digests_cap : 1024;
        void *v = realloc(w->digests, cap * sizeof *w->digests);
        if (!v)
            return tern_err_sys(err, "%s: digests", w->file.path);
        w->digests = v;
        w->digests_cap = cap;
    }
    w->digests[w->n_digests++] = w->crc;
    w->crc = 0;
    w->in_block = 0;
    return 0;
}

/* Append to the file itself. */
static int file_write(struct tern_data_set_writer *w, const char *data, size_t len,
                      struct tern_err *err)
{
    if (tern_fs_write(w->file.fd, data, len, w->file.path, err) < 0)
        return -1;
    while (len) {
        size_t n = TERN_TDS_BLOCK - w->in_block;
        if (n > len)
            n = len;
        w->crc = tern_crc32c(w->crc, data, n);
        w->in_block += n;
        data += n;
        len -= n;
        if (w->in_block == TERN_TDS_BLOCK && note_digest(w, err) < 0)
            return -1;
    }
    tern_assert_cmp(w->in_block, <, TERN_TDS_BLOCK);
    return 0;
}

static int sink_flush(struct tern_data_set_writer *w, struct sink *s, struct tern_err *err)
{
    size_t n = s->n;

    s->n = 0;
    if (s == &w->tokens)
        return file_write(w, s->buffer, n, err);
    return tern_fs_write(s->fd, s->buffer, n, w->file.path, err);
}

static int sink_add(struct tern_data_set_writer *w, struct sink *s, const void *data, size_t len,
                    struct tern_err *err)
{
    if (s->n + len > BUFFER && sink_flush(w, s, err) < 0)
        return -1;
    tern_assert_cmp(s->n + len, <=, BUFFER);
    memcpy(s->buffer + s->n, data, len);
    s->n += len;
    s->bytes += len;
    return 0;
}

/* A file without a name in the folder of `path`: it is gone with its descriptor. */
static int unnamed(const char *path, struct tern_err *err)
{
    char *dir = tern_fs_dirname(path);
    int fd = TERN_AGAIN(open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));

    /* Some file systems (NFS, overlay of old kernels) have none: a named one, unlinked at once. */
    if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == ENOENT || errno == EINVAL)) {
        char *temp = tern_strf("%s/.tern-XXXXXX", dir);
        fd = tern_fs_temp(temp);
        if (fd >= 0)
            TERN_AGAIN(unlink(temp));
        free(temp);
    }
    if (fd < 0)
        tern_err_sys(err, "%s: cannot create a temporary file beside it", path);
    free(dir);
    return fd;
}

static int sink_open(struct sink *s, const char *path, struct tern_err *err)
{
    s->buffer = tern_alloc(1, BUFFER, "a token set", err);
    if (!s->buffer)
        return -1;
    s->fd = path ? unnamed(path, err) : -1;
    return path && s->fd < 0 ? -1 : 0;
}

static void sink_close(struct sink *s)
{
    if (s->fd >= 0)
        close(s->fd);
    free(s->buffer);
}

/* ---- documents ---- */

/* `path` may be a token set or missing: other files, also empty ones, are not replaced. */
static int check_out(const char *path, struct tern_err *err)
{
    char magic[TERN_DATA_SET_MAGIC] = "";
    struct stat st;

    if (tern_fs_check_out(path, err) < 0)
        return -1;
    int fd = TERN_AGAIN(open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    bool set = false;

    if (fd < 0 && errno == ENOENT)
        return 0;
    if (fd < 0)
        return tern_err_sys(err, "%s: exists, and cannot be read", path);
    if (TERN_AGAIN(fstat(fd, &st)) == 0 && S_ISREG(st.st_mode))
        set = TERN_AGAIN(pread(fd, magic, sizeof magic, 0)) == (ssize_t)sizeof magic &&
              tern_data_set_is(magic);
    close(fd);
    return set ? 0
               : tern_err_set(
                     err, TERN_USAGE,
                     "%s: exists and is not a token set; it is left as it is. Name another "
                     "file to write.",
                     path);
}

struct tern_data_set_writer *
tern_data_set_create(const char *path, const struct tern_data_set_kind *kind, struct tern_err *err)
{
    static const char zeros[TERN_TDS_HEAD];
    struct tern_data_set_writer *w = tern_alloc(1, sizeof *w, "a token set", err);

    if (!w)
        return NULL;
    w->kind = *kind;
    w->file.fd = w->tokens.fd = w->docs.fd = w->mask.fd = w->hashes.fd = -1;
    if (check_out(path, err) < 0)
        goto fail;
    char *dir = tern_fs_dirname(path);
    tern_lustre_spread(dir);
    free(dir);
    if (tern_fs_new_open(&w->file, path, 0644, err) < 0)
        goto fail;
    if (sink_open(&w->tokens, NULL, err) < 0 || sink_open(&w->docs, path, err) < 0 ||
        (kind->mask && sink_open(&w->mask, path, err) < 0) ||
        tern_fs_write(w->file.fd, zeros, sizeof zeros, path, err) < 0)
        goto fail;
    memcpy(w->head.magic, TERN_TDS_MAGIC, sizeof w->head.magic);
    w->head.version = TERN_TDS_VERSION;
    w->head.token_bytes = kind->n_vocab <= 65536 ? 2 : 4;
    w->head.n_vocab = kind->n_vocab;
    w->head.eos = kind->eos;
    w->head.bos = kind->bos;
    memcpy(w->head.vocab_hash, kind->vocab_hash, sizeof w->head.vocab_hash);
    return w;
fail:
    tern_data_set_abort(w);
    return NULL;
}

/* `n` ids, at most as many as a buffer holds, as the file has them. */
static int add_ids(struct tern_data_set_writer *w, const uint32_t *ids, size_t n,
                   struct tern_err *err)
{
    struct sink *s = &w->tokens;
    const size_t bytes = n * w->head.token_bytes;

    if (w->head.token_bytes == sizeof *ids)
        return sink_add(w, s, ids, bytes, err);
    if (s->n + bytes > BUFFER && sink_flush(w, s, err) < 0)
        return -1;
    tern_assert_cmp(s->n + bytes, <=, BUFFER);
    tern_assert(s->n % sizeof(uint16_t) == 0, "%zu bytes", s->n);
    uint16_t *to = (uint16_t *)(void *)(s->buffer + s->n);
    for (size_t i = 0; i < n; i++)
        to[i] = (uint16_t)ids[i];
    s->n += bytes;
    s->bytes += bytes;
    return 0;
}

/* Bit k is byte k's, which is not 0. */
static uint8_t eight_bits(const uint8_t *target)
{
    const uint64_t low = UINT64_C(0x7f7f7f7f7f7f7f7f);
    uint64_t w;

    memcpy(&w, target, sizeof w);
    w = (((w & low) + low) | w) & ~low;
    return (uint8_t)((w >> 7) * UINT64_C(0x0102040810204080) >> 56);
}

/* The mask's next bits; `target` NULL: all are targets. */
static int add_mask(struct tern_data_set_writer *w, const uint8_t *target, size_t n,
                    struct tern_err *err)
{
    const unsigned shift = w->head.n_tokens % 8;
    size_t i = 0;

    for (; i < n; i += 8) {
        const size_t here = n - i < 8 ? n - i : 8;
        uint8_t last[8] = {0}, all[8] = {1, 1, 1, 1, 1, 1, 1, 1};
        memcpy(last, target ? target + i : all, here);
        const unsigned bits = w->bits | (unsigned)eight_bits(last) << shift;
        const uint8_t byte = (uint8_t)bits;
        if (shift + here < 8) {
            w->bits = byte;
            break;
        }
        if (sink_add(w, &w->mask, &byte, 1, err) < 0)
            return -1;
        w->bits = (uint8_t)(bits >> 8);
    }
    return 0;
}

/* `target` may be NULL: all are. */
static int add_tokens(struct tern_data_set_writer *w, const uint32_t *ids, const uint8_t *target,
                      size_t n, struct tern_err *err)
{
    enum { MANY = BUFFER / sizeof *ids };

    for (size_t i = 0; i < n; i += MANY) {
        const size_t here = n - i < MANY ? n - i : MANY;
        if (add_ids(w, ids + i, here, err) < 0 ||
            (w->kind.mask && add_mask(w, target ? target + i : NULL, here, err) < 0))
            return -1;
        w->head.n_tokens += here;
    }
    return 0;
}

static uint32_t largest(const uint32_t *ids, size_t n)
{
    uint32_t max = 0;

    for (size_t i = 0; i < n; i++)
        max = ids[i] > max ? ids[i] : max;
    return max;
}

static int note_doc(struct tern_data_set_writer *w, struct tern_err *err)
{
    struct tern_tds_doc doc = {w->head.n_tokens, w->head.text_bytes};

    return sink_add(w, &w->docs, &doc, sizeof doc, err);
}

static int check_ids(const struct tern_data_set_writer *w, const uint32_t *ids, size_t n,
                     struct tern_err *err)
{
    if (n && largest(ids, n) >= w->kind.n_vocab)
        return tern_err_set(err, TERN_FAILED, "%s: id %u outside the vocabulary of %u",
                            w->file.path, largest(ids, n), w->kind.n_vocab);
    return 0;
}

int tern_data_set_add(struct tern_data_set_writer *w, const uint32_t *ids, const uint8_t *mask,
                      size_t n, uint64_t text_bytes, struct tern_err *err)
{
    return tern_data_set_add_cut(w, ids, mask, n, /* cut= */ false, text_bytes, err);
}

int tern_data_set_add_cut(struct tern_data_set_writer *w, const uint32_t *ids, const uint8_t *mask,
                          size_t n, bool cut, uint64_t text_bytes, struct tern_err *err)
{
    const uint32_t bos = (uint32_t)w->kind.bos;

    tern_assert(!mask || w->kind.mask, "%s", w->file.path);
    if (check_ids(w, ids, n, err) < 0 || note_doc(w, err) < 0 ||
        (w->kind.bos >= 0 && add_tokens(w, &bos, (uint8_t[]){0}, 1, err) < 0) ||
        add_tokens(w, ids, mask, n, err) < 0 ||
        add_tokens(w, &w->kind.eos, (uint8_t[]){!cut}, 1, err) < 0)
        return -1;
    w->head.n_docs++;
    w->head.text_bytes += text_bytes;
    return 0;
}

int tern_data_set_add_stored(struct tern_data_set_writer *w, const uint32_t *ids,
                             const uint8_t *mask, size_t n, uint64_t text_bytes,
                             struct tern_err *err)
{
    tern_assert(!mask == !w->kind.mask, "%s", w->file.path);
    if (check_ids(w, ids, n, err) < 0 || note_doc(w, err) < 0 ||
        add_tokens(w, ids, mask, n, err) < 0)
        return -1;
    w->head.n_docs++;
    w->head.text_bytes += text_bytes;
    return 0;
}

int tern_data_set_hashes(struct tern_data_set_writer *w, struct tern_err *err)
{
    return sink_open(&w->hashes, w->file.path, err);
}

int tern_data_set_hash(struct tern_data_set_writer *w, const uint8_t hash[TERN_DATA_HASH],
                       struct tern_err *err)
{
    tern_assert(w->hashes.fd >= 0, "%s", w->file.path);
    return sink_add(w, &w->hashes, hash, TERN_DATA_HASH, err);
}

/* ---- finishing ---- */

static uint64_t file_end(const struct tern_data_set_writer *w)
{
    return TERN_TDS_HEAD + (uint64_t)w->n_digests * TERN_TDS_BLOCK + w->in_block;
}

static int pad(struct tern_data_set_writer *w, struct tern_err *err)
{
    return file_write(w, "\0\0\0\0\0\0\0", (8 - file_end(w) % 8) % 8, err);
}

static void add_section(struct tern_data_set_writer *w, enum tern_tds_type type, uint64_t offset,
                        uint64_t bytes)
{
    tern_assert_cmp(w->head.n_sections, <, TERN_TDS_SECTIONS);
    tern_assert(offset % 8 == 0, "section %d at byte %llu", type, (unsigned long long)offset);
    w->head.sections[w->head.n_sections++] =
        (struct tern_tds_section){.type = type, .offset = offset, .bytes = bytes};
}

/* Copy an unnamed file's bytes. */
static int place(struct tern_data_set_writer *w, enum tern_tds_type type, struct sink *s,
                 struct tern_err *err)
{
    if (sink_flush(w, s, err) < 0)
        return -1;
    add_section(w, type, file_end(w), s->bytes);
    for (uint64_t at = 0; at < s->bytes;) {
        size_t n = s->bytes - at < BUFFER ? (size_t)(s->bytes - at) : BUFFER;
        if (tern_fs_pread(s->fd, s->buffer, n, at, w->file.path, err) < 0 ||
            file_write(w, s->buffer, n, err) < 0)
            return -1;
        at += n;
    }
    return pad(w, err);
}

/* The header's counts are those of the written bytes. */
static void check_counts(const struct tern_data_set_writer *w)
{
    const struct tern_tds_header *h = &w->head;

    tern_assert_cmp(w->tokens.bytes, ==, h->n_tokens * h->token_bytes);
    tern_assert_cmp(w->docs.bytes, ==, (h->n_docs + 1) * sizeof(struct tern_tds_doc));
    if (w->kind.mask)
        tern_assert_cmp(w->mask.bytes, ==, (h->n_tokens + 7) / 8);
    if (w->hashes.fd >= 0)
        tern_assert_cmp(w->hashes.bytes, ==, h->n_docs * TERN_DATA_HASH);
    tern_assert_cmp(lseek(w->file.fd, 0, SEEK_CUR), ==, (off_t)h->file_bytes);
}

static int place_text(struct tern_data_set_writer *w, enum tern_tds_type type, const char *text,
                      size_t max, struct tern_err *err)
{
    const size_t len = strlen(text);

    if (len > max)
        return tern_err_set(err, TERN_FAILED, "%s: notes of %zu bytes, %zu MiB are allowed",
                            w->file.path, len, max >> 20);
    add_section(w, type, file_end(w), len);
    return file_write(w, text, len, err) < 0 || pad(w, err) < 0 ? -1 : 0;
}

static int finish(struct tern_data_set_writer *w, const char *meta, struct tern_err *err)
{
    if (sink_flush(w, &w->tokens, err) < 0)
        return -1;
    add_section(w, TERN_TDS_TOKENS, TERN_TDS_HEAD, w->tokens.bytes);
    if (pad(w, err) < 0 || note_doc(w, err) < 0 || place(w, TERN_TDS_DOCS, &w->docs, err) < 0)
        return -1;
    if (w->kind.mask) {
        if (w->head.n_tokens % 8 && sink_add(w, &w->mask, &w->bits, 1, err) < 0)
            return -1;
        if (place(w, TERN_TDS_MASK, &w->mask, err) < 0)
            return -1;
    }
    if (place_text(w, TERN_TDS_META, meta, TERN_TDS_META_MAX, err) < 0 ||
        (w->hashes.fd >= 0 && place(w, TERN_TDS_HASHES, &w->hashes, err) < 0) ||
        (w->part && place_text(w, TERN_TDS_PART, w->part, TERN_DATA_PART_MAX, err) < 0))
        return -1;
    const uint64_t end = file_end(w);
    if (w->in_block && note_digest(w, err) < 0)
        return -1;
    size_t bytes = w->n_digests * sizeof *w->digests;
    add_section(w, TERN_TDS_DIGESTS, end, bytes);
    if (tern_fs_write(w->file.fd, w->digests, bytes, w->file.path, err) < 0)
        return -1;
    w->head.digests_crc = tern_crc32c(0, w->digests, bytes);
    w->head.file_bytes = end + bytes;
    w->head.crc = tern_crc32c(0, &w->head, sizeof w->head);
    check_counts(w);
    if (lseek(w->file.fd, 0, SEEK_SET) < 0)
        return tern_err_sys(err, "%s: cannot seek", w->file.path);
    return tern_fs_write(w->file.fd, &w->head, sizeof w->head, w->file.path, err);
}

/* The storage has the header's first bytes, and the file ends where it says. */
static int check_written(const struct tern_data_set_writer *w, struct tern_err *err)
{
    char magic[sizeof w->head.magic] = "";
    struct stat st;

    if (fstat(w->file.fd, &st) == 0 && (uint64_t)st.st_size != w->head.file_bytes)
        return tern_err_set(err, TERN_TEMPFAIL, "%s: has %lld bytes, %llu were written",
                            w->file.path, (long long)st.st_size,
                            (unsigned long long)w->head.file_bytes);
    if (pread(w->file.fd, magic, sizeof magic, 0) == (ssize_t)sizeof magic &&
        memcmp(magic, TERN_TDS_MAGIC, sizeof magic) != 0)
        return tern_err_set(err, TERN_TEMPFAIL, "%s: cannot be read back as it was written",
                            w->file.path);
    return 0;
}

void tern_data_set_part(struct tern_data_set_writer *w, const char *part)
{
    w->part = part;
}

int tern_data_set_commit(struct tern_data_set_writer *w, const char *meta, struct tern_err *err)
{
    int rc = finish(w, meta, err);

    if (rc == 0)
        rc = check_written(w, err);
    if (rc == 0)
        rc = tern_fs_new_commit(&w->file, err);
    tern_data_set_abort(w);
    return rc;
}

void tern_data_set_abort(struct tern_data_set_writer *w)
{
    if (!w)
        return;
    tern_fs_new_abort(&w->file); /* harmless after commit */
    sink_close(&w->tokens);
    sink_close(&w->docs);
    sink_close(&w->mask);
    sink_close(&w->hashes);
    free(w->digests);
    free(w);
}
