/* What a rank tells the others of itself where they meet, and which of its rails all of them use.
 */
#include "core/wire/ofi/state.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <rdma/fi_cm.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A rank's description of itself, in TERN_WIRE_ADDRESS bytes. */
struct card {
    uint16_t magic;
    uint8_t version, mode, rule, n;
    uint8_t wide, zero;
    uint8_t secret[RECORD_SECRET]; /* the key of records that it accepts */
    uint64_t host; /* network namespace: the same address in two of them leads nowhere */
    uint64_t eager_max;
};
struct card_rail {
    uint32_t net, place, speed; /* Mbit/s, 0: unknown */
    uint8_t len, address[];
};
enum { CARD_VERSION = 6 };

/* Has an immediate room for a token? */
static bool is_wide(const struct ofi *o)
{
    for (int i = 0; i < o->n_rails; i++)
        if (o->rails[i].info->domain_attr->cq_data_size < sizeof(uint64_t))
            return false;
    return true;
}

static uint64_t host_identity(const struct ofi *o)
{
    struct stat st = {0};

    if (stat("/proc/self/ns/net", &st) < 0)
        st.st_ino = 0;
    return (o->machine ^ o->machine >> 32) << 32 | (uint32_t)st.st_ino;
}

size_t tern_wire_ofi_rails_address(const struct ofi *o, uint8_t to[TERN_WIRE_ADDRESS])
{
    struct card c = {.magic = RECORD_MAGIC,
                     .version = CARD_VERSION,
                     .mode = (uint8_t)o->mode,
                     .rule = (uint8_t)o->rule,
                     .n = (uint8_t)o->n_rails,
                     .wide = is_wide(o),
                     .host = host_identity(o),
                     .eager_max = o->eager_max};
    size_t at = sizeof c;

    memcpy(c.secret, o->secret, sizeof c.secret);
    memset(to, 0, TERN_WIRE_ADDRESS);
    memcpy(to, &c, sizeof c);
    for (int i = 0; i < o->n_rails; i++) {
        struct card_rail r = {.net = o->rails[i].net,
                              .place = o->rails[i].place,
                              .speed = (uint32_t)tern_wire_ofi_speed_of(o->rails[i].info)};
        size_t head = offsetof(struct card_rail, address), n = TERN_WIRE_ADDRESS - at;
        if (n <= head || (n -= head) == 0 ||
            fi_getname(&o->rails[i].ep->fid, to + at + head, &n) != 0 || n > 255)
            return 0;
        r.len = (uint8_t)n;
        memcpy(to + at, &r, head);
        at += head + n;
    }
    return at;
}

struct known { /* a card, read */
    struct card card;
    uint32_t net[RAILS_TRIED], place[RAILS_TRIED], speed[RAILS_TRIED];
    const uint8_t *address[RAILS_TRIED];
    uint8_t len[RAILS_TRIED];
};

static int read_card(struct known *k, const uint8_t *blob)
{
    size_t at = sizeof k->card, head = offsetof(struct card_rail, address);
    struct card_rail r;

    memcpy(&k->card, blob, sizeof k->card);
    if (k->card.magic != RECORD_MAGIC || k->card.version != CARD_VERSION || k->card.n < 1 ||
        k->card.n > RAILS_TRIED)
        return -1;
    for (int i = 0; i < k->card.n; i++) {
        if (at + head > TERN_WIRE_ADDRESS)
            return -1;
        memcpy(&r, blob + at, head);
        if (at + head + r.len > TERN_WIRE_ADDRESS)
            return -1;
        k->net[i] = r.net;
        k->place[i] = r.place;
        k->speed[i] = r.speed;
        k->len[i] = r.len;
        k->address[i] = blob + at + head;
        at += head + r.len;
    }
    return 0;
}

static int read_cards(const struct ofi *o, struct known *k, const uint8_t *addresses, size_t stride,
                      struct tern_err *err)
{
    for (int r = 0; r < o->size; r++) {
        if (read_card(&k[r], addresses + (size_t)r * stride) < 0)
            return tern_err_set(err, TERN_FAILED, "libfabric: cannot use rank %d's address", r);
        if (k[r].card.mode != o->mode || k[r].card.rule != o->rule)
            return tern_err_set(err, TERN_USAGE,
                                "rank %d and rank %d differ in what they use of libfabric: "
                                "TERN_FABRIC_MODE, TERN_FABRIC_RAILS and the library must be the "
                                "same everywhere",
                                r, o->rank);
        if (o->rule == RAILS_LIST && k[r].card.n != o->n_rails)
            return tern_err_set(err, TERN_USAGE,
                                "TERN_FABRIC_RAILS names %d rails on rank %d and %d on rank %d",
                                k[r].card.n, r, o->n_rails, o->rank);
    }
    return 0;
}

static int place_on(const struct known *k, uint32_t net)
{
    for (int i = 0; i < k->card.n; i++)
        if (k->net[i] == net)
            return i;
    return -1;
}

/* Does another host have the same address there?  Then it is a bridge of its own, such as docker0,
 * and leads nowhere. */
static bool own_bridge(const struct ofi *o, const struct known *k, int rank, int i)
{
    uint32_t net = k[rank].net[i], place = k[rank].place[i];

    for (int r = 0; r < o->size && place; r++) {
        int at = k[r].card.host != k[rank].card.host ? place_on(&k[r], net) : -1;
        if (at >= 0 && k[r].place[at] == place)
            return true;
    }
    return false;
}

