/* The folder in which processes share a build: leases have heartbeats while their process lives,
 * a lost one is taken over once and finds nothing to finish when it wakes; a folder is discarded
 * once, and its "done" is the last file that goes. */
#include "tests/unit/disk.h"

#include "core/base/fs.h"
#include "core/base/str.h"
#include "tests/unit/tap.h"

#include <signal.h>
#include <sys/wait.h>

#include "cmd/data/lease.c"
#include "cmd/data/folder.c"

static char work[] = "/tmp/tern-folder-XXXXXX";
static char *out, *parts;
static struct tern_err err;

static const struct data_step first = {.rank = 0, .tasks = 2, .name = "7.1.0"},
                              late = {.rank = 1, .tasks = 2, .name = "7.1.0"},
                              other = {.rank = 0, .tasks = 1, .name = "here.7"};
#define PLAN(options)                                                                              \
    "{\"inputs\": 1, \"options\": " options ", \"shares\": 1, \"tern\": 1, \"vocabulary\": 1}"
static const char plan_a[] = PLAN("1"), plan_b[] = PLAN("2"), plan_c[] = PLAN("3");
/* Of a machine that is not this one. */
#define FOREIGN(name) name ".tmp-elsewhere-4026531836-1-abcdef"

/* ---- what lies in the folder ---- */

static char *in_folder(const char *name)
{
    return tern_fs_join(parts, name);
}

static bool there(const char *name)
{
    char *path = in_folder(name);
    const bool is = tern_fs_exists(path);

    free(path);
    return is;
}

static void put(const char *name, const char *text)
{
    char *path = in_folder(name);

    if (tern_fs_replace(path, text, strlen(text), 0644, NULL) < 0)
        abort();
    free(path);
}

/* As if it were two minutes old. */
static void age(const char *path)
{
    const struct timespec t[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = time(NULL) - 120}};

    if (utimensat(AT_FDCWD, path, t, 0) < 0)
        abort();
}

static void put_lost(const char *name, const char *owner)
{
    char *path = in_folder(name);

    put(name, owner);
    age(path);
    free(path);
}

static void begin(struct data_folder *f, const struct data_step *step, const char *plan)
{
    err = (struct tern_err){0};
    data_folder_init(f, out, step, plan);
}

static enum data_join join(struct data_folder *f)
{
    enum data_join j = data_folder_join(f, &err);

    for (int i = 0; i < 100 && j == DATA_JOIN_LATER; i++)
        j = data_folder_join(f, &err);
    return j;
}

static void put_out(const char *text)
{
    if (tern_fs_replace(out, text, strlen(text), 0644, NULL) < 0)
        abort();
}

static void empty(void)
{
    tern_fs_remove_tree(parts, NULL);
    unlink(out);
}

/* ---- leases ---- */

/* The main thread does nothing of a build meanwhile, as while it waits for a disk. */
static void test_heartbeats(void)
{
    struct data_folder f;
    struct stat st;
    bool fresh = false;

    begin(&f, &first, plan_a);
    char *name = data_folder_lease_of(&f, 0), *path = in_folder(name);
    ok(join(&f) == DATA_JOINED && data_folder_acquire(&f, name, &err) == DATA_LEASE_OURS,
       "a share is leased: %s", err.text);
    age(path);
    for (int i = 0; i < 12000 && !fresh; i++) {
        usleep(50000);
        fresh = stat(path, &st) == 0 && st.st_mtime > time(NULL) - 60;
    }
    ok(fresh, "a lease has heartbeats while its process waits");
    put(name, FOREIGN("taken"));
    age(path);
    usleep(DATA_HEARTBEAT_MS * 1000 + 500000);
    for (int i = 0; i < 12000 && data_folder_holds(&f); i++)
        usleep(50000);
    ok(stat(path, &st) == 0 && st.st_mtime < time(NULL) - 60,
       "a lease that another process has taken over gets no heartbeat of the first");
    ok(!data_folder_holds(&f), "a lease that was taken over is held no more");
    data_folder_release(&f);
    ok(there(name), "a claim that was taken over is not given back");
    data_folder_close(&f);
    free(path);
    free(name);
    empty();
}

