/* tokenizer.json's vocabulary and merges.
 *
 * In a vocabulary of bytes each byte is written as one of GPT-2's 256 letters; pieces are kept as
 * the bytes.  A piece with another letter in it is kept as its text and never met. */
#include "core/token/json.h"

#include "core/base/rand.h"
#include "core/base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- GPT-2's letters ---- */

/* Printable Latin-1 stands for itself, the other 68 bytes are U+0100 .. U+0143 in their order.
 * -1: no such letter. */
static inline int letter_byte(uint32_t code)
{
    if ((code > 0x20 && code < 0x7f) || (code > 0xa0 && code < 0x100 && code != 0xad))
        return (int)code;
    if (code < 0x100 || code > 0x143)
        return -1;
    code -= 0x100;
    return (int)(code <= 0x20 ? code : code <= 0x42 ? code - 0x21 + 0x7f : 0xad);
}

uint32_t tern_token_json_letter(uint8_t byte)
{
    if (letter_byte(byte) == byte)
        return byte;
    return 0x100u + (byte <= 0x20 ? byte : byte == 0xad ? 0x43u : byte - 0x7fu + 0x21u);
}

size_t tern_token_json_bytes(const char *s, size_t len, char *to)
{
    size_t n = 0;

    for (const char *end = s + len; s < end; n++) {
        uint32_t code = (uint8_t)*s++;
        if (code >= 0x80) {
            if (code < 0xc2 || code > 0xc5 || s == end)
                return 0;
            code = (code & 0x1f) << 6 | ((uint8_t)*s++ & 0x3f);
        }
        int byte = letter_byte(code);
        if (byte < 0)
            return 0;
        to[n] = (char)byte;
    }
    return n;
}

/* ---- names ---- */

struct name {
    uint32_t hash, id; /* id + 1; 0: free */
    uint32_t at, len;  /* in `texts`; len | PLAIN where it is text among bytes */
};
#define PLAIN 0x80000000u

struct tern_token_names {
    uint64_t seed[2];  /* a file cannot be made for them */
    const char *texts; /* belongs to the tokenizer */
    uint32_t mask;
    struct name slots[];
};

void tern_token_names_free(struct tern_token_names *names)
{
    free(names);
}

static struct tern_token_names *names_new(size_t n, const char *texts, struct tern_err *err)
{
    size_t slots = 64;

    while (slots < 2 * n)
        slots *= 2;
    struct tern_token_names *names =
        tern_alloc(1, sizeof *names + slots * sizeof *names->slots, "a vocabulary", err);
    if (!names)
        return NULL;
    tern_rand_system(names->seed, sizeof names->seed);
    names->texts = texts;
    names->mask = (uint32_t)(slots - 1);
    return names;
}

static inline uint64_t fold(uint64_t a, uint64_t b)
{
    __extension__ unsigned __int128 m = (unsigned __int128)a * b;

    return (uint64_t)m ^ (uint64_t)(m >> 64);
}

static inline uint64_t read8(const char *s)
{
    uint64_t v;

    memcpy(&v, s, sizeof v);
    return v;
}

static inline uint32_t read4(const char *s)
{
    uint32_t v;

    memcpy(&v, s, sizeof v);
    return v;
}

static uint32_t name_hash(const struct tern_token_names *names, const char *s, uint32_t len)
{
    uint32_t n = len & ~PLAIN;
    uint64_t h = names->seed[0] ^ len, a = 0, b = 0;

    for (; n > 16; s += 16, n -= 16)
        h = fold(read8(s) ^ h, read8(s + 8) ^ names->seed[1]);
    if (n >= 8) {
        a = read8(s);
        b = read8(s + n - 8);
    } else if (n >= 4) {
        a = read4(s);
        b = read4(s + n - 4);
    } else if (n > 0) {
        a = (uint64_t)(uint8_t)s[0] << 16 | (uint64_t)(uint8_t)s[n / 2] << 8 | (uint8_t)s[n - 1];
    }
    h = fold(a ^ h, b ^ names->seed[1]);
    return (uint32_t)(h ^ h >> 32);
}

/* The slot of a text, or the free one where it belongs. */
static inline struct name *name_find(struct tern_token_names *names, const char *s, uint32_t len,
                                     uint32_t hash)
{
    for (uint32_t k = hash & names->mask;; k = (k + 1) & names->mask) {
        struct name *p = &names->slots[k];
        if (p->id == 0 || (p->hash == hash && p->len == len &&
                           memcmp(names->texts + p->at, s, len & ~PLAIN) == 0))
            return p;
    }
}

static uint32_t name_id(const struct tern_token_json *j, const char *s, uint32_t len)
{
    return name_find(j->names, s, len, name_hash(j->names, s, len))->id - 1; /* 0: none */
}

