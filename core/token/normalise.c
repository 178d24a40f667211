/* SentencePiece's normaliser. */
#include "core/token/encoder.h"

#include <string.h>

/* ---- without a character map ---- */

static int normalise_plain(struct tern_token_encoder *e, const char *text, size_t len,
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

/* ---- with one ---- */

/* What a text begins with, and what that becomes. */
struct prefix {
    size_t taken;
    const char *text;
    size_t len;
};

static struct prefix first_prefix(const struct tern_token *t, const char *s, size_t n)
{
    struct prefix p;
    uint32_t id;
    unsigned bytes;

    /* User-defined pieces are not mapped. */
    p.taken = p.len = t->user_raw.n ? tern_token_prefix(&t->user_raw, s, n, &id) : 0;
    p.text = s;
    if (p.taken)
        return p;
    p.taken = t->charsmap ? tern_token_charsmap_next(t->charsmap, s, n, &p.text, &p.len) : 0;
    if (p.taken)
        return p;
    tern_token_utf8_decode(s, n, &bytes);
    return bytes ? (struct prefix){bytes, s, bytes} : (struct prefix){1, "\xef\xbf\xbd", 3};
}

/* Append normalised text, U+2581 as a space where spaces are escaped. */
static int append(struct tern_token_encoder *e, const char *s, size_t n, struct tern_err *err)
{
    /* Each bad byte becomes three. */
    const size_t most = 3 * (size_t)TERN_TOKEN_TEXT_MAX;

    if (e->text_len + n > most)
        return tern_err_set(err, TERN_USAGE,
                            "a text has more than %zu bytes when it is normalised. Split it into "
                            "documents.",
                            most);
    if (e->text_len + n > e->text_cap &&
        tern_token_reserve(&e->text, &e->text_cap, e->text_len + n, 1, err) < 0)
        return -1;
    char *to = e->text + e->text_len;
    while (n) {
        if (n >= 3 && e->t->escape_whitespaces && memcmp(s, TERN_SPACE_MARK, 3) == 0) {
            *to++ = ' ';
            s += 3;
            n -= 3;
        } else {
            *to++ = *s++;
            n--;
        }
    }
    e->text_len = (size_t)(to - e->text);
    return 0;
}

/* The order of steps is that of sentencepiece 0.2.3, and matters. Extra spaces are removed from the
 * replacement of a character, and a text of characters that vanish still gets its dummy prefix. */
static int normalise_mapped(struct tern_token_encoder *e, const char *text, size_t len,
                            struct tern_err *err)
{
    const struct tern_token *t = e->t;
    const bool squeeze = t->remove_extra_whitespaces;
    bool after_space = squeeze;
    struct prefix p;

    e->text_len = 0;
    for (; squeeze && len; text += p.taken, len -= p.taken) {
        p = first_prefix(t, text, len);
        if (p.len != 1 || *p.text != ' ')
            break;
    }
    if (len == 0)
        return 0;
    if (t->add_dummy_prefix && !t->whitespace_as_suffix && append(e, " ", 1, err) < 0)
        return -1;
    for (; len; text += p.taken, len -= p.taken) {
        p = first_prefix(t, text, len);
        while (after_space && p.len && *p.text == ' ')
            p.text++, p.len--;
        if (p.len) {
            if (append(e, p.text, p.len, err) < 0)
                return -1;
            after_space = squeeze && p.text[p.len - 1] == ' ';
        }
    }
    while (squeeze && e->text_len && e->text[e->text_len - 1] == ' ')
        e->text_len--;
    return t->add_dummy_prefix && t->whitespace_as_suffix ? append(e, " ", 1, err) : 0;
}

int tern_token_spm_normalise(struct tern_token_encoder *e, const char *text, size_t len,
                             struct tern_err *err)
{
    return e->t->charsmap || e->t->user_raw.n ? normalise_mapped(e, text, len, err)
                                              : normalise_plain(e, text, len, err);
}
