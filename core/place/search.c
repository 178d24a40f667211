#include "core/place/search.h"

#include "core/base/str.h"

#include <stdlib.h>
#include <string.h>

enum {
    /* Each kind of place has a row of switch counts, a byte each: 16 MiB at most. */
    MAX_NODES = 4096,
    MAX_WORLD = 1 << 20, /* each with three edges of 16 bytes */
    /* Steps of the exhaustive search and of the swaps: each some ten nanoseconds. */
    SEARCH_STEPS = 1 << 21,
    SWAP_STEPS = 1 << 22,
};

enum kind { TENSOR, PIPELINE, DATA, N_KINDS };

/* `count` pairs of neighbours between two positions in the order of the nodes. */
struct edge {
    uint32_t from, to; /* positions */
    uint32_t kind, count;
};

struct problem {
    const struct tern_place_shape *shape;
    size_t n;           /* nodes */
    size_t n_places;    /* kinds of place: nodes under the same switches are alike */
    uint32_t *place;    /* [n] of each node */
    uint8_t *beyond;    /* [n_places][n_places] switches between nodes there, less the one that any
                           two nodes have between them */
    struct edge *edges; /* both directions, by `from` */
    size_t n_edges;
    size_t *first; /* [n + 1]: edges of position k are [first[k], first[k + 1]) */
};

/* ------------------------------------------------------------------ switches */

static int find_places(struct problem *p, struct tern_err *err)
{
    const struct tern_place_node *nodes = p->shape->nodes;
    size_t *example = tern_alloc(p->n, sizeof *example, "nodes", err);

    p->place = tern_alloc(p->n, sizeof *p->place, "nodes", err);
    for (size_t i = 0; example && p->place && i < p->n; i++) {
        size_t k = 0;
        while (k < p->n_places && strcmp(nodes[example[k]].where, nodes[i].where) != 0)
            k++;
        if (k == p->n_places)
            example[p->n_places++] = i;
        p->place[i] = (uint32_t)k;
    }
    if (example && p->place)
        p->beyond = tern_alloc(p->n_places * p->n_places, 1, "switches between nodes", err);
    for (size_t a = 0; p->beyond && a < p->n_places; a++)
        for (size_t b = 0; b < p->n_places; b++) {
            int s = tern_place_switches(nodes[example[a]].where, nodes[example[b]].where) - 1;
            p->beyond[a * p->n_places + b] = (uint8_t)(s > 255 ? 255 : s);
        }
    free(example);
    return p->beyond ? 0 : -1;
}

/* ------------------------------------------------------------------ neighbours */

static void put_edge(struct edge *e, size_t *n, enum kind kind, int64_t a, int64_t b,
                     int64_t per_node)
{
    uint32_t from = (uint32_t)(a / per_node), to = (uint32_t)(b / per_node);

    if (from == to)
        return;
    e[(*n)++] = (struct edge){from, to, kind, 1};
    e[(*n)++] = (struct edge){to, from, kind, 1};
}

static int compare_edges(const void *x, const void *y)
{
    const struct edge *a = x, *b = y;

    if (a->from != b->from)
        return a->from < b->from ? -1 : 1;
    if (a->to != b->to)
        return a->to < b->to ? -1 : 1;
    return a->kind < b->kind ? -1 : a->kind > b->kind;
}

