/* core/token's readers of tokenizer.model: tiktoken files (Llama 3) and SentencePiece models. */
#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/token/vocab.h"
#include "tests/unit/tap.h"
#include "tests/unit/token_cases.h"

#define SHARED "../shared/data/tokenizers/"

enum { RANKS = 128000 };

/* ---- tiktoken ---- */

static void add_line(struct tern_buf *b, const void *piece, size_t n, unsigned rank)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const uint8_t *s = piece;

    for (size_t i = 0; i < n; i += 3) {
        uint32_t bits = (uint32_t)s[i] << 16;
        char four[4] = "===";
        bits |= i + 1 < n ? (uint32_t)s[i + 1] << 8 : 0;
        bits |= i + 2 < n ? (uint32_t)s[i + 2] : 0;
        for (size_t k = 0; k < 4; k++)
            four[k] = k <= n - i ? digits[bits >> (18 - 6 * k) & 63] : '=';
        tern_buf_add(b, four, 4);
    }
    tern_buf_printf(b, " %u\n", rank);
}

/* The bytes of rank `rank` of a made vocabulary: single bytes, then numbers. */
static size_t made_piece(unsigned rank, char to[16])
{
    if (rank >= 256)
        return (size_t)snprintf(to, 16, "%u", rank);
    to[0] = (char)rank;
    return 1;
}

static void made_file(struct tern_buf *b, unsigned n)
{
    char piece[16];

    for (unsigned i = 0; i < n; i++)
        add_line(b, piece, made_piece(i, piece), i);
}

/* A file called x.model of these bytes, not parsed yet. */
static struct tern_token *bytes_of(const char *data, size_t len)
{
    struct tern_token *t = tern_token_new(NULL);

    t->path = tern_strdup("x.model");
    t->pool = malloc(len + 1);
    memcpy(t->pool, data, len);
    t->pool[len] = '\0';
    return t;
}

static struct tern_token *parse(const char *data, size_t len, struct tern_err *err)
{
    struct tern_token *t = bytes_of(data, len);

    if (tern_token_tiktoken_parse(t, len, err) == 0)
        return t;
    tern_token_free(t);
    return NULL;
}

static bool piece_is(const struct tern_token *t, uint32_t id, const char *text)
{
    size_t len;
    const char *s = tern_token_piece(t, id, &len);

    return s && len == strlen(text) && memcmp(s, text, len) == 0;
}

static void test_specials(const struct tern_token *t)
{
    ok(tern_token_n_vocab(t) == RANKS + 256, "128,000 ranks have 256 special tokens");
    ok(t->bos == 128000 && t->eos == 128001 && t->unk == TERN_TOKEN_NONE,
       "Llama 3's BOS and EOS are 128000 and 128001");
    ok(piece_is(t, 128000, "<|begin_of_text|>") && piece_is(t, 128001, "<|end_of_text|>") &&
           piece_is(t, 128002, "<|reserved_special_token_0|>") &&
           piece_is(t, 128005, "<|reserved_special_token_3|>") &&
           piece_is(t, 128006, "<|start_header_id|>") && piece_is(t, 128007, "<|end_header_id|>") &&
           piece_is(t, 128008, "<|reserved_special_token_4|>") &&
           piece_is(t, 128009, "<|eot_id|>") &&
           piece_is(t, 128010, "<|reserved_special_token_5|>") &&
           piece_is(t, 128255, "<|reserved_special_token_250|>"),
       "special tokens have Meta's names");
    int bad = 0;
    for (uint32_t i = 0; i < t->n_added; i++)
        bad += t->added[i].id != RANKS + i || !t->added[i].special ||
               !piece_is(t, t->added[i].id, t->added[i].text) ||
               t->pieces[RANKS + i].kind != TERN_PIECE_CONTROL || t->pieces[RANKS + i].match;
    ok(t->n_added == 256 && bad == 0, "special tokens are control pieces that an encoder may seek");
    ok(t->byte_level && t->by_text && t->whole_first && t->split == TERN_SPLIT_LLAMA3,
       "a tiktoken file merges bytes by text, whole words first");
}

