/* Mutated tokenizers, token sets and texts: each is refused in words or works; nothing crashes,
 * hangs or reads astray (run under SANITIZE=address,undefined to know that).
 *
 *   data [SEED [ROUNDS]]       a failing round is repeated with its SEED
 */
#include "core/base/fs.h"
#include "core/base/rand.h"
#include "core/base/str.h"
#include "core/data/data.h"
#include "core/data/format.h"
#include "core/text/text.h"
#include "core/token/token.h"
#include "tests/unit/tap.h"

#include <unistd.h>
#include <zlib.h>

#define MODEL "tests/golden/spm-bpe-800.model"

static char work[] = "/tmp/tern-fuzz-XXXXXX";
static uint64_t seed = 1;

struct bytes {
    char *data;
    size_t len;
};

static uint64_t draw(uint64_t round, uint64_t k, uint64_t n)
{
    return tern_rand_below(seed, round, k, n);
}

/* A copy of `from` with a few bytes changed, pieces removed, doubled or swapped, or cut off. */
static struct bytes mutate(const struct bytes *from, uint64_t round)
{
    struct bytes b = {malloc(2 * from->len + 1), from->len};
    uint64_t n_changes = 1 + draw(round, 0, 6);

    memcpy(b.data, from->data, from->len);
    for (uint64_t c = 0; c < n_changes && b.len > 1; c++) {
        uint64_t k = 1 + 4 * c;
        /* Half of the changes fall into the first or last 4 KiB, where headers and settings are. */
        uint64_t near = b.len < 4096 ? b.len : 4096;
        uint64_t at = draw(round, k, 4);
        at = at == 0   ? draw(round, k + 1, near)
             : at == 1 ? b.len - 1 - draw(round, k + 1, near)
                       : draw(round, k + 1, b.len);
        uint64_t len = 1 + draw(round, k + 2, b.len - at < 64 ? b.len - at : 64);
        if (at + len > b.len)
            len = b.len - at;
        switch (draw(round, k + 3, 6)) {
        case 0:
        case 1:
            b.data[at] = (char)tern_rand_u64(seed, round, k + 100);
            break;
        case 2:
            b.data[at] ^= (char)(1 << draw(round, k + 100, 8));
            break;
        case 3: /* remove */
            memmove(b.data + at, b.data + at + len, b.len - at - len);
            b.len -= len;
            break;
        case 4: /* double */
            if (b.len + len <= 2 * from->len) {
                memmove(b.data + at + len, b.data + at, b.len - at);
                b.len += len;
            }
            break;
        default:
            if (c == 0 && draw(round, k + 101, 4) == 0)
                b.len = at;
        }
    }
    return b;
}

static bool said(const struct tern_err *err)
{
    return err->code == TERN_USAGE && err->text[0] && !strchr(err->text, '\n');
}

/* A model that loads must encode and decode anything. */
static bool use_token(struct tern_token *t, uint64_t round)
{
    struct tern_err err = {0};
    struct tern_token_encoder *e = tern_token_encoder_new(t, &err);
    char text[200];
    const uint32_t *ids;
    size_t n, len = draw(round, 50, sizeof text);
    struct tern_buf b = {0};
    bool good;

    for (size_t i = 0; i < len; i++)
        text[i] = draw(round, 60, 2) ? "the we\xe2\x96\x81 <sep>\n,"[draw(round, 300 + i, 17)]
                                     : (char)draw(round, 300 + i, 256);
    good = tern_token_encode(e, text, len, &ids, &n, &err) == 0 &&
           tern_token_decode(t, ids, n, &b, &err) == 0;
    tern_buf_free(&b);
    tern_token_encoder_free(e);
    return good;
}

/* A position belongs to a document that begins at it or before, behind those of earlier ones. */
static bool starts_are_right(const int32_t starts[64])
{
    bool good = starts[0] == 0;

    for (int j = 1; j < 64; j++)
        good &= starts[j] == starts[j - 1] || starts[j] == j;
    return good;
}

/* Its packed rows, or an error. */
static bool use_packed(const struct tern_data_set *s, uint64_t round)
{
    const struct tern_data_pack_how how = {64, (enum tern_data_packing)(1 + round % 2),
                                           (enum tern_data_longer)(round / 2 % 2)};
    struct tern_err err = {0};
    int32_t tokens[65], starts[64];
    uint8_t mask[64];
    struct tern_data_pack *p = tern_data_pack_new(s, &how, &err);
    bool good = p || said(&err);

    for (uint64_t i = 0; p && i < 4 && tern_data_pack_counts(p).rows; i++) {
        const uint64_t r = draw(round, 90 + i, tern_data_pack_counts(p).rows);
        if (tern_data_pack_row(p, r, tokens, mask, starts, &err) < 0) {
            good &= said(&err);
            continue;
        }
        good &= starts_are_right(starts);
        for (int j = 0; j <= 64; j++)
            good &= tokens[j] >= 0 && (uint32_t)tokens[j] < tern_data_set_n_vocab(s);
    }
    tern_data_pack_free(p);
    return good;
}

