/* What differs between two checkpoints, array by array.
 *
 * Without `values` nothing is read but names, types, shapes, and the digests of slices, which
 * opening has read.  The digests tell where both sides are cut alike.  With it every byte is read,
 * a few MiB at a time, and how far values lie apart is computed in double. */
#ifndef TERN_CKPT_DIFF_H
#define TERN_CKPT_DIFF_H

#include <signal.h>

#include "core/ckpt/ckpt.h"

enum tern_ckpt_change {
    TERN_CKPT_SAME,     /* the same bits, of the same type */
    TERN_CKPT_CHANGED,  /* other elements; or the same ones in another type */
    TERN_CKPT_RESHAPED, /* another shape */
    TERN_CKPT_ONLY_A,
    TERN_CKPT_ONLY_B,
    TERN_CKPT_UNKNOWN, /* type and shape are the same, and nothing tells whether the elements are */
};

struct tern_ckpt_diff_row {
    const char *name; /* without the prefix */
    enum tern_ckpt_change change;
    struct tern_ckpt_info a, b; /* of the sides that have it */
    /* With `values`, of CHANGED and SAME ones: elements, and those that differ.  They differ in
     * bits, so that -0.0 differs from 0.0; of two types in value or sign.  Of numbers the largest
     * |a - b|, sqrt(sum (a - b)^2) and sqrt(sum a^2).  NaN lies at no distance from NaN, and
     * infinitely far from a number.  Of a type that tern does not know, elements are bytes, at no
     * distance. */
    bool compared;
    uint64_t elements, changed;
    double largest, distance, norm;
};

struct tern_ckpt_diff_how {
    const char *prefix_a, *prefix_b; /* arrays whose names begin so, compared without it; "": all */
    bool values;
    const volatile sig_atomic_t *stop; /* not 0: give up (Ctrl-C); NULL: never */
    /* Each array, in the order of a, then those of b alone.  0 to go on. */
    int (*each)(void *ctx, const struct tern_ckpt_diff_row *row, struct tern_err *err);
    void *ctx;
};

int tern_ckpt_diff(struct tern_ckpt *a, struct tern_ckpt *b, const struct tern_ckpt_diff_how *how,
                   struct tern_err *err);

#endif