static void test_tiktoken(void)
{
    struct tern_buf b = {0};
    struct tern_err err = {0};
    char piece[16];
    int bad = 0;

    made_file(&b, RANKS);
    struct tern_token *t = parse(b.data, b.len, &err);
    if (ok(t != NULL, "128,000 ranks load")) {
        for (unsigned i = 0; i < RANKS; i++) {
            size_t n = made_piece(i, piece);
            const struct tern_piece *p = &t->pieces[i];
            bad += p->len != n || memcmp(p->text, piece, n) != 0 || p->match_len != n ||
                   memcmp(p->match, piece, n) != 0 || p->kind != TERN_PIECE_NORMAL;
        }
        ok(bad == 0, "pieces are the bytes of base64");
        test_specials(t);
    } else {
        printf("# %s\n", err.text);
    }
    tern_token_free(t);

    /* Lines in any order. */
    struct tern_buf back = {0};
    for (unsigned i = RANKS; i-- > 0;)
        add_line(&back, piece, made_piece(i, piece), i);
    t = parse(back.data, back.len, NULL);
    ok(t && t->pieces[127999].len == 6 && memcmp(t->pieces[127999].text, "127999", 6) == 0,
       "ranks may come in any order");
    tern_token_free(t);
    tern_buf_free(&back);
    tern_buf_free(&b);
}

/* 300 lines, of which line 280 (from 1) becomes `line`, which has its end. */
static void refused(const char *line, size_t len, const char *words)
{
    struct tern_buf b = {0};
    struct tern_err err = {0};
    char piece[16];

    for (unsigned i = 0; i < 300; i++) {
        if (i == 279)
            tern_buf_add(&b, line, len);
        else
            add_line(&b, piece, made_piece(i, piece), i);
    }
    struct tern_token *t = parse(b.data, b.len, &err);
    ok(!t && err.code == TERN_USAGE, "a line is refused: %s", words);
    has(err.text, words, "a refused line's error has the reason: %s", words);
    has(err.text, "x.model:280: ", "a refused line is named: %s", words);
    tern_token_free(t);
    tern_buf_free(&b);
}

static void test_bad_lines(void)
{
    static const struct {
        const char *line, *words;
    } lines[] = {
        {"\n", "is empty"},
        {" 279\n", "empty piece"},
        {"Mjc5 279\r\n", "carriage return"},
        {"Mjc5\n", "no rank"},
        {"Mjc5 \n", "no rank"},
        {"Mjc5 x\n", "rank is not a number"},
        {"Mjc5 -1\n", "rank is not a number"},
        {"Mjc5 279 \n", "rank is not a number"},
        {"Mjc5  279\n", "rank is not a number"},
        {"Mjc5 300\n", "rank is above 299"},
        {"Mjc5 99999999999999999999999\n", "rank is above 299"},
        {"Mjc5 278\n", "rank 278 comes a second time"},
        {"Mjc 279\n", "not base64"},
        {"Mjc5M 279\n", "not base64"},
        {"Mj=5 279\n", "not base64"},
        {"M=== 279\n", "not base64"},
        {"==== 279\n", "not base64"},
        {"MQ==Mjc5 279\n", "not base64"},
        {"Mjc* 279\n", "not base64"},
        {"Mjc\xc3 279\n", "not base64"},
        {"MR== 279\n", "not base64"},
        {"Mjd= 279\n", "not base64"},
        {"Mjc3 279\n", "ranks 277 and 279 have the same piece"},
    };
    char *longest = malloc(9000);

    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        refused(lines[i].line, strlen(lines[i].line), lines[i].words);
    memset(longest, 'A', 8000);
    memcpy(longest + 8000, " 279\n", 5);
    refused(longest, 8005, "longer than 4096 bytes");
    refused("Mj\0c 279\n", 9, "not base64");
    free(longest);
}

static void test_bad_files(void)
{
    struct tern_buf b = {0};
    struct tern_err err = {0};
    char piece[16];
    size_t accepted = 0, wordless = 0;

    made_file(&b, 300);
    ok(!parse(b.data, b.len, &err), "a tiktoken file of 300 ranks is refused");
    has(err.text, "300 ranks", "a tiktoken file that is not known is refused by its ranks");
    has(err.text, "tokenizer.json", "a tiktoken file that is not known: the way out is named");
    for (size_t cut = 0; cut < b.len; cut++) {
        err = (struct tern_err){0};
        struct tern_token *t = parse(b.data, cut, &err);
        accepted += t != NULL;
        wordless += err.code != TERN_USAGE || strncmp(err.text, "x.model", 7) != 0;
        tern_token_free(t);
    }
    ok(accepted == 0, "no beginning of a tiktoken file is accepted");
    ok(wordless == 0, "each refusal of a cut tiktoken file names it");
    parse(b.data, b.len - 1, &err);
    has(err.text, "x.model:300: is cut off", "a last line without its end is refused");

    tern_buf_clear(&b);
    for (unsigned i = 0; i < RANKS; i++)
        add_line(&b, i == 65 ? "AA" : piece, i == 65 ? 2 : made_piece(i, piece), i);
    ok(!parse(b.data, b.len, &err), "a tiktoken file without a piece for a byte is refused");
    has(err.text, "the byte 0x41", "a byte without a piece is named");

    tern_buf_clear(&b);
    for (unsigned i = 0; i < RANKS; i++)
        add_line(&b, i == 999 ? "<|eot_id|>" : piece, i == 999 ? 10 : made_piece(i, piece), i);
    ok(!parse(b.data, b.len, &err), "a piece that is written as a special token is refused");
    has(err.text, "x.model:1000: the piece is a special token, <|eot_id|>",
        "such a piece is named");
    tern_buf_free(&b);
}

