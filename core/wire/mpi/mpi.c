/* The transport over MPI.
 *
 * MPI's tags are too short for ours, so a message is a packet with a header, under one tag of MPI.
 * It is received from any rank into slots that are always posted; matching is done here.  Up to
 * INLINE bytes travel in the packet.  A longer message's payload is sent at the same time under a
 * short tag that the header has.  It is received right into its buffer, once that is known.  Until
 * then MPI keeps it with the sender. */
#include "core/wire/mpi/mpi.h"

#include "core/base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    INLINE = 8 << 10,
    SLOTS = 16,     /* packets that may arrive between two looks without MPI's help */
    READ = 16,      /* things over that are taken at once */
    PACKET_TAG = 0, /* payloads have the others */
    BLOCK = 32,
    BLOCKS = 2048, /* of packets (half a gigabyte), and of requests */
};

enum packet_kind { PACKET_INLINE = 1, PACKET_LONG, PACKET_CONTROL };

struct header {
    uint32_t kind;
    int32_t sender; /* rank in the world */
    uint64_t tag, bytes;
    uint32_t call;
    int32_t payload_tag;
};

enum post_kind { POST_SLOT, POST_PACKET, POST_PAYLOAD };

struct mpi_req {
    struct tern_wire_message m;
    enum post_kind post;  /* POST_PAYLOAD; MPI gives the address of this back, and of a packet's */
    struct mpi_req *next; /* of those posted by a peer, or free */
    void *buf;
    size_t due;
    uint64_t tag;
    uint32_t call;
    bool receives, dropped;
};

struct packet {
    enum post_kind post;
    int to;              /* world rank, when it is sent */
    struct mpi_req *req; /* waits for it to be sent; or NULL */
    struct packet *next; /* of those that came too early, or free */
    struct header h;
    char data[INLINE]; /* right behind the header */
};
_Static_assert(offsetof(struct packet, data) == offsetof(struct packet, h) + sizeof(struct header),
               "a packet is sent as one piece");

struct peer_state {
    int rank;               /* MPI's */
    int payload_tag;        /* the last one */
    char *dead;             /* why nothing reaches it any more */
    struct mpi_req *posted; /* receives that nothing has come for */
    struct packet *early, **early_end;
};

struct mpi_wire {
    struct tern_wire_transport t;
    const struct tern_mpi *mpi;
    int rank, size, longest_tag;
    struct peer_state *peers; /* [size] */
    struct mpi_req *free_reqs;
    struct packet *free_packets;
    void *blocks[2][BLOCKS]; /* of requests, of packets */
    int n_blocks[2];
    int slots; /* posted now */
    bool broken;
    struct tern_wire_owner owner;
    char about[120];
};

static struct mpi_wire *own(const struct tern_wire_transport *t)
{
    return (struct mpi_wire *)(uintptr_t)t;
}

/* ---------------------------------------------------------------- memory */

static void *new_block(struct mpi_wire *w, int of, size_t size, struct tern_err *err)
{
    if (w->n_blocks[of] == BLOCKS) {
        tern_err_set(err, TERN_FAILED, "more than %d messages on their way at once",
                     BLOCK * BLOCKS);
        return NULL;
    }
    void *p = tern_alloc(BLOCK, size, "messages", err);
    if (p)
        w->blocks[of][w->n_blocks[of]++] = p;
    return p;
}

static struct mpi_req *take_req(struct mpi_wire *w, struct tern_err *err)
{
    if (!w->free_reqs) {
        struct mpi_req *block = new_block(w, 0, sizeof *block, err);
        for (int i = 0; block && i < BLOCK; i++) {
            block[i].next = w->free_reqs;
            w->free_reqs = &block[i];
        }
    }
    struct mpi_req *r = w->free_reqs;
    if (!r)
        return NULL;
    w->free_reqs = r->next;
    memset(r, 0, sizeof *r);
    r->post = POST_PAYLOAD;
    return r;
}

static void give_req(struct mpi_wire *w, struct mpi_req *r)
{
    r->next = w->free_reqs;
    w->free_reqs = r;
}

static struct packet *take_packet(struct mpi_wire *w, struct tern_err *err)
{
    if (!w->free_packets) {
        struct packet *block = new_block(w, 1, sizeof *block, err);
        for (int i = 0; block && i < BLOCK; i++) {
            block[i].next = w->free_packets;
            w->free_packets = &block[i];
        }
    }
    struct packet *p = w->free_packets;
    if (!p)
        return NULL;
    w->free_packets = p->next;
    p->req = NULL;
    p->next = NULL;
    return p;
}

