/* When checkpoints are saved: one at a time, in the background where there is a staging.
 *
 * A save that is begun at a step's end goes on beside the next steps.  Each step's agreement
 * (tern_train_agree_step) says whether all ranks have done their part of the save's stage.  If so,
 * all go on to the next stage at the end of that step.  The last save of a run or an attempt is
 * waited for. */
#include "core/train/state.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/plan/plan.h"

#include <inttypes.h>
#include <stdlib.h>

enum { FAILURES_MAX = 3 }; /* in a row: storage that takes no checkpoint makes training worthless */

int tern_train_staging_open(struct train *t)
{
    struct tern_err err;
    size_t n = tern_train_most_arrays(t);

    if (!tern_plan_async(t->recipe))
        return 0;
    struct tern_ckpt_array *arrays = tern_alloc(n, sizeof *arrays, "a checkpoint", &err);
    if (!arrays)
        return 1;
    n = tern_train_arrays(t, arrays);
    t->checkpoint.staging = tern_ckpt_staging_new(tern_ckpt_staging_bytes(arrays, n), &err);
    for (size_t i = 0; i < n; i++)
        free((char *)arrays[i].name);
    free(arrays);
    if (!t->checkpoint.staging)
        tern_warn("%s", err.text);
    return t->checkpoint.staging ? 0 : 1;
}

void tern_train_staging_drop(struct train *t)
{
    tern_ckpt_staging_free(t->checkpoint.staging);
    t->checkpoint.staging = NULL;
    if (t->rank == 0)
        tern_warn("training waits for each checkpoint, as if checkpoint.async were false");
}

static void tell(struct train *t, const char *what, const char *then, const struct tern_err *why)
{
    char text[1200]; /* an error's text, and what is around it */

    if (t->rank != 0)
        return;
    snprintf(text, sizeof text, "%s%s: %s", what, then, why->text);
    tern_warn("%s", text);
    tern_train_record_event(t, "save_failed", "warn", text);
}

enum { WHAT = 64 };

static const char *not_saved(const struct train *t, char text[WHAT])
{
    snprintf(text, WHAT, "step %" PRIu64 " was not saved", t->checkpoint.saving_step);
    return text;
}

/* Fail where another save would fail, too, where several have, or where ranks have lost each other.
 * All ranks count alike. */
int tern_train_save_failed(struct train *t, const char *what, const struct tern_err *why,
                           struct tern_err *err)
{
    t->checkpoint.failed++;
    if (t->checkpoint.met && why->code == TERN_TEMPFAIL && t->checkpoint.failed < FAILURES_MAX) {
        tell(t, what, ", and training goes on", why);
        return 0;
    }
    *err = *why;
    if (t->checkpoint.failed >= FAILURES_MAX)
        tern_err_prefix(err, "%u checkpoints in a row were not saved", t->checkpoint.failed);
    return -1;
}

static int go_on_without(struct train *t, const struct tern_err *why, struct tern_err *err)
{
    char what[WHAT];

    tern_train_local_take_back(t);
    return tern_train_save_failed(t, not_saved(t, what), why, err);
}

/* -1: the save has failed, with no more of it. */
static int advance(struct train *t, struct tern_err *err)
{
    struct train_checkpoint *c = &t->checkpoint;
    const int64_t from = tern_clock_boot_ns();
    struct tern_ckpt_saved saved;

    tern_train_set_doing(t, TERN_FABRIC_SAVES);
    c->met = t->size == 1;
    c->all_ready = false;
    int rc = tern_ckpt_save_advance(c->saving, &saved, err);
    if (rc < 0 && c->saving_local && c->met) {
        const struct tern_err why = *err;
        rc = tern_train_local_redirect(t, &why, err);
    }
    if (rc != 0) {
        tern_ckpt_save_free(c->saving);
        c->saving = NULL;
    }
    c->stall_ns += tern_clock_boot_ns() - from;
    if (rc > 0) {
        if (c->saving_local)
            tern_train_local_saved(t, &saved);
        else
            tern_train_record_save(t, &saved, TRAIN_DIRECT);
        rc = tern_train_interval_update(t, &saved, err);
    }
    return rc < 0 ? -1 : 0;
}

