/* Networks side by side: found, compared, opened, closed. */
#include "core/wire/ofi/state.h"

#include "core/base/clock.h"
#include "core/base/vars.h"
#include "core/wire/ofi/libfabric.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An interface is up, but not yet running, for about a second after its link came. */
#define NETWORK_NS 5000000000ll

/* ---------------------------------------------------------------- what there is */

struct fi_info *tern_wire_ofi_hints(const char *provider, enum ofi_mode mode)
{
    struct fi_info *h = fi_allocinfo();

    if (!h)
        return NULL;
    h->caps = mode == OFI_RMA ? FI_MSG | FI_RMA | FI_SEND | FI_RECV | FI_WRITE | FI_REMOTE_WRITE
                              : FI_TAGGED | FI_SEND | FI_RECV;
    h->mode = FI_CONTEXT | FI_CONTEXT2;
    h->ep_attr->type = FI_EP_RDM;
    h->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    h->domain_attr->cq_data_size = 4;
    h->domain_attr->threading = FI_THREAD_DOMAIN;
    h->domain_attr->data_progress = FI_PROGRESS_MANUAL;
    h->domain_attr->av_type = FI_AV_TABLE;
    h->fabric_attr->prov_name = strdup(provider);
    return h;
}

void tern_wire_ofi_rails_say(struct ofi *o, const char *fmt, const char *a, const char *b)
{
    size_t n = strlen(o->rails_why);

    snprintf(o->rails_why + n, sizeof o->rails_why - n, fmt, a, b);
}

/* Loopback and networks much slower than the fastest hold up the stripes on the others. */
static int leave_out_slow(struct ofi *o, struct fi_info **c, int n)
{
    long best = 0;
    int kept = 0;

    for (int i = 0; i < n; i++)
        best = tern_wire_ofi_speed_of(c[i]) > best ? tern_wire_ofi_speed_of(c[i]) : best;
    for (int i = 0; i < n; i++) {
        if (2 * tern_wire_ofi_speed_of(c[i]) >= best || tern_wire_ofi_speed_of(c[i]) == 0)
            c[kept++] = c[i];
        else
            tern_wire_ofi_rails_say(o, "%s is left out: far slower than the fastest%s; ",
                                    tern_wire_ofi_name_of(c[i]), "");
    }
    return kept;
}

/* Of very many those with a device of their own: bridges and the like are of one host. */
static int in_network_order(struct fi_info **c, int n)
{
    int kept = 0;

    for (int virtual = 0; n > RAILS_TRIED && virtual < 2; virtual ++) {
        for (int i = kept; i < n && kept < RAILS_TRIED; i++) {
            struct fi_info *it = c[i];
            if (!virtual && !tern_wire_ofi_has_device(it))
                continue;
            memmove(&c[kept + 1], &c[kept], (size_t)(i - kept) * sizeof *c);
            c[kept++] = it;
        }
    }
    n = kept ? kept : n;
    qsort(c, (size_t)n, sizeof *c, tern_wire_ofi_by_network);
    return n;
}

static int absent_rail(const struct fi_info *list, const char *name, size_t len,
                       struct tern_err *err)
{
    const char *var = NULL, *iface = NULL;

    if (list)
        iface = tern_wire_ofi_iface_asked(list->fabric_attr->prov_name, &var);
    return tern_err_set(err, TERN_USAGE,
                        "TERN_FABRIC_RAILS: there is no interface '%.*s' here that libfabric can "
                        "use (ip addr%s%s%s)",
                        (int)len, name, iface ? "; it must also be one that " : "",
                        iface ? var : "", iface ? " names" : "");
}

static int in_list_order(const char *names, const struct fi_info *list, struct fi_info **c, int n,
                         struct tern_err *err)
{
    struct fi_info *sorted[CANDIDATES];
    int k = 0;

    for (const char *s = names; s; s = strchr(s, ',') ? strchr(s, ',') + 1 : NULL) {
        size_t len = strcspn(s, ",");
        int i = 0;
        while (i < n && !(strlen(tern_wire_ofi_name_of(c[i])) == len &&
                          strncmp(tern_wire_ofi_name_of(c[i]), s, len) == 0))
            i++;
        if (i == n)
            return absent_rail(list, s, len, err);
        if (k == RAILS)
            return tern_err_set(err, TERN_USAGE,
                                "TERN_FABRIC_RAILS: '%.*s' is one too many: at most 4", (int)len,
                                s);
        sorted[k++] = c[i];
    }
    memcpy(c, sorted, (size_t)k * sizeof *c);
    return k;
}

/* ---------------------------------------------------------------- opening */

