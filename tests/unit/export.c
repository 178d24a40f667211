/* Token sets for other trainers: rows, masks, filling up, documents; and back to the same set. */
#include "core/arrow/arrow.h"
#include "core/base/fs.h"
#include "core/base/rand.h"
#include "core/base/tree.h"
#include "core/export/export.h"
#include "core/export/megatron.h"
#include "tests/unit/tap.h"

#include <sys/stat.h>
#include <unistd.h>

#define MODEL "tests/golden/spm-bpe-800.model"

enum { EOS = 2, BOS = 1, VOCAB = 800, DOCS = 40 };

static char work[] = "/tmp/tern-export-XXXXXX";
static struct tern_token *token;

static char *at(const char *name)
{
    return tern_fs_join(work, name);
}

/* DOCS documents, of 0 to 30 tokens.  `inside`: every fourth one is EOS, as behind turns. */
static struct tern_data_set *make_chats(bool mask, bool bos, bool inside)
{
    char *path = at("x.tds");
    struct tern_data_set_kind kind = {
        .n_vocab = VOCAB, .eos = EOS, .bos = bos ? BOS : -1, .mask = mask};

    tern_token_hash(token, kind.vocab_hash);
    struct tern_data_set_writer *w = tern_data_set_create(path, &kind, NULL);
    for (uint64_t d = 0; d < DOCS; d++) {
        uint32_t ids[30];
        uint8_t targets[30];
        const size_t n = tern_rand_below(3, d, 0, 31);
        for (size_t i = 0; i < n; i++) {
            ids[i] =
                inside && i % 4 == 3 ? EOS : 3 + (uint32_t)tern_rand_below(3, d, 1 + i, VOCAB - 3);
            targets[i] = (uint8_t)tern_rand_below(3, d, 100 + i, 2);
        }
        struct tern_buf text = {0};
        tern_token_decode(token, ids, n, &text, NULL);
        tern_data_set_add_cut(w, ids, mask ? targets : NULL, n, /* cut= */ mask && d % 3 == 0,
                              text.len, NULL);
        tern_buf_free(&text);
    }
    tern_data_set_commit(w, "{}", NULL);
    struct tern_data_set *s = tern_data_set_open(path, NULL);
    free(path);
    return s;
}

static struct tern_data_set *make_set(bool mask, bool bos)
{
    return make_chats(mask, bos, /* inside= */ false);
}

static uint32_t length;
static uint64_t rows_read;

static int row(const void *of, uint64_t r, int32_t *tokens, uint8_t *mask, struct tern_err *err)
{
    rows_read++;
    return tern_data_set_row(of, length, r, tokens, mask, err);
}

static uint32_t filled(const void *of, uint64_t r)
{
    const uint64_t left = tern_data_set_n_tokens(of) - r * length;

    return left < length ? (uint32_t)left : length;
}

static uint64_t size_of(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 ? (uint64_t)st.st_size : 0;
}

/* Of all files of a folder. */
static uint64_t bytes_of(const char *dir)
{
    struct tern_tree t = {0};

    if (tern_tree_list(dir, &t, NULL) < 0)
        abort();
    const uint64_t bytes = t.bytes;
    tern_tree_free(&t);
    return bytes;
}

static int export_split(const struct tern_data_set *s, uint32_t seq_len, const char *dir,
                        uint64_t file_bytes, const char *split, struct tern_err *err)
{
    struct tern_export_rows rows = {.row = row,
                                    .filled = filled,
                                    .of = s,
                                    .seq_len = seq_len,
                                    .eos = EOS,
                                    .n = tern_data_set_rows(s, seq_len),
                                    .file_bytes = file_bytes,
                                    .split = split,
                                    .about = "a name in Latin-1: \xe9"};
    const struct tern_export_to to = {.dir = dir};
    struct tern_export_done done = {0};

    length = seq_len;
    const int rc = tern_export_datasets(&rows, &to, &done, err);
    if (rc == 0)
        ok(done.rows == rows.n && done.tokens == tern_data_set_n_tokens(s) &&
               done.bytes == bytes_of(dir),
           "L = %u: %d rows, every token, and the bytes of all files are counted", seq_len,
           (int)done.rows);
    return rc;
}

