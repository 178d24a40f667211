/* core/data: sets come back as written, every token is a target once, the mix keeps its shares and
 * order, and damage is reported. */
#include "core/base/fs.h"
#include "core/base/rand.h"
#include "core/base/str.h"
#include "core/data/data.h"
#include "core/data/feed.h"
#include "core/data/format.h"
#include "tests/unit/tap.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

static char work[] = "/tmp/tern-data-XXXXXX";

enum { EOS = 2, BOS = 1 };

#define ROWS(len) (&(struct tern_data_pack_how){.seq_len = (len)})

static char *in_work(const char *name)
{
    return tern_fs_join(work, name);
}

/* Document d of a set built from `seed` has 0..39 tokens, each a function of its place. */
static size_t doc_len(uint64_t seed, uint64_t d)
{
    return tern_rand_below(seed, 1, d, 40);
}

static uint32_t doc_token(uint64_t seed, uint64_t d, size_t i, uint32_t n_vocab)
{
    return 3 + (uint32_t)tern_rand_below(seed, 2 + d, i, n_vocab - 3);
}

static char *make_set(const char *name, uint64_t seed, uint64_t n_docs, uint32_t n_vocab,
                      int32_t bos, bool mask)
{
    char *path = in_work(name);
    struct tern_data_set_kind kind = {n_vocab, EOS, bos, mask, {7}};
    struct tern_data_set_writer *w = tern_data_set_create(path, &kind, NULL);

    for (uint64_t d = 0; w && d < n_docs; d++) {
        uint32_t ids[40];
        uint8_t m[40];
        size_t n = doc_len(seed, d);
        for (size_t i = 0; i < n; i++) {
            ids[i] = doc_token(seed, d, i, n_vocab);
            m[i] = ids[i] % 3 == 0;
        }
        if (tern_data_set_add(w, ids, mask ? m : NULL, n, 10 * n, NULL) < 0)
            return NULL;
    }
    if (!w || tern_data_set_commit(w, "{\"a\":1}", NULL) < 0)
        return NULL;
    return path;
}

static void test_roundtrip(uint32_t n_vocab, int32_t bos, bool mask)
{
    enum { DOCS = 3000, SEED = 5 };
    char *path = make_set("a.tds", SEED, DOCS, n_vocab, bos, mask);
    struct tern_err err = {0};
    struct tern_data_set *s = path ? tern_data_set_open(path, &err) : NULL;
    uint64_t at = 0, bytes = 0, wrong = 0;

    if (!ok(s != NULL, "a set of %u ids%s%s is written and opened", n_vocab,
            bos < 0 ? "" : ", with BOS", mask ? ", with a mask" : ""))
        return;
    ok(tern_data_set_token_bytes(s) == (n_vocab > 65536 ? 4 : 2),
       "its tokens take the bytes they need");
    for (uint64_t d = 0; d < DOCS; d++) {
        struct tern_data_set_doc doc;
        int32_t ids[42];
        size_t n = doc_len(SEED, d), first = bos >= 0;
        if (tern_data_set_doc(s, d, &doc, NULL) < 0 || doc.first_token != at ||
            doc.n_tokens != first + n + 1 || doc.text_bytes != 10 * n ||
            tern_data_set_read(s, at, doc.n_tokens, ids, NULL) < 0) {
            wrong++;
            break;
        }
        wrong += (bos >= 0 && ids[0] != bos) || ids[first + n] != EOS;
        for (size_t i = 0; i < n; i++)
            wrong += (uint32_t)ids[first + i] != doc_token(SEED, d, i, n_vocab);
        at += doc.n_tokens;
        bytes += doc.text_bytes;
    }
    ok(wrong == 0, "every document comes back, EOS behind it");
    ok(at == tern_data_set_n_tokens(s) && bytes == tern_data_set_text_bytes(s) &&
           tern_data_set_n_docs(s) == DOCS && tern_data_set_eos(s) == EOS &&
           tern_data_set_bos(s) == bos && tern_data_set_has_mask(s) == mask,
       "a set's counts add up");
    is(tern_data_set_meta(s), "{\"a\":1}", "a set's notes come back");
    ok(tern_data_set_verify(s, &err) == 0, "a new set verifies");

    int32_t all[64];
    ok(tern_data_set_read(s, at - 3, 4, all, &err) < 0, "reading beyond the end is refused");
    tern_data_set_free(s);
    unlink(path);
    free(path);
}

