/* core/llama/decoder.h: logits with a cache are those of a whole forward pass. */
#include "core/llama/decoder.h"
#include "tests/unit/llama.h"

#include <omp.h>
#include <string.h>

enum { V = 53, LONG = 600 };

static int32_t ids[LONG];

static struct tern_llama *make(const struct tern_model_config *c, int seq_len, bool bf16)
{
    struct tern_err err = {0};
    struct tern_llama *m = tern_llama_open(
        &(struct tern_llama_options){.config = c, .max_batch = 1, .seq_len = seq_len, .bf16 = bf16},
        &err);

    if (!m) {
        ok(0, "a model is made: %s", err.text);
        exit(tap_done());
    }
    tern_llama_init(m, 5, c->init_std);
    return m;
}

static double farthest(const tern_real *a, const tern_real *b, int n)
{
    double most = 0;

    for (int i = 0; i < n; i++)
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
    return most;
}

/* Read a prompt of `n` tokens, `piece` at a time. */
static int read_pieces(struct tern_llama_decoder *d, int row, int n, int piece, tern_real *logits)
{
    int rc = 0;

    for (int at = 0; at < n; at += piece)
        rc |= tern_llama_decoder_read(d, row, ids + at, n - at < piece ? n - at : piece, logits,
                                      NULL);
    return rc;
}

/* Rows of several lengths, some read in pieces: the logits after each prompt, and after each of
 * some tokens behind it.
 */
static void test_against_forward(const struct tern_model_config *c, const char *what)
{
    enum { STEPS = 5 };
    static const int lengths[] = {1, 2, 7, 8, 63, 64, 65, 130, 130, 150};
    static const int pieces[] = {1, 2, 7, 8, 63, 64, 33, 130, 1, 70};
    enum { ROWS = sizeof lengths / sizeof *lengths };
    struct tern_llama *m = make(c, 160, /* bf16= */ false);
    struct tern_llama_decoder *d = tern_llama_decoder_new(m, ROWS, 160, NULL);
    static tern_real logits[ROWS * V], whole[V];
    double worst = 0, size = 0;
    int rows[ROWS], rc = 0;
    int32_t next[ROWS];

    for (int r = 0; r < ROWS; r++) {
        rows[r] = r;
        rc |= read_pieces(d, r, lengths[r], pieces[r], logits);
        rc |= tern_llama_logits(m, ids, lengths[r], whole, NULL);
        worst = fmax(worst, farthest(logits, whole, V));
        for (int i = 0; i < V; i++)
            size = fmax(size, fabs((double)whole[i]));
    }
    for (int s = 0; s < STEPS; s++) {
        for (int r = 0; r < ROWS; r++)
            next[r] = ids[lengths[r] + s];
        rc |= tern_llama_decoder_step(d, rows, next, ROWS, logits, NULL);
        for (int r = 0; r < ROWS; r++) {
            rc |= tern_llama_logits(m, ids, lengths[r] + s + 1, whole, NULL);
            worst = fmax(worst, farthest(logits + (size_t)r * V, whole, V));
        }
    }
    ok(rc == 0 && size > 0.1 && worst < 1e-5 * (1 + size),
       "%s: logits with the cache are those of a whole pass (largest logit %.3g, difference %.2g)",
       what, size, worst);
    tern_llama_decoder_free(d);
    tern_llama_free(m);
}

/* A row alone, and among others, read by so many threads. */
static void decode(struct tern_llama *m, int rows, int row, int length, int threads, tern_real *to)
{
    omp_set_num_threads(threads);
    struct tern_llama_decoder *d = tern_llama_decoder_new(m, rows, LONG, NULL);
    tern_real *logits = calloc((size_t)rows * V, sizeof *logits);
    int at[8];
    int32_t next[8];

    for (int r = 0; r < rows; r++) {
        int n = r == row ? length : 3 + 11 * r, first = n < TERN_LLAMA_PIECE ? n : TERN_LLAMA_PIECE;
        at[r] = r;
        next[r] = ids[n];
        tern_llama_decoder_read(d, r, ids, first, logits, NULL);
        if (n > first)
            tern_llama_decoder_read(d, r, ids + first, n - first, logits, NULL);
        if (r == row)
            memcpy(to, logits, V * sizeof *to);
    }
    for (int s = 0; s < 3; s++)
        tern_llama_decoder_step(d, at, next, rows, logits, NULL);
    memcpy(to + V, logits + (size_t)row * V, V * sizeof *to);
    free(logits);
    tern_llama_decoder_free(d);
}

