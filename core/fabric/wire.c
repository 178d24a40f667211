#include "core/fabric/state.h"

#include <stdio.h>

/* Pieces of a message: small enough that several are on their way at once. */
enum { CHUNK = 1 << 20 };

void tern_fabric_wire_begin(struct tern_comm *c)
{
    c->wire_seq++;
    c->n_reqs = 0;
}

static int post(struct tern_comm *c, bool send, int member, void *buf, size_t bytes,
                struct tern_err *err)
{
    struct tern_fabric *f = c->f;
    size_t most =
        tern_fabric_ofi_max_message(f->ofi) < CHUNK ? tern_fabric_ofi_max_message(f->ofi) : CHUNK;
    int at = tern_fabric_shm_buffer_find(&f->own, buf, bytes);
    void *mr = at >= 0 ? f->own.buffers[at].mr : NULL;
    int sender = send ? f->rank : c->world[member];
    uint32_t chunk = 0;

    /* An empty message is sent too: it synchronises. */
    for (size_t from = 0; from < bytes || chunk == 0; from += most, chunk++) {
        size_t len = bytes - from < most ? bytes - from : most;
        uint64_t tag = tern_fabric_ofi_tag(c->id, c->wire_seq, chunk, sender);
        if (c->n_reqs == c->max_reqs || chunk > 0xffff)
            return tern_err_set(err, TERN_FAILED, "bug: a stage of %zu messages", c->n_reqs);
        struct ofi_req *r = send ? tern_fabric_ofi_send(f->ofi, c->world[member],
                                                        (char *)buf + from, len, tag, mr, err)
                                 : tern_fabric_ofi_recv(f->ofi, c->world[member],
                                                        (char *)buf + from, len, tag, mr, err);
        if (!r)
            return -1;
        c->reqs[c->n_reqs++] = r;
    }
    return 0;
}

int tern_fabric_wire_send(struct tern_comm *c, int to, const void *buf, size_t bytes,
                          struct tern_err *err)
{
    return post(c, true, to, (void *)(uintptr_t)buf, bytes, err);
}

int tern_fabric_wire_recv(struct tern_comm *c, int from, void *buf, size_t bytes,
                          struct tern_err *err)
{
    return post(c, false, from, buf, bytes, err);
}

static int member_of(const struct tern_comm *c, int world)
{
    int m = 0;

    while (c->world[m] != world)
        m++;
    return m;
}

int tern_fabric_wire_end(struct tern_comm *c, struct tern_err *err)
{
    struct waiter w;
    int rc = 0;

    tern_fabric_wait_begin(&w, c);
    for (size_t i = 0; i < c->n_reqs && rc == 0; i++) {
        struct ofi_req *r = c->reqs[i];
        tern_fabric_ofi_progress(c->f->ofi);
        while (rc == 0 && tern_fabric_ofi_req_state(r) == OFI_PENDING)
            rc = tern_fabric_wait_idle(&w, member_of(c, tern_fabric_ofi_req_rank(r)), err);
        if (rc == 0 && tern_fabric_ofi_req_state(r) == OFI_FAILED) {
            char what[160];
            snprintf(what, sizeof what,
                     tern_fabric_ofi_req_wrong_size(r)
                         ? "sent another amount than expected (do all ranks call the same "
                           "operation with the same count?)"
                         : "cannot be reached (%s)",
                     tern_fabric_ofi_req_error(r));
            rc = tern_fabric_wait_blame(c, tern_fabric_ofi_req_rank(r), what, err);
        }
    }
    for (size_t i = 0; i < c->n_reqs; i++)
        tern_fabric_ofi_release(c->f->ofi, c->reqs[i]);
    c->n_reqs = 0;
    return rc;
}
