#include "core/text/latin1.h"

#include <stdint.h>
#include <string.h>

/* In Latin-1 a letter beyond ASCII mostly stands between ASCII, where UTF-8 has two such bytes and
 * more. Two characters in a row leave no doubt. */
enum { SURE = 2 };

bool tern_text_latin1_is_utf8(struct tern_text_latin1 *l, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n && !l->sure; i++) {
        const unsigned char c = (unsigned char)bytes[i];
        if (l->more) {
            l->sure = (c & 0xc0) != 0x80;
            l->n_utf8 += --l->more == 0 && !l->sure;
        } else if (c >= 0x80) {
            l->more = c >= 0xf0 ? 3 : c >= 0xe0 ? 2 : 1;
            l->sure = c < 0xc2 || c > 0xf4;
        }
        if (l->n_utf8 == SURE)
            return true;
    }
    return false;
}

size_t tern_text_latin1_decode(const char *from, size_t n, char *to)
{
    char *at = to;
    uint64_t eight;

    for (size_t i = 0; i < n;) {
        if (n - i >= sizeof eight) {
            memcpy(&eight, from + i, sizeof eight);
            if (!(eight & UINT64_C(0x8080808080808080))) {
                memcpy(at, &eight, sizeof eight);
                at += sizeof eight;
                i += sizeof eight;
                continue;
            }
        }
        const unsigned char c = (unsigned char)from[i++];
        if (c >= 0x80)
            *at++ = (char)(0xc0 | c >> 6);
        *at++ = (char)(c < 0x80 ? c : 0x80 | (c & 0x3f));
    }
    return (size_t)(at - to);
}

int tern_text_latin1_refuse(const char *path, struct tern_err *err)
{
    return tern_err_set(err, TERN_USAGE,
                        "%s: is UTF-8, and would be read as Latin-1, as Wikicorpus is published. "
                        "Say --encoding utf-8.",
                        path);
}

ptrdiff_t tern_text_latin1_read(struct tern_text_latin1 *l, struct tern_text_bytes *b,
                                const char *path, char *to, size_t room, struct tern_err *err)
{
    char one[2];

    if (l->held && room) {
        *to = l->held;
        l->held = 0;
        return 1;
    }
    const size_t want = room > 1 ? room / 2 : room;
    char *from = room > 1 ? to + room - want : one;
    const ptrdiff_t n = tern_text_bytes_read(b, from, want, err);
    if (n <= 0)
        return n;
    if (tern_text_latin1_is_utf8(l, from, (size_t)n))
        return tern_text_latin1_refuse(path, err);
    if (room > 1)
        return (ptrdiff_t)tern_text_latin1_decode(from, (size_t)n, to);
    const char raw = *from;
    if (tern_text_latin1_decode(&raw, 1, one) == 2)
        l->held = one[1];
    *to = one[0];
    return 1;
}
