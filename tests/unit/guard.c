/* core/train: which steps make no update, and when a run is done before its end. */
#include "tests/unit/tap.h"

#include "core/train/guard.h"
#include "core/train/interval.h"
#include "core/train/stop.h"

#include <math.h>

static char why[TERN_TRAIN_WHY];

static struct tern_train_guard *guard(double spike, int window, int stop_after)
{
    static struct tern_train_guard g;
    struct tern_recipe r = {0};

    r.optimizer.guard.spike = spike;
    r.optimizer.guard.window = window;
    r.optimizer.guard.stop_after = stop_after;
    tern_train_guard_init(&g, &r);
    return &g;
}

/* `n` steps of losses 1, 3, 1, 3 ...: mean 2, standard deviation 1; norms half of it. */
static int steps(struct tern_train_guard *g, int n)
{
    int good = 0;

    for (int i = 0; i < n; i++)
        good += tern_train_guard_judge(g, i % 2 ? 3 : 1, i % 2 ? 1.5 : 0.5, why);
    return good;
}

static void not_finite(void)
{
    struct tern_train_guard *g = guard(0, 8, 3);

    ok(tern_train_guard_judge(g, 2, 1, why), "a finite step");
    ok(!tern_train_guard_judge(g, NAN, 1, why), "a loss that is not a number");
    is(why, "loss nan, gradient norm 1: not finite", "the guard names the loss that is no number");
    ok(!tern_train_guard_judge(g, 2, INFINITY, why), "a gradient that is not finite");
    ok(g->skipped == 2 && g->in_a_row == 2 && !tern_train_guard_is_over(g),
       "two in a row of three");
    ok(tern_train_guard_judge(g, 1e30, 1e30, why) && g->in_a_row == 0 && g->skipped == 2,
       "without a limit no finite value is a spike, and the row ends");
    for (int i = 0; i < 3; i++)
        tern_train_guard_judge(g, NAN, NAN, why);
    ok(tern_train_guard_is_over(g) && g->skipped == 5, "three in a row are too many");
}

static void spikes(void)
{
    struct tern_train_guard *g = guard(4, 16, 5);

    ok(steps(g, 15) == 15 && tern_train_guard_judge(g, 1e9, 1, why),
       "nothing is a spike before the window is full");
    g = guard(4, 16, 5);
    steps(g, 16);
    ok(tern_train_guard_judge(g, 5.9, 1, why), "3.9 standard deviations of 4");
    g = guard(4, 16, 5);
    steps(g, 16);
    ok(!tern_train_guard_judge(g, 6.1, 1, why), "4.1 are a spike");
    has(why, "loss 6.1 is 4.1 standard deviations above the mean of the 16 steps before, 2",
        "the guard names the spike and its deviations");
    ok(g->skipped == 1 && g->in_a_row == 1, "the guard counts a skipped step");
    ok(!tern_train_guard_judge(g, 2, 1000, why), "a spike of the gradient, right after");
    has(why, "gradient norm 1000 is", "the guard names the gradient's spike");
    ok(tern_train_guard_judge(g, 0.1, 0.1, why), "what is low is none");
    ok(!tern_train_guard_judge(g, 1e12, 1, why) && !tern_train_guard_judge(g, 12, 1, why),
       "a great one does not hide the next");
    ok(!tern_train_guard_judge(g, INFINITY, 1, why) && isfinite(g->loss[0] + g->loss[4]),
       "what is not finite stays out of the window");
    g = guard(4, 16, 1000);
    steps(g, 16);
    int skipped = 0;
    for (int i = 0; i < 200; i++)
        skipped += !tern_train_guard_judge(g, i % 2 ? 13 : 11, 1, why);
    ok(skipped > 0 && skipped < 40 && tern_train_guard_judge(g, 12, 1, why),
       "a level that rose for good is let through after %d steps", skipped);
    g = guard(4, 16, 5);
    steps(g, 16);
    tern_train_guard_forget(g);
    ok(tern_train_guard_judge(g, 100, 100, why), "after a change of data nothing is usual");
    g = guard(4, 8, 5);
    for (int i = 0; i < 8; i++)
        tern_train_guard_judge(g, 1, 1, why);
    ok(tern_train_guard_judge(g, 1.0000001, 1, why), "values without a spread tell nothing");
}

