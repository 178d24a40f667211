/* core/health: an admin drains the node, or puts it back, while tern does the same. */
#include "core/base/clock.h"
#include "core/slurm/slurm.h"
#include "tests/unit/tap.h"

#include <stdlib.h>
#include <string.h>

/* A controller with four nodes, of which n1 may change hands at the moment `when`. */
enum when { NEVER, AT_LIST, AT_SLEEP };

static struct tern_slurm_node_state state;
static enum when when;
static const char *admin; /* his reason; NULL: he puts the node back to work */
static bool all_are;      /* are drained for the same */
static int lists, updates;

static void drain_as(const char *reason)
{
    state.drained = reason != NULL;
    snprintf(state.reason, sizeof state.reason, "%s", reason ? reason : "");
}

static int node_state(const char *node, struct tern_slurm_node_state *to, struct tern_err *err)
{
    (void)node, (void)err;
    *to = state;
    return 0;
}

static int node_update(const char *node, enum tern_slurm_node_change change, const char *reason,
                       struct tern_err *err)
{
    (void)node, (void)err;
    updates++;
    drain_as(change == TERN_SLURM_NODE_DRAIN ? reason : NULL);
    return 0;
}

static int nodes_load(struct tern_slurm_nodes **to, struct tern_err *err)
{
    static const char *const names[] = {"n1", "n2", "n3", "n4"};
    static struct tern_slurm_node node[4];
    static struct tern_slurm_nodes nodes = {.n = 4, .node = node};

    (void)err;
    for (int i = 0; i < 4; i++) {
        node[i].name = (char *)names[i];
        strcpy(node[i].state, "idle");
        node[i].reason = (char *)(all_are && lists > 0 ? "tern:neuron: gone" : "");
    }
    if (++lists == 1 && when == AT_LIST)
        drain_as(admin);
    *to = &nodes;
    return 0;
}

static void sleep_ns(void)
{
    if (when == AT_SLEEP)
        drain_as(admin);
}

#define tern_slurm_node_load_state(node, to, err) node_state(node, to, err)
#define tern_slurm_node_update(node, change, reason, err) node_update(node, change, reason, err)
#define tern_slurm_nodes_load(to, err) nodes_load(to, err)
#define tern_slurm_nodes_free(nodes) (void)(nodes)
#define tern_clock_sleep_ns(ns) ((void)(ns), sleep_ns())
#include "core/health/drain.c"

static void given(enum when at, const char *reason, bool epidemic)
{
    when = at, admin = reason, all_are = epidemic;
    lists = updates = 0;
    drain_as(NULL);
}

int main(void)
{
    enum tern_health_drained done;
    struct tern_err err;

    given(NEVER, NULL, false);
    ok(tern_health_drain("n1", "neuron", "gone", true, &done, &err) == 0 &&
           done == TERN_HEALTH_DRAINED && strcmp(state.reason, "tern:neuron: gone") == 0,
       "a bad node is drained with tern's reason");
    given(AT_LIST, "cable: mine", false);
    ok(tern_health_drain("n1", "neuron", "gone", true, &done, &err) == 0 &&
           done == TERN_HEALTH_FOREIGN && strcmp(state.reason, "cable: mine") == 0 && updates == 0,
       "an admin's drain while the other nodes are looked at keeps its reason: %s", state.reason);
    given(NEVER, NULL, true);
    ok(tern_health_drain("n1", "neuron", "gone", true, &done, &err) == 0 &&
           done == TERN_HEALTH_EPIDEMIC && !state.drained,
       "all nodes drained themselves: the drain is undone");
    given(AT_SLEEP, "cable: mine", true);
    ok(tern_health_drain("n1", "neuron", "gone", true, &done, &err) == 0 &&
           done == TERN_HEALTH_FOREIGN && state.drained && strcmp(state.reason, "cable: mine") == 0,
       "a drain that an admin gave another reason meanwhile stays: %s", state.reason);
    given(AT_SLEEP, NULL, true);
    ok(tern_health_drain("n1", "neuron", "gone", true, &done, &err) == 0 &&
           done == TERN_HEALTH_EPIDEMIC && !state.drained && updates == 1,
       "a drain that an admin undid meanwhile is not undone again");
    return tap_done();
}