/* A set that opens must give rows or an error, and verify or say why not. */
static bool use_set(struct tern_data_set *s, uint64_t round)
{
    struct tern_err err = {0};
    int32_t tokens[65], starts[64];
    uint8_t mask[64];
    struct tern_data_set_doc doc;
    uint64_t rows = tern_data_set_rows(s, 64), docs = tern_data_set_n_docs(s);
    bool good = true;

    for (uint64_t i = 0; i < 4 && rows; i++) {
        const uint64_t r = draw(round, 70 + i, rows);
        if (tern_data_set_row(s, 64, r, tokens, mask, &err) < 0 ||
            tern_data_set_starts(s, 64, r, starts, &err) < 0) {
            good &= said(&err);
            continue;
        }
        good &= starts_are_right(starts);
        for (int j = 0; j <= 64; j++)
            good &= tokens[j] >= 0 && (uint32_t)tokens[j] < tern_data_set_n_vocab(s);
    }
    good &= use_packed(s, round);
    if (docs && tern_data_set_doc(s, draw(round, 80, docs), &doc, &err) < 0)
        good &= said(&err);
    if (tern_data_set_verify(s, &err) < 0)
        good &= said(&err);
    return good;
}

static void fuzz_models(const struct bytes *model, uint64_t rounds)
{
    char *path = tern_fs_join(work, "x.model");
    uint64_t loaded = 0, wrong = 0;

    for (uint64_t r = 0; r < rounds; r++) {
        struct tern_err err = {0};
        struct bytes b = mutate(model, r);
        tern_fs_replace(path, b.data, b.len, 0644, NULL);
        struct tern_token *t = tern_token_load(path, &err);
        loaded += t != NULL;
        if (t ? !use_token(t, r) : !said(&err)) {
            printf("# seed %llu, round %llu: %s\n", (unsigned long long)seed, (unsigned long long)r,
                   err.text);
            wrong++;
        }
        tern_token_free(t);
        free(b.data);
    }
    ok(wrong == 0, "%u mutated models: %u load and work, the others are refused in words",
       (unsigned)rounds, (unsigned)loaded);
    ok(loaded > 0 && loaded < rounds, "some load and some do not");
    unlink(path);
    free(path);
}

static struct bytes make_set(void)
{
    char *path = tern_fs_join(work, "x.tds");
    struct tern_data_set_kind kind = {800, 2, 1, true, {0}};
    struct tern_data_set_writer *w = tern_data_set_create(path, &kind, NULL);
    struct bytes b = {0};

    for (uint64_t d = 0; d < 300; d++) {
        uint32_t ids[64];
        uint8_t mask[64];
        size_t n = draw(d, 0, 64);
        for (size_t i = 0; i < n; i++) {
            ids[i] = (uint32_t)draw(d, 1 + i, 800);
            mask[i] = (uint8_t)draw(d, 100 + i, 2);
        }
        tern_data_set_add(w, ids, mask, n, 4 * n, NULL);
    }
    if (tern_data_set_commit(w, "{}", NULL) < 0 ||
        tern_fs_read(path, 1 << 24, &b.data, &b.len, NULL) < 0)
        abort();
    free(path);
    return b;
}

/* Half of the sets get a header whose checksum is right again, so that what is behind that check is
 * reached. */
static void mend_crc(struct bytes *b)
{
    struct tern_tds_header head;

    if (b->len < sizeof head)
        return;
    memcpy(&head, b->data, sizeof head);
    head.crc = 0;
    head.crc = tern_crc32c(0, &head, sizeof head);
    memcpy(b->data, &head, sizeof head);
}

static void fuzz_sets(const struct bytes *set, uint64_t rounds)
{
    char *path = tern_fs_join(work, "x.tds");
    uint64_t opened = 0, wrong = 0;

    for (uint64_t r = 0; r < rounds; r++) {
        struct tern_err err = {0};
        struct bytes b = mutate(set, r);
        if (r % 2)
            mend_crc(&b);
        tern_fs_replace(path, b.data, b.len, 0644, NULL);
        struct tern_data_set *s = tern_data_set_open(path, &err);
        opened += s != NULL;
        if (s ? !use_set(s, r) : !said(&err)) {
            printf("# seed %llu, round %llu: %s\n", (unsigned long long)seed, (unsigned long long)r,
                   err.text);
            wrong++;
        }
        tern_data_set_free(s);
        free(b.data);
    }
    ok(wrong == 0, "%u mutated sets: %u open and are read or refused in words", (unsigned)rounds,
       (unsigned)opened);
    ok(opened > 0 && opened < rounds, "some open and some do not");
    unlink(path);
    free(path);
}

