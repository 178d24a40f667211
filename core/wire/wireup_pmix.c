/* PMIx, as srun --mpi=pmix and mpirun speak it (https://pmix.github.io).
 *
 * Its calls wait for the launcher as long as they like, so each is made by a thread of its own. One
 * that has not returned by the deadline is left behind with all that it works on. */
#include "core/wire/wireup.h"

#include "core/base/clock.h"
#include "core/base/log.h"

#include <pmix.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct state {
    pmix_proc_t self;
    int round, size;
    int limit_s; /* for PMIx itself, which may know the missing rank */
    uint8_t blob[TERN_WIRE_BLOB], *all;
    /* the result of a call */
    pmix_status_t rc;
    const char *what; /* that failed; NULL: nothing did */
    int who;          /* rank it is about, or -1 */
    void (*call)(struct state *s);
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool done;
};

static void failed(struct state *s, const char *what, pmix_status_t rc, int who)
{
    s->what = what;
    s->rc = rc;
    s->who = who;
}

/* ---------------------------------------------------------------- by a thread of its own */

static void *run(void *arg)
{
    struct state *s = arg;

    s->call(s);
    pthread_mutex_lock(&s->lock);
    s->done = true;
    pthread_cond_signal(&s->ended);
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* False when it did not return in time: then nothing of `s` may be touched any more. */
static bool in_time(struct state *s, void (*call)(struct state *s), int64_t ns)
{
    static const int64_t look_ns = 1000000000;
    struct tern_clock_limit limit = tern_clock_limit(ns, look_ns);
    struct timespec until;
    sigset_t all, before;
    pthread_t thread;
    int64_t left;

    s->call = call;
    s->done = false;
    s->what = NULL;
    sigfillset(&all); /* signals are for the caller's threads */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int made = pthread_create(&thread, NULL, run, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (made != 0) {
        failed(s, "no thread can be made for it", PMIX_ERR_OUT_OF_RESOURCE, -1);
        return true;
    }
    pthread_mutex_lock(&s->lock);
    while (!s->done && (left = tern_clock_left_ns(&limit)) > 0) {
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += left < look_ns / 2 ? left : look_ns / 2;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&s->ended, &s->lock, &until);
    }
    bool done = s->done;
    pthread_mutex_unlock(&s->lock);
    if (done)
        pthread_join(thread, NULL);
    else
        pthread_detach(thread);
    return done;
}

static struct state *new_state(void)
{
    struct state *s = calloc(1, sizeof *s);
    pthread_condattr_t attr;

    if (!s)
        return NULL;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&s->ended, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&s->lock, NULL);
    return s;
}

static void free_state(struct state *s)
{
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->ended);
    free(s->all);
    free(s);
}

/* The call with its deadline, and its error's words. */
static int made(struct tern_wire_up *w, void (*call)(struct state *s), const char *late,
                struct tern_err *err)
{
    struct state *s = w->state;

    if (!in_time(s, call, w->deadline_ns)) {
        w->state = NULL;
        return tern_err_set(err, TERN_TEMPFAIL, "PMIx: %s within the deadline of %.3g s", late,
                            (double)w->deadline_ns / 1e9);
    }
    if (!s->what)
        return 0;
    if (s->who >= 0)
        return tern_err_set(err, TERN_TEMPFAIL, "PMIx: rank %d %s: %s", s->who, s->what,
                            PMIx_Error_string(s->rc));
    return tern_err_set(err, TERN_TEMPFAIL, "PMIx: %s: %s", s->what, PMIx_Error_string(s->rc));
}

/* ---------------------------------------------------------------- the calls */

