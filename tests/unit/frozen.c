/* core/base/proc, core/task/frozen, core/run/frozen: a process that a signal stopped, by a clock of
 * this test's. */
#include "core/base/proc.h"
#include "core/run/frozen.h"
#include "core/task/frozen.h"

#include "tests/unit/tap.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#define MS 1000000ll

/* A child that has stopped itself; 0: `traced`, which is not allowed here. */
static pid_t sleeper(bool traced)
{
    int status = 0;
    pid_t pid = fork();

    if (pid == 0) {
        setpgid(0, 0);
        if (traced && ptrace(PTRACE_TRACEME, 0, 0, 0) < 0)
            _exit(0);
        raise(SIGSTOP);
        for (;;)
            pause();
    }
    waitpid(pid, &status, WUNTRACED);
    return WIFSTOPPED(status) ? pid : 0;
}

static void end(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* What the watch says after `n` looks, `ms` apart. */
static int64_t after(struct tern_proc_watch *w, pid_t pid, int64_t *now, int n, int64_t ms)
{
    int64_t stopped = -1;

    for (int i = 0; i < n; i++)
        stopped = tern_proc_stopped_ns(w, pid, *now += ms * MS);
    return stopped / MS;
}

static void test_watch(void)
{
    struct tern_proc_watch w = {0};
    int64_t now = 5000 * MS;
    pid_t pid = sleeper(false);

    ok(tern_proc_state(pid) == 'T', "the letter of a stopped process");
    ok(after(&w, pid, &now, 1, 500) == 0, "the first look tells nothing");
    ok(after(&w, pid, &now, 10, 500) == 5000, "looks every half second add up");
    ok(after(&w, pid, &now, 1, 120000) == 0, "a gap of the watcher's own begins the count anew");
    ok(after(&w, pid, &now, 4, 500) == 2000, "from there it counts again");
    kill(pid, SIGCONT);
    waitpid(pid, NULL, WCONTINUED);
    ok(after(&w, pid, &now, 1, 500) == 0, "a process that was continued is not stopped");
    end(pid);
    ok(tern_proc_state(pid) == '\0', "a process that is gone has no letter");

    w = (struct tern_proc_watch){0};
    pid = sleeper(true);
    ok(!pid || (tern_proc_state(pid) == 't' && after(&w, pid, &now, 20, 500) == 0),
       "a process that a debugger holds does not count as stopped%s",
       pid ? "" : " # SKIP no ptrace here");
    if (pid)
        end(pid);
}

/* Is `program`, stopped for `seconds`, killed? */
static bool killed(const char *program, int seconds)
{
    struct tern_task_frozen f;
    pid_t pid = sleeper(false);
    int status;

    tern_task_frozen_begin(&f, program, 3, "n7");
    for (int64_t now = MS; now < seconds * 1000 * MS; now += 500 * MS)
        tern_task_frozen_tick(&f, pid, now, -1);
    const bool was = f.why[0];
    if (was) {
        waitpid(pid, &status, 0);
        ok(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && strstr(f.why, "rank 3 on n7"),
           "a killed program's reason has its rank and node");
    } else {
        end(pid);
    }
    return was;
}

static void test_task(void)
{
    setenv("TERN_LIVENESS", "5", 1);
    ok(killed("/opt/bin/tern-train", 12), "a trainer stopped for 12 s is killed");
    ok(!killed("/opt/bin/tern-train", 7), "a trainer stopped for 7 s is not");
    ok(!killed("python3", 3600), "another program may be stopped for an hour");
    setenv("TERN_LIVENESS", "0", 1);
    ok(!killed("tern-train", 3600), "TERN_LIVENESS=0: a trainer may be stopped for an hour");
}

/* Seconds, of one look a second, after which the rank that stays is ended; -1: it is not. */
static int ended_after(struct tern_run_ranks *r)
{
    struct tern_run_frozen f = {0};
    int s = -1;

    for (int i = 1; i <= 2 * TERN_RUN_FROZEN_LEFT_S && s < 0; i++) {
        f.next_ns = f.next_ns ? 1 : 0;              /* a look now... */
        f.left.seen_ns -= f.counts ? 1000 * MS : 0; /* ...a second after the one before */
        tern_run_frozen_tick(&f, r);
        s = f.why[0] ? i : -1;
    }
    if (s > 0)
        ok(strstr(f.why, "rank 1 has not ended"), "the reason has the rank that stays");
    tern_run_frozen_free(&f);
    return s;
}

static void test_left(void)
{
    pid_t pid[2] = {0};
    int status[2] = {0};
    struct tern_run_ranks r = {.n = 2, .pid = pid, .status = status, .trainer = true};

    pid[1] = sleeper(false);
    int s = ended_after(&r);
    ok(s >= TERN_RUN_FROZEN_LEFT_S && s <= TERN_RUN_FROZEN_LEFT_S + 2,
       "a rank that stays when the other has ended is ended after %d s", s);
    waitpid(pid[1], NULL, 0);

    pid[1] = sleeper(false);
    r.trainer = false;
    ok(ended_after(&r) < 0, "a rank of another trainer may stay");
    r.trainer = true;
    pid[0] = pid[1];
    ok(ended_after(&r) < 0, "ranks of which none has ended are waited for");
    end(pid[1]);
}

/* A stopped tern-task goes on when its time is over. */
static void test_continued(void)
{
    pid_t pid = sleeper(false);
    int status = 0;
    struct tern_run_ranks r = {.n = 1, .pid = &pid, .status = &status, .wrapped = true};
    struct tern_run_frozen f = {0};

    setenv("TERN_LIVENESS", "0.001", 1);
    tern_run_frozen_tick(&f, &r);
    ok(waitpid(pid, &status, WCONTINUED | WNOHANG) == 0, "a tern-task just stopped stays so");
    bool goes_on = false;
    for (int i = 0; i < 1000 && !goes_on; i++) { /* a busy machine may make gaps of the looks */
        f.tasks[0].stopped_ns = f.limit_ns;
        f.next_ns = 1;
        tern_run_frozen_tick(&f, &r);
        goes_on = waitpid(pid, &status, WCONTINUED | WNOHANG) == pid && WIFCONTINUED(status);
    }
    ok(goes_on, "a tern-task that was stopped for too long is continued");
    tern_run_frozen_free(&f);
    end(pid);
}

int main(void)
{
    setenv("TERN_LOG_LEVEL", "error", 1);
    test_watch();
    test_task();
    test_left();
    test_continued();
    return tap_done();
}
