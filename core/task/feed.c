#include "core/task/feed.h"

#include "core/base/str.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    ROOM = 4 << 20, /* a second of a talkative program, 40 ms of one that prints 100 MB/s */
    ROOM_FIRST = 1 << 16,
    PATIENCE_MS = 200, /* too short a pause to matter in training */
};

/* Of each stream: were bytes dropped, do they end within a line, and how many newlines had they. */
struct dropped {
    bool torn[TERN_TASK_FEED_STREAMS], inside[TERN_TASK_FEED_STREAMS];
    uint64_t lines[TERN_TASK_FEED_STREAMS];
};

struct piece {
    int64_t wall_ns;
    struct dropped before;
    uint32_t len;
    char stream;
};

struct side {
    char *data; /* pieces, each with its bytes behind it */
    size_t len, cap;
};

struct tern_task_feed {
    struct tern_task_feed_taker taker;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t filled, emptied; /* CLOCK_MONOTONIC */
    struct side front, back;        /* written to, read from */
    struct dropped dropped;         /* since the last piece */
    bool stuck, ending, done;
    _Atomic uint64_t taken; /* pieces so far */
    _Atomic bool left;      /* tern_task_feed_leave was called: nothing more is taken */
    _Atomic size_t at;      /* of the piece in `back` that is being taken */
};

static struct timespec in_ms(int ms)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_nsec += (long)(ms % 1000) * 1000000;
    t.tv_sec += ms / 1000 + t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    return t;
}

static void tell(const struct tern_task_feed_taker *to, const struct dropped *d)
{
    for (int i = 0; i < TERN_TASK_FEED_STREAMS; i++)
        if (d->torn[i])
            to->lost(to->self, TERN_TASK_FEED_NAMES[i], d->lines[i], d->inside[i]);
}

/* Another thread has what is left, and ends the process. */
static void stop_if_left(struct tern_task_feed *f)
{
    while (atomic_load(&f->left))
        pause();
}

/* The bytes of the piece at `at`; its head into *p. */
static const char *piece_at(const struct side *s, size_t at, struct piece *p)
{
    memcpy(p, s->data + at, sizeof *p);
    return s->data + at + sizeof *p;
}

static void hand_over(struct tern_task_feed *f)
{
    struct piece p;
    size_t at = 0;

    while (at < f->back.len) {
        const char *data = piece_at(&f->back, at, &p);
        tell(&f->taker, &p.before);
        if (p.len)
            f->taker.take(f->taker.self, p.wall_ns, p.stream, data, p.len);
        at += sizeof p + p.len;
        atomic_store(&f->at, at); /* before the look: either it or the other thread sees this */
        stop_if_left(f);
        atomic_fetch_add_explicit(&f->taken, 1, memory_order_relaxed);
    }
}

static void *consume(void *arg)
{
    struct tern_task_feed *f = arg;
    bool ending = false;

    while (!ending) {
        pthread_mutex_lock(&f->lock);
        if (!f->front.len && !f->ending) {
            struct timespec until = in_ms(TERN_TASK_FEED_TICK_MS);
            pthread_cond_timedwait(&f->filled, &f->lock, &until);
        }
        if (atomic_load(&f->left)) {
            pthread_mutex_unlock(&f->lock);
            stop_if_left(f);
        }
        f->back.len = 0;
        atomic_store(&f->at, 0);
        struct side s = f->front;
        f->front = f->back;
        f->back = s;
        ending = f->ending && !f->back.len;
        if (f->back.len) {
            f->stuck = false;
            pthread_cond_signal(&f->emptied);
        }
        pthread_mutex_unlock(&f->lock);
        bool any = f->back.len > 0;
        hand_over(f);
        if (!any && !ending)
            f->taker.idle(f->taker.self);
    }
    tell(&f->taker, &f->dropped);
    f->taker.finish(f->taker.self);
    pthread_mutex_lock(&f->lock);
    f->done = true;
    pthread_cond_signal(&f->emptied);
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

struct tern_task_feed *tern_task_feed_open(const struct tern_task_feed_taker *taker,
                                           struct tern_err *err)
{
    struct tern_task_feed *f = tern_alloc(1, sizeof *f, "a queue", err);
    pthread_condattr_t monotonic;
    sigset_t all, old;

    if (!f)
        return NULL;
    f->taker = *taker;
    pthread_mutex_init(&f->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&f->filled, &monotonic);
    pthread_cond_init(&f->emptied, &monotonic);
    pthread_condattr_destroy(&monotonic);
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    int rc = pthread_create(&f->thread, NULL, consume, f);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc == 0)
        return f;
    free(f);
    errno = rc;
    tern_err_sys(err, "cannot start a thread");
    return NULL;
}

