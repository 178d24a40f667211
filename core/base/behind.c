/* A thread that writes to a file behind the one that makes its bytes. */
#include "core/base/behind.h"

#include "core/base/again.h"
#include "core/base/assert.h"
#include "core/base/fs.h"
#include "core/base/hash.h"
#include "core/base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PIECES = 4, PIECE = 2 << 20 };

/* What was given, for tern_behind_end to compare with. */
struct sum { /* of a piece */
    uint32_t crc, n;
};

struct patch { /* of written bytes: what stood there, and what does now */
    uint64_t at;
    size_t n;
    char before[TERN_BEHIND_PATCH], now[TERN_BEHIND_PATCH];
};

struct given {
    struct sum *sums;      /* [n_sums] */
    struct patch *patches; /* [n_patches] */
    size_t n_sums, n_patches;
    struct tern_behind_read_back how;
};

struct tern_behind {
    int fd;
    const char *path;
    uint64_t at; /* bytes given */
    pthread_t thread;
    /* Of both threads, under the lock. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned filled, written; /* pieces so far: the ring holds those between */
    size_t length[PIECES];
    bool over, failed;
    bool direct; /* no thread could be had: the giver writes */
    bool read_back;
    struct given given;
    struct tern_err err;
    char *ring;  /* [PIECES * PIECE]; piece `filled` is the giver's alone */
    size_t open; /* bytes in that piece */
};

/* The storage begins with what is written; where the kernel refuses that, it begins later. */
static void begin_storage(int fd, uint64_t at, size_t n)
{
    sync_file_range(fd, (off_t)at, (off_t)n, SYNC_FILE_RANGE_WRITE);
}

static void *write_pieces(void *ctx)
{
    struct tern_behind *b = ctx;
    uint64_t at = 0;

    pthread_mutex_lock(&b->lock);
    for (;;) {
        while (b->written == b->filled && !b->over)
            pthread_cond_wait(&b->changed, &b->lock);
        if (b->written == b->filled)
            break;
        const unsigned i = b->written % PIECES;
        const size_t n = b->length[i];
        const bool skip = b->failed;
        pthread_mutex_unlock(&b->lock);
        struct tern_err err = {0};
        const int rc =
            skip ? 0 : tern_fs_write(b->fd, b->ring + (size_t)i * PIECE, n, b->path, &err);
        if (!skip && rc == 0)
            begin_storage(b->fd, at, n);
        at += n;
        pthread_mutex_lock(&b->lock);
        if (rc < 0) {
            b->failed = true;
            b->err = err;
        }
        b->written++;
        pthread_cond_signal(&b->changed);
    }
    pthread_mutex_unlock(&b->lock);
    return NULL;
}

struct tern_behind *tern_behind_new(int fd, const char *path, struct tern_err *err)
{
    struct tern_behind *b = tern_alloc(1, sizeof *b, path, err);
    sigset_t all, before;

    if (!b)
        return NULL;
    *b = (struct tern_behind){.fd = fd, .path = path};
    b->ring = tern_alloc(PIECES, PIECE, path, err);
    if (!b->ring) {
        free(b);
        return NULL;
    }
    pthread_mutex_init(&b->lock, NULL);
    pthread_cond_init(&b->changed, NULL);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    errno = pthread_create(&b->thread, NULL, write_pieces, b);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (errno == 0)
        return b;
    b->direct = true;
    return b;
}

void tern_behind_read_back(struct tern_behind *b, const struct tern_behind_read_back *how)
{
    tern_assert(b->at == 0, "%s: %llu bytes have no sum", b->path, (unsigned long long)b->at);
    b->read_back = true;
    b->given.how = *how;
}

/* Room for one more of *list, which has n; -1 without memory.  It doubles at powers of two. */
static int grow(void **list, size_t n, size_t size, const char *path, struct tern_err *err)
{
    if (n & (n - 1))
        return 0;
    void *more = realloc(*list, (n ? 2 * n : 1) * size);
    if (!more)
        return tern_err_set(err, TERN_TEMPFAIL, "%s: no memory for its sums", path);
    *list = more;
    return 0;
}

/* Where there is no memory the end cannot compare, which is a failure. */
static void add_sum(struct tern_behind *b)
{
    struct given *g = &b->given;
    const char *piece = b->ring + (size_t)(b->filled % PIECES) * PIECE;
    struct tern_err err;

    if (grow((void **)&g->sums, g->n_sums, sizeof *g->sums, b->path, &err) == 0) {
        g->sums[g->n_sums++] = (struct sum){tern_crc32c(0, piece, b->open), (uint32_t)b->open};
        return;
    }
    pthread_mutex_lock(&b->lock);
    b->failed = true;
    b->err = err;
    pthread_mutex_unlock(&b->lock);
}

static void write_now(struct tern_behind *b)
{
    if (!b->failed && tern_fs_write(b->fd, b->ring, b->open, b->path, &b->err) < 0)
        b->failed = true;
    b->open = 0;
}

/* The open piece goes to the other thread, and a free one is waited for. */
static void hand_over(struct tern_behind *b)
{
    if (b->read_back)
        add_sum(b);
    if (b->direct) {
        write_now(b);
        return;
    }
    pthread_mutex_lock(&b->lock);
    b->length[b->filled % PIECES] = b->open;
    b->filled++;
    b->open = 0;
    pthread_cond_signal(&b->changed);
    while (b->filled - b->written == PIECES)
        pthread_cond_wait(&b->changed, &b->lock);
    pthread_mutex_unlock(&b->lock);
}

