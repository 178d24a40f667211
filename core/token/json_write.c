/* tokenizer.json of Hugging Face, made of a tiktoken vocabulary.
 *
 * Llama 3's tokenizer.model is read by Meta's own code and by tern, but not by transformers, vLLM
 * or llama.cpp's converter.  They want the same vocabulary as a tokenizer.json.  tiktoken merges
 * the two neighbours whose joined bytes have the lowest rank.  A list of merges says the same when
 * it has each way to halve each piece, in the order of the pieces' ranks. */
#include "core/base/assert.h"
#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/str.h"
#include "core/token/json.h"

#include <stdlib.h>
#include <string.h>

enum { JSON_MAX = 256 << 20 }; /* Llama 3's takes 9 MB */

/* The bytes as GPT-2's letters (json_vocab.c), quoted where JSON wants it: letters have no control
 * characters among them. */
static void put_letters(struct tern_buf *b, const char *s, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        const uint32_t code = tern_token_json_letter((uint8_t)s[i]);
        char utf8[2] = {(char)(0xc0 | code >> 6), (char)(0x80 | (code & 0x3f))};
        char plain[2] = {'\\', (char)code};
        bool quoted = code == '"' || code == '\\';
        if (code >= 0x80)
            tern_buf_add(b, utf8, 2);
        else
            tern_buf_add(b, quoted ? plain : plain + 1, quoted ? 2 : 1);
    }
}

static void put_vocabulary(const struct tern_token *t, struct tern_buf *b)
{
    for (uint32_t id = 0; id < t->n_model; id++) {
        tern_buf_puts(b, id ? ",\"" : "\"");
        put_letters(b, t->pieces[id].text, t->pieces[id].len);
        tern_buf_printf(b, "\":%u", id);
    }
}

struct merge {
    uint32_t left, right; /* ids */
};

static int by_left(const void *a, const void *b)
{
    const struct merge *x = a, *y = b;

    if (x->left != y->left)
        return x->left < y->left ? -1 : 1;
    return x->right < y->right ? -1 : x->right > y->right;
}

/* The ways to halve piece `id` into pieces; `ways` has room for its bytes. */
static size_t halve(const struct tern_token *t, uint32_t id, struct merge *ways)
{
    const struct tern_piece *p = &t->pieces[id];
    size_t n = 0;

    for (uint32_t cut = 1; cut < p->len; cut++) {
        uint32_t left = tern_token_find(t, p->text, cut);
        uint32_t right = tern_token_find(t, p->text + cut, p->len - cut);
        if (left < t->n_model && right < t->n_model) /* TERN_SYMBOL_NONE is above */
            ways[n++] = (struct merge){left, right};
    }
    qsort(ways, n, sizeof *ways, by_left);
    return n;
}

static void put_merges(const struct tern_token *t, struct tern_buf *b)
{
    struct merge ways[TERN_PIECE_BYTES_MAX];
    bool first = true;

    for (uint32_t id = 0; id < t->n_model; id++) {
        size_t n = halve(t, id, ways);
        for (size_t i = 0; i < n; i++, first = false) {
            const struct tern_piece *l = &t->pieces[ways[i].left], *r = &t->pieces[ways[i].right];
            tern_buf_puts(b, first ? "\"" : ",\"");
            put_letters(b, l->text, l->len);
            tern_buf_puts(b, " ");
            put_letters(b, r->text, r->len);
            tern_buf_puts(b, "\"");
        }
    }
}

static json_t *make_added(const struct tern_token *t)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < t->n_added; i++)
        json_array_append_new(
            list, json_pack("{s:I,s:s%,s:b,s:b,s:b,s:b,s:b}", "id", (json_int_t)t->added[i].id,
                            "content", t->added[i].text, (size_t)t->added[i].len, "single_word", 0,
                            "lstrip", 0, "rstrip", 0, "normalized", 0, "special", 1));
    return list;
}