static void test_rows(uint32_t seq_len, bool mask)
{
    char *path = make_set("rows.tds", 9, 50, 1000, mask ? BOS : -1, mask);
    struct tern_data_set *s = tern_data_set_open(path, NULL);
    uint64_t n = tern_data_set_n_tokens(s), rows = tern_data_set_rows(s, seq_len), wrong = 0,
             targets = 0;
    int32_t *all = malloc(n * sizeof *all), *row = malloc((seq_len + 1) * sizeof *row);
    uint8_t *m = malloc(seq_len);

    ok(rows == (n + seq_len - 1) / seq_len, "rows of %u: as many as it takes", seq_len);
    tern_data_set_read(s, 0, n, all, NULL);
    for (uint64_t r = 0; r < rows; r++) {
        if (tern_data_set_row(s, seq_len, r, row, m, NULL) < 0) {
            wrong++;
            break;
        }
        for (uint32_t j = 0; j < seq_len; j++) {
            uint64_t at = r * seq_len + j; /* the target's place in the set */
            if (at >= n) {
                wrong += m[j] != 0 || row[j + 1] != EOS;
                continue;
            }
            wrong += row[j + 1] != all[at] || row[j] != (at ? all[at - 1] : EOS);
            wrong += m[j] != (mask ? all[at] == EOS || (all[at] != BOS && all[at] % 3 == 0) : 1);
            targets++;
        }
    }
    ok(wrong == 0 && targets == n, "rows of %u%s: every token is a target once", seq_len,
       mask ? " with a mask" : "");
    ok(tern_data_set_row(s, seq_len, rows, row, m, NULL) < 0, "rows of %u: none after the last",
       seq_len);
    free(all);
    free(row);
    free(m);
    tern_data_set_free(s);
    unlink(path);
    free(path);
}

/* ---- damage ---- */

static void flip(const char *path, uint64_t at)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    uint8_t b;

    if (pread(fd, &b, 1, (off_t)at) != 1)
        abort();
    b ^= 0x10;
    if (pwrite(fd, &b, 1, (off_t)at) != 1)
        abort();
    close(fd);
}

static bool opens_and_verifies(const char *path, struct tern_err *err)
{
    struct tern_data_set *s = tern_data_set_open(path, err);
    bool good = s && tern_data_set_verify(s, err) == 0;

    tern_data_set_free(s);
    return good;
}

static void test_damage(void)
{
    char *path = make_set("d.tds", 3, 400, 70000, BOS, true), *data;
    struct tern_err err = {0};
    size_t len, unnoticed = 0, wordless = 0;

    tern_fs_read(path, 1 << 24, &data, &len, NULL);
    for (size_t at = 0; at < len; at += at < 512 ? 1 : 37) {
        err = (struct tern_err){0};
        flip(path, at);
        if (opens_and_verifies(path, &err)) {
            printf("# byte %zu may be flipped\n", at);
            unnoticed++;
        }
        wordless += !strstr(err.text, "d.tds");
        flip(path, at);
    }
    ok(opens_and_verifies(path, &err), "a repaired set verifies");
    ok(unnoticed == 0, "no byte of a set can be flipped unnoticed");
    /* At every byte of the header and of the end, shorter and shorter. */
    for (size_t cut = len; cut-- > 0;) {
        if (cut > 4096 + 64 && cut < len - 64 && cut % 997 != 0)
            continue;
        err = (struct tern_err){0};
        if (truncate(path, (off_t)cut) < 0)
            abort();
        struct tern_data_set *s = tern_data_set_open(path, &err);
        unnoticed += s != NULL;
        wordless += !strstr(err.text, "d.tds") || err.code != TERN_USAGE;
        tern_data_set_free(s);
    }
    tern_fs_replace(path, data, len, 0644, NULL);
    ok(unnoticed == 0, "no beginning of a set opens");
    ok(wordless == 0, "every refusal names the file");

    /* A token outside the vocabulary is noticed where it is read. */
    struct tern_tds_header *h = (struct tern_tds_header *)data;
    uint32_t huge = 70000;
    memcpy(data + h->sections[0].offset + 4 * 10, &huge, 4);
    tern_fs_replace(path, data, len, 0644, NULL);
    struct tern_data_set *s = tern_data_set_open(path, NULL);
    int32_t row[17];
    uint8_t mask[16];
    ok(s && tern_data_set_row(s, 16, 0, row, mask, &err) < 0,
       "a token outside the vocabulary is refused");
    has(err.text, "token 10 is 70000", "a token outside the vocabulary is named");
    tern_data_set_free(s);
    free(data);
    unlink(path);
    free(path);
}

