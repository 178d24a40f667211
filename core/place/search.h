/* Chooses the order of the nodes of a map (map.h says by which costs). */
#ifndef TERN_PLACE_SEARCH_H
#define TERN_PLACE_SEARCH_H

#include "core/place/map.h"

struct tern_place_degrees {
    int64_t world, per_node, tensor, pipeline, data;
};

/* Fill order, exact, cost and given of `m`, whose order is 0, 1, 2, ... before.  A shape too large
 * to search keeps that order, and its costs stay 0. */
int tern_place_search_order(const struct tern_place_shape *shape,
                            const struct tern_place_degrees *d, struct tern_place_map *m,
                            struct tern_err *err);
/* The cost of nodes in `order`. */
int tern_place_search_cost(const struct tern_place_shape *shape, const struct tern_place_degrees *d,
                           const size_t *order, struct tern_place_cost *cost, struct tern_err *err);

#endif
