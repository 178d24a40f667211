#include "core/run/orphan.h"

#include "core/base/again.h"
#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/slurm/slurm.h"
#include "core/task/beacon.h"

#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const int64_t second = 1000000000;

enum {
    LOOK_MS = 300,     /* for an answer of the supervisor */
    CONNECT_MS = 2000, /* to the node's slurmd */
    LOOKS = 2,         /* that find the node silent... */
    REFUSALS = 5,      /* ...or without a slurmd, a second apart */
    TURN_S = 1,        /* between the turns of two nodes */
    WAIT_S = 2,        /* between two checks for the node's end, on the first of them */
    TRIES = 10,        /* queries of the controller, and the time between two */
    TRY_S = 3,
    REST_S = 2,     /* between two queries of a watcher that are answered */
    QUERY_MS = 200, /* for an answer to one of them */
    /* slurmstepd tells the srun that is gone of each end: six times within TCPTimeout each, and
     * between them 2.3 s.  It tries once more for each 1024 nodes. */
    TELLS = 6,
    TELLS_NODES = 1024,
    /* Until Slurm has released the other nodes, besides: those pauses, and slurmd's next check,
     * once a second at first, and every 10 s from the tenth on. */
    FREED_S = 13,
    TCP_TIMEOUT_S = 2, /* Slurm's default */
    BEGIN_LOOKS = 10,  /* a tenth of a second apart */
};

struct orphan {
    struct tern_task_beacon_client beacon;
    struct tern_slurm_node_address slurmd; /* of the supervisor's node */
    uint32_t job, restarts;
    int turn;           /* of this node among those that query the beacon */
    int64_t released_s; /* from the requeue until Slurm has released the nodes */
};

static int64_t number(const char *name, int64_t otherwise)
{
    const char *s = getenv(name);
    int64_t v;

    return s && tern_str_int(s, 0, INT32_MAX, &v) == 0 ? v : otherwise;
}

/* No process of the job can wait for that and let it begin then: Slurm waits for their ends. */
static int64_t released_s(void)
{
    const int64_t tells = TELLS + number("SLURM_NNODES", 1) / TELLS_NODES;
    int timeout_s = TCP_TIMEOUT_S;

    tern_slurm_tcp_timeout_load(&timeout_s, NULL);
    return tells * timeout_s + FREED_S;
}

enum life { SILENT, REFUSES, ANSWERS };

/* A node's kernel accepts connections for a stopped slurmd, too, and refuses them without one. */
static enum life look_at_address(const struct addrinfo *a)
{
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), e = 0;
    socklen_t n = sizeof e;

    if (fd < 0)
        return ANSWERS; /* not the fault of the node */
    if (connect(fd, a->ai_addr, a->ai_addrlen) < 0)
        e = errno;
    if (e == EINPROGRESS) {
        struct pollfd p = {.fd = fd, .events = POLLOUT};
        e = ETIMEDOUT;
        if (TERN_AGAIN(poll(&p, 1, CONNECT_MS)) > 0)
            getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &n);
    }
    close(fd);
    return e == 0 ? ANSWERS : e == ECONNREFUSED || e == ECONNRESET ? REFUSES : SILENT;
}

static enum life look_at_node(const struct orphan *o)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    struct tern_slurm_node_state state;
    enum life found = SILENT;
    char port[8];

    if (tern_slurm_node_load_state(o->beacon.node, &state, NULL) == 0 && state.down)
        return SILENT; /* Slurm cannot reach it, either */
    snprintf(port, sizeof port, "%u", o->slurmd.port);
    if (getaddrinfo(o->slurmd.address, port, &hints, &list) != 0)
        return ANSWERS; /* without an address nothing is known */
    for (struct addrinfo *a = list; a && found != ANSWERS; a = a->ai_next) {
        enum life l = look_at_address(a);
        found = l > found ? l : found;
    }
    freeaddrinfo(list);
    return found;
}

/* Is the node gone, or at least its slurmd and the supervisor? */
static bool dead(struct orphan *o)
{
    for (int silent = 0, refused = 0; silent < LOOKS && refused < REFUSALS;) {
        if (tern_task_beacon_await(&o->beacon, LOOK_MS))
            return false;
        switch (look_at_node(o)) {
        case ANSWERS:
            return false;
        case SILENT:
            silent++;
            break;
        case REFUSES: /* a slurmd that restarts is back by the next look */
            refused++;
            tern_clock_sleep_ns(second);
            break;
        }
    }
    return true;
}

