/* The nodes of a place, in the order of their ranks: core/place/map with what Slurm knows. */
#ifndef TERN_PLACE_ORDER_H
#define TERN_PLACE_ORDER_H

#include "core/base/str.h"
#include "core/place/map.h"
#include "core/place/place.h"

struct tern_place_order {
    size_t n;
    char **hosts; /* [n], in the job's order */
    char **where; /* [n]: the switches above each, "" when not known */
    struct tern_place_node *nodes;
    struct tern_place_map map;
};

/* Fills *o; free with tern_place_order_free.  Asks the controller once, whatever the number of
 * nodes, and not at all where the order is given (one node, launch.mapping: block, a heterogeneous
 * job, whose groups have theirs).  A controller that does not tell is a warning: no switches are
 * known then. */
int tern_place_order_read(const struct tern_place *p, const struct tern_recipe *r,
                          struct tern_place_order *o, struct tern_err *err);
/* The same for nodes named `hosts` under switches `where`, both copied. */
int tern_place_order_make(char *const *hosts, char *const *where, size_t n,
                          const struct tern_recipe *r, int64_t per_node, struct tern_place_order *o,
                          struct tern_err *err);
void tern_place_order_free(struct tern_place_order *o);

/* One host a line in the order of the tasks, `per_node` each: what srun and mpirun are given. */
void tern_place_order_list(const struct tern_place_order *o, int64_t per_node, struct tern_buf *to);

#endif
