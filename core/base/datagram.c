#include "core/base/datagram.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const struct in6_addr *in6(const struct sockaddr *a)
{
    return &((const struct sockaddr_in6 *)(const void *)a)->sin6_addr;
}

static const struct in_addr *in4(const struct sockaddr *a)
{
    return &((const struct sockaddr_in *)(const void *)a)->sin_addr;
}

/* ::ffff:a.b.c.d */
static bool is_mapped(const uint8_t a[16])
{
    static const uint8_t prefix[12] = {[10] = 0xff, [11] = 0xff};

    return memcmp(a, prefix, sizeof prefix) == 0;
}

static void add_address(struct tern_datagram_place *p, const struct sockaddr *a)
{
    uint8_t *to = p->address[p->n++];

    if (a->sa_family == AF_INET6) {
        memcpy(to, in6(a), 16);
        return;
    }
    memset(to, 0, 16);
    to[10] = to[11] = 0xff;
    memcpy(to + 12, in4(a), 4);
}

/* An address of the link alone says nothing without the link. */
static bool is_usable(const struct ifaddrs *i, bool loopback)
{
    const struct sockaddr *a = i->ifa_addr;

    return a && (i->ifa_flags & IFF_UP) && !!(i->ifa_flags & IFF_LOOPBACK) == loopback &&
           (a->sa_family == AF_INET ||
            (a->sa_family == AF_INET6 && !IN6_IS_ADDR_LINKLOCAL(in6(a))));
}

static void own_addresses(struct tern_datagram_place *p)
{
    struct ifaddrs *list = NULL;

    if (getifaddrs(&list) < 0)
        return;
    for (int loopback = 0; loopback < 2 && p->n == 0; loopback++)
        for (struct ifaddrs *i = list; i && p->n < TERN_DATAGRAM_ADDRESSES; i = i->ifa_next)
            if (is_usable(i, loopback))
                add_address(p, i->ifa_addr);
    freeifaddrs(list);
}

/* Both families by one socket; IPv4 alone where there is no other. */
int tern_datagram_open(struct tern_datagram *d, struct tern_datagram_place *place)
{
    static const int families[] = {AF_INET6, AF_INET};

    for (int i = 0; i < 2; i++) {
        struct sockaddr_in6 own6 = {.sin6_family = AF_INET6};
        struct sockaddr_in own4 = {.sin_family = AF_INET};
        d->family = families[i];
        struct sockaddr *own =
            d->family == AF_INET6 ? (struct sockaddr *)&own6 : (struct sockaddr *)&own4;
        socklen_t n = d->family == AF_INET6 ? sizeof own6 : sizeof own4;
        d->fd = socket(d->family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (d->fd < 0)
            continue;
        if (d->family == AF_INET6)
            setsockopt(d->fd, IPPROTO_IPV6, IPV6_V6ONLY, &(int){0}, sizeof(int));
        if (bind(d->fd, own, n) == 0 && getsockname(d->fd, own, &n) == 0) {
            if (place) {
                *place = (struct tern_datagram_place){
                    .port = ntohs(d->family == AF_INET6 ? own6.sin6_port : own4.sin_port)};
                own_addresses(place);
            }
            return 0;
        }
        tern_datagram_close(d);
    }
    return -1;
}

void tern_datagram_close(struct tern_datagram *d)
{
    if (d->fd >= 0)
        close(d->fd);
    d->fd = -1;
}

void tern_datagram_send(const struct tern_datagram *d, const struct tern_datagram_place *to,
                        const void *data, size_t n)
{
    for (int i = 0; i < to->n; i++) {
        struct sockaddr_in6 a6 = {.sin6_family = AF_INET6, .sin6_port = htons(to->port)};
        struct sockaddr_in a4 = {.sin_family = AF_INET, .sin_port = htons(to->port)};
        memcpy(&a6.sin6_addr, to->address[i], 16);
        memcpy(&a4.sin_addr, to->address[i] + 12, 4);
        if (d->family == AF_INET6)
            (void)sendto(d->fd, data, n, MSG_DONTWAIT | MSG_NOSIGNAL, (struct sockaddr *)&a6,
                         sizeof a6);
        else if (is_mapped(to->address[i]))
            (void)sendto(d->fd, data, n, MSG_DONTWAIT | MSG_NOSIGNAL, (struct sockaddr *)&a4,
                         sizeof a4);
    }
}
