/* Hugging Face's tokenizer.json: the model's settings, its added tokens, and the order of reading.
 *
 * A file means what Tokenizer.from_file of tokenizers 0.23 makes of it; what that refuses or tern
 * cannot do is refused by name.  Truncation and padding are left to the token sets. */
#include "core/token/json.h"

#include "core/base/log.h"
#include "core/base/str.h"
#include "core/token/unicode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int refuse(const struct tern_token_json *j, struct tern_err *err, const char *what)
{
    return tern_err_set(err, TERN_USAGE, "%s: %s is not supported", j->t->path, what);
}

static bool is_null(const json_t *j)
{
    return !j || json_is_null(j);
}

static const char *word(const json_t *j, const char *key)
{
    return json_string_value(json_object_get(j, key));
}

/* ---- the model ---- */

static int model_flag(const struct tern_token_json *j, const json_t *model, const char *key,
                      bool *to, struct tern_err *err)
{
    const json_t *v = json_object_get(model, key);

    if (!is_null(v) && !json_is_boolean(v))
        return tern_err_set(err, TERN_USAGE, "%s: model.%s is neither true nor false", j->t->path,
                            key);
    *to = json_is_true(v);
    return 0;
}

static int read_model(struct tern_token_json *j, struct tern_err *err)
{
    struct tern_token *t = j->t;
    const json_t *model = json_object_get(j->tree, "model");
    const json_t *type = json_object_get(model, "type"), *v = json_object_get(model, "dropout");
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    char what[128];
    bool fuse;

    if (!json_is_object(model))
        return tern_err_set(err, TERN_USAGE, "%s: has no model: no tokenizer of Hugging Face",
                            t->path);
    if (!is_null(type) && (!json_is_string(type) || strcmp(json_string_value(type), "BPE") != 0)) {
        snprintf(what, sizeof what, "a model of type '%.64s'",
                 json_is_string(type) ? json_string_value(type) : "?");
        tern_str_mask(what);
        return refuse(j, err, what);
    }
    if (!is_null(v) && !(json_is_number(v) && json_number_value(v) == 0))
        return refuse(j, err, "model.dropout");
    for (size_t i = 0; i < sizeof affixes / sizeof affixes[0]; i++) {
        v = json_object_get(model, affixes[i]);
        if (!is_null(v) && (!json_is_string(v) || *json_string_value(v))) {
            snprintf(what, sizeof what, "model.%s", affixes[i]);
            return refuse(j, err, what);
        }
    }
    v = json_object_get(model, "unk_token");
    if (!is_null(v) && !json_is_string(v))
        return refuse(j, err, "a model.unk_token that is no text");
    if (model_flag(j, model, "fuse_unk", &fuse, err) < 0 ||
        model_flag(j, model, "byte_fallback", &t->byte_fallback, err) < 0 ||
        model_flag(j, model, "ignore_merges", &t->whole_first, err) < 0)
        return -1;
    t->split_unk = !fuse;
    if (t->whole_first && !t->byte_level)
        return refuse(j, err, "model.ignore_merges without ByteLevel");
    return 0;
}

/* Which id stands for unknown text, and can there be any? */
static int read_unknown(struct tern_token_json *j, struct tern_err *err)
{
    struct tern_token *t = j->t;
    const char *name = word(json_object_get(j->tree, "model"), "unk_token");
    const bool all = tern_token_json_all_bytes(j);

    if (t->byte_fallback && !all)
        return refuse(j, err, "model.byte_fallback without a piece for each of the 256 bytes");
    if (t->byte_level)
        t->byte_fallback = false; /* nothing is left for it */
    t->drop_unknown = !name && !(all && (t->byte_level || t->byte_fallback));
    /* transformers 5 leaves out a name that byte pieces make unnecessary. */
    if (!name && t->byte_fallback)
        name = "<unk>";
    uint32_t id = name ? tern_token_json_id(j, name, strlen(name)) : TERN_SYMBOL_NONE;
    if (id == TERN_SYMBOL_NONE) {
        if (name && !all)
            return tern_err_set(err, TERN_USAGE, "%s: model.unk_token is not in the vocabulary",
                                t->path);
        return 0;
    }
    t->unk = (int32_t)id;
    if (!t->byte_level)
        t->pieces[id].kind = TERN_PIECE_UNKNOWN;
    return 0;
}

