/* One field of a JSON object on one line.  The rules are JSON's, with what Python's json reads and
 * writes beside it: NaN and Infinity, numbers without bound, lone surrogates, doubled keys, NUL in
 * a key.  Bytes that are not UTF-8 pass.  The whole line is checked. */
#ifndef TERN_TEXT_LINE_H
#define TERN_TEXT_LINE_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/str.h"
#include "core/text/field.h"

enum tern_text_line_found {
    TERN_TEXT_LINE_NO_JSON, /* no object, even by these rules */
    TERN_TEXT_LINE_NO_FIELD,
    TERN_TEXT_LINE_NO_STRING, /* the field is not a string */
    TERN_TEXT_LINE_STRING,
};

struct tern_text_line_text {
    const char *s; /* in the line, or in `room` where it had escapes */
    size_t len;
    bool ascii; /* surely; false says nothing */
};

/* The strings of a path with lists are joined by newlines; where the lists are empty the text is.
 * Of several keys of one name the last counts.  A lone surrogate in a string is written as three
 * bytes, which are not UTF-8.  *ret_text is set with TERN_TEXT_LINE_STRING; room->failed says that
 * there was no memory for it. */
enum tern_text_line_found tern_text_line_field(const char *line, size_t len,
                                               const struct tern_text_field *field,
                                               struct tern_buf *room,
                                               struct tern_text_line_text *ret_text);

#endif