/* BOS stands before a text, and before the second of two. */
static json_t *make_template(const struct tern_token *t)
{
    const struct tern_piece *bos = &t->pieces[t->bos];
    char *name = tern_strf("%.*s", (int)bos->len, bos->text);
    json_t *j = json_pack(
        "{s:s,s:[{s:{s:s,s:i}},{s:{s:s,s:i}}],s:[{s:{s:s,s:i}},{s:{s:s,s:i}},{s:{s:s,s:i}},"
        "{s:{s:s,s:i}}],s:{s:{s:s,s:[i],s:[s]}}}",
        "type", "TemplateProcessing", "single", "SpecialToken", "id", name, "type_id", 0,
        "Sequence", "id", "A", "type_id", 0, "pair", "SpecialToken", "id", name, "type_id", 0,
        "Sequence", "id", "A", "type_id", 0, "SpecialToken", "id", name, "type_id", 1, "Sequence",
        "id", "B", "type_id", 1, "special_tokens", name, "id", name, "ids", t->bos, "tokens", name);

    free(name);
    return j;
}

static json_t *make_steps(const struct tern_token *t)
{
    const char *expression = tern_token_split_expression(t->split);

    return json_pack("{s:n,s:{s:s,s:[{s:s,s:{s:s},s:s,s:b},{s:s,s:b,s:b,s:b}]},"
                     "s:{s:s,s:[{s:s,s:b,s:b,s:b},o]},s:{s:s,s:b,s:b,s:b}}",
                     "normalizer", "pre_tokenizer", "type", "Sequence", "pretokenizers", "type",
                     "Split", "pattern", "Regex", expression, "behavior", "Isolated", "invert", 0,
                     "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 1, "use_regex", 0,
                     "post_processor", "type", "Sequence", "processors", "type", "ByteLevel",
                     "add_prefix_space", 1, "trim_offsets", 0, "use_regex", 1, make_template(t),
                     "decoder", "type", "ByteLevel", "add_prefix_space", 1, "trim_offsets", 1,
                     "use_regex", 1);
}

/* A member of the file: its name and value in one line. */
static int put_member(struct tern_buf *b, const char *name, json_t *value, struct tern_err *err)
{
    char *text = value ? json_dumps(value, JSON_ENCODE_ANY) : NULL;

    if (text)
        tern_buf_printf(b, "\"%s\":%s,\n", name, text);
    free(text);
    return text ? 0 : tern_err_set(err, TERN_FAILED, "%s cannot be written as JSON", name);
}

static int put_head(const struct tern_token *t, struct tern_buf *b, struct tern_err *err)
{
    static const char *const parts[] = {"normalizer", "pre_tokenizer", "post_processor", "decoder"};
    json_t *added = make_added(t), *steps = make_steps(t);
    int rc = put_member(b, "added_tokens", added, err);

    for (size_t i = 0; rc == 0 && i < sizeof parts / sizeof *parts; i++)
        rc = put_member(b, parts[i], json_object_get(steps, parts[i]), err);
    json_decref(added);
    json_decref(steps);
    return rc;
}

int tern_token_write_json(const struct tern_token *t, const char *path, struct tern_err *err)
{
    struct tern_buf b = {.max = JSON_MAX};

    tern_assert(t->format == TERN_TOKEN_TIKTOKEN && t->byte_level && t->bos >= 0);
    tern_buf_puts(&b, "{\"version\":\"1.0\",\n\"truncation\":null,\n\"padding\":null,\n");
    int rc = put_head(t, &b, err);
    tern_buf_puts(&b, "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,"
                      "\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,"
                      "\"fuse_unk\":false,\"byte_fallback\":false,\"ignore_merges\":true,\n"
                      "\"vocab\":{");
    put_vocabulary(t, &b);
    tern_buf_puts(&b, "},\n\"merges\":[");
    put_merges(t, &b);
    tern_buf_puts(&b, "]}}\n");
    if (rc == 0)
        rc = tern_buf_check(&b, path, err);
    if (rc == 0)
        rc = tern_fs_replace(path, b.data, b.len, 0644, err);
    tern_buf_free(&b);
    return rc;
}
