/* The unit that multiplies numbers of bf16. */
#include "core/tensor/kernels.h"

#include "core/base/vars.h"

#include <string.h>

static const char variable[] = "TERN_BF16_UNIT", none[] = "fp32";

const struct tern_tensor_products *tern_tensor_pairs;

/* The one that CPU, build and tern_real have, or NULL. */
static const struct tern_tensor_products *best(void)
{
    const struct tern_tensor_products *unit = &tern_tensor_products_bf16;
    bool can = sizeof(tern_real) == sizeof(float) && unit->gemm && tern_tensor_cpu_bf16();

    return can ? unit : NULL;
}

int tern_tensor_bf16_use(const char *name)
{
    const struct tern_tensor_products *unit = best();
    bool without = name && strcmp(name, none) == 0;

    if (name && !without && (!unit || strcmp(name, unit->name) != 0))
        return -1;
    tern_tensor_pairs = without ? NULL : unit;
    return 0;
}

int tern_tensor_bf16_start(struct tern_err *err)
{
    const struct tern_tensor_products *unit = best();
    const char *named = tern_var(variable);

    if (tern_tensor_bf16_use(named) == 0)
        return 0;
    return tern_err_set(err, TERN_USAGE, "%s: '%s' is no unit of this CPU: take %s%s%s", variable,
                        named, none, unit ? " or " : "", unit ? unit->name : "");
}

bool tern_tensor_bf16_expected(void)
{
    const char *named = tern_var(variable);

    return best() && !(named && strcmp(named, none) == 0);
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
    if (tern_tensor_bf16_expected())
        return "products of bf16: avx512_bf16";
    if (best())
        return "products of bf16: fp32, as TERN_BF16_UNIT says";
    if (tern_tensor_cpu_bf16())
        return "products of bf16: fp32, as the compiler of this build had no AVX512_BF16";
    return "products of bf16: fp32, as this CPU has no AVX512_BF16";
}
