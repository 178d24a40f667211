/* SentencePiece's normaliser. */
#include "core/token/encoder.h"

#include <string.h>

int tern_token_spm_normalise(struct tern_token_encoder *e, const char *text, size_t len,
                             struct tern_err *err)
{
    const struct tern_token *t = e->t;
    bool squeeze = t->remove_extra_whitespaces, after_space = squeeze;
    char *to;
    unsigned n;

    e->text_len = 0;
    while (squeeze && len && *text == ' ')
        text++, len--;
    if (len == 0)
        return 0;
    /* A bad byte becomes three; a space is added at one end. */
    if (tern_token_reserve(&e->text, &e->text_cap, 3 * len + 1, 1, err) < 0)
        return -1;
    to = e->text;
    if (t->add_dummy_prefix && !t->whitespace_as_suffix)
        *to++ = ' ';
    for (const char *end = text + len; text < end; text += n) {
        if ((uint8_t)*text < 0x80) {
            n = 1;
            if (!(after_space && *text == ' '))
                *to++ = *text;
            after_space = squeeze && *text == ' ';
            continue;
        }
        after_space = false;
        tern_token_utf8_decode(text, (size_t)(end - text), &n);
        if (n == 0) {
            memcpy(to, "\xef\xbf\xbd", 3);
            to += 3;
            n = 1;
        } else if (n == 3 && t->escape_whitespaces && memcmp(text, TERN_SPACE_MARK, 3) == 0) {
            *to++ = ' ';
        } else {
            memcpy(to, text, n);
            to += n;
        }
    }
    while (squeeze && to > e->text && to[-1] == ' ')
        to--;
    if (t->add_dummy_prefix && t->whitespace_as_suffix)
        *to++ = ' ';
    e->text_len = (size_t)(to - e->text);
    return 0;
}
