/* Messages as records and writes.
 *
 * A short message is an EAGER record, as long as the receiver's credit lasts; beyond that it stays
 * with the sender.  A receive of a long one says READY, and the sender writes.  The immediate of
 * each write names the receive and the chunk, which the receiver ticks off.  Nothing needs an
 * order: records that come before their call wait in a table.  A receive asks for an EAGER that is
 * not there.  The sender may lack the credit, since earlier ones are not wanted yet, or have a long
 * one.
 *
 * With `failover` all is kept until the other side has it: EAGERs until their number was seen, a
 * long message until its FIN.  Once both sides have closed a lost rail, EAGERs go again (they are
 * numbered), and receives say READY again with the chunks that they miss.  Only chunks that went by
 * the lost rail are then written again, so no write comes after the receive is over. */
#include "core/base/rand.h"
#include "core/wire/ofi/state.h"

#include <rdma/fi_errno.h>
#include <stdlib.h>
#include <string.h>

enum { MS = 1000000 };

int tern_wire_ofi_rma_start(struct ofi *o, struct tern_err *err)
{
    o->links = tern_alloc((size_t)o->size, sizeof *o->links, "peers", err);
    o->requests = tern_alloc(REQUESTS, sizeof *o->requests, "messages", err);
    o->free_requests = tern_alloc(REQUESTS, sizeof *o->free_requests, "messages", err);
    if (!o->links || !o->requests || !o->free_requests)
        return -1;
    for (int r = 0; r < o->size; r++)
        o->links[r].limit = o->links[r].told = o->credits;
    for (int i = 0; i < REQUESTS; i++)
        o->free_requests[o->n_free_requests++] = (uint16_t)(REQUESTS - 1 - i);
    return tern_wire_ofi_rma_slots(o, 0, o->trial ? TRY_SLOTS : SLOTS, err);
}

int tern_wire_ofi_rma_slots(struct ofi *o, size_t from, size_t most, struct tern_err *err)
{
    if (o->eager_max > EAGER_MAX && most > SLOTS_STREAM)
        most = SLOTS_STREAM;
    for (int i = 0; i < o->n_rails; i++) {
        size_t n = o->rails[i].info->rx_attr->size;
        for (size_t k = from; k < (n < most ? n : most); k++) {
            struct op *op = tern_wire_ofi_op_take(o, ofi_record_max(o), err);
            if (!op)
                return -1;
            op->kind = OP_SLOT;
            /* They come in turns: else the first calls of all would each meet a fresh page. */
            if (o->size <= MANY_RANKS)
                memset(op->data, 0, op->room);
            op->rail = (uint8_t)i;
            tern_wire_ofi_op_post(o, op);
        }
    }
    return 0;
}

void tern_wire_ofi_rma_free(struct ofi *o)
{
    for (int i = 0; o->buckets && i < BUCKETS; i++) {
        for (struct node *n = o->buckets[i], *next; n; n = next) {
            next = n->next;
            if (n->kind == NODE_EARLY)
                tern_wire_ofi_kept_give(o, OFI_OF(struct early, node, n));
            else if (n->kind == NODE_READY)
                tern_wire_ofi_kept_give(o, OFI_OF(struct early_ready, node, n));
        }
    }
    tern_wire_ofi_kept_free_all(o);
    free(o->links);
    free(o->requests);
    free(o->free_requests);
}

/* ---------------------------------------------------------------- the waiting ones */

static void wait_for_end(struct ofi *o, struct ofi_msg *m)
{
    if (m->m.state != TERN_WIRE_PENDING)
        return;
    m->next = NULL;
    m->prev = o->last;
    if (o->last)
        o->last->next = m;
    else
        o->first = m;
    o->last = m;
    m->listed = true;
}

void tern_wire_ofi_rma_over(struct ofi *o, struct ofi_msg *m)
{
    struct peer_link *p = &o->links[m->m.rank];

    o->ends++;
    if (m->node.in)
        tern_wire_ofi_node_remove(o, &m->node);
    if (m->stalled)
        o->n_stalled--;
    m->stalled = false;
    if (m->requested) {
        uint32_t place = m->id >> 10;
        o->requests[place].m = NULL;
        o->requests[place].generation++;
        o->free_requests[o->n_free_requests++] = (uint16_t)place;
        m->requested = false;
        o->abandoned |= m->ready_sent && m->m.state == TERN_WIRE_FAILED;
    }
    if (m->receives && m->ready_sent && tern_wire_ofi_window_add(&p->ready_done, m->number))
        o->stalled = true;
    if (!m->listed)
        return;
    if (m->prev)
        m->prev->next = m->next;
    else
        o->first = m->next;
    if (m->next)
        m->next->prev = m->prev;
    else
        o->last = m->prev;
    m->listed = false;
}

