/* Operations posted to libfabric: taken, queued, completed, given back. */
#include "core/wire/ofi/state.h"

#include "core/base/clock.h"

#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <stdlib.h>
#include <string.h>

enum {
    READ = 16, /* completions read at once */
    MSG_BLOCK = 256,
    MSG_MAX = 65536, /* messages on their way: 2 a peer for thousands of peers */
    SMALL_ROOM = 128,
    SMALL_BLOCK = 256,
    SMALL_BLOCKS = 1024, /* an operation for each chunk of each message, and some */
    BIG_BLOCK = 32,
    BIG_BLOCKS = 64, /* 17 MB (of a stream 134): more short messages wait for these to come back */
    REFUSALS = 4,    /* of a queue in one look: the others would be refused, too */
    TICK_POLLS = 32,
    TICK_NS = 10000000,
    IMPATIENT_NS =
        1000000000, /* after that, the owner of a queued operation is asked whether to go on */
};

void tern_wire_ofi_list_add(struct op_list *l, struct op *op)
{
    op->next = NULL;
    op->prev = l->last;
    if (l->last)
        l->last->next = op;
    else
        l->first = op;
    l->last = op;
}

void tern_wire_ofi_list_remove(struct op_list *l, struct op *op)
{
    if (op->prev)
        op->prev->next = op->next;
    else
        l->first = op->next;
    if (op->next)
        op->next->prev = op->prev;
    else
        l->last = op->prev;
    op->next = op->prev = NULL;
}

/* ---------------------------------------------------------------- operations */

static void *grown(void *list, size_t n, size_t size, struct tern_err *err)
{
    void *more = realloc(list, (n + 1) * size);

    if (!more)
        tern_err_set(err, TERN_FAILED, "out of memory for messages");
    return more;
}

static int more_ops(struct ofi *o, struct op_pool *p, struct tern_err *err)
{
    struct op **blocks;
    struct reg **regs;
    uint8_t **data;

    if (!(blocks = grown(p->blocks, p->n_blocks, sizeof *blocks, err)))
        return -1;
    p->blocks = blocks;
    if (!(regs = grown(p->regs, p->n_blocks, sizeof *regs, err)))
        return -1;
    p->regs = regs;
    if (!(data = grown(p->data, p->n_blocks, sizeof *data, err)))
        return -1;
    p->data = data;
    struct op *block = tern_alloc(p->block, sizeof *block, "messages", err);
    uint8_t *room = tern_alloc(p->block, p->room, "messages", err);
    struct reg *reg =
        block && room ? tern_wire_ofi_register(o, room, p->block * p->room, false, err) : NULL;
    if (!reg) {
        free(block);
        free(room);
        return -1;
    }
    p->blocks[p->n_blocks] = block;
    p->data[p->n_blocks] = room;
    p->regs[p->n_blocks++] = reg;
    for (size_t i = 0; i < p->block; i++) {
        block[i].home = reg;
        block[i].data = room + i * p->room;
        block[i].room = p->room;
        block[i].next = p->free;
        p->free = &block[i];
    }
    return 0;
}

static void set_up(struct op_pool *p, size_t room, size_t block, size_t max)
{
    p->room = room;
    p->block = block;
    p->max_blocks = max;
}

struct op *tern_wire_ofi_op_take(struct ofi *o, size_t room, struct tern_err *err)
{
    struct op_pool *p = room <= SMALL_ROOM ? &o->small : &o->big;

    if (!p->room && p == &o->small)
        set_up(p, SMALL_ROOM, SMALL_BLOCK, SMALL_BLOCKS);
    else if (!p->room)
        set_up(p, (ofi_record_max(o) + 63) & ~(size_t)63, BIG_BLOCK, BIG_BLOCKS);
    if (!p->free && p->n_blocks >= p->max_blocks) {
        tern_err_set(err, TERN_FAILED, "too many messages on their way at once");
        return NULL;
    }
    if (!p->free && more_ops(o, p, err) < 0)
        return NULL;
    struct op *op = p->free;
    p->free = op->next;
    struct op clean = {.home = op->home, .data = op->data, .room = op->room};
    *op = clean;
    return op;
}

void tern_wire_ofi_op_give(struct ofi *o, struct op *op)
{
    struct op_pool *p = op->room <= SMALL_ROOM ? &o->small : &o->big;

    op->m = NULL;
    op->next = p->free;
    p->free = op;
    o->stalled = true;
}

static void free_pool(struct op_pool *p)
{
    for (size_t b = 0; b < p->n_blocks; b++) {
        tern_wire_ofi_unregister(p->regs[b]);
        free(p->data[b]);
        free(p->blocks[b]);
    }
    free(p->blocks);
    free(p->regs);
    free(p->data);
}