static int export_rows(const struct tern_data_set *s, uint32_t seq_len, const char *dir,
                       uint64_t file_bytes, struct tern_err *err)
{
    return export_split(s, seq_len, dir, file_bytes, "train", err);
}

/* ---- rows ---- */

static struct tern_arrow *open_part(const char *path, size_t c[3])
{
    static const char *const names[] = {"input_ids", "attention_mask", "labels"};
    struct tern_arrow *a = tern_arrow_open(path, NULL);

    for (int i = 0; i < 3; i++) {
        c[i] = (size_t)tern_arrow_find(a, names[i], NULL);
        tern_arrow_use(a, c[i], NULL);
    }
    return a;
}

/* Every token of the set in order, then EOS that fill up. */
static bool check_rows(const struct tern_data_set *s, const struct tern_arrow *a, const size_t c[3],
                       uint64_t *place, uint32_t seq_len)
{
    int32_t *tokens = malloc((seq_len + 1) * sizeof *tokens);
    uint8_t *mask = malloc(seq_len);
    struct tern_arrow_ints ids, attention, labels;
    const uint64_t all = tern_data_set_n_tokens(s);
    bool good = true;

    for (uint64_t i = 0; i < tern_arrow_rows(a); i++) {
        good &= tern_data_set_row(s, seq_len, *place / seq_len, tokens, mask, NULL) == 0 &&
                tern_arrow_ints(a, c[0], i, &ids) && tern_arrow_ints(a, c[1], i, &attention) &&
                tern_arrow_ints(a, c[2], i, &labels) && ids.n == seq_len &&
                attention.n == seq_len && labels.n == seq_len;
        for (uint32_t j = 0; good && j < seq_len; j++, ++*place) {
            int32_t id = EOS;
            const bool there = *place < all;
            if (there)
                good &= tern_data_set_read(s, *place, 1, &id, NULL) == 0;
            good &= tern_arrow_ints_at(&ids, j) == id &&
                    tern_arrow_ints_at(&attention, j) == there &&
                    tern_arrow_ints_at(&labels, j) == (there && mask[j] ? id : -100);
        }
    }
    free(tokens);
    free(mask);
    return good;
}

static void check_sizes(const struct tern_arrow_dataset *d, uint64_t file_bytes, uint64_t rows,
                        uint32_t seq_len)
{
    bool good = true;

    for (size_t i = 0; i < d->n; i++)
        good &= size_of(d->path[i]) <= file_bytes || d->n == rows;
    ok(good, "L = %u: no file of two or more rows is larger than %d bytes", seq_len,
       (int)file_bytes);
}

static void test_rows(const struct tern_data_set *s, uint32_t seq_len, uint64_t file_bytes)
{
    struct tern_err err = {0};
    struct tern_arrow_dataset d = {0};
    char *dir = at("rows");
    uint64_t place = 0;
    size_t c[3];
    bool good = true;

    ok(export_rows(s, seq_len, dir, file_bytes, &err) == 0, "L = %u: exported: %s", seq_len,
       err.text);
    ok(tern_arrow_dataset_list(dir, &d, &err) == 0 &&
           (file_bytes > 1 || d.n == tern_data_set_rows(s, seq_len)),
       "L = %u: %d files", seq_len, (int)d.n);
    check_sizes(&d, file_bytes, tern_data_set_rows(s, seq_len), seq_len);
    for (size_t i = 0; i < d.n; i++) {
        struct tern_arrow *a = open_part(d.path[i], c);
        while (tern_arrow_next(a, &err) > 0)
            good &= check_rows(s, a, c, &place, seq_len);
        tern_arrow_close(a);
    }
    ok(good && place == tern_data_set_rows(s, seq_len) * seq_len,
       "L = %u: ids, attention and labels are those of the set%s", seq_len,
       tern_data_set_has_mask(s) ? " with its mask" : "");
    ok(export_rows(s, seq_len, dir, file_bytes, &err) < 0 && err.code == TERN_USAGE,
       "a folder that is there is refused");
    tern_arrow_dataset_free(&d);
    free(dir);
}

