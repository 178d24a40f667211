/* core/place/map: ranks on nodes, against brute force where there are few nodes. */
#include "tests/unit/tap.h"

#include "core/base/rand.h"
#include "core/place/map.h"

#include <stdlib.h>
#include <time.h>

enum { MOST = 4096 };
static struct tern_place_node nodes[MOST];
static char names[MOST][16], wheres[MOST][40];

/* Nodes n0, n1, ... with the given switches above each. */
static struct tern_place_shape shape(size_t n, const char *const *where, int per_node, int tensor,
                                     int pipeline)
{
    for (size_t i = 0; i < n; i++) {
        snprintf(names[i], sizeof names[i], "n%zu", i);
        nodes[i] = (struct tern_place_node){names[i], where ? where[i] : ""};
    }
    return (struct tern_place_shape){
        .n_nodes = n, .nodes = nodes, .per_node = per_node, .tensor = tensor, .pipeline = pipeline};
}

static void switches(void)
{
    ok(tern_place_switches("", "") == 1, "nodes without known switches have one between them");
    ok(tern_place_switches("s.a", "s.a") == 1,
       "two nodes of one leaf have one switch between them");
    ok(tern_place_switches("s.a", "s.b") == 3,
       "nodes under two leaves of a spine have three switches between them");
    ok(tern_place_switches("r.s.a", "r.t.b") == 5,
       "nodes under two spines of a root have five switches between them");
    ok(tern_place_switches("s.a", "s") == 2,
       "a node at the spine and one under its leaf have two switches between them");
    ok(tern_place_switches("a", "b") == 3, "nodes with nothing in common meet above both");
    ok(tern_place_switches("s.a1", "s.a") == 3,
       "a switch whose name begins like another is another switch");
}

static void numbers(void)
{
    struct tern_place_shape s = shape(4, NULL, 4, 2, 2);
    struct tern_place_map m;
    struct tern_err err = {0};
    bool good = true;

    ok(tern_place_map_make(&s, &m, &err) == 0 && m.world == 16 && m.data == 4,
       "16 ranks: 2 x 2 x 4");
    for (int64_t r = 0; r < m.world; r++) {
        struct tern_place_rank k = tern_place_map_rank(&m, r);
        good = good && tern_place_map_number(&m, k.tensor, k.data, k.pipeline) == r &&
               (int64_t)k.node == r / 4 && k.local == r % 4;
    }
    ok(good, "coordinates and numbers are each other's reverse; blocks of ranks");
    struct tern_place_rank k = tern_place_map_rank(&m, 13);
    ok(k.tensor == 1 && k.data == 2 && k.pipeline == 1, "tensor fastest, then data, then pipeline");
    ok(!m.moved && m.exact, "without a topology the order is the job's");
    ok(m.cost.tensor == 0 && m.cost.pipeline == 8, "eight pipeline pairs, one switch each");
    tern_place_map_free(&m);
}

static void refused(void)
{
    struct tern_place_map m;
    struct tern_err err = {0};
    struct tern_place_shape s = shape(3, NULL, 4, 8, 1);

    ok(tern_place_map_make(&s, &m, &err) < 0 && err.code == TERN_USAGE, "12 ranks over 8: refused");
    has(err.text, "3 nodes x 4 ranks are 12, no multiple", "the error names 12 ranks of 3 nodes");
    s = shape(2, NULL, 6, 4, 1);
    ok(tern_place_map_make(&s, &m, &err) < 0, "groups of 4 on nodes of 6: refused");
    has(err.text, "share a node", "the error says that groups share a node");
    s = shape(4, NULL, 6, 4, 1);
    ok(tern_place_map_make(&s, &m, &err) < 0,
       "a tensor group that shares a node is refused also when the ranks divide");
}

/* Stage neighbours lie under one leaf although the job's order has them apart. */
static void pipelines(void)
{
    static const char *const where[] = {"s.a", "s.a", "s.b", "s.b"};
    struct tern_place_shape s = shape(4, where, 2, 2, 2);
    struct tern_place_map m;
    struct tern_err err = {0};

    tern_place_map_make(&s, &m, &err);
    ok(m.given.pipeline == 12 && m.cost.pipeline == 4 && m.moved && m.exact,
       "pipeline neighbours under one leaf: 4 switches, not 12");
    ok(m.order[0] == 0 && m.order[1] == 2 && m.order[2] == 1 && m.order[3] == 3,
       "the order alternates the leaves");
    tern_place_map_free(&m);
    s.keep = true;
    tern_place_map_make(&s, &m, &err);
    ok(!m.moved && m.cost.pipeline == 12, "launch.mapping: block keeps the job's order");
    tern_place_map_free(&m);

    static const char *const mixed[] = {"s.a", "s.b", "s.a", "s.b"};
    s = shape(4, mixed, 2, 4, 1);
    tern_place_map_make(&s, &m, &err);
    ok(m.cost.tensor == 4 && m.given.tensor == 12 && m.order[1] == 2,
       "a tensor group of two nodes lies under one leaf");
    tern_place_map_free(&m);
}

