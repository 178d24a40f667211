/* The networks that libfabric's providers offer here, and which of them may be used. */
#include "core/wire/ofi/state.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const struct sockaddr_in *tern_wire_ofi_ipv4(const struct fi_info *i)
{
    return i->addr_format == FI_SOCKADDR_IN ? i->src_addr : NULL;
}
const struct sockaddr_in6 *tern_wire_ofi_ipv6(const struct fi_info *i)
{
    return i->addr_format == FI_SOCKADDR_IN6 ? i->src_addr : NULL;
}

/* Loopback and link-local addresses mean nothing on another node.  The provider's list is in no
 * order that one could rely on. */
static bool reaches_others(const struct fi_info *i)
{
    const struct sockaddr_in *in = tern_wire_ofi_ipv4(i);
    const struct sockaddr_in6 *in6 = tern_wire_ofi_ipv6(i);

    if (in)
        return ntohl(in->sin_addr.s_addr) >> 24 != 127;
    if (in6)
        return !IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr) && !IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr);
    return true;
}

bool tern_wire_ofi_any_reaches(const struct fi_info *i)
{
    while (i && !reaches_others(i))
        i = i->next;
    return i != NULL;
}

const char *tern_wire_ofi_name_of(const struct fi_info *i)
{
    return i->domain_attr->name ? i->domain_attr->name : "?";
}

/* Mbit/s, 0 when not known. */
long tern_wire_ofi_speed_of(const struct fi_info *i)
{
    char path[128];
    long speed = 0;

    if (i->nic && i->nic->link_attr && i->nic->link_attr->speed)
        return (long)(i->nic->link_attr->speed / 1000000);
    snprintf(path, sizeof path, "/sys/class/net/%.32s/speed", tern_wire_ofi_name_of(i));
    FILE *f = fopen(path, "re");
    if (f && fscanf(f, "%ld", &speed) != 1)
        speed = 0;
    if (f)
        fclose(f);
    return speed > 0 ? speed : 0;
}

bool tern_wire_ofi_has_device(const struct fi_info *i)
{
    char path[128];

    snprintf(path, sizeof path, "/sys/class/net/%.32s/device", tern_wire_ofi_name_of(i));
    return i->nic || access(path, F_OK) == 0;
}

static bool named(const char *list, const char *name)
{
    size_t len = strlen(name);

    for (const char *s = list; s; s = strchr(s, ',') ? strchr(s, ',') + 1 : NULL)
        if (strncmp(s, name, len) == 0 && (s[len] == ',' || !s[len]))
            return true;
    return false;
}

int tern_wire_ofi_by_network(const void *a, const void *b)
{
    const struct fi_info *x = *(struct fi_info *const *)a, *y = *(struct fi_info *const *)b;
    int rc = strcmp(x->fabric_attr->name, y->fabric_attr->name);

    return rc ? rc : strcmp(tern_wire_ofi_name_of(x), tern_wire_ofi_name_of(y));
}

/* FI_TCP_IFACE and its like, where it is set: libfabric's own words for which interface a provider
 * uses.  Over "net", which is tcp's, tcp's variable counts, too. */
const char *tern_wire_ofi_iface_asked(const char *provider, const char **var)
{
    static const char *const vars[][2] = {{"net", "FI_NET_IFACE"},
                                          {"net", "FI_TCP_IFACE"},
                                          {"tcp", "FI_TCP_IFACE"},
                                          {"sockets", "FI_SOCKETS_IFACE"},
                                          {"udp", "FI_UDP_IFACE"}};

    *var = NULL;
    for (size_t k = 0; k < sizeof vars / sizeof *vars; k++) {
        size_t len = strlen(vars[k][0]);
        const char *name = getenv(vars[k][1]);
        if (strncmp(provider, vars[k][0], len) != 0 || (provider[len] && provider[len] != ';'))
            continue;
        *var = vars[k][1];
        if (name && *name)
            return name;
    }
    return NULL;
}

/* Leaves the interfaces that it names: itself or, as libfabric reads it, those whose names begin
 * so. libfabric takes all where there is none. */
void tern_wire_ofi_heed_iface(struct fi_info **list)
{
    struct fi_info *all = *list, **to = list, *next;
    const char *var,
        *name = all ? tern_wire_ofi_iface_asked(all->fabric_attr->prov_name, &var) : NULL;
    bool whole = false;

    if (!name)
        return;
    for (const struct fi_info *i = all; i; i = i->next)
        whole |= strcmp(tern_wire_ofi_name_of(i), name) == 0;
    for (struct fi_info *i = all; i; i = next) {
        next = i->next;
        i->next = NULL;
        if (whole ? strcmp(tern_wire_ofi_name_of(i), name) == 0
                  : strncmp(tern_wire_ofi_name_of(i), name, strlen(name)) == 0) {
            *to = i;
            to = &i->next;
        } else {
            *to = NULL;
            fi_freeinfo(i);
        }
    }
    *to = NULL;
}

/* One entry an interface, IPv4 before IPv6, in an order that all nodes have. */
int tern_wire_ofi_candidates(struct fi_info *list, bool reaching, const char *names,
                             struct fi_info *to[CANDIDATES])
{
    int n = 0;

    for (int six = 0; six < 2; six++) {
        for (struct fi_info *i = list; i && n < CANDIDATES; i = i->next) {
            bool known = (i->addr_format == FI_SOCKADDR_IN6) != six;
            if (names ? !named(names, tern_wire_ofi_name_of(i)) : reaching && !reaches_others(i))
                continue;
            for (int k = 0; k < n && !known; k++)
                known = strcmp(tern_wire_ofi_name_of(to[k]), tern_wire_ofi_name_of(i)) == 0;
            if (!known)
                to[n++] = i;
        }
    }
    return n;
}
