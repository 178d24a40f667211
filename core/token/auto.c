/* A model's folder as other readers take it: its two files beside each other, and transformers'
 * AutoTokenizer.
 *
 * AutoTokenizer of transformers 5 goes by the name of a class.  For those below it makes the
 * normalizer and the pre_tokenizer anew.  It heeds no more than the vocabulary, the merges and the
 * added tokens of tokenizer.json.  (transformers 5.24: models/auto/tokenization_auto.py, and
 * __init__ in models/NAME/tokenization_NAME.py; tests/peers/auto.sh compares.) */
#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/str.h"
#include "core/token/vocab.h"

#include <stdlib.h>
#include <string.h>

/* Spaces, line ends, digits, what is composed, and what is rare. */
static const char *const probes[] = {
    " ",   "  ",           " a",   "a  b",     "\n",        "a\n b",        "a\n\nb",
    "\t",  "12345",        "it's", "\xc3\xa9", "e\xcc\x81", "\xe2\x96\x81", "\xf0\x9f\x98\x80",
    "<s>", "Hello, world!"};

/* ---- ids ---- */

static bool same_ids(struct tern_token_encoder *a, struct tern_token_encoder *b, const char *text)
{
    const uint32_t *x, *y;
    size_t n, m;

    return tern_token_encode(a, text, strlen(text), &x, &n, NULL) == 0 &&
           tern_token_encode(b, text, strlen(text), &y, &m, NULL) == 0 && n == m &&
           (n == 0 || memcmp(x, y, n * sizeof *x) == 0);
}

/* The first probe with other ids; NULL: all have the same. */
static const char *compare(const struct tern_token *x, const struct tern_token *y)
{
    struct tern_token_encoder *a = tern_token_encoder_new(x, NULL);
    struct tern_token_encoder *b = a ? tern_token_encoder_new(y, NULL) : NULL;
    const char *found = NULL;

    for (size_t i = 0; b && !found && i < sizeof probes / sizeof probes[0]; i++)
        if (!same_ids(a, b, probes[i]))
            found = probes[i];
    tern_token_encoder_free(a);
    tern_token_encoder_free(b);
    return found;
}

const char *tern_token_disagree(const char *folder, const struct tern_token *t)
{
    char *path = tern_fs_join(folder, "tokenizer.json");
    struct tern_token *json =
        t->format != TERN_TOKEN_JSON && tern_fs_exists(path) ? tern_token_load(path, NULL) : NULL;
    const char *found = json ? compare(t, json) : NULL;

    tern_token_free(json);
    free(path);
    return found;
}

/* ---- classes ---- */

struct class
{
    const char *name;
    bool of_bytes;         /* its vocabulary is one of bytes; else spaces are U+2581 */
    enum tern_split split; /* of bytes */
    bool nfc;
};

static const struct class classes[] = {
    {.name = "LlamaTokenizer"},
    {.name = "CodeLlamaTokenizer"},
    {"GPT2Tokenizer", true, TERN_SPLIT_GPT2, false},
    {"GPTNeoXTokenizer", true, TERN_SPLIT_GPT2, true},
    {"Qwen2Tokenizer", true, TERN_SPLIT_QWEN2, true},
};

/* What a model_type of config.json makes of the class that the folder names. */
static const struct kind {
    const char *model_type;
    const char *class; /* where the folder names none; NULL: tokenizer.json counts, whatever is
                          named */
    bool always;       /* also where the folder names another class */
} kinds[] = {
    {"qwen2", "Qwen2Tokenizer", true},
    {"qwen2_moe", "Qwen2Tokenizer", false},
    {"qwen3", "Qwen2Tokenizer", false},
    {"qwen3_moe", "Qwen2Tokenizer", false},
    {"gpt2", "GPT2Tokenizer", false},
    {"starcoder2", "GPT2Tokenizer", false},
    {"phi", "GPT2Tokenizer", false},
    {"opt", "GPT2Tokenizer", false},
    {"gpt_neox", "GPTNeoXTokenizer", false},
    {"olmo", "GPTNeoXTokenizer", false},
    {"olmoe", "GPTNeoXTokenizer", false},
    {"mistral", NULL, true},
    {"ministral", NULL, true},
    {"mixtral", NULL, true},
    {"olmo2", NULL, true},
    {"olmo3", NULL, true},
    {"granite", NULL, true},
    {"granitemoe", NULL, true},
    {"stablelm", NULL, true},
    {"gpt_bigcode", NULL, true},
    {"internlm2", NULL, true},
    {"internlm3", NULL, true},
    {"nemotron", NULL, true},
    {"phi3", NULL, true},
    {"glm", NULL, true},
    {"glm4", NULL, true},
};

