/* Ids back to text. */
#include "core/token/vocab.h"

#include <stdlib.h>
#include <string.h>

/* ---- bytes ---- */

/* Add a run of bytes as UTF-8, each bad byte as U+FFFD (SentencePiece). */
static void add_bytes(struct tern_buf *to, const char *bytes, size_t len)
{
    unsigned n;

    for (size_t i = 0; i < len; i += n ? n : 1) {
        tern_token_utf8_decode(bytes + i, len - i, &n);
        tern_buf_add(to, n ? bytes + i : "\xef\xbf\xbd", n ? n : 3);
    }
}

/* How many bytes at `s`, which begin no character, could have become one with others behind them:
 * they are one U+FFFD together (Unicode's "maximal subpart"). */
static size_t bad_part(const char *s, size_t n)
{
    const uint8_t *b = (const uint8_t *)s;
    size_t want = b[0] >= 0xc2 && b[0] < 0xe0   ? 2
                  : b[0] >= 0xe0 && b[0] < 0xf0 ? 3
                  : b[0] >= 0xf0 && b[0] < 0xf5 ? 4
                                                : 1;
    size_t k = 1;

    for (; k < want && k < n; k++) {
        uint8_t low = k == 1 && b[0] == 0xe0 ? 0xa0 : k == 1 && b[0] == 0xf0 ? 0x90 : 0x80;
        uint8_t high = k == 1 && b[0] == 0xed ? 0x9f : k == 1 && b[0] == 0xf4 ? 0x8f : 0xbf;
        if (b[k] < low || b[k] > high)
            break;
    }
    return k;
}

static void add_lossy(struct tern_buf *to, const char *s, size_t len)
{
    unsigned n;

    for (size_t i = 0; i < len;) {
        tern_token_utf8_decode(s + i, len - i, &n);
        tern_buf_add(to, n ? s + i : "\xef\xbf\xbd", n ? n : 3);
        i += n ? n : bad_part(s + i, len - i);
    }
}

/* A run of byte pieces as tokenizers reads it: UTF-8 as a whole, or U+FFFD for every byte. */
static void add_fallback(struct tern_buf *to, const char *s, size_t len)
{
    unsigned n = 1;
    size_t i = 0;

    for (; i < len && n; i += n)
        tern_token_utf8_decode(s + i, len - i, &n);
    if (n) {
        tern_buf_add(to, s, len);
        return;
    }
    for (i = 0; i < len; i++)
        tern_buf_add(to, "\xef\xbf\xbd", 3);
}

/* Add a piece with its space marks as spaces. */
static void add_text(struct tern_buf *to, const char *s, size_t len)
{
    for (const char *end = s + len; s < end;) {
        const char *mark = memmem(s, (size_t)(end - s), TERN_SPACE_MARK, 3);
        tern_buf_add(to, s, (size_t)((mark ? mark : end) - s));
        s = mark ? mark + 3 : end;
        if (mark)
            tern_buf_puts(to, " ");
    }
}

/* Add a piece without its space marks. */
static void add_without_marks(struct tern_buf *to, const char *s, size_t len)
{
    for (const char *end = s + len; s < end;) {
        const char *mark = memmem(s, (size_t)(end - s), TERN_SPACE_MARK, 3);
        tern_buf_add(to, s, (size_t)((mark ? mark : end) - s));
        s = mark ? mark + 3 : end;
    }
}

static char byte_of(const struct tern_piece *p)
{
    return (char)strtoul((char[]){p->text[3], p->text[4], 0}, NULL, 16);
}

/* ---- formats ---- */

struct ids {
    const uint32_t *v; /* [n] */
    size_t n, second;  /* second: where another text begins, n or more: nowhere */
    size_t at;         /* out: its first byte */
};

static void decode_sentencepiece(const struct tern_token *t, struct ids *ids, struct tern_buf *to)
{
    const bool strip = t->add_dummy_prefix || t->remove_extra_whitespaces;
    struct tern_buf bytes = {0};
    size_t start = to->len;
    bool at_start = true; /* nothing written: a leading space mark is the one that was added */

    for (size_t i = 0; i < ids->n; i++) {
        const struct tern_piece *p = &t->pieces[ids->v[i]];
        const char *s = p->text;
        size_t len = p->len;
        if (i == ids->second) {
            add_bytes(to, bytes.data, bytes.len);
            tern_buf_clear(&bytes);
            ids->at = to->len;
        }
        if (p->kind == TERN_PIECE_BYTE) {
            tern_buf_add(&bytes, (char[]){byte_of(p)}, 1);
            continue;
        }
        add_bytes(to, bytes.data, bytes.len);
        tern_buf_clear(&bytes);
        if (to->len > start)
            at_start = false;
        if (p->kind == TERN_PIECE_CONTROL)
            continue;
        if (p->kind == TERN_PIECE_UNKNOWN) {
            tern_buf_puts(to, t->unk_surface);
            continue;
        }
        if (at_start && strip && len >= 3 && memcmp(s, TERN_SPACE_MARK, 3) == 0) {
            s += 3;
            len -= 3;
            at_start = t->remove_extra_whitespaces;
        }
        add_text(to, s, len);
    }
    add_bytes(to, bytes.data, bytes.len);
    to->failed |= bytes.failed;
    tern_buf_free(&bytes);
}

