/* A program of another user that reaches the ranks' addresses, and knows nothing else:
 *
 *     fabric-stranger RANKS SECONDS HOST:PORT...
 *
 * sends records of all kinds in every rank's name, and junk, and writes with the keys that a
 * careless peer would have, to libfabric's tcp endpoints that listen there, and opens connections
 * that say nothing.  Prints what it got rid of; exit status 0 when it could send at all.
 *
 * With STRANGER=claim it connects to each in the name of each other's port instead, so that
 * libfabric takes it for that one, started anew, and keeps what is sent to it.  With STRANGER=flip
 * it connects to both of two so, each in the other's name, says "between", and carries what they
 * say to each other, with one bit of every fifth short message changed; exit status 0 when it
 * changed any.  With STRANGER=hold it opens 10,000 connections, which say nothing, and holds them.
 */
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/rand.h"
#include "core/wire/ofi/libfabric.h"
#include "core/wire/ofi/record.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ROOM = 64 << 10, MANY = 200 };

static struct fi_info *info;
static struct fid_domain *domain;
static struct fid_cq *cq;
static struct fid_ep *ep;
static struct fid_mr *mr;
static char *room;
static uint64_t turn, sent, written, refused, connected;

static uint64_t draw(uint64_t what)
{
    return tern_rand_u64(4711, turn, what);
}

static int open_endpoint(const char *provider, struct fid_av **av)
{
    struct fi_info *h = fi_allocinfo();
    struct fi_av_attr av_attr = {.type = FI_AV_TABLE};
    struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_DATA, .size = 4096};
    struct fid_fabric *fabric;

    h->ep_attr->type = FI_EP_RDM;
    h->caps = FI_MSG | FI_RMA;
    h->mode = FI_CONTEXT | FI_CONTEXT2;
    h->addr_format = FI_SOCKADDR_IN;
    h->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    h->fabric_attr->prov_name = strdup(provider);
    room = calloc(1, ROOM);
    return fi_getinfo(tern_wire_libfabric_api(), NULL, NULL, 0, h, &info) ||
                   fi_fabric(info->fabric_attr, &fabric, NULL) ||
                   fi_domain(fabric, info, &domain, NULL) ||
                   fi_av_open(domain, &av_attr, av, NULL) ||
                   fi_cq_open(domain, &cq_attr, &cq, NULL) ||
                   fi_endpoint(domain, info, &ep, NULL) || fi_ep_bind(ep, &(*av)->fid, 0) ||
                   fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV) || fi_enable(ep) ||
                   fi_mr_reg(domain, room, ROOM, FI_SEND | FI_WRITE, 0, 99, 0, &mr, NULL)
               ? -1
               : 0;
}

/* What became of earlier ones does not matter. */
static void progress(void)
{
    struct fi_cq_data_entry e[16];
    struct fi_cq_err_entry bad = {0};

    for (int i = 0; i < 4; i++)
        if (fi_cq_read(cq, e, 16) == -FI_EAVAIL && fi_cq_readerr(cq, &bad, 0) > 0)
            refused++;
}

static size_t a_record(int ranks)
{
    struct record h = {.magic = RECORD_MAGIC,
                       .kind = (uint8_t)(1 + turn % (RECORD_KINDS - 1)),
                       .down = draw(1) % 4 ? 0 : (uint8_t)draw(2),
                       .sender = (uint32_t)(turn / RECORD_KINDS % (uint64_t)ranks),
                       .number = (uint32_t)(draw(3) % 64),
                       .limit = draw(4) % 2 ? UINT32_MAX : (uint32_t)draw(5),
                       .seen = (uint32_t)(draw(6) % 64),
                       .id = (uint32_t)(draw(7) % 1024 << 10),
                       .tag = tern_wire_tag((int)(draw(8) % 3), (int)(draw(9) % (uint64_t)ranks),
                                            (uint32_t)(draw(10) % 64), 0)};
    size_t more = h.kind == RECORD_EAGER     ? (h.bytes = (uint32_t)(draw(11) % 4096))
                  : h.kind == RECORD_READY   ? sizeof(struct record_ready)
                  : h.kind == RECORD_CONTROL ? sizeof(struct tern_wire_control)
                                             : 0;
    uint64_t guess[2] = {draw(12), draw(13)};

    if (turn % 3)
        memcpy(h.seal, guess, sizeof h.seal);
    memset(room, 'x', ROOM / 2);
    memcpy(room, &h, sizeof h);
    if (h.kind == RECORD_CONTROL)
        memcpy(room + sizeof h,
               &(struct tern_wire_control){.kind = (int32_t)(draw(14) % 8),
                                           .sender = (int32_t)h.sender},
               sizeof(struct tern_wire_control));
    return sizeof h + more;
}

