/* Products, our own and OpenBLAS's, against plain loops in double, and how OpenBLAS's kernels are
 * chosen.  Built in float and in double (products-f64). */
#include "core/tensor/kernels.h"
#include "tests/unit/apart.h"

#include <omp.h>

/* A matrix of `rows` in double, row by row; `turned`: x lies as its transpose. */
static double *plain(const tern_real *x, int ld, bool turned, size_t rows, size_t columns)
{
    double *out = zeros(rows * columns);

    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j++)
            out[i * columns + j] = (double)x[turned ? j * (size_t)ld + i : i * (size_t)ld + j];
    return out;
}

/* C[m,n] = a[m,k] b[k,n] / 2 + 2 C, in double. */
static void multiply(const double *a, const double *b, size_t m, size_t n, size_t k, double *C)
{
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < n; j++)
            C[i * n + j] *= 4;
        for (size_t l = 0; l < k; l++)
            for (size_t j = 0; j < n; j++)
                C[i * n + j] += a[i * k + l] * b[l * n + j];
        for (size_t j = 0; j < n; j++)
            C[i * n + j] /= 2;
    }
}

static void gemm(int M, int N, int K)
{
    size_t m = (size_t)M, n = (size_t)N, k = (size_t)K;

    for (int t = 0; t < 4; t++) {
        bool ta = t & 1, tb = t & 2;
        int lda = (ta ? M : K) + 3, ldb = (tb ? K : N) + 1, ldc = N + 2;
        tern_real *A = noise((size_t)lda * (ta ? k : m), 1);
        tern_real *B = noise((size_t)ldb * (tb ? n : k), 2);
        tern_real *C = noise((size_t)ldc * m, 3), *got = malloc(m * n * sizeof(*got));
        double *a = plain(A, lda, ta, m, k), *b = plain(B, ldb, tb, k, n);
        double *expected = plain(C, ldc, false, m, n);

        multiply(a, b, m, n, k, expected);
        const struct tern_tensor_gemm g = {.ta = ta,
                                           .tb = tb,
                                           .M = M,
                                           .N = N,
                                           .K = K,
                                           .lda = lda,
                                           .ldb = ldb,
                                           .ldc = ldc,
                                           .alpha = 0.5F,
                                           .beta = 2};
        tern_tensor_gemm(&g, A, B, C);
        for (size_t i = 0; i < m; i++)
            memcpy(got + i * n, C + i * (size_t)ldc, n * sizeof(*got));
        ok(apart(got, expected, m * n) < 3 * NEAR, "product %dx%dx%d%s%s", M, N, K,
           ta ? " A^T" : "", tb ? " B^T" : "");
        free(A), free(B), free(C), free(got), free(a), free(b), free(expected);
    }
}

/* B in bf16, against sums in double of what bf16 holds; `own`: by our own kernel, also bit by bit
 * against the product of the widened matrix. */
static void gemm_bf16(int M, int N, int K, bool own)
{
    size_t m = (size_t)M, n = (size_t)N, k = (size_t)K;

    for (int t = 0; t < 4; t++) {
        bool ta = t & 1, tb = t & 2;
        int lda = (ta ? M : K) + 3, ldb = (tb ? K : N) + 1;
        size_t of_b = (size_t)ldb * (tb ? n : k);
        tern_real *A = noise((size_t)lda * (ta ? k : m), 1), *B = noise(of_b, 2);
        tern_real *C = noise(m * n, 3), *D = noise(m * n, 3);
        uint16_t *half = malloc(of_b * sizeof(*half));

        tern_tensor_round_bf16(B, half, of_b);
        double *a = plain(A, lda, ta, m, k), *b = plain(B, ldb, tb, k, n);
        double *expected = plain(C, N, false, m, n);
        multiply(a, b, m, n, k, expected);
        const struct tern_tensor_gemm g = {.ta = ta,
                                           .tb = tb,
                                           .M = M,
                                           .N = N,
                                           .K = K,
                                           .lda = lda,
                                           .ldb = ldb,
                                           .alpha = 0.5F,
                                           .beta = 2};
        tern_tensor_gemm_bf16(&g, A, half, C);
        ok(apart(C, expected, m * n) < 3 * NEAR, "product with bf16 %dx%dx%d%s%s", M, N, K,
           ta ? " A^T" : "", tb ? " B^T" : "");
        tern_tensor_gemm(&g, A, B, D);
        if (own)
            ok(memcmp(C, D, m * n * sizeof(*C)) == 0,
               "a product with bf16 has the bits of the widened matrix's");
        free(A), free(B), free(C), free(D), free(half), free(a), free(b), free(expected);
    }
}

