/* core/infer: multiple choice: the seam of context and choice, likelihoods, and which is chosen. */
#include "core/infer/choices.h"
#include "core/tensor/tensor.h"
#include "tests/unit/tap.h"

#include <math.h>

static struct tern_err err;

/* A row's ids, "1 5 9 | 7 8": those before the line are the context's. */
static const char *row(const struct tern_infer_tokens *t, const char *context,
                       const char *continuation, size_t max)
{
    static char text[2000];
    struct tern_infer_row r;
    int at = 0;

    if (tern_infer_row_encode(t, context, continuation, max, &r, &err) < 0)
        return err.text;
    for (size_t i = 0; i < r.n; i++)
        at += snprintf(text + at, sizeof text - (size_t)at, "%s%s%d", i ? " " : "",
                       i == r.n - r.scored ? "| " : "", r.ids[i]);
    free(r.ids);
    return text;
}

static void same(const struct tern_infer_tokens *t, const char *context, const char *continuation,
                 const char *other_context, const char *other, const char *name)
{
    char *want = tern_strdup(row(t, other_context, other, 100));

    is(row(t, context, continuation, 100), want, "%s", name);
    free(want);
}

static void test_seam(struct tern_infer_tokens *t)
{
    const uint32_t *ids;
    size_t n, n_whole;

    tern_token_encode(t->encoder, "the cat", 7, &ids, &n, &err);
    tern_token_encode(t->encoder, "the cat runs", 12, &ids, &n_whole, &err);
    char whole[500];
    int at = snprintf(whole, sizeof whole, "1");
    for (size_t i = 0; i < n_whole; i++)
        at += snprintf(whole + at, sizeof whole - (size_t)at, "%s %u", i == n ? " |" : "", ids[i]);
    is(row(t, "the cat", " runs", 100), whole,
       "a row is context and choice as one text, the choice what is behind the context's ids");
    same(t, "the cat ", "runs", "the cat", " runs", "a blank at the context's end is the choice's");
    same(t, "the cat\n", " runs", "the cat", "\n runs",
         "a line's end at the context's end is the choice's");
    same(t, "the cat\xc2\xa0\xe3\x80\x80", "runs", "the cat", "\xc2\xa0\xe3\x80\x80runs",
         "blanks of Unicode at the context's end are the choice's");
    same(t, "the cat\x1f", "runs", "the cat", "\x1fruns",
         "a separator of units at the context's end is the choice's");
    ok(strncmp(row(t, "the cat\xe2\x80\x8b", " runs", 100), "1 ", 2) == 0 &&
           strcmp(row(t, "the cat\xe2\x80\x8b", " runs", 100), whole) != 0,
       "a space of no width is none");
    t->bos = false;
    ok(strcmp(row(t, "the cat", " runs", 100), whole + 2) == 0,
       "without BOS the row begins with the text");
    const char *alone = row(t, "", " runs", 100);
    ok(strncmp(alone, "1 | ", 4) == 0, "an empty context is BOS, all else is the choice's: %s",
       alone);
    same(t, " \n", "runs", "", " \nruns", "a context of blanks is empty, its blanks the choice's");
    t->bos = true;
    has(row(t, "the cat", "", 100), "no token is the choice's", "an empty choice is refused");
    is(row(t, "the cat", " runs", n_whole), whole, "a row as long as the model goes is whole");
    struct tern_infer_row r = {0};
    ok(tern_infer_row_encode(t, "the cat", " runs", n_whole - 1, &r, &err) == 0 && r.cut == 1 &&
           r.n == n_whole && r.ids[0] != 1 && r.scored == n_whole - n,
       "a longer one loses its beginning");
    free(r.ids);
    has(row(t, "the cat", " runs on and on and on", 3), "the model was made for 3",
        "a choice that is longer than the model goes is refused");
}

/* By tern_llama_logits, position by position. */
static double slowly(struct tern_llama *m, const struct tern_infer_row *r, int vocab)
{
    tern_real *logits = calloc((size_t)vocab, sizeof *logits);
    double nats = 0;

    for (size_t i = r->n - r->scored; i < r->n; i++) {
        double sum = 0, most = -INFINITY;
        tern_llama_logits(m, r->ids, (int)i, logits, &err);
        for (int v = 0; v < vocab; v++)
            most = fmax(most, (double)logits[v]);
        for (int v = 0; v < vocab; v++)
            sum += exp((double)logits[v] - most);
        nats += (double)logits[r->ids[i]] - most - log(sum);
    }
    free(logits);
    return nats;
}

static void test_score(const struct tern_infer_tokens *t)
{
    const struct tern_model_config config = {.dim = 16,
                                             .ffn = 16,
                                             .layers = 1,
                                             .heads = 2,
                                             .kv_heads = 2,
                                             .head_dim = 8,
                                             .vocab = 800,
                                             .max_position = 64,
                                             .norm_eps = 1e-5,
                                             .rope_theta = 1e4};
    struct tern_llama *m = tern_llama_new(&config, 1, 32, false, &err);
    struct tern_infer_row r;
    double nats = 0;

    tern_llama_init(m, 5, 0.5);
    ok(tern_infer_row_encode(t, "the old stone", " house sees a cat", 32, &r, &err) == 0 &&
           r.scored > 2 && tern_infer_row_score(m, &r, &nats, &err) == 0,
       "a row is scored");
    const double want = slowly(m, &r, (int)config.vocab);
    ok(fabs(nats - want) < 1e-4, "its likelihood is that of the choice's ids alone: %g, %g", nats,
       want);
    r.ids[1] = 801;
    ok(tern_infer_row_score(m, &r, &nats, &err) < 0, "an id outside the vocabulary is an error");
    free(r.ids);
    tern_llama_free(m);
}

static void test_choose(void)
{
    const double nats[] = {-4, -3, -3, -9}, lengths[] = {2, 1, 1, 9}, none[] = {-1, NAN, -2};

    ok(tern_infer_choose(nats, NULL, 4) == 1, "the most likely is chosen, the first of equals");
    ok(tern_infer_choose(nats, lengths, 4) == 3, "by length another one is");
    ok(tern_infer_choose(none, NULL, 3) == 1, "a NaN is chosen, as by NumPy");
    ok(fabs(tern_infer_standard_error(30, 100) - sqrt(0.3 * 0.7 / 99)) < 1e-15,
       "the standard error is that of a sample");
    ok(tern_infer_standard_error(5, 5) == 0 && isnan(tern_infer_standard_error(1, 1)),
       "all right has no error, and a single item none that is known");
}

int main(void)
{
    struct tern_token *token = tern_token_load("tests/golden/spm-bpe-800.model", &err);
    struct tern_infer_tokens t = {token, NULL, true};

    if (tern_tensor_start(1, 1, &err) < 0 || !token)
        return 1;
    t.encoder = tern_token_encoder_new(token, &err);
    test_seam(&t);
    test_score(&t);
    test_choose();
    tern_token_encoder_free(t.encoder);
    tern_token_free(token);
    return tap_done();
}
