/* All nodes as a list. */
#include "core/slurm/slurm.h"

#include "core/base/str.h"
#include "core/slurm/release.h"
#include "core/slurm/start.h"

#include <slurm/slurm.h>
#include <stdio.h>
#include <stdlib.h>

static const char *node_word(uint32_t state)
{
    uint32_t base = state & NODE_STATE_BASE;
    bool busy =
        base == NODE_STATE_ALLOCATED || base == NODE_STATE_MIXED || (state & NODE_STATE_COMPLETING);

    if (state & NODE_STATE_DRAIN)
        return busy ? "draining" : "drained";
    if (state & NODE_STATE_FAIL)
        return busy ? "failing" : "fail";
    if (base == NODE_STATE_DOWN)
        return "down";
    if (state & NODE_STATE_COMPLETING)
        return "completing";
    switch (base) {
    case NODE_STATE_IDLE:
        return state & NODE_STATE_RES ? "reserved" : "idle";
    case NODE_STATE_ALLOCATED:
        return "allocated";
    case NODE_STATE_MIXED:
        return "mixed";
    case NODE_STATE_FUTURE:
        return "future";
    default:
        return "unknown";
    }
}

/* sinfo's marks: * does not answer, ~ powered down, # powering up, % powering down. */
static const char *node_mark(uint32_t state)
{
    if (state & NODE_STATE_NO_RESPOND)
        return "*";
    if (state & NODE_STATE_POWERED_DOWN)
        return "~";
    if (state & NODE_STATE_POWERING_UP)
        return "#";
    return state & NODE_STATE_POWERING_DOWN ? "%" : "";
}

static void node_fill(struct tern_slurm_node *to, const node_info_t *from)
{
    uint32_t base = from->node_state & NODE_STATE_BASE;

    to->name = tern_slurm_text(from->name);
    to->addr = tern_slurm_text(from->node_addr);
    snprintf(to->state, sizeof to->state, "%s%s", node_word(from->node_state),
             node_mark(from->node_state));
    to->usable =
        (base == NODE_STATE_IDLE || base == NODE_STATE_ALLOCATED || base == NODE_STATE_MIXED) &&
        !(from->node_state &
          (NODE_STATE_DRAIN | NODE_STATE_FAIL | NODE_STATE_NO_RESPOND | NODE_STATE_POWERED_DOWN));
    to->down = base == NODE_STATE_DOWN || (from->node_state & NODE_STATE_NO_RESPOND);
    to->cpus = from->cpus;
    to->memory_mib = from->real_memory;
    to->gres = tern_slurm_text(from->gres);
    to->reason = tern_slurm_text(to->usable ? NULL : from->reason); /* newer Slurms keep old ones */
    to->features = tern_slurm_text(from->features);
    to->sockets = from->sockets;
    to->cores = from->cores;
    to->threads = from->threads;
    to->weight = from->weight;
    to->future = base == NODE_STATE_FUTURE;
    to->dynamic = from->node_state & (NODE_STATE_DYNAMIC_FUTURE | NODE_STATE_DYNAMIC_NORM);
}

static int load(uint16_t show, struct tern_slurm_nodes **nodes, struct tern_err *err)
{
    node_info_msg_t *msg = NULL;

    if (tern_slurm_start(err) < 0)
        return -1;
    if (slurm_load_node(0, &msg, show) != SLURM_SUCCESS)
        return tern_slurm_fail(err, "ask Slurm for its nodes", 0);
    struct tern_slurm_nodes *all = tern_alloc(1, sizeof *all, "nodes", err);
    if (all)
        all->node = tern_alloc(msg->record_count + 1, sizeof *all->node, "nodes", err);
    if (!all || !all->node) {
        free(all);
        slurm_free_node_info_msg(msg);
        return -1;
    }
    for (uint32_t i = 0; i < msg->record_count; i++)
        if (msg->node_array[i].name) /* removed nodes keep their places */
            node_fill(&all->node[all->n++], &msg->node_array[i]);
    slurm_free_node_info_msg(msg);
    *nodes = all;
    return 0;
}

int tern_slurm_nodes_load(struct tern_slurm_nodes **nodes, struct tern_err *err)
{
    return load(SHOW_ALL, nodes, err);
}

int tern_slurm_nodes_load_all(struct tern_slurm_nodes **nodes, struct tern_err *err)
{
    return load(SHOW_ALL | SHOW_FUTURE, nodes, err);
}

int tern_slurm_nodes_count_max(int64_t *most, struct tern_err *err)
{
    node_info_msg_t *msg = NULL;
    slurm_conf_t *conf = NULL;
    int rc = 0;

    if (tern_slurm_start(err) < 0)
        return -1;
    if (slurm_load_ctl_conf(0, &conf) != SLURM_SUCCESS ||
        slurm_load_node(0, &msg, SHOW_ALL | SHOW_FUTURE) != SLURM_SUCCESS) {
        rc = tern_slurm_fail(err, "ask Slurm for its nodes", 0);
    } else {
        *most = 0;
        for (uint32_t i = 0; i < msg->record_count; i++)
            *most += msg->node_array[i].name != NULL;
        if (conf->max_node_cnt < NO_VAL && conf->max_node_cnt > *most)
            *most = conf->max_node_cnt;
    }
    tern_slurm_release_conf_free(conf);
    slurm_free_node_info_msg(msg);
    return rc;
}

void tern_slurm_nodes_free(struct tern_slurm_nodes *nodes)
{
    if (!nodes)
        return;
    for (size_t i = 0; i < nodes->n; i++) {
        free(nodes->node[i].name);
        free(nodes->node[i].addr);
        free(nodes->node[i].gres);
        free(nodes->node[i].reason);
        free(nodes->node[i].features);
    }
    free(nodes->node);
    free(nodes);
}
