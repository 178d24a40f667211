/* core/pytorch: the process that reads a pickle can do nothing else, and its end is no crash. */
#include "core/base/fs.h"
#include "core/pytorch/pytorch.h"
#include "core/pytorch/sandbox.h"
#include "tests/lib/torch_file.h"
#include "tests/unit/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static char work[] = "/tmp/tern-pytorch-XXXXXX";

static pid_t self; /* this process, and not one that reads a file for it */

/* The next file is cut to nothing between its mapping and its reading. */
static const char *cut_meanwhile;
/* The reading process ends by this signal, or is silent (0) before it looks at the file. */
static int ends_by = -1;

int madvise(void *at, size_t len, int advice)
{
    if (cut_meanwhile && truncate(cut_meanwhile, 0) < 0)
        abort();
    while (ends_by >= 0 && getpid() != self) {
        if (ends_by) {
            signal(ends_by, SIG_DFL);
            kill(getpid(), ends_by);
        }
        pause();
    }
    return (int)syscall(SYS_madvise, at, len, advice);
}

/* Time passes in no time: a wait ends without an event, after which someone asks for an end. */
static bool hurry;
static unsigned waits, stop_after;
static volatile sig_atomic_t stop;

int poll(struct pollfd *fds, nfds_t n, int ms)
{
    if (!hurry || getpid() != self) {
        const struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
        return (int)syscall(SYS_ppoll, fds, n, ms < 0 ? NULL : &t, NULL, 0);
    }
    if (++waits == stop_after)
        stop = SIGINT;
    return 0;
}

/* Of what the reading process sends of its tensors, byte `lie_at` on becomes eight others. */
static int lie_at = -1;
static uint64_t lie;
static bool dies; /* once it has sent them */

ssize_t write(int fd, const void *data, size_t len)
{
    char copy[4096];

    if ((lie_at < 0 && !dies) || getpid() == self || len < 100 || len > sizeof copy)
        return syscall(SYS_write, fd, data, len);
    memcpy(copy, data, len);
    if (lie_at >= 0)
        memcpy(copy + lie_at, &lie, sizeof lie);
    const ssize_t n = syscall(SYS_write, fd, copy, len);
    if (dies)
        raise(SIGTERM);
    return n;
}

static char *put_file(const char *name)
{
    static const float values[12];
    struct torch_file t = {0};
    struct tern_buf file;
    char *path = tern_fs_join(work, name);

    torch_begin(&t);
    torch_key(&t, "a.");
    torch_tensor(&t,
                 &(struct torch_tensor){.storage = torch_storage(&t, "FloatStorage", 4, values, 12),
                                        .ndim = 2,
                                        .shape = {3, 4},
                                        .stride = {4, 1}});
    torch_end(&t);
    torch_zip(&t, &file);
    if (tern_fs_replace(path, file.data, file.len, 0600, NULL) < 0)
        abort();
    tern_buf_free(&file);
    tern_buf_free(&t.p);
    return path;
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

/* The reading process ends by a signal: whose fault that is. */
static void test_ends(void)
{
    static const struct {
        int sig, code;
        const char *words, *why;
    } ends[] = {
        {SIGKILL, TERN_TEMPFAIL, "no memory left", "killed: it may have memory another time"},
        {SIGXCPU, TERN_USAGE, "120 seconds of a CPU", "too long at work: the file is at fault"},
        {SIGINT, TERN_FAILED, "interrupted", "interrupted: the user wants it so"},
        {SIGSEGV, TERN_USAGE, "by signal 11", "crashed: the file is refused"},
    };
    char *path = put_file("ends.pt");
    struct tern_pytorch_file f;

    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        struct tern_err err = {0};
        ends_by = ends[i].sig;
        ok(tern_pytorch_open(path, &f, &err) < 0 && (int)err.code == ends[i].code,
           "a reading process that is %s", ends[i].why);
        has(err.text, ends[i].words, "its end by signal %d has words", ends[i].sig);
    }
    ends_by = -1;
    dies = true;
    ok(tern_pytorch_open(path, &f, NULL) < 0,
       "the answer of a process that was ended is not taken");
    dies = false;
    free(path);
}

