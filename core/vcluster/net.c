#include "core/vcluster/net.h"

#include "core/base/assert.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_link.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { NET = 0x0ac80000 /* 10.200.0.0 */, HEAD = NET + 1, FIRST = NET + 256, NET_BITS = 16 };

/* One request: 1 KiB holds the longest of them (a veth pair, about 200 bytes). */
struct message {
    struct nlmsghdr h;
    char body[1024];
};

char *tern_vcluster_net_address(char *to, size_t n, int i)
{
    uint32_t a = i ? FIRST + (uint32_t)i : HEAD;

    tern_assert(i >= 0 && i < (1 << (32 - NET_BITS)) - 256, "node %d", i);
    snprintf(to, n, "%u.%u.%u.%u", a >> 24, a >> 16 & 255, a >> 8 & 255, a & 255);
    return to;
}

/* Locally administered MACs, made from the number: 02:<side>:00:00:<i>. */
static void mac_of(uint8_t mac[6], int side, int i)
{
    const uint8_t m[6] = {0x02, (uint8_t)side, 0, 0, (uint8_t)(i >> 8), (uint8_t)i};

    memcpy(mac, m, sizeof m);
}

static void begin(struct message *m, int type, int flags, const void *head, size_t len)
{
    memset(m, 0, sizeof *m);
    m->h.nlmsg_type = (uint16_t)type;
    m->h.nlmsg_flags = (uint16_t)(NLM_F_REQUEST | NLM_F_ACK | flags);
    memcpy(m->body, head, len);
    m->h.nlmsg_len = NLMSG_LENGTH(NLMSG_ALIGN(len));
}

static struct rtattr *put(struct message *m, int type, const void *data, size_t len)
{
    struct rtattr *a = (struct rtattr *)((char *)m + m->h.nlmsg_len);

    a->rta_type = (uint16_t)type;
    a->rta_len = (uint16_t)RTA_LENGTH(len);
    if (len)
        memcpy(RTA_DATA(a), data, len);
    m->h.nlmsg_len += RTA_SPACE(len);
    return a;
}

/* Close an attribute that holds those put since. */
static void nest_end(struct message *m, struct rtattr *nest)
{
    nest->rta_len = (uint16_t)((char *)m + m->h.nlmsg_len - (char *)nest);
}

static void put_ip(struct message *m, int type, uint32_t a)
{
    a = htonl(a);
    put(m, type, &a, sizeof a);
}

/* Send and wait for the kernel's answer: 0, or -1 with errno. */
static int ask(int fd, struct message *m)
{
    struct {
        struct nlmsghdr h;
        struct nlmsgerr e;
        char rest[2048];
    } answer;

    if (send(fd, m, m->h.nlmsg_len, 0) < 0)
        return -1;
    ssize_t n;
    do
        n = recv(fd, &answer, sizeof answer, 0);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return -1;
    if (answer.h.nlmsg_type != NLMSG_ERROR || n < (ssize_t)NLMSG_LENGTH(sizeof answer.e.error)) {
        errno = EPROTO;
        return -1;
    }
    errno = -answer.e.error;
    return answer.e.error ? -1 : 0;
}

static int open_netlink(struct tern_err *err)
{
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

    if (fd < 0)
        tern_err_sys(err, "cannot open a netlink socket");
    return fd;
}

static int set_up(int fd, int index)
{
    struct message m;
    struct ifinfomsg i = {.ifi_index = index, .ifi_flags = IFF_UP, .ifi_change = IFF_UP};

    begin(&m, RTM_NEWLINK, 0, &i, sizeof i);
    return ask(fd, &m);
}

static int add_address(int fd, int index, uint32_t a)
{
    struct message m;
    struct ifaddrmsg i = {.ifa_family = AF_INET, .ifa_prefixlen = 32, .ifa_index = (uint32_t)index};

    begin(&m, RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, &i, sizeof i);
    put_ip(&m, IFA_LOCAL, a);
    put_ip(&m, IFA_ADDRESS, a);
    return ask(fd, &m);
}

/* To `to`/`bits` by the device, through `via` when it is not 0, from `from` when it is not 0. */
static int add_route(int fd, int index, uint32_t to, int bits, uint32_t via, uint32_t from)
{
    struct message m;
    struct rtmsg r = {.rtm_family = AF_INET,
                      .rtm_dst_len = (unsigned char)bits,
                      .rtm_table = RT_TABLE_MAIN,
                      .rtm_protocol = RTPROT_STATIC,
                      .rtm_scope = via ? RT_SCOPE_UNIVERSE : RT_SCOPE_LINK,
                      .rtm_type = RTN_UNICAST};

    begin(&m, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, &r, sizeof r);
    put_ip(&m, RTA_DST, to);
    if (via)
        put_ip(&m, RTA_GATEWAY, via);
    if (from)
        put_ip(&m, RTA_PREFSRC, from);
    put(&m, RTA_OIF, &index, sizeof index);
    return ask(fd, &m);
}

static int add_neighbour(int fd, int index, uint32_t a, const uint8_t mac[6])
{
    struct message m;
    struct ndmsg n = {.ndm_family = AF_INET, .ndm_ifindex = index, .ndm_state = NUD_PERMANENT};

    begin(&m, RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE, &n, sizeof n);
    put_ip(&m, NDA_DST, a);
    put(&m, NDA_LLADDR, mac, 6);
    return ask(fd, &m);
}

