/* Arrow files: cells as pyarrow wrote them, what tern writes is read again, damage is an error. */
#include "core/arrow/arrow.h"
#include "core/base/fs.h"
#include "core/base/str.h"
#include "tests/unit/tap.h"

#include <fcntl.h>
#include <unistd.h>

#define STREAM "tests/golden/arrow-stream.arrow"
#define RECORDS "tests/golden/arrow-records.arrow"
#define FILE_FORM "tests/golden/arrow-file.arrow"

static char work[] = "/tmp/tern-arrow-XXXXXX";
static char *path;

/* ---- cells ---- */

static size_t use(struct tern_arrow *a, const char *name)
{
    struct tern_err err = {0};
    int c = tern_arrow_find(a, name, &err);

    ok(c >= 0 && tern_arrow_use(a, (size_t)c, &err) == 0, "column %s can be used", name);
    return c < 0 ? 0 : (size_t)c;
}

/* Row `row` of the file is row `i` of its batch. */
static void check_row(const struct tern_arrow *a, const size_t c[5], uint64_t row, uint64_t i)
{
    const char *text;
    char want[32];
    size_t len;
    int64_t v;
    struct tern_arrow_ints ints;
    bool there = tern_arrow_text(a, c[0], i, &text, &len);

    snprintf(want, sizeof want, "word %d \xc3\xa9\xf0\x9f\x98\x80", (int)row);
    ok(there == (row % 5 != 3) && (!there || (len == strlen(want) && !memcmp(text, want, len))),
       "row %d: its text, or null", (int)row);
    ok(tern_arrow_int(a, c[1], i, &v) && v == (int64_t)row - 3, "row %d: an int8", (int)row);
    there = tern_arrow_int(a, c[2], i, &v);
    ok(there == (row != 2) && (!there || v == 1990 + (int64_t)row),
       "row %d: a field of a struct, null with its struct", (int)row);
    there = tern_arrow_ints(a, c[3], i, &ints);
    ok(there == (row != 4) &&
           (!there || (ints.n == row &&
                       (row == 0 || tern_arrow_ints_at(&ints, row - 1) == (int64_t)row - 1))),
       "row %d: a list of its length", (int)row);
    ok(tern_arrow_ints(a, c[4], i, &ints) && ints.n == 2 &&
           tern_arrow_ints_at(&ints, 1) == -(int64_t)row,
       "row %d: a list of fixed size", (int)row);
}

static void test_cells(const char *file, uint64_t rows)
{
    struct tern_err err = {0};
    struct tern_arrow *a = tern_arrow_open(file, &err);
    uint64_t row = 0;
    int rc;

    ok(a != NULL, "%s opens: %s", file, err.text);
    if (!a)
        return;
    const size_t c[] = {use(a, "text"), use(a, "id"), use(a, "body.year"), use(a, "ids"),
                        use(a, "pair")};
    while ((rc = tern_arrow_next(a, &err)) > 0)
        for (uint64_t i = 0; i < tern_arrow_rows(a); i++)
            check_row(a, c, row++, i);
    ok(rc == 0 && row == rows, "%s: %d rows: %s", file, (int)rows, err.text);
    ok(tern_arrow_next(a, &err) == 0, "%s: the end stays the end", file);
    ok(tern_arrow_find(a, "kind", &err) >= 0 &&
           tern_arrow_use(a, (size_t)tern_arrow_find(a, "kind", &err), &err) < 0 &&
           err.code == TERN_USAGE,
       "a dictionary is refused");
    has(err.text, "'kind' is of type dictionary<utf8>",
        "the refused dictionary is named with its type");
    ok(tern_arrow_find(a, "txt", &err) < 0, "a column that is not there");
    has(err.text, "no column 'txt' (found: text, id, body,", "the columns are listed");
    tern_arrow_close(a);
}

/* ---- rows as records ---- */

