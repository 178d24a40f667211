/* The choice of BLAS, loops and threads for this process. */
#include "core/tensor/kernels.h"

#include "core/base/str.h"

#include <omp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct tern_tensor_kernels *tern_tensor_k = &tern_tensor_kernels_plain;

static int n_threads = 1;
static char description[256] = "not started";

int tern_tensor_threads(void)
{
    return n_threads;
}

const char *tern_tensor_kernels(void)
{
    return tern_tensor_k->name;
}

const char *tern_tensor_describe(void)
{
    return description;
}

static const struct tern_tensor_kernels *const all[] = {
    [TERN_TENSOR_CPU_PLAIN] = &tern_tensor_kernels_plain,
#ifdef __x86_64__
    [TERN_TENSOR_CPU_AVX2] = &tern_tensor_kernels_avx2,
    [TERN_TENSOR_CPU_AVX512] = &tern_tensor_kernels_avx512,
#endif
};

const char *tern_tensor_kernels_expected(void)
{
    return all[tern_tensor_cpu()]->name;
}

int tern_tensor_kernels_use(const char *name)
{
    for (int i = 0; i <= (int)tern_tensor_cpu(); i++)
        if (!name || strcmp(all[i]->name, name) == 0)
            tern_tensor_k = all[i];
    return name && strcmp(tern_tensor_k->name, name) != 0 ? -1 : 0;
}

int tern_tensor_start_threads(int threads, int local_ranks)
{
    const char *s = getenv("OMP_NUM_THREADS");
    int64_t n;
    cpu_set_t cpus;

    if (threads > 0)
        return threads;
    if (s && tern_str_int(s, 1, 1024, &n) == 0)
        return (int)n;
    n = sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
    if (local_ranks > 1)
        n /= local_ranks;
    return n < 1 ? 1 : (int)n;
}

int tern_tensor_start(int threads, int local_ranks, struct tern_err *err)
{
    static bool started;
    char why[128] = "";

    if (started)
        return 0;
    n_threads = tern_tensor_start_threads(threads, local_ranks);
    omp_set_num_threads(n_threads);
    if (tern_tensor_bf16_start(err) < 0 || tern_tensor_blas_load(why, sizeof(why), err) < 0)
        return -1;
    tern_tensor_kernels_use(NULL);
    snprintf(description, sizeof(description), "%s, %s kernels%s; %s loops; %d thread%s",
             tern_tensor_blas(), tern_tensor_core(), why, tern_tensor_k->name, n_threads,
             n_threads == 1 ? "" : "s");
    started = true;
    return 0;
}
