/* The one place where programs run.  An operation is queued on its communicator; the first of each
 * queue runs, those of several communicators in turns, whenever a rank calls in. */
#include "core/fabric/program.h"

#include "core/fabric/copy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum moved { BLOCKED, MOVED, FAILED };

static struct task *running(struct tern_comm *c)
{
    return &c->queue[c->finished % QUEUE];
}

/* ---------------------------------------------------------------- meeting in the node */

/* What that mate says at the meeting that was announced last. */
static const struct tern_wire_shm_post *post_of(const struct tern_comm *c, int local)
{
    const struct tern_fabric *f = c->f;
    int w = c->world[c->mates[local]];
    const struct tern_wire_shm_head *h = w == f->rank ? f->own.head : f->peers[w].shm.head;

    return &h->lines[c->id].post[c->phase & 1];
}

static int disagree(struct tern_comm *c, int local, uint64_t theirs, struct tern_err *err)
{
    char mine[80], other[80], what[240];

    if (tern_fabric_agree_blame(c, c->ops, err) < 0)
        return -1;
    snprintf(what, sizeof what, "called %s #%llu on communicator %d where rank %d called %s",
             tern_call_text(other, sizeof other, theirs), (unsigned long long)c->ops, c->id,
             c->f->rank, tern_call_text(mine, sizeof mine, c->desc));
    return tern_fabric_wait_blame(c, c->world[c->mates[local]], what, err);
}

/* The place for the next meeting's words. */
static struct tern_wire_shm_post *next_post(struct tern_comm *c)
{
    struct tern_wire_shm_post *post = &c->f->own.head->lines[c->id].post[++c->phase & 1];

    post->desc = c->desc;
    if (c->phase > c->f->high_phase)
        c->f->high_phase = c->phase;
    c->met = 0;
    return post;
}

