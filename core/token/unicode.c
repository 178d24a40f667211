#include "core/token/unicode.h"

enum tern_unicode_class tern_unicode_class(uint32_t code)
{
    (void)code;
    return TERN_UNICODE_OTHER;
}

bool tern_unicode_is_word(uint32_t code)
{
    (void)code;
    return false;
}

bool tern_unicode_is_nfc(const char *s, size_t n)
{
    (void)s, (void)n;
    return true;
}

void tern_unicode_nfc(const char *s, size_t n, struct tern_buf *to)
{
    tern_buf_add(to, s, n);
}
