/* core/data, overlap: the held-out n-grams that occur in training are those that a search by hand
 * finds. */
#include "core/base/fs.h"
#include "core/base/rand.h"
#include "core/data/overlap.h"
#include "tests/unit/tap.h"

#include <unistd.h>

static char work[] = "/tmp/tern-overlap-XXXXXX";

enum { EOS = 2, BOS = 1, VOCAB = 1000, LONGEST = 60 };

/* Documents of few ids, so that some n-grams occur again. */
static struct tern_data_set *make_set(const char *name, uint64_t seed, uint64_t n_docs,
                                      unsigned ids_used, int32_t bos)
{
    char *path = tern_fs_join(work, name);
    struct tern_data_set_kind kind = {VOCAB, EOS, bos, false, {7}};
    struct tern_data_set_writer *w = tern_data_set_create(path, &kind, NULL);
    uint32_t ids[LONGEST];

    for (uint64_t d = 0; w && d < n_docs; d++) {
        const size_t n = tern_rand_below(seed, 1, d, LONGEST);
        for (size_t i = 0; i < n; i++)
            ids[i] = 3 + (uint32_t)tern_rand_below(seed, 2 + d, i, ids_used);
        if (tern_data_set_add(w, ids, NULL, n, n, NULL) < 0)
            abort();
    }
    if (!w || tern_data_set_commit(w, "{}", NULL) < 0)
        abort();
    struct tern_data_set *s = tern_data_set_open(path, NULL);
    unlink(path);
    free(path);
    return s;
}

/* An n-gram inside a document. */
static bool is_gram(const int32_t *ids, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (ids[i] == EOS || ids[i] == BOS)
            return false;
    return true;
}

static bool occurs(const struct tern_data_set *s, const int32_t *gram, unsigned n)
{
    static int32_t all[1 << 16];
    const uint64_t len = tern_data_set_n_tokens(s);

    if (len > sizeof all / sizeof *all || tern_data_set_read(s, 0, len, all, NULL) < 0)
        abort();
    for (uint64_t at = 0; at + n <= len; at++)
        if (memcmp(all + at, gram, n * sizeof *gram) == 0)
            return true;
    return false;
}

static uint64_t wrong_counts(struct tern_data_set *const *train, size_t n_train,
                             const struct tern_data_set *test, unsigned gram,
                             const struct tern_data_overlap *o)
{
    uint64_t wrong = o->n_docs != tern_data_set_n_docs(test);
    struct tern_data_overlap_count all = {0};

    for (uint64_t d = 0; d < o->n_docs; d++) {
        struct tern_data_set_doc doc;
        struct tern_data_overlap_count want = {0};
        int32_t ids[LONGEST + 2];
        if (tern_data_set_doc(test, d, &doc, NULL) < 0 ||
            tern_data_set_read(test, doc.first_token, doc.n_tokens, ids, NULL) < 0)
            abort();
        for (uint64_t at = 0; at + gram <= doc.n_tokens; at++) {
            bool found = false;
            if (!is_gram(ids + at, gram))
                continue;
            for (size_t k = 0; k < n_train && !found; k++)
                found = occurs(train[k], ids + at, gram);
            want.grams++;
            want.found += found;
        }
        wrong += want.grams != o->docs[d].grams || want.found != o->docs[d].found;
        all.grams += want.grams;
        all.found += want.found;
    }
    return wrong + (all.grams != o->all.grams || all.found != o->all.found);
}

static void test_by_hand(unsigned gram, unsigned ids, uint64_t docs, int32_t bos)
{
    struct tern_data_set *train[] = {make_set("a.tds", 1, docs, ids, bos),
                                     make_set("b.tds", 2, 2 * docs, ids, bos)};
    struct tern_data_set *test = make_set("t.tds", 3, 30, ids, bos);
    struct tern_data_overlap one, many;
    struct tern_data_overlap_how how = {.gram = gram, .threads = 1};

    if (tern_data_overlap(train, 2, test, &how, &one, NULL) < 0)
        abort();
    how.threads = 3;
    if (tern_data_overlap(train, 2, test, &how, &many, NULL) < 0)
        abort();
    ok(wrong_counts(train, 2, test, gram, &one) == 0 && one.all.found > 0 &&
           one.all.found < one.all.grams,
       "%u-grams of %u ids%s: those that a search by hand finds (%d of %d)", gram, ids,
       bos < 0 ? "" : ", with BOS", (int)one.all.found, (int)one.all.grams);
    ok(one.all.found == many.all.found && one.n_docs == many.n_docs &&
           memcmp(one.docs, many.docs, one.n_docs * sizeof *one.docs) == 0,
       "three threads count as one does");
    tern_data_overlap_free(&one);
    tern_data_overlap_free(&many);
    tern_data_set_free(train[0]);
    tern_data_set_free(train[1]);
    tern_data_set_free(test);
}

