/* core/token: which file of a model's folder is read, its BOS and EOS, and names of vocabularies.
 */
#include "core/base/log.h"
#include "tests/unit/token_file.h"

/* ---- names ---- */

static const char *name_of(const struct file *f, int *rc)
{
    static char hex[TERN_SHA256_HEX];
    uint8_t loaded[TERN_SHA256_BYTES], names[TERN_TOKEN_NAMES][TERN_SHA256_BYTES];
    char *path = tern_fs_join(work, "tokenizer.json");
    struct tern_token *t = load(f, NULL);

    *rc = tern_token_json_hash(path, names, NULL);
    free(path);
    if (!t || *rc != 1) {
        tern_token_free(t);
        return "(none)";
    }
    tern_token_hash(t, loaded);
    tern_token_free(t);
    if (memcmp(loaded, names[0], sizeof loaded) != 0)
        return "(another)";
    return tern_hex(hex, loaded, sizeof loaded);
}

static void test_names(void)
{
    char *vocab, first[TERN_SHA256_HEX];
    struct file f = bytes_file(&vocab);
    int rc;

    snprintf(first, sizeof first, "%s", name_of(&f, &rc));
    /* Sets on disk carry this. */
    is(first, "28555530eaabc6d3d316f22c16bd72e59eda700e3a153763aef567e4d07ea842",
       "a byte-level vocabulary's name is the known one");
    f.added = "[" ADDED("261", "<pad>", "true") "]";
    f.merges = "[\"l l\",\"h e\"]";
    is(name_of(&f, &rc), first, "added tokens and merges are no part of a byte-level name");
    f.added = "[" ADDED("260", "\u0120hell", "true") "]";
    ok(strcmp(name_of(&f, &rc), first) != 0, "a piece that is special is no part of it");
    ok(strlen(name_of(&llama, &rc)) == 64, "a vocabulary of characters has one name both ways");
    f = llama;
    f.vocab = "{\"<unk>\":0,\"<s>\":1,\"</s>\":2,\"\u2581\":3,\"a\":5}";
    f.merges = "[]";
    name_of(&f, &rc);
    ok(rc == 0, "a vocabulary of characters with gaps has no name");
    f.vocab = "{\"<unk>\":0,\"<s>\":0}";
    name_of(&f, &rc);
    ok(rc == -1, "the name of a damaged file is an error");
    free(vocab);
}

/* tokenizer.json of a tiktoken file's vocabulary. */
static void test_tiktoken_name(void)
{
    struct tern_token *t = tern_token_load(SHARED "llama3/tokenizer.model", NULL);
    uint8_t want[TERN_SHA256_BYTES], names[TERN_TOKEN_NAMES][TERN_SHA256_BYTES];
    struct tern_buf b = {0};
    char s[4];

    if (!t) {
        printf("# no shared data\n");
        return;
    }
    tern_buf_puts(&b, "{\"pre_tokenizer\":" BYTE_LEVEL("false", "false") ",\"added_tokens\":[");
    for (uint32_t i = 0; i < t->n_added; i++)
        tern_buf_printf(&b, "%s{\"id\":%u,\"content\":\"%.*s\"," FLAGS("true", "false"),
                        i ? "," : "", t->added[i].id, (int)t->added[i].len, t->added[i].text);
    tern_buf_puts(&b, "],\"model\":{\"merges\":[],\"vocab\":{");
    for (uint32_t i = 0; i < t->n_model; i++) {
        tern_buf_puts(&b, i ? ",\"" : "\"");
        for (uint32_t k = 0; k < t->pieces[i].len; k++) {
            letter((uint8_t)t->pieces[i].text[k], s);
            tern_buf_puts(&b, s[0] == '"' || s[0] == '\\' ? "\\" : "");
            tern_buf_puts(&b, s);
        }
        tern_buf_printf(&b, "\":%u", i);
    }
    tern_buf_puts(&b, "}}}");
    write_file("tokenizer.json", b.data, b.len);
    char *path = tern_fs_join(work, "tokenizer.json");
    tern_token_hash(t, want);
    ok(tern_token_json_hash(path, names, NULL) == 1 && memcmp(names[0], want, sizeof want) == 0,
       "Llama 3's tiktoken file and a tokenizer.json of its vocabulary have one name");
    free(path);
    tern_buf_free(&b);
    tern_token_free(t);
}

/* ---- folders ---- */

/* Load the folder with a tokenizer.json like Llama's and the configurations given (NULL: none);
 * BOS and EOS as "1 2", or the error. */
