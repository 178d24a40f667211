/* From pieces to merge tables.
 *
 * SentencePiece merges by text: two neighbours merge when their concatenation is a piece.  Here
 * every way to cut a piece in two is looked up once, at load, so that encoding compares pairs of
 * symbols and never texts.  Halves may be pieces or single characters, known or not. */
#include "core/token/vocab.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

uint32_t tern_token_utf8_decode(const char *s, size_t n, unsigned *bytes)
{
    const uint8_t *b = (const uint8_t *)s;
    uint32_t c;

    *bytes = 0;
    if (b[0] < 0x80) {
        *bytes = 1;
        return b[0];
    }
    if (n >= 2 && (b[0] & 0xe0) == 0xc0 && (b[1] & 0xc0) == 0x80) {
        c = (uint32_t)(b[0] & 0x1f) << 6 | (b[1] & 0x3f);
        if (c >= 0x80)
            *bytes = 2;
        return c;
    }
    if (n >= 3 && (b[0] & 0xf0) == 0xe0 && (b[1] & 0xc0) == 0x80 && (b[2] & 0xc0) == 0x80) {
        c = (uint32_t)(b[0] & 0xf) << 12 | (uint32_t)(b[1] & 0x3f) << 6 | (b[2] & 0x3f);
        if (c >= 0x800 && (c < 0xd800 || c >= 0xe000))
            *bytes = 3;
        return c;
    }
    if (n >= 4 && (b[0] & 0xf8) == 0xf0 && (b[1] & 0xc0) == 0x80 && (b[2] & 0xc0) == 0x80 &&
        (b[3] & 0xc0) == 0x80) {
        c = (uint32_t)(b[0] & 7) << 18 | (uint32_t)(b[1] & 0x3f) << 12 |
            (uint32_t)(b[2] & 0x3f) << 6 | (b[3] & 0x3f);
        if (c >= 0x10000 && c <= 0x10ffff)
            *bytes = 4;
        return c;
    }
    return 0;
}

/* Pieces by text.  Hashes are polynomials, so that every part of a piece has its hash from the
 * hashes of two beginnings. */
struct names {
    uint32_t *slots; /* id + 1; 0 is free */
    uint64_t *hash;  /* by id */
    uint32_t mask;
};

static uint64_t text_hash(uint64_t base, const char *s, size_t n)
{
    uint64_t h = 0;

    for (size_t i = 0; i < n; i++)
        h = h * base + (uint8_t)s[i] + 1;
    return h;
}

static uint32_t name_slot(const struct names *names, uint64_t hash)
{
    return (uint32_t)((hash ^ hash >> 32) * 0x85ebca6bu >> 7) & names->mask;
}

static bool has_text(const struct tern_piece *p, bool match, const char *s, size_t n)
{
    return match ? p->match_len == n && memcmp(p->match, s, n) == 0
                 : p->len == n && memcmp(p->text, s, n) == 0;
}

/* The id named `s`, or -1. */
static int64_t find(const struct tern_token *t, const struct names *names, bool match,
                    const char *s, size_t n, uint64_t hash)
{
    for (uint32_t k = name_slot(names, hash);; k = (k + 1) & names->mask) {
        if (!names->slots[k])
            return -1;
        uint32_t id = names->slots[k] - 1;
        if (names->hash[id] == hash && has_text(&t->pieces[id], match, s, n))
            return id;
    }
}

/* No piece in `names` has the text of this one. */
static int is_new(const struct tern_token *t, const struct names *names, bool match, uint32_t id,
                  uint64_t hash, struct tern_err *err)
{
    const struct tern_piece *p = &t->pieces[id];
    const char *s = match ? p->match : p->text;
    size_t n = match ? p->match_len : p->len;
    int64_t other = find(t, names, match, s, n, hash);

    return other < 0 ? 0
                     : tern_err_set(err, TERN_USAGE, "%s: pieces %u and %u have the same text",
                                    t->path, (unsigned)other, id);
}

static int insert(const struct tern_token *t, struct names *names, bool match, uint32_t id,
                  struct tern_err *err)
{
    const struct tern_piece *p = &t->pieces[id];
    uint64_t hash =
        match ? text_hash(t->seed, p->match, p->match_len) : text_hash(t->seed, p->text, p->len);