/* The reading process never answers. */
static void test_silence(void)
{
    char *path = put_file("silent.pt");
    struct tern_pytorch_file f;
    struct tern_err err = {0};

    ends_by = 0;
    hurry = true;
    ok(tern_pytorch_open(path, &f, &err) < 0 && err.code == TERN_TEMPFAIL && waits == 1200,
       "a reading process that is silent for ten minutes is given up (%u waits)", waits);
    has(err.text, "within 600 s", "the message tells how long it was waited for");
    waits = 0;
    stop_after = 3;
    tern_pytorch_stop_at(&stop);
    ok(tern_pytorch_open(path, &f, &err) < 0 && err.code == TERN_FAILED && waits == 3,
       "an interrupt ends the wait for a reading process (%u waits)", waits);
    has(err.text, "interrupted", "the message says that it was interrupted");
    waits = 0;
    ok(tern_pytorch_open(path, &f, &err) < 0 && waits == 0, "after an interrupt no file is opened");
    tern_pytorch_stop_at(NULL);
    hurry = false;
    ends_by = -1;
    ok(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD, "no reading process is left");
    ok(tern_pytorch_open(path, &f, &err) == 0, "the next file is read");
    tern_pytorch_free(&f);
    free(path);
}

/* What a taken-over process may say: shape, stride, offset; storage, name, outer; type, ndim;
 * reference. */
static void test_lies(void)
{
    static const struct {
        int at;
        uint64_t value;
        const char *what;
    } lies[] = {
        {0, 1ull << 40, "a shape beyond the file"},
        {32, 1ull << 40, "a stride beyond the file"},
        {64, 1ull << 40, "a place beyond the file"},
        {72, 300ull << 32, "a name of 300 bytes"},
        {80, 2, "keys as long as the name"},
        {84, 99, "an unknown type"},
        {88, 5, "five dimensions"},
        {96, 0, "a reference to another file"},
        {104, 1, "a name with control characters"},
    };
    char *path = put_file("lies.pt");
    struct tern_pytorch_file f;

    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        struct tern_err err = {0};
        lie_at = lies[i].at;
        lie = lies[i].value;
        ok(tern_pytorch_open(path, &f, &err) < 0, "an answer with %s is refused", lies[i].what);
        has(err.text, "no sound answer", "%s: the message says so", lies[i].what);
    }
    lie_at = 32; /* one element, again and again */
    lie = 0;
    ok(tern_pytorch_open(path, &f, NULL) == 0 && f.tensors[0].stride[0] == 0,
       "an answer that lies within the file is taken");
    tern_pytorch_free(&f);
    lie_at = -1;
    free(path);
}

/* Can the kernel filter system calls at all? */
static bool filters;

/* In a child: 0 when all is as it should be, else the number of what is not. */
static int try_sandbox(int to, int other, pid_t parent)
{
    signal(SIGINT, SIG_IGN);
    tern_pytorch_sandbox(to);
    if (signal(SIGINT, SIG_DFL) != SIG_DFL)
        return 8;
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
    ok(read(pipes[0], &c, 1) == 1 && c == 'y', "a sandboxed child can write its answer");
    close(pipes[0]);
    close(other[0]);
    close(other[1]);
}

/* Memory that ranks share is not there in the reading process. */
static void test_shared(void)
{
    char *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char *own = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int status = -1;

    if (shared == MAP_FAILED || own == MAP_FAILED)
        abort();
    fflush(stdout);
    const pid_t pid = fork();
    if (pid == 0) {
        tern_pytorch_sandbox(2);
        signal(SIGSEGV, SIG_DFL);
        *own = 1;
        *shared = 1;
        _exit(0);
    }
    waitpid(pid, &status, 0);
    ok(*shared == 0 && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV,
       "the reading process cannot write to memory that its parent shares");
    munmap(shared, 4096);
    munmap(own, 4096);
}

int main(void)
{
    self = getpid();
    if (!mkdtemp(work))
        return 1;
    test_cut();
    test_ends();
    test_silence();
    test_lies();
    test_sandbox();
    test_shared();
    tern_fs_remove_tree(work, NULL);
    return tap_done();
}
