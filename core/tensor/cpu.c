/* What the CPU can do, and whether OpenBLAS knows it.  Kernels of our own are for x86-64; elsewhere
 * the loops are the plain ones, which the compiler makes vectors of, and products are OpenBLAS's.
 */
#include "core/tensor/kernels.h"

#ifdef __x86_64__
#include <cpuid.h>
#include <string.h>

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

static struct tern_tensor_cpu_id ask(void)
{
    struct tern_tensor_cpu_id id = {"", 0, false};
    unsigned eax, ebx, ecx, edx;

    if (__get_cpuid(0, &eax, &ebx, &ecx, &edx)) {
        const unsigned vendor[] = {ebx, edx, ecx};
        memcpy(id.vendor, vendor, sizeof vendor);
    }
    if (__get_cpuid(1, &eax, &ebx, &ecx, &edx))
        id.signature = eax;
    /* By the bit itself: older compilers have no name for it. */
    id.bf16 = tern_tensor_cpu() == TERN_TENSOR_CPU_AVX512 &&
              __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) && (eax >> 5 & 1);
    return id;
}

/* Intel's from Haswell to Rocket Lake and AMD's Zen 1 to 3 (OpenBLAS's driver/others/dynamic.c). */
bool tern_tensor_cpu_well_known(void)
{
    static const unsigned char intel[] = {0x3c, 0x3d, 0x3f, 0x45, 0x46, 0x47, 0x4e, 0x4f,
                                          0x55, 0x56, 0x5e, 0x66, 0x6a, 0x6c, 0x7d, 0x7e,
                                          0x8c, 0x8d, 0x8e, 0x9e, 0xa5, 0xa6, 0xa7};
    unsigned eax, ebx, ecx, edx;
    int family, model;

    if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx))
        return false;
    tern_tensor_cpu_family(eax, &family, &model);
    if (family == 6)
        return memchr(intel, model, sizeof(intel)) != NULL;
    return (family == 0x17 || family == 0x19) && tern_tensor_cpu() < TERN_TENSOR_CPU_AVX512;
}
#else
enum tern_tensor_cpu tern_tensor_cpu(void)
{
    return TERN_TENSOR_CPU_PLAIN;
}

static struct tern_tensor_cpu_id ask(void)
{
    return (struct tern_tensor_cpu_id){"", 0, false};
}

bool tern_tensor_cpu_well_known(void)
{
    return false;
}
#endif

static const struct tern_tensor_cpu_id *pretended;

void tern_tensor_cpu_pretend(const struct tern_tensor_cpu_id *id)
{
    pretended = id;
}

struct tern_tensor_cpu_id tern_tensor_cpu_id(void)
{
    return pretended ? *pretended : ask();
}

void tern_tensor_cpu_family(unsigned signature, int *ret_family, int *ret_model)
{
    unsigned family = signature >> 8 & 15, model = signature >> 4 & 15;

    if (family == 6 || family == 15)
        model |= signature >> 12 & 0xf0;
    if (family == 15)
        family += signature >> 20 & 255;
    *ret_family = (int)family;
    *ret_model = (int)model;
}
