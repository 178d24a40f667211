#include "core/fabric/liveness.h"

#include "core/base/clock.h"
#include "core/base/hash.h"
#include "core/base/log.h"
#include "core/base/process.h"
#include "core/base/rand.h"

#include <errno.h>
#include <fcntl.h>
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
    GREETINGS = 3,        /* rounds of questions to ranks that have not answered yet... */
    GREETING_MS = 500,    /* ...so far apart */
    GREETED_AT_ONCE = 64, /* questions between two pauses of a millisecond */
};

struct datagram {
    uint8_t key[LIVENESS_KEY]; /* the receiver's */
    uint32_t magic, kind;
    int32_t rank; /* the sender's */
    uint32_t doing;
    int64_t patience_ns;
    int64_t age_ns; /* of its work: clocks of nodes differ */
};

struct known {
    struct liveness_card card;
    _Atomic int64_t heard_ns, patience_ns, since_ns;
    _Atomic int doing;
};

struct liveness {
    int rank, size;
    struct tern_datagram socket;
    int stop[2]; /* pipe: closed to end the thread */
    bool runs;
    pthread_t thread;
    uint8_t key[LIVENESS_KEY];
    _Atomic int64_t patience_ns, since_ns;
    _Atomic int doing;
    struct tern_clock_gaps gaps; /* of this process, by the thread's ticks */
    struct known *ranks;         /* [size] */
};

void tern_fabric_liveness_probe(struct liveness *l, int r)
{
    struct datagram d = {.magic = MAGIC, .kind = QUESTION};

    if (!l || r == l->rank || !l->ranks[r].card.place.port)
        return;
    d.rank = l->rank;
    memcpy(d.key, l->ranks[r].card.key, sizeof d.key);
    tern_datagram_send(&l->socket, &l->ranks[r].card.place, &d, sizeof d);
}

int64_t tern_fabric_liveness_heard(const struct liveness *l, int r)
{
    return l ? atomic_load_explicit(&l->ranks[r].heard_ns, memory_order_acquire) : 0;
}

int64_t tern_fabric_liveness_patience(const struct liveness *l, int r)
{
    return l ? atomic_load_explicit(&l->ranks[r].patience_ns, memory_order_relaxed) : 0;
}

int64_t tern_fabric_liveness_since(const struct liveness *l, int r)
{
    return l ? atomic_load_explicit(&l->ranks[r].since_ns, memory_order_relaxed) : 0;
}

enum tern_fabric_activity tern_fabric_liveness_doing(const struct liveness *l, int r)
{
    return l ? (enum tern_fabric_activity)atomic_load_explicit(&l->ranks[r].doing,
                                                               memory_order_relaxed)
             : TERN_FABRIC_COMPUTES;
}

void tern_fabric_liveness_tell(struct liveness *l, enum tern_fabric_activity doing,
                               int64_t patience_ns)
{
    if (!l)
        return;
    atomic_store_explicit(&l->doing, doing, memory_order_relaxed);
    atomic_store_explicit(&l->patience_ns, patience_ns, memory_order_relaxed);
    atomic_store_explicit(&l->since_ns, tern_clock_boot_ns(), memory_order_relaxed);
}

int64_t tern_fabric_liveness_lost_ns(struct liveness *l, int64_t now_ns)
{
    return l ? tern_clock_gaps_lost_ns(&l->gaps, now_ns) : 0;
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
        .age_ns = tern_clock_boot_ns() - atomic_load_explicit(&l->since_ns, memory_order_relaxed),
    };

    memcpy(d.key, l->ranks[r].card.key, sizeof d.key);
    (void)sendto(l->socket.fd, &d, sizeof d, MSG_DONTWAIT | MSG_NOSIGNAL,
                 (const struct sockaddr *)from, n);
}

