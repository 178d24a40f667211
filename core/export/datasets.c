/* A folder as Dataset.save_to_disk writes it. */
#include "core/export/export.h"

#include "core/arrow/arrow.h"
#include "core/base/json.h"
#include "core/base/str.h"
#include "core/export/folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NO_TARGET = -100,        /* torch's ignore_index */
    BATCH = 16 << 20,        /* bytes of a record batch, if more than one row fits */
    BATCH_ROWS = 1000,       /* of `datasets` itself */
    TOKEN_BYTES = 4 + 1 + 8, /* of the three columns */
    FILES_MAX = 99999,       /* data-00000-of-99999.arrow */
};

struct export
{
    const struct tern_export_rows *rows;
    const struct tern_export_to *to;
    struct tern_export_folder folder;
    char *note;         /* of the Arrow schema */
    char *state, *info; /* contents of state.json and dataset_info.json */
    uint64_t file_rows;
    uint32_t batch_rows, n_files;
    int32_t *tokens; /* [seq_len + 1] */
    uint8_t *mask;   /* [seq_len] */
    int32_t *ids;    /* [batch_rows, seq_len], as the others */
    int8_t *attention;
    int64_t *labels;
    struct tern_export_done done;
};

static const struct tern_arrow_lists columns[] = {
    {"input_ids", 32}, {"attention_mask", 8}, {"labels", 64}};
enum { N_COLUMNS = sizeof columns / sizeof columns[0] };

/* ---- rows ---- */

static int fill_row(struct export *x, uint64_t row, uint32_t at, struct tern_err *err)
{
    const uint32_t length = x->rows->seq_len;
    const size_t to = (size_t)at * length;

    if (x->rows->row(x->rows->of, row, x->tokens, x->mask, err) < 0)
        return -1;
    const uint32_t n = x->rows->filled(x->rows->of, row);
    memcpy(x->ids + to, x->tokens + 1, length * sizeof *x->ids);
    for (uint32_t j = 0; j < length; j++) {
        x->attention[to + j] = j < n;
        x->labels[to + j] = x->mask[j] ? x->tokens[j + 1] : NO_TARGET;
    }
    x->done.tokens += n;
    return 0;
}

/* Rows first .. end - 1 into one file. */
static int write_rows(struct export *x, struct tern_arrow_writer *w, uint64_t first, uint64_t end,
                      struct tern_err *err)
{
    const void *const values[N_COLUMNS] = {x->ids, x->attention, x->labels};

    while (first < end) {
        const uint32_t n = end - first < x->batch_rows ? (uint32_t)(end - first) : x->batch_rows;
        for (uint32_t i = 0; i < n; i++)
            if (fill_row(x, first + i, i, err) < 0)
                return -1;
        if (tern_arrow_writer_batch(w, n, x->rows->seq_len, values, err) < 0 ||
            tern_export_stopped(x->to->stop, x->to->dir, err) < 0)
            return -1;
        first += n;
        x->done.rows += n;
        if (x->to->progress)
            x->to->progress(x->done.rows, x->rows->n);
    }
    return tern_arrow_writer_end(w, err);
}

static char *file_name(const struct export *x, uint32_t i)
{
    return tern_strf("data-%05u-of-%05u.arrow", i, x->n_files);
}

static int write_file(struct export *x, uint32_t i, struct tern_err *err)
{
    const uint64_t first = x->file_rows * i, left = x->rows->n - first;
    const uint64_t n = left < x->file_rows ? left : x->file_rows;
    char *name = file_name(x, i);
    struct tern_export_file f;
    int rc = tern_export_file_open(&f, &x->folder, name, err);

    free(name);
    if (rc < 0)
        return -1;
    struct tern_arrow_writer *w =
        tern_arrow_writer_new(f.fd, f.path, columns, N_COLUMNS, "huggingface", x->note, err);
    rc = w ? write_rows(x, w, x->rows->first + first, x->rows->first + first + n, err) : -1;
    x->done.bytes += w ? tern_arrow_writer_bytes(w) : 0;
    tern_arrow_writer_free(w);
    return tern_export_file_close(&f, rc, err);
}

