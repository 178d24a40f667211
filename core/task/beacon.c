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
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { MAGIC = 0x424e5254 /* "TRNB" */ };
enum { QUESTION = 1, ANSWER = 2, REPORT = 3, SIGN = 4, END = 5 }; /* a report is answered, too */
enum {
    EVERY_MS = 200,
    SIGN_MS = 5000,  /* between two signs of a rank in a small job... */
    SIGN_RANKS = 50, /* ...and signs a second of all ranks in a large one */
    MISSING = 6,     /* signs, until a rank is silent */
    GAP_MS = 3000,   /* a longer gap between two judgements: this process was stopped */
};
enum { LOSSES_MAX = 1 << 20 }; /* ranks */
enum { FIRST_TURNS = 4 };      /* a power of two */

/* All but a report end before the loss. */
struct word {
    uint8_t key[TERN_TASK_BEACON_KEY];
    uint32_t magic, kind;
    uint32_t rank;  /* of a sign or an end */
    int32_t status; /* of an end, wait(2)'s */
    struct tern_task_beacon_loss loss;
};

static size_t length(uint32_t kind)
{
    return kind == REPORT ? sizeof(struct word) : offsetof(struct word, loss);
}

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
    if (tern_datagram_open(&b->socket, &place) < 0) {
        if (node)
            tern_warn("other nodes will not notice the death of this node: %s", strerror(errno));
        return;
    }
    tern_rand_system(b->key, sizeof b->key);
    tell(b, &place, node ? node : "", spares);
}

/* The next message with the right key, of one of the kinds given by their bits; its sender in
 * *from.
 */
static bool read_word(const struct tern_datagram *d, const uint8_t *key, uint32_t kinds,
                      struct word *w, struct sockaddr_storage *from, socklen_t *n)
{
    for (;;) {
        *n = sizeof *from;
        ssize_t k =
            recvfrom(d->fd, w, sizeof *w, MSG_DONTWAIT | MSG_TRUNC, (struct sockaddr *)from, n);
        if (k < 0 && errno != EINTR)
            return false;
        const bool whole = k >= (ssize_t)length(ANSWER);
        volatile uint8_t differs = 0; /* in constant time, which reveals nothing of the key */
        for (size_t i = 0; whole && i < sizeof w->key; i++)
            differs |= w->key[i] ^ key[i];
        if (whole && !differs && w->magic == MAGIC && w->kind <= END && (kinds & 1U << w->kind) &&
            k == (ssize_t)length(w->kind))
            return true;
    }
}

/* A report that was not answered comes again. */
static void keep(struct tern_task_beacon *b, const struct tern_task_beacon_loss *loss)
{
    for (size_t i = 0; i < b->n_losses; i++)
        if (b->losses[i].rank == loss->rank)
            return;
    struct tern_task_beacon_loss *more =
        b->n_losses < LOSSES_MAX ? realloc(b->losses, (b->n_losses + 1) * sizeof *more) : NULL;
    if (!more)
        return;
    b->losses = more;
    b->losses[b->n_losses] = *loss;
    b->losses[b->n_losses++].node[sizeof loss->node - 1] = '\0';
}

void tern_task_beacon_expect(struct tern_task_beacon *b, size_t n)
{
    b->rank = b->socket.fd >= 0 ? calloc(n, sizeof *b->rank) : NULL;
    b->n = b->rank ? n : 0;
}

static void note(struct tern_task_beacon *b, const struct word *w)
{
    if (w->rank >= b->n)
        return;
    struct tern_task_beacon_rank *r = &b->rank[w->rank];
    if (r->ended)
        return; /* an end is sent more than once */
    r->heard_ns = tern_clock_boot_ns();
    r->ended = w->kind == END;
    if (r->ended && w->status && !b->failed)
        b->failed = w->status;
}

int64_t tern_task_beacon_every_ns(int64_t ranks)
{
    const int64_t second = 1000000000, least = SIGN_MS * (second / 1000);
    const int64_t share = ranks * (second / SIGN_RANKS);

    return share > least ? share : least;
}

enum tern_task_beacon_life tern_task_beacon_judge(struct tern_task_beacon *b, int64_t now_ns)
{
    const int64_t long_ago = now_ns - MISSING * tern_task_beacon_every_ns((int64_t)b->n);
    const int64_t over = now_ns - TERN_TASK_BEACON_OVER_S * (int64_t)1000000000;
    const int64_t gap = now_ns - b->judged_ns;
    size_t ended = 0;

