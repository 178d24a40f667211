/* A socket that listens for TCP, on a host with IPv4, IPv6 or both. */
#ifndef TERN_BASE_LISTEN_H
#define TERN_BASE_LISTEN_H

#include "core/base/err.h"

/* Listen on a free port of `host`.  NULL or "0.0.0.0": on every address, of both families where the
 * machine has IPv6 (IPv4 peers then come as ::ffff:a.b.c.d).  Returns the descriptor, non-blocking
 * and closed on exec, with its port in *port; or -1. */
int tern_listen(const char *host, int backlog, unsigned *port, struct tern_err *err);

#endif
