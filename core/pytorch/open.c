/* The file is looked at in a child without rights, which sends back the list of tensors:
 *
 *     struct head, the error's text or the tensors: struct sent, name */
#include "core/pytorch/pickle.h"
#include "core/pytorch/pytorch.h"
#include "core/pytorch/sandbox.h"

#include "core/base/again.h"
#include "core/base/fs.h"
#include "core/base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    TENSORS_MAX = 1 << 20,
    ROUND_MS = 500,    /* until a stop is seen whose signal came between look and wait */
    SILENT_MAX = 1200, /* such rounds without a byte: a pickle of 64 MiB at 100 KiB/s */
    END_MS = 10,       /* between looks at a child that was killed */
    END_MAX = 500,     /* of them: beyond, it is in a system call of a storage that hangs */
};
/* A million tensors with names of 255 bytes. */
#define ANSWER_MAX (512ull << 20)

struct head {
    int32_t rc, code;
    uint64_t n, text; /* tensors; bytes of the error's text */
};

struct sent {
    uint64_t shape[TERN_CKPT_DIMS], stride[TERN_CKPT_DIMS], offset;
    uint32_t storage, name, outer; /* name: its bytes */
    int32_t type, ndim;
    int64_t reference;
};

static const volatile sig_atomic_t *stop_at;

void tern_pytorch_stop_at(const volatile sig_atomic_t *stop)
{
    stop_at = stop;
}

/* ---------------------------------------------------------------- in the child */

static int send_table(int to, const struct tern_pytorch_file *f)
{
    struct tern_buf b = {0};
    int rc = 0;

    for (size_t i = 0; i < f->n; i++) {
        const struct tern_pytorch_tensor *t = &f->tensors[i];
        struct sent s = {.offset = t->offset,
                         .storage = t->storage,
                         .name = (uint32_t)strlen(t->name),
                         .outer = (uint32_t)t->outer,
                         .type = (int32_t)t->type,
                         .ndim = t->ndim,
                         .reference = t->reference};
        memcpy(s.shape, t->shape, sizeof s.shape);
        memcpy(s.stride, t->stride, sizeof s.stride);
        tern_buf_add(&b, &s, sizeof s);
        tern_buf_add(&b, t->name, s.name);
    }
    if (b.failed || tern_fs_write(to, b.data, b.len, "the answer", NULL) < 0)
        rc = -1;
    tern_buf_free(&b);
    return rc;
}

static _Noreturn void child(int fd, size_t len, const char *path, enum tern_pytorch_take take,
                            int to)
{
    struct tern_pytorch_file f = {0};
    struct tern_err err = {0};
    struct head h = {.rc = -1};
    void *data = mmap(NULL, len ? len : 1, PROT_READ, MAP_PRIVATE, fd, 0);

    if (data == MAP_FAILED) {
        tern_err_sys(&err, "%s: cannot be mapped", path);
    } else {
        madvise(data, len, MADV_RANDOM); /* small parts of it are read, far from each other */
        tern_pytorch_sandbox(to);
        h.rc = tern_pytorch_parse_as(data, len, path, take, &f, &err);
    }
    h.code = (int32_t)err.code;
    h.text = h.rc < 0 ? strlen(err.text) : 0;
    h.n = f.n;
    int rc = tern_fs_write(to, &h, sizeof h, "the answer", NULL);
    if (rc == 0)
        rc =
            h.rc < 0 ? tern_fs_write(to, err.text, h.text, "the answer", NULL) : send_table(to, &f);
    _exit(rc < 0);
}

/* ---------------------------------------------------------------- in the caller */

enum heard { HEARD_ALL, HEARD_NOTHING, HEARD_STOP };

static bool is_stopped(void)
{
    return stop_at && *stop_at;
}

/* Everything the child says until it ends. */
static enum heard listen_to(int from, struct tern_buf *all)
{
    struct pollfd p = {.fd = from, .events = POLLIN};
    char piece[1 << 14];

    for (unsigned silent = 0; silent < SILENT_MAX;) {
        if (is_stopped())
            return HEARD_STOP;
        const int n = poll(&p, 1, ROUND_MS);
        if (n == 0)
            silent++;
        if (n <= 0)
            continue;
        const ssize_t got = read(from, piece, sizeof piece);
        if (got < 0 && errno == EINTR)
            continue;
        if (got > 0)
            tern_buf_add(all, piece, (size_t)got);
        if (got <= 0 || all->failed)
            return HEARD_ALL;
        silent = 0;
    }
    return HEARD_NOTHING;
}

