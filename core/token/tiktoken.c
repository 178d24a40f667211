/* tiktoken files, such as Llama 3's tokenizer.model: a line a piece, with its bytes in base64 and
 * its rank. The rank is its id and its place in the order of merges.
 *
 * The file has neither the expression that cuts texts into words nor the special tokens.  Both are
 * known by the number of ranks. */
#include "core/token/vocab.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Llama 3, 3.1, 3.2 and 3.3 have one file.  Its 256 special tokens follow the ranks, by the names
 * of Meta's tokenizer.py for Llama 3. */
enum { LLAMA3_RANKS = 128000, LLAMA3_SPECIALS = 256, LLAMA3_BOS = 0, LLAMA3_EOS = 1 };

static const struct {
    uint32_t at;
    const char *name;
} llama3_names[] = {{LLAMA3_BOS, "<|begin_of_text|>"},
                    {LLAMA3_EOS, "<|end_of_text|>"},
                    {6, "<|start_header_id|>"},
                    {7, "<|end_header_id|>"},
                    {9, "<|eot_id|>"}};

bool tern_token_is_tiktoken(const char *text, size_t len)
{
    size_t piece =
        strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=");

    return piece > 0 && piece + 1 < len && text[piece] == ' ' && text[piece + 1] >= '0' &&
           text[piece + 1] <= '9';
}

struct reader {
    struct tern_token *t;
    uint32_t n_ranks;  /* lines of the file */
    uint32_t line;     /* from 1 */
    int8_t digit[256]; /* of base64; -1 for other characters */
};

__attribute__((format(printf, 3, 4))) static int
bad_line(const struct reader *r, struct tern_err *err, const char *fmt, ...)
{
    char text[200];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return tern_err_set(err, TERN_USAGE, "%s:%u: %s. Fetch the file again.", r->t->path, r->line,
                        text);
}

/* The bytes of `n` characters of base64 in *to, which moves on; -1 when they are damaged. */
static int from_base64(const struct reader *r, const char *s, size_t n, char **to)
{
    char *at = *to;

    if (n == 0 || n % 4)
        return -1;
    for (; n; s += 4, n -= 4) {
        int pad = n > 4 || s[3] != '=' ? 0 : s[2] != '=' ? 1 : 2;
        int a = r->digit[(uint8_t)s[0]], b = r->digit[(uint8_t)s[1]];
        int c = pad > 1 ? 0 : r->digit[(uint8_t)s[2]], d = pad ? 0 : r->digit[(uint8_t)s[3]];
        if ((a | b | c | d) < 0)
            return -1;
        uint32_t bits = (uint32_t)a << 18 | (uint32_t)b << 12 | (uint32_t)c << 6 | (uint32_t)d;
        if (bits & ((1u << 8 * pad) - 1)) /* bits that no byte takes */
            return -1;
        *at++ = (char)(bits >> 16);
        if (pad < 2)
            *at++ = (char)(bits >> 8);
        if (pad < 1)
            *at++ = (char)bits;
    }
    *to = at;
    return 0;
}

/* A line without its end; its bytes go to *to, which moves on. */
static int read_line(struct reader *r, const char *s, size_t n, char **to, struct tern_err *err)
{
    const char *space = memchr(s, ' ', n), *start = *to;
    size_t piece = space ? (size_t)(space - s) : n;
    uint64_t rank = 0;

    if (n && s[n - 1] == '\r')
        return bad_line(r, err, "ends with a carriage return");
    if (piece == 0)
        return bad_line(r, err, n ? "has an empty piece" : "is empty");
    if (from_base64(r, s, piece, to) < 0)
        return bad_line(r, err, "its piece is not base64");
    if (*to - start > TERN_PIECE_BYTES_MAX)
        return bad_line(r, err, "its piece is longer than %d bytes", TERN_PIECE_BYTES_MAX);
    if (piece + 1 >= n)
        return bad_line(r, err, "has no rank");
    for (size_t i = piece + 1; i < n; i++) {
        if (s[i] < '0' || s[i] > '9')
            return bad_line(r, err, "its rank is not a number");
        rank = rank * 10 + (uint64_t)(s[i] - '0');
        if (rank >= r->n_ranks)
            return bad_line(r, err, "its rank is above %u, but the file has %u lines",
                            r->n_ranks - 1, r->n_ranks);
    }
    struct tern_piece *p = &r->t->pieces[rank];
    if (p->text)
        return bad_line(r, err, "rank %u comes a second time", (unsigned)rank);
    *p = (struct tern_piece){.text = start,
                             .match = start,
                             .len = (uint32_t)(*to - start),
                             .match_len = (uint32_t)(*to - start),
                             .rank = TERN_RANK_NONE,
                             .order = TERN_RANK_NONE,
                             .kind = TERN_PIECE_NORMAL};
    return 0;
}