static int add_pair(int fd, const char *name, const uint8_t mac[6], const uint8_t peer_mac[6],
                    pid_t peer_pid)
{
    struct message m;
    struct ifinfomsg i = {.ifi_flags = IFF_UP, .ifi_change = IFF_UP}, peer = {0};
    uint32_t pid = (uint32_t)peer_pid;

    begin(&m, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &i, sizeof i);
    put(&m, IFLA_IFNAME, name, strlen(name) + 1);
    put(&m, IFLA_ADDRESS, mac, 6);
    struct rtattr *info = put(&m, IFLA_LINKINFO, NULL, 0);
    put(&m, IFLA_INFO_KIND, "veth", 4);
    struct rtattr *data = put(&m, IFLA_INFO_DATA, NULL, 0);
    struct rtattr *other = put(&m, VETH_INFO_PEER, &peer, sizeof peer);
    put(&m, IFLA_IFNAME, "eth0", 5);
    put(&m, IFLA_ADDRESS, peer_mac, 6);
    put(&m, IFLA_NET_NS_PID, &pid, sizeof pid);
    nest_end(&m, other);
    nest_end(&m, data);
    nest_end(&m, info);
    return ask(fd, &m);
}

static int remove_link(int fd, const char *name)
{
    struct message m;
    struct ifinfomsg i = {0};

    begin(&m, RTM_DELLINK, 0, &i, sizeof i);
    put(&m, IFLA_IFNAME, name, strlen(name) + 1);
    return ask(fd, &m);
}

static void write_sysctl(const char *path, const char *value)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);

    if (fd >= 0) {
        if (write(fd, value, strlen(value)) < 0)
            errno = 0; /* IPv6 may be absent; a missing ip_forward shows as nodes not idle */
        close(fd);
    }
}

/* Without IPv6, links are usable at once: no duplicate address detection. */
static void no_ipv6(void)
{
    write_sysctl("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
    write_sysctl("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
}

int tern_vcluster_net_setup_head(struct tern_err *err)
{
    int fd = open_netlink(err), rc = -1;
    uint8_t mac[6], peer_mac[6];

    if (fd < 0)
        return -1;
    no_ipv6();
    write_sysctl("/proc/sys/net/ipv4/ip_forward", "1");
    mac_of(mac, 0, 0);
    mac_of(peer_mac, 1, 0);
    /* Not on lo: mpirun takes no loopback device for one that other nodes can reach. */
    if (set_up(fd, (int)if_nametoindex("lo")) < 0 ||
        add_pair(fd, "v0", mac, peer_mac, getpid()) < 0 ||
        set_up(fd, (int)if_nametoindex("eth0")) < 0 ||
        add_address(fd, (int)if_nametoindex("eth0"), HEAD) < 0)
        tern_err_sys(err, "head: cannot set up its address");
    else
        rc = 0;
    close(fd);
    return rc;
}

int tern_vcluster_net_link_node(int i, pid_t pid, struct tern_err *err)
{
    int fd = open_netlink(err), rc = -1;
    uint8_t mac[6], peer_mac[6];
    char name[IF_NAMESIZE];

    if (fd < 0)
        return -1;
    snprintf(name, sizeof name, "v%d", i);
    mac_of(mac, 0, i);
    mac_of(peer_mac, 1, i);
    /* The kernel takes the pair of a node that was cut off away in its own time, which on a busy
     * machine is seconds. */
    rc = add_pair(fd, name, mac, peer_mac, pid);
    if (rc < 0 && errno == EEXIST && (remove_link(fd, name) == 0 || errno == ENODEV))
        rc = add_pair(fd, name, mac, peer_mac, pid);
    int index = rc == 0 ? (int)if_nametoindex(name) : 0;
    if (rc == 0)
        rc = add_route(fd, index, FIRST + (uint32_t)i, 32, 0, HEAD);
    if (rc == 0)
        rc = add_neighbour(fd, index, FIRST + (uint32_t)i, peer_mac);
    if (rc < 0)
        tern_err_sys(err, "node %d: cannot make its network link", i);
    close(fd);
    return rc;
}

int tern_vcluster_net_setup_node(int i, struct tern_err *err)
{
    int fd = open_netlink(err), rc = -1;
    int lo = (int)if_nametoindex("lo"), eth = (int)if_nametoindex("eth0");
    uint8_t mac[6];

    if (fd < 0)
        return -1;
    mac_of(mac, 0, i);
    no_ipv6();
    if (set_up(fd, lo) < 0 || set_up(fd, eth) < 0 ||
        add_address(fd, eth, FIRST + (uint32_t)i) < 0 || add_route(fd, eth, HEAD, 32, 0, 0) < 0 ||
        add_route(fd, eth, NET, NET_BITS, HEAD, 0) < 0 || add_neighbour(fd, eth, HEAD, mac) < 0)
        tern_err_sys(err, "node %d: cannot set up eth0", i);
    else
        rc = 0;
    close(fd);
    return rc;
}

/* A frame for a MAC that no device has is dropped without a word, as by a cable that is cut: no
 * error reaches the sender. */
static int reach(const char *device, uint32_t address, int side, int i, bool right,
                 struct tern_err *err)
{
    int fd = open_netlink(err), rc = -1;
    uint8_t mac[6];

    if (fd < 0)
        return -1;
    mac_of(mac, right ? side : 0xff, i);
    rc = add_neighbour(fd, (int)if_nametoindex(device), address, mac);
    if (rc < 0)
        tern_err_sys(err, "node %d: cannot change its network link", i);
    close(fd);
    return rc;
}

int tern_vcluster_net_reach_node(int i, bool right, struct tern_err *err)
{
    char name[IF_NAMESIZE];

    snprintf(name, sizeof name, "v%d", i);
    return reach(name, FIRST + (uint32_t)i, /* side= */ 1, i, right, err);
}

int tern_vcluster_net_reach_head(int i, bool right, struct tern_err *err)
{
    return reach("eth0", HEAD, /* side= */ 0, i, right, err);
}
