/* core/infer: draws from logits, and generated tokens as text while they come; core/instruct:
 * prompts without their answers. */
#include "core/infer/sample.h"
#include "core/infer/stream.h"
#include "core/instruct/instruct.h"
#include "tests/unit/token_file.h"

#include "core/base/rand.h"

#include <math.h>

/* ---------------------------------------------------------------- draws */

enum { N = 6, DRAWS = 40000 };

static const tern_real logits[N] = {0.5F, 2, -1, 1.5F, 2, 0};

static struct tern_infer_sampler *sampler(double temperature, int top_k, double top_p)
{
    const struct tern_infer_sampling how = {temperature, top_k, top_p, 42};

    return tern_infer_sampler_new(&how, N, NULL);
}

/* Shares of DRAWS draws are `wanted` (not normalised) within three standard deviations. */
static void test_shares(const char *what, double temperature, int top_k, double top_p,
                        const double wanted[N])
{
    struct tern_infer_sampler *s = sampler(temperature, top_k, top_p);
    double sum = 0, worst = 0;
    int count[N] = {0}, none = 1;

    for (int i = 0; i < DRAWS; i++)
        count[tern_infer_sample(s, logits, 0, (uint64_t)i, NULL)]++;
    for (int i = 0; i < N; i++)
        sum += wanted[i];
    for (int i = 0; i < N; i++) {
        double p = wanted[i] / sum, sigma = sqrt(p * (1 - p) / DRAWS);
        none &= wanted[i] > 0 || count[i] == 0;
        if (sigma > 0)
            worst = fmax(worst, fabs(count[i] / (double)DRAWS - p) / sigma);
    }
    ok(none && worst < 3, "%s: %d draws have the shares of the logits (%.2f standard deviations)",
       what, DRAWS, worst);
    tern_infer_sampler_free(s);
}

static void test_draws(void)
{
    double all[N], warm[N];

    for (int i = 0; i < N; i++) {
        all[i] = exp((double)logits[i]);
        warm[i] = exp((double)logits[i] / 2);
    }
    test_shares("temperature 1", 1, 0, 1, all);
    test_shares("temperature 2", 2, 0, 1, warm);
    test_shares("top_k 3", 1, 3, 1, (double[]){0, all[1], 0, all[3], all[4], 0});
    test_shares("top_k 2", 2, 2, 1, (double[]){0, 1, 0, 0, 1, 0});
    /* Shares: .079 .354 .018 .214(token 3) .354 .048: token 1 is .332 of all. */
    test_shares("top_p 0.6", 1, 0, 0.6, (double[]){0, all[1], 0, 0, all[4], 0});
    test_shares("top_p 0.9", 1, 0, 0.9, (double[]){all[0], all[1], 0, all[3], all[4], 0});
    test_shares("top_p 0.01: one token always stays", 1, 0, 0.01, (double[]){0, 1, 0, 0, 0, 0});
    /* Of tokens 1, 3 and 4 alone, .383 .232 .383: of all logits 0.75 would need token 3, too. */
    test_shares("top_p 0.75 is a share of top_k 3", 1, 3, 0.75,
                (double[]){0, all[1], 0, 0, all[4], 0});
}

static void test_places(void)
{
    const struct tern_infer_sampling other = {1, 0, 1, 43};
    struct tern_infer_sampler *a = sampler(1, 0, 1), *b = sampler(1, 0, 1),
                              *c = tern_infer_sampler_new(&other, N, NULL);
    int same = 1, seeds = 0, streams = 0;

    for (int i = 999; i >= 0; i--) {
        int32_t id = tern_infer_sample(a, logits, 3, (uint64_t)i, NULL);
        same &= id == tern_infer_sample(b, logits, 3, (uint64_t)i, NULL);
        seeds += id == tern_infer_sample(c, logits, 3, (uint64_t)i, NULL);
        streams += id == tern_infer_sample(b, logits, 4, (uint64_t)i, NULL);
    }
    ok(same, "the same seed, stream and place draw the same token, in any order");
    ok(seeds < 500 && streams < 500, "another seed, and another stream, draw other ones");
    tern_infer_sampler_free(a);
    tern_infer_sampler_free(b);
    tern_infer_sampler_free(c);
}