uint32_t tern_token_json_id(const struct tern_token_json *j, const char *text, size_t len)
{
    char bytes[2 * TERN_PIECE_BYTES_MAX];
    size_t n = 0;

    if (len > sizeof bytes)
        return TERN_SYMBOL_NONE;
    if (j->t->byte_level)
        n = tern_token_json_bytes(text, len, bytes);
    if (n)
        return name_id(j, bytes, (uint32_t)n);
    return name_id(j, text, (uint32_t)len | (j->t->byte_level ? PLAIN : 0));
}

bool tern_token_json_all_bytes(const struct tern_token_json *j)
{
    for (unsigned b = 0; b < 256; b++) {
        char s[8];
        snprintf(s, sizeof s, "<0x%02X>", b);
        if ((j->t->byte_level ? name_id(j, (char[]){(char)b}, 1) : name_id(j, s, 6)) ==
            TERN_SYMBOL_NONE)
            return false;
    }
    return true;
}

/* ---- pieces ---- */

static bool is_byte(const char *s, size_t len)
{
    static const char hex[] = "0123456789ABCDEF";

    return len == 6 && memcmp(s, "<0x", 3) == 0 && s[5] == '>' && memchr(hex, s[3], 16) &&
           memchr(hex, s[4], 16);
}

/* Memory that texts are written to. */
struct texts {
    char *text;
    const char *start;
};

static int add_piece(struct tern_token_json *j, struct tern_token_cursor *c, struct texts *to,
                     uint32_t most)
{
    struct tern_token *t = j->t;
    const char *s, *place = c->at;
    size_t len, bytes = 0;
    uint32_t id;

    if (tern_token_json_string(c, &s, &len) < 0)
        return -1;
    if (t->byte_level)
        bytes = tern_token_json_bytes(s, len, to->text);
    if (bytes == 0)
        memcpy(to->text, s, len);
    uint32_t key = bytes ? (uint32_t)bytes : (uint32_t)len | (t->byte_level ? PLAIN : 0);
    uint32_t hash = name_hash(j->names, to->text, key);
    __builtin_prefetch(&j->names->slots[hash & j->names->mask], 1);
    if (!tern_token_json_take(c, ':'))
        return tern_token_json_fail(j, c->at, c->err, "':' should stand here");
    if (tern_token_json_number(c, most, &id) < 0)
        return -1;
    struct name *name = name_find(j->names, to->text, key, hash);
    struct tern_piece *p = &t->pieces[id];
    if (name->id || p->text)
        return tern_token_json_fail(j, place, c->err, "two pieces have the same %s as id %u",
                                    name->id ? "text" : "id", name->id ? name->id - 1 : id);
    *name = (struct name){hash, id + 1, (uint32_t)(to->text - to->start), key};
    *p = (struct tern_piece){.text = to->text,
                             .len = key & ~PLAIN,
                             .rank = TERN_RANK_NONE,
                             .order = TERN_RANK_NONE,
                             .kind = TERN_PIECE_NORMAL};
    to->text += p->len;
    if (t->byte_level) {
        p->match = bytes ? p->text : NULL;
        p->match_len = (uint32_t)bytes;
    } else if (is_byte(p->text, p->len)) {
        p->kind = TERN_PIECE_BYTE;
        t->byte_id[strtoul((char[]){p->text[3], p->text[4], 0}, NULL, 16)] = id;
    }
    if (id >= t->n_vocab)
        t->n_vocab = id + 1;
    j->n_vocab++;
    return 0;
}

/* Behind an element: another one follows (1), `close` (0), or it is an error. */
static int more(struct tern_token_cursor *c, char close)
{
    if (tern_token_json_take(c, ','))
        return 1;
    if (tern_token_json_take(c, close))
        return 0;
    return tern_token_json_fail(c->json, c->at, c->err, "',' or '%c' should stand here", close);
}

/* Memory for `n` pieces, and `added` behind them. */
static int make_room(struct tern_token_json *j, size_t n, size_t added, struct texts *to,
                     struct tern_err *err)
{
    const size_t bytes = (size_t)(j->vocab.end - j->vocab.at) + 8;

    if (n + added > TERN_TOKEN_VOCAB_MAX)
        return tern_err_set(err, TERN_USAGE, "%s: more than %d pieces", j->t->path,
                            TERN_TOKEN_VOCAB_MAX);
    to->text = tern_token_keep(j->t, bytes, err);
    if (!to->text)
        return -1;
    to->start = to->text;
    j->names = names_new(n, to->start, err);
    j->t->pieces = tern_alloc(2 * n + added, sizeof *j->t->pieces, "a vocabulary", err);
    return j->names && j->t->pieces ? 0 : -1;
}

