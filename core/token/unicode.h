/* Inside the token room: properties of characters, and the canonical composition of texts.
 *
 * Tables are those of Unicode 16.0, made by unicode.py.
 */
#ifndef TERN_TOKEN_UNICODE_H
#define TERN_TOKEN_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/str.h"

enum tern_unicode_class {
    TERN_UNICODE_OTHER,
    TERN_UNICODE_LETTER, /* \p{L} */
    TERN_UNICODE_NUMBER, /* \p{N} */
    TERN_UNICODE_SPACE,  /* \s: White_Space */
};

/* Of a scalar value. */
enum tern_unicode_class tern_unicode_class(uint32_t code);
/* Does \w match: Alphabetic, M, Nd, Pc or Join_Control? */
bool tern_unicode_is_word(uint32_t code);

/* Is the text, UTF-8, certainly in NFC?  false may be wrong. */
bool tern_unicode_is_nfc(const char *s, size_t n);
/* Append the NFC of `s` (n bytes of UTF-8) to `to`. */
void tern_unicode_nfc(const char *s, size_t n, struct tern_buf *to);

#endif
