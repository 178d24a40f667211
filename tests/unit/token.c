/* core/token: ids equal sentencepiece's; a damaged or foreign model is refused in one line.
 *
 * tests/golden/spm-bpe-800.model was made with spm_train (BPE, byte fallback, split digits,
 * identity, one user-defined piece "<sep>") from presidents' addresses to the Congress, which are
 * in the public domain; spm-bpe-800.tsv has texts and decoded texts in hex and the ids that
 * sentencepiece 0.1.97 gives. */
#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/rand.h"
#include "core/token/vocab.h"
#include "tests/unit/tap.h"
#include "tests/unit/token_cases.h"

#include <unistd.h>

#define MODEL "tests/golden/spm-bpe-800.model"
#define CASES "tests/golden/spm-bpe-800.tsv"
#define SHARED "../shared/data/tokenizers/"

static char work[] = "/tmp/tern-token-XXXXXX";

/* Cases parted by a line; the ids of one case a line. */
static void test_vectors(const char *model, const char *name)
{
    static const char part[] = "\n__ggml_vocab_test__\n";
    char path[256], *in = NULL, *out = NULL;
    size_t in_len, out_len;
    int n_cases = 0, bad = 0;
    struct tern_token *t = tern_token_load(model, NULL);
    struct tern_token_encoder *e = t ? tern_token_encoder_new(t, NULL) : NULL;

    snprintf(path, sizeof path, SHARED "vectors/%s.inp", name);
    if (!e || tern_fs_read(path, 1 << 20, &in, &in_len, NULL) < 0) {
        tap_skip("no shared data");
        goto out;
    }
    snprintf(path, sizeof path, SHARED "vectors/%s.out", name);
    if (!ok(tern_fs_read(path, 1 << 20, &out, &out_len, NULL) == 0, "vectors are readable"))
        goto out;
    char *at = in, *want = out;
    for (char *end; (end = memmem(at, (size_t)(in + in_len - at), part, sizeof part - 1));
         at = end + sizeof part - 1) {
        const uint32_t *ids;
        size_t n, line = strcspn(want, "\n");
        bool last = want[line] == '\0';
        want[line] = '\0';
        n_cases++;
        if (tern_token_encode(e, at, (size_t)(end - at), &ids, &n, NULL) < 0 ||
            !same_ids(ids, n, want)) {
            printf("# case %d differs\n", n_cases);
            bad++;
        }
        want += line + !last;
    }
    ok(n_cases == 46 && bad == 0, "%s: %d vectors of llama.cpp", name, n_cases);
out:
    free(in);
    free(out);
    tern_token_encoder_free(e);
    tern_token_free(t);
}

/* Words come from the cache or from merging: the ids are the same. */
static void test_cache(struct tern_token *t, struct tern_token_encoder *warm)
{
    static const char *const bits[] = {"the",      " people", "\xc3\xa9", " ",  "1",
                                       "Congress", "<sep>",   "\xff",     "\n", "ing"};
    int bad = 0;

    for (uint64_t i = 0; i < 300; i++) {
        char text[256] = "";
        const uint32_t *a, *b;
        size_t n_a, n_b;
        for (uint64_t k = 0; k < 1 + tern_rand_below(1, i, 99, 20); k++)
            strcat(text, bits[tern_rand_below(1, i, k, 10)]);
        struct tern_token_encoder *cold = tern_token_encoder_new(t, NULL);
        tern_token_encode(warm, text, strlen(text), &a, &n_a, NULL);
        tern_token_encode(cold, text, strlen(text), &b, &n_b, NULL);
        bad += n_a != n_b || (n_a && memcmp(a, b, n_a * sizeof *a) != 0);
        tern_token_encoder_free(cold);
    }
    ok(bad == 0, "a warm encoder gives the ids of a cold one");
}

static void test_long(struct tern_token *t, struct tern_token_encoder *e)
{
    enum { LEN = 1 << 20 };
    char *s = malloc(LEN);
    const uint32_t *ids;
    size_t n;
    struct tern_buf b = {0};

    memset(s, 'e', LEN);
    ok(tern_token_encode(e, s, LEN, &ids, &n, NULL) == 0 && n > 0,
       "a megabyte without a space is merged");
    ok(tern_token_decode(t, ids, n, &b, NULL) == 0 && b.len == LEN && memcmp(b.data, s, LEN) == 0,
       "a megabyte without a space decodes to itself");
    tern_buf_free(&b);
    free(s);
}

