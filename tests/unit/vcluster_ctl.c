/* core/vcluster's protocol: requests to a supervisor that is busy. */
#include "tests/unit/tap.h"

#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/vcluster/ctl.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[] = "/tmp/tern-ctl-XXXXXX";
static const struct tern_vcluster_ctl_request request = {.size = sizeof request,
                                                         .op = TERN_VCLUSTER_CTL_OFF};

/* A caller's connection, with its request sent. */
static int caller(void)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    snprintf(to.sun_path, sizeof to.sun_path, "%s/ctl", dir);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) < 0 ||
        send(fd, &request, sizeof request, 0) < 0)
        abort();
    return fd;
}

static void gone(int listener)
{
    struct tern_vcluster_ctl_request got;
    int stays = caller(), leaves = caller();

    close(leaves);
    int fd = tern_vcluster_ctl_accept(listener, &got);
    ok(fd >= 0, "a request whose caller waits is taken");
    close(fd);
    close(stays);
    ok(tern_vcluster_ctl_accept(listener, &got) < 0,
       "a request whose caller has gone meanwhile is not carried out");
}

static void unread(int listener)
{
    struct tern_vcluster_ctl_request got;
    struct tern_vcluster_ctl_answer a = {.size = sizeof a, .n_nodes = 8}, had = {0};
    struct pollfd again = {.fd = listener, .events = POLLIN};
    struct tern_err err = {0};
    int status;

    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        int rc = tern_vcluster_ctl_call(dir, &request, &had, NULL, NULL, &err);
        _exit(rc == 0 && had.n_nodes == 8 ? 0 : 1);
    }
    close(accept(listener, NULL, NULL)); /* as a supervisor that waited too long for the request */
    int fd = poll(&again, 1, 60000) == 1 ? tern_vcluster_ctl_accept(listener, &got) : -1;
    tern_vcluster_ctl_answer(fd, &a, -1);
    waitpid(pid, &status, 0);
    ok(status == 0, "a caller whose request was not read asks again");
}

static void owner(void)
{
    struct tern_err err = {0};
    char *theirs = tern_fs_join(dir, "theirs");

    if (mkdir(theirs, 0755) < 0 || (geteuid() == 0 && chown(theirs, 65534, 65534) < 0))
        abort();
    ok(tern_vcluster_ctl_check_folder(geteuid() == 0 ? theirs : "/", &err) < 0 &&
           err.code == TERN_USAGE && strstr(err.text, "is another user's. As that user: sudo -u"),
       "another user's cluster is refused, with the command for its owner");
    ok(tern_vcluster_ctl_check_folder(dir, &err) == 0, "the caller's own folder is taken");
    free(theirs);
    if (geteuid() != 0)
        return;
    char *home = tern_fs_join(dir, "it's; $(x)");
    theirs = tern_fs_join(home, "a");
    if (mkdir(home, 0755) < 0 || mkdir(theirs, 0755) < 0 || chown(theirs, 65534, 65534) < 0)
        abort();
    char *want = tern_strf(" TERN_CLUSTER_HOME='%s/it'\\''s; $(x)' tern cluster exec a -- ", dir);
    ok(tern_vcluster_ctl_check_folder(theirs, &err) < 0 && strstr(err.text, want),
       "the command for its owner is quoted for a shell: %s", err.text);
    free(want);
    free(theirs);
    free(home);
}

/* Serves ROOM/ctl as another user: 0 when no request comes. */
static int serve_as_other(const char *room, int ready)
{
    struct tern_vcluster_ctl_request got;
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    snprintf(at.sun_path, sizeof at.sun_path, "%s/ctl", room);
    if (setgid(65534) < 0 || setuid(65534) < 0 || bind(fd, (struct sockaddr *)&at, sizeof at) < 0 ||
        listen(fd, 1) < 0 || write(ready, "", 1) != 1)
        return 2;
    int caller = accept(fd, NULL, NULL);
    return caller >= 0 && recv(caller, &got, sizeof got, 0) == 0 ? 0 : 1;
}

/* A folder of the caller's, where anybody may write, does not vouch for the socket in it. */
static void impostor(void)
{
    struct tern_vcluster_ctl_answer a = {0};
    struct tern_err err = {0};
    char *room = tern_fs_join(dir, "open"), byte;
    int ready[2], status = -1, folder = -1;

    if (geteuid() != 0) {
        free(room);
        return;
    }
    if (mkdir(room, 0755) < 0 || chmod(dir, 0711) < 0 || chmod(room, 0777) < 0 || pipe(ready) < 0)
        abort();
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0)
        _exit(serve_as_other(room, ready[1]));
    close(ready[1]);
    const bool serves = read(ready[0], &byte, 1) == 1;
    close(ready[0]);
    ok(serves && tern_vcluster_ctl_check_folder(room, &err) == 0,
       "another user serves the socket in a folder of the caller's");
    ok(tern_vcluster_ctl_call(room, &request, &a, &folder, NULL, &err) < 0 &&
           err.code == TERN_USAGE && folder < 0 &&
           strstr(err.text, "is another user's. As that user: sudo -u"),
       "its supervisor is refused, with the command for its owner: %s", err.text);
    waitpid(pid, &status, 0);
    ok(status == 0, "another user's supervisor gets no request");
    free(room);
}

int main(void)
{
    struct tern_err err = {0};

    if (!mkdtemp(dir))
        return tap_skip_all("no folder under /tmp");
    int listener = tern_vcluster_ctl_listen(dir, &err);
    if (ok(listener >= 0, "a supervisor listens")) {
        gone(listener);
        unread(listener);
    }
    close(listener);
    owner();
    impostor();
    tern_fs_remove_tree(dir, NULL);
    return tap_done();
}