static uint32_t hash32(const void *p, size_t n)
{
    uint64_t h = 0xcbf29ce484222325;

    for (size_t i = 0; i < n; i++)
        h = (h ^ ((const uint8_t *)p)[i]) * 0x100000001b3;
    return (uint32_t)(h ^ h >> 32);
}

static void describe(struct rail *l)
{
    const struct sockaddr_in *in = tern_wire_ofi_ipv4(l->info);
    const struct sockaddr_in6 *in6 = tern_wire_ofi_ipv6(l->info);

    snprintf(l->name, sizeof l->name, "%s", tern_wire_ofi_name_of(l->info));
    snprintf(l->where, sizeof l->where, "%s", l->info->fabric_attr->name);
    if (in) {
        inet_ntop(AF_INET, &in->sin_addr, l->where, sizeof l->where);
        l->place = hash32(&in->sin_addr, sizeof in->sin_addr);
    } else if (in6) {
        inet_ntop(AF_INET6, &in6->sin6_addr, l->where, sizeof l->where);
        l->place = hash32(&in6->sin6_addr, sizeof in6->sin6_addr);
    }
    /* udp;ofi_rxd does not tell the end of what was injected. */
    l->inject =
        strstr(l->info->fabric_attr->prov_name, "ofi_rxd") ? 0 : l->info->tx_attr->inject_size;
    l->most = l->info->ep_attr->max_msg_size;
}

static int open_endpoint(const struct ofi *o, struct rail *l, struct tern_err *err)
{
    struct fi_av_attr av = {.type = FI_AV_TABLE, .count = (size_t)o->size};
    struct fi_cq_attr cq = {.format = o->mode == OFI_RMA ? FI_CQ_FORMAT_DATA : FI_CQ_FORMAT_TAGGED,
                            .size = l->info->tx_attr->size + l->info->rx_attr->size,
                            .wait_obj = FI_WAIT_NONE};
    int rc;

    if ((rc = fi_fabric(l->info->fabric_attr, &l->fabric, NULL)))
        return tern_wire_ofi_fail(err, "cannot open the fabric", rc);
    if ((rc = fi_domain(l->fabric, l->info, &l->domain, NULL)))
        return tern_wire_ofi_fail(err, "cannot open the domain", rc);
    if ((rc = fi_av_open(l->domain, &av, &l->av, NULL)))
        return tern_wire_ofi_fail(err, "cannot open the address table", rc);
    if ((rc = fi_cq_open(l->domain, &cq, &l->cq, NULL)))
        return tern_wire_ofi_fail(err, "cannot open the completion queue", rc);
    if ((rc = fi_endpoint(l->domain, l->info, &l->ep, NULL)))
        return tern_wire_ofi_fail(err, "cannot open an endpoint", rc);
    if ((rc = fi_ep_bind(l->ep, &l->av->fid, 0)) ||
        (rc = fi_ep_bind(l->ep, &l->cq->fid, FI_TRANSMIT | FI_RECV)) || (rc = fi_enable(l->ep)))
        return tern_wire_ofi_fail(err, "cannot enable the endpoint", rc);
    l->peers = tern_alloc((size_t)o->size, sizeof *l->peers, "peer addresses", err);
    return l->peers ? 0 : -1;
}

static void close_fid(struct fid *fid)
{
    if (fid)
        fi_close(fid);
}

/* Is this rail to be left to the end of the process?  With messages on connections that hang,
 * libfabric 1.17's tcp;ofi_rxm now and then crashes in fi_close.  Where memory need not be
 * registered, software moves the bytes, and only while its queue is read, which has stopped. A
 * device writes by itself until its endpoint is closed. */
static bool left(const struct rail *l)
{
    return (l->lost || l->down) && !(l->info->domain_attr->mr_mode & FI_MR_LOCAL);
}

void tern_wire_ofi_rail_stop(struct rail *l)
{
    if (!l->ep || left(l))
        return;
    fi_close(&l->ep->fid);
    l->ep = NULL;
}

struct left_open {
    struct rail rail;
    struct left_open *next;
};

/* Never read: this list is where a leak checker finds what is left on purpose. */
static void leave_open(struct rail *l)
{
    static _Atomic(struct left_open *) all;
    struct left_open *to = malloc(sizeof *to);

    free(l->peers);
    l->peers = NULL;
    if (to) {
        to->rail = *l;
        to->next = atomic_exchange(&all, to);
    }
    memset(l, 0, sizeof *l);
}