/* ---- texts ---- */

static const char *const texts[] = {
    "{\"text\": \"One.\\nTwo \\u00e9.\"}\n{\"text\": \"\"}\n{\"text\": \"caf\xc3\xa9\"}\n",
    "{\"body_text\": [{\"text\": \"a\"}, {\"text\": \"b\"}]}\n{\"content\": {\"text\": \"c\", "
    "\"annotations\": "
    "{\"text\": \"[{}]\"}}}\n{\"body\": {\"text\": \"d\"}}\n",
    "<doc id=\"1\" title=\"T\" dbindex=\"0\">\r\nEl \xe0"
    "bac\r\n\r\nENDOFARTICLE.\r\n</doc>\r\n<doc "
    "id=\"2\">\nDos\n</doc>\n",
    "one\n%\ntwo\n%\n%\nthree \xe2\x82\xac\n",
};

static struct bytes packed(const char *text)
{
    struct bytes b = {malloc(4096), 0};
    z_stream z = {.next_in = (uint8_t *)text,
                  .avail_in = (unsigned)strlen(text),
                  .next_out = (uint8_t *)b.data,
                  .avail_out = 4096};

    if (deflateInit2(&z, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK ||
        deflate(&z, Z_FINISH) != Z_STREAM_END)
        abort();
    b.len = z.total_out;
    deflateEnd(&z);
    return b;
}

/* All documents, or words.  Where bytes are to be replaced, what comes is UTF-8. */
static bool use_text(const char *path, uint64_t round)
{
    const struct tern_text_how how = {
        .format = (enum tern_text_format)draw(round, 90, TERN_TEXT_WIKICORPUS + 1),
        .encoding = (enum tern_text_encoding)draw(round, 91, TERN_TEXT_LATIN1 + 1),
        .invalid = (enum tern_text_invalid)draw(round, 92, TERN_TEXT_SKIP + 1),
        .split = draw(round, 93, 2) ? "%" : NULL,
        .min_bytes = draw(round, 94, 3),
        .skip_bad = draw(round, 95, 2)};
    struct tern_err err = {0};
    struct tern_text *t = tern_text_open(path, &how, &err);
    const char *text;
    size_t len;
    bool good = true;
    int rc = -1;

    while (t && (rc = tern_text_next(t, &text, &len, &err)) > 0)
        for (size_t at = 0, n; at < len && good; at += n) {
            n = tern_str_utf8(text + at, len - at);
            good = n > 0 && (len >= how.min_bytes || len == 0);
        }
    tern_text_close(t);
    return good && (rc == 0 || said(&err));
}

static void fuzz_texts(uint64_t rounds)
{
    enum { N = sizeof texts / sizeof texts[0] };
    char *path = tern_fs_join(work, "x");
    uint64_t wrong = 0;

    for (uint64_t r = 0; r < rounds; r++) {
        const char *text = texts[r % N];
        struct bytes whole =
            r / N % 4 == 0 ? packed(text) : (struct bytes){tern_strdup(text), strlen(text)};
        struct bytes b = mutate(&whole, r);
        tern_fs_replace(path, b.data, b.len, 0644, NULL);
        if (!use_text(path, r)) {
            printf("# seed %llu, round %llu\n", (unsigned long long)seed, (unsigned long long)r);
            wrong++;
        }
        free(whole.data);
        free(b.data);
    }
    ok(wrong == 0, "%u mutated texts are UTF-8 or refused in words", (unsigned)rounds);
    unlink(path);
    free(path);
}

int main(int argc, char **argv)
{
    uint64_t rounds = argc > 2 ? strtoull(argv[2], NULL, 10) : tap_long() ? 60000 : 3000;
    struct bytes model = {0}, set;

    if (argc > 1)
        seed = strtoull(argv[1], NULL, 10);
    if (!mkdtemp(work) || tern_fs_read(MODEL, 1 << 20, &model.data, &model.len, NULL) < 0)
        return 1;
    fuzz_models(&model, rounds);
    set = make_set();
    fuzz_sets(&set, rounds);
    fuzz_texts(rounds);
    free(model.data);
    free(set.data);
    rmdir(work);
    return tap_done();
}
