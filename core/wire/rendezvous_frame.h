/* The frames between a rank and the rendezvous.  Little-endian, fixed sizes.
 *
 *      0        4       8       12      16      20      24         40
 *     +--------+-------+-------+-------+-------+-------+----------+-------------------+
 *     | magic  | kind  | rank  | size  | round | bytes |   key    | `bytes` of data   |
 *     +--------+-------+-------+-------+-------+-------+----------+-------------------+
 *
 * A rank sends HELLO (round 0, its rank and the size it believes in) and then one BLOB a round. The
 * rendezvous answers each round with ALL (`size` blobs), or with NO and a text, and closes. */
#ifndef TERN_WIRE_RENDEZVOUS_FRAME_H
#define TERN_WIRE_RENDEZVOUS_FRAME_H

#include <stdint.h>

enum rendezvous_kind { RENDEZVOUS_HELLO = 1, RENDEZVOUS_BLOB, RENDEZVOUS_ALL, RENDEZVOUS_NO };

#define RENDEZVOUS_MAGIC 0x31464e54u /* "TNF1" */
#define RENDEZVOUS_KEY 16

struct rendezvous_frame {
    uint32_t magic, kind, rank, size, round, bytes; /* `bytes` follow */
    uint8_t key[RENDEZVOUS_KEY];
};

enum { RENDEZVOUS_TEXT = 600 }; /* longest text of a NO */

#endif