/* Two processes find the same lease lost, and one of them is faster. */
static void test_taken_once(void)
{
    struct data_folder f, g;

    begin(&f, &first, plan_a);
    begin(&g, &late, plan_a);
    join(&f);
    join(&g);
    char *name = data_folder_lease_of(&f, 0), *path = in_folder(name);
    put_lost(name, FOREIGN("lost"));
    char *by_f = lost_owner(&f, name), *by_g = lost_owner(&g, name);
    ok(by_f && by_g, "both processes find the lease lost");
    ok(data_folder_acquire(&f, name, &err) == DATA_LEASE_OURS, "one takes it over");
    ok(by_g && set_aside(&g, name, by_g, &err) == 0 && data_folder_holds(&f),
       "the other, which is later, leaves the new lease as it is");
    ok(data_folder_acquire(&g, name, &err) == DATA_LEASE_OTHERS, "a lease with heartbeats is left");
    data_folder_release(&f);
    ok(data_folder_acquire(&g, name, &err) == DATA_LEASE_OURS,
       "a lease that was given back is free");
    free(by_f);
    free(by_g);
    data_folder_close(&f);
    data_folder_close(&g);
    free(path);
    free(name);
    empty();
}

/* A lease of tern before 0.4 is called *.claim. */
static void test_old_name(void)
{
    struct data_folder f;

    begin(&f, &first, plan_a);
    join(&f);
    char *name = data_folder_lease_of(&f, 0), *old = old_name(name), *path = in_folder(old);
    put(old, FOREIGN("old"));
    ok(data_folder_acquire(&f, name, &err) == DATA_LEASE_OTHERS && !there(name),
       "a share that a process of an older tern has under *.claim is left to it");
    age(path);
    ok(data_folder_acquire(&f, name, &err) == DATA_LEASE_OURS && there(name) && !there(old),
       "a *.claim without heartbeats is taken over, as *.lease");
    data_folder_put_done(&f);
    put(old, FOREIGN("late"));
    put("merge-0123456789abcdef.claim", FOREIGN("late"));
    put("discard.claim", FOREIGN("late"));
    data_folder_remove_all(&f);
    ok(!tern_fs_exists(parts), "a folder with *.claim files is removed whole");
    data_folder_close(&f);
    free(path);
    free(old);
    free(name);
    empty();
}

/* In a child: leases a share, has a part and the set half written, and is frozen.  Its exit status
 * has a bit for each thing that it finds wrong when it wakes. */
static void freeze(const char *name, int tell)
{
    struct data_folder f;
    struct tern_fs_new part, set;
    int wrong = 0;

    begin(&f, &first, plan_a);
    char *path = data_folder_part(&f, 0);
    if (join(&f) != DATA_JOINED || data_folder_acquire(&f, name, &err) != DATA_LEASE_OURS ||
        tern_fs_new_open(&part, path, 0644, &err) < 0 ||
        tern_fs_new_open(&set, out, 0644, &err) < 0 || write(tell, "x", 1) != 1)
        _exit(99);
    raise(SIGSTOP);
    wrong |= data_folder_holds(&f) ? 1 : 0;
    wrong |= tern_fs_new_commit(&part, NULL) == 0 ? 2 : 0;
    wrong |= tern_fs_new_commit(&set, NULL) == 0 ? 4 : 0;
    data_folder_release(&f);
    _exit(wrong);
}