static void give_packet(struct mpi_wire *w, struct packet *p)
{
    p->next = w->free_packets;
    w->free_packets = p;
}

/* ---------------------------------------------------------------- messages that are over */

static void end(struct mpi_wire *w, struct mpi_req *r, const char *error)
{
    r->m.state = error ? TERN_WIRE_FAILED : TERN_WIRE_DONE;
    r->m.error = error;
    if (r->dropped)
        give_req(w, r);
}

/* MPI has given up on a peer: so does everything that waits for it. */
static const char *give_up(struct mpi_wire *w, int rank, int code)
{
    struct peer_state *p = &w->peers[rank];
    struct mpi_req *r = p->posted, *next;

    if (!p->dead)
        p->dead = tern_strf("%s: %s", tern_wire_mpi_library(), w->mpi->text(code));
    p->posted = NULL;
    for (; r; r = next) {
        next = r->next;
        end(w, r, p->dead);
    }
    return p->dead;
}

/* A packet came for `r`.  A payload is fetched only when both sides agree. */
static void deliver(struct mpi_wire *w, struct mpi_req *r, const struct packet *p)
{
    r->m.their_call = p->h.call;
    r->m.wrong_call = p->h.call != r->call;
    r->m.wrong_size = p->h.bytes != r->due;
    if (r->m.wrong_call || r->m.wrong_size) {
        end(w, r, "it is in another call");
    } else if (p->h.kind == PACKET_INLINE) {
        if (r->due)
            memcpy(r->buf, p->data, r->due);
        end(w, r, NULL);
    } else {
        int rc = w->mpi->recv(r->buf, r->due, w->peers[r->m.rank].rank, p->h.payload_tag, &r->post);
        if (rc)
            end(w, r, give_up(w, r->m.rank, rc));
    }
}

/* ---------------------------------------------------------------- packets */

static void post_slots(struct mpi_wire *w)
{
    struct packet *p;

    while (w->slots < SLOTS && (p = take_packet(w, NULL))) {
        p->post = POST_SLOT;
        if (w->mpi->recv(&p->h, sizeof p->h + INLINE, TERN_MPI_ANY, PACKET_TAG, &p->post)) {
            give_packet(w, p);
            return;
        }
        w->slots++;
    }
}

static bool sound(const struct mpi_wire *w, const struct packet *p, size_t bytes)
{
    const struct header *h = &p->h;

    if (bytes < sizeof *h || h->sender < 0 || h->sender >= w->size || h->sender == w->rank)
        return false;
    if (h->kind == PACKET_LONG)
        return bytes == sizeof *h && h->payload_tag > PACKET_TAG &&
               h->payload_tag <= w->longest_tag;
    return h->bytes <= INLINE && bytes == sizeof *h + h->bytes &&
           (h->kind == PACKET_INLINE ||
            (h->kind == PACKET_CONTROL && h->bytes == sizeof(struct tern_wire_control)));
}

static void hear(struct mpi_wire *w, const struct packet *p)
{
    struct tern_wire_control m;

    memcpy(&m, p->data, sizeof m);
    m.text[sizeof m.text - 1] = '\0';
    if (m.sender != p->h.sender || m.rank < 0 || m.rank >= w->size)
        return;
    w->broken |= m.kind == TERN_WIRE_BLAME;
    w->owner.control(w->owner.arg, &m);
}

/* Takes the packet. */
static void arrived(struct mpi_wire *w, struct packet *p, size_t bytes)
{
    if (!sound(w, p, bytes)) {
        give_packet(w, p);
        return;
    }
    if (p->h.kind == PACKET_CONTROL) {
        hear(w, p);
        give_packet(w, p);
        return;
    }
    struct peer_state *from = &w->peers[p->h.sender];
    for (struct mpi_req **at = &from->posted; *at; at = &(*at)->next) {
        struct mpi_req *r = *at;
        if (r->tag != p->h.tag)
            continue;
        *at = r->next;
        deliver(w, r, p);
        give_packet(w, p);
        return;
    }
    *from->early_end = p;
    from->early_end = &p->next;
}

static struct packet *take_early(struct peer_state *from, uint64_t tag)
{
    for (struct packet **at = &from->early; *at; at = &(*at)->next) {
        struct packet *p = *at;
        if (p->h.tag != tag)
            continue;
        *at = p->next;
        if (!p->next)
            from->early_end = at;
        p->next = NULL;
        return p;
    }
    return NULL;
}

