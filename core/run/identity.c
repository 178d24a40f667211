#include "core/run/identity.h"

#include "core/base/log.h"
#include "core/base/lustre.h"
#include "core/base/str.h"
#include "core/inputs/inputs.h"
#include "core/run/command.h"
#include "core/run/heartbeat.h"
#include "core/run/pace.h"
#include "core/run/requeue.h"
#include "core/run/restore.h"
#include "core/slurm/slurm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* "01J... 01K... text of the user": the runs of the job, the newest first. */
struct comment {
    char id[TERN_RUN_IDS][TERN_ULID_SIZE];
    size_t n;
    const char *rest; /* the user's */
};

static struct comment read_comment(const char *text)
{
    struct comment c = {.rest = text};

    while (c.n < TERN_RUN_IDS) {
        char *id = c.id[c.n];
        const size_t len = TERN_ULID_SIZE - 1;
        snprintf(id, TERN_ULID_SIZE, "%s", c.rest);
        if (strlen(id) != len || !tern_ledger_ulid_valid(id) || (c.rest[len] && c.rest[len] != ' '))
            break;
        c.rest += len + (c.rest[len] == ' ');
        c.n++;
    }
    return c;
}

char *tern_run_comment_with(const char *text, const char *id)
{
    const struct comment c = read_comment(text);
    struct tern_buf b = {0};

    tern_buf_puts(&b, id);
    for (size_t i = 0, left = TERN_RUN_IDS - 1; i < c.n && left > 0; i++) {
        if (strcmp(c.id[i], id) == 0)
            continue;
        tern_buf_printf(&b, " %s", c.id[i]);
        left--;
    }
    if (*c.rest)
        tern_buf_printf(&b, " %s", c.rest);
    return b.data;
}

/* Is the run this recipe's, and no attempt of it at work in this job? */
static bool is_ours(const struct tern_run_attempt *a, const char *id)
{
    struct tern_ledger_rows runs = {0}, attempts = {0};
    struct tern_err err = {0};
    struct tern_ledger *l = tern_ledger_open_run(a->o->recipe->ledger.dir, id, &err);
    bool ours = false;

    if (!l || tern_ledger_runs(l, &runs, &err) < 0 || tern_ledger_attempts(l, &attempts, &err) < 0)
        tern_warn("%s", err.text);
    else if (runs.n == 0)
        ours = true; /* its attempts left no record of it */
    else
        ours = runs.runs[0].name && strcmp(runs.runs[0].name, a->o->recipe->name) == 0 &&
               runs.runs[0].recipe_path && strcmp(runs.runs[0].recipe_path, a->o->recipe_path) == 0;
    for (size_t i = 0; i < attempts.n && ours; i++)
        ours = !tern_run_lives(a, &attempts.attempts[i]);
    tern_ledger_rows_free(&runs);
    tern_ledger_rows_free(&attempts);
    tern_ledger_close(l);
    return ours;
}

int tern_run_comment_choose(struct tern_run_attempt *a, const char *text, struct tern_err *err)
{
    const struct comment c = read_comment(text);
    const char *fresh = NULL; /* `tern submit` made it: no attempt has it yet */
    unsigned last;

    for (size_t i = 0; i < c.n; i++) {
        if (tern_ledger_last_attempt(a->o->recipe->ledger.dir, c.id[i], &last, err) < 0)
            return -1;
        if (last == 0) {
            fresh = fresh ? fresh : c.id[i];
        } else if (is_ours(a, c.id[i])) {
            memcpy(a->id, c.id[i], sizeof a->id);
            return 0;
        }
    }
    if (fresh)
        memcpy(a->id, fresh, sizeof a->id);
    return 0;
}

void tern_run_identify_job(const struct tern_run_attempt *a)
{
    struct tern_slurm_job *job = NULL;
    struct tern_err err = {0};

    if (!a->place.slurm)
        return;
    if (tern_slurm_job_load(a->place.job, &job, &err) < 0) {
        tern_warn("%s", err.text);
        return;
    }
    char *text = tern_run_comment_with(job->comment, a->id);
    if (strcmp(text, job->comment) != 0 && tern_slurm_job_set_comment(a->place.job, text, &err) < 0)
        tern_warn("%s", err.text);
    free(text);
    if (job->end > 0)
        tern_run_pace_tell(a->o->recipe, a->id,
                           a->place.nodes * tern_run_workers(a->o->recipe, &a->place),
                           (int64_t)(job->end - time(NULL)));
    tern_slurm_job_free(job);
}