/* Of all rows, then of one row less than before, down to one: a file holds as many as fit. */
static void test_sizes(const struct tern_data_set *s)
{
    const uint64_t rows = tern_data_set_rows(s, 16);
    struct tern_arrow_dataset d;
    char *dir = at("sizes");
    uint64_t bytes = UINT64_MAX, wrong = 0;

    for (uint64_t of_file = rows; of_file > 0; of_file--) {
        if (export_rows(s, 16, dir, bytes, NULL) < 0 || tern_arrow_dataset_list(dir, &d, NULL) < 0)
            abort();
        wrong += d.n != (rows + of_file - 1) / of_file;
        bytes = size_of(d.path[0]) - 1;
        tern_arrow_dataset_free(&d);
        tern_fs_remove_tree(dir, NULL);
    }
    ok(rows > 30 && wrong == 0,
       "a file has room for n rows at their size, for n - 1 at a byte less");
    free(dir);
}

/* What would fail at the end fails before the first row, and leaves nothing. */
static void refused_at_once(const struct tern_data_set *s, const char *dir, const char *split,
                            const char *why, const char *name)
{
    struct tern_err err = {0};
    struct tern_tree before = {0}, after = {0};

    rows_read = 0;
    if (tern_tree_list(work, &before, NULL) < 0)
        abort();
    ok(export_split(s, 16, dir, 5000, split, &err) < 0 && err.code == TERN_USAGE, "%s is refused",
       name);
    has(err.text, why, "%s: the message says why", name);
    if (tern_tree_list(work, &after, NULL) < 0)
        abort();
    ok(rows_read == 0 && before.n == after.n && before.bytes == after.bytes,
       "%s: no row is read, and nothing is left", name);
    tern_tree_free(&before);
    tern_tree_free(&after);
}

static void test_refused_at_once(const struct tern_data_set *s)
{
    char *dir = at("d"), *link = at("link"), *lost = at("lost"), *file = at("file");
    char here[200];

    refused_at_once(s, dir, "\xe9t\xe9", "is no name of a split", "a split's name in Latin-1");
    refused_at_once(s, dir, "train set", "is no name of a split", "a split's name with a blank");
    refused_at_once(s, dir, "", "is no name of a split", "an empty name of a split");
    refused_at_once(s, dir, "a..b", "is no name of a split", "a split's name with two points");
    if (mkdir(dir, 0777) < 0 || symlink("d", link) < 0 || symlink("nowhere", lost) < 0 ||
        tern_fs_replace(file, "x", 1, 0644, NULL) < 0 || !getcwd(here, sizeof here) ||
        chdir(dir) < 0)
        abort();
    refused_at_once(s, ".", "train", "Name a folder inside it, such as ./NAME", "-o .");
    refused_at_once(s, "./", "train", "Name a folder inside it", "-o ./");
    refused_at_once(s, "../d/..", "train", "Name a folder inside it", "-o ../d/..");
    refused_at_once(s, dir, "train", "is the working folder", "the working folder by its name");
    refused_at_once(s, "", "train", "has no name", "an empty name of a folder");
    refused_at_once(s, "/", "train", "/: cannot be replaced", "-o /");
    if (chdir(here) < 0)
        abort();
    refused_at_once(s, link, "train", "is a symbolic link", "a link to an empty folder");
    refused_at_once(s, lost, "train", "is a symbolic link", "a link to nowhere");
    refused_at_once(s, file, "train", "is no folder", "a file");
    ok(export_rows(s, 16, dir, 5000, NULL) == 0, "an empty folder is replaced");
    tern_fs_remove_tree(dir, NULL);
    unlink(link);
    unlink(lost);
    unlink(file);
    free(dir);
    free(link);
    free(lost);
    free(file);
}

/* ---- back ---- */

static int import(const char *from, bool mask, bool bos, enum tern_export_documents documents,
                  struct tern_export_back *back, struct tern_err *err)
{
    const struct tern_export_from f = {.path = from,
                                       .column = "input_ids",
                                       .token = token,
                                       .bos = bos,
                                       .mask = mask,
                                       .documents = documents};
    struct tern_data_set_kind kind;
    char *path = at("back.tds");
    struct tern_data_set_writer *w =
        tern_export_kind(&f, &kind, err) < 0 ? NULL : tern_data_set_create(path, &kind, err);
    int rc = w ? tern_export_read(&f, w, back, err) : -1;

    if (rc < 0)
        tern_data_set_abort(w);
    else
        rc = tern_data_set_commit(w, "{}", err);
    free(path);
    return rc;
}

