/* A flight recorder's dump, read back.  Its bytes may come from any program, so they are checked.
 * No count is larger than the file can hold, every rank is one of the world, and every time can be
 * added to another. */
#ifndef TERN_FLIGHT_DUMP_H
#define TERN_FLIGHT_DUMP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/flight/flight.h"

enum { DUMP_WORLD_MAX = 1 << 16, DUMP_BYTES_MAX = 8 << 20 };

struct dump_record {
    uint64_t seq, op, desc, wire_bytes;
    int64_t begin_ns, end_ns; /* wall clock; end 0: not ended when the dump was written */
    uint32_t comm;
    int waits_for;
    enum tern_flight_state state;
};

struct dump_comm {
    uint32_t serial, mark;
    int id, size;
    uint64_t phase;
    bool cut, ended;
    int *members; /* [n_members] world ranks in their order; fewer than `size` when cut */
    int n_members;
    const struct dump_record *records; /* [n_records] its part of the dump's, by op */
    int n_records;
};

struct dump {
    int rank, size, pid, written_by, blamed;
    int64_t wall_ns;
    char why[TERN_FLIGHT_WHY];
    char (*nodes)[TERN_FLIGHT_NAME]; /* [size] */
    struct dump_comm *comms;
    int n_comms;
    struct dump_record *records; /* by communicator, operation, age */
    int n_records;
    bool forgot; /* there were more */
};

/* NULL with `err`, which does not name the file. */
struct dump *tern_flight_dump_parse(const void *data, size_t len, struct tern_err *err);
void tern_flight_dump_free(struct dump *d);

/* Are they one communicator, of dumps of one world? */
bool tern_flight_dump_same_comm(const struct dump_comm *x, const struct dump_comm *y);

#endif
