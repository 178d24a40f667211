/* Mutated Arrow files and Megatron indices: each is read or refused in words; nothing crashes,
 * hangs or reads astray (run under SANITIZE=address,undefined to know that). */
#include "core/arrow/arrow.h"
#include "core/base/fs.h"
#include "core/export/export.h"
#include "tests/fuzz/mutate.h"

#include <fcntl.h>
#include <unistd.h>

static char work[] = "/tmp/tern-fuzz-XXXXXX";

static const char *const words[] = {
    "\xff\xff\xff\xff", "\xff\xff\xff\x7f", "\x01",    "\x05", "\x0c", "\x0d", "\x10", "\x80",
    "\x18\x18\x18\x18", "ARROW1",           "MMIDIDX", "text", NULL,
};

/* Not by truncating the file to nothing: ext4 writes such a file out when it is closed. */
static void overwrite(const char *path, const char *data, size_t len)
{
    const int fd = open(path, O_WRONLY | O_CREAT, 0600);

    if (pwrite(fd, data, len, 0) != (ssize_t)len || ftruncate(fd, (off_t)len) < 0)
        abort();
    close(fd);
}

static size_t use_row(const struct tern_arrow *a, size_t c, uint64_t row)
{
    const char *text;
    size_t len, sum = 0;
    int64_t v = 0;
    double real = 0;
    struct tern_arrow_ints ints;

    switch (tern_arrow_column(a, c)->kind) {
    case TERN_ARROW_TEXT:
    case TERN_ARROW_BINARY:
        for (size_t k = 0; tern_arrow_text(a, c, row, &text, &len) && k < len; k++)
            sum += (unsigned char)text[k];
        return sum;
    case TERN_ARROW_INT:
    case TERN_ARROW_BOOL:
        return tern_arrow_int(a, c, row, &v) + (size_t)v;
    case TERN_ARROW_REAL:
        return tern_arrow_real(a, c, row, &real) && real > 0;
    case TERN_ARROW_INTS:
        for (size_t k = 0; tern_arrow_ints(a, c, row, &ints) && k < ints.n; k++)
            sum += (size_t)tern_arrow_ints_at(&ints, k);
        return sum;
    case TERN_ARROW_OTHER:
        break;
    }
    return 0;
}

/* *ret_sum keeps the reading from being optimised away. */
static int read_all(const char *path, size_t *ret_sum, struct tern_err *err)
{
    struct tern_arrow *a = tern_arrow_open(path, err);
    int rc;

    if (!a)
        return -1;
    for (size_t c = 0; c < tern_arrow_n_columns(a); c++)
        if (tern_arrow_column(a, c)->kind != TERN_ARROW_OTHER)
            tern_arrow_use(a, c, err);
    while ((rc = tern_arrow_next(a, err)) > 0)
        for (size_t c = 0; c < tern_arrow_n_columns(a); c++)
            for (uint64_t row = 0; row < tern_arrow_rows(a); row++)
                *ret_sum += use_row(a, c, row);
    tern_arrow_close(a);
    return rc;
}

/* Fields of types that are read. */
static bool reads(const void *arg, const char *field)
{
    (void)arg;
    return strcmp(field, "id") != 0 && strcmp(field, "kind") != 0 && !strstr(field, ".when");
}

/* The same, row by row as records. */
static int read_records(const char *path, size_t *ret_sum, struct tern_err *err)
{
    const struct tern_arrow_fields fields = {.reads = reads};
    struct tern_arrow *a = tern_arrow_open(path, err);
    struct tern_buf b = {.max = 16 << 20};
    int rc = a ? tern_arrow_use_record(a, &fields, err) : -1;

    while (rc >= 0 && (rc = tern_arrow_next(a, err)) > 0)
        for (uint64_t row = 0; row < tern_arrow_rows(a); row++) {
            tern_buf_clear(&b);
            tern_arrow_record(a, row, &b);
            *ret_sum += b.len;
        }
    tern_buf_free(&b);
    tern_arrow_close(a);
    return rc;
}