static void test_abort(void)
{
    char *path = in_work("gone.tds");
    struct tern_data_set_kind kind = {100, EOS, -1, false, {0}};
    struct tern_data_set_writer *w = tern_data_set_create(path, &kind, NULL);

    tern_data_set_add(w, (uint32_t[]){5, 6}, NULL, 2, 8, NULL);
    ok(tern_data_set_add(w, (uint32_t[]){100}, NULL, 1, 8, NULL) < 0,
       "an id outside the vocabulary is not written");
    tern_data_set_abort(w);
    ok(!tern_fs_exists(path) && rmdir(work) == 0, "an aborted set leaves no file");
    if (mkdir(work, 0700) < 0)
        abort();
    free(path);
}

/* The storage has more of the file than was written to it. */
static void test_longer(void)
{
    char *path = in_work("longer.tds"), *temp = NULL;
    struct tern_data_set_kind kind = {100, EOS, -1, false, {0}};
    struct tern_err err = {0};
    struct tern_data_set_writer *w = tern_data_set_create(path, &kind, NULL);
    struct dirent *e;

    DIR *d = opendir(work);
    while (d && (e = readdir(d)))
        if (strstr(e->d_name, "longer.tds"))
            temp = in_work(e->d_name);
    closedir(d);
    tern_data_set_add(w, (uint32_t[]){5, 6}, NULL, 2, 8, NULL);
    ok(temp && truncate(temp, 1 << 20) == 0 && tern_data_set_commit(w, "{}", &err) < 0 &&
           err.code == TERN_TEMPFAIL,
       "a set of which the storage has more than was written is an error");
    has(err.text, "longer.tds: has 1048576 bytes, ", "a set of another size is named with it");
    ok(!tern_fs_exists(path), "a set of another size is not put in place");
    free(temp);
    free(path);
}

/* ---- the mix ---- */

static void test_order(const struct tern_data_mix_source *sources)
{
    /* Rows: a permutation each epoch, another one each time. */
    struct tern_data_mix *m = tern_data_mix_open(sources, 1, ROWS(8), 7, NULL);
    uint64_t rows = tern_data_mix_rows(m), missing = 0, same = 0, in_order = 0;
    uint32_t *seen = calloc(rows, sizeof *seen);
    for (uint64_t i = 0; i < 3 * rows; i++) {
        struct tern_data_mix_where w, stage1;
        tern_data_mix_locate(m, 0, i, &w);
        tern_data_mix_locate(m, 1, i, &stage1);
        missing += w.epoch != i / rows || seen[w.row]++ != w.epoch;
        same += stage1.row == w.row;
        in_order += w.row == i % rows;
    }
    ok(rows > 50 && missing == 0, "every row once an epoch, for three epochs of %u",
       (unsigned)rows);
    ok(in_order < rows / 4, "rows do not come in their own order");
    ok(same < rows / 4, "another stage has another order of rows");
    free(seen);
    tern_data_mix_free(m);

    /* Golden places: a change would give runs that exist other data. */
    m = tern_data_mix_open(sources, 3, ROWS(16), 1234, NULL);
    struct tern_buf b = {0};
    for (uint64_t i = 0; i < 8; i++) {
        struct tern_data_mix_where w;
        tern_data_mix_locate(m, 2, 1000003 * i, &w);
        tern_buf_printf(&b, "%u:%u:%u ", w.source, (unsigned)w.epoch, (unsigned)w.row);
    }
    is(b.data,
       "0:0:26 0:18000:3 2:1592:54 0:54000:26 0:72000:0 0:90000:46 0:108000:38 0:126000:37 ",
       "sample i of a run that exists stays in its place");
    tern_buf_free(&b);

    /* What is given is the row that locate names. */
    int32_t a[17], c[17];
    uint8_t ma[16], mc[16];
    struct tern_data_mix_where w;
    int wrong = 0;
    for (uint64_t i = 0; i < 100; i++) {
        tern_data_mix_locate(m, 0, i, &w);
        wrong += tern_data_mix_sample(m, 0, i, a, ma, /* starts= */ NULL, NULL) < 0 ||
                 tern_data_set_row(tern_data_mix_set(m, w.source), 16, w.row, c, mc, NULL) < 0 ||
                 memcmp(a, c, sizeof a) != 0 || memcmp(ma, mc, sizeof ma) != 0;
    }
    ok(wrong == 0, "a sample is the row that it names");
    tern_data_mix_free(m);
}

