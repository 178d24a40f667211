#include "core/token/unicode.h"

#include <stdlib.h>
#include <string.h>

/* The combining class of a run of characters; those in none have class 0. */
struct combining {
    uint32_t first, last;
    uint8_t class;
};
/* One step of a canonical decomposition; `second` 0: of one character. */
struct canonical {
    uint32_t code, first, second;
};

/* Sorted by code; `pairs` are places in `canonical` of the characters that pairs are composed to,
 * sorted by the two. */
#include "core/token/unicode_tables.inc"

enum {
    HANGUL = 0xac00,
    HANGUL_L = 0x1100,
    HANGUL_V = 0x1161,
    HANGUL_T = 0x11a7,
    N_L = 19,
    N_V = 21,
    N_T = 28,
};

#define LENGTH(array) (sizeof(array) / sizeof *(array))

/* ---- is it in NFC ---- */

/* Characters below U+0300 never change: in UTF-8, bytes below 0xcc. */
static size_t skip_latin(const uint8_t *s, size_t at, size_t n)
{
    const uint64_t high = 0x8080808080808080u;
    uint64_t w;

    for (; n - at >= 8; at += 8) {
        memcpy(&w, s + at, 8);
        if (((w & ~high) + 0x3434343434343434u) & w & high)
            break;
    }
    while (at < n && s[at] < 0xcc)
        at++;
    return at;
}

/* How far the text is certainly in NFC, and where the last character begins that may join what
 * follows. */
static size_t settled(const char *s, size_t n, size_t *ret_last)
{
    const uint8_t *b = (const uint8_t *)s;
    size_t at = 0, from;
    unsigned bytes = 0;

    *ret_last = 0;
    for (;;) {
        from = at;
        at = skip_latin(b, at, n);
        if (at > from) {
            *ret_last = at - 1;
            while (*ret_last && (b[*ret_last] & 0xc0) == 0x80)
                --*ret_last;
        }
        if (at == n)
            return n;
        uint32_t code = tern_unicode_decode(s + at, &bytes);
        if (tern_unicode_properties(code) & TERN_UNICODE_UNSETTLED)
            return at;
        *ret_last = at;
        at += bytes;
    }
}

bool tern_token_is_nfc(const char *s, size_t n)
{
    size_t last;

    return settled(s, n, &last) == n;
}

/* ---- taking apart ---- */

/* Characters, their classes above bit 24. */
struct codes {
    uint32_t *v;
    size_t n, cap;
    bool failed;
};

static unsigned class_of(uint32_t code)
{
    size_t lo = 0, hi = LENGTH(combining);

    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (code > combining[mid].last)
            lo = mid + 1;
        else if (code < combining[mid].first)
            hi = mid;
        else
            return combining[mid].class;
    }
    return 0;
}

static void add(struct codes *to, uint32_t code)
{
    if (to->n == to->cap) {
        size_t cap = to->cap ? 2 * to->cap : 64;
        uint32_t *v = realloc(to->v, cap * sizeof *v);
        if (!v) {
            to->failed = true;
            return;
        }
        to->v = v;
        to->cap = cap;
    }
    to->v[to->n++] = code | class_of(code) << 24;
}

/* Syllables of Hangul stay whole: what they are made of joins nothing but the last jamo. */
static void add_apart(struct codes *to, uint32_t code)
{
    size_t lo = 0, hi = LENGTH(canonical);

    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (canonical[mid].code < code)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo == LENGTH(canonical) || canonical[lo].code != code) {
        add(to, code);
        return;
    }
    add_apart(to, canonical[lo].first);
    if (canonical[lo].second)
        add_apart(to, canonical[lo].second);
}

/* Marks in the order of their classes, equal ones as they stand.  Many are sorted by counting, so
 * that no text takes a time that grows with its square. */
