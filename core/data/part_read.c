/* Reading a part of a set, document after document. */
#include "core/data/part.h"

#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/data/format.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    PLACES = 4096,    /* of documents that are read at once */
    WINDOW = 1 << 20, /* bytes of tokens that are read at once, or a longer document */
};

struct tern_data_part {
    char *path;
    struct tern_data_set *set;
    int fd;
    struct tern_tds_header head;
    struct tern_tds_section tokens, docs, mask, hashes, record; /* bytes 0: there is none */
    char *text, *meta;
    uint64_t next; /* document */

    /* Of documents first_place .. + n_places - 1, and of the one behind them; their hashes. */
    struct tern_tds_doc places[PLACES + 1];
    uint8_t hash[PLACES][TERN_DATA_HASH];
    uint64_t first_place, n_places;

    /* Tokens first_token .. + n_tokens - 1 as stored, and their mask's bytes. */
    char *stored;
    size_t stored_cap;
    uint64_t first_token, n_tokens;
    uint8_t *bits;
    size_t bits_cap;

    /* The document given last. */
    uint32_t *ids;
    uint8_t *targets;
    size_t ids_cap, targets_cap;
};

/* ---- opening ---- */

/* The first of its type, as the set's reader takes it. */
static void find_section(const struct tern_tds_header *h, enum tern_tds_type type,
                         struct tern_tds_section *ret_section)
{
    for (uint32_t i = h->n_sections; i-- > 0;)
        if (h->sections[i].type == (uint32_t)type)
            *ret_section = h->sections[i];
}

static int damaged(const struct tern_data_part *p, const char *what, struct tern_err *err)
{
    return tern_err_set(err, TERN_USAGE, "%s: damaged part: %s. Build it again.", p->path, what);
}

static int read_text(const struct tern_data_part *p, const struct tern_tds_section *s, size_t max,
                     char **ret_text, struct tern_err *err)
{
    if (s->bytes > max)
        return damaged(p, "its notes are too long", err);
    *ret_text = tern_alloc(s->bytes + 1, 1, "notes of a part", err);
    return *ret_text ? tern_fs_pread(p->fd, *ret_text, s->bytes, s->offset, p->path, err) : -1;
}

/* The set's own reader has found the header to be sound. */
static int read_head(struct tern_data_part *p, struct tern_err *err)
{
    const struct tern_tds_header *h = &p->head;

    if (tern_fs_pread(p->fd, &p->head, sizeof p->head, 0, p->path, err) < 0)
        return -1;
    find_section(h, TERN_TDS_TOKENS, &p->tokens);
    find_section(h, TERN_TDS_DOCS, &p->docs);
    find_section(h, TERN_TDS_MASK, &p->mask);
    find_section(h, TERN_TDS_HASHES, &p->hashes);
    find_section(h, TERN_TDS_PART, &p->record);
    if (!p->record.bytes)
        return tern_err_set(err, TERN_USAGE,
                            "%s: is a whole token set, and no part of one. `tern data build --part "
                            "K/N` makes parts.",
                            p->path);
    if (p->hashes.offset && p->hashes.bytes != h->n_docs * TERN_DATA_HASH)
        return damaged(p, "its hashes are of another number of documents", err);
    return read_text(p, &p->record, TERN_DATA_PART_MAX, &p->text, err);
}

struct tern_data_part *tern_data_part_open(const char *path, struct tern_err *err)
{
    struct tern_data_part *p = tern_alloc(1, sizeof *p, "a part", err);

    if (!p)
        return NULL;
    p->fd = -1;
    p->set = tern_data_set_open(path, err);
    if (!p->set)
        goto fail;
    p->path = tern_strdup(path);
    p->meta = tern_strdup(tern_data_set_meta(p->set));
    p->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (p->fd < 0) {
        tern_err_sys(err, "%s: cannot open", path);
        goto fail;
    }
    if (read_head(p, err) < 0)
        goto fail;
    return p;
fail:
    tern_data_part_close(p);
    return NULL;
}

void tern_data_part_close(struct tern_data_part *p)
{
    if (!p)
        return;
    if (p->fd >= 0)
        close(p->fd);
    tern_data_set_free(p->set);
    free(p->path);
    free(p->text);
    free(p->meta);
    free(p->stored);
    free(p->bits);
    free(p->ids);
    free(p->targets);
    free(p);
}

int tern_data_part_check(const struct tern_data_part *p, struct tern_err *err)
{
    return tern_data_set_verify(p->set, err);
}

const char *tern_data_part_path(const struct tern_data_part *p)
{
    return p->path;
}

const char *tern_data_part_record(const struct tern_data_part *p)
{
    return p->text;
}

const char *tern_data_part_meta(const struct tern_data_part *p)
{
    return p->meta;
}

bool tern_data_part_has_hashes(const struct tern_data_part *p)
{
    return p->hashes.offset != 0;
}