static bool said(const struct tern_err *err)
{
    return err->code == TERN_USAGE && err->text[0] && !strchr(err->text, '\n');
}

static void fuzz_arrow(const char *golden,
                       int (*read_file)(const char *path, size_t *ret_sum, struct tern_err *err))
{
    char *path = tern_fs_join(work, "x.arrow"), *data = NULL;
    const int runs = fuzz_runs(20000);
    size_t len, sum = 0;
    int wrong = 0, refused = 0;

    if (tern_fs_read(golden, 1 << 20, &data, &len, NULL) < 0)
        abort();
    for (int i = 0; i < runs; i++) {
        struct tern_err err = {0};
        size_t n;
        char *x = fuzz_mutate(data, len, words, &n);
        overwrite(path, x, n);
        if (read_file(path, &sum, &err) < 0) {
            refused++;
            wrong += !said(&err);
        }
        free(x);
    }
    ok(wrong == 0 && refused > 0 && refused < runs && sum, "%s: %d of %d changed files are refused",
       golden, refused, runs);
    free(data);
    free(path);
}

static void make_documents(const struct tern_token *t, const char *dir)
{
    char *path = tern_fs_join(work, "x.tds");
    struct tern_data_set_kind kind = {.n_vocab = tern_token_n_vocab(t), .eos = 2, .bos = -1};
    struct tern_data_set_writer *w = tern_data_set_create(path, &kind, NULL);
    const struct tern_export_to to = {.dir = dir};
    struct tern_export_done done;

    for (uint32_t d = 0; d < 20; d++)
        tern_data_set_add(w, (uint32_t[]){5, 6 + d, 7, 300}, NULL, d % 5, 9, NULL);
    if (tern_data_set_commit(w, "{}", NULL) < 0)
        abort();
    struct tern_data_set *s = tern_data_set_open(path, NULL);
    if (!s || tern_export_megatron(s, &to, &done, NULL) < 0)
        abort();
    tern_data_set_free(s);
    free(path);
}

static int import(const struct tern_token *t, const char *from, struct tern_err *err)
{
    const struct tern_export_from f = {.path = from, .column = "input_ids", .token = t};
    struct tern_data_set_kind kind;
    struct tern_export_back back;
    char *path = tern_fs_join(work, "back.tds");
    struct tern_data_set_writer *w =
        tern_export_kind(&f, &kind, err) < 0 ? NULL : tern_data_set_create(path, &kind, err);
    const int rc = w ? tern_export_read(&f, w, &back, err) : -1;

    tern_data_set_abort(w);
    free(path);
    return rc;
}

static void fuzz_megatron(const struct tern_token *t)
{
    char *dir = tern_fs_join(work, "m"), *index = tern_fs_join(dir, "tokens.idx"), *data = NULL;
    const int runs = fuzz_runs(5000);
    size_t len;
    int wrong = 0, refused = 0;

    make_documents(t, dir);
    if (tern_fs_read(index, 1 << 20, &data, &len, NULL) < 0)
        abort();
    for (int i = 0; i < runs; i++) {
        struct tern_err err = {0};
        size_t n;
        char *x = fuzz_mutate(data, len, words, &n);
        overwrite(index, x, n);
        if (import(t, dir, &err) < 0) {
            refused++;
            wrong += !said(&err);
        }
        free(x);
    }
    ok(wrong == 0 && refused > 0 && refused < runs, "%d of %d changed indices are refused", refused,
       runs);
    free(data);
    free(index);
    free(dir);
}

int main(void)
{
    struct tern_token *t = tern_token_load("tests/golden/spm-bpe-800.model", NULL);

    if (!t || !mkdtemp(work))
        return 1;
    fuzz_arrow("tests/golden/arrow-stream.arrow", read_all);
    fuzz_arrow("tests/golden/arrow-file.arrow", read_all);
    fuzz_arrow("tests/golden/arrow-records.arrow", read_records);
    fuzz_megatron(t);
    tern_fs_remove_tree(work, NULL);
    tern_token_free(t);
    return tap_done();
}
