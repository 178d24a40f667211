/* Which rails lead anywhere.  A network may be there on every node and lead nowhere: a BMC's, one
 * whose VLAN no switch carries.  So where ranks meet, each sends a message to a rank of the next
 * node over each rail.  It waits for the answer over the same rail.  All ranks report their
 * results, and all give up a rail that failed for one rank. */
#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/vars.h"
#include "core/wire/ofi/state.h"

#include <rdma/fi_errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUND_NS 250000000ll
#define LIMIT_NS 20000000000ll /* until nothing is expected of any rail any more */

enum {
    ROUNDS = 6,          /* answered by one rail while another is silent: that leads nowhere */
    NUMBER = 0x40000000, /* of records: none that is used later */
};

struct trial {
    struct ways ways;
    int partner;
    uint32_t echoed[RAILS_TRIED];
    int seconds; /* it took to give up */
};

/* The vote of a rank. */
struct ballot {
    uint16_t magic;
    uint8_t good, zero; /* a bit for each rail that an answer came by */
    int32_t partner, seconds;
    char why[RAILS_TRIED][48]; /* of one that failed, if more is known than silence */
};
_Static_assert(sizeof(struct ballot) <= TERN_WIRE_ADDRESS, "it travels as an address does");

/* ---------------------------------------------------------------- which ranks to ask */

/* A rank of the host that comes next in the ranks' order, in the same place there. The hosts are a
 * ring, so that wherever some ranks do not reach others, at least one notices. */
static int partner_of(const struct ofi *o, const uint64_t *host)
{
    int next = (o->rank + 1) % o->size, place = 0, count = 0;

    for (int k = 1; k < o->size && host[next] == host[o->rank]; k++)
        next = (o->rank + k) % o->size;
    if (host[next] == host[o->rank]) /* one host after all */
        return (o->rank + 1) % o->size;
    for (int r = 0; r < o->size; r++) {
        place += r < o->rank && host[r] == host[o->rank];
        count += host[r] == host[next];
    }
    place %= count;
    for (int r = 0; r < o->size; r++)
        if (host[r] == host[next] && place-- == 0)
            return r;
    return next;
}

int tern_wire_ofi_try_open(struct ofi *o, const struct ways *w, struct tern_err *err)
{
    o->trial = tern_alloc(1, sizeof *o->trial, "the rails", err);
    if (!o->trial)
        return -1;
    o->trial->ways = *w;
    o->trial->partner = partner_of(o, w->host);
    return 0;
}

void tern_wire_ofi_try_close(struct ofi *o)
{
    if (o->trial)
        tern_wire_ofi_ways_free(&o->trial->ways);
    free(o->trial);
    o->trial = NULL;
}

/* ---------------------------------------------------------------- trying */

void tern_wire_ofi_try_echoed(struct ofi *o, int rank, int rail)
{
    if (o->trial && rank == o->trial->partner)
        o->trial->echoed[rail]++;
}

static bool holds_one(const struct op_list *l)
{
    const struct op *op = l->first;

    while (op && op->kind == OP_SLOT)
        op = op->next;
    return op != NULL;
}

/* Another one where the last has gone, or failed. */
static void send_round(struct ofi *o, uint32_t round)
{
    for (int i = 0; i < o->n_rails; i++) {
        if (holds_one(&o->rails[i].posted) || holds_one(&o->rails[i].queue))
            continue;
        if (o->mode == OFI_RMA)
            tern_wire_ofi_peer_say_on(o, i, o->trial->partner, RECORD_PROBE, NUMBER + round);
        else
            tern_wire_ofi_tagged_try(o, o->trial->partner, i, TERN_WIRE_TRY);
    }
}

static uint8_t answered(const struct ofi *o, uint32_t *most)
{
    uint8_t good = 0;

    *most = 0;
    for (int i = 0; i < o->n_rails; i++) {
        uint32_t n = o->trial->echoed[i];
        good |= (uint8_t)((n > 0) << i);
        *most = n > *most ? n : *most;
    }
    return good;
}

size_t tern_wire_ofi_try_vote(struct ofi *o, uint8_t to[TERN_WIRE_ADDRESS])
{
    struct ballot b = {.magic = RECORD_MAGIC, .partner = o->trial->partner};
    const uint8_t all = (uint8_t)((1u << o->n_rails) - 1);
    int64_t start = tern_clock_boot_ns(), now = start, next = start;
    int64_t limit = o->deadline_ns / 2 < LIMIT_NS ? o->deadline_ns / 2 : LIMIT_NS;
    uint32_t most = 0;

    for (uint32_t round = 0; b.good != all && most < ROUNDS && now - start < limit;) {
        if (now >= next) {
            send_round(o, round++);
            next = now + ROUND_NS;
        }
        tern_wire_ofi_op_progress(o);
        sched_yield();
        b.good = answered(o, &most);
        now = tern_clock_boot_ns();
    }
    b.seconds = (int32_t)((now - start) / 1000000000);
    for (int i = 0; i < o->n_rails; i++)
        if (!(b.good & 1 << i))
            snprintf(b.why[i], sizeof b.why[i], "%s", o->rails[i].fault);
    memset(to, 0, TERN_WIRE_ADDRESS);
    memcpy(to, &b, sizeof b);
    return sizeof b;
}

/* ---------------------------------------------------------------- the result of all votes */

/* The first rank that it failed for. */
static void tell_rail(const struct ofi *o, const uint8_t *votes, size_t stride, int rail,
                      struct tern_buf *to)
{
    struct ballot b = {0};
    int rank = 0;

