/* The file is looked at in a child without rights, which sends back the list of tensors:
 *
 *     struct head, the error's text or the tensors: struct sent, name */
#include "core/pytorch/pytorch.h"
#include "core/pytorch/sandbox.h"

#include "core/base/again.h"
#include "core/base/fs.h"
#include "core/base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TENSORS_MAX = 1 << 20 };
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

static _Noreturn void child(int fd, size_t len, const char *path, bool parts, int to)
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
        h.rc = parts ? tern_pytorch_parse_parts(data, len, path, &f, &err)
                     : tern_pytorch_parse(data, len, path, &f, &err);
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

/* Everything the child says until it ends. */
static void listen_to(int from, struct tern_buf *all)
{
    char piece[1 << 14];
    ssize_t got;

    while ((got = read(from, piece, sizeof piece)) != 0 && !all->failed) {
        if (got < 0 && errno != EINTR)
            return;
        if (got > 0)
            tern_buf_add(all, piece, (size_t)got);
    }
}

/* Its answer; -1 when there is none. */
static int ask(int fd, size_t len, const char *path, bool parts, struct tern_buf *all,
               struct tern_err *err)
{
    int pipes[2], status = 0;

    if (pipe2(pipes, O_CLOEXEC) < 0)
        return tern_err_sys(err, "%s: cannot be read in a process of its own", path);
    pid_t pid = tern_again_fork();
    if (pid == 0) {
        close(pipes[0]);
        child(fd, len, path, parts, pipes[1]);
    }
    close(pipes[1]);
    if (pid < 0)
        tern_err_sys(err, "%s: cannot be read in a process of its own", path);
    else
        listen_to(pipes[0], all);
    close(pipes[0]);
    if (pid < 0)
        return -1;
    kill(pid, SIGKILL); /* it has sent all, and ends */
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS)
        return tern_err_set(
            err, TERN_TEMPFAIL,
            "%s: cannot be read to its end: the storage failed, or the file was cut "
            "short meanwhile",
            path);
    if (all->failed || all->len < sizeof(struct head))
        return tern_err_set(err, TERN_USAGE,
                            "%s: the process that read its pickle ended without an answer", path);
    return 0;
}

static bool is_text(const char *s, size_t len)
{
    for (size_t i = 0, n; i < len; i += n)
        if ((n = tern_str_utf8(s + i, len - i)) == 0 || (unsigned char)s[i] < ' ')
            return false;
    return true;
}

/* Nothing that the child says is trusted: it has seen the file. */
static bool is_sound(const struct sent *s, const char *name, uint64_t bytes)
{
    uint64_t n = 1, way, size;
    bool empty = false;

    if (s->name == 0 || s->name > TERN_CKPT_NAME_MAX || s->outer >= s->name ||
        !is_text(name, s->name) || s->type < 0 || s->type > TERN_CKPT_OTHER || s->ndim < 0 ||
        s->ndim > TERN_CKPT_DIMS)
        return false;
    for (int d = 0; d < s->ndim; d++)
        empty |= s->shape[d] == 0;
    for (int d = 0; d < s->ndim && !empty; d++)
        if (__builtin_mul_overflow(s->shape[d] - 1, s->stride[d], &way) ||
            __builtin_add_overflow(n, way, &n))
            return false;
    if (__builtin_mul_overflow(empty ? 0 : n, tern_ckpt_type_bytes((enum tern_ckpt_type)s->type),
                               &size))
        return false;
    return s->offset <= bytes && size <= bytes - s->offset;
}

static int take_table(const struct tern_buf *all, const char *path, struct tern_pytorch_file *f,
                      struct tern_err *err)
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
        struct tern_pytorch_tensor *t = &f->tensors[f->n];
        struct sent s;
        if (all->len - at < sizeof s)
            goto unsound;
        memcpy(&s, all->data + at, sizeof s);
        at += sizeof s;
        if (all->len - at < s.name || !is_sound(&s, all->data + at, f->bytes))
            goto unsound;
        *t = (struct tern_pytorch_tensor){.name = tern_strf("%.*s", (int)s.name, all->data + at),
                                          .outer = s.outer,
                                          .type = (enum tern_ckpt_type)s.type,
                                          .ndim = s.ndim,
                                          .offset = s.offset,
                                          .storage = s.storage,
                                          .reference = s.reference < 0 ? -1 : s.reference};
        memcpy(t->shape, s.shape, sizeof t->shape);
        memcpy(t->stride, s.stride, sizeof t->stride);
        at += s.name;
    }
    return 0;
unsound:
    return tern_err_set(err, TERN_USAGE,
                        "%s: the process that read its pickle gave no sound answer", path);
}

static int read_file(int fd, const char *path, bool parts, struct tern_pytorch_file *f,
                     struct tern_err *err)
{
    struct tern_buf all = {.max = ANSWER_MAX};
    struct stat st;
    struct head h;

    if (TERN_AGAIN(fstat(fd, &st)) < 0)
        return tern_err_sys(err, "%s: cannot stat", path);
    if (!S_ISREG(st.st_mode))
        return tern_err_set(err, TERN_USAGE, "%s: is not a regular file", path);
    f->bytes = (uint64_t)st.st_size;
    int rc = ask(fd, (size_t)st.st_size, path, parts, &all, err);
    if (rc == 0) {
        memcpy(&h, all.data, sizeof h);
        if (h.rc == 0)
            rc = take_table(&all, path, f, err);
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

static int open_file(const char *path, bool parts, struct tern_pytorch_file *ret_file,
                     struct tern_err *err)
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
    int rc = read_file(fd, path, parts, &f, err);
    close(fd);
    if (rc < 0)
        tern_pytorch_free(&f);
    else
        *ret_file = f;
    return rc;
}

int tern_pytorch_open(const char *path, struct tern_pytorch_file *ret_file, struct tern_err *err)
{
    return open_file(path, /* parts= */ false, ret_file, err);
}

int tern_pytorch_open_parts(const char *path, struct tern_pytorch_file *ret_file,
                            struct tern_err *err)
{
    return open_file(path, /* parts= */ true, ret_file, err);
}