int tern_token_json_vocab(struct tern_token_json *j, struct tern_err *err)
{
    char scratch[TERN_PIECE_BYTES_MAX + 4];
    struct tern_token_cursor c = {j, j->vocab.at, scratch, sizeof scratch, err};
    struct texts to = {0};
    int rc = 1;

    if (!j->vocab.at)
        return tern_err_set(err, TERN_USAGE, "%s: has no model.vocab", j->t->path);
    const size_t n = j->vocab.n_commas + 1;
    if (make_room(j, n, json_array_size(json_object_get(j->tree, "added_tokens")), &to, err) < 0)
        return -1;
    c.at++;
    if (tern_token_json_take(&c, '}'))
        return tern_token_json_fail(j, c.at - 1, err, "the vocabulary is empty");
    while (rc == 1)
        rc = add_piece(j, &c, &to, (uint32_t)(2 * n - 1)) < 0 ? -1 : more(&c, '}');
    for (uint32_t i = 0; i < j->t->n_vocab; i++)
        if (!j->t->pieces[i].text)
            j->t->pieces[i] = (struct tern_piece){.text = "",
                                                  .rank = TERN_RANK_NONE,
                                                  .order = TERN_RANK_NONE,
                                                  .kind = TERN_PIECE_UNUSED};
    j->t->n_model = j->t->n_vocab;
    return rc;
}

/* ---- merges ---- */

struct merge {
    const char *left, *right;
    size_t n_left, n_right;
};

/* "a b" or ["a", "b"]; `right` has room for the second string. 0: a comment. */
static int read_merge(struct tern_token_cursor *c, bool pairs, struct tern_token_cursor *right,
                      struct merge *m)
{
    const char *place = c->at;

    if (pairs) {
        if (!tern_token_json_take(c, '['))
            return tern_token_json_fail(c->json, c->at, c->err, "a pair should stand here");
        if (tern_token_json_string(c, &m->left, &m->n_left) < 0)
            return -1;
        if (!tern_token_json_take(c, ','))
            return tern_token_json_fail(c->json, c->at, c->err, "',' should stand here");
        right->at = c->at;
        if (tern_token_json_string(right, &m->right, &m->n_right) < 0)
            return -1;
        c->at = right->at;
        if (!tern_token_json_take(c, ']'))
            return tern_token_json_fail(c->json, c->at, c->err, "']' should stand here");
        return 1;
    }
    if (tern_token_json_string(c, &m->left, &m->n_left) < 0)
        return -1;
    if (m->n_left >= 8 && memcmp(m->left, "#version", 8) == 0)
        return 0;
    const char *gap = memchr(m->left, ' ', m->n_left), *end = m->left + m->n_left;
    if (!gap || memchr(gap + 1, ' ', (size_t)(end - gap - 1)))
        return tern_token_json_fail(c->json, place, c->err, "a merge is two pieces and a space");
    m->right = gap + 1;
    m->n_right = (size_t)(end - m->right);
    m->n_left = (size_t)(gap - m->left);
    return 1;
}

/* A merge that waits for its names: those of several are fetched from memory together. */
enum { AHEAD = 16, AHEAD_BYTES = 56 };
enum { LEFT, RIGHT, MERGED, PARTS };

struct waiting {
    const char *place;
    uint32_t from[PARTS], len[PARTS], hash[PARTS]; /* texts inside `s` */
    uint32_t id[PARTS];
    char s[AHEAD_BYTES];
};

struct merges {
    struct tern_token_json *j;
    struct tern_token_cursor c, right; /* `right`: a pair's second string */
    bool pairs;
    int32_t rank, order;
    unsigned n;
    struct waiting ahead[AHEAD];
};

/* An error about the merge at `place`. */
static int bad_merge(struct merges *v, const char *place, const char *why)
{
    struct merge m = {0};

    v->c.at = place;
    read_merge(&v->c, v->pairs, &v->right, &m);
    return tern_token_json_fail(v->j, place, v->c.err, "the merge '%.*s %.*s' has %s",
                                (int)(m.n_left < 64 ? m.n_left : 64), m.left,
                                (int)(m.n_right < 64 ? m.n_right : 64), m.right, why);
}

static int add_merge(struct merges *v, const char *place, const uint32_t id[PARTS])
{
    static const char *const missing[PARTS] = {[LEFT] = "a left part that is not in the vocabulary",
                                               [RIGHT] =
                                                   "a right part that is not in the vocabulary",
                                               [MERGED] = "a result that is not in the vocabulary"};
    struct tern_token *t = v->j->t;

    for (int k = 0; k < PARTS; k++)
        if (id[k] == TERN_SYMBOL_NONE)
            return bad_merge(v, place, missing[k]);
    if (t->byte_fallback && (t->pieces[id[LEFT]].kind == TERN_PIECE_BYTE ||
                             t->pieces[id[RIGHT]].kind == TERN_PIECE_BYTE))
        return bad_merge(v, place, "a piece of one byte as a part, which is not supported");
    tern_token_merge_add(t, id[LEFT], id[RIGHT], id[MERGED], v->rank++);
    struct tern_piece *made = &t->pieces[id[MERGED]];
    if (made->order == TERN_RANK_NONE)
        made->rank = made->order = v->order++;
    return 0;
}