static void order_marks(struct codes *c, uint32_t *v, size_t n)
{
    enum { FEW = 16 };
    size_t place[257] = {0};
    uint32_t *sorted;

    if (n <= FEW) {
        for (size_t i = 1; i < n; i++) {
            uint32_t mark = v[i];
            size_t k = i;
            for (; k && v[k - 1] >> 24 > mark >> 24; k--)
                v[k] = v[k - 1];
            v[k] = mark;
        }
        return;
    }
    sorted = malloc(n * sizeof *sorted);
    if (!sorted) {
        c->failed = true;
        return;
    }
    for (size_t i = 0; i < n; i++)
        place[(v[i] >> 24) + 1]++;
    for (unsigned k = 1; k < 257; k++)
        place[k] += place[k - 1];
    for (size_t i = 0; i < n; i++)
        sorted[place[v[i] >> 24]++] = v[i];
    memcpy(v, sorted, n * sizeof *v);
    free(sorted);
}

static void order(struct codes *c)
{
    for (size_t i = 0, end; i < c->n; i = end + 1) {
        for (end = i; end < c->n && c->v[end] >> 24; end++)
            ;
        order_marks(c, c->v + i, end - i);
    }
}

/* ---- putting together ---- */

/* What two characters are composed to; 0: nothing. */
static uint32_t composed(uint32_t a, uint32_t b)
{
    size_t lo = 0, hi = LENGTH(pairs);

    if (a - HANGUL_L < N_L && b - HANGUL_V < N_V)
        return HANGUL + ((a - HANGUL_L) * N_V + b - HANGUL_V) * N_T;
    if (a - HANGUL < N_L * N_V * N_T && (a - HANGUL) % N_T == 0 && b - HANGUL_T - 1 < N_T - 1)
        return a + b - HANGUL_T;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        const struct canonical *c = &canonical[pairs[mid]];
        if (c->first < a || (c->first == a && c->second < b))
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo == LENGTH(pairs))
        return 0;
    const struct canonical *c = &canonical[pairs[lo]];
    return c->first == a && c->second == b ? c->code : 0;
}

static void compose(struct codes *c)
{
    size_t starter = SIZE_MAX, n = 0;

    for (size_t i = 0; i < c->n; i++) {
        uint32_t code = c->v[i] & 0xffffff, class = c->v[i] >> 24;
        /* A mark is blocked by one of its own class before it; a starter by any mark. */
        if (starter != SIZE_MAX && (n == starter + 1 || (c->v[n - 1] >> 24) < class)) {
            uint32_t both = composed(c->v[starter], code);
            if (both) {
                c->v[starter] = both;
                continue;
            }
        }
        if (class == 0)
            starter = n;
        c->v[n++] = c->v[i];
    }
    c->n = n;
}

static void write_codes(const struct codes *c, struct tern_buf *to)
{
    for (size_t i = 0; i < c->n; i++) {
        uint32_t code = c->v[i] & 0xffffff;
        char b[4];
        size_t n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
        for (size_t k = n; k-- > 1; code >>= 6)
            b[k] = (char)(0x80 | (code & 0x3f));
        b[0] = (char)(n == 1 ? code : (0xf00u >> n & 0xff) | code);
        tern_buf_add(to, b, n);
    }
}

void tern_token_nfc(const char *s, size_t n, struct tern_buf *to)
{
    struct codes c = {0};
    unsigned bytes;

    for (size_t end = 0; n && !c.failed; s += end, n -= end) {
        size_t last, at = settled(s, n, &last);
        if (at == n) {
            tern_buf_add(to, s, n);
            break;
        }
        tern_buf_add(to, s, last);
        c.n = 0;
        for (end = last; end < n; end += bytes) {
            uint32_t code = tern_unicode_decode(s + end, &bytes);
            if (end > last && !(tern_unicode_properties(code) & TERN_UNICODE_UNSETTLED))
                break;
            add_apart(&c, code);
        }
        order(&c);
        compose(&c);
        write_codes(&c, to);
    }
    if (c.failed)
        to->failed = true;
    free(c.v);
}