enum found { OURS, QUEUED, OVER, UNKNOWN };

/* Is it still the job of this rank, or is it queued again already? */
static enum found look_at_job(const struct orphan *o, bool *requeue)
{
    struct tern_slurm_job *j = NULL;
    struct tern_err err;

    if (tern_slurm_job_load(o->job, &j, &err) < 0)
        return UNKNOWN;
    const bool runs = j->state == TERN_SLURM_JOB_RUNNING, ended = j->state == TERN_SLURM_JOB_ENDED;
    enum found f = runs && j->restarts == o->restarts                  ? OURS
                   : !runs && !ended && j->restarts == o->restarts + 1 ? QUEUED
                                                                       : OVER;
    *requeue = j->requeue;
    tern_slurm_job_free(j);
    return f;
}

/* The controller may take seconds to answer (without slurmdbd, when the job has lost the node
 * already).  It completes the request without this process, too. */
static void begin(const struct orphan *o)
{
    const time_t now = time(NULL);
    struct tern_err err = {0};
    pid_t pid = fork();

    if (pid == 0) {
        if (tern_slurm_job_set_begin(o->job, now + o->released_s, &err) < 0)
            tern_warn("%s", err.text);
        _exit(0);
    }
    for (int i = 0; pid > 0 && i < BEGIN_LOOKS; i++) {
        if (waitpid(pid, NULL, WNOHANG) != 0)
            return;
        tern_clock_sleep_ns(second / 10);
    }
    if (pid > 0)
        kill(pid, SIGKILL);
}

static bool may_set_down(void)
{
    return geteuid() == 0 || tern_slurm_is_slurm_user(geteuid());
}

/* In this order: after the requeue Slurm ends the job's processes here within KillWait, and at once
 * when the node is down.  A job that may begin before its nodes are free begins only when its
 * credentials have expired (cred_expire: 2 minutes). */
static void queue_again(const struct orphan *o)
{
    struct tern_err err = {0};
    char reason[128];

    if (tern_slurm_job_requeue(o->job, false, &err) < 0) {
        tern_error("%s", err.text);
        return;
    }
    tern_warn("node %s does not answer; job %" PRIu32 " is queued again", o->beacon.node, o->job);
    begin(o);
    snprintf(reason, sizeof reason, "tern: does not answer the nodes of job %" PRIu32, o->job);
    if (may_set_down() &&
        tern_slurm_node_update(o->beacon.node, TERN_SLURM_NODE_DOWN, reason, &err) < 0)
        tern_warn("%s", err.text);
}

/* A job of spares that cannot be queued again would stay, empty. */
static void give_up(const struct orphan *o)
{
    struct tern_err err = {0};

    if (o->beacon.spares == 0)
        return; /* Slurm ends it when it declares the node down */
    tern_error("node %s does not answer, and job %" PRIu32
               " cannot be queued again: submit with --requeue. It is ended.",
               o->beacon.node, o->job);
    if (tern_slurm_job_cancel(o->job, &err) < 0)
        tern_error("%s", err.text);
}

/* This node itself may be cut off. */
static enum found look_at_job_long(const struct orphan *o, bool *requeue)
{
    enum found found = look_at_job(o, requeue);

    for (int i = 1; i < TRIES && found == UNKNOWN; i++) {
        tern_clock_sleep_ns(TRY_S * second);
        found = look_at_job(o, requeue);
    }
    return found;
}

/* SIGTERM comes when the job is queued again, and Slurm waits for this process, too. */
static void sleep_or_term(int64_t ns)
{
    const struct timespec wait = {.tv_sec = ns / second, .tv_nsec = ns % second};
    sigset_t term;

    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    sigtimedwait(&term, NULL, &wait);
}

static bool node_down(const struct orphan *o)
{
    struct tern_slurm_node_state state;

    return tern_slurm_node_load_state(o->beacon.node, &state, NULL) == 0 && state.given_up;
}

/* Slurm declares the node down in its own time.  A job queued again before that is released only by
 * the node's end.  Slurm 22.05 then begins it without returning its devices, which stay in use
 * until slurmctld restarts.  A job that Slurm itself ends with the node is released correctly; a
 * job of spares is not ended. */
