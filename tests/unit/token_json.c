/* core/token's reader of tokenizer.json: what is supported means what Hugging Face's tokenizers
 * 0.23 makes of it, and all else is refused by name.  Ids of real and made files are compared with
 * that library by tests/peers/token.sh. */
#include "tests/unit/token_file.h"

/* ---- ids ---- */

/* The ids of a text as "1 2 3". */
static const char *ids_of(const struct tern_token *t, const char *text, bool specials)
{
    static char to[1024];
    struct tern_token_encoder *e = t ? tern_token_encoder_new(t, NULL) : NULL;
    const uint32_t *ids;
    size_t n = 0, at = 0;

    to[0] = '\0';
    if (!e)
        return "(none)";
    tern_token_encoder_specials(e, specials);
    if (tern_token_encode(e, text, strlen(text), &ids, &n, NULL) < 0)
        n = 0;
    for (size_t i = 0; i < n && at < sizeof to - 16; i++)
        at += (size_t)snprintf(to + at, sizeof to - at, "%s%u", i ? " " : "", ids[i]);
    tern_token_encoder_free(e);
    return to;
}

static const char *text_of_ids(const struct tern_token *t, const uint32_t *ids, size_t n)
{
    static char to[256];
    struct tern_buf b = {0};

    to[0] = '\0';
    if (t && tern_token_decode(t, ids, n, &b, NULL) == 0 && b.len < sizeof to && b.len)
        memcpy(to, b.data, b.len + 1);
    tern_buf_free(&b);
    return to;
}

static void test_characters(void)
{
    struct tern_err err = {0};
    struct tern_token *t = load(&llama, &err);

    if (!ok(t != NULL, "a file as Llama 2's loads")) {
        printf("# %s\n", err.text);
        return;
    }
    ok(t->n_vocab == 9 && t->n_model == 9 && t->unk == 0 && t->n_added == 3,
       "its size, its id for unknown text and its added tokens are known");
    ok(t->bos == 1 && t->eos == 2, "BOS and EOS are the special tokens with well-known names");
    is(ids_of(t, "ab ab", false), "7 7", "words are merged in the order of the list");
    is(ids_of(t, "  b", false), "8 3 5", "runs of spaces are merged");
    is(ids_of(t, "axyb", false), "3 4 0 5", "a run of unknown characters is one unk");
    is(ids_of(t, "a</s>", true), "3 4 2", "a special token is found when it is asked for");
    is(ids_of(t, "</s>", false), "3 0", "a special token is not found in a user's text");
    is(text_of_ids(t, (const uint32_t[]){1, 7, 7, 0, 2}, 5), "ab ab",
       "special tokens vanish when ids are decoded");
    tern_token_free(t);

    struct file f = llama;
    f.settings = "\"unk_token\":\"<unk>\",";
    t = load(&f, &err);
    is(ids_of(t, "axyb", false), "3 4 0 0 5", "without fuse_unk each character is an unk");
    tern_token_free(t);
    f.normalizer = NULL;
    f.pre = METASPACE(",\"prepend_scheme\":\"first\",\"split\":false");
    f.decoder = METASPACE(",\"prepend_scheme\":\"first\",\"split\":false");
    t = load(&f, &err);
    is(ids_of(t, "ab</s>ab", true), "7 2 6", "Metaspace puts a space before the first text alone");
    is(text_of_ids(t, (const uint32_t[]){8, 7}, 2), " ab",
       "Metaspace's decoder drops all marks of the first token");
    tern_token_free(t);
    f.pre = METASPACE(",\"add_prefix_space\":true");
    t = load(&f, &err);
    is(ids_of(t, "ab</s>ab", true), "7 2 7", "an older Metaspace puts one before every text");
    ok(t && t->metaspace_split, "Metaspace splits where it does not say otherwise");
    tern_token_free(t);
}

