/* One call of a collective, in 64 bits: which one, on how many elements of which type, combined
 * how, from which root.  Messages carry it, ranks compare it, and dumps hold it (core/flight). */
#ifndef TERN_BASE_CALL_H
#define TERN_BASE_CALL_H

#include <stddef.h>
#include <stdint.h>

/* The values of all three stand in dumps: do not renumber. */
enum tern_type { TERN_F32, TERN_F64, TERN_BF16, TERN_I32, TERN_I64, TERN_U8 };
/* Integer sums wrap; an integer average is cut towards zero; NaN wins MAX and MIN. */
enum tern_op { TERN_SUM, TERN_AVG, TERN_MAX, TERN_MIN };
enum tern_call {
    TERN_CALL_NONE,
    TERN_CALL_ALL_REDUCE,
    TERN_CALL_REDUCE_SCATTER,
    TERN_CALL_ALL_GATHER,
    TERN_CALL_BROADCAST,
    TERN_CALL_BARRIER
};

size_t tern_type_bytes(enum tern_type type);
const char *tern_type_name(enum tern_type type); /* "f32", ... */
const char *tern_op_name(enum tern_op op);       /* "sum", ... */

/*  63    61 60   58 57  56 55          40 39                     0
 * +--------+-------+------+--------------+------------------------+
 * |  call  | type  |  op  |  root member |    count of elements   |
 * +--------+-------+------+--------------+------------------------+ */
uint64_t tern_call_pack(enum tern_call call, enum tern_type type, enum tern_op op, int root,
                        size_t count);
static inline enum tern_call tern_call_kind(uint64_t desc)
{
    return (enum tern_call)(desc >> 61);
}
static inline int tern_call_root(uint64_t desc)
{
    return (int)(desc >> 40 & 0xffff);
}
/* "all_reduce f32 sum 4096" into to[n]; returns `to`.  Any bits are fine. */
char *tern_call_text(char *to, size_t n, uint64_t desc);
uint32_t tern_call_hash(uint64_t desc); /* travels with every message */

#endif