static void test_llama3(void)
{
    char *data;
    size_t len;

    ok(tern_token_is_tiktoken("IQ== 0\r\n", 8) && !tern_token_is_tiktoken("\n\x0a", 2) &&
           !tern_token_is_tiktoken("version https", 13) && !tern_token_is_tiktoken("", 0),
       "a tiktoken file is known by its first line");
    if (tern_fs_read(SHARED "llama3/tokenizer.model", 1 << 24, &data, &len, NULL) < 0) {
        tap_skip("no shared data");
        return;
    }
    ok(tern_token_is_tiktoken(data, len), "Llama 3's file is a tiktoken file");
    struct tern_err err = {0};
    int64_t start = tern_clock_boot_ns();
    struct tern_token *t = parse(data, len, &err);
    double seconds = (double)(tern_clock_boot_ns() - start) * 1e-9;
    if (ok(t != NULL, "Llama 3's file loads")) {
        test_specials(t);
        ok(piece_is(t, 2028, "This") && piece_is(t, 16, "1") && piece_is(t, 271, "\n\n"),
           "Llama 3's pieces are the known ones");
    }
    bound(seconds, 0.03, "seconds to read Llama 3's file");
    tern_token_free(t);
    free(data);
}

/* ---- SentencePiece: character maps, unused pieces ---- */

/* tests/golden/spm-map.model has a map of its own (a text that becomes another, a space, several
 * spaces, or nothing), user-defined pieces with spaces in them, no byte fallback.  In
 * spm-unused.model half of the pieces are unused, spaces are suffixes, 70 user-defined pieces begin
 * with each other, and one piece is a NUL.  Both were trained on the Constitution of the United
 * States; the .tsv files have the ids of sentencepiece 0.2.3. */
#define MAP_MODEL "tests/golden/spm-map.model"
#define UNUSED_MODEL "tests/golden/spm-unused.model"

/* A model of these bytes. */
static struct tern_token *load_bytes(const char *data, size_t len, struct tern_err *err)
{
    struct tern_token *t = bytes_of(data, len);

    if (tern_token_spm_parse(t, len, err) == 0 && tern_token_bpe_build(t, err) == 0)
        return t;
    tern_token_free(t);
    return NULL;
}

static void test_golden(const char *model, const char *cases)
{
    struct tern_err err = {0};
    struct tern_token *t = tern_token_load(model, &err);
    struct tern_token_encoder *e = t ? tern_token_encoder_new(t, &err) : NULL;

    if (ok(e != NULL, "tokenizer.model %s loads", model))
        test_cases(t, e, cases);
    else
        printf("# %s\n", err.text);
    tern_token_encoder_free(e);
    tern_token_free(t);
}

/* A damaged model that loads all the same is used: nothing is read outside it. */
static void use(const struct tern_token *t)
{
    static const char text[] = "the \xef\xac\x81ne  a  b e\xcc\x81\xcc\x82 \xe3\x80\x80 T\xc2\xbd "
                               "\xe2\x96\x81\xe2\x96\x81\xff====\0 People of the United States,";
    struct tern_token_encoder *e = tern_token_encoder_new(t, NULL);
    struct tern_buf back = {0};
    const uint32_t *ids;
    size_t n;

    if (tern_token_encode(e, text, sizeof text, &ids, &n, NULL) == 0)
        tern_token_decode(t, ids, n, &back, NULL);
    tern_buf_free(&back);
    tern_token_encoder_free(e);
}