/* ---- added tokens ---- */

static int added_fail(const struct tern_token_json *j, const struct tern_added *a,
                      struct tern_err *err, const char *why)
{
    char text[64];

    snprintf(text, sizeof text, "%.*s", (int)(a->len < 60 ? a->len : 60), a->text);
    tern_str_mask(text);
    return tern_err_set(err, TERN_USAGE, "%s: added token '%s' %s", j->t->path, text, why);
}

static char *keep(const struct tern_token_json *j, const char *s, size_t n, struct tern_err *err)
{
    char *to = tern_token_keep(j->t, n + 1, err);

    return to ? memcpy(to, s, n) : NULL;
}

static void replace_all(struct tern_buf *to, const char *s, size_t n,
                        const struct tern_normal *step)
{
    const size_t from = strlen(step->from);

    for (const char *end = s + n, *at; s < end; s = at + from) {
        at = memmem(s, (size_t)(end - s), step->from, from);
        tern_buf_add(to, s, (size_t)((at ? at : end) - s));
        if (!at)
            return;
        tern_buf_puts(to, step->to);
    }
}

/* a->find: the text as it stands in normalised text. */
static int normalise(const struct tern_token_json *j, struct tern_added *a, struct tern_err *err)
{
    const struct tern_token *t = j->t;
    struct tern_buf b[2] = {{.max = 64 * TERN_PIECE_BYTES_MAX}, {.max = 64 * TERN_PIECE_BYTES_MAX}};
    unsigned now = 0;

    tern_buf_add(&b[0], a->text, a->len);
    for (unsigned i = 0; i < t->n_normals && b[now].len; i++, now ^= 1) {
        const struct tern_normal *step = &t->normals[i];
        struct tern_buf *from = &b[now], *to = &b[now ^ 1];
        tern_buf_clear(to);
        if (step->kind == TERN_NORMAL_NFC) {
            tern_token_nfc(from->data, from->len, to);
        } else if (step->kind == TERN_NORMAL_REPLACE) {
            replace_all(to, from->data, from->len, step);
        } else {
            tern_buf_puts(to, step->to);
            tern_buf_add(to, from->data, from->len);
        }
    }
    a->find_len = (uint32_t)b[now].len;
    a->find = keep(j, b[now].len ? b[now].data : "", b[now].len, err);
    const bool failed = b[0].failed || b[1].failed;
    tern_buf_free(&b[0]);
    tern_buf_free(&b[1]);
    if (failed || a->find_len == 0)
        return added_fail(j, a, err,
                          failed ? "grows too long when it is normalised"
                                 : "is nothing when it is normalised");
    return a->find ? 0 : -1;
}

static int read_flags(const struct tern_token_json *j, const json_t *token, struct tern_added *a,
                      struct tern_err *err)
{
    const struct {
        const char *key;
        bool *to;
    } flags[] = {{"special", &a->special},
                 {"single_word", &a->single_word},
                 {"lstrip", &a->lstrip},
                 {"rstrip", &a->rstrip},
                 {"normalized", &a->normalized}};

    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        const json_t *v = json_object_get(token, flags[i].key);
        if (!json_is_boolean(v)) {
            char why[64];
            snprintf(why, sizeof why, "has no true or false as '%s'", flags[i].key);
            return added_fail(j, a, err, why);
        }
        *flags[i].to = json_is_true(v);
    }
    return 0;
}

/* A piece for an added token, which the vocabulary may have already. */
static int place(const struct tern_token_json *j, const struct tern_added *a, bool inside,
                 struct tern_err *err)
{
    struct tern_token *t = j->t;
    struct tern_piece *p = &t->pieces[a->id];

    if (!inside) {
        /* Decoded as it was found: normalised. */
        char *text = keep(j, a->find, a->find_len, err);
        if (!text)
            return -1;
        if (a->id < t->n_vocab && p->kind != TERN_PIECE_UNUSED)
            return added_fail(j, a, err, "has the id of a piece of the vocabulary");
        size_t bytes = t->byte_level ? tern_token_json_bytes(a->find, a->find_len, text) : 0;
        if (t->byte_level && bytes == 0)
            memcpy(text, a->find, a->find_len);
        *p = (struct tern_piece){.text = text,
                                 .len = bytes ? (uint32_t)bytes : a->find_len,
                                 .rank = TERN_RANK_NONE,
                                 .order = TERN_RANK_NONE};
        t->n_vocab = a->id < t->n_vocab ? t->n_vocab : a->id + 1;
    }
    if (!inside || p->kind == TERN_PIECE_NORMAL)
        p->kind = a->special ? TERN_PIECE_CONTROL : TERN_PIECE_USER_DEFINED;
    return 0;
}