/* Small products without packing, with `add` and without, beside tern_tensor_gemm. */
static void near_(int M, int N, int K)
{
    enum { LD = TERN_TENSOR_NEAR_LD };
    size_t m = (size_t)M, n = (size_t)N, k = (size_t)K, most = m > k ? m : k;
    tern_real *A = noise(most * LD, 1), *B = noise(k * LD + 16, 2);
    tern_real *C = noise(m * LD, 3), *turned = malloc(LD * most * sizeof(*turned));
    double *expected = zeros(m * LD);
    int good = 1;

    for (int t = 0; t < 2; t++) {
        for (size_t i = 0; i < m * LD; i++)
            expected[i] = (double)C[i];
        for (size_t i = 0; i < m; i++)
            for (size_t j = 0; j < n; j++) {
                expected[i * LD + j] *= t;
                for (size_t l = 0; l < k; l++)
                    expected[i * LD + j] +=
                        (double)A[t ? l * LD + i : i * LD + l] * (double)B[l * LD + j];
            }
        const struct tern_tensor_gemm g = {.ta = t,
                                           .M = M,
                                           .N = N,
                                           .K = K,
                                           .lda = LD,
                                           .ldb = LD,
                                           .ldc = LD,
                                           .alpha = 1,
                                           .beta = (tern_real)t};
        tern_tensor_gemm_near(&g, A, B, C);
        ok(apart(C, expected, m * LD) < 3 * NEAR, "product without packing %dx%dx%d%s", M, N, K,
           t ? " A^T, added" : "");
    }
    tern_tensor_turn(turned, M, A, LD, M, K);
    for (size_t i = 0; i < m; i++)
        for (size_t l = 0; l < k; l++)
            good = good && turned[l * m + i] == A[i * LD + l];
    ok(good, "a product's transpose of %dx%d is right", M, K);
    free(A), free(B), free(C), free(turned), free(expected);
}

/* By the named kernel: like a plain loop, with bf16, and the same on any number of threads.
 * `first`[M,N] is what the first such kernel has made of one product; all must. */
static void own_products(const char *name, tern_real *first)
{
    enum { M = 1200, N = 700, K = 1100 };
    size_t size = (size_t)M * N;
    tern_real *A = noise((size_t)M * K, 1), *B = noise((size_t)K * N, 2), *C = noise(size, 3);
    int same = 1;

    for (int t = 0; t < 3; t++) {
        free(C);
        C = noise(size, 3);
        omp_set_num_threads(t + 1);
        tern_tensor_gemm(
            &(struct tern_tensor_gemm){
                .ta = true, .tb = true, .M = M, .N = N, .K = K, .alpha = 0.5F, .beta = 1},
            A, B, C);
        if (isnan((double)first[0]))
            memcpy(first, C, size * sizeof(*C));
        same = same && memcmp(first, C, size * sizeof(*C)) == 0;
    }
    ok(same, "products by %s: the same on 1, 2 and 3 threads", name);
    omp_set_num_threads(tern_tensor_threads());
    for (int m = 16; m < 32; m++)
        gemm(m, 91 - m, 3 * m);
    gemm(300, 1100, 600);
    gemm(1100, 50, 530);
    for (int m = 16; m < 64; m += 7)
        gemm_bf16(m, 91 - m, 3 * m, true);
    gemm_bf16(1100, 50, 530, true);
    gemm_bf16(70, 1100, 600, true);
    for (int m = 1; m <= 64; m += m < 17 ? 1 : 15)
        near_(m, 65 - m, m % 7 * 9 + 1);
    free(A), free(B), free(C);
}

