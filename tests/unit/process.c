/* core/base/process: other processes, and descriptors, on new kernels and old ones. */
#include "core/base/process.h"

#include "tests/unit/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* A thread that says what it has: descriptors shared[0] and shared[1] of the process, of which it
 * keeps the first. */
struct files_thread {
    int shared[2], asks[2], says[2];
    bool own; /* its table */
};

static void *files_run(void *arg)
{
    struct files_thread *t = arg;

    t->own = tern_process_unshare_files((int[]){t->says[1], t->asks[0], t->shared[0]}, 3);
    for (char c; read(t->asks[0], &c, 1) == 1;) {
        c = (char)('0' + (fcntl(t->shared[0], F_GETFD) >= 0) +
                   2 * (fcntl(t->shared[1], F_GETFD) >= 0) + 4 * (fcntl(2, F_GETFD) >= 0));
        if (write(t->says[1], &c, 1) != 1)
            break;
    }
    return NULL;
}

static char files_ask(struct files_thread *t)
{
    char c = '?';

    return write(t->asks[1], &c, 1) == 1 && read(t->says[0], &c, 1) == 1 ? c : '!';
}

static void test_own_files(void)
{
    struct files_thread t = {.own = false};
    pthread_t thread;
    char c, has;

    if (pipe(t.shared) < 0 || pipe(t.asks) < 0 || pipe(t.says) < 0 ||
        pthread_create(&thread, NULL, files_run, &t) != 0)
        abort();
    has = files_ask(&t);
    ok(fcntl(t.shared[0], F_GETFD) >= 0 && fcntl(t.shared[1], F_GETFD) >= 0,
       "a thread's table of its own closes nothing in the process");
    if (t.own) {
        ok(has == '5', "a thread has the descriptors that it keeps, and the standard ones");
        close(t.shared[1]);
        ok(read(t.shared[0], &c, 1) == 0, "a pipe ends though a thread began while it was open");
        close(t.shared[0]);
        ok(files_ask(&t) == '5', "what the process closes stays open in a thread that keeps it");
        close(t.asks[1]); /* the thread has no copy */
    } else {
        ok(has == '7', "where a table of its own is refused, a thread has all descriptors");
        close(t.shared[1]);
        close(t.shared[0]);
        close(t.asks[1]);
    }
    pthread_join(thread, NULL);
    close(t.asks[0]);
    close(t.says[0]);
    close(t.says[1]);
}

/* tests/cli/kernel.sh runs this again without the system calls that old kernels lack. */
static void test_process(void)
{
    struct tern_process p;
    int wait[2], spare;
    char c;

    ok(!tern_process_ended(&TERN_PROCESS_NONE, 0), "TERN_PROCESS_NONE has not ended");
    if (pipe(wait) < 0)
        abort();
    pid_t pid = fork();
    if (pid == 0) {
        close(wait[1]);
        _exit(read(wait[0], &c, 1) == 0 ? 3 : 4);
    }
    ok(tern_process_open(&p, pid) == 0 && !tern_process_ended(&p, 20),
       "a running process has not ended");
    ok(tern_process_signal(&p, 0) == 0, "a running process takes a signal");
    close(wait[1]);
    ok(tern_process_ended(&p, 60000), "a zombie has ended");
    waitpid(pid, NULL, 0);
    ok(tern_process_ended(&p, 0), "a reaped process has ended");
    ok(tern_process_signal(&p, SIGKILL) < 0 && errno == ESRCH, "a reaped process takes no signal");
    tern_process_close(&p);
    ok(tern_process_open(&p, pid) < 0 && errno == ESRCH && !tern_process_ended(&p, 0),
       "a reaped process cannot be opened");

    pid = fork();
    if (pid == 0) {
        for (spare = 0; spare < 300;)
            spare = dup(wait[0]);
        tern_close_from(wait[0]);
        for (int fd = wait[0]; fd < 301; fd++)
            if (fcntl(fd, F_GETFD) >= 0)
                _exit(1);
        _exit(fcntl(2, F_GETFD) < 0);
    }
    int status = -1;
    waitpid(pid, &status, 0);
    ok(status == 0, "tern_close_from closes 300 descriptors and no lower one");
    close(wait[0]);
    test_own_files();
    int folder = tern_process_folder(0);
    ok(folder >= 0 && tern_process_enter(folder, 0) == 0,
       "a process enters through its /proc folder");
    close(folder);
}

int main(void)
{
    test_process();
    return tap_done();
}
