/* The one place where lists of steps run.  An operation is queued on its communicator; the first of
 * each queue runs, those of several communicators in turns, whenever a rank calls in. */
#include "core/coll/program.h"

#include "core/base/assert.h"
#include "core/coll/copy.h"

#include <stdlib.h>
#include <string.h>

enum moved { BLOCKED, MOVED, FAILED };

static struct tern_coll_task *running(struct tern_comm *c)
{
    return &c->queue[c->finished % TERN_COLL_QUEUE];
}

/* ---------------------------------------------------------------- meeting in the node */

/* What that node peer says at the meeting that was announced last. */
static const struct tern_wire_shm_post *post_of(const struct tern_comm *c, int local)
{
    const struct tern_wire_shm_head *h =
        tern_wire_head(c->coll->wire, c->world[c->shape.peers[local]]);

    return &h->lines[c->id].post[c->phase & 1];
}

static enum moved failed(struct tern_comm *c, struct tern_coll_trouble why)
{
    c->coll->trouble = why;
    return FAILED;
}

/* The place for the next meeting's words. */
static struct tern_wire_shm_post *next_post(struct tern_comm *c)
{
    struct tern_wire_shm_post *post = &c->coll->wire->own.head->lines[c->id].post[++c->phase & 1];

    post->desc = c->desc;
    if (c->phase > c->coll->high_phase)
        c->coll->high_phase = c->phase;
    c->met = 0;
    return post;
}

/* Tell the node peers that this rank has come here, and what it offers them. */
static void announce(struct tern_comm *c, const struct offer *offers, int n)
{
    const struct tern_wire_shm *own = &c->coll->wire->own;
    struct tern_wire_shm_post *post = next_post(c);

    for (int k = 0; k < TERN_WIRE_SHM_OFFERS; k++) {
        int i = k < n ? tern_wire_shm_buffer_find(own, offers[k].buf, offers[k].bytes) : -1;
        post->offers[k].region = i;
        if (i < 0)
            continue;
        post->offers[k].generation = own->head->regions[i].generation;
        post->offers[k].offset = (uint64_t)((const char *)offers[k].buf - own->buffers[i].base);
    }
    atomic_store_explicit(&post->phase, c->phase, memory_order_release);
}

/* The same, and hand over some bytes. */
static void hand_over(struct tern_comm *c, const void *from, size_t bytes)
{
    struct tern_wire_shm_post *post = next_post(c);

    memcpy(post->payload, from, bytes);
    atomic_store_explicit(&post->phase, c->phase, memory_order_release);
}

/* Are all ranks of the node at the phase that was announced, in the same call? */
static enum moved meet(struct tern_comm *c)
{
    for (; c->met < c->shape.p; c->met++) {
        const struct tern_wire_shm_post *post = post_of(c, c->met);
        if (atomic_load_explicit(&post->phase, memory_order_acquire) < c->phase) {
            c->waits_for = c->shape.peers[c->met];
            c->waits_slot = -1;
            return BLOCKED;
        }
        uint64_t theirs = post->desc;
        if (theirs != c->desc)
            return failed(c, (struct tern_coll_trouble){.kind = TERN_COLL_MISMATCH,
                                                        .rank = c->world[c->shape.peers[c->met]],
                                                        .desc = theirs});
    }
    return MOVED;
}

/* Have all node peers offered that? */
static bool offered(const struct tern_comm *c, int k)
{
    for (int m = 0; m < c->shape.p; m++)
        if (post_of(c, m)->offers[k].region < 0)
            return false;
    return true;
}

/* After a meeting: which offer all have made, so that all go the same way, and where the node
 * peers' buffers are here. Of a broadcast the root's alone: a rank that has the data goes on, and
 * may have freed its own. */
static int reach(struct tern_comm *c, struct tern_coll_task *t, const struct offer *offers,
                 struct tern_err *err)
{
    struct tern_wire_ranks *w = c->coll->wire;
    int k = TERN_WIRE_SHM_OFFERS - 1;

    while (k >= 0 && !offered(c, k))
        k--;
    t->direct = k >= 0;
    t->pushes = k > 0;
    for (int m = 0; m < c->shape.p && k >= 0; m++) {
        const struct tern_wire_shm_place *at = &post_of(c, m)->offers[k];
        int r = c->world[c->shape.peers[m]];
        if (t->call == TERN_CALL_BROADCAST && c->shape.peers[m] != t->root)
            continue;
        c->views[m] = r == w->rank
                          ? w->own.buffers[at->region].base + at->offset
                          : tern_wire_shm_reach(&w->peers[r].shm, at, offers[k].bytes, err);
        if (!c->views[m]) {
            failed(c, (struct tern_coll_trouble){.kind = TERN_COLL_BUFFER, .rank = r});
            return -1;
        }
    }
    return 0;
}

