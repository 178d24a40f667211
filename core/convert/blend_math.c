/* The arithmetic of blends. */
#include "core/convert/blend_math.h"

#include "core/base/assert.h"
#include "core/base/hash.h"
#include "core/base/rand.h"
#include "core/base/str.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- linear, slerp */

void tern_convert_blend_mean(const double *const *x, const double *weights, size_t n_models,
                             double divisor, size_t n, double *ret)
{
    for (size_t i = 0; i < n; i++) {
        double sum = 0;
        for (size_t k = 0; k < n_models; k++)
            sum += weights[k] * x[k][i];
        ret[i] = sum / divisor;
    }
}

void tern_convert_blend_arc(double aa, double bb, double ab, double t, double *ret_a, double *ret_b)
{
    const double a = sqrt(aa) > 1e-8 ? sqrt(aa) : 1, b = sqrt(bb) > 1e-8 ? sqrt(bb) : 1;
    const double cosine = fmax(-1, fmin(1, ab / a / b));

    if (fabs(cosine) > 0.9995) {
        *ret_a = 1 - t;
        *ret_b = t;
        return;
    }
    const double angle = acos(cosine);
    *ret_a = sin((1 - t) * angle) / sin(angle);
    *ret_b = sin(t * angle) / sin(angle);
}

/* ---------------------------------------------------------------- ties: the greatest magnitudes */

enum { LOWER = 15 }; /* bits of a magnitude that the second pass counts */

/* They order as the magnitudes do. */
static uint32_t magnitude(float x)
{
    uint32_t u;

    memcpy(&u, &x, sizeof u);
    return u & 0x7fffffffu;
}

void tern_convert_blend_top_begin(struct tern_convert_blend_top *t, uint64_t k)
{
    memset(t, 0, sizeof *t);
    t->equal = k;
}

void tern_convert_blend_top_add(struct tern_convert_blend_top *t, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint32_t m = magnitude(x[i]);
        if (t->pass == 0)
            t->counts[m >> LOWER]++;
        else if (m >> LOWER == t->least >> LOWER)
            t->counts[m & ((1u << LOWER) - 1)]++;
    }
}

/* From the greatest down, until what is still wanted fits into one count. */
void tern_convert_blend_top_next(struct tern_convert_blend_top *t)
{
    uint32_t at = t->pass == 0 ? (1u << 16) - 1 : (1u << LOWER) - 1;

    while (t->counts[at] < t->equal && at > 0)
        t->equal -= t->counts[at--];
    tern_assert(t->equal <= t->counts[at], "more magnitudes are to stay than were seen");
    t->least |= t->pass == 0 ? at << LOWER : at;
    memset(t->counts, 0, sizeof t->counts);
    t->pass++;
}

uint64_t tern_convert_blend_top_equals(const struct tern_convert_blend_top *t, const float *x,
                                       size_t n)
{
    uint64_t equals = 0;

    for (size_t i = 0; i < n; i++)
        equals += magnitude(x[i]) == t->least;
    return equals;
}

void tern_convert_blend_top_keep(const struct tern_convert_blend_top *t, uint64_t before, float *x,
                                 size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint32_t m = magnitude(x[i]);
        if (m < t->least || (m == t->least && before++ >= t->equal))
            x[i] = 0;
    }
}

uint64_t tern_convert_blend_top_of(uint64_t n, double density)
{
    const uint64_t k = (uint64_t)(density * (double)n);

    return k < 1 ? 1 : k < n ? k : n;
}

/* ---------------------------------------------------------------- dare: a random part */

uint64_t tern_convert_blend_stream(const char *tensor, size_t k)
{
    char *name = tern_strf("%s %zu", tensor, k);
    uint8_t digest[TERN_SHA256_BYTES];
    uint64_t stream = 0;

    tern_sha256(name, strlen(name), digest);
    for (int i = 0; i < 8; i++)
        stream = stream << 8 | digest[i];
    free(name);
    return stream;
}

bool tern_convert_blend_stays(const struct tern_convert_blend_part *p, uint64_t i)
{
    return tern_rand_unit(p->seed, p->stream, i) < p->density;
}

void tern_convert_blend_part_keep(const struct tern_convert_blend_part *p, uint64_t first,
                                  float scale, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = tern_convert_blend_stays(p, first + i) ? x[i] * scale : 0;
}

void tern_convert_blend_part_norms(const struct tern_convert_blend_part *p, uint64_t first,
                                   const float *x, size_t n, double *ret_all, double *ret_kept)
{
    for (size_t i = 0; i < n; i++) {
        const double m = fabs((double)x[i]);
        *ret_all += m;
        if (tern_convert_blend_stays(p, first + i))
            *ret_kept += m;
    }
}

float tern_convert_blend_rescale(double all, double kept)
{
    return all < 1e-7 || kept < 1e-7 ? 1 : (float)(all / kept);
}

/* ---------------------------------------------------------------- ties, dare: the sum */

void tern_convert_blend_add(const struct tern_convert_blend_sum *s, const float *base,
                            const float *const *x, size_t n, double *ret)
{
    for (size_t i = 0; i < n; i++) {
        /* In float, as its sign decides and is to be mergekit's. */
        float total = 0, divisor = 0;
        double mixed = 0;
        for (size_t k = 0; s->signs && k < s->n_models; k++)
            total += s->weights[k] * x[k][i];
        for (size_t k = 0; k < s->n_models; k++) {
            const float one = s->weights[k] * x[k][i];
            if (s->signs && (total >= 0 ? !(one > 0) : !(one < 0)))
                continue;
            mixed += (double)one;
            divisor += s->weights[k];
        }
        if (s->signs ? divisor == 0 : fabsf(divisor) < 1e-8f)
            divisor = 1;
        if (s->normalize)
            mixed /= (double)divisor;
        ret[i] = (double)base[i] + s->lambda * mixed;
    }
}