/* Ends the child.  One that has said all is ending, and its status is its own. */
static int end_child(pid_t pid, enum heard heard)
{
    const struct timespec pause = {.tv_nsec = END_MS * 1000000};
    int status = 0;
    pid_t got = 0;

    kill(pid, SIGKILL);
    for (int i = 0; got != pid && (heard == HEARD_ALL || i < END_MAX); i++) {
        got = waitpid(pid, &status, heard == HEARD_ALL ? 0 : WNOHANG);
        if (got < 0 && errno != EINTR)
            break;
        if (got == 0)
            nanosleep(&pause, NULL);
    }
    return status;
}

/* Why there is no whole answer. */
static int say_end(int status, const char *path, struct tern_err *err)
{
    const int sig = WIFSIGNALED(status) ? WTERMSIG(status) : 0;

    switch (sig) {
    case SIGBUS:
        return tern_err_set(
            err, TERN_TEMPFAIL,
            "%s: cannot be read to its end: the storage failed, or the file was cut "
            "short meanwhile",
            path);
    case SIGKILL:
        return tern_err_set(err, TERN_TEMPFAIL,
                            "%s: the process that read its pickle was killed: most often the job "
                            "or the node has no memory left",
                            path);
    case SIGXCPU:
        return tern_err_set(err, TERN_USAGE,
                            "%s: its pickle takes more than %d seconds of a CPU, which no model's "
                            "does",
                            path, TERN_PYTORCH_CPU_S);
    case SIGINT:
    case SIGTERM:
    case SIGHUP:
        return tern_err_set(err, TERN_FAILED, "%s: interrupted", path);
    case 0:
        return tern_err_set(err, TERN_USAGE,
                            "%s: the process that read its pickle ended without an answer", path);
    default:
        return tern_err_set(err, TERN_USAGE,
                            "%s: the process that read its pickle was ended by signal %d", path,
                            sig);
    }
}

/* Its answer; -1 when there is none. */
static int ask(int fd, size_t len, const char *path, enum tern_pytorch_take take,
               struct tern_buf *all, struct tern_err *err)
{
    enum heard heard = HEARD_ALL;
    int pipes[2];

    if (is_stopped())
        return tern_err_set(err, TERN_FAILED, "%s: interrupted", path);
    if (pipe2(pipes, O_CLOEXEC) < 0)
        return tern_err_sys(err, "%s: cannot be read in a process of its own", path);
    pid_t pid = tern_again_fork();
    if (pid == 0) {
        close(pipes[0]);
        child(fd, len, path, take, pipes[1]);
    }
    close(pipes[1]);
    if (pid < 0)
        tern_err_sys(err, "%s: cannot be read in a process of its own", path);
    else
        heard = listen_to(pipes[0], all);
    close(pipes[0]);
    if (pid < 0)
        return -1;
    const int status = end_child(pid, heard);
    if (heard == HEARD_STOP || is_stopped())
        return tern_err_set(err, TERN_FAILED, "%s: interrupted", path);
    if (heard == HEARD_NOTHING)
        return tern_err_set(err, TERN_TEMPFAIL,
                            "%s: its tensors could not be listed within %d s. Is its storage "
                            "slow, or does it hang?",
                            path, SILENT_MAX * ROUND_MS / 1000);
    if (all->failed)
        return tern_err_set(err, TERN_USAGE, "%s: its list of tensors has more than %llu MiB", path,
                            ANSWER_MAX >> 20);
    return status == 0 && all->len >= sizeof(struct head) ? 0 : say_end(status, path, err);
}

static bool is_text(const char *s, size_t len)
{
    for (size_t i = 0, n; i < len; i += n)
        if ((n = tern_str_utf8(s + i, len - i)) == 0 || (unsigned char)s[i] < ' ')
            return false;
    return true;
}

/* What was sent, as it stands in the list; without the name. */
static struct tern_pytorch_tensor tensor_of(const struct sent *s)
{
    struct tern_pytorch_tensor t = {.outer = s->outer,
                                    .type = (enum tern_ckpt_type)s->type,
                                    .ndim = s->ndim,
                                    .offset = s->offset,
                                    .storage = s->storage,
                                    .reference = s->reference};

    memcpy(t.shape, s->shape, (size_t)s->ndim * sizeof *t.shape);
    memcpy(t.stride, s->stride, (size_t)s->ndim * sizeof *t.stride);
    return t;
}

