#include "core/fabric/liveness.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/rand.h"
#include "core/fabric/ofi_record.h"

#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    MAGIC = 0x4c4e5254, /* "TRNL" */
    QUESTION = 1,
    ANSWER = 2,
    GREETINGS = 3,        /* rounds in which those are asked who have not answered yet... */
    GREETING_MS = 500,    /* ...so far apart */
    GREETED_AT_ONCE = 64, /* questions between two pauses of a millisecond */
};

_Static_assert((int)LIVENESS_KEY == (int)RECORD_SECRET, "compared as one");

struct datagram {
    uint8_t key[LIVENESS_KEY]; /* the receiver's */
    uint32_t magic, kind;
    int32_t rank; /* the sender's */
    uint32_t doing;
    int64_t patience_ns;
};

struct known {
    struct liveness_card card;
    _Atomic int64_t heard_ns, patience_ns;
    _Atomic int doing;
};

struct liveness {
    int rank, size, fd, family;
    int stop[2]; /* pipe: closed to end the thread */
    bool runs;
    pthread_t thread;
    uint8_t key[LIVENESS_KEY];
    _Atomic int64_t patience_ns;
    _Atomic int doing;
    struct known *ranks; /* [size] */
};

static void send_to(const struct liveness *l, const struct sockaddr *to, socklen_t n,
                    const struct datagram *d)
{
    /* Lost ones are asked again. */
    (void)sendto(l->fd, d, sizeof *d, MSG_DONTWAIT | MSG_NOSIGNAL, to, n);
}

static bool is_mapped(const uint8_t a[16])
{
    static const uint8_t prefix[12] = {[10] = 0xff, [11] = 0xff};

    return memcmp(a, prefix, sizeof prefix) == 0;
}

void tern_fabric_liveness_ask(struct liveness *l, int r)
{
    if (!l || r == l->rank || !l->ranks[r].card.port)
        return;
    const struct liveness_card *c = &l->ranks[r].card;
    struct datagram d = {.magic = MAGIC, .kind = QUESTION, .rank = l->rank};

    memcpy(d.key, c->key, sizeof d.key);
    for (int i = 0; i < c->n; i++) {
        if (l->family == AF_INET6) {
            struct sockaddr_in6 to = {.sin6_family = AF_INET6, .sin6_port = htons(c->port)};
            memcpy(&to.sin6_addr, c->address[i], 16);
            send_to(l, (const struct sockaddr *)&to, sizeof to, &d);
        } else if (is_mapped(c->address[i])) {
            struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(c->port)};
            memcpy(&to.sin_addr, c->address[i] + 12, 4);
            send_to(l, (const struct sockaddr *)&to, sizeof to, &d);
        }
    }
}

int64_t tern_fabric_liveness_heard(const struct liveness *l, int r)
{
    return l ? atomic_load_explicit(&l->ranks[r].heard_ns, memory_order_acquire) : 0;
}

int64_t tern_fabric_liveness_patience(const struct liveness *l, int r)
{
    return l ? atomic_load_explicit(&l->ranks[r].patience_ns, memory_order_relaxed) : 0;
}

enum tern_fabric_doing tern_fabric_liveness_doing(const struct liveness *l, int r)
{
    return l ? (enum tern_fabric_doing)atomic_load_explicit(&l->ranks[r].doing,
                                                            memory_order_relaxed)
             : TERN_FABRIC_COMPUTES;
}

void tern_fabric_liveness_tell(struct liveness *l, enum tern_fabric_doing doing,
                               int64_t patience_ns)
{
    if (!l)
        return;
    atomic_store_explicit(&l->doing, doing, memory_order_relaxed);
    atomic_store_explicit(&l->patience_ns, patience_ns, memory_order_relaxed);
}

/* ---------------------------------------------------------------- the thread */