/* Add the merges that wait. */
static int flush(struct merges *v)
{
    struct tern_token_names *names = v->j->names;
    const struct tern_token *t = v->j->t;
    const unsigned n = v->n;

    v->n = 0;
    for (unsigned i = 0; i < n; i++) {
        struct waiting *w = &v->ahead[i];
        for (int k = 0; k < PARTS; k++)
            w->id[k] = name_find(names, w->s + w->from[k], w->len[k], w->hash[k])->id - 1;
        __builtin_prefetch(
            &t->pairs[tern_pair_hash(t->seed, w->id[LEFT], w->id[RIGHT]) & t->pair_mask], 1);
        if (w->id[MERGED] != TERN_SYMBOL_NONE)
            __builtin_prefetch(&t->pieces[w->id[MERGED]].order, 1);
    }
    for (unsigned i = 0; i < n; i++)
        if (add_merge(v, v->ahead[i].place, v->ahead[i].id) < 0)
            return -1;
    return 0;
}

/* A merge whose texts are long, or have other letters than bytes have. */
static int add_odd(struct merges *v, const char *place, const struct merge *m)
{
    char s[2 * TERN_PIECE_BYTES_MAX];
    uint32_t id[PARTS];

    if (flush(v) < 0)
        return -1;
    memcpy(s, m->left, m->n_left);
    memcpy(s + m->n_left, m->right, m->n_right);
    id[LEFT] = tern_token_json_id(v->j, s, m->n_left);
    id[RIGHT] = tern_token_json_id(v->j, s + m->n_left, m->n_right);
    id[MERGED] = tern_token_json_id(v->j, s, m->n_left + m->n_right);
    return add_merge(v, place, id);
}

static int take_merge(struct merges *v, const char *place, const struct merge *m)
{
    const struct tern_token_names *names = v->j->names;
    struct waiting *w = &v->ahead[v->n];
    size_t left = m->n_left, right = m->n_right;

    if (left == 0 || right == 0)
        return bad_merge(v, place, "an empty part");
    if (left + right > AHEAD_BYTES)
        return add_odd(v, place, m);
    if (v->j->t->byte_level) {
        left = tern_token_json_bytes(m->left, m->n_left, w->s);
        right = tern_token_json_bytes(m->right, m->n_right, w->s + left);
        if (left == 0 || right == 0)
            return add_odd(v, place, m);
    } else {
        memcpy(w->s, m->left, left);
        memcpy(w->s + left, m->right, right);
    }
    w->place = place;
    w->from[LEFT] = w->from[MERGED] = 0;
    w->from[RIGHT] = w->len[LEFT] = (uint32_t)left;
    w->len[RIGHT] = (uint32_t)right;
    w->len[MERGED] = (uint32_t)(left + right);
    for (int k = 0; k < PARTS; k++) {
        w->hash[k] = name_hash(names, w->s + w->from[k], w->len[k]);
        __builtin_prefetch(&names->slots[w->hash[k] & names->mask]);
    }
    return ++v->n == AHEAD ? flush(v) : 0;
}

int tern_token_json_merges(struct tern_token_json *j, struct tern_err *err)
{
    char scratch[TERN_PIECE_BYTES_MAX + 4], second[sizeof scratch];
    struct merges v = {.j = j,
                       .c = {j, j->merges.at, scratch, sizeof scratch, err},
                       .right = {j, NULL, second, sizeof second, err}};
    int rc = 1;

    if (!j->merges.at)
        return tern_err_set(err, TERN_USAGE, "%s: has no model.merges", j->t->path);
    v.c.at++;
    const bool empty = tern_token_json_take(&v.c, ']');
    const char *first = v.c.at;
    v.pairs = !empty && tern_token_json_take(&v.c, '[');
    v.c.at = first;
    const size_t n = empty ? 0 : v.pairs ? j->merges.n_commas / 2 + 1 : j->merges.n_commas + 1;
    if (n > TERN_TOKEN_VOCAB_MAX)
        return tern_err_set(err, TERN_USAGE, "%s: more than %d merges", j->t->path,
                            TERN_TOKEN_VOCAB_MAX);
    if (tern_token_merges_new(j->t, n, err) < 0)
        return -1;
    while (!empty && rc == 1) {
        struct merge m;
        const char *place = v.c.at;
        rc = read_merge(&v.c, v.pairs, &v.right, &m);
        if (rc < 0 || (rc > 0 && take_merge(&v, place, &m) < 0))
            return -1;
        rc = more(&v.c, ']');
    }
    return rc < 0 ? -1 : flush(&v);
}
