/* core/data, packing: every token of a set is a target once in all packings, rows hold whole
 * documents, and what is lost is counted. */
#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/rand.h"
#include "core/base/str.h"
#include "core/data/data.h"
#include "core/data/pack.h"
#include "tests/unit/tap.h"

#include <unistd.h>

static char work[] = "/tmp/tern-pack-XXXXXX";

enum { EOS = 2, BOS = 1, TEXT = 3, VOCAB = 1 << 20, LONGEST = 200 };

/* Many short documents, some up to the longest, as texts have them; some are empty. */
static uint64_t length(uint64_t seed, uint64_t d, uint64_t longest)
{
    uint64_t n = tern_rand_below(seed, 1, d, longest + 1);

    return tern_rand_below(seed, 2, d, 3) ? n / 8 : n;
}

/* Every token of text is another one: the k-th of the set is TEXT + k. */
static char *make_set(uint64_t seed, uint64_t n_docs, uint64_t longest, int32_t bos, bool masked)
{
    char *path = tern_fs_join(work, "a.tds");
    struct tern_data_set_kind kind = {VOCAB, EOS, bos, masked, {7}};
    struct tern_data_set_writer *w = tern_data_set_create(path, &kind, NULL);
    uint32_t ids[LONGEST], next = TEXT;
    uint8_t mask[LONGEST];

    for (uint64_t d = 0; w && d < n_docs; d++) {
        uint64_t n = length(seed, d, longest);
        for (uint64_t i = 0; i < n; i++, next++) {
            ids[i] = next;
            mask[i] = next % 3 == 0;
        }
        if (tern_data_set_add(w, ids, masked ? mask : NULL, n, n, NULL) < 0)
            abort();
    }
    if (!w || tern_data_set_commit(w, "{}", NULL) < 0)
        abort();
    return path;
}

/* ---- every token back ---- */

struct document {
    uint64_t first, n; /* tokens, BOS and EOS among them */
    bool longer;       /* than a row */
};

/* A walk over all rows of a set, and what it finds. */
struct walk {
    const struct tern_data_set *set;
    const struct tern_data_pack *pack;
    struct tern_data_pack_how how;
    bool bos;
    uint64_t n, n_docs;
    int32_t *all;     /* [n]: the set's tokens, */
    uint8_t *targets; /* which of them are targets, */
    uint32_t *doc;    /* and the document of each */
    uint64_t *place;  /* where token TEXT + k of text is in `all` */
    uint32_t *seen;   /* [n]: how often each was a target */
    struct document *docs;
    uint64_t empty; /* documents without text that were seen */
    uint64_t begun; /* BOS that were seen */
    struct tern_data_pack_counts counts;
    uint64_t wrong;
};

static void walk_open(struct walk *w)
{
    const uint64_t room = w->how.seq_len + w->bos;

    w->n = tern_data_set_n_tokens(w->set);
    w->n_docs = tern_data_set_n_docs(w->set);
    w->all = calloc(w->n + 1, sizeof *w->all);
    w->targets = calloc(w->n + 1, 1);
    w->doc = calloc(w->n + 1, sizeof *w->doc);
    w->place = calloc(w->n + 1, sizeof *w->place);
    w->seen = calloc(w->n + 1, sizeof *w->seen);
    w->docs = calloc(w->n_docs + 1, sizeof *w->docs);
    tern_data_set_read(w->set, 0, w->n, w->all, NULL);
    tern_data_set_mask(w->set, 0, w->n, w->targets, NULL);
    for (uint64_t d = 0, at = 0; d < w->n_docs; d++) {
        struct document *x = &w->docs[d];
        x->first = at;
        do {
            w->doc[at] = (uint32_t)d;
            if (w->all[at] >= TEXT)
                w->place[w->all[at] - TEXT] = at;
        } while (w->all[at++] != EOS);
        x->n = at - x->first;
        x->longer = w->how.packing != TERN_DATA_CONCAT && x->n > room;
        if (x->longer && w->how.longer == TERN_DATA_LONGER_DROP) {
            w->counts.dropped++;
            w->counts.dropped_tokens += x->n;
        } else if (x->longer) {
            w->counts.cut++;
        }
    }
}