void tern_wire_ofi_rail_close(struct rail *l)
{
    tern_wire_ofi_rail_stop(l);
    if (l->info && left(l)) {
        leave_open(l);
        return;
    }
    close_fid(l->cq ? &l->cq->fid : NULL);
    close_fid(l->av ? &l->av->fid : NULL);
    close_fid(l->domain ? &l->domain->fid : NULL);
    close_fid(l->fabric ? &l->fabric->fid : NULL);
    if (l->info)
        fi_freeinfo(l->info);
    free(l->peers);
    memset(l, 0, sizeof *l);
}

static void move_ops(struct rail *l, int to)
{
    for (int i = 0; i < 2; i++)
        for (struct op *op = i ? l->queue.first : l->posted.first; op; op = op->next)
            op->rail = (uint8_t)to;
}

/* What is registered with the rails that stay, of `pool`. */
static void move_memory(struct op_pool *pool, const int *kept, int n)
{
    for (size_t b = 0; b < pool->n_blocks; b++) {
        struct fid_mr *mr[RAILS_TRIED] = {0};
        for (int k = 0; k < n; k++) {
            mr[k] = pool->regs[b]->mr[kept[k]];
            pool->regs[b]->mr[kept[k]] = NULL;
        }
        for (int i = 0; i < RAILS_TRIED; i++)
            close_fid(pool->regs[b]->mr[i] ? &pool->regs[b]->mr[i]->fid : NULL);
        memcpy(pool->regs[b]->mr, mr, sizeof mr);
    }
}

void tern_wire_ofi_rails_keep(struct ofi *o, const int *kept, int n)
{
    struct rail rails[RAILS_TRIED] = {0};
    bool stays[RAILS_TRIED] = {0};

    for (int k = 0; k < n; k++)
        stays[kept[k]] = true;
    for (int i = 0; i < o->n_rails; i++) {
        if (stays[i])
            continue;
        o->rails[i].down = true;
        tern_wire_ofi_rail_stop(&o->rails[i]);
        tern_wire_ofi_op_flush(o, i, FI_EHOSTDOWN);
    }
    move_memory(&o->small, kept, n);
    move_memory(&o->big, kept, n);
    for (int k = 0; k < n; k++) {
        rails[k] = o->rails[kept[k]];
        rails[k].fault[0] = '\0';
        move_ops(&rails[k], k);
    }
    for (int i = 0; i < o->n_rails; i++)
        if (!stays[i])
            tern_wire_ofi_rail_close(&o->rails[i]);
    memcpy(o->rails, rails, sizeof rails);
    o->n_rails = o->up = n;
    for (int r = 0; o->links && r < o->size; r++) {
        o->links[r].bad = 0;
        memset(o->links[r].miss, 0, sizeof o->links[r].miss);
    }
}

/* What tcp's messages are gathered in.  With buffers of a short message's size none is cut: 4 to 16
 * KiB take a half to a third of the time that they take with 2 KiB.  But an endpoint writes as many
 * as the queues below are long, and a connection some more.  That is 51 MB of a rank with the
 * library's own queues, 24 MB with these, at no loss of speed.  With many ranks most of them wait
 * for others.  The memory that the kernel clears for them costs the launch more than cutting a
 * message costs the step.
 */
static void fit_buffers(const struct ofi *o)
{
    setenv("FI_OFI_RXM_BUFFER_SIZE", o->size > MANY_RANKS ? "2048" : "8320", 0);
    setenv("FI_OFI_RXM_MSG_TX_SIZE", "16", 0);
    setenv("FI_OFI_RXM_MSG_RX_SIZE", "16", 0);
}
_Static_assert(RECORD_MAX <= 8320 - 64, "a record and rxm's head fit a buffer");

static int query_named(struct ofi *o, const char *provider, enum ofi_mode mode,
                       struct fi_info **list)
{
    struct fi_info *hints = tern_wire_ofi_hints(provider, mode);
    int64_t until = tern_clock_boot_ns() + NETWORK_NS;
    int rc;

    if (!hints)
        return -FI_ENOMEM;
    for (;;) {
        rc = fi_getinfo(tern_wire_libfabric_api(), NULL, NULL, 0, hints, list);
        if (rc == 0)
            tern_wire_ofi_heed_iface(list);
        if (rc || !o->far || tern_wire_ofi_any_reaches(*list) || tern_clock_boot_ns() >= until)
            break;
        if (*list)
            fi_freeinfo(*list);
        *list = NULL;
        tern_clock_sleep_ns(100000000);
    }
    fi_freeinfo(hints);
    return rc;
}

/* tcp's own reliable endpoints, where there are any: libfabric 1.16 and 1.17 have them as "net",
 * later ones as "tcp".  With ofi_rxm above tcp's connections a short message takes half as long
 * again.  It takes a system call to signal each completion and one to take the signal back. */