static void test_bytes(void)
{
    struct tern_err err = {0};
    char *vocab;
    struct file f = bytes_file(&vocab);
    struct tern_token *t = load(&f, &err);
    bool same = true;

    if (!ok(t != NULL, "a byte-level file loads"))
        printf("# %s\n", err.text);
    for (unsigned b = 0; t && b < 256; b++)
        same &= t->pieces[b].len == 1 && (uint8_t)t->pieces[b].text[0] == b;
    ok(same, "each of GPT-2's 256 letters is its byte");
    size_t len = 0;
    const char *piece = t ? tern_token_piece(t, 260, &len) : "";
    ok(len == 5 && memcmp(piece, " hell", 5) == 0, "a piece is kept as its bytes");
    is(ids_of(t, "hello hell", false), "258 111 32 258", "bytes are merged in the list's order");
    is(ids_of(t, "\xc3\xa9", false), "195 169", "a character without a piece is its bytes");
    is(ids_of(t, "a<|end|><tag>", false), "97 60 124 101 110 100 124 62 262",
       "added tokens are found in text, special ones are not");
    is(ids_of(t, "a<|end|><tag>", true), "97 261 262", "special ones are when they are asked for");
    is(text_of_ids(t, (const uint32_t[]){258, 195, 169, 261, 262}, 5), "hell\u00e9<tag>",
       "bytes become text when ids are decoded");
    is(text_of_ids(t, (const uint32_t[]){0xe2, 0x82, 'a', 0xff}, 4), "\ufffda\ufffd",
       "a character that is cut off is decoded as one U+FFFD");
    tern_token_free(t);
    f.settings = "\"ignore_merges\":true,\"type\":\"BPE\",";
    t = load(&f, &err);
    is(ids_of(t, " hell", false), "260", "with ignore_merges a word that is a piece is not merged");
    tern_token_free(t);
    f.pre =
        SEQUENCE("{\"type\":\"Digits\",\"individual_digits\":true}," BYTE_LEVEL("false", "true"));
    t = load(&f, &err);
    ok(t && t->split_digits && t->split == TERN_SPLIT_GPT2, "SmolLM's steps are read");
    tern_token_free(t);
    f.pre = SEQUENCE(SPLIT(QWEN2, "Isolated", "false") "," BYTE_LEVEL("false", "false"));
    f.normalizer = "{\"type\":\"NFC\"}";
    t = load(&f, &err);
    ok(t && t->split == TERN_SPLIT_QWEN2 && t->n_normals == 1 && !t->split_digits,
       "Qwen 2's steps are read");
    tern_token_free(t);
    f.pre = SEQUENCE(SPLIT(QWEN2, "Removed", "true") "," BYTE_LEVEL("false", "false"));
    t = load(&f, &err);
    ok(t && t->split == TERN_SPLIT_QWEN2, "words that are not removed are those of Isolated");
    tern_token_free(t);
    free(vocab);
}

/* A text with a letter that GPT-2 has not. */
static void test_other_letters(void)
{
    struct file f = {.pre = BYTE_LEVEL("false", "true"),
                     .vocab = "{\"\\u0000\":0,\"a\":1,\" b\":2}"};
    struct tern_err err = {0};
    struct tern_token *t = load(&f, &err);
    size_t len = 0;

    if (!ok(t != NULL, "a byte-level file with other letters loads"))
        printf("# %s\n", err.text);
    const char *s = t ? tern_token_piece(t, 2, &len) : "";
    ok(len == 2 && memcmp(s, " b", 2) == 0, "a piece with another letter keeps its text");
    is(ids_of(t, "a b", false), "1",
       "a piece with another letter is never met, and a byte without a piece vanishes");
    tern_token_free(t);
}

