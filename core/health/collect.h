/* The sweep's listener: nodes connect, show the key, ask for the time and send rows, each a line.
 *
 *     KEY NODE\n            then any of
 *     t\n                   answered by the listener's wall clock in ns and \n
 *     {"check": ...}\n      a row
 *     end\n                 all rows were sent; answered by ok\n
 *
 * Strangers can reach it.  A connection that has not shown the key is dropped after ten seconds,
 * and before that when another needs its place: the oldest first. */
#ifndef TERN_HEALTH_COLLECT_H
#define TERN_HEALTH_COLLECT_H

#include "core/health/health.h"

#include <poll.h>

struct tern_health_conn {
    int fd;        /* -1: free */
    int node;      /* index of the name it gave; -1 before: perhaps a stranger's */
    int64_t since; /* it was accepted then, by tern_clock_boot_ns */
    size_t len;
    char buf[2048]; /* a row's JSON has at most half of that */
};

struct tern_health_listener {
    int fd;
    char address[400], key[33]; /* "host:port/key" */
    char *const *nodes;
    size_t n_nodes, n_done;
    bool *done; /* [n_nodes] are the node's rows complete? */
    struct tern_health_rows *rows;
    size_t n_conns;
    struct tern_health_conn *conn;
    struct pollfd *poll; /* [n_conns + 2]: of open ones, the listener, the caller's `other` */
};

int tern_health_listen(struct tern_health_listener *l, char *const *nodes, size_t n,
                       struct tern_health_rows *rows, struct tern_err *err);
void tern_health_listen_end(struct tern_health_listener *l);
/* Serve for at most `ms`.  The wait also ends when `other`, a descriptor or -1, is ready. */
void tern_health_listen_step(struct tern_health_listener *l, int other, int ms);

#endif