/* The encoder turns U+2581 into spaces before it looks for normalised tokens. */
static int spell(const struct tern_token_json *j, struct tern_added *a, struct tern_err *err)
{
    static const struct tern_normal turn = {TERN_NORMAL_REPLACE, TERN_SPACE_MARK, " "};
    struct tern_buf b = {0};

    if (!a->normalized || !j->t->escape_whitespaces || j->t->metaspace)
        return 0;
    replace_all(&b, a->find, a->find_len, &turn);
    a->find_len = (uint32_t)b.len;
    a->find = keep(j, b.data, b.len, err);
    tern_buf_free(&b);
    return a->find ? 0 : -1;
}

/* `next`: the id of the next one that the vocabulary has not. */
static int read_token(const struct tern_token_json *j, const json_t *token, uint32_t *next,
                      struct tern_added *a, struct tern_err *err)
{
    const char *text = word(token, "content");
    const json_t *id = json_object_get(token, "id");

    if (!text || !*text || strlen(text) > TERN_PIECE_BYTES_MAX || !json_is_integer(id))
        return tern_err_set(err, TERN_USAGE,
                            "%s: an added token lacks its id or its content, or that is longer "
                            "than %d bytes",
                            j->t->path, TERN_PIECE_BYTES_MAX);
    a->len = a->find_len = (uint32_t)strlen(text);
    a->text = a->find = keep(j, text, a->len, err);
    if (!a->text || read_flags(j, token, a, err) < 0)
        return -1;
    a->id = tern_token_json_id(j, text, a->len);
    const bool inside = a->id != TERN_SYMBOL_NONE;
    if (!inside)
        a->id = (*next)++;
    if (json_integer_value(id) != a->id) {
        char why[96];
        snprintf(why, sizeof why, "has id %lld, but Hugging Face's tokenizers gives it %u",
                 (long long)json_integer_value(id), a->id);
        return added_fail(j, a, err, why);
    }
    if (a->normalized && j->t->n_normals && normalise(j, a, err) < 0)
        return -1;
    return place(j, a, inside, err) < 0 || spell(j, a, err) < 0 ? -1 : 0;
}

static int compare(const char *a, size_t a_len, const char *b, size_t b_len)
{
    int c = memcmp(a, b, a_len < b_len ? a_len : b_len);

    return c ? c : (a_len > b_len) - (a_len < b_len);
}

static int by_text(const void *a, const void *b)
{
    const struct tern_added *x = *(const struct tern_added *const *)a,
                            *y = *(const struct tern_added *const *)b;

    return compare(x->text, x->len, y->text, y->len);
}

static int by_find(const void *a, const void *b)
{
    const struct tern_added *x = *(const struct tern_added *const *)a,
                            *y = *(const struct tern_added *const *)b;

    return x->normalized != y->normalized ? x->normalized - y->normalized
                                          : compare(x->find, x->find_len, y->find, y->find_len);
}

/* No two are the same, and no two are searched as the same text. */
static int check_doubles(const struct tern_token_json *j, struct tern_err *err)
{
    static int (*const orders[])(const void *, const void *) = {by_text, by_find};
    const struct tern_token *t = j->t;
    const struct tern_added **v = tern_alloc(t->n_added, sizeof *v, "added tokens", err);
    int rc = v ? 0 : -1;

    for (int k = 0; k < 2 && rc == 0; k++) {
        for (uint32_t i = 0; i < t->n_added; i++)
            v[i] = &t->added[i];
        qsort(v, t->n_added, sizeof *v, orders[k]);
        for (uint32_t i = 1; i < t->n_added && rc == 0; i++)
            if (orders[k](&v[i - 1], &v[i]) == 0)
                rc = added_fail(j, v[i], err,
                                k == 0 ? "is there twice" : "is another one when it is normalised");
    }
    free(v);
    return rc;
}

