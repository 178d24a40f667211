/* The rendezvous: ranks that meet, leave or disagree, and strangers. */
#include "tests/unit/tap.h"

#include "core/base/clock.h"
#include "core/base/rand.h"
#include "core/fabric/fabric.h"
#include "core/wire/rendezvous.h"
#include "core/wire/rendezvous_frame.h"
#include "core/wire/wireup.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static int dial(const struct tern_wire_rendezvous *r)
{
    const char *colon = strchr(tern_wire_rendezvous_address(r), ':');
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)atoi(colon + 1)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    if (connect(fd, (struct sockaddr *)&to, sizeof to) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static void serve(struct tern_wire_rendezvous *r, int times)
{
    while (times--) {
        struct pollfd p = {tern_wire_rendezvous_fd(r), POLLIN, 0};
        poll(&p, 1, 5);
        tern_wire_rendezvous_step(r, NULL);
    }
}

static bool is_closed(int fd)
{
    char c;
    struct pollfd p = {fd, POLLIN, 0};
    return poll(&p, 1, 1000) == 1 && recv(fd, &c, 1, MSG_DONTWAIT) <= 0;
}

static void frame(struct rendezvous_frame *h, const struct tern_wire_rendezvous *r, uint32_t kind,
                  uint32_t rank, uint32_t size, uint32_t bytes)
{
    const char *key = strchr(tern_wire_rendezvous_address(r), '/') + 1;

    *h = (struct rendezvous_frame){RENDEZVOUS_MAGIC, kind, rank, size, 0, bytes, {0}};
    for (int i = 0; i < RENDEZVOUS_KEY; i++)
        sscanf(key + 2 * i, "%2hhx", &h->key[i]);
}

static void says(struct tern_wire_rendezvous *r, int fd, const char *want, const char *name)
{
    char got[sizeof(struct rendezvous_frame) + RENDEZVOUS_TEXT + 1] = "";

    serve(r, 3);
    ssize_t n = recv(fd, got, sizeof got - 1, MSG_DONTWAIT);
    has(n > (ssize_t)sizeof(struct rendezvous_frame) ? got + sizeof(struct rendezvous_frame) : "",
        want, "%s", name);
}

static void refuses_strangers(void)
{
    struct tern_err err = {0};
    struct tern_wire_rendezvous *r = tern_wire_rendezvous_open("127.0.0.1", 2, &err);
    struct rendezvous_frame h;
    int fd, closed = 0, rounds = 300;

    if (!ok(r != NULL, "a rendezvous opens: %s", err.text))
        return;
    for (int i = 0; i < rounds; i++) {
        unsigned char junk[700];
        size_t n = tern_rand_below(3, 0, (uint64_t)i, sizeof junk);
        for (size_t k = 0; k < sizeof junk; k++)
            junk[k] = (unsigned char)tern_rand_u64(4, (uint64_t)i, k);
        if (i % 3) { /* right up to some field */
            frame(&h, r, 1 + (uint32_t)i % 4, 0, 2, i % 2 ? 0xffffffff : 0);
            if (i % 3 == 2)
                h.key[i % 16] ^= 1;
            memcpy(junk, &h, sizeof h);
            n = sizeof h + n / 2;
        }
        if ((fd = dial(r)) < 0)
            break;
        send(fd, junk, n, MSG_NOSIGNAL);
        shutdown(fd, SHUT_WR);
        serve(r, 2);
        closed += is_closed(fd);
        close(fd);
        serve(r, 1);
    }
    ok(closed == rounds, "hostile bytes end the connection (%d of %d) and nothing else", closed,
       rounds);
    fd = dial(r);
    frame(&h, r, RENDEZVOUS_HELLO, 1, 3, 0);
    send(fd, &h, sizeof h, 0);
    says(r, fd, "rank 1 of 3 came where 2 ranks are expected",
         "a rank that believes in another size gets a text");
    close(fd);
    serve(r, 2);
    fd = dial(r);
    frame(&h, r, RENDEZVOUS_HELLO, 1, 2, 0);
    send(fd, &h, sizeof h, 0);
    serve(r, 3);
    struct pollfd p = {fd, POLLIN, 0};
    ok(poll(&p, 1, 0) == 0, "which is nothing to one of the right size that comes later");
    close(fd);
    tern_wire_rendezvous_close(r);
}

static void names_a_rank_that_left(void)
{
    struct tern_wire_rendezvous *r = tern_wire_rendezvous_open("127.0.0.1", 2, NULL);
    struct rendezvous_frame h;
    static uint8_t blob[TERN_WIRE_BLOB];
    int a = dial(r), b = dial(r);

    frame(&h, r, RENDEZVOUS_HELLO, 0, 2, 0);
    send(a, &h, sizeof h, 0);
    frame(&h, r, RENDEZVOUS_HELLO, 1, 2, 0);
    send(b, &h, sizeof h, 0);
    serve(r, 4);
    frame(&h, r, RENDEZVOUS_BLOB, 0, 2, TERN_WIRE_BLOB);
    send(a, &h, sizeof h, 0);
    send(a, blob, sizeof blob, 0);
    serve(r, 3);
    close(b);
    says(r, a, "rank 1 left while the ranks were meeting",
         "the other ranks get the name of the rank that left");
    serve(r, 2);
    ok(is_closed(a), "the other ranks' connections are closed");
    close(a);
    serve(r, 3);
    a = dial(r);
    frame(&h, r, RENDEZVOUS_HELLO, 0, 2, 0);
    send(a, &h, sizeof h, 0);
    serve(r, 3);
    struct pollfd p = {a, POLLIN, 0};
    ok(poll(&p, 1, 0) == 0, "the next attempt may meet at the same place");
    close(a);
    tern_wire_rendezvous_close(r);
}

/* A rank of `size` comes. */
static int come(struct tern_wire_rendezvous *r, uint32_t rank, uint32_t size)
{
    struct rendezvous_frame h;
    int fd = dial(r);

    frame(&h, r, RENDEZVOUS_HELLO, rank, size, 0);
    send(fd, &h, sizeof h, MSG_NOSIGNAL);
    serve(r, 3);
    return fd;
}

static void give(struct tern_wire_rendezvous *r, int fd, uint32_t rank, uint32_t size,
                 uint32_t round)
{
    struct {
        struct rendezvous_frame h;
        uint8_t blob[TERN_WIRE_BLOB];
    } m = {0};

    frame(&m.h, r, RENDEZVOUS_BLOB, rank, size, TERN_WIRE_BLOB);
    m.h.round = round;
    send(fd, &m, sizeof m, MSG_NOSIGNAL);
    serve(r, 3);
}

/* Has everybody's blob come? */
static bool all_of(int fd, uint32_t size)
{
    static char got[sizeof(struct rendezvous_frame) + 8 * TERN_WIRE_BLOB];
    struct rendezvous_frame h;
    ssize_t n = recv(fd, got, sizeof got, MSG_DONTWAIT);

    memcpy(&h, got, sizeof h);
    return n == (ssize_t)(sizeof h + size * TERN_WIRE_BLOB) && h.kind == RENDEZVOUS_ALL;
}

static void reports_missing_files(void)
{
    struct rlimit was, r = {0};
    struct tern_err err = {0};

    getrlimit(RLIMIT_NOFILE, &was);
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){40, was.rlim_max});
    struct tern_wire_rendezvous *many = tern_wire_rendezvous_open("127.0.0.1", 300, &err);
    getrlimit(RLIMIT_NOFILE, &r);
    ok(many && r.rlim_cur > 300 && r.rlim_max == was.rlim_max,
       "for many ranks more files may be open");
    tern_wire_rendezvous_close(many);

    struct tern_wire_rendezvous *few = tern_wire_rendezvous_open("127.0.0.1", 3, &err);
    int first = come(few, 0, 3), second = dial(few);
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){(rlim_t)second + 1, was.rlim_max});
    ok(tern_wire_rendezvous_step(few, &err) < 0, "a rank for which there is no file is an error");
    has(err.text, "Too many open files", "the error names too many open files");
    struct pollfd p = {tern_wire_rendezvous_fd(few), POLLIN, 0};
    ok(poll(&p, 1, 0) == 0, "a connection that cannot be accepted does not keep the loop busy");
    says(few, first, "one cannot be let in: Too many open files",
         "the ranks get the message of too many open files");
    setrlimit(RLIMIT_NOFILE, &was);
    close(first);
    serve(few, 2);
    usleep(1100000);
    serve(few, 3);
    close(second);
    first = come(few, 0, 3);
    p.fd = first;
    ok(poll(&p, 1, 0) == 0, "a second later ranks may come again");
    close(first);
    tern_wire_rendezvous_close(few);
}

