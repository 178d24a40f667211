#include "core/wire/rendezvous.h"
#include "core/wire/rendezvous_frame.h"
#include "core/wire/wireup.h"

#include "core/base/listen.h"
#include "core/base/again.h"
#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/hash.h"
#include "core/base/rand.h"
#include "core/base/str.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    STRANGERS = 64,            /* connections beyond the ranks' */
    OWN_FILES = 64,            /* of the process, beside these */
    SILENCE_S = 10,            /* how long a connection may stay without a valid HELLO */
    DEAF_S = 1,                /* how long new connections wait after one could not be accepted */
    MAX_SIZE = 65536,          /* ranks; a message tag has 16 bits for one */
    EVENTS = 64,               /* handled in one wake-up */
    OUT_MAX = RENDEZVOUS_TEXT, /* a NO; the blobs are sent from the common copy */
};

struct guest { /* a connection */
    int fd;    /* -1: free */
    int rank;  /* -1: a stranger */
    int64_t since;
    uint8_t in[sizeof(struct rendezvous_frame) + TERN_WIRE_BLOB];
    size_t in_len;
    bool given;   /* its blob of this round is here */
    bool leaving; /* closed once everything is sent */
    uint8_t head[sizeof(struct rendezvous_frame) + OUT_MAX];
    size_t head_len;       /* then `body` */
    const uint8_t *body;   /* the round's blobs, or NULL */
    size_t body_len, sent; /* over both */
};

struct tern_wire_rendezvous {
    int size, listen, epoll;
    int64_t accept_paused_ns; /* since when it accepts no connection; 0: it does */
    uint8_t key[RENDEZVOUS_KEY];
    char address[400];
    struct guest *guests; /* [n_guests] */
    int n_guests;
    int joined, given; /* ranks here; blobs of this round here */
    uint32_t round;
    uint8_t
        *blobs[2]; /* [size][TERN_WIRE_BLOB] by round & 1: a slow reader may be one round behind */
    bool failed;   /* until all have left */
    char why[RENDEZVOUS_TEXT];
    char left[120]; /* the rank that left last between two rounds, perhaps because it was done */
};

static int hear(struct tern_wire_rendezvous *r)
{
    struct epoll_event e = {.events = EPOLLIN, .data.u32 = UINT32_MAX};

    r->accept_paused_ns = 0;
    return epoll_ctl(r->epoll, EPOLL_CTL_ADD, r->listen, &e);
}

static int start(struct tern_wire_rendezvous *r, const char *host, struct tern_err *err)
{
    char name[256] = "", hex[2 * RENDEZVOUS_KEY + 1];
    unsigned port;

    r->listen = tern_listen(host, 1024, &port, err);
    if (r->listen < 0)
        return -1;
    r->epoll = TERN_AGAIN(epoll_create1(EPOLL_CLOEXEC));
    if (r->epoll < 0 || hear(r) < 0)
        return tern_err_sys(err, "cannot listen for the ranks on '%s'", host ? host : "*");
    tern_rand_system(r->key, sizeof r->key);
    tern_hex(hex, r->key, sizeof r->key);
    if (host && strcmp(host, "0.0.0.0") != 0)
        snprintf(name, sizeof name, "%s", host);
    else
        gethostname(name, sizeof name - 1);
    snprintf(r->address, sizeof r->address, "%s:%u/%s", name, port, hex);
    return 0;
}