static int query(struct ofi *o, const char *provider, enum ofi_mode mode, struct fi_info **list)
{
    if (strcmp(provider, "tcp") == 0 && query_named(o, "net", mode, list) == 0)
        return 0;
    return query_named(o, provider, mode, list);
}

/* Providers whose writes are slower than their tagged messages, as measured with libfabric 1.17
 * (`tern bench fabric`, 2 ranks, all-reduce).  Over udp;ofi_rxd 16 KiB take 1148 us by writes and
 * 97 us tagged, 1 MiB 69 and 30 ms.  shm: libfabric 1.17 now and then loses a long tagged message
 * (seen with half a MiB, with more ranks than cores).  It tells the sender that it was sent and the
 * receiver nothing.  libfabric 2.1 never ends a long write. */
static const struct {
    const char *provider;
    unsigned since; /* libfabric's version, before the dot */
    const char *why;
} better_tagged[] = {
    {"ofi_rxd", 1, "writes over udp;ofi_rxd take twice as long and more, as measured"},
    {"shm", 2, "long writes over shm never end with libfabric 2"},
};

static int no_interface(const char *provider, struct tern_err *err)
{
    const char *var, *name = tern_wire_ofi_iface_asked(provider, &var);

    if (!name && strcmp(provider, "tcp") == 0)
        name = tern_wire_ofi_iface_asked("net", &var);
    return tern_err_set(err, TERN_USAGE,
                        "%s: there is no interface '%s' here that libfabric can use (ip addr)",
                        name ? var : provider, name ? name : "");
}

static int choose_mode(struct ofi *o, const char *provider, struct fi_info **list,
                       struct tern_err *err)
{
    const char *asked = tern_var("TERN_FABRIC_MODE");
    bool rma = asked && strcmp(asked, "rma") == 0, tagged = asked && strcmp(asked, "tagged") == 0;
    int rc = -FI_ENODATA;

    if (asked && !rma && !tagged && strcmp(asked, "auto") != 0)
        return tern_err_set(err, TERN_USAGE,
                            "TERN_FABRIC_MODE is '%s' (allowed: auto, rma, tagged)", asked);
    o->mode = OFI_RMA;
    snprintf(o->mode_why, sizeof o->mode_why, "%s",
             rma ? "TERN_FABRIC_MODE says so" : "the provider writes to remote memory and tells");
    if (!tagged)
        rc = query(o, provider, OFI_RMA, list);
    for (size_t i = 0; rc == 0 && *list && !rma && i < sizeof better_tagged / sizeof *better_tagged;
         i++) {
        if (FI_MAJOR(fi_version()) >= better_tagged[i].since &&
            strstr((*list)->fabric_attr->prov_name, better_tagged[i].provider)) {
            snprintf(o->mode_why, sizeof o->mode_why, "%s", better_tagged[i].why);
            tagged = true;
        }
    }
    if (rc == 0 && !*list)
        return no_interface(provider, err);
    if (rc == 0 && !tagged)
        return 0;
    if (rma)
        return tern_err_set(err, TERN_FAILED,
                            "libfabric's provider '%s' has no remote writes here (%s), which "
                            "TERN_FABRIC_MODE=rma asks for",
                            provider, fi_strerror(-rc));
    if (rc)
        snprintf(o->mode_why, sizeof o->mode_why, "%s",
                 asked ? "TERN_FABRIC_MODE says so" : "the provider has no remote writes");
    if (*list)
        fi_freeinfo(*list);
    *list = NULL;
    o->mode = OFI_TAGGED;
    rc = query(o, provider, OFI_TAGGED, list);
    if (rc)
        return tern_err_set(err, TERN_FAILED,
                            "libfabric has no provider '%s' with reliable tagged messages here "
                            "(%s). `fi_info -l` lists what there is; set TERN_FABRIC_PROVIDER.",
                            provider, fi_strerror(-rc));
    return *list ? 0 : no_interface(provider, err);
}

static int choose_rails(struct ofi *o, struct fi_info *list, struct fi_info **c,
                        struct tern_err *err)
{
    const char *rails = tern_var("TERN_FABRIC_RAILS"), *names = NULL;