static enum found wait_for_slurm(struct orphan *o, bool *requeue)
{
    enum found found = OURS;

    if (o->beacon.spares == 0)
        return OVER;
    while (found == OURS && !node_down(o)) {
        if (tern_task_beacon_await(&o->beacon, LOOK_MS))
            return OVER;
        sleep_or_term((o->turn + 1) * WAIT_S * second);
        found = look_at_job_long(o, requeue);
    }
    return found;
}

static void act(struct orphan *o)
{
    bool requeue = false;
    enum found found = look_at_job_long(o, &requeue);

    if (found == OURS && !may_set_down())
        found = wait_for_slurm(o, &requeue);
    if (found == OURS && o->turn > 0) { /* nodes with an earlier turn, if they run, do it */
        tern_clock_sleep_ns(o->turn * TURN_S * second);
        found = look_at_job_long(o, &requeue);
    }
    if (found == OURS)
        requeue ? queue_again(o) : give_up(o);
    else if (found == QUEUED) /* processes on this node have delayed it */
        begin(o);
}

static void ignore_signals(void) /* this process outlives the step for a while */
{
    static const int signals[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE, SIGUSR1, SIGUSR2};

    sigset_t term;

    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        signal(signals[i], SIG_IGN);
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    sigprocmask(SIG_BLOCK, &term, NULL); /* sleep_or_term waits for it */
}

int tern_run_orphan(struct tern_err *err)
{
    struct orphan o = {.job = (uint32_t)number("SLURM_JOB_ID", 0),
                       .restarts = (uint32_t)number("SLURM_RESTART_COUNT", 0),
                       .turn = tern_task_beacon_turn(number("SLURM_NODEID", 0))};

    if (!o.job || o.turn < 0 || !tern_task_beacon_find(&o.beacon))
        return tern_err_set(err, TERN_USAGE,
                            "only for a rank that `tern run` has started in a job");
    ignore_signals();
    int rc = tern_slurm_node_load_address(o.beacon.node, &o.slurmd, err);
    o.released_s = released_s();
    if (rc == 0 && dead(&o))
        act(&o);
    tern_task_beacon_drop(&o.beacon);
    return rc;
}

/* ------------------------------------------------------------------ a watcher */

/* The program's signals: SIGTERM ends it, those that mean something to ranks do not. */
static void watch_signals(sigset_t *ret_ends)
{
    static const int ignored[] = {SIGHUP, SIGINT, SIGQUIT, SIGPIPE, SIGUSR1, SIGUSR2};

    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        signal(ignored[i], SIG_IGN);
    sigemptyset(ret_ends);
    sigaddset(ret_ends, SIGTERM);
    sigprocmask(SIG_BLOCK, ret_ends, NULL);
}

static bool told_to_end(const sigset_t *ends, int64_t ns)
{
    const struct timespec wait = {.tv_sec = ns / second, .tv_nsec = ns % second};

    return sigtimedwait(ends, NULL, &wait) > 0;
}

/* In a child, which ignores SIGTERM from then on. */
static void look_after(void)
{
    struct tern_err err = {0};
    pid_t pid = fork();

    if (pid == 0) {
        if (tern_run_orphan(&err) < 0)
            tern_warn("%s", err.text);
        _exit(0);
    }
    if (pid > 0)
        TERN_AGAIN(waitpid(pid, NULL, 0));
}

int tern_run_orphan_watch(struct tern_err *err)
{
    struct tern_task_beacon_client beacon;
    sigset_t ends;
    int silent = 0; /* ms, counted by queries: a stop of this process is no silence */

    watch_signals(&ends);
    if (!tern_task_beacon_find(&beacon))
        return tern_err_set(err, TERN_USAGE, "only for a step that `tern run` has started");
    for (int64_t rest = 0; !told_to_end(&ends, rest);) {
        const bool heard = tern_task_beacon_await(&beacon, QUERY_MS);
        silent = heard ? 0 : silent + QUERY_MS;
        rest = heard ? REST_S * second : 0;
        if (silent < 1000 * TERN_TASK_BEACON_SILENT_S)
            continue;
        look_after();
        silent = 0;
    }
    tern_task_beacon_drop(&beacon);
    return 0;
}
