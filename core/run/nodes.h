/* The nodes of a job: which of them an attempt may use. */
#ifndef TERN_RUN_NODES_H
#define TERN_RUN_NODES_H

#include <stdbool.h>
#include <stddef.h>

#include "core/run/place.h"

struct tern_run_nodes {
    char **host; /* [n], in the job's order */
    bool *bad;   /* [n]: failed in this job; never used again in it */
    size_t n;
};

/* All nodes of `p`.  Freed with tern_run_nodes_free. */
int tern_run_nodes_read(struct tern_run_nodes *nodes, const struct tern_run_place *p,
                        struct tern_err *err);
void tern_run_nodes_free(struct tern_run_nodes *nodes);

/* A name that is not the job's is ignored. */
void tern_run_nodes_mark_bad(struct tern_run_nodes *nodes, const char *host);

/* Put the first `want` good ones into p->nodes and p->node_list.  -1 when there are fewer:
 * TERN_TEMPFAIL, and the bad ones are named. */
int tern_run_nodes_choose(const struct tern_run_nodes *nodes, size_t want, struct tern_run_place *p,
                          struct tern_err *err);

#endif
