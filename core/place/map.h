/* Which rank runs on which node.
 *
 * world = tensor x data x pipeline, and rank = (pipeline * data + d) * tensor + t: tensor fastest,
 * then data, then pipeline, as NxD and Megatron number them.  Each node holds a block of
 * consecutive ranks.  A launcher with one task a node (torchrun) therefore gives ranks the same
 * places as one that starts every rank.  The order of the nodes is chosen for the least cost:
 *
 *   The switches between two nodes are those on the path through the tree.  They are 1 under one
 *   leaf, 3 over the next level, and so on; 0 inside a node.  A cost has three parts, each the
 *   switches that neighbours cross.  They are the neighbours of tensor groups (rings, several times
 *   a layer), of pipelines (every micro-batch), and of data-parallel groups (rings, once a step).
 *   Costs compare in that order: a part counts only when those before it are equal.
 *
 * A tensor group lies inside a node, or spans whole nodes.  The first node stays the first: scripts
 * take it for the master, where rank 0 is.  Among equal orders the given one wins, then the one
 * that the search changed least; the result depends on the arguments alone.  For a dozen nodes or
 * so the search (search.c) is exhaustive, and `exact` says so.  For more it takes the better of two
 * constructed orders and improves it by swaps.
 */
#ifndef TERN_PLACE_MAP_H
#define TERN_PLACE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"

struct tern_place_node {
    const char *name;
    const char *where; /* the switches above it, root first: "spine.leaf1"; "" when not known */
};

struct tern_place_shape {
    size_t n_nodes;
    const struct tern_place_node *nodes; /* in the job's order */
    int64_t per_node;                    /* ranks (of a workload: its workers) on each */
    int64_t tensor, pipeline;            /* degrees */
    bool keep;                           /* the given order stays: launch.mapping: block */
};

/* Switches crossed, summed over neighbours. */
struct tern_place_cost {
    int64_t tensor, pipeline, data;
};

struct tern_place_map {
    size_t n_nodes;
    int64_t world, per_node, tensor, pipeline, data;
    size_t *order;                /* [n_nodes]: order[k] is the node with ranks k * per_node ... */
    bool moved;                   /* order is not 0, 1, 2, ... */
    bool exact;                   /* no order has a lower cost */
    struct tern_place_cost cost;  /* of `order` */
    struct tern_place_cost given; /* of the nodes as they came */
};

struct tern_place_rank {
    size_t node;   /* index into shape->nodes */
    int64_t local; /* place on the node */
    int64_t tensor, data, pipeline;
};

/* Fills *m; free with tern_place_map_free.  TERN_USAGE when the ranks do not divide over tensor x
 * pipeline, or a tensor group would share a node with a part of another. */
int tern_place_map_make(const struct tern_place_shape *shape, struct tern_place_map *m,
                        struct tern_err *err);
void tern_place_map_free(struct tern_place_map *m);

/* Only its checks. */
int tern_place_map_check(size_t n_nodes, int64_t per_node, int64_t tensor, int64_t pipeline,
                         struct tern_err *err);

/* `rank` in [0, world). */
struct tern_place_rank tern_place_map_rank(const struct tern_place_map *m, int64_t rank);
/* The rank at these coordinates. */
int64_t tern_place_map_number(const struct tern_place_map *m, int64_t tensor, int64_t data,
                              int64_t pipeline);

/* Switches between two different nodes, from the switches above each. */
int tern_place_switches(const char *a, const char *b);
/* <0, 0, >0. */
int tern_place_cost_compare(const struct tern_place_cost *a, const struct tern_place_cost *b);
/* The cost of nodes in `order`.  For tests, and to report what the map gained. */
int tern_place_map_cost(const struct tern_place_shape *shape, const size_t *order,
                        struct tern_place_cost *cost, struct tern_err *err);

#endif
