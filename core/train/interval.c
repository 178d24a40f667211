#include "core/train/interval.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/train/state.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

double tern_train_interval_seconds(const struct tern_train_interval_cost *c)
{
    const double run_mtbf_s = c->mtbf_h * 3600 / (c->nodes > 0 ? c->nodes : 1);
    const double best = sqrt(2 * c->stall_s * run_mtbf_s), least = c->stall_s + c->write_s;

    return best > least ? best : least;
}

int64_t tern_train_interval_choose(int64_t every, const struct tern_train_interval_cost *c,
                                   char text[TERN_TRAIN_INTERVAL_TEXT])
{
    const double most = 1 << 30; /* as a recipe allows */

    text[0] = '\0';
    if (!(c->step_s > 0))
        return every;
    const double seconds = tern_train_interval_seconds(c);
    double steps = round(seconds / c->step_s);
    steps = steps < 1 ? 1 : steps > most ? most : steps;
    if (steps <= 1.2 * (double)every && steps >= 0.8 * (double)every)
        return every;
    snprintf(
        text, TERN_TRAIN_INTERVAL_TEXT,
        "checkpoint.every: auto: a checkpoint each %.0f steps (%.0f s): a save stalls training "
        "for %.3g s, and one of %d nodes fails each %.0f h",
        steps, seconds, c->stall_s, c->nodes > 0 ? c->nodes : 1,
        c->mtbf_h / (c->nodes > 0 ? c->nodes : 1));
    return (int64_t)steps;
}

bool tern_train_save_due(struct train *t)
{
    struct tern_train_interval *v = &t->checkpoint.interval;
    const int64_t every = t->recipe->checkpoint.every;
    const uint64_t step = t->progress.step;

    if (every != TERN_RECIPE_AUTO)
        return every > 0 && step % (uint64_t)every == 0;
    if (v->every == 0) /* the first step of the attempt: it warms up, and is not timed */
        *v = (struct tern_train_interval){.every = TERN_TRAIN_INTERVAL_FIRST,
                                          .last_step = step - 1,
                                          .timed_step = step,
                                          .timed_ns = tern_clock_boot_ns()};
    if (step - v->last_step < (uint64_t)v->every)
        return false;
    v->last_step = step; /* a save that fails is not tried again at each step */
    return true;
}

int tern_train_interval_update(struct train *t, const struct tern_ckpt_saved *saved,
                               struct tern_err *err)
{
    struct tern_train_interval *v = &t->checkpoint.interval;
    const int64_t now = tern_clock_boot_ns();
    const uint64_t steps = t->progress.step - v->timed_step;
    char text[TERN_TRAIN_INTERVAL_TEXT] = "";

    /* The save of an end, for which training waits, says nothing of the others. */
    if (t->recipe->checkpoint.every != TERN_RECIPE_AUTO || v->every == 0 ||
        t->checkpoint.saving_step != v->last_step)
        return 0;
    if (t->rank == 0) {
        const double stall_s = (double)t->checkpoint.stall_ns * 1e-9;
        const struct tern_train_interval_cost cost = {
            .stall_s = stall_s,
            .write_s = saved->write_seconds,
            .step_s = steps ? ((double)(now - v->timed_ns) * 1e-9 - stall_s) / (double)steps : 0,
            .mtbf_h = t->recipe->checkpoint.mtbf,
            .nodes = tern_fabric_nodes(t->options->fabric)};
        v->every = tern_train_interval_choose(v->every, &cost, text);
    }
    v->timed_step = t->progress.step;
    v->timed_ns = now;
    if (*text) {
        tern_info("%s", text);
        tern_train_record_event(t, "checkpoint", "info", text);
    }
    return t->size > 1 ? tern_fabric_broadcast(t->world, &v->every, sizeof v->every, TERN_U8,
                                               /* root= */ 0, err)
                       : 0;
}
