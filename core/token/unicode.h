/* Inside the token room: properties of characters, and the canonical composition of texts.
 *
 * Tables are those of Unicode 16.0, made by unicode.py.  NFC is that of tokenizers 0.23.3, whose
 * tables are those of Unicode 9.0: a character that came later neither moves nor composes.
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

/* Four bits for each character below the end: its class, and the two below. */
enum {
    TERN_UNICODE_CLASS = 3,
    TERN_UNICODE_WORD = 4,
    TERN_UNICODE_UNSETTLED = 8, /* a mark that may move, or a character that NFC may change */
    TERN_UNICODE_END = 0x32400,
};
extern const uint8_t tern_token_unicode_index[]; /* by 128 characters: the number of the block */
extern const uint64_t tern_token_unicode_blocks[];

static inline unsigned tern_unicode_properties(uint32_t code)
{
    if (code >= TERN_UNICODE_END)
        return code - 0xe0100 < 240 ? TERN_UNICODE_WORD : 0; /* variation selectors */
    uint64_t w =
        tern_token_unicode_blocks[tern_token_unicode_index[code >> 7] * 8u + (code >> 4 & 7)];
    return (unsigned)(w >> 4 * (code & 15)) & 15;
}

/* Of a scalar value. */
static inline enum tern_unicode_class tern_unicode_class(uint32_t code)
{
    return (enum tern_unicode_class)(tern_unicode_properties(code) & TERN_UNICODE_CLASS);
}

/* Does \w match: Alphabetic, M, Nd, Pc or Join_Control? */
static inline bool tern_unicode_is_word(uint32_t code)
{
    return tern_unicode_properties(code) & TERN_UNICODE_WORD;
}

/* The scalar value at `s`, valid UTF-8, and its length. */
static inline uint32_t tern_unicode_decode(const char *s, unsigned *ret_bytes)
{
    const uint8_t *b = (const uint8_t *)s;

    if (b[0] < 0x80) {
        *ret_bytes = 1;
        return b[0];
    }
    if (b[0] < 0xe0) {
        *ret_bytes = 2;
        return (uint32_t)(b[0] & 0x1f) << 6 | (b[1] & 0x3f);
    }
    if (b[0] < 0xf0) {
        *ret_bytes = 3;
        return (uint32_t)(b[0] & 0xf) << 12 | (uint32_t)(b[1] & 0x3f) << 6 | (b[2] & 0x3f);
    }
    *ret_bytes = 4;
    return (uint32_t)(b[0] & 7) << 18 | (uint32_t)(b[1] & 0x3f) << 12 |
           (uint32_t)(b[2] & 0x3f) << 6 | (b[3] & 0x3f);
}

/* Is the text, UTF-8, certainly in NFC?  false may be wrong. */
bool tern_token_is_nfc(const char *s, size_t n);
/* Append the NFC of `s` (n bytes of UTF-8) to `to`; to->failed without memory. */
void tern_token_nfc(const char *s, size_t n, struct tern_buf *to);

#endif
