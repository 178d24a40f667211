/* Hugging Face's tokenizer.json: read to name its vocabulary, never to tokenise.
 *
 * A converted SentencePiece BPE model keeps its pieces with their ids and its merges in their
 * order. Its flags become a normaliser (Prepend, Replace) or a pre-tokeniser (Metaspace).
 * Byte-level BPE (GPT-2, Llama 3) spells bytes as other letters: its vocabularies are different
 * ones. */
#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/token/vocab.h"

#include <stdlib.h>
#include <string.h>

/* Several times the largest published file (Gemma's: 33 MB). */
enum { FILE_MAX = 64 << 20 };

struct flags {
    bool spaced;     /* a space is written U+2581 */
    bool prefixed;   /* one is put before a text */
    bool byte_level; /* GPT-2's */
    bool other;      /* something that is not understood */
};

static bool word(const json_t *j, const char *key, const char *value)
{
    const char *s = json_string_value(json_object_get(j, key));

    return s && strcmp(s, value) == 0;
}

/* "Metaspace" says when a space is put before: prepend_scheme, in older files add_prefix_space. */
static void read_metaspace(const json_t *j, struct flags *f)
{
    const json_t *older = json_object_get(j, "add_prefix_space");

    f->spaced = word(j, "replacement", TERN_SPACE_MARK);
    f->other |= !f->spaced;
    if (json_object_get(j, "prepend_scheme"))
        f->prefixed = !word(j, "prepend_scheme", "never");
    else
        f->prefixed = !older || json_is_true(older);
}

/* One step of a normaliser or pre-tokeniser, or a list of them. */
static void read_step(const json_t *j, int depth, struct flags *f)
{
    const json_t *list = json_object_get(j, "normalizers");
    const char *from = json_string_value(json_object_get(json_object_get(j, "pattern"), "String"));
    const json_t *step;
    size_t i;

    if (!j || json_is_null(j))
        return;
    if (word(j, "type", "Sequence") && depth < 2) {
        if (!list)
            list = json_object_get(j, "pretokenizers");
        json_array_foreach((json_t *)(uintptr_t)list, i, step) read_step(step, depth + 1, f);
    } else if (word(j, "type", "Prepend")) {
        f->prefixed = word(j, "prepend", TERN_SPACE_MARK);
        f->other |= !f->prefixed;
    } else if (word(j, "type", "Replace")) {
        f->spaced = from && strcmp(from, " ") == 0 && word(j, "content", TERN_SPACE_MARK);
        f->other |= !f->spaced;
    } else if (word(j, "type", "Metaspace")) {
        read_metaspace(j, f);
    } else if (word(j, "type", "ByteLevel")) {
        f->byte_level = true;
    } else {
        f->other = true;
    }
}

/* Ids are 0 .. n - 1, each once. */
static int read_pieces(const json_t *vocab, const char *unk, struct tern_piece *pieces)
{
    const size_t n = json_object_size(vocab);
    const char *text;
    json_t *number;

    json_object_foreach((json_t *)(uintptr_t)vocab, text, number)
    {
        json_int_t id = json_is_integer(number) ? json_integer_value(number) : -1;
        size_t len = strlen(text);
        if (id < 0 || (size_t)id >= n || pieces[id].text || len == 0 || len > TERN_PIECE_BYTES_MAX)
            return -1;
        bool byte = len == 6 && memcmp(text, "<0x", 3) == 0 && text[5] == '>' &&
                    strspn(text + 3, "0123456789ABCDEF") == 2;
        pieces[id] = (struct tern_piece){.text = text,
                                         .len = (uint32_t)len,
                                         .order = TERN_RANK_NONE,
                                         .kind = unk && strcmp(text, unk) == 0 ? TERN_PIECE_UNKNOWN
                                                 : byte                        ? TERN_PIECE_BYTE
                                                                               : TERN_PIECE_NORMAL};
    }
    return 0;
}

/* The piece for unknown text.  transformers 5 leaves it out where byte pieces make it unnecessary;
 * SentencePiece's default name for it is "<unk>". */
static const char *unknown_of(const json_t *model, const json_t *vocab)
{
    const char *told = json_string_value(json_object_get(model, "unk_token"));
    bool silent = !told && json_is_true(json_object_get(model, "byte_fallback"));

    return silent && json_object_get(vocab, "<unk>") ? "<unk>" : told;
}

/* Tokens added beyond the vocabulary's end are the model's business. */
static void read_added(const json_t *added, const json_t *vocab, struct tern_piece *pieces)
{
    const json_t *token;
    size_t i;

    json_array_foreach((json_t *)(uintptr_t)added, i, token)
    {
        const char *text = json_string_value(json_object_get(token, "content"));
        const json_t *id = text ? json_object_get(vocab, text) : NULL;
        if (!id || pieces[json_integer_value(id)].kind != TERN_PIECE_NORMAL)
            continue;
        pieces[json_integer_value(id)].kind = json_is_true(json_object_get(token, "special"))
                                                  ? TERN_PIECE_CONTROL
                                                  : TERN_PIECE_USER_DEFINED;
    }
}