static void test_spellings(void)
{
    struct file f = llama;
    struct tern_err err = {0};

    f.merges = "[ [\"a\" , \"b\"],\n[\"\\u2581\",\"\\u0061b\"] ]";
    f.vocab = "{ \"<unk>\" :0 , \"<s>\":1,\"</s>\":2,\"\\u2581\":3,\"\\u0061\":4,\"b\":5,\"ab\":6,"
              "\"\\u2581ab\":7, \"\\ud83d\\ude00\":8, \"\\\"\\\\\\/\\n\" : 9\n}";
    struct tern_token *t = load(&f, &err);
    if (!ok(t != NULL, "escapes, spaces and pairs are read"))
        printf("# %s\n", err.text);
    is(ids_of(t, "ab\U0001f600", false), "7 8", "pairs and escapes mean the same as plain texts");
    size_t len = 0;
    const char *s = t ? tern_token_piece(t, 9, &len) : "";
    ok(len == 4 && memcmp(s, "\"\\/\n", 4) == 0, "short escapes stand for their characters");
    tern_token_free(t);
    f.merges = "[\"#version: 0.2\",\"a b\"]";
    f.settings = "";
    t = load(&f, &err);
    ok(t && t->pieces[6].order == 0, "a comment among the merges is left out");
    is(ids_of(t, "axb", false), "3 6",
       "without unk_token unknown characters vanish before merging");
    tern_token_free(t);
}

/* ---- added tokens ---- */

static void test_added(void)
{
    struct file f = llama;
    struct tern_err err = {0};

    f.added =
        "[" ADDED("0", "<unk>",
                  "true") ","
                          "{\"id\":9,\"content\":\"<l>\",\"special\":false,\"normalized\":false,"
                          "\"lstrip\":true,\"rstrip\":false,\"single_word\":false},"
                          "{\"id\":10,\"content\":\"<r>\",\"special\":false,\"normalized\":false,"
                          "\"lstrip\":false,\"rstrip\":true,\"single_word\":false},"
                          "{\"id\":11,\"content\":\"abw\",\"special\":false,\"normalized\":false,"
                          "\"lstrip\":false,\"rstrip\":false,\"single_word\":true}," TOKEN(
                              "12", "a b", "false", "true") "]";
    struct tern_token *t = load(&f, &err);
    if (!ok(t && t->n_vocab == 13 && t->n_model == 9, "added tokens follow the vocabulary"))
        printf("# %s\n", err.text);
    is(ids_of(t, "ab <l> b", false), "7 9 8 5", "lstrip takes the spaces before a token");
    is(ids_of(t, "ab <r> b", false), "7 3 10 3 5", "rstrip takes the spaces behind a token");
    is(ids_of(t, "abw abwx", false), "11 3 7 0", "single_word finds no part of a word");
    is(ids_of(t, "a b", false), "12", "a normalized token is found in normalised text");
    is(text_of_ids(t, (const uint32_t[]){7, 12}, 2), "ab a b",
       "a normalised token is decoded as it was found");
    ok(t && t->eos == TERN_TOKEN_NONE, "without a well-known special token there is no EOS");
    tern_token_free(t);
}

static void test_gaps(void)
{
    struct file f = llama;
    struct tern_err err = {0};

    f.vocab = "{\"<unk>\":0,\"<s>\":1,\"</s>\":2,\"\u2581\":3,\"a\":4,\"b\":5,\"ab\":8,"
              "\"\u2581ab\":9}";
    f.merges = "[\"a b\",\"\u2581 ab\"]";
    struct tern_token *t = load(&f, &err);
    if (!ok(t && t->n_vocab == 10, "ids may have gaps"))
        printf("# %s\n", err.text);
    size_t len = 1;
    ok(t && tern_token_piece(t, 7, &len) && len == 0, "an id in a gap has no text");
    is(ids_of(t, "ab", false), "9", "ids behind a gap are as the file has them");
    tern_token_free(t);
}

/* ---- refusals ---- */

#define AT(member) offsetof(struct file, member)

struct refusal {
    size_t member;
    const char *value, *words;
};

