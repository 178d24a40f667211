/* Do all members call the same?  Inside a node the recorders of the others can be read.  Between
 * nodes a waiting rank sends its call to the rank that it waits for (TERN_WIRE_PING). A rank that
 * called something else under the same number asks all members before it speaks. */
#include "core/fabric/state.h"

#include "core/base/clock.h"

#include <stdio.h>
#include <string.h>

enum {
    MS = 1000000,
    ANSWERS_NS = 250 * MS, /* a rank that computes does not answer; both rounds stay in a second */
    ROUNDS = 2, /* an operation that some passed without noticing is found from the next one */
    GROUPS = 3, /* of ranks that called the same: more are not named */
};

void tern_fabric_mismatch_heard(struct tern_fabric *f, const struct tern_wire_control *m)
{
    uint32_t mark = (uint32_t)m->comm;
    uint64_t mine = mark ? tern_flight_find_call(f->flight.recorder, mark, m->op) : 0;
    struct tern_wire_control reply = {.kind = TERN_WIRE_CALLED,
                                      .sender = f->wire.rank,
                                      .comm = m->comm,
                                      .op = m->op,
                                      .desc = mine};

    if (m->kind == TERN_WIRE_PING && mine && mine != m->desc && !f->mismatch.suspect.mark)
        f->mismatch.suspect = (struct suspect){mark, m->op, m->desc, m->sender};
    else if (m->kind == TERN_WIRE_ASK)
        tern_wire_send_control(&f->wire, m->sender, &reply);
    else if (m->kind == TERN_WIRE_CALLED && mark == f->mismatch.asked.mark &&
             m->op == f->mismatch.asked.op)
        f->mismatch.called[m->sender] = m->desc;
}

/* f->mismatch.called of all members, as far as they answer. */
static void ask(struct tern_fabric *f, struct tern_comm *c, uint64_t op)
{
    struct tern_wire_control m = {
        .kind = TERN_WIRE_ASK, .sender = f->wire.rank, .comm = (int32_t)c->mark, .op = op};
    int64_t until = tern_clock_boot_ns() + ANSWERS_NS;
    bool all = false;

    f->mismatch.asked = (struct suspect){.mark = c->mark, .op = op};
    for (int i = 0; i < c->shape.size; i++) {
        f->mismatch.called[c->world[i]] = UINT64_MAX; /* no answer yet: no call is packed so */
        if (f->wire.transport && c->world[i] != f->wire.rank &&
            !f->wire.peers[c->world[i]].shm.head)
            tern_wire_send_control(&f->wire, c->world[i], &m);
    }
    while (!all && !f->broken && tern_clock_boot_ns() < until) {
        if (f->wire.transport)
            f->wire.transport->ops->progress(f->wire.transport);
        if (tern_fabric_blame_heard(f, NULL) < 0) /* the first to say it may be gone already */
            break;
        all = true;
        for (int i = 0; i < c->shape.size; i++) {
            int r = c->world[i];
            struct tern_wire_shm_head *h = tern_wire_head(&f->wire, r);
            if (h)
                f->mismatch.called[r] =
                    tern_flight_find_call(tern_wire_shm_recorder(h), c->mark, op);
            all = all && f->mismatch.called[r] != UINT64_MAX;
        }
        tern_fabric_heartbeat(f, tern_clock_boot_ns());
        if (!all)
            tern_clock_sleep_ns(MS / 2);
    }
    f->mismatch.asked.mark = 0;
}

struct group {
    uint64_t desc;
    int first, n; /* lowest world rank */
};

static bool answered(uint64_t desc)
{
    return desc && desc != UINT64_MAX;
}

/* Groups of ranks that called the same, the largest first; of equals the one with the lowest rank.
 */
