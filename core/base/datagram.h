/* Short messages to a process on another node, by UDP.  A message goes to every address of the
 * node, since only the network knows which one leads there.  The caller repeats a lost message. */
#ifndef TERN_BASE_DATAGRAM_H
#define TERN_BASE_DATAGRAM_H

#include <stddef.h>
#include <stdint.h>

enum { TERN_DATAGRAM_ADDRESSES = 6 };

struct tern_datagram_place { /* where a socket can be reached */
    uint16_t port;           /* 0: nowhere */
    uint16_t n;
    uint8_t address[TERN_DATAGRAM_ADDRESSES][16]; /* IPv6, or IPv4 mapped into it */
};

struct tern_datagram {
    int fd; /* does not block; -1: none */
    int family;
};

/* A socket on a port of the kernel's choice.  `place` (NULL: no peer sends first) is where peers
 * reach it: interfaces that are up, the loopback where there is no other.  -1 with errno. */
int tern_datagram_open(struct tern_datagram *d, struct tern_datagram_place *place);
void tern_datagram_close(struct tern_datagram *d);
/* To all addresses of `to`. */
void tern_datagram_send(const struct tern_datagram *d, const struct tern_datagram_place *to,
                        const void *data, size_t n);

#endif
