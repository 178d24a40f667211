/* Arrow IPC files, stream and file form, as `datasets` and pyarrow write them. They are read as far
 * as texts and rows of tokens need (https://arrow.apache.org/docs/format/Columnar.html).
 *
 *     struct tern_arrow *a = tern_arrow_open("data-00000-of-00001.arrow", err);
 *     int column = tern_arrow_find(a, "text", err);
 *     if (column < 0 || tern_arrow_use(a, (size_t)column, err) < 0) ...
 *     while ((rc = tern_arrow_next(a, err)) > 0)
 *         for (uint64_t row = 0; row < tern_arrow_rows(a); row++)
 *             if (tern_arrow_text(a, (size_t)column, row, &text, &len)) ...
 *     tern_arrow_close(a);
 *
 * One record batch is in memory at a time, and of it the columns in use alone.  Each offset, count
 * and length is checked before it is followed; a damaged file is an error with TERN_USAGE.  Bodies
 * may be compressed by Zstandard where tern was built with libzstd.  LZ4 is refused.
 *
 * Files are read with pread(2).  One thread at a time for each reader and writer.
 */
#ifndef TERN_ARROW_ARROW_H
#define TERN_ARROW_ARROW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/base/str.h"

/* ---- reading ---- */

enum tern_arrow_kind {
    TERN_ARROW_OTHER,  /* may be in a file, and cannot be used */
    TERN_ARROW_TEXT,   /* utf8, large_utf8 */
    TERN_ARROW_BINARY, /* binary, large_binary */
    TERN_ARROW_INT,    /* 8 to 64 bits, signed or not */
    TERN_ARROW_BOOL,
    TERN_ARROW_REAL, /* 16 to 64 bits */
    TERN_ARROW_INTS, /* list, large_list and fixed_size_list of INT */
};

struct tern_arrow_column {
    const char *name; /* "text"; of a field in a struct "body.text" */
    const char *type; /* in Arrow's words, as "large_utf8" or "list<int32>" */
    enum tern_arrow_kind kind;
};

struct tern_arrow;

/* Reads the schema. */
struct tern_arrow *tern_arrow_open(const char *path, struct tern_err *err);
void tern_arrow_close(struct tern_arrow *a); /* NULL is fine */

size_t tern_arrow_n_columns(const struct tern_arrow *a);
/* Belongs to `a`. */
const struct tern_arrow_column *tern_arrow_column(const struct tern_arrow *a, size_t column);
/* The column of that name; -1 and an error that lists the columns where there is none. */
int tern_arrow_find(const struct tern_arrow *a, const char *name, struct tern_err *err);
/* Read this column from the next batch on.  An error where its kind is OTHER. */
int tern_arrow_use(struct tern_arrow *a, size_t column, struct tern_err *err);

/* 1 and the next record batch, 0 at the end, -1.  A file without its end mark was cut off. */
int tern_arrow_next(struct tern_arrow *a, struct tern_err *err);
/* Of the batch. */
uint64_t tern_arrow_rows(const struct tern_arrow *a);
/* Bytes of the file that were gone through, and its size. */
void tern_arrow_progress(const struct tern_arrow *a, uint64_t *ret_done, uint64_t *ret_all);

/* A cell of the batch: `column` is in use and of the kind, `row` < tern_arrow_rows.  False for a
 * null. */
bool tern_arrow_text(const struct tern_arrow *a, size_t column, uint64_t row, const char **ret_text,
                     size_t *ret_len); /* TEXT, BINARY; until the next batch; no NUL behind it */
bool tern_arrow_int(const struct tern_arrow *a, size_t column, uint64_t row,
                    int64_t *ret_v); /* INT, BOOL; uint64 above INT64_MAX is negative */
bool tern_arrow_real(const struct tern_arrow *a, size_t column, uint64_t row, double *ret_v);

/* The numbers of an INTS cell, until the next batch. */
struct tern_arrow_ints {
    const void *data;
    size_t n;
    unsigned bits;
    bool is_signed;
};
/* A null among the numbers makes the whole batch an error in tern_arrow_next. */
bool tern_arrow_ints(const struct tern_arrow *a, size_t column, uint64_t row,
                     struct tern_arrow_ints *ret_ints);
int64_t tern_arrow_ints_at(const struct tern_arrow_ints *v, size_t i);

/* ---- rows as records ---- */

/* Which fields are read, by their paths: "messages"; in the structs of its list "messages[].role".
 */
struct tern_arrow_fields {
    bool (*reads)(const void *arg, const char *path);
    const void *arg;
};
/* Read these from the next batch on, lists and structs among them.  An error names a field whose
 * type, or whose items' type, is none of texts, binaries, numbers, null, lists and structs.  Where
 * no field is read, it names the columns. */
int tern_arrow_use_record(struct tern_arrow *a, const struct tern_arrow_fields *fields,
                          struct tern_err *err);
/* Add a row as a JSON object on one line to `to`.  Columns that are not read are null, fields of
 * structs that are not read are missing.  Texts that are not UTF-8 keep their bytes. */
void tern_arrow_record(const struct tern_arrow *a, uint64_t row, struct tern_buf *to);

/* ---- folders of `datasets` ---- */

/* Was `dir` written by Dataset.save_to_disk or DatasetDict.save_to_disk? */
bool tern_arrow_is_dataset(const char *dir);

struct tern_arrow_dataset {
    char **path; /* of its files, in the order of its rows */
    size_t n;
};
/* The files that state.json lists.  A DatasetDict is an error that names its splits: each is a
 * folder of its own.  Freed with tern_arrow_dataset_free. */
int tern_arrow_dataset_list(const char *dir, struct tern_arrow_dataset *ret_dataset,
                            struct tern_err *err);
void tern_arrow_dataset_free(struct tern_arrow_dataset *d);

/* ---- writing ---- */

/* A column of lists of signed numbers. */
struct tern_arrow_lists {
    const char *name;
    unsigned bits; /* of a number: 8, 16, 32 or 64 */
};

struct tern_arrow_writer;
/* A stream to `fd`, which stays the caller's; `path` is for messages.  `fd` -1: nothing is written,
 * and the bytes are counted.  `columns` [n] is not kept.
 * `note_key` and `note` are put into the schema's metadata; NULL: none. */
struct tern_arrow_writer *tern_arrow_writer_new(int fd, const char *path,
                                                const struct tern_arrow_lists *columns, size_t n,
                                                const char *note_key, const char *note,
                                                struct tern_err *err);
/* A record batch of `rows` lists of `length` numbers in each column: values[column] [rows, length],
 * in the column's width. */
int tern_arrow_writer_batch(struct tern_arrow_writer *w, uint32_t rows, uint32_t length,
                            const void *const *values, struct tern_err *err);
/* The end mark. */
int tern_arrow_writer_end(struct tern_arrow_writer *w, struct tern_err *err);
/* How many bytes it has written, the schema's among them. */
uint64_t tern_arrow_writer_bytes(const struct tern_arrow_writer *w);
void tern_arrow_writer_free(struct tern_arrow_writer *w); /* NULL is fine */

#endif