    if (is_new(t, names, match, id, hash, err) < 0)
        return -1;
    uint32_t k = name_slot(names, hash);
    while (names->slots[k])
        k = (k + 1) & names->mask;
    names->slots[k] = id + 1;
    names->hash[id] = hash;
    return 0;
}

/* The smallest power of two with at least `n` slots to spare over `n`. */
static uint32_t slots_for(uint64_t n)
{
    uint32_t slots = 64;

    while (slots < 2 * n)
        slots *= 2;
    return slots;
}

static int names_new(struct names *names, uint32_t n_vocab, struct tern_err *err)
{
    uint32_t slots = slots_for(n_vocab);

    *names = (struct names){.mask = slots - 1};
    names->slots = tern_alloc(slots, sizeof *names->slots, "names of pieces", err);
    names->hash = tern_alloc(n_vocab, sizeof *names->hash, "names of pieces", err);
    return names->slots && names->hash ? 0 : -1;
}

static void names_free(struct names *names)
{
    free(names->slots);
    free(names->hash);
}

/* ---- spelling ---- */

/* May text become this piece of a SentencePiece model, by merging or as a whole?  A NUL does not.
 */
static bool merges(const struct tern_piece *p)
{
    return p->kind == TERN_PIECE_NORMAL || p->kind == TERN_PIECE_USER_DEFINED ||
           (p->kind == TERN_PIECE_UNUSED && !memchr(p->text, '\0', p->len));
}

/* Set match and match_len of the pieces that text can become. */
static int spell(struct tern_token *t, struct tern_err *err)
{
    size_t total = 0;

    for (uint32_t i = 0; i < t->n_vocab; i++)
        total += t->pieces[i].len;
    char *to = t->match_pool = tern_alloc(total + 1, 1, "pieces", err);
    if (!to)
        return -1;
    for (uint32_t i = 0; i < t->n_vocab; i++) {
        struct tern_piece *p = &t->pieces[i];
        char *start = to;
        bool plain_space = false;
        /* In a list of merges every piece of the model is text, whatever else it is. */
        if (t->format == TERN_TOKEN_JSON ? i >= t->n_model : !merges(p))
            continue;
        for (uint32_t k = 0; k < p->len;) {
            unsigned n;
            tern_token_utf8_decode(p->text + k, p->len - k, &n);
            if (n == 0)
                return tern_err_set(err, TERN_USAGE, "%s: piece %u is not UTF-8", t->path, i);
            if (t->escape_whitespaces && n == 3 && memcmp(p->text + k, TERN_SPACE_MARK, 3) == 0) {
                *to++ = ' ';
            } else {
                plain_space |= p->text[k] == ' ';
                memcpy(to, p->text + k, n);
                to += n;
            }
            k += n;
        }
        /* Where spaces are escaped, normalised text has no plain space to match. */
        if (plain_space && t->escape_whitespaces) {
            to = start;
            continue;
        }
        p->match = start;
        p->match_len = (uint32_t)(to - start);
    }
    return 0;
}

/* ---- characters ---- */

static uint32_t char_symbol(const struct tern_token *t, uint32_t code)
{
    for (uint32_t k = tern_char_slot(code) & t->char_mask;; k = (k + 1) & t->char_mask) {
        if (t->chars[k].symbol == TERN_SYMBOL_NONE || t->chars[k].code == code)
            return t->chars[k].symbol;
    }
}

static void char_set(struct tern_token *t, uint32_t code, uint32_t symbol)
{
    uint32_t k = tern_char_slot(code) & t->char_mask;

    while (t->chars[k].symbol != TERN_SYMBOL_NONE && t->chars[k].code != code)
        k = (k + 1) & t->char_mask;
    t->chars[k] = (struct tern_char){code, symbol};
    if (code < 128)
        t->ascii[code] = symbol;
}

static void near_set(struct tern_token *t, uint32_t a, uint32_t b)
{
    const enum tern_class left = a < 128 ? tern_token_class((uint8_t)a) : TERN_CLASS_BEYOND;

    t->joins[left] |= (uint8_t)(1 << (b < 128 ? tern_token_class((uint8_t)b) : TERN_CLASS_BEYOND));
    if (a < 128 && b < 128) {
        t->ascii_near[a][b >> 6] |= (uint64_t)1 << (b & 63);
        return;
    }
    uint32_t slot = tern_near_slot(a, b);
    t->near[slot >> 6] |= (uint64_t)1 << (slot & 63);
}

