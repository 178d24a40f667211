#include "core/run/identity.h"

#include "core/base/log.h"
#include "core/base/lustre.h"
#include "core/base/str.h"
#include "core/inputs/inputs.h"
#include "core/run/command.h"
#include "core/run/heartbeat.h"
#include "core/run/pace.h"
#include "core/run/restore.h"
#include "core/slurm/slurm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* "01J... text of the user": the run of the job before it was queued again. */
static bool id_in_comment(const char *comment, char id[TERN_ULID_SIZE])
{
    char word[TERN_ULID_SIZE];

    snprintf(word, sizeof word, "%s", comment);
    if (strlen(word) != TERN_ULID_SIZE - 1 || !tern_ledger_ulid_valid(word) ||
        (comment[TERN_ULID_SIZE - 1] && comment[TERN_ULID_SIZE - 1] != ' '))
        return false;
    memcpy(id, word, TERN_ULID_SIZE);
    return true;
}

void tern_run_identify_job(const struct tern_run_attempt *a)
{
    struct tern_slurm_job *job = NULL;
    struct tern_err err = {0};
    char id[TERN_ULID_SIZE];

    if (!a->place.slurm)
        return;
    if (tern_slurm_job_load(a->place.job, &job, &err) < 0) {
        tern_warn("%s", err.text);
        return;
    }
    bool has = id_in_comment(job->comment, id);
    if (!has || strcmp(id, a->id) != 0) {
        const char *rest = has ? job->comment + TERN_ULID_SIZE - 1 : job->comment;
        char *text = tern_strf("%s%s%s", a->id, *rest && *rest != ' ' ? " " : "", rest);
        if (tern_slurm_job_set_comment(a->place.job, text, &err) < 0)
            tern_warn("%s", err.text);
        free(text);
    }
    if (job->end > 0)
        tern_run_pace_tell(a->o->recipe, a->id,
                           a->place.nodes * tern_run_workers(a->o->recipe, &a->place),
                           (int64_t)(job->end - time(NULL)));
    tern_slurm_job_free(job);
}

/* A workload without checkpoint.dir is identified by the job. */
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
        id_in_comment(job->comment, a->id);
        tern_slurm_job_free(job);
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
    if (!a->resumed && tern_ckpt_may_begin(a->o->recipe->checkpoint.dir, err) < 0)
        return -1;
    a->resumed_step = (int64_t)step;
    return check_same_run(a, err);
}
