/* The nodes of a place in the order of their ranks. It reads hosts and switches from Slurm and
 * makes the map (map.h), whose order search.c chooses. */
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

/* Fills *o; free with tern_place_order_free.  The controller is queried once, whatever the number
 * of nodes.  It is not queried where the order is given: one node, launch.mapping: block, or a
 * heterogeneous job.  When the controller does not answer, a warning says so, and no switches are
 * known. */
int tern_place_order_read(const struct tern_place *p, const struct tern_recipe *r,
                          struct tern_place_order *o, struct tern_err *err);
/* The same for nodes named `hosts` under switches `where`, both copied. */
int tern_place_order_make(char *const *hosts, char *const *where, size_t n,
                          const struct tern_recipe *r, int64_t per_node, struct tern_place_order *o,
                          struct tern_err *err);
void tern_place_order_free(struct tern_place_order *o);

/* One host a line in the order of the tasks, `per_node` each: the list that srun and mpirun read.
 */
void tern_place_order_list(const struct tern_place_order *o, int64_t per_node, struct tern_buf *to);

#endif