static int group(const struct tern_fabric *f, const struct tern_comm *c, struct group g[GROUPS])
{
    int n = 0;

    for (int i = 0; i < c->shape.size; i++) {
        int r = c->world[i], k = 0;
        if (!answered(f->mismatch.called[r]))
            continue;
        while (k < n && g[k].desc != f->mismatch.called[r])
            k++;
        if (k == GROUPS)
            continue;
        if (k == n)
            g[n++] = (struct group){f->mismatch.called[r], r, 0};
        g[k].n++;
        g[k].first = r < g[k].first ? r : g[k].first;
    }
    for (int k = 1; k < n; k++)
        if (g[k].n > g[0].n || (g[k].n == g[0].n && g[k].first < g[0].first)) {
            struct group most = g[k];
            g[k] = g[0];
            g[0] = most;
        }
    return n;
}

/* "ranks 0-2", "rank 3 (node-2)". */
static void name_group(const struct tern_fabric *f, const struct tern_comm *c,
                       const struct group *g, char *to, size_t size)
{
    char ranks[120];
    int n = 0;

    for (int r = 0; r < f->wire.size; r++)
        f->mismatch.sorted[r] = 0;
    for (int i = 0; i < c->shape.size; i++)
        f->mismatch.sorted[c->world[i]] = f->mismatch.called[c->world[i]] == g->desc;
    for (int r = 0; r < f->wire.size; r++)
        if (f->mismatch.sorted[r])
            f->mismatch.sorted[n++] = r;
    tern_flight_ranks_text(ranks, sizeof ranks, f->mismatch.sorted, n);
    if (n == 1)
        snprintf(to, size, "rank %s (%s)", ranks, f->wire.peers[g->first].node_name);
    else
        snprintf(to, size, "ranks %s", ranks);
}

static int blame(struct tern_fabric *f, const struct tern_comm *c, uint64_t op,
                 const struct group *g, int n, struct tern_err *err)
{
    char text[600], names[200], call[80];
    size_t at = 0;

    for (int k = 1; k <= n && at < sizeof text; k++) {
        name_group(f, c, &g[k % n], names, sizeof names);
        tern_call_text(call, sizeof call, g[k % n].desc);
        at += (size_t)snprintf(text + at, sizeof text - at,
                               k == 1   ? "%s called %s #%llu"
                               : k == n ? " where %s called %s"
                                        : ", %s called %s #%llu",
                               names, call, (unsigned long long)op);
    }
    if (at < sizeof text)
        snprintf(text + at, sizeof text - at, " on communicator %d", c->id);
    return tern_fabric_blame_text(f, g[1].first, text, err);
}

int tern_fabric_mismatch_blame(struct tern_comm *c, uint64_t op, struct tern_err *err)
{
    struct tern_fabric *f = fabric_of(c);
    struct group g[GROUPS];

    for (uint64_t back = 0; back < ROUNDS && back < op && !f->broken; back++) {
        ask(f, c, op - back);
        int n = group(f, c, g);
        if (n > 1)
            return blame(f, c, op - back, g, n, err);
    }
    return f->broken ? tern_fabric_blame_text(f, 0, "", err) : 0;
}

int tern_fabric_mismatch_check(struct tern_fabric *f, struct tern_err *err)
{
    struct suspect s = f->mismatch.suspect;

    if (!s.mark)
        return 0;
    f->mismatch.suspect.mark = 0;
    for (int i = 0; i < TERN_WIRE_SHM_COMMS; i++)
        if (f->coll.comms[i] && f->coll.comms[i]->mark == s.mark)
            return tern_fabric_mismatch_blame(f->coll.comms[i], s.op, err);
    /* It was freed here, so it was left as if all were well: its other members are not known. */
    char text[600], mine[80], theirs[80];
    snprintf(
        text, sizeof text,
        "rank %d (%s) called %s as operation #%llu of a communicator where rank %d (%s), which "
        "has freed it, called %s",
        s.rank, f->wire.peers[s.rank].node_name, tern_call_text(theirs, sizeof theirs, s.desc),
        (unsigned long long)s.op, f->wire.rank, f->wire.peers[f->wire.rank].node_name,
        tern_call_text(mine, sizeof mine, tern_flight_find_call(f->flight.recorder, s.mark, s.op)));
    return tern_fabric_blame_text(f, s.rank, text, err);
}