/* Every line has a rank of its own below their number: together they have all ranks. */
static int read_lines(struct reader *r, size_t len, struct tern_err *err)
{
    const char *s = r->t->pool, *end = s + len;
    char *to = tern_token_keep(r->t, len / 4 * 3 + 1, err);

    if (!to)
        return -1;
    while (s < end) {
        const char *eol = memchr(s, '\n', (size_t)(end - s));
        r->line++;
        if (!eol)
            return bad_line(r, err, "is cut off");
        if (read_line(r, s, (size_t)(eol - s), &to, err) < 0)
            return -1;
        s = eol + 1;
    }
    return 0;
}

static int check_bytes(const struct tern_token *t, uint32_t n_ranks, struct tern_err *err)
{
    bool found[256] = {false};

    for (uint32_t i = 0; i < n_ranks; i++)
        if (t->pieces[i].len == 1)
            found[(uint8_t)t->pieces[i].text[0]] = true;
    for (unsigned b = 0; b < 256; b++)
        if (!found[b])
            return tern_err_set(err, TERN_USAGE,
                                "%s: no piece for the byte 0x%02x. Fetch the file again.", t->path,
                                b);
    return 0;
}

static int add_special(struct reader *r, uint32_t at, const char *name, struct tern_err *err)
{
    struct tern_token *t = r->t;
    const uint32_t len = (uint32_t)strlen(name), id = r->n_ranks + at;
    char *text = tern_token_keep(t, len + 1, err);

    if (!text)
        return -1;
    memcpy(text, name, len + 1);
    t->pieces[id] = (struct tern_piece){.text = text,
                                        .len = len,
                                        .rank = TERN_RANK_NONE,
                                        .order = TERN_RANK_NONE,
                                        .kind = TERN_PIECE_CONTROL};
    t->added[at] = (struct tern_added){
        .text = text, .find = text, .len = len, .find_len = len, .id = id, .special = true};
    return 0;
}

/* ---- pieces that are there twice ---- */

static uint64_t text_hash(uint64_t seed, const struct tern_piece *p)
{
    uint64_t h = p->len;

    for (uint32_t i = 0; i < p->len; i++)
        h = (h ^ (uint8_t)p->text[i]) * seed;
    return h;
}

/* The line of a rank, from 1. */
static uint32_t line_of(const struct tern_token *t, uint32_t rank)
{
    uint32_t line = 1;

    for (const char *s = t->pool; strtoul(strchr(s, ' '), NULL, 10) != rank; line++)
        s = strchr(s, '\n') + 1;
    return line;
}

static int twice(const struct reader *r, uint32_t a, uint32_t b, struct tern_err *err)
{
    if (b >= r->n_ranks)
        return tern_err_set(err, TERN_USAGE,
                            "%s:%u: the piece is a special token, %s. Fetch the file again.",
                            r->t->path, line_of(r->t, a), r->t->pieces[b].text);
    return tern_err_set(err, TERN_USAGE,
                        "%s:%u: ranks %u and %u have the same piece. Fetch the file again.",
                        r->t->path, line_of(r->t, b), a, b);
}

/* A slot is free (0), or an id + 1 with ten bits of its text's hash above. Most other pieces need
 * no look, which is a miss of the cache. */
enum { ID_BITS = 22 };

/* Note piece `id`: TERN_SYMBOL_NONE, or the earlier piece of the same text. */
static uint32_t name_piece(const struct tern_token *t, uint32_t *names, uint32_t mask,
                           uint64_t hash, uint32_t id)
{
    const struct tern_piece *p = &t->pieces[id];
    const uint32_t tag = (uint32_t)(hash >> 54) << ID_BITS;
    uint32_t k = (uint32_t)(hash >> 24) & mask;

    for (; names[k]; k = (k + 1) & mask) {
        uint32_t other = (names[k] & ((1u << ID_BITS) - 1)) - 1;
        if ((names[k] ^ tag) >> ID_BITS == 0 && t->pieces[other].len == p->len &&
            memcmp(t->pieces[other].text, p->text, p->len) == 0)
            return other;
    }
    names[k] = tag | (id + 1);
    return TERN_SYMBOL_NONE;
}

