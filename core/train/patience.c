/* How long the other ranks may wait for this one, by what it does. */
#include "core/train/state.h"

#include "core/base/clock.h"

enum { TIMES = 10 };

void tern_train_note_save(struct train *t, double seconds)
{
    double *longest = &t->patience.longest[TERN_FABRIC_SAVES];

    *longest = seconds > *longest ? seconds : *longest;
}

void tern_train_set_doing(struct train *t, enum tern_fabric_activity doing)
{
    const int64_t now = tern_clock_boot_ns();
    const double lasted = (double)(now - t->patience.since_ns) * 1e-9;
    const enum tern_fabric_activity before = t->patience.doing;

    /* The first step does not count: it brings the model into memory, from storage perhaps. */
    const bool counts = before != TERN_FABRIC_COMPUTES || t->patience.computed;
    if (t->patience.since_ns && counts && lasted > t->patience.longest[before])
        t->patience.longest[before] = lasted;
    t->patience.computed |= t->patience.since_ns && before == TERN_FABRIC_COMPUTES;
    t->patience.doing = doing;
    t->patience.since_ns = now;
    double seconds = TIMES * t->patience.longest[doing];
    if ((doing != TERN_FABRIC_COMPUTES || !t->patience.computed) && seconds < TERN_FABRIC_STORAGE_S)
        seconds = TERN_FABRIC_STORAGE_S;
    tern_fabric_set_activity(t->options->fabric, doing, seconds);
}