/* Our own products and OpenBLAS's. */
static void products(void)
{
    static const char *const own[] = {"avx2", "avx512"};
    tern_real *first = noise((size_t)1200 * 700, 3);

    first[0] = NAN;
    for (int i = 0; i < 2; i++) {
        bool can = sizeof(tern_real) == sizeof(float) && (int)tern_tensor_cpu() > i;

        ok((tern_tensor_gemm_use(own[i]) == 0) == can, "products by %s: %s", own[i],
           can ? "are taken on request" : "are refused, as this CPU lacks them");
        if (can)
            own_products(own[i], first);
        else
            tap_skip("no such products for this CPU or type");
    }
    tern_tensor_gemm_use("openblas");
    gemm(63, 64, 65);
    gemm(130, 20, 300);
    gemm_bf16(130, 20, 300, false);
    gemm_bf16(300, 600, 1100, false);
    near_(33, 20, 40);
    ok(tern_tensor_gemm_use("abacus") == -1, "unknown products are refused");
    tern_tensor_gemm_use(NULL);
    for (int m = 16; m < 32; m++)
        gemm(m, 91 - m, 3 * m);
    gemm(300, 1100, 600);
    gemm(1100, 50, 530);
    gemm_bf16(1, 1, 1, false);
    gemm_bf16(5, 65, 64, false);
    free(first);
}

/* Whether a product of few columns is made as by `name`, to the bit. */
static bool made_by(const char *name)
{
    enum { M = 64, N = 40, K = 1100 };
    tern_real *A = noise(M * K, 1), *B = noise(K * N, 2), C[2][M * N];

    for (int i = 0; i < 2; i++) {
        tern_tensor_gemm_use(i ? name : NULL);
        tern_tensor_gemm(&(struct tern_tensor_gemm){.tb = true, .M = M, .N = N, .K = K, .alpha = 1},
                         A, B, C[i]);
    }
    tern_tensor_gemm_use(NULL);
    free(A), free(B);
    return memcmp(C[0], C[1], sizeof(C[0])) == 0;
}

/* The way a wrong choice of OpenBLAS is mended. */
static void cores(void)
{
    struct tern_err err = {0};

    if (tern_tensor_cpu() < TERN_TENSOR_CPU_AVX2) {
        tap_skip("no AVX2: core types not tried");
        return;
    }
    /* (0.3.34's float products of Prescott and double ones of Haswell crash, in a plain program,
     * too.) */
    if (sizeof(tern_real) == sizeof(double)) {
        tap_skip("core types are tried with float, which tern is built with");
        return;
    }
    ok(tern_tensor_blas_reload("Sandybridge", &err) == 0, "OpenBLAS takes a core type (%s)",
       err.text);
    is(tern_tensor_core(), "Sandybridge", "OpenBLAS names the core type that it took");
    ok(made_by("openblas"), "with a lesser core type products are OpenBLAS's");
    gemm(65, 33, 40);
    ok(tern_tensor_blas_reload("Haswell", &err) == 0, "OpenBLAS takes another core type (%s)",
       err.text);
    bool own = sizeof(tern_real) == sizeof(float) && tern_tensor_cpu() == TERN_TENSOR_CPU_AVX2;
    ok(made_by(own ? "avx2" : "openblas") && made_by("openblas") != own,
       "with Haswell products of few columns are %s", own ? "our own" : "OpenBLAS's");
    gemm(65, 33, 40);
    ok(getenv("OPENBLAS_CORETYPE") == NULL, "OPENBLAS_CORETYPE is unset afterwards");
    ok(tern_tensor_blas_reload("Abacus", &err) == -1, "an unknown core type is an error");
    has(err.text, "Abacus", "the error names the unknown core type");
    tern_tensor_blas_reload("Haswell", NULL);
}

int main(void)
{
    struct tern_err err = {0};

    unsetenv("OPENBLAS_CORETYPE");
    if (!ok(tern_tensor_start(2, 1, &err) == 0, "kernels start with two threads (%s)", err.text))
        return tap_done();
    printf("# %s\n", tern_tensor_describe());
    has(tern_tensor_blas(), "OpenBLAS 0.", "BLAS has a name");
    gemm(1, 1, 1);
    gemm(1, 65, 64);
    gemm(63, 64, 65);
    gemm(130, 20, 300);
    gemm(20, 130, 7);
    products();
    cores();
    return tap_done();
}
