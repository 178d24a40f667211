/* core/task/feed.h: the queue between a program's output and the storage; core/task/memory.h: the
 * kills for memory, as cgroups of both versions have them. */
#include "tests/unit/tap.h"

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/task/feed.h"
#include "core/task/memory.h"

#include <semaphore.h>
#include <signal.h>

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
    for (int i = 0; i < 70; i++)
        tern_task_feed_put(f, 1, 'o', data, sizeof data);
    ok(tern_task_feed_close(f, 5000) && s.finished && s.bytes == 70 * sizeof data,
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

static char work[] = "/tmp/tern-task-XXXXXX";

/* A file of /proc or /sys, below the folder of this test. */
static void put(const char *name, const char *text)
{
    char *path = tern_fs_join(work, name), *dir = tern_fs_dirname(path);

    if (tern_fs_mkdirs(dir, 0755, NULL) < 0 ||
        tern_fs_replace(path, text, strlen(text), 0644, NULL) < 0)
        abort();
    free(dir);
    free(path);
}

/* What is said of a rank that ended with `status` in this cgroup, in which a kill came at `kills`,
 * whose text is `killed`. */
static const char *said(const char *kills, const char *killed, int status, bool told)
{
    static char text[400];
    const struct tern_task_memory before = tern_task_memory_read(work);

    put(kills, killed);
    text[0] = '\0';
    tern_task_memory_words(&before, status, told, 3, "n1", text, sizeof text);
    return text;
}

#define V2 "sys/fs/cgroup/system.slice/job_7/step_0/"
#define V1 "sys/fs/cgroup/memory/slurm/uid_0/job_7/step_0/"

static void memory(void)
{
    static const char words[] =
        "rank 3 on n1 was killed for memory: its job's limit there, 100 MiB";
    struct tern_task_memory m = tern_task_memory_read(work);

    ok(m.kills == -1 && m.limit == -1, "without cgroups nothing is known");

    put("proc/self/cgroup", "0::/system.slice/job_7/step_0\n");
    put(V2 "memory.max", "104857600\n");
    put(V2 "memory.events", "low 0\nhigh 0\nmax 9\noom 4\noom_kill 2\noom_group_kill 5\n");
    m = tern_task_memory_read(work);
    ok(m.kills == 2 && m.limit == 104857600, "cgroup v2: oom_kill of memory.events, memory.max");
    ok(!*said(V2 "memory.events", "oom 5\noom_kill 2\n", SIGKILL, false),
       "cgroup v2: a rank that was killed without a kill for memory has another reason");
    has(said(V2 "memory.events", "oom 5\noom_kill 3\n", SIGKILL, false), words,
        "cgroup v2: a rank that was killed for memory");
    ok(!*said(V2 "memory.events", "oom 5\noom_kill 4\n", 1 << 8, true),
       "cgroup v2: a rank that ends after a signal to end was not killed");
    put(V2 "memory.max", "max\n");
    ok(tern_task_memory_read(work).limit == -1, "cgroup v2: 'max' is no limit");

    put("proc/self/cgroup", "11:cpuset:/slurm/uid_0/job_7\n"
                            "4:memory:/slurm/uid_0/job_7/step_0\n0::/system.slice/job_7/step_0\n");
    put(V1 "memory.limit_in_bytes", "104857600\n");
    put(V1 "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 6\n");
    m = tern_task_memory_read(work);
    ok(m.kills == 6 && m.limit == 104857600,
       "cgroup v1: oom_kill of memory.oom_control, memory.limit_in_bytes, and not v2's beside it");
    has(said(V1 "memory.oom_control", "oom_kill_disable 0\noom_kill 7\n", SIGKILL, false), words,
        "cgroup v1: a rank that was killed for memory");
    has(said(V1 "memory.oom_control", "oom_kill_disable 0\noom_kill 8\n", 1 << 8, false),
        "rank 3 on n1 ended with status 1 after a kill for memory",
        "cgroup v1: a rank whose child was killed for memory");
    put(V1 "memory.limit_in_bytes", "9223372036854771712\n");
    ok(tern_task_memory_read(work).limit == -1,
       "cgroup v1: the largest multiple of a page is no limit");
}

int main(void)
{
    queue();
    if (!mkdtemp(work))
        return tap_skip_all("no folder under /tmp");
    memory();
    tern_fs_remove_tree(work, NULL);
    return tap_done();
}