static void test_decode_range(const struct tern_token *t)
{
    struct tern_err err = {0};
    struct tern_buf b = {0};
    uint32_t id = tern_token_n_vocab(t);

    ok(tern_token_decode(t, &id, 1, &b, &err) < 0, "an id outside the vocabulary is refused");
    has(err.text, "outside the vocabulary of 800", "an id outside the vocabulary is named");
    tern_buf_free(&b);
}

/* Write `len` bytes as a model and load it. */
static struct tern_token *load_bytes(const char *data, size_t len, struct tern_err *err)
{
    char *path = tern_strf("%s/x.model", work);
    struct tern_token *t =
        tern_fs_replace(path, data, len, 0644, err) < 0 ? NULL : tern_token_load(path, err);
    unlink(path);
    free(path);
    return t;
}

static void test_damaged(void)
{
    char *data;
    size_t len, accepted = 0, wordless = 0;

    if (!ok(tern_fs_read(MODEL, 1 << 20, &data, &len, NULL) == 0, "the golden model is there"))
        return;
    /* What is left out last may be optional: nothing is after the normaliser here. */
    for (size_t cut = 0; cut < len; cut += cut < 64 || cut + 64 > len ? 1 : 101) {
        struct tern_err err = {0};
        struct tern_token *t = load_bytes(data, cut, &err);
        accepted += t != NULL;
        wordless += !t && (err.code != TERN_USAGE || !strstr(err.text, "x.model"));
        tern_token_free(t);
    }
    ok(accepted == 0, "no beginning of a model is taken for a model");
    ok(wordless == 0, "each refusal of a damaged model names the file");

    /* Protocol buffers merge: a later setting wins.  Field 2 (trainer), its field 3 (type) = 1. */
    struct {
        const char *tail;
        size_t len;
        const char *words;
    } extra[] = {
        {"\x12\x02\x18\x01", 4, "unigram"},
        {"\x1a\x03\x12\x01x", 5, "character map is damaged"},
        {"\x0a\x07\x0a\x05<sep>", 9, "have the same text"},
        {"\x0a\x05\x0a\x01\xff\x18\x04", 7, "not UTF-8"},
        {"\x0a\x00", 2, "is empty"},
        {"\x0a\x06\x0a\x02q\x00\x18\x01", 8, "a NUL"},
        {"\x12\x03\x98\x02\x00", 5, "byte_fallback is off"},
        {"\x0a\x85\x80\x80\x80\x08\x0a\x01q", 9, "damaged"},
    };
    for (size_t i = 0; i < sizeof extra / sizeof extra[0]; i++) {
        struct tern_err err = {0};
        char *more = malloc(len + extra[i].len);
        memcpy(more, data, len);
        memcpy(more + len, extra[i].tail, extra[i].len);
        struct tern_token *t = load_bytes(more, len + extra[i].len, &err);
        ok(!t, "a model that is %s is refused", extra[i].words);
        has(err.text, extra[i].words, "the error gives the reason: %s", extra[i].words);
        tern_token_free(t);
        free(more);
    }
    /* A piece's kind stands behind its text and its score. */
    char *kind = memmem(data, len, "<0x41>", 6);
    kind = kind ? memmem(kind, 16, "\x18\x06", 2) : NULL;
    if (ok(kind != NULL, "the model has a piece for the byte 0x41")) {
        struct tern_err err = {0};
        kind[1] = TERN_PIECE_NORMAL;
        struct tern_token *t = load_bytes(data, len, &err);
        has(err.text, "255 of 256 bytes", "a byte without a piece is refused");
        tern_token_free(t);
    }
    free(data);
}

static void hash_of(struct tern_token *t, char hex[TERN_SHA256_HEX])
{
    uint8_t hash[TERN_SHA256_BYTES];

    tern_token_hash(t, hash);
    tern_hex(hex, hash, sizeof hash);
}

