#include "core/health/collect.h"

#include "core/base/again.h"
#include "core/base/listen.h"
#include "core/base/clock.h"
#include "core/base/hash.h"
#include "core/base/str.h"
#include "core/health/probe.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define SILENCE_NS 10000000000ll /* how long a connection may stay without the key */

/* ------------------------------------------------------------------ listening */

int tern_health_listen(struct tern_health_listener *l, char *const *nodes, size_t n,
                       struct tern_health_rows *rows, struct tern_err *err)
{
    enum { SPARE = 32 }; /* strangers' connections, and some that are being closed */
    unsigned port;
    uint8_t random[16];
    char host[256];

    *l = (struct tern_health_listener){.fd = -1, .nodes = nodes, .n_nodes = n, .rows = rows};
    l->n_conns = 2 * n + SPARE;
    l->conn = tern_alloc(l->n_conns, sizeof *l->conn, "connections", err);
    l->poll = tern_alloc(l->n_conns + 2, sizeof *l->poll, "connections", err);
    l->done = tern_alloc(n + 1, sizeof *l->done, "nodes", err);
    if (!l->conn || !l->poll || !l->done)
        goto failed;
    for (size_t i = 0; i < l->n_conns; i++)
        l->conn[i].fd = -1;
    l->fd = tern_listen(NULL, SOMAXCONN, &port, err);
    if (l->fd < 0)
        goto failed;
    if (gethostname(host, sizeof host) < 0 || getrandom(random, sizeof random, 0) < 0) {
        tern_err_sys(err, "cannot listen for the nodes' answers");
        goto failed;
    }
    host[sizeof host - 1] = '\0';
    tern_hex(l->key, random, sizeof random);
    snprintf(l->address, sizeof l->address, "%s:%u/%s", host, port, l->key);
    return 0;
failed:
    tern_health_listen_end(l);
    return -1;
}

void tern_health_listen_end(struct tern_health_listener *l)
{
    for (size_t i = 0; l->conn && i < l->n_conns; i++)
        if (l->conn[i].fd >= 0)
            close(l->conn[i].fd);
    if (l->fd >= 0)
        close(l->fd);
    free(l->conn);
    free(l->poll);
    free(l->done);
}

static void drop(struct tern_health_conn *c)
{
    close(c->fd);
    c->fd = -1;
}