/* All that was given is written, or some of it has failed. */
static int settle(struct tern_behind *b, struct tern_err *err)
{
    if (b->open > 0)
        hand_over(b);
    pthread_mutex_lock(&b->lock);
    while (b->filled != b->written)
        pthread_cond_wait(&b->changed, &b->lock);
    const bool failed = b->failed;
    pthread_mutex_unlock(&b->lock);
    return failed ? tern_err_set(err, b->err.code, "%s", b->err.text) : 0;
}

int tern_behind_write(struct tern_behind *b, const void *data, size_t n, struct tern_err *err)
{
    const char *from = data;

    for (size_t some; n > 0; n -= some, from += some) {
        some = PIECE - b->open < n ? PIECE - b->open : n;
        memcpy(b->ring + (size_t)(b->filled % PIECES) * PIECE + b->open, from, some);
        b->open += some;
        b->at += some;
        if (b->open == PIECE)
            hand_over(b);
    }
    pthread_mutex_lock(&b->lock);
    const bool failed = b->failed;
    pthread_mutex_unlock(&b->lock);
    return failed ? tern_err_set(err, b->err.code, "%s", b->err.text) : 0;
}

static int add_patch(struct tern_behind *b, uint64_t at, const void *data, size_t n,
                     struct tern_err *err)
{
    struct given *g = &b->given;
    struct patch p = {.at = at, .n = n};

    memcpy(p.now, data, n);
    if (tern_fs_pread(b->fd, p.before, n, at, b->path, err) < 0 ||
        grow((void **)&g->patches, g->n_patches, sizeof p, b->path, err) < 0)
        return -1;
    g->patches[g->n_patches++] = p;
    return 0;
}

int tern_behind_patch(struct tern_behind *b, uint64_t at, const void *data, size_t n,
                      struct tern_err *err)
{
    tern_assert(n <= TERN_BEHIND_PATCH, "%s: a patch of %zu bytes", b->path, n);
    tern_assert(at + n <= b->at, "%s: a patch at %llu of %llu bytes", b->path,
                (unsigned long long)at, (unsigned long long)b->at);
    if (at >= b->at - b->open) { /* it lies in the open piece */
        memcpy(b->ring + (size_t)(b->filled % PIECES) * PIECE + (at - (b->at - b->open)), data, n);
        return 0;
    }
    if (settle(b, err) < 0 || (b->read_back && add_patch(b, at, data, n, err) < 0))
        return -1;
    errno = 0;
    if (TERN_AGAIN(pwrite(b->fd, data, n, (off_t)at)) != (ssize_t)n)
        return tern_err_sys(err, "%s: cannot write", b->path);
    return 0;
}

uint64_t tern_behind_at(const struct tern_behind *b)
{
    return b->at;
}

/* Undo the patches in `n` bytes of the file from `at` on; false: one is not there as it was given.
 */
static bool undo_patches(const struct given *g, uint64_t at, char *data, size_t n)
{
    for (size_t i = 0; i < g->n_patches; i++) {
        const struct patch *p = &g->patches[i];
        for (size_t k = 0; k < p->n; k++) {
            if (p->at + k < at || p->at + k >= at + n)
                continue;
            if (data[p->at + k - at] != p->now[k])
                return false;
            data[p->at + k - at] = p->before[k];
        }
    }
    return true;
}

/* The ring is idle: a piece is read there. */
static int read_back(struct tern_behind *b, struct tern_err *err)
{
    const struct given *g = &b->given;
    uint64_t at = 0;

    if (tern_fs_sync(b->fd) < 0)
        return tern_err_sys(err, "%s: cannot make it durable", b->path);
    posix_fadvise(b->fd, 0, 0, POSIX_FADV_DONTNEED);
    for (size_t i = 0; i < g->n_sums; at += g->sums[i++].n) {
        const struct sum *s = &g->sums[i];
        if (g->how.stop && *g->how.stop)
            return tern_err_set(err, TERN_FAILED, "interrupted; nothing was left behind");
        if (tern_fs_pread(b->fd, b->ring, s->n, at, b->path, err) < 0)
            return -1;
        if (!undo_patches(g, at, b->ring, s->n) || tern_crc32c(0, b->ring, s->n) != s->crc)
            return tern_err_set(err, TERN_TEMPFAIL,
                                "%s: bytes %llu to %llu are not those that were written there. The "
                                "storage or its connection is damaged.",
                                b->path, (unsigned long long)at, (unsigned long long)at + s->n - 1);
        if (g->how.progress)
            g->how.progress(s->n);
    }
    tern_assert(at == b->at, "%s: %llu bytes were read back", b->path, (unsigned long long)at);
    return 0;
}

int tern_behind_end(struct tern_behind *b, struct tern_err *err)
{
    if (!b)
        return 0;
    int rc = settle(b, err);
    if (rc == 0 && b->read_back)
        rc = read_back(b, err);
    pthread_mutex_lock(&b->lock);
    b->over = true;
    pthread_cond_signal(&b->changed);
    pthread_mutex_unlock(&b->lock);
    if (!b->direct)
        pthread_join(b->thread, NULL);
    pthread_cond_destroy(&b->changed);
    pthread_mutex_destroy(&b->lock);
    free(b->given.sums);
    free(b->given.patches);
    free(b->ring);
    free(b);
    return rc;
}

void tern_behind_abort(struct tern_behind *b)
{
    const int was = errno;

    if (b) {
        pthread_mutex_lock(&b->lock);
        b->failed = true; /* what is not written yet need not be */
        pthread_mutex_unlock(&b->lock);
    }
    tern_behind_end(b, NULL);
    errno = was;
}
