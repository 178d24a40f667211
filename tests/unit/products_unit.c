/* The choice of the unit for bf16, by CPUs that the test pretends: none of their products is made.
 */
#include "core/tensor/kernels.h"
#include "tests/unit/tap.h"

/* Signatures (CPUID, leaf 1, eax) as the CPUs have them, and AVX512_BF16 where the CPU has it. */
static const struct {
    const char *name;
    struct tern_tensor_cpu_id id;
    int family, model;
    bool faster;
} cpus[] = {
    {"EPYC 9004, Zen 4", {"AuthenticAMD", 0x00a10f11, true}, 0x19, 0x11, true},
    {"EPYC 9754, Zen 4c", {"AuthenticAMD", 0x00aa0f02, true}, 0x19, 0xa0, true},
    {"Ryzen 7000, Zen 4", {"AuthenticAMD", 0x00a60f12, true}, 0x19, 0x61, true},
    {"EPYC 9005, Zen 5", {"AuthenticAMD", 0x00b00f21, true}, 0x1a, 0x02, true},
    {"EPYC 9005, Zen 5c", {"AuthenticAMD", 0x00b10f10, true}, 0x1a, 0x11, true},
    {"EPYC 7003, Zen 3", {"AuthenticAMD", 0x00a00f11, false}, 0x19, 0x01, false},
    {"EPYC 9005 whose hypervisor hides it", {"AuthenticAMD", 0x00b00f21, false}, 0x1a, 0x02, false},
    {"an AMD CPU of a family to come", {"AuthenticAMD", 0x00c00f00, true}, 0x1b, 0x00, false},
    {"Cooper Lake", {"GenuineIntel", 0x0005065b, true}, 6, 0x55, false},
    {"Sapphire Rapids", {"GenuineIntel", 0x000806f8, true}, 6, 0x8f, false},
    {"Emerald Rapids", {"GenuineIntel", 0x000c06f2, true}, 6, 0xcf, false},
    {"Granite Rapids", {"GenuineIntel", 0x000a06d1, true}, 6, 0xad, false},
    {"Ice Lake", {"GenuineIntel", 0x000606a6, false}, 6, 0x6a, false},
    {"an Intel CPU with Zen 5's numbers", {"GenuineIntel", 0x00b00f21, true}, 0x1a, 0x02, false},
    {"arm64", {"", 0, false}, 0, 0, false},
};

static const char unit_name[] = "avx512_bf16";
/* Does the compiler know it?  Else no CPU gets it. */
static bool built;

static const char *words(bool bf16, bool faster, const char *named)
{
    if (!bf16)
        return "products of bf16: fp32, as this CPU has no AVX512_BF16";
    if (!built)
        return "products of bf16: fp32, as the compiler of this build had no AVX512_BF16";
    if (named && strcmp(named, "fp32") == 0)
        return "products of bf16: fp32, as TERN_BF16_UNIT says";
    if (named && !faster)
        return "products of bf16: avx512_bf16, as TERN_BF16_UNIT says";
    if (!faster)
        return "products of bf16: fp32, as AVX512_BF16 of this CPU is not known to be faster "
               "(TERN_BF16_UNIT=avx512_bf16 uses it)";
    return "products of bf16: avx512_bf16";
}

/* With TERN_BF16_UNIT=`named`, or without it. */
static void choice(const char *name, bool bf16, bool faster, const char *named)
{
    struct tern_err err = {0};
    bool can = bf16 && built, unit = named ? can && strcmp(named, unit_name) == 0 : can && faster;
    char is_chosen[128], is_said[128];

    snprintf(is_chosen, sizeof is_chosen, "%s%s%s: the unit of a start", name,
             named ? ", TERN_BF16_UNIT=" : "", named ? named : "");
    snprintf(is_said, sizeof is_said, "%s%s%s: the words of the log", name,
             named ? ", TERN_BF16_UNIT=" : "", named ? named : "");
    if (named)
        setenv("TERN_BF16_UNIT", named, 1);
    if (named && !can && strcmp(named, unit_name) == 0) {
        ok(tern_tensor_bf16_start(&err) == -1 && err.code == TERN_USAGE, "%s is refused",
           is_chosen);
        is(err.text, "TERN_BF16_UNIT: 'avx512_bf16' is no unit of this CPU: take fp32",
           "the error of a unit that the CPU lacks names the one that it has");
    } else {
        ok(tern_tensor_bf16_start(&err) == 0, "%s is found", is_chosen);
        is(tern_tensor_bf16_unit(), unit ? unit_name : "fp32", is_chosen);
        is(tern_tensor_bf16_unit_expected(), tern_tensor_bf16_unit(),
           "the unit that is expected before a start is the one that it takes");
        is(tern_tensor_bf16_describe(), words(bf16, faster, named), is_said);
    }
    unsetenv("TERN_BF16_UNIT");
}

int main(void)
{
    unsetenv("TERN_BF16_UNIT");
    built = tern_tensor_products_bf16.gemm != NULL;
    for (size_t i = 0; i < sizeof cpus / sizeof *cpus; i++) {
        int family, model;

        tern_tensor_cpu_family(cpus[i].id.signature, &family, &model);
        ok(family == cpus[i].family && model == cpus[i].model,
           "%s: family %#x and model %#x are read from the signature", cpus[i].name,
           (unsigned)family, (unsigned)model);
        tern_tensor_cpu_pretend(&cpus[i].id);
        choice(cpus[i].name, cpus[i].id.bf16, cpus[i].faster, NULL);
        choice(cpus[i].name, cpus[i].id.bf16, cpus[i].faster, "fp32");
        choice(cpus[i].name, cpus[i].id.bf16, cpus[i].faster, unit_name);
    }
    tern_tensor_cpu_pretend(NULL);
    struct tern_tensor_cpu_id id = tern_tensor_cpu_id();
    printf("# this CPU: '%s', signature %#x, AVX512_BF16: %s\n", id.vendor, id.signature,
           id.bf16 ? "yes" : "no");
    ok(!id.bf16 || tern_tensor_cpu() == TERN_TENSOR_CPU_AVX512,
       "a CPU has the unit for bf16 only beside the vectors of AVX-512");
    return tap_done();
}
