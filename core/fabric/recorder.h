/* The flight recorder: what this rank called last, for a look back when operations fail or hang.
 *
 * It lies at the end of the rank's shared segment (shm.h), so the ranks of its node can read it
 * after its process is gone, also by SIGKILL, and write its dump in its place.  Only a rank that
 * was alone on its node, or whose whole node is lost, leaves none.
 *
 * A record is one operation; the newest RECORDER_RING of them are kept.  Recording allocates
 * nothing, takes no lock and costs two looks at the clock.  Dumps (TERN_FABRIC_DUMP) are read by
 * autopsy.h. */
#ifndef TERN_FABRIC_RECORDER_H
#define TERN_FABRIC_RECORDER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"

enum {
    RECORDER_RING = 4096,
    RECORDER_COMMS = 128, /* twice SHM_COMMS, so that ended ones are still known for a while */
    RECORDER_RUNS = 128,
    RECORDER_WHY = 1000, /* as long as an error's text */
    RECORDER_NAME = 64,
    RECORDER_PATH = 1024, /* of a dump, its folder included */
};

/* On disk: do not renumber. */
enum record_state {
    RECORD_QUEUED = 1, /* called, not begun: another goes first */
    RECORD_RUNNING,
    RECORD_WAITING, /* for `waits_for` */
    RECORD_DONE,
    RECORD_FAILED,
};

/* On disk too, little-endian. */
struct record {
    _Atomic uint64_t seq;     /* 1 for the rank's first; 0 while it is being written */
    uint64_t op;              /* the operation's number in its communicator */
    uint64_t desc;            /* tern_fabric_call_pack */
    int64_t begin_ns, end_ns; /* boot clock; end 0 until it ended */
    uint64_t wire_bytes;      /* handed to the transport so far, both ways */
    uint32_t comm;            /* serial of its communicator */
    int32_t waits_for;        /* world rank, or -1 */
    uint32_t state, zero;
};
_Static_assert(sizeof(struct record) == 64, "a cache line");

/* World ranks first, first + stride, ...: groups of a parallel layout need one of them. */
struct record_run {
    int32_t first, stride, count;
};

struct record_comm {
    uint32_t serial; /* 1 for the rank's first; 0: free */
    int32_t id;
    uint64_t phase; /* of its making: with `id` and `mark` the same on all members, and on no other
                       communicator */
    uint32_t mark;  /* hash of id, phase and members; never 0 */
    int32_t size;
    uint32_t n_runs;
    uint32_t cut;   /* 1: the members did not fit `runs` */
    uint32_t ended; /* 1: freed */
    uint32_t zero;
    struct record_run runs[RECORDER_RUNS];
};

struct recorder { /* in the shared segment */
    _Atomic uint64_t begun;
    uint32_t serial;
    int32_t blamed; /* world rank, or -1 */
    char why[RECORDER_WHY];
    struct record_comm comms[RECORDER_COMMS];
    _Alignas(64) struct record ring[RECORDER_RING];
};

/* What a dump begins with.  Then follow n_names times record_name, n_comms times record_comm up to
 * and with its n_runs runs, and n_records records in no order. */
#define RECORDER_MAGIC "TERNTFR1"
struct record_head {
    char magic[8];
    uint32_t head_bytes; /* of this struct */
    int32_t rank, size, pid;
    int32_t written_by; /* a rank of its node when it could not itself */
    int32_t blamed;
    int64_t boot_ns, wall_ns; /* the same moment: that of the dump */
    uint64_t begun;           /* records ever */
    uint32_t n_names, n_comms, n_records, zero;
    char why[RECORDER_WHY]; /* empty: nothing had failed */
};
struct record_name { /* `count` ranks, beginning after the last one's, are on this node */
    int32_t count;
    char node[RECORDER_NAME];
};

struct tern_comm;
struct tern_fabric;

/* ---- for the operations' engine; all of them by the rank itself */

/* A communicator begins; sets c->serial and c->mark. */
void tern_fabric_record_comm(struct recorder *r, struct tern_comm *c);
void tern_fabric_record_comm_end(struct recorder *r, const struct tern_comm *c);
/* An operation begins; the record's number for what follows. */
uint64_t tern_fabric_record_begin(struct recorder *r, uint32_t serial, uint64_t op, uint64_t desc,
                                  enum record_state state);
/* `waits_for`: a world rank, or -1. */
void tern_fabric_record_state(struct recorder *r, uint64_t record, enum record_state state,
                              int waits_for);
void tern_fabric_record_wire(struct recorder *r, uint64_t record, size_t bytes);
void tern_fabric_record_end(struct recorder *r, uint64_t record, bool good);

/* ---- for looking, also at a mate's */

/* What was called as operation `op` of the communicator known by `mark`; 0: nothing yet, or so long
 * ago that it is forgotten. */
uint64_t tern_fabric_record_called(const struct recorder *r, uint32_t mark, uint64_t op);

/* ---- dumps: fabric-rank-00012.tfr in the folder that TERN_FABRIC_DUMP names */

/* Make the folder, and let tern_fabric_dump know `f`; nothing when no folder is named. */
int tern_fabric_record_open(struct tern_fabric *f, struct tern_err *err);
void tern_fabric_record_close(struct tern_fabric *f);
/* The fabric is broken and this rank's operation over: write this rank's dump, and those of mates
 * that cannot do so themselves (`blamed`, and whoever has ended).  Once. */
void tern_fabric_record_failed(struct tern_fabric *f);

/* An operation has been waiting so long: a rank that was asked to end leaves its dump now. */
void tern_fabric_record_waits(const struct tern_fabric *f, int64_t waited_ns);

#endif
