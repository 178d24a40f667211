/* What the supervisor's socket speaks.  Little-endian, fixed sizes.
 *
 * A rank sends HELLO (round 0, its rank and the size it believes in) and then one BLOB a round; the
 * other side answers each round with ALL (size blobs), or with NO and a text, and closes. */
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
