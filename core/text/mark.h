/* UTF-8's byte order mark.  Files that were joined have some at the beginning of lines. */
#ifndef TERN_TEXT_MARK_H
#define TERN_TEXT_MARK_H

#include <stddef.h>
#include <string.h>

#define TERN_TEXT_MARK "\xef\xbb\xbf"

enum { TERN_TEXT_MARK_BYTES = 3 };

/* Bytes of the marks that `s` begins with. */
static inline size_t tern_text_marks(const char *s, size_t n)
{
    size_t at = 0;

    while (n - at >= TERN_TEXT_MARK_BYTES &&
           memcmp(s + at, TERN_TEXT_MARK, TERN_TEXT_MARK_BYTES) == 0)
        at += TERN_TEXT_MARK_BYTES;
    return at;
}

#endif
