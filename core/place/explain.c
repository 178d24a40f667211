#include "core/place/explain.h"

#include "core/slurm/slurm.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------ groups */

enum { MOST_SWITCHES = 16 };

/* Neighbours of one kind of group, by the switches between them. */
struct pairs {
    int64_t groups, size;
    int64_t at[MOST_SWITCHES + 1]; /* [0]: inside a node; the last: that many or more */
};

struct all_pairs {
    struct pairs tensor, pipeline, data;
};

static int switches_between(const struct tern_place_explain *e, int64_t a, int64_t b)
{
    const struct tern_place_map *m = &e->order->map;
    size_t i = m->order[a / m->per_node], j = m->order[b / m->per_node];

    return i == j ? 0 : tern_place_switches(e->order->where[i], e->order->where[j]);
}

static void count(const struct tern_place_explain *e, struct pairs *p, int64_t a, int64_t b)
{
    int n = switches_between(e, a, b);

    p->at[n < MOST_SWITCHES ? n : MOST_SWITCHES]++;
}

/* Count the neighbours that map.h defines. */
static void count_pairs(const struct tern_place_explain *e, struct all_pairs *all)
{
    const struct tern_place_map *m = &e->order->map;
    const int64_t t = m->tensor, d = m->data, p = m->pipeline;

    *all = (struct all_pairs){
        .tensor = {.groups = d * p, .size = t},
        .pipeline = {.groups = t * d, .size = p},
        .data = {.groups = t * p, .size = d},
    };
    for (int64_t r = 0; r < m->world; r++) {
        const struct tern_place_rank k = tern_place_map_rank(m, r);
        if (k.tensor + 1 < t || t > 2)
            count(e, &all->tensor, r,
                  tern_place_map_number(m, (k.tensor + 1) % t, k.data, k.pipeline));
        if (k.data + 1 < d || d > 2)
            count(e, &all->data, r,
                  tern_place_map_number(m, k.tensor, (k.data + 1) % d, k.pipeline));
        if (k.pipeline + 1 < p)
            count(e, &all->pipeline, r, tern_place_map_number(m, k.tensor, k.data, k.pipeline + 1));
    }
}

/* ------------------------------------------------------------------ the nodes' table */

struct span {
    int64_t from, to;
};

static void widen(struct span *s, int64_t v)
{
    s->from = v < s->from ? v : s->from;
    s->to = v > s->to ? v : s->to;
}

/* Consecutive positions under the same switches with the same stages. */
struct row {
    size_t from, to; /* positions */
    struct span stages, data;
};

static struct row row_of(const struct tern_place_explain *e, size_t k)
{
    const struct tern_place_map *m = &e->order->map;
    struct row r = {k, k, {m->pipeline, -1}, {m->data, -1}};

    for (int64_t i = 0; i < m->per_node; i++) {
        struct tern_place_rank a = tern_place_map_rank(m, (int64_t)k * m->per_node + i);
        widen(&r.stages, a.pipeline);
        widen(&r.data, a.data);
    }
    return r;
}

static bool folds(const struct tern_place_explain *e, const struct row *a, const struct row *b)
{
    const struct tern_place_order *o = e->order;

    return strcmp(o->where[o->map.order[a->to]], o->where[o->map.order[b->from]]) == 0 &&
           a->stages.from == b->stages.from && a->stages.to == b->stages.to;
}

static void print_span(char to[48], struct span s)
{
    if (s.from == s.to)
        snprintf(to, 48, "%" PRId64, s.from);
    else
        snprintf(to, 48, "%" PRId64 "-%" PRId64, s.from, s.to);
}

static char *names_of(const struct tern_place_order *o, size_t from, size_t to)
{
    char **some = calloc(to - from + 2, sizeof *some);

    for (size_t k = from; some && k <= to; k++)
        some[k - from] = o->hosts[o->map.order[k]];
    char *list = some ? tern_slurm_hosts_compress(some, to - from + 1) : tern_strdup("?");
    free(some);
    return list;
}

/* A cell of at most `width` characters; a longer text is cut and ends in "..". */
static void cell(struct tern_buf *to, const char *s, int width)
{
    int n = (int)strlen(s);

    if (n > width)
        tern_buf_printf(to, "%.*s..  ", width - 2, s);
    else
        tern_buf_printf(to, "%-*s  ", width, s);
}