static void test_damage(const char *model, size_t step)
{
    struct tern_err err = {0};
    size_t len, accepted = 0, wordless = 0;
    char *data;

    if (!ok(tern_fs_read(model, 1 << 20, &data, &len, NULL) == 0, "%s is there", model))
        return;
    for (size_t cut = 0; cut < len; cut += step) {
        err = (struct tern_err){0};
        struct tern_token *t = load_bytes(data, cut, &err);
        accepted += t != NULL;
        wordless += !t && (err.code != TERN_USAGE || !strstr(err.text, "x.model"));
        tern_token_free(t);
    }
    ok(accepted == 0 && wordless == 0, "%s: each beginning is refused by its name", model);
    wordless = 0;
    for (size_t at = 0; at < len; at += 2 * step + 1) {
        err = (struct tern_err){0};
        data[at] ^= (char)(1 << at % 8);
        struct tern_token *t = load_bytes(data, len, &err);
        data[at] ^= (char)(1 << at % 8);
        if (t)
            use(t);
        wordless += !t && (err.code != TERN_USAGE || !strstr(err.text, "x.model"));
        tern_token_free(t);
    }
    ok(wordless == 0, "%s: flipped bits are refused by its name, or do no harm", model);
    free(data);
}

static void refused_with(const char *data, size_t len, const char *tail, size_t tail_len,
                         const char *words)
{
    struct tern_err err = {0};
    char *more = malloc(len + tail_len);

    memcpy(more, data, len);
    memcpy(more + len, tail, tail_len);
    struct tern_token *t = load_bytes(more, len + tail_len, &err);
    ok(!t && err.code == TERN_USAGE, "a model is refused: %s", words);
    has(err.text, words, "a refused model's error has the reason: %s", words);
    tern_token_free(t);
    free(more);
}

static void test_refusals(void)
{
    char *data;
    size_t len;

    if (tern_fs_read(MAP_MODEL, 1 << 20, &data, &len, NULL) < 0)
        return;
    refused_with(data, len, "\x2a\x03\x12\x01x", 5, "denormaliser");
    refused_with(data, len, "\x12\x02\x18\x01", 4, "unigram");
    refused_with(data, len, "\x0a\x05\x0a\x01\x00\x18\x01", 7, "holds a NUL");
    refused_with(data, len, "\x0a\x06\x0a\x02x\x00\x18\x05", 8, "holds a NUL");
    refused_with(data, len, "\x0a\x07\x0a\x03<s>\x18\x01", 9, "have the same text");
    refused_with(data, len, "\x0a\x07\x0a\x03<s>\x18\x05", 9, "have the same text");
    refused_with(data, len, "\x1a\x03\x12\x01x", 5, "character map is damaged");

    /* Another map is another vocabulary. */
    uint8_t a[TERN_SHA256_BYTES], b[TERN_SHA256_BYTES];
    char *more = malloc(len + 4);
    memcpy(more, data, len);
    memcpy(more + len, "\x1a\x02\x12\x00", 4);
    struct tern_token *with = load_bytes(data, len, NULL),
                      *without = load_bytes(more, len + 4, NULL);
    if (ok(with && without, "a model loads with its map, and without")) {
        tern_token_hash(with, a);
        tern_token_hash(without, b);
        ok(memcmp(a, b, sizeof a) != 0, "the vocabulary's name covers the character map");
    }
    tern_token_free(with);
    tern_token_free(without);
    free(more);
    free(data);
}

/* ---- crafted maps ---- */

enum { UNITS = 8192, LEAF = INT32_MIN };

struct crafted {
    uint32_t trie_bytes;
    uint32_t units[UNITS];
    char texts[16];
};

/* The child of `unit` by `byte` is to be `child`: that one gets its label, `unit` the base. */
static void link_units(struct crafted *c, uint32_t unit, uint8_t byte, uint32_t child)
{
    uint32_t base = child ^ byte;

    c->units[unit] = (c->units[unit] & 0x3ff) | (unit ^ base) << 10;
    if (child)
        c->units[child] = byte;
}

/* Its key "ab" becomes "x"; units that are in no key are leaves. */
static struct crafted *craft(void)
{
    struct crafted *c = calloc(1, sizeof *c);

    c->trie_bytes = sizeof c->units;
    for (uint32_t i = 1; i < UNITS; i++)
        c->units[i] = (uint32_t)LEAF;
    memcpy(c->texts, "x\0\xc3\xa9", 5);
    c->texts[15] = '\0';
    link_units(c, 0, 'a', 500);
    link_units(c, 500, 'b', 600);
    c->units[600] |= 1 << 8 | (600 ^ 700) << 10; /* has a leaf, which is unit 700 */
    return c;
}

