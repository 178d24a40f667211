/* Products of numbers of bf16 by the CPU's unit for them: bit by bit beside a model of the unit in
 * plain C, within rounding of sums in double, and the same for any number of threads. */
#include "core/tensor/kernels.h"
#include "tests/unit/apart.h"

#include <omp.h>

enum { STEPS = 2 * 512 }; /* of k at most, before sums are added to C */

/* ---------------------------------------------------------------- the unit, as Intel defines it
 *
 * VDPBF16PS (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2): of each pair
 * first the upper, then the lower product is added by a fused multiply-add, to the nearest, ties to
 * even; numbers and sums below 2^-126 count as 0. */

static float flushed(float x)
{
    return fabsf(x) < 0x1p-126F ? copysignf(0, x) : x;
}

static float pair(float sum, const float a[2], const float b[2])
{
    sum = flushed(fmaf(flushed(a[1]), flushed(b[1]), flushed(sum)));
    return flushed(fmaf(flushed(a[0]), flushed(b[0]), sum));
}

/* op(A) and op(B) with rows behind each other, rounded, as sums run along k. */
struct operands {
    int M, N, K;
    float *a, *b; /* [M,K], [N,K] */
};

static float element(const struct tern_tensor_gemm *g, const struct operands *o, int i, int j,
                     float c)
{
    const float *a = o->a + (size_t)i * (size_t)o->K, *b = o->b + (size_t)j * (size_t)o->K;
    int cells = (o->K + 1) / 2, blocks = (cells + STEPS / 2 - 1) / (STEPS / 2);
    int deep = (cells + blocks - 1) / blocks * 2;
    float beta = g->beta;

    for (int k = 0; k < o->K; k += deep, beta = 1) {
        float sum = 0;

        for (int l = k; l < o->K && l < k + deep; l += 2) {
            const float x[2] = {a[l], l + 1 < o->K ? a[l + 1] : 0};
            const float y[2] = {b[l], l + 1 < o->K ? b[l + 1] : 0};

            sum = pair(sum, x, y);
        }
        sum *= g->alpha;
        c = beta != 0 ? fmaf(beta, c, sum) : sum;
    }
    return c;
}

/* ---------------------------------------------------------------- products */

/* One product with all that it needs. */
struct product {
    struct tern_tensor_gemm g;
    struct operands o;
    tern_real *A, *B, *C;
    uint16_t *half; /* B in bf16 */
};

static struct product make(int M, int N, int K, int turned)
{
    bool ta = turned & 1, tb = turned & 2;
    struct product p = {.g = {.ta = ta,
                              .tb = tb,
                              .M = M,
                              .N = N,
                              .K = K,
                              .lda = (ta ? M : K) + 3,
                              .ldb = (tb ? K : N) + 1,
                              .ldc = N + 2,
                              .alpha = 0.5F,
                              .beta = 2,
                              .rounded = true},
                        .o = {.M = M, .N = N, .K = K}};
    const size_t lda = (size_t)p.g.lda, ldb = (size_t)p.g.ldb;
    const size_t m = (size_t)M, n = (size_t)N, k = (size_t)K;
    size_t of_a = lda * (ta ? k : m), of_b = ldb * (tb ? n : k);

    p.A = noise(of_a, 1);
    p.B = noise(of_b, 2);
    p.C = noise((size_t)p.g.ldc * m, 3);
    p.half = malloc(of_b * sizeof *p.half);
    p.o.a = malloc(m * k * sizeof *p.o.a);
    p.o.b = malloc(n * k * sizeof *p.o.b);
    tern_tensor_round_bf16(p.A, NULL, of_a);
    tern_tensor_round_bf16(p.B, p.half, of_b);
    for (size_t i = 0; i < m; i++)
        for (size_t l = 0; l < k; l++)
            p.o.a[i * k + l] = (float)p.A[ta ? l * lda + i : i * lda + l];
    for (size_t j = 0; j < n; j++)
        for (size_t l = 0; l < k; l++)
            p.o.b[j * k + l] = (float)p.B[tb ? j * ldb + l : l * ldb + j];
    return p;
}

static void drop(struct product *p)
{
    free(p->A), free(p->B), free(p->C), free(p->half), free(p->o.a), free(p->o.b);
}

/* Elements of got[M,ldc] that are not the model's, and the largest error beside a sum in double, by
 * the bound of a chain of K + 2 roundings (Higham, Accuracy and Stability of Numerical Algorithms,
 * 3.1). */