    o->rule = !rails || strcmp(rails, "all") == 0 ? RAILS_ALL
              : strcmp(rails, "any") == 0         ? RAILS_ANY
                                                  : RAILS_LIST;
    names = o->rule == RAILS_LIST ? rails : NULL;
    int n = tern_wire_ofi_candidates(list, tern_wire_ofi_any_reaches(list), names, c);
    if (names)
        n = in_list_order(names, list, c, n, err);
    else
        n = in_network_order(c, n);
    if (n > 1 && names && o->mode == OFI_TAGGED)
        return tern_err_set(err, TERN_USAGE,
                            "TERN_FABRIC_RAILS names several interfaces, which tagged messages "
                            "cannot use: %s",
                            o->mode_why);
    if (n > 1 && !names && !o->far) {
        n = leave_out_slow(o, c, n);
        tern_wire_ofi_rails_say(o, "%s alone: %s; ", tern_wire_ofi_name_of(c[0]),
                                "all ranks are on one host");
        n = 1;
    }
    /* Each of several devices has few users, all of them this job's. */
    int most = tern_wire_ofi_ipv4(c[0]) || tern_wire_ofi_ipv6(c[0]) ? RAILS_TRIED
               : o->mode == OFI_TAGGED                              ? 1
                                                                    : RAILS;
    return n < most ? n : most;
}

int tern_wire_ofi_rails_open(struct ofi *o, const char *provider, struct tern_err *err)
{
    struct fi_info *list = NULL, *c[CANDIDATES];

    fit_buffers(o);
    if (choose_mode(o, provider, &list, err) < 0)
        return -1;
    bool reaches = tern_wire_ofi_any_reaches(list);
    int n = choose_rails(o, list, c, err);
    for (int i = 0; i < n; i++) {
        o->rails[i].info = fi_dupinfo(c[i]);
        o->n_rails += o->rails[i].info != NULL;
    }
    fi_freeinfo(list);
    if (n < 0)
        return -1;
    if (o->far && !reaches)
        return tern_err_set(err, TERN_TEMPFAIL,
                            "libfabric provider '%s' finds no network interface here that other "
                            "nodes can reach: is it up? (ip addr)",
                            provider);
    if (!o->n_rails || o->n_rails != n)
        return tern_err_set(err, TERN_FAILED, "libfabric provider '%s' offers no endpoint",
                            provider);
    for (int i = 0; i < n; i++) {
        struct rail *l = &o->rails[i];
        int nth = 0;
        describe(l);
        for (int k = 0; k < i; k++)
            nth += strcmp(o->rails[k].info->fabric_attr->name, l->info->fabric_attr->name) == 0;
        l->net =
            hash32(l->info->fabric_attr->name, strlen(l->info->fabric_attr->name)) + (uint32_t)nth;
        if (open_endpoint(o, l, err) < 0)
            return tern_err_prefix(err, "%s (%s)", l->name, l->where);
    }
    return 0;
}

/* ---------------------------------------------------------------- words */

void tern_wire_ofi_rails_explain(const struct ofi *o, struct tern_buf *to)
{
    static const char *const seen[] = {
        "FI_PROVIDER",
        "FI_EFA_FORK_SAFE",
        "FI_EFA_USE_DEVICE_RDMA",
        "FI_EFA_ENABLE_SHM_TRANSFER",
        "FI_TCP_IFACE",
        "FI_NET_IFACE",
        "FI_SOCKETS_IFACE",
        "FI_UDP_IFACE",
        "FI_VERBS_IFACE",
        "RDMAV_FORK_SAFE",
        "FI_OFI_RXM_BUFFER_SIZE",
        "FI_OFI_RXM_MSG_TX_SIZE",
        "FI_OFI_RXM_MSG_RX_SIZE",
    };

    tern_wire_ofi_memory_explain(o, to);
    tern_buf_printf(to, "inject: %zu bytes; longest operation: ", o->rails[0].inject);
    if (o->rails[0].most >= TERN_WIRE_CHUNK)
        tern_buf_printf(to, "no shorter than a message (%d bytes)\n", TERN_WIRE_CHUNK);
    else
        tern_buf_printf(to, "%zu bytes\n", o->rails[0].most);
    tern_buf_printf(to, "rails: TERN_FABRIC_RAILS=%s",
                    o->rule == RAILS_ALL   ? "all"
                    : o->rule == RAILS_ANY ? "any"
                                           : tern_var("TERN_FABRIC_RAILS"));
    tern_buf_printf(to, "%s%s\n", o->rails_why[0] ? "; " : "", o->rails_why);
    for (int i = 0; i < o->n_rails; i++)
        tern_buf_printf(to, "rail %d: %s (%s), network %s%s%s\n", i, o->rails[i].name,
                        o->rails[i].where, o->rails[i].info->fabric_attr->name,
                        o->rails[i].down ? ": given up: " : "", o->rails[i].fault);
    for (size_t i = 0; i < sizeof seen / sizeof *seen; i++)
        if (getenv(seen[i]))
            tern_buf_printf(to, "%s=%s\n", seen[i], getenv(seen[i]));
}