    for (size_t i = 0; i < b->n && b->judged_ns && gap > GAP_MS * (int64_t)1000000; i++)
        if (b->rank[i].heard_ns)
            b->rank[i].heard_ns += gap;
    b->judged_ns = now_ns;
    for (size_t i = 0; i < b->n; i++) {
        if (!b->rank[i].heard_ns || b->rank[i].heard_ns > (b->rank[i].ended ? over : long_ago))
            return TERN_TASK_BEACON_LIVES;
        ended += b->rank[i].ended;
    }
    if (b->n == 0)
        return TERN_TASK_BEACON_LIVES;
    return ended == b->n ? TERN_TASK_BEACON_ENDED
           : ended       ? TERN_TASK_BEACON_GONE
                         : TERN_TASK_BEACON_SILENT;
}

void tern_task_beacon_answer(struct tern_task_beacon *b)
{
    struct word w, answer = {.magic = MAGIC, .kind = ANSWER};
    struct sockaddr_storage from;
    socklen_t n;

    if (b->socket.fd < 0)
        return;
    memcpy(answer.key, b->key, sizeof answer.key);
    while (read_word(&b->socket, b->key, UINT32_MAX, &w, &from, &n)) {
        if (w.kind == SIGN || w.kind == END)
            note(b, &w);
        if (w.kind == REPORT)
            keep(b, &w.loss);
        if (w.kind != REPORT && w.kind != QUESTION)
            continue;
        (void)sendto(b->socket.fd, &answer, length(ANSWER), MSG_DONTWAIT | MSG_NOSIGNAL,
                     (struct sockaddr *)&from, n);
    }
}

void tern_task_beacon_close(struct tern_task_beacon *b)
{
    tern_datagram_close(&b->socket);
    free(b->losses);
    b->losses = NULL;
    b->n_losses = 0;
    free(b->rank);
    b->rank = NULL;
    b->n = 0;
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

static bool parse(struct tern_task_beacon_client *a, const char *s)
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

bool tern_task_beacon_find(struct tern_task_beacon_client *a)
{
    const char *s = tern_var("TERN_RUN_BEACON");

    *a = (struct tern_task_beacon_client){.socket = {.fd = -1}};
    if (!s || !parse(a, s) || tern_datagram_open(&a->socket, NULL) < 0)
        return false;
    a->heard_ns = tern_clock_boot_ns();
    return true;
}

void tern_task_beacon_request(const struct tern_task_beacon_client *a)
{
    struct word w = {.magic = MAGIC, .kind = QUESTION};

    memcpy(w.key, a->key, sizeof w.key);
    tern_datagram_send(&a->socket, &a->to, &w, length(w.kind));
}

void tern_task_beacon_sign(const struct tern_task_beacon_client *a, int64_t rank, bool ended,
                           int status)
{
    struct word w = {
        .magic = MAGIC, .kind = ended ? END : SIGN, .rank = (uint32_t)rank, .status = status};

    memcpy(w.key, a->key, sizeof w.key);
    tern_datagram_send(&a->socket, &a->to, &w, length(w.kind));
}

bool tern_task_beacon_heard(struct tern_task_beacon_client *a)
{
    struct sockaddr_storage from;
    socklen_t n;
    struct word w;
    bool any = false;

    while (read_word(&a->socket, a->key, 1U << ANSWER, &w, &from, &n))
        any = true;
    if (any)
        a->heard_ns = tern_clock_boot_ns();
    return any;
}

bool tern_task_beacon_await(struct tern_task_beacon_client *a, int ms)
{
    struct pollfd p = {.fd = a->socket.fd, .events = POLLIN};

    for (int waited = 0; waited < ms; waited += EVERY_MS) {
        tern_task_beacon_request(a);
        TERN_AGAIN(poll(&p, 1, EVERY_MS));
        if (tern_task_beacon_heard(a))
            return true;
    }
    return false;
}

void tern_task_beacon_report(int64_t rank, const struct tern_ledger_lost *lost, const char *node,
                             int ms)
{
    struct word w = {.magic = MAGIC, .kind = REPORT, .loss = {.rank = rank, .lost = *lost}};
    struct tern_task_beacon_client a;
    bool heard = false;

    if (!tern_task_beacon_find(&a))
        return;
    memcpy(w.key, a.key, sizeof w.key);
    snprintf(w.loss.node, sizeof w.loss.node, "%s", node);
    for (int waited = 0; waited < ms && !heard; waited += EVERY_MS) {
        struct pollfd p = {.fd = a.socket.fd, .events = POLLIN};
        tern_datagram_send(&a.socket, &a.to, &w, length(w.kind));
        TERN_AGAIN(poll(&p, 1, EVERY_MS));
        heard = tern_task_beacon_heard(&a);
    }
    tern_task_beacon_drop(&a);
}

void tern_task_beacon_drop(struct tern_task_beacon_client *a)
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
