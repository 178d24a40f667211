/* Reading token sets. */
#include "core/data/data.h"

#include "core/base/again.h"
#include "core/base/fs.h"
#include "core/base/progress.h"
#include "core/base/str.h"
#include "core/data/format.h"
#include "core/store/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct tern_data_set {
    char *path;
    int fd;                           /* -1 where there is a reader */
    struct tern_store_reader *reader; /* of a set at a URL */
    struct tern_tds_header head;
    const struct tern_tds_section *tokens, *docs, *mask, *digests; /* in head; mask may be NULL */
    char *meta;
};

static int bad(const struct tern_data_set *s, const char *what, struct tern_err *err)
{
    return tern_err_set(err, TERN_USAGE, "%s: damaged token set: %s. Build it again.", s->path,
                        what);
}

/* Reads.  A stale handle is opened anew and must then be the same set: on NFS a replaced file goes
 * stale, too.  The header, with the digest of all digests, tells. */
static int set_pread(const struct tern_data_set *s, void *to, size_t len, uint64_t offset,
                     struct tern_err *err)
{
    struct tern_tds_header now;
    struct tern_again a = {0};

    if (s->reader)
        return tern_store_reader_pread(s->reader, to, len, offset, err);
    for (;;) {
        errno = 0;
        if (tern_fs_pread(s->fd, to, len, offset, s->path, err) == 0)
            return 0;
        if (!tern_again_stale(&a) || tern_fs_reopen(s->fd, s->path, err) < 0)
            return -1;
        if (tern_fs_pread(s->fd, &now, sizeof now, 0, s->path, err) == 0 &&
            memcmp(&now, &s->head, sizeof now) != 0)
            return tern_err_set(err, TERN_FAILED,
                                "%s: another token set has taken its place while it was read",
                                s->path);
    }
}

/* ---- opening ---- */

bool tern_data_set_is(const char magic[TERN_DATA_SET_MAGIC])
{
    _Static_assert(sizeof TERN_TDS_MAGIC - 1 == TERN_DATA_SET_MAGIC, "its length");
    return memcmp(magic, TERN_TDS_MAGIC, TERN_DATA_SET_MAGIC) == 0;
}

static int check_header(const struct tern_data_set *s, uint64_t file_bytes, struct tern_err *err)
{
    struct tern_tds_header head = s->head;

    if (memcmp(head.magic, TERN_TDS_MAGIC, sizeof head.magic) != 0)
        return tern_err_set(err, TERN_USAGE,
                            "%s: not a token set (.tds). `tern data build` makes one.", s->path);
    if (head.version != TERN_TDS_VERSION)
        return tern_err_set(err, TERN_USAGE,
                            "%s: a token set of version %u; this tern reads version %d", s->path,
                            head.version, TERN_TDS_VERSION);
    head.crc = 0;
    if (tern_crc32c(0, &head, sizeof head) != s->head.crc)
        return bad(s, "the header's checksum does not match", err);
    if (head.file_bytes != file_bytes)
        return tern_err_set(err, TERN_USAGE,
                            "%s: damaged token set: %llu bytes long, its header says %llu. Copy or "
                            "build it again.",
                            s->path, (unsigned long long)file_bytes,
                            (unsigned long long)head.file_bytes);
    if ((head.token_bytes != 2 && head.token_bytes != 4) || head.n_vocab == 0 ||
        head.n_vocab > INT32_MAX || head.eos >= head.n_vocab ||
        (head.bos >= 0 && (uint32_t)head.bos >= head.n_vocab) || head.n_docs > UINT64_MAX / 32 ||
        head.n_tokens > UINT64_MAX / 8 || head.n_sections > TERN_TDS_SECTIONS)
        return bad(s, "the header's numbers are impossible", err);
    return 0;
}

static const struct tern_tds_section *section(const struct tern_data_set *s,
                                              enum tern_tds_type type)
{
    for (uint32_t i = 0; i < s->head.n_sections; i++)
        if (s->head.sections[i].type == (uint32_t)type)
            return &s->head.sections[i];
    return NULL;
}