/* Through text, as in a manifest, at every step: the same words as without. */
static void kept(void)
{
    struct tern_train_guard a = *guard(2, 8, 100), b = a;
    int differ = 0;

    for (int i = 0; i < 200; i++) {
        char *text, words[TERN_TRAIN_WHY] = "";
        double loss = 2 + sin(i * i) + (i % 37 == 0 ? 3 : 0), norm = i % 50 ? exp(sin(i)) : NAN;
        json_t *j = tern_train_guard_save(&b);
        text = json_dumps(j, JSON_COMPACT);
        json_decref(j);
        b = *guard(2, 8, 100);
        j = json_loads(text, 0, NULL);
        tern_train_guard_load(&b, j);
        json_decref(j);
        free(text);
        why[0] = '\0';
        differ += tern_train_guard_judge(&a, loss, norm, why) !=
                      tern_train_guard_judge(&b, loss, norm, words) ||
                  strcmp(why, words) != 0;
    }
    ok(differ == 0 && a.skipped > 5 && a.skipped == b.skipped && a.in_a_row == b.in_a_row,
       "a guard that went through 200 checkpoints judges the same");
    json_t *j = tern_train_guard_save(&a);
    b = *guard(2, 9, 100);
    tern_train_guard_load(&b, j);
    ok(b.seen == 8, "a longer window begins with all there is");
    b = *guard(2, 3, 100);
    tern_train_guard_load(&b, j);
    ok(b.seen == 3 && b.loss[2] == a.loss[(a.seen - 1) % 8] &&
           b.norm[0] == a.norm[(a.seen - 3) % 8],
       "a shorter one with the newest");
    tern_train_guard_load(&b, NULL);
    ok(b.seen == 0 && b.skipped == 0, "a checkpoint of an older tern has none");
    json_decref(j);
}

/* Of a recipe with the held-out sets a and b, or with none. */
static struct tern_train_stop_rule rule(const char *metric, int64_t patience)
{
    static struct tern_recipe_set sets[] = {{.name = "a"}, {.name = "b"}};
    static struct tern_recipe r, none;
    struct tern_train_stop_rule s;

    if (!metric) {
        tern_train_stop_init(&s, &none);
        return s;
    }
    r.data.held_out.sets = sets;
    r.data.held_out.n = 2;

    r.evaluate.stop.metric = (char *)metric;
    r.evaluate.stop.patience = patience;
    tern_train_stop_init(&s, &r);
    return s;
}

/* The step of the best evaluation of another set than the rule's; -1: none. */
static int64_t best_of(const struct tern_train_stop_rule *s, const char *set)
{
    json_t *step = json_object_get(json_object_get(s->others, set), "best_step");

    return step ? json_integer_value(step) : -1;
}

static void other_sets(void)
{
    struct tern_train_stop_rule s = rule("a", 1), later;

    ok(best_of(&s, "b") == -1, "a set that was not evaluated has no best step");
    tern_train_stop_see(&s, "a", 10, 4);
    tern_train_stop_see(&s, "b", 10, NAN);
    ok(best_of(&s, "b") == -1, "a loss that is not finite is no best one of another set");
    tern_train_stop_see(&s, "b", 20, 7);
    tern_train_stop_see(&s, "b", 30, 7 - 7e-7);
    ok(best_of(&s, "b") == 20, "the best evaluation of another set, but for rounding");
    tern_train_stop_see(&s, "b", 40, 6);
    tern_train_stop_see(&s, "b", 50, 9);
    ok(best_of(&s, "b") == 40, "a better one of another set");
    json_t *j = tern_train_stop_save(&s);
    later = rule("a", 1);
    tern_train_stop_load(&later, j);
    tern_train_stop_see(&later, "b", 60, 6.5);
    ok(best_of(&later, "b") == 40, "a checkpoint has the best step of another set");
    tern_train_stop_free(&later);
    later = rule("b", 1);
    tern_train_stop_load(&later, j);
    ok(best_of(&later, "a") == 10 && later.best_step == -1,
       "evaluate.stop goes to another set: the earlier one counts as another");
    later.sets = &(struct tern_recipe_sets){0};
    tern_train_stop_free(&later);
    tern_train_stop_load(&later, j);
    ok(best_of(&later, "a") == -1, "a set that the recipe has no more is forgotten");
    json_decref(j);
    tern_train_stop_free(&s);
}