static json_t *load(const char *folder, const char *name)
{
    char *path = tern_fs_join(folder, name);
    json_t *j =
        tern_fs_exists(path) ? tern_json_python_load(path, TERN_TOKEN_CONFIG_MAX, NULL) : NULL;

    free(path);
    return j;
}

static const char *text(const json_t *j, const char *key)
{
    return json_string_value(json_object_get(j, key));
}

/* With or without "Fast" behind it. */
static const struct class *find_class(const char *name)
{
    size_t n = name ? strlen(name) : 0;

    if (name && tern_str_ends(name, "Fast"))
        n -= strlen("Fast");
    for (size_t i = 0; name && i < sizeof classes / sizeof classes[0]; i++)
        if (strlen(classes[i].name) == n && strncmp(classes[i].name, name, n) == 0)
            return &classes[i];
    return NULL;
}

/* The class that AutoTokenizer takes; NULL: it goes by the files, or by a class unknown here. */
static const struct class *choose_class(const json_t *tokenizer, const json_t *config)
{
    const char *named = text(tokenizer, "tokenizer_class"), *type = text(config, "model_type");
    const struct kind *kind = NULL;

    if (!named)
        named = text(config, "tokenizer_class");
    for (size_t i = 0; type && !kind && i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(kinds[i].model_type, type) == 0)
            kind = &kinds[i];
    if (kind && (kind->always || !named))
        named = kind->class;
    return find_class(named);
}

/* `t` by the rules of a class of bytes: a copy that borrows all of it. */
static struct tern_token made_anew(const struct tern_token *t, const struct class *c, bool prefix)
{
    struct tern_token as = *t;

    as.normals[0] = (struct tern_normal){.kind = TERN_NORMAL_NFC};
    as.n_normals = c->nfc;
    as.split = c->split;
    as.split_digits = false;
    as.whole_first = false;
    as.prefix_space = prefix;
    return as;
}

/* The class puts a space before each text but those that begin with one; without `prefix` before
 * none. */
static const char *compare_spaces(const struct tern_token *t, bool prefix)
{
    static const char probe[] = " a", mark[] = TERN_SPACE_MARK;
    struct tern_token_encoder *a = tern_token_encoder_new(t, NULL);
    struct tern_token_encoder *b = a ? tern_token_encoder_new(t, NULL) : NULL;
    const uint32_t *with, *without; /* ids of the probe, and of it without its space */
    size_t n = 0, m = 0, len = 0;
    const char *found = NULL;

    if (b && tern_token_encode(a, probe, strlen(probe), &with, &n, NULL) == 0 &&
        tern_token_encode(b, probe + 1, strlen(probe) - 1, &without, &m, NULL) == 0 && m) {
        const char *first = tern_token_piece(t, without[0], &len);
        const bool put = len >= strlen(mark) && memcmp(first, mark, strlen(mark)) == 0;
        if (put && !prefix)
            found = probe + 1;
        else if (put && (n != m || memcmp(with, without, n * sizeof *with) != 0))
            found = probe;
    }
    tern_token_encoder_free(b);
    tern_token_encoder_free(a);
    return found;
}

const char *tern_token_auto_differs(const char *folder, const struct tern_token *t,
                                    const char **ret_class)
{
    json_t *tokenizer = load(folder, "tokenizer_config.json"),
           *config = load(folder, "config.json");
    const struct class *c = choose_class(tokenizer, config);
    const json_t *prefix = json_object_get(tokenizer, "add_prefix_space");
    const char *found = NULL;

    /* LlamaTokenizer of a vocabulary of bytes goes by the file. */
    if (c && c->of_bytes == t->byte_level) {
        if (c->of_bytes) {
            const struct tern_token as = made_anew(t, c, json_is_true(prefix));
            found = compare(t, &as);
        } else {
            found = compare_spaces(t, !json_is_false(prefix));
        }
        *ret_class = c->name;
    }
    json_decref(config);
    json_decref(tokenizer);
    return found;
}