static void test_hash(struct tern_token *t)
{
    char a[TERN_SHA256_HEX], b[TERN_SHA256_HEX], *data;
    size_t len;

    /* Sets on disk carry this; a change of the rule would orphan them. */
    hash_of(t, a);
    is(a, "45d1700b359743b282cc90af38d243f3c67eeddd3a0d679f09e2efbbb9bd1ef6",
       "the vocabulary's hash is the known one");
    if (tern_fs_read(MODEL, 1 << 20, &data, &len, NULL) < 0)
        return;
    char *more = malloc(len + 4);
    memcpy(more, data, len);
    memcpy(more + len, "\x1a\x02\x18\x00", 4); /* add_dummy_prefix off */
    struct tern_token *other = load_bytes(more, len + 4, NULL);
    if (ok(other != NULL, "the same pieces without a dummy prefix load")) {
        hash_of(other, b);
        ok(strcmp(a, b) != 0, "a model without a dummy prefix is another vocabulary");
    }
    tern_token_free(other);
    free(more);
    free(data);
}

static void test_folders(void)
{
    struct tern_err err = {0};
    char *json = tern_strf("%s/tokenizer.json", work);

    ok(!tern_token_load(work, &err), "a folder without a tokenizer is refused");
    has(err.text, "no tokenizer.model", "a folder without a tokenizer is named");
    tern_fs_replace(json, "{}", 2, 0644, NULL);
    ok(!tern_token_load(work, &err), "a folder with an empty tokenizer.json is refused");
    has(err.text, "tokenizer.json: has no model", "an empty tokenizer.json is named");
    unlink(json);
    free(json);
    char *data, *model = tern_strf("%s/tokenizer.model", work);
    size_t len;
    if (tern_fs_read(MODEL, 1 << 20, &data, &len, NULL) == 0) {
        tern_fs_replace(model, data, len, 0644, NULL);
        struct tern_token *t = tern_token_load(work, NULL);
        ok(t && tern_token_n_vocab(t) == 800, "a folder's tokenizer.model is found");
        tern_token_free(t);
        free(data);
    }
    unlink(model);
    free(model);
}

static void add_merges(json_t *merges, const struct tern_piece *p, const json_t *vocab)
{
    for (uint32_t k = 1; k < p->len; k++) {
        char *left = tern_strf("%.*s", (int)k, p->text);
        char *right = tern_strf("%.*s", (int)(p->len - k), p->text + k);
        if (json_object_get(vocab, left) && json_object_get(vocab, right))
            json_array_append_new(merges, json_pack("[s s]", left, right));
        free(left);
        free(right);
    }
}

static json_t *added_token(const char *text, uint32_t id, bool special)
{
    return json_pack("{s:s, s:i, s:b, s:b, s:b, s:b, s:b}", "content", text, "id", id, "special",
                     special, "single_word", 0, "lstrip", 0, "rstrip", 0, "normalized", 0);
}

/* As Hugging Face's converter does it. */
static json_t *converted(const struct tern_token *t)
{
    json_t *vocab = json_object(), *merges = json_array(), *added = json_array();

    for (uint32_t i = 0; i < t->n_vocab; i++) {
        const struct tern_piece *p = &t->pieces[i];
        char *text = tern_strf("%.*s", (int)p->len, p->text);
        json_object_set_new(vocab, text, json_integer(i));
        if (p->kind != TERN_PIECE_NORMAL && p->kind != TERN_PIECE_BYTE)
            json_array_append_new(added, added_token(text, i, p->kind != TERN_PIECE_USER_DEFINED));
        free(text);
    }
    for (int32_t order = 0; order < (int32_t)t->n_vocab; order++)
        for (uint32_t i = 0; i < t->n_vocab; i++)
            if (t->pieces[i].order == order)
                add_merges(merges, &t->pieces[i], vocab);
    json_array_append_new(added, added_token("<pad>", 800, true));
    return json_pack("{s:o, s:{s:s, s:[{s:s, s:s}, {s:s, s:{s:s}, s:s}]}, s:n, s:{s:s, s:s, s:b, "
                     "s:o, s:o}}",
                     "added_tokens", added, "normalizer", "type", "Sequence", "normalizers", "type",
                     "Prepend", "prepend", TERN_SPACE_MARK, "type", "Replace", "pattern", "String",
                     " ", "content", TERN_SPACE_MARK, "pre_tokenizer", "model", "type", "BPE",
                     "unk_token", "<unk>", "byte_fallback", 1, "vocab", vocab, "merges", merges);
}