static const char *specials(const char *tokenizer, const char *map, const char *config)
{
    static char to[sizeof((struct tern_err *)0)->text];
    static const char *const names[] = {"tokenizer_config.json", "special_tokens_map.json",
                                        "config.json"};
    const char *texts[] = {tokenizer, map, config};
    char *text = text_of(&llama);
    struct tern_err err = {0};

    write_file("tokenizer.json", text, strlen(text));
    free(text);
    for (size_t i = 0; i < 3; i++)
        if (texts[i])
            write_file(names[i], texts[i], strlen(texts[i]));
    struct tern_token *t = tern_token_load(work, &err);
    snprintf(to, sizeof to, "%s", err.text);
    if (t)
        snprintf(to, sizeof to, "%d %d", (int)t->bos, (int)t->eos);
    tern_token_free(t);
    for (size_t i = 0; i < 3; i++)
        remove_file(names[i]);
    return to;
}

static void test_specials(void)
{
    is(specials(NULL, NULL, NULL), "1 2", "without configuration well-known names are taken");
    is(specials("{\"bos_token\":\"a\",\"eos_token\":{\"content\":\"b\"}}", "{\"eos_token\":\"ab\"}",
                "{\"eos_token_id\":3}"),
       "4 5", "tokenizer_config.json counts first, names are texts or objects");
    is(specials("{\"model_max_length\":1000000000000000019884624838656}", "{\"eos_token\":\"ab\"}",
                "{\"eos_token_id\":3,\"bos_token_id\":4}"),
       "4 6", "special_tokens_map.json comes next, then config.json");
    is(specials("{\"bos_token\":null,\"eos_token\":\"\"}", NULL,
                "{\"eos_token_id\":[3,4],\"bos_token_id\":4}"),
       "-1 3", "null is none, an empty text says nothing, the first of several ids ends documents");
    has(specials("{\"eos_token\":\"x\"}", NULL, NULL), "eos_token 'x' is not in the vocabulary of",
        "a name that is not in the vocabulary is refused");
    has(specials("{\"eos_token\":7}", NULL, NULL), "tokenizer_config.json: eos_token is no text",
        "a name that is no text is refused");
    has(specials(NULL, NULL, "{\"eos_token_id\":9}"), "config.json: eos_token_id is no id of",
        "an id outside the vocabulary is refused");
    has(specials(NULL, NULL, "{\"eos_token_id\":1.5}"), "config.json: eos_token_id is no id of",
        "an id that is no whole number is refused");
    has(specials("{\"eos_token\":", NULL, NULL), "tokenizer_config.json:1: not valid JSON",
        "a damaged configuration is named");
    has(specials("[]", NULL, NULL), "tokenizer_config.json: is no JSON object",
        "a configuration that is a list is named");
}

static char logged[512];

static void note(const char *line, size_t len)
{
    snprintf(logged, sizeof logged, "%.*s", (int)len, line);
}

static void test_folder(void)
{
    char *json = text_of(&llama), *model;
    struct tern_err err = {0};
    size_t len;

    remove_file("tokenizer.json");
    write_file("vocab.json", "{}", 2);
    write_file("merges.txt", "", 0);
    ok(!tern_token_load(work, &err), "a folder with vocab.json and merges.txt alone is refused");
    has(err.text, "save_pretrained", "the error names the way to a tokenizer.json");
    remove_file("vocab.json");
    remove_file("merges.txt");
    if (tern_fs_read("tests/golden/spm-bpe-800.model", 1 << 20, &model, &len, &err) < 0)
        abort();
    write_file("tokenizer.json", json, strlen(json));
    write_file("tokenizer.model", model, len);
    tern_log_copy(note);
    struct tern_token *t = tern_token_load(work, &err);
    tern_log_copy(NULL);
    ok(t && t->n_vocab == 800, "tokenizer.model is read before tokenizer.json");
    has(logged, "tokenizer.model is read, not tokenizer.json",
        "a log line names the tokenizer that is read");
    tern_token_free(t);
    const char *config = "{\"bos_token\":\"</s>\",\"eos_token\":\"none\"}";
    write_file("tokenizer_config.json", config, strlen(config));
    tern_log_copy(note);
    t = tern_token_load(work, &err);
    tern_log_copy(NULL);
    ok(t && t->bos == 2, "a configuration names a SentencePiece model's BOS");
    ok(t && t->eos == 2, "a name that it has not leaves its own EOS");
    has(logged, "which keeps its own", "a log line says that the model keeps its EOS");
    tern_token_free(t);
    remove_file("tokenizer.model");
    remove_file("tokenizer_config.json");
    free(json);
    free(model);
}

int main(void)
{
    if (!mkdtemp(work))
        return 1;
    test_names();
    test_tiktoken_name();
    test_specials();
    test_folder();
    remove_file("tokenizer.json");
    rmdir(work);
    return tap_done();
}
