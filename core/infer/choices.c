#include "core/infer/choices.h"

#include "core/base/str.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- the seam */

/* Is it a blank by Python's str.isspace?  *ret_bytes: of the character that ends at `end`. */
static bool blank_before(const char *text, const char *end, size_t *ret_bytes)
{
    /* Above U+0020, in UTF-8. */
    static const char *const wide[] = {
        "\xc2\x85",     "\xc2\xa0",     "\xe1\x9a\x80", "\xe2\x80\x80", "\xe2\x80\x81",
        "\xe2\x80\x82", "\xe2\x80\x83", "\xe2\x80\x84", "\xe2\x80\x85", "\xe2\x80\x86",
        "\xe2\x80\x87", "\xe2\x80\x88", "\xe2\x80\x89", "\xe2\x80\x8a", "\xe2\x80\xa8",
        "\xe2\x80\xa9", "\xe2\x80\xaf", "\xe2\x81\x9f", "\xe3\x80\x80"};
    const size_t len = (size_t)(end - text);

    *ret_bytes = 1;
    if (len && (strchr(" \t\n\v\f\r", end[-1]) ? end[-1] != 0 : end[-1] >= 0x1c && end[-1] <= 0x1f))
        return true;
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++) {
        *ret_bytes = strlen(wide[i]);
        if (len >= *ret_bytes && memcmp(end - *ret_bytes, wide[i], *ret_bytes) == 0)
            return true;
    }
    return false;
}

/* Bytes of the text without the blanks at its end. */
static size_t without_blanks(const char *text)
{
    const char *end = text + strlen(text);
    size_t n;

    while (blank_before(text, end, &n))
        end -= n;
    return (size_t)(end - text);
}

/* Does the text begin with the words of BOS, which then need none before them? */
static bool begins_with_bos(const struct tern_infer_tokens *t, const char *text)
{
    const int32_t bos = tern_token_bos(t->token);
    size_t len = 0;
    const char *piece = bos >= 0 ? tern_token_piece(t->token, (uint32_t)bos, &len) : NULL;

    return piece && len && strncmp(text, piece, len) == 0;
}

/* Ids of `text`, with BOS before them where `bos`: appended to to[]; their number. */
static int append(const struct tern_infer_tokens *t, bool bos, const char *text, size_t len,
                  int32_t **ret_ids, size_t *ret_n, struct tern_err *err)
{
    const uint32_t *ids;
    size_t n;

    if (tern_token_encode(t->encoder, text, len, &ids, &n, err) < 0)
        return -1;
    int32_t *to = tern_alloc(n + 1, sizeof *to, "a row's ids", err);
    if (!to)
        return -1;
    size_t at = 0;
    if (bos)
        to[at++] = tern_token_bos(t->token);
    for (size_t i = 0; i < n; i++)
        to[at++] = (int32_t)ids[i];
    *ret_ids = to;
    *ret_n = at;
    return 0;
}

/* An empty context: a token that begins texts goes before, unless the continuation has it. */
static int encode_alone(const struct tern_infer_tokens *t, const char *text,
                        struct tern_infer_row *r, size_t *ret_context, struct tern_err *err)
{
    const int32_t bos = tern_token_bos(t->token), eos = tern_token_eos(t->token);
    const int32_t first = bos >= 0 ? bos : eos;
    int32_t *ids;
    size_t n;

    if (first < 0)
        return tern_err_set(err, TERN_USAGE,
                            "the context is empty, and the tokenizer has neither BOS nor EOS to "
                            "stand for it");
    if (append(t, false, text, strlen(text), &ids, &n, err) < 0)
        return -1;
    *ret_context = 1;
    if (n && ids[0] == first) {
        r->ids = ids;
        r->n = n;
        return 0;
    }
    r->ids = tern_alloc(n + 1, sizeof *r->ids, "a row's ids", err);
    if (r->ids) {
        r->ids[0] = first;
        memcpy(r->ids + 1, ids, n * sizeof *ids);
        r->n = n + 1;
    }
    free(ids);
    return r->ids ? 0 : -1;
}

static int encode_pair(const struct tern_infer_tokens *t, const char *context,
                       const char *continuation, struct tern_infer_row *r, size_t *ret_context,
                       struct tern_err *err)
{
    const size_t len = without_blanks(context);
    const bool bos = t->bos && !begins_with_bos(t, context);
    char *whole = tern_strf("%s%s", context, continuation);
    int32_t *ids = NULL;
    int rc = append(t, bos, whole, strlen(whole), &r->ids, &r->n, err);

    /* The ids of the context by itself are counted, not compared. */
    if (rc == 0)
        rc = append(t, bos, context, len, &ids, ret_context, err);
    free(ids);
    free(whole);
    return rc;
}

int tern_infer_row_encode(const struct tern_infer_tokens *t, const char *context,
                          const char *continuation, size_t max, struct tern_infer_row *ret_row,
                          struct tern_err *err)
{
    struct tern_infer_row r = {0};
    const bool empty = without_blanks(context) == 0;
    char *whole = empty ? tern_strf("%s%s", context, continuation) : NULL;
    size_t n_context = 0;
    int rc = empty ? encode_alone(t, whole, &r, &n_context, err)
                   : encode_pair(t, context, continuation, &r, &n_context, err);

    free(whole);
    r.scored = r.n > n_context ? r.n - n_context : 0;
    if (rc == 0 && n_context == 0)
        rc = tern_err_set(err, TERN_USAGE, "the context has no token");
    else if (rc == 0 && r.scored == 0)
        rc = tern_err_set(err, TERN_USAGE,
                          "no token is the choice's: with it the context has as many as without");
    else if (rc == 0 && r.scored > max)
        rc = tern_err_set(err, TERN_USAGE,
                          "the choice has %zu tokens, and the model was made for %zu", r.scored,
                          max);
    if (rc < 0) {
        free(r.ids);
        return -1;
    }
    r.cut = r.n > max + 1 ? r.n - max - 1 : 0;
    memmove(r.ids, r.ids + r.cut, (r.n - r.cut) * sizeof *r.ids);
    r.n -= r.cut;
    *ret_row = r;
    return 0;
}

/* ---------------------------------------------------------------- likelihoods */

int tern_infer_row_score(struct tern_llama *m, const struct tern_infer_row *row, double *ret_nats,
                         struct tern_err *err)
{
    const size_t T = row->n - 1;
    uint8_t *mask = tern_alloc(T, 1, "a row's mask", err);
    struct tern_llama_loss loss;

    if (!mask)
        return -1;
    memset(mask + T - row->scored, 1, row->scored);
    const struct tern_llama_batch b = {
        .tokens = row->ids, .targets = row->ids + 1, .mask = mask, .B = 1, .T = (int)T};
    int rc = tern_llama_loss(m, &b, &loss, err);
    free(mask);
    if (rc == 0)
        *ret_nats = -loss.sum;
    return rc;
}

size_t tern_infer_choose(const double *nats, const double *lengths, size_t n)
{
    size_t best = 0;
    double most = NAN;

    for (size_t i = 0; i < n; i++) {
        const double v = lengths ? nats[i] / lengths[i] : nats[i];
        if (isnan(v))
            return i;
        if (i == 0 || v > most) {
            best = i;
            most = v;
        }
    }
    return best;
}

double tern_infer_standard_error(uint64_t right, uint64_t n)
{
    const double mean = (double)right / (double)n;

    return n > 1 ? sqrt(mean * (1 - mean) / (double)(n - 1)) : NAN;
}
