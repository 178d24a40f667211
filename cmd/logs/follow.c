/* `tern logs --follow`: attempts as they come, and when there will be no more. */
#include "cmd/logs/logs.h"

#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/logs/logs.h"
#include "core/slurm/slurm.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

static const int64_t second = 1000000000;

enum {
    POLL_MS = 500, /* for network file systems, where inotify does not notify */
    LEDGER_S = 1,  /* between two checks whether the run has ended */
    GRACE_S = 15,  /* for the next attempt, when it is not known whether there will be one */
    LOST_S = 3,    /* for the end record of a supervisor that is gone */
    JOB_S = 5,     /* between two queries of Slurm */
};

/* The attempt that is followed, by the ledger. */
enum state { GOES_ON, ENDED, NEXT };

struct follow {
    const char *ledger, *id;
    unsigned attempt;
    int64_t next_ask, next_job, ended_ns, gone_ns;
    int job_alive; /* -1: not known */
    bool reported;
    char outcome[32];
    int inotify; /* -1: none */
};

/* Does the job run, or without a job the supervisor?  -1: not known from here. */
static int alive(struct follow *f, const struct tern_ledger_attempt *a)
{
    char host[256] = "";
    int64_t now = tern_clock_boot_ns();

    if (a->job_id <= 0) {
        gethostname(host, sizeof host - 1);
        if (!a->host || strcmp(a->host, host) != 0)
            return -1;
        return kill((pid_t)a->pid, 0) == 0 || errno == EPERM;
    }
    if (now >= f->next_job) {
        struct tern_slurm_job *job = NULL;
        struct tern_err err = {0};
        f->job_alive = -1; /* -1 also when the controller does not answer */
        if (tern_slurm_available() && tern_slurm_job_load((uint32_t)a->job_id, &job, &err) == 0)
            f->job_alive = strcmp(job->word, "PENDING") == 0 || strcmp(job->word, "RUNNING") == 0 ||
                           strcmp(job->word, "SUSPENDED") == 0;
        tern_slurm_job_free(job);
        f->next_job = now + JOB_S * second;
    }
    return f->job_alive;
}

/* Will there be another attempt? */
static bool may_come(struct follow *f, const struct tern_ledger_attempt *a)
{
    if (a->exit_code != TERN_TEMPFAIL && a->exit_code != TERN_CONTINUED)
        return false;
    int lives = alive(f, a);
    if (lives > 0 || (lives == 0 && a->job_id <= 0))
        return lives;
    return tern_clock_boot_ns() - f->ended_ns < GRACE_S * second;
}

/* Its supervisor was killed, or lost with its node, and its end is not recorded. */
static bool is_lost(struct follow *f, const struct tern_ledger_attempt *a)
{
    if (alive(f, a) != 0)
        f->gone_ns = 0;
    else if (!f->gone_ns)
        f->gone_ns = tern_clock_boot_ns();
    int wait = a->job_id > 0 ? GRACE_S : LOST_S; /* Slurm may queue the job again */
    return f->gone_ns && tern_clock_boot_ns() - f->gone_ns > wait * second;
}

static enum state ask(struct follow *f, struct tern_err *err)
{
    struct tern_ledger_rows rows = {0};
    enum state s = GOES_ON;
    struct tern_ledger *l = tern_ledger_open_run(f->ledger, f->id, err);

    if (!l || tern_ledger_attempts(l, &rows, err) < 0) {
        tern_ledger_close(l);
        return GOES_ON; /* checked again later */
    }
    for (size_t i = 0; i < rows.n; i++) {
        const struct tern_ledger_attempt *a = &rows.attempts[i];
        if (a->attempt > f->attempt) {
            s = NEXT;
        } else if (a->attempt == f->attempt && a->outcome && s != NEXT) {
            snprintf(f->outcome, sizeof f->outcome, "%s", a->outcome);
            if (!f->ended_ns)
                f->ended_ns = tern_clock_boot_ns();
            s = may_come(f, a) ? GOES_ON : ENDED;
            if (s == GOES_ON && !f->reported) {
                fflush(stdout);
                tern_info("attempt %u: %s; waiting for the next one (Ctrl-C ends this)", f->attempt,
                          f->outcome);
                f->reported = true;
            }
        } else if (a->attempt == f->attempt && s != NEXT && is_lost(f, a)) {
            snprintf(f->outcome, sizeof f->outcome, "lost: its supervisor is gone");
            s = ENDED;
        }
    }
    tern_ledger_rows_free(&rows);
    tern_ledger_close(l);
    return s;
}

static void print_all(struct follow *f, struct tern_logs_reader *r)
{
    struct tern_logs_line line;

    tern_logs_reader_refresh(r);
    while (tern_logs_reader_next(r, &line))
        logs_line(&line, f->attempt);
    fflush(stdout);
}

/* Wait until a file is written, or a moment. */
static void wait_a_little(struct follow *f)
{
    struct pollfd p = {.fd = f->inotify, .events = POLLIN};
    char events[4096];

    if (poll(&p, 1, POLL_MS) > 0) {
        while (read(f->inotify, events, sizeof events) > 0) {
        }
        poll(NULL, 0, 20); /* lines that ranks print together come together */
    }
}

/* The logs of one attempt; true when there is a next one. */
static enum state follow_one(struct follow *f, struct tern_err *err)
{
    char *dir = tern_logs_dir(f->ledger, f->id, f->attempt);
    struct tern_logs_reader *r = tern_logs_reader_open(dir, logs_choose, NULL, err);
    enum state s = GOES_ON;

    f->inotify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    int watch = -1;
    f->ended_ns = f->next_ask = f->next_job = f->gone_ns = 0;
    f->reported = false;
    if (r && logs.tail > 0)
        logs_tail(r, f->attempt, err);
    while (r && s == GOES_ON && !ferror(stdout)) {
        if (watch < 0 && f->inotify >= 0)
            watch = inotify_add_watch(f->inotify, dir, IN_MODIFY | IN_CREATE);
        print_all(f, r);
        int64_t now = tern_clock_boot_ns();
        if (now >= f->next_ask) {
            s = ask(f, err);
            f->next_ask = tern_clock_boot_ns() + LEDGER_S * second;
        }
        if (s == GOES_ON)
            wait_a_little(f);
    }
    if (r)
        print_all(f, r);
    tern_logs_reader_close(r);
    if (f->inotify >= 0)
        close(f->inotify);
    free(dir);
    return r ? s : ENDED;
}

int logs_follow(const char *ledger, const char *id, unsigned first, struct tern_err *err)
{
    struct follow f = {.ledger = ledger, .id = id, .attempt = first};

    while (follow_one(&f, err) == NEXT) {
        f.attempt++;
        logs.tail = 0;
    }
    if (err->code && !f.outcome[0])
        return -1;
    tern_info("run %s, attempt %u: %s", id, f.attempt, f.outcome[0] ? f.outcome : "?");
    return 0;
}
