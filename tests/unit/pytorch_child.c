/* core/pytorch: the process that reads a pickle can do nothing else, and its end is no crash. */
#include "core/base/fs.h"
#include "core/pytorch/pytorch.h"
#include "core/pytorch/sandbox.h"
#include "tests/unit/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static char work[] = "/tmp/tern-pytorch-XXXXXX";

/* The next file is cut to nothing between its mapping and its reading. */
static const char *cut_meanwhile;

int madvise(void *at, size_t len, int advice)
{
    if (cut_meanwhile && truncate(cut_meanwhile, 0) < 0)
        abort();
    return (int)syscall(SYS_madvise, at, len, advice);
}

static void test_cut(void)
{
#ifdef __SANITIZE_ADDRESS__
    tap_skip("a file that is cut short while it is read: the sanitizer reports it");
#else
    char *path = tern_fs_join(work, "cut.pt");
    struct tern_pytorch_file f;
    struct tern_err err = {0};

    if (tern_fs_replace(path, "PK\3\4 and more", 13, 0600, NULL) < 0)
        abort();
    cut_meanwhile = path;
    ok(tern_pytorch_open(path, &f, &err) < 0 && err.code == TERN_TEMPFAIL,
       "a file that is cut short while it is read may be whole another time");
    cut_meanwhile = NULL;
    has(err.text, "cut short meanwhile", "the message says what may have happened");
    free(path);
#endif
}

/* Can the kernel filter system calls at all? */
static bool filters;

/* In a child: 0 when all is as it should be, else the number of what is not. */
static int try_sandbox(int to, int other, pid_t parent)
{
    tern_pytorch_sandbox(to);
    if (write(other, "x", 1) >= 0 || write(1, "x", 1) >= 0)
        return 1;
    if (open("/dev/null", O_RDONLY) >= 0)
        return 2;
    if (socket(AF_UNIX, SOCK_STREAM, 0) >= 0)
        return 3;
    if (fork() >= 0)
        return 4;
    if (filters && (prctl(PR_GET_SECCOMP) >= 0 || syscall(SYS_getppid) >= 0))
        return 5;
    if (filters && (syscall(SYS_tgkill, parent, parent, 0) >= 0 ||
                    syscall(SYS_tgkill, getpid(), getpid(), 0) < 0))
        return 7;
    free(malloc(64 << 20));
    return write(to, "y", 1) == 1 ? 0 : 6;
}

static void test_sandbox(void)
{
    int pipes[2], other[2], status = -1;
    char c = 0;

    if (pipe(other) < 0 || pipe(pipes) < 0)
        abort();
    fflush(stdout);
    filters = prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL) < 0 && errno == EFAULT;
    const pid_t parent = getpid(), pid = fork();
    if (pid == 0)
        _exit(try_sandbox(pipes[1], other[1], parent));
    waitpid(pid, &status, 0);
    close(pipes[1]); /* where it wrote nothing, the read below ends */
    ok(WIFEXITED(status) && WEXITSTATUS(status) == 0,
       "the reading process can open, send and start nothing");
    if (WIFEXITED(status) && WEXITSTATUS(status))
        printf("# check %d\n", WEXITSTATUS(status));
    ok(read(pipes[0], &c, 1) == 1 && c == 'y', "it can write its answer");
    close(pipes[0]);
    close(other[0]);
    close(other[1]);
}

int main(void)
{
    if (!mkdtemp(work))
        return 1;
    test_cut();
    test_sandbox();
    tern_fs_remove_tree(work, NULL);
    return tap_done();
}