void tern_wire_ofi_op_free_all(struct ofi *o)
{
    free_pool(&o->small);
    free_pool(&o->big);
    for (size_t b = 0; b < o->n_blocks; b++) {
        for (int i = 0; i < MSG_BLOCK; i++) {
            if (o->blocks[b][i].own_reg)
                tern_wire_ofi_unregister(o->blocks[b][i].reg);
            free(o->blocks[b][i].via);
        }
        free(o->blocks[b]);
    }
    free(o->blocks);
}

static ssize_t post_record(const struct rail *l, struct op *op)
{
    void *desc = ofi_desc(op->home, op->rail);

    if (op->bytes > l->inject && !op->buf)
        return fi_send(l->ep, op->data, op->bytes, desc, l->peers[op->rank], &op->context);
    size_t head = op->buf ? sizeof(struct record) : op->bytes;
    struct iovec iov[2] = {{op->data, head}, {op->buf, op->bytes - head}};
    void *both[2] = {desc, NULL};
    struct fi_msg msg = {.msg_iov = iov,
                         .desc = both,
                         .iov_count = op->buf ? 2 : 1,
                         .addr = l->peers[op->rank],
                         .context = &op->context};
    /* Not fi_inject: its end is not reported, and a rank might leave before the message has. */
    return fi_sendmsg(l->ep, &msg, FI_COMPLETION | (op->buf ? 0 : FI_INJECT));
}

static ssize_t post_now(const struct ofi *o, struct op *op)
{
    const struct rail *l = &o->rails[op->rail];

    switch ((enum op_kind)op->kind) {
    case OP_RECORD:
        return post_record(l, op);
    case OP_WRITE:
        return fi_writedata(l->ep, op->buf, op->bytes, op->desc, op->immediate, l->peers[op->rank],
                            op->address, op->key, &op->context);
    case OP_TSEND:
        return fi_tsenddata(l->ep, op->buf, op->bytes, op->desc, op->immediate, l->peers[op->rank],
                            op->tag, &op->context);
    case OP_TRECV: /* `key` is what the tag may differ in */
        return fi_trecv(l->ep, op->buf, op->bytes, op->desc, FI_ADDR_UNSPEC, op->tag, op->key,
                        &op->context);
    case OP_SLOT:
        break;
    }
    if (o->mode == OFI_TAGGED)
        return fi_trecv(l->ep, op->data, op->room, ofi_desc(op->home, op->rail), FI_ADDR_UNSPEC,
                        op->tag, op->key, &op->context);
    return fi_recv(l->ep, op->data, op->room, ofi_desc(op->home, op->rail), FI_ADDR_UNSPEC,
                   &op->context);
}

/* What an operation led to.  `op` may be posted again or given back by this. */
static void done(struct ofi *o, struct op *op, int code, size_t bytes, uint64_t data)
{
    if (o->mode == OFI_TAGGED)
        tern_wire_ofi_tagged_done(o, op, code, bytes, data);
    else
        tern_wire_ofi_rma_done(o, op, code, bytes);
}

/* A bad provider may report a completion twice: only those of posted operations count. */
static void completed(struct ofi *o, struct op *op, int code, size_t bytes, uint64_t data)
{
    if (!op->posted)
        return;
    op->posted = false;
    tern_wire_ofi_list_remove(&o->rails[op->rail].posted, op);
    done(o, op, code, bytes, data);
}

static bool try(struct ofi *o, struct op *op)
{
    struct rail *l = &o->rails[op->rail];

    op->posted = true;
    tern_wire_ofi_list_add(&l->posted, op);
    ssize_t rc = post_now(o, op);
    if (rc == -FI_EAGAIN) {
        o->eagain++;
        op->posted = false;
        tern_wire_ofi_list_remove(&l->posted, op);
        return false;
    }
    if (rc)
        completed(o, op, (int)-rc, 0, 0);
    return true;
}

static void enqueue(struct ofi *o, struct op *op)
{
    op->queued = true;
    tern_wire_ofi_list_add(&o->rails[op->rail].queue, op);
}

void tern_wire_ofi_op_later(struct ofi *o, struct op *op)
{
    op->queued_ns = 0;
    enqueue(o, op);
}

void tern_wire_ofi_op_post(struct ofi *o, struct op *op)
{
    if (op->kind == OP_RECORD)
        tern_wire_ofi_record_seal(o->secrets[op->rank], op->data, op->buf,
                                  op->bytes - sizeof(struct record));
    if (o->rails[op->rail].down) {
        done(o, op, FI_EHOSTDOWN, 0, 0);
    } else if (!try(o, op)) {
        tern_wire_ofi_op_later(o, op);
    }
}

