/* A stand-in for a serial build of OpenBLAS: plain loops, and the end of the process where two
 * threads are in them at once.  TEST_BLAS_PARALLEL: it says that it is of this kind (1 threads of
 * its own, 2 OpenMP) for a run with one thread. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

static atomic_int inside;

static void enter(void)
{
    if (atomic_fetch_add(&inside, 1)) {
        fprintf(stderr, "serial_blas: two threads at once\n");
        abort();
    }
}

#define GEMM(name, type)                                                                           \
    void name(int order, int ta, int tb, int M, int N, int K, type alpha, const type *A, int lda,  \
              const type *B, int ldb, type beta, type *C, int ldc);                                \
    void name(int order, int ta, int tb, int M, int N, int K, type alpha, const type *A, int lda,  \
              const type *B, int ldb, type beta, type *C, int ldc)                                 \
    {                                                                                              \
        (void)order;                                                                               \
        enter();                                                                                   \
        for (long i = 0; i < M; i++)                                                               \
            for (long j = 0; j < N; j++) {                                                         \
                type s = 0;                                                                        \
                for (long k = 0; k < K; k++)                                                       \
                    s += (ta == 112 ? A[k * lda + i] : A[i * lda + k]) *                           \
                         (tb == 112 ? B[j * ldb + k] : B[k * ldb + j]);                            \
                C[i * ldc + j] = alpha * s + (beta != 0 ? beta * C[i * ldc + j] : 0);              \
            }                                                                                      \
        atomic_fetch_sub(&inside, 1);                                                              \
    }
GEMM(cblas_sgemm, float)
GEMM(cblas_dgemm, double)

char *openblas_get_corename(void);
char *openblas_get_corename(void)
{
    return getenv("OPENBLAS_CORETYPE") ? getenv("OPENBLAS_CORETYPE") : "Prescott";
}

char *openblas_get_config(void);
char *openblas_get_config(void)
{
    return "OpenBLAS 0.0.0 SERIAL_STAND_IN";
}

int openblas_get_parallel(void);
int openblas_get_parallel(void)
{
    const char *kind = getenv("TEST_BLAS_PARALLEL");

    return kind ? atoi(kind) : 0;
}

void openblas_set_num_threads(int n);
void openblas_set_num_threads(int n)
{
    (void)n;
}