struct widths {
    int nodes, where;
};

static void print_row(const struct tern_place_explain *e, struct tern_buf *to, const struct row *r,
                      const struct widths *w)
{
    const struct tern_place_order *o = e->order;
    const struct tern_place_map *m = &o->map;
    char ranks[48], stages[48], data[48], n[24];
    char *names = names_of(o, r->from, r->to);
    const char *where = o->where[m->order[r->from]];

    print_span(ranks, (struct span){(int64_t)r->from * m->per_node,
                                    (int64_t)(r->to + 1) * m->per_node - 1});
    print_span(stages, r->stages);
    print_span(data, r->data);
    snprintf(n, sizeof n, "%zu", r->to - r->from + 1);
    tern_buf_printf(to, "%-11s  %5s  ", ranks, n);
    cell(to, names, w->nodes);
    cell(to, *where ? where : "-", w->where);
    tern_buf_printf(to, "%-5s  %s\n", stages, data);
    free(names);
}

static size_t find_rows(const struct tern_place_explain *e, struct row *rows)
{
    size_t n = 0;

    for (size_t k = 0; k < e->order->n; k++) {
        struct row r = row_of(e, k);
        if (n && folds(e, &rows[n - 1], &r)) {
            rows[n - 1].to = k;
            widen(&rows[n - 1].data, r.data.from);
            widen(&rows[n - 1].data, r.data.to);
        } else {
            rows[n++] = r;
        }
    }
    return n;
}

static void print_nodes(const struct tern_place_explain *e, struct tern_buf *to)
{
    const struct tern_place_order *o = e->order;
    struct row *rows = calloc(o->n, sizeof *rows);
    struct widths w = {5, 6};

    if (!rows)
        return;
    size_t n = find_rows(e, rows);
    for (size_t i = 0; i < n; i++) {
        char *names = names_of(o, rows[i].from, rows[i].to);
        int a = (int)strlen(names), b = (int)strlen(o->where[o->map.order[rows[i].from]]);
        w.nodes = a > w.nodes ? a : w.nodes;
        w.where = b > w.where ? b : w.where;
        free(names);
    }
    /* The columns that ranks, node count, stage and data leave free. */
    int room = e->columns - 43;
    if (w.nodes + w.where > room) {
        w.where = w.where > room / 2 ? room / 2 : w.where;
        w.nodes = w.nodes > room - w.where ? room - w.where : w.nodes;
    }
    tern_buf_printf(to, "%-11s  %5s  %-*s  %-*s  %-5s  %s\n", "RANKS", "NODES", w.nodes, "NAMES",
                    w.where, "SWITCH", "STAGE", "DATA");
    for (size_t i = 0; i < n; i++)
        print_row(e, to, &rows[i], &w);
    free(rows);
}

/* ------------------------------------------------------------------ the groups' table */

static void print_pairs(struct tern_buf *to, const char *name, const struct pairs *p)
{
    const char *sep = "";

    tern_buf_printf(to, "%-9s %7" PRId64 " %5" PRId64 "  ", name, p->groups, p->size);
    if (p->size == 1) {
        tern_buf_puts(to, "-\n");
        return;
    }
    if (p->at[0])
        tern_buf_printf(to, "%" PRId64 " inside a node", p->at[0]);
    sep = p->at[0] ? ", " : "";
    bool said = false;
    for (int n = 1; n <= MOST_SWITCHES; n++)
        if (p->at[n]) {
            tern_buf_printf(to, "%s%" PRId64 " over %d", sep, p->at[n], n);
            if (!said)
                tern_buf_puts(to, n == 1 ? " switch" : " switches");
            said = true;
            sep = ", ";
        }
    tern_buf_puts(to, "\n");
}

static bool known_switches(const struct tern_place_order *o)
{
    for (size_t i = 0; i < o->n; i++)
        if (*o->where[i])
            return true;
    return false;
}