/* ---- what `datasets` wants to know ---- */

/* Sequence, not List: datasets before 4 knows that alone, and later ones take it. */
static json_t *features(void)
{
    json_t *all = json_object();

    for (size_t i = 0; i < N_COLUMNS; i++) {
        char type[16];
        snprintf(type, sizeof type, "int%u", columns[i].bits);
        json_object_set_new(all, columns[i].name,
                            json_pack("{s:{s:s, s:s}, s:s}", "feature", "dtype", type, "_type",
                                      "Value", "_type", "Sequence"));
    }
    return all;
}

/* The text of `j`, which is freed. */
static char *json_text(json_t *j, const char *what, struct tern_err *err)
{
    char *text = j ? json_dumps(j, JSON_INDENT(2)) : NULL;

    json_decref(j);
    if (!text)
        tern_err_set(err, TERN_FAILED, "%s: cannot be written as JSON", what);
    return text;
}

static char *state_text(const struct export *x, struct tern_err *err)
{
    char hex[TERN_SHA256_HEX];
    json_t *files = json_array();

    tern_hex(hex, x->rows->identity, TERN_SHA256_BYTES);
    hex[16] = '\0'; /* as long as those of `datasets` */
    for (uint32_t i = 0; i < x->n_files; i++) {
        char *name = file_name(x, i);
        json_array_append_new(files, json_pack("{s:s}", "filename", name));
        free(name);
    }
    return json_text(json_pack("{s:o, s:s, s:n, s:{}, s:n, s:b, s:s?}", "_data_files", files,
                               "_fingerprint", hex, "_format_columns", "_format_kwargs",
                               "_format_type", "_output_all_columns", 0, "_split", x->rows->split),
                     "state.json", err);
}

static char *info_text(const struct export *x, struct tern_err *err)
{
    const char *about = x->rows->about ? x->rows->about : "";

    return json_text(json_pack("{s:s, s:o, s:o, s:s, s:s}", "citation", "", "description",
                               tern_json_text(about), "features", features(), "homepage", "",
                               "license", ""),
                     "dataset_info.json", err);
}

static int write_text(struct export *x, const char *name, const char *text, struct tern_err *err)
{
    struct tern_export_file f;

    if (tern_export_file_open(&f, &x->folder, name, err) < 0)
        return -1;
    const int rc = tern_export_file_add(&f, text, strlen(text), err);
    x->done.bytes += f.bytes;
    return tern_export_file_close(&f, rc, err);
}

/* ---- before the first row ---- */

int tern_export_check_split(const char *name, struct tern_err *err)
{
    bool good = true, word = false;

    for (const char *s = name; *s && good; s++) {
        const bool letter = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                      "0123456789_") > 0;
        good = letter || (word && *s == '.');
        word = letter;
    }
    return good && word
               ? 0
               : tern_err_set(err, TERN_USAGE,
                              "'%s' is no name of a split for `datasets`: letters, digits and _ "
                              "are allowed, and points between them, such as train",
                              name);
}

/* Bytes that a batch of `rows` adds to the file that `w` counts. */
static int batch_bytes(const struct export *x, struct tern_arrow_writer *w, uint32_t rows,
                       uint64_t *ret_bytes, struct tern_err *err)
{
    const void *const values[N_COLUMNS] = {x->ids, x->attention, x->labels};
    const uint64_t before = tern_arrow_writer_bytes(w);

    if (tern_arrow_writer_batch(w, rows, x->rows->seq_len, values, err) < 0)
        return -1;
    *ret_bytes = tern_arrow_writer_bytes(w) - before;
    return 0;
}

/* The rows of a file of at most `bytes`: whole batches, and as many as fit of another.  One at
 * least. */
static int count_rows(struct export *x, struct tern_arrow_writer *w, uint64_t bytes,
                      struct tern_err *err)
{
    uint32_t low = 0, high = x->batch_rows - 1;
    uint64_t batch;

