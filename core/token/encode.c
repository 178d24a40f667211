/* Text to ids.
 *
 * Text is normalised and cut into words, which are merged one by one. It is cut where the tokenizer
 * cuts ( split.h), or wherever no piece holds the two characters that meet there. No merge can
 * cross such a place, so every stretch is merged alone, with the same result as merging the whole.
 */
#include "core/token/encoder.h"

#include <stdlib.h>
#include <string.h>

struct tern_token_encoder *tern_token_encoder_new(const struct tern_token *t, struct tern_err *err)
{
    struct tern_token_encoder *e = tern_alloc(1, sizeof *e, "an encoder", err);

    if (!e)
        return NULL;
    e->t = t;
    e->words = tern_token_word_cache_new(err);
    if (t->by_text)
        e->pairs =
            tern_alloc((size_t)1 << TERN_KNOWN_PAIRS_BITS, sizeof *e->pairs, "an encoder", err);
    if (!e->words || (t->by_text && !e->pairs)) {
        tern_token_encoder_free(e);
        return NULL;
    }
    for (size_t k = 0; e->pairs && k >> TERN_KNOWN_PAIRS_BITS == 0; k++)
        e->pairs[k].rank = TERN_RANK_NONE;
    return e;
}

void tern_token_encoder_free(struct tern_token_encoder *e)
{
    if (!e)
        return;
    tern_token_word_cache_free(e->words);
    for (size_t i = 0; i < sizeof e->scratch / sizeof e->scratch[0]; i++)
        tern_buf_free(&e->scratch[i]);
    free(e->text);
    free(e->ids);
    free(e->symbols);
    free(e->heap);
    free(e->halves);
    free(e->pairs);
    free(e);
}

void tern_token_encoder_specials(struct tern_token_encoder *e, bool found)
{
    e->specials = found;
}

/* ---- words ---- */

/* Words that wait to be looked up together. */
struct batch {
    const char *start; /* of the first */
    const char *end;   /* of the text */
    uint32_t ends[TERN_WORDS_BATCH];
    size_t n;
};

static int batch_flush(struct tern_token_encoder *e, struct batch *b, struct tern_err *err)
{
    if (b->n == 0)
        return 0;
    const size_t n = b->n;
    b->n = 0;
    if (tern_token_word_cache_put(e, b->start, (size_t)(b->end - b->start), b->ends, n, err) < 0)
        return -1;
    b->start += b->ends[n - 1];
    return 0;
}

/* The word from where the last one ended to `end`. */
static inline int batch_add(struct tern_token_encoder *e, struct batch *b, const char *end,
                            struct tern_err *err)
{
    b->ends[b->n++] = (uint32_t)(end - b->start);
    return b->n == TERN_WORDS_BATCH ? batch_flush(e, b, err) : 0;
}

static bool near(const struct tern_token *t, uint32_t a, uint32_t b)
{
    if (a < 128 && b < 128)
        return t->ascii_near[a][b >> 6] >> (b & 63) & 1;
    uint32_t slot = tern_near_slot(a, b);
    return t->near[slot >> 6] >> (slot & 63) & 1;
}

/* Where the stretch of characters that begins at `at` ends: all that pieces join to their
 * neighbours. */
static size_t stretch(const struct tern_token *t, const char *s, size_t at, size_t len)
{
    uint32_t id;
    unsigned n;
    uint32_t code = tern_token_utf8_decode(s + at, len - at, &n);

    for (size_t end = at + n; end < len; end += n) {
        uint32_t following = tern_token_utf8_decode(s + end, len - end, &n);
        if (!near(t, code, following) || (following == ' ' && t->metaspace_split) ||
            (t->user.n && tern_token_prefix(&t->user, s + end, len - end, &id)))
            return end;
        code = following;
    }
    return len;
}

static inline int put_stretch(struct tern_token_encoder *e, struct batch *b, const char *s,
                              size_t from, size_t to, bool cut_further, struct tern_err *err)
{
    while (cut_further && from < to) {
        from = stretch(e->t, s, from, to);
        if (from < to && batch_add(e, b, s + from, err) < 0)
            return -1;
    }
    return batch_add(e, b, s + to, err);
}

/* Cut a text by classes of characters: where no piece joins two classes, none joins two of their
 * characters.  Stretches with characters beyond ASCII are cut further, one by one. */
static int put_by_class(struct tern_token_encoder *e, const char *s, size_t len,
                        struct tern_err *err)
{
    const struct tern_token *t = e->t;
    struct batch b = {.start = s, .end = s + len};
    uint64_t mask[TERN_CLASSES], last = 0; /* the classes of the byte before */
    size_t from = 0, beyond = 0;           /* the stretch begins; the last byte beyond ASCII + 1 */

