/* Between nodes: each with its two neighbours on a ring, then all together.
 *
 * A program of its own (tern-link) calls it, so that the quick checks do without libfabric, which
 * takes 0.2 s to load. */
#ifndef TERN_HEALTH_LINK_H
#define TERN_HEALTH_LINK_H

#include "core/health/health.h"

/* One process a node calls it, all together; they meet at `socket` ("host:port/key"; NULL: as
 * launched).  Adds a row a link and direction of measure (MB/s, us; the subject is the neighbour),
 * and one for the all-reduce.  A failure is a row, too. */
void tern_health_link(const char *socket, bool deep, struct tern_health_rows *rows);

#endif
