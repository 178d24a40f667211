/* The runner: one child works through a stage's checks and is replaced when it hangs or dies, so
 * that the usual case costs one fork. */
#include "core/base/clock.h"
#include "core/base/progress.h"
#include "core/base/str.h"
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

/* All checks of a stage together. */
static const double budget_s[] = {5, 30, 60, 600};

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
    const struct tern_health_check *check;
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

/* The most that `choose` makes: each check with each folder. */
static size_t max_units(void)
{
    return tern_health_n_checks * TERN_RULES_MAX_FOLDERS;
}

static size_t choose(const struct tern_health_options *o,
                     const struct tern_health_expected *expected, struct unit *units,
                     struct tern_health_rows *rows, const char *node)
{
    size_t n = 0;

    for (size_t i = 0; i < tern_health_n_checks; i++) {
        const struct tern_health_check *c = &tern_health_checks[i];
        if (!(c->rule.where & 1u << o->stage) ||
            (o->only && !tern_rules_listed(o->only, c->rule.id)))
            continue;
        if (switched_off(o, c->rule.id)) {
            add_skipped(rows, c->rule.id, node, "switched off");
            continue;
        }
        bool mounts = c->gather == tern_health_gather_mount;
        if (mounts && expected->n_mounts == 0)
            add_skipped(rows, c->rule.id, node,
                        "no folder is named (--mount), no network file system in /etc/fstab");
        for (size_t k = 0; k < (mounts ? expected->n_mounts : 1); k++)
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

static void send_message(int fd, const struct message *m)
{
    while (write(fd, m, sizeof *m) < 0 && errno == EINTR)
        ;
}

/* A row of the probe's check. */
static void begin_row(const struct tern_health_probe *p, enum tern_health_verdict v,
                      const char *subject, struct tern_health_row *r)
{
    snprintf(r->check, sizeof r->check, "%s", p->check);
    snprintf(r->subject, sizeof r->subject, "%s", subject ? subject : "");
    r->verdict = v;
    r->seconds = (double)(tern_clock_boot_ns() - p->began_ns) / 1e9;
}

void tern_health_report(const struct tern_health_probe *p, enum tern_health_verdict v,
                        const char *subject, double value, const char *unit, const char *fmt, ...)
{
    struct message m = {.kind = SAID, .row = {.value = value}};
    va_list ap;

    begin_row(p, v, subject, &m.row);
    m.row.severity = v <= TERN_HEALTH_SKIPPED ? TERN_RULES_INFO : p->severity;
    snprintf(m.row.unit, sizeof m.row.unit, "%s", unit ? unit : "");
    va_start(ap, fmt);
    vsnprintf(m.row.text, sizeof m.row.text, fmt, ap);
    va_end(ap);
    send_message(p->out, &m);
}

void tern_health_report_only(struct tern_health_probe *p, enum tern_health_verdict v,
                             const char *fmt, ...)
{
    char text[sizeof((struct tern_health_row *)0)->text];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    tern_health_report(p, v, /* subject= */ NULL, /* value= */ 0, /* unit= */ NULL, "%s", text);
}

void tern_health_warn(struct tern_health_probe *p, const char *subject, double value,
                      const char *unit, const char *fmt, ...)
{
    struct message m = {.kind = SAID, .row = {.value = value, .severity = TERN_RULES_WARN}};
    va_list ap;

    begin_row(p, TERN_HEALTH_OK, subject, &m.row);
    snprintf(m.row.unit, sizeof m.row.unit, "%s", unit ? unit : "");
    va_start(ap, fmt);
    vsnprintf(m.row.text, sizeof m.row.text, fmt, ap);
    va_end(ap);
    send_message(p->out, &m);
}

void tern_health_report_same(struct tern_health_probe *p, const char *same, const char *text)
{
    struct message m = {.kind = SAID};

    begin_row(p, TERN_HEALTH_OK, "", &m.row);
    snprintf(m.row.text, sizeof m.row.text, "%s", text);
    snprintf(m.row.same, sizeof m.row.same, "%s", same);
    send_message(p->out, &m);
}

static void work(const struct unit *units, size_t from, size_t n, struct tern_health_probe *p)
{
    for (size_t i = from; i < n; i++) {
        struct message m = {.kind = BEGIN, .unit = (int)i};
        p->check = units[i].check->rule.id;
        p->severity = units[i].check->rule.severity;
        p->index = units[i].index;
        p->began_ns = tern_clock_boot_ns();
        send_message(p->out, &m);
        tern_health_apply(units[i].check, p);
        m.kind = END;
        send_message(p->out, &m);
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
    double patience; /* limits are so many times as long */
    pid_t pid;
    int in;
};

static double limit_of(const struct runner *r)
{
    return r->units[r->next].check->limit_s * r->patience;
}

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

/* A child that hangs in the kernel cannot be reaped: it is left behind. */
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
    row->virtual_node = r->probe->expected->virtual_node;
    tern_health_rows_add(r->rows, row);
}

/* A row for a unit that made none. */
static void give_up(struct runner *r, enum tern_health_verdict v, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void give_up(struct runner *r, enum tern_health_verdict v, const char *fmt, ...)
{
    const struct unit *u = &r->units[r->next];
    struct tern_health_row row = {.verdict = v, .severity = TERN_RULES_ERROR};
    va_list ap;

    snprintf(row.check, sizeof row.check, "%s", u->check->rule.id);
    if (u->check->gather == tern_health_gather_mount)
        snprintf(row.subject, sizeof row.subject, "%s",
                 tern_health_subject(r->probe->expected->mount[u->index].folder.dir));
    row.seconds = (double)(tern_clock_boot_ns() - r->unit_began) / 1e9;
    va_start(ap, fmt);
    vsnprintf(row.text, sizeof row.text, fmt, ap);
    va_end(ap);
    add(r, &row);
    r->next++;
}

/* A library of a check may write into the child's memory, or into its pipe. */
static bool makes_sense(const struct runner *r, const struct message *m)
{
    if (m->kind == SAID)
        return (unsigned)m->row.verdict <= TERN_HEALTH_NODE_BAD &&
               (unsigned)m->row.severity <= TERN_RULES_ERROR;
    return m->kind == BEGIN || (m->unit >= 0 && (size_t)m->unit < r->n);
}

enum { LOOK_MS = 200 }; /* between looks at progress */

/* Listen until the child ends, or its check or all of them are late. */
static void listen_to(struct runner *r)
{
    for (;;) {
        struct message m;
        struct pollfd p = {.fd = r->in, .events = POLLIN};
        int64_t now = tern_clock_boot_ns();
        double limit = r->next < r->n ? limit_of(r) : r->patience;
        int64_t until = r->unit_began + (int64_t)(limit * 1e9);
        if (until > r->deadline)
            until = r->deadline;
        tern_progress_set(r->next, r->n);
        if (until <= now)
            return;
        int64_t ms = (until - now) / 1000000 + 1;
        int ready = poll(&p, 1, (int)(ms < LOOK_MS ? ms : LOOK_MS));
        if (ready == 0 || (ready < 0 && errno == EINTR))
            continue;
        if (ready < 0)
            return;
        ssize_t got = read(r->in, &m, sizeof m);
        if (got < 0 && errno == EINTR)
            continue;
        if (got != sizeof m)
            return;
        if (!makes_sense(r, &m))
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
        /* A child that ended by itself is reaped first, so that its signal is known. */
        bool ended = waitpid(r->pid, &status, WNOHANG) == r->pid;
        if (ended)
            close(r->in);
        else
            stop(r, &status);
        if (r->next == r->n)
            break;
        const struct tern_health_check *c = r->units[r->next].check;
        double took = (double)(tern_clock_boot_ns() - r->unit_began) / 1e9;
        if (took >= limit_of(r))
            give_up(r, c->late, "no answer within %g s", limit_of(r));
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

/* Tests put a /sys, a /dev and a /proc of their own there; unattended runs of root ignore it. */
static const char *root_of(const struct tern_health_options *o)
{
    const char *root = o->unattended ? NULL : tern_var("TERN_HEALTH_ROOT");

    return root ? root : "";
}

/* Tests have it longer; 1 for anything else. */
static double patience_of(const struct tern_health_options *o)
{
    const char *s = o->unattended ? NULL : tern_var("TERN_HEALTH_PATIENCE");
    double factor = 1;

    return s && tern_str_real(s, 1, 1000, &factor) == 0 ? factor : 1;
}

int tern_health_check_local(const struct tern_health_options *o, struct tern_health_rows *rows,
                            struct tern_err *err)
{
    struct tern_health_expected expected;
    char node[65];
    struct tern_health_probe probe = {.expected = &expected, .options = o, .root = root_of(o)};

    if (tern_rules_ids_check(o->only, "--only", err) < 0 ||
        tern_rules_ids_check(o->skip, "--skip", err) < 0)
        return -1;
    const char *skip = o->unattended ? NULL : tern_var("TERN_HEALTH_SKIP");
    if (skip && tern_rules_ids_check(skip, "TERN_HEALTH_SKIP", err) < 0)
        return -1;
    if (tern_health_expected_find(o, probe.root, &expected, err) < 0)
        return -1;
    struct unit *units = tern_alloc(max_units(), sizeof *units, "checks", err);
    if (!units)
        return -1;
    tern_health_node_name(o, node);
    const double patience = patience_of(o);
    struct runner r = {
        .units = units,
        .n = choose(o, &expected, units, rows, node),
        .probe = &probe,
        .rows = rows,
        .node = node,
        .patience = patience,
        .deadline = tern_clock_boot_ns() + (int64_t)(patience * budget_s[o->stage] * 1e9),
    };
    int rc = run_all(&r, err);
    free(units);
    return rc;
}