static const struct refusal of_characters[] = {
    {AT(version), "\"2.0\"", "a version other than"},
    {AT(post), "{\"type\":\"Odd\"}", "post_processor"},
    {AT(normalizer), "{\"type\":\"NFKC\"}", "normalizer NFKC is not supported"},
    {AT(normalizer), "{\"prepend\":\"x\"}", "normalizer without a type"},
    {AT(normalizer), "{\"type\":\"Sequence\"}", "normalizer Sequence without a list"},
    {AT(normalizer), "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\" \"},\"content\":\"x\"}",
     "Replace by a regular expression"},
    {AT(normalizer), "{\"type\":\"Replace\",\"pattern\":{\"String\":\"\"},\"content\":\"x\"}",
     "Replace of nothing"},
    {AT(normalizer), "{\"type\":\"Prepend\"}", "Prepend without a text"},
    {AT(normalizer),
     "{\"type\":\"Sequence\",\"normalizers\":[" REPLACE
     ",{\"type\":\"Prepend\",\"prepend\":\" \"}]}",
     "puts a space where spaces are U+2581"},
    {AT(pre), "{\"type\":\"Whitespace\"}", "pre_tokenizer Whitespace is not supported"},
    {AT(pre), SPLIT(QWEN2, "Isolated", "false"), "Split without ByteLevel"},
    {AT(pre), SPLIT("[a-z]+", "Isolated", "false"), "the regular expression [a-z]+"},
    {AT(pre), SPLIT(QWEN2, "Removed", "false"), "Split with this behavior"},
    {AT(pre), SPLIT(QWEN2, "Isolated", "1"), "has no true or false as 'invert'"},
    {AT(pre),
     "{\"type\":\"Split\",\"pattern\":{\"String\":\" \"},\"behavior\":\"Isolated\","
     "\"invert\":false}",
     "Split by a text"},
    {AT(pre), "{\"type\":\"Digits\",\"individual_digits\":false}", "individual_digits off"},
    {AT(pre), "{\"type\":\"Digits\",\"individual_digits\":true}", "Digits without ByteLevel"},
    {AT(pre),
     SEQUENCE("{\"type\":\"Digits\",\"individual_digits\":true}," BYTE_LEVEL("true", "true")),
     "add_prefix_space behind another step"},
    {AT(pre), SEQUENCE(SPLIT(QWEN2, "Isolated", "false") "," BYTE_LEVEL("false", "true")),
     "use_regex behind Split"},
    {AT(pre), SEQUENCE(BYTE_LEVEL("false", "true") "," METASPACE("")), "behind another step"},
    {AT(pre), "{\"type\":\"Metaspace\",\"replacement\":\"_\"}", "a replacement other than U+2581"},
    {AT(pre), METASPACE(",\"prepend_scheme\":\"last\""), "with this prepend_scheme"},
    {AT(pre), METASPACE(",\"prepend_scheme\":\"first\",\"add_prefix_space\":false"), "contradicts"},
    {AT(decoder), "{\"type\":\"WordPiece\"}", "decoder WordPiece is not supported"},
    {AT(decoder), BYTE_LEVEL("false", "true"), "ByteLevel with this pre_tokenizer"},
    {AT(decoder), "{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}", "decoder Strip"},
    {AT(decoder), "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\" \"}",
     "decoder Replace other than"},
    {AT(settings), "\"type\":\"Unigram\",", "a model of type 'Unigram'"},
    {AT(settings), "\"dropout\":0.1,", "model.dropout"},
    {AT(settings), "\"continuing_subword_prefix\":\"##\",", "model.continuing_subword_prefix"},
    {AT(settings), "\"end_of_word_suffix\":\"</w>\",", "model.end_of_word_suffix"},
    {AT(settings), "\"unk_token\":\"<none>\",", "model.unk_token is not in the vocabulary"},
    {AT(settings), "\"unk_token\":1,", "a model.unk_token that is no text"},
    {AT(settings), "\"fuse_unk\":1,", "model.fuse_unk is neither true nor false"},
    {AT(settings), "\"byte_fallback\":true,", "byte_fallback without a piece for each"},
    {AT(settings), "\"ignore_merges\":true,", "model.ignore_merges without ByteLevel"},
    {AT(vocab), NULL, "has no model.vocab"},
    {AT(vocab), "[]", "has no model.vocab"},
    {AT(vocab), "{}", "the vocabulary is empty"},
    {AT(vocab), "{\"a\":0,\"a\":1}", ":11: two pieces have the same text"},
    {AT(vocab), "{\"a\":0,\"\\u0061\":1}", "two pieces have the same text"},
    {AT(vocab), "{\"a\":0,\"b\":0}", "two pieces have the same id"},
    {AT(vocab), "{\"a\":-1}", "'-1' is no id"},
    {AT(vocab), "{\"a\":1.5}", "'1.5' is no id"},
    {AT(vocab), "{\"a\":01}", "'01' is no id"},
    {AT(vocab), "{\"a\":\"1\"}", "is no id"},
    {AT(vocab), "{\"a\":99999999999999999999}", "too large for a vocabulary"},
    {AT(vocab), "{\"a\":0,\"b\":4}", "too large for a vocabulary"},
    {AT(vocab), "{\"a\" 0}", "':' should stand here"},
    {AT(vocab), "{\"a\":0 \"b\":1}", "',' or '}' should stand here"},
    {AT(vocab), "{\"a\":0,}", "a string should stand here"},
    {AT(vocab), "{\"\\ud800\":0}", "a bad escape"},
    {AT(vocab), "{\"\\udc00\":0}", "a bad escape"},
    {AT(vocab), "{\"\\ud800\\u0041\":0}", "a bad escape"},
    {AT(vocab), "{\"\\u12g4\":0}", "a bad escape"},
    {AT(vocab), "{\"\\x\":0}", "a bad escape"},
    {AT(vocab), "{\"a\tb\":0}", "a control character"},
    {AT(vocab), "{\"\xff\":0}", "not UTF-8"},
    {AT(vocab), "{\"a\\n\xc0\xaf\":0}", "not UTF-8"},
    {AT(merges), "{}", "has no model.merges"},
    {AT(merges), "[\"a  b\"]", "a merge is two pieces and a space"},
    {AT(merges), "[\"ab\"]", "a merge is two pieces and a space"},
    {AT(merges), "[\"a \"]", "an empty part"},
    {AT(merges), "[\"x b\"]", "the merge 'x b' has a left part that is not in the vocabulary"},
    {AT(merges), "[\"a x\"]", "a right part that is not in the vocabulary"},
    {AT(merges), "[\"b a\"]", "a result that is not in the vocabulary"},
    {AT(merges), "[[\"a\",\"b\"],\"a b\"]", "a pair should stand here"},
    {AT(merges), "[\"a b\",[\"a\",\"b\"]]", "a string should stand here"},
    {AT(merges), "[[\"a\",\"b\",\"c\"]]", "']' should stand here"},
    {AT(merges), "[[\"a\"]]", "',' should stand here"},
    {AT(merges), "[1]", "a string should stand here"},
    {AT(added), "{}", "added_tokens that is no list"},
    {AT(added), "[1]", "an added token lacks its id or its content"},
    {AT(added), "[{\"id\":9,\"content\":\"\"}]", "an added token lacks its id or its content"},
    {AT(added), "[{\"id\":9,\"content\":\"x\"}]", "'x' has no true or false as 'special'"},
    {AT(added), "[" ADDED("9", "ab", "true") "]", "'ab' has id 9, but Hugging Face's"},
    {AT(added), "[" ADDED("12", "x", "true") "]", "'x' has id 12, but Hugging Face's"},
    {AT(added), "[" ADDED("0", "<unk>", "true") "," ADDED("0", "<unk>", "true") "]",
     "is there twice"},
};

