/* Shared by the algorithms on slices (algo_slices.c, algo_halving.c). */
#ifndef TERN_COLL_SLICES_H
#define TERN_COLL_SLICES_H

#include "core/coll/program.h"

/* Slice t begins `stride` elements behind slice t - 1 and has up to `len` elements; nothing lies
 * beyond `end`. */
struct cut {
    size_t stride, len, end;
};

struct job {
    const struct tern_coll_shape *c;
    const struct tern_coll_task *t;
    struct tern_coll_program *p;
    struct cut cut;
    size_t at; /* bytes before this list's part in the caller's buffers */
    enum tern_type partial;
    size_t es, pes; /* bytes of an element, and of a partly combined one */
    bool combines;  /* what goes to other nodes is made in the work space */
};

/* The elements of slice t. */
size_t tern_coll_slices_len(const struct job *j, int t);
/* Element `i` of slice t where the whole result is put together. */
struct tern_coll_spot tern_coll_slices_base(const struct job *j, int t, size_t i);
/* This node's part of elements [i, i + n) of slice t: combined to `to`, or where it lies. */
struct tern_coll_spot tern_coll_slices_combine(const struct job *j, int t, size_t i, size_t n,
                                               struct tern_coll_spot to);
/* Where this rank's slice of the result goes, from element i on; how many places. */
int tern_coll_slices_destinations(const struct job *j, size_t i, struct tern_coll_spot *dst);
void tern_coll_slices_wait_all(const struct job *j);

/* algo_halving.c: reduce, and with `spread` bring the whole result to base. */
void tern_coll_algo_halving(const struct job *j, bool spread);

#endif
