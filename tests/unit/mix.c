/* core/data, the mix: tokens so far, at a cost that does not grow with the samples. */
#include "core/base/fs.h"
#include "core/base/rand.h"
#include "core/data/data.h"
#include "core/data/mix.h"
#include "tests/unit/tap.h"

#include <unistd.h>

static char work[] = "/tmp/tern-mix-XXXXXX";

enum { EOS = 2, TEXT = 3, VOCAB = 1000, LONGEST = 64 };

/* A mix of one set, of documents of `least` to `most` tokens and EOS. */
static struct tern_data_mix *make_mix(uint64_t n_docs, uint64_t least, uint64_t most,
                                      uint32_t seq_len, enum tern_data_packing packing)
{
    char *path = tern_fs_join(work, "a.tds");
    const struct tern_data_set_kind kind = {VOCAB, EOS, -1, false, {7}};
    const struct tern_data_mix_source source = {path, 1};
    struct tern_data_set_writer *w = tern_data_set_create(path, &kind, NULL);
    uint32_t ids[LONGEST];

    for (uint64_t i = 0; i < LONGEST; i++)
        ids[i] = TEXT;
    for (uint64_t d = 0; w && d < n_docs; d++) {
        const uint64_t n = least + tern_rand_below(11, 1, d, most - least + 1);
        if (tern_data_set_add(w, ids, NULL, n, n, NULL) < 0)
            abort();
    }
    if (!w || tern_data_set_commit(w, "{}", NULL) < 0)
        abort();
    struct tern_data_mix *m = tern_data_mix_open(
        &source, 1, &(struct tern_data_pack_how){.seq_len = seq_len, .packing = packing}, 9, NULL);
    if (!m)
        abort();
    unlink(path);
    free(path);
    return m;
}

/* Tokens so far are those of the samples so far, one by one, over three epochs. */
static void test_tokens(enum tern_data_packing packing)
{
    struct tern_data_mix *m = make_mix(40, 0, 60, 32, packing);
    const uint64_t n = 3 * tern_data_mix_rows(m);
    uint64_t sum = 0, tokens, wrong = 0;
    struct tern_data_mix_where at;

    for (uint64_t i = 0; i <= n; i++) {
        tern_data_mix_tokens(m, 0, i, &tokens);
        wrong += tokens != sum;
        tern_data_mix_locate(m, 0, i, &at);
        sum += tern_data_pack_filled(tern_data_mix_pack(m, 0), at.row);
    }
    ok(wrong == 0, "packing %d: tokens of a mix are those of its samples (%d times not)",
       (int)packing, (int)wrong);
    tern_data_mix_free(m);
}

/* What a checkpoint asks costs no more after many samples than after few.  No two documents fit
 * into a row: best-fit and padded leave each short. */
static void test_cost(enum tern_data_packing packing)
{
    enum { EVERY = 10, FAR = 100 };
    struct tern_data_mix *m = make_mix(1000, 40, 59, 64, packing);
    const uint64_t rows = tern_data_mix_rows(m), n = 3 * rows;
    uint64_t *tokens = calloc(n + 1, sizeof *tokens), most = 0, got, wrong = 0, before;

    for (uint64_t i = 0; i <= n; i += EVERY) {
        before = tern_data_mix_looked_at(m);
        tern_data_mix_tokens(m, 0, i, &tokens[i]);
        const uint64_t looked_at = tern_data_mix_looked_at(m) - before;
        most = looked_at > most ? looked_at : most;
    }
    ok(packing == TERN_DATA_CONCAT ? most == 0 : most == EVERY,
       "packing %d: a checkpoint looks at the rows since the last one alone (%d)", (int)packing,
       (int)most);
    for (uint64_t k = 0; k < FAR; k++) {
        const uint64_t i = tern_rand_below(1, 2, k, n / EVERY) * EVERY;
        before = tern_data_mix_looked_at(m);
        tern_data_mix_tokens(m, 0, i, &got);
        wrong += got != tokens[i] || tern_data_mix_looked_at(m) - before > rows / 2;
    }
    ok(rows > 500 && wrong == 0,
       "packing %d: in any order tokens are the same, at half an epoch's cost at most",
       (int)packing);
    tern_data_mix_tokens(m, 1, EVERY, &got);
    tern_data_mix_tokens(m, 0, EVERY, &before);
    ok(before == tokens[EVERY] && (packing == TERN_DATA_CONCAT || got != before),
       "packing %d: stages are counted apart", (int)packing);
    free(tokens);
    tern_data_mix_free(m);
}

int main(void)
{
    if (!mkdtemp(work))
        return 1;
    for (int p = TERN_DATA_CONCAT; p <= TERN_DATA_PADDED; p++) {
        test_tokens((enum tern_data_packing)p);
        test_cost((enum tern_data_packing)p);
    }
    rmdir(work);
    return tap_done();
}
