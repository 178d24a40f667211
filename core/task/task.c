#include "core/task/task.h"

#include "core/base/again.h"
#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/base/vars.h"
#include "core/intake/intake.h"
#include "core/intake/metric.h"
#include "core/logs/lines.h"
#include "core/logs/logs.h"
#include "core/task/beacon.h"
#include "core/task/feed.h"
#include "core/task/frozen.h"
#include "core/task/left.h"
#include "core/task/memory.h"
#include "core/task/signals.h"
#include "core/task/supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    CHUNK = 1 << 16,      /* a pipe's usual size */
    PIPE_BYTES = 1 << 20, /* requested: fewer switches for a program that prints much */
    LINGER_MS = 500,      /* for output of the program's children after its end */
    REPORT_MS = 2000,     /* for an answer of the supervisor to a report of losses */
    PATIENCE_MS = 5000,   /* for log and ledger at the end, when the storage hangs */
};

enum { OUT, ERR, METRIC, N_STREAMS };
static const char stream_names[] = TERN_TASK_FEED_NAMES;

/* The state of the thread that writes to storage. */
struct sink {
    char memory[500];           /* why the program was killed for memory; "": it was not */
    const char *frozen;         /* why tern-task killed it; likewise */
    int status;                 /* wait(2)'s of the program, when it has ended */
    bool told;                  /* SIGTERM came before that */
    struct tern_logs_file *log; /* NULL: none */
    struct tern_intake *intake; /* NULL: none */
    struct tern_logs_lines lines[N_STREAMS];
    struct tern_intake_unwritten unwritten; /* for a look when the storage hangs, as these: */
    _Atomic char stream;                    /* of the piece at hand */
    _Atomic uint64_t begun;                 /* lines of it whose values are being recorded */
};

struct task {
    struct sink sink;
    struct tern_task_feed *feed; /* NULL: nothing is kept */
    int from[N_STREAMS];         /* read ends; -1: closed */
    int child_end[N_STREAMS];
    int signals; /* signalfd of SIGCHLD */
    pid_t pid;
    int status; /* wait(2)'s, once `ended` */
    bool ended;
    bool refused; /* it is logged that its output is refused */
    sigset_t old_mask;
    char *buffer, *error; /* [CHUNK] */
    struct tern_task_supervisor supervisor;
    struct tern_task_frozen frozen;
};

int64_t tern_task_rank(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID"};
    int64_t rank;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *s = getenv(names[i]);
        if (s && tern_str_int(s, 0, INT32_MAX, &rank) == 0)
            return rank;
    }
    return 0;
}

static void node_name(char *to, size_t size)
{
    const char *slurm = getenv("SLURMD_NODENAME");

    to[0] = '\0';
    if (slurm && *slurm)
        snprintf(to, size, "%s", slurm);
    else
        gethostname(to, size - 1);
    to[size - 1] = '\0';
}

/* ------------------------------------------------------------------ the storage's thread */

static void keep_text(void *self, int64_t wall_ns, char stream, char mark, const char *text,
                      size_t len)
{
    struct sink *k = self;

    if (k->log && stream != 'm')
        tern_logs_file_add(k->log, wall_ns, stream, mark, text, len);
}

static void keep_line(void *self, int64_t wall_ns, char stream, const char *text, size_t len,
                      bool whole)
{
    struct sink *k = self;

    (void)wall_ns;
    k->begun += whole;
    if (stream != 'm')
        tern_intake_take_printed(k->intake, text, len, whole);
}

/* Lines of the descriptor are taken only whole: a line of a killed writer may end within a number.
 * A line with lost bytes counts once, at its newline: here, or in lost() when that was dropped,
 * too. The intake refuses a piece of a line that is too long. */
static void keep_words(void *self, int64_t wall_ns, char stream, char mark, const char *text,
                       size_t len)
{
    struct sink *k = self;

    (void)wall_ns, (void)stream;
    if (k->lines[METRIC].missing) {
        if (mark == ' ')
            tern_intake_note_lost(k->intake, 1);
        return;
    }
    if (k->lines[METRIC].broken)
        return;
    k->begun++;
    if (mark != ' ' && len < TERN_INTAKE_METRIC_LINE) {
        tern_intake_note_cut(k->intake);
        return;
    }
    char *line = strndup(text, len);
    if (line)
        tern_intake_take_metrics(k->intake, line, len);
    free(line);
}

static void take(void *self, int64_t wall_ns, char stream, const char *data, size_t len)
{
    struct sink *k = self;
    int which = stream == 'o' ? OUT : stream == 'e' ? ERR : METRIC;

    k->begun = 0;
    k->stream = stream;
    tern_logs_lines_take(&k->lines[which], wall_ns, data, len);
}

