#include "core/vcluster/net.h"

#include "core/base/assert.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_addr.h>
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

/* The same address on another interface's network. */
static uint32_t on(int nic, uint32_t address)
{
    return address + ((uint32_t)nic << (32 - NET_BITS));
}

/* The head's end of a pair. */
static char *pair_name(char to[IF_NAMESIZE], int i, int nic)
{
    snprintf(to, IF_NAMESIZE, nic ? "v%d.%d" : "v%d", i, nic);
    return to;
}

static char *node_device(char to[IF_NAMESIZE], int nic)
{
    snprintf(to, IF_NAMESIZE, "eth%d", nic);
    return to;
}

/* Locally administered MACs, made from the numbers: 02:<side>:<nic>:00:<i>. */
static void mac_of(uint8_t mac[6], int side, int nic, int i)
{
    const uint8_t m[6] = {0x02, (uint8_t)side, (uint8_t)nic, 0, (uint8_t)(i >> 8), (uint8_t)i};

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

/* Without a route to its network: the head routes between nodes. */
static int add_address(int fd, int index, uint32_t a, int bits)
{
    struct message m;
    const uint32_t flags = IFA_F_NOPREFIXROUTE;
    struct ifaddrmsg i = {
        .ifa_family = AF_INET, .ifa_prefixlen = (unsigned char)bits, .ifa_index = (uint32_t)index};

    begin(&m, RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, &i, sizeof i);
    put_ip(&m, IFA_LOCAL, a);
    put_ip(&m, IFA_ADDRESS, a);
    put(&m, IFA_FLAGS, &flags, sizeof flags);
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

static int add_pair(int fd, const char *name, const uint8_t mac[6], const char *peer_name,
                    const uint8_t peer_mac[6], pid_t peer_pid)
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
    put(&m, IFLA_IFNAME, peer_name, strlen(peer_name) + 1);
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

int tern_vcluster_net_setup_head(int nics, struct tern_err *err)
{
    int fd = open_netlink(err), rc = 0;
    uint8_t mac[6], peer_mac[6];

    if (fd < 0)
        return -1;
    no_ipv6();
    write_sysctl("/proc/sys/net/ipv4/ip_forward", "1");
    mac_of(mac, 0, 0, 0);
    mac_of(peer_mac, 1, 0, 0);
    /* Not on lo: mpirun takes no loopback device for one that other nodes can reach. */
    if (set_up(fd, (int)if_nametoindex("lo")) < 0 ||
        add_pair(fd, "v0", mac, "eth0", peer_mac, getpid()) < 0 ||
        set_up(fd, (int)if_nametoindex("eth0")) < 0)
        rc = -1;
    for (int nic = 0; nic < nics && rc == 0; nic++)
        rc = add_address(fd, (int)if_nametoindex("eth0"), on(nic, HEAD), 32);
    if (rc < 0)
        tern_err_sys(err, "head: cannot set up its address");
    close(fd);
    return rc;
}

static int link_one(int fd, int i, int nic, pid_t pid)
{
    uint8_t mac[6], peer_mac[6];
    char name[IF_NAMESIZE], peer[IF_NAMESIZE];
    int rc;

    pair_name(name, i, nic);
    mac_of(mac, 0, nic, i);
    mac_of(peer_mac, 1, nic, i);
    node_device(peer, nic);
    /* The kernel takes the pair of a node that was cut off away in its own time, which on a busy
     * machine is seconds. */
    rc = add_pair(fd, name, mac, peer, peer_mac, pid);
    if (rc < 0 && errno == EEXIST && (remove_link(fd, name) == 0 || errno == ENODEV))
        rc = add_pair(fd, name, mac, peer, peer_mac, pid);
    if (rc < 0)
        return rc;
    const int index = (int)if_nametoindex(name);
    const uint32_t node = on(nic, FIRST + (uint32_t)i);
    rc = add_route(fd, index, node, 32, 0, on(nic, HEAD));
    return rc < 0 ? rc : add_neighbour(fd, index, node, peer_mac);
}

int tern_vcluster_net_link_node(int i, int nics, pid_t pid, struct tern_err *err)
{
    int fd = open_netlink(err), rc = 0;

    if (fd < 0)
        return -1;
    for (int nic = 0; nic < nics && rc == 0; nic++)
        rc = link_one(fd, i, nic, pid);
    if (rc < 0)
        tern_err_sys(err, "node %d: cannot make its network links", i);
    close(fd);
    return rc;
}

static int set_up_one(int fd, int i, int nic, int bits)
{
    char name[IF_NAMESIZE];
    const int eth = (int)if_nametoindex(node_device(name, nic));
    const uint32_t head = on(nic, HEAD);
    uint8_t mac[6];

    mac_of(mac, 0, nic, i);
    if (set_up(fd, eth) < 0 || add_address(fd, eth, on(nic, FIRST + (uint32_t)i), bits) < 0 ||
        add_route(fd, eth, head, 32, 0, 0) < 0 ||
        add_route(fd, eth, on(nic, NET), NET_BITS, head, 0) < 0)
        return -1;
    return add_neighbour(fd, eth, head, mac);
}

int tern_vcluster_net_setup_node(int i, int nics, struct tern_err *err)
{
    int fd = open_netlink(err), rc = 0;
    char name[IF_NAMESIZE];
    int nic = 0;

    if (fd < 0)
        return -1;
    no_ipv6();
    if (set_up(fd, (int)if_nametoindex("lo")) < 0)
        rc = tern_err_sys(err, "node %d: cannot set up lo", i);
    /* Of several, those on one network are known by its prefix. */
    for (; nic < nics && rc == 0; nic++)
        if (set_up_one(fd, i, nic, nics > 1 ? NET_BITS : 32) < 0)
            rc = tern_err_sys(err, "node %d: cannot set up %s", i, node_device(name, nic));
    close(fd);
    return rc;
}

/* A frame for a MAC that no device has is dropped without a word, as by a cable that is cut: no
 * error reaches the sender. */
static int reach(int fd, const char *device, uint32_t address, const uint8_t right[6], bool reach)
{
    static const uint8_t no_device[6] = {0x02, 0xff, 0, 0, 0, 0};

    return add_neighbour(fd, (int)if_nametoindex(device), address, reach ? right : no_device);
}

/* Of each interface of node `i`, from the head (`side` 1, the node's) or from the node (0). */
static int reach_all(int i, int nics, int side, bool right, struct tern_err *err)
{
    int fd = open_netlink(err), rc = 0;
    char name[IF_NAMESIZE];
    uint8_t mac[6];

    if (fd < 0)
        return -1;
    for (int nic = 0; nic < nics && rc == 0; nic++) {
        mac_of(mac, side, nic, i);
        rc = reach(fd, side ? pair_name(name, i, nic) : node_device(name, nic),
                   on(nic, side ? FIRST + (uint32_t)i : HEAD), mac, right);
    }
    if (rc < 0)
        tern_err_sys(err, "node %d: cannot change its network links", i);
    close(fd);
    return rc;
}

int tern_vcluster_net_reach_node(int i, int nics, bool right, struct tern_err *err)
{
    return reach_all(i, nics, /* side= */ 1, right, err);
}

int tern_vcluster_net_reach_head(int i, int nics, bool right, struct tern_err *err)
{
    return reach_all(i, nics, /* side= */ 0, right, err);
}