/* In turn, since one may wait for a connection that never comes up and the next need not.  What is
 * queued meanwhile, such as a receive that was refused for good, has its turn at the next look. */
static void retry(struct ofi *o, struct rail *l)
{
    const struct op *last = l->queue.last;
    struct op *op = NULL;

    for (int refused = 0; op != last && l->queue.first && refused < REFUSALS;) {
        op = l->queue.first;
        tern_wire_ofi_list_remove(&l->queue, op);
        op->queued = false;
        if (try(o, op))
            continue;
        enqueue(o, op);
        refused++;
    }
}

/* Whether waiting for a place may take longer is the owner's to say: a dead peer's connection never
 * comes up. */
static void lose_patience(struct ofi *o, struct rail *l, int64_t now)
{
    struct op *next;

    for (struct op *op = l->queue.first; op; op = next) {
        next = op->next;
        if (!op->queued_ns)
            op->queued_ns = now;
        if (op->kind == OP_SLOT || now - op->queued_ns < IMPATIENT_NS ||
            o->owner.patient(o->owner.arg, op->queued_ns))
            continue;
        tern_wire_ofi_list_remove(&l->queue, op);
        op->queued = false;
        done(o, op, FI_EAGAIN, 0, 0);
        return; /* which may have changed the queue */
    }
}

void tern_wire_ofi_op_flush(struct ofi *o, int rail, int code)
{
    struct rail *l = &o->rails[rail];
    struct op_list lists[2] = {l->posted, l->queue};

    memset(&l->posted, 0, sizeof l->posted);
    memset(&l->queue, 0, sizeof l->queue);
    for (int i = 0; i < 2; i++) {
        for (struct op *op = lists[i].first, *next; op; op = next) {
            next = op->next;
            op->next = op->prev = NULL;
            op->posted = op->queued = false;
            done(o, op, code, 0, 0);
        }
    }
}

/* ---------------------------------------------------------------- completions */

static struct op *of_context(void *context)
{
    return context ? OFI_OF(struct op, context, context) : NULL;
}

static void read_rma(struct ofi *o, int rail)
{
    struct rail *l = &o->rails[rail];
    struct fi_cq_data_entry e[READ];
    ssize_t n = READ;

    while (n == READ && !l->down) {
        n = fi_cq_read(l->cq, e, READ);
        for (ssize_t i = 0; i < n; i++) {
            if (e[i].flags & FI_REMOTE_WRITE)
                tern_wire_ofi_rma_written(o, rail, e[i].data);
            else if (e[i].op_context)
                completed(o, of_context(e[i].op_context), 0, e[i].len, 0);
            if (l->down)
                return;
        }
    }
    if (n == -FI_EAVAIL) {
        struct fi_cq_err_entry bad = {0};
        if (fi_cq_readerr(l->cq, &bad, 0) > 0 && bad.op_context)
            completed(o, of_context(bad.op_context), bad.err ? bad.err : FI_EIO, 0, 0);
    }
}

static void read_tagged(struct ofi *o, int rail)
{
    struct rail *l = &o->rails[rail];
    struct fi_cq_tagged_entry e[READ];
    ssize_t n = READ;

    while (n == READ) {
        n = fi_cq_read(l->cq, e, READ);
        for (ssize_t i = 0; i < n; i++)
            if (e[i].op_context)
                completed(o, of_context(e[i].op_context), 0, e[i].len, e[i].data);
    }
    if (n == -FI_EAVAIL) {
        struct fi_cq_err_entry bad = {0};
        if (fi_cq_readerr(l->cq, &bad, 0) > 0 && bad.op_context)
            completed(o, of_context(bad.op_context), bad.err ? bad.err : FI_EIO, 0, 0);
    }
}

void tern_wire_ofi_op_progress(struct ofi *o)
{
    for (int i = 0; i < o->n_rails; i++) {
        if (o->rails[i].down)
            continue;
        if (o->mode == OFI_RMA)
            read_rma(o, i);
        else
            read_tagged(o, i);
        if (o->rails[i].queue.first)
            retry(o, &o->rails[i]);
    }
    if (o->mode == OFI_RMA)
        tern_wire_ofi_rma_retry(o);
    if (++o->polls % TICK_POLLS)
        return;
    int64_t now = tern_clock_boot_ns();
    if (now - o->tick_ns < TICK_NS)
        return;
    o->tick_ns = now;
    for (int i = 0; i < o->n_rails; i++)
        lose_patience(o, &o->rails[i], now);
    if (o->mode == OFI_RMA)
        tern_wire_ofi_rma_tick(o, now);
}