static void print_groups(const struct tern_place_explain *e, struct tern_buf *to)
{
    const struct tern_place_map *m = &e->order->map;
    struct all_pairs all;

    count_pairs(e, &all);
    tern_buf_printf(to, "\n%-9s %7s %5s  %s\n", "GROUPS OF", "GROUPS", "RANKS",
                    "PAIRS OF NEIGHBOURS");
    print_pairs(to, "tensor", &all.tensor);
    print_pairs(to, "pipeline", &all.pipeline);
    print_pairs(to, "data", &all.data);
    if (m->moved)
        tern_buf_printf(to,
                        "Switches crossed: %" PRId64 ", %" PRId64 ", %" PRId64
                        "%s; in the job's order %" PRId64 ", %" PRId64 ", %" PRId64 ".\n",
                        m->cost.tensor, m->cost.pipeline, m->cost.data,
                        m->exact ? " (the least)" : "", m->given.tensor, m->given.pipeline,
                        m->given.data);
    else if (e->order->n > 1 && !known_switches(e->order))
        tern_buf_puts(to, "No topology is known: one switch is assumed between all nodes.\n");
}

/* ------------------------------------------------------------------ inside a node */

/* tern's own trainer computes on CPUs, whatever else the node has. */
static struct tern_layout_instance used_type(const struct tern_place_explain *e)
{
    struct tern_layout_instance t = *e->type;

    if (!e->recipe->workload.command)
        t.chips = 0;
    return t;
}

/* The ranks of a tensor group on a node whose cores tern assigns; 0: another program does. */
static int placed_group(const struct tern_place_explain *e)
{
    const struct tern_place_map *m = &e->order->map;

    if (e->recipe->launch.mapping == TERN_MAPPING_BLOCK || m->per_node == 1 ||
        m->per_node != e->place->ranks_per_node)
        return 0;
    return (int)(m->tensor < m->per_node ? m->tensor : m->per_node);
}

/* The local ranks on a chip: "4-5", or "2" of one that has several chips. */
static void ranks_on(const struct tern_place_explain *e, const struct tern_layout_instance *t,
                     int chip, char to[48])
{
    const int n = (int)e->order->map.per_node, group = placed_group(e);
    const int cores = t->visible_cores / n, per_chip = t->visible_cores / t->chips;
    struct span on = {n, -1};

    for (int i = 0; i < n; i++) {
        int first = tern_layout_first_core(t, n, i, group);
        if (first < (chip + 1) * per_chip && first + cores > chip * per_chip)
            widen(&on, i);
    }
    print_span(to, on);
}

/* How far apart a tensor group's neighbours are, and which program assigns their cores. */
static void print_ring(const struct tern_place_explain *e, const struct tern_layout_instance *t,
                       struct tern_buf *to)
{
    const struct tern_place_map *m = &e->order->map;
    const int n = (int)m->per_node, group = (int)(m->tensor < n ? m->tensor : n);
    const bool placed = placed_group(e) != 0;

    if (group == 1)
        return;
    int hops = tern_layout_ring_hops(t, n, group, placed);
    tern_buf_printf(to, "Neighbours in a tensor group are %s.\n",
                    hops == 0   ? "on one chip"
                    : hops == 1 ? "on one chip or on adjacent ones"
                                : "at most two chips apart, by number");
    if (hops > 1 && m->per_node != e->place->ranks_per_node)
        tern_buf_puts(to, "A task's workers take the core of their LOCAL_RANK, by which NxD builds "
                          "its\ngroups (neuronx_distributed parallel_state.py). The runtime lays "
                          "its own rings\nalong the links, over all chips of a node without a "
                          "detour\n(aws-neuron-sdk intranode-collective-comm.rst).\n");
}

static void print_torus(const struct tern_place_explain *e, const struct tern_layout_instance *t,
                        struct tern_buf *to)
{
    tern_buf_printf(to, "\nLocal ranks on the %dx%d torus of chips; each row and column closes:\n",
                    t->torus_x, t->torus_y);
    for (int y = 0; y < t->torus_y; y++) {
        for (int x = 0; x < t->torus_x; x++) {
            char text[48];
            ranks_on(e, t, y * t->torus_x + x, text);
            tern_buf_printf(to, "%s[%5s]", x ? "--" : "  ", text);
        }
        tern_buf_puts(to, "--\n");
    }
    print_ring(e, t, to);
}