static void reply(struct tern_health_conn *c, const char *text)
{
    /* Some 20 bytes go into an empty buffer; a peer that leaves it full is no node. */
    if (send(c->fd, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        drop(c);
}

/* "KEY NODE" */
static void introduce(struct tern_health_listener *l, struct tern_health_conn *c, const char *line)
{
    size_t n = strlen(l->key);

    if (strlen(line) > n && line[n] == ' ' &&
        tern_hash_same((const uint8_t *)line, (const uint8_t *)l->key, n))
        for (size_t i = 0; i < l->n_nodes && c->node < 0; i++)
            if (strcmp(line + n + 1, l->nodes[i]) == 0)
                c->node = (int)i;
    if (c->node < 0)
        drop(c);
}

static void take_line(struct tern_health_listener *l, struct tern_health_conn *c, const char *line)
{
    struct tern_health_row row;
    char now[32];

    if (c->node < 0) {
        introduce(l, c, line);
    } else if (strcmp(line, "t") == 0) {
        snprintf(now, sizeof now, "%" PRId64 "\n", tern_clock_wall_ns());
        reply(c, now);
    } else if (strcmp(line, "end") == 0) {
        if (!l->done[c->node])
            l->n_done++;
        l->done[c->node] = true;
        reply(c, "ok\n");
    } else if (!l->done[c->node] && tern_health_row_parse(line, strlen(line), &row, NULL) == 0) {
        snprintf(row.node, sizeof row.node, "%s", l->nodes[c->node]);
        tern_health_rows_add(l->rows, &row);
    } else {
        drop(c);
    }
}

static void take(struct tern_health_listener *l, struct tern_health_conn *c)
{
    ssize_t n = recv(c->fd, c->buf + c->len, sizeof c->buf - 1 - c->len, 0);
    char *end;

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        drop(c);
        return;
    }
    c->len += (size_t)n;
    c->buf[c->len] = '\0';
    while (c->fd >= 0 && (end = memchr(c->buf, '\n', c->len))) {
        *end = '\0';
        take_line(l, c, c->buf);
        c->len -= (size_t)(end + 1 - c->buf);
        memmove(c->buf, end + 1, c->len);
    }
    if (c->fd >= 0 && c->len == sizeof c->buf - 1)
        drop(c);
}

/* Drop the oldest that has not shown the key, once it is heard whether it is a node; false if there
 * is none. */
static bool evict(struct tern_health_listener *l)
{
    struct tern_health_conn *oldest = NULL;

    for (size_t i = 0; i < l->n_conns; i++) {
        struct tern_health_conn *c = &l->conn[i];
        if (c->fd >= 0 && c->node < 0 && (!oldest || c->since < oldest->since))
            oldest = c;
    }
    if (!oldest)
        return false;
    take(l, oldest);
    if (oldest->fd >= 0 && oldest->node < 0)
        drop(oldest);
    return true;
}

/* A free one, or NULL when nodes have all of them. */
static struct tern_health_conn *place(struct tern_health_listener *l)
{
    do
        for (size_t i = 0; i < l->n_conns; i++)
            if (l->conn[i].fd < 0)
                return &l->conn[i];
    while (evict(l));
    return NULL;
}

static void welcome(struct tern_health_listener *l)
{
    for (;;) {
        int fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        const int why = errno;
        bool full = why == EMFILE || why == ENFILE || why == ENOBUFS || why == ENOMEM;
        /* Without a file it fails also when no connection waits. */
        full = fd < 0 && full && poll(&(struct pollfd){.fd = l->fd, .events = POLLIN}, 1, 0) == 1;
        if (fd < 0 && ((full && evict(l)) || why == ECONNABORTED || why == EINTR))
            continue;
        if (fd < 0)
            return;
        struct tern_health_conn *c = place(l);
        if (!c) {
            close(fd);
            continue;
        }
        *c = (struct tern_health_conn){.fd = fd, .node = -1, .since = tern_clock_boot_ns()};
    }
}

static void drop_silent(struct tern_health_listener *l)
{
    const int64_t now = tern_clock_boot_ns();

    for (size_t i = 0; i < l->n_conns; i++)
        if (l->conn[i].fd >= 0 && l->conn[i].node < 0 && now - l->conn[i].since > SILENCE_NS)
            drop(&l->conn[i]);
}

void tern_health_listen_step(struct tern_health_listener *l, int other, int ms)
{
    size_t n = 0, k = 0;

    /* Of open ones alone: poll fails where it is given more than there may be. */
    for (size_t i = 0; i < l->n_conns; i++)
        if (l->conn[i].fd >= 0)
            l->poll[n++] = (struct pollfd){.fd = l->conn[i].fd, .events = POLLIN};
    l->poll[n++] = (struct pollfd){.fd = l->fd, .events = POLLIN};
    if (other >= 0)
        l->poll[n++] = (struct pollfd){.fd = other, .events = POLLIN};
    if (poll(l->poll, n, ms) > 0) {
        for (size_t i = 0; i < l->n_conns; i++)
            if (l->conn[i].fd >= 0 && l->poll[k++].revents)
                take(l, &l->conn[i]);
        if (l->poll[k].revents)
            welcome(l);
    }
    drop_silent(l);
}

/* ------------------------------------------------------------------ the node's side */

int tern_health_address(const char *address, char host[256], char port[8], char key[80])
{
    const char *slash = strrchr(address, '/');
    const char *colon = slash;

    while (colon && colon > address && *colon != ':')
        colon--;
    if (!colon || *colon != ':' || colon - address >= 256 || slash - colon > 7 ||
        strlen(slash) > 79)
        return -1;
    snprintf(host, 256, "%.*s", (int)(colon - address), address);
    snprintf(port, 8, "%.*s", (int)(slash - colon - 1), colon + 1);
    snprintf(key, 80, "%s", slash + 1);
    return 0;
}

/* Connected, introduced, and with a limit on every wait; -1 with `err`. */
static int call(const char *address, const char *node, struct tern_err *err)
{
    const struct timeval limit = {.tv_sec = 2};
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *list = NULL;
    char host[256], port[8], key[80], line[200];
    int fd = -1;

    if (tern_health_address(address, host, port, key) < 0)
        return tern_err_set(err, TERN_USAGE, "'%.200s' is no host:port/key", address);
    int rc = getaddrinfo(host, port, &hints, &list);
    if (rc)
        return tern_err_set(err, TERN_TEMPFAIL, "%s: cannot find its address: %s", host,
                            gai_strerror(rc));
    for (struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, 0);
        if (fd < 0)
            continue;
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
        if (connect(fd, a->ai_addr, a->ai_addrlen) < 0) {
            int saved = errno;
            close(fd);
            errno = saved;
            fd = -1;
        }
    }
    freeaddrinfo(list);
    int n = snprintf(line, sizeof line, "%s %s\n", key, node);
    if (fd < 0 || TERN_AGAIN(send(fd, line, (size_t)n, MSG_NOSIGNAL)) != n) {
        tern_err_sys(err, "%s:%s: cannot connect", host, port);
        if (fd >= 0)
            close(fd);
        return -1;
    }
    return fd;
}