static void walk_close(struct walk *w)
{
    free(w->all);
    free(w->targets);
    free(w->doc);
    free(w->place);
    free(w->seen);
    free(w->docs);
}

/* Input j and those before it that its document has in the row, where the target is token `at`. */
static bool inputs_are_right(const struct walk *w, const int32_t *row, int32_t start, int32_t j,
                             uint64_t at)
{
    const struct document *d = &w->docs[w->doc[at]];
    const uint64_t before = at - d->first; /* tokens of the document */
    const uint64_t here = (uint64_t)(j - start) + w->bos;
    const bool whole = w->how.packing != TERN_DATA_CONCAT && !d->longer;

    for (int32_t k = j; k > start; k--)
        if ((uint64_t)(j - k) >= before || row[k] != w->all[at - 1 - (uint64_t)(j - k)])
            return false;
    if (here == before) /* all of them, behind an EOS or from a BOS on */
        return row[start] == (w->bos ? BOS : EOS);
    if (whole || here > before)
        return false;
    return row[start] == EOS || row[start] == w->all[at - 1 - (uint64_t)(j - start)];
}

/* Target j of a row, which is no padding. */
static void see(struct walk *w, const int32_t *row, const uint8_t *mask, int32_t start, int32_t j)
{
    const bool concat = w->how.packing == TERN_DATA_CONCAT;
    const int32_t target = row[j + 1], input = row[j];
    uint64_t at;

    if (target == BOS) {
        w->begun++;
        w->wrong += input != EOS || mask[j] != (concat && !tern_data_set_has_mask(w->set));
        return;
    }
    if (target == EOS && input < TEXT) {
        w->empty++;
        w->wrong += input != (w->bos ? BOS : EOS) || mask[j] != 1;
        return;
    }
    at = target == EOS ? w->place[input - TEXT] + 1 : w->place[target - TEXT];
    if (!concat && w->bos && mask[j] == 0 && input == EOS) { /* it stands before a rest */
        w->wrong += !w->docs[w->doc[at]].longer || row[j + 2] != w->all[at + 1];
        return;
    }
    w->seen[at]++;
    w->wrong += w->all[at] != target || mask[j] != w->targets[at];
    w->wrong += !inputs_are_right(w, row, start, j, at);
}

static void walk_row(struct walk *w, uint64_t r, int32_t *row, uint8_t *mask, int32_t *starts)
{
    const int32_t len = (int32_t)w->how.seq_len;
    int32_t end = len;
    uint64_t begins = 0;

    memset(mask, 2, (size_t)len);
    if (tern_data_pack_row(w->pack, r, row, mask, starts, NULL) < 0) {
        w->wrong++;
        return;
    }
    while (end > 0 && row[end] == EOS && mask[end - 1] == 0)
        end--;
    w->counts.padding += (uint64_t)(len - end);
    w->wrong += tern_data_pack_filled(w->pack, r) != (uint32_t)end;
    w->begun += row[0] == BOS && w->how.packing != TERN_DATA_CONCAT;
    for (int32_t j = 0; j < end; j++) {
        see(w, row, mask, starts[j], j);
        begins += j + 1 < end && row[j + 1] == EOS;
    }
    w->wrong += w->how.packing == TERN_DATA_PADDED && begins > 0; /* a second document */
}

/* The EOS of a document is all of its rest: behind another EOS it looks like an empty document. */
static bool may_be_lone(const struct walk *w, const struct document *d)
{
    return d->longer && !w->bos && d->n % w->how.seq_len == 1 &&
           w->how.packing == TERN_DATA_BEST_FIT;
}