static char *stage_of(const struct tern_comm *c, int local)
{
    struct tern_wire_shm_head *h = tern_wire_head(c->coll->wire, c->world[c->shape.peers[local]]);

    return (char *)h + tern_wire_shm_stage_offset(c->id, c->half);
}

/* ---------------------------------------------------------------- steps */

static char *place(struct tern_comm *c, uint32_t i)
{
    const struct tern_coll_spot *s = &c->program->spots[i];

    switch (s->place) {
    case PLACE_IN:
        return (char *)(uintptr_t)running(c)->in + s->at;
    case PLACE_OUT:
        return (char *)running(c)->out + s->at;
    case PLACE_WORK:
        return c->work + s->at;
    case PLACE_STAGE:
        return stage_of(c, s->peer) + s->at;
    case PLACE_LINE: /* only read from */
        return (char *)(uintptr_t)post_of(c, s->peer)->payload + s->at;
    default:
        return (char *)c->views[s->peer] + s->at;
    }
}

static enum moved message_failed(struct tern_comm *c, const struct tern_wire_message *m)
{
    return failed(
        c, (struct tern_coll_trouble){.kind = TERN_COLL_MESSAGE, .rank = m->rank, .message = m});
}

static enum moved post(struct tern_comm *c, const struct step *s, struct tern_err *err)
{
    struct tern_wire_ranks *w = c->coll->wire;
    struct tern_wire_transport *t = w->transport;
    bool sends = s->kind == STEP_SEND;
    char *buf = place(c, s->spot);
    int at = s->n ? tern_wire_shm_buffer_find(&w->own, buf, s->n) : -1;
    int peer = c->world[s->member];
    uint32_t *n = sends ? &c->sent[s->member] : &c->received[s->member];
    const struct tern_wire_transfer x = {
        .peer = peer,
        .buf = buf,
        .bytes = s->n,
        .tag = tern_wire_tag(c->id, sends ? w->rank : peer, c->part, (*n)++),
        .call = tern_call_hash(c->desc),
        .mr = at >= 0 ? w->own.buffers[at].mr : NULL,
    };

    tern_wire_transfer_check(&x, w->rank, w->size);
    struct tern_wire_message *m = sends ? t->ops->send(t, &x, err) : t->ops->recv(t, &x, err);
    c->slots[s->slot] = m;
    if (!m)
        return FAILED;
    w->spoke[peer] = true;
    tern_flight_add_wire(c->coll->recorder, c->record, s->n);
    /* Now: the others may wait for ever. */
    return m->state == TERN_WIRE_FAILED ? message_failed(c, m) : MOVED;
}

static enum moved over(struct tern_comm *c, uint32_t slot)
{
    struct tern_wire_message *m = c->slots[slot];

    if (!m)
        return MOVED;
    if (m->state == TERN_WIRE_PENDING) {
        c->waits_for = tern_coll_comm_member(c, m->rank);
        c->waits_slot = slot;
        return BLOCKED;
    }
    if (m->state == TERN_WIRE_FAILED)
        return message_failed(c, m);
    c->coll->wire->transport->ops->release(c->coll->wire->transport, m);
    c->slots[slot] = NULL;
    return MOVED;
}

/* The root's buffer goes with its fabric, which it may close after an error amid the operation. The
 * data that was read is good if it had not begun to. */
static enum moved tell(struct tern_comm *c)
{
    int root = c->world[running(c)->root];
    const struct tern_wire_shm_head *h = c->coll->wire->peers[root].shm.head;

    atomic_thread_fence(memory_order_acquire);
    if (atomic_load_explicit(&h->calls[c->id].mark, memory_order_relaxed) != c->mark)
        return failed(c, (struct tern_coll_trouble){.kind = TERN_COLL_LEFT, .rank = root});
    announce(c, NULL, 0);
    c->owes = true;
    return MOVED;
}