/* The neighbours of each rank, then those between the same two positions as one. */
static int find_edges(struct problem *p, const struct tern_place_degrees *d, struct tern_err *err)
{
    const int64_t stage = d->tensor * d->data;
    size_t n = 0, kept = 0;

    p->edges = tern_alloc(6 * (size_t)d->world + 1, sizeof *p->edges, "neighbours", err);
    p->first = tern_alloc(p->n + 1, sizeof *p->first, "neighbours", err);
    if (!p->edges || !p->first)
        return -1;
    for (int64_t r = 0; r < d->world; r++) {
        int64_t t = r % d->tensor, dd = r / d->tensor % d->data;
        if (t + 1 < d->tensor)
            put_edge(p->edges, &n, TENSOR, r, r + 1, d->per_node);
        else if (d->tensor > 2) /* the ring closes */
            put_edge(p->edges, &n, TENSOR, r, r - d->tensor + 1, d->per_node);
        if (dd + 1 < d->data)
            put_edge(p->edges, &n, DATA, r, r + d->tensor, d->per_node);
        else if (d->data > 2)
            put_edge(p->edges, &n, DATA, r, r - stage + d->tensor, d->per_node);
        if (r + stage < d->world)
            put_edge(p->edges, &n, PIPELINE, r, r + stage, d->per_node);
    }
    qsort(p->edges, n, sizeof *p->edges, compare_edges);
    for (size_t i = 0; i < n; i++)
        if (kept && compare_edges(&p->edges[kept - 1], &p->edges[i]) == 0)
            p->edges[kept - 1].count++;
        else
            p->edges[kept++] = p->edges[i];
    p->n_edges = kept;
    for (size_t i = 0, k = 0; k <= p->n; k++) {
        while (i < kept && p->edges[i].from < k)
            i++;
        p->first[k] = i;
    }
    return 0;
}

/* ------------------------------------------------------------------ costs */

static void add(struct tern_place_cost *c, uint32_t kind, int64_t v)
{
    *(kind == TENSOR ? &c->tensor : kind == PIPELINE ? &c->pipeline : &c->data) += v;
}

/* The cost beyond the one switch that any two nodes have between them. */
static struct tern_place_cost beyond(const struct problem *p, const uint32_t *place_at)
{
    struct tern_place_cost c = {0};

    for (size_t i = 0; i < p->n_edges; i++) {
        const struct edge *e = &p->edges[i];
        if (e->from < e->to)
            add(&c, e->kind,
                e->count * (int64_t)p->beyond[place_at[e->from] * p->n_places + place_at[e->to]]);
    }
    return c;
}

static struct tern_place_cost whole(const struct problem *p, struct tern_place_cost c)
{
    for (size_t i = 0; i < p->n_edges; i++)
        if (p->edges[i].from < p->edges[i].to)
            add(&c, p->edges[i].kind, p->edges[i].count);
    return c;
}

/* A position's edges to the positions before `end`, less the one to `but`. */
struct edges_of {
    size_t position, end, but;
};

/* What they add, `sign` times, if the position were at `place` and the others at `place_at`. */
static void add_position(const struct problem *p, const uint32_t *place_at, struct edges_of of,
                         uint32_t place, int sign, struct tern_place_cost *c)
{
    const uint8_t *row = &p->beyond[place * p->n_places];

    for (size_t i = p->first[of.position]; i < p->first[of.position + 1]; i++) {
        const struct edge *e = &p->edges[i];
        if (e->to < of.end && e->to != of.but)
            add(c, e->kind, sign * (int64_t)e->count * row[place_at[e->to]]);
    }
}

/* ------------------------------------------------------------------ search */

/* An arrangement says which place each position has; nodes of one place are alike. */
struct arrangement {
    uint32_t *place_at; /* [n] */
    struct tern_place_cost cost;
};

static bool better(const struct tern_place_cost *a, const struct tern_place_cost *b)
{
    return tern_place_cost_compare(a, b) < 0;
}

static void take(const struct problem *p, struct arrangement *best, const uint32_t *place_at,
                 const struct tern_place_cost *cost)
{
    memcpy(best->place_at, place_at, p->n * sizeof *place_at);
    best->cost = *cost;
}

static bool is_free(const struct tern_place_cost *c)
{
    return !c->tensor && !c->pipeline && !c->data;
}

