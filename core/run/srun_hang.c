#include "core/run/srun_hang.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/env/env.h"
#include "core/logs/logs.h"
#include "core/run/frozen.h"
#include "core/run/watchers.h"
#include "core/slurm/slurm.h"

#include <dirent.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static const int64_t second = 1000000000;

enum { LEFT_LOOKS = TERN_RUN_FROZEN_LEFT_S / TERN_RUN_SRUN_HANG_LOOK_S };
enum { OVER_S = TERN_TASK_BEACON_OVER_S };
enum { GAP_S = 3 }; /* between two ticks: this process was stopped, and srun perhaps, too */

/* The exit status of the child that queries. */
enum { THERE, GONE, NOT_BEGUN, NOT_KNOWN, OVER, LOST, WAITS, STAYS };

/* A rank's log is named by its number; the supervisor's log is there, too. */
static bool has_rank_log(const char *logs)
{
    DIR *d = logs ? opendir(logs) : NULL;
    const struct dirent *e;
    char name[32];
    unsigned part;
    bool has = false;

    while (d && !has && (e = readdir(d)))
        has = tern_logs_parse_name(e->d_name, name, &part) == 0 && name[0] >= '0' && name[0] <= '9';
    if (d)
        closedir(d);
    return has;
}

static bool has(char *const *hosts, size_t n, const char *host)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(hosts[i], host) == 0)
            return true;
    return false;
}

/* Has the job lost a node of the attempt? */
static bool lost(const struct tern_run_srun_hang *s, uint32_t job)
{
    struct tern_slurm_job *j = NULL;
    char **had = NULL, **has_now = NULL;
    size_t n = 0, n_now = 0;
    struct tern_err err;
    bool any = false;

    if (!s->nodes || tern_slurm_job_load(job, &j, &err) < 0)
        return false;
    if (j->state == TERN_SLURM_JOB_RUNNING &&
        tern_slurm_hosts_expand(s->nodes, &had, &n, &err) == 0 &&
        tern_slurm_hosts_expand(j->nodes, &has_now, &n_now, &err) == 0)
        for (size_t i = 0; i < n && !any; i++)
            any = !has(has_now, n_now, had[i]);
    tern_slurm_hosts_free(had);
    tern_slurm_hosts_free(has_now);
    tern_slurm_job_free(j);
    return any;
}

/* srun logs it, too, but not with --quiet, and never what it waits for.  False when nothing was
 * logged: mpirun may just be slow, so only other steps count. */
static bool report_waiting(const struct tern_run_ranks *r)
{
    struct tern_buf steps = {0};
    bool known = true;

    for (size_t g = 0; g < r->n_groups; g++)
        known = known &&
                tern_slurm_steps_describe(r->groups[g], TERN_RUN_WATCHERS_STEP, &steps, NULL) == 0;
    if (steps.len)
        tern_warn(
            "the ranks wait: other steps of the job have its nodes: %s. They begin when those "
            "have ended (scancel ends one); with SLURM_OVERLAP=1 in the environment of `tern "
            "run` they do not wait for them.",
            steps.data);
    else if (known && !r->mpirun)
        tern_warn("the ranks wait: no other step of the job has its nodes, but Slurm has not begun "
                  "theirs yet. Are its nodes still booting, or in a prolog?");
    const bool said = steps.len || (known && !r->mpirun);
    tern_buf_free(&steps);
    return said;
}

/* mpirun starts a daemon on each other node by a step of its own, of Open MPI 4 or 5. */
static bool has_daemons(const struct tern_run_ranks *r)
{
    bool orted = false, prted = false;

    return tern_slurm_step_exists(r->job, "orted", &orted, NULL) < 0 || orted ||
           tern_slurm_step_exists(r->job, "prted", &prted, NULL) < 0 || prted;
}

/* `rank` stays, and a signal may have stopped its tern-task.  The first look may have come just
 * before its end.  The warning comes first: a step that is continued may end at once. */