static int send_packet(struct mpi_wire *w, struct packet *p, int to, const struct header *h,
                       const void *data, size_t bytes)
{
    p->post = POST_PACKET;
    p->to = to;
    p->h = *h;
    p->h.sender = w->rank;
    if (bytes)
        memcpy(p->data, data, bytes);
    int rc = w->mpi->send(&p->h, sizeof p->h + bytes, w->peers[to].rank, PACKET_TAG, &p->post);
    if (rc)
        give_packet(w, p);
    return rc;
}

static void finished(struct mpi_wire *w, const struct tern_mpi_done *d)
{
    enum post_kind kind = *(enum post_kind *)d->context;

    if (kind == POST_PAYLOAD) {
        struct mpi_req *r = (struct mpi_req *)((char *)d->context - offsetof(struct mpi_req, post));
        end(w, r, d->code ? give_up(w, r->m.rank, d->code) : NULL);
        return;
    }
    struct packet *p = (struct packet *)((char *)d->context - offsetof(struct packet, post));
    if (kind == POST_SLOT) {
        w->slots--;
        if (d->code)
            give_packet(w, p);
        else
            arrived(w, p, d->bytes);
        return;
    }
    const char *error = d->code ? give_up(w, p->to, d->code) : NULL;
    if (p->req)
        end(w, p->req, error);
    give_packet(w, p);
}

static void progress(struct tern_wire_transport *t)
{
    struct mpi_wire *w = own(t);
    struct tern_mpi_done done[READ];
    int n;

    do {
        n = w->mpi->poll(done, READ);
        for (int i = 0; i < n; i++)
            finished(w, &done[i]);
        if (w->slots < SLOTS)
            post_slots(w);
    } while (n == READ);
}

/* ---------------------------------------------------------------- sending and receiving */

static struct tern_wire_message *failed(struct mpi_req *r, const char *error)
{
    r->m.state = TERN_WIRE_FAILED;
    r->m.error = error;
    return &r->m;
}

static struct tern_wire_message *post_send(struct tern_wire_transport *t,
                                           const struct tern_wire_transfer *x, struct tern_err *err)
{
    struct mpi_wire *w = own(t);
    struct peer_state *peer = &w->peers[x->peer];
    struct mpi_req *r = take_req(w, err);
    struct packet *p = r && !peer->dead ? take_packet(w, err) : NULL;
    struct header h = {.tag = x->tag, .bytes = x->bytes, .call = x->call};
    bool is_long = x->bytes > INLINE;

    if (r)
        r->m.rank = x->peer;
    if (r && peer->dead)
        return failed(r, peer->dead);
    if (!p) {
        if (r)
            give_req(w, r);
        return NULL;
    }
    h.kind = is_long ? PACKET_LONG : PACKET_INLINE;
    if (is_long) /* none twice at a time: a rank cannot be so many messages behind */
        h.payload_tag = peer->payload_tag = peer->payload_tag % w->longest_tag + 1;
    int rc = send_packet(w, p, x->peer, &h, x->buf, is_long ? 0 : x->bytes);
    if (rc == 0 && is_long)
        rc = w->mpi->send(x->buf, x->bytes, peer->rank, h.payload_tag, &r->post);
    if (rc)
        return failed(r, give_up(w, x->peer, rc));
    if (!is_long) /* what was copied is the caller's again */
        r->m.state = TERN_WIRE_DONE;
    return &r->m;
}

static struct tern_wire_message *post_recv(struct tern_wire_transport *t,
                                           const struct tern_wire_transfer *x, struct tern_err *err)
{
    struct mpi_wire *w = own(t);
    struct peer_state *peer = &w->peers[x->peer];
    struct mpi_req *r = take_req(w, err);

    if (!r)
        return NULL;
    r->m.rank = x->peer;
    r->receives = true;
    r->buf = x->buf;
    r->due = x->bytes;
    r->tag = x->tag;
    r->call = x->call;
    struct packet *p = take_early(peer, x->tag);
    if (p) {
        deliver(w, r, p);
        give_packet(w, p);
    } else if (peer->dead) {
        return failed(r, peer->dead);
    } else {
        r->next = peer->posted;
        peer->posted = r;
    }
    return &r->m;
}

static void release(struct tern_wire_transport *t, struct tern_wire_message *m)
{
    struct mpi_wire *w = own(t);

    if (!m)
        return;
    struct mpi_req *r = (struct mpi_req *)m;
    if (m->state != TERN_WIRE_PENDING) {
        give_req(w, r);
        return;
    }
    for (struct mpi_req **at = &w->peers[m->rank].posted; r->receives && *at; at = &(*at)->next) {
        if (*at == r) { /* MPI does not know of it yet */
            *at = r->next;
            give_req(w, r);
            return;
        }
    }
    r->dropped = true;
}

