/* The collectives that `tern bench fabric` times: how ours and the peer's are called, on which
 * contents, and which result is right. */
#ifndef TERN_CMD_BENCH_COLLECTIVES_H
#define TERN_CMD_BENCH_COLLECTIVES_H

#include "cmd/bench/memory.h"
#include "cmd/bench/peer.h"

#include "core/fabric/fabric.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bench {
    struct tern_fabric *f;
    struct tern_comm *c;
    enum tern_type type;
    enum tern_op redop;
    bool in_place; /* all_gather and reduce_scatter: the own share lies in the whole buffer */
    size_t count;  /* elements of the whole buffer */
    char *in, *out;
    struct bench_peer *peer; /* or NULL */
    int64_t iterations, warmups;
    double *times[2]; /* [iterations] of calls: ours, the peer's */
};

/* One call of a collective. */
typedef int bench_call(struct bench *b, struct tern_err *err);

struct bench_operation {
    const char *name;
    bool reduces, whole; /* whole: each rank holds the whole buffer before and after */
    bool scatters;       /* the result is this rank's share */
    bool gathers;        /* the input is this rank's share */
    bool rooted;         /* rank 0 is the root */
    enum bench_work work;
    double (*factor)(int n); /* busbw by algbw, of `n` ranks */
    bench_call *run, *run_peer;
    /* The value that this rank must find at element i of its result. */
    double (*expected)(const struct bench *b, size_t i);
};

enum { BENCH_OPERATIONS = 4 };
extern const struct bench_operation bench_operations[BENCH_OPERATIONS];

/* Element `i` of rank `rank`'s input: small whole numbers.  Every sum of them is exact in every
 * type up to 72 ranks (252).  It is exact up to thousands in all but bf16, which rounds, and u8,
 * which wraps. */
double bench_value(int rank, size_t i);
void bench_put(void *p, enum tern_type type, size_t i, double v);
double bench_get(const void *p, enum tern_type type, size_t i);

/* A rank's share of the buffer; the elements that a call moves, of all ranks together. */
size_t bench_share(const struct bench *b);
size_t bench_moved(const struct bench *b, const struct bench_operation *o);
/* The place of this rank's share in the whole buffer. */
char *bench_own(const struct bench *b);

#endif