static int read_added(struct tern_token_json *j, struct tern_err *err)
{
    struct tern_token *t = j->t;
    const json_t *list = json_object_get(j->tree, "added_tokens");
    uint32_t next = j->n_vocab;

    if (!is_null(list) && !json_is_array(list))
        return refuse(j, err, "a member added_tokens that is no list");
    const size_t n = json_array_size(list);
    if (n == 0)
        return 0;
    t->added = tern_alloc(n, sizeof *t->added, "added tokens", err);
    if (!t->added)
        return -1;
    for (; t->n_added < n; t->n_added++)
        if (read_token(j, json_array_get(list, t->n_added), &next, &t->added[t->n_added], err) < 0)
            return -1;
    return check_doubles(j, err);
}

/* ---- the whole ---- */

/* Does a post-processor put a special token before a text? */
static bool puts_first(const json_t *post)
{
    const json_t *list = json_object_get(post, "processors"),
                 *first = json_array_get(json_object_get(post, "single"), 0);
    bool found = json_object_get(first, "SpecialToken") != NULL;

    for (size_t i = 0; i < json_array_size(list); i++)
        found |=
            json_object_get(json_array_get(json_object_get(json_array_get(list, i), "single"), 0),
                            "SpecialToken") != NULL;
    return found;
}

/* Members that change no id of a text. */
static int read_others(const struct tern_token_json *j, struct tern_err *err)
{
    static const char *const known[] = {"ByteLevel", "TemplateProcessing", "BertProcessing",
                                        "RobertaProcessing", "Sequence"};
    const json_t *version = json_object_get(j->tree, "version"),
                 *post = json_object_get(j->tree, "post_processor");
    const char *type = word(post, "type");
    bool found = is_null(post);

    if (!json_is_object(j->tree))
        return tern_err_set(err, TERN_USAGE, "%s: is no JSON object: no tokenizer of Hugging Face",
                            j->t->path);
    if (version && (!json_is_string(version) || strcmp(json_string_value(version), "1.0") != 0))
        return refuse(j, err, "a version other than \"1.0\"");
    for (size_t i = 0; type && i < sizeof known / sizeof known[0]; i++)
        found |= strcmp(type, known[i]) == 0;
    if (!found)
        return refuse(j, err, "the type of its post_processor");
    j->t->begins = puts_first(post);
    for (int i = 0; i < 2; i++)
        if (!is_null(json_object_get(j->tree, i ? "padding" : "truncation")))
            tern_warn("%s: its %s is not applied: texts are packed whole", j->t->path,
                      i ? "padding" : "truncation");
    return 0;
}

/* Decoding leaves special tokens out. */
static int read_surface(struct tern_token *t, struct tern_err *err)
{
    bool shown = t->unk >= 0;

    for (uint32_t i = 0; i < t->n_added; i++)
        shown &= !(t->added[i].special && (int32_t)t->added[i].id == t->unk);
    t->unk_surface =
        strndup(shown ? t->pieces[t->unk].text : "", shown ? t->pieces[t->unk].len : 0);
    return t->unk_surface ? 0 : tern_err_sys(err, "%s", t->path);
}

int tern_token_json_settings(struct tern_token_json *j, struct tern_err *err)
{
    return read_others(j, err) < 0 || tern_token_json_normalizer(j, err) < 0 ||
                   tern_token_json_pre_tokenizer(j, err) < 0 ||
                   tern_token_json_decoder(j, err) < 0 || read_model(j, err) < 0
               ? -1
               : 0;
}

int tern_token_json_pieces(struct tern_token_json *j, struct tern_err *err)
{
    return tern_token_json_vocab(j, err) < 0 || read_unknown(j, err) < 0 ||
                   tern_token_json_merges(j, err) < 0 || read_added(j, err) < 0 ||
                   read_surface(j->t, err) < 0
               ? -1
               : 0;
}

int tern_token_json_parse(struct tern_token *t, struct tern_err *err)
{
    struct tern_token_json j = {.t = t};
    int rc = tern_token_json_open(&j, err);

    if (rc == 0 && (rc = tern_token_json_settings(&j, err)) == 0)
        rc = tern_token_json_pieces(&j, err);
    tern_token_json_close(&j);
    return rc;
}