/* Swap two positions as long as that helps. */
static void descend(const struct problem *p, struct arrangement *a)
{
    int64_t steps = 0;
    bool moved = true;

    while (moved && steps < SWAP_STEPS && !is_free(&a->cost)) {
        moved = false;
        for (size_t i = 1; i < p->n && steps < SWAP_STEPS; i++)
            for (size_t j = i + 1; j < p->n; j++) {
                uint32_t x = a->place_at[i], y = a->place_at[j];
                struct tern_place_cost c = a->cost;
                if (x == y)
                    continue;
                steps += (int64_t)(p->first[i + 1] - p->first[i] + p->first[j + 1] - p->first[j]);
                /* An edge between the two keeps its length. */
                const struct edges_of of_i = {i, p->n, j}, of_j = {j, p->n, i};
                add_position(p, a->place_at, of_i, x, -1, &c);
                add_position(p, a->place_at, of_i, y, 1, &c);
                add_position(p, a->place_at, of_j, y, -1, &c);
                add_position(p, a->place_at, of_j, x, 1, &c);
                if (!better(&c, &a->cost))
                    continue;
                a->place_at[i] = y;
                a->place_at[j] = x;
                a->cost = c;
                moved = true;
            }
    }
}

struct search {
    const struct problem *p;
    struct arrangement *best;
    uint32_t *place_at; /* [n]; filled up to the depth */
    size_t *left;       /* [n_places] nodes not yet placed */
    int64_t steps;
};

/* Every arrangement that could still be better; false when the steps run out. */
static bool search(struct search *s, size_t k, const struct tern_place_cost *so_far)
{
    const struct problem *p = s->p;

    if (k == p->n) {
        take(p, s->best, s->place_at, so_far);
        return true;
    }
    for (uint32_t place = 0; place < p->n_places; place++) {
        struct tern_place_cost c = *so_far;
        if (!s->left[place] || (k == 0 && place != p->place[0]))
            continue;
        s->steps += 1 + (int64_t)(p->first[k + 1] - p->first[k]);
        if (s->steps > SEARCH_STEPS)
            return false;
        add_position(p, s->place_at, (struct edges_of){k, k, p->n}, place, 1, &c);
        if (!better(&c, &s->best->cost))
            continue;
        s->place_at[k] = place;
        s->left[place]--;
        bool done = search(s, k + 1, &c);
        s->left[place]++;
        if (!done)
            return false;
    }
    return true;
}

static int search_all(const struct problem *p, struct arrangement *best, bool *exact,
                      struct tern_err *err)
{
    enum { DEEPEST = 64 }; /* more could not be searched anyway */
    const struct tern_place_cost none = {0};
    struct search s = {.p = p, .best = best};

    *exact = is_free(&best->cost);
    if (*exact || p->n > DEEPEST)
        return 0;
    s.place_at = tern_alloc(p->n, sizeof *s.place_at, "nodes", err);
    s.left = tern_alloc(p->n_places, sizeof *s.left, "nodes", err);
    for (size_t i = 0; s.left && i < p->n; i++)
        s.left[p->place[i]]++;
    if (s.place_at && s.left)
        *exact = search(&s, 0, &none);
    int rc = s.place_at && s.left ? 0 : -1;
    free(s.place_at);
    free(s.left);
    return rc;
}

/* ------------------------------------------------------------------ constructed orders */

/* From the first node outwards: its leaf, then what is near to it. */
static int compare_where(const void *a, const void *b, void *arg)
{
    const struct tern_place_node *nodes = arg;
    size_t i = *(const size_t *)a, j = *(const size_t *)b;
    int near = tern_place_switches(nodes[0].where, nodes[i].where) -
               tern_place_switches(nodes[0].where, nodes[j].where);
    int c = near ? near : strcmp(nodes[i].where, nodes[j].where);

    return c ? c : i < j ? -1 : i > j;
}

/* Nodes sorted by their switches, dealt to the positions either in their order, or stage by stage.
 * Stage by stage, every pipeline stage gets nodes for its first `unit` positions, then for the
 * next ones. */
static void construct(const struct problem *p, const size_t *sorted, size_t stage, size_t unit,
                      struct arrangement *a)
{
    size_t next = 0;

    for (size_t offset = 0; offset < stage; offset += unit)
        for (size_t base = 0; base < p->n; base += stage)
            for (size_t k = 0; k < unit; k++)
                a->place_at[base + offset + k] = p->place[sorted[next++]];
    a->cost = beyond(p, a->place_at);
    descend(p, a);
}