/* Every place of every document is a target once, or was dropped as asked. */
static void count_back(struct walk *w)
{
    uint64_t empty = 0;

    for (uint64_t d = 0; d < w->n_docs; d++) {
        const struct document *x = &w->docs[d];
        const bool dropped = x->longer && w->how.longer == TERN_DATA_LONGER_DROP;
        const uint64_t end = x->first + x->n;
        empty += x->n == 1U + w->bos && !dropped;
        for (uint64_t at = x->first + w->bos; at < end && x->n > 1U + w->bos; at++) {
            if (at + 1 == end && w->seen[at] == 0 && may_be_lone(w, x) && !dropped)
                empty++;
            else
                w->wrong += w->seen[at] != !dropped;
        }
    }
    w->wrong += empty != w->empty;
    w->wrong += w->bos && w->begun != w->n_docs - w->counts.dropped;
}

static bool same_counts(const struct tern_data_pack_counts *a,
                        const struct tern_data_pack_counts *b)
{
    return a->rows == b->rows && a->padding == b->padding && a->cut == b->cut &&
           a->dropped == b->dropped && a->dropped_tokens == b->dropped_tokens;
}

/* What is wrong with the rows of a set; *ret_counts as the pack gives them. */
static uint64_t wrong_rows(uint64_t seed, uint64_t n_docs, uint64_t longest, int32_t bos,
                           bool masked, struct tern_data_pack_how how,
                           struct tern_data_pack_counts *ret_counts)
{
    char *path = make_set(seed, n_docs, longest, bos, masked);
    struct tern_data_set *s = tern_data_set_open(path, NULL);
    struct tern_data_pack *p = tern_data_pack_new(s, &how, NULL);
    struct walk w = {.set = s, .pack = p, .how = how, .bos = bos >= 0};
    int32_t *row = calloc(how.seq_len + 1, sizeof *row), *starts = calloc(how.seq_len, 4);
    uint8_t *mask = calloc(how.seq_len, 1);
    struct tern_err err = {0};

    if (!s || !p || !row || !starts || !mask)
        abort();
    *ret_counts = tern_data_pack_counts(p);
    walk_open(&w);
    w.counts.rows = ret_counts->rows;
    for (uint64_t r = 0; r < ret_counts->rows; r++)
        walk_row(&w, r, row, mask, starts);
    count_back(&w);
    w.wrong += !same_counts(&w.counts, ret_counts);
    w.wrong += tern_data_pack_row(p, ret_counts->rows, row, mask, starts, &err) == 0;
    walk_close(&w);
    free(row);
    free(starts);
    free(mask);
    tern_data_pack_free(p);
    tern_data_set_free(s);
    unlink(path);
    free(path);
    return w.wrong;
}

static void test_every_token(enum tern_data_packing packing, enum tern_data_longer longer,
                             const char *name)
{
    static const uint32_t lens[] = {1, 2, 7, 31, 64, 65, 150, 500};
    const uint64_t sets = tap_long() ? 60 : 8;
    struct tern_data_pack_counts c, all = {0};
    uint64_t wrong = 0;

    for (uint64_t seed = 0; seed < sets; seed++) {
        for (size_t i = 0; i < sizeof lens / sizeof *lens; i++) {
            const struct tern_data_pack_how how = {lens[i], packing, longer};
            const uint64_t docs = seed == 0 ? 1 : tern_rand_below(seed, 3, i, 120);
            uint64_t bad = wrong_rows(100 * seed + i, docs, seed % 2 ? LONGEST : 70,
                                      seed / 2 % 2 ? BOS : -1, seed / 4 % 2, how, &c);
            if (bad && !wrong)
                printf("# seed %d, rows of %u: %d are wrong\n", (int)seed, lens[i], (int)bad);
            wrong += bad;
            all.rows += c.rows;
            all.padding += c.padding;
            all.cut += c.cut;
            all.dropped += c.dropped;
        }
    }
    ok(wrong == 0 && all.rows > 300,
       "%s: every token is a target once or counted as dropped (%llu rows, %llu cut, %llu dropped)",
       name, (unsigned long long)all.rows, (unsigned long long)all.cut,
       (unsigned long long)all.dropped);
    ok((all.dropped > 0) == (packing != TERN_DATA_CONCAT && longer == TERN_DATA_LONGER_DROP) &&
           (all.cut > 0) == (packing != TERN_DATA_CONCAT && longer == TERN_DATA_LONGER_CUT),
       "%s: documents longer than a row are met", name);
}

