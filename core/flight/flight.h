/* The flight recorder: the operations that a rank called last, to look at after a failure or in a
 * hang.
 *
 *     a = tern_flight_begin(ring, ...);     an operation is queued
 *     tern_flight_set_state(ring, a, ...);  it runs, or waits for a rank
 *     tern_flight_end(ring, a, true);       it is over
 *     tern_flight_write(false);             a signal handler writes the dumps
 *
 * The recorder lies at the end of the rank's shared segment (core/wire/shm).  The ranks of its node
 * can still read it after its process has ended, also by SIGKILL, and write its dump in its place.
 * No dump is left of a rank that was alone on its node, or whose whole node is lost.
 *
 * A record is one operation; the newest TERN_FLIGHT_RING records are kept.  Recording allocates
 * nothing, takes no lock and reads the clock twice.  report.h reads the dumps. */
#ifndef TERN_FLIGHT_FLIGHT_H
#define TERN_FLIGHT_FLIGHT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/call.h"
#include "core/base/err.h"
#include "core/base/process.h"

enum {
    TERN_FLIGHT_RING = 4096,
    TERN_FLIGHT_COMMS = 128, /* twice what a rank may have, so ended ones are known for a while */
    TERN_FLIGHT_RUNS = 128,
    TERN_FLIGHT_WHY = 1000, /* as long as an error's text */
    TERN_FLIGHT_NAME = 64,
    TERN_FLIGHT_PATH = 1024, /* of a dump, its folder included */
};

/* On disk: do not renumber. */
enum tern_flight_state {
    TERN_FLIGHT_QUEUED = 1, /* called, not begun: another goes first */
    TERN_FLIGHT_RUNNING,
    TERN_FLIGHT_WAITING, /* for `waits_for` */
    TERN_FLIGHT_DONE,
    TERN_FLIGHT_FAILED,
};

/* On disk too, little-endian. */
struct tern_flight_record {
    _Atomic uint64_t seq;     /* 1 for the rank's first; 0 while it is being written */
    uint64_t op;              /* the operation's number in its communicator */
    uint64_t desc;            /* tern_call_pack */
    int64_t begin_ns, end_ns; /* boot clock; end 0 until it ended */
    uint64_t wire_bytes;      /* given to the transport so far, both ways */
    uint32_t comm;            /* serial of its communicator */
    int32_t waits_for;        /* world rank, or -1 */
    uint32_t state, zero;
};
_Static_assert(sizeof(struct tern_flight_record) == 64, "a cache line");

/* World ranks first, first + stride, ...: a group of a parallel layout is one run. */
struct tern_flight_run {
    int32_t first, stride, count;
};

struct tern_flight_comm {
    uint32_t serial; /* 1 for the rank's first; 0: free */
    int32_t id;
    uint64_t phase; /* at its beginning: with `id` and `mark` the same on all members, and on no
                       other communicator */
    uint32_t mark;  /* hash of id, phase and members; never 0 */
    int32_t size;
    uint32_t n_runs;
    uint32_t cut;   /* 1: the members did not fit `runs` */
    uint32_t ended; /* 1: freed */
    uint32_t zero;
    struct tern_flight_run runs[TERN_FLIGHT_RUNS];
};

struct tern_flight_recorder { /* in the shared segment */
    _Atomic uint64_t begun;
    uint32_t serial;
    int32_t blamed; /* world rank, or -1 */
    char why[TERN_FLIGHT_WHY];
    struct tern_flight_comm comms[TERN_FLIGHT_COMMS];
    _Alignas(64) struct tern_flight_record ring[TERN_FLIGHT_RING];
};

/* A dump is the file fabric-rank-RRRRR.tfr:
 *
 *     +------+------------------+------------------------------+---------------------+
 *     | head | name * n_names   | comm * n_comms, each cut     | record * n_records, |
 *     |      | (ranks by node)  | behind its n_runs runs       | in no order         |
 *     +------+------------------+------------------------------+---------------------+ */