static void stops(void)
{
    struct tern_train_stop_rule s = rule("a", 2);

    tern_train_stop_see(&s, "a", 0, 5);
    tern_train_stop_see(&s, "b", 0, 1);
    tern_train_stop_see(&s, "a", 10, 4);
    tern_train_stop_see(&s, "a", 20, 4 - 4e-7); /* rounding: no better */
    ok(!tern_train_stop_is_over(&s) && s.best == 4 && s.best_step == 10,
       "an equal value is not a better one");
    tern_train_stop_see(&s, "a", 20, 4);
    tern_train_stop_see(&s, "b", 30, 9);
    ok(!tern_train_stop_is_over(&s), "neither a step seen twice nor another set counts");
    json_t *j = tern_train_stop_save(&s);
    tern_train_stop_see(&s, "a", 30, NAN);
    tern_train_stop_see(&s, "a", 40, INFINITY);
    ok(!tern_train_stop_is_over(&s), "what is not finite is no reason to be done");
    tern_train_stop_see(&s, "a", 30, 4.5);
    ok(tern_train_stop_is_over(&s), "what is no better is, when the patience is at its end");
    json_t *words = tern_train_stop_describe(&s);
    is(json_string_value(words),
       "a has not got better than 4.0000 a token of step 10 in 2 evaluations (evaluate.stop)",
       "the words for it");
    json_decref(words);
    tern_train_stop_free(&s);
    s = rule("a", 2);
    tern_train_stop_load(&s, j);
    ok(!tern_train_stop_is_over(&s) && s.best == 4 && s.last_step == 20, "kept in a checkpoint");
    tern_train_stop_see(&s, "a", 30, 3.9);
    tern_train_stop_see(&s, "a", 40, 4);
    ok(!tern_train_stop_is_over(&s), "a better one begins the count anew");
    tern_train_stop_free(&s);
    s = rule("b", 1);
    tern_train_stop_load(&s, j);
    ok(isinf(s.best) && s.last_step == -1, "another metric begins without a best value");
    json_decref(j);
    j = tern_train_stop_save(&s);
    tern_train_stop_load(&s, j);
    ok(isinf(s.best), "before the first evaluation nothing is best");
    json_decref(j);
    tern_train_stop_free(&s);
    s = rule(NULL, 1);
    tern_train_stop_see(&s, "a", 1, 1);
    tern_train_stop_see(&s, "a", 2, 2);
    ok(!tern_train_stop_is_over(&s), "without a rule no run ends early");
    ok(s.best_step == -1, "without a held-out set no step is the best");
    tern_train_stop_free(&s);
}

/* Without evaluate.stop the first held-out set says which step is the best. */
static void first_set(void)
{
    struct tern_recipe_set sets[] = {{.name = "a"}, {.name = "b"}};
    struct tern_recipe r = {0};
    struct tern_train_stop_rule s, later;

    r.data.held_out.sets = sets;
    r.data.held_out.n = 2;
    tern_train_stop_init(&s, &r);
    tern_train_stop_see(&s, "a", 0, 5);
    tern_train_stop_see(&s, "b", 0, 5);
    tern_train_stop_see(&s, "a", 10, 4);
    tern_train_stop_see(&s, "b", 10, 6);
    for (int64_t step = 20; step <= 90; step += 10) {
        tern_train_stop_see(&s, "a", step, 4.5);
        tern_train_stop_see(&s, "b", step, 1);
    }
    ok(s.best_step == 10, "without evaluate.stop the first held-out set says which step is best");
    ok(!tern_train_stop_is_over(&s), "without evaluate.stop the run goes to its end");
    json_t *j = tern_train_stop_save(&s);
    r.evaluate.stop.metric = sets[0].name;
    r.evaluate.stop.patience = 9;
    tern_train_stop_init(&later, &r);
    tern_train_stop_load(&later, j);
    ok(later.best_step == 10 && !tern_train_stop_is_over(&later),
       "evaluate.stop that comes later knows the best step before it");
    json_decref(j);
    tern_train_stop_free(&s);
    tern_train_stop_free(&later);
}

/* checkpoint.every: auto. */
static void interval(void)
{
    struct tern_train_interval_cost c = {
        .stall_s = 60, .write_s = 60, .step_s = 10, .mtbf_h = 3.09 * 2048, .nodes = 2048};
    char text[TERN_TRAIN_INTERVAL_TEXT];

    /* sqrt(2 x 60 s x 3.09 h) */
    ok(fabs(tern_train_interval_seconds(&c) - 1155.4) < 0.1, "Young's interval: %.1f s",
       tern_train_interval_seconds(&c));
    ok(tern_train_interval_choose(10, &c, text) == 116, "Young's interval is 116 steps");
    has(text,
        "a checkpoint each 116 steps (1155 s): a save stalls training for 60 s, and one of "
        "2048 nodes fails each 3 h",
        "a change is reported with its reasons");
    ok(tern_train_interval_choose(100, &c, text) == 100 && !*text, "a small change is none");
    ok(tern_train_interval_choose(96, &c, text) == 116 && *text, "a fifth is one");
    c.nodes = 512;
    ok(tern_train_interval_choose(116, &c, text) == 231, "a quarter of the nodes, twice the time");
    c.stall_s = 0.01;
    c.write_s = 200;
    ok(tern_train_interval_choose(231, &c, text) == 20,
       "the next save begins after the last one has ended");
    c.write_s = 0;
    c.step_s = 1e9;
    ok(tern_train_interval_choose(231, &c, text) == 1, "not more often than each step");
    c.step_s = 0;
    ok(tern_train_interval_choose(231, &c, text) == 231, "nothing measured, nothing changed");
    c.step_s = 1e-12;
    ok(tern_train_interval_choose(231, &c, text) == 1 << 30, "the interval has a largest value");
}

int main(void)
{
    not_finite();
    spikes();
    kept();
    stops();
    other_sets();
    first_set();
    interval();
    return tap_done();
}