    if (tern_arrow_writer_end(w, err) < 0)
        return -1;
    const uint64_t around = tern_arrow_writer_bytes(w); /* the schema and the end */
    if (batch_bytes(x, w, x->batch_rows, &batch, err) < 0)
        return -1;
    const uint64_t room = bytes > around ? bytes - around : 0;
    x->file_rows = room / batch * x->batch_rows;
    while (low < high) {
        const uint32_t middle = low + (high - low + 1) / 2;
        uint64_t some;
        if (batch_bytes(x, w, middle, &some, err) < 0)
            return -1;
        if (some <= room % batch)
            low = middle;
        else
            high = middle - 1;
    }
    x->file_rows += low;
    x->file_rows = x->file_rows ? x->file_rows : 1;
    return 0;
}

static int divide(struct export *x, struct tern_err *err)
{
    const uint64_t n = x->rows->n;
    struct tern_arrow_writer *w = tern_arrow_writer_new(/* fd= */ -1, x->to->dir, columns,
                                                        N_COLUMNS, "huggingface", x->note, err);
    const int rc = w ? count_rows(x, w, x->rows->file_bytes, err) : -1;

    tern_arrow_writer_free(w);
    if (rc < 0)
        return -1;
    const uint64_t files = n / x->file_rows + (n % x->file_rows != 0);
    if (files > FILES_MAX)
        return tern_err_set(err, TERN_USAGE,
                            "%s: %llu files of %llu rows; at most %d are allowed. "
                            "Allow larger files.",
                            x->to->dir, (unsigned long long)files, (unsigned long long)x->file_rows,
                            FILES_MAX);
    x->n_files = (uint32_t)files;
    return 0;
}

static int prepare(struct export *x, struct tern_err *err)
{
    const struct tern_export_rows *r = x->rows;
    const uint64_t fit = BATCH / ((uint64_t)r->seq_len * TOKEN_BYTES);

    if (r->split && tern_export_check_split(r->split, err) < 0)
        return -1;
    x->batch_rows = fit < 1 ? 1 : fit > BATCH_ROWS ? BATCH_ROWS : (uint32_t)fit;
    const size_t n = (size_t)x->batch_rows * r->seq_len;
    x->tokens = tern_alloc((size_t)r->seq_len + 1, sizeof *x->tokens, "a row", err);
    x->mask = tern_alloc(r->seq_len, 1, "a row", err);
    x->ids = tern_alloc(n, sizeof *x->ids, "rows", err);
    x->attention = tern_alloc(n, sizeof *x->attention, "rows", err);
    x->labels = tern_alloc(n, sizeof *x->labels, "rows", err);
    if (!x->tokens || !x->mask || !x->ids || !x->attention || !x->labels)
        return -1;
    json_t *note = json_pack("{s:{s:o}}", "info", "features", features());
    x->note = note ? json_dumps(note, 0) : NULL;
    json_decref(note);
    if (!x->note)
        return tern_err_set(err, TERN_FAILED, "%s: no memory for its columns", x->to->dir);
    if (divide(x, err) < 0)
        return -1;
    x->state = state_text(x, err);
    x->info = x->state ? info_text(x, err) : NULL;
    return x->info ? 0 : -1;
}

/* ---- the whole ---- */

static int write_all(struct export *x, struct tern_err *err)
{
    for (uint32_t i = 0; i < x->n_files; i++)
        if (write_file(x, i, err) < 0)
            return -1;
    return write_text(x, "state.json", x->state, err) < 0 ||
                   write_text(x, "dataset_info.json", x->info, err) < 0
               ? -1
               : 0;
}

int tern_export_datasets(const struct tern_export_rows *rows, const struct tern_export_to *to,
                         struct tern_export_done *ret_done, struct tern_err *err)
{
    struct export x = {.rows = rows, .to = to};
    int rc = prepare(&x, err);

    if (rc == 0 && (rc = tern_export_folder_begin(&x.folder, to->dir, err)) == 0)
        rc = tern_export_folder_end(&x.folder, write_all(&x, err), err);
    free(x.tokens);
    free(x.mask);
    free(x.ids);
    free(x.attention);
    free(x.labels);
    free(x.note);
    free(x.state);
    free(x.info);
    x.done.files = x.n_files;
    if (rc == 0)
        *ret_done = x.done;
    return rc;
}
