#include "core/base/call.h"

#include <stdio.h>

static const struct {
    const char *name;
    size_t bytes;
} types[] = {
    [TERN_F32] = {"f32", 4}, [TERN_F64] = {"f64", 8}, [TERN_BF16] = {"bf16", 2},
    [TERN_I32] = {"i32", 4}, [TERN_I64] = {"i64", 8}, [TERN_U8] = {"u8", 1},
};
static const char *const ops[] = {"sum", "avg", "max", "min"};
static const char *const calls[] = {"nothing",    "all_reduce", "reduce_scatter",
                                    "all_gather", "broadcast",  "barrier"};

size_t tern_type_bytes(enum tern_type type)
{
    return types[type].bytes;
}

const char *tern_type_name(enum tern_type type)
{
    return types[type].name;
}

const char *tern_op_name(enum tern_op op)
{
    return ops[op];
}

uint64_t tern_call_pack(enum tern_call call, enum tern_type type, enum tern_op op, int root,
                        size_t count)
{
    return (uint64_t)call << 61 | (uint64_t)type << 58 | (uint64_t)op << 56 |
           (uint64_t)(root & 0xffff) << 40 | (count & 0xffffffffff);
}

uint32_t tern_call_hash(uint64_t desc)
{
    return (uint32_t)((desc * 0x9e3779b97f4a7c15ull) >> 32);
}

char *tern_call_text(char *to, size_t n, uint64_t desc)
{
    unsigned call = tern_call_kind(desc), type = desc >> 58 & 7, op = desc >> 56 & 3;
    unsigned long long count = desc & 0xffffffffff;
    const char *name = call < sizeof calls / sizeof *calls ? calls[call] : "?";
    const char *tname = type < sizeof types / sizeof *types ? types[type].name : "?";

    if (call == TERN_CALL_BARRIER || call == TERN_CALL_NONE)
        snprintf(to, n, "%s", name);
    else if (call == TERN_CALL_ALL_GATHER)
        snprintf(to, n, "%s %s %llu", name, tname, count);
    else if (call == TERN_CALL_BROADCAST)
        snprintf(to, n, "%s %s %llu from %d", name, tname, count, tern_call_root(desc));
    else
        snprintf(to, n, "%s %s %s %llu", name, tname, ops[op], count);
    return to;
}