static void refused(const struct file *of, const struct refusal *r)
{
    struct file f = *of;
    struct tern_err err = {0};

    memcpy((char *)&f + r->member, &r->value, sizeof r->value);
    struct tern_token *t = load(&f, &err);
    ok(!t && err.code == TERN_USAGE && strstr(err.text, "tokenizer.json"),
       "refused, with the file's name: %s", r->words);
    has(err.text, r->words, "the reason is given: %s", r->words);
    tern_token_free(t);
}

static void test_refusals(void)
{
    char *vocab;
    const struct file bytes = bytes_file(&vocab);
    static const struct refusal of_bytes[] = {
        {AT(decoder), LLAMA_DECODER, "decoder Replace with ByteLevel is not supported"},
        {AT(pre), "{\"type\":\"ByteLevel\"}", "has no true or false as 'add_prefix_space'"},
        {AT(added), "[" ADDED("261", "xx", "true") "," ADDED("262", "xx", "false") "]",
         "is there twice"},
    };
    struct file f = bytes;
    struct tern_err err = {0};

    for (size_t i = 0; i < sizeof of_characters / sizeof of_characters[0]; i++)
        refused(&llama, &of_characters[i]);
    for (size_t i = 0; i < sizeof of_bytes / sizeof of_bytes[0]; i++)
        refused(&bytes, &of_bytes[i]);
    f.normalizer = "{\"type\":\"Replace\",\"pattern\":{\"String\":\"y\"},\"content\":\"x\"}";
    f.added = "[" TOKEN("261", "xx", "false", "true") "," TOKEN("262", "xy", "false", "true") "]";
    ok(!load(&f, &err), "two added tokens that are one when normalised are refused");
    has(err.text, "is another one when it is normalised",
        "the reason is given: two added tokens are one when normalised");
    f.normalizer = "{\"type\":\"Replace\",\"pattern\":{\"String\":\"xy\"},\"content\":\"\"}";
    ok(!load(&f, &err), "an added token that is nothing when normalised is refused");
    has(err.text, "is nothing when it is normalised",
        "the reason is given: an added token is nothing when normalised");
    free(vocab);
}