#define TERN_FLIGHT_MAGIC "TERNTFR1"
struct tern_flight_head {
    char magic[8];
    uint32_t head_bytes; /* of this struct */
    int32_t rank, size, pid;
    int32_t written_by; /* another rank of its node, where the rank itself could not write */
    int32_t blamed;
    int64_t boot_ns, wall_ns; /* the moment of the dump, by both clocks */
    uint64_t begun;           /* records ever */
    uint32_t n_names, n_comms, n_records, zero;
    char why[TERN_FLIGHT_WHY]; /* empty: nothing had failed */
};
struct tern_flight_name { /* the next `count` ranks are on this node */
    int32_t count;
    char node[TERN_FLIGHT_NAME];
};

/* ---------------------------------------------------------------- recording, by the rank itself */

/* A communicator of the `size` ranks `world` begins.  Returns its serial; *ret_mark becomes its
 * mark. */
uint32_t tern_flight_comm_begin(struct tern_flight_recorder *r, int id, uint64_t phase,
                                const int *world, int size, uint32_t *ret_mark);
void tern_flight_comm_end(struct tern_flight_recorder *r, uint32_t serial);
/* An operation begins.  Returns its record's number, for the functions below. */
uint64_t tern_flight_begin(struct tern_flight_recorder *r, uint32_t serial, uint64_t op,
                           uint64_t desc, enum tern_flight_state state);
/* `waits_for`: a world rank, or -1. */
void tern_flight_set_state(struct tern_flight_recorder *r, uint64_t record,
                           enum tern_flight_state state, int waits_for);
void tern_flight_add_wire(struct tern_flight_recorder *r, uint64_t record, size_t bytes);
void tern_flight_end(struct tern_flight_recorder *r, uint64_t record, bool good);

/* The call that was made as operation `op` of the communicator with this mark; 0: none yet, or too
 * long ago.  Also of another rank's recorder. */
uint64_t tern_flight_find_call(const struct tern_flight_recorder *r, uint32_t mark, uint64_t op);

/* ---------------------------------------------------------------- dumps */

struct tern_flight_rank {  /* of the world, as dumps name it */
    const char *node_name; /* [TERN_FLIGHT_NAME] bytes, the rest of them 0 */
    /* NULL: its memory cannot be reached, so no other rank writes its dump */
    const struct tern_flight_recorder *recorder;
    const struct tern_process *process;
    int pid;
};

/* This rank's dumps.  The pointers are the caller's, and must live until tern_flight_close. */
struct tern_flight {
    int rank, size;
    struct tern_flight_recorder *recorder;
    const struct tern_flight_rank *ranks; /* [size] */
    char dir[TERN_FLIGHT_PATH];           /* empty: no dumps are wanted */
    bool dumped;
};

/* `f` is filled, `dir` apart.  Makes the folder that TERN_FABRIC_DUMP names, and has
 * tern_flight_write know `f`; does nothing where the variable is not set. */
int tern_flight_open(struct tern_flight *f, struct tern_err *err);
void tern_flight_close(struct tern_flight *f);

/* Writes the dump of every fabric that this process has open.  With `waiting`, only if the rank has
 * been waiting for another one for some 10 ms, or as soon as it has for 50.  This is for a process
 * that is to end, perhaps because that other rank is gone.  Safe in signal handlers: calls only
 * what they may call, takes no lock, keeps errno. */
void tern_flight_write(bool waiting);
/* An operation failed in these words.  Writes this rank's dump, and those of ranks of its node that
 * cannot (the blamed one, and those that have ended).  Once. */
void tern_flight_write_failed(struct tern_flight *f, const char *why);
/* An operation has been waiting so long.  Writes the dump that tern_flight_write(true) left for
 * later. */
void tern_flight_write_waiting(const struct tern_flight *f, int64_t waited_ns);

/* "0-2,5" of `count` ascending ranks into to[n], cut with "..." where `to` ends; returns `to`. */
char *tern_flight_ranks_text(char *to, size_t n, const int *ranks, int count);

#endif