static void print_core_placement(const struct tern_place_explain *e, struct tern_buf *to)
{
    const int n = (int)e->order->map.per_node;
    struct tern_layout_instance t = used_type(e);
    struct tern_err why = {0};
    struct tern_layout_placement s;

    if (tern_layout_place_cores(&t, e->threads, n, 0, 0, &s, &why) < 0) {
        tern_buf_printf(to, "\n%s.\n", why.text);
        return;
    }
    if (t.chips && t.torus_x)
        print_torus(e, &t, to);
    tern_buf_printf(to, "\n%s%s\n", t.chips ? "LOCAL  NEURONCORES  CHIPS  NUMA  " : "LOCAL  NUMA  ",
                    "CPUS NEAR");
    /* Consecutive ranks with like placement, such as those of one chip, share a row. */
    enum { MOST_ROWS = 32 };
    for (int i = 0; i < n && i < MOST_ROWS; i++) {
        char cores[48], chips[48], numa[24];
        tern_layout_place_cores(&t, e->threads, n, i, placed_group(e), &s, NULL);
        print_span(cores, (struct span){s.core, s.core + s.cores - 1});
        print_span(chips, (struct span){s.chip, s.chip + s.chips - 1});
        snprintf(numa, sizeof numa, s.numa < 0 ? "all" : "%d", s.numa);
        if (t.chips)
            tern_buf_printf(to, "%5d  %-11s  %-5s  %-4s  ", i, cores, chips, numa);
        else
            tern_buf_printf(to, "%5d  %-4s  ", i, numa);
        tern_buf_printf(to, "%s\n", s.cpus);
    }
    if (n > MOST_ROWS)
        tern_buf_printf(to, "...    and so on to %d; --json has all\n", n - 1);
}

/* ------------------------------------------------------------------ the command */

/* For a shell. */
static char *quoted(const char *word)
{
    struct tern_buf b = {0};

    if (*word && strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                              "-_./=:,+@%") == strlen(word))
        return tern_strdup(word);
    tern_buf_puts(&b, "'");
    for (; *word; word++)
        if (*word == '\'')
            tern_buf_puts(&b, "'\\''");
        else
            tern_buf_add(&b, word, 1);
    tern_buf_puts(&b, "'");
    return b.data;
}

static bool by_list(const struct tern_place_explain *e)
{
    return e->place->slurm && (e->order->map.moved ||
                               (e->place->chosen && e->recipe->launch.with == TERN_LAUNCH_MPIRUN));
}

static void print_command(const struct tern_place_explain *e, struct tern_buf *to)
{
    int column = 2;

    tern_buf_puts(to, "\nLaunched by\n  ");
    if (by_list(e) && e->recipe->launch.with == TERN_LAUNCH_SRUN) {
        tern_buf_puts(to, "SLURM_HOSTFILE=HOSTS ");
        column += 21;
    }
    for (size_t i = 0; e->command[i]; i++) {
        char *word = quoted(e->command[i]);
        int n = (int)strlen(word);
        if (i && column + n + 3 > e->columns) {
            tern_buf_puts(to, "\\\n    ");
            column = 4;
        }
        tern_buf_printf(to, "%s%s", word, e->command[i + 1] ? " " : "\n");
        column += n + 1;
        free(word);
    }
    if (by_list(e))
        tern_buf_puts(to, "where HOSTS names the node of each task, in the order above.\n");
    if (!e->place->slurm && e->place->ranks_per_node > 1)
        tern_buf_printf(to, "%" PRId64 " times on this machine.\n", e->place->ranks_per_node);
}

/* ------------------------------------------------------------------ the whole */

void tern_place_explain_text(const struct tern_place_explain *e, struct tern_buf *to)
{
    const struct tern_place_map *m = &e->order->map;

    tern_buf_printf(to,
                    "%s: %zu node%s x %" PRId64 " rank%s = %" PRId64 ": tensor %" PRId64
                    " x data %" PRId64 " x pipeline %" PRId64 "\n",
                    e->recipe->name, m->n_nodes, m->n_nodes == 1 ? "" : "s", m->per_node,
                    m->per_node == 1 ? "" : "s", m->world, m->tensor, m->data, m->pipeline);
    tern_buf_printf(to, "Nodes: %s%s%s\n", e->about, e->type ? ", " : "",
                    e->type ? e->type->name : "");
    if (m->moved)
        tern_buf_puts(to, "Their order is by the network's switches (launch.mapping: auto)\n");
    if (*e->reserve)
        tern_buf_printf(to, "In reserve (launch.spares): %s\n", e->reserve);
    if (m->per_node != e->place->ranks_per_node)
        tern_buf_printf(to, "Each node: %" PRId64 " task%s, which start%s %" PRId64 " ranks\n",
                        e->place->ranks_per_node, e->place->ranks_per_node == 1 ? "" : "s",
                        e->place->ranks_per_node == 1 ? "s" : "", m->per_node);
    tern_buf_puts(to, "\n");
    print_nodes(e, to);
    print_groups(e, to);
    if (e->type)
        print_core_placement(e, to);
    print_command(e, to);
    if (e->recipe->workload.precompile.command)
        tern_buf_printf(to, "Compiled beforehand into a folder below %s\n",
                        e->recipe->workload.precompile.cache);
}

