/* tokenizer.json's way from a text to words: added tokens are taken out, what lies between them is
 * normalised, and cut. */
#include "core/token/encoder.h"
#include "core/token/unicode.h"

#include <stdlib.h>
#include <string.h>

/* ---- added tokens ---- */

static int by_text(const void *a, const void *b, void *added)
{
    const struct tern_added *list = added;
    const struct tern_added *x = &list[*(const uint32_t *)a], *y = &list[*(const uint32_t *)b];
    size_t n = x->find_len < y->find_len ? x->find_len : y->find_len;
    int order = memcmp(x->find, y->find, n);

    return order ? order : (x->find_len > y->find_len) - (x->find_len < y->find_len);
}

int tern_token_added_build(struct tern_token *t, struct tern_err *err)
{
    for (int pass = 0; pass < 2; pass++) {
        struct tern_finder *f = &t->finders[pass];
        f->marks = pass == 1 && t->escape_whitespaces && !t->metaspace;
        f->order = tern_alloc(t->n_added + 1, sizeof *f->order, "added tokens", err);
        if (!f->order)
            return -1;
        for (uint32_t i = 0; i < t->n_added; i++) {
            if (t->added[i].normalized != pass || t->added[i].find_len == 0)
                continue;
            f->order[f->n++] = i;
            f->first[(uint8_t)t->added[i].find[0]] = true;
            f->any_plain |= !t->added[i].special;
        }
        qsort_r(f->order, f->n, sizeof *f->order, by_text, t->added);
    }
    return 0;
}

/* The longest added token that `s` begins with, or NULL. */
static const struct tern_added *longest(const struct tern_token *t, const struct tern_finder *f,
                                        const char *s, size_t n)
{
    const struct tern_added *found = NULL;
    uint32_t low = 0, high = f->n; /* of those that agree in the first `k` bytes */

    for (size_t k = 0; low < high; k++) {
        const struct tern_added *a = &t->added[f->order[low]];
        if (a->find_len == k) {
            found = a;
            low++;
        }
        if (k == n)
            break;
        while (low < high && (uint8_t)t->added[f->order[low]].find[k] < (uint8_t)s[k])
            low++;
        while (low < high && (uint8_t)t->added[f->order[high - 1]].find[k] > (uint8_t)s[k])
            high--;
    }
    return found;
}

static uint32_t char_before(const char *s, size_t at, unsigned *bytes)
{
    size_t k = at - 1;

    while (k > 0 && at - k < 4 && ((uint8_t)s[k] & 0xc0) == 0x80)
        k--;
    return tern_token_utf8_decode(s + k, at - k, bytes);
}

/* Is [from, to) of `s` a word by itself? */
static bool alone(const char *s, size_t n, size_t from, size_t to)
{
    unsigned bytes;

    if (from > 0 && tern_unicode_is_word(char_before(s, from, &bytes)))
        return false;
    return to == n || !tern_unicode_is_word(tern_token_utf8_decode(s + to, n - to, &bytes));
}

/* `marks`: a plain space stands for U+2581, which is no space. */
static bool is_space(uint32_t code, bool marks)
{
    return tern_unicode_class(code) == TERN_UNICODE_SPACE && !(marks && code == ' ');
}

static size_t spaces_before(const char *s, size_t at, bool marks)
{
    unsigned bytes;

    while (at > 0 && is_space(char_before(s, at, &bytes), marks))
        at -= bytes;
    return at;
}

static size_t spaces_behind(const char *s, size_t n, size_t at, bool marks)
{
    unsigned bytes;

    while (at < n && is_space(tern_token_utf8_decode(s + at, n - at, &bytes), marks))
        at += bytes;
    return at;
}

typedef int between_fn(struct tern_token_encoder *e, const char *s, size_t n, bool at_start,
                       struct tern_err *err);

