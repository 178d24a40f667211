/* core/recipe's learning rates against their formulas, and schedules that are refused. */
#include "tests/unit/tap.h"

#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/recipe/recipe.h"

#include <math.h>
#include <unistd.h>

static char dir[] = "/tmp/tern-schedule-XXXXXX";
static struct tern_err e;

/* 100 steps, peak 1e-3, with this schedule. */
static struct tern_recipe *load(const char *schedule)
{
    char *path = tern_fs_join(dir, "run.yaml");
    char *text = tern_strf("version: 1\nname: s\nmodel: {from: base}\n"
                           "data: {train: [{path: a.tds}]}\n"
                           "batch: {global: 8, micro: 2, seq_len: 64}\nsteps: 100\n"
                           "optimizer: {lr: 1.0e-3}\n"
                           "checkpoint: {dir: ck}\n"
                           "schedule: {%s}\n",
                           schedule);

    tern_fs_replace(path, text, strlen(text), 0644, NULL);
    struct tern_recipe *r = tern_recipe_load(path, NULL, 0, &e);
    free(text);
    free(path);
    return r;
}

static const char *refused(const char *schedule)
{
    struct tern_recipe *r = load(schedule);
    const char *at = strstr(e.text, "run.yaml");

    if (!r)
        return at ? at : e.text;
    tern_recipe_free(r);
    return "accepted";
}

/* The rates at steps (ended by 0) are those beside them. */
static void rates(const char *schedule, const double *at)
{
    struct tern_recipe *r = load(schedule);
    double worst = 0;

    if (!ok(r != NULL, "%s", schedule)) {
        printf("# %s\n", e.text);
        return;
    }
    for (; at[0] > 0; at += 2) {
        double got = tern_recipe_lr(r, (int64_t)at[0]), off = fabs(got - at[1]) / 1e-3;
        if (!(off < 1e-12))
            printf("# step %g: %.17g, not %.17g\n", at[0], got, at[1]);
        worst = isnan(off) || off > worst ? off : worst;
    }
    ok(worst < 1e-12, "a schedule's rates are within %.1e of the peak", worst);
    tern_recipe_free(r);
}

static void formulas(void)
{
    rates("kind: constant, warmup: 10",
          (const double[]){1, 1e-4, 10, 1e-3, 11, 1e-3, 100, 1e-3, 101, 1e-3, 0});
    rates("kind: linear, warmup: 20, min_lr: 2.0e-4",
          (const double[]){1, 5e-5, 20, 1e-3, 60, 6e-4, 99, 2e-4 + 8e-4 / 80, 100, 2e-4, 101, 2e-4,
                           0});
    rates("kind: cosine, warmup: 20, min_lr: 2.0e-4",
          (const double[]){20, 1e-3, 40, 2e-4 + 4e-4 * (1 + M_SQRT1_2), 60, 6e-4, 100, 2e-4, 1000,
                           2e-4, 0});
    rates("kind: wsd, warmup: 10, decay: 20",
          (const double[]){5, 5e-4, 11, 1e-3, 80, 1e-3, 81, 0.95e-3, 90, 5e-4, 100, 0, 0});
    rates("kind: wsd, decay: 100, shape: cosine",
          (const double[]){1, 5e-4 * (1 + cos(M_PI / 100)), 50, 5e-4, 100, 0, 0});
    rates("kind: wsd, decay: 16, shape: sqrt, min_lr: 1.0e-4",
          (const double[]){84, 1e-3, 85, 1e-4 + 9e-4 * 0.75, 88, 1e-4 + 9e-4 * 0.5, 100, 1e-4, 0});
    rates("kind: wsd, decay: 20, shape: exp, min_lr: 1.0e-5",
          (const double[]){80, 1e-3, 90, 1e-4, 100, 1e-5, 0});
    /* Ibrahim et al. 2024, section 4.4: warm-up, cosine cooldown, constant, exponential annealing.
     */
    rates(
        "kind: infinite, warmup: 10, cooldown: 40, constant_lr: 5.0e-4, decay: 20, min_lr: 5.0e-5",
        (const double[]){10, 1e-3, 30, 7.5e-4, 50, 5e-4, 51, 5e-4, 80, 5e-4, 90, 5e-4 * sqrt(0.1),
                         100, 5e-5, 101, 5e-5, 0});
    rates("kind: infinite, constant_lr: 5.0e-4",
          (const double[]){1, 5e-4, 100, 5e-4, 9999, 5e-4, 0});
    rates("kind: infinite, constant_lr: 5.0e-4, decay: 100, shape: linear",
          (const double[]){1, 4.95e-4, 100, 0, 0});
}