static json_t *json_span(struct span s)
{
    return json_pack("[I,I]", (json_int_t)s.from, (json_int_t)s.to);
}

static json_t *json_nodes(const struct tern_place_explain *e)
{
    const struct tern_place_order *o = e->order;
    json_t *nodes = json_array();

    for (size_t k = 0; k < o->n; k++) {
        struct row r = row_of(e, k);
        size_t i = o->map.order[k];
        const int64_t first = (int64_t)k * o->map.per_node;
        json_array_append_new(
            nodes, json_pack("{s:s,s:s,s:o,s:o,s:o}", "name", o->hosts[i], "switches", o->where[i],
                             "ranks", json_span((struct span){first, first + o->map.per_node - 1}),
                             "stages", json_span(r.stages), "data", json_span(r.data)));
    }
    return nodes;
}

static json_t *json_pairs(const struct pairs *p)
{
    json_t *at = json_object();
    char key[8];

    for (int n = 0; n <= MOST_SWITCHES; n++)
        if (p->at[n]) {
            snprintf(key, sizeof key, "%d", n);
            json_object_set_new(at, key, json_integer(p->at[n]));
        }
    return json_pack("{s:I,s:I,s:o}", "groups", (json_int_t)p->groups, "ranks", (json_int_t)p->size,
                     "pairs_by_switches", at);
}

static json_t *json_core_placement(const struct tern_place_explain *e)
{
    json_t *ranks = json_array();
    struct tern_layout_placement s;

    if (!e->type)
        return ranks;
    struct tern_layout_instance t = used_type(e);
    for (int i = 0; i < e->order->map.per_node; i++) {
        if (tern_layout_place_cores(&t, e->threads, (int)e->order->map.per_node, i, placed_group(e),
                                    &s, NULL) < 0)
            break;
        json_t *rank = json_pack("{s:i,s:s}", "local", i, "cpus", s.cpus);
        json_object_set_new(rank, "numa", s.numa < 0 ? json_null() : json_integer(s.numa));
        if (s.cores) {
            json_object_set_new(rank, "neuron_cores",
                                json_span((struct span){s.core, s.core + s.cores - 1}));
            json_object_set_new(rank, "chips",
                                json_span((struct span){s.chip, s.chip + s.chips - 1}));
        }
        json_array_append_new(ranks, rank);
    }
    return ranks;
}

json_t *tern_place_explain_json(const struct tern_place_explain *e)
{
    const struct tern_place_map *m = &e->order->map;
    json_t *command = json_array(), *placement = json_core_placement(e);
    struct all_pairs all;

    count_pairs(e, &all);
    for (size_t i = 0; e->command[i]; i++)
        json_array_append_new(command, json_string(e->command[i]));
    return json_pack(
        "{s:s,s:s,s:s?,s:I,s:I,s:I,s:I,s:I,s:I,s:b,s:b,s:s,s:o,s:{s:o,s:o,s:o},s:O,s:o,s:o}",
        "name", e->recipe->name, "nodes_from", e->about, "instance_type",
        e->type ? e->type->name : NULL, "world", (json_int_t)m->world, "ranks_per_node",
        (json_int_t)m->per_node, "tasks_per_node", (json_int_t)e->place->ranks_per_node, "tensor",
        (json_int_t)m->tensor, "data", (json_int_t)m->data, "pipeline", (json_int_t)m->pipeline,
        "reordered", (int)m->moved, "least", (int)m->exact, "reserve", e->reserve, "nodes",
        json_nodes(e), "groups", "tensor", json_pairs(&all.tensor), "pipeline",
        json_pairs(&all.pipeline), "data", json_pairs(&all.data), "core_placement", placement,
        "seats", placement, "command", command);
}