static int start(struct train *t, struct tern_ckpt_staging *staging, struct tern_err *err)
{
    const int64_t from = tern_clock_boot_ns();

    tern_train_set_doing(t, TERN_FABRIC_SAVES);
    t->checkpoint.met = t->size == 1;
    int rc = tern_train_begin_save(t, staging, err);
    t->checkpoint.stall_ns = tern_clock_boot_ns() - from;
    return rc;
}

static int finish(struct train *t, struct tern_err *err)
{
    while (t->checkpoint.saving)
        if (advance(t, err) < 0)
            return -1;
    return 0;
}

int tern_train_save_go_on(struct train *t, struct tern_err *err)
{
    struct tern_err why = {0};

    if (t->checkpoint.saving && t->checkpoint.all_ready && advance(t, &why) < 0 &&
        go_on_without(t, &why, err) < 0)
        return -1;
    return tern_train_local_go_on(t, err);
}

int tern_train_save_settle(struct train *t, struct tern_err *err)
{
    struct tern_err why = {0};

    return finish(t, &why) == 0 ? 0 : go_on_without(t, &why, err);
}

void tern_train_save_last(struct train *t)
{
    const bool pending = t->checkpoint.saving || tern_train_local_is_pending(t);
    struct tern_err why = {0};
    char what[WHAT];

    if (finish(t, &why) < 0) {
        tell(t, not_saved(t, what), "", &why);
        tern_train_local_take_back(t);
    }
    if ((!pending || t->checkpoint.met) && tern_train_local_finish(t, &why) < 0) {
        snprintf(what, sizeof what, "step %" PRId64 " was not copied", t->checkpoint.local.done);
        tell(t, what, "", &why);
    }
    if (t->checkpoint.met)
        tern_train_partner_stop(t, &why);
    /* As in tern_train_save. */
    if (pending && t->checkpoint.met)
        tern_fabric_barrier(t->world, &why);
}

int tern_train_save_periodic(struct train *t, struct tern_err *err)
{
    struct tern_err why = {0};

    if (tern_train_save_settle(t, err) < 0 || tern_train_local_settle(t, err) < 0)
        return -1;
    int rc = start(t, t->checkpoint.staging, &why);
    if (rc == 0 && !t->checkpoint.staging)
        rc = finish(t, &why);
    return rc == 0 ? 0 : go_on_without(t, &why, err);
}

/* The present step is on the nodes: bring it to checkpoint.dir, or save it there. */
static int finish_local(struct train *t, struct tern_err *err)
{
    struct tern_err why = {0};
    char what[WHAT];

    if (tern_train_local_finish(t, &why) == 0)
        return 0;
    if (!t->checkpoint.met) {
        *err = why;
        return -1;
    }
    snprintf(what, sizeof what, "step %" PRIu64 " was not copied", t->checkpoint.saving_step);
    tell(t, what, ", and is saved once more", &why);
    t->checkpoint.local.off = true;
    return start(t, /* staging= */ NULL, err) < 0 ? -1 : finish(t, err);
}

int tern_train_save(struct train *t, struct tern_err *err)
{
    if (tern_train_save_settle(t, err) < 0 || tern_train_local_settle(t, err) < 0 ||
        start(t, /* staging= */ NULL, err) < 0 || finish(t, err) < 0 || finish_local(t, err) < 0 ||
        tern_train_partner_stop(t, err) < 0)
        return -1;
    /* A rank that ended before rank 0 is done would end rank 0 (srun --kill-on-bad-exit). */
    return tern_fabric_barrier(t->world, err);
}

void tern_train_save_close(struct train *t)
{
    const struct tern_err why = {.text = "the ranks ended before it was written"};
    const bool pending = t->checkpoint.saving;
    char what[WHAT];

    tern_ckpt_save_free(t->checkpoint.saving);
    t->checkpoint.saving = NULL;
    if (pending && t->rank == 0 && (t->checkpoint.saving_local || !t->checkpoint.published))
        tell(t, not_saved(t, what), "", &why);
    tern_train_local_close(t);
    tern_ckpt_staging_free(t->checkpoint.staging);
    t->checkpoint.staging = NULL;
    free(t->checkpoint.config);
    t->checkpoint.config = NULL;
    free(t->checkpoint.saving_files);
    t->checkpoint.saving_files = NULL;
    free(t->checkpoint.publishing_files);
    t->checkpoint.publishing_files = NULL;
}
