/* The learning rate, by the formulas of recipe.h; and schedules that are refused. */
#include "core/recipe/lists.h"

#include <inttypes.h>
#include <math.h>

static double cosine(double from, double to, double x)
{
    return to + (from - to) * 0.5 * (1 + cos(M_PI * x));
}

static enum tern_decay shape_of(const struct tern_recipe *r)
{
    if (r->schedule.shape != TERN_DECAY_AUTO)
        return (enum tern_decay)r->schedule.shape;
    return r->schedule.kind == TERN_SCHEDULE_INFINITE ? TERN_DECAY_EXP : TERN_DECAY_LINEAR;
}

/* From `from` at x = 0 to `to` at x = 1. */
static double fall(enum tern_decay shape, double from, double to, double x)
{
    if (x >= 1)
        return to;
    switch (shape) {
    case TERN_DECAY_COSINE:
        return cosine(from, to, x);
    case TERN_DECAY_SQRT:
        return to + (from - to) * (1 - sqrt(x));
    case TERN_DECAY_EXP:
        return from * pow(to / from, x);
    case TERN_DECAY_AUTO:
    case TERN_DECAY_LINEAR:
        break;
    }
    return to + (from - to) * (1 - x);
}

/* Up to where the last steps' fall begins, after the warm-up. */
static double plateau(const struct tern_recipe *r, int64_t step)
{
    double peak = r->optimizer.lr, low = r->schedule.constant_lr;
    int64_t in = step - r->schedule.warmup;

    if (r->schedule.kind != TERN_SCHEDULE_INFINITE)
        return peak;
    return in >= r->schedule.cooldown
               ? low
               : cosine(peak, low, (double)in / (double)r->schedule.cooldown);
}

double tern_recipe_lr(const struct tern_recipe *r, int64_t step)
{
    double peak = r->optimizer.lr, end = r->schedule.min_lr, start = r->schedule.start_lr;
    int64_t warmup = r->schedule.warmup, falls = r->steps - r->schedule.decay;

    if (step <= warmup)
        return start + (peak - start) * (double)step / (double)warmup;
    switch ((enum tern_schedule)r->schedule.kind) {
    case TERN_SCHEDULE_CONSTANT:
        return peak;
    case TERN_SCHEDULE_WSD:
    case TERN_SCHEDULE_INFINITE:
        if (step <= falls || r->schedule.decay == 0)
            return plateau(r, step);
        return fall(shape_of(r), plateau(r, falls), end,
                    (double)(step - falls) / (double)r->schedule.decay);
    case TERN_SCHEDULE_LINEAR:
    case TERN_SCHEDULE_COSINE:
        break;
    }
    if (step >= r->steps)
        return end;
    double x = (double)(step - warmup) / (double)(r->steps - warmup);
    return r->schedule.kind == TERN_SCHEDULE_LINEAR ? end + (peak - end) * (1 - x)
                                                    : cosine(peak, end, x);
}

/* A key of another kind has no effect: its author expects one. */
static int check_kind(const struct tern_recipe *r, struct tern_err *err)
{
    const bool infinite = r->schedule.kind == TERN_SCHEDULE_INFINITE;
    const bool falls = infinite || r->schedule.kind == TERN_SCHEDULE_WSD;
    const struct {
        const char *key;
        bool given, fits;
        const char *words;
    } keys[] = {
        {"schedule.decay", r->schedule.decay > 0, falls, "wsd and infinite"},
        {"schedule.shape", r->schedule.shape != TERN_DECAY_AUTO, falls && r->schedule.decay > 0,
         "wsd and infinite with 'decay'"},
        {"schedule.min_lr", r->schedule.min_lr > 0,
         r->schedule.kind != TERN_SCHEDULE_CONSTANT && (!infinite || r->schedule.decay > 0),
         "linear, cosine, wsd and infinite with 'decay'"},
        {"schedule.cooldown", r->schedule.cooldown > 0, infinite, "infinite"},
        {"schedule.constant_lr", r->schedule.constant_lr > 0, infinite, "infinite"},
    };

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (keys[i].given && !keys[i].fits)
            return tern_recipe_fail(r, keys[i].key, err,
                                    "is for kind %s. Change the kind, or take it out.",
                                    keys[i].words);
    if (r->schedule.kind == TERN_SCHEDULE_WSD && r->schedule.decay == 0)
        return tern_recipe_fail(r, "schedule", err,
                                "kind wsd falls in its last 'decay' steps: say how many, such as a "
                                "tenth of all.");
    if (infinite && r->schedule.constant_lr == 0)
        return tern_recipe_fail(r, "schedule", err,
                                "kind infinite needs 'constant_lr', the learning rate that it "
                                "cools down to and stays at, such as half of optimizer.lr.");
    return 0;
}

/* Peak, constant and least, in falling order. */
static int check_rates(const struct tern_recipe *r, struct tern_err *err)
{
    const double peak = r->optimizer.lr, low = r->schedule.constant_lr, min = r->schedule.min_lr;

    if (r->schedule.start_lr > peak)
        return tern_recipe_fail(r, "schedule.start_lr", err,
                                "%g is above the peak learning rate, optimizer.lr (%g).",
                                r->schedule.start_lr, peak);
    if (r->schedule.start_lr > 0 && r->schedule.warmup == 0)
        return tern_recipe_fail(r, "schedule.start_lr", err,
                                "without 'warmup' nothing begins from it.");
    if (low > peak)
        return tern_recipe_fail(r, "schedule.constant_lr", err,
                                "%g is above the peak learning rate, optimizer.lr (%g).", low,
                                peak);
    if (min > peak)
        return tern_recipe_fail(r, "schedule.min_lr", err,
                                "%g is above the peak learning rate, optimizer.lr (%g).", min,
                                peak);
    if (low > 0 && min > low)
        return tern_recipe_fail(r, "schedule.min_lr", err, "%g is above constant_lr (%g).", min,
                                low);
    if (r->schedule.decay > 0 && shape_of(r) == TERN_DECAY_EXP && min == 0)
        return tern_recipe_fail(r, "schedule", err,
                                "an exponential fall never reaches 0: give 'min_lr', such as a "
                                "tenth of optimizer.lr, or another 'shape'.");
    return 0;
}

int tern_recipe_check_schedule(const struct tern_recipe *r, struct tern_err *err)
{
    const int64_t parts = r->schedule.warmup + r->schedule.cooldown + r->schedule.decay;

    if (check_kind(r, err) < 0 || check_rates(r, err) < 0)
        return -1;
    if (r->steps == 0) /* not known yet */
        return 0;
    if (r->schedule.warmup > r->steps)
        return tern_recipe_fail(r, "schedule.warmup", err,
                                "%" PRId64 " steps of warm-up, but the run has %" PRId64
                                ": the peak learning rate is never reached. Shorten it.",
                                r->schedule.warmup, r->steps);
    if (parts > r->steps)
        return tern_recipe_fail(r, "schedule", err,
                                "warm-up, cooldown and decay take %" PRId64
                                " steps, but the run has %" PRId64 ". Shorten them.",
                                parts, r->steps);
    return 0;
}