static int try_constructed(const struct problem *p, const struct tern_place_degrees *d,
                           struct arrangement *best, struct tern_err *err)
{
    struct arrangement a = {tern_alloc(p->n, sizeof *a.place_at, "nodes", err), {0}};
    size_t *sorted = tern_alloc(p->n, sizeof *sorted, "nodes", err);
    /* Positions of a stage, and of a tensor group; one where they are parts of a position. */
    size_t stage = (size_t)(d->tensor * d->data / d->per_node), unit;
    int rc = a.place_at && sorted ? 0 : -1;

    if (rc == 0) {
        for (size_t i = 0; i < p->n; i++)
            sorted[i] = i;
        qsort_r(sorted, p->n, sizeof *sorted, compare_where, (void *)(uintptr_t)p->shape->nodes);
        unit = d->tensor > d->per_node ? (size_t)(d->tensor / d->per_node) : 1;
        if (stage && d->tensor * d->data % d->per_node == 0 && p->n % stage == 0) {
            construct(p, sorted, stage, unit, &a);
            if (better(&a.cost, &best->cost))
                take(p, best, a.place_at, &a.cost);
        }
        construct(p, sorted, p->n, p->n, &a);
        if (better(&a.cost, &best->cost))
            take(p, best, a.place_at, &a.cost);
    }
    free(a.place_at);
    free(sorted);
    return rc;
}

/* ------------------------------------------------------------------ the choice */

static void free_problem(struct problem *p)
{
    free(p->place);
    free(p->beyond);
    free(p->edges);
    free(p->first);
}

static int make_problem(struct problem *p, const struct tern_place_shape *s,
                        const struct tern_place_degrees *d, struct tern_err *err)
{
    *p = (struct problem){.shape = s, .n = s->n_nodes};
    if (find_places(p, err) == 0 && find_edges(p, d, err) == 0)
        return 0;
    free_problem(p);
    return -1;
}

/* The nodes of each place in their given order, for as few changes as possible. */
static void settle(const struct problem *p, const uint32_t *place_at, size_t *order)
{
    for (uint32_t place = 0; place < p->n_places; place++) {
        size_t node = 0;
        for (size_t k = 0; k < p->n; k++) {
            if (place_at[k] != place)
                continue;
            while (p->place[node] != place)
                node++;
            order[k] = node++;
        }
    }
}

static int choose(struct problem *p, const struct tern_place_degrees *d, struct tern_place_map *m,
                  struct tern_err *err)
{
    struct arrangement best = {tern_alloc(p->n, sizeof *best.place_at, "nodes", err), {0}};
    int rc = -1;

    if (!best.place_at)
        return -1;
    take(p, &best, p->place, &best.cost);
    best.cost = beyond(p, p->place);
    m->given = whole(p, best.cost);
    if (!p->shape->keep && !is_free(&best.cost) && try_constructed(p, d, &best, err) < 0)
        goto out;
    if (!p->shape->keep && search_all(p, &best, &m->exact, err) < 0)
        goto out;
    settle(p, best.place_at, m->order);
    m->cost = whole(p, best.cost);
    rc = 0;
out:
    free(best.place_at);
    return rc;
}

int tern_place_search_order(const struct tern_place_shape *shape,
                            const struct tern_place_degrees *d, struct tern_place_map *m,
                            struct tern_err *err)
{
    struct problem p;

    if (shape->n_nodes > MAX_NODES || d->world > MAX_WORLD)
        return 0;
    if (make_problem(&p, shape, d, err) < 0)
        return -1;
    int rc = choose(&p, d, m, err);
    free_problem(&p);
    return rc;
}

int tern_place_search_cost(const struct tern_place_shape *shape, const struct tern_place_degrees *d,
                           const size_t *order, struct tern_place_cost *cost, struct tern_err *err)
{
    struct problem p;
    uint32_t *place_at = NULL;

    if (make_problem(&p, shape, d, err) < 0)
        return -1;
    place_at = tern_alloc(p.n, sizeof *place_at, "nodes", err);
    for (size_t k = 0; place_at && k < p.n; k++)
        place_at[k] = p.place[order[k]];
    if (place_at)
        *cost = whole(&p, beyond(&p, place_at));
    int rc = place_at ? 0 : -1;
    free(place_at);
    free_problem(&p);
    return rc;
}