static void stall(struct ofi *o, struct ofi_msg *m)
{
    if (!m->stalled)
        o->n_stalled++;
    m->stalled = true;
}

/* ---------------------------------------------------------------- short ones */

/* With `asked` the receive is known to wait: no credit is needed. */
static bool send_eager(struct ofi *o, struct ofi_msg *m, bool asked)
{
    struct peer_link *p = &o->links[m->m.rank];
    uint32_t limit = asked ? p->acked + WINDOW : p->limit;
    struct record *head;

    if (window_ahead(p->next_eager, limit) >= 0)
        return false;
    size_t copied = m->bytes <= EAGER_MAX ? m->bytes : 0;
    struct op *op = tern_wire_ofi_record_new(o, RECORD_EAGER, m->m.rank, copied, &head);
    if (!op)
        return false;
    if (copied)
        memcpy(head + 1, m->buf, copied);
    else if (m->bytes) {
        op->buf = m->buf; /* behind the head, from where it lies */
        op->bytes += m->bytes;
    }
    head->number = op->number = p->next_eager++;
    head->bytes = (uint32_t)m->bytes;
    head->call = m->call;
    head->tag = m->node.tag;
    op->m = m;
    m->left++;
    if (m->stalled)
        o->n_stalled--;
    m->stalled = false;
    tern_wire_ofi_op_post(o, op);
    return true;
}

static void deliver(struct ofi *o, struct ofi_msg *m, const void *data, size_t bytes, uint32_t call)
{
    if (bytes != m->bytes || call != m->call) {
        tern_wire_ofi_msg_wrong(o, m, bytes, call);
        return;
    }
    if (bytes)
        memcpy(m->buf, data, bytes);
    tern_wire_ofi_msg_end(o, m, NULL);
}

static void keep_early(struct ofi *o, const struct record_view *v)
{
    struct peer_link *p = &o->links[v->head.sender];
    struct early *e = NULL;

    /* A rank may send more than it was allowed only when asked to, and then a receive waits. */
    if (p->early < o->credits)
        e = tern_wire_ofi_kept_take(o, sizeof *e + v->head.bytes);
    if (!e) {
        o->refused++;
        return;
    }
    e->bytes = v->head.bytes;
    e->call = v->head.call;
    memcpy(e->data, v->payload, e->bytes);
    p->early++;
    tern_wire_ofi_node_put(o, &e->node, NODE_EARLY, (int)v->head.sender, v->head.tag);
}

static void on_eager(struct ofi *o, const struct record_view *v)
{
    int rank = (int)v->head.sender;
    struct peer_link *p = &o->links[rank];

    if (!tern_wire_ofi_window_add(&p->eager_in, v->head.number))
        return; /* it came before */
    struct node *n = tern_wire_ofi_node_find(o, NODE_RECV, rank, v->head.tag);
    if (!n) {
        keep_early(o, v);
        return;
    }
    p->consumed++;
    deliver(o, OFI_OF(struct ofi_msg, node, n), v->payload, v->head.bytes, v->head.call);
    tern_wire_ofi_peer_credit(o, rank);
}

static bool take_early(struct ofi *o, struct ofi_msg *m, uint64_t tag)
{
    struct node *n = tern_wire_ofi_node_find(o, NODE_EARLY, m->m.rank, tag);

    if (!n)
        return false;
    struct early *e = OFI_OF(struct early, node, n);
    struct peer_link *p = &o->links[m->m.rank];
    tern_wire_ofi_node_remove(o, n);
    p->early--;
    p->consumed++;
    deliver(o, m, e->data, e->bytes, e->call);
    tern_wire_ofi_kept_give(o, e);
    tern_wire_ofi_peer_credit(o, m->m.rank);
    return true;
}

/* ---------------------------------------------------------------- long ones: the receiver */