static int continue_step(const struct tern_run_srun_hang *s, uint32_t job, const char *step,
                         int64_t rank)
{
    if (s->stay == 1)
        tern_warn("rank %" PRId64 " has not ended, though others have for %d s: its step is "
                  "continued, in case a signal stopped it",
                  rank, (int)TERN_RUN_SRUN_HANG_LOOK_S);
    if (s->stay)
        tern_slurm_step_signal(job, step, SIGCONT, NULL);
    return STAYS;
}

static int look(const struct tern_run_srun_hang *s, const struct tern_run_ranks *r)
{
    struct tern_err err = {0};
    bool there;

    for (size_t g = 0; g < r->n_groups && !r->mpirun; g++) {
        if (tern_slurm_step_exists(r->groups[g], r->step, &there, &err) < 0)
            return NOT_KNOWN;
        int status;
        if (!there)
            continue;
        if (lost(s, r->groups[g]))
            return LOST;
        if (s->logs && tern_logs_ended(s->logs, s->ranks, &status, NULL))
            return OVER;
        const int64_t rank = s->logs && r->trainer ? tern_logs_left(s->logs, s->ranks) : -1;
        return rank >= 0 ? continue_step(s, r->groups[g], r->step, rank) : THERE;
    }
    if (r->mpirun && (has_rank_log(s->logs) || has_daemons(r)))
        return THERE;
    if (s->began || has_rank_log(s->logs))
        return GONE;
    if (tern_clock_boot_ns() < s->report_at || !report_waiting(r))
        return NOT_BEGUN;
    return WAITS;
}

static void query(struct tern_run_srun_hang *s, const struct tern_run_ranks *r)
{
    pid_t parent = getpid(), pid = fork();

    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(getppid() == parent ? look(s, r) : NOT_KNOWN);
    }
    s->pid = pid > 0 ? pid : 0;
}

/* Queries are made only while this process runs: a suspended job's time does not count. */
static void end_left(struct tern_run_srun_hang *s, struct tern_run_ranks *r)
{
    const int64_t rank = tern_logs_left(s->logs, s->ranks);

    if (rank >= 0 && s->stay >= LEFT_LOOKS && !s->left[0]) {
        tern_run_frozen_tell(s->left, sizeof s->left, rank);
        tern_run_ranks_signal(r, SIGKILL); /* srun ends with them */
    }
}

static void end_srun(struct tern_run_srun_hang *s, const struct tern_run_ranks *r)
{
    s->ended = true;
    kill(-r->pid[0], SIGKILL); /* SIGTERM would be handled by the thread that waits */
}

/* A signal may have stopped ranks that are silent: continue the step, which does nothing to
 * processes that run.  Returns until when such a rank would send a sign. */
static int64_t wake(struct tern_run_srun_hang *s, const struct tern_run_ranks *r, int64_t now)
{
    if (s->again_at)
        return s->again_at;
    for (size_t g = 0; g < r->n_groups; g++)
        tern_slurm_step_signal(r->groups[g], r->step, SIGCONT, NULL);
    s->again_at = now + 3 * tern_task_beacon_every_ns((int64_t)s->ranks);
    return s->again_at;
}

/* Is no rank left, as their signs say?  Ranks that are all silent may have been stopped: then their
 * slurmstepd is there, which shows on this node alone. */
static bool end_silent(struct tern_run_srun_hang *s, const struct tern_run_ranks *r, int64_t now)
{
    const enum tern_task_beacon_life life =
        s->beacon ? tern_task_beacon_judge(s->beacon, now) : TERN_TASK_BEACON_LIVES;

    if (life == TERN_TASK_BEACON_LIVES ||
        (life == TERN_TASK_BEACON_SILENT && (r->nodes > 1 || tern_env_step_is_local(r->job))))
        return s->again_at = 0, false;
    if (life != TERN_TASK_BEACON_ENDED && now < wake(s, r, now))
        return false;
    if (life == TERN_TASK_BEACON_ENDED)
        tern_warn("srun has not ended, though every rank has for %d s: ending it", (int)OVER_S);
    else
        tern_warn("srun has not ended, though no rank has been heard of for a while: ending it. "
                  "Was a slurmstepd killed?");
    s->known = life == TERN_TASK_BEACON_ENDED || s->beacon->failed;
    s->status = s->beacon->failed;
    end_srun(s, r);
    return true;
}