struct tern_data_set_kind tern_data_part_kind(const struct tern_data_part *p)
{
    struct tern_data_set_kind kind = {.n_vocab = p->head.n_vocab,
                                      .eos = p->head.eos,
                                      .bos = p->head.bos,
                                      .mask = p->mask.offset != 0};

    memcpy(kind.vocab_hash, p->head.vocab_hash, sizeof kind.vocab_hash);
    return kind;
}

/* ---- documents ---- */

static int grow(void **array, size_t *cap, size_t need, struct tern_err *err)
{
    if (need <= *cap)
        return 0;
    void *grown = realloc(*array, need + need / 2);
    if (!grown)
        return tern_err_sys(err, "a document of a part");
    *array = grown;
    *cap = need + need / 2;
    return 0;
}

static int read_places(struct tern_data_part *p, struct tern_err *err)
{
    const uint64_t left = p->head.n_docs - p->next, n = left < PLACES ? left : PLACES;

    if (tern_fs_pread(p->fd, p->places, (n + 1) * sizeof p->places[0],
                      p->docs.offset + p->next * sizeof p->places[0], p->path, err) < 0 ||
        (p->hashes.bytes &&
         tern_fs_pread(p->fd, p->hash, n * TERN_DATA_HASH,
                       p->hashes.offset + p->next * TERN_DATA_HASH, p->path, err) < 0))
        return -1;
    for (uint64_t i = 0; i < n; i++)
        if (p->places[i].first_token >= p->places[i + 1].first_token ||
            p->places[i + 1].first_token > p->head.n_tokens ||
            p->places[i].first_byte > p->places[i + 1].first_byte)
            return damaged(p, "the places of its documents are impossible", err);
    p->first_place = p->next;
    p->n_places = n;
    return 0;
}

/* Have tokens first .. first + n - 1 at hand. */
static int read_tokens(struct tern_data_part *p, uint64_t first, uint64_t n, struct tern_err *err)
{
    const unsigned size = p->head.token_bytes;
    uint64_t take = WINDOW / size;

    if (first >= p->first_token && first + n <= p->first_token + p->n_tokens)
        return 0;
    take = take < n ? n : take;
    if (take > p->head.n_tokens - first)
        take = p->head.n_tokens - first;
    if (grow((void **)&p->stored, &p->stored_cap, take * size, err) < 0 ||
        tern_fs_pread(p->fd, p->stored, take * size, p->tokens.offset + first * size, p->path,
                      err) < 0)
        return -1;
    if (p->mask.bytes) {
        const uint64_t from = first / 8, end = (first + take + 7) / 8;
        if (grow((void **)&p->bits, &p->bits_cap, end - from, err) < 0 ||
            tern_fs_pread(p->fd, p->bits, end - from, p->mask.offset + from, p->path, err) < 0)
            return -1;
    }
    p->first_token = first;
    p->n_tokens = take;
    return 0;
}

/* Copy them out, as 32 bits each. */
static void widen(struct tern_data_part *p, uint64_t first, size_t n)
{
    const size_t at = (size_t)(first - p->first_token);
    const uint64_t bit = first - p->first_token / 8 * 8;

    if (p->head.token_bytes == sizeof *p->ids)
        memcpy(p->ids, p->stored + at * sizeof *p->ids, n * sizeof *p->ids);
    else
        for (size_t i = 0; i < n; i++)
            p->ids[i] = ((const uint16_t *)(const void *)p->stored)[at + i];
    for (size_t i = 0; p->mask.bytes && i < n; i++)
        p->targets[i] = p->bits[(bit + i) / 8] >> ((bit + i) % 8) & 1;
}

int tern_data_part_next(struct tern_data_part *p, struct tern_data_part_doc *ret_doc,
                        struct tern_err *err)
{
    if (p->next == p->head.n_docs)
        return 0;
    if (p->next == p->first_place + p->n_places && read_places(p, err) < 0)
        return -1;
    const struct tern_tds_doc *d = &p->places[p->next - p->first_place];
    const size_t n = (size_t)(d[1].first_token - d->first_token);
    if (read_tokens(p, d->first_token, n, err) < 0 ||
        grow((void **)&p->ids, &p->ids_cap, (n + 1) * sizeof *p->ids, err) < 0 ||
        (p->mask.bytes && grow((void **)&p->targets, &p->targets_cap, n + 1, err) < 0))
        return -1;
    widen(p, d->first_token, n);
    *ret_doc = (struct tern_data_part_doc){
        .ids = p->ids,
        .mask = p->mask.bytes ? p->targets : NULL,
        .hash = p->hashes.bytes ? p->hash[p->next - p->first_place] : NULL,
        .n_ids = n,
        .text_bytes = d[1].first_byte - d->first_byte};
    p->next++;
    return 1;
}