static void decode_byte_level(const struct tern_token *t, struct ids *ids, struct tern_buf *to)
{
    struct tern_buf bytes = {0};

    for (size_t i = 0; i < ids->n; i++) {
        const struct tern_piece *p = &t->pieces[ids->v[i]];
        if (i == ids->second) {
            add_lossy(to, bytes.data, bytes.len);
            tern_buf_clear(&bytes);
            ids->at = to->len;
        }
        if (p->kind != TERN_PIECE_CONTROL)
            tern_buf_add(&bytes, p->text, p->len);
    }
    add_lossy(to, bytes.data, bytes.len);
    to->failed |= bytes.failed;
    tern_buf_free(&bytes);
}

/* What an id is decoded as: an added token as it was found, which is its normalised text. */
static void surface(const struct tern_token *t, uint32_t id, const char **s, size_t *len)
{
    const struct tern_piece *p = &t->pieces[id];

    *s = p->text;
    *len = p->len;
    if (p->kind != TERN_PIECE_USER_DEFINED)
        return;
    for (uint32_t i = 0; i < t->n_added; i++) {
        if (t->added[i].id == id && t->added[i].normalized) {
            *s = t->added[i].find;
            *len = t->added[i].find_len;
        }
    }
}

/* Characters by tokenizer.json: Llama's decoder (space marks, byte pieces, one space taken off), or
 * Metaspace's, which drops all marks of the first token. */
static void decode_characters(const struct tern_token *t, struct ids *ids, struct tern_buf *to)
{
    struct tern_buf all = {0}, bytes = {0};
    size_t at = SIZE_MAX;
    bool first = true;

    for (size_t i = 0; i < ids->n; i++) {
        const struct tern_piece *p = &t->pieces[ids->v[i]];
        if (i == ids->second) {
            add_fallback(&all, bytes.data, bytes.len);
            tern_buf_clear(&bytes);
            at = all.len;
        }
        if (p->kind == TERN_PIECE_CONTROL || (p->kind == TERN_PIECE_UNKNOWN && !*t->unk_surface))
            continue;
        if (p->kind == TERN_PIECE_BYTE && !t->show_bytes) {
            tern_buf_add(&bytes, (char[]){byte_of(p)}, 1);
            first = false;
            continue;
        }
        add_fallback(&all, bytes.data, bytes.len);
        tern_buf_clear(&bytes);
        const char *text;
        size_t len;
        surface(t, ids->v[i], &text, &len);
        if (first && t->drop_first)
            add_without_marks(&all, text, len);
        else if (t->escape_whitespaces)
            add_text(&all, text, len);
        else
            tern_buf_add(&all, text, len);
        first = false;
    }
    add_fallback(&all, bytes.data, bytes.len);
    size_t skip = t->strip_first && all.len && all.data[0] == ' ';
    if (at != SIZE_MAX)
        ids->at = to->len + (at > skip ? at - skip : 0);
    tern_buf_add(to, all.len ? all.data + skip : "", all.len - skip);
    to->failed |= all.failed | bytes.failed;
    tern_buf_free(&all);
    tern_buf_free(&bytes);
}

int tern_token_decode_two(const struct tern_token *t, const uint32_t *ids, size_t n, size_t second,
                          struct tern_buf *to, size_t *ret_at, struct tern_err *err)
{
    struct ids all = {.v = ids, .n = n, .second = second, .at = SIZE_MAX};

    for (size_t i = 0; i < n; i++)
        if (ids[i] >= t->n_vocab)
            return tern_err_set(err, TERN_USAGE,
                                "%s: id %u at place %zu is outside the vocabulary of %u", t->path,
                                ids[i], i, t->n_vocab);
    if (t->format == TERN_TOKEN_SENTENCEPIECE)
        decode_sentencepiece(t, &all, to);
    else if (t->byte_level)
        decode_byte_level(t, &all, to);
    else
        decode_characters(t, &all, to);
    *ret_at = all.at == SIZE_MAX ? to->len : all.at;
    return tern_buf_check(to, "decoded text", err);
}

int tern_token_decode(const struct tern_token *t, const uint32_t *ids, size_t n,
                      struct tern_buf *to, struct tern_err *err)
{
    size_t at;

    return tern_token_decode_two(t, ids, n, n, to, &at, err);
}
