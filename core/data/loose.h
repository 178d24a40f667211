/* One field of a JSON object on one line, where the others hold what a strict reader stops at: NaN
 * and Infinity, numbers without bound, lone surrogates, doubled keys, NUL in a key.  Python's json
 * takes all of these, and files that it wrote have them. */
#ifndef TERN_DATA_LOOSE_H
#define TERN_DATA_LOOSE_H

#include <stddef.h>

#include "core/base/str.h"

enum tern_data_loose_found {
    TERN_DATA_LOOSE_NO_JSON, /* no object, or none that even this takes */
    TERN_DATA_LOOSE_NO_FIELD,
    TERN_DATA_LOOSE_NO_STRING, /* it is there, and something else */
    TERN_DATA_LOOSE_STRING,    /* `to` holds it */
};

/* Of several the last counts.  A lone surrogate in the string is written as three bytes, which are
 * no UTF-8. */
enum tern_data_loose_found tern_data_loose_field(const char *line, size_t len, const char *field,
                                                 struct tern_buf *to);

#endif