/* Give every character of every piece a symbol, and note its neighbours. */
static int read_chars(struct tern_token *t, struct tern_err *err)
{
    size_t most = 0; /* characters in all pieces, at most */

    for (uint32_t i = 0; i < t->n_vocab; i++)
        most += t->pieces[i].match_len;
    if (most > 0x110000)
        most = 0x110000;
    uint32_t slots = slots_for(most);
    t->char_mask = slots - 1;
    t->chars = tern_alloc(slots, sizeof *t->chars, "characters", err);
    t->near = tern_alloc((1 << TERN_NEAR_BITS) / 64, sizeof *t->near, "characters", err);
    if (!t->chars || !t->near)
        return -1;
    memset(t->ascii, 0xff, sizeof t->ascii);
    for (uint32_t k = 0; k < slots; k++)
        t->chars[k].symbol = TERN_SYMBOL_NONE;

    t->n_symbols = t->n_vocab;
    for (uint32_t i = 0; i < t->n_vocab; i++) {
        const struct tern_piece *p = &t->pieces[i];
        uint32_t before = 0;
        unsigned n;
        for (uint32_t k = 0; k < p->match_len; k += n) {
            uint32_t code = tern_token_utf8_decode(p->match + k, p->match_len - k, &n);
            if (n == p->match_len)
                char_set(t, code, i);
            else if (char_symbol(t, code) == TERN_SYMBOL_NONE)
                char_set(t, code, t->n_symbols++);
            if (k)
                near_set(t, before, code);
            before = code;
        }
    }
    return 0;
}

/* ---- pairs ---- */

struct pair_list {
    struct tern_pair *v;
    size_t n, cap;
};

static uint32_t part_symbol(const struct tern_token *t, const struct names *names, const char *s,
                            size_t n, uint64_t hash)
{
    unsigned bytes;
    uint32_t code = tern_token_utf8_decode(s, n, &bytes);

    if (bytes == n)
        return char_symbol(t, code);
    int64_t id = find(t, names, true, s, n, hash);
    return id < 0 ? TERN_SYMBOL_NONE : (uint32_t)id;
}

static int add_pair(struct pair_list *list, struct tern_pair pair, struct tern_err *err)
{
    if (list->n == list->cap) {
        size_t cap = list->cap ? 2 * list->cap : 8192;
        void *v = realloc(list->v, cap * sizeof *list->v);
        if (!v)
            return tern_err_sys(err, "merges");
        list->v = v;
        list->cap = cap;
    }
    list->v[list->n++] = pair;
    return 0;
}

/* All ways to make piece `id` from two symbols. */
static int cut_piece(struct tern_token *t, const struct names *names, const uint64_t *powers,
                     uint32_t id, struct pair_list *list, struct tern_err *err)
{
    struct tern_piece *p = &t->pieces[id];
    uint64_t left = 0;

    for (uint32_t k = 1; k < p->match_len; k++) {
        left = left * t->seed + (uint8_t)p->match[k - 1] + 1;
        if (((uint8_t)p->match[k] & 0xc0) == 0x80)
            continue;
        uint32_t n = p->match_len - k;
        uint64_t right = names->hash[id] - left * powers[n];
        uint32_t l = part_symbol(t, names, p->match, k, left);
        if (l == TERN_SYMBOL_NONE)
            continue;
        uint32_t r = part_symbol(t, names, p->match + k, n, right);
        if (r == TERN_SYMBOL_NONE)
            continue;
        if (add_pair(list, (struct tern_pair){.left = l, .right = r, .merged = id}, err) < 0)
            return -1;
        p->rank = 0; /* settled by rank_pieces */
    }
    return 0;
}

struct scored {
    float score;
    uint32_t id;
};

/* SentencePiece puts -0 below 0. */
static bool same_score(const struct scored *x, const struct scored *y)
{
    return x->score == y->score && !signbit(x->score) == !signbit(y->score);
}