/* ---- best-fit ---- */

static const char *bins(const uint32_t *sizes, uint32_t n, uint32_t room)
{
    static struct tern_buf b;
    struct tern_data_bins got;

    tern_buf_clear(&b);
    if (tern_data_bins_fit(sizes, n, room, &got, NULL) < 0)
        return "failed";
    for (uint32_t i = 0; i < got.n_bins; i++) {
        tern_buf_puts(&b, "[");
        for (uint32_t k = got.first[i]; k < got.first[i + 1]; k++)
            tern_buf_printf(&b, "%s%u", k > got.first[i] ? " " : "", got.things[k]);
        tern_buf_puts(&b, "]");
    }
    tern_data_bins_free(&got);
    return b.data ? b.data : "";
}

static void test_bins(void)
{
    /* Golden places: others would give runs that exist other rows. */
    is(bins((uint32_t[]){5, 7, 0, 3, 2, 5, 4, 4}, 8, 10), "[1 3][0 5][6 7 4]",
       "each goes into the bin with the least room that it fits in, the largest first");
    is(bins((uint32_t[]){6, 6, 4, 4, 1}, 5, 10), "[0 3][1 2][4]",
       "of equal bins the newest is taken, of equal things the first comes first");
    is(bins((uint32_t[]){0, 0}, 2, 10), "", "nothing but empty things makes no bin");
    is(bins((uint32_t[]){1, 1}, 2, 1), "[0][1]", "bins of one are filled by one");
}

/* Against the definition, a search through all bins. */
static void test_bins_by_hand(void)
{
    enum { N = 2000, ROOM = 5000 };
    static uint32_t sizes[N], order[N], bin_of[N], left[N], got_of[N];
    uint32_t n_bins = 0, n = 0;
    struct tern_data_bins got = {0};
    uint64_t wrong = 0;

    for (uint32_t i = 0; i < N; i++)
        sizes[i] = (uint32_t)tern_rand_below(3, 1, i, i % 5 ? ROOM / 10 : ROOM + 1);
    for (uint32_t size = ROOM; size > 0; size--)
        for (uint32_t i = 0; i < N; i++)
            if (sizes[i] == size)
                order[n++] = i;
    for (uint32_t k = 0; k < n; k++) {
        uint32_t best = n_bins;
        for (uint32_t b = 0; b < n_bins; b++)
            if (left[b] >= sizes[order[k]] && (best == n_bins || left[b] < left[best]))
                best = b;
        if (best == n_bins)
            left[n_bins++] = ROOM;
        left[best] -= sizes[order[k]];
        bin_of[order[k]] = left[best];
    }
    if (tern_data_bins_fit(sizes, N, ROOM, &got, NULL) < 0)
        abort();
    /* Which of several bins with the same room is taken changes no room. */
    for (uint32_t b = 0; b < got.n_bins; b++) {
        uint32_t room = ROOM;
        for (uint32_t k = got.first[b]; k < got.first[b + 1]; k++)
            got_of[got.things[k]] = room -= sizes[got.things[k]];
    }
    for (uint32_t k = 0; k < n; k++)
        wrong += got_of[order[k]] != bin_of[order[k]];
    ok(wrong == 0 && got.n_bins == n_bins && got.n == n,
       "bins of 2000 things are those of a search through all bins (%u)", n_bins);
    tern_data_bins_free(&got);
}

static void test_speed(void)
{
    enum { N = 1000000, ROOM = 4096 };
    uint32_t *sizes = malloc(N * sizeof *sizes);
    struct tern_data_bins got = {0};

    for (uint32_t i = 0; sizes && i < N; i++)
        sizes[i] = 1 + (uint32_t)tern_rand_below(4, 1, i, i % 10 ? ROOM / 8 : ROOM);
    const int64_t from = tern_clock_boot_ns();
    if (!sizes || tern_data_bins_fit(sizes, N, ROOM, &got, NULL) < 0)
        abort();
    bound((double)(tern_clock_boot_ns() - from) * 1e-9, 1,
          "seconds to pack a million documents into rows of 4096");
    tern_data_bins_free(&got);
    free(sizes);
}

