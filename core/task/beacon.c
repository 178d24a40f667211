#include "core/task/beacon.h"

#include "core/base/again.h"
#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/rand.h"
#include "core/base/str.h"
#include "core/base/vars.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { MAGIC = 0x424e5254 /* "TRNB" */, QUESTION = 1, ANSWER = 2, EVERY_MS = 200 };
enum { FIRST_TURNS = 4 }; /* a power of two */

struct word {
    uint8_t key[TERN_TASK_BEACON_KEY];
    uint32_t magic, kind;
};

static void write_hex(struct tern_buf *b, const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        tern_buf_printf(b, "%02x", p[i]);
}

/* "NODE:SPARES:PORT/KEY/ADDRESS,ADDRESS..." */
static void tell(const struct tern_task_beacon *b, const struct tern_datagram_place *place,
                 const char *node, int64_t spares)
{
    struct tern_buf text = {0};

    tern_buf_printf(&text, "%s:%" PRId64 ":%u/", node, spares, place->port);
    write_hex(&text, b->key, sizeof b->key);
    for (int i = 0; i < place->n; i++) {
        tern_buf_puts(&text, i ? "," : "/");
        write_hex(&text, place->address[i], 16);
    }
    setenv("TERN_RUN_BEACON", text.data, 1);
    tern_buf_free(&text);
}

void tern_task_beacon_open(struct tern_task_beacon *b, const char *node, int64_t spares)
{
    struct tern_datagram_place place = {0};

    *b = (struct tern_task_beacon){.socket = {.fd = -1}};
    unsetenv("TERN_RUN_BEACON");
    if (!node)
        return;
    if (tern_datagram_open(&b->socket, &place) < 0) {
        tern_warn("other nodes will not notice the death of this node: %s", strerror(errno));
        return;
    }
    tern_rand_system(b->key, sizeof b->key);
    tell(b, &place, node, spares);
}

/* The next message of `kind` with the right key; its sender in *from. */
static bool read_word(const struct tern_datagram *d, const uint8_t *key, uint32_t kind,
                      struct sockaddr_storage *from, socklen_t *n)
{
    struct word w;

    for (;;) {
        *n = sizeof *from;
        ssize_t k =
            recvfrom(d->fd, &w, sizeof w, MSG_DONTWAIT | MSG_TRUNC, (struct sockaddr *)from, n);
        if (k < 0 && errno != EINTR)
            return false;
        volatile uint8_t differs = 0; /* in constant time, which reveals nothing of the key */
        for (size_t i = 0; k == (ssize_t)sizeof w && i < sizeof w.key; i++)
            differs |= w.key[i] ^ key[i];
        if (k == (ssize_t)sizeof w && !differs && w.magic == MAGIC && w.kind == kind)
            return true;
    }
}

void tern_task_beacon_answer(struct tern_task_beacon *b)
{
    struct word w = {.magic = MAGIC, .kind = ANSWER};
    struct sockaddr_storage from;
    socklen_t n;

    memcpy(w.key, b->key, sizeof w.key);
    while (read_word(&b->socket, b->key, QUESTION, &from, &n))
        (void)sendto(b->socket.fd, &w, sizeof w, MSG_DONTWAIT | MSG_NOSIGNAL,
                     (struct sockaddr *)&from, n);
}

void tern_task_beacon_close(struct tern_task_beacon *b)
{
    tern_datagram_close(&b->socket);
    unsetenv("TERN_RUN_BEACON");
}

/* ------------------------------------------------------------------ a rank's side */

static bool read_hex(const char **s, uint8_t *to, size_t n)
{
    unsigned byte;

    for (size_t i = 0; i < n; i++, *s += 2) {
        if (sscanf(*s, "%2x", &byte) != 1 || !(*s)[1])
            return false;
        to[i] = (uint8_t)byte;
    }
    return true;
}

static bool parse(struct tern_task_beacon_asker *a, const char *s)
{
    const char *colon = strchr(s, ':'), *slash = colon ? strchr(colon, '/') : NULL;
    unsigned port;

    if (!slash || (size_t)(colon - s) >= sizeof a->node ||
        sscanf(colon, ":%" SCNd64 ":%u/", &a->spares, &port) != 2 || port > UINT16_MAX)
        return false;
    snprintf(a->node, sizeof a->node, "%.*s", (int)(colon - s), s);
    a->to.port = (uint16_t)port;
    s = slash + 1;
    if (!read_hex(&s, a->key, sizeof a->key))
        return false;
    while ((*s == '/' || *s == ',') && a->to.n < TERN_DATAGRAM_ADDRESSES)
        if (s++, !read_hex(&s, a->to.address[a->to.n++], 16))
            return false;
    return !*s && a->to.n > 0;
}

bool tern_task_beacon_find(struct tern_task_beacon_asker *a)
{
    const char *s = tern_var("TERN_RUN_BEACON");

    *a = (struct tern_task_beacon_asker){.socket = {.fd = -1}};
    if (!s || !parse(a, s) || tern_datagram_open(&a->socket, NULL) < 0)
        return false;
    a->heard_ns = tern_clock_boot_ns();
    return true;
}

void tern_task_beacon_ask(const struct tern_task_beacon_asker *a)
{
    struct word w = {.magic = MAGIC, .kind = QUESTION};

    memcpy(w.key, a->key, sizeof w.key);
    tern_datagram_send(&a->socket, &a->to, &w, sizeof w);
}

bool tern_task_beacon_heard(struct tern_task_beacon_asker *a)
{
    struct sockaddr_storage from;
    socklen_t n;
    bool any = false;

    while (read_word(&a->socket, a->key, ANSWER, &from, &n))
        any = true;
    if (any)
        a->heard_ns = tern_clock_boot_ns();
    return any;
}

bool tern_task_beacon_await(struct tern_task_beacon_asker *a, int ms)
{
    struct pollfd p = {.fd = a->socket.fd, .events = POLLIN};

    for (int waited = 0; waited < ms; waited += EVERY_MS) {
        tern_task_beacon_ask(a);
        TERN_AGAIN(poll(&p, 1, EVERY_MS));
        if (tern_task_beacon_heard(a))
            return true;
    }
    return false;
}

void tern_task_beacon_drop(struct tern_task_beacon_asker *a)
{
    tern_datagram_close(&a->socket);
}

int tern_task_beacon_turn(int64_t node)
{
    int turn = FIRST_TURNS;

    if (node < FIRST_TURNS)
        return (int)node;
    for (int64_t n = FIRST_TURNS; n < node; n *= 2)
        turn++;
    return (node & (node - 1)) == 0 ? turn : -1;
}
