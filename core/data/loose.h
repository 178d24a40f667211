/* One field of a JSON object on one line, where other fields break the standard: NaN and Infinity,
 * numbers without bound, lone surrogates, doubled keys, NUL in a key.  Python's json reads and
 * writes all of these. */
#ifndef TERN_DATA_LOOSE_H
#define TERN_DATA_LOOSE_H

#include <stddef.h>

#include "core/base/str.h"

enum tern_data_loose_found {
    TERN_DATA_LOOSE_NO_JSON, /* no object, even by these rules */
    TERN_DATA_LOOSE_NO_FIELD,
    TERN_DATA_LOOSE_NO_STRING, /* the field is not a string */
    TERN_DATA_LOOSE_STRING,    /* `to` holds it */
};

/* Of several fields of that name the last counts.  A lone surrogate in the string is written as
 * three bytes, which are not UTF-8. */
enum tern_data_loose_found tern_data_loose_field(const char *line, size_t len, const char *field,
                                                 struct tern_buf *to);

#endif