static void test_shares(void)
{
    char *p[3] = {make_set("x.tds", 1, 40, 1000, -1, false),
                  make_set("y.tds", 2, 4, 1000, -1, false),
                  make_set("z.tds", 3, 90, 1000, -1, false)};
    struct tern_data_mix_source sources[3] = {{p[0], 0.9}, {p[1], 0.01}, {p[2], 0.09}};
    double worst2 = 0, worst3 = 0;

    for (size_t n = 2; n <= 3; n++) {
        struct tern_data_mix *m = tern_data_mix_open(sources, n, ROWS(16), 1234, NULL);
        double total = n == 2 ? 0.91 : 1.0, count[3] = {0};
        for (uint64_t i = 0; i < 20000; i++) {
            struct tern_data_mix_where w;
            tern_data_mix_locate(m, 0, i, &w);
            count[w.source]++;
            for (size_t k = 0; k < n; k++) {
                double off = fabs(count[k] - (double)(i + 1) * sources[k].weight / total);
                double *worst = n == 2 ? &worst2 : &worst3;
                *worst = off > *worst ? off : *worst;
            }
        }
        tern_data_mix_free(m);
    }
    ok(worst2 < 1, "two sources: shares are off by less than 1 over any prefix (%.2f)", worst2);
    ok(worst3 < 3, "three sources: shares are off by less than 3 over any prefix (%.2f)", worst3);

    test_order(sources);
    for (int i = 0; i < 3; i++) {
        unlink(p[i]);
        free(p[i]);
    }
}

static void test_mix_refusals(void)
{
    struct tern_err err = {0};
    char *path = make_set("m.tds", 1, 10, 1000, -1, false), *other = in_work("o.tds");
    char *empty = make_set("e.tds", 1, 0, 1000, -1, false);
    struct tern_data_set_kind kind = {1000, EOS, -1, false, {8}};
    struct tern_data_set_writer *w = tern_data_set_create(other, &kind, NULL);

    tern_data_set_add(w, (uint32_t[]){5}, NULL, 1, 8, NULL);
    tern_data_set_commit(w, "{}", NULL);
    struct tern_data_mix_source two[2] = {{path, 1}, {other, 1}};
    ok(!tern_data_mix_open(two, 2, ROWS(16), 0, &err), "sets of two vocabularies do not mix");
    has(err.text, "another vocabulary", "the two vocabularies are named");
    two[1] = (struct tern_data_mix_source){path, 0};
    ok(!tern_data_mix_open(two, 2, ROWS(16), 0, &err), "a weight of 0 is refused");
    two[1].weight = (double)NAN;
    ok(!tern_data_mix_open(two, 2, ROWS(16), 0, &err), "a weight of NaN is refused");
    two[1] = (struct tern_data_mix_source){empty, 1};
    ok(!tern_data_mix_open(two, 2, ROWS(16), 0, &err), "an empty set is refused");
    has(err.text, "is empty", "the empty set is named");
    unlink(path);
    unlink(other);
    unlink(empty);
    free(path);
    free(other);
    free(empty);
}

/* ---- stages, documents ---- */