/* "▁t he" or ["▁t", "he"]: a piece's place is that of the first merge that makes it. */
static int read_merges(const json_t *merges, const json_t *vocab, struct tern_piece *pieces)
{
    char made[2 * TERN_PIECE_BYTES_MAX + 1];
    const json_t *merge;
    int32_t order = 0;
    size_t i;

    json_array_foreach((json_t *)(uintptr_t)merges, i, merge)
    {
        const char *left =
            json_string_value(json_is_array(merge) ? json_array_get(merge, 0) : merge);
        const char *right = json_string_value(json_array_get(merge, 1));
        if (left && !json_is_array(merge))
            right = strchr(left, ' ');
        if (!left || !right)
            return -1;
        size_t n = json_is_array(merge) ? strlen(left) : (size_t)(right++ - left);
        if (n + strlen(right) >= sizeof made)
            return -1;
        memcpy(made, left, n);
        memcpy(made + n, right, strlen(right) + 1);
        const json_t *id = json_object_get(vocab, made);
        if (id && pieces[json_integer_value(id)].order == TERN_RANK_NONE)
            pieces[json_integer_value(id)].order = order++;
    }
    return 0;
}

static bool is_spaces(const struct tern_piece *p)
{
    static const size_t one = sizeof TERN_SPACE_MARK - 1;

    for (size_t i = 0; i < p->len; i += one)
        if (p->len - i < one || memcmp(p->text + i, TERN_SPACE_MARK, one) != 0)
            return false;
    return p->order != TERN_RANK_NONE;
}

/* Llama's runs of spaces have one score between them.  Equals come by id in tern's digest; older
 * converters give them that order, newer ones begin with the longest. */
static void sort_spaces(struct tern_token *t)
{
    for (uint32_t i = 0; i < t->n_vocab; i++) {
        if (!is_spaces(&t->pieces[i]))
            continue;
        uint32_t least = i; /* of the places that are left; a vocabulary has 15 such pieces or so */
        for (uint32_t k = i + 1; k < t->n_vocab; k++)
            if (is_spaces(&t->pieces[k]) && t->pieces[k].order < t->pieces[least].order)
                least = k;
        int32_t order = t->pieces[least].order;
        t->pieces[least].order = t->pieces[i].order;
        t->pieces[i].order = order;
    }
}

/* transformers 5 puts merges in the order of ids, runs of spaces among them, which have the least
 * score in Llama's model: behind all others, then. */
static void spaces_last(struct tern_token *t)
{
    int32_t n = 0, moved = 0;
    int32_t *place = tern_alloc(t->n_vocab, sizeof *place, "a vocabulary", NULL); /* by order */

    for (uint32_t i = 0; i < t->n_vocab; i++)
        n = t->pieces[i].order >= n ? t->pieces[i].order + 1 : n;
    for (uint32_t i = 0; place && i < t->n_vocab; i++)
        if (t->pieces[i].order != TERN_RANK_NONE && is_spaces(&t->pieces[i]))
            place[t->pieces[i].order] = 1;
    for (int32_t k = 0; place && k < n; k++) {
        bool spaces = place[k];
        place[k] = spaces ? -1 : k - moved;
        moved += spaces;
    }
    for (uint32_t i = 0, last = 0; place && i < t->n_vocab; i++) {
        int32_t *order = &t->pieces[i].order;
        if (*order != TERN_RANK_NONE)
            *order = place[*order] >= 0 ? place[*order] : n - moved + (int32_t)last++;
    }
    free(place);
}

static void digest(struct tern_token *t, uint8_t hash[TERN_TOKEN_NAMES][TERN_SHA256_BYTES])
{
    tern_token_hash(t, hash[0]);
    sort_spaces(t);
    tern_token_hash(t, hash[1]);
    spaces_last(t);
    tern_token_hash(t, hash[2]);
}

/* The digest of another kind of vocabulary must differ from every SentencePiece one. */
static void mark_other(uint8_t hash[TERN_TOKEN_NAMES][TERN_SHA256_BYTES])
{
    for (int i = 0; i < TERN_TOKEN_NAMES; i++) {
        struct tern_sha256 *s = tern_sha256_new();
        tern_sha256_add(s, "byte level\n", 11);
        tern_sha256_add(s, hash[i], TERN_SHA256_BYTES);
        tern_sha256_end(s, hash[i]);
    }
}

int tern_token_json_hash(const char *path, uint8_t hash[TERN_TOKEN_NAMES][TERN_SHA256_BYTES],
                         struct tern_err *err)
{
    json_t *j = tern_json_load(path, FILE_MAX, err);
    struct tern_token t = {0};
    struct flags f = {0};
    int rc = 0;

    if (!j)
        return -1;
    const json_t *model = json_object_get(j, "model"), *vocab = json_object_get(model, "vocab");
    const json_t *type = json_object_get(model, "type"), *merges = json_object_get(model, "merges");
    const size_t n = json_object_size(vocab);
    read_step(json_object_get(j, "normalizer"), 0, &f);
    read_step(json_object_get(j, "pre_tokenizer"), 0, &f);
    if ((type && !word(model, "type", "BPE")) || !json_is_array(merges) || n == 0 ||
        n > TERN_TOKEN_VOCAB_MAX || (f.other && !f.byte_level))
        goto out;
    t.pieces = tern_alloc(n, sizeof *t.pieces, "a vocabulary", err);
    if (!t.pieces) {
        rc = -1;
        goto out;
    }
    t.n_vocab = (uint32_t)n;
    t.byte_fallback = json_is_true(json_object_get(model, "byte_fallback"));
    t.add_dummy_prefix = f.prefixed;
    t.escape_whitespaces = f.spaced;
    if (read_pieces(vocab, unknown_of(model, vocab), t.pieces) < 0)
        goto out;
    read_added(json_object_get(j, "added_tokens"), vocab, t.pieces);
    if (read_merges(merges, vocab, t.pieces) < 0)
        goto out;
    digest(&t, hash);
    if (f.byte_level)
        mark_other(hash);
    rc = 1;
out:
    free(t.pieces);
    json_decref(j);
    return rc;
}