static void test_frozen(void)
{
    struct data_folder f;
    int tell[2], status = -1;
    char c;

    begin(&f, &late, plan_a);
    char *name = data_folder_lease_of(&f, 0), *path = in_folder(name);
    if (pipe(tell) < 0)
        abort();
    const pid_t pid = fork();
    if (pid == 0)
        freeze(name, tell[1]);
    if (read(tell[0], &c, 1) != 1 || waitpid(pid, &status, WUNTRACED) != pid)
        abort();
    ok(WIFSTOPPED(status), "a process is frozen while it has a lease");
    put_out("old");
    ok(join(&f) == DATA_JOINED && data_folder_acquire(&f, name, &err) == DATA_LEASE_OTHERS,
       "its lease is its own for a minute");
    age(path);
    ok(data_folder_acquire(&f, name, &err) == DATA_LEASE_OURS,
       "a lease without a heartbeat for a minute is taken over");
    kill(pid, SIGCONT);
    ok(waitpid(pid, &status, 0) == pid && WIFEXITED(status), "the process goes on");
    ok(!(WEXITSTATUS(status) & 1), "a stopped process sees that its lease is lost");
    ok(!(WEXITSTATUS(status) & 2), "its part does not come to its place");
    ok(!(WEXITSTATUS(status) & 4), "its set does not come to its place");
    ok(WEXITSTATUS(status) == 0 && data_folder_holds(&f), "the lease stays with its new process");
    data_folder_close(&f);
    free(path);
    free(name);
    empty();
}

/* ---- a build that failed on its input ---- */

static void failed_build(void)
{
    mkdir(parts, 0777);
    put("plan.json", "x\n" PLAN("1"));
    put("failed", "x\n2 7.0.0\nbad line\n");
    put("0001-0123456789abcdef.tds", "old");
    put("0002.tds", "older");
}

static void test_discard(void)
{
    struct data_folder f, g, h;

    failed_build();
    begin(&f, &first, plan_b);
    begin(&g, &late, plan_b);
    ok(data_folder_acquire(&g, "discard.lease", &err) == DATA_LEASE_OURS,
       "a process begins to discard a build");
    ok(data_folder_join(&f, &err) == DATA_JOIN_LATER && there("0001-0123456789abcdef.tds") &&
           is_plan(&f, plan_a),
       "another process waits, and removes nothing");
    data_folder_release(&g);
    char *failed = data_folder_get(&f, "failed");
    ok(join(&g) == DATA_JOINED && is_plan(&g, plan_b) && !there("0001-0123456789abcdef.tds") &&
           !there("0002.tds") && !there("failed") && !there("discard.lease"),
       "the old build's parts are gone, and the new plan is in their place");
    char *part = data_folder_part(&g, 0);
    put(tern_fs_basename(part), "new");
    put("failed", "x\n2 7.1.0\nof the new build\n");
    ok(discard(&f, plan_a, failed, &err) == DATA_JOIN_LATER && tern_fs_exists(part) &&
           there("failed") && !there("discard.lease"),
       "a process that saw the old plan, and is late, removes nothing of the new build");
    begin(&h, &other, plan_c);
    ok(discard(&h, plan_a, failed, &err) == DATA_JOIN_LATER && is_plan(&g, plan_b) &&
           tern_fs_exists(part),
       "a process of a third plan removes nothing");
    ok(replace_plan(&g, failed, &err) == 0 && there("failed"),
       "a failure that the new build has reported meanwhile stays");
    free(part);
    free(failed);
    data_folder_close(&f);
    data_folder_close(&g);
    data_folder_close(&h);
    empty();

    failed_build();
    put_lost("discard.lease", FOREIGN("discard.lease"));
    begin(&f, &first, plan_b);
    ok(join(&f) == DATA_JOINED, "a discard that another machine left off is done: %s", err.text);
    data_folder_close(&f);
    empty();
}

/* Of another plan, whenever they come. */
static void test_other_plan(void)
{
    struct data_folder f, g;

    begin(&f, &first, plan_a);
    begin(&g, &first, plan_b);
    char *a = data_folder_part(&f, 0), *b = data_folder_part(&g, 0);
    ok(strcmp(a, b) != 0, "parts of two plans have different names");
    ok(join(&f) == DATA_JOINED && data_folder_state(&f) == DATA_FOLDER_OURS,
       "a build works in its folder");
    ok(data_folder_state(&g) == DATA_FOLDER_OTHER, "a process of another plan sees that");
    ok(join(&g) == DATA_JOIN_FAILED && err.code == TERN_USAGE,
       "a process of another plan cannot join");
    has(err.text, "holds parts of another build: the options differ",
        "the error says that the options differ");
    data_folder_put_done(&g);
    ok(data_folder_state(&f) == DATA_FOLDER_OURS, "the end of another plan's build is not its own");
    data_folder_remove_all(&g);
    ok(is_plan(&f, plan_a), "a process of another plan does not remove the folder");
    data_folder_put_done(&f);
    ok(data_folder_state(&f) == DATA_FOLDER_DONE, "the end of its own is seen behind that");
    data_folder_close(&f);
    data_folder_close(&g);
    free(a);
    free(b);
    empty();
}