static void lost(void *self, char stream, uint64_t lines, bool inside)
{
    struct sink *k = self;

    for (int i = 0; i < N_STREAMS; i++)
        if (stream == stream_names[i])
            tern_logs_lines_gap(&k->lines[i], inside);
    if (k->intake && stream == stream_names[METRIC])
        tern_intake_note_lost(k->intake, lines);
    else if (k->intake)
        tern_intake_note_gap(k->intake);
    if (k->log && lines && stream != stream_names[METRIC])
        tern_logs_file_add_lost(k->log, lines);
}

static void idle(void *self)
{
    struct sink *k = self;
    int64_t now = tern_clock_wall_ns();

    for (int i = OUT; i <= ERR; i++)
        tern_logs_lines_idle(&k->lines[i], now, false);
    if (k->log)
        tern_logs_file_flush(k->log);
    if (k->intake)
        tern_intake_tick(k->intake, now, false);
}

/* The last work of the thread: all that is left. */
static void finish(void *self)
{
    struct sink *k = self;
    int64_t now = tern_clock_wall_ns();

    for (int i = 0; i < N_STREAMS; i++) {
        tern_logs_lines_idle(&k->lines[i], now, true);
        tern_logs_lines_free(&k->lines[i]);
    }
    if (k->intake)
        tern_intake_tick(k->intake, now, true);
    if (k->intake && k->memory[0])
        tern_intake_add_event(k->intake, "memory", "error", k->memory);
    if (k->intake && k->frozen && k->frozen[0])
        tern_intake_add_event(k->intake, "frozen", "error", k->frozen);
    tern_intake_close(k->intake);
    if (k->log) {
        tern_logs_file_flush(k->log);
        uint64_t lines = tern_logs_file_unreported(k->log);
        if (lines) /* the log itself may have no room for this message */
            tern_warn("rank %" PRId64 ": the last %" PRIu64 " lines are missing in its log (is the "
                      "ledger's storage full?)",
                      tern_task_rank(), lines);
    }
    if (k->log && !tern_logs_file_unreported(k->log)) {
        tern_logs_file_add_end(k->log, now, k->status, k->told);
        tern_logs_file_flush(k->log);
    }
    tern_logs_file_close(k->log);
}

/* Open log and intake of this rank from the environment.  A failure is logged, and the rank runs
 * without. */
static void sink_open(struct task *t)
{
    const char *dir = tern_var("TERN_RUN_LOGS"), *spool = tern_var("TERN_RUN_SPOOL");
    struct tern_err err = {0};
    struct sink *k = &t->sink;
    int64_t rank = tern_task_rank();
    char name[32], node[256];
    uint64_t bytes = tern_logs_bytes();

    snprintf(name, sizeof name, "%" PRId64, rank);
    node_name(node, sizeof node);
    if (dir && bytes) {
        k->log = tern_logs_file_open(dir, name, node, bytes, &err);
        if (!k->log)
            tern_warn("rank %" PRId64 " has no log: %s", rank, err.text);
    }
    if (spool) {
        k->intake =
            tern_intake_open(spool, rank, tern_var("TERN_RUN_METRICS"), tern_clock_wall_ns(), &err);
        if (k->intake)
            tern_intake_let_look(k->intake, &k->unwritten);
        else
            tern_warn("rank %" PRId64 ": no metrics: %s", rank, err.text);
    }
    for (int i = 0; i < N_STREAMS; i++) {
        k->lines[i].stream = stream_names[i];
        k->lines[i].to = (struct tern_logs_lines_to){
            .self = k,
            .log = i == METRIC ? keep_words : keep_text,
            .line = k->intake && i != METRIC ? keep_line : NULL,
        };
    }
    if (!k->log && !k->intake)
        return;
    const struct tern_task_feed_taker taker = {
        .self = k, .take = take, .lost = lost, .idle = idle, .finish = finish};
    t->feed = tern_task_feed_open(&taker, &err);
    if (!t->feed)
        tern_warn("rank %" PRId64 " has no log: %s", rank, err.text);
}

/* ------------------------------------------------------------------ the program */

