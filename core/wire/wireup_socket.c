/* The ranks' side of the rendezvous. */
#include "core/wire/rendezvous_frame.h"
#include "core/wire/wireup.h"

#include "core/base/clock.h"
#include "core/base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum {
    LOOK_MS = 1000,
    CONNECT_MS = 4000, /* to an address that no machine has, a connection takes 3 s to fail */
};

struct state {
    int fd;
    uint32_t round;
    uint8_t key[RENDEZVOUS_KEY];
    char where[300];
};

/* "host:port/key" */
static int parse(struct state *s, const char *address, char *host, size_t n, char *port,
                 struct tern_err *err)
{
    const char *slash = strrchr(address, '/'), *colon = slash;
    unsigned byte;

    while (colon && colon > address && *colon != ':')
        colon--;
    if (!slash || colon == address || strlen(slash + 1) != 2 * RENDEZVOUS_KEY ||
        (size_t)(colon - address) >= n || slash - colon - 1 > 5 || slash - colon < 2)
        return tern_err_set(err, TERN_USAGE,
                            "TERN_RUN_SOCKET: '%s' is not host:port/key, as `tern run` sets it",
                            address);
    snprintf(host, n, "%.*s", (int)(colon - address), address);
    snprintf(port, 6, "%.*s", (int)(slash - colon - 1), colon + 1);
    snprintf(s->where, sizeof s->where, "%.*s", (int)(slash - address), address);
    for (int i = 0; i < RENDEZVOUS_KEY; i++) {
        if (sscanf(slash + 1 + 2 * i, "%2x", &byte) != 1)
            return tern_err_set(err, TERN_USAGE, "TERN_RUN_SOCKET: the key is not hexadecimal");
        s->key[i] = (uint8_t)byte;
    }
    return 0;
}

/* Until the limit: a supervisor that is still starting refuses at first.  A name that this node
 * does not know, or knows with another card's address, is passed by: srun tells its own. */
