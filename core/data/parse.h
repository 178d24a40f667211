/* The documents of a piece of a file. */
#ifndef TERN_DATA_PARSE_H
#define TERN_DATA_PARSE_H

#include "core/base/str.h"
#include "core/data/field.h"
#include "core/data/source.h"

enum { TERN_DATA_FIELDS_MAX = 3 };

/* The fields of a format: how many. */
size_t tern_data_fields(const struct tern_data_text_how *how, enum tern_data_text_format format,
                        struct tern_data_field ret_field[TERN_DATA_FIELDS_MAX]);

/* Any number of pieces, one after the other.  {0} to begin; free with tern_data_parser_free. */
struct tern_data_parser {
    const struct tern_data_text_how *how;
    const char *path;
    struct tern_data_field field[TERN_DATA_FIELDS_MAX]; /* the first that a line has counts */
    size_t n_fields;
    enum tern_data_text_format format;
    struct tern_data_chunk *chunk;
    bool given;
    uint64_t line, from;        /* of the line, or the document, given last: number, place */
    struct tern_buf doc, whole; /* a document that is no part of the piece; a mended one */
    struct tern_data_text_counts counts; /* of this piece */
};

/* What is given is kept; the chunk is used up. */
void tern_data_parser_begin(struct tern_data_parser *p, const struct tern_data_text_how *how,
                            const char *path, enum tern_data_text_format format,
                            struct tern_data_chunk *chunk);
/* As tern_data_text_next. */
int tern_data_parser_next(struct tern_data_parser *p, const char **text, size_t *len,
                          struct tern_err *err);
void tern_data_parser_free(struct tern_data_parser *p);

#endif
