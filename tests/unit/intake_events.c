/* core/intake: values in event files, and whose files they are. */
#include "tests/unit/tap.h"

#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/intake/tags.h"
#include "core/intake/tensorboard.h"
#include "core/intake/writers.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char work[] = "/tmp/tern-unit-events-XXXXXX";

static size_t from_hex(const char *hex, char *to)
{
    size_t n = strlen(hex) / 2;

    for (size_t i = 0; i < n; i++) {
        unsigned v;
        sscanf(hex + 2 * i, "%2x", &v);
        to[i] = (char)v;
    }
    return n;
}

static void see_event(void *self, const struct tern_intake_tb_value *v)
{
    if (v->restart)
        tern_buf_printf(self, "%.0f %" PRId64 " anew|", v->wall_s, v->step);
    else
        tern_buf_printf(self, "%.0f %" PRId64 " %s %g|", v->wall_s, v->step, v->tag, v->value);
}

/* Records of TensorFlow's own writer. */
static const char version_record[] =
    "1800000000000000a37f4b220900000040fc54d9411a0d627261696e2e45766"
    "56e743a32eced8f9d";
static const char simple[] =
    "200000000000000029eda9500900004040fc54d94110072a130a110a0a747261696e2f"
    "6c6f7373150000204055c9c66f";
static const char tensor[] =
    "34000000000000005e33175c0900004040fc54d94110072a270a250a0a747261696e2f"
    "6c6f7373420808012a04000020404a0d0a090a077363616c617273200178a1af50";

/* The first record of torch's SummaryWriter(purge_step=21), and the last of a session. */
static const char session_start[] =
    "0f000000000000006d532b090900000040fc54d94110153a0208013d8562bc";
static const char session_stop[] = "0f000000000000006d532b090900000040fc54d94110153a0208029ca7baa0";

static void event_records(void)
{
    char data[400];
    struct tern_buf b = {0};
    size_t used, n = 0;
    uint64_t bad = 0;

    n += from_hex(version_record, data + n);
    size_t first = n;
    n += from_hex(simple, data + n);
    size_t second_end = n;
    n += from_hex(tensor, data + n);
    ok(tern_intake_tb_parse(data, n, see_event, &b, &used, &bad) == 0 && used == n && bad == 0,
       "event files: whole records");
    is(b.data, "1700000001 7 train/loss 2.5|1700000001 7 train/loss 2.5|",
       "a simple value, and a tensor");
    char session[80];
    size_t m = from_hex(session_start, session);
    m += from_hex(session_stop, session + m);
    tern_buf_clear(&b);
    ok(tern_intake_tb_parse(session, m, see_event, &b, &used, &bad) == 0 && used == m && bad == 0,
       "a start and an end of sessions are read");
    is(b.data, "1700000000 21 anew|", "a session's start gives the step where it goes on");
    for (size_t cut = 0; cut < n; cut++) {
        size_t whole = cut < first ? 0 : cut < second_end ? first : second_end;
        tern_buf_clear(&b);
        if (tern_intake_tb_parse(data, cut, see_event, &b, &used, &bad) != 0 || used != whole)
            ok(0, "cut at %zu: used %zu, wanted %zu", cut, used, whole);
    }
    ok(bad == 0, "an event file may end anywhere without damage");
    tern_buf_clear(&b);
    data[first + 20] ^= 1;
    ok(tern_intake_tb_parse(data, n, see_event, &b, &used, &bad) == 0 && used == n && bad == 1,
       "a flipped bit loses one record");
    is(b.data, "1700000001 7 train/loss 2.5|", "a flipped bit loses no other record");
    data[first] ^= 1;
    ok(tern_intake_tb_parse(data, n, see_event, &b, &used, &bad) < 0 && used == first,
       "a flipped bit in a length ends the file");
    tern_buf_free(&b);
}

/* A file is followed while it grows; values older than the attempt do not count. */
static void growing_file(const char *root, const char *dir)
{
    char data[400], *path = tern_strf("%s/x.tfevents.1", dir);
    struct tern_buf b = {0};
    struct tern_intake_tb *t = tern_intake_tb_open(root, 1700000000.5);
    struct tern_intake_tb *late = tern_intake_tb_open(root, 1700000002);
    tern_intake_tb_look(t, see_event, &b, false);
    ok(b.len == 0, "a folder that does not exist yet gives no value");
    tern_fs_mkdirs(dir, 0777, NULL);
    size_t n = from_hex(version_record, data);
    n += from_hex(simple, data + n);
    FILE *f = fopen(path, "w");
    fwrite(data, 1, n - 3, f);
    fflush(f);
    tern_intake_tb_look(t, see_event, &b, false);
    ok(b.len == 0, "a record that is not whole yet gives no value");
    fwrite(data + n - 3, 1, 3, f);
    fclose(f);
    tern_intake_tb_look(t, see_event, &b, false);
    tern_intake_tb_look(t, see_event, &b, false);
    is(b.data, "1700000001 7 train/loss 2.5|", "comes once, when it is");
    tern_buf_clear(&b);
    tern_intake_tb_look(late, see_event, &b, false);
    ok(b.len == 0, "values of earlier attempts are left out");
    tern_intake_tb_close(t);
    tern_intake_tb_close(late);
    tern_buf_free(&b);
    free(path);
}