static void test_waste(void)
{
    struct tern_data_pack_counts fit, padded, concat;
    const struct tern_data_pack_how how = {256, TERN_DATA_BEST_FIT, TERN_DATA_LONGER_CUT};

    wrong_rows(5, 2000, LONGEST, -1, false, how, &fit);
    wrong_rows(5, 2000, LONGEST, -1, false,
               (struct tern_data_pack_how){256, TERN_DATA_PADDED, TERN_DATA_LONGER_CUT}, &padded);
    wrong_rows(5, 2000, LONGEST, -1, false, (struct tern_data_pack_how){.seq_len = 256}, &concat);
    ok(fit.rows <= concat.rows + 2 && padded.rows == 2000,
       "best-fit of many short documents takes hardly more rows than concat (%d, %d; padded %d)",
       (int)fit.rows, (int)concat.rows, (int)padded.rows);
}

/* ---- the mix ---- */

static void test_mix(void)
{
    char *path = make_set(9, 300, LONGEST, BOS, false);
    const struct tern_data_pack_how how = {100, TERN_DATA_BEST_FIT, TERN_DATA_LONGER_CUT};
    const struct tern_data_mix_source a = {path, 1}, both[] = {{path, 1}, {path, 2}};
    const struct tern_data_stage stages[] = {{0, &a, 1}, {50, both, 2}};
    struct tern_data_stages *s = tern_data_stages_open(stages, 2, &how, 5, NULL);
    const struct tern_data_mix *m = s ? tern_data_stages_mix(s, 0) : NULL;
    uint64_t wrong = 0, counts[2], want[2] = {0};

    if (!ok(m && tern_data_stages_mix(s, 1), "stages with best-fit open"))
        return;
    ok(tern_data_mix_pack(m, 0) == tern_data_mix_pack(tern_data_stages_mix(s, 1), 0),
       "a set of two stages is packed once");
    for (uint64_t i = 0; i < 500; i++) {
        int32_t got[101], row[101], starts[100];
        uint8_t mask[2][100];
        struct tern_data_mix_where w;
        tern_data_stages_locate(s, i, &w);
        wrong +=
            tern_data_stages_sample(s, i, got, mask[0], starts, NULL) < 0 ||
            tern_data_pack_row(tern_data_mix_pack(m, 0), w.row, row, mask[1], NULL, NULL) < 0 ||
            memcmp(got, row, sizeof row) != 0 || memcmp(mask[0], mask[1], 100) != 0;
        tern_data_mix_counts(tern_data_stages_mix(s, 1), 1, i, counts);
        wrong += counts[0] != want[0] || counts[1] != want[1];
        tern_data_mix_locate(tern_data_stages_mix(s, 1), 1, i, &w);
        want[w.source]++;
    }
    ok(wrong == 0, "a sample is the packed row that it names, and sources' counts add up");
    tern_data_stages_free(s);
    struct tern_err err = {0};
    const struct tern_data_pack_how none = {1, TERN_DATA_PADDED, TERN_DATA_LONGER_DROP};
    char *long_only = make_set(4, 1, LONGEST, -1, false);
    const struct tern_data_mix_source l = {long_only, 1};
    ok(!tern_data_mix_open(&l, 1, &none, 5, &err) || length(4, 0, LONGEST) == 0,
       "a set of which every document is dropped is refused");
    has(err.text, "every document is longer than a row of 1 tokens",
        "the error says that every document is too long");
    unlink(path);
    free(path);
    free(long_only);
}

/* ---- EOS inside documents ---- */

