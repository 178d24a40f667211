/* core/ckpt: conversions between element types. */
#include "core/ckpt/ckpt.h"
#include "tests/unit/tap.h"

#include <math.h>

static void test_convert(void)
{
    float f[] = {1.0f,     1.00390625f, 1.01171875f, -2.5f,    65504.0f,
                 65520.0f, 1e-8f,       NAN,         INFINITY, 3.3895314e38f};
    enum { N = sizeof f / sizeof *f };
    uint16_t b[N], h[N];
    float back[N];

    tern_ckpt_convert(b, TERN_CKPT_BF16, f, TERN_CKPT_F32, N);
    ok(b[0] == 0x3f80 && b[1] == 0x3f80 && b[2] == 0x3f82, "BF16 ties go to even");
    ok(b[8] == 0x7f80 && (b[7] & 0x7fff) > 0x7f80, "BF16 keeps infinity and NaN");
    tern_ckpt_convert(h, TERN_CKPT_F16, f, TERN_CKPT_F32, N);
    ok(h[0] == 0x3c00 && h[4] == 0x7bff && h[5] == 0x7c00 && h[6] == 0 && h[8] == 0x7c00,
       "F16 rounds, overflows to infinity, underflows to zero");
    bool all = true;
    for (uint32_t u = 0; u < 65536; u++) {
        uint16_t x = (uint16_t)u, y;
        double d;
        float v;
        for (int t = 0; t < 2; t++) {
            enum tern_ckpt_type small = t ? TERN_CKPT_F16 : TERN_CKPT_BF16;
            tern_ckpt_convert(&v, TERN_CKPT_F32, &x, small, 1);
            tern_ckpt_convert(&d, TERN_CKPT_F64, &v, TERN_CKPT_F32, 1);
            tern_ckpt_convert(&y, small, &d, TERN_CKPT_F64, 1);
            all = all && (isnan(v) ? y != 0 : x == y) && (isnan(v) || (double)v == d);
        }
    }
    ok(all, "every BF16 and F16 survives F32 and F64");
    /* Between each F16 and the next: the middle goes to the even one, what is beside it to the
     * nearer. */
    all = true;
    for (uint16_t x = 0; x < 0x7c00; x++) {
        uint16_t next = (uint16_t)(x + 1), got[3];
        double low, high;
        tern_ckpt_convert(&low, TERN_CKPT_F64, &x, TERN_CKPT_F16, 1);
        tern_ckpt_convert(&high, TERN_CKPT_F64, &next, TERN_CKPT_F16, 1);
        double middle = next == 0x7c00 ? 65520 : (low + high) / 2;
        const double at[] = {nextafter(middle, 0), middle, nextafter(middle, INFINITY)};
        tern_ckpt_convert(got, TERN_CKPT_F16, at, TERN_CKPT_F64, 3);
        all = all && got[0] == x && got[1] == (x & 1 ? next : x) && got[2] == next;
    }
    ok(all, "F64 to F16: to the nearest, ties to even, subnormals and the largest, too");
    /* Just above the tie between 1 and the next bfloat16, by less than a float sees. */
    double d = 1.00390625 + 1e-12;
    uint16_t up;
    tern_ckpt_convert(&up, TERN_CKPT_BF16, &d, TERN_CKPT_F64, 1);
    ok(up == 0x3f81, "F64 to BF16 is not rounded twice");
    tern_ckpt_convert(back, TERN_CKPT_F32, h, TERN_CKPT_F16, N);
    ok(back[3] == -2.5f && isnan(back[7]), "F16 to F32, eight at a time and the rest");
}

int main(void)
{
    test_convert();
    return tap_done();
}