static void heard(struct liveness *l, const struct datagram *d)
{
    static const int64_t most = 86400ll * 1000000000;
    const int64_t now = tern_clock_boot_ns();
    struct known *k = &l->ranks[d->rank];

    atomic_store_explicit(&k->doing, d->doing < TERN_FABRIC_DOINGS ? (int)d->doing : 0,
                          memory_order_relaxed);
    atomic_store_explicit(&k->patience_ns,
                          d->patience_ns < 0      ? 0
                          : d->patience_ns > most ? most
                                                  : d->patience_ns,
                          memory_order_relaxed);
    atomic_store_explicit(&k->since_ns, d->age_ns < 0 || d->age_ns > now ? 0 : now - d->age_ns,
                          memory_order_relaxed);
    atomic_store_explicit(&k->heard_ns, now, memory_order_release);
}

static void read_all(struct liveness *l)
{
    struct sockaddr_storage from;
    struct datagram d;
    socklen_t n = sizeof from;

    for (;; n = sizeof from) {
        ssize_t k = recvfrom(l->socket.fd, &d, sizeof d, MSG_DONTWAIT | MSG_TRUNC,
                             (struct sockaddr *)&from, &n);
        if (k < 0 && (errno == EINTR || errno == ECONNREFUSED))
            continue; /* an address of this rank's that leads to another process */
        if (k < 0)
            return;
        if (k != (ssize_t)sizeof d || !tern_hash_same(d.key, l->key, sizeof l->key) ||
            d.magic != MAGIC || d.rank < 0 || d.rank >= l->size || d.rank == l->rank)
            continue;
        if (d.kind == QUESTION)
            answer(l, d.rank, &from, n);
        else if (d.kind == ANSWER)
            heard(l, &d);
    }
}

/* A question to every rank that has not answered yet. */
static void greet(struct liveness *l)
{
    for (int i = 1, asked = 0; i < l->size; i++) {
        int r = (l->rank + i) % l->size; /* not all of them the same one at once */
        if (tern_fabric_liveness_heard(l, r))
            continue;
        tern_fabric_liveness_probe(l, r);
        if (++asked % GREETED_AT_ONCE == 0)
            tern_clock_sleep_ns(1000000);
    }
}

static void *run(void *arg)
{
    struct liveness *l = arg;
    struct pollfd fds[2] = {{.fd = l->socket.fd, .events = POLLIN}, {.fd = l->stop[0]}};
    int rounds = 0;

    /* Otherwise each message of a rank with one thread costs some 2 % more. */
    (void)tern_process_unshare_files((int[]){fds[0].fd, fds[1].fd}, 2);
    while (!fds[1].revents) {
        if (rounds < GREETINGS) {
            greet(l);
            rounds++;
        }
        const int64_t until = tern_clock_boot_ns() + GREETING_MS * 1000000ll;
        do {
            if (poll(fds, 2, TERN_CLOCK_TICK_MS) > 0 && fds[0].revents)
                read_all(l);
            tern_clock_gaps_tick(&l->gaps, tern_clock_boot_ns());
        } while (!fds[1].revents && (rounds == GREETINGS || tern_clock_boot_ns() < until));
    }
    return NULL;
}

/* ---------------------------------------------------------------- opening, closing */

struct liveness *tern_fabric_liveness_open(int rank, int size, struct liveness_card *card)
{
    struct liveness *l = calloc(1, sizeof *l);

    *card = (struct liveness_card){0};
    if (!l)
        return NULL;
    *l = (struct liveness){.rank = rank, .size = size, .socket = {.fd = -1}, .stop = {-1, -1}};
    tern_rand_system(l->key, sizeof l->key);
    memcpy(card->key, l->key, sizeof card->key);
    l->ranks = calloc((size_t)size, sizeof *l->ranks);
    if (!l->ranks || pipe2(l->stop, O_CLOEXEC) < 0 ||
        tern_datagram_open(&l->socket, &card->place) < 0) {
        tern_info("a rank that is stopped is found by its deadline alone: %s", strerror(errno));
        tern_fabric_liveness_close(l);
        *card = (struct liveness_card){0};
        return NULL;
    }
    return l;
}

void tern_fabric_liveness_meet(struct liveness *l, int r, const struct liveness_card *card)
{
    if (!l)
        return;
    l->ranks[r].card = *card;
    if (card->place.n > TERN_DATAGRAM_ADDRESSES)
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
    tern_datagram_close(&l->socket);
    free(l->ranks);
    free(l);
}
