/* Rounding to bf16: to the nearest and at random, with every instruction set that this CPU has. */
#include "tests/unit/same_bits.h"

static uint32_t float_bits(double x)
{
    float f = (float)x;
    uint32_t u;

    memcpy(&u, &f, sizeof(u));
    return u;
}

/* A tie on each side, the largest float, what is no number. */
static const double bf16_special[] = {
    1 + 0x1p-8, 1 + 3 * 0x1p-8, -0.0, 3.4e38, INFINITY, -INFINITY, NAN, 1e-40, 1 + 0x1.1p-8};
enum { BF16_N = 40001, BF16_SPECIAL = sizeof(bf16_special) / sizeof(*bf16_special) };

static void bf16(void)
{
    static const uint16_t expected[] = {0x3f80, 0x3f82, 0x8000, 0x7f80, 0x7f80,
                                        0xff80, 0x7fc0, 0x0001, 0x3f81};
    tern_real *x = noise(BF16_N, 1), *got = malloc(BF16_N * sizeof(*got));
    uint16_t *h = malloc(BF16_N * sizeof(*h));
    int good = 1, near = 1;

    for (int i = 0; i < BF16_SPECIAL; i++)
        x[i] = (tern_real)bf16_special[i];
    SAME_BITS("bf16", got, BF16_N, {
        tern_tensor_to_bf16(h, x, BF16_N);
        tern_tensor_from_bf16(got, h, BF16_N);
    });
    for (int i = 0; i < BF16_SPECIAL; i++)
        good = good && (h[i] & (isnan(bf16_special[i]) ? 0x7fff : 0xffff)) == expected[i];
    ok(good, "bf16: to the nearest, ties to even, infinities and NaN");
    for (int i = BF16_SPECIAL; i < BF16_N; i++)
        near = near && fabs((double)got[i] - (double)x[i]) <= 0x1p-8 * fabs((double)x[i]) &&
               (float_bits((double)got[i]) & 0xffff) == 0;
    ok(near, "numbers rounded to bf16 lie within half of its last bit");
    tern_real *rounded = noise(BF16_N, 1);
    memcpy(rounded, x, BF16_N * sizeof(*x));
    uint16_t *again = malloc(BF16_N * sizeof(*again));
    tern_tensor_round_bf16(rounded, again, BF16_N);
    good = memcmp(rounded, got, BF16_N * sizeof(*got)) == 0 &&
           memcmp(again, h, BF16_N * sizeof(*h)) == 0;
    tern_tensor_round_bf16(rounded, NULL, BF16_N);
    ok(good && memcmp(rounded, got, BF16_N * sizeof(*got)) == 0,
       "rounded in place: the same, and a second time nothing");
    good = 1;
    for (int i = 0; i < BF16_N; i++)
        good = good && tern_tensor_bf16(x[i]) == h[i];
    ok(good, "bf16 one by one rounds as in a row");
    /* All that bf16 has, subnormals too, goes there and back; a signalling NaN becomes a quiet one.
     */
    for (int i = 0; i < 0x10000; i++) {
        uint16_t one = (uint16_t)i, back;
        tern_real wide[1];

        tern_tensor_from_bf16(wide, &one, 1);
        tern_tensor_to_bf16(&back, wide, 1);
        good = good && back == ((i & 0x7fff) > 0x7f80 ? one | 0x40 : one);
    }
    ok(good, "each of the 65536");
    free(rounded), free(again);
    free(x), free(got), free(h);
}

static void bf16_at_random(void)
{
    tern_real *x = noise(BF16_N, 1), *got = malloc(BF16_N * sizeof(*got));
    uint16_t *h = malloc(BF16_N * sizeof(*h));
    int odd = 0;
    double mean = 0;

    for (int i = 0; i < BF16_SPECIAL; i++)
        x[i] = (tern_real)bf16_special[i];
    for (int i = BF16_SPECIAL; i < BF16_N; i++)
        x[i] = (tern_real)(1 + 0.25 * 0x1p-7);
    SAME_BITS("bf16 at random", got, BF16_N, {
        tern_tensor_to_bf16_random(h, x, BF16_N, 1, 2, (1ULL << 32) - 20000);
        tern_tensor_from_bf16(got, h, BF16_N);
    });
    for (int i = BF16_SPECIAL; i < BF16_N; i++) {
        odd += h[i] != 0x3f80 && h[i] != 0x3f81;
        mean += ((double)got[i] - 1) * 0x1p7 / (BF16_N - BF16_SPECIAL);
    }
    ok(odd == 0 && fabs(mean - 0.25) < 0.01,
       "at random to one of two neighbours, right in the mean "
       "(%.3f of 0.25)",
       mean);
    ok(h[4] == 0x7f80 && isnan((double)got[6]), "infinities and NaN stay");
    tern_tensor_to_bf16_random(h, x + 20000, 100, 1, 2, 1ULL << 32);
    tern_tensor_from_bf16(x, h, 100);
    ok(memcmp(x, got + 20000, 100 * sizeof(*x)) == 0, "a part is rounded as in the whole");
    free(x), free(got), free(h);
}

/* Products of few rows: all instruction sets, bf16 or not, as a sum in double. */
static void few_rows(int n, int in, int out)
{
    size_t nx = (size_t)n * (size_t)in, nw = (size_t)out * (size_t)in, ny = (size_t)n * (size_t)out;
    tern_real *x = noise(nx, 1), *w = noise(nw, 2), *y = malloc(ny * sizeof(*y)),
              *z = malloc(ny * sizeof(*z)), *many = malloc(ny * sizeof(*many));
    uint16_t *half = malloc(nw * sizeof(*half));
    struct tern_tensor_few f = {n, in, out, false};
    double worst = 0;
    char what[64];

    tern_tensor_to_bf16(half, w, nw);
    tern_tensor_from_bf16(w, half, nw);
    snprintf(what, sizeof(what), "%d rows times a matrix of %d x %d", n, out, in);
    SAME_BITS(what, y, ny, tern_tensor_few_rows(&f, y, x, w));
    tern_tensor_few_rows_bf16(&f, z, x, half);
    ok(memcmp(y, z, ny * sizeof(*y)) == 0, "%s: bf16 gives the bits of the widened one", what);
    for (int r = 0; r < n; r++)
        for (int o = 0; o < out; o++) {
            double sum = 0;
            for (int i = 0; i < in; i++)
                sum += (double)x[r * in + i] * (double)w[o * in + i];
            worst = fmax(worst, fabs(sum - (double)y[r * out + o]));
        }
    tern_tensor_many_rows(&f, many, x, w);
    for (size_t i = 0; i < ny; i++)
        worst = fmax(worst, fabs((double)many[i] - (double)y[i]));
    f.add = true;
    tern_tensor_few_rows(&f, z, x, w);
    tern_tensor_many_rows(&f, many, x, w);
    for (size_t i = 0; i < ny; i++)
        worst = fmax(worst, fmax(fabs((double)z[i] - 2 * (double)y[i]),
                                 fabs((double)many[i] - 2 * (double)y[i])));
    ok(worst < 6e-6 * sqrt(in), "%s: sums, and sums that are added to (%.2g)", what, worst);
    free(x), free(w), free(y), free(z), free(many), free(half);
}

int main(void)
{
    if (tern_tensor_start(2, 1, NULL) < 0)
        return 1;
    bf16();
    bf16_at_random();
    few_rows(1, 1, 1);
    few_rows(2, 15, 3);
    few_rows(3, 63, 17);
    few_rows(1, 64, 65);
    few_rows(5, 513, 130);
    few_rows(9, 1100, 300);
    return tap_done();
}