static int pipes_open(struct task *t)
{
    char text[64];

    for (int i = 0; i < N_STREAMS; i++) {
        int ends[2];
        t->from[i] = t->child_end[i] = -1;
        if (i == METRIC && !(t->feed && t->sink.intake))
            continue;
        if (TERN_AGAIN(pipe2(ends, O_CLOEXEC)) < 0)
            return -1;
        fcntl(ends[0], F_SETFL, O_NONBLOCK);
        if (i != METRIC)
            fcntl(ends[0], F_SETPIPE_SZ, PIPE_BYTES); /* or the largest allowed size */
        t->from[i] = ends[0];
        t->child_end[i] = ends[1];
    }
    if (t->child_end[METRIC] < 0)
        return 0;
    /* Inherited; for processes whose parents close inherited descriptors, also under a name. */
    fcntl(t->child_end[METRIC], F_SETFD, 0);
    snprintf(text, sizeof text, "%d", t->child_end[METRIC]);
    setenv("TERN_METRIC_FD", text, 1);
    snprintf(text, sizeof text, "/proc/%d/fd/%d", (int)getpid(), t->child_end[METRIC]);
    setenv("TERN_METRIC_FILE", text, 1);
    return 0;
}

static void become(struct task *t, char **argv, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(TERN_TEMPFAIL);
    dup2(t->child_end[OUT], STDOUT_FILENO);
    dup2(t->child_end[ERR], STDERR_FILENO);
    sigprocmask(SIG_SETMASK, &t->old_mask, NULL);
    execvp(argv[0], argv);
    /* A folder of PATH without permission hides that the program is in none. */
    if (errno == EACCES && !strchr(argv[0], '/') && !tern_fs_on_path(argv[0], false))
        errno = ENOENT;
    tern_error("cannot run '%s': %s", argv[0], strerror(errno));
    _exit(errno == ENOENT ? 127 : 126);
}

static int start(struct task *t, char **argv)
{
    sigset_t child, all, before;
    pid_t self = getpid();

    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, &t->old_mask);
    t->signals = TERN_AGAIN(signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK));
    if (t->signals < 0 || pipes_open(t) < 0)
        return -1;
    setenv("PYTHONUNBUFFERED", "1", 0); /* lines are in the log when they are printed */
    /* A signal to the process group, which the program gets, must not end this process. */
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    t->pid = tern_again_fork();
    if (t->pid == 0)
        become(t, argv, self);
    if (t->pid > 0)
        tern_task_signals_ignore();
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (t->pid < 0)
        return -1;
    for (int i = OUT; i <= ERR; i++)
        close(t->child_end[i]);
    return 0;
}

/* ------------------------------------------------------------------ passing on */

/* Write all, also to a non-blocking descriptor; -1 with errno when the descriptor refuses it. */
static int pass_on(int fd, const char *data, size_t len)
{
    while (len) {
        ssize_t n = write(fd, data, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN) {
            struct pollfd p = {.fd = fd, .events = POLLOUT};
            poll(&p, 1, -1);
            continue;
        }
        if (n < 0)
            return -1;
        data += n;
        len -= (size_t)n;
    }
    return 0;
}

static void shut(struct task *t, int which)
{
    close(t->from[which]);
    t->from[which] = -1;
}

/* One read into `data`; its bytes, or 0. */
static size_t get(struct task *t, int which, char *data)
{
    ssize_t n = read(t->from[which], data, CHUNK);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n <= 0)
        shut(t, which);
    return n > 0 ? (size_t)n : 0;
}

static void put(struct task *t, int which, const char *data, size_t len)
{
    if (t->feed)
        tern_task_feed_put(t->feed, tern_clock_wall_ns(), stream_names[which], data, len);
    if (which == METRIC || pass_on(which == OUT ? STDOUT_FILENO : STDERR_FILENO, data, len) == 0)
        return;
    if (errno == EPIPE) { /* the reader is gone: the program notices, too */
        shut(t, which);
    } else if (!t->refused) { /* output is not worth a run */
        t->refused = true;
        tern_warn("rank %" PRId64 ": its output cannot be passed on: %s%s", tern_task_rank(),
                  strerror(errno), t->sink.log ? " (tern logs has it)" : "");
    }
}

/* One read; true when there was something. */
static bool move(struct task *t, int which)
{
    size_t n = get(t, which, t->buffer);

    if (n)
        put(t, which, t->buffer, n);
    return n > 0;
}

/* Likewise of stderr, but all of stdout until then is passed on first: a redrawn bar gives the step
 * of lines printed before it (core/intake/printed.c). */
static bool move_error(struct task *t)
{
    size_t n = get(t, ERR, t->error);

    if (!n)
        return false;
    for (int i = 0; i < PIPE_BYTES / CHUNK + 1 && t->from[OUT] >= 0 && move(t, OUT); i++) {
    }
    put(t, ERR, t->error, n);
    return true;
}

