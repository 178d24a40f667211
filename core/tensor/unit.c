/* The unit that multiplies numbers of bf16. */
#include "core/tensor/kernels.h"

#include "core/base/vars.h"

#include <string.h>

static const char variable[] = "TERN_BF16_UNIT", none[] = "fp32";

const struct tern_tensor_products *tern_tensor_pairs;

/* CPUs whose unit for bf16 is faster than products of floats.  A table decides, and not a timing:
 * each unit has its own bits, and a run must have the same ones on the same CPU.
 * Zen 5: 1.9 times as fast (tests/bench/products.md).  Zen 4 makes as many VDPBF16PS in a cycle as
 * FMAs of 512 bits, each with twice the work.  Intel's are not in it: a Xeon that hides AMX
 * made 86 GF/s a core with it, and 175 with FMAs of floats.  Other CPUs were not measured. */
static const struct {
    const char *vendor;
    int family, first, last; /* models */
} faster[] = {
    {"AuthenticAMD", 0x19, 0x10, 0xaf}, /* Zen 4; Zen 3 beside it has no AVX-512 */
    {"AuthenticAMD", 0x1a, 0x00, 0xff}, /* Zen 5 */
};

/* The one that CPU, build and tern_real have, or NULL. */
static const struct tern_tensor_products *able(void)
{
    const struct tern_tensor_products *unit = &tern_tensor_products_bf16;
    bool can = sizeof(tern_real) == sizeof(float) && unit->gemm && tern_tensor_cpu_id().bf16;

    return can ? unit : NULL;
}

/* It, where it saves time, else NULL. */
static const struct tern_tensor_products *best(void)
{
    struct tern_tensor_cpu_id id = tern_tensor_cpu_id();
    int family, model;

    tern_tensor_cpu_family(id.signature, &family, &model);
    for (size_t i = 0; i < sizeof faster / sizeof *faster; i++)
        if (strcmp(id.vendor, faster[i].vendor) == 0 && family == faster[i].family &&
            model >= faster[i].first && model <= faster[i].last)
            return able();
    return NULL;
}

int tern_tensor_bf16_use(const char *name)
{
    const struct tern_tensor_products *unit = name ? able() : best();
    bool without = name && strcmp(name, none) == 0;

    if (name && !without && (!unit || strcmp(name, unit->name) != 0))
        return -1;
    tern_tensor_pairs = without ? NULL : unit;
    return 0;
}

int tern_tensor_bf16_start(struct tern_err *err)
{
    const struct tern_tensor_products *unit = able();
    const char *named = tern_var(variable);

    if (tern_tensor_bf16_use(named) == 0)
        return 0;
    return tern_err_set(err, TERN_USAGE, "%s: '%s' is no unit of this CPU: take %s%s%s", variable,
                        named, none, unit ? " or " : "", unit ? unit->name : "");
}

const char *tern_tensor_bf16_unit_expected(void)
{
    const char *named = tern_var(variable);
    const struct tern_tensor_products *unit = named ? able() : best();

    return unit && !(named && strcmp(named, none) == 0) ? unit->name : none;
}

const char *tern_tensor_bf16_unit(void)
{
    return tern_tensor_pairs ? tern_tensor_pairs->name : none;
}

bool tern_tensor_bf16_rounds(void)
{
    return tern_tensor_pairs != NULL;
}

const char *tern_tensor_bf16_describe(void)
{
    if (strcmp(tern_tensor_bf16_unit_expected(), none) != 0)
        return best() ? "products of bf16: avx512_bf16"
                      : "products of bf16: avx512_bf16, as TERN_BF16_UNIT says";
    if (able() && tern_var(variable))
        return "products of bf16: fp32, as TERN_BF16_UNIT says";
    if (able())
        return "products of bf16: fp32, as AVX512_BF16 of this CPU is not known to be faster "
               "(TERN_BF16_UNIT=avx512_bf16 uses it)";
    if (tern_tensor_cpu_id().bf16)
        return "products of bf16: fp32, as the compiler of this build had no AVX512_BF16";
    return "products of bf16: fp32, as this CPU has no AVX512_BF16";
}
