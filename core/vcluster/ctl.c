#include "core/vcluster/ctl.h"

#include "core/base/again.h"
#include "core/base/log.h"
#include "core/base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    BACKLOG = 16, /* requests that wait for the supervisor */
    /* Until an answer: behind so many nodes that boot, each of which may take 30 s. */
    ANSWER_S = (BACKLOG + 4) * 30,
    BUSY_S = 5,    /* then the caller's user hears of the wait */
    REQUEST_S = 1, /* in which a caller must have sent its request */
    TRIES = 20     /* of a caller that could not, as the machine is busy */
};

#define NAME_CHARACTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"

/* A process in a cluster sees its owner's mounts and programs: root in another user's cluster would
 * run that user's programs as root. */
static int check_owner(uid_t owner, const char *dir, struct tern_err *err)
{
    const char *name = strrchr(dir, '/');
    char user[32];

    if (owner == geteuid())
        return 0;
    struct passwd *pw = getpwuid(owner);
    if (pw && strspn(pw->pw_name, NAME_CHARACTERS) == strlen(pw->pw_name))
        snprintf(user, sizeof user, "%s", pw->pw_name);
    else
        snprintf(user, sizeof user, "'#%u'", (unsigned)owner);
    char *home = name ? tern_strf("%.*s", (int)(name - dir), dir) : tern_strdup(".");
    struct tern_buf command = {0};
    name = name ? name + 1 : dir;
    tern_buf_printf(&command, "sudo -u %s TERN_CLUSTER_HOME=", user);
    tern_buf_word(&command, *home ? home : "/");
    tern_buf_puts(&command, " tern cluster exec ");
    tern_buf_word(&command, name);
    tern_err_set(err, TERN_USAGE, "cluster '%s' is another user's. As that user: %s -- COMMAND",
                 name, command.data);
    tern_buf_free(&command);
    free(home);
    return -1;
}

int tern_vcluster_ctl_check_folder(const char *dir, struct tern_err *err)
{
    struct stat st;

    if (stat(dir, &st) < 0)
        return tern_err_sys(err, "%s: cannot look at it", dir);
    return check_owner(st.st_uid, dir, err);
}

/* Through /proc/self/fd, because a socket's path may have 107 bytes only and a folder's more. */
static int open_socket(const char *dir, int *fd, struct sockaddr_un *a, struct tern_err *err)
{
    int d = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct stat st;

    if (d < 0)
        return tern_err_sys(err, "%s: cannot open", dir);
    if (fstat(d, &st) < 0 || check_owner(st.st_uid, dir, err) < 0) {
        close(d);
        return -1;
    }
    *fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (*fd < 0) {
        tern_err_sys(err, "cannot make a socket");
        close(d);
        return -1;
    }
    *a = (struct sockaddr_un){.sun_family = AF_UNIX};
    snprintf(a->sun_path, sizeof a->sun_path, "/proc/self/fd/%d/ctl", d);
    return d;
}

int tern_vcluster_ctl_listen(const char *dir, struct tern_err *err)
{
    struct sockaddr_un a;
    int fd, d = open_socket(dir, &fd, &a, err);

    if (d < 0)
        return -1;
    unlinkat(d, "ctl", 0); /* of an ended supervisor */
    if (bind(fd, (struct sockaddr *)&a, sizeof a) < 0 || listen(fd, BACKLOG) < 0) {
        tern_err_sys(err, "%s/ctl: cannot listen", dir);
        close(fd);
        fd = -1;
    }
    close(d);
    return fd;
}

/* Neither side may hold up the other for ever. */
static void limit(int fd, int seconds)
{
    struct timeval t = {.tv_sec = seconds};

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t);
}