struct tern_wire_rendezvous *tern_wire_rendezvous_open(const char *host, int size,
                                                       struct tern_err *err)
{
    if (size < 1 || size > MAX_SIZE) {
        tern_err_set(err, TERN_USAGE, "%d ranks: must be 1 to %d", size, MAX_SIZE);
        return NULL;
    }
    if (tern_fs_allow_open((size_t)size + STRANGERS + OWN_FILES, err) < 0) {
        tern_err_prefix(err, "cannot serve %d ranks", size);
        return NULL;
    }
    struct tern_wire_rendezvous *r = tern_alloc(1, sizeof *r, "the rendezvous", err);
    if (!r)
        return NULL;
    r->size = size;
    r->listen = r->epoll = -1;
    r->n_guests = size + STRANGERS;
    r->guests = tern_alloc((size_t)r->n_guests, sizeof *r->guests, "the rendezvous", err);
    for (int i = 0; r->guests && i < r->n_guests; i++)
        r->guests[i].fd = -1;
    for (int i = 0; i < 2; i++)
        r->blobs[i] = tern_alloc((size_t)size, TERN_WIRE_BLOB, "the rendezvous", err);
    if (!r->guests || !r->blobs[0] || !r->blobs[1] || start(r, host, err) < 0) {
        tern_wire_rendezvous_close(r);
        return NULL;
    }
    return r;
}

void tern_wire_rendezvous_close(struct tern_wire_rendezvous *r)
{
    if (!r)
        return;
    for (int i = 0; r->guests && i < r->n_guests; i++)
        if (r->guests[i].fd >= 0)
            close(r->guests[i].fd);
    if (r->listen >= 0)
        close(r->listen);
    if (r->epoll >= 0)
        close(r->epoll);
    free(r->guests);
    free(r->blobs[0]);
    free(r->blobs[1]);
    free(r);
}

const char *tern_wire_rendezvous_address(const struct tern_wire_rendezvous *r)
{
    return r->address;
}
int tern_wire_rendezvous_fd(const struct tern_wire_rendezvous *r)
{
    return r->epoll;
}

/* ---------------------------------------------------------------- sending */

static void drop(struct tern_wire_rendezvous *r, struct guest *g);

static void flush(struct tern_wire_rendezvous *r, struct guest *g)
{
    size_t total = g->head_len + g->body_len;

    while (g->fd >= 0 && g->sent < total) {
        bool head = g->sent < g->head_len;
        const uint8_t *p = head ? g->head + g->sent : g->body + (g->sent - g->head_len);
        ssize_t k = send(g->fd, p, (head ? g->head_len : total) - g->sent, MSG_NOSIGNAL);
        if (k < 0 && errno == EAGAIN)
            break;
        if (k <= 0) {
            drop(r, g);
            return;
        }
        g->sent += (size_t)k;
    }
    bool more = g->sent < total;
    if (!more && g->leaving) {
        drop(r, g);
        return;
    }
    struct epoll_event e = {.events = EPOLLIN | (more ? EPOLLOUT : 0u),
                            .data.u32 = (uint32_t)(g - r->guests)};
    epoll_ctl(r->epoll, EPOLL_CTL_MOD, g->fd, &e);
}

static void queue(struct guest *g, uint32_t kind, uint32_t round, const void *text, size_t text_len,
                  const uint8_t *body, size_t body_len)
{
    struct rendezvous_frame h = {.magic = RENDEZVOUS_MAGIC,
                                 .kind = kind,
                                 .round = round,
                                 .bytes = (uint32_t)(text_len + body_len)};

    memcpy(g->head, &h, sizeof h);
    if (text_len)
        memcpy(g->head + sizeof h, text, text_len);
    g->head_len = sizeof h + text_len;
    g->body = body;
    g->body_len = body_len;
    g->sent = 0;
}

static void refuse(struct tern_wire_rendezvous *r, struct guest *g, const char *why)
{
    /* Amid an answer, words would be taken for part of it. */
    if (g->sent == g->head_len + g->body_len)
        queue(g, RENDEZVOUS_NO, 0, why, strnlen(why, RENDEZVOUS_TEXT), NULL, 0);
    g->leaving = true;
    flush(r, g);
}

/* No rank can go on: each gets the text once, also those that come later. */
static void fail_all(struct tern_wire_rendezvous *r, const char *why)
{
    if (r->failed)
        return;
    r->failed = true;
    snprintf(r->why, sizeof r->why, "%s", why);
    for (int i = 0; i < r->n_guests; i++)
        if (r->guests[i].fd >= 0 && r->guests[i].rank >= 0 && !r->guests[i].leaving)
            refuse(r, &r->guests[i], r->why);
}