/* 1: the vocabulary of `t`; 0: another; 2: it has no name; -1: not read. */
static int named(json_t *j, const struct tern_token *t)
{
    char *path = tern_strf("%s/tokenizer.json", work);
    uint8_t want[TERN_SHA256_BYTES], got[TERN_TOKEN_NAMES][TERN_SHA256_BYTES];
    struct tern_err err = {0};

    tern_token_hash(t, want);
    json_dump_file(j, path, 0);
    int rc = tern_token_json_hash(path, got, &err);
    unlink(path);
    free(path);
    if (rc != 1)
        return rc < 0 ? -1 : 2;
    return memcmp(got[0], want, sizeof want) == 0 || memcmp(got[1], want, sizeof want) == 0 ||
           memcmp(got[2], want, sizeof want) == 0;
}

static void test_json(const struct tern_token *t)
{
    json_t *j = converted(t), *model = json_object_get(j, "model");
    json_t *merges = json_object_get(model, "merges"), *vocab = json_object_get(model, "vocab");
    json_t *normalizer = json_incref(json_object_get(j, "normalizer"));

    ok(named(j, t) == 1, "tokenizer.json of the same vocabulary has its name");
    json_object_set_new(model, "unk_token", json_null());
    ok(named(j, t) == 1, "tokenizer.json without unk_token (transformers 5) has the same name");
    json_object_set_new(model, "unk_token", json_string("<unk>"));
    json_object_set_new(j, "normalizer", json_null());
    ok(named(j, t) == 0, "tokenizer.json without its normaliser is another vocabulary");
    json_object_set_new(j, "pre_tokenizer",
                        json_pack("{s:s, s:s, s:s, s:b}", "type", "Metaspace", "replacement",
                                  TERN_SPACE_MARK, "prepend_scheme", "first", "split", 0));
    ok(named(j, t) == 1, "Metaspace stands for the normaliser in newer files");
    json_object_set_new(model, "byte_fallback", json_false());
    json_object_set_new(
        j, "pre_tokenizer",
        json_pack("{s:s, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0, "use_regex", 1));
    ok(named(j, t) == 0, "byte-level BPE is another vocabulary");
    json_object_set_new(model, "byte_fallback", json_true());
    json_object_set_new(j, "pre_tokenizer", json_null());
    json_object_set_new(j, "normalizer",
                        json_pack("{s:s, s:{s:i}, s:s}", "type", "Replace", "pattern", "String", 1,
                                  "content", TERN_SPACE_MARK));
    ok(named(j, t) == 2, "tokenizer.json with a pattern that is not text has no name");
    json_object_set_new(j, "normalizer", json_pack("{s:s}", "type", "NFKC"));
    ok(named(j, t) == 2, "tokenizer.json with a mapping normaliser has no name");
    json_object_set(j, "normalizer", normalizer);
    json_t *last = json_incref(json_array_get(merges, json_array_size(merges) - 1));
    json_array_remove(merges, json_array_size(merges) - 1);
    json_array_insert(merges, 0, last);
    ok(named(j, t) == 0, "merges in another order are another vocabulary");
    json_array_remove(merges, 0);
    json_array_append_new(merges, last);
    json_object_set_new(vocab, "</s>", json_integer(1));
    ok(named(j, t) == -1, "tokenizer.json with a doubled id is not read");
    json_object_set_new(vocab, "</s>", json_integer(1 << 30));
    ok(named(j, t) == -1, "tokenizer.json with an id far out is not read");
    json_object_set_new(vocab, "</s>", json_string("2"));
    ok(named(j, t) == -1, "tokenizer.json with an id that is not a number is not read");
    json_object_set_new(vocab, "</s>", json_integer(2));
    json_array_append_new(merges, json_integer(3));
    ok(named(j, t) == -1, "tokenizer.json with a bad merge is not read");
    json_object_set_new(model, "type", json_string("Unigram"));
    ok(named(j, t) == 2, "tokenizer.json of a unigram model has no name");
    json_t *list = json_array();
    ok(named(list, t) == 2, "tokenizer.json that is a list has no name");
    json_decref(list);
    json_decref(normalizer);
    json_decref(j);
}

struct made {
    json_int_t id;
    size_t at;
    json_t *merge;
};

static int by_made(const void *a, const void *b)
{
    const struct made *x = a, *y = b;

    return x->id != y->id ? (x->id > y->id) - (x->id < y->id) : (x->at > y->at) - (x->at < y->at);
}

/* Merges of one text each ("left right") as pairs, by the id of what they make. */
static json_t *sorted_by_id(const json_t *merges, const json_t *vocab)
{
    const size_t n = json_array_size(merges);
    struct made *v = calloc(n, sizeof *v);
    json_t *out = json_array();

    for (size_t i = 0; i < n; i++) {
        const char *s = json_string_value(json_array_get(merges, i)), *gap = strchr(s, ' ');
        char *text = tern_strf("%.*s%s", (int)(gap - s), s, gap + 1);
        char *left = tern_strf("%.*s", (int)(gap - s), s);
        v[i] = (struct made){json_integer_value(json_object_get(vocab, text)), i,
                             json_pack("[s s]", left, gap + 1)};
        free(text);
        free(left);
    }
    qsort(v, n, sizeof *v, by_made);
    for (size_t i = 0; i < n; i++)
        json_array_append_new(out, v[i].merge);
    free(v);
    return out;
}

/* Newer converters begin with the longest run of spaces. */
static void test_spaces(void)
{
    json_t *j = json_load_file(SHARED "llama2/tokenizer.json", 0, NULL);
    struct tern_token *t = tern_token_load(SHARED "llama2/tokenizer.model", NULL);
    json_t *merges = json_object_get(json_object_get(j, "model"), "merges"), *runs = json_array();

    if (!j || !t) {
        printf("# no shared data\n");
        goto out;
    }
    ok(named(j, t) == 1, "Llama 2's tokenizer.json and tokenizer.model have one name");
    for (size_t i = 0; i < json_array_size(merges); i++) {
        const char *s = json_string_value(json_array_get(merges, i));
        size_t n = 0;
        while (strncmp(s + n, TERN_SPACE_MARK, 3) == 0 || s[n] == ' ')
            n += s[n] == ' ' ? 1 : 3;
        if (!s[n])
            json_array_append(runs, json_array_get(merges, i));
    }
    const size_t n = json_array_size(runs), all = json_array_size(merges);
    ok(n > 20 && strcmp(json_string_value(json_array_get(merges, all - 1)),
                        json_string_value(json_array_get(runs, n - 1))) == 0,
       "a converted vocabulary ends with its %zu runs of spaces", n);
    for (size_t i = 0; i < n; i++)
        json_array_set(merges, all - 1 - i, json_array_get(runs, i));
    ok(named(j, t) == 1, "runs of spaces may come longest first");
    json_object_set_new(json_object_get(j, "model"), "unk_token", json_null());
    json_t *by_id = sorted_by_id(merges, json_object_get(json_object_get(j, "model"), "vocab"));
    json_object_set_new(json_object_get(j, "model"), "merges", by_id);
    ok(named(j, t) == 1, "transformers 5 orders merges by id");
out:
    json_decref(runs);
    json_decref(j);
    tern_token_free(t);
}

int main(void)
{
    struct tern_err err = {0};

    if (!mkdtemp(work))
        return 1;
    struct tern_token *t = tern_token_load(MODEL, &err);
    if (!ok(t != NULL, "a model loads")) {
        printf("# %s\n", err.text);
        return tap_done();
    }
    struct tern_token_encoder *e = tern_token_encoder_new(t, &err);
    ok(tern_token_n_vocab(t) == 800 && tern_token_unk(t) == 0 && tern_token_bos(t) == 1 &&
           tern_token_eos(t) == 2,
       "a model has its size and special ids");
    size_t len;
    const char *piece = tern_token_piece(t, 2, &len);
    ok(len == 4 && memcmp(piece, "</s>", 4) == 0, "a model's pieces can be read");
    test_cases(t, e, CASES);
    test_cache(t, e);
    test_long(t, e);
    test_decode_range(t);
    test_hash(t);
    test_damaged();
    test_folders();
    test_json(t);
    test_spaces();
    test_vectors(SHARED "llama2", "llama-spm");
    test_vectors(SHARED "llama3", "llama-bpe");
    test_vectors(SHARED "gpt2", "gpt-2");
    tern_token_encoder_free(e);
    tern_token_free(t);
    rmdir(work);
    return tap_done();
}