static bool ask_for(struct ofi *o, struct ofi_msg *m)
{
    struct peer_link *p = &o->links[m->m.rank];
    struct record_ready ready = {.chunk = m->chunk, .token = m->token};
    struct record *head;

    if (!m->ready_sent && window_ahead(p->next_ready, p->ready_done.low) >= WINDOW)
        return false;
    struct op *op = tern_wire_ofi_record_new(o, RECORD_READY, m->m.rank, sizeof ready, &head);
    if (!op)
        return false;
    if (!m->ready_sent)
        m->number = p->next_ready++;
    m->ready_sent = true;
    bool virtual = o->rails[0].info->domain_attr->mr_mode & FI_MR_VIRT_ADDR;
    ready.address = virtual ? (uint64_t)(uintptr_t)m->buf : (uint64_t)(m->buf - m->reg->base);
    for (int i = 0; i < o->n_rails; i++)
        ready.key[i] = m->reg->mr[i] ? fi_mr_key(m->reg->mr[i]) : 0;
    for (uint32_t c = 0; c < m->chunks; c++)
        if (!(m->have[c / 64] >> c % 64 & 1))
            ready.missing[c / 64] |= 1ull << c % 64;
    head->number = m->number;
    head->bytes = (uint32_t)m->bytes;
    head->call = m->call;
    head->id = m->id;
    head->tag = m->node.tag;
    tern_wire_ofi_ready_mask(o->secret, m->m.rank, head, &ready);
    memcpy(head + 1, &ready, sizeof ready);
    op->m = m;
    m->left++;
    if (m->stalled)
        o->n_stalled--;
    m->stalled = false;
    tern_wire_ofi_op_post(o, op);
    return true;
}

/* Stripes of 128 bytes' multiples over all rails, or one write where it fits. */
static size_t chunk_of(const struct ofi *o, size_t bytes)
{
    size_t n = bytes >= STRIPE_MIN ? (size_t)o->up : 1, chunk = (bytes + n - 1) / n;

    chunk = (chunk + 127) & ~(size_t)127;
    return chunk < o->fragment ? chunk : o->fragment;
}

int tern_wire_ofi_rma_recv(struct ofi *o, struct ofi_msg *m, uint64_t tag, struct tern_err *err)
{
    m->node.tag = tag;
    if (take_early(o, m, tag))
        return 0;
    m->period_ns = 20 * MS;
    if (m->bytes > o->eager_max) {
        if (!o->n_free_requests)
            return tern_err_set(err, TERN_FAILED, "more than %d long messages awaited at once",
                                REQUESTS);
        uint32_t place = o->free_requests[--o->n_free_requests];
        m->id = record_id(place, o->requests[place].generation);
        m->requested = true;
        o->requests[place].m = m;
        m->chunk = (uint32_t)chunk_of(o, m->bytes);
        m->chunks = record_chunks(m->bytes, m->chunk);
        m->token = 0;
        if (o->wide)
            tern_rand_system(&m->token, sizeof m->token);
    }
    tern_wire_ofi_node_put(o, &m->node, NODE_RECV, m->m.rank, tag);
    wait_for_end(o, m);
    if (m->requested && !ask_for(o, m))
        stall(o, m);
    return 0;
}

void tern_wire_ofi_rma_written(struct ofi *o, int rail, uint64_t data)
{
    uint32_t token = (uint32_t)(data >> 32), id = (uint32_t)data >> 8, chunk = data % CHUNKS;
    struct ofi_msg *m = id >> 10 < REQUESTS ? o->requests[id >> 10].m : NULL;

    /* A late one of a receive that is over, reported twice, or nonsense. */
    if (!m || m->id != id || (o->wide && m->token != token) || chunk >= m->chunks ||
        m->have[chunk / 64] >> chunk % 64 & 1) {
        o->refused++;
        return;
    }
    tern_wire_ofi_peer_heard(o, m->m.rank, rail);
    m->have[chunk / 64] |= 1ull << chunk % 64;
    if (++m->arrived < m->chunks)
        return;
    if (o->failover)
        tern_wire_ofi_peer_say(o, m->m.rank, RECORD_FIN, m->id, m->node.tag, 0, 0);
    tern_wire_ofi_msg_end(o, m, NULL);
}

/* ---------------------------------------------------------------- long ones: the sender */

static void write_chunk(struct ofi *o, struct ofi_msg *m, const struct record *head,
                        const struct record_ready *ready, uint32_t c, int rail)
{
    size_t at = (size_t)c * ready->chunk;
    struct op *op = tern_wire_ofi_op_take(o, 0, NULL);

    if (!op) {
        tern_wire_ofi_msg_end(o, m, "too many messages on their way at once");
        return;
    }
    op->kind = OP_WRITE;
    op->m = m;
    op->rank = m->m.rank;
    op->rail = (uint8_t)rail;
    op->buf = m->buf + at;
    op->bytes = m->bytes - at < ready->chunk ? m->bytes - at : ready->chunk;
    op->desc = ofi_desc(m->reg, rail);
    op->address = ready->address + at;
    op->key = ready->key[rail];
    op->immediate = record_data(ready->token, record_immediate(head->id, c));
    op->number = c;
    if (m->via)
        m->via[c] = (uint8_t)rail;
    m->left++;
    tern_wire_ofi_op_post(o, op);
}