/* The last file is a rank's: no connection waits any more. */
static void uses_the_last_file(void)
{
    struct rlimit was;
    struct tern_wire_rendezvous *r = tern_wire_rendezvous_open("127.0.0.1", 2, NULL);
    struct rendezvous_frame h;
    int fd = dial(r);
    struct pollfd p = {fd, POLLIN, 0};

    getrlimit(RLIMIT_NOFILE, &was);
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){(rlim_t)fd + 2, was.rlim_max});
    ok(tern_wire_rendezvous_step(r, NULL) == 0, "a rank may have the last file");
    frame(&h, r, RENDEZVOUS_HELLO, 1, 2, 0);
    send(fd, &h, sizeof h, MSG_NOSIGNAL);
    serve(r, 3);
    ok(poll(&p, 1, 0) == 0, "a rank that has joined keeps its place");
    setrlimit(RLIMIT_NOFILE, &was);
    close(fd);
    tern_wire_rendezvous_close(r);
}

static void names_a_rank_that_left_between(void)
{
    struct tern_wire_rendezvous *r = tern_wire_rendezvous_open("127.0.0.1", 3, NULL);
    int fd[3];

    for (uint32_t i = 0; i < 3; i++)
        fd[i] = come(r, i, 3);
    close(fd[0]);
    serve(r, 3);
    says(r, fd[1], "rank 0 left while",
         "a rank that leaves before any rank has given a blob is named");
    close(fd[1]);
    close(fd[2]);
    serve(r, 4);

    for (uint32_t i = 0; i < 3; i++)
        fd[i] = come(r, i, 3);
    for (uint32_t i = 0; i < 3; i++)
        give(r, fd[i], i, 3, 0);
    ok(all_of(fd[0], 3) && all_of(fd[1], 3) && all_of(fd[2], 3), "a further attempt meets");
    close(fd[2]);
    serve(r, 3);
    struct pollfd p = {fd[0], POLLIN, 0};
    ok(poll(&p, 1, 0) == 0, "a rank that leaves between two rounds may be done");
    give(r, fd[0], 0, 3, 1);
    says(r, fd[0], "rank 2 left while", "else it is named to the next that gives a blob");
    says(r, fd[1], "rank 2 left while",
         "ranks that gave no blob get the name of the rank that left");
    close(fd[0]);
    close(fd[1]);
    serve(r, 4);

    for (uint32_t i = 0; i < 3; i++)
        fd[i] = come(r, i, 3);
    for (uint32_t i = 0; i < 3; i++)
        give(r, fd[i], i, 3, 0);
    ok(all_of(fd[0], 3) && all_of(fd[1], 3) && all_of(fd[2], 3),
       "a further attempt of three ranks meets");
    give(r, fd[2], 2, 3, 1);
    close(fd[2]);
    serve(r, 3);
    give(r, fd[1], 1, 3, 1);
    says(r, fd[1], "rank 2 left while", "the only giver that leaves is named too");
    close(fd[0]);
    close(fd[1]);
    tern_wire_rendezvous_close(r);
}