static void test_greedy(void)
{
    const tern_real bad[] = {0, (tern_real)NAN, 3, 1, 1, 1};
    const tern_real endless[] = {0, 1, (tern_real)INFINITY, 1, 1, 1};
    struct tern_infer_sampler *s = sampler(0, 0, 1), *t = sampler(1, 0, 1);
    struct tern_err err = {0};

    ok(tern_infer_sample(s, logits, 0, 0, &err) == 1,
       "temperature 0 takes the largest logit, the first of equals");
    ok(tern_infer_sample(s, bad, 0, 0, &err) < 0 && tern_infer_sample(t, endless, 0, 0, &err) < 0,
       "logits that are no numbers are refused: %s", err.text);
    double sum = 0;
    for (int i = 0; i < N; i++)
        sum += exp(tern_infer_logprob(logits, N, i));
    ok(fabs(sum - 1) < 1e-6 && fabs(tern_infer_logprob(logits, N, 1) + 1.1036) < 0.001,
       "logarithms of probabilities are those of the softmax (%.3f)",
       tern_infer_logprob(logits, N, 1));
    tern_infer_sampler_free(s);
    tern_infer_sampler_free(t);
}

/* ---------------------------------------------------------------- text */

static bool is_whole(const char *s, size_t len)
{
    for (size_t at = 0, n; at < len; at += n)
        if ((n = tern_str_utf8(s + at, len - at)) == 0)
            return false;
    return true;
}

/* Give ids one by one: are the pieces whole characters, and together the decoder's text? */
static bool streams(const struct tern_token *t, const uint32_t *ids, size_t n, int *ret_pieces)
{
    struct tern_infer_stream *s = tern_infer_stream_new(t, -1, NULL, 0, NULL);
    struct tern_buf got = {0}, want = {0};
    const char *text;
    size_t len;
    bool good = true;

    for (size_t i = 0; i < n; i++) {
        good &= tern_infer_stream_add(s, ids[i], &text, &len, NULL) == 0 && is_whole(text, len);
        tern_buf_add(&got, text, len);
        *ret_pieces += len > 0;
    }
    tern_infer_stream_end(s, &text, &len);
    tern_buf_add(&got, text, len);
    tern_token_decode(t, ids, n, &want, NULL);
    const char *whole = tern_infer_stream_text(s, &len);
    good &=
        got.len == want.len && len == want.len &&
        (len == 0 || (memcmp(got.data, want.data, len) == 0 && memcmp(whole, want.data, len) == 0));
    tern_buf_free(&got);
    tern_buf_free(&want);
    tern_infer_stream_free(s);
    return good;
}

static void test_random(const struct tern_token *t, uint32_t first, uint32_t ids_, const char *what)
{
    enum { LEN = 40, TEXTS = 500 };
    uint32_t ids[LEN];
    int bad = 0, pieces = 0;

    for (uint64_t k = 0; k < TEXTS; k++) {
        for (uint64_t i = 0; i < LEN; i++)
            ids[i] = first + (uint32_t)tern_rand_below(7, k, i, ids_);
        bad += !streams(t, ids, LEN, &pieces);
    }
    ok(bad == 0 && pieces > TEXTS / 5,
       "%s: %d texts of random tokens come in %d pieces of whole characters, the decoder's", what,
       TEXTS, pieces);
}