/* Nothing that the child says is trusted: it has seen the file. */
static bool is_sound(const struct sent *s, const char *name, enum tern_pytorch_take take,
                     uint64_t bytes)
{
    uint64_t size;

    if (s->name == 0 || s->name > TERN_CKPT_NAME_MAX || !is_text(name, s->name) ||
        s->outer >= s->name || (s->outer && name[s->outer - 1] != '.'))
        return false;
    if (s->type < 0 || s->type > TERN_CKPT_OTHER || s->ndim < 0 || s->ndim > TERN_CKPT_DIMS ||
        (s->type == TERN_CKPT_OTHER && (s->ndim != 1 || s->stride[0] != 1)))
        return false;
    if (s->reference != -1 &&
        (s->reference < 0 || take == TERN_PYTORCH_TENSORS || s->ndim || s->offset))
        return false;
    const struct tern_pytorch_tensor t = tensor_of(s);
    return tern_pytorch_extent(&t, (unsigned)tern_ckpt_type_bytes(t.type), &size) == 0 &&
           (s->reference >= 0 || (s->offset <= bytes && size <= bytes - s->offset));
}

static int take_table(const struct tern_buf *all, const char *path, enum tern_pytorch_take take,
                      struct tern_pytorch_file *f, struct tern_err *err)
{
    struct head h;
    size_t at = sizeof h;

    memcpy(&h, all->data, sizeof h);
    if (h.n > TENSORS_MAX || h.n > all->len / sizeof(struct sent))
        goto unsound;
    f->tensors = tern_alloc(h.n + 1, sizeof *f->tensors, path, err);
    if (!f->tensors)
        return -1;
    for (; f->n < h.n; f->n++) {
        struct sent s;
        if (all->len - at < sizeof s)
            goto unsound;
        memcpy(&s, all->data + at, sizeof s);
        at += sizeof s;
        if (all->len - at < s.name || !is_sound(&s, all->data + at, take, f->bytes))
            goto unsound;
        f->tensors[f->n] = tensor_of(&s);
        f->tensors[f->n].name = tern_strf("%.*s", (int)s.name, all->data + at);
        at += s.name;
    }
    if (at != all->len)
        goto unsound;
    return 0;
unsound:
    return tern_err_set(err, TERN_USAGE,
                        "%s: the process that read its pickle gave no sound answer", path);
}

static int read_file(int fd, const char *path, enum tern_pytorch_take take,
                     struct tern_pytorch_file *f, struct tern_err *err)
{
    struct tern_buf all = {.max = ANSWER_MAX};
    struct stat st;
    struct head h;

    if (TERN_AGAIN(fstat(fd, &st)) < 0)
        return tern_err_sys(err, "%s: cannot stat", path);
    if (!S_ISREG(st.st_mode))
        return tern_err_set(err, TERN_USAGE, "%s: is not a regular file", path);
    f->bytes = (uint64_t)st.st_size;
    int rc = ask(fd, (size_t)st.st_size, path, take, &all, err);
    if (rc == 0) {
        memcpy(&h, all.data, sizeof h);
        if (h.rc == 0)
            rc = take_table(&all, path, take, f, err);
        else if (h.text > all.len - sizeof h || h.text > sizeof err->text)
            rc = tern_err_set(err, TERN_USAGE, "%s: cannot be read", path);
        else
            rc = tern_err_set(err, h.code == TERN_TEMPFAIL ? TERN_TEMPFAIL : TERN_USAGE, "%.*s",
                              (int)h.text, all.data + sizeof h);
        if (h.rc != 0 && err)
            tern_str_mask(err->text);
    }
    tern_buf_free(&all);
    return rc;
}

static int open_file(const char *path, enum tern_pytorch_take take,
                     struct tern_pytorch_file *ret_file, struct tern_err *err)
{
    struct tern_pytorch_file f = {0};
    int fd = TERN_AGAIN(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));

    if (fd < 0) {
        const bool absent = errno == ENOENT;
        tern_err_sys(err, "%s: cannot open", path);
        if (absent && err)
            err->code = TERN_USAGE;
        return -1;
    }
    int rc = read_file(fd, path, take, &f, err);
    close(fd);
    if (rc < 0)
        tern_pytorch_free(&f);
    else
        *ret_file = f;
    return rc;
}

int tern_pytorch_open(const char *path, struct tern_pytorch_file *ret_file, struct tern_err *err)
{
    return open_file(path, TERN_PYTORCH_TENSORS, ret_file, err);
}

int tern_pytorch_open_parts(const char *path, struct tern_pytorch_file *ret_file,
                            struct tern_err *err)
{
    return open_file(path, TERN_PYTORCH_PARTS, ret_file, err);
}

int tern_pytorch_open_numbers(const char *path, struct tern_pytorch_file *ret_file,
                              struct tern_err *err)
{
    return open_file(path, TERN_PYTORCH_NUMBERS, ret_file, err);
}