static void drop(struct tern_wire_rendezvous *r, struct guest *g)
{
    int rank = g->rank;
    bool told = g->leaving;

    if (g->fd < 0)
        return;
    close(g->fd);
    g->fd = -1;
    g->rank = -1;
    if (rank < 0)
        return;
    r->joined--;
    if (g->given)
        r->given--;
    if (r->joined == 0) { /* ready for the next attempt */
        r->failed = false;
        r->given = 0;
        r->round = 0;
    } else if (!told) {
        snprintf(r->left, sizeof r->left, "rank %d left while the ranks were meeting", rank);
        if (r->given > 0 || r->round == 0)
            fail_all(r, r->left);
    }
}

/* ---------------------------------------------------------------- receiving */

static void hello(struct tern_wire_rendezvous *r, struct guest *g, const struct rendezvous_frame *h)
{
    char why[200];

    for (int i = 0; i < r->n_guests; i++) {
        if (r->guests[i].fd >= 0 && r->guests[i].rank == (int)h->rank) {
            snprintf(why, sizeof why, "rank %u is here twice: are two jobs using one supervisor?",
                     h->rank);
            refuse(r, g, why);
            return;
        }
    }
    if (h->size != (uint32_t)r->size || h->rank >= h->size) {
        snprintf(why, sizeof why, "rank %u of %u came where %d ranks are expected", h->rank,
                 h->size, r->size);
        refuse(r, g, why);
        if (r->joined > 0) /* else no rank would leave, which is what ends a failure */
            fail_all(r, why);
        return;
    }
    if (r->failed || r->round > 0) {
        refuse(r, g, r->failed ? r->why : "the ranks have met without this one");
        return;
    }
    g->rank = (int)h->rank;
    g->given = false;
    r->joined++;
}

static void blob(struct tern_wire_rendezvous *r, struct guest *g, const uint8_t *data)
{
    uint8_t *blobs = r->blobs[r->round & 1];

    memcpy(blobs + (size_t)g->rank * TERN_WIRE_BLOB, data, TERN_WIRE_BLOB);
    g->given = true;
    r->given++;
    if (r->joined < r->size &&
        r->round > 0) { /* a rank that has left was not done, and none may come */
        fail_all(r, r->left);
        return;
    }
    if (r->given < r->size)
        return;
    uint32_t round = r->round++;
    r->given = 0;
    for (int i = 0; i < r->n_guests; i++)
        r->guests[i].given = false;
    for (int i = 0; i < r->n_guests; i++) {
        struct guest *to = &r->guests[i];
        if (to->fd < 0 || to->rank < 0)
            continue;
        queue(to, RENDEZVOUS_ALL, round, NULL, 0, blobs, (size_t)r->size * TERN_WIRE_BLOB);
        flush(r, to);
    }
}

/* A frame that is not exactly what is due ends the connection. */
static bool due(const struct tern_wire_rendezvous *r, const struct guest *g,
                const struct rendezvous_frame *h)
{
    if (h->magic != RENDEZVOUS_MAGIC || !tern_hash_same(h->key, r->key, sizeof r->key))
        return false;
    if (g->rank < 0)
        return h->kind == RENDEZVOUS_HELLO && h->bytes == 0 && h->rank < MAX_SIZE;
    return h->kind == RENDEZVOUS_BLOB && h->bytes == TERN_WIRE_BLOB && h->round == r->round &&
           (int)h->rank == g->rank && !g->given && g->sent == g->head_len + g->body_len;
}