/* Slots are fetched AHEAD of their use: a quarter of the time for Llama 3. */
static int check_names(const struct reader *r, struct tern_err *err)
{
    enum { AHEAD = 16 };
    const struct tern_token *t = r->t;
    uint64_t hash[AHEAD];
    uint32_t slots = 1024, other = TERN_SYMBOL_NONE, id = 0;

    while (slots < 2 * t->n_vocab)
        slots *= 2;
    uint32_t *names = tern_alloc(slots, sizeof *names, "names of pieces", err);
    if (!names)
        return -1;
    for (uint32_t i = 0; i < t->n_vocab + AHEAD && other == TERN_SYMBOL_NONE; i++) {
        uint64_t *h = &hash[i % AHEAD];
        if (i >= AHEAD) {
            id = i - AHEAD;
            other = name_piece(t, names, slots - 1, *h, id);
        }
        if (i < t->n_vocab) {
            *h = text_hash(t->seed, &t->pieces[i]);
            __builtin_prefetch(&names[(*h >> 24) & (slots - 1)], 1);
        }
    }
    free(names);
    return other == TERN_SYMBOL_NONE ? 0 : twice(r, other, id, err);
}

static int add_llama3(struct reader *r, struct tern_err *err)
{
    struct tern_token *t = r->t;
    uint32_t named = 0, reserved = 0;

    t->added = tern_alloc(LLAMA3_SPECIALS, sizeof *t->added, "special tokens", err);
    if (!t->added)
        return -1;
    t->n_added = LLAMA3_SPECIALS;
    for (uint32_t i = 0; i < LLAMA3_SPECIALS; i++) {
        char name[40];
        bool has_name =
            named < sizeof llama3_names / sizeof llama3_names[0] && llama3_names[named].at == i;
        snprintf(name, sizeof name, "<|reserved_special_token_%u|>", reserved);
        if (add_special(r, i, has_name ? llama3_names[named].name : name, err) < 0)
            return -1;
        named += has_name;
        reserved += !has_name;
    }
    t->n_vocab = LLAMA3_RANKS + LLAMA3_SPECIALS;
    t->bos = LLAMA3_RANKS + LLAMA3_BOS;
    t->eos = LLAMA3_RANKS + LLAMA3_EOS;
    t->split = TERN_SPLIT_LLAMA3;
    t->byte_level = t->by_text = t->whole_first = true;
    return 0;
}

static int reader_new(struct reader *r, size_t n_lines, struct tern_err *err)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

    if (n_lines > TERN_TOKEN_VOCAB_MAX - LLAMA3_SPECIALS)
        return tern_err_set(err, TERN_USAGE, "%s: %zu lines; %d ranks are supported", r->t->path,
                            n_lines, LLAMA3_RANKS);
    r->n_ranks = r->t->n_model = (uint32_t)n_lines;
    r->t->pieces = tern_alloc(n_lines + LLAMA3_SPECIALS, sizeof *r->t->pieces, "pieces", err);
    memset(r->digit, -1, sizeof r->digit);
    for (int8_t i = 0; i < 64; i++)
        r->digit[(uint8_t)digits[i]] = i;
    return r->t->pieces ? 0 : -1;
}

int tern_token_tiktoken_parse(struct tern_token *t, size_t len, struct tern_err *err)
{
    struct reader r = {.t = t};
    size_t n_lines = 0;

    for (size_t i = 0; i < len; i++)
        n_lines += t->pool[i] == '\n';
    if (reader_new(&r, n_lines, err) < 0 || read_lines(&r, len, err) < 0)
        return -1;
    t->n_vocab = r.n_ranks;
    if (r.n_ranks == LLAMA3_RANKS && add_llama3(&r, err) < 0)
        return -1;
    if (check_bytes(t, r.n_ranks, err) < 0 || check_names(&r, err) < 0)
        return -1;
    if (r.n_ranks != LLAMA3_RANKS)
        return tern_err_set(
            err, TERN_USAGE,
            "%s: a tiktoken file of %u ranks, whose way to cut words is not known (known is Llama "
            "3's, of %d). Use the tokenizer.json of the same model.",
            t->path, r.n_ranks, LLAMA3_RANKS);
    return 0;
}