static int receive(int fd, const char *dir, struct tern_vcluster_ctl_answer *a, int *folder)
{
    union {
        char room[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    struct tern_vcluster_ctl_answer got;
    struct iovec io = {&got, sizeof got};
    struct msghdr m = {.msg_iov = &io,
                       .msg_iovlen = 1,
                       .msg_control = control.room,
                       .msg_controllen = sizeof control.room};
    struct pollfd answer = {.fd = fd, .events = POLLIN};

    if (TERN_AGAIN(poll(&answer, 1, BUSY_S * 1000)) == 0)
        tern_warn("%s: the supervisor is busy; this waits for its answer", dir);
    ssize_t n = TERN_AGAIN(recvmsg(fd, &m, MSG_CMSG_CLOEXEC));

    *folder = -1;
    struct cmsghdr *c = n < 0 ? NULL : CMSG_FIRSTHDR(&m);
    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
        memcpy(folder, CMSG_DATA(c), sizeof *folder);
    if (n == (ssize_t)sizeof got && got.size == sizeof got) {
        *a = got;
        a->text[sizeof a->text - 1] = '\0';
        return 0;
    }
    if (n >= 0)
        errno = EPROTO;
    return -1;
}

/* 0 after an answer; 1 when the supervisor closed the connection before it took the request; -1. */
static int exchange(int fd, const char *dir, const struct tern_vcluster_ctl_request *q,
                    struct tern_vcluster_ctl_answer *a, int *folder, struct tern_err *err)
{
    if (TERN_AGAIN(send(fd, q, sizeof *q, MSG_NOSIGNAL)) >= 0 && receive(fd, dir, a, folder) == 0)
        return 0;
    if (errno == EPIPE || errno == ECONNRESET) {
        tern_err_sys(err, "%s: the supervisor takes no request", dir);
        return 1;
    }
    if (errno == EAGAIN)
        return tern_err_set(err, TERN_TEMPFAIL,
                            "%s: the supervisor does not answer within %d s. It is stopped or "
                            "overloaded.",
                            dir, ANSWER_S);
    return tern_err_sys(err,
                        "%s: the supervisor does not answer. Was the cluster brought up by "
                        "another version of tern?",
                        dir);
}

/* One connection; its outcome as of exchange. */
static int ask_once(const char *dir, const struct tern_vcluster_ctl_request *q,
                    struct tern_vcluster_ctl_answer *a, int *folder, pid_t *supervisor,
                    struct tern_err *err)
{
    struct sockaddr_un to;
    struct ucred who;
    socklen_t len = sizeof who;
    int fd, got = -1, rc = -1, d = open_socket(dir, &fd, &to, err);

    if (d < 0)
        return -1;
    limit(fd, ANSWER_S);
    if (TERN_AGAIN(connect(fd, (struct sockaddr *)&to, sizeof to)) < 0) {
        tern_err_set(err, TERN_USAGE,
                     "%s: no supervisor answers (%s). `tern cluster list` shows "
                     "live ones.",
                     dir, strerror(errno));
        goto out;
    }
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) < 0) {
        tern_err_sys(err, "%s: cannot identify the supervisor's process", dir);
        goto out;
    }
    if (check_owner(who.uid, dir, err) < 0 || (rc = exchange(fd, dir, q, a, &got, err)) != 0)
        goto out;
    if (a->code) {
        rc = tern_err_set(err, (enum tern_code)a->code, "%s", a->text);
        goto out;
    }
    if (supervisor)
        *supervisor = who.pid;
    if (folder) {
        *folder = got;
        got = -1;
    }
out:
    if (got >= 0)
        close(got);
    close(fd);
    close(d);
    return rc;
}

int tern_vcluster_ctl_call(const char *dir, const struct tern_vcluster_ctl_request *q,
                           struct tern_vcluster_ctl_answer *a, int *folder, pid_t *supervisor,
                           struct tern_err *err)
{
    int rc = 1;

    for (int i = 0; i < TRIES && rc > 0; i++)
        rc = ask_once(dir, q, a, folder, supervisor, err);
    return rc ? -1 : 0;
}

int tern_vcluster_ctl_accept(int listener, struct tern_vcluster_ctl_request *q)
{
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    struct pollfd caller = {.fd = fd, .events = POLLRDHUP};

    if (fd < 0)
        return -1;
    limit(fd, REQUEST_S);
    if (TERN_AGAIN(recv(fd, q, sizeof *q, 0)) == (ssize_t)sizeof *q && q->size == sizeof *q &&
        poll(&caller, 1, 0) == 0) {
        q->node[sizeof q->node - 1] = '\0';
        return fd;
    }
    close(fd); /* a caller that has gone has already reported that nothing was done */
    return -1;
}

void tern_vcluster_ctl_answer(int connection, const struct tern_vcluster_ctl_answer *a, int folder)
{
    union {
        char room[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {{0}};
    struct iovec io = {(void *)a, sizeof *a};
    struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1};

    if (folder >= 0) {
        m.msg_control = control.room;
        m.msg_controllen = sizeof control.room;
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof folder);
        memcpy(CMSG_DATA(c), &folder, sizeof folder);
    }
    sendmsg(connection, &m, MSG_NOSIGNAL);
    close(connection);
}