static void begin(struct state *s)
{
    pmix_value_t *v;
    pmix_status_t rc = PMIx_Init(&s->self, NULL, 0);

    if (rc) {
        failed(s, "cannot reach the launcher (srun --mpi=pmix or mpirun)", rc, -1);
        return;
    }
    pmix_proc_t job = s->self;
    job.rank = PMIX_RANK_WILDCARD;
    if ((rc = PMIx_Get(&job, PMIX_JOB_SIZE, NULL, 0, &v))) {
        failed(s, "the launcher does not tell the number of ranks", rc, -1);
        PMIx_Finalize(NULL, 0);
        return;
    }
    s->size = (int)v->data.uint32;
    PMIX_VALUE_RELEASE(v);
}

static void gather(struct state *s)
{
    pmix_proc_t who = s->self;
    pmix_value_t v, *got;
    pmix_info_t info[2];
    bool collect = true;
    char key[32];
    pmix_status_t rc;

    snprintf(key, sizeof key, "tern.%d", s->round++);
    v.type = PMIX_BYTE_OBJECT;
    v.data.bo.bytes = (char *)s->blob;
    v.data.bo.size = TERN_WIRE_BLOB;
    if ((rc = PMIx_Put(PMIX_GLOBAL, key, &v)) || (rc = PMIx_Commit())) {
        failed(s, "cannot publish this rank's address", rc, -1);
        return;
    }
    PMIX_INFO_LOAD(&info[0], PMIX_COLLECT_DATA, &collect, PMIX_BOOL);
    PMIX_INFO_LOAD(&info[1], PMIX_TIMEOUT, &s->limit_s, PMIX_INT);
    who.rank = PMIX_RANK_WILDCARD;
    rc = PMIx_Fence(&who, 1, info, 2);
    if (rc) {
        failed(s, "not all ranks arrived", rc, -1);
        return;
    }
    for (int r = 0; r < s->size; r++) {
        who.rank = (pmix_rank_t)r;
        if ((rc = PMIx_Get(&who, key, NULL, 0, &got))) {
            failed(s, "published no address", rc, r);
            return;
        }
        bool fits = got->type == PMIX_BYTE_OBJECT && got->data.bo.size == TERN_WIRE_BLOB;
        if (fits)
            memcpy(s->all + (size_t)r * TERN_WIRE_BLOB, got->data.bo.bytes, TERN_WIRE_BLOB);
        PMIX_VALUE_RELEASE(got);
        if (!fits) {
            failed(s, "runs another version of tern", PMIX_ERR_TYPE_MISMATCH, r);
            return;
        }
    }
}

static void end(struct state *s)
{
    (void)s;
    PMIx_Finalize(NULL, 0);
}

/* ---------------------------------------------------------------- the table */

static int exchange(struct tern_wire_up *w, const uint8_t *blob, uint8_t *all, struct tern_err *err)
{
    struct state *s = w->state;

    memcpy(s->blob, blob, TERN_WIRE_BLOB);
    if (made(w, gather, "not all ranks arrived", err) < 0)
        return -1;
    memcpy(all, s->all, (size_t)w->size * TERN_WIRE_BLOB);
    return 0;
}

static void finalize(struct tern_wire_up *w)
{
    struct state *s = w->state;

    w->state = NULL;
    if (s && in_time(s, end, w->deadline_ns))
        free_state(s);
}

int tern_wire_up_pmix(struct tern_wire_up *w, struct tern_err *err)
{
    struct state *s = new_state();

    if (!s)
        return tern_err_set(err, TERN_FAILED, "out of memory");
    s->limit_s = (int)(w->deadline_ns / 1000000000) + 1;
    w->state = s;
    if (made(w, begin, "the launcher (srun --mpi=pmix or mpirun) does not answer", err) < 0) {
        if (w->state)
            free_state(s);
        w->state = NULL;
        return -1;
    }
    tern_debug("phase: pmix");
    w->name = "PMIx";
    w->exchange = exchange;
    w->close = finalize;
    w->rank = (int)s->self.rank;
    w->size = s->size;
    s->all = calloc((size_t)s->size, TERN_WIRE_BLOB);
    return s->all ? 0 : tern_err_set(err, TERN_FAILED, "out of memory for the wire-up");
}