/* Where pieces meet: no step of the warm-up is 0, none is taken twice. */
static void edges(void)
{
    rates("kind: linear, warmup: 0", (const double[]){1, 0.99e-3, 100, 0, 0});
    rates("kind: cosine, warmup: 100", (const double[]){1, 1e-5, 99, 9.9e-4, 100, 1e-3, 0});
    rates("kind: cosine, warmup: 99", (const double[]){99, 1e-3, 100, 0, 0});
    rates("kind: wsd, warmup: 80, decay: 20", (const double[]){80, 1e-3, 81, 0.95e-3, 100, 0, 0});
    rates("kind: infinite, warmup: 50, cooldown: 25, decay: 25, constant_lr: 5.0e-4, shape: linear",
          (const double[]){50, 1e-3, 75, 5e-4, 76, 4.8e-4, 100, 0, 0});
    /* To warm up again from where a finished run ended (Gupta et al. 2023). */
    rates("kind: cosine, warmup: 10, start_lr: 1.0e-4, min_lr: 1.0e-4",
          (const double[]){1, 1.9e-4, 5, 5.5e-4, 10, 1e-3, 100, 1e-4, 0});
}

static void refusals(void)
{
    has(refused("kind: cosine, decay: 5"),
        "run.yaml:9: schedule.decay: is for kind wsd and infinite", "decay is refused with cosine");
    has(refused("kind: wsd, decay: 5, constant_lr: 1.0e-4"), "constant_lr: is for kind infinite",
        "constant_lr is refused with wsd");
    has(refused("kind: linear, shape: sqrt"), "schedule.shape: is for kind",
        "shape is refused with linear");
    has(refused("kind: wsd"), "say how many", "wsd without decay is refused");
    has(refused("kind: constant, min_lr: 1.0e-4"), "schedule.min_lr: is for kind",
        "min_lr is refused with constant");
    has(refused("kind: infinite, constant_lr: 1.0e-4, min_lr: 1.0e-5"),
        "min_lr: is for kind linear, cosine, wsd and infinite with 'decay'",
        "min_lr is refused with infinite without decay");
    has(refused("kind: infinite, constant_lr: 1.0e-4, shape: sqrt"), "schedule.shape: is for kind",
        "shape is refused with infinite without decay");
    has(refused("kind: infinite"), "needs 'constant_lr'",
        "infinite without constant_lr is refused");
    has(refused("kind: wsd, warmup: 60, decay: 60"), "take 120 steps, but the run has 100",
        "parts longer than the run are refused");
    has(refused("warmup: 101"), "the peak learning rate is never reached",
        "a warm-up longer than the run is refused");
    has(refused("kind: wsd, decay: 5, shape: exp"), "never reaches 0",
        "an exponential decay to 0 is refused");
    has(refused("warmup: 5, start_lr: 2.0e-3"), "is above the peak",
        "a start_lr above the peak is refused");
    has(refused("start_lr: 1.0e-5"), "nothing begins from it",
        "start_lr without a warm-up is refused");
    has(refused("kind: infinite, constant_lr: 2.0e-3"), "is above the peak",
        "a constant_lr above the peak is refused");
    has(refused("kind: infinite, constant_lr: 1.0e-4, min_lr: 2.0e-4, decay: 5"),
        "is above constant_lr", "a min_lr above constant_lr is refused");
}

int main(void)
{
    if (!mkdtemp(dir))
        return 1;
    formulas();
    edges();
    refusals();
    tern_fs_remove_tree(dir, NULL);
    return tap_done();
}