static void answer(struct liveness *l, int r, const struct sockaddr_storage *from, socklen_t n)
{
    struct datagram d = {
        .magic = MAGIC,
        .kind = ANSWER,
        .rank = l->rank,
        .doing = (uint32_t)atomic_load_explicit(&l->doing, memory_order_relaxed),
        .patience_ns = atomic_load_explicit(&l->patience_ns, memory_order_relaxed),
    };

    memcpy(d.key, l->ranks[r].card.key, sizeof d.key);
    send_to(l, (const struct sockaddr *)from, n, &d);
}

static void heard(struct liveness *l, const struct datagram *d)
{
    static const int64_t most = 86400ll * 1000000000;
    struct known *k = &l->ranks[d->rank];

    atomic_store_explicit(&k->doing, d->doing < TERN_FABRIC_DOINGS ? (int)d->doing : 0,
                          memory_order_relaxed);
    atomic_store_explicit(&k->patience_ns,
                          d->patience_ns < 0      ? 0
                          : d->patience_ns > most ? most
                                                  : d->patience_ns,
                          memory_order_relaxed);
    atomic_store_explicit(&k->heard_ns, tern_clock_boot_ns(), memory_order_release);
}

static void read_all(struct liveness *l)
{
    struct sockaddr_storage from;
    struct datagram d;
    socklen_t n = sizeof from;

    for (;; n = sizeof from) {
        ssize_t k =
            recvfrom(l->fd, &d, sizeof d, MSG_DONTWAIT | MSG_TRUNC, (struct sockaddr *)&from, &n);
        if (k < 0 && (errno == EINTR || errno == ECONNREFUSED))
            continue; /* an address of this rank's that leads to somebody else */
        if (k < 0)
            return;
        if (k != (ssize_t)sizeof d || !tern_fabric_same_secret(d.key, l->key) || d.magic != MAGIC ||
            d.rank < 0 || d.rank >= l->size || d.rank == l->rank)
            continue;
        if (d.kind == QUESTION)
            answer(l, d.rank, &from, n);
        else if (d.kind == ANSWER)
            heard(l, &d);
    }
}

/* Everybody who has not answered yet is asked. */
static void greet(struct liveness *l)
{
    for (int i = 1, asked = 0; i < l->size; i++) {
        int r = (l->rank + i) % l->size; /* not all of them the same one at once */
        if (tern_fabric_liveness_heard(l, r))
            continue;
        tern_fabric_liveness_ask(l, r);
        if (++asked % GREETED_AT_ONCE == 0)
            tern_clock_sleep_ns(1000000);
    }
}

static void *run(void *arg)
{
    struct liveness *l = arg;
    struct pollfd fds[2] = {{.fd = l->fd, .events = POLLIN}, {.fd = l->stop[0]}};
    int rounds = 0;

    while (!fds[1].revents) {
        if (rounds < GREETINGS) {
            greet(l);
            rounds++;
        }
        const int64_t until = tern_clock_boot_ns() + GREETING_MS * 1000000ll;
        do {
            int wait = rounds < GREETINGS ? GREETING_MS : -1;
            if (poll(fds, 2, wait) > 0 && fds[0].revents)
                read_all(l);
        } while (!fds[1].revents && (rounds == GREETINGS || tern_clock_boot_ns() < until));
    }
    return NULL;
}

/* ---------------------------------------------------------------- opening, closing */

static void add_address(struct liveness_card *c, const struct sockaddr *a)
{
    uint8_t *to = c->address[c->n];

    if (a->sa_family == AF_INET) {
        memset(to, 0, 16);
        to[10] = to[11] = 0xff;
        memcpy(to + 12, &((const struct sockaddr_in *)(const void *)a)->sin_addr, 4);
    } else {
        memcpy(to, &((const struct sockaddr_in6 *)(const void *)a)->sin6_addr, 16);
    }
    c->n++;
}

static bool is_local(const struct sockaddr *a) /* to its link: without the link it says nothing */
{
    return a->sa_family == AF_INET6 &&
           IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr);
}