/* Bytes of two characters: nothing comes until one is whole. */
static void test_characters(const struct tern_token *t, const uint32_t *byte, bool at_once,
                            const char *what)
{
    static const uint8_t bytes[] = {0xe2, 0x82, 0xac, 0xc3, 0xa9};
    struct tern_infer_stream *s = tern_infer_stream_new(t, -1, NULL, 0, NULL);
    size_t len[5], all = 0;
    const char *text;

    for (int i = 0; i < 5; i++) {
        tern_infer_stream_add(s, byte[bytes[i]], &text, &len[i], NULL);
        all += len[i];
    }
    if (at_once)
        ok(len[0] == 0 && len[1] == 0 && len[2] == 3 && len[3] == 0 && len[4] == 2,
           "%s: bytes come when their character is whole", what);
    else
        ok(all == 0, "%s: a run of bytes waits for its end, which may change all of it", what);
    tern_infer_stream_end(s, &text, &len[0]);
    const char *whole = tern_infer_stream_text(s, &all);
    ok(all == 5 && memcmp(whole, "\xe2\x82\xac\xc3\xa9", 5) == 0 && len[0] == (at_once ? 0 : 5),
       "%s: the end gives the rest", what);
    tern_infer_stream_free(s);
}

static void test_text(const struct tern_token *spm)
{
    struct tern_token_encoder *e = tern_token_encoder_new(spm, NULL);
    const char *text = "Zażółć gęślą jaźń, 日本語 😀 the end";
    const uint32_t *ids;
    const char *piece;
    size_t n, len;
    int pieces = 0;

    tern_token_encode(e, text, strlen(text), &ids, &n, NULL);
    bool good = streams(spm, ids, n, &pieces);
    ok(good && pieces > 20, "a text of many scripts comes in %d pieces of whole characters",
       pieces);

    struct tern_infer_stream *s = tern_infer_stream_new(spm, (int32_t)ids[0], NULL, 0, NULL);
    tern_token_encode(e, "the", 3, &ids, &n, NULL);
    tern_infer_stream_add(s, ids[0], &piece, &len, NULL);
    ok(len > 1 && piece[0] == ' ', "text that follows a prompt keeps the space of its first word");
    ok(tern_infer_stream_add(s, 1 << 20, &piece, &len, NULL) == 0 && len == 0,
       "an id that the tokenizer lacks has no text");
    tern_infer_stream_free(s);
    tern_token_encoder_free(e);
}

#define BAD "\xef\xbf\xbd"

/* The text of `ids` behind a prompt that ends with `before`; "broken" where a piece is
 * no whole characters, or the pieces are not the text. */
static char *behind(const struct tern_token *t, uint32_t before, const uint32_t *ids, size_t n)
{
    static const char *const stops[] = {"stop it", "\n\n\n\n\n"};
    struct tern_infer_stream *s = tern_infer_stream_new(t, (int32_t)before, stops, 2, NULL);
    struct tern_buf got = {0};
    const char *text;
    size_t len;
    bool good = true;

    for (size_t i = 0; i < n; i++) {
        good &= tern_infer_stream_add(s, ids[i], &text, &len, NULL) == 0 && is_whole(text, len);
        tern_buf_add(&got, text, len);
    }
    tern_infer_stream_end(s, &text, &len);
    good &= is_whole(text, len);
    tern_buf_add(&got, text, len);
    text = tern_infer_stream_text(s, &len);
    good &= len == got.len && (len == 0 || memcmp(text, got.data, len) == 0);
    char *to = tern_strf("%s%.*s", good ? "" : "broken: ", (int)got.len, got.len ? got.data : "");
    tern_buf_free(&got);
    tern_infer_stream_free(s);
    return to;
}