static bool next_permutation(size_t *v, size_t n)
{
    size_t i = n - 1, j = n - 1;

    while (i > 0 && v[i - 1] >= v[i])
        i--;
    if (i == 0)
        return false;
    while (v[j] <= v[i - 1])
        j--;
    size_t t = v[i - 1];
    v[i - 1] = v[j];
    v[j] = t;
    for (j = n - 1; i < j; i++, j--)
        t = v[i], v[i] = v[j], v[j] = t;
    return true;
}

static void brute_force(void)
{
    static const int degrees[][3] = {{2, 2, 2}, {2, 4, 1}, {4, 2, 2}, {2, 1, 3}, {1, 1, 2},
                                     {2, 4, 3}, {1, 2, 2}, {4, 4, 6}, {2, 2, 7}, {1, 1, 1}};
    uint64_t cases = 0, moved = 0;
    bool same = true, all_exact = true;
    uint64_t drawn = 0;

    for (size_t n = 2; n <= 7; n++)
        for (size_t g = 0; g < sizeof degrees / sizeof *degrees; g++)
            for (int again = 0; again < 3; again++) {
                const char *where[8];
                size_t order[8];
                for (size_t i = 0; i < n; i++) {
                    uint64_t k = tern_rand_below(11, 1, drawn++, 4);
                    snprintf(wheres[i], sizeof wheres[i], "r.s%d.l%d", (int)(k / 2), (int)k);
                    where[i] = wheres[i];
                    order[i] = i;
                }
                struct tern_place_shape s =
                    shape(n, where, degrees[g][0], degrees[g][1], degrees[g][2]);
                struct tern_place_cost least, c;
                struct tern_place_map m;
                if (tern_place_map_make(&s, &m, NULL) < 0)
                    continue;
                tern_place_map_cost(&s, order, &least, NULL);
                do {
                    tern_place_map_cost(&s, order, &c, NULL);
                    if (tern_place_cost_compare(&c, &least) < 0)
                        least = c;
                } while (n > 2 && next_permutation(order + 1, n - 1)); /* the first stays */
                tern_place_map_cost(&s, m.order, &c, NULL);
                same = same && m.order[0] == 0 && tern_place_cost_compare(&m.cost, &least) == 0 &&
                       tern_place_cost_compare(&c, &least) == 0;
                all_exact = all_exact && m.exact;
                cases++;
                moved += m.moved;
                tern_place_map_free(&m);
            }
    ok(cases > 50 && moved > 10, "%d cases, %d of them rearranged", (int)cases, (int)moved);
    ok(same, "each order is as cheap as the cheapest of all");
    ok(all_exact, "the cheapest orders are known to be exact");
}

/* 16 leaves of nodes in a mixed order: the search cannot try all, and must still find the obvious
 * order. */
static void large(size_t n, int tensor, int pipeline, int64_t pipeline_cost)
{
    static const char *where[MOST];
    struct tern_place_map m;
    struct tern_err err = {0};

    for (size_t i = 0; i < n; i++) {
        snprintf(wheres[i], sizeof wheres[i], "spine.leaf%02d",
                 (int)(tern_rand_permute(3, 1, i, n) / (n / 16)));
        where[i] = wheres[i];
    }
    struct tern_place_shape s = shape(n, where, 32, tensor, pipeline);
    clock_t began = clock();
    int rc = tern_place_map_make(&s, &m, &err);
    double took = (double)(clock() - began) / CLOCKS_PER_SEC;
    char *seen = calloc(n, 1);
    bool once = rc == 0;
    for (size_t k = 0; once && k < n; k++) {
        once = m.order[k] < n && !seen[m.order[k]];
        if (once)
            seen[m.order[k]] = 1;
    }
    free(seen);
    ok(once, "%zu nodes x 32: each node once", n);
    ok(m.cost.tensor == 0 && m.cost.pipeline == pipeline_cost,
       "TP%d PP%d: every pipeline neighbour under its leaf", tensor, pipeline);
    printf("# %.3f s; pipeline %lld -> %lld, data %lld -> %lld\n", took,
           (long long)m.given.pipeline, (long long)m.cost.pipeline, (long long)m.given.data,
           (long long)m.cost.data);
    tern_place_map_free(&m);
}

int main(void)
{
    switches();
    numbers();
    refused();
    pipelines();
    brute_force();
    large(64, 8, 4, 48 * 32);
    large(64, 32, 2, 32 * 32);
    large(1024, 8, 8, 896 * 32);
    return tap_done();
}