/* A workload without checkpoint.dir is identified by the job, of which several recipes may run. */
static int identify_by_job(struct tern_run_attempt *a, struct tern_err *err)
{
    struct tern_slurm_job *job = NULL;
    unsigned last = 0;

    a->resumed_step = -1;
    bool known = a->id[0];
    if (!known)
        tern_ledger_ulid_new(a->id);
    if (!known && a->place.slurm) {
        if (tern_slurm_job_load(a->place.job, &job, err) < 0)
            return -1;
        const int rc = tern_run_comment_choose(a, job->comment, err);
        tern_slurm_job_free(job);
        if (rc < 0)
            return -1;
    }
    if (tern_ledger_last_attempt(a->o->recipe->ledger.dir, a->id, &last, err) < 0)
        return -1;
    a->number = last + 1;
    return 0;
}

static int take_lease(struct tern_run_attempt *a, struct tern_err *err)
{
    const struct tern_recipe *r = a->o->recipe;
    char owner[400];
    unsigned last = 0;

    if (a->copy)
        memcpy(a->id, a->copy_of, sizeof a->id);
    else
        tern_ledger_ulid_new(a->id);
    if (tern_ckpt_run_identity(r->checkpoint.dir, a->id, err) < 0 ||
        tern_ledger_last_attempt(r->ledger.dir, a->id, &last, err) < 0)
        return -1;
    if (a->place.slurm)
        snprintf(owner, sizeof owner, "%s job %u", a->place.host, a->place.job);
    else
        snprintf(owner, sizeof owner, "%s pid %d", a->place.host, (int)getpid());
    if (tern_ckpt_lease_acquire(r->checkpoint.dir, 0, owner, &a->lease, err) < 0)
        return -1;
    /* A checkpoint folder that was moved may have more or fewer attempts than the ledger. */
    if (last == 0 && tern_ckpt_lease_attempt(a->lease) > 1)
        tern_warn("%s: has no attempts of run %s, which had some before: has ledger.dir changed? "
                  "The history of the run starts over here.",
                  r->ledger.dir, a->id);
    if (tern_ckpt_lease_attempt(a->lease) <= last) {
        tern_ckpt_lease_free(a->lease, true);
        a->lease = NULL;
        if (tern_ckpt_lease_acquire(r->checkpoint.dir, last + 1, owner, &a->lease, err) < 0)
            return -1;
    }
    a->number = tern_ckpt_lease_attempt(a->lease);
    return 0;
}

/* A recipe of another run fails before anything is recorded. */
static int check_same_run(const struct tern_run_attempt *a, struct tern_err *err)
{
    if (!a->resumed)
        return 0;
    struct tern_ckpt *c = tern_ckpt_open(a->resumed, err);
    if (!c)
        return -1;
    int rc = tern_inputs_same_run(a->o->recipe, a->resumed, tern_ckpt_meta(c), a->o->accept, err);
    tern_ckpt_close(c);
    return rc;
}

int tern_run_identify(struct tern_run_attempt *a, struct tern_err *err)
{
    uint64_t step = 0;

    if (!a->o->recipe->checkpoint.dir)
        return identify_by_job(a, err);
    if (tern_run_restore_find(a, err) < 0 || take_lease(a, err) < 0)
        return -1;
    a->heartbeat = tern_run_heartbeat_start(a->lease);
    if (tern_run_attempt_is_trainer(a))
        tern_lustre_spread(a->o->recipe->checkpoint.dir);
    if (tern_run_restore_bring(a, err) < 0)
        return -1;
    a->resumed_step = -1; /* a workload's trainer finds its own checkpoint */
    if (!tern_run_attempt_is_trainer(a) || a->stopped)
        return 0;
    if (tern_ckpt_latest(a->o->recipe->checkpoint.dir, &a->resumed, &step, err) < 0)
        return -1;
    /* With checkpoint.local the nodes may have one: their ranks look first. */
    if (!a->resumed && !a->o->recipe->checkpoint.local &&
        tern_ckpt_may_begin(a->o->recipe->checkpoint.dir, err) < 0)
        return -1;
    a->resumed_step = (int64_t)step;
    return check_same_run(a, err);
}
