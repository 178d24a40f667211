/* Local ranks on a node's NeuronCores, chips, NUMA nodes and CPUs. */
#include "core/layout/layout.h"

#include "core/base/assert.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int tern_layout_chip_hops(const struct tern_layout_instance *t, int a, int b)
{
    if (!t->torus_x || !t->torus_y)
        return a != b;
    int dx = abs(a % t->torus_x - b % t->torus_x), dy = abs(a / t->torus_x - b / t->torus_x);

    return (dx < t->torus_x - dx ? dx : t->torus_x - dx) +
           (dy < t->torus_y - dy ? dy : t->torus_y - dy);
}

/* Which chip comes at `place` when groups of `rows` rows of the torus are walked as a ring. */
static int chip_at(const struct tern_layout_instance *t, int place, int rows)
{
    int group = place / t->torus_x / rows, row = place / t->torus_x % rows;
    int x = place % t->torus_x, y = group % 2 ? rows - 1 - row : row;

    return (group * rows + y) * t->torus_x + (row % 2 ? t->torus_x - 1 - x : x);
}

int tern_layout_first_core(const struct tern_layout_instance *t, int n, int i, int group)
{
    int cores = t->visible_cores / n, per_chip = t->visible_cores / t->chips, first = i * cores;
    int per_row = per_chip * t->torus_x, rows = per_row ? group * cores / per_row : 0;

    /* An odd number of rows has no such ring. */
    if (t->by_number || cores > per_chip || rows < 2 || rows % 2 || group * cores % per_row ||
        t->torus_y % rows)
        return first;
    return chip_at(t, first / per_chip, rows) * per_chip + first % per_chip;
}

/* The chip of the k-th core of a node's ranks. */
static int chip_of(const struct tern_layout_instance *t, int n, int k, int group)
{
    int cores = t->visible_cores / n, per_chip = t->visible_cores / t->chips;

    return (tern_layout_first_core(t, n, k / cores, group) + k % cores) / per_chip;
}

int tern_layout_ring_hops(const struct tern_layout_instance *t, int n, int group, bool placed)
{
    const int ring = t->visible_cores / n * group, by = placed ? group : 0;
    int most = 0;

    for (int k = 0; k < t->visible_cores; k++) {
        int next = k - k % ring + (k + 1) % ring;
        int hops = tern_layout_chip_hops(t, chip_of(t, n, k, by), chip_of(t, n, next, by));
        most = hops > most ? hops : most;
    }
    return most;
}

static int numa_of(const struct tern_layout_instance *t, int chip)
{
    return t->chip_numa ? t->chip_numa[chip] - '0' : 0;
}

/* Is `n` one of "1,2,8,32"? */
static bool listed_count(const char *list, int n)
{
    for (const char *s = list; *s; s += strcspn(s, ","), s += *s == ',')
        if ((int)strtol(s, NULL, 10) == n)
            return true;
    return false;
}

static int share_cores(const struct tern_layout_instance *t, int n, int i, int group,
                       struct tern_layout_placement *p, struct tern_err *err)
{
    int cores = t->visible_cores / n, per_chip = t->visible_cores / t->chips;

    if (cores < 1 || t->visible_cores % n)
        return tern_err_set(err, TERN_USAGE,
                            "%s: %d NeuronCores do not divide over %d ranks a node", t->name,
                            t->visible_cores, n);
    if (t->core_counts && !listed_count(t->core_counts, cores))
        return tern_err_set(err, TERN_USAGE,
                            "%s: %d ranks a node have %d NeuronCores each; the runtime gives a "
                            "process %s of them",
                            t->name, n, cores, t->core_counts);
    p->core = tern_layout_first_core(t, n, i, group);
    p->cores = cores;
    p->chip = p->core / per_chip;
    p->chips = (p->core + cores - 1) / per_chip - p->chip + 1;
    return 0;
}

/* ------------------------------------------------------------------ CPUs */

struct cpus {
    const struct tern_layout_instance *t;
    int threads;
    bool mine[1024]; /* whole cores, by their first CPU */
};

/* Part `k` of `of` of a NUMA node's cores; one at least. */
static void share_numa(struct cpus *c, int numa, int k, int of)
{
    int all = c->t->sockets * c->t->cores, here = all / c->t->numa, base = numa * here;
    int from = k * here / of, to = (k + 1) * here / of;

    if (to == from)
        to++;
    tern_assert_cmp(base + here, <=, (int)(sizeof c->mine / sizeof *c->mine));
    for (int core = from; core < to && core < here; core++)
        c->mine[base + core] = true;
}

static void list_cpus(const struct cpus *c, char *to, size_t size)
{
    int all = c->t->sockets * c->t->cores;
    size_t len = 0;

    to[0] = '\0';
    /* Linux numbers the first threads of all cores, then the second ones. */
    for (int thread = 0; thread < c->threads; thread++)
        for (int k = 0, end; k < all; k = end + 1) {
            end = k;
            if (!c->mine[k])
                continue;
            while (end + 1 < all && c->mine[end + 1])
                end++;
            int base = thread * all;
            int n = end > k ? snprintf(to + len, size - len, "%s%d-%d", len ? "," : "", base + k,
                                       base + end)
                            : snprintf(to + len, size - len, "%s%d", len ? "," : "", base + k);
            if (n < 0 || (size_t)n >= size - len)
                return;
            len += (size_t)n;
        }
}

/* Each NeuronCore's share of its chip's NUMA node. */
static void cpus_of_chips(struct cpus *c, struct tern_layout_placement *p)
{
    const struct tern_layout_instance *t = c->t;
    int per_chip = t->visible_cores / t->chips;

    p->numa = numa_of(t, p->chip);
    for (int core = p->core; core < p->core + p->cores; core++) {
        int numa = numa_of(t, core / per_chip), before = 0, of = 0;
        for (int k = 0; k < t->visible_cores; k++)
            if (numa_of(t, k / per_chip) == numa) {
                before += k < core;
                of++;
            }
        share_numa(c, numa, before, of);
        if (numa != p->numa)
            p->numa = -1;
    }
}

/* Without chips: consecutive ranks share a NUMA node; a rank may have several. */
static void cpus_of_ranks(struct cpus *c, int n, int i, struct tern_layout_placement *p)
{
    int numa = c->t->numa;

    if (n < numa) {
        for (int k = i * numa / n; k < (i + 1) * numa / n; k++)
            share_numa(c, k, 0, 1);
        p->numa = numa / n > 1 ? -1 : i * numa / n;
        return;
    }
    int first = 0;
    p->numa = (int)((long)i * numa / n);
    while ((int)((long)first * numa / n) < p->numa)
        first++;
    int end = first;
    while (end < n && (int)((long)end * numa / n) == p->numa)
        end++;
    share_numa(c, p->numa, i - first, end - first);
}

int tern_layout_place_cores(const struct tern_layout_instance *t, int threads, int n, int i,
                            int group, struct tern_layout_placement *ret_placement,
                            struct tern_err *err)
{
    struct tern_layout_placement s = {0};
    struct cpus c = {.t = t, .threads = threads < t->threads ? threads : t->threads};

    if (n < 1 || i < 0 || i >= n)
        return tern_err_set(err, TERN_USAGE, "no local rank %d of %d", i, n);
    if (t->chips && share_cores(t, n, i, group, &s, err) < 0)
        return -1;
    if (t->chips)
        cpus_of_chips(&c, &s);
    else
        cpus_of_ranks(&c, n, i, &s);
    list_cpus(&c, s.cpus, sizeof s.cpus);
    *ret_placement = s;
    return 0;
}