/* Files of earlier runs are left out: they would take the room of this run's. */
static void earlier_files(const char *root, const char *dir)
{
    struct tern_buf b = {0};

    for (int i = 0; i < 1100; i++) {
        const struct timespec then[2] = {{.tv_sec = 1600000000}, {.tv_sec = 1600000000}};
        char *old = tern_strf("%s/a%d.tfevents", dir, i);
        int fd = open(old, O_WRONLY | O_CREAT, 0666);
        futimens(fd, then);
        close(fd);
        free(old);
    }
    struct tern_intake_tb *t = tern_intake_tb_open(root, 1700000000.5);
    tern_intake_tb_look(t, see_event, &b, false);
    is(b.data, "1700000001 7 train/loss 2.5|",
       "a value is found among a thousand files of earlier runs");
    tern_intake_tb_close(t);
    tern_buf_free(&b);
}

/* An event file of `text`'s values, a second after 1700000000, under `root`; closed. */
static void write_events(const char *root, const char *path, const char *record)
{
    char data[400], *whole = tern_strf("%s/%s", root, path), *dir = tern_strdup(whole);

    *strrchr(dir, '/') = '\0';
    tern_fs_mkdirs(dir, 0777, NULL);
    size_t n = from_hex(version_record, data);
    n += from_hex(record, data + n);
    FILE *f = fopen(whole, "w");
    fwrite(data, 1, n, f);
    fclose(f);
    free(dir);
    free(whole);
}

/* What a look and a last look take of the files under `root`. */
static void looks(const char *what, const char *root, bool unsure, const char *now,
                  const char *at_the_end)
{
    struct tern_buf b = {0};
    struct tern_intake_tb *t = tern_intake_tb_open(root, 1700000000.5);

    tern_buf_puts(&b, "");
    tern_intake_tb_look(t, see_event, &b, false);
    is(b.data, now, "%s: while the trainer runs", what);
    tern_buf_clear(&b);
    tern_buf_puts(&b, "");
    tern_intake_tb_look(t, see_event, &b, true);
    is(b.data, at_the_end, "%s: at its end", what);
    ok(tern_intake_tb_is_unsure(t) == unsure, "%s: %s", what, unsure ? "a word" : "no word");
    tern_intake_tb_close(t);
    tern_buf_free(&b);
}

static char *fresh(void)
{
    static int n;

    return tern_strf("%s/folder%d", work, n++);
}

/* A file of a process of `host`, with a value, in a folder under `root`. */
static void write_as(const char *root, const char *folder, const char *host, int pid, int n)
{
    char *path = tern_strf("%s/events.out.tfevents.1700000001.%s.%d.%d", folder, host, pid, n);

    write_events(root, path, simple);
    free(path);
}

static const char one_value[] = "1700000001 7 train/loss 2.5|";
static char here[256];

/* Whose files are they?  Two runs may write in one folder. */
static void files_of_processes(void)
{
    enum { INIT = 1 }; /* runs, and is none of ours */
    char *root = fresh();

    write_as(root, "version_0", here, getpid(), 0);
    looks("a file of this process", root, false, one_value, "");
    write_as(root, "version_1", "elsewhere", 77, 0);
    write_as(root, "version_2", here, INIT, 0);
    looks("beside files of other runs", root, false, one_value, "");
    free(root);

    root = fresh();
    write_as(root, "version_2", here, INIT, 0);
    looks("a file of a process that is none of the task's", root, false, "", "");
    free(root);

    root = fresh();
    write_as(root, "version_1", "elsewhere", 77, 0);
    looks("a file whose writer cannot be seen", root, false, "", one_value);
    write_as(root, "version_1/train_loss_a", "elsewhere", 77, 1);
    looks("two files of one writer", root, false, "",
          "1700000001 7 train/loss 2.5|1700000001 7 train_loss_a/train/loss 2.5|");
    write_as(root, "version_2", "elsewhere", 78, 0);
    looks("files of two writers that cannot be seen", root, true, "", "");
    free(root);
}

/* tensorboardX's names tell no process. */
static void files_without_pid(void)
{
    char *root = fresh(), *mine = tern_strf("c/events.out.tfevents.1700000001.%s", here);
    char *path = tern_strf("%s/b/events.out.tfevents.1700000001.n2", root);

    write_events(root, "a/events.out.tfevents.1700000001.n1", simple);
    looks("a file without a pid, of another host", root, false, "", one_value);
    write_events(root, "b/events.out.tfevents.1700000001.n2", simple);
    looks("files without a pid, of two hosts", root, true, "", "");
    int fd = open(path, O_RDONLY);
    looks("files of two hosts, and one is open in the task", root, false, one_value, "");
    close(fd);
    write_events(root, mine, simple);
    looks("one of them is of this host", root, false, one_value, "");
    free(path);
    free(mine);
    free(root);
}

