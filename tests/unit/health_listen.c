/* core/health: the sweep's listener, its nodes, and strangers. */
#include "tests/unit/tap.h"

#include "core/health/collect.h"
#include "core/health/probe.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static char *names[] = {"n1", "n2", "n3"};
static struct tern_health_rows rows;
static struct tern_health_listener listener;

/* Say `text` to the listener as a stranger; does it hang up? */
static int dropped(const char *text, size_t len)
{
    char host[256], port[8], key[80], c;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

    tern_health_address(listener.address, host, port, key);
    to.sin_port = htons((uint16_t)atoi(port));
    int fd = socket(AF_INET, SOCK_STREAM, 0), hung_up = 0;
    if (connect(fd, (struct sockaddr *)&to, sizeof to) == 0 &&
        send(fd, text, len, MSG_NOSIGNAL) > 0)
        for (int i = 0; i < 50 && !hung_up; i++) {
            tern_health_listen_step(&listener, -1, 2);
            hung_up = recv(fd, &c, 1, MSG_DONTWAIT) == 0;
        }
    close(fd);
    tern_health_listen_step(&listener, -1, 2);
    return hung_up;
}

/* A node's side in a child, which the listener serves; its exit status. */
static int serve(int (*child)(void))
{
    int status = 0;
    pid_t pid = fork();

    if (pid == 0)
        _exit(child());
    while (waitpid(pid, &status, WNOHANG) == 0)
        tern_health_listen_step(&listener, -1, 5);
    for (int i = 0; i < 5; i++)
        tern_health_listen_step(&listener, -1, 1);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int send_rows(void)
{
    struct tern_err err = {0};

    setenv("SLURMD_NODENAME", "n2", 1);
    tern_health_rows_add(&rows, &(struct tern_health_row){.verdict = TERN_HEALTH_NODE_BAD,
                                                          .severity = TERN_RULES_ERROR,
                                                          .check = "nic",
                                                          .node = "n1"}); /* it came from n2 */
    return tern_health_send(listener.address, &rows, &err) < 0;
}

static int ask_time(void)
{
    struct tern_err err = {0};
    double off = 1e9, error = 1e9;

    /* One clock, asked twice: it is off by no more than the answer may be wrong. */
    return tern_health_clock(listener.address, "n1", &off, &error, &err) < 0 || off > error + 1 ||
           off < -error - 1;
}

static int wrong_key(void)
{
    char address[400];
    struct tern_err err = {0};

    snprintf(address, sizeof address, "%s", listener.address);
    address[strlen(address) - 1] ^= 1;
    return tern_health_send(address, &rows, &err) == 0;
}

static int dial(void)
{
    char host[256], port[8], key[80];
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    tern_health_address(listener.address, host, port, key);
    to.sin_port = htons((uint16_t)atoi(port));
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) < 0)
        abort();
    return fd;
}

static bool hung_up(int fd)
{
    char c;

    return recv(fd, &c, 1, MSG_DONTWAIT) == 0;
}

static rlim_t files; /* that a process may open */

static int ask_time_with_files(void)
{
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){files, files});
    return ask_time();
}

/* Strangers that say nothing, more of them than there are places. */
static void silence(void)
{
    enum { SILENT = 2 * 3 + 64, FILES = 256 };
    int fd[SILENT], full[FILES], n_full = 0, open = 0;
    struct rlimit limit;
    char line[80];

    for (int i = 0; i < SILENT; i++) {
        fd[i] = dial();
        tern_health_listen_step(&listener, -1, 0);
    }
    ok(serve(ask_time) == 0, "a node is answered where %d strangers are silent", SILENT);
    getrlimit(RLIMIT_NOFILE, &limit);
    files = limit.rlim_cur;
    limit.rlim_cur = FILES;
    setrlimit(RLIMIT_NOFILE, &limit);
    while (n_full < FILES && (full[n_full] = dup(0)) >= 0)
        n_full++;
    ok(serve(ask_time_with_files) == 0, "a node is answered where no file is left, too");
    limit.rlim_cur = files;
    setrlimit(RLIMIT_NOFILE, &limit);
    while (n_full > 0)
        close(full[--n_full]);
    int node = dial(), n = snprintf(line, sizeof line, "%s n1\n", listener.key);
    ok(send(node, line, (size_t)n, MSG_NOSIGNAL) == n, "a node shows the key");
    for (int i = 0; i < 20; i++)
        tern_health_listen_step(&listener, -1, 2);
    for (size_t i = 0; i < listener.n_conns; i++)
        listener.conn[i].since -= 11000000000; /* as if eleven seconds had passed */
    tern_health_listen_step(&listener, -1, 0);
    for (int i = 0; i < SILENT; i++) {
        open += !hung_up(fd[i]);
        close(fd[i]);
    }
    ok(open == 0, "a stranger's silence ends its connection (%d are left)", open);
    ok(!hung_up(node), "a node may be silent");
    close(node);
    tern_health_listen_step(&listener, -1, 2);
}

static void collecting(void)
{
    static char big[8192];
    struct tern_health_rows got = {0};
    struct tern_err err;
    char line[400];

    if (!ok(tern_health_listen(&listener, names, 3, &got, &err) == 0, "a listener opens"))
        return;
    char *slash = strrchr(listener.address, '/');
    ok(slash && strlen(slash) == 33, "a listener's key has 128 bits");
    ok(serve(ask_time) == 0, "a listener answers with the time");
    ok(serve(send_rows) == 0 && got.n == 1 && listener.n_done == 1,
       "a listener takes a node's rows");
    ok(got.n == 1 && strcmp(got.row[0].node, "n2") == 0,
       "rows have the name of the node that sent them");
    ok(serve(send_rows) != 0 && got.n == 1, "a listener takes a node's rows only once");
    ok(serve(wrong_key) == 0 && got.n == 1, "a listener takes no rows with a wrong key");
    memset(big, 'x', sizeof big);
    ok(dropped(big, sizeof big), "a listener drops a line without end");
    ok(dropped("GET / HTTP/1.0\n", 15), "a listener drops an HTTP client");
    int n = snprintf(line, sizeof line, "%s n9\n", listener.key);
    ok(dropped(line, (size_t)n), "a listener drops a node of another job");
    n = snprintf(line, sizeof line, "%s n3\n{\"check\": 3}\n", listener.key);
    ok(dropped(line, (size_t)n), "a listener drops a line that is no row");
    n = snprintf(line, sizeof line, "%.31s\n", listener.key);
    ok(dropped(line, (size_t)n), "a listener drops a part of the key");
    ok(got.n == 1 && listener.n_done == 1, "a listener takes no rows from those that it drops");
    silence();
    tern_health_rows_free(&got);
    tern_health_rows_free(&rows);
    tern_health_listen_end(&listener);
}

int main(void)
{
    collecting();
    return tap_done();
}