/* By hand: the documents of a stream, each begun by an EOS (or a BOS behind one), cut into rows. */
static void test_starts(int32_t bos)
{
    enum { SEQ = 17 };
    char *path = make_set("s.tds", 11, 200, 1000, bos, false);
    struct tern_data_set *s = tern_data_set_open(path, NULL);
    int32_t tokens[SEQ + 1], starts[SEQ];
    uint64_t wrong = 0, begun = 0;
    uint8_t mask[SEQ];

    for (uint64_t r = 0; r < tern_data_set_rows(s, SEQ); r++) {
        if (tern_data_set_row(s, SEQ, r, tokens, mask, NULL) < 0)
            break;
        wrong += tern_data_set_starts(s, SEQ, r, starts, NULL) < 0;
        for (int j = 0; j < SEQ; j++) {
            int begin = j;
            while (begin > 0 && (bos < 0 ? tokens[begin] : tokens[begin - 1]) != EOS)
                begin--;
            wrong += starts[j] != begin;
            begun += j > 0 && begin == j;
        }
    }
    ok(wrong == 0 && begun > 150, "rows of a set %s BOS: %llu documents begin inside",
       bos < 0 ? "without" : "with", (unsigned long long)begun);
    tern_data_set_free(s);
    unlink(path);
    free(path);
}

static void test_stages(void)
{
    enum { SEQ = 16, SECOND = 40, THIRD = 1000 };
    char *p[2] = {make_set("a.tds", 1, 100, 1000, -1, false),
                  make_set("b.tds", 2, 300, 1000, -1, false)};
    const struct tern_data_mix_source a = {p[0], 1}, both[] = {{p[0], 1}, {p[1], 3}};
    const struct tern_data_stage stages[] = {{0, &a, 1}, {SECOND, both, 2}, {THIRD, &a, 1}};
    struct tern_data_stages *s = tern_data_stages_open(stages, 3, ROWS(SEQ), 9, NULL);
    struct tern_data_mix *alone[] = {tern_data_mix_open(&a, 1, ROWS(SEQ), 9, NULL),
                                     tern_data_mix_open(both, 2, ROWS(SEQ), 9, NULL)};
    uint64_t wrong = 0;
    struct tern_err err = {0};

    for (uint64_t i = 0; s && i < 2 * THIRD; i++) {
        const size_t k = i < SECOND ? 0 : i < THIRD ? 1 : 2;
        int32_t got[SEQ + 1], want[SEQ + 1], starts[SEQ];
        uint8_t mask[2][SEQ];
        struct tern_data_mix_where w, want_w;
        const struct tern_data_set *set = tern_data_stages_locate(s, i, &w);
        tern_data_mix_locate(alone[k & 1], k, i - stages[k].first, &want_w);
        wrong += tern_data_stages_at(s, i) != k ||
                 tern_data_stages_sample(s, i, got, mask[0], starts, NULL) < 0 ||
                 tern_data_mix_sample(alone[k & 1], k, i - stages[k].first, want, mask[1],
                                      /* starts= */ NULL, NULL) < 0 ||
                 memcmp(got, want, sizeof got) != 0 || w.row != want_w.row ||
                 strcmp(tern_data_set_path(set), p[want_w.source]) != 0 || starts[0] != 0;
    }
    ok(s && wrong == 0, "each stage is its own mix from its first sample on");
    tern_data_stages_free(s);
    for (size_t i = 0; i < 2; i++)
        tern_data_mix_free(alone[i]);
    const struct tern_data_stage back[] = {{0, &a, 1}, {40, &a, 1}, {40, &a, 1}}, late = {1, &a, 1};
    ok(!tern_data_stages_open(back, 3, ROWS(SEQ), 9, &err) &&
           !tern_data_stages_open(&late, 1, ROWS(SEQ), 9, &err) &&
           !tern_data_stages_open(NULL, 0, ROWS(SEQ), 9, &err),
       "stages out of order, late or absent are refused");
    char *other = in_work("o.tds");
    struct tern_data_set_kind kind = {1000, EOS, -1, false, {8}};
    struct tern_data_set_writer *w = tern_data_set_create(other, &kind, NULL);
    tern_data_set_add(w, (uint32_t[]){5}, NULL, 1, 8, NULL);
    tern_data_set_commit(w, "{}", NULL);
    const struct tern_data_mix_source foreign = {other, 1};
    const struct tern_data_stage two[] = {{0, &a, 1}, {5, &foreign, 1}};
    ok(!tern_data_stages_open(two, 2, ROWS(SEQ), 9, &err),
       "a stage of another vocabulary is refused");
    has(err.text, "another vocabulary", "the stage of another vocabulary is named");
    unlink(other);
    free(other);
    for (size_t i = 0; i < 2; i++) {
        unlink(p[i]);
        free(p[i]);
    }
}