static uint64_t blocks(uint64_t end)
{
    return (end - TERN_TDS_HEAD + TERN_TDS_BLOCK - 1) / TERN_TDS_BLOCK;
}

static int check_sections(struct tern_data_set *s, struct tern_err *err)
{
    const struct tern_tds_header *h = &s->head;

    for (uint32_t i = 0; i < h->n_sections; i++) {
        const struct tern_tds_section *x = &h->sections[i];
        if (x->offset < TERN_TDS_HEAD || x->offset > h->file_bytes ||
            x->bytes > h->file_bytes - x->offset)
            return bad(s, "a section lies outside the file", err);
    }
    s->tokens = section(s, TERN_TDS_TOKENS);
    s->docs = section(s, TERN_TDS_DOCS);
    s->mask = section(s, TERN_TDS_MASK);
    s->digests = section(s, TERN_TDS_DIGESTS);
    if (!s->tokens || !s->docs || !s->digests)
        return bad(s, "a section is missing", err);
    if (s->tokens->bytes != h->n_tokens * h->token_bytes ||
        s->docs->bytes != (h->n_docs + 1) * sizeof(struct tern_tds_doc) ||
        (s->mask && s->mask->bytes != (h->n_tokens + 7) / 8) ||
        s->digests->bytes != blocks(s->digests->offset) * sizeof(uint32_t))
        return bad(s, "a section has the wrong size", err);
    return 0;
}

static int read_meta(struct tern_data_set *s, struct tern_err *err)
{
    const struct tern_tds_section *meta = section(s, TERN_TDS_META);
    uint64_t n = meta ? meta->bytes : 0;

    if (n > TERN_TDS_META_MAX)
        return bad(s, "its notes are longer than 1 MiB", err);
    s->meta = tern_alloc(n + 1, 1, "notes of a token set", err);
    if (!s->meta)
        return -1;
    return n ? set_pread(s, s->meta, n, meta->offset, err) : 0;
}

enum { AGAIN_MAX = 3 }; /* times that bytes are fetched again which came wrong */

/* The head's page, which no digest covers: its checksum, and zeros. */
static int read_page(struct tern_data_set *s, struct tern_err *err)
{
    char page[TERN_TDS_HEAD];
    struct tern_tds_header head;

    for (int i = 0;; i++) {
        bool right = true;
        if (set_pread(s, page, sizeof page, 0, err) < 0)
            return -1;
        memcpy(&s->head, page, sizeof s->head);
        head = s->head;
        head.crc = 0;
        for (size_t k = sizeof head; k < sizeof page; k++)
            right = right && page[k] == 0;
        if ((right && tern_crc32c(0, &head, sizeof head) == s->head.crc) || i == AGAIN_MAX)
            return 0;
        tern_store_reader_drop(s->reader, 0, sizeof page);
    }
}

/* From now on every block that comes is compared with its digest. */
static int check_blocks(struct tern_data_set *s, struct tern_err *err)
{
    const uint64_t end = s->digests->offset, n = blocks(end);
    uint32_t *digests = tern_alloc(n + 1, sizeof *digests, "digests", err);
    int rc = digests ? set_pread(s, digests, n * sizeof *digests, end, err) : -1;
    bool right = rc == 0 && tern_crc32c(0, digests, n * sizeof *digests) == s->head.digests_crc;

    for (int i = 0; i < AGAIN_MAX && rc == 0 && !right; i++) {
        tern_store_reader_drop(s->reader, end, n * sizeof *digests);
        rc = set_pread(s, digests, n * sizeof *digests, end, err);
        right = rc == 0 && tern_crc32c(0, digests, n * sizeof *digests) == s->head.digests_crc;
    }
    if (rc == 0 && !right)
        rc = bad(s, "the list of digests does not match the header", err);
    if (rc == 0)
        rc = tern_store_reader_check(s->reader, digests, end, err);
    free(digests);
    return rc;
}