static int connect_until(struct state *s, const char *name, const char *port,
                         struct tern_clock_limit *limit, struct tern_err *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    const struct timeval patience = {.tv_sec = CONNECT_MS / 1000 - 1};
    const char *launcher = getenv("SLURM_LAUNCH_NODE_IPADDR"), *host = name;

    for (;; host = host == name && launcher ? launcher : name) {
        int rc = getaddrinfo(host, port, &hints, &list);
        for (struct addrinfo *a = rc ? NULL : list; a; a = a->ai_next) {
            s->fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
            if (s->fd >= 0) { /* a head must not wait until what went before it is acknowledged */
                setsockopt(s->fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
                setsockopt(s->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
            }
            if (s->fd >= 0 && connect(s->fd, a->ai_addr, a->ai_addrlen) == 0) {
                freeaddrinfo(list);
                return 0;
            }
            if (s->fd >= 0)
                close(s->fd);
            s->fd = -1;
        }
        int saved = errno;
        if (rc == 0)
            freeaddrinfo(list);
        if (tern_clock_left_ns(limit) <= 0) {
            errno = saved;
            return rc ? tern_err_set(err, TERN_TEMPFAIL, "the supervisor's socket %s: %s", s->where,
                                     gai_strerror(rc))
                      : tern_err_sys(err, "cannot reach the supervisor's socket %s", s->where);
        }
        tern_clock_sleep_ns(50000000);
    }
}

static int move(struct state *s, bool out, void *p, size_t n, struct tern_clock_limit *limit,
                struct tern_err *err)
{
    for (size_t done = 0; done < n;) {
        struct pollfd f = {s->fd, out ? POLLOUT : POLLIN, 0};
        int64_t left = tern_clock_left_ns(limit) / 1000000;
        int ready = left > 0 ? poll(&f, 1, left < LOOK_MS / 2 ? (int)left + 1 : LOOK_MS / 2) : 0;
        if (ready <= 0 && left > 0) /* time passes, or a signal came: look at the limit again */
            continue;
        if (ready <= 0)
            return tern_err_set(err, TERN_TEMPFAIL,
                                "not all ranks reached the supervisor's socket %s within the "
                                "deadline",
                                s->where);
        ssize_t k = out ? send(s->fd, (char *)p + done, n - done, MSG_NOSIGNAL | MSG_DONTWAIT)
                        : recv(s->fd, (char *)p + done, n - done, MSG_DONTWAIT);
        if (k == 0)
            return tern_err_set(err, TERN_TEMPFAIL,
                                "the supervisor's socket %s was closed: is the key right, and are "
                                "the supervisor and all ranks alive?",
                                s->where);
        if (k < 0 && errno != EINTR && errno != EAGAIN)
            return tern_err_sys(err, "the supervisor's socket %s", s->where);
        done += k > 0 ? (size_t)k : 0;
    }
    return 0;
}

static int put(struct tern_wire_up *w, uint32_t kind, const void *data, uint32_t bytes,
               struct tern_clock_limit *limit, struct tern_err *err)
{
    struct state *s = w->state;
    struct rendezvous_frame h = {
        RENDEZVOUS_MAGIC, kind, (uint32_t)w->rank, (uint32_t)w->size, s->round, bytes, {0}};

    memcpy(h.key, s->key, sizeof h.key);
    if (move(s, true, &h, sizeof h, limit, err) < 0)
        return -1;
    return bytes ? move(s, true, (void *)(uintptr_t)data, bytes, limit, err) : 0;
}

static int exchange(struct tern_wire_up *w, const uint8_t *blob, uint8_t *all, struct tern_err *err)
{
    struct state *s = w->state;
    struct rendezvous_frame h;
    struct tern_clock_limit limit = tern_clock_limit(w->deadline_ns, LOOK_MS * 1000000ll);
    char text[RENDEZVOUS_TEXT + 1] = "";

    /* The other side gives a reason before it closes, so that is read even where nothing can be
     * sent any more. */
    put(w, RENDEZVOUS_BLOB, blob, TERN_WIRE_BLOB, &limit, err);
    if (move(s, false, &h, sizeof h, &limit, err) < 0)
        return -1;
    if (h.magic == RENDEZVOUS_MAGIC && h.kind == RENDEZVOUS_NO && h.bytes <= RENDEZVOUS_TEXT) {
        if (move(s, false, text, h.bytes, &limit, err) < 0)
            return -1;
        return tern_err_set(err, TERN_TEMPFAIL, "%s",
                            text[0] ? text : "the supervisor refuses this rank");
    }
    if (h.magic != RENDEZVOUS_MAGIC || h.kind != RENDEZVOUS_ALL || h.round != s->round ||
        h.bytes != (uint32_t)w->size * TERN_WIRE_BLOB)
        return tern_err_set(err, TERN_FAILED, "the supervisor's socket %s speaks another protocol",
                            s->where);
    s->round++;
    return move(s, false, all, h.bytes, &limit, err);
}

static void finish(struct tern_wire_up *w)
{
    struct state *s = w->state;

    if (s && s->fd >= 0)
        close(s->fd);
    free(s);
    w->state = NULL;
}

int tern_wire_up_socket(struct tern_wire_up *w, const char *address, struct tern_err *err)
{
    struct state *s = tern_alloc(1, sizeof *s, "the wire-up", err);
    struct tern_clock_limit limit = tern_clock_limit(w->deadline_ns, CONNECT_MS * 1000000ll);
    char host[256], port[6];

    if (!s)
        return -1;
    s->fd = -1;
    w->name = "the supervisor's socket";
    w->state = s;
    w->exchange = exchange;
    w->close = finish;
    if (parse(s, address, host, sizeof host, port, err) < 0 ||
        connect_until(s, host, port, &limit, err) < 0)
        return -1;
    return put(w, RENDEZVOUS_HELLO, NULL, 0, &limit, err);
}