/* ---- text ---- */

/* All documents of a file, each between brackets; or the error. */
static const char *documents(const char *name, const char *content, struct tern_text_how how)
{
    static struct tern_buf b;
    struct tern_err err = {0};
    char *path = in_work(name);
    const char *s;
    size_t n;
    int rc = -1;

    tern_buf_clear(&b);
    tern_fs_replace(path, content, strlen(content), 0644, NULL);
    struct tern_text *t = tern_text_open(path, &how, &err);
    while (t && (rc = tern_text_next(t, &s, &n, &err)) > 0)
        tern_buf_printf(&b, "[%.*s]", (int)n, s);
    if (rc < 0)
        tern_buf_printf(&b, "%s", strstr(err.text, name) ? strstr(err.text, name) : err.text);
    tern_text_close(t);
    unlink(path);
    free(path);
    return b.data ? b.data : "";
}

static void test_text(void)
{
    struct tern_text_how how = {.format = TERN_TEXT_AUTO}, body = how, split = how, blank = how;

    body.field = "body";
    split.split = "%";
    blank.split = "";
    is(documents("a.txt", "one\n\ntwo\n", how), "[one\n\ntwo\n]", "a plain file is one document");
    is(documents("a.txt", "one\n\ntwo\n", blank), "[one][two]", "blank lines part documents");
    is(documents("a.txt", "a\nb\n%\nc\n%\n", split), "[a\nb][c]",
       "a line that is %% parts documents");
    is(documents("a.jsonl", "{\"text\":\"x\"}\n\n{\"text\":\"\\u00e9\\n\"}", how),
       "[x][\xc3\xa9\n]", "JSONL with a blank line and no last newline is read");
    is(documents("a.jsonl", "{\"body\":\"x\",\"text\":1}\n", body), "[x]",
       "JSONL is read by another field");
    has(documents("a.jsonl", "{\"text\":\"x\"}\n{\"body\":1}\n", how),
        "a.jsonl:2: no field 'text' (found: body)", "a missing field is named with its line");
    has(documents("a.jsonl", "{\"text\":5}\n", how), "a.jsonl:1: field 'text' is not a string",
        "a field of a wrong type is named with its line");
    has(documents("a.jsonl", "[1]\n", how), "a.jsonl:1: not a JSON object",
        "an array is named with its line");
    has(documents("a.jsonl", "{\"text\":\"x\"}\n{\"text\":\"y\n", how), "a.jsonl:2: not a JSON",
        "a torn line is named with its line");
    has(documents("a.json", "{}", how), "--format jsonl", ".json without a format is refused");
    has(documents("a.gz", "\x1f\x8b\x08", how), "damaged gzip", "a torn gzip is an error");
    has(documents("a.gz", "\x1f\x8b", how), "damaged gzip", "a gzip of two bytes is an error");
}

int main(void)
{
    if (!mkdtemp(work))
        return 1;
    test_abort();
    test_longer();
    test_roundtrip(32000, -1, false);
    test_roundtrip(65537, BOS, true);
    static const uint32_t lens[] = {1, 7, 63, 64, 65, 100000};
    for (size_t i = 0; i < sizeof lens / sizeof lens[0]; i++) {
        test_rows(lens[i], false);
        test_rows(lens[i], true);
    }
    test_damage();
    test_shares();
    test_mix_refusals();
    test_starts(-1);
    test_starts(BOS);
    test_stages();
    test_text();
    rmdir(work);
    return tap_done();
}
