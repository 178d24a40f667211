/* A rank is in a call: its operations are moved on, and what fails is put into words. */
#include "core/fabric/state.h"

#include <stdio.h>

/* A node peer is in another call. */
static void blame_call(struct tern_comm *c, const struct tern_coll_trouble *t, struct tern_err *err)
{
    char mine[80], other[80], what[240];

    if (tern_fabric_mismatch_blame(c, c->ops, err) < 0)
        return;
    snprintf(what, sizeof what, "called %s #%llu on communicator %d where rank %d called %s",
             tern_call_text(other, sizeof other, t->desc), (unsigned long long)c->ops, c->id,
             c->coll->wire->rank, tern_call_text(mine, sizeof mine, c->desc));
    tern_fabric_blame(c, t->rank, what, err);
}

static void blame_message(struct tern_comm *c, const struct tern_wire_message *m,
                          struct tern_err *err)
{
    char what[200];
    bool other_call = m->wrong_call || m->wrong_size;

    tern_flight_set_state(c->coll->recorder, c->record, TERN_FLIGHT_WAITING, m->rank);
    if (other_call && tern_fabric_mismatch_blame(c, c->ops, err) < 0)
        return;
    if (other_call)
        snprintf(what, sizeof what,
                 "is in another operation (do all ranks call the same operation with the same "
                 "count?)");
    else if (tern_fabric_blame_listen(fabric_of(c), err) < 0)
        return;
    else
        snprintf(what, sizeof what, "cannot be reached (%s)", m->error);
    tern_fabric_blame(c, m->rank, what, err);
}

/* Whatever failed, ranks no longer agree on where they are.  What was not said yet is this rank's
 * own, so that no other rank can find it out. */
static int broken(struct tern_fabric *f, const struct tern_comm *c, const struct tern_err *why,
                  struct tern_err *err)
{
    char text[600], in[160] = "", call[80];

    if (!f->broken) {
        if (c)
            snprintf(in, sizeof in, "; it was in %s #%llu of communicator %d",
                     tern_call_text(call, sizeof call, c->desc), (unsigned long long)c->ops, c->id);
        snprintf(text, sizeof text, "rank %d (%s) cannot go on: %.*s%s", f->wire.rank,
                 f->wire.peers[f->wire.rank].node_name, (int)(sizeof text - sizeof in - 120),
                 why->text, in);
        tern_fabric_blame_text(f, f->wire.rank, text, NULL);
        if (f->flight.recorder->blamed == f->wire.rank) /* no other rank's word came first */
            f->why.code = why->code;
    }
    for (; f->coll.busy; f->coll.busy &= f->coll.busy - 1) {
        const struct tern_comm *b = f->coll.comms[__builtin_ctzll(f->coll.busy)];
        for (uint64_t n = b->finished; n < b->begun; n++)
            tern_flight_end(f->flight.recorder, b->queue[n % TERN_COLL_QUEUE].record, false);
    }
    tern_flight_write_failed(&f->flight, f->why.text);
    if (err)
        *err = f->why;
    return -1;
}

/* To clear all of its text would take longer than to look whether a node peer has come. */
static struct tern_err *empty(struct tern_err *why)
{
    why->code = TERN_OK;
    why->text[0] = '\0';
    return why;
}

/* A step of `c` failed: the words for it, and the rank at fault. */
static void explain_trouble(struct tern_comm *c, struct tern_err *err)
{
    const struct tern_coll_trouble *t = &c->coll->trouble;

    switch (t->kind) {
    case TERN_COLL_OWN:
        break;
    case TERN_COLL_MISMATCH:
        blame_call(c, t, err);
        break;
    case TERN_COLL_MESSAGE:
        blame_message(c, t->message, err);
        break;
    case TERN_COLL_BUFFER:
        tern_fabric_blame_peer(c, t->rank, err);
        break;
    case TERN_COLL_LEFT:
        if (tern_fabric_blame_peer(c, t->rank, err) == 0)
            tern_fabric_blame(c, t->rank, "has left", err);
        break;
    }
}

/* Every communicator a turn.  1 when `mine` moved, 0 when it did not. */
static int turn(struct tern_fabric *f, const struct tern_comm *mine, struct tern_err *err)
{
    const struct tern_comm *failed = NULL;
    struct tern_err why;

    if (f->broken)
        return broken(f, NULL, &f->why, err);
    int moved = tern_coll_turn(&f->coll, mine, &failed, empty(&why));
    if (moved >= 0)
        return moved;
    explain_trouble(f->coll.comms[failed->id], &why);
    return broken(f, failed, &why, err);
}

int tern_fabric_progress(struct tern_fabric *f, struct tern_err *err)
{
    struct tern_err why;

    if (f->wire.transport && f->coll.busy)
        f->wire.transport->ops->progress(f->wire.transport);
    if (turn(f, NULL, err) < 0)
        return -1;
    return f->coll.busy && tern_fabric_wait_glance(f, empty(&why)) < 0 ? broken(f, NULL, &why, err)
                                                                       : 0;
}

int tern_fabric_progress_wait(struct tern_comm *c, uint64_t number, struct tern_err *err)
{
    struct tern_fabric *f = fabric_of(c);
    struct waiter w;
    struct tern_err why;
    bool waiting = false;

    while (c->finished < number) {
        int moved = turn(f, c, err);
        if (moved < 0)
            return -1;
        if (c->finished >= number)
            break;
        if (moved || !waiting)
            tern_fabric_wait_begin(&w, c);
        waiting = true;
        if (tern_fabric_wait_idle(&w, c->waits_for, empty(&why)) < 0)
            return broken(f, c, &why, err);
    }
    if (waiting)
        tern_fabric_deadlock_withdraw(f);
    return 0;
}

int tern_fabric_progress_fail(struct tern_fabric *f, const struct tern_err *why,
                              struct tern_err *err)
{
    return broken(f, NULL, why, err);
}

int tern_fabric_progress_begin(struct tern_comm *c, const struct tern_coll_task *t,
                               struct tern_err *err)
{
    if (fabric_of(c)->broken)
        return broken(fabric_of(c), NULL, &fabric_of(c)->why, err);
    if (c->begun - c->finished == TERN_COLL_QUEUE &&
        tern_fabric_progress_wait(c, c->begun - TERN_COLL_QUEUE + 1, err) < 0)
        return -1;
    tern_coll_begin(c, t);
    return 0;
}
