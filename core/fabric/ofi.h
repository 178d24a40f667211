/* The endpoint between nodes: libfabric RDM with tagged messages, no order assumed. */
#ifndef TERN_FABRIC_OFI_H
#define TERN_FABRIC_OFI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"

struct ofi;

enum ofi_state { OFI_PENDING, OFI_DONE, OFI_FAILED };

/* A message on its way. */
struct ofi_req;
enum ofi_state tern_fabric_ofi_req_state(const struct ofi_req *r);
int tern_fabric_ofi_req_rank(const struct ofi_req *r);
const char *tern_fabric_ofi_req_error(const struct ofi_req *r);
/* Failed since what came has another size. */
bool tern_fabric_ofi_req_wrong_size(const struct ofi_req *r);

/* Who a message is for: every message carries its communicator, its place in that communicator's
 * sequence of transfers, its chunk and its sender, and is matched by all four. */
uint64_t tern_fabric_ofi_tag(int comm, uint32_t seq, uint32_t chunk, int sender);

enum ofi_control_kind {
    OFI_PING,    /* nothing: whether it arrives tells whether the peer lives */
    OFI_STUCK,   /* my deadline is over; who else is waiting? */
    OFI_WAITING, /* I am waiting too */
    OFI_BLAME,   /* I give up: `rank` is at fault, `text` says why */
};
struct ofi_control {
    int32_t kind, sender, rank;
    uint32_t padding;
    char text[600];
};

#define OFI_ADDRESS 256 /* longest address of any provider is below this */

/* `provider` as libfabric names it.  `far`: there are ranks on other hosts, so loopback will
 * not do; waits some seconds for a network.  `control` is called from tern_fabric_ofi_progress. */
struct ofi *tern_fabric_ofi_open(const char *provider, int rank, int size, bool far,
                                 void (*control)(void *arg, const struct ofi_control *m), void *arg,
                                 struct tern_err *err);
void tern_fabric_ofi_close(struct ofi *o);
/* What others need to reach this endpoint; its length. */
size_t tern_fabric_ofi_address(const struct ofi *o, uint8_t to[OFI_ADDRESS]);
/* Addresses of all ranks, in rank order. */
int tern_fabric_ofi_connect(struct ofi *o, const uint8_t *addresses, size_t stride,
                            struct tern_err *err);
const char *tern_fabric_ofi_about(const struct ofi *o);
/* The longest single message. */
size_t tern_fabric_ofi_max_message(const struct ofi *o);

/* Register memory that will be sent from often; *mr may become NULL where the provider needs none.
 */
int tern_fabric_ofi_register(struct ofi *o, void *p, size_t bytes, void **mr, struct tern_err *err);
void tern_fabric_ofi_unregister(void *mr);

/* Post; NULL with `err` on failure.  `mr` from tern_fabric_ofi_register, or NULL.  The request goes
 * back by tern_fabric_ofi_release, when it is over or before: it is then released when it ends. */
struct ofi_req *tern_fabric_ofi_send(struct ofi *o, int to, const void *buf, size_t bytes,
                                     uint64_t tag, void *mr, struct tern_err *err);
struct ofi_req *tern_fabric_ofi_recv(struct ofi *o, int from, void *buf, size_t bytes, uint64_t tag,
                                     void *mr, struct tern_err *err);
void tern_fabric_ofi_release(struct ofi *o, struct ofi_req *r);
/* Best effort; the request tells whether it failed, NULL when not even that. */
struct ofi_req *tern_fabric_ofi_control_send(struct ofi *o, int to, const struct ofi_control *m);
void tern_fabric_ofi_progress(struct ofi *o);

#endif
