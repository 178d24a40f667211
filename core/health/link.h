/* Between nodes: each with its two neighbours on a ring, then all together.
 *
 * The only part that needs libfabric, whose libraries take 0.2 s to load: a program of its own
 * (tern-link) calls it, so that the quick checks need not. */
#ifndef TERN_HEALTH_LINK_H
#define TERN_HEALTH_LINK_H

#include "core/health/health.h"

/* One process a node calls it, all together; they meet at `socket` ("host:port/key"; NULL: as
 * launched).  Adds a row a link and direction of measure (MB/s, us; the subject is the neighbour),
 * and one for the all-reduce.  What fails is a row, too. */
void tern_health_link(const char *socket, bool deep, struct tern_health_rows *rows);

#endif