/* ---- the end ---- */

static void finished_build(struct data_folder *f)
{
    begin(f, &first, plan_a);
    char *part = data_folder_part(f, 0);
    join(f);
    put(tern_fs_basename(part), "part");
    put_out("set");
    char *lease = data_folder_merge_lease(f->plan);
    data_folder_acquire(f, lease, &err);
    data_folder_put_done(f);
    free(lease);
    free(part);
}

static void test_end(void)
{
    struct data_folder f, g;

    finished_build(&f);
    begin(&g, &late, plan_a);
    ok(data_folder_join(&g, &err) == DATA_JOIN_DONE, "a task that comes late has nothing to do");
    ok(data_folder_tasks(&f) == 2, "the build counts a task that came late");
    data_folder_close(&g);
    begin(&g, &other, plan_a);
    char *part = data_folder_part(&f, 0), *name = in_folder("done");
    ok(data_folder_join(&g, &err) == DATA_JOIN_LATER && tern_fs_exists(part),
       "another command waits until the folder is removed");
    disk_clear();
    data_folder_remove_all(&f);
    const int done = disk_find(0, "unlink", name);
    ok(done >= 0 && !tern_fs_exists(parts), "the folder is removed");
    int later = 0;
    for (int i = done + 1; i < disk_n; i++)
        later += strcmp(disk_events[i].call, "unlink") == 0 && strstr(disk_events[i].path, parts);
    ok(later == 0, "'done' is the last of its files that goes");
    ok(data_folder_state(&f) == DATA_FOLDER_GONE,
       "the build's processes see that its folder is gone");
    ok(join(&g) == DATA_JOINED, "the other command begins anew");
    data_folder_remove_all(&f);
    ok(is_plan(&g, plan_a), "a process that was frozen removes nothing of it");
    data_folder_close(&f);
    data_folder_close(&g);
    free(part);
    free(name);
    empty();
}

/* What a process leaves that was killed while it removed the folder. */
static void test_left(void)
{
    struct data_folder f, g;

    finished_build(&f);
    char *part = data_folder_part(&f, 0), *lease = tern_strdup(f.lease);
    data_folder_close(&f);
    unlink(out);
    begin(&g, &late, plan_a);
    ok(join(&g) == DATA_JOINED && !tern_fs_exists(part) && !there("done"),
       "a 'done' whose set is missing is removed with its parts, by the same step, too");
    data_folder_close(&g);
    empty();

    finished_build(&f);
    data_folder_close(&f);
    char *plan = in_folder("plan.json");
    unlink(plan);
    put_lost(tern_fs_basename(lease), FOREIGN("merge"));
    ok(data_folder_is_there(&(struct data_folder){.path = parts}),
       "a folder without a plan, with 'done', is one of tern's");
    begin(&g, &other, plan_b);
    ok(join(&g) == DATA_JOINED && is_plan(&g, plan_b),
       "a folder of which the plan alone was removed gives way to another plan: %s", err.text);
    data_folder_close(&g);
    empty();
    free(plan);
    free(lease);
    free(part);
}

int main(void)
{
    setenv("TERN_LOG_LEVEL", "error", 0);
    if (!mkdtemp(work))
        return 1;
    out = tern_fs_join(work, "x.tds");
    parts = data_folder_name(out);
    test_frozen(); /* the only one with a fork, before there are threads */
    test_heartbeats();
    test_taken_once();
    test_old_name();
    test_discard();
    test_other_plan();
    test_end();
    test_left();
    tern_fs_remove_tree(work, NULL);
    free(parts);
    free(out);
    return tap_done();
}