static void receive(struct tern_wire_rendezvous *r, struct guest *g)
{
    struct rendezvous_frame h;

    for (;;) {
        ssize_t k = recv(g->fd, g->in + g->in_len, sizeof g->in - g->in_len, 0);
        if (k < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (k <= 0) {
            drop(r, g);
            return;
        }
        g->in_len += (size_t)k;
        while (g->fd >= 0 && !g->leaving && g->in_len >= sizeof h) {
            memcpy(&h, g->in, sizeof h);
            if (!due(r, g, &h)) {
                drop(r, g);
                return;
            }
            size_t whole = sizeof h + h.bytes;
            if (g->in_len < whole)
                break;
            if (h.kind == RENDEZVOUS_HELLO)
                hello(r, g, &h);
            else
                blob(r, g, g->in + sizeof h);
            if (g->fd < 0)
                return;
            g->in_len -= whole;
            memmove(g->in, g->in + whole, g->in_len);
        }
        if (g->fd < 0)
            return;
        if (g->leaving)
            g->in_len = 0; /* what a refused one still says is not heard */
    }
}

/* Let the oldest stranger go, once it is heard whether it is a rank; false if there is none. */
static bool evict(struct tern_wire_rendezvous *r)
{
    struct guest *oldest = NULL;

    for (int i = 0; i < r->n_guests; i++) {
        struct guest *g = &r->guests[i];
        if (g->fd >= 0 && g->rank < 0 && (!oldest || g->since < oldest->since))
            oldest = g;
    }
    if (!oldest)
        return false;
    receive(r, oldest);
    if (oldest->fd >= 0 && oldest->rank < 0)
        drop(r, oldest);
    return true;
}

/* A free one; there is or will be one, since ranks cannot take all of them. */
static int place(struct tern_wire_rendezvous *r)
{
    do
        for (int i = 0; i < r->n_guests; i++)
            if (r->guests[i].fd < 0)
                return i;
    while (evict(r));
    return -1;
}

/* A connection that cannot be accepted stays in the queue, and each look would end at once: so no
 * look for a while. */
static int shut(struct tern_wire_rendezvous *r, struct tern_err *err)
{
    struct tern_err e;

    tern_err_sys(&e, "the ranks cannot meet, since one cannot be let in");
    fail_all(r, e.text);
    epoll_ctl(r->epoll, EPOLL_CTL_DEL, r->listen, NULL);
    r->accept_paused_ns = tern_clock_boot_ns();
    if (err)
        *err = e;
    return -1;
}

static int welcome(struct tern_wire_rendezvous *r, struct tern_err *err)
{
    for (;;) {
        int fd = accept4(r->listen, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        bool full = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
        bool aborted = errno == ECONNABORTED;
        /* Without a file it fails also when no connection waits. */
        if (fd < 0 && full && poll(&(struct pollfd){r->listen, POLLIN, 0}, 1, 0) != 1)
            return 0;
        if (fd < 0 && full && !evict(r))
            return shut(r, err);
        if (fd < 0 && (full || aborted))
            continue;
        if (fd < 0)
            return 0;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)); /* as the ranks do */
        int i = place(r);
        struct epoll_event e = {.events = EPOLLIN, .data.u32 = (uint32_t)i};
        if (epoll_ctl(r->epoll, EPOLL_CTL_ADD, fd, &e) < 0) {
            close(fd);
            continue;
        }
        r->guests[i] = (struct guest){.fd = fd, .rank = -1, .since = tern_clock_boot_ns()};
    }
}

int tern_wire_rendezvous_step(struct tern_wire_rendezvous *r, struct tern_err *err)
{
    struct epoll_event e[EVENTS];
    int n = epoll_wait(r->epoll, e, EVENTS, 0);

    if (n < 0 && errno != EINTR)
        return tern_err_sys(err, "the rendezvous");
    for (int i = 0; i < n; i++) {
        if (e[i].data.u32 == UINT32_MAX) {
            if (welcome(r, err) < 0)
                return -1;
            continue;
        }
        struct guest *g = &r->guests[e[i].data.u32];
        if (g->fd >= 0 && e[i].events & EPOLLOUT)
            flush(r, g);
        if (g->fd >= 0 && e[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
            receive(r, g);
    }
    int64_t now = tern_clock_boot_ns();
    if (r->accept_paused_ns && now - r->accept_paused_ns > DEAF_S * 1000000000ll)
        hear(r);
    for (int i = 0; i < r->n_guests; i++) {
        struct guest *g = &r->guests[i];
        if (g->fd >= 0 && (g->rank < 0 || g->leaving) && now - g->since > SILENCE_S * 1000000000ll)
            drop(r, g);
    }
    return 0;
}
