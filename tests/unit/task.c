/* core/task/feed.h: the queue between a program's output and the storage. */
#include "tests/unit/tap.h"

#include "core/base/clock.h"
#include "core/task/feed.h"

#include <semaphore.h>

static const int64_t second = 1000000000;

/* A storage.  With `hold` it keeps its first piece until it is released; `room` counts the pieces
   that it has not taken yet, for a program that waits for it. */
struct storage {
    sem_t hold, room;
    bool holds, slow, finished, inside;
    uint64_t bytes, lost;
    uint32_t torn;
};

static void storage_take(void *self, int64_t wall_ns, char stream, const char *data, size_t len)
{
    struct storage *s = self;

    (void)wall_ns, (void)stream, (void)data;
    if (s->holds)
        sem_wait(&s->hold);
    s->holds = false;
    if (s->slow)
        tern_clock_sleep_ns(100000000);
    s->bytes += len;
    sem_post(&s->room);
}

static void storage_lost(void *self, char stream, uint64_t n, bool inside)
{
    ((struct storage *)self)->lost += n;
    ((struct storage *)self)->inside = inside;
    ((struct storage *)self)->torn |= 1U << (stream - 'a');
}

static void storage_idle(void *self)
{
    (void)self;
}

static void storage_finish(void *self)
{
    ((struct storage *)self)->finished = true;
}

static struct tern_task_feed *storage_open(struct storage *s, bool holds, unsigned room)
{
    struct tern_task_feed_taker taker = {s, storage_take, storage_lost, storage_idle,
                                         storage_finish};

    *s = (struct storage){.holds = holds};
    sem_init(&s->hold, 0, 0);
    sem_init(&s->room, 0, room);
    return tern_task_feed_open(&taker, NULL);
}

static void queue(void)
{
    static char data[1 << 16];
    static struct storage s,
        hangs; /* static: the thread of one that hangs is there until the end */

    memset(data, '\n', sizeof data);
    struct tern_task_feed *f = storage_open(&s, false, 32);
    for (int i = 0; i < 2000; i++) {
        sem_wait(&s.room);
        tern_task_feed_put(f, 1, 'o', data, sizeof data);
    }
    ok(tern_task_feed_close(f, 60000) && s.finished && s.bytes == 2000 * sizeof data &&
           s.lost == 0 && s.torn == 0,
       "a storage that keeps up gets every byte");

    memset(data, 'x', sizeof data);
    f = storage_open(&s, true, 0);
    tern_task_feed_put(f, 1, 'e', data, 1);
    for (int i = 0; i < 200; i++)
        tern_task_feed_put(f, 1, 'o', data, sizeof data);
    sem_post(&s.hold);
    ok(tern_task_feed_close(f, 60000) && s.bytes < 200 * sizeof data && s.lost == 0 &&
           s.torn == 1U << ('o' - 'a') && s.inside,
       "a dropped piece without a newline is reported, too");

    f = storage_open(&s, false, 0);
    s.slow = true;
    for (int i = 0; i < 30; i++)
        tern_task_feed_put(f, 1, 'o', data, sizeof data);
    ok(tern_task_feed_close(f, 2000) && s.finished && s.bytes == 30 * sizeof data,
       "a slow storage is waited for at the end as long as it makes headway");

    memset(data, '\n', sizeof data);
    f = storage_open(&hangs, true, 0);
    int64_t began = tern_clock_boot_ns();
    for (int i = 0; i < 2000; i++)
        tern_task_feed_put(f, 1, 'o', data, sizeof data);
    int64_t took = tern_clock_boot_ns() - began;
    ok(took < 100 * second, "the program does not wait for a hanging storage at every piece");
    bound((double)took / 1e9, 2, "seconds that the program waits for a hanging storage, once");
    ok(!tern_task_feed_close(f, 100), "a hanging storage is not waited for at the end");
}

int main(void)
{
    queue();
    return tap_done();
}