/* A prompt may end with a byte of a character, whole or not: its answer is a text of its own. */
static void test_behind(const struct tern_token *t, const uint32_t *byte, bool runs,
                        const char *what)
{
    static const struct {
        const char *in, *out, *run, *what; /* run: where bad bytes spoil the others */
        uint8_t before;
    } cases[] = {
        {"\n\n\n", "\n\n\n", "\n\n\n", "newlines behind an emoji are newlines", 0x80},
        {"\xc3\xa9", "\xc3\xa9", "\xc3\xa9", "a character behind an emoji is whole", 0x80},
        {"\xf0\n", BAD "\n", BAD BAD, "a cut character behind a newline is U+FFFD", '\n'},
        {"\xa9\n", BAD "\n", BAD BAD, "the prompt's cut character takes no byte", 0xc3},
        {"", "", "", "an answer without tokens is empty", 0x80},
    };

    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        uint32_t ids[4];
        const size_t n = strlen(cases[c].in);
        for (size_t i = 0; i < n; i++)
            ids[i] = byte[(uint8_t)cases[c].in[i]];
        char *got = behind(t, byte[cases[c].before], ids, n);
        is(got, runs ? cases[c].run : cases[c].out, "%s: %s", what, cases[c].what);
        free(got);
    }
}

/* Text that is fed a byte at a time, until a stop. */
static void test_stop(const struct tern_token *bytes)
{
    static const char *const stops[] = {"END", "\n\n", "abcabd"};
    static const struct {
        const char *in, *out;
        bool ends;
    } cases[] = {
        {"to the END of it", "to the ", true},
        {"a\nb\n\nc", "a\nb", true},
        {"EN EEND", "EN E", true},
        {"EN", "EN", false},
        {"abcabcabd!", "abc", true},
        {"no stop\n", "no stop\n", false},
    };

    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct tern_infer_stream *s = tern_infer_stream_new(bytes, -1, stops, 3, NULL);
        struct tern_buf got = {0};
        const char *text;
        size_t len;
        int rc = 0;

        for (const char *at = cases[c].in; *at && rc == 0; at++) {
            rc = tern_infer_stream_add(s, (uint8_t)*at, &text, &len, NULL);
            tern_buf_add(&got, text, len);
        }
        tern_infer_stream_end(s, &text, &len);
        tern_buf_add(&got, text, len);
        is(got.data ? got.data : "", cases[c].out, "a text ends before --stop, case %zu", c + 1);
        ok(rc == cases[c].ends, "case %zu: the stop is %s", c + 1,
           cases[c].ends ? "found" : "not found");
        tern_buf_free(&got);
        tern_infer_stream_free(s);
    }
}

/* ---------------------------------------------------------------- prompts of templates */

/* An id below 256 is a byte. */
static void add_id(struct tern_buf *to, const struct tern_token *t, uint32_t id)
{
    size_t len;
    const char *s = tern_token_piece(t, id, &len);

    tern_buf_add(to, id < 256 ? (char[]){(char)id} : s, id < 256 ? 1 : len);
}

/* "ids | text | answer": of a record, in `template`. */
static char *prompt_of(const char *template, const struct tern_token *t, const char *record)
{
    struct tern_err err = {0};
    struct tern_instruct *i =
        tern_instruct_open(&(struct tern_instruct_how){.template = template}, t, &err);
    struct tern_instruct_encoder *e = tern_instruct_encoder_new(i, NULL);
    struct tern_instruct_prompt p;
    struct tern_buf b = {0};

    if (tern_instruct_prompt(e, record, strlen(record), &p, &err) < 0) {
        tern_buf_printf(&b, "error %d: %s", err.code, err.text);
    } else {
        for (size_t k = 0; k < p.n; k++)
            add_id(&b, t, p.ids[k]);
        tern_buf_printf(&b, " | %.*s | %.*s", (int)p.text_len, p.text, (int)p.answer_len,
                        p.answer ? p.answer : "none");
        tern_buf_puts(&b, p.answer ? "" : "none");
    }
    tern_instruct_encoder_free(e);
    tern_instruct_free(i);
    return b.data;
}

#define HEADERS                                                                                    \
    ADDED("261", "<|start_header_id|>", "true")                                                    \
    "," ADDED("262", "<|end_header_id|>", "true") "," ADDED(                                       \
        "263", "<|eot_id|>", "true") "," ADDED("264", "<|end_of_text|>",                           \
                                               "true") "," ADDED("265", "<|begin_of_text|>",       \
                                                                 "true")

