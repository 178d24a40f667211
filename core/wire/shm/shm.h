/* Memory that the ranks of one node see of each other.  Each rank makes its own segments (memfd),
 * and the others map them through /proc/PID/fd.  A random token in the segment proves that it is
 * really that rank's, so ranks in different PID namespaces never map a wrong file.
 *
 * A rank's segment, of which only the pages in use take memory:
 *
 *     +-------------------------------------------------+
 *     | head: token, heartbeat, blame, its wait,        |
 *     |   calls[64], regions[256], lines[64]            |
 *     +-------------------------------------------------+  a page boundary
 *     | stage of communicator 0: half 0 (16 MiB)        |
 *     |                          half 1 (16 MiB)        |
 *     | ...                                             |
 *     | stage of communicator 63                        |
 *     +-------------------------------------------------+
 *     | flight recorder                                 |
 *     +-------------------------------------------------+
 *
 * Buffers of tern_wire_alloc are segments of their own, listed in `regions`. */
#ifndef TERN_WIRE_SHM_SHM_H
#define TERN_WIRE_SHM_SHM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/base/err.h"
#include "core/base/process.h"
#include "core/flight/flight.h"

enum {
    TERN_WIRE_SHM_COMMS = 64,      /* communicators of a rank; a bit each in a 64-bit mask */
    TERN_WIRE_SHM_REGIONS = 256,   /* tern_fabric_alloc buffers of a rank */
    TERN_WIRE_SHM_STAGE = 2 << 20, /* half a stage, as much of it as is used... */
    TERN_WIRE_SHM_STAGE_MOST =
        16 << 20,             /* ...by up to 64 ranks, and at most (tern_coll_stage_bytes) */
    TERN_WIRE_SHM_LINE = 128, /* two cache lines: the neighbour line is prefetched too */
};

enum { TERN_WIRE_SHM_INLINE = 112 }; /* bytes that a meeting itself hands over */
enum { TERN_WIRE_SHM_OFFERS = 2 };   /* buffers that a rank offers at a meeting */

struct tern_wire_shm_place { /* in one of its owner's buffers */
    int32_t region;          /* -1: nothing offered */
    uint32_t generation;
    uint64_t offset;
};

/* A rank's words at a meeting, its flag included. They are one cache line and the one that the
 * processor fetches with it. So a rank that sees the flag has all of it. */
struct tern_wire_shm_post {
    /* The meeting's number, once the rest is written. */
    _Alignas(TERN_WIRE_SHM_LINE) _Atomic uint64_t phase;
    uint64_t desc;
    union {
        struct tern_wire_shm_place offers[TERN_WIRE_SHM_OFFERS];
        uint8_t payload[TERN_WIRE_SHM_INLINE]; /* of a meeting that hands over bytes */
    };
};
_Static_assert(offsetof(struct tern_wire_shm_post, payload) + TERN_WIRE_SHM_INLINE ==
                   TERN_WIRE_SHM_LINE,
               "flag and payload together");

struct tern_wire_shm_line {            /* of one communicator; written by its owner only */
    struct tern_wire_shm_post post[2]; /* [phase & 1]: the owner may be a meeting ahead */
};

struct tern_wire_shm_region {
    uint32_t generation;
    int32_t fd;
    uint64_t bytes;
};

struct tern_wire_shm_call { /* of one communicator: how far its owner is (core/fabric/deadlock.c) */
    _Atomic uint64_t mark, begun, finished, waits_for;
};
struct tern_wire_shm_edge { /* operation `op` of a communicator waits for the world's rank `to` */
    uint64_t mark, op, desc;
    int32_t comm, root, to, zero;
};
struct tern_wire_shm_wait {  /* the owner is in a call that ends when this does */
    _Atomic uint64_t serial; /* odd: so it is; another one for each wait */
    struct tern_wire_shm_edge edge;
};

struct tern_wire_shm_head {
    uint8_t token[16];
    /* When the owner last looked up while waiting. */
    _Alignas(TERN_WIRE_SHM_LINE) _Atomic int64_t heartbeat_ns;
    _Atomic int32_t blamed; /* world rank + 1, once `why` is written */
    char why[600];
    struct tern_wire_shm_wait wait;
    struct tern_wire_shm_call calls[TERN_WIRE_SHM_COMMS];
    struct tern_wire_shm_region regions[TERN_WIRE_SHM_REGIONS];
    struct tern_wire_shm_line lines[TERN_WIRE_SHM_COMMS];
};

struct tern_wire_shm_buffer {
    char *base; /* NULL: free */
    size_t bytes;
    void *mr; /* the provider's registration, or NULL */
};

struct tern_wire_shm { /* this rank's */
    int fd;
    struct tern_wire_shm_head *head;
    struct tern_wire_shm_buffer buffers[TERN_WIRE_SHM_REGIONS];
    int n_buffers; /* highest in use + 1 */
};

struct tern_wire_shm_map {
    char *base;
    size_t bytes;
    uint32_t generation;
};

struct tern_wire_shm_peer { /* another rank's, seen from here */
    pid_t pid;
    struct tern_process process;
    struct tern_wire_shm_head *head; /* NULL: not in this node */
    struct tern_wire_shm_map *maps;  /* [TERN_WIRE_SHM_REGIONS] */
};

int tern_wire_shm_open_own(struct tern_wire_shm *s, struct tern_err *err);
void tern_wire_shm_close_own(struct tern_wire_shm *s);

/* Try to map; `p->head` stays NULL when it cannot be done. */
void tern_wire_shm_map_peer(struct tern_wire_shm_peer *p, pid_t pid, int fd,
                            const uint8_t token[16]);
void tern_wire_shm_unmap_peer(struct tern_wire_shm_peer *p);

/* A new buffer of this rank; its index, or -1.  `huge`: all of it will be used, in huge pages where
 * they can be had. */
int tern_wire_shm_buffer_new(struct tern_wire_shm *s, size_t bytes, bool huge,
                             struct tern_err *err);
void tern_wire_shm_buffer_delete(struct tern_wire_shm *s, int i);
/* The buffer that holds [p, p + bytes), or -1. */
int tern_wire_shm_buffer_find(const struct tern_wire_shm *s, const void *p, size_t bytes);

/* Bytes of memory behind this rank's segments: its buffers, and data on its stages. */
uint64_t tern_wire_shm_own_bytes(const struct tern_wire_shm *s);
/* *bytes of shared memory of any process that is mapped here with its pages; -1 where /proc does
 * not say. */
int tern_wire_shm_resident(uint64_t *bytes);

/* Where a peer's offered buffer is here; mapped on first use. */
char *tern_wire_shm_reach(struct tern_wire_shm_peer *p, const struct tern_wire_shm_place *at,
                          size_t bytes, struct tern_err *err);

static inline size_t tern_wire_shm_stage_offset(int comm, unsigned half)
{
    size_t head = (sizeof(struct tern_wire_shm_head) + 4095) & ~(size_t)4095;
    return head + ((size_t)comm * 2 + half) * TERN_WIRE_SHM_STAGE_MOST;
}

/* The flight recorder of the rank whose head this is: behind the last stage. */
static inline struct tern_flight_recorder *tern_wire_shm_recorder(struct tern_wire_shm_head *h)
{
    return (struct tern_flight_recorder *)((char *)h +
                                           tern_wire_shm_stage_offset(TERN_WIRE_SHM_COMMS, 0));
}

#endif
