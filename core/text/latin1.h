/* Bytes of a file in Latin-1 (ISO-8859-1) as UTF-8. */
#ifndef TERN_TEXT_LATIN1_H
#define TERN_TEXT_LATIN1_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/err.h"
#include "core/text/bytes.h"

/* {0} to begin. */
struct tern_text_latin1 {
    bool sure;     /* it is UTF-8 without a check */
    unsigned more; /* bytes that a character of UTF-8 would still have */
    unsigned n_utf8;
    char held; /* the second byte of a character whose first was given; 0: none */
};

/* Is it UTF-8, by the first characters that are not ASCII?  Looks at each byte once, until it is
 * sure. */
bool tern_text_latin1_is_utf8(struct tern_text_latin1 *l, const char *bytes, size_t n);
/* `to` has room for 2 n bytes; may overlap `from` where that ends where `to`'s room does.  How
 * many were written. */
size_t tern_text_latin1_decode(const char *from, size_t n, char *to);
/* As tern_text_bytes_read, in UTF-8.  A file that is UTF-8 already is an error, unless `sure`. */
ptrdiff_t tern_text_latin1_read(struct tern_text_latin1 *l, struct tern_text_bytes *b,
                                const char *path, char *to, size_t room, struct tern_err *err);
/* That error: -1. */
int tern_text_latin1_refuse(const char *path, struct tern_err *err);

#endif