/* Both files have the same bytes. */
static bool same_set(void)
{
    char *a = at("x.tds"), *b = at("back.tds"), *x = NULL, *y = NULL;
    size_t n = 0, m = 1;
    const bool same = tern_fs_read(a, 1 << 24, &x, &n, NULL) == 0 &&
                      tern_fs_read(b, 1 << 24, &y, &m, NULL) == 0 && n == m && memcmp(x, y, n) == 0;

    free(x);
    free(y);
    free(a);
    free(b);
    return same;
}

static void test_back(bool mask, bool bos)
{
    struct tern_err err = {0};
    struct tern_export_back back = {0};
    struct tern_data_set *s = make_set(mask, bos);
    char *dir = at("rows");

    tern_fs_remove_tree(dir, NULL);
    test_rows(s, 16, 2000);
    ok(import(dir, mask, bos, TERN_EXPORT_AS_STORED, &back, &err) == 0 && same_set(),
       "rows read back are the same set%s%s: %s", mask ? ", with its mask" : "",
       bos ? ", with BOS" : "", err.text);
    ok(back.documents == DOCS && back.tokens == tern_data_set_n_tokens(s) &&
           back.filled == back.rows * 16 - back.tokens,
       "its documents, tokens and filled places are counted");
    if (mask)
        ok(import(dir, false, bos, TERN_EXPORT_AS_STORED, &back, &err) < 0 &&
               strstr(err.text, "--mask"),
           "a mask is not lost without a word");
    tern_data_set_free(s);
    tern_fs_remove_tree(dir, NULL);
    free(dir);
}

static void put16(const char *name, size_t offset, uint64_t v, size_t bytes)
{
    char *p = at(name);
    FILE *f = fopen(p, "r+b");

    fseek(f, (long)offset, SEEK_SET);
    fwrite(&v, 1, bytes, f);
    fclose(f);
    free(p);
}

static void refused(const char *dir, const char *why, const char *name)
{
    struct tern_err err = {0};
    struct tern_export_back back;

    ok(import(dir, false, false, TERN_EXPORT_AS_STORED, &back, &err) < 0 && err.code == TERN_USAGE,
       "import refuses a data set: %s", name);
    has(err.text, why, "%s: it says why", name);
}

static void test_megatron(void)
{
    struct tern_err err = {0};
    struct tern_export_back back = {0};
    struct tern_export_done done = {0};
    struct tern_data_set *s = make_set(false, false);
    struct tern_data_set_doc doc;
    char *dir = at("mega"), *idx = at("mega/tokens.idx"), *data = NULL;
    const struct tern_export_to to = {.dir = dir};
    const uint64_t n = DOCS;
    size_t len = 0;

    ok(tern_export_megatron(s, &to, &done, &err) == 0 && done.documents == n,
       "a Megatron set is written: %s", err.text);
    ok(tern_fs_read(idx, 1 << 20, &data, &len, NULL) == 0 && len == 34 + 12 * n + 8 * (n + 1) &&
           memcmp(data, "MMIDIDX\0\0\1\0\0\0\0\0\0\0\10", 18) == 0,
       "the index has its head and its length");
    free(data);
    ok(import(dir, false, false, TERN_EXPORT_AS_STORED, &back, &err) == 0 && same_set() &&
           back.documents == n,
       "documents read back are the same set: %s", err.text);
    ok(import(idx, false, false, TERN_EXPORT_AS_STORED, &back, &err) == 0 && same_set(),
       "by the index's name");
    tern_data_set_doc(s, 5, &doc, NULL);
    put16("mega/tokens.idx", 34 + 4 * 5, doc.n_tokens + 1, 4);
    refused(dir, "overlap", "lengths that overlap");
    put16("mega/tokens.idx", 34 + 4 * 5, UINT32_MAX, 4);
    refused(dir, "outside the .bin", "a negative length");
    put16("mega/tokens.idx", 34 + 4 * 5, doc.n_tokens, 4);
    put16("mega/tokens.idx", 34 + 4 * n + 8 * 5, UINT64_MAX / 2 - 1, 8);
    refused(dir, "outside the .bin", "a place behind the end");
    put16("mega/tokens.idx", 34 + 4 * n + 8 * 5, doc.first_token * 2, 8);
    put16("mega/tokens.idx", 34 + 12 * n + 8 * 3, n + 1, 8);
    refused(dir, "out of order", "a document behind the last sequence");
    put16("mega/tokens.idx", 34 + 12 * n + 8 * 3, 3, 8);
    put16("mega/tokens.idx", 34 + 12 * n + 8 * n, n - 1, 8);
    refused(dir, "in no document", "a sequence in no document");
    put16("mega/tokens.idx", 34 + 12 * n + 8 * n, n, 8);
    put16("mega/tokens.idx", 18, UINT64_MAX, 8);
    refused(dir, "as long as its counts", "huge counts");
    put16("mega/tokens.idx", 18, n, 8);
    put16("mega/tokens.idx", 17, 6, 1);
    refused(dir, "no whole numbers", "ids of doubles");
    put16("mega/tokens.idx", 17, 8, 1);
    ok(import(dir, false, false, TERN_EXPORT_AS_STORED, &back, &err) == 0 && same_set(),
       "mended, it is read again");
    put16("mega/tokens.bin", 2 * doc.first_token, VOCAB, 2);
    refused(dir, "the vocabulary", "an id outside the vocabulary");
    tern_data_set_free(s);
    s = make_set(true, false);
    char *other = at("other");
    const struct tern_export_to elsewhere = {.dir = other};
    ok(tern_export_megatron(s, &elsewhere, &done, &err) < 0 && strstr(err.text, "mask") &&
           !tern_fs_exists(other),
       "a mask is not lost without a word");
    tern_data_set_free(s);
    free(other);
    free(dir);
    free(idx);
}