/* A process that is not below this one, with one variable, holds `path` open: its pid. */
static pid_t start_daemon(const char *path, char *variable)
{
    int ends[2];
    pid_t pid = -1, first;
    char byte;

    if (pipe(ends) < 0 || (first = fork()) < 0)
        return -1;
    if (first == 0) {
        pid = fork();
        if (pid == 0) {
            int fd = open(path, O_RDONLY);
            char *const argv[] = {"sleep", "600", NULL}, *const env[] = {variable, NULL};
            close(ends[0]);
            fcntl(ends[1], F_SETFD, FD_CLOEXEC); /* closed when sleep runs */
            (void)fd;
            execve("/bin/sleep", argv, env);
            _exit(127);
        }
        _exit(write(ends[1], &pid, sizeof pid) != sizeof pid);
    }
    close(ends[1]);
    waitpid(first, NULL, 0);
    if (read(ends[0], &pid, sizeof pid) != sizeof pid || read(ends[0], &byte, 1) != 0)
        pid = -1;
    close(ends[0]);
    return pid;
}

static void files_of_daemons(void)
{
    char *root = fresh(), *path = tern_strf("%s/a/events.out.tfevents.1700000001.n1", root);
    char *ours = tern_strf("TERN_METRIC_FILE=/proc/%d/fd/9", (int)getpid());

    write_events(root, "a/events.out.tfevents.1700000001.n1", simple);
    pid_t pid = start_daemon(path, "TERN_METRIC_FILE=/proc/1/fd/9");
    looks("a file that another task's daemon has open", root, false, "", "");
    if (pid > 0)
        kill(pid, SIGKILL);
    pid = start_daemon(path, ours);
    looks("a file that a daemon of the task has open", root, false, one_value, "");
    write_as(root, "b", here, pid, 0);
    looks("a file with the pid of that daemon", root, false,
          "1700000001 7 train/loss 2.5|1700000001 7 b/train/loss 2.5|", "");
    if (pid > 0)
        kill(pid, SIGKILL);
    free(path);
    free(ours);
    free(root);
}

static char *named(struct tern_intake_tags *t, const char *folder, int pid, size_t order,
                   const char *tag)
{
    struct tern_intake_writer w = {.pid = pid, .time_s = -1, .host = "elsewhere"};
    static char name[201];

    tern_intake_tags_name(t, folder, &w, order, tag, name, sizeof name);
    return name;
}

static void tags_of_folders(void)
{
    struct tern_intake_tags *t = tern_intake_tags_open();

    is(named(t, "version_0", 5, 0, "loss"), "loss", "a tag is the metric's name");
    is(named(t, "version_0", 5, 0, "acc"), "acc", "a second tag is the metric's name, too");
    is(named(t, "version_1", 6, 3, "loss"), "loss", "a later process goes on with the metric");
    is(named(t, "version_0", 5, 0, "loss"), "version_0/loss",
       "the earlier one, if it goes on, too, has a metric of its own");
    is(named(t, "version_1", 6, 3, "loss"), "loss", "the later folder's metric keeps its name");
    is(named(t, "train", 7, 4, "epoch_loss"), "epoch_loss", "the first of two folders");
    is(named(t, "validation", 7, 5, "epoch_loss"), "validation/epoch_loss",
       "the folder's name stands before a tag that another folder of the process has");
    is(named(t, "train", 7, 4, "epoch_loss"), "epoch_loss", "the first folder keeps its name");
    is(named(t, "b/validation", 7, 6, "epoch_loss"), "b/validation/epoch_loss",
       "the whole way to a folder whose name is taken");
    is(named(t, "x/loss_train", 8, 7, "loss"), "loss_train/loss",
       "add_scalars' folders are named in any order");
    is(named(t, "x/a_b_val", 8, 7, "a/b"), "a_b_val/a/b", "with a tag that has a slash, too");
    is(named(t, "x/c/d/val", 8, 7, "c/d"), "val/c/d", "tensorboardX has folders in folders");
    is(named(t, "e/val", 8, 7, "e"), "val/e", "beside the files that are read, too");
    is(named(t, "xf/val", 8, 7, "f"), "f", "another folder that ends as the tag does");
    is(named(t, "one", -1, 8, "z"), "z", "a writer without a pid");
    is(named(t, "two", -1, 9, "z"), "two/z", "never goes on with another folder's metric");
    tern_intake_tags_close(t);
}

static void event_files(void)
{
    char *root = tern_strf("%s/tb", work), *dir = tern_strf("%s/run1", root);

    event_records();
    growing_file(root, dir);
    earlier_files(root, dir);
    gethostname(here, sizeof here - 1);
    files_of_processes();
    files_without_pid();
    files_of_daemons();
    tags_of_folders();
    free(dir);
    free(root);
}

int main(void)
{
    if (!mkdtemp(work))
        return 1;
    event_files();
    tern_fs_remove_tree(work, NULL);
    return tap_done();
}