static void test_whole_files(void)
{
    static const struct {
        const char *text, *words;
    } files[] = {
        {"", "tokenizer.json:1: not valid JSON"},
        {"[]", "is no JSON object"},
        {"{}", "has no model"},
        {"{\"model\":3}", "has no model"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"vocab\":{\"a\":0},\"merges\":[]}}", "duplicate"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]},\"model\":{}}", "duplicate"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}} x", "end of file expected"},
        {"{\"model\":{\"vocab\":{\"a\":0},\n\"merges\":[],\n]}}", "tokenizer.json:3: not valid"},
        {"{\"mod\\u0065l\":{\"vocab\":{\"a\":0},\"merges\":[]}}", "has no model.vocab"},
        {"{\"version\":\"a\\u0000\",\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}}", "\\u0000"},
    };
    struct tern_buf deep = {0};
    struct tern_err err = {0};

    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        struct tern_token *t = load_text(files[i].text, strlen(files[i].text), &err);
        ok(!t && err.code == TERN_USAGE, "tokenizer.json is refused: %s", files[i].words);
        has(err.text, files[i].words, "the reason is given: %s", files[i].words);
        tern_token_free(t);
    }
    tern_buf_puts(&deep, "{\"model\":{\"vocab\":");
    for (int i = 0; i < 100000; i++)
        tern_buf_puts(&deep, i % 2 ? "[" : "{\"a\":");
    ok(!load_text(deep.data, deep.len, &err) && err.code == TERN_USAGE,
       "a file of 100,000 open brackets is refused");
    tern_buf_clear(&deep);
    tern_buf_puts(&deep, "{\"normalizer\":");
    for (int i = 0; i < 20; i++)
        tern_buf_puts(&deep, "{\"type\":\"Sequence\",\"normalizers\":[");
    for (int i = 0; i < 20; i++)
        tern_buf_puts(&deep, "]}");
    tern_buf_puts(&deep, ",\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}}");
    ok(!load_text(deep.data, deep.len, &err), "lists in lists in lists are refused");
    has(err.text, "Sequence so deep", "the reason is given: lists in lists in lists");
    tern_buf_free(&deep);
}

