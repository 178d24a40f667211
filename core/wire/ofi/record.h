/* The records that libfabric's transport sends in RMA mode, and the immediate of a write.  Nothing
 * here touches an endpoint, so hostile bytes can be tried on it alone.
 *
 *      0      16      18     19     20       24       28      32     36      40     44   48    56
 *     +------+-------+------+------+--------+--------+-------+------+-------+------+----+-----+---
 *     | seal | magic | kind | down | sender | number | limit | seen | bytes | call | id | tag | ...
 *     +------+-------+------+------+--------+--------+-------+------+-------+------+----+-----+---
 *
 * A short message's bytes (EAGER), the place where a long message is to be written (READY), or a
 * control message (CONTROL) come behind the head.  All machines of a job have one byte order:
 * little endian.
 *
 * Every rank draws 128 bits, its secret, and gives it to the ranks of its job at the rendezvous.
 * The seal is a hash, keyed with the receiver's secret, of the head and all data behind it, a short
 * message's bytes among them.  A process without the secret cannot make a record that is read.  It
 * cannot learn the secret from records that it receives in place of a rank, on that rank's port.  A
 * READY does not show it where to write either: the place is masked with the secret of the rank
 * that asks.  A long message's bytes have no seal: a process that can change them on the wire is
 * not stopped.  A process that libfabric takes for both ranks, from the node of one of them, is not
 * stopped either.
 */
#ifndef TERN_WIRE_OFI_RECORD_H
#define TERN_WIRE_OFI_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/wire/wire.h"

enum {
    RAILS = 4,               /* at most, to a node's peers... */
    RAILS_TRIED = 8,         /* ...of so many, of which some may lead nowhere */
    RECORD_MAGIC = 0x7254,   /* "Tr" */
    RECORD_SECRET = 16,      /* bytes */
    EAGER_MAX = 8 << 10,     /* longest message that is sent unasked... */
    EAGER_STREAM = 64 << 10, /* ...and where the wire is a stream of bytes */
    CHUNKS = 256,            /* at most, of a message: an immediate names them by eight bits */
    REQUESTS = 1 << 14,      /* receives that wait for writes at once: fourteen bits */
    GENERATIONS = 1 << 10,   /* of a request's number, against late writes: ten bits */
    WINDOW = 1024,           /* numbers that may be under way between two ranks */
};

enum record_kind {
    RECORD_EAGER = 1, /* a message; `number` counts them */
    RECORD_READY,     /* a receive waits for writes; `number` counts them, `id` names it */
    RECORD_ASK,       /* a receive of a short message has waited for a while */
    RECORD_WRONG,     /* the receive `id` will not be answered: I send other `bytes` or `call` */
    RECORD_CREDIT,    /* nothing but the head */
    RECORD_FIN,       /* all writes of READY `id` have come */
    RECORD_QUERY,     /* have they? */
    RECORD_PROBE,     /* does this rail work?  `number`: which round */
    RECORD_ECHO,      /* it does */
    RECORD_CONTROL,
    RECORD_KINDS,
};

struct record {
    uint8_t seal[RECORD_SECRET];
    uint16_t magic;
    uint8_t kind, down; /* down: a bit for every rail that the sender has given up */
    uint32_t sender, number;
    uint32_t limit; /* EAGER numbers below this may be sent to the sender of this */
    uint32_t seen;  /* it has all EAGER numbers below this */
    uint32_t bytes, call, id;
    uint64_t tag;
};
struct record_ready {
    uint64_t address; /* of the buffer, or where it begins in the registered memory */
    uint64_t key[RAILS];
    uint64_t missing[CHUNKS / 64]; /* a bit a chunk */
    uint32_t chunk;                /* bytes */
    uint32_t token;                /* the writes carry it, where an immediate has room (64 bits) */
};
_Static_assert(sizeof(struct record) == 56 && sizeof(struct record_ready) == 80, "no padding");

enum { RECORD_MAX = sizeof(struct record) + EAGER_MAX };
_Static_assert(sizeof(struct tern_wire_control) <= EAGER_MAX, "a control message fits a slot");

/* The reader of a record, for the checks. */
struct record_reader {
    const uint8_t *secret; /* [RECORD_SECRET] its own */
    int rank, size;
    size_t eager_max;                        /* agreed on by all ranks */
    const uint8_t (*secrets)[RECORD_SECRET]; /* [size] of all ranks */
};

/* A record that was checked: `payload` is inside `bytes`.  The pointers are NULL where the kind has
 * none. */
struct record_view {
    struct record head;
    const void *payload;
    struct record_ready ready;
    struct tern_wire_control control;
};

/* seal.c: the seal of a record for the rank with this secret, of whatever bytes.  `more` bytes at
 * `payload` belong to it; its own first bytes do not count.  Any alignment. */
void tern_wire_ofi_record_hash(const uint8_t secret[RECORD_SECRET], const void *record,
                               const void *payload, size_t more, uint8_t seal[RECORD_SECRET]);
/* Seal it; `payload` is NULL where that lies behind the head. */
void tern_wire_ofi_record_seal(const uint8_t secret[RECORD_SECRET], void *record,
                               const void *payload, size_t more);
/* Mask, or unmask, where and with which keys a READY's sender, whose secret it is, has `to` write.
 */
void tern_wire_ofi_ready_mask(const uint8_t secret[RECORD_SECRET], int to,
                              const struct record *head, struct record_ready *ready);
/* 0, or -1 with `why` (a word for the log) when these are not bytes that a rank of this job sends.
 * `v` is then undefined.  Any alignment. */
int tern_wire_ofi_record_read(const struct record_reader *reader, const void *bytes, size_t n,
                              struct record_view *v, const char **why);

static inline uint32_t record_chunks(size_t bytes, size_t chunk)
{
    return (uint32_t)((bytes + chunk - 1) / chunk);
}

/* A request's `id`: its place below REQUESTS and its generation; with a chunk it is what a write
 * carries. */
static inline uint32_t record_id(uint32_t place, uint32_t generation)
{
    return place << 10 | (generation & (GENERATIONS - 1));
}
static inline uint32_t record_immediate(uint32_t id, uint32_t chunk)
{
    return id << 8 | (chunk & (CHUNKS - 1));
}
/* And what travels with the write: behind the token of its request. */
static inline uint64_t record_data(uint32_t token, uint32_t immediate)
{
    return (uint64_t)token << 32 | immediate;
}

/* Which of the numbers from a peer have come: each once, in any order, WINDOW at a time. */
struct window {
    uint32_t low; /* all below have come */
    uint64_t bits[WINDOW / 64];
};
/* False when `number` came before or is too far ahead. */
bool tern_wire_ofi_window_add(struct window *w, uint32_t number);
static inline int32_t window_ahead(uint32_t a, uint32_t b) /* a - b, around the end */
{
    return (int32_t)(a - b);
}

#endif
