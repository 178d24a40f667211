/* UTF-8 at the speed of memory. */
#ifndef TERN_TEXT_UTF8_H
#define TERN_TEXT_UTF8_H

#include <stddef.h>

/* How many bytes from `s` on are whole characters of UTF-8 (as tern_str_utf8 has them), up to the
 * first byte that begins none, or `len`. */
size_t tern_text_utf8_good(const char *s, size_t len);
/* How many of them begin none. */
size_t tern_text_utf8_bad(const char *s, size_t len);

#endif
