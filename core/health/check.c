/* The table of checks, and the runner: one child works through them and is replaced when it hangs
 * or dies, so that the usual case costs one fork. */
#include "core/base/clock.h"
#include "core/base/vars.h"
#include "core/health/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { QUICK = 1, SPOT = 2, FABRIC = 4, DEEP = 8 };

struct check {
    struct tern_health_about about;
    int stages;
    enum tern_health_verdict late; /* what it means when it does not end in time */
    void (*run)(struct tern_health_probe *p);
};

#define ROW(id, stages, words, severity, limit, late, what)                                        \
    {                                                                                              \
        {#id, words, severity, limit, what}, stages, late, tern_health_check_##id                  \
    }

/* Limits: a check of /proc and /sys takes under a millisecond, and 1 s means that it hangs; a
 * network file system may be busy for a second or two.  Mounts are looked at last: several that
 * hang take all the time that is left. */
static const struct check checks[] = {
    ROW(neuron, QUICK | DEEP, "quick deep", "error", 1, TERN_HEALTH_UNKNOWN,
        "Neuron devices are there and as many as expected (/dev/neuron*)"),
    ROW(ecc, QUICK | DEEP, "quick deep", "error", 2, TERN_HEALTH_UNKNOWN,
        "no uncorrected memory errors of Neuron devices (sysfs counters)"),
    ROW(kernel, QUICK | DEEP, "quick deep", "error", 1, TERN_HEALTH_UNKNOWN,
        "no NEURON_HW_ERR in the kernel's log (needs root)"),
    ROW(efa, QUICK | DEEP, "quick deep", "error", 1, TERN_HEALTH_UNKNOWN,
        "EFA devices: as many as expected, ports active"),
    ROW(nic, QUICK | DEEP, "quick deep", "error", 1, TERN_HEALTH_UNKNOWN,
        "network links that are in use have a carrier"),
    ROW(provider, QUICK | DEEP, "quick deep", "error", 2, TERN_HEALTH_UNKNOWN,
        "libfabric has the provider that training uses"),
    ROW(memory, QUICK | DEEP, "quick deep", "error", 1, TERN_HEALTH_UNKNOWN,
        "as much memory as Slurm believes, and free"),
    ROW(hugepages, QUICK | DEEP, "quick deep", "error", 1, TERN_HEALTH_UNKNOWN,
        "huge pages as expected"),
    ROW(limits, QUICK | DEEP, "quick deep", "error", 1, TERN_HEALTH_UNKNOWN,
        "memlock and nofile limits that the fabric needs"),
    ROW(clock, QUICK | DEEP, "quick deep", "error", 2, TERN_HEALTH_UNKNOWN,
        "the clock is within 100 ms of the other nodes' (in a job)"),
    ROW(leftovers, QUICK | DEEP, "quick deep", "error", 2, TERN_HEALTH_UNKNOWN,
        "no process of an ended job holds a Neuron device, no stray shared memory of tern"),
    ROW(stuck, QUICK | DEEP, "quick deep", "warn", 2, TERN_HEALTH_UNKNOWN,
        "no process hangs in the kernel (D state)"),
    ROW(software, QUICK | DEEP, "quick deep", "error", 3, TERN_HEALTH_UNKNOWN,
        "tern, libfabric, PMIx, OpenBLAS, kernel and Neuron driver are the other nodes'"),
    ROW(mount, QUICK | DEEP, "quick deep", "error", 3, TERN_HEALTH_STORAGE_BAD,
        "file systems are mounted, take a file (create, fsync, remove), have room and inodes"),
    ROW(triad, SPOT | DEEP, "spot deep", "error", 30, TERN_HEALTH_UNKNOWN,
        "memory bandwidth (STREAM triad), 80 % of the other nodes' median at least"),
    ROW(compute, SPOT | DEEP, "spot deep", "error", 60, TERN_HEALTH_UNKNOWN,
        "every core computes the stored result of a training-like sum, bit for bit"),
    ROW(link, FABRIC | DEEP, "fabric deep", "error", 300, TERN_HEALTH_FABRIC_BAD,
        "bandwidth and latency to two neighbours, and an all-reduce with a known result"),
};
enum { N_CHECKS = sizeof checks / sizeof *checks, MAX_UNITS = N_CHECKS + TERN_RULES_MAX_FOLDERS };

/* All checks of a stage together. */
static const double budget_s[] = {5, 30, 60, 600};

const struct tern_health_about *tern_health_about(size_t i)
{
    return i < N_CHECKS ? &checks[i].about : NULL;
}

static const char *const stages[] = {"quick", "spot", "fabric", "deep"};

int tern_health_stage_of(const char *s)
{
    for (int i = 0; i < 4; i++)
        if (strcmp(s, stages[i]) == 0)
            return i;
    return -1;
}

const char *tern_health_stage_name(enum tern_health_stage s)
{
    return stages[s];
}

/* ------------------------------------------------------------------ choosing */

/* A check, or one of its subjects. */
struct unit {
    const struct check *check;
    size_t index;
};

static void add_skipped(struct tern_health_rows *rows, const char *check, const char *node,
                        const char *why)
{
    struct tern_health_row r = {.verdict = TERN_HEALTH_SKIPPED};

    snprintf(r.check, sizeof r.check, "%s", check);
    snprintf(r.node, sizeof r.node, "%s", node);
    snprintf(r.text, sizeof r.text, "%s", why);
    tern_health_rows_add(rows, &r);
}

static bool switched_off(const struct tern_health_options *o, const char *id)
{
    return tern_rules_listed(o->skip, id) ||
           (!o->unattended && tern_rules_listed(tern_var("TERN_HEALTH_SKIP"), id));
}

static size_t choose(const struct tern_health_options *o, const struct tern_health_want *want,
                     struct unit units[MAX_UNITS], struct tern_health_rows *rows, const char *node)
{
    size_t n = 0;

    for (size_t i = 0; i < N_CHECKS; i++) {
        const struct check *c = &checks[i];
        if (!(c->stages & 1 << o->stage) || (o->only && !tern_rules_listed(o->only, c->about.id)))
            continue;
        if (switched_off(o, c->about.id)) {
            add_skipped(rows, c->about.id, node, "switched off");
            continue;
        }
        bool mounts = c->run == tern_health_check_mount;
        if (mounts && want->n_mounts == 0)
            add_skipped(rows, c->about.id, node,
                        "no folder is named (--mount), no network file system in /etc/fstab");
        for (size_t k = 0; k < (mounts ? want->n_mounts : 1); k++)
            units[n++] = (struct unit){c, k};
    }
    return n;
}

/* ------------------------------------------------------------------ the child's side */

/* Less than PIPE_BUF, so that it arrives whole. */
struct message {
    enum { BEGIN, SAID, END } kind;
    int unit;
    struct tern_health_row row;
};
_Static_assert(sizeof(struct message) <= 4096, "a message is one write");

static void tell(int fd, const struct message *m)
{
    while (write(fd, m, sizeof *m) < 0 && errno == EINTR)
        ;
}

static void say(struct tern_health_probe *p, enum tern_health_verdict v,
                enum tern_rules_severity severity, const char *subject, double value,
                const char *unit, const char *fmt, va_list ap)
{
    struct message m = {.kind = SAID};
    struct tern_health_row *r = &m.row;

    snprintf(r->check, sizeof r->check, "%s", p->check);
    snprintf(r->subject, sizeof r->subject, "%s", subject ? subject : "");
    snprintf(r->unit, sizeof r->unit, "%s", unit ? unit : "");
    r->verdict = v;
    r->severity = severity;
    r->value = value;
    r->seconds = (double)(tern_clock_boot_ns() - p->began_ns) / 1e9;
    vsnprintf(r->text, sizeof r->text, fmt, ap);
    tell(p->out, &m);
}

void tern_health_say(struct tern_health_probe *p, enum tern_health_verdict v, const char *subject,
                     double value, const char *unit, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    say(p, v, v <= TERN_HEALTH_SKIPPED ? TERN_RULES_INFO : p->severity, subject, value, unit, fmt,
        ap);
    va_end(ap);
}

void tern_health_warn(struct tern_health_probe *p, const char *subject, double value,
                      const char *unit, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    say(p, TERN_HEALTH_OK, TERN_RULES_WARN, subject, value, unit, fmt, ap);
    va_end(ap);
}

void tern_health_say_same(struct tern_health_probe *p, const char *same, const char *text)
{
    struct message m = {.kind = SAID};

    snprintf(m.row.check, sizeof m.row.check, "%s", p->check);
    snprintf(m.row.text, sizeof m.row.text, "%s", text);
    snprintf(m.row.same, sizeof m.row.same, "%s", same);
    m.row.seconds = (double)(tern_clock_boot_ns() - p->began_ns) / 1e9;
    tell(p->out, &m);
}

static void work(const struct unit *units, size_t from, size_t n, struct tern_health_probe *p)
{
    for (size_t i = from; i < n; i++) {
        struct message m = {.kind = BEGIN, .unit = (int)i};
        p->check = units[i].check->about.id;
        p->severity = strcmp(units[i].check->about.severity, "error") == 0 ? TERN_RULES_ERROR
                                                                           : TERN_RULES_WARN;
        p->index = units[i].index;
        p->began_ns = tern_clock_boot_ns();
        tell(p->out, &m);
        units[i].check->run(p);
        m.kind = END;
        tell(p->out, &m);
    }
}

/* ------------------------------------------------------------------ the parent's side */

struct runner {
    const struct unit *units;
    size_t n, next; /* next: the first that has not ended */
    struct tern_health_probe *probe;
    struct tern_health_rows *rows;
    const char *node;
    int64_t unit_began, deadline;
    pid_t pid;
    int in;
};

static int start(struct runner *r, struct tern_err *err)
{
    int fd[2];
    pid_t parent = getpid();

    if (pipe2(fd, O_CLOEXEC) < 0)
        return tern_err_sys(err, "cannot make a pipe");
    r->pid = fork();
    if (r->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        close(fd[0]);
        r->probe->out = fd[1];
        work(r->units, r->next, r->n, r->probe);
        _exit(0);
    }
    close(fd[1]);
    if (r->pid < 0) {
        close(fd[0]);
        return tern_err_sys(err, "cannot start a check");
    }
    r->in = fd[0];
    r->unit_began = tern_clock_boot_ns();
    return 0;
}

/* A child stuck in the kernel cannot be waited for: it is left behind. */
static void stop(struct runner *r, int *status)
{
    kill(r->pid, SIGKILL);
    for (int i = 0; i < 100 && waitpid(r->pid, status, WNOHANG) == 0; i++)
        tern_clock_sleep_ns(1000000);
    close(r->in);
}

static void add(struct runner *r, struct tern_health_row *row)
{
    snprintf(row->node, sizeof row->node, "%s", r->node);
    row->virtual_node = r->probe->want->virtual_node;
    tern_health_rows_add(r->rows, row);
}

/* A row for a unit that did not get to say one. */
static void give_up(struct runner *r, enum tern_health_verdict v, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void give_up(struct runner *r, enum tern_health_verdict v, const char *fmt, ...)
{
    const struct unit *u = &r->units[r->next];
    struct tern_health_row row = {.verdict = v, .severity = TERN_RULES_ERROR};
    va_list ap;

    snprintf(row.check, sizeof row.check, "%s", u->check->about.id);
    if (u->check->run == tern_health_check_mount)
        snprintf(row.subject, sizeof row.subject, "%s",
                 tern_health_subject(r->probe->want->mount[u->index].folder.dir));
    row.seconds = (double)(tern_clock_boot_ns() - r->unit_began) / 1e9;
    va_start(ap, fmt);
    vsnprintf(row.text, sizeof row.text, fmt, ap);
    va_end(ap);
    add(r, &row);
    r->next++;
}

/* Listen until the child ends, or its check or all of them are late. */
static void listen_to(struct runner *r)
{
    for (;;) {
        struct message m;
        struct pollfd p = {.fd = r->in, .events = POLLIN};
        int64_t now = tern_clock_boot_ns();
        double limit = r->next < r->n ? r->units[r->next].check->about.limit_s : 1;
        int64_t until = r->unit_began + (int64_t)(limit * 1e9);
        if (until > r->deadline)
            until = r->deadline;
        int ready = until > now ? poll(&p, 1, (int)((until - now) / 1000000 + 1)) : 0;
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready <= 0)
            return;
        ssize_t got = read(r->in, &m, sizeof m);
        if (got < 0 && errno == EINTR)
            continue;
        if (got != sizeof m)
            return;
        if (m.kind == SAID)
            add(r, &m.row);
        else if (m.kind == BEGIN)
            r->unit_began = tern_clock_boot_ns();
        else
            r->next = (size_t)m.unit + 1;
    }
}

static int run_all(struct runner *r, struct tern_err *err)
{
    while (r->next < r->n && tern_clock_boot_ns() < r->deadline) {
        size_t before = r->next;
        int status = 0;
        if (start(r, err) < 0)
            return -1;
        listen_to(r);
        /* Its end by itself is waited for a moment, so that its signal can be told. */
        bool ended = waitpid(r->pid, &status, WNOHANG) == r->pid;
        if (ended)
            close(r->in);
        else
            stop(r, &status);
        if (r->next == r->n)
            break;
        const struct check *c = r->units[r->next].check;
        double took = (double)(tern_clock_boot_ns() - r->unit_began) / 1e9;
        if (took >= c->about.limit_s)
            give_up(r, c->late, "no answer within %g s", c->about.limit_s);
        else if (tern_clock_boot_ns() < r->deadline)
            give_up(r, TERN_HEALTH_UNKNOWN, "the check itself ended by signal %d",
                    WIFSIGNALED(status) ? WTERMSIG(status) : 0);
        if (r->next == before)
            break;
    }
    while (r->next < r->n)
        give_up(r, TERN_HEALTH_UNKNOWN, "not reached: the checks before it took all the time");
    return 0;
}

/* Tests put a /sys, a /dev and a /proc of their own there; root's unattended runs never do. */
static const char *root_of(const struct tern_health_options *o)
{
    const char *root = o->unattended ? NULL : tern_var("TERN_HEALTH_ROOT");

    return root ? root : "";
}

int tern_health_here(const struct tern_health_options *o, struct tern_health_rows *rows,
                     struct tern_err *err)
{
    struct tern_health_want want;
    struct unit units[MAX_UNITS];
    char node[65];
    struct tern_health_probe probe = {.want = &want, .options = o, .root = root_of(o)};

    if (tern_rules_ids_check(o->only, "--only", err) < 0 ||
        tern_rules_ids_check(o->skip, "--skip", err) < 0)
        return -1;
    const char *skip = o->unattended ? NULL : tern_var("TERN_HEALTH_SKIP");
    if (skip && tern_rules_ids_check(skip, "TERN_HEALTH_SKIP", err) < 0)
        return -1;
    if (tern_health_want_here(o, probe.root, &want, err) < 0)
        return -1;
    tern_health_node_name(o, node);
    struct runner r = {
        .units = units,
        .n = choose(o, &want, units, rows, node),
        .probe = &probe,
        .rows = rows,
        .node = node,
        .deadline = tern_clock_boot_ns() + (int64_t)(budget_s[o->stage] * 1e9),
    };
    return run_all(&r, err);
}
