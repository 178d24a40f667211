/* How long the other ranks may wait for this one, by what it does. */
#include "core/train/state.h"

#include "core/base/clock.h"

/* Others wait for a step at least so long. The scheduler, or memory that the kernel has to find,
 * may take seconds, whatever the step takes.  Data, evaluations and saves have
 * TERN_FABRIC_STORAGE_S instead, however short they were before: a run must outlive a file system's
 * failover.  A lower floor would find no rank earlier that is stopped or dead: it gives no sign of
 * life. */
enum { TIMES = 10, STEP_S = 5 };

static void learn(struct train_patience *p, enum tern_fabric_activity what, double seconds)
{
    if (seconds > p->longest[what])
        p->longest[what] = seconds;
}

/* A save began after the one before it was noted: what was lost since then is all it can have. */
void tern_train_patience_save(struct train_patience *p, double seconds, int64_t lost_ns)
{
    learn(p, TERN_FABRIC_SAVES, seconds - (double)(lost_ns - p->saved_lost_ns) * 1e-9);
    p->saved_lost_ns = lost_ns;
}

double tern_train_patience_turn(struct train_patience *p, enum tern_fabric_activity doing,
                                int64_t now_ns, int64_t lost_ns)
{
    const double lasted = (double)(now_ns - p->since_ns - (lost_ns - p->lost_ns)) * 1e-9;
    const enum tern_fabric_activity before = p->doing;

    /* The first step does not count: it brings the model into memory, from storage perhaps. */
    const bool counts = before != TERN_FABRIC_COMPUTES || p->computed;
    if (p->since_ns && counts)
        learn(p, before, lasted);
    p->computed |= p->since_ns && before == TERN_FABRIC_COMPUTES;
    p->doing = doing;
    p->since_ns = now_ns;
    p->lost_ns = lost_ns;
    double seconds = TIMES * p->longest[doing];
    const bool measured = doing == TERN_FABRIC_COMPUTES && p->longest[doing] > 0;
    const double least = measured ? STEP_S : TERN_FABRIC_STORAGE_S;
    return seconds > least ? seconds : least;
}

void tern_train_note_save(struct train *t, double seconds)
{
    const int64_t now = tern_clock_boot_ns();

    tern_train_patience_save(&t->patience, seconds, tern_fabric_lost_ns(t->options->fabric, now));
}

void tern_train_set_doing(struct train *t, enum tern_fabric_activity doing)
{
    struct tern_fabric *f = t->options->fabric;
    const int64_t now = tern_clock_boot_ns();
    /* What it waited for others was their time. */
    const int64_t lost = tern_fabric_lost_ns(f, now) + tern_fabric_slept_ns(f);

    tern_fabric_set_activity(f, doing, tern_train_patience_turn(&t->patience, doing, now, lost));
}