static struct tern_wire_message *tell(struct tern_wire_transport *t, int to,
                                      const struct tern_wire_control *m)
{
    struct mpi_wire *w = own(t);
    struct mpi_req *r = take_req(w, NULL);
    struct packet *p = r ? take_packet(w, NULL) : NULL;
    const struct header h = {.kind = PACKET_CONTROL, .bytes = sizeof *m};

    w->broken |= m->kind == TERN_WIRE_BLAME;
    if (!p) {
        if (r)
            give_req(w, r);
        return NULL;
    }
    r->m.rank = to;
    p->req = r;
    int rc = send_packet(w, p, to, &h, m, sizeof *m);
    return rc ? failed(r, give_up(w, to, rc)) : &r->m;
}

/* ---------------------------------------------------------------- open, close */

static void close_all(struct tern_wire_transport *t)
{
    struct mpi_wire *w = own(t);

    if (w->mpi) {
        w->mpi->forget();
        tern_wire_mpi_stop(w->broken);
    }
    for (int r = 0; w->peers && r < w->size; r++)
        free(w->peers[r].dead);
    for (int of = 0; of < 2; of++)
        for (int i = 0; i < w->n_blocks[of]; i++)
            free(w->blocks[of][i]);
    free(w->peers);
    free(w);
}

struct address { /* others' ranks in MPI need not be those of the fabric */
    int32_t rank, size;
};

static size_t address(const struct tern_wire_transport *t, uint8_t to[TERN_WIRE_ADDRESS])
{
    const struct mpi_wire *w = own(t);
    const struct address a = {w->mpi->rank(), w->mpi->size()};

    memset(to, 0, TERN_WIRE_ADDRESS);
    memcpy(to, &a, sizeof a);
    return sizeof a;
}

static int connect_all(struct tern_wire_transport *t, const uint8_t *addresses, size_t stride,
                       struct tern_err *err)
{
    struct mpi_wire *w = own(t);
    struct address a;

    for (int r = 0; r < w->size; r++) {
        memcpy(&a, addresses + (size_t)r * stride, sizeof a);
        if (a.size != w->size || a.rank < 0 || a.rank >= a.size)
            return tern_err_set(err, TERN_USAGE,
                                "rank %d is one of %d ranks to MPI, but this job has %d: all must "
                                "be started by one srun --mpi=pmix or one mpirun",
                                r, a.size, w->size);
        w->peers[r].rank = a.rank;
    }
    post_slots(w);
    return 0;
}

static int enroll(struct tern_wire_transport *t, void *p, size_t bytes, void **mr,
                  struct tern_err *err)
{
    (void)t;
    (void)p;
    (void)bytes;
    (void)err;
    *mr = NULL;
    return 0;
}

static void dismiss(struct tern_wire_transport *t, void *mr)
{
    (void)t;
    (void)mr;
}

static const char *about(const struct tern_wire_transport *t)
{
    return own(t)->about;
}

static void explain(const struct tern_wire_transport *t, struct tern_buf *to)
{
    const struct mpi_wire *w = own(t);

    tern_buf_printf(to,
                    "%s\nmessages up to %d bytes travel with their header; longer ones are "
                    "received in place\nthe longest tag is %d\n",
                    w->about, INLINE, w->longest_tag);
}

static const struct tern_wire_ops ops = {
    .close = close_all,
    .address = address,
    .connect = connect_all,
    .enroll = enroll,
    .dismiss = dismiss,
    .send = post_send,
    .recv = post_recv,
    .release = release,
    .tell = tell,
    .progress = progress,
    .about = about,
    .explain = explain,
};

struct tern_wire_transport *tern_wire_mpi_open(const struct tern_wire_options *with,
                                               struct tern_err *err)
{
    struct mpi_wire *w = tern_alloc(1, sizeof *w, "the transport over MPI", err);

    if (!w)
        return NULL;
    w->t.ops = &ops;
    w->rank = with->rank;
    w->size = with->size;
    w->owner = with->owner;
    w->peers = tern_alloc((size_t)w->size, sizeof *w->peers, "peers", err);
    w->mpi = w->peers ? tern_wire_mpi_start(0, err) : NULL;
    if (!w->mpi) {
        close_all(&w->t);
        return NULL;
    }
    for (int r = 0; r < w->size; r++)
        w->peers[r].early_end = &w->peers[r].early;
    w->longest_tag = w->mpi->longest_tag();
    snprintf(w->about, sizeof w->about, "MPI (%s)", tern_wire_mpi_library());
    return &w->t;
}
