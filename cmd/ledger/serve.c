/* tern ledger serve: the page of tern ledger report, which keeps itself up to date. */
#include "cmd/ledger/serve.h"

#include "core/base/again.h"
#include "core/base/fs.h"
#include "core/base/hash.h"
#include "core/base/listen.h"
#include "core/base/log.h"
#include "core/base/rand.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 16, EVERY_MAX_S = 3600 };

static const char *socket_path, *baseline;
static bool tcp;
static int64_t every;

/* The socket of a server that has ended goes; one that answers is an error. */
static int clear_place(const struct sockaddr_un *at, struct tern_err *err)
{
    struct stat st;

    if (TERN_AGAIN(lstat(at->sun_path, &st)) < 0)
        return errno == ENOENT ? 0 : tern_err_sys(err, "%s", at->sun_path);
    if (!S_ISSOCK(st.st_mode) || st.st_uid != geteuid())
        return tern_err_set(err, TERN_USAGE,
                            "%s: is there already, and is no socket of yours. Give another place "
                            "with --socket.",
                            at->sun_path);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool answers = fd >= 0 && connect(fd, (const struct sockaddr *)at, sizeof *at) == 0;
    if (fd >= 0)
        close(fd);
    if (answers)
        return tern_err_set(err, TERN_USAGE,
                            "%s: another process serves there. Give another place with --socket.",
                            at->sun_path);
    return TERN_AGAIN(unlink(at->sun_path)) == 0 ? 0 : tern_err_sys(err, "%s", at->sun_path);
}

/* A socket that its user alone may connect to, from its first moment. */
static int listen_unix(const char *path, struct tern_err *err)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};

    if (strlen(path) >= sizeof at.sun_path)
        return tern_err_set(err, TERN_USAGE, "%s: a socket's path has at most %zu bytes", path,
                            sizeof at.sun_path - 1);
    memcpy(at.sun_path, path, strlen(path));
    if (clear_place(&at, err) < 0)
        return -1;
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const mode_t before = umask(0177);
    int rc = fd < 0 ? -1 : bind(fd, (struct sockaddr *)&at, sizeof at);
    umask(before);
    if (rc == 0)
        rc = listen(fd, BACKLOG);
    if (rc == 0)
        return fd;
    tern_err_sys(err, "%s: cannot listen", path);
    if (fd >= 0)
        close(fd);
    return -1;
}

static void make_token(char to[SERVE_TOKEN + 1])
{
    uint8_t bytes[SERVE_TOKEN / 2];

    tern_rand_system(bytes, sizeof bytes);
    tern_hex(to, bytes, sizeof bytes);
}

/* malloc'ed; NULL with `err` where there is no usual place. */
static char *default_socket(struct tern_err *err)
{
    const char *dir = getenv("XDG_RUNTIME_DIR");

    if (socket_path)
        return tern_strdup(socket_path);
    if (dir && *dir == '/')
        return tern_strf("%s/tern-ledger.sock", dir);
    tern_err_set(err, TERN_USAGE,
                 "XDG_RUNTIME_DIR is not set: give a place for the socket with --socket PATH, or "
                 "--tcp");
    return NULL;
}

static int open_socket(struct serve *s, char **ret_path, struct tern_err *err)
{
    unsigned port = 0;
    char host[256] = "HOST";

    *ret_path = NULL;
    if (tcp) {
        make_token(s->token);
        s->fd = tern_listen("127.0.0.1", BACKLOG, &port, err);
        if (s->fd >= 0)
            printf("http://127.0.0.1:%u/%s/\n", port, s->token);
    } else {
        char *path = default_socket(err);
        s->fd = path ? listen_unix(path, err) : -1;
        if (s->fd >= 0) {
            gethostname(host, sizeof host - 1);
            tern_cmd_say("%s", path);
            tern_info("on your own machine: ssh -N -L 8080:%s %s, then http://localhost:8080/",
                      path, host);
            *ret_path = path;
        } else {
            free(path);
        }
    }
    fflush(stdout);
    return s->fd < 0 ? -1 : 0;
}

static int run(int n_args, char **args, struct tern_err *err)
{
    struct serve s = {.fd = -1, .n_args = n_args, .args = args, .baseline = baseline};
    struct report_runs r = {0};
    char *path = NULL, *title = NULL, *name = NULL;

    if (tcp && socket_path)
        return tern_err_set(err, TERN_USAGE, "give --tcp or --socket, not both");
    if (every < 1 || every > EVERY_MAX_S)
        return tern_err_set(err, TERN_USAGE, "--every takes 1 to %d seconds", EVERY_MAX_S);
    s.every_s = (int)every;
    if (serve_http_check(err) < 0 || show_need_ledger(err) < 0 || show_price(&s.usd_hour, err) < 0)
        return -1;
    s.ledger = show.ledger;
    /* A run that is not there is reported now. */
    int rc = report_runs_open(&r, n_args, args, baseline, s.usd_hour, err);
    if (rc == 0)
        rc = report_runs_title(&r, &title, &name, err);
    report_runs_close(&r);
    free(title);
    free(name);
    if (rc == 0)
        rc = open_socket(&s, &path, err);
    if (rc == 0)
        rc = serve_http(&s, err);
    if (s.fd >= 0)
        close(s.fd);
    if (path)
        unlink(path);
    free(path);
    return rc;
}

static const struct tern_opt opts[] = {
    SHOW_OPT_LEDGER,
    {"socket", 0, TERN_OPT_TEXT, "PATH", .to.text = &socket_path,
     .help = "the socket to serve on (default: tern-ledger.sock in XDG_RUNTIME_DIR)"},
    {"tcp", 0, TERN_OPT_FLAG, .to.flag = &tcp,
     .help = "on a port of 127.0.0.1 instead, with a secret in the address"},
    {"every", 0, TERN_OPT_INT, "SECONDS", .def = "5", .to.integer = &every,
     .help = "between two looks of a page for news"},
    {"baseline", 0, TERN_OPT_TEXT, "RUN", .to.text = &baseline,
     .help = "also this run: its newest perplexities are lines to compare with"},
    SHOW_OPT_PRICE,
    {0},
};

const struct tern_cmd ledger_serve = {
    .name = "serve",
    .args = "[RUN...]",
    .summary = "show runs to a browser, on a page that keeps itself up to date",
    .about =
        "The page of tern ledger report, whose data come anew while runs go on, with a list of "
        "your runs to choose from. It is served on a Unix socket that you alone can connect to. A "
        "browser on another machine gets there by ssh, as the message says. With --tcp it is a "
        "port of this machine, which other users of it could reach. So the address that is printed "
        "holds a secret, without which there is no answer. Requests by any other name than "
        "localhost are refused, and nothing can be changed. The command serves until Ctrl-C. It "
        "needs libmicrohttpd, at build time and when it runs. Without RUN: the newest run.",
    .examples = "  tern ledger serve\n"
                "  tern ledger serve --tcp cpt lora --baseline base\n",
    .opts = opts,
    .args_max = -1,
    .run = run,
};