static void test_same_bits(const struct tern_model_config *c, bool bf16)
{
    static tern_real alone[2 * V], other[2 * V];
    struct tern_llama *m = make(c, 1, bf16);
    int threads = omp_get_max_threads(), same = 1;

    for (int length = 1; length < LONG - 4; length = 3 * length + 4) {
        decode(m, 1, 0, length, 1, alone);
        decode(m, 8, 5, length, 1, other);
        same &= memcmp(alone, other, sizeof alone) == 0;
        decode(m, 3, 2, length, 3, other);
        same &= memcmp(alone, other, sizeof alone) == 0;
    }
    omp_set_num_threads(threads);
    ok(same, "%s: a row's logits have the same bits alone, among others, and with 1 or 3 threads",
       bf16 ? "bf16" : "full precision");
    tern_llama_free(m);
}

static void test_bf16(const struct tern_model_config *c)
{
    struct tern_llama *half = make(c, 1, /* bf16= */ true), *m = make(c, 1, /* bf16= */ false);
    static tern_real a[2 * V], b[2 * V];
    uint64_t n;
    tern_real *params = tern_llama_params(m, &n);

    tern_tensor_from_bf16(params, tern_llama_params_bf16(half, NULL), n);
    decode(m, 2, 1, 100, 2, a);
    decode(half, 2, 1, 100, 2, b);
    ok(farthest(a, b, 2 * V) < 1e-5, "weights in bf16 give the logits of the widened ones (%.2g)",
       farthest(a, b, 2 * V));
    tern_llama_free(half);
    tern_llama_free(m);
}

static void test_refused(const struct tern_model_config *c)
{
    struct tern_llama *m = make(c, 1, /* bf16= */ false);
    struct tern_llama_decoder *d = tern_llama_decoder_new(m, 1, 10, NULL);
    struct tern_err err = {0};
    static tern_real first[V], again[V];

    ok(tern_llama_decoder_read(d, 0, ids, 8, first, &err) == 0 &&
           tern_llama_decoder_length(d, 0) == 8,
       "a row holds the tokens that it has read");
    ok(tern_llama_decoder_read(d, 0, ids, 3, NULL, &err) < 0 && strstr(err.text, "row of 10") &&
           tern_llama_decoder_length(d, 0) == 8,
       "a full row takes no more: %s", err.text);
    ok(tern_llama_decoder_step(d, (int[]){0}, (int32_t[]){V}, 1, again, &err) < 0 &&
           strstr(err.text, "vocabulary") && tern_llama_decoder_length(d, 0) == 8,
       "an id outside the vocabulary is refused: %s", err.text);
    tern_llama_decoder_clear(d, 0);
    tern_llama_decoder_read(d, 0, ids, 8, again, NULL);
    ok(memcmp(first, again, sizeof first) == 0, "a row that was cleared begins anew");
    tern_llama_decoder_free(d);
    tern_llama_free(m);
}

int main(void)
{
    struct tern_model_config tied = grouped, stretched = grouped, one = grouped;

    if (tern_tensor_start(2, 1, NULL) < 0)
        return 1;
    for (int i = 0; i < LONG; i++)
        ids[i] = (int32_t)tern_rand_below(3, 3, (uint64_t)i, V);
    tied.tied = true;
    one.kv_heads = 4;
    stretched.rope = TERN_MODEL_ROPE_LLAMA3;
    stretched.rope_factor = 8;
    stretched.rope_low_freq_factor = 1;
    stretched.rope_high_freq_factor = 4;
    stretched.rope_original_max_position = 32;
    test_against_forward(&grouped, "grouped queries");
    test_against_forward(&one, "a key head for each query head");
    test_against_forward(&tied, "a tied head");
    test_against_forward(&stretched, "stretched RoPE");
    test_same_bits(&grouped, /* bf16= */ false);
    test_same_bits(&grouped, /* bf16= */ true);
    test_bf16(&grouped);
    test_refused(&grouped);
    return tap_done();
}
