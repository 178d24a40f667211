/* OpenBLAS: loaded at run time, because its kernels are chosen while it loads, by an environment
 * variable that must be there before. */
#include "core/tensor/kernels.h"

#include <cblas.h>
#include <dlfcn.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* The link line's rpath points at the OpenMP build, which shares our threads. */
static const char library[] = "libopenblas.so.0";
static const char core_variable[] = "OPENBLAS_CORETYPE";

static struct {
    void *handle;
    __typeof__(cblas_sgemm) *sgemm;
    __typeof__(cblas_dgemm) *dgemm;
    __typeof__(openblas_get_corename) *corename;
    __typeof__(openblas_get_config) *config;
    __typeof__(openblas_get_parallel) *parallel;
    __typeof__(openblas_set_num_threads) *set_threads;
} blas;

static char blas_name[64] = "no BLAS", blas_core[64] = "";

const char *tern_tensor_blas(void)
{
    return blas_name;
}

const char *tern_tensor_core(void)
{
    return blas_core;
}

enum tern_tensor_cpu tern_tensor_cpu(void)
{
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
        return TERN_TENSOR_CPU_AVX512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return TERN_TENSOR_CPU_AVX2;
    return TERN_TENSOR_CPU_PLAIN;
}

/* What a core type's sgemm uses.  OpenBLAS's names (driver/others/dynamic.c); those of other
 * processors and older ones are all "plain" here. */
static enum tern_tensor_cpu core_uses(const char *core)
{
    static const char *const avx512[] = {"SkylakeX", "Cooperlake", "SapphireRapids", NULL};
    static const char *const avx2[] = {"Haswell", "Zen", "Excavator", NULL};

    for (int i = 0; avx512[i]; i++)
        if (strcasecmp(core, avx512[i]) == 0)
            return TERN_TENSOR_CPU_AVX512;
    for (int i = 0; avx2[i]; i++)
        if (strcasecmp(core, avx2[i]) == 0)
            return TERN_TENSOR_CPU_AVX2;
    return TERN_TENSOR_CPU_PLAIN;
}

static void *symbol(const char *name, struct tern_err *err)
{
    void *p = dlsym(blas.handle, name);

    if (!p)
        tern_err_set(err, TERN_FAILED,
                     "%s has no %s: it is not OpenBLAS.  Install libopenblas0-openmp.", library,
                     name);
    return p;
}

static int load(struct tern_err *err)
{
    blas.handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!blas.handle)
        return tern_err_set(err, TERN_FAILED,
                            "cannot load OpenBLAS: %s.  Install libopenblas0-openmp.", dlerror());
    if (!(blas.sgemm = symbol("cblas_sgemm", err)) || !(blas.dgemm = symbol("cblas_dgemm", err)) ||
        !(blas.corename = symbol("openblas_get_corename", err)) ||
        !(blas.config = symbol("openblas_get_config", err)) ||
        !(blas.parallel = symbol("openblas_get_parallel", err)) ||
        !(blas.set_threads = symbol("openblas_set_num_threads", err))) {
        dlclose(blas.handle);
        blas.handle = NULL;
        return -1;
    }
    return 0;
}

/* Set the texts, and leave the threads to us. */
static void describe(void)
{
    const char *config = blas.config(); /* "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ..." */
    size_t word = strcspn(config, " "), words = word + strspn(config + word, " ");

    words += strcspn(config + words, " ");
    snprintf(blas_name, sizeof(blas_name), "%.*s", (int)words, config);
    snprintf(blas_core, sizeof(blas_core), "%s", blas.corename());
    /* 1: a thread pool of its own, which would multiply ours. */
    if (blas.parallel() == 1)
        blas.set_threads(1);
}

int tern_tensor_blas_reload(const char *core, struct tern_err *err)
{
    int rc;

    dlclose(blas.handle);
    setenv(core_variable, core, 1);
    rc = load(err);
    unsetenv(core_variable);
    if (rc < 0)
        return -1;
    describe();
    if (strcasecmp(blas_core, core) != 0)
        return tern_err_set(err, TERN_FAILED, "OpenBLAS has no kernels for %s", core);
    return 0;
}

int tern_tensor_blas_load(char *why, size_t why_size, struct tern_err *err)
{
    static const char *const wanted[] = {
        [TERN_TENSOR_CPU_AVX2] = "Haswell", [TERN_TENSOR_CPU_AVX512] = "SkylakeX"};
    const char *user = getenv(core_variable);
    enum tern_tensor_cpu cpu = tern_tensor_cpu();
    char own[sizeof(blas_core)];
    bool slow;

    if (user && !*user) {
        unsetenv(core_variable);
        user = NULL;
    }
    if (load(err) < 0)
        return -1;
    describe();
    slow = core_uses(blas_core) < cpu;
    if (user) {
        snprintf(why, why_size, " as %s says%s", core_variable,
                 slow ? " (unset it: this CPU can do better)" : "");
    } else if (slow) {
        snprintf(own, sizeof(own), "%s", blas_core);
        if (tern_tensor_blas_reload(wanted[cpu], NULL) == 0)
            snprintf(why, why_size, " (by itself it takes this CPU for a %s)", own);
        else if (!blas.handle)
            return tern_err_set(err, TERN_FAILED, "cannot load OpenBLAS a second time");
        else
            snprintf(why, why_size, " (slow: start with %s=%s)", core_variable, wanted[cpu]);
    }
    return 0;
}

static void product(bool ta, bool tb, int M, int N, int K, tern_real alpha, const tern_real *A,
                    int lda, const tern_real *B, int ldb, tern_real beta, tern_real *C, int ldc)
{
    enum CBLAS_TRANSPOSE opa = ta ? CblasTrans : CblasNoTrans, opb = tb ? CblasTrans : CblasNoTrans;

    if (sizeof(tern_real) == sizeof(float))
        blas.sgemm(CblasRowMajor, opa, opb, M, N, K, (float)alpha, (const float *)(const void *)A,
                   lda, (const float *)(const void *)B, ldb, (float)beta, (float *)(void *)C, ldc);
    else
        blas.dgemm(CblasRowMajor, opa, opb, M, N, K, (double)alpha, (const double *)(const void *)A,
                   lda, (const double *)(const void *)B, ldb, (double)beta, (double *)(void *)C,
                   ldc);
}

/* Where thread p of P begins, at a multiple of 16: the width of the micro-kernels. */
static int cut(int n, int p, int P)
{
    return p == P ? n : (int)((int64_t)n * p / P / 16 * 16);
}

void tern_tensor_gemm(bool ta, bool tb, int M, int N, int K, tern_real alpha, const tern_real *A,
                      int lda, const tern_real *B, int ldb, tern_real beta, tern_real *C, int ldc)
{
    if (omp_in_parallel()) {
        product(ta, tb, M, N, K, alpha, A, lda, B, ldb, beta, C, ldc);
        return;
    }
#pragma omp parallel
    {
        int P = omp_get_num_threads(), p = omp_get_thread_num();

        if (M >= N) {
            int m = cut(M, p, P), rows = cut(M, p + 1, P) - m;

            if (rows > 0)
                product(ta, tb, rows, N, K, alpha, A + (ta ? (size_t)m : (size_t)m * (size_t)lda),
                        lda, B, ldb, beta, C + (size_t)m * (size_t)ldc, ldc);
        } else {
            int n = cut(N, p, P), cols = cut(N, p + 1, P) - n;

            if (cols > 0)
                product(ta, tb, M, cols, K, alpha, A, lda,
                        B + (tb ? (size_t)n * (size_t)ldb : (size_t)n), ldb, beta, C + n, ldc);
        }
    }
}