static int by_score(const void *a, const void *b)
{
    const struct scored *x = a, *y = b;

    if (!same_score(x, y)) {
        bool falls = x->score != y->score ? x->score > y->score : signbit(y->score);
        return falls ? -1 : 1;
    }
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Pieces that merging can make are numbered by falling score. */
static int rank_pieces(struct tern_token *t, struct tern_err *err)
{
    struct scored *list = tern_alloc(t->n_vocab, sizeof *list, "ranks", err);
    uint32_t n = 0;
    int32_t rank = -1;

    if (!list)
        return -1;
    for (uint32_t i = 0; i < t->n_vocab; i++)
        if (t->pieces[i].rank != TERN_RANK_NONE)
            list[n++] = (struct scored){t->pieces[i].score, i};
    qsort(list, n, sizeof *list, by_score);
    for (uint32_t k = 0; k < n; k++) {
        if (k == 0 || !same_score(&list[k], &list[k - 1]))
            rank++;
        t->pieces[list[k].id].rank = rank;
        t->pieces[list[k].id].order = (int32_t)k;
    }
    free(list);
    return 0;
}

int tern_token_merges_new(struct tern_token *t, size_t n, struct tern_err *err)
{
    uint32_t slots = slots_for(n);

    t->pair_mask = slots - 1;
    t->pairs = tern_alloc(slots, sizeof *t->pairs, "merges", err);
    t->maybe = tern_alloc((1 << TERN_MAYBE_BITS) / 64, sizeof *t->maybe, "merges", err);
    for (uint32_t k = 0; t->pairs && k < slots; k++)
        t->pairs[k].rank = TERN_RANK_NONE;
    return t->pairs && t->maybe ? 0 : -1;
}

void tern_token_merge_add(struct tern_token *t, uint32_t left, uint32_t right, uint32_t merged,
                          int32_t rank)
{
    const uint32_t hash = tern_pair_hash(t->seed, left, right),
                   bit = hash >> (32 - TERN_MAYBE_BITS);
    uint32_t k = hash & t->pair_mask;

    t->maybe[bit >> 6] |= (uint64_t)1 << (bit & 63);
    while (t->pairs[k].rank != TERN_RANK_NONE &&
           (t->pairs[k].left != left || t->pairs[k].right != right))
        k = (k + 1) & t->pair_mask;
    t->pairs[k] = (struct tern_pair){left, right, merged, rank};
}

static int make_pairs(struct tern_token *t, const struct names *names, struct tern_err *err)
{
    struct pair_list list = {0};
    uint64_t *powers = tern_alloc(TERN_PIECE_BYTES_MAX + 1, sizeof *powers, "merges", err);
    int rc = -1;

    if (!powers)
        return -1;
    powers[0] = 1;
    for (size_t i = 1; i <= TERN_PIECE_BYTES_MAX; i++)
        powers[i] = powers[i - 1] * t->seed;
    for (uint32_t i = 0; i < t->n_vocab; i++)
        if (t->pieces[i].match && cut_piece(t, names, powers, i, &list, err) < 0)
            goto out;
    if (rank_pieces(t, err) < 0)
        goto out;
    if (tern_token_merges_new(t, list.n, err) < 0)
        goto out;
    for (size_t i = 0; i < list.n; i++)
        tern_token_merge_add(t, list.v[i].left, list.v[i].right, list.v[i].merged,
                             t->pieces[list.v[i].merged].rank);
    rc = 0;
out:
    free(list.v);
    free(powers);
    return rc;
}

/* ---- user-defined pieces ---- */

static int list_user(struct tern_token *t, struct tern_err *err)
{
    struct tern_prefixes *user = &t->user;

    for (uint32_t i = 0; i < t->n_vocab; i++)
        user->n += t->pieces[i].kind == TERN_PIECE_USER_DEFINED && t->pieces[i].match;
    if (user->n == 0)
        return 0;
    user->v = tern_alloc(user->n, sizeof *user->v, "user-defined pieces", err);
    if (!user->v)
        return -1;
    user->n = 0;
    for (uint32_t i = 0; i < t->n_vocab; i++) {
        const struct tern_piece *p = &t->pieces[i];
        if (p->kind == TERN_PIECE_USER_DEFINED && p->match)
            user->v[user->n++] = (struct tern_prefix){p->match, p->match_len, i};
    }
    tern_token_prefixes_sort(user);
    return 0;
}

/* ---- pieces by their bytes ---- */

uint32_t tern_token_find(const struct tern_token *t, const char *s, size_t len)
{
    const uint64_t hash = tern_token_bytes_hash(t->seed, s, len);

    for (uint32_t k = (uint32_t)hash & t->names_mask;; k = (k + 1) & t->names_mask) {
        const struct tern_name *name = &t->names[k];
        if (!name->id1)
            return TERN_SYMBOL_NONE;
        if (name->tag != (uint32_t)(hash >> 32))
            continue;
        const struct tern_piece *p = &t->pieces[name->id1 - 1];
        if (p->match_len == len && memcmp(p->match, s, len) == 0)
            return name->id1 - 1;
    }
}

static int build_bytes(struct tern_token *t, struct tern_err *err)
{
    uint32_t slots = slots_for(t->n_vocab);

    memset(t->byte_symbol, 0xff, sizeof t->byte_symbol);
    t->names_mask = slots - 1;
    t->names = tern_alloc(slots, sizeof *t->names, "names of pieces", err);
    if (!t->names)
        return -1;
    for (uint32_t i = 0; i < t->n_vocab; i++) {
        struct tern_piece *p = &t->pieces[i];
        if (!p->match)
            continue;
        if (p->match_len == 1)
            t->byte_symbol[(uint8_t)p->match[0]] = i;
        uint64_t hash = tern_token_bytes_hash(t->seed, p->match, p->match_len);
        uint32_t k = (uint32_t)hash & t->names_mask;
        while (t->names[k].id1)
            k = (k + 1) & t->names_mask;
        t->names[k] = (struct tern_name){(uint32_t)(hash >> 32), i + 1};
    }
    return 0;
}

/* ---- classes ---- */

/* Texts are cut by classes if that parts words. */
static void settle_classes(struct tern_token *t)
{
    const uint8_t space = 1 << TERN_CLASS_SPACE;

    t->joins[TERN_CLASS_BEYOND] |= 1 << TERN_CLASS_BEYOND; /* the bytes of a character */
    for (int c = 0; t->metaspace_split && c < TERN_CLASSES; c++)
        t->joins[c] &= (uint8_t)~space;
    t->by_class =
        t->user.n == 0 && !((t->joins[TERN_CLASS_LETTER] | t->joins[TERN_CLASS_OTHER]) & space);
}

/* ---- building ---- */

/* Of a vocabulary of characters whose merges are listed (tokenizer.json). */
static int build_listed(struct tern_token *t, struct tern_err *err)
{
    if (spell(t, err) < 0)
        return -1;
    if (read_chars(t, err) < 0)
        return -1;
    settle_classes(t);
    return 0;
}

static int build_sentencepiece(struct tern_token *t, struct tern_err *err)
{
    struct names texts = {0}, names = {0};
    int rc = -1;

    if (spell(t, err) < 0)
        return -1;
    if (names_new(&texts, t->n_vocab, err) < 0 || names_new(&names, t->n_vocab, err) < 0)
        goto out;
    for (uint32_t i = 0; i < t->n_vocab; i++) {
        const struct tern_piece *p = &t->pieces[i];
        if (!p->match && p->kind != TERN_PIECE_UNUSED && insert(t, &names, false, i, err) < 0)
            goto out;
        if (p->match && insert(t, &texts, true, i, err) < 0)
            goto out;
    }
    for (uint32_t i = 0; i < t->n_vocab; i++) {
        const struct tern_piece *p = &t->pieces[i];
        if (p->match && is_new(t, &names, false, i, text_hash(t->seed, p->text, p->len), err) < 0)
            goto out;
    }
    if (read_chars(t, err) < 0 || make_pairs(t, &texts, err) < 0 || list_user(t, err) < 0)
        goto out;
    settle_classes(t);
    rc = 0;
out:
    names_free(&texts);
    names_free(&names);
    return rc;
}

int tern_token_bpe_build(struct tern_token *t, struct tern_err *err)
{
    if (t->format == TERN_TOKEN_SENTENCEPIECE)
        return build_sentencepiece(t, err);
    if (tern_token_added_build(t, err) < 0)
        return -1;
    return t->byte_level ? build_bytes(t, err) : build_listed(t, err);
}