static struct tern_data_set *open_url(const char *url, struct tern_err *err)
{
    const struct tern_store_reader_how how = {.origin = TERN_TDS_HEAD,
                                              .block_bytes = TERN_TDS_BLOCK,
                                              .blocks = 8}; /* the page cache has the rest */
    struct tern_data_set *s = tern_alloc(1, sizeof *s, "a token set", err);

    if (!s)
        return NULL;
    s->fd = -1;
    s->reader = tern_store_reader_open(url, &how, err);
    if (!s->reader)
        goto fail;
    s->path = tern_strdup(tern_store_reader_url(s->reader));
    const uint64_t bytes = tern_store_reader_bytes(s->reader);
    if (bytes < TERN_TDS_HEAD) {
        tern_err_set(err, TERN_USAGE,
                     "%s: not a token set (too short). `tern data build` makes one.", s->path);
        goto fail;
    }
    if (read_page(s, err) < 0 || check_header(s, bytes, err) < 0 || check_sections(s, err) < 0 ||
        check_blocks(s, err) < 0 || read_meta(s, err) < 0)
        goto fail;
    return s;
fail:
    tern_data_set_free(s);
    return NULL;
}

static struct tern_data_set *open_once(const char *path, struct tern_err *err)
{
    struct stat st;
    struct tern_data_set *s = tern_alloc(1, sizeof *s, "a token set", err);

    if (!s)
        return NULL;
    s->path = tern_strdup(path);
    s->fd = TERN_AGAIN(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (s->fd < 0 || TERN_AGAIN(fstat(s->fd, &st)) < 0) {
        tern_err_sys(err, "%s: cannot open", path);
        if (err && err->code == TERN_FAILED)
            err->code = TERN_USAGE;
        goto fail;
    }
    if (!S_ISREG(st.st_mode) || st.st_size < (off_t)sizeof s->head) {
        tern_err_set(err, TERN_USAGE, "%s: not a token set (%s). `tern data build` makes one.",
                     path, S_ISREG(st.st_mode) ? "too short" : "not a regular file");
        goto fail;
    }
    if (tern_fs_pread(s->fd, &s->head, sizeof s->head, 0, path, err) < 0 ||
        check_header(s, (uint64_t)st.st_size, err) < 0 || check_sections(s, err) < 0 ||
        read_meta(s, err) < 0)
        goto fail;
    return s;
fail:
    tern_data_set_free(s);
    return NULL;
}

struct tern_data_set *tern_data_set_open(const char *path, struct tern_err *err)
{
    struct tern_again a = {0};
    struct tern_data_set *s;

