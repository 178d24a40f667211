/* The documents of a piece of a file. */
#ifndef TERN_TEXT_PARSE_H
#define TERN_TEXT_PARSE_H

#include "core/base/str.h"
#include "core/text/field.h"
#include "core/text/source.h"

enum { TERN_TEXT_FIELDS_MAX = 3 };

/* The fields of a format: how many. */
size_t tern_text_fields(const struct tern_text_how *how, enum tern_text_format format,
                        struct tern_text_field ret_field[TERN_TEXT_FIELDS_MAX]);

/* Any number of pieces, one after the other.  {0} to begin; free with tern_text_parser_free. */
struct tern_text_parser {
    const struct tern_text_how *how;
    const char *path;
    struct tern_text_field field[TERN_TEXT_FIELDS_MAX]; /* the first that a line has counts */
    size_t n_fields;
    enum tern_text_format format;
    struct tern_text_chunk *chunk;
    bool given;
    uint64_t line, from; /* of the line, or the document, given last: number (from
                            chunk->from on), place */
    uint64_t doc_line;   /* Wikicorpus: of <doc */
    const char *raw;     /* JSONL: the line that is read, in the chunk */
    size_t n_raw;
    struct tern_buf doc, whole;     /* a document that is no part of the piece; a mended one */
    struct tern_buf unmarked;       /* one without byte order marks */
    struct tern_text_counts counts; /* of this piece */
};

/* What is given is kept; the chunk is used up. */
void tern_text_parser_begin(struct tern_text_parser *p, const struct tern_text_how *how,
                            const char *path, enum tern_text_format format,
                            struct tern_text_chunk *chunk);
/* As tern_text_next. */
int tern_text_parser_next(struct tern_text_parser *p, const char **text, size_t *len,
                          struct tern_err *err);
/* The next line without its newline and the byte order marks before it, which are counted; false at
 * the end of the piece. */
bool tern_text_parser_take_line(struct tern_text_parser *p, const char **line, size_t *len);
/* Count the line given last as bad: also by a caller that reads lines itself (how->records). */
void tern_text_parser_bad(struct tern_text_parser *p);
/* The number of the line given last, in its file. */
uint64_t tern_text_parser_line(const struct tern_text_parser *p);
void tern_text_parser_free(struct tern_text_parser *p);

#endif