/* Runs until the program is gone. */
static void attend(struct task *t)
{
    struct signalfd_siginfo info;

    while (!t->ended) {
        struct pollfd fds[N_STREAMS + 1];
        for (int i = 0; i < N_STREAMS; i++)
            fds[i] = (struct pollfd){.fd = t->from[i], .events = POLLIN};
        fds[N_STREAMS] = (struct pollfd){.fd = t->signals, .events = POLLIN};
        int ms = tern_task_frozen_tick(&t->frozen, t->pid, tern_clock_boot_ns(),
                                       tern_task_supervisor_tick(&t->supervisor));
        if (poll(fds, N_STREAMS + 1, ms) < 0)
            continue;
        for (int i = 0; i < N_STREAMS; i++)
            if (fds[i].revents && t->from[i] >= 0)
                i == ERR ? move_error(t) : move(t, i);
        if (!fds[N_STREAMS].revents)
            continue;
        while (read(t->signals, &info, sizeof info) == sizeof info) {
        }
        /* By pid: orphans become children of this process where it is PID 1 of a container. */
        t->ended = TERN_AGAIN(waitpid(t->pid, &t->status, WNOHANG)) == t->pid;
        tern_task_supervisor_reap(&t->supervisor);
    }
}

/* Drain the pipes, and for a moment read output of children that outlive the program. */
static void linger(struct task *t)
{
    int64_t deadline = tern_clock_boot_ns() + (int64_t)LINGER_MS * 1000000;

    if (t->child_end[METRIC] >= 0)
        close(t->child_end[METRIC]);
    for (;;) {
        struct pollfd fds[N_STREAMS];
        bool open = false, any = false;
        for (int i = 0; i < N_STREAMS; i++) {
            if (t->from[i] >= 0 && (i == ERR ? move_error(t) : move(t, i)))
                any = true;
            fds[i] = (struct pollfd){.fd = t->from[i], .events = POLLIN};
            open = open || t->from[i] >= 0;
        }
        int64_t left = deadline - tern_clock_boot_ns();
        if (!open || left <= 0)
            return;
        if (!any)
            poll(fds, N_STREAMS, (int)(left / 1000000) + 1);
    }
}

/* ------------------------------------------------------------------ all of it */

/* The storage hangs: say what is not there, here and to the supervisor, which may reach it. */
static void report_left(struct task *t, const char *node)
{
    const struct tern_task_left from = {
        .rank = tern_task_rank(),
        .metrics = tern_var("TERN_RUN_METRICS"),
        .lines = t->sink.lines,
        .unwritten = &t->sink.unwritten,
        .stream = t->sink.stream,
        .begun = t->sink.begun,
    };
    struct tern_ledger_lost lost = {0};
    char text[300], cause[300];

    tern_warn("rank %" PRId64 ": the storage does not answer; the end of the log is lost",
              from.rank);
    if (t->sink.intake)
        lost = tern_task_left_count(t->feed, &from);
    if (!lost.n)
        return;
    snprintf(cause, sizeof cause, "the storage did not answer rank %" PRId64 " on %.200s",
             from.rank, node);
    tern_ledger_lost_words(&lost, cause, text, sizeof text);
    tern_warn("%s", text);
    tern_task_beacon_report(from.rank, &lost, node, REPORT_MS);
}

int tern_task_run(char **argv)
{
    struct task t = {.pid = 0};
    char node[256];
    struct tern_task_memory before = tern_task_memory_read("");

    sink_open(&t);
    t.buffer = malloc(CHUNK);
    t.error = malloc(CHUNK);
    if (!t.buffer || !t.error || start(&t, argv) < 0) {
        tern_error("cannot start '%s': %s", argv[0], strerror(errno));
        return TERN_TEMPFAIL;
    }
    tern_task_supervisor_find(&t.supervisor);
    node_name(node, sizeof node);
    tern_task_frozen_begin(&t.frozen, argv[0], tern_task_rank(), node);
    attend(&t);
    linger(&t);
    t.sink.status = t.status;
    t.sink.frozen = t.frozen.why;
    t.sink.told = tern_task_signals_told();
    tern_task_memory_words(&before, t.status, t.sink.told, tern_task_rank(), node, t.sink.memory,
                           sizeof t.sink.memory);
    if (!tern_task_feed_close(t.feed, PATIENCE_MS)) {
        report_left(&t, node);
    } else {
        free(t.buffer);
        free(t.error);
    }
    const int status = t.frozen.why[0] ? TERN_TEMPFAIL << 8 : t.status;
    tern_task_supervisor_end(&t.supervisor, status);
    if (t.frozen.why[0])
        return TERN_TEMPFAIL; /* a reason outside the run */
    return tern_task_signals_end_like(t.status);
}
