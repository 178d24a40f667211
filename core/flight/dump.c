#include "core/flight/dump.h"

#include "core/base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TIME_MAX (1ll << 61) /* two of them can be added */

struct in {
    const char *at;
    size_t left;
};

static bool take(struct in *in, void *to, size_t n)
{
    if (n > in->left)
        return false;
    memcpy(to, in->at, n);
    in->at += n;
    in->left -= n;
    return true;
}

static bool good_head(const struct tern_flight_head *h)
{
    return h->size >= 1 && h->size <= DUMP_WORLD_MAX && h->rank >= 0 && h->rank < h->size &&
           h->written_by >= 0 && h->written_by < h->size && h->blamed >= -1 &&
           h->blamed < h->size && h->boot_ns >= 0 && h->boot_ns < TIME_MAX && h->wall_ns >= 0 &&
           h->wall_ns < TIME_MAX && h->n_names <= (uint32_t)h->size &&
           h->n_comms <= TERN_FLIGHT_COMMS && h->n_records <= TERN_FLIGHT_RING;
}

static bool take_names(struct in *in, struct dump *d, uint32_t n)
{
    struct tern_flight_name name;
    int at = 0;

    d->nodes = calloc((size_t)d->size, sizeof *d->nodes);
    for (uint32_t i = 0; d->nodes && i < n; i++) {
        if (!take(in, &name, sizeof name) || name.count < 1 || name.count > d->size - at)
            return false;
        name.node[sizeof name.node - 1] = '\0';
        tern_str_mask(name.node);
        for (int end = at + name.count; at < end; at++)
            memcpy(d->nodes[at], name.node, sizeof name.node);
    }
    return d->nodes && at == d->size;
}

static bool take_comm(struct in *in, struct dump *d, struct dump_comm *c)
{
    struct tern_flight_comm r;
    size_t fixed = offsetof(struct tern_flight_comm, runs);

    if (!take(in, &r, fixed) || !r.serial || r.size < 1 || r.size > d->size ||
        r.n_runs > TERN_FLIGHT_RUNS || !take(in, r.runs, r.n_runs * sizeof *r.runs))
        return false;
    *c = (struct dump_comm){.serial = r.serial,
                            .mark = r.mark,
                            .id = r.id,
                            .size = r.size,
                            .phase = r.phase,
                            .cut = r.cut != 0,
                            .ended = r.ended != 0};
    c->members = calloc((size_t)r.size, sizeof *c->members);
    for (uint32_t i = 0; c->members && i < r.n_runs; i++) {
        const struct tern_flight_run *run = &r.runs[i];
        if (run->count < 1 || run->count > r.size - c->n_members)
            return false;
        for (int64_t k = 0; k < run->count; k++) {
            int64_t rank = run->first + k * run->stride;
            if (rank < 0 || rank >= d->size)
                return false;
            c->members[c->n_members++] = (int)rank;
        }
    }
    return c->members && (c->cut || c->n_members == c->size);
}

/* The ring's places are filled while it is read, so a few may be odd: those are left out. */
static bool take_records(struct in *in, struct dump *d, uint32_t n, int64_t to_wall)
{
    struct tern_flight_record r;

    d->records = calloc(n ? n : 1, sizeof *d->records);
    for (uint32_t i = 0; d->records && i < n; i++) {
        if (!take(in, &r, sizeof r))
            return false;
        if (!r.seq || r.state < TERN_FLIGHT_QUEUED || r.state > TERN_FLIGHT_FAILED ||
            r.waits_for < -1 || r.waits_for >= d->size || r.begin_ns < 0 || r.begin_ns > TIME_MAX ||
            r.end_ns < 0 || r.end_ns > TIME_MAX)
            continue;
        d->records[d->n_records++] = (struct dump_record){
            .seq = r.seq,
            .op = r.op,
            .desc = r.desc,
            .wire_bytes = r.wire_bytes,
            .begin_ns = r.begin_ns + to_wall,
            .end_ns = r.end_ns ? r.end_ns + to_wall : 0,
            .comm = r.comm,
            .waits_for = r.waits_for,
            .state = (enum tern_flight_state)r.state,
        };
    }
    return d->records;
}

static int by_op(const void *a, const void *b)
{
    const struct dump_record *x = a, *y = b;

    if (x->comm != y->comm)
        return x->comm < y->comm ? -1 : 1;
    if (x->op != y->op)
        return x->op < y->op ? -1 : 1;
    return x->seq < y->seq ? -1 : x->seq > y->seq;
}

/* Each communicator its part of the records; one operation is there once. */
static void deal_records(struct dump *d)
{
    int n = 0;

    qsort(d->records, (size_t)d->n_records, sizeof *d->records, by_op);
    for (int i = 0; i < d->n_records; i++)
        if (!n || d->records[n - 1].comm != d->records[i].comm ||
            d->records[n - 1].op != d->records[i].op)
            d->records[n++] = d->records[i];
    d->n_records = n;
    for (int k = 0; k < d->n_comms; k++) {
        struct dump_comm *c = &d->comms[k];
        for (int i = 0; i < n; i++) {
            if (d->records[i].comm != c->serial)
                continue;
            if (!c->n_records++)
                c->records = &d->records[i];
        }
    }
}

static bool take_all(struct in *in, struct dump *d, struct tern_flight_head h)
{
    if (!good_head(&h))
        return false;
    d->rank = h.rank;
    d->size = h.size;
    d->pid = h.pid;
    d->written_by = h.written_by;
    d->blamed = h.blamed;
    d->wall_ns = h.wall_ns;
    h.why[sizeof h.why - 1] = '\0';
    tern_str_mask(h.why);
    memcpy(d->why, h.why, sizeof d->why);
    d->comms = calloc(h.n_comms ? h.n_comms : 1, sizeof *d->comms);
    if (!d->comms || !take_names(in, d, h.n_names))
        return false;
    while (d->n_comms < (int)h.n_comms)
        if (!take_comm(in, d, &d->comms[d->n_comms++]))
            return false;
    if (!take_records(in, d, h.n_records, h.wall_ns - h.boot_ns))
        return false;
    d->forgot = h.begun > TERN_FLIGHT_RING;
    deal_records(d);
    return true;
}

struct dump *tern_flight_dump_parse(const void *data, size_t len, struct tern_err *err)
{
    struct dump *d = tern_alloc(1, sizeof *d, "a dump", err);
    struct in in = {data, len};
    struct tern_flight_head h;

    if (!d)
        return NULL;
    bool ours = take(&in, &h, sizeof h) &&
                memcmp(h.magic, TERN_FLIGHT_MAGIC, sizeof h.magic) == 0 && h.head_bytes == sizeof h;
    if (ours && take_all(&in, d, h))
        return d;
    tern_flight_dump_free(d);
    tern_err_set(err, TERN_USAGE, ours ? "a damaged dump" : "not a dump of this version of tern");
    return NULL;
}

void tern_flight_dump_free(struct dump *d)
{
    if (!d)
        return;
    for (int i = 0; i < d->n_comms; i++)
        free(d->comms[i].members);
    free(d->comms);
    free(d->nodes);
    free(d->records);
    free(d);
}

bool tern_flight_dump_same_comm(const struct dump_comm *x, const struct dump_comm *y)
{
    return x->id == y->id && x->phase == y->phase && x->mark == y->mark;
}