    if (tern_store_is(path))
        return open_url(path, err);
    do {
        errno = 0;
        s = open_once(path, err);
    } while (!s && tern_again_stale(&a));
    return s;
}

void tern_data_set_halt(const struct tern_data_set *s)
{
    tern_store_reader_halt(s->reader);
}

void tern_data_set_free(struct tern_data_set *s)
{
    if (!s)
        return;
    if (s->fd >= 0)
        close(s->fd);
    tern_store_reader_close(s->reader);
    free(s->path);
    free(s->meta);
    free(s);
}

/* ---- fields of the header ---- */

const char *tern_data_set_path(const struct tern_data_set *s)
{
    return s->path;
}

uint64_t tern_data_set_n_tokens(const struct tern_data_set *s)
{
    return s->head.n_tokens;
}

uint64_t tern_data_set_n_docs(const struct tern_data_set *s)
{
    return s->head.n_docs;
}

uint64_t tern_data_set_text_bytes(const struct tern_data_set *s)
{
    return s->head.text_bytes;
}

uint64_t tern_data_set_file_bytes(const struct tern_data_set *s)
{
    return s->head.file_bytes;
}

uint32_t tern_data_set_n_vocab(const struct tern_data_set *s)
{
    return s->head.n_vocab;
}

unsigned tern_data_set_token_bytes(const struct tern_data_set *s)
{
    return s->head.token_bytes;
}

uint32_t tern_data_set_eos(const struct tern_data_set *s)
{
    return s->head.eos;
}

int32_t tern_data_set_bos(const struct tern_data_set *s)
{
    return s->head.bos;
}

bool tern_data_set_has_mask(const struct tern_data_set *s)
{
    return s->mask != NULL;
}

const uint8_t *tern_data_set_vocab_hash(const struct tern_data_set *s)
{
    return s->head.vocab_hash;
}

const char *tern_data_set_meta(const struct tern_data_set *s)
{
    return s->meta;
}

/* ---- contents ---- */

void tern_data_set_digest(const struct tern_data_set *s, uint8_t digest[TERN_SHA256_BYTES])
{
    tern_sha256(&s->head, sizeof s->head, digest);
}

/* The digests section covers all before it, its own CRC stands in the header, and nothing may
 * follow it: then every byte is covered. */
int tern_data_set_verify(const struct tern_data_set *s, struct tern_err *err)
{
    const uint64_t end = s->digests->offset, n = blocks(end);
    uint32_t *digests = tern_alloc(n + 1, sizeof *digests, "digests", err);
    char *block = tern_alloc(1, TERN_TDS_BLOCK, "a block", err);
    char zeros[TERN_TDS_HEAD];
    int rc = -1;

    if (!digests || !block || set_pread(s, digests, n * sizeof *digests, end, err) < 0)
        goto out;
    if (tern_crc32c(0, digests, n * sizeof *digests) != s->head.digests_crc ||
        end + s->digests->bytes != s->head.file_bytes) {
        bad(s, "the list of digests does not match the header", err);
        goto out;
    }
    if (set_pread(s, zeros, sizeof zeros, 0, err) < 0)
        goto out;
    for (size_t i = sizeof s->head; i < sizeof zeros; i++) {
        if (zeros[i]) {
            bad(s, "bytes after the header are not zero", err);
            goto out;
        }
    }
    tern_progress_expect(end - TERN_TDS_HEAD);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t at = TERN_TDS_HEAD + i * TERN_TDS_BLOCK;
        size_t len = end - at < TERN_TDS_BLOCK ? (size_t)(end - at) : TERN_TDS_BLOCK;
        if (set_pread(s, block, len, at, err) < 0)
            goto out;
        if (tern_crc32c(0, block, len) != digests[i]) {
            tern_err_set(err, TERN_USAGE,
                         "%s: damaged token set: bytes %llu to %llu have changed since they were "
                         "written. Copy "
                         "or build it again.",
                         s->path, (unsigned long long)at, (unsigned long long)(at + len - 1));
            goto out;
        }
        tern_progress_add(len);
    }
    rc = 0;
out:
    free(digests);
    free(block);
    return rc;
}

int tern_data_set_read(const struct tern_data_set *s, uint64_t first, size_t n, int32_t *tokens,
                       struct tern_err *err)
{
    const unsigned size = s->head.token_bytes;

    if (first > s->head.n_tokens || n > s->head.n_tokens - first)
        return tern_err_set(err, TERN_FAILED, "%s: tokens %llu + %zu of %llu requested", s->path,
                            (unsigned long long)first, n, (unsigned long long)s->head.n_tokens);
    if (n == 0)
        return 0;
    /* Read into the upper half, then widen from the front: no value is overwritten unread. */
    char *raw = (char *)tokens + (sizeof *tokens - size) * n;
    if (set_pread(s, raw, n * size, s->tokens->offset + first * size, err) < 0)
        return -1;
    for (size_t i = 0; i < n; i++) {
        uint32_t id = 0;
        memcpy(&id, raw + i * size, size);
        if (id >= s->head.n_vocab)
            return tern_err_set(err, TERN_USAGE,
                                "%s: damaged token set: token %llu is %u, the vocabulary ends at "
                                "%u. Build it again.",
                                s->path, (unsigned long long)(first + i), id, s->head.n_vocab - 1);
        tokens[i] = (int32_t)id;
    }
    return 0;
}

int tern_data_set_docs(const struct tern_data_set *s, uint64_t first, size_t n,
                       struct tern_data_set_doc *docs, struct tern_err *err)
{
    struct tern_tds_doc d[513]; /* 8 KiB at a time */

