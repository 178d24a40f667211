/* Frames: how a record lies in a spool file.
 *
 *     rank0.0.spool
 *     +------+---------+---------+--   --+---------+ - - - +
 *     | HEAD | frame 1 | frame 2 |  ...  | frame n | zeros, or a part of a frame: being written
 *     +------+---------+---------+--   --+---------+ - - - +
 *             ^       |  ^     |
 *             |       +--+     +-- each frame holds the CRC of the one before
 *
 *     frame   | TERN | length | type | 0 | previous CRC | seq | time | header CRC | payload | CRC |
 *
 * All numbers are little-endian; do not renumber.
 *
 *     offset  bytes
 *          0      4  sync: "TERN"
 *          4      4  length of the payload, at most TERN_FRAME_MAX
 *          8      2  type
 *         10      2  0
 *         12      4  CRC-32C of the frame before (its last four bytes); 0 for a writer's first
 *         16      8  seq: 1, 2, 3, ... over all files of a writer; a head repeats the last
 *         24      8  wall clock, ns since 1970, growing within a writer
 *         32      4  CRC-32C of the 32 bytes above
 *         36      n  payload
 *     36 + n      4  CRC-32C of everything above
 *
 * The header's own CRC makes the length trustworthy: a torn end differs from damage.  The link to
 * the frame before makes a missing or doubled frame visible.  The sync word and the frame's own CRC
 * let a reader go on behind damage.
 *
 * A file begins with a head: u32 format (1), text run id, u32 attempt, text writer, u32 number of
 * the file.  Behind them: u64 instance (random, the same in all files of one writer), u64 seq of
 * the first record, text host, u64 pid.  Payloads are listed in record.h.  The format grows: a
 * reader skips types that it does not know, and bytes behind the fields that it knows.
 */
#ifndef TERN_LEDGER_FRAME_H
#define TERN_LEDGER_FRAME_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/str.h"

enum {
    TERN_FRAME_HEADER = 36,
    TERN_FRAME_TRAILER = 4,
    TERN_FRAME_MAX = 2 << 20, /* a recipe is at most 1 MiB */
    TERN_FRAME_FORMAT = 1,
};

enum tern_ledger_frame_type { /* on disk: do not renumber */
                              TERN_FRAME_HEAD = 1,
                              TERN_FRAME_RUN = 2,
                              TERN_FRAME_BEGIN = 3,
                              TERN_FRAME_END = 4,
                              TERN_FRAME_STEP = 5,
                              TERN_FRAME_EVAL = 6,
                              TERN_FRAME_CHECKPOINT = 7,
                              TERN_FRAME_EVENT = 8,
                              TERN_FRAME_PARAM = 9,
                              TERN_FRAME_HEALTH = 10,
};

struct tern_ledger_frame {
    uint16_t type;
    uint32_t prev, crc;
    uint64_t seq;
    int64_t wall_ns;
    const uint8_t *payload; /* inside the scanned bytes */
    uint32_t len;
};

/* Put header and trailer around f->payload; `to` is cleared first; sets f->crc. */
void tern_ledger_frame_encode(struct tern_buf *to, struct tern_ledger_frame *f);

enum tern_ledger_frame_found {
    TERN_FRAME_OK,      /* `out` is filled */
    TERN_FRAME_NO_MORE, /* the bytes end where a frame ends */
    TERN_FRAME_TORN,    /* they end inside a frame: it is being written, or its writer died */
    TERN_FRAME_ZEROS,   /* zeros to the end: not here yet (network file systems), or never synced */
    TERN_FRAME_DAMAGE, /* [from, to) differs from what was written; the next call goes on at `to` */
    TERN_FRAME_BREAK,  /* the next frame is sound, but not the one that belongs here */
};

/* Walking over the bytes of a file, or of its end. */
struct tern_ledger_frame_scan {
    const uint8_t *data;
    size_t len, at;
    bool linked;     /* `prev` and `seq` say what the next frame must continue */
    bool reported;   /* a BREAK before the frame at `at` */
    uint32_t prev;   /* CRC of the last good frame */
    uint64_t seq;    /* and its seq */
    size_t from, to; /* of DAMAGE */
};

enum tern_ledger_frame_found tern_ledger_frame_next(struct tern_ledger_frame_scan *s,
                                                    struct tern_ledger_frame *out);

#endif
