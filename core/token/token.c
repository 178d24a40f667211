#include "core/token/token.h"

#include "core/base/fs.h"
#include "core/base/rand.h"
#include "core/token/vocab.h"

#include <stdlib.h>
#include <string.h>

/* Several times the largest published model (Gemma's 262,144 pieces: 4.7 MB). */
enum { FILE_MAX = 32 << 20 };

void *tern_token_keep(struct tern_token *t, size_t n, struct tern_err *err)
{
    enum { BLOCK = 1 << 20 };
    struct tern_pool *p = t->texts;

    if (!p || p->size - p->used < n) {
        size_t size = n > BLOCK ? n : BLOCK;
        p = tern_alloc(1, sizeof *p + size, "a tokenizer", err);
        if (!p)
            return NULL;
        *p = (struct tern_pool){.next = t->texts, .size = size};
        t->texts = p;
    }
    void *at = p->data + p->used;
    p->used += (n + 7) / 8 * 8 > p->size - p->used ? p->size - p->used : (n + 7) / 8 * 8;
    return at;
}

/* Read t->path by what it holds. */
static int parse(struct tern_token *t, struct tern_err *err)
{
    size_t len;

    if (tern_str_ends(t->path, ".json")) {
        t->format = TERN_TOKEN_JSON;
        return tern_token_json_parse(t, err);
    }
    if (tern_fs_read(t->path, FILE_MAX, &t->pool, &len, err) < 0)
        return -1;
    if (!tern_token_is_tiktoken(t->pool, len))
        return tern_token_spm_parse(t, len, err);
    t->format = TERN_TOKEN_TIKTOKEN;
    return tern_token_tiktoken_parse(t, len, err);
}

struct tern_token *tern_token_new(struct tern_err *err)
{
    struct tern_token *t = tern_alloc(1, sizeof *t, "a tokenizer", err);

    if (!t)
        return NULL;
    t->bos = t->eos = t->unk = TERN_TOKEN_NONE;
    tern_rand_system(&t->seed, sizeof t->seed);
    t->seed |= 1;
    return t;
}

struct tern_token *tern_token_load(const char *path, struct tern_err *err)
{
    struct tern_token *t = tern_token_new(err);

    if (!t)
        return NULL;
    t->path = tern_token_file(path, err);
    if (!t->path || parse(t, err) < 0 || tern_token_specials(t, t->path, err) < 0 ||
        tern_token_bpe_build(t, err) < 0) {
        tern_token_free(t);
        return NULL;
    }
    return t;
}

void tern_token_free(struct tern_token *t)
{
    if (!t)
        return;
    free(t->path);
    free(t->pool);
    free(t->match_pool);
    free(t->pieces);
    free(t->unk_surface);
    free(t->added);
    free(t->finders[0].order);
    free(t->finders[1].order);
    free(t->user.v);
    free(t->names);
    tern_token_charsmap_free(t->charsmap);
    free(t->user_raw.v);
    for (struct tern_pool *p = t->texts, *next; p; p = next) {
        next = p->next;
        free(p);
    }
    free(t->pairs);
    free(t->maybe);
    free(t->chars);
    free(t->near);
    free(t);
}

uint32_t tern_token_n_vocab(const struct tern_token *t)
{
    return t->n_vocab;
}

int32_t tern_token_bos(const struct tern_token *t)
{
    return t->bos;
}

int32_t tern_token_eos(const struct tern_token *t)
{
    return t->eos;
}

int32_t tern_token_unk(const struct tern_token *t)
{
    return t->unk;
}

bool tern_token_begins(const struct tern_token *t)
{
    return t->bos >= 0 && (t->format != TERN_TOKEN_JSON || t->begins);
}

const char *tern_token_path(const struct tern_token *t)
{
    return t->path;
}

const char *tern_token_format(const struct tern_token *t)
{
    static const char *const names[] = {"sentencepiece", "tiktoken", "tokenizer.json"};

    return names[t->format];
}

const char *tern_token_piece(const struct tern_token *t, uint32_t id, size_t *len)
{
    if (id >= t->n_vocab)
        return NULL;
    *len = t->pieces[id].len;
    return t->pieces[id].text;
}

static void add_u32(struct tern_sha256 *s, uint32_t v)
{
    uint8_t b[4] = {(uint8_t)v, (uint8_t)(v >> 8), (uint8_t)(v >> 16), (uint8_t)(v >> 24)};

    tern_sha256_add(s, b, sizeof b);
}

/* Of a vocabulary of bytes: "tern vocabulary of bytes 1\n"; then for each id in order that is
 * neither special nor added: the id, its length and its bytes.  tiktoken's file and tokenizer.json
 * of one vocabulary have one name, whatever tokens were added. */
static void hash_bytes(const struct tern_token *t, uint8_t hash[TERN_SHA256_BYTES])
{
    static const char name[] = "tern vocabulary of bytes 1\n";
    struct tern_sha256 *s = tern_sha256_new();

    tern_sha256_add(s, name, sizeof name - 1);
    for (uint32_t i = 0; i < t->n_model; i++) {
        const struct tern_piece *p = &t->pieces[i];
        if (p->kind != TERN_PIECE_NORMAL)
            continue;
        add_u32(s, i);
        add_u32(s, p->len);
        tern_sha256_add(s, p->text, p->len);
    }
    tern_sha256_end(s, hash);
}

/* Digested, all numbers u32 little-endian: "tern vocabulary 1\n"; n_vocab; the flags byte_fallback,
 * add_dummy_prefix, remove_extra_whitespaces, escape_whitespaces, whitespace_as_suffix as 0 or 1;
 * the character map, if there is one; then for each id in order its kind, its place in the order of
 * merges (2^32 - 1 where no merge makes it), its length in bytes and its bytes.  Llama's runs of
 * spaces have one score between them.  They are counted by id, which is the order that Hugging
 * Face's converter gives them in tokenizer.json. */
void tern_token_hash(const struct tern_token *t, uint8_t hash[TERN_SHA256_BYTES])
{
    static const char name[] = "tern vocabulary 1\n";
    /* Tokens that were added behind the vocabulary are no part of it. */
    const uint32_t n = t->format == TERN_TOKEN_JSON ? t->n_model : t->n_vocab;

    if (t->byte_level) {
        hash_bytes(t, hash);
        return;
    }
    struct tern_sha256 *s = tern_sha256_new();
    tern_sha256_add(s, name, sizeof name - 1);
    add_u32(s, n);
    add_u32(s, t->byte_fallback);
    add_u32(s, t->add_dummy_prefix);
    add_u32(s, t->remove_extra_whitespaces);
    add_u32(s, t->escape_whitespaces);
    add_u32(s, t->whitespace_as_suffix);
    if (t->charsmap)
        tern_token_charsmap_digest(t->charsmap, s);
    for (uint32_t i = 0; i < n; i++) {
        const struct tern_piece *p = &t->pieces[i];
        add_u32(s, p->kind);
        add_u32(s, (uint32_t)p->order);
        add_u32(s, p->len);
        tern_sha256_add(s, p->text, p->len);
    }
    tern_sha256_end(s, hash);
}