static void copy(struct tern_comm *c, const struct step *s)
{
    enum { BLOCK = 4096 }; /* what several get is read by the first one's copy */
    const struct tern_coll_spot *spots = &c->program->spots[s->spot];
    const struct tern_coll_task *t = running(c);
    char *from = place(c, s->spot + (uint32_t)s->n_dst);

    if (spots[0].place == PLACE_STAGE)
        c->coll->staged_bytes += s->n;
    for (size_t at = 0, len; at < s->n; at += len) {
        len = s->n_dst > 1 && s->n - at > BLOCK ? BLOCK : s->n - at;
        for (int i = 0; i < s->n_dst; i++) {
            char *to = place(c, s->spot + (uint32_t)i) + at;
            bool apart = to + len <= from + at || from + at + len <= to;
            if (t->past && (t->pushes || spots[i].place == PLACE_OUT) && apart)
                tern_coll_copy_past(to, from + at, len);
            else
                memmove(to, from + at, len);
        }
    }
    if (t->past)
        tern_coll_copy_past_end();
}

static void reduce(struct tern_comm *c, const struct step *s)
{
    bool past = running(c)->past && c->program->spots[s->spot].place == PLACE_OUT;

    for (int i = 0; i < s->n_dst; i++)
        c->dst[i] = place(c, s->spot + (uint32_t)i);
    for (int i = 0; i < s->n_src; i++)
        c->src[i] = place(c, s->spot + (uint32_t)(s->n_dst + i));
    tern_coll_reduce(&s->reduce, c->dst, s->n_dst, c->src, s->n_src, s->n, past);
}

static enum moved run_step(struct tern_comm *c, const struct step *s, struct tern_err *err)
{
    enum moved m = MOVED;

    switch (s->kind) {
    case STEP_MEET:
        if (c->shape.p == 1)
            return MOVED;
        if (!c->announced && s->n)
            hand_over(c, place(c, s->spot), s->n);
        else if (!c->announced)
            announce(c, NULL, 0);
        c->announced = true;
        m = meet(c);
        c->announced = m != MOVED;
        return m;
    case STEP_TELL:
        return tell(c);
    case STEP_RECV:
    case STEP_SEND:
        return post(c, s, err);
    case STEP_WAIT:
        return over(c, s->slot);
    case STEP_COPY:
        copy(c, s);
        return MOVED;
    case STEP_REDUCE:
        reduce(c, s);
        return MOVED;
    }
    return m;
}

/* ---------------------------------------------------------------- operations */

/* Would `t` have the list that was made for `of`?  A list names places in a call's buffers, not
 * addresses, but whether input and output overlap, and how, makes a difference. */
static bool alike(const struct tern_coll_task *t, const struct tern_coll_task *of)
{
    return t->call == of->call && t->type == of->type && t->op == of->op && t->root == of->root &&
           t->count == of->count && t->algorithm == of->algorithm && t->direct == of->direct &&
           t->pushes == of->pushes &&
           (uintptr_t)t->in - (uintptr_t)t->out == (uintptr_t)of->in - (uintptr_t)of->out;
}

/* The next list of the running operation; a list of no steps at its end.  Ranks call the same over
 * and over: to make a short list again takes longer than to run it. */
static int next_program(struct tern_comm *c, struct tern_err *err)
{
    struct tern_coll_program *p = c->program;
    const struct tern_coll_task *t = running(c);

    if (!alike(t, &p->of) || p->from != c->at) {
        tern_coll_program_clear(p);
        p->from = c->at;
        p->did = tern_coll_task_program(&c->shape, t, c->at, p);
        if (!p->failed)
            tern_coll_program_check(p, &c->shape, t);
        p->of = *t;
    }
    c->at += p->did;
    if (p->n_slots > c->max_slots) {
        struct tern_wire_message **more =
            realloc(c->slots, p->n_slots * sizeof(struct tern_wire_message *));
        if (more) {
            memset(more + c->max_slots, 0, (p->n_slots - c->max_slots) * sizeof *more);
            c->slots = more;
            c->max_slots = p->n_slots;
        }
        p->failed |= !more;
    }
    if (p->failed)
        return tern_err_set(err, TERN_FAILED, "out of memory for the steps of an operation");
    memset(c->sent, 0, (size_t)c->shape.size * sizeof *c->sent);
    memset(c->received, 0, (size_t)c->shape.size * sizeof *c->received);
    c->part++;
    c->pc = 0;
    c->slot = 0;
    return 0;
}

/* Offer this rank's buffer to the node peers and learn of theirs. */
static enum moved begin(struct tern_comm *c, struct tern_coll_task *t, struct tern_err *err)
{
    struct offer offers[TERN_WIRE_SHM_OFFERS];

