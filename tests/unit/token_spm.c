/* core/token's readers of tokenizer.model: tiktoken files (Llama 3) and SentencePiece models. */
#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/token/vocab.h"
#include "tests/unit/tap.h"

#include <unistd.h>

#define SHARED "../shared/data/tokenizers/"

enum { RANKS = 128000 };

static char work[] = "/tmp/tern-token-spm-XXXXXX";

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

/* Parse `len` bytes as a file called x.model. */
static struct tern_token *parse(const char *data, size_t len, struct tern_err *err)
{
    struct tern_token *t = calloc(1, sizeof *t);

    t->path = tern_strdup("x.model");
    t->bos = t->eos = t->unk = TERN_TOKEN_NONE;
    t->pool = malloc(len + 1);
    memcpy(t->pool, data, len);
    t->pool[len] = '\0';
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

int main(void)
{
    if (!mkdtemp(work))
        return 1;
    test_tiktoken();
    test_bad_lines();
    test_bad_files();
    test_llama3();
    rmdir(work);
    return tap_done();
}
