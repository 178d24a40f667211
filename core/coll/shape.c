/* Which members of a communicator share a node. */
#include "core/coll/program.h"

#include <stdlib.h>

static void *array(size_t n, size_t size)
{
    return calloc(n ? n : 1, size);
}

/* Which member is where; nodes are numbered by their lowest member.  `number`: the node of a member
 * by any numbers below `most`. */
static int place_members(struct tern_coll_shape *c, const int *number, int most)
{
    int *seen = array((size_t)most, sizeof *seen); /* number -> node here + 1 */

    if (!seen)
        return -1;
    for (int i = 0; i < c->size; i++) {
        int *at = &seen[number[i]];
        if (!*at)
            *at = ++c->nodes;
        c->node_of[i] = *at - 1;
        c->local_of[i] = c->node_size[*at - 1]++;
    }
    free(seen);
    c->even = true;
    for (int k = 0; k < c->nodes; k++) {
        c->node_ranks[k] = array((size_t)c->node_size[k], sizeof **c->node_ranks);
        if (!c->node_ranks[k])
            return -1;
        c->mixed |= c->nodes > 1 && c->node_size[k] > 1;
        c->even &= c->node_size[k] == c->node_size[0];
    }
    for (int i = 0; i < c->size; i++)
        c->node_ranks[c->node_of[i]][c->local_of[i]] = i;
    c->node = c->node_of[c->rank];
    c->local = c->local_of[c->rank];
    c->p = c->node_size[c->node];
    c->peers = c->node_ranks[c->node];
    return 0;
}

int tern_coll_shape_make(struct tern_coll_shape *c, int size, int rank, const int *node_of,
                         struct tern_err *err)
{
    size_t n = (size_t)size;
    int most = 0;

    *c = (struct tern_coll_shape){.size = size, .rank = rank};
    c->node_of = array(n, sizeof *c->node_of);
    c->local_of = array(n, sizeof *c->local_of);
    c->node_size = array(n, sizeof *c->node_size);
    c->node_ranks = array(n, sizeof *c->node_ranks);
    c->scratch = array(2 * n, sizeof *c->scratch);
    bool good = c->node_of && c->local_of && c->node_size && c->node_ranks && c->scratch;
    for (int i = 0; i < size; i++)
        most = node_of[i] > most ? node_of[i] : most;
    if (!good || place_members(c, node_of, most + 1) < 0)
        return tern_err_set(err, TERN_FAILED, "out of memory for a communicator of %d ranks", size);
    return 0;
}

void tern_coll_shape_free(struct tern_coll_shape *c)
{
    for (int k = 0; c->node_ranks && k < c->nodes; k++)
        free(c->node_ranks[k]);
    free(c->scratch);
    free(c->node_ranks);
    free(c->node_of);
    free(c->local_of);
    free(c->node_size);
    *c = (struct tern_coll_shape){0};
}