    if (!c->announced) {
        c->ops = c->finished + 1;
        c->desc = t->desc;
        c->record = t->record;
        c->at = 0;
        tern_flight_set_state(c->coll->recorder, c->record, TERN_FLIGHT_RUNNING, -1);
        t->algorithm = tern_coll_choose(&c->shape, t, &c->coll->model);
        t->direct = c->shape.p == 1;
        t->past = tern_coll_task_past(&c->shape, t, c->coll->cache);
    }
    int n = tern_coll_task_offers(&c->shape, t, offers);
    if (n) {
        if (!c->announced)
            announce(c, offers, n);
        c->announced = true;
        enum moved m = meet(c);
        if (m != MOVED)
            return m;
        c->announced = false;
        if (reach(c, t, offers, err) < 0)
            return FAILED;
    }
    t->past &= t->direct;
    c->begun_one = true;
    return next_program(c, err) < 0 ? FAILED : MOVED;
}

/* Run the first operation of the queue until it must wait. */
static enum moved advance(struct tern_comm *c, struct tern_err *err)
{
    struct tern_coll_program *p = c->program;
    struct tern_coll_task *t = running(c);
    enum moved any = BLOCKED, m;

    /* A rank that still reads what was said at one meeting keeps the others from being two meetings
     * ahead. */
    if (c->owes) {
        c->record = t->record; /* which waits: the one before is over */
        m = meet(c);
        if (m != MOVED)
            return m;
        c->owes = false;
        any = MOVED;
    }
    if (!c->begun_one) {
        m = begin(c, t, err);
        if (m != MOVED)
            return m == FAILED ? FAILED : any;
        any = MOVED;
    }
    for (;;) {
        for (; c->pc < p->n; c->pc++, any = MOVED) {
            m = run_step(c, &p->steps[c->pc], err);
            if (m != MOVED)
                return m == FAILED ? FAILED : any;
        }
        for (; c->slot < p->n_slots; c->slot++) {
            m = over(c, c->slot);
            if (m != MOVED)
                return m == FAILED ? FAILED : any;
        }
        c->half ^= 1;
        if (c->at >= t->count)
            break;
        if (next_program(c, err) < 0)
            return FAILED;
    }
    tern_flight_end(c->coll->recorder, c->record, true);
    c->begun_one = false;
    c->finished++;
    atomic_store_explicit(&c->coll->wire->own.head->calls[c->id].finished, c->finished,
                          memory_order_relaxed);
    return MOVED;
}

int tern_coll_turn(struct tern_coll *e, const struct tern_comm *mine,
                   const struct tern_comm **ret_failed, struct tern_err *err)
{
    int moved = 0;

    for (uint64_t busy = e->busy; busy; busy &= busy - 1) {
        struct tern_comm *c = e->comms[__builtin_ctzll(busy)];
        enum moved m = MOVED;
        e->trouble.kind = TERN_COLL_OWN;
        while (c->finished < c->begun && m == MOVED) {
            m = advance(c, err);
            moved |= m == MOVED && c == mine;
        }
        if (m == FAILED) {
            *ret_failed = c;
            return -1;
        }
        if (c->finished == c->begun)
            e->busy &= ~(1ull << c->id);
    }
    return moved;
}

void tern_coll_begin(struct tern_comm *c, const struct tern_coll_task *t)
{
    struct tern_coll *e = c->coll;
    struct tern_coll_task *queued;

    tern_assert(c->begun - c->finished < TERN_COLL_QUEUE, "%s: the queue is full",
                tern_call_text((char[80]){0}, 80, t->desc));
    tern_assert(t->count > 0 && t->root >= 0 && t->root < c->shape.size, "count %zu, root %d of %d",
                t->count, t->root, c->shape.size);
    queued = &c->queue[c->begun++ % TERN_COLL_QUEUE];
    *queued = *t;
    queued->record =
        tern_flight_begin(e->recorder, c->serial, c->begun, t->desc, TERN_FLIGHT_QUEUED);
    e->busy |= 1ull << c->id;
    atomic_store_explicit(&e->wire->own.head->calls[c->id].begun, c->begun, memory_order_relaxed);
}

bool tern_coll_blocked_by_call(const struct tern_comm *c)
{
    const struct tern_coll_program *p = c->program;

    for (size_t i = 0; c->waits_slot >= 0 && i < p->n; i++)
        if (p->steps[i].slot == c->waits_slot && p->steps[i].kind != STEP_WAIT)
            return p->steps[i].kind == STEP_RECV;
    return c->waits_slot < 0;
}
