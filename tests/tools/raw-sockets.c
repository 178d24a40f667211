/* What a socket alone costs between two hosts, to hold the fabric's cost beside:
 *
 *   raw-sockets listen PORT BYTES N          then
 *   raw-sockets connect ADDRESS PORT BYTES N
 *
 * N times both send BYTES to each other at once, as two ranks of an all-gather of twice as much do;
 * each prints "raw BYTES: T us, C us of cpu" for one exchange, after a few that do not count. */
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
#include <time.h>
#include <unistd.h>

enum { WARMUPS = 5, PIECE = 1 << 20 };

static double us(clockid_t which)
{
    struct timespec t;

    clock_gettime(which, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int fail(const char *what)
{
    perror(what);
    return -1;
}

static int reach(const char *address, const char *port)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_family = AF_INET}, *list;
    int fd = -1;

    if (!address)
        hints.ai_flags = AI_PASSIVE;
    if (getaddrinfo(address, port, &hints, &list))
        return fail("getaddrinfo");
    for (int i = 0; i < 100 && fd < 0; i++) {
        int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
        if (address) {
            if (connect(s, list->ai_addr, list->ai_addrlen) == 0)
                fd = s;
        } else {
            setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
            if (bind(s, list->ai_addr, list->ai_addrlen) == 0 && listen(s, 1) == 0)
                fd = accept(s, NULL, NULL);
        }
        if (fd != s)
            close(s);
        if (fd < 0)
            usleep(50000);
    }
    freeaddrinfo(list);
    return fd < 0 ? fail("connect") : fd;
}

static int exchange(int fd, const char *out, char *in, size_t bytes)
{
    size_t sent = 0, got = 0;

    while (sent < bytes || got < bytes) {
        struct pollfd p = {fd, (short)((sent < bytes ? POLLOUT : 0) | (got < bytes ? POLLIN : 0)),
                           0};
        if (poll(&p, 1, 10000) <= 0)
            return fail("poll");
        if (p.revents & (POLLIN | POLLHUP | POLLERR) && got < bytes) {
            ssize_t n = recv(fd, in + got, bytes - got < PIECE ? bytes - got : PIECE, MSG_DONTWAIT);
            if (n == 0 || (n < 0 && errno != EAGAIN))
                return fail("recv");
            got += n > 0 ? (size_t)n : 0;
        }
        if (p.revents & POLLOUT && sent < bytes) {
            ssize_t n = send(fd, out + sent, bytes - sent < PIECE ? bytes - sent : PIECE,
                             MSG_DONTWAIT | MSG_NOSIGNAL);
            if (n < 0 && errno != EAGAIN)
                return fail("send");
            sent += n > 0 ? (size_t)n : 0;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    int listens = argc > 1 && strcmp(argv[1], "listen") == 0, at = listens ? 2 : 3, on = 1;

    if (argc != at + 3) {
        fputs("usage: raw-sockets listen|connect [ADDRESS] PORT BYTES N\n", stderr);
        return 2;
    }
    size_t bytes = strtoull(argv[at + 1], NULL, 10);
    int n = atoi(argv[at + 2]), fd = reach(listens ? NULL : argv[2], argv[at]);
    char *out = malloc(bytes + 1), *in = malloc(bytes + 1);
    if (fd < 0 || !out || !in || n < 1)
        return 1;
    memset(out, 1, bytes);
    memset(in, 0, bytes);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    double wall = 0, cpu = 0;
    for (int i = 0; i < WARMUPS + n; i++) {
        if (i == WARMUPS) {
            wall = us(CLOCK_MONOTONIC);
            cpu = us(CLOCK_PROCESS_CPUTIME_ID);
        }
        if (exchange(fd, out, in, bytes) < 0)
            return 1;
    }
    printf("raw %zu: %.1f us, %.1f us of cpu\n", bytes, (us(CLOCK_MONOTONIC) - wall) / n,
           (us(CLOCK_PROCESS_CPUTIME_ID) - cpu) / n);
    return 0;
}