    for (; rank < o->size; rank++) {
        memcpy(&b, votes + (size_t)rank * stride, sizeof b);
        if (!(b.good & 1 << rail))
            break;
    }
    const struct way *a = &o->trial->ways.way[rank][rail];
    int other = b.partner >= 0 && b.partner < o->size ? b.partner : 0;
    b.why[rail][sizeof b.why[rail] - 1] = '\0';
    tern_buf_printf(to, "%s (%s): rank %d at %s hears nothing from rank %d at %s",
                    o->rails[rail].name, o->rails[rail].where, rank, a->where, other,
                    o->trial->ways.way[other][rail].where);
    if (b.why[rail][0])
        tern_buf_printf(to, " (%s)", b.why[rail]);
}

/* Which networks that is said of: never of more than were tried. */
static void tell_tried(const struct ofi *o, const char *var, bool some_lead, struct tern_buf *to)
{
    if (o->rule == RAILS_LIST)
        tern_buf_puts(to, some_lead         ? "of the rails named, these lead nowhere"
                          : o->n_rails == 1 ? "the rail named leads nowhere"
                                            : "the rails named lead nowhere");
    else if (var)
        tern_buf_printf(to, "of the networks that %s leaves, none leads anywhere", var);
    else
        tern_buf_puts(to, o->n_rails > 1 ? "no network between the nodes leads anywhere"
                                         : "the network between the nodes leads nowhere");
}

/* The settings that choose networks, as they are here. */
static void tell_settings(const struct ofi *o, const char *var, const char *iface,
                          struct tern_buf *to)
{
    const char *rails = tern_var("TERN_FABRIC_RAILS");

    tern_buf_printf(to, "Name %s by launch.rails (TERN_FABRIC_RAILS, now %s)",
                    o->rule == RAILS_LIST && strchr(rails, ',') ? "others" : "one that does",
                    rails ? rails : "not set");
    if (var)
        tern_buf_printf(to, " or %s (%s)", var, iface ? iface : "not set");
}

static int leads_nowhere(const struct ofi *o, const uint8_t *votes, size_t stride, uint8_t bad,
                         struct tern_err *err)
{
    const uint8_t all = (uint8_t)((1u << o->n_rails) - 1);
    const char *var,
        *iface = tern_wire_ofi_iface_asked(o->rails[0].info->fabric_attr->prov_name, &var);
    struct tern_buf tried = {0}, text = {0}, settings = {0};

    for (int i = 0; i < o->n_rails; i++) {
        if (!(bad & 1 << i))
            continue;
        tern_buf_puts(&text, text.len ? "; " : "");
        tell_rail(o, votes, stride, i, &text);
    }
    tell_tried(o, iface ? var : NULL, bad != all, &tried);
    tell_settings(o, var, iface, &settings);
    tern_err_set(err, TERN_TEMPFAIL, "%s: %.600s. %.250s", tried.data, text.data, settings.data);
    tern_buf_free(&tried);
    tern_buf_free(&text);
    tern_buf_free(&settings);
    return -1;
}

static void tell_left_out(struct ofi *o, const uint8_t *votes, size_t stride, uint8_t bad)
{
    for (int i = 0; i < o->n_rails; i++) {
        if (!(bad & 1 << i))
            continue;
        struct tern_buf text = {0};
        tell_rail(o, votes, stride, i, &text);
        if (o->rank == 0)
            tern_warn("a network that leads nowhere is left out: %s", text.data);
        tern_wire_ofi_rails_say(o, "left out: %s%s; ", text.data, "");
        tern_buf_free(&text);
    }
}

/* By the slowest of all ranks' ends. */
static long speed_of(const struct ofi *o, int rail)
{
    long least = 0;

    for (int r = 0; r < o->size; r++) {
        long speed = o->trial->ways.way[r][rail].speed;
        least = speed && (!least || speed < least) ? speed : least;
    }
    return least;
}

/* Of those that lead to all: what would hold up the others goes, and what cannot be used. */
static int choose(struct ofi *o, uint8_t good, int kept[RAILS_TRIED])
{
    int n = 0, most = o->mode == OFI_TAGGED || o->trial->ways.apart ? 1 : RAILS;
    long best = 0;

    for (int i = 0; i < o->n_rails; i++)
        if (good & 1 << i && speed_of(o, i) > best)
            best = speed_of(o, i);
    for (int i = 0; i < o->n_rails; i++) {
        long speed = speed_of(o, i);
        if (!(good & 1 << i))
            continue;
        if (o->rule != RAILS_LIST && speed && 2 * speed < best)
            tern_wire_ofi_rails_say(o, "%s is left out: far slower than the fastest%s; ",
                                    o->rails[i].name, "");
        else if (n == most)
            tern_wire_ofi_rails_say(o, "%s is left out: %s; ", o->rails[i].name,
                                    o->mode == OFI_TAGGED ? "tagged messages use one"
                                    : o->trial->ways.apart
                                        ? "no network is common to all nodes, one will do"
                                        : "four are used at most");
        else
            kept[n++] = i;
    }
    return n;
}

int tern_wire_ofi_try_settle(struct ofi *o, const uint8_t *votes, size_t stride,
                             struct tern_err *err)
{
    const uint8_t all = (uint8_t)((1u << o->n_rails) - 1);
    uint8_t good = all;
    int kept[RAILS_TRIED];
    struct ballot b;

    for (int r = 0; r < o->size; r++) {
        memcpy(&b, votes + (size_t)r * stride, sizeof b);
        if (b.magic != RECORD_MAGIC)
            return tern_err_set(err, TERN_FAILED, "libfabric: cannot use rank %d's word", r);
        good &= b.good;
    }
    if (!good || (o->rule == RAILS_LIST && good != all))
        return leads_nowhere(o, votes, stride, all & ~good, err);
    tell_left_out(o, votes, stride, all & ~good);
    tern_wire_ofi_rails_keep(o, kept, choose(o, good, kept));
    return 0;
}