/* One line of an answer; -1 without it. */
static int answer(int fd, char *to, size_t size)
{
    size_t n = 0;

    while (n + 1 < size) {
        ssize_t got = TERN_AGAIN(recv(fd, to + n, 1, 0));
        if (got != 1)
            return -1;
        if (to[n] == '\n')
            break;
        n++;
    }
    to[n] = '\0';
    return 0;
}

int tern_health_clock(const char *address, const char *node, double *offset_ms, double *error_ms,
                      struct tern_err *err)
{
    enum { EXCHANGES = 5 };
    int fd = call(address, node, err);
    char line[32];
    int64_t best = INT64_MAX, offset = 0;

    if (fd < 0)
        return -1;
    for (int i = 0; i < EXCHANGES; i++) {
        int64_t there, began = tern_clock_boot_ns();
        if (TERN_AGAIN(send(fd, "t\n", 2, MSG_NOSIGNAL)) != 2 ||
            answer(fd, line, sizeof line) < 0 || tern_str_int(line, 0, INT64_MAX, &there) < 0)
            break;
        int64_t trip = tern_clock_boot_ns() - began;
        if (trip < best) {
            best = trip;
            offset = tern_clock_wall_ns() - trip / 2 - there;
        }
    }
    close(fd);
    if (best == INT64_MAX)
        return tern_err_set(err, TERN_TEMPFAIL, "%.200s: no answer about the time", address);
    *offset_ms = (double)offset / 1e6;
    *error_ms = (double)best / 2e6;
    return 0;
}

int tern_health_send(const char *collect, const struct tern_health_rows *rows, struct tern_err *err)
{
    struct tern_buf b = {0};
    char node[65], line[8];
    int rc = -1, fd = -1;

    tern_health_node_name(NULL, node);
    for (size_t i = 0; i < rows->n; i++) {
        json_t *j = tern_health_row_json(&rows->row[i]);
        char *text = json_dumps(j, JSON_COMPACT);
        if (text)
            tern_buf_printf(&b, "%s\n", text);
        free(text);
        json_decref(j);
    }
    tern_buf_puts(&b, "end\n");
    if (tern_buf_check(&b, "the rows", err) < 0)
        goto out;
    fd = call(collect, node, err);
    if (fd < 0)
        goto out;
    for (size_t sent = 0; sent < b.len;) {
        ssize_t n = send(fd, b.data + sent, b.len - sent, MSG_NOSIGNAL);
        if (n <= 0) {
            tern_err_sys(err, "cannot send the rows");
            goto out;
        }
        sent += (size_t)n;
    }
    if (answer(fd, line, sizeof line) < 0 || strcmp(line, "ok") != 0)
        tern_err_set(err, TERN_TEMPFAIL, "the collector did not take the rows");
    else
        rc = 0;
out:
    if (fd >= 0)
        close(fd);
    tern_buf_free(&b);
    return rc;
}

void tern_health_gather_clock(const struct tern_health_probe *p, struct tern_health_facts *f)
{
    struct tern_err err = {0};
    char node[65];

    if (!p->options->collect) /* nothing to compare with */
        return;
    tern_health_node_name(p->options, node);
    f->clock.failed = tern_health_clock(p->options->collect, node, &f->clock.offset_ms,
                                        &f->clock.error_ms, &err) < 0;
    snprintf(f->clock.why, sizeof f->clock.why, "%.390s", err.text);
}