static const struct {
    const char *template, *record, *want, *what;
} prompt_cases[] = {
    {"dolly", "{\"instruction\": \"Why?\", \"response\": \"So.\"}",
     "### Instruction\nWhy?\n\n### Answer\n | ### Instruction\nWhy?\n\n### Answer\n | So.",
     "a record's answer is kept apart"},
    {"dolly", "{\"instruction\": \"Why?\", \"context\": \"c\"}",
     "### Instruction\nWhy?\n\n### Context\nc\n\n### Answer\n | ### Instruction\nWhy?\n\n"
     "### Context\nc\n\n### Answer\n | none",
     "a record may have no answer"},
    {"dolly", "{\"instruction\": \"Why?\", \"response\": \"\"}",
     "### Instruction\nWhy?\n\n### Answer\n | ### Instruction\nWhy?\n\n### Answer\n | none",
     "a record may have an empty answer"},
    {"llama3-chat", "{\"prompt\": \"Why?\"}",
     "<|start_header_id|>user<|end_header_id|>\n\nWhy?<|eot_id|><|start_header_id|>assistant"
     "<|end_header_id|>\n\n | user\n\nWhy?assistant\n\n | none",
     "a question alone is a chat"},
    {"llama3-chat", "{\"prompt\": \"Why?\", \"completion\": \"\"}",
     "<|start_header_id|>user<|end_header_id|>\n\nWhy?<|eot_id|><|start_header_id|>assistant"
     "<|end_header_id|>\n\n | user\n\nWhy?assistant\n\n | none",
     "so is one whose answer is empty"},
    {"llama3-chat",
     "{\"messages\": [{\"role\": \"user\", \"content\": \"Why?\"}, {\"role\": "
     "\"assistant\", \"content\": \"\"}]}",
     "<|start_header_id|>user<|end_header_id|>\n\nWhy?<|eot_id|><|start_header_id|>assistant"
     "<|end_header_id|>\n\n | user\n\nWhy?assistant\n\n | none",
     "a conversation's last answer may be empty"},
    {"llama3-chat",
     "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": "
     "\"assistant\", \"content\": \"\"}, {\"role\": \"user\", \"content\": \"c\"}]}",
     "error 2: message 2 (assistant) is empty; text is wanted", "another answer may not"},
    {"llama3-chat",
     "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": "
     "\"assistant\", \"content\": \"b\"}, {\"role\": \"user\", \"content\": \"c\"}, "
     "{\"role\": \"assistant\", \"content\": \"d\"}]}",
     "<|start_header_id|>user<|end_header_id|>\n\na<|eot_id|><|start_header_id|>assistant"
     "<|end_header_id|>\n\nb<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nc<|eot_id|>"
     "<|start_header_id|>assistant<|end_header_id|>\n\n | user\n\naassistant\n\nbuser\n\nc"
     "assistant\n\n | d",
     "of a conversation the last answer is left out"},
    {"dolly", "{\"context\": \"c\"}",
     "error 2: no field 'instruction', which template dolly wants (found: context)",
     "a prompt's own fields must be there"},
    {"llama3-chat", "{\"messages\": [{\"role\": \"system\", \"content\": \"a\"}]}",
     "error 2: ends with the message of role system; an answer of the assistant is wanted",
     "a system's message alone is no prompt"},
};

static void test_prompts(struct file f)
{
    f.added = "[" HEADERS "]";
    struct tern_token *bytes = load(&f, NULL);

    for (size_t i = 0; i < sizeof prompt_cases / sizeof *prompt_cases; i++) {
        char *got = prompt_of(prompt_cases[i].template, bytes, prompt_cases[i].record);
        /* BOS is the document's, where the template has it. */
        const char *at = strncmp(got, "<|begin_of_text|>", 17) == 0 ? got + 17 : got;
        is(at, prompt_cases[i].want, "prompts: %s", prompt_cases[i].what);
        free(got);
    }
    struct tern_instruct *chat = tern_instruct_open(
                             &(struct tern_instruct_how){.template = "llama3-chat"}, bytes, NULL),
                         *dolly = tern_instruct_open(
                             &(struct tern_instruct_how){.template = "dolly"}, bytes, NULL);
    ok(tern_instruct_end(chat) == 263 && tern_instruct_end(dolly) == TERN_TOKEN_NONE,
       "a template says which special token ends an answer");
    tern_instruct_free(chat);
    tern_instruct_free(dolly);
    tern_token_free(bytes);
}