/* Rows that are documents, without EOS. */
static void test_documents(void)
{
    static const struct tern_arrow_lists column[] = {{"input_ids", 64}};
    static const int64_t ids[] = {5, 6, 7, 8, 9, EOS};
    const void *values[] = {ids};
    struct tern_err err = {0};
    struct tern_export_back back = {0};
    char *path = at("rows.arrow");
    FILE *f = fopen(path, "wb");
    struct tern_arrow_writer *w =
        tern_arrow_writer_new(fileno(f), path, column, 1, NULL, NULL, &err);

    tern_arrow_writer_batch(w, 3, 2, values, &err);
    tern_arrow_writer_end(w, &err);
    tern_arrow_writer_free(w);
    fclose(f);
    ok(import(path, false, false, TERN_EXPORT_BY_ROW, &back, &err) == 0 && back.documents == 3 &&
           back.tokens == 8,
       "each row is a document, and one that has its EOS gets no second: %s", err.text);
    ok(import(path, false, false, TERN_EXPORT_AS_STORED, &back, &err) == 0 && back.documents == 1 &&
           back.tokens == 6,
       "documents end with EOS alone: %s", err.text);
    ok(import(path, true, false, TERN_EXPORT_AS_STORED, &back, &err) < 0 &&
           strstr(err.text, "'labels'"),
       "a mask needs labels");
    ok(import(path, false, true, TERN_EXPORT_AS_STORED, &back, &err) < 0 &&
           strstr(err.text, "does not begin with BOS"),
       "documents without the BOS that is asked for");
    free(path);
}

/* Documents with EOS inside keep their bounds by Megatron's index. */
static void test_chats(bool bos)
{
    struct tern_err err = {0};
    struct tern_export_back back = {0};
    struct tern_export_done done;
    struct tern_data_set *s = make_chats(/* mask= */ false, bos, /* inside= */ true);
    char *dir = at("chats");
    const struct tern_export_to to = {.dir = dir};

    ok(tern_export_megatron(s, &to, &done, &err) == 0 &&
           import(dir, false, bos, TERN_EXPORT_AS_STORED, &back, &err) == 0 &&
           back.documents == DOCS && back.tokens == tern_data_set_n_tokens(s) && same_set(),
       "Megatron's index says where chats end%s: %s", bos ? ", with BOS" : "", err.text);
    if (!bos)
        ok(import(dir, false, bos, TERN_EXPORT_BY_EOS, &back, &err) == 0 &&
               back.documents > 2 * DOCS && !same_set(),
           "asked for, each EOS ends a document");
    tern_data_set_free(s);
    tern_fs_remove_tree(dir, NULL);
    free(dir);
}

