/* Messages and events of steps without an update, and of a run's early end. */
#include "core/train/state.h"

#include "core/base/log.h"
#include "core/base/str.h"

#include <inttypes.h>

void tern_train_enter_stage(struct train *t)
{
    if (t->progress.sample && tern_data_stages_at(t->sets.stages, t->progress.sample) !=
                                  tern_data_stages_at(t->sets.stages, t->progress.sample - 1))
        tern_train_guard_forget(&t->progress.guard);
}

void tern_train_record_event(struct train *t, const char *kind, const char *severity,
                             const char *text)
{
    const struct tern_ledger_event e = {.kind = kind, .severity = severity, .text = text};
    struct tern_err lost;

    if (tern_ledger_spool_event(t->spool, &e, &lost) < 0)
        tern_warn("%s", lost.text);
}

/* "data/train.tds rows 3, 99; data/other.tds rows 7", of samples [first, first + n). Of a large
 * batch the first ones, as the others follow from their numbers. */
static void add_rows(struct tern_buf *b, const struct train *t, uint64_t first, uint64_t n)
{
    enum { SHOWN = 32 };
    const struct tern_data_set *before = NULL;

    for (uint64_t i = first; i < first + n && i < first + SHOWN; i++) {
        struct tern_data_mix_where w;
        const struct tern_data_set *set = tern_data_stages_locate(t->sets.stages, i, &w);
        if (set != before)
            tern_buf_printf(b, "%s%s rows", before ? "; " : "", tern_data_set_path(set));
        tern_buf_printf(b, "%s %" PRIu64, set == before ? "," : "", w.row);
        before = set;
    }
    if (n > SHOWN)
        tern_buf_puts(b, ", ...");
}

int tern_train_skip(struct train *t, const char *why, struct tern_err *err)
{
    const struct train_progress *at = &t->progress;
    const uint64_t n = (uint64_t)t->recipe->batch.global;
    struct tern_buf b = {0};

    if (t->rank == 0) {
        tern_buf_printf(&b, "step %" PRIu64 ": %s; no update; samples %" PRIu64 " to %" PRIu64 ": ",
                        at->step + 1, why, at->sample, at->sample + n - 1);
        add_rows(&b, t, at->sample, n);
        tern_train_set_doing(t, TERN_FABRIC_RECORDS);
        tern_warn("%s", b.data);
        tern_train_record_event(t, "skip", "warn", b.data);
        tern_train_set_doing(t, TERN_FABRIC_COMPUTES);
        tern_buf_free(&b);
    }
    if (!tern_train_guard_is_over(&at->guard))
        return 0;
    return tern_err_set(err, TERN_FAILED,
                        "no update in %d steps in a row, up to step %" PRIu64
                        ": %s. Look at the data, or lower optimizer.lr; to go on over them all the "
                        "same, raise optimizer.guard.stop_after.",
                        at->guard.in_a_row, at->step + 1, why);
}

/* A failure also stops a job that waits for this one (afterok) and would begin with its model. */
int tern_train_check_result(const struct train *t, struct tern_err *err)
{
    const struct train_progress *at = &t->progress;
    static const char remedy[] = "Go on from a checkpoint before that happened, with other data or "
                                 "a lower optimizer.lr";

    if (at->not_finite_set)
        return tern_err_set(err, TERN_FAILED,
                            "step %" PRIu64 " is the last one, but the model's loss on %s is not "
                            "finite: this run is not done. %s.",
                            at->step, at->not_finite_set, remedy);
    if (t->recipe->data.held_out.n == 0 && at->guard.in_a_row && at->guard.not_finite)
        return tern_err_set(err, TERN_FAILED,
                            "step %" PRIu64 " is the last one, but the last %d made no update, as "
                            "their losses or gradients are not finite: this run is not done. %s.",
                            at->step, at->guard.in_a_row, remedy);
    return 0;
}

void tern_train_check_end(struct train *t, bool already)
{
    struct train_progress *at = &t->progress;
    if (at->ended || !tern_train_stop_is_over(&at->stop_rule))
        return;
    at->ended = true;
    if (t->rank != 0)
        return;
    json_t *words = tern_train_stop_describe(&at->stop_rule);
    tern_info("step %" PRIu64 ": %s: the run is done", at->step, json_string_value(words));
    tern_train_record_event(t, already ? "over" : "early_stop", "info", json_string_value(words));
    json_decref(words);
}

void tern_train_record_failure(struct train *t, const struct tern_err *err)
{
    if (t->rank == 0 && err && err->text[0])
        tern_train_record_event(t, "failed", "error", err->text);
}
