/* libtern-ledger: a spool of the ledger behind a handle that threads and forks share. */
#include "plugins/libtern-ledger/ledger.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/vars.h"
#include "core/ledger/ledger.h"

#include <errno.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The spool of one process.  A child never touches its parent's.  A thread that the child does not
 * have may hold a lock of it, and its file is the parent's to write. */
struct writer {
    pid_t pid;
    struct tern_ledger_spool *spool;
    struct writer *before; /* the parent's; its spool is left alone */
};

struct tern_log {
    _Atomic(struct writer *) writer; /* of this process, or of one that it was forked from */
    char *spool_dir;
    pid_t owner; /* the process that began the run; 0: `tern run` did */
};

static _Thread_local struct tern_err last;

int tern_log_version(void)
{
    return TERN_LOG_VERSION;
}

const char *tern_log_error(void)
{
    return last.text;
}

/* ---------------------------------------------------------------- open */

static struct writer *open_writer(const char *spool_dir, struct writer *before)
{
    char host[64] = "", name[65];
    struct writer *w = tern_alloc(1, sizeof *w, "a writer", &last);

    if (!w)
        return NULL;
    gethostname(host, sizeof host - 1);
    for (char *c = host; *c; c++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-", *c))
            *c = '_';
    w->pid = getpid();
    w->before = before;
    snprintf(name, sizeof name, "log-%.40s-%d", host, (int)w->pid);
    w->spool = tern_ledger_spool_open_dir(spool_dir, name, &last);
    if (w->spool)
        return w;
    free(w);
    return NULL;
}

/* A number of Slurm's; 0 where it is not set. */
static int64_t slurm_number(const char *name)
{
    const char *s = getenv(name);
    int64_t n = 0;

    return s && tern_str_int(s, 0, INT64_MAX, &n) == 0 ? n : 0;
}

static int begin_run(struct tern_ledger_spool *s, const char *name)
{
    const struct passwd *pw = getpwuid(getuid());
    char uid[24], host[64] = "", model[100];

    snprintf(uid, sizeof uid, "%u", (unsigned)getuid());
    snprintf(model, sizeof model, "logged by %.80s", program_invocation_short_name);
    gethostname(host, sizeof host - 1);
    const struct tern_ledger_run run = {.name = name,
                                        .user = pw ? pw->pw_name : uid,
                                        .model = model,
                                        .created_ns = tern_clock_wall_ns()};
    const struct tern_ledger_attempt attempt = {
        .job_id = slurm_number("SLURM_JOB_ID"),
        .restart_count = slurm_number("SLURM_RESTART_COUNT"),
        .nodes = getenv("SLURM_JOB_NODELIST"),
        .host = host,
        .pid = getpid(),
        .world = 1,
        .array_job = slurm_number("SLURM_ARRAY_JOB_ID"),
        .array_task = slurm_number("SLURM_ARRAY_TASK_ID"),
    };
    return tern_ledger_spool_run(s, &run, &last) ||
                   tern_ledger_spool_attempt_begin(s, &attempt, &last)
               ? -1
               : tern_ledger_spool_sync(s, &last);
}

/* The spool folder of a new run, malloc'ed. */
static char *make_run(const char *dir, const char *name)
{
    const char *fault = name ? tern_str_run_name_fault(name) : "is no name of a run.";
    char id[TERN_ULID_SIZE], *home = NULL, *real = NULL, *spool_dir = NULL;

    if (!dir || !*dir)
        dir = tern_var("TERN_LEDGER");
    if (fault) {
        tern_err_set(&last, TERN_USAGE, "'%.80s' %s", name ? name : "NULL", fault);
    } else if (!dir) {
        tern_err_set(&last, TERN_USAGE,
                     "no ledger is named: give its folder to tern_log_open(), or set TERN_LEDGER");
    } else if (tern_ledger_home(dir, TERN_LEDGER_UMASK, &home, &last) == 0 &&
               tern_ledger_make(home, tern_ledger_ulid_new(id), TERN_LEDGER_UMASK, &last) == 0) {
        real = realpath(home, NULL); /* the program may change its folder */
        if (real)
            spool_dir = tern_ledger_spool_dir(real, id, 1);
        else
            tern_err_sys(&last, "%s", home);
    }
    free(real);
    free(home);
    return spool_dir;
}

struct tern_log *tern_log_open(const char *ledger_dir, const char *run_name)
{
    const char *of_run = tern_var("TERN_RUN_SPOOL");

    if (!tern_var("TERN_LOG_LEVEL"))
        tern_log_threshold(TERN_LOG_ERROR); /* stderr is the program's */
    struct tern_log *log = tern_alloc(1, sizeof *log, "a log", &last);
    if (!log)
        return NULL;
    log->owner = of_run ? 0 : getpid();
    log->spool_dir = of_run ? tern_strdup(of_run) : make_run(ledger_dir, run_name);
    struct writer *w = log->spool_dir ? open_writer(log->spool_dir, /* before= */ NULL) : NULL;
    atomic_init(&log->writer, w);
    if (w && (of_run || begin_run(w->spool, run_name) == 0))
        return log;
    if (w)
        tern_ledger_spool_close(w->spool, NULL);
    free(w);
    free(log->spool_dir);
    free(log);
    return NULL;
}

/* ---------------------------------------------------------------- values */

/* The spool of this process; a child's first call opens it.  No lock: the thread that held it may
 * not exist here. */
static struct tern_ledger_spool *spool_of(struct tern_log *log)
{
    struct writer *w = atomic_load(&log->writer);