    for (size_t base_at = 0; base_at < len; base_at += 64) {
        const size_t n = len - base_at < 64 ? len - base_at : 64;
        uint64_t joined = 0, now = 0;
        tern_token_classes(s + base_at, n, mask);
        for (int c = 0; c < TERN_CLASSES; c++) {
            uint64_t behind = 0;
            for (int d = 0; d < TERN_CLASSES; d++)
                behind |= mask[d] & -(uint64_t)(t->joins[c] >> d & 1);
            joined |= (mask[c] << 1 | (last >> c & 1)) & behind;
            now |= (mask[c] >> (n - 1) & 1) << c;
        }
        last = now;
        uint64_t cut = ~joined & (n < 64 ? ((uint64_t)1 << n) - 1 : UINT64_MAX);
        cut &= base_at ? UINT64_MAX : ~(uint64_t)1;
        for (; cut; cut &= cut - 1) {
            const unsigned i = (unsigned)__builtin_ctzll(cut);
            const uint64_t below = mask[TERN_CLASS_BEYOND] & (((uint64_t)1 << i) - 1);
            if (below)
                beyond = base_at + 64 - (size_t)__builtin_clzll(below);
            if (put_stretch(e, &b, s, from, base_at + i, beyond > from, err) < 0)
                return -1;
            from = base_at + i;
        }
        if (mask[TERN_CLASS_BEYOND])
            beyond = base_at + 64 - (size_t)__builtin_clzll(mask[TERN_CLASS_BEYOND]);
    }
    if (from < len && put_stretch(e, &b, s, from, len, beyond > from, err) < 0)
        return -1;
    return batch_flush(e, &b, err);
}

int tern_token_put_text(struct tern_token_encoder *e, const char *s, size_t len,
                        struct tern_err *err)
{
    const struct tern_token *t = e->t;
    if (t->drop_unknown && tern_token_keep_known(e, &s, &len, err) < 0)
        return -1;
    struct batch b = {.start = s, .end = s + len};

    if (t->by_class)
        return put_by_class(e, s, len, err);

    for (size_t at = 0, end; at < len; at = end) {
        uint32_t id;
        size_t user = t->user.n ? tern_token_prefix(&t->user, s + at, len - at, &id) : 0;
        if (user) {
            end = at + user;
            if (batch_flush(e, &b, err) < 0 || tern_token_put_symbol(e, id, s + at, user, err) < 0)
                return -1;
            b.start = s + end;
            continue;
        }
        end = stretch(t, s, at, len);
        if (batch_add(e, &b, s + end, err) < 0)
            return -1;
    }
    return batch_flush(e, &b, err);
}

int tern_token_put_split(struct tern_token_encoder *e, const char *s, size_t n,
                         struct tern_err *err)
{
    const struct tern_token *t = e->t;
    uint32_t ends[TERN_WORDS_BATCH];

    for (size_t done; n; s += done, n -= done) {
        const size_t part = t->split_digits ? tern_token_split_digit(s, n) : n;
        for (size_t at = 0, k; at < part; at += ends[k - 1]) {
            k = tern_token_split_words(t->split, s + at, part - at, ends, TERN_WORDS_BATCH);
            if (tern_token_word_cache_put(e, s + at, n - at, ends, k, err) < 0)
                return -1;
        }
        done = part;
    }
    return 0;
}

/* ---- texts ---- */

static int encode(struct tern_token_encoder *e, const char *text, size_t len, struct tern_err *err)
{
    const struct tern_token *t = e->t;

    if (t->format != TERN_TOKEN_SENTENCEPIECE)
        return tern_token_put_segments(e, text, len, err);
    if (tern_token_spm_normalise(e, text, len, err) < 0)
        return -1;
    return t->has_unused ? tern_token_put_resegmented(e, e->text, e->text_len, err)
                         : tern_token_put_text(e, e->text, e->text_len, err);
}

int tern_token_encode(struct tern_token_encoder *e, const char *text, size_t len,
                      const uint32_t **ids, size_t *n, struct tern_err *err)
{
    if (len > TERN_TOKEN_TEXT_MAX)
        return tern_err_set(err, TERN_USAGE,
                            "a text of %zu bytes; one text may have %d. Split it into documents.",
                            len, TERN_TOKEN_TEXT_MAX);
    e->n_ids = 0;
    e->after_unk = false;
    if (encode(e, text, len, err) < 0)
        return -1;
    *ids = e->ids;
    *n = e->n_ids;
    return 0;
}