/* A set whose documents have EOS inside, at the places of a multiple of 5; or TEXT there. */
static char *make_chats(const char *name, int32_t bos, uint32_t inside)
{
    char *path = tern_fs_join(work, name);
    struct tern_data_set_kind kind = {VOCAB, EOS, bos, false, {7}};
    struct tern_data_set_writer *w = tern_data_set_create(path, &kind, NULL);
    uint32_t ids[LONGEST];

    for (uint64_t d = 0; w && d < 300; d++) {
        const uint64_t n = length(21, d, LONGEST);
        for (uint64_t i = 0; i < n; i++)
            ids[i] = tern_rand_below(22, d, i, 5) ? TEXT + 1 + (uint32_t)i : inside;
        if (tern_data_set_add(w, ids, NULL, n, n, NULL) < 0)
            abort();
    }
    if (!w || tern_data_set_commit(w, "{}", NULL) < 0)
        abort();
    return path;
}

/* By the tokens, where EOS stands at the ends of documents alone. */
static bool starts_by_eos(const int32_t *row, const int32_t *starts, uint32_t n, int32_t bos)
{
    int32_t at = 0;

    for (uint32_t j = 0; j < n; j++) {
        if (j && row[bos < 0 ? j : j - 1] == EOS)
            at = (int32_t)j;
        if (starts[j] != at)
            return false;
    }
    return true;
}

/* Chats are parted as texts of the same lengths without EOS inside. */
static void test_chats(enum tern_data_packing packing, int32_t bos, uint32_t seq_len)
{
    const struct tern_data_pack_how how = {.seq_len = seq_len, .packing = packing};
    char *path[2] = {make_chats("chat.tds", bos, EOS), make_chats("text.tds", bos, TEXT)};
    struct tern_data_set *s[2];
    struct tern_data_pack *p[2];
    int32_t row[2][LONGEST + 1], starts[2][LONGEST];
    uint8_t mask[LONGEST];
    uint64_t wrong = 0, inside = 0;

    for (int k = 0; k < 2; k++) {
        s[k] = tern_data_set_open(path[k], NULL);
        p[k] = s[k] ? tern_data_pack_new(s[k], &how, NULL) : NULL;
        if (!p[k])
            abort();
    }
    const uint64_t rows = tern_data_pack_counts(p[0]).rows;
    for (uint64_t r = 0; r < rows; r++) {
        for (int k = 0; k < 2; k++)
            wrong += tern_data_pack_row(p[k], r, row[k], mask, starts[k], NULL) < 0;
        wrong += !starts_by_eos(row[1], starts[1], seq_len, bos) ||
                 memcmp(starts[0], starts[1], seq_len * sizeof starts[0][0]) != 0;
        for (uint32_t j = 1; j < seq_len; j++)
            inside += row[0][j] == EOS && row[1][j] == TEXT;
    }
    ok(rows == tern_data_pack_counts(p[1]).rows && wrong == 0 && (inside > 100 || seq_len == 1),
       "packing %d, BOS %d, rows of %u: EOS inside a document parts none (%d)", (int)packing, bos,
       seq_len, (int)inside);
    for (int k = 0; k < 2; k++) {
        tern_data_pack_free(p[k]);
        tern_data_set_free(s[k]);
        unlink(path[k]);
        free(path[k]);
    }
}

int main(void)
{
    if (!mkdtemp(work))
        return 1;
    test_bins();
    test_bins_by_hand();
    test_every_token(TERN_DATA_CONCAT, TERN_DATA_LONGER_CUT, "concat");
    test_every_token(TERN_DATA_BEST_FIT, TERN_DATA_LONGER_CUT, "best-fit");
    test_every_token(TERN_DATA_BEST_FIT, TERN_DATA_LONGER_DROP, "best-fit, dropping");
    test_every_token(TERN_DATA_PADDED, TERN_DATA_LONGER_CUT, "padded");
    test_every_token(TERN_DATA_PADDED, TERN_DATA_LONGER_DROP, "padded, dropping");
    test_speed();
    test_waste();
    test_mix();
    static const uint32_t lens[] = {1, 2, 7, 64, 65, 200};
    for (int p = TERN_DATA_CONCAT; p <= TERN_DATA_PADDED; p++)
        for (size_t i = 0; i < sizeof lens / sizeof lens[0]; i++) {
            test_chats((enum tern_data_packing)p, -1, lens[i]);
            test_chats((enum tern_data_packing)p, BOS, lens[i]);
        }
    rmdir(work);
    return tap_done();
}
