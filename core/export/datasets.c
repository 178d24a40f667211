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
    NO_TARGET = -100,  /* torch's ignore_index */
    BATCH = 16 << 20,  /* bytes of a record batch, if more than one row fits */
    BATCH_ROWS = 1000, /* of `datasets` itself */
    TOKEN_BYTES = 4 + 1 + 8,
    FILES_MAX = 99999, /* data-00000-of-99999.arrow */
};

struct export
{
    const struct tern_export_rows *rows;
    const struct tern_export_to *to;
    struct tern_export_folder folder;
    char *note; /* of the Arrow schema */
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

static int write_json(struct export *x, const char *name, json_t *j, struct tern_err *err)
{
    struct tern_export_file f;
    char *text = j ? json_dumps(j, JSON_INDENT(2)) : NULL;
    int rc = -1;

    json_decref(j);
    if (!text)
        return tern_err_set(err, TERN_USAGE, "%s: a name that is not UTF-8", x->to->dir);
    if (tern_export_file_open(&f, &x->folder, name, err) == 0)
        rc = tern_export_file_close(&f, tern_export_file_add(&f, text, strlen(text), err), err);
    free(text);
    return rc;
}

static int write_state(struct export *x, struct tern_err *err)
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
    return write_json(x, "state.json",
                      json_pack("{s:o, s:s, s:n, s:{}, s:n, s:b, s:s?}", "_data_files", files,
                                "_fingerprint", hex, "_format_columns", "_format_kwargs",
                                "_format_type", "_output_all_columns", 0, "_split", x->rows->split),
                      err);
}

static int write_info(struct export *x, struct tern_err *err)
{
    return write_json(x, "dataset_info.json",
                      json_pack("{s:s, s:s, s:o, s:s, s:s}", "citation", "", "description",
                                x->rows->about ? x->rows->about : "", "features", features(),
                                "homepage", "", "license", ""),
                      err);
}

/* ---- the whole ---- */

static int prepare(struct export *x, struct tern_err *err)
{
    const struct tern_export_rows *r = x->rows;
    const uint64_t row_bytes = (uint64_t)r->seq_len * TOKEN_BYTES;
    const uint64_t fit = BATCH / row_bytes;

    x->batch_rows = fit < 1 ? 1 : fit > BATCH_ROWS ? BATCH_ROWS : (uint32_t)fit;
    x->file_rows = r->file_bytes / row_bytes ? r->file_bytes / row_bytes : 1;
    const uint64_t files = r->n / x->file_rows + (r->n % x->file_rows != 0);
    if (files > FILES_MAX)
        return tern_err_set(err, TERN_USAGE,
                            "%s: %llu files of %llu rows; at most %d are allowed. "
                            "Allow larger files.",
                            x->to->dir, (unsigned long long)files, (unsigned long long)x->file_rows,
                            FILES_MAX);
    x->n_files = (uint32_t)files;
    const size_t n = (size_t)x->batch_rows * r->seq_len;
    x->tokens = tern_alloc((size_t)r->seq_len + 1, sizeof *x->tokens, "a row", err);
    x->mask = tern_alloc(r->seq_len, 1, "a row", err);
    x->ids = tern_alloc(n, sizeof *x->ids, "rows", err);
    x->attention = tern_alloc(n, sizeof *x->attention, "rows", err);
    x->labels = tern_alloc(n, sizeof *x->labels, "rows", err);
    json_t *note = json_pack("{s:{s:o}}", "info", "features", features());
    x->note = note ? json_dumps(note, 0) : NULL;
    json_decref(note);
    return x->tokens && x->mask && x->ids && x->attention && x->labels && x->note ? 0 : -1;
}

static int write_all(struct export *x, struct tern_err *err)
{
    for (uint32_t i = 0; i < x->n_files; i++)
        if (write_file(x, i, err) < 0)
            return -1;
    return write_state(x, err) < 0 || write_info(x, err) < 0 ? -1 : 0;
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
    x.done.files = x.n_files;
    x.done.bytes = x.done.rows * rows->seq_len * TOKEN_BYTES;
    if (rc == 0)
        *ret_done = x.done;
    return rc;
}