static bool reads(const void *arg, const char *field)
{
    const char *list = arg, *at = strstr(list, field);
    const size_t n = strlen(field);

    for (; at && n; at = strstr(at + 1, field))
        if ((at == list || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0'))
            return true;
    return false;
}

/* Its rows, a line each; malloc'ed; NULL with `err`. */
static char *records(const char *file, const char *fields, struct tern_err *err)
{
    struct tern_arrow *a = tern_arrow_open(file, err);
    const struct tern_arrow_fields f = {reads, fields};
    struct tern_buf b = {0};
    int rc = a ? tern_arrow_use_record(a, &f, err) : -1;

    while (rc >= 0 && (rc = tern_arrow_next(a, err)) > 0)
        for (uint64_t row = 0; row < tern_arrow_rows(a); row++) {
            tern_arrow_record(a, row, &b);
            tern_buf_puts(&b, "\n");
        }
    tern_arrow_close(a);
    if (rc < 0)
        tern_buf_free(&b);
    return b.data;
}

static void test_records(void)
{
    struct tern_err err = {0};
    char *rows =
        records(RECORDS,
                "messages messages[].role messages[].content conversations "
                "conversations[].value instruction context response n score good tags grid",
                &err);

    is(rows,
       "{\"id\":null,\"messages\":[{\"role\":\"user\",\"content\":\"Why?\"},{\"role\":"
       "\"assistant\",\"content\":\"So \\\"it\\\"\\\\ is.\\u000a\\u0009\\u0001\xc3\xa9"
       "\xf0\x9f\x98\x80\"}],\"conversations\":null,\"instruction\":\"Why?\",\"context\":null,"
       "\"response\":\"\",\"n\":18446744073709551615,\"score\":0.5,\"good\":true,"
       "\"tags\":[\"a\",null],\"grid\":[[1,null],[2],null],\"kind\":null}\n"
       "{\"id\":null,\"messages\":[],\"conversations\":[{\"value\":\"Hm\"},null,"
       "{\"value\":null}],\"instruction\":null,\"context\":null,\"response\":\"So.\","
       "\"n\":null,\"score\":0,\"good\":false,\"tags\":null,\"grid\":null,\"kind\":null}\n"
       "{\"id\":null,\"messages\":null,\"conversations\":[],\"instruction\":\"\","
       "\"context\":null,\"response\":null,\"n\":0,\"score\":null,\"good\":null,"
       "\"tags\":[\"\",\"b\"],\"grid\":[],\"kind\":null}\n"
       "{\"id\":null,\"messages\":[{\"role\":\"system\",\"content\":\"\"},{\"role\":null,"
       "\"content\":\"x\"},{\"role\":\"user\",\"content\":null}],\"conversations\":null,"
       "\"instruction\":\"a\",\"context\":null,\"response\":\"b\",\"n\":1,\"score\":-2,"
       "\"good\":true,\"tags\":[\"c\",\"d\"],\"grid\":[[-5]],\"kind\":null}\n",
       "rows of nested columns are JSON objects; what is not read is null: %s", err.text);
    free(rows);
    rows = records(RECORDS, "messages", &err);
    has(rows ? rows : "", "\"messages\":[{},{}]", "structs without a field that is read");
    free(rows);
    ok(!records(RECORDS, "instruction kind", &err) && err.code == TERN_USAGE,
       "a dictionary that is a field is refused");
    has(err.text, "column 'kind' is of type dictionary<utf8>",
        "the refused column is named with its type");
    ok(!records(RECORDS, "messages messages[].when", &err) && err.code == TERN_USAGE,
       "a time in a struct that is a field is refused");
    has(err.text, "column 'messages[].when' is of type timestamp",
        "the refused time is named by its path");
    ok(!records(RECORDS, "prompt", &err) && err.code == TERN_USAGE, "no column is a field");
    has(err.text, "none of its columns is a field of records (found: id, messages, conversations,",
        "the columns are listed");
    rows = records(STREAM, "text ids pair", &err);
    has(rows ? rows : "", "\"ids\":[0,1],\"pair\":", "lists of numbers");
    free(rows);
}

/* ---- damage ---- */

/* Everything that can be read; -1 with an error. */
static int read_all(struct tern_err *err)
{
    struct tern_arrow *a = tern_arrow_open(path, err);
    const char *text;
    size_t len, sum = 0;
    int64_t v;
    double real;
    struct tern_arrow_ints ints;
    int rc;

    if (!a)
        return -1;
    for (size_t c = 0; c < tern_arrow_n_columns(a); c++)
        if (tern_arrow_column(a, c)->kind != TERN_ARROW_OTHER)
            tern_arrow_use(a, c, err);
    *err = (struct tern_err){0};
    while ((rc = tern_arrow_next(a, err)) > 0)
        for (size_t c = 0; c < tern_arrow_n_columns(a); c++)
            for (uint64_t i = 0; i < tern_arrow_rows(a); i++)
                switch (tern_arrow_column(a, c)->kind) {
                case TERN_ARROW_TEXT:
                case TERN_ARROW_BINARY:
                    for (size_t k = 0; tern_arrow_text(a, c, i, &text, &len) && k < len; k++)
                        sum += (unsigned char)text[k];
                    break;
                case TERN_ARROW_INT:
                case TERN_ARROW_BOOL:
                    sum += tern_arrow_int(a, c, i, &v);
                    break;
                case TERN_ARROW_REAL:
                    sum += tern_arrow_real(a, c, i, &real);
                    break;
                case TERN_ARROW_INTS:
                    for (size_t k = 0; tern_arrow_ints(a, c, i, &ints) && k < ints.n; k++)
                        sum += (size_t)tern_arrow_ints_at(&ints, k);
                    break;
                case TERN_ARROW_OTHER:
                    break;
                }
    tern_arrow_close(a);
    return sum == SIZE_MAX ? 1 : rc;
}

/* The same, row by row. */
static int read_records(struct tern_err *err)
{
    char *rows =
        records(path,
                "messages messages[].role messages[].content conversations "
                "conversations[].value instruction context response n score good tags grid "
                "text ids pair body body.year body.text",
                err);

    free(rows);
    return err->text[0] ? -1 : 0;
}

static bool said(const struct tern_err *err)
{
    return err->code == TERN_USAGE && tern_str_starts(err->text, path) && !strchr(err->text, '\n');
}

/* Neither tern_fs_replace, which waits for the disk, nor by truncating to nothing: ext4 writes such
 * a file out when it is closed. */
static void overwrite(const char *data, size_t len)
{
    const int fd = open(path, O_WRONLY | O_CREAT, 0600);

    if (pwrite(fd, data, len, 0) != (ssize_t)len || ftruncate(fd, (off_t)len) < 0)
        abort();
    close(fd);
}

static void test_damage(const char *file, int (*read_file)(struct tern_err *err))
{
    char *data;
    size_t len, cut = 0, tried = 0, wrong = 0, refused = 0;

    if (tern_fs_read(file, 1 << 20, &data, &len, NULL) < 0)
        abort();
    for (size_t n = 0; n < len; n++) {
        struct tern_err err = {0};
        overwrite(data, n);
        cut += read_file(&err) < 0 && said(&err);
    }
    ok(cut == len, "%s: cut off at any byte it is an error", file);
    for (size_t n = 0; n < len; n++)
        for (int bit = tap_long() ? 0 : (int)(n % 8); bit < 8; bit += tap_long() ? 1 : 8) {
            struct tern_err err = {0};
            data[n] = (char)(data[n] ^ 1 << bit);
            overwrite(data, len);
            const int rc = read_file(&err);
            tried++;
            refused += rc < 0;
            wrong += rc < 0 && !said(&err);
            data[n] = (char)(data[n] ^ 1 << bit);
        }
    ok(wrong == 0 && refused > 0 && refused < tried,
       "%s: a flipped bit is read, or an error (%d are)", file, (int)refused);
    free(data);
}

/* ---- writing ---- */

static void test_write(void)
{
    static const struct tern_arrow_lists columns[] = {{"a", 8}, {"b", 16}, {"c", 32}, {"d", 64}};
    static const int8_t a8[] = {1, -2, 3, 4, 5, -128};
    static const int16_t b16[] = {1, -2, 3, 4, 5, -32768};
    static const int32_t c32[] = {1, -2, 3, 4, 5, INT32_MIN};
    static const int64_t d64[] = {1, -2, 3, 4, 5, INT64_MIN};
    const void *values[] = {a8, b16, c32, d64};
    static const int64_t last[] = {-128, -32768, INT32_MIN, INT64_MIN};
    struct tern_err err = {0};
    struct tern_arrow_ints v;
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    struct tern_arrow_writer *w =
        tern_arrow_writer_new(fd, path, columns, 4, "huggingface", "{}", &err);

    ok(w && tern_arrow_writer_batch(w, 2, 3, values, &err) == 0 &&
           tern_arrow_writer_batch(w, 0, 3, values, &err) == 0 &&
           tern_arrow_writer_batch(w, 3, 2, values, &err) == 0 &&
           tern_arrow_writer_end(w, &err) == 0,
       "columns of each width are written");
    tern_arrow_writer_free(w);
    close(fd);
    struct tern_arrow *r = tern_arrow_open(path, &err);
    ok(r && tern_arrow_n_columns(r) == 4, "columns of both kinds are read: %s", err.text);
    for (size_t c = 0; c < 4; c++)
        use(r, columns[c].name);
    ok(tern_arrow_next(r, &err) == 1 && tern_arrow_rows(r) == 2, "two rows of three numbers");
    for (size_t c = 0; c < 4; c++)
        ok(tern_arrow_ints(r, c, 1, &v) && v.n == 3 && tern_arrow_ints_at(&v, 0) == 4 &&
               tern_arrow_ints_at(&v, 2) == last[c],
           "numbers of %u bits come back", columns[c].bits);
    ok(tern_arrow_next(r, &err) == 1 && tern_arrow_rows(r) == 0, "a batch without rows");
    ok(tern_arrow_next(r, &err) == 1 && tern_arrow_rows(r) == 3 && tern_arrow_ints(r, 2, 1, &v) &&
           v.n == 2 && tern_arrow_ints_at(&v, 0) == 3,
       "three rows of two numbers");
    ok(tern_arrow_next(r, &err) == 0, "the file has no more rows");
    tern_arrow_close(r);
}

/* ---- folders ---- */

static void put(const char *name, const char *text)
{
    char *p = tern_fs_join(work, name);

    tern_fs_replace(p, text, strlen(text), 0644, NULL);
    free(p);
}

static void test_dataset(void)
{
    struct tern_err err = {0};
    struct tern_arrow_dataset d = {0};

    ok(!tern_arrow_is_dataset(work), "an empty folder is no data set");
    put("dataset_dict.json", "{\"splits\": [\"train\", \"test\"]}");
    ok(tern_arrow_is_dataset(work) && tern_arrow_dataset_list(work, &d, &err) < 0,
       "several data sets are refused");
    has(err.text, "/train, ", "the refused splits are named");
    put("state.json",
        "{\"_data_files\": [{\"filename\": \"b.arrow\"}, {\"filename\": \"a.arrow\"}]}");
    ok(tern_arrow_dataset_list(work, &d, &err) == 0 && d.n == 2 &&
           tern_str_ends(d.path[0], "/b.arrow"),
       "files in the order of state.json");
    tern_arrow_dataset_free(&d);
    static const char *const bad[] = {
        "{}",
        "[]",
        "{\"_data_files\": [",
        "{\"_data_files\": [{\"filename\": \"../x.arrow\"}]}",
        "{\"_data_files\": [{\"filename\": 1}]}",
        "{\"_data_files\": [{\"filename\": \"a\"}], \"_indices_data_files\": [{}]}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        put("state.json", bad[i]);
        ok(tern_arrow_dataset_list(work, &d, &err) < 0 && err.code == TERN_USAGE && d.n == 0,
           "refused: state.json says %s", bad[i]);
    }
}

/* state.json and dataset_dict.json cut off at any byte, and with any bit wrong: files in the folder
 * or an error that names the file. */
static void test_damaged_dataset(const char *name, const char *text, bool list)
{
    const size_t n = strlen(text);
    char *json = tern_fs_join(work, name), *changed = tern_strdup(text);
    size_t taken = 0, wrong = 0, outside = 0;

    for (size_t i = 0; i < n + 8 * n; i++) { /* cuts, then bits */
        struct tern_arrow_dataset d = {0};
        struct tern_err err = {0};
        FILE *f = fopen(json, "w");
        if (i >= n)
            changed[(i - n) / 8] ^= (char)(1 << (i - n) % 8);
        if (!f || fwrite(changed, 1, i < n ? i : n, f) != (i < n ? i : n) || fclose(f) != 0)
            abort();
        const int rc = tern_arrow_dataset_list(work, &d, &err);
        taken += rc == 0 && i < n;
        wrong += rc < 0 && (err.code != TERN_USAGE || !strstr(err.text, work) || d.n != 0);
        for (size_t k = 0; k < d.n; k++)
            outside += strncmp(d.path[k], work, strlen(work)) != 0 ||
                       strchr(d.path[k] + strlen(work) + 1, '/') != NULL;
        tern_arrow_dataset_free(&d);
        if (i >= n)
            changed[(i - n) / 8] ^= (char)(1 << (i - n) % 8);
    }
    ok(taken == 0, "no beginning of %s is taken", name);
    ok(wrong == 0, "a damaged %s is an error of input that names it", name);
    if (list)
        ok(outside == 0, "no damage of %s leads out of its folder", name);
    unlink(json);
    free(changed);
    free(json);
}

int main(void)
{
    if (!mkdtemp(work))
        return 1;
    path = tern_fs_join(work, "x.arrow");
    test_dataset();
    test_damaged_dataset("state.json",
                         "{\"_data_files\": [{\"filename\": \"b.arrow\"}, {\"filename\": "
                         "\"a.arrow\"}], \"_indices_data_files\": null}",
                         true);
    test_damaged_dataset("dataset_dict.json", "{\"splits\": [\"train\", \"test\"]}", false);
    test_cells(STREAM, 9);
    test_cells(FILE_FORM, 6);
    test_write();
    test_records();
    test_damage(STREAM, read_all);
    test_damage(FILE_FORM, read_all);
    test_damage(RECORDS, read_records);
    tern_fs_remove_tree(work, NULL);
    free(path);
    return tap_done();
}