/* A conversation a row: EOS inside stays there, with what labels say of it. */
static void test_chat_rows(void)
{
    static const struct tern_arrow_lists columns[] = {
        {"input_ids", 32}, {"attention_mask", 8}, {"labels", 64}};
    static const int32_t ids[] = {5, EOS, 6, EOS, 7, 8, EOS, EOS},
                         want[] = {5, EOS, 6, EOS, 7, 8, EOS};
    static const int8_t there[] = {1, 1, 1, 1, 1, 1, 1, 0};
    static const int64_t labels[] = {-100, EOS, 6, -100, 7, 8, EOS, -100};
    static const uint8_t targets[] = {0, 1, 1, 0, 1, 1, 1};
    const void *values[] = {ids, there, labels};
    struct tern_err err = {0};
    struct tern_export_back back = {0};
    char *path = at("chats.arrow"), *set = at("back.tds");
    int32_t got[7];
    uint8_t mask[7];
    FILE *f = fopen(path, "wb");
    struct tern_arrow_writer *w =
        tern_arrow_writer_new(fileno(f), path, columns, 3, NULL, NULL, &err);

    tern_arrow_writer_batch(w, 2, 4, values, &err);
    tern_arrow_writer_end(w, &err);
    tern_arrow_writer_free(w);
    fclose(f);
    ok(import(path, true, false, TERN_EXPORT_BY_ROW, &back, &err) == 0 && back.documents == 2 &&
           back.tokens == 7 && back.filled == 1,
       "rows are documents, EOS inside or not: %s", err.text);
    struct tern_data_set *s = tern_data_set_open(set, NULL);
    ok(s && tern_data_set_n_tokens(s) == 7 && tern_data_set_read(s, 0, 7, got, NULL) == 0 &&
           tern_data_set_mask(s, 0, 7, mask, NULL) == 0 && memcmp(got, want, sizeof got) == 0 &&
           memcmp(mask, targets, sizeof mask) == 0,
       "their ids and targets are kept, an EOS at the end among them");
    tern_data_set_free(s);
    free(path);
    free(set);
}

/* attention_mask in each width that others write; 0 is no token, whatever stands there. */
static void test_attention(unsigned bits)
{
    const struct tern_arrow_lists columns[] = {{"input_ids", 32}, {"attention_mask", bits}};
    static const int32_t ids[] = {5, 6, EOS, EOS, 7, EOS, 8, 9};
    static const bool there[] = {1, 1, 1, 0, 1, 1, 0, 0};
    uint8_t mask[8 * 8] = {0};
    const void *values[] = {ids, mask};
    struct tern_err err = {0};
    struct tern_export_back back = {0};
    char *path = at("attention.arrow");
    FILE *f = fopen(path, "wb");
    struct tern_arrow_writer *w =
        tern_arrow_writer_new(fileno(f), path, columns, 2, NULL, NULL, &err);

    for (size_t i = 0; i < 8; i++)
        mask[i * (bits / 8)] = there[i]; /* little-endian */
    tern_arrow_writer_batch(w, 2, 4, values, &err);
    tern_arrow_writer_end(w, &err);
    tern_arrow_writer_free(w);
    fclose(f);
    ok(import(path, false, false, TERN_EXPORT_AS_STORED, &back, &err) == 0 && back.documents == 2 &&
           back.tokens == 5 && back.filled == 3,
       "an attention_mask of %u bits leaves out what it says: %s", bits, err.text);
    free(path);
}

int main(void)
{
    struct tern_err err = {0};

    token = tern_token_load(MODEL, &err);
    if (!token || !mkdtemp(work))
        return 1;
    char *rows = at("rows");
    struct tern_data_set *s = make_set(false, false);
    static const uint32_t lengths[] = {1, 2, 7, 64, 4096};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        test_rows(s, lengths[i], i % 2 ? 1 : 5000);
        tern_fs_remove_tree(rows, NULL);
    }
    test_sizes(s);
    test_refused_at_once(s);
    tern_data_set_free(s);
    free(rows);
    for (unsigned bits = 8; bits <= 64; bits *= 2)
        test_attention(bits);
    test_back(false, false);
    test_back(true, false);
    test_back(false, true);
    test_back(true, true);
    test_megatron();
    test_documents();
    test_chats(false);
    test_chats(true);
    test_chat_rows();
    tern_fs_remove_tree(work, NULL);
    tern_token_free(token);
    return tap_done();
}