/* Rank r's `way[i]`: which of its interfaces is rail i.  All ranks come to the same. */
static int agree(struct ofi *o, const struct known *k, uint32_t net[RAILS_TRIED])
{
    int n = 0;

    for (int i = 0; i < k[0].card.n; i++) {
        bool common = !own_bridge(o, k, 0, i);
        for (int r = 1; r < o->size && common; r++)
            common = place_on(&k[r], k[0].net[i]) >= 0;
        if (common)
            net[n++] = k[0].net[i];
    }
    for (int i = 0; i < o->n_rails; i++) {
        bool used = false;
        for (int j = 0; j < n; j++)
            used |= net[j] == o->rails[i].net;
        if (!used && n)
            tern_wire_ofi_rails_say(o, "%s (%s) is left out: not every rank is on its network; ",
                                    o->rails[i].name, o->rails[i].where);
    }
    return n;
}

/* Of a rank whose nodes have no network in common with all others: its rail-th that is no bridge of
 * its own.  Routers lie between them, or nothing. */
static int routed(const struct ofi *o, const struct known *k, int rank, int rail)
{
    int n = 0;

    for (int i = 0; i < k[rank].card.n; i++)
        if (!own_bridge(o, k, rank, i) && n++ == rail)
            return i;
    return -1;
}

static int way_of(const struct ofi *o, const struct known *k, int rank, int rail, int n,
                  const uint32_t *net)
{
    if (o->rule == RAILS_LIST)
        return rail;
    if (n)
        return place_on(&k[rank], net[rail]);
    int way = routed(o, k, rank, rail);
    return way >= 0 ? way : 0;
}

/* How many such rails every rank has. */
static int count_routed(const struct ofi *o, const struct known *k)
{
    int n = RAILS_TRIED;

    for (int r = 0; r < o->size; r++) {
        int own = 0;
        while (own < n && routed(o, k, r, own) >= 0)
            own++;
        n = own;
    }
    return n ? n : 1;
}

/* Rails in the agreed order; the others are closed. */
static void keep(struct ofi *o, const struct known *k, int count, int n, const uint32_t *net)
{
    struct rail kept[RAILS_TRIED] = {0};

    for (int i = 0; i < count; i++) {
        struct rail *l = &o->rails[way_of(o, k, o->rank, i, n, net)];
        kept[i] = *l;
        memset(l, 0, sizeof *l);
    }
    for (int i = 0; i < o->n_rails; i++)
        tern_wire_ofi_rail_close(&o->rails[i]);
    memcpy(o->rails, kept, sizeof kept);
    o->n_rails = o->up = count;
}

static void tell_way(const struct ofi *o, struct way *w, const struct known *k, int rail, int way)
{
    uint32_t format = o->rails[rail].info->addr_format;
    struct sockaddr_in in;
    struct sockaddr_in6 in6;

    w->speed = k->speed[way];
    if (format == FI_SOCKADDR_IN && k->len[way] >= sizeof in) {
        memcpy(&in, k->address[way], sizeof in);
        inet_ntop(AF_INET, &in.sin_addr, w->where, sizeof w->where);
    } else if (format == FI_SOCKADDR_IN6 && k->len[way] >= sizeof in6) {
        memcpy(&in6, k->address[way], sizeof in6);
        inet_ntop(AF_INET6, &in6.sin6_addr, w->where, sizeof w->where);
    }
}

void tern_wire_ofi_ways_free(struct ways *w)
{
    free(w->host);
    free(w->way);
    memset(w, 0, sizeof *w);
}

static int insert(struct ofi *o, const struct known *k, int rank, int rail, int way,
                  struct tern_err *err)
{
    struct rail *l = &o->rails[rail];

    if (fi_av_insert(l->av, k[rank].address[way], 1, &l->peers[rank], 0, NULL) == 1)
        return 0;
    return tern_err_set(err, TERN_TEMPFAIL, "libfabric: cannot use rank %d's address", rank);
}

int tern_wire_ofi_rails_connect(struct ofi *o, const uint8_t *addresses, size_t stride,
                                struct ways *w, struct tern_err *err)
{
    struct known *k = tern_alloc((size_t)o->size, sizeof *k, "peer addresses", err);
    uint32_t net[RAILS_TRIED];

    w->host = tern_alloc((size_t)o->size, sizeof *w->host, "peer addresses", err);
    w->way = tern_alloc((size_t)o->size, sizeof *w->way, "peer addresses", err);
    int rc = k && w->host && w->way ? read_cards(o, k, addresses, stride, err) : -1;
    if (rc < 0)
        goto out;
    int n = o->rule == RAILS_LIST ? o->n_rails : agree(o, k, net);
    w->apart = n == 0;
    keep(o, k, n ? n : o->far ? count_routed(o, k) : 1, n, net);
    o->wide = true;
    for (int r = 0; r < o->size; r++) {
        if (k[r].card.eager_max < o->eager_max)
            o->eager_max = k[r].card.eager_max;
        o->wide &= k[r].card.wide;
        memcpy(o->secrets[r], k[r].card.secret, RECORD_SECRET);
        w->host[r] = k[r].card.host;
    }
    for (int i = 0; i < o->n_rails && rc == 0; i++) {
        for (int r = 0; r < o->size && rc == 0; r++) {
            int way = way_of(o, k, r, i, n, net);
            tell_way(o, &w->way[r][i], &k[r], i, way);
            rc = insert(o, k, r, i, way, err);
        }
    }
out:
    free(k);
    return rc;
}