static int compare(const struct product *p, const tern_real *got, double *ret_error)
{
    int others = 0;

    *ret_error = 0;
    for (int i = 0; i < p->o.M; i++)
        for (int j = 0; j < p->o.N; j++) {
            const float *a = p->o.a + (size_t)i * (size_t)p->o.K;
            const float *b = p->o.b + (size_t)j * (size_t)p->o.K;
            size_t at = (size_t)i * (size_t)p->g.ldc + (size_t)j;
            float model = element(&p->g, &p->o, i, j, (float)p->C[at]), is = (float)got[at];
            double sum = 0, size = 0, c = (double)p->g.beta * (double)p->C[at];

            for (int l = 0; l < p->o.K; l++) {
                sum += (double)a[l] * (double)b[l];
                size += fabs((double)a[l] * (double)b[l]);
            }
            double off = fabs((double)is - (double)p->g.alpha * sum - c);
            double bound =
                (p->o.K + 2) * 0x1p-24 * ((double)p->g.alpha * size + fabs(c)) * (1 + 1e-3);
            others += memcmp(&model, &is, sizeof is) != 0;
            *ret_error = fmax(*ret_error, off / bound);
        }
    return others;
}

static void product(int M, int N, int K)
{
    size_t size = (size_t)(N + 2) * (size_t)M;
    tern_real *got = malloc(size * sizeof *got);

    for (int t = 0; t < 8; t++) {
        struct product p = make(M, N, K, t);
        double error;

        memcpy(got, p.C, size * sizeof *got);
        if (t & 4)
            tern_tensor_gemm_bf16(&p.g, p.A, p.half, got);
        else
            tern_tensor_gemm(&p.g, p.A, p.B, got);
        int others = compare(&p, got, &error);
        ok(others == 0 && error < 1,
           "product of bf16 %dx%dx%d%s%s%s: the model's bits, %.2f of the error that sums may have",
           M, N, K, t & 1 ? " A^T" : "", t & 2 ? " B^T" : "", t & 4 ? ", B stored in bf16" : "",
           error);
        drop(&p);
    }
    free(got);
}

/* Any number of threads, rows or columns dealt to them, and a second time: the same bits. */
static void threads(int M, int N, int K)
{
    size_t size = (size_t)(N + 2) * (size_t)M;
    tern_real *first = malloc(size * sizeof *first), *got = malloc(size * sizeof *got);
    struct product p = make(M, N, K, 3);
    int same = 1;

    memcpy(first, p.C, size * sizeof *first);
    tern_tensor_gemm(&p.g, p.A, p.B, first);
    for (int t = 1; t <= 6; t++) {
        omp_set_num_threads(t);
        memcpy(got, p.C, size * sizeof *got);
        tern_tensor_gemm(&p.g, p.A, p.B, got);
        same = same && memcmp(got, first, size * sizeof *got) == 0;
    }
    omp_set_num_threads(tern_tensor_threads());
    ok(same, "product of bf16 %dx%dx%d: the same bits on 1 to 6 threads", M, N, K);
    free(first), free(got);
    drop(&p);
}

/* Numbers that are none, that are too small, and that bf16 does not have. */
static void special(void)
{
    enum { N = 16, K = 3 };
    tern_real A[N * K], B[N * K], C[N * N], D[N * N];
    struct tern_tensor_gemm g = {.tb = true, .M = N, .N = N, .K = K, .alpha = 1, .rounded = true};

    for (int i = 0; i < N * K; i++)
        A[i] = B[i] = i % K == 0;
    A[0] = INFINITY;
    A[K] = NAN;
    A[2 * K] = (tern_real)0x1p-127;                                     /* times 2 */
    A[3 * K] = (tern_real)0x1p-100, A[3 * K + 1] = (tern_real)0x1p-120; /* times 2, 2^-20 */
    A[4 * K + 2] = 7;                                                   /* the odd one: times 5 */
    for (int j = 0; j < N; j++)
        B[j * K] = 2, B[j * K + 1] = (tern_real)0x1p-20, B[j * K + 2] = 5;
    tern_tensor_gemm(&g, A, B, C);
    ok(isinf((double)C[0]) && isnan((double)C[N]), "products of bf16: infinity and NaN go through");
    ok(C[2 * N] == 0 && C[3 * N] == (tern_real)0x1p-99,
       "products of bf16: numbers and sums below 2^-126 count as 0");
    ok(C[4 * N] == 2 + 35 && C[5 * N] == 2, "products of bf16: an odd last step counts");
    for (int i = 0; i < N * K; i++)
        A[i] = (tern_real)tern_rand_normal(7, 5, (uint64_t)i), B[i] = A[i] + 1;
    tern_tensor_gemm(&g, A, B, C);
    tern_tensor_round_bf16(A, NULL, N * K);
    tern_tensor_round_bf16(B, NULL, N * K);
    tern_tensor_gemm(&g, A, B, D);
    ok(memcmp(C, D, sizeof C) == 0,
       "products of bf16: other numbers are rounded to the nearest, ties to even");
}

