/* The longest of several texts that a text begins with. */
#include "core/token/vocab.h"

#include <stdlib.h>
#include <string.h>

/* SentencePiece looks at so many, the shortest first. */
enum { MATCHES_MAX = 64 };

static int by_bytes(const void *a, const void *b)
{
    const struct tern_prefix *x = a, *y = b;
    int order = memcmp(x->text, y->text, x->len < y->len ? x->len : y->len);

    return order ? order : (x->len > y->len) - (x->len < y->len);
}

void tern_token_prefixes_sort(struct tern_prefixes *p)
{
    uint32_t at = 0;

    qsort(p->v, p->n, sizeof *p->v, by_bytes);
    for (unsigned b = 0; b < 256; b++) {
        p->first[b] = at;
        while (at < p->n && (uint8_t)p->v[at].text[0] == b)
            at++;
    }
    p->first[256] = at;
}

/* The first place in [from, to) whose text has a byte of at least `least` at `depth`. */
static uint32_t lower(const struct tern_prefix *v, uint32_t from, uint32_t to, size_t depth,
                      unsigned least)
{
    while (from < to) {
        uint32_t middle = from + (to - from) / 2;
        if ((uint8_t)v[middle].text[depth] < least)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

size_t tern_token_prefix(const struct tern_prefixes *p, const char *s, size_t n, uint32_t *id)
{
    uint32_t from = p->first[(uint8_t)*s], to = p->first[(uint8_t)*s + 1];
    size_t longest = 0;
    unsigned matches = 0;

    /* Texts of [from, to) agree with `s` in `depth` bytes. */
    for (size_t depth = 1; from < to; depth++) {
        if (p->v[from].len == depth) {
            longest = depth;
            *id = p->v[from++].id;
            if (++matches == MATCHES_MAX)
                break;
        }
        if (depth == n)
            break;
        from = lower(p->v, from, to, depth, (uint8_t)s[depth]);
        to = lower(p->v, from, to, depth, (uint8_t)s[depth] + 1u);
    }
    return longest;
}
