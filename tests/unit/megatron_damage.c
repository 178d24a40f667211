/* core/export: an index of Megatron's that is cut off at any byte, or with any bit wrong. */
#include "core/base/fs.h"
#include "core/base/le.h"
#include "core/base/str.h"
#include "core/export/export.h"
#include "tests/unit/tap.h"

#include <unistd.h>

#define MODEL "tests/golden/spm-bpe-800.model"

enum { DOCS = 3, EOS = 2, HEAD = 34, INDEX = HEAD + 12 * DOCS + 8 * (DOCS + 1) };

static char work[] = "/tmp/tern-megatron-XXXXXX";
static struct tern_token *token;

static char *at(const char *name)
{
    return tern_fs_join(work, name);
}

static void put(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");

    if (!f || fwrite(bytes, 1, n, f) != n || fclose(f) != 0)
        abort();
}

/* Head, lengths, places and documents of DOCS sequences of 1, 2, 3 ids of 16 bits. */
static void make(uint8_t idx[INDEX])
{
    uint64_t place = 0;

    memset(idx, 0, INDEX);
    memcpy(idx, "MMIDIDX\0\0\1\0\0\0\0\0\0\0\10", 18);
    tern_le_put64(idx + 18, DOCS);
    tern_le_put64(idx + 26, DOCS + 1);
    for (unsigned d = 0; d < DOCS; d++) {
        tern_le_put32(idx + HEAD + 4 * d, d + 1);
        tern_le_put64(idx + HEAD + 4 * DOCS + 8 * d, place);
        tern_le_put64(idx + HEAD + 12 * DOCS + 8 * (d + 1), d + 1);
        place += 2 * (d + 1);
    }
}

static int import(struct tern_export_back *back, struct tern_err *err)
{
    const struct tern_export_from f = {
        .path = work, .column = "input_ids", .token = token, .documents = TERN_EXPORT_AS_STORED};
    struct tern_data_set_kind kind;
    char *path = at("back.tds");
    struct tern_data_set_writer *w =
        tern_export_kind(&f, &kind, err) < 0 ? NULL : tern_data_set_create(path, &kind, err);
    const int rc = w ? tern_export_read(&f, w, back, err) : -1;

    tern_data_set_abort(w);
    free(path);
    return rc;
}

int main(void)
{
    static const uint8_t bin[] = {EOS, 0, 7, 0, EOS, 0, 8, 0, 9, 0, EOS, 0};
    struct tern_err err = {0};
    struct tern_export_back back = {0};
    uint8_t idx[INDEX];
    size_t taken = 0, wordless = 0, beyond = 0, in_head = 0;

    if (!mkdtemp(work) || !(token = tern_token_load(MODEL, &err)))
        return 1;
    char *index = at("tokens.idx"), *ids = at("tokens.bin");
    make(idx);
    put(ids, bin, sizeof bin);
    put(index, idx, sizeof idx);
    ok(import(&back, &err) == 0 && back.documents == DOCS && back.tokens == 6,
       "an index of Megatron's is read as its documents: %s", err.text);
    for (size_t n = 0; n < sizeof idx; n++) {
        err = (struct tern_err){0};
        put(index, idx, n);
        taken += import(&back, &err) == 0;
        wordless += err.code != TERN_USAGE || !strstr(err.text, work);
    }
    ok(taken == 0, "no beginning of an index of Megatron's is taken");
    ok(wordless == 0, "each refusal of an index that was cut off names it");
    wordless = 0;
    for (size_t bit = 0; bit < 8 * sizeof idx; bit += tap_long() ? 1 : 3) {
        err = (struct tern_err){0};
        idx[bit / 8] ^= (uint8_t)(1 << bit % 8);
        put(index, idx, sizeof idx);
        const bool is_taken = import(&back, &err) == 0;
        in_head += is_taken && bit / 8 < HEAD;
        if (is_taken)
            beyond += back.tokens > 6 + DOCS; /* an EOS for each at most */
        else
            wordless += err.code != TERN_USAGE || !strstr(err.text, work);
        idx[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    ok(wordless == 0, "each refusal of an index with a wrong bit names it");
    ok(in_head == 0, "no wrong bit in the head of an index of Megatron's is taken");
    ok(beyond == 0, "an index with a wrong bit makes no ids that are not there");
    unlink(index);
    unlink(ids);
    rmdir(work);
    free(index);
    free(ids);
    tern_token_free(token);
    return tap_done();
}
