/* The rendezvous: how ranks find each other without PMIx.
 *
 * A supervisor opens it, gives its address to the ranks in TERN_RUN_SOCKET, and serves it from its
 * own event loop.  It collects one blob from each rank and gives all blobs to all ranks, as often
 * as the ranks ask.  A barrier is an empty exchange.  Ranks of a further attempt may use the same
 * address once the earlier ones have left.
 *
 * It listens where strangers can reach it.  A process that does not know the key in the address is
 * dropped at its first message.  Sizes are checked before memory is taken, and silent strangers are
 * dropped after ten seconds. */
#ifndef TERN_WIRE_RENDEZVOUS_H
#define TERN_WIRE_RENDEZVOUS_H

#include "core/base/err.h"

struct tern_wire_rendezvous;

/* Listen for `size` ranks on `host` ("127.0.0.1", "0.0.0.0"; NULL: every address).  Each rank is an
 * open file: their soft limit is raised, and a hard limit that is too low is an error. */
struct tern_wire_rendezvous *tern_wire_rendezvous_open(const char *host, int size,
                                                       struct tern_err *err);
void tern_wire_rendezvous_close(struct tern_wire_rendezvous *r);
/* For TERN_RUN_SOCKET: "host:port/key".  The host is `host` as given, or this machine's name. */
const char *tern_wire_rendezvous_address(const struct tern_wire_rendezvous *r);
/* Readable when tern_wire_rendezvous_step has something to do (an epoll descriptor). */
int tern_wire_rendezvous_fd(const struct tern_wire_rendezvous *r);
/* Handle what is ready and return; never blocks.  Call it also once a second or so, for timeouts.
 * Fails only when the machine does (no descriptors, no memory).  Ranks that disagree or leave are
 * reported to the ranks. */
int tern_wire_rendezvous_step(struct tern_wire_rendezvous *r, struct tern_err *err);

#endif
