/* The nodes of a job, and which of them an attempt may use. */
#ifndef TERN_PLACE_NODES_H
#define TERN_PLACE_NODES_H

#include <stdbool.h>
#include <stddef.h>

#include "core/place/place.h"

struct tern_place_nodes {
    char **host; /* [n], in the job's order */
    bool *bad;   /* [n]: failed in this job; never used again in it */
    size_t n;
};

/* All nodes of `p`.  Freed with tern_place_nodes_free. */
int tern_place_nodes_read(struct tern_place_nodes *nodes, const struct tern_place *p,
                          struct tern_err *err);
void tern_place_nodes_free(struct tern_place_nodes *nodes);

/* `host` is ignored when it is no node of the job. */
void tern_place_nodes_mark_bad(struct tern_place_nodes *nodes, const char *host);

/* Put the first `want` good ones into p->nodes and p->node_list.  -1 when there are fewer:
 * TERN_TEMPFAIL with the names of the bad nodes. */
int tern_place_nodes_choose(const struct tern_place_nodes *nodes, size_t want, struct tern_place *p,
                            struct tern_err *err);

#endif