static void attack(fi_addr_t to, int ranks)
{
    static const size_t lengths[] = {0, 4096};
    size_t n = a_record(ranks);

    if (turn % 7 == 0) {
        n = 1 + draw(20) % 9000;
        for (size_t i = 0; i < n; i++)
            room[i] = (char)draw(100 + i);
    }
    sent += fi_send(ep, room, n, fi_mr_desc(mr), to, room) == 0;
    uint64_t immediate = record_data(
        (uint32_t)draw(30),
        record_immediate(record_id((uint32_t)(draw(31) % 64), (uint32_t)(draw(32) % 64)),
                         (uint32_t)(draw(33) % 4)));
    written += fi_writedata(ep, room, lengths[turn % 2], fi_mr_desc(mr),
                            turn % 5 ? immediate : immediate & UINT32_MAX, to, 0, 1 + turn % 1000,
                            room) == 0;
    progress();
}

static void connections(const struct sockaddr_in *to)
{
    for (int i = 0; i < MANY; i++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (fd < 0)
            return;
        connected +=
            connect(fd, (const struct sockaddr *)to, sizeof *to) == 0 || errno == EINPROGRESS;
        if (i % 3 == 0)
            connected += send(fd, room, 100, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? 0 : 0;
        close(fd);
    }
}

/* ---------------------------------------------------------------- another's port */

/* How this libfabric asks for a connection: the bytes that it sends to a listener of ours. */
static size_t learn_request(struct fid_av *av, uint8_t *to, size_t size, in_port_t *own)
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), fd = -1;
    socklen_t len = sizeof here;
    struct sockaddr_in mine;
    size_t n = sizeof mine, got = 0;
    fi_addr_t at;

    if (bind(listener, (struct sockaddr *)&here, sizeof here) < 0 || listen(listener, 1) < 0 ||
        getsockname(listener, (struct sockaddr *)&here, &len) < 0 ||
        fi_av_insert(av, &here, 1, &at, 0, NULL) != 1 || fi_getname(&ep->fid, &mine, &n) != 0)
        return 0;
    *own = mine.sin_port;
    fcntl(listener, F_SETFL, O_NONBLOCK);
    for (int ms = 0; ms < 3000 && (fd < 0 || ms < 1000); ms++) {
        fi_send(ep, room, 8, fi_mr_desc(mr), at, room);
        progress();
        fd = fd < 0 ? accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC) : fd;
        ssize_t k = fd >= 0 ? recv(fd, to + got, size - got, 0) : 0;
        got += k > 0 ? (size_t)k : 0;
        tern_clock_sleep_ns(1000000);
    }
    return got;
}

/* A process that is taken for the one that listens at `port`. */
static int claim(const struct sockaddr_in *to, in_port_t port, uint8_t *request, size_t n,
                 in_port_t own)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), changed = 0;

    if (fd < 0 || connect(fd, (const struct sockaddr *)to, sizeof *to) < 0) {
        close(fd);
        return -1;
    }
    uint8_t with[512];
    memcpy(with, request, n);
    for (size_t i = 0; i + sizeof own <= n; i++)
        if (memcmp(with + i, &own, sizeof own) == 0 && ++changed)
            memcpy(with + i, &port, sizeof port);
    if (!changed || send(fd, with, n, MSG_NOSIGNAL) != (ssize_t)n) {
        close(fd);
        return -1;
    }
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

static int claim_all(struct fid_av *av, const struct sockaddr_in *to, int n, double seconds)
{
    enum { KEPT = 500 };
    static int kept[KEPT];
    uint8_t request[512], heard[4096];
    in_port_t own;
    size_t bytes = learn_request(av, request, sizeof request, &own);
    int64_t until = tern_clock_boot_ns() + (int64_t)(seconds * 1e9);
    unsigned long long claimed = 0, got = 0;

    memset(kept, -1, sizeof kept);
    for (unsigned k = 0; bytes && tern_clock_boot_ns() < until; k++) {
        unsigned a = k % (unsigned)n, b = k / (unsigned)n % (unsigned)n;
        int *at = &kept[k % KEPT];
        if (*at >= 0)
            close(*at);
        *at = a == b ? -1 : claim(&to[a], to[b].sin_port, request, bytes, own);
        claimed += *at >= 0;
        tern_clock_sleep_ns(5000000);
        for (int i = 0; i < KEPT; i++) {
            ssize_t more = kept[i] >= 0 ? recv(kept[i], heard, sizeof heard, 0) : 0;
            got += more > 0 ? (unsigned long long)more : 0;
        }
    }
    printf("%llu connections in others' names, %llu bytes heard\n", claimed, got);
    fflush(stdout);
    _exit(claimed && got ? 0 : 1);
}

/* The answer to a request: 32 bytes, of which the third and fourth tell how many more there are. */
static int read_answer(int fd)
{
    uint8_t head[32], more[4096];

    if (recv(fd, head, sizeof head, MSG_WAITALL) != sizeof head)
        return -1;
    ssize_t n = head[2] << 8 | head[3];
    return n <= (ssize_t)sizeof more && recv(fd, more, (size_t)n, MSG_WAITALL) == n ? 0 : -1;
}