static bool wanted(const struct record_ready *ready, uint32_t c)
{
    return ready->missing[c / 64] >> c % 64 & 1;
}

static void answer(struct ofi *o, struct ofi_msg *m, const struct record *head,
                   const struct record_ready *ready)
{
    if (head->bytes != m->bytes || head->call != m->call) {
        tern_wire_ofi_peer_say(o, m->m.rank, RECORD_WRONG, head->id, head->tag, (uint32_t)m->bytes,
                               m->call);
        tern_wire_ofi_msg_wrong(o, m, head->bytes, head->call);
        return;
    }
    if (ready->chunk > o->fragment) {
        tern_wire_ofi_msg_end(o, m, "it asks for longer writes than the provider has");
        return;
    }
    m->id = head->id;
    m->answered = true;
    m->chunks = record_chunks(m->bytes, ready->chunk);
    if (o->failover && !m->via && !(m->via = malloc(CHUNKS))) {
        tern_wire_ofi_msg_end(o, m, "out of memory");
        return;
    }
    m->left++; /* an error must not free it here */
    int rail = tern_wire_ofi_peer_rail(o, m->m.rank);
    for (uint32_t c = 0; c < m->chunks && m->m.state == TERN_WIRE_PENDING; c++) {
        write_chunk(o, m, head, ready, c, rail);
        if (o->up > 1)
            rail = tern_wire_ofi_peer_rail(o, m->m.rank);
    }
    tern_wire_ofi_msg_settle(o, m);
}

/* The send that a peer's record is about; NULL when there is none (any more). */
static struct ofi_msg *send_of(struct ofi *o, const struct record *h)
{
    struct node *n = tern_wire_ofi_node_find(o, NODE_SEND, (int)h->sender, h->tag);

    return n ? OFI_OF(struct ofi_msg, node, n) : NULL;
}

/* The chunks that went by a lost rail. */
static void write_again(struct ofi *o, const struct record_view *v)
{
    struct ofi_msg *m = send_of(o, &v->head);

    if (!m || !m->answered || m->fin || m->id != v->head.id || m->bytes != v->head.bytes ||
        record_chunks(m->bytes, v->ready.chunk) != m->chunks)
        return;
    m->left++;
    for (uint32_t c = 0; c < m->chunks && m->m.state == TERN_WIRE_PENDING; c++)
        if (wanted(&v->ready, c) && o->rails[m->via[c]].down)
            write_chunk(o, m, &v->head, &v->ready, c, tern_wire_ofi_peer_rail(o, m->m.rank));
    tern_wire_ofi_msg_settle(o, m);
}

static void on_ready(struct ofi *o, const struct record_view *v)
{
    int rank = (int)v->head.sender;
    struct peer_link *p = &o->links[rank];

    if (!tern_wire_ofi_window_add(&p->ready_in, v->head.number)) {
        if (o->failover)
            write_again(o, v);
        return;
    }
    struct node *n = tern_wire_ofi_node_find(o, NODE_SEND, rank, v->head.tag);
    if (n && !OFI_OF(struct ofi_msg, node, n)->answered) {
        answer(o, OFI_OF(struct ofi_msg, node, n), &v->head, &v->ready);
        return;
    }
    struct early_ready *e = p->readies < REQUESTS ? tern_wire_ofi_kept_take(o, sizeof *e) : NULL;
    if (!e) {
        o->refused++;
        return;
    }
    e->head = v->head;
    e->ready = v->ready;
    p->readies++;
    tern_wire_ofi_node_put(o, &e->node, NODE_READY, rank, v->head.tag);
}

void tern_wire_ofi_rma_send(struct ofi *o, struct ofi_msg *m, uint64_t tag)
{
    struct node *n = tern_wire_ofi_node_find(o, NODE_READY, m->m.rank, tag);
    bool is_short = m->bytes <= o->eager_max;

    m->node.tag = tag;
    wait_for_end(o, m);
    if (!n && is_short && send_eager(o, m, false))
        return;
    tern_wire_ofi_node_put(o, &m->node, NODE_SEND, m->m.rank, tag);
    if (n) {
        struct early_ready *e = OFI_OF(struct early_ready, node, n);
        tern_wire_ofi_node_remove(o, n);
        o->links[m->m.rank].readies--;
        answer(o, m, &e->head, &e->ready);
        tern_wire_ofi_kept_give(o, e);
    } else if (is_short) {
        stall(o, m);
    }
}

