/* The nodes of a place, in the order of their ranks: core/run/map with what Slurm knows. */
#ifndef TERN_RUN_ORDER_H
#define TERN_RUN_ORDER_H

#include "core/base/str.h"
#include "core/run/map.h"
#include "core/run/place.h"

struct tern_run_order {
    size_t n;
    char **hosts; /* [n], in the job's order */
    char **where; /* [n]: the switches above each, "" when not known */
    struct tern_run_node *nodes;
    struct tern_run_map map;
};

/* Fills *o; free with tern_run_order_free.  Asks the controller once, whatever the number of nodes,
 * and not at all where the order is given (one node, launch.mapping: block, a heterogeneous job,
 * whose groups have theirs).  A controller that does not tell is a warning: no switches are known
 * then. */
int tern_run_order(const struct tern_run_place *p, const struct tern_recipe *r,
                   struct tern_run_order *o, struct tern_err *err);
/* The same for nodes named `hosts` under switches `where`, both copied. */
int tern_run_order_of(char *const *hosts, char *const *where, size_t n, const struct tern_recipe *r,
                      int64_t per_node, struct tern_run_order *o, struct tern_err *err);
void tern_run_order_free(struct tern_run_order *o);

/* One host a line in the order of the tasks, `per_node` each: what srun and mpirun are given. */
void tern_run_order_hosts(const struct tern_run_order *o, int64_t per_node, struct tern_buf *to);

#endif