static void strangers_give_way(void)
{
    enum { PLACES = 2 + 64 };
    struct tern_wire_rendezvous *r = tern_wire_rendezvous_open("127.0.0.1", 2, NULL);
    int strangers[PLACES], a, b;

    for (int i = 0; i < PLACES; i++) {
        strangers[i] = dial(r);
        serve(r, 1);
    }
    a = come(r, 0, 2);
    b = come(r, 1, 2);
    give(r, a, 0, 2, 0);
    give(r, b, 1, 2, 0);
    ok(all_of(a, 2) && all_of(b, 2), "ranks meet where strangers have taken every place");
    ok(is_closed(strangers[0]) && is_closed(strangers[1]), "the oldest of them give way");
    struct pollfd p = {strangers[2], POLLIN, 0};
    ok(poll(&p, 1, 0) == 0, "a newer stranger's connection stays open");
    for (int i = 0; i < PLACES; i++)
        close(strangers[i]);
    close(a);
    close(b);
    tern_wire_rendezvous_close(r);
}

static void bad_addresses(void)
{
    static const char *const bad[] = {"",
                                      "host",
                                      "host:1",
                                      "host:1/ff",
                                      ":1/00112233445566778899aabbccddeeff",
                                      "h:1234567/00112233445566778899aabbccddeeff",
                                      "h:1/zz112233445566778899aabbccddeeff"};
    int refused = 0;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct tern_err err = {0};
        struct tern_fabric_options o = {
            .wireup = TERN_WIREUP_SOCKET, .socket = bad[i], .size = 2, .deadline_s = 0.2};
        struct tern_fabric *f = tern_fabric_open(&o, &err);
        refused += !f && err.code == TERN_USAGE;
        tern_fabric_close(f);
    }
    ok(refused == sizeof bad / sizeof *bad, "an address that is none is refused (%d)", refused);
}