/* A query found that every rank has ended: when srun has had its seconds since the last of them.  A
 * pause of this process does not count. */
static int64_t get_over_at(const struct tern_run_srun_hang *s)
{
    const int64_t now = tern_clock_boot_ns();
    int64_t last, age;
    int status;

    if (!s->logs || !tern_logs_ended(s->logs, s->ranks, &status, &last))
        return now + OVER_S * second;
    age = tern_clock_wall_ns() - last;
    if (age > now - s->awake)
        age = now - s->awake;
    if (age > OVER_S * second)
        age = OVER_S * second;
    return now + OVER_S * second - (age > 0 ? age : 0);
}

static void note_gap(struct tern_run_srun_hang *s, int64_t now)
{
    if (now - s->ticked > GAP_S * second) {
        s->awake = now;
        s->over_at = s->over_at ? now + OVER_S * second : 0;
    }
    s->ticked = now;
}

void tern_run_srun_hang_tick(struct tern_run_srun_hang *s, const struct tern_run_ranks *r)
{
    int64_t now = tern_clock_boot_ns();

    note_gap(s, now);
    if (r->mpirun && (s->began || r->nodes == 1))
        return; /* the end of its steps is mpirun's affair; on one node it needs none */
    if (!r->job || !r->n || !r->pid[0] || s->ended)
        return;
    if (!r->mpirun && end_silent(s, r, now))
        return;
    if (s->over_at && now >= s->over_at &&
        tern_logs_ended(s->logs, s->ranks, &s->status, /* ret_last_ns= */ NULL)) {
        tern_warn("srun has not ended, though every rank has for %d s: ending it", (int)OVER_S);
        s->known = true;
        end_srun(s, r);
        return;
    }
    if (s->pid || now < s->next)
        return;
    if (!s->report_at)
        s->report_at = now + TERN_RUN_SRUN_HANG_WAITS_S * second;
    if (s->gone < TERN_RUN_SRUN_HANG_LOOKS) {
        s->next = now + TERN_RUN_SRUN_HANG_LOOK_S * second;
        if (!s->began && s->report_at > now && s->report_at < s->next)
            s->next = s->report_at;
        query(s, r);
        return;
    }
    tern_warn("srun has not ended, though its step has been gone for %d s: ending it",
              (int)(TERN_RUN_SRUN_HANG_LOOKS * TERN_RUN_SRUN_HANG_LOOK_S));
    end_srun(s, r);
}

bool tern_run_srun_hang_reaped(struct tern_run_srun_hang *s, struct tern_run_ranks *r, pid_t pid,
                               int status)
{
    if (!s->pid || pid != s->pid)
        return false;
    s->pid = 0;
    int found = WIFEXITED(status) ? WEXITSTATUS(status) : NOT_KNOWN;
    s->began = s->began || found == THERE || found == GONE || found == OVER || found == LOST ||
               found == STAYS;
    if (found == LOST && !s->lost) {
        s->lost = true;
        tern_run_ranks_signal(r, SIGKILL); /* srun ends with them */
    }
    if (found == WAITS)
        s->report_at = tern_clock_boot_ns() + TERN_RUN_SRUN_HANG_WAITS_AGAIN_S * second;
    s->stay = found == STAYS ? s->stay + 1 : 0;
    if (s->stay)
        end_left(s, r);
    s->over_at = found != OVER ? 0 : s->over_at ? s->over_at : get_over_at(s);
    s->gone = found == GONE ? s->gone + 1 : 0;
    return true;
}

void tern_run_srun_hang_free(struct tern_run_srun_hang *s)
{
    if (s->pid) {
        kill(s->pid, SIGKILL);
        waitpid(s->pid, NULL, 0);
    }
    free(s->logs);
    s->logs = NULL;
    s->pid = 0;
}