/* Longer than the piece that a thread reads at once (2^18 tokens): the n-gram over its end. */
static void test_pieces(void)
{
    enum { N = (1 << 18) + 20, GRAM = 13 };
    static uint32_t ids[N];
    char *path = tern_fs_join(work, "long.tds");
    struct tern_data_set_kind kind = {1 << 20, EOS, -1, false, {7}};
    struct tern_data_set_writer *w = tern_data_set_create(path, &kind, NULL);
    struct tern_data_overlap o;
    const struct tern_data_overlap_how how = {.gram = GRAM, .threads = 2};

    for (uint32_t i = 0; i < N; i++)
        ids[i] = 3 + i;
    if (tern_data_set_add(w, ids, NULL, N, N, NULL) < 0 || tern_data_set_commit(w, "{}", NULL) < 0)
        abort();
    struct tern_data_set *train = tern_data_set_open(path, NULL);
    w = tern_data_set_create(path, &kind, NULL);
    for (uint32_t i = 0; i < 26; i++) /* each n-gram over the end of the first piece */
        if (tern_data_set_add(w, ids + (1 << 18) - 13 + i - (i > 13 ? 13 : 0), NULL, GRAM, GRAM,
                              NULL) < 0)
            abort();
    if (tern_data_set_commit(w, "{}", NULL) < 0)
        abort();
    struct tern_data_set *test = tern_data_set_open(path, NULL);
    unlink(path);
    free(path);
    if (tern_data_overlap(&train, 1, test, &how, &o, NULL) < 0)
        abort();
    ok(o.all.grams == 26 && o.all.found == 26, "n-grams over the end of a piece are found (%d)",
       (int)o.all.found);
    tern_data_overlap_free(&o);
    tern_data_set_free(train);
    tern_data_set_free(test);
}

/* A set of one document. */
static struct tern_data_set *make_one(const uint32_t *ids, size_t n)
{
    char *path = tern_fs_join(work, "one.tds");
    struct tern_data_set_kind kind = {1 << 20, EOS, -1, false, {7}};
    struct tern_data_set_writer *w = tern_data_set_create(path, &kind, NULL);

    if (tern_data_set_add(w, ids, NULL, n, n, NULL) < 0 || tern_data_set_commit(w, "{}", NULL) < 0)
        abort();
    struct tern_data_set *s = tern_data_set_open(path, NULL);
    unlink(path);
    free(path);
    return s;
}

/* Two 4-grams with one hash: their difference is a short vector of the lattice of those that hash
 * to 0. */
static void test_same_hash(void)
{
    static const uint32_t a[] = {40000, 59693, 40000, 40000}, b[] = {63789, 40000, 71644, 63248};
    struct tern_data_set *one = make_one(a, 4), *other = make_one(b, 4);
    const struct tern_data_overlap_how how = {.gram = 4, .threads = 1};
    struct tern_data_overlap o;

    if (tern_data_overlap(&one, 1, other, &how, &o, NULL) < 0)
        abort();
    ok(o.all.grams == 1 && o.all.found == 0, "an n-gram with the hash of another one is not found");
    tern_data_overlap_free(&o);
    tern_data_set_free(one);
    tern_data_set_free(other);
}

static int stop(void *ctx, uint64_t done, uint64_t all)
{
    (void)ctx;
    return done <= all;
}

static void test_refusals(void)
{
    struct tern_data_set *a = make_set("a.tds", 1, 20, 50, -1), *b;
    struct tern_data_set_kind kind = {VOCAB, EOS, -1, false, {8}};
    char *path = tern_fs_join(work, "b.tds");
    struct tern_data_set_writer *w = tern_data_set_create(path, &kind, NULL);
    struct tern_data_overlap_how how = {.gram = 13, .threads = 1};
    struct tern_data_overlap o;
    struct tern_err err = {0};

    if (tern_data_set_add(w, (uint32_t[]){5}, NULL, 1, 1, NULL) < 0 ||
        tern_data_set_commit(w, "{}", NULL) < 0)
        abort();
    b = tern_data_set_open(path, NULL);
    ok(tern_data_overlap(&b, 1, a, &how, &o, &err) < 0 && err.code == TERN_USAGE,
       "a training set of another vocabulary is refused");
    has(err.text, "another vocabulary", "the error names the other vocabulary");
    how.gram = 0;
    ok(tern_data_overlap(&a, 1, a, &how, &o, &err) < 0, "n-grams of no id are refused");
    how = (struct tern_data_overlap_how){.gram = 5, .threads = 1, .progress = stop};
    ok(tern_data_overlap(&a, 1, a, &how, &o, &err) < 0 && err.code == TERN_FAILED,
       "work that is stopped ends with an error");
    unlink(path);
    free(path);
    tern_data_set_free(a);
    tern_data_set_free(b);
}

int main(void)
{
    if (!mkdtemp(work))
        return 1;
    test_by_hand(13, 2, 100, -1);
    test_by_hand(1, 997, 8, -1);
    test_by_hand(2, 100, 100, BOS);
    test_by_hand(3, 30, 100, -1);
    test_pieces();
    test_same_hash();
    test_refusals();
    rmdir(work);
    return tap_done();
}