/* Room for `need` bytes more in front; the lock is held. */
static bool make_room(struct tern_task_feed *f, size_t need)
{
    struct side *s = &f->front;

    if (s->len + need > ROOM && !f->stuck) {
        struct timespec until = in_ms(PATIENCE_MS);
        while (s->len + need > ROOM)
            if (pthread_cond_timedwait(&f->emptied, &f->lock, &until) == ETIMEDOUT) {
                f->stuck = true;
                break;
            }
    }
    if (s->len + need > ROOM)
        return false;
    if (s->len + need <= s->cap)
        return true;
    size_t cap = s->cap ? s->cap : ROOM_FIRST;
    while (cap < s->len + need)
        cap *= 2;
    char *data = realloc(s->data, cap);
    if (!data)
        return false;
    s->data = data;
    s->cap = cap;
    return true;
}

static uint64_t count_lines(const char *data, size_t len)
{
    uint64_t n = 0;

    for (size_t i = 0; i < len; i++)
        n += data[i] == '\n';
    return n;
}

void tern_task_feed_put(struct tern_task_feed *f, int64_t wall_ns, char stream, const char *data,
                        size_t len)
{
    pthread_mutex_lock(&f->lock);
    struct piece p = {wall_ns, f->dropped, (uint32_t)len, stream};
    if (!make_room(f, sizeof p + len)) {
        ptrdiff_t which = strchr(TERN_TASK_FEED_NAMES, stream) - TERN_TASK_FEED_NAMES;
        f->dropped.lines[which] += count_lines(data, len);
        f->dropped.torn[which] = true;
        f->dropped.inside[which] = len && data[len - 1] != '\n';
    } else {
        memcpy(f->front.data + f->front.len, &p, sizeof p);
        memcpy(f->front.data + f->front.len + sizeof p, data, len);
        f->front.len += sizeof p + len;
        f->dropped = (struct dropped){0};
        pthread_cond_signal(&f->filled);
    }
    pthread_mutex_unlock(&f->lock);
}

bool tern_task_feed_close(struct tern_task_feed *f, int patience_ms)
{
    struct timespec until = in_ms(patience_ms);
    uint64_t seen = 0;

    if (!f)
        return true;
    pthread_mutex_lock(&f->lock);
    f->ending = true;
    pthread_cond_signal(&f->filled);
    while (!f->done) {
        if (pthread_cond_timedwait(&f->emptied, &f->lock, &until) != ETIMEDOUT)
            continue;
        uint64_t taken = atomic_load_explicit(&f->taken, memory_order_relaxed);
        if (taken == seen)
            break;
        seen = taken; /* slow, but it makes headway */
        until = in_ms(patience_ms);
    }
    bool done = f->done;
    pthread_mutex_unlock(&f->lock);
    if (!done)
        return false;
    pthread_join(f->thread, NULL);
    free(f->front.data);
    free(f->back.data);
    free(f);
    return true;
}

void tern_task_feed_leave(struct tern_task_feed *f, const struct tern_task_feed_taker *to)
{
    const struct side *const sides[] = {&f->back, &f->front};
    struct piece p;

    atomic_store(&f->left, true);
    pthread_mutex_lock(&f->lock);
    const size_t from = atomic_load(&f->at);
    for (int i = 0; i < 2; i++)
        for (size_t at = i ? 0 : from; at < sides[i]->len; at += sizeof p + p.len) {
            const char *data = piece_at(sides[i], at, &p);
            if (i || at != from) /* that piece's is reported already */
                tell(to, &p.before);
            if (p.len)
                to->take(to->self, p.wall_ns, p.stream, data, p.len);
        }
    tell(to, &f->dropped);
    pthread_mutex_unlock(&f->lock);
}