/* One bit in the middle of every fifth short message that is whole here. */
static unsigned flip_some(uint8_t *p, size_t n)
{
    static unsigned seen;
    unsigned flipped = 0;
    struct record h;

    for (size_t at = 0; at + sizeof h <= n; at++) {
        memcpy(&h, p + at, sizeof h);
        if (h.magic != RECORD_MAGIC || h.kind != RECORD_EAGER || h.sender > 1 || !h.bytes ||
            h.bytes > n - at - sizeof h)
            continue;
        if (++seen % 5 == 0) {
            p[at + sizeof h + h.bytes / 2] ^= 0x10;
            flipped++;
        }
        at += sizeof h + h.bytes - 1;
    }
    return flipped;
}

static int send_all(int fd, const uint8_t *p, size_t n)
{
    while (n) {
        ssize_t k = send(fd, p, n, MSG_NOSIGNAL);
        if (k <= 0)
            return -1;
        p += k;
        n -= (size_t)k;
    }
    return 0;
}

static int flip_all(struct fid_av *av, const struct sockaddr_in *to, double seconds)
{
    static uint8_t heard[1 << 20];
    struct pollfd side[2] = {{-1, POLLIN, 0}, {-1, POLLIN, 0}};
    uint8_t request[512];
    in_port_t own;
    size_t bytes = learn_request(av, request, sizeof request, &own);
    unsigned long long carried = 0, flipped = 0;

    for (int i = 0; i < 2 && bytes; i++) {
        side[i].fd = claim(&to[i], to[!i].sin_port, request, bytes, own);
        if (side[i].fd < 0) {
            printf("no connection to port %d: %s\n", ntohs(to[i].sin_port), strerror(errno));
            return 1;
        }
        fcntl(side[i].fd, F_SETFL, 0);
    }
    bool on = bytes && read_answer(side[0].fd) == 0 && read_answer(side[1].fd) == 0;
    printf("%s\n", on ? "between" : "refused");
    fflush(stdout);
    while (on && poll(side, 2, (int)(1000 * seconds)) > 0) {
        for (int i = 0; i < 2 && on; i++) {
            ssize_t n = side[i].revents ? recv(side[i].fd, heard, sizeof heard, 0) : 0;
            on = n > 0 || !side[i].revents;
            if (n <= 0)
                continue;
            flipped += flip_some(heard, (size_t)n);
            carried += (unsigned long long)n;
            on = send_all(side[!i].fd, heard, (size_t)n) == 0;
        }
    }
    printf("%llu bytes carried, %llu messages changed\n", carried, flipped);
    fflush(stdout);
    _exit(flipped ? 0 : 1);
}

static int hold_all(const struct sockaddr_in *to, int n, double seconds)
{
    enum { HELD = 10000 };
    int held = 0;

    for (int i = 0; i < HELD; i++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0)
            break;
        held += connect(fd, (const struct sockaddr *)&to[i % n], sizeof *to) == 0 ||
                errno == EINPROGRESS;
        if (i % 100 == 0)
            tern_clock_sleep_ns(1000000);
    }
    tern_clock_sleep_ns((int64_t)(seconds * 1e9));
    printf("%d connections held\n", held);
    return held < HELD;
}

int main(int argc, char **argv)
{
    struct sockaddr_in to[64];
    fi_addr_t at[64];
    struct fid_av *av;
    int n = 0, ranks = argc > 3 ? atoi(argv[1]) : 0;

    for (int i = 3; i < argc && n < 64; i++) {
        char *colon = strrchr(argv[i], ':');
        to[n] = (struct sockaddr_in){.sin_family = AF_INET,
                                     .sin_port = htons((uint16_t)(colon ? atoi(colon + 1) : 0))};
        if (colon)
            *colon = '\0';
        if (!colon || inet_pton(AF_INET, argv[i], &to[n].sin_addr) != 1)
            return 2;
        n++;
    }
    if (n == 0 || ranks < 1) {
        fprintf(stderr, "usage: fabric-stranger RANKS SECONDS HOST:PORT...\n");
        return 2;
    }
    const char *way = getenv("STRANGER");
    if (way && strcmp(way, "hold") == 0)
        return hold_all(to, n, atof(argv[2]));
    setenv("FI_PROVIDER", "tcp,net", 0);
    if (open_endpoint("net", &av) < 0 && open_endpoint("tcp;ofi_rxm", &av) < 0) {
        fprintf(stderr, "fabric-stranger: no endpoint here\n");
        return 1;
    }
    if (way && strcmp(way, "claim") == 0)
        return claim_all(av, to, n, atof(argv[2]));
    if (way && strcmp(way, "flip") == 0 && n == 2)
        return flip_all(av, to, atof(argv[2]));
    for (int i = 0; i < n; i++)
        if (fi_av_insert(av, &to[i], 1, &at[i], 0, NULL) != 1)
            return 1;
    int64_t until = tern_clock_boot_ns() + (int64_t)(atof(argv[2]) * 1e9);
    for (; tern_clock_boot_ns() < until; turn++) {
        attack(at[turn % (uint64_t)n], ranks);
        if (turn % 500 == 0)
            connections(&to[turn / 500 % (uint64_t)n]);
    }
    printf("%llu records, %llu writes, %llu connections; %llu refused\n", (unsigned long long)sent,
           (unsigned long long)written, (unsigned long long)connected, (unsigned long long)refused);
    fflush(stdout);
    _exit(sent + written > 0 ? 0 : 1);
}