    if (w->pid == getpid())
        return w->spool;
    struct writer *mine = open_writer(log->spool_dir, w);
    if (!mine)
        return NULL;
    if (atomic_compare_exchange_strong(&log->writer, &w, mine))
        return mine->spool;
    tern_ledger_spool_close(mine->spool, NULL); /* another thread was faster */
    free(mine);
    return w->spool;
}

/* Stricter than the ledger, which takes any bytes that are no control characters of ASCII. */
static int check_name(const char *name)
{
    const size_t len = name ? strlen(name) : 0;

    if (len < 1 || len > TERN_LOG_NAME_MAX)
        return tern_err_set(&last, TERN_USAGE, "a value's name has 1 to %d bytes, not %zu",
                            TERN_LOG_NAME_MAX, len);
    for (size_t i = 0, n; i < len; i += n)
        if ((n = tern_str_character(name + i, len - i)) == 0)
            return tern_err_set(&last, TERN_USAGE,
                                "byte %zu of a value's name is no character of UTF-8 that a "
                                "terminal may show",
                                i + 1);
    return 0;
}

static int check_call(const struct tern_log *log, int64_t step, const void *names,
                      const void *values, int n)
{
    if (!log) /* the cause is the message of the open that failed */
        return *last.text ? -1 : tern_err_set(&last, TERN_USAGE, "the log is NULL: never opened");
    if (step < 0 || step > TERN_LEDGER_STEP_MAX)
        return tern_err_set(&last, TERN_USAGE, "step %" PRId64 ": wanted 0 to 2^53", step);
    if (n < 0 || n > TERN_LOG_VALUES_MAX)
        return tern_err_set(&last, TERN_USAGE, "%d values of one step: wanted 0 to %d", n,
                            TERN_LOG_VALUES_MAX);
    if (n > 0 && (!names || !values))
        return tern_err_set(&last, TERN_USAGE, "%d values, and their array is NULL", n);
    return 0;
}

/* Which one names what another of them has named, by a table of hashes: a call takes microseconds.
 * -1: none. */
static int find_twice(const char *const names[], int n)
{
    enum { SLOTS = 2 * TERN_LOG_VALUES_MAX };
    uint16_t at[SLOTS] = {0}; /* 1 + index of a name */

    for (int i = 0; i < n; i++) {
        uint32_t hash = 2166136261; /* FNV-1a */
        for (const char *c = names[i]; *c; c++)
            hash = (hash ^ (uint8_t)*c) * 16777619;
        size_t k = hash % SLOTS;
        for (; at[k]; k = (k + 1) % SLOTS)
            if (strcmp(names[at[k] - 1], names[i]) == 0)
                return i;
        at[k] = (uint16_t)(i + 1);
    }
    return -1;
}

int tern_log_values(struct tern_log *log, int64_t step, const char *const names[],
                    const double values[], int n)
{
    struct tern_ledger_value v[TERN_LOG_VALUES_MAX];

    if (check_call(log, step, names, values, n) < 0)
        return -1;
    for (int i = 0; i < n; i++) {
        if (check_name(names[i]) < 0)
            return -1;
        v[i] = (struct tern_ledger_value){names[i], values[i]};
    }
    const int again = n > 1 ? find_twice(names, n) : -1;
    if (again >= 0)
        return tern_err_set(&last, TERN_USAGE, "%s is given twice in one call", names[again]);
    if (n == 0)
        return 0;
    struct tern_ledger_spool *s = spool_of(log);
    const int rc = s ? tern_ledger_spool_step(s, step, v, (size_t)n, &last) : -1;
    if (rc > 0)
        return tern_err_set(&last, TERN_TEMPFAIL,
                            "%s: the storage still takes no values, which wait in memory",
                            log->spool_dir);
    return rc;
}

int tern_log_value(struct tern_log *log, int64_t step, const char *name, double value)
{
    return tern_log_values(log, step, &name, &value, 1);
}

/* ---------------------------------------------------------------- close */

int tern_log_close(struct tern_log *log)
{
    const struct tern_ledger_end end = {.outcome = "done"};
    int rc = 0;

    if (!log)
        return 0;
    struct writer *w = atomic_load(&log->writer);
    if (w->pid == getpid()) {
        if (log->owner == w->pid)
            rc = tern_ledger_spool_attempt_end(w->spool, &end, &last);
        if (tern_ledger_spool_close(w->spool, &last) < 0)
            rc = -1;
    }
    for (struct writer *before; w; w = before) {
        before = w->before;
        free(w);
    }
    free(log->spool_dir);
    free(log);
    return rc < 0 ? -1 : 0;
}