/* Nothing to multiply, as a tensor rank has it that holds none of the vocabulary. */
static void nothing(void)
{
    tern_real A[4] = {1, 2, 3, 4}, C[4] = {5, 6, 7, 8};
    struct tern_tensor_gemm g = {.M = 2, .N = 2, .alpha = 1, .beta = 2, .rounded = true};

    tern_tensor_gemm(&g, A, A, C);
    ok(C[0] == 10 && C[3] == 16, "products of bf16 without steps: C is scaled");
    g.N = 0, g.K = 2;
    tern_tensor_gemm(&g, A, A, C);
    g.N = 2, g.M = 0;
    tern_tensor_gemm(&g, A, A, C);
    ok(C[0] == 10 && C[3] == 16, "products of bf16 without rows or columns: nothing is done");
}

/* Is the product with `rounded` made as the one without? */
static bool as_floats(void)
{
    enum { M = 40, N = 50, K = 70 };
    struct product p = make(M, N, K, 0);
    tern_real with[M * (N + 2)], without[M * (N + 2)], half[M * (N + 2)];

    memcpy(with, p.C, sizeof with);
    memcpy(without, p.C, sizeof with);
    memcpy(half, p.C, sizeof with);
    tern_tensor_gemm(&p.g, p.A, p.B, with);
    p.g.rounded = false;
    tern_tensor_gemm(&p.g, p.A, p.B, without);
    tern_tensor_gemm_bf16(&p.g, p.A, p.half, half);
    ok(memcmp(half, without, sizeof half) == 0,
       "without `rounded` a product with bf16 has the bits of the widened matrix's");
    drop(&p);
    return memcmp(with, without, sizeof with) == 0;
}

int main(void)
{
    struct tern_err err = {0};

    unsetenv("OPENBLAS_CORETYPE");
    setenv("TERN_BF16_UNIT", "abacus", 1);
    ok(tern_tensor_start(2, 1, &err) == -1 && err.code == TERN_USAGE,
       "an unknown unit for bf16 is a usage error");
    has(err.text, "TERN_BF16_UNIT: 'abacus' is no unit of this CPU: take fp32",
        "the error names the variable and the units that there are");
    unsetenv("TERN_BF16_UNIT");
    if (!ok(tern_tensor_start(2, 1, &err) == 0, "kernels start with two threads (%s)", err.text))
        return tap_done();
    bool can = tern_tensor_cpu_id().bf16 && tern_tensor_products_bf16.gemm;
    printf("# %s; unit for bf16: %s\n", tern_tensor_describe(), tern_tensor_bf16_unit());
    ok((tern_tensor_bf16_use("avx512_bf16") == 0) == can && tern_tensor_bf16_use("abacus") == -1,
       "a unit that this CPU lacks is refused");
    ok(tern_tensor_bf16_use("fp32") == 0 && as_floats(),
       "by fp32 products of bf16 are as all others");
    is(tern_tensor_bf16_unit(), "fp32", "the unit that was asked for");
    ok(tern_tensor_bf16_use(can ? "avx512_bf16" : NULL) == 0 && as_floats() == !can,
       "the unit's bits are its own");
    if (!can) {
        tap_skip("this CPU or compiler has no AVX512_BF16");
        return tap_done();
    }
    for (int m = 16; m < 32; m++)
        product(m, 91 - m, 3 * m);
    product(1, 1, 1);
    product(3, 200, 5);
    product(200, 2, 9);
    product(16, 16, 1);
    product(33, 65, STEPS - 1);
    product(20, 70, STEPS + 1);
    product(20, 40, 2 * STEPS + 7);
    product(1100, 50, 30);
    product(17, 1100, 600);
    threads(1200, 700, 1100);
    threads(47, 150, 2100);
    threads(300, 47, 65);
    special();
    nothing();
    return tap_done();
}