static struct tern_charsmap *map_of(const struct crafted *c, size_t texts, struct tern_err *err)
{
    return tern_token_charsmap_new((const char *)c, sizeof c->trie_bytes + sizeof c->units + texts,
                                   "x.model", err);
}

static void crafted_refused(struct crafted *c, size_t texts, const char *words)
{
    struct tern_err err = {0};
    struct tern_charsmap *m = map_of(c, texts, &err);

    ok(!m && err.code == TERN_USAGE, "a crafted map is refused: %s", words);
    has(err.text, words, "a crafted map's error has the reason: %s", words);
    tern_token_charsmap_free(m);
    free(c);
}

static void test_crafted(void)
{
    struct crafted *c = craft();
    struct tern_charsmap *m = map_of(c, 16, NULL);
    const char *to;
    size_t to_len;

    if (ok(m != NULL, "a map made by hand is read")) {
        ok(tern_token_charsmap_next(m, "abc", 3, &to, &to_len) == 2 && to_len == 1 && *to == 'x',
           "a map finds its key");
        ok(tern_token_charsmap_next(m, "ab", 1, &to, &to_len) == 0,
           "a key is not found in its half");
        ok(tern_token_charsmap_next(m, "\0\xff", 2, &to, &to_len) == 0,
           "other bytes are not mapped");
    }
    tern_token_charsmap_free(m);
    c->trie_bytes = 1020;
    crafted_refused(c, 16, "cut off");
    c = craft();
    c->trie_bytes += 1024;
    crafted_refused(c, 16, "cut off");
    crafted_refused(craft(), 0, "cut off");
    crafted_refused(craft(), 1, "its last text is cut off");
    crafted_refused(craft(), 3, "its last text is cut off");
    c = craft();
    c->units[0] = 0;
    crafted_refused(c, 16, "no root");
    c = craft();
    c->units[500] = 'a' | (500 ^ (UNITS + 256)) << 10;
    crafted_refused(c, 16, "leads outside itself");
    c = craft();
    c->units[700] = 'z';
    crafted_refused(c, 16, "no text for a key");
    c = craft();
    c->units[700] = (uint32_t)LEAF | 16;
    crafted_refused(c, 16, "points outside its texts");
    c = craft();
    c->units[700] = (uint32_t)LEAF | 3;
    crafted_refused(c, 16, "points into a character");
    c = craft();
    c->texts[8] = '\xff';
    crafted_refused(c, 16, "not UTF-8");
    c = craft();
    c->units[600] = 'b' | 'b' << 10; /* its child by 'b' is itself */
    crafted_refused(c, 16, "its trie has no end");
    c = craft();
    link_units(c, 0, 'a', 256);
    for (uint32_t i = 256; i < 5256; i++)
        link_units(c, i, 'a', i + 1);
    c->units[5256] |= 1 << 8 | (5256 ^ 6000) << 10;
    crafted_refused(c, 16, "longer than 4096 bytes");
}

/* Of keys that begin with each other, the 32 shortest count. */
static void test_nested(void)
{
    struct crafted *c = craft();
    size_t to_len, taken[64] = {0};
    const char *to;
    char text[64];

    for (uint32_t k = 0; k < 40; k++) {
        link_units(c, 128 * k, 'a', 128 * (k + 1));
        c->units[128 * k] |= k ? 1 << 8 : 0; /* its leaf is at its base */
    }
    struct tern_charsmap *m = map_of(c, 16, NULL);
    memset(text, 'a', sizeof text);
    for (size_t n = 1; m && n < 64; n++)
        taken[n] = tern_token_charsmap_next(m, text, n, &to, &to_len);
    ok(m && taken[1] == 1 && taken[31] == 31 && taken[32] == 32 && taken[63] == 32,
       "of 39 keys that begin with each other, the longest of the 32 shortest is found");
    tern_token_charsmap_free(m);
    free(c);
}

int main(void)
{
    test_tiktoken();
    test_bad_lines();
    test_bad_files();
    test_llama3();
    test_golden(MAP_MODEL, "tests/golden/spm-map.tsv");
    test_golden(UNUSED_MODEL, "tests/golden/spm-unused.tsv");
    test_refusals();
    test_crafted();
    test_nested();
    test_damage(MAP_MODEL, /* step= */ 1);
    test_damage(UNUSED_MODEL, /* step= */ 29);
    return tap_done();
}