/* Tell the mates that this rank has come here, and what it offers them. */
static void announce(struct tern_comm *c, const struct offer *offers, int n)
{
    const struct tern_wire_shm *own = &c->f->own;
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

/* Is everybody in the node at the phase that was announced, doing the same? */
static enum moved meet(struct tern_comm *c, struct tern_err *err)
{
    for (; c->met < c->p; c->met++) {
        const struct tern_wire_shm_post *post = post_of(c, c->met);
        if (atomic_load_explicit(&post->phase, memory_order_acquire) < c->phase) {
            c->waits_for = c->mates[c->met];
            c->waits_slot = -1;
            return BLOCKED;
        }
        uint64_t theirs = post->desc;
        if (theirs != c->desc) {
            disagree(c, c->met, theirs, err);
            return FAILED;
        }
    }
    return MOVED;
}

/* Have all mates offered that? */
static bool offered(const struct tern_comm *c, int k)
{
    for (int m = 0; m < c->p; m++)
        if (post_of(c, m)->offers[k].region < 0)
            return false;
    return true;
}

/* After a meeting: which offer all have made, so that everybody goes the same way, and where the
 * mates' buffers are here.  Of a broadcast the root's alone: who has it goes on,
 * and may have freed its own. */
static int reach(struct tern_comm *c, struct task *t, const struct offer *offers,
                 struct tern_err *err)
{
    struct tern_fabric *f = c->f;
    int k = TERN_WIRE_SHM_OFFERS - 1;

    while (k >= 0 && !offered(c, k))
        k--;
    t->direct = k >= 0;
    t->pushes = k > 0;
    for (int m = 0; m < c->p && k >= 0; m++) {
        const struct tern_wire_shm_place *at = &post_of(c, m)->offers[k];
        int w = c->world[c->mates[m]];
        if (t->call == TERN_CALL_BROADCAST && c->mates[m] != t->root)
            continue;
        c->views[m] = w == f->rank
                          ? f->own.buffers[at->region].base + at->offset
                          : tern_wire_shm_reach(&f->peers[w].shm, at, offers[k].bytes, err);
        if (!c->views[m]) {
            tern_fabric_wait_gone(c, w, err);
            return -1;
        }
    }
    return 0;
}

static char *stage_of(const struct tern_comm *c, int local)
{
    int w = c->world[c->mates[local]];
    struct tern_wire_shm_head *h = w == c->f->rank ? c->f->own.head : c->f->peers[w].shm.head;

    return (char *)h + tern_wire_shm_stage_offset(c->id, c->half);
}

/* ---------------------------------------------------------------- steps */

static char *place(struct tern_comm *c, uint32_t i)
{
    const struct spot *s = &c->program->spots[i];

    switch (s->place) {
    case PLACE_IN:
        return (char *)(uintptr_t)running(c)->in + s->at;
    case PLACE_OUT:
        return (char *)running(c)->out + s->at;
    case PLACE_WORK:
        return c->work + s->at;
    case PLACE_STAGE:
        return stage_of(c, s->mate) + s->at;
    case PLACE_LINE: /* only read from */
        return (char *)(uintptr_t)post_of(c, s->mate)->payload + s->at;
    default:
        return (char *)c->views[s->mate] + s->at;
    }
}

static enum moved message_failed(struct tern_comm *c, const struct tern_wire_message *m,
                                 struct tern_err *err)
{
    char what[200];

    tern_flight_set_state(c->f->flight.recorder, c->record, TERN_FLIGHT_WAITING, m->rank);
    if ((m->wrong_call || m->wrong_size) && tern_fabric_agree_blame(c, c->ops, err) < 0)
        return FAILED;
    if (m->wrong_call || m->wrong_size)
        snprintf(what, sizeof what,
                 "is in another operation (do all ranks call the same operation with the same "
                 "count?)");
    else if (tern_fabric_wait_word(c->f, err) < 0)
        return FAILED;
    else
        snprintf(what, sizeof what, "cannot be reached (%s)", m->error);
    tern_fabric_wait_blame(c, m->rank, what, err);
    return FAILED;
}

static enum moved post(struct tern_comm *c, const struct step *s, struct tern_err *err)
{
    struct tern_wire_transport *t = c->f->wire;
    bool sends = s->kind == STEP_SEND;
    char *buf = place(c, s->spot);
    int at = s->n ? tern_wire_shm_buffer_find(&c->f->own, buf, s->n) : -1;
    void *mr = at >= 0 ? c->f->own.buffers[at].mr : NULL;
    int peer = c->world[s->member];
    uint32_t *n = sends ? &c->sent[s->member] : &c->received[s->member];
    uint64_t tag = tern_wire_tag(c->id, sends ? c->f->rank : peer, c->part, (*n)++);
    uint32_t call = tern_call_hash(c->desc);

    const struct tern_wire_transfer x = {peer, buf, s->n, tag, call, mr};
    struct tern_wire_message *m = sends ? t->ops->send(t, &x, err) : t->ops->recv(t, &x, err);
    c->slots[s->slot] = m;
    if (!m)
        return FAILED;
    c->f->spoke[peer] = true;
    tern_flight_add_wire(c->f->flight.recorder, c->record, s->n);
    /* Now: the others may wait for ever. */
    return m->state == TERN_WIRE_FAILED ? message_failed(c, m, err) : MOVED;
}

static enum moved over(struct tern_comm *c, uint32_t slot, struct tern_err *err)
{
    struct tern_wire_message *m = c->slots[slot];

    if (!m)
        return MOVED;
    if (m->state == TERN_WIRE_PENDING) {
        c->waits_for = tern_fabric_comm_member(c, m->rank);
        c->waits_slot = slot;
        return BLOCKED;
    }
    if (m->state == TERN_WIRE_FAILED)
        return message_failed(c, m, err);
    c->f->wire->ops->release(c->f->wire, m);
    c->slots[slot] = NULL;
    return MOVED;
}

/* The root's buffer goes with its fabric, which it may close after an error amid the operation:
 * what was read is good if it had not begun to. */
static enum moved tell(struct tern_comm *c, struct tern_err *err)
{
    struct tern_fabric *f = c->f;
    int root = c->world[running(c)->root];

    atomic_thread_fence(memory_order_acquire);
    if (atomic_load_explicit(&f->peers[root].shm.head->calls[c->id].mark, memory_order_relaxed) !=
        c->mark) {
        if (tern_fabric_wait_gone(c, root, err) == 0)
            tern_fabric_wait_blame(c, root, "has left", err);
        return FAILED;
    }
    announce(c, NULL, 0);
    c->owes = true;
    return MOVED;
}

static void copy(struct tern_comm *c, const struct step *s)
{
    enum { BLOCK = 4096 }; /* what several get is read by the first one's copy */
    const struct spot *spots = &c->program->spots[s->spot];
    const struct task *t = running(c);
    char *from = place(c, s->spot + (uint32_t)s->n_dst);

    if (spots[0].place == PLACE_STAGE)
        c->f->staged_bytes += s->n;
    for (size_t at = 0, len; at < s->n; at += len) {
        len = s->n_dst > 1 && s->n - at > BLOCK ? BLOCK : s->n - at;
        for (int i = 0; i < s->n_dst; i++) {
            char *to = place(c, s->spot + (uint32_t)i) + at;
            bool apart = to + len <= from + at || from + at + len <= to;
            if (t->past && (t->pushes || spots[i].place == PLACE_OUT) && apart)
                tern_copy_past(to, from + at, len);
            else
                memmove(to, from + at, len);
        }
    }
    if (t->past)
        tern_copy_past_end();
}

static void reduce(struct tern_comm *c, const struct step *s)
{
    bool past = running(c)->past && c->program->spots[s->spot].place == PLACE_OUT;

    for (int i = 0; i < s->n_dst; i++)
        c->dst[i] = place(c, s->spot + (uint32_t)i);
    for (int i = 0; i < s->n_src; i++)
        c->src[i] = place(c, s->spot + (uint32_t)(s->n_dst + i));
    tern_reduce(&s->reduce, c->dst, s->n_dst, c->src, s->n_src, s->n, past);
}

static enum moved run_step(struct tern_comm *c, const struct step *s, struct tern_err *err)
{
    enum moved m = MOVED;

    switch (s->kind) {
    case STEP_MEET:
        if (c->p == 1)
            return MOVED;
        if (!c->announced && s->n)
            hand_over(c, place(c, s->spot), s->n);
        else if (!c->announced)
            announce(c, NULL, 0);
        c->announced = true;
        m = meet(c, err);
        c->announced = m != MOVED;
        return m;
    case STEP_TELL:
        return tell(c, err);
    case STEP_RECV:
    case STEP_SEND:
        return post(c, s, err);
    case STEP_WAIT:
        return over(c, s->slot, err);
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
static bool alike(const struct task *t, const struct task *of)
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
    struct program *p = c->program;
    const struct task *t = running(c);

    if (!alike(t, &p->of) || p->from != c->at) {
        tern_fabric_program_clear(p);
        p->from = c->at;
        p->did = tern_fabric_task_program(c, t, c->at, p);
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
    memset(c->sent, 0, (size_t)c->size * sizeof *c->sent);
    memset(c->received, 0, (size_t)c->size * sizeof *c->received);
    c->part++;
    c->pc = 0;
    c->slot = 0;
    return 0;
}

/* Offer this rank's buffer to the mates and learn of theirs. */
static enum moved begin(struct tern_comm *c, struct task *t, struct tern_err *err)
{
    struct offer offers[TERN_WIRE_SHM_OFFERS];

    if (!c->announced) {
        c->ops = c->finished + 1;
        c->desc = t->desc;
        c->record = t->record;
        c->at = 0;
        tern_flight_set_state(c->f->flight.recorder, c->record, TERN_FLIGHT_RUNNING, -1);
        t->algorithm = tern_fabric_choose(c, t, &c->f->model);
        t->direct = c->p == 1;
        t->past = tern_fabric_task_past(c, t, c->f->cache);
    }
    int n = tern_fabric_task_offers(c, t, offers);
    if (n) {
        if (!c->announced)
            announce(c, offers, n);
        c->announced = true;
        enum moved m = meet(c, err);
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
    struct program *p = c->program;
    struct task *t = running(c);
    enum moved any = BLOCKED, m;

    /* Whoever reads at one meeting what was said there lets nobody be two meetings ahead. */
    if (c->owes) {
        c->record = t->record; /* which waits: the one before is over */
        m = meet(c, err);
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
            m = over(c, c->slot, err);
            if (m != MOVED)
                return m == FAILED ? FAILED : any;
        }
        c->half ^= 1;
        if (c->at >= t->count)
            break;
        if (next_program(c, err) < 0)
            return FAILED;
    }
    tern_flight_end(c->f->flight.recorder, c->record, true);
    c->begun_one = false;
    c->finished++;
    atomic_store_explicit(&c->f->own.head->calls[c->id].finished, c->finished,
                          memory_order_relaxed);
    return MOVED;
}

/* Whatever failed, ranks no longer agree on where they are.  What was not said yet is this rank's
 * own, so that nobody else can find it out. */
static int broken(struct tern_fabric *f, const struct tern_comm *c, const struct tern_err *why,
                  struct tern_err *err)
{
    char text[600], in[160] = "", call[80];

    if (!f->broken) {
        if (c)
            snprintf(in, sizeof in, "; it was in %s #%llu of communicator %d",
                     tern_call_text(call, sizeof call, c->desc), (unsigned long long)c->ops, c->id);
        snprintf(text, sizeof text, "rank %d (%s) cannot go on: %.*s%s", f->rank,
                 f->peers[f->rank].node_name, (int)(sizeof text - sizeof in - 120), why->text, in);
        tern_fabric_wait_blame_text(f, f->rank, text, NULL);
        if (f->flight.recorder->blamed == f->rank) /* nobody else's word came first */
            f->why.code = why->code;
    }
    for (; f->busy; f->busy &= f->busy - 1) {
        const struct tern_comm *b = f->comms[__builtin_ctzll(f->busy)];
        for (uint64_t n = b->finished; n < b->begun; n++)
            tern_flight_end(f->flight.recorder, b->queue[n % QUEUE].record, false);
    }
    tern_flight_write_failed(&f->flight, f->why.text);
    if (err)
        *err = f->why;
    return -1;
}

/* To clear all of its text would take longer than to look whether a mate has come. */
static struct tern_err *empty(struct tern_err *why)
{
    why->code = TERN_OK;
    why->text[0] = '\0';
    return why;
}

/* Every communicator a turn.  1 when `mine` moved, 0 when it did not. */
static int turn(struct tern_fabric *f, const struct tern_comm *mine, struct tern_err *err)
{
    struct tern_err why;
    int moved = 0;

    if (f->broken)
        return broken(f, NULL, &f->why, err);
    empty(&why);
    for (uint64_t busy = f->busy; busy; busy &= busy - 1) {
        struct tern_comm *c = f->comms[__builtin_ctzll(busy)];
        enum moved m = MOVED;
        while (c->finished < c->begun && m == MOVED) {
            m = advance(c, &why);
            moved |= m == MOVED && c == mine;
        }
        if (m == FAILED)
            return broken(f, c, &why, err);
        if (c->finished == c->begun)
            f->busy &= ~(1ull << c->id);
    }
    return moved;
}

int tern_fabric_engine_poll(struct tern_fabric *f, struct tern_err *err)
{
    struct tern_err why;

    if (f->wire && f->busy)
        f->wire->ops->progress(f->wire);
    if (turn(f, NULL, err) < 0)
        return -1;
    return f->busy && tern_fabric_wait_glance(f, empty(&why)) < 0 ? broken(f, NULL, &why, err) : 0;
}

int tern_fabric_engine_wait(struct tern_comm *c, uint64_t number, struct tern_err *err)
{
    struct tern_fabric *f = c->f;
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
        tern_fabric_cross_done(f);
    return 0;
}

int tern_fabric_engine_fail(struct tern_fabric *f, const struct tern_err *why, struct tern_err *err)
{
    return broken(f, NULL, why, err);
}

int tern_fabric_engine_begin(struct tern_comm *c, const struct task *t, struct tern_err *err)
{
    if (c->f->broken)
        return broken(c->f, NULL, &c->f->why, err);
    if (c->begun - c->finished == QUEUE &&
        tern_fabric_engine_wait(c, c->begun - QUEUE + 1, err) < 0)
        return -1;
    struct task *queued = &c->queue[c->begun++ % QUEUE];
    *queued = *t;
    queued->record =
        tern_flight_begin(c->f->flight.recorder, c->serial, c->begun, t->desc, TERN_FLIGHT_QUEUED);
    c->f->busy |= 1ull << c->id;
    atomic_store_explicit(&c->f->own.head->calls[c->id].begun, c->begun, memory_order_relaxed);
    return 0;
}