static void on_tick(int sig)
{
    (void)sig;
}

/* The status of a rank to whose meeting no other comes, while a signal comes every few
 * milliseconds. */
static int meet_amid_signals(const char *address)
{
    static uint8_t blob[TERN_WIRE_BLOB], all[2 * TERN_WIRE_BLOB];
    struct tern_wire_up w = {.rank = 0, .size = 2, .deadline_ns = 300000000};
    const struct sigaction sa = {.sa_handler = on_tick, .sa_flags = SA_RESTART};
    const struct itimerval often = {{0, 20000}, {0, 20000}};
    struct tern_err err = {0};

    sigaction(SIGALRM, &sa, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    if (tern_wire_up_socket(&w, address, &err) < 0)
        return 1;
    const int64_t began = tern_clock_boot_ns();
    const int rc = w.exchange(&w, blob, all, &err);
    const bool early = tern_clock_boot_ns() - began < w.deadline_ns / 2;
    w.close(&w);
    return rc == 0 ? 2 : !strstr(err.text, "within the deadline") ? 3 : early ? 4 : 0;
}

static void signals_do_not_lift_the_deadline(void)
{
    enum { LONG_ENOUGH_S = 600 };
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    char address[100];
    int fd = socket(AF_INET, SOCK_STREAM, 0), status = -1;

    if (fd < 0 || bind(fd, (struct sockaddr *)&at, n) < 0 || listen(fd, 4) < 0 ||
        getsockname(fd, (struct sockaddr *)&at, &n) < 0) {
        ok(false, "a socket that says nothing can be opened");
        return;
    }
    snprintf(address, sizeof address, "127.0.0.1:%u/00112233445566778899aabbccddeeff",
             ntohs(at.sin_port));
    fflush(stdout);
    const pid_t pid = fork();
    if (pid == 0)
        _exit(meet_amid_signals(address));
    const int64_t until = tern_clock_boot_ns() + LONG_ENOUGH_S * 1000000000ll;
    pid_t got = 0;
    while (got == 0 && tern_clock_boot_ns() < until) {
        got = waitpid(pid, &status, WNOHANG);
        tern_clock_sleep_ns(10000000);
    }
    if (got == 0) {
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
    }
    ok(got == pid && status == 0,
       "signals that come while ranks meet leave the deadline as it is (status %#x)", status);
    close(fd);
}

int main(void)
{
    refuses_strangers();
    names_a_rank_that_left();
    names_a_rank_that_left_between();
    reports_missing_files();
    uses_the_last_file();
    strangers_give_way();
    bad_addresses();
    signals_do_not_lift_the_deadline();
    return tap_done();
}