/* ---------------------------------------------------------------- messages */

struct ofi_msg *tern_wire_ofi_msg_take(struct ofi *o, int rank, bool receives, struct tern_err *err)
{
    if (!o->free) {
        struct ofi_msg **list = NULL, *block = NULL;
        if (o->n_blocks * MSG_BLOCK >= MSG_MAX) {
            tern_err_set(err, TERN_FAILED, "more than %d messages on their way at once", MSG_MAX);
            return NULL;
        }
        list = realloc(o->blocks, (o->n_blocks + 1) * sizeof *list);
        if (list)
            o->blocks = list;
        block = list ? tern_alloc(MSG_BLOCK, sizeof *block, "messages", err) : NULL;
        if (!block) {
            tern_err_set(err, TERN_FAILED, "out of memory for messages");
            return NULL;
        }
        o->blocks[o->n_blocks++] = block;
        for (int i = 0; i < MSG_BLOCK; i++) {
            block[i].next = o->free;
            o->free = &block[i];
        }
    }
    struct ofi_msg *m = o->free;
    o->free = m->next;
    memset(m, 0, sizeof *m);
    m->m.rank = rank;
    m->receives = receives;
    return m;
}

static void give_msg(struct ofi *o, struct ofi_msg *m)
{
    if (m->own_reg)
        tern_wire_ofi_unregister(m->reg);
    free(m->via);
    m->via = NULL;
    m->own_reg = false;
    m->reg = NULL;
    m->next = o->free;
    o->free = m;
}

void tern_wire_ofi_msg_settle(struct ofi *o, struct ofi_msg *m)
{
    m->left--;
    if (!m->left && m->dropped && m->m.state != TERN_WIRE_PENDING)
        give_msg(o, m);
}

void tern_wire_ofi_msg_end(struct ofi *o, struct ofi_msg *m, const char *error)
{
    if (m->m.state != TERN_WIRE_PENDING)
        return;
    m->m.error = error;
    m->m.state = error ? TERN_WIRE_FAILED : TERN_WIRE_DONE;
    if (o->mode == OFI_RMA)
        tern_wire_ofi_rma_over(o, m);
    if (!m->left && m->dropped)
        give_msg(o, m);
}

void tern_wire_ofi_msg_wrong(struct ofi *o, struct ofi_msg *m, size_t their_bytes,
                             uint32_t their_call)
{
    if (m->m.state != TERN_WIRE_PENDING)
        return;
    m->m.their_call = their_call;
    m->m.wrong_call = their_call != m->call;
    m->m.wrong_size = their_bytes != m->bytes;
    tern_wire_ofi_msg_end(o, m,
                          m->m.wrong_call ? "it is in another call" : "it has another amount");
}

void tern_wire_ofi_msg_release(struct tern_wire_transport *t, struct tern_wire_message *message)
{
    struct ofi_msg *m = (struct ofi_msg *)message;

    if (!m)
        return;
    m->dropped = true;
    if (!m->left && m->m.state != TERN_WIRE_PENDING)
        give_msg(ofi_of(t), m);
}

/* ---------------------------------------------------------------- matching */

static struct node **bucket_of(struct ofi *o, int rank, uint64_t tag)
{
    uint64_t h = (tag ^ (uint64_t)rank << 32) * 0x9e3779b97f4a7c15ull;

    return &o->buckets[h >> 52];
}
_Static_assert(BUCKETS == 1 << 12, "twelve bits of the hash");

void tern_wire_ofi_node_put(struct ofi *o, struct node *n, enum node_kind kind, int rank,
                            uint64_t tag)
{
    struct node **at = bucket_of(o, rank, tag);

    n->kind = (uint8_t)kind;
    n->rank = rank;
    n->tag = tag;
    n->in = true;
    while (*at) /* the same tag twice: first come, first served */
        at = &(*at)->next;
    n->next = NULL;
    *at = n;
}

struct node *tern_wire_ofi_node_find(struct ofi *o, enum node_kind kind, int rank, uint64_t tag)
{
    struct node *n = *bucket_of(o, rank, tag);

    while (n && !(n->tag == tag && n->rank == rank && n->kind == kind))
        n = n->next;
    return n;
}

void tern_wire_ofi_node_remove(struct ofi *o, struct node *n)
{
    struct node **at = bucket_of(o, n->rank, n->tag);

    while (*at != n)
        at = &(*at)->next;
    *at = n->next;
    n->in = false;
}