/* Of interfaces that are up, first those that lead to other machines. */
static void own_addresses(struct liveness_card *c)
{
    struct ifaddrs *list = NULL;

    if (getifaddrs(&list) < 0)
        return;
    for (int loop = 0; loop < 2; loop++)
        for (struct ifaddrs *i = list; i && c->n < LIVENESS_ADDRESSES; i = i->ifa_next)
            if (i->ifa_addr && (i->ifa_flags & IFF_UP) && (loop ? c->n == 0 : 1) &&
                !!(i->ifa_flags & IFF_LOOPBACK) == loop &&
                (i->ifa_addr->sa_family == AF_INET || i->ifa_addr->sa_family == AF_INET6) &&
                !is_local(i->ifa_addr))
                add_address(c, i->ifa_addr);
    freeifaddrs(list);
}

/* Both families by one socket; IPv4 alone where there is no other. */
static int open_socket(struct liveness *l, struct liveness_card *c)
{
    struct sockaddr_storage own = {0};
    socklen_t n = sizeof own;
    const int families[] = {AF_INET6, AF_INET};

    for (int i = 0; i < 2; i++) {
        l->family = families[i];
        l->fd = socket(l->family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (l->fd < 0)
            continue;
        if (l->family == AF_INET6)
            setsockopt(l->fd, IPPROTO_IPV6, IPV6_V6ONLY, &(int){0}, sizeof(int));
        own = (struct sockaddr_storage){.ss_family = (sa_family_t)l->family};
        if (bind(l->fd, (struct sockaddr *)&own,
                 l->family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                       : sizeof(struct sockaddr_in)) == 0 &&
            getsockname(l->fd, (struct sockaddr *)&own, &n) == 0) {
            c->port = ntohs(l->family == AF_INET6 ? ((struct sockaddr_in6 *)&own)->sin6_port
                                                  : ((struct sockaddr_in *)&own)->sin_port);
            return 0;
        }
        close(l->fd);
        l->fd = -1;
    }
    return -1;
}

struct liveness *tern_fabric_liveness_open(int rank, int size, struct liveness_card *card)
{
    struct liveness *l = calloc(1, sizeof *l);

    *card = (struct liveness_card){0};
    if (!l)
        return NULL;
    *l = (struct liveness){.rank = rank, .size = size, .fd = -1, .stop = {-1, -1}};
    tern_rand_system(l->key, sizeof l->key);
    memcpy(card->key, l->key, sizeof card->key);
    l->ranks = calloc((size_t)size, sizeof *l->ranks);
    if (!l->ranks || pipe2(l->stop, O_CLOEXEC) < 0 || open_socket(l, card) < 0) {
        tern_info("a rank that is stopped is found by its deadline alone: %s", strerror(errno));
        tern_fabric_liveness_close(l);
        *card = (struct liveness_card){0};
        return NULL;
    }
    own_addresses(card);
    return l;
}

void tern_fabric_liveness_meet(struct liveness *l, int r, const struct liveness_card *card)
{
    if (!l)
        return;
    l->ranks[r].card = *card;
    if (card->n > LIVENESS_ADDRESSES)
        l->ranks[r].card = (struct liveness_card){0};
}

void tern_fabric_liveness_start(struct liveness *l)
{
    sigset_t all, old;

    if (!l || l->size < 2)
        return;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old); /* signals are the rank's own */
    int rc = pthread_create(&l->thread, NULL, run, l);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    l->runs = rc == 0;
    if (rc)
        tern_info("the others cannot ask whether this rank runs: %s", strerror(rc));
}

void tern_fabric_liveness_close(struct liveness *l)
{
    if (!l)
        return;
    if (l->stop[1] >= 0)
        close(l->stop[1]);
    if (l->runs)
        pthread_join(l->thread, NULL);
    if (l->stop[0] >= 0)
        close(l->stop[0]);
    if (l->fd >= 0)
        close(l->fd);
    free(l->ranks);
    free(l);
}
