/* One node: load, change. */
#include "core/slurm/slurm.h"

#include "core/base/assert.h"
#include "core/slurm/release.h"
#include "core/slurm/start.h"

#include <errno.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <stdio.h>
#include <unistd.h>

/* A refusal by the controller is final; any other failure may pass. */
static int failed(struct tern_err *err, const char *name, const char *what)
{
    int e = errno;
    bool refused = e == ESLURM_USER_ID_MISSING || e == ESLURM_ACCESS_DENIED ||
                   e == ESLURM_INVALID_NODE_NAME || e == ESLURM_INVALID_NODE_STATE ||
                   e == ESLURM_NOT_SUPPORTED || e == ESLURM_DISABLED;

    return tern_err_set(err, refused ? TERN_FAILED : TERN_TEMPFAIL, "node %s: cannot %s: %s", name,
                        what, slurm_strerror(e));
}

static const char *word_of(const struct tern_slurm_node_state *s)
{
    return s->powered_down ? "powered down"
           : s->powering   ? "powering up or down"
           : s->down       ? "down"
           : s->failed     ? "fail"
           : s->drained    ? "drained"
                           : "in service";
}

/* One node, to be freed with slurm_free_node_info_msg; NULL with `err`. */
static node_info_msg_t *load(const char *name, struct tern_err *err)
{
    node_info_msg_t *msg = NULL;

    if (tern_slurm_start(err) < 0)
        return NULL;
    if (slurm_load_node_single(&msg, (char *)name, SHOW_ALL) != SLURM_SUCCESS) {
        failed(err, name, "ask Slurm for it");
        return NULL;
    }
    if (msg->record_count > 0 && msg->node_array[0].name)
        return msg;
    slurm_free_node_info_msg(msg);
    tern_err_set(err, TERN_FAILED, "node %s: Slurm does not know it", name);
    return NULL;
}

int tern_slurm_node_load_state(const char *name, struct tern_slurm_node_state *state,
                               struct tern_err *err)
{
    node_info_msg_t *msg = load(name, err);

    if (!msg)
        return -1;
    const node_info_t *n = &msg->node_array[0];
    uint32_t flags = n->node_state, base = flags & NODE_STATE_BASE;
    *state = (struct tern_slurm_node_state){
        .drained = flags & NODE_STATE_DRAIN,
        .failed = flags & NODE_STATE_FAIL,
        .down = base == NODE_STATE_DOWN || (flags & NODE_STATE_NO_RESPOND),
        .given_up = base == NODE_STATE_DOWN,
        .powered_down = flags & NODE_STATE_POWERED_DOWN,
        .powering = flags & (NODE_STATE_POWERING_UP | NODE_STATE_POWERING_DOWN |
                             NODE_STATE_POWER_DOWN | NODE_STATE_POWER_UP),
        .started = n->slurmd_start_time,
        .memory_mib = n->real_memory,
    };
    snprintf(state->word, sizeof state->word, "%s", word_of(state));
    /* The reason of a node in service is an old one: newer Slurms keep it. */
    bool serves = !state->drained && !state->failed && !state->down && !state->powered_down &&
                  !state->powering;
    snprintf(state->reason, sizeof state->reason, "%s", n->reason && !serves ? n->reason : "");
    snprintf(state->gres, sizeof state->gres, "%s", n->gres ? n->gres : "");
    slurm_free_node_info_msg(msg);
    return 0;
}

int tern_slurm_node_load_address(const char *name, struct tern_slurm_node_address *place,
                                 struct tern_err *err)
{
    node_info_msg_t *msg = load(name, err);

    if (!msg)
        return -1;
    const node_info_t *n = &msg->node_array[0];
    place->port = n->port;
    snprintf(place->address, sizeof place->address, "%s", n->node_addr ? n->node_addr : name);
    slurm_free_node_info_msg(msg);
    return 0;
}

int tern_slurm_node_update(const char *name, enum tern_slurm_node_change change, const char *reason,
                           struct tern_err *err)
{
    static const struct {
        uint32_t state;
        const char *what;
    } changes[] = {
        [TERN_SLURM_NODE_DRAIN] = {NODE_STATE_DRAIN, "drain it"},
        [TERN_SLURM_NODE_UNDRAIN] = {NODE_STATE_UNDRAIN, "take its drain back"},
        [TERN_SLURM_NODE_RESUME] = {NODE_RESUME, "resume it"},
        [TERN_SLURM_NODE_FAIL] = {NODE_STATE_FAIL, "set it to FAIL"},
        [TERN_SLURM_NODE_DOWN] = {NODE_STATE_DOWN, "set it DOWN"},
        /* scontrol's power_down_force */
        [TERN_SLURM_NODE_POWER_OFF] = {NODE_STATE_POWER_DOWN | NODE_STATE_POWERED_DOWN,
                                       "power it down"},
    };
    update_node_msg_t msg;

    tern_assert_cmp((size_t)change, <, sizeof changes / sizeof *changes);
    if (tern_slurm_start(err) < 0)
        return -1;
    slurm_init_update_node_msg(&msg);
    msg.node_names = (char *)name;
    msg.node_state = changes[change].state;
    msg.reason = (char *)reason;
    tern_slurm_release_node_set_user(&msg, getuid());
    return slurm_update_node(&msg) == SLURM_SUCCESS ? 0 : failed(err, name, changes[change].what);
}