    if (first > s->head.n_docs || n > s->head.n_docs - first)
        return tern_err_set(err, TERN_FAILED, "%s: documents %llu + %zu of %llu requested", s->path,
                            (unsigned long long)first, n, (unsigned long long)s->head.n_docs);
    while (n) {
        size_t take = sizeof d / sizeof *d - 1;
        take = n < take ? n : take;
        if (set_pread(s, d, (take + 1) * sizeof *d, s->docs->offset + first * sizeof *d, err) < 0)
            return -1;
        for (size_t i = 0; i < take; i++) {
            if (d[i].first_token > d[i + 1].first_token ||
                d[i + 1].first_token > s->head.n_tokens || d[i].first_byte > d[i + 1].first_byte ||
                d[i + 1].first_byte > s->head.text_bytes)
                return bad(s, "its documents are out of order", err);
            docs[i] =
                (struct tern_data_set_doc){.first_token = d[i].first_token,
                                           .n_tokens = d[i + 1].first_token - d[i].first_token,
                                           .text_bytes = d[i + 1].first_byte - d[i].first_byte};
        }
        docs += take;
        first += take;
        n -= take;
    }
    return 0;
}

int tern_data_set_doc(const struct tern_data_set *s, uint64_t i, struct tern_data_set_doc *doc,
                      struct tern_err *err)
{
    if (i >= s->head.n_docs)
        return tern_err_set(err, TERN_FAILED, "%s: document %llu of %llu requested", s->path,
                            (unsigned long long)i, (unsigned long long)s->head.n_docs);
    return tern_data_set_docs(s, i, 1, doc, err);
}

/* ---- rows ---- */

uint64_t tern_data_set_rows(const struct tern_data_set *s, uint32_t seq_len)
{
    return s->head.n_tokens / seq_len + (s->head.n_tokens % seq_len != 0);
}

int tern_data_set_mask(const struct tern_data_set *s, uint64_t first, size_t n, uint8_t *mask,
                       struct tern_err *err)
{
    uint8_t bits[512]; /* 4096 tokens at a time */

    if (first > s->head.n_tokens || n > s->head.n_tokens - first)
        return tern_err_set(err, TERN_FAILED, "%s: tokens %llu + %zu of %llu requested", s->path,
                            (unsigned long long)first, n, (unsigned long long)s->head.n_tokens);
    if (!s->mask) {
        memset(mask, 1, n);
        return 0;
    }
    while (n) {
        size_t skip = first % 8, take = sizeof bits * 8 - skip;
        if (take > n)
            take = n;
        if (set_pread(s, bits, (skip + take + 7) / 8, s->mask->offset + first / 8, err) < 0)
            return -1;
        for (size_t i = 0; i < take; i++)
            mask[i] = bits[(skip + i) / 8] >> ((skip + i) % 8) & 1;
        mask += take;
        first += take;
        n -= take;
    }
    return 0;
}

int tern_data_set_row(const struct tern_data_set *s, uint32_t seq_len, uint64_t r, int32_t *tokens,
                      uint8_t *mask, struct tern_err *err)
{
    if (r >= tern_data_set_rows(s, seq_len))
        return tern_err_set(err, TERN_FAILED, "%s: row %llu of %llu requested", s->path,
                            (unsigned long long)r,
                            (unsigned long long)tern_data_set_rows(s, seq_len));
    const uint64_t first = r * seq_len, left = s->head.n_tokens - first;
    const size_t n = left < seq_len ? (size_t)left : seq_len;
    int rc;

    /* Input 0 is the token before the first target; before the first document stands an EOS. */
    if (first == 0) {
        tokens[0] = (int32_t)s->head.eos;
        rc = tern_data_set_read(s, 0, n, tokens + 1, err);
    } else {
        rc = tern_data_set_read(s, first - 1, n + 1, tokens, err);
    }
    if (rc < 0)
        return -1;
    if (tern_data_set_mask(s, first, n, mask, err) < 0)
        return -1;
    for (size_t j = n; j < seq_len; j++) {
        tokens[j + 1] = (int32_t)s->head.eos;
        mask[j] = 0;
    }
    return 0;
}
