/* Small files like tokenizer.json, for tests of core/token. */
#ifndef TERN_TESTS_TOKEN_FILE_H
#define TERN_TESTS_TOKEN_FILE_H

#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/token/vocab.h"
#include "tests/unit/tap.h"

#include <unistd.h>

#define SHARED "../shared/data/tokenizers/"

static char work[] = "/tmp/tern-token-json-XXXXXX";

/* ---- files ---- */

static void write_file(const char *name, const char *data, size_t len)
{
    char *path = tern_fs_join(work, name);
    FILE *f = fopen(path, "w");

    if (!f || fwrite(data, 1, len, f) != len || fclose(f) != 0)
        abort();
    free(path);
}

static void remove_file(const char *name)
{
    char *path = tern_fs_join(work, name);

    unlink(path);
    free(path);
}

static struct tern_token *load_text(const char *text, size_t len, struct tern_err *err)
{
    char *path = tern_fs_join(work, "tokenizer.json");

    write_file("tokenizer.json", text, len);
    struct tern_token *t = tern_token_load(path, err);
    free(path);
    return t;
}

/* Members of a file; NULL: left out. */
struct file {
    const char *version, *truncation, *added, *normalizer, *pre, *post, *decoder;
    const char *settings; /* of the model, each with a comma behind it */
    const char *vocab, *merges;
};

static void add_member(struct tern_buf *b, const char *key, const char *value)
{
    if (value)
        tern_buf_printf(b, "  \"%s\": %s,\n", key, value);
}

static char *text_of(const struct file *f)
{
    struct tern_buf b = {0};

    tern_buf_puts(&b, "{\n");
    add_member(&b, "version", f->version);
    add_member(&b, "truncation", f->truncation);
    add_member(&b, "added_tokens", f->added);
    add_member(&b, "normalizer", f->normalizer);
    add_member(&b, "pre_tokenizer", f->pre);
    add_member(&b, "post_processor", f->post);
    add_member(&b, "decoder", f->decoder);
    tern_buf_printf(&b, "  \"model\": {\n    %s\n", f->settings ? f->settings : "");
    add_member(&b, "vocab", f->vocab);
    tern_buf_printf(&b, "    \"merges\": %s\n  }\n}\n", f->merges ? f->merges : "[]");
    return b.data;
}

static struct tern_token *load(const struct file *f, struct tern_err *err)
{
    char *text = text_of(f);
    struct tern_token *t = load_text(text, strlen(text), err);

    free(text);
    return t;
}

#define FLAGS(special, normalized)                                                                 \
    "\"special\":" special ",\"normalized\":" normalized                                           \
    ",\"lstrip\":false,\"rstrip\":false,\"single_word\":false}"
#define TOKEN(id, content, special, normalized)                                                    \
    "{\"id\":" id ",\"content\":\"" content "\"," FLAGS(special, normalized)
#define ADDED(id, content, special) TOKEN(id, content, special, "false")
#define PREPEND "{\"type\":\"Prepend\",\"prepend\":\"\u2581\"}"
#define REPLACE "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\u2581\"}"
#define LLAMA_NORMALS "{\"type\":\"Sequence\",\"normalizers\":[" PREPEND "," REPLACE "]}"
#define LLAMA_DECODER                                                                              \
    "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":"          \
    "\"\u2581\"},"                                                                                 \
    "\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":\"Strip\","      \
    "\"content\":\" \",\"start\":1,\"stop\":0}]}"
#define METASPACE(more) "{\"type\":\"Metaspace\",\"replacement\":\"\u2581\"" more "}"
#define BYTE_LEVEL(prefix, regex)                                                                  \
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":" prefix                                         \
    ",\"trim_offsets\":true,\"use_regex\":" regex "}"
#define QWEN2                                                                                      \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}|"               \
    " ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define SPLIT(regex, behavior, invert)                                                             \
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" regex "\"},\"behavior\":\"" behavior           \
    "\",\"invert\":" invert "}"
#define SEQUENCE(list) "{\"type\":\"Sequence\",\"pretokenizers\":[" list "]}"

/* Characters, as Llama 2 has them. */
static const struct file llama = {
    .version = "\"1.0\"",
    .truncation = "null",
    .added = "[" ADDED("0", "<unk>", "true") "," ADDED("1", "<s>", "true") "," ADDED("2", "</s>",
                                                                                     "true") "]",
    .normalizer = LLAMA_NORMALS,
    .pre = "null",
    .post = "{\"type\":\"TemplateProcessing\",\"single\":[],\"pair\":[],\"special_tokens\":{}}",
    .decoder = LLAMA_DECODER,
    .settings = "\"type\":\"BPE\",\"dropout\":null,\"unk_token\":\"<unk>\",\"fuse_unk\":true,"
                "\"byte_fallback\":false,\"continuing_subword_prefix\":null,",
    .vocab = "{\"<unk>\":0,\"<s>\":1,\"</s>\":2,\"\u2581\":3,\"a\":4,\"b\":5,\"ab\":6,"
             "\"\u2581ab\":7,\"\u2581\u2581\":8}",
    .merges = "[\"a b\",\"\u2581 ab\",\"\u2581 \u2581\"]",
};

/* ---- a vocabulary of bytes, with GPT-2's letters ---- */

static bool is_printable(unsigned b)
{
    return (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
}

/* As GPT-2's encoder.py makes them: the bytes that are not printable follow from U+0100 on. */
static const char *letter(unsigned byte, char to[4])
{
    unsigned code = 256;

    for (unsigned b = 0; b < byte; b++)
        code += !is_printable(b);
    if (is_printable(byte))
        code = byte;
    snprintf(to, 4, code < 128 ? "%c" : "%c%c", code < 128 ? code : 0xc0 | code >> 6,
             0x80 | (code & 0x3f));
    return to;
}

/* Id b is byte b; then what `more` has. */
static char *byte_vocab(const char *more)
{
    struct tern_buf b = {0};
    char s[4];

    for (unsigned k = 0; k < 256; k++)
        tern_buf_printf(&b, "%s\"%s%s\":%u", k ? "," : "{",
                        letter(k, s)[0] == '"' || s[0] == '\\' ? "\\" : "", s, k);
    tern_buf_printf(&b, "%s}", more);
    return b.data;
}

#define BYTE_MORE ",\"he\":256,\"ll\":257,\"hell\":258,\"\u0120h\":259,\"\u0120hell\":260"

static struct file bytes_file(char **vocab)
{
    *vocab = byte_vocab(BYTE_MORE);
    return (struct file){
        .version = "\"1.0\"",
        .added = "[" ADDED("261", "<|end|>", "true") "," ADDED("262", "<tag>", "false") "]",
        .pre = BYTE_LEVEL("false", "true"),
        .decoder = BYTE_LEVEL("false", "true"),
        .settings = "\"ignore_merges\":false,",
        .vocab = *vocab,
        .merges = "[[\"h\",\"e\"],[\"l\",\"l\"],[\"\u0120\",\"h\"],[\"he\",\"ll\"]]",
    };
}

#endif