/* Append the ids of the added tokens in `s`, and hand what lies between them to `between`. */
static int take_added(struct tern_token_encoder *e, const struct tern_finder *f, const char *s,
                      size_t n, bool at_start, between_fn *between, struct tern_err *err)
{
    const bool marks = f->marks;
    size_t done = 0;

    if (f->n == 0 || !(f->any_plain || e->specials))
        return n ? between(e, s, n, at_start, err) : 0;
    for (size_t at = 0; at < n;) {
        const struct tern_added *a =
            f->first[(uint8_t)s[at]] ? longest(e->t, f, s + at, n - at) : NULL;
        if (!a) {
            at++;
            continue;
        }
        size_t from = at, to = at + a->find_len;
        at = to;
        if ((a->special && !e->specials) || (a->single_word && !alone(s, n, from, to)))
            continue;
        if (a->lstrip) /* perhaps spaces that the token before took: nothing is between them */
            from = spaces_before(s, from, marks);
        if (a->rstrip)
            to = spaces_behind(s, n, to, marks);
        if (done < from && between(e, s + done, from - done, at_start && done == 0, err) < 0)
            return -1;
        e->after_unk = false;
        if (tern_token_put(e, a->id, err) < 0)
            return -1;
        done = to;
    }
    return done < n ? between(e, s + done, n - done, at_start && done == 0, err) : 0;
}

/* ---- normalising ---- */

/* Append `s` with its space marks as spaces. */
static void add_spelled(struct tern_buf *to, const char *s, size_t n)
{
    for (const char *end = s + n; s < end;) {
        const char *mark = memmem(s, (size_t)(end - s), TERN_SPACE_MARK, 3);
        tern_buf_add(to, s, (size_t)((mark ? mark : end) - s));
        if (mark)
            tern_buf_add(to, " ", 1);
        s = mark ? mark + 3 : end;
    }
}

static void replace(struct tern_buf *to, const char *s, size_t n, const struct tern_normal *r)
{
    const size_t len = strlen(r->from);

    for (const char *end = s + n; s < end;) {
        const char *at = memmem(s, (size_t)(end - s), r->from, len);
        tern_buf_add(to, s, (size_t)((at ? at : end) - s));
        if (at)
            tern_buf_puts(to, r->to);
        s = at ? at + len : end;
    }
}

/* A space before the text, and marks for spaces: as texts are matched, a copy with marks turned. */
static bool is_llama(const struct tern_token *t)
{
    bool prepended = false, replaced = false;

    for (unsigned i = 0; i < t->n_normals; i++) {
        prepended |= t->normals[i].kind == TERN_NORMAL_PREPEND &&
                     strcmp(t->normals[i].to, TERN_SPACE_MARK) == 0;
        replaced |= t->normals[i].kind == TERN_NORMAL_REPLACE;
    }
    return t->n_normals == 2 && prepended && replaced && t->escape_whitespaces;
}

/* *s, *n become the normalised text, in one of e->scratch where it is another. */
static int normalise(struct tern_token_encoder *e, const char **s, size_t *n, struct tern_err *err)
{
    const struct tern_token *t = e->t;
    struct tern_buf *to = &e->scratch[0];

    if (is_llama(t)) {
        tern_buf_clear(to);
        tern_buf_add(to, " ", 1);
        add_spelled(to, *s, *n);
        *s = to->data;
        *n = to->len;
        return tern_buf_check(to, "a text", err);
    }
    for (unsigned i = 0; i < t->n_normals && *n; i++) {
        const struct tern_normal *how = &t->normals[i];
        if (how->kind == TERN_NORMAL_NFC && tern_token_is_nfc(*s, *n))
            continue;
        to = *s == e->scratch[0].data ? &e->scratch[1] : &e->scratch[0];
        tern_buf_clear(to);
        if (how->kind == TERN_NORMAL_PREPEND) {
            tern_buf_puts(to, how->to);
            tern_buf_add(to, *s, *n);
        } else if (how->kind == TERN_NORMAL_REPLACE) {
            replace(to, *s, *n, how);
        } else {
            tern_token_nfc(*s, *n, to);
        }
        if (tern_buf_check(to, "a text", err) < 0)
            return -1;
        *s = to->data ? to->data : "";
        *n = to->len;
    }
    if (!t->escape_whitespaces || t->metaspace || !memmem(*s, *n, TERN_SPACE_MARK, 3))
        return 0;
    to = *s == e->scratch[0].data ? &e->scratch[1] : &e->scratch[0];
    tern_buf_clear(to);
    add_spelled(to, *s, *n);
    *s = to->data;
    *n = to->len;
    return tern_buf_check(to, "a text", err);
}