/* ---------------------------------------------------------------- other records */

static void on_ask(struct ofi *o, const struct record *h)
{
    struct ofi_msg *m = send_of(o, h);

    if (!m)
        return;
    if (h->bytes != m->bytes || h->call != m->call) {
        tern_wire_ofi_peer_say(o, (int)h->sender, RECORD_WRONG, 0, h->tag, (uint32_t)m->bytes,
                               m->call);
        tern_wire_ofi_msg_wrong(o, m, h->bytes, h->call);
    } else if (m->stalled) {
        send_eager(o, m, true);
    }
}

static void on_query(struct ofi *o, const struct record *h)
{
    const struct ofi_msg *m = o->requests[h->id >> 10].m;

    if (!m || m->id != h->id)
        tern_wire_ofi_peer_say(o, (int)h->sender, RECORD_FIN, h->id, h->tag, 0, 0);
}

static void on_fin(struct ofi *o, const struct record *h)
{
    struct ofi_msg *m = send_of(o, h);

    if (!m || !m->answered || m->id != h->id)
        return;
    m->fin = true;
    if (!m->left) /* else its memory is still written from, as far as the provider says */
        tern_wire_ofi_msg_end(o, m, NULL);
}

void tern_wire_ofi_rma_record(struct ofi *o, const struct record_view *v)
{
    const struct record *h = &v->head;
    struct node *n;

    switch ((enum record_kind)h->kind) {
    case RECORD_EAGER:
        on_eager(o, v);
        break;
    case RECORD_READY:
        on_ready(o, v);
        break;
    case RECORD_ASK:
        on_ask(o, h);
        break;
    case RECORD_QUERY:
        on_query(o, h);
        break;
    case RECORD_FIN:
        on_fin(o, h);
        break;
    case RECORD_WRONG:
        n = tern_wire_ofi_node_find(o, NODE_RECV, (int)h->sender, h->tag);
        if (n)
            tern_wire_ofi_msg_wrong(o, OFI_OF(struct ofi_msg, node, n), h->bytes, h->call);
        break;
    default:
        break;
    }
}

/* ---------------------------------------------------------------- time passes */

void tern_wire_ofi_rma_retry(struct ofi *o)
{
    struct ofi_msg *next;

    if (!o->stalled || !o->n_stalled)
        return;
    o->stalled = false;
    for (struct ofi_msg *m = o->first; m && o->n_stalled; m = next) {
        unsigned ends = o->ends;
        next = m->next;
        if (!m->stalled)
            continue;
        if (m->receives)
            ask_for(o, m);
        else
            send_eager(o, m, false);
        if (o->ends != ends) { /* the list has changed */
            o->stalled = true;
            return;
        }
    }
}

void tern_wire_ofi_rma_tick(struct ofi *o, int64_t now)
{
    for (struct ofi_msg *m = o->first; m; m = m->next) {
        unsigned ends = o->ends;
        if (!m->since_ns)
            m->since_ns = m->asked_ns = now;
        if (!m->receives || m->requested || now - m->asked_ns < m->period_ns)
            continue;
        m->asked_ns = now;
        m->period_ns = m->period_ns < 500 * MS ? 2 * m->period_ns : m->period_ns;
        tern_wire_ofi_peer_say(o, m->m.rank, RECORD_ASK, 0, m->node.tag, (uint32_t)m->bytes,
                               m->call);
        if (o->ends != ends)
            return;
    }
    tern_wire_ofi_peer_tick(o, now);
}

void tern_wire_ofi_rma_again(struct ofi *o, int rank)
{
    struct peer_link *p = &o->links[rank];
    struct op_list again = p->retained;

    memset(&p->retained, 0, sizeof p->retained);
    for (struct op *op = again.first, *next; op; op = next) {
        next = op->next;
        op->next = op->prev = NULL;
        op->rail = (uint8_t)tern_wire_ofi_peer_rail(o, rank);
        tern_wire_ofi_op_post(o, op);
    }
    for (struct ofi_msg *m = o->first; m; m = m->next) {
        unsigned ends = o->ends;
        if (m->m.rank != rank)
            continue;
        if (m->receives && m->ready_sent)
            ask_for(o, m);
        else if (!m->receives && m->answered)
            tern_wire_ofi_peer_say(o, rank, RECORD_QUERY, m->id, m->node.tag, 0, 0);
        if (o->ends != ends)
            return;
    }
}