static void test_damaged(void)
{
    char *text = text_of(&llama);
    const size_t len = strlen(text);
    int accepted = 0, wordless = 0;

    for (size_t cut = 0; cut + 2 < len; cut++) { /* without "}\n" */
        struct tern_err err = {0};
        struct tern_token *t = load_text(text, cut, &err);
        accepted += t != NULL;
        wordless += !t && (err.code != TERN_USAGE || !strstr(err.text, "tokenizer.json"));
        tern_token_free(t);
    }
    ok(accepted == 0, "no beginning of a file is taken for a file");
    for (size_t at = 0; at < len; at++) {
        static const char with[] = {1, 4, 0x20, (char)0x80};
        for (size_t k = 0; k < sizeof with; k++) {
            struct tern_err err = {0};
            text[at] ^= with[k];
            struct tern_token *t = load_text(text, len, &err);
            text[at] ^= with[k];
            wordless += !t && (err.code != TERN_USAGE || !strstr(err.text, "tokenizer.json"));
            if (t)
                ids_of(t, "ab </s>x", true);
            tern_token_free(t);
        }
    }
    ok(wordless == 0, "each refusal of a damaged file names the file");
    free(text);
}

static void test_ignored(void)
{
    struct file f = llama;

    f.truncation = "{\"max_length\":2,\"strategy\":\"LongestFirst\",\"stride\":0}";
    struct tern_token *t = load(&f, NULL);
    is(ids_of(t, "ab ab ab", false), "7 7 7", "a file's truncation is not applied");
    tern_token_free(t);
    f.settings = "\"dropout\":0.0,\"end_of_word_suffix\":\"\",\"unk_token\":\"<unk>\",";
    t = load(&f, NULL);
    ok(t != NULL, "a dropout of 0 and an empty suffix change nothing");
    tern_token_free(t);
}

/* ---- written ---- */

/* Llama 3's vocabulary as its tokenizer.model has it, and as the file made of that has it. */
static void test_written(void)
{
    static const char *const texts[] = {"Hello world", "  it's 12345 \"quoted\\\" \r\n\n x",
                                        "caf\xc3\xa9 \xe4\xbd\xa0 \xf0\x9f\x98\x80",
                                        "<|eot_id|> in a text"};
    struct tern_err err = {0};
    uint8_t hash[TERN_SHA256_BYTES], names[TERN_TOKEN_NAMES][TERN_SHA256_BYTES];
    struct tern_token *t = tern_token_load(SHARED "llama3/tokenizer.model", &err);
    char *path = tern_fs_join(work, "tokenizer.json");

    if (!t) {
        tap_skip("Llama 3's vocabulary written as JSON: ../shared/data is not there");
        free(path);
        return;
    }
    ok(tern_token_write_json(t, path, &err) == 0, "Llama 3's vocabulary is written as JSON");
    struct tern_token *j = tern_token_load(path, &err);
    if (ok(j != NULL, "the written vocabulary is read again: %s", err.text)) {
        ok(j->n_vocab == t->n_vocab && j->bos == t->bos && j->eos == t->eos,
           "the written vocabulary has the size, BOS and EOS of its source");
        ok(j->n_added == 256, "the written vocabulary has the 256 special tokens");
        for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
            char expected[1024];
            snprintf(expected, sizeof expected, "%s", ids_of(t, texts[i], true));
            is(ids_of(j, texts[i], true), expected, "the written vocabulary gives text %zu its ids",
               i);
        }
    }
    tern_token_hash(t, hash);
    ok(tern_token_json_hash(path, names, &err) == 1 && memcmp(names[0], hash, sizeof hash) == 0,
       "the written vocabulary has the name of its source");
    tern_token_free(j);
    tern_token_free(t);
    free(path);
}

int main(void)
{
    if (!mkdtemp(work))
        return 1;
    test_characters();
    test_bytes();
    test_other_letters();
    test_spellings();
    test_added();
    test_gaps();
    test_ignored();
    test_refusals();
    test_whole_files();
    test_damaged();
    test_written();
    remove_file("tokenizer.json");
    rmdir(work);
    return tap_done();
}