/* ---- words ---- */

/* `s` with a space before it, in a buffer that `s` does not lie in. */
static int prefixed(struct tern_token_encoder *e, const char **s, size_t *n, struct tern_err *err)
{
    struct tern_buf *to = &e->scratch[2];

    tern_buf_clear(to);
    tern_buf_add(to, " ", 1);
    tern_buf_add(to, *s, *n);
    *s = to->data;
    *n = to->len;
    return tern_buf_check(to, "a text", err);
}

static int put_metaspace(struct tern_token_encoder *e, const char *s, size_t n, bool at_start,
                         struct tern_err *err)
{
    const enum tern_metaspace how = e->t->metaspace;
    struct tern_buf *to = &e->scratch[2];
    bool spaced = *s == ' ' || (n >= 3 && memcmp(s, TERN_SPACE_MARK, 3) == 0);

    tern_buf_clear(to);
    if (!spaced && (how == TERN_METASPACE_ALWAYS || (how == TERN_METASPACE_FIRST && at_start)))
        tern_buf_add(to, " ", 1);
    add_spelled(to, s, n);
    if (tern_buf_check(to, "a text", err) < 0)
        return -1;
    return tern_token_put_text(e, to->data, to->len, err);
}

/* Append the ids of normalised text without added tokens. */
static int put_piece(struct tern_token_encoder *e, const char *s, size_t n, bool at_start,
                     struct tern_err *err)
{
    const struct tern_token *t = e->t;

    if (t->metaspace)
        return put_metaspace(e, s, n, at_start, err);
    if (!t->byte_level)
        return tern_token_put_text(e, s, n, err);
    if (t->prefix_space && *s != ' ' && prefixed(e, &s, &n, err) < 0)
        return -1;
    return tern_token_put_split(e, s, n, err);
}

static int put_segment(struct tern_token_encoder *e, const char *s, size_t n, bool at_start,
                       struct tern_err *err)
{
    if (normalise(e, &s, &n, err) < 0)
        return -1;
    return take_added(e, &e->t->finders[1], s, n, at_start, put_piece, err);
}

/* How many bytes from `s` on are UTF-8. */
static size_t good_bytes(const char *s, size_t n)
{
    size_t at = 0;
    unsigned bytes;

    while (at < n) {
        uint64_t eight[4];
        if (n - at >= sizeof eight) {
            memcpy(eight, s + at, sizeof eight);
            if (!((eight[0] | eight[1] | eight[2] | eight[3]) & UINT64_C(0x8080808080808080))) {
                at += sizeof eight;
                continue;
            }
        }
        tern_token_utf8_decode(s + at, n - at, &bytes);
        if (bytes == 0)
            break;
        at += bytes;
    }
    return at;
}

int tern_token_put_segments(struct tern_token_encoder *e, const char *s, size_t n,
                            struct tern_err *err)
{
    size_t good = good_bytes(s, n);

    if (good < n) {
        struct tern_buf *whole = &e->scratch[3];
        tern_buf_clear(whole);
        for (size_t at = 0;; at += good + 1, good = good_bytes(s + at, n - at)) {
            tern_buf_add(whole, s + at, good);
            if (at + good == n)
                break;
            tern_buf_add(whole, "\xef\xbf\xbd", 3);
            if (at + good + 1 == n)
                break;
        }
        if (tern_buf_check(whole, "a text", err) < 0)
            return -1;
        s = whole->data;
        n = whole->len;
    }
    return take_added(e, &e->t->finders[0], s, n, /*at_start=*/true, put_segment, err);
}