/* Characters with bytes for those that it lacks, as Llama 2's tokenizer.json: ids 3 to 258. */
static struct tern_token *fallback(void)
{
    struct tern_buf vocab = {0};
    struct file f = llama;
    struct tern_err err = {0};

    tern_buf_puts(&vocab, "{\"<unk>\":0,\"<s>\":1,\"</s>\":2");
    for (unsigned b = 0; b < 256; b++)
        tern_buf_printf(&vocab, ",\"<0x%02X>\":%u", b, b + 3);
    tern_buf_puts(&vocab, ",\"a\":259,\"\u2581\":260,\"\u2581a\":261}");
    f.vocab = vocab.data;
    f.merges = "[\"\u2581 a\"]";
    f.settings = "\"type\":\"BPE\",\"unk_token\":\"<unk>\",\"fuse_unk\":true,"
                 "\"byte_fallback\":true,";
    f.post = "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\","
             "\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":[],"
             "\"special_tokens\":{}}";
    struct tern_token *t = load(&f, &err);
    if (!t)
        printf("# %s\n", err.text);
    tern_buf_free(&vocab);
    return t;
}

int main(void)
{
    char *vocab;
    struct file f = bytes_file(&vocab);

    if (!mkdtemp(work))
        return 1;
    test_draws();
    test_places();
    test_greedy();
    test_prompts(f);
    struct tern_token *spm = tern_token_load("tests/golden/spm-bpe-800.model", NULL),
                      *bytes = load(&f, NULL), *fall = fallback(), *none = load(&llama, NULL);
    if (ok(spm && bytes && fall && none, "tokenizers of all kinds load")) {
        uint32_t byte[3][256];
        for (uint32_t b = 0; b < 256; b++) {
            char piece[8];
            byte[0][b] = b;
            byte[1][b] = b + 3;
            snprintf(piece, sizeof piece, "<0x%02X>", b);
            for (uint32_t id = 0; id < tern_token_n_vocab(spm); id++) {
                size_t len;
                const char *s = tern_token_piece(spm, id, &len);
                if (len == 6 && memcmp(s, piece, 6) == 0)
                    byte[2][b] = id;
            }
        }
        test_random(bytes, 0, 261, "a vocabulary of bytes");
        test_random(fall, 0, 262, "characters and bytes");
        test_random(spm, 0, tern_token_n_vocab(spm), "SentencePiece");
        test_random(spm, byte[2][0], 256, "SentencePiece's bytes");
        test_characters(bytes, byte[0], true, "a vocabulary of bytes");
        test_characters(fall, byte[1], false, "characters and bytes");
        test_characters(spm, byte[2], true, "SentencePiece");
        test_behind(bytes, byte[0], false, "a vocabulary of bytes");
        test_behind(fall, byte[1], true, "characters and bytes");
        test_behind(spm, byte[2], false, "SentencePiece");
        char *word = behind(fall, byte[1][0x80], (uint32_t[]){261}, 1);
        is(word, " a", "a word behind an emoji keeps its space");
        free(word);
        test_text(spm);
        test_stop(bytes);
        ok(tern_token_begins(spm) && tern_token_begins(fall) && !tern_token_begins(none) &&
               !tern_token_begins(bytes),
           "texts begin with BOS where the tokenizer's own library puts it");
    }
    tern_token_free(spm);
    tern_token_free(bytes);
    tern_token_free(fall);
    tern_token_free(none);
    free(vocab);
    remove_file("tokenizer.json");
    rmdir(work);
    return tap_done();
}
