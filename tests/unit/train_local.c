/* core/train/local: which checkpoint on the nodes is copied to checkpoint.dir next, and when none
 * is. */
#include "core/ckpt/local.h"
#include "core/train/state.h"

#include "tests/unit/tap.h"

static int begun;            /* copies, so far */
static uint64_t begun_step;  /* of the newest */
static bool begun_in_thread; /* likewise */

/* The copy itself has tests of its own (ckpt_local.c): here it begins, and stays. */
static int fake_begin(const struct tern_ckpt_flush_options *o, bool background,
                      struct tern_ckpt_saving **ret_saving, struct tern_err *err)
{
    (void)err;
    begun++;
    begun_step = o->step;
    begun_in_thread = background;
    *ret_saving = (struct tern_ckpt_saving *)&begun;
    return 0;
}

#define tern_ckpt_flush_begin fake_begin
#define tern_train_set_doing(t, doing) (void)(doing)
#include "core/train/local.c"

static struct tern_recipe recipe;
static struct tern_train_options options;

/* Steps 10 was copied, 20 is on the nodes. */
static struct train one(void)
{
    struct train t = {.options = &options, .recipe = &recipe, .size = 1};

    t.progress.stop_rule.best_step = -1;
    t.checkpoint.local = (struct train_local){.step = 20, .done = 10, .first = -1, .found = -1};
    begun = 0;
    return t;
}

static void test_next(void)
{
    struct tern_err err = {0};
    struct train t = one();

    ok(tern_train_local_go_on(&t, &err) == 0 && begun == 1 && begun_step == 20 && begun_in_thread,
       "the newest checkpoint on the nodes is copied beside the next steps");
    ok(tern_train_local_go_on(&t, &err) == 0 && begun == 1,
       "no other copy begins while one is under way");

    t = one();
    t.checkpoint.local.off = true;
    ok(tern_train_local_go_on(&t, &err) == 0 && begun == 0,
       "after a copy has failed for good no other one begins");

    t = one();
    t.checkpoint.saving = (struct tern_ckpt_saving *)&begun;
    ok(tern_train_local_go_on(&t, &err) == 0 && begun == 0,
       "while a save to checkpoint.dir is under way no copy begins");

    t = one();
    t.checkpoint.local.first = 15;
    ok(tern_train_local_go_on(&t, &err) == 0 && begun_step == 15,
       "the checkpoint of the best evaluation is copied before a newer one");

    t = one();
    t.checkpoint.local.done = 20;
    ok(tern_train_local_go_on(&t, &err) == 0 && begun == 0 && !tern_train_local_is_pending(&t),
       "nothing is copied twice");
}

/* A save to checkpoint.dir makes the copy of an older step needless, unless that save fails. */
static void test_give_way(void)
{
    struct tern_err err = {0};
    struct train t = one();

    ok(tern_train_local_give_way(&t, &err) == 0 && !tern_train_local_is_pending(&t),
       "a save to checkpoint.dir takes the place of a copy that has not begun");
    tern_train_local_take_back(&t);
    ok(tern_train_local_is_pending(&t), "when that save fails, the step is copied after all");
    ok(tern_train_local_go_on(&t, &err) == 0 && begun_step == 20,
       "the copied step is the one that was on the nodes");

    t = one();
    t.checkpoint.local.done = 20;
    tern_train_local_give_way(&t, &err);
    tern_train_local_take_back(&t);
    ok(!tern_train_local_is_pending(&t), "a step that was copied before is not copied again");
}

/* The checkpoint of the best evaluation stays on the nodes until it is copied; that of a multiple
 * of checkpoint.keep_every is copied at once. */
static void test_settle(void)
{
    struct tern_err err = {0};
    struct train t = one();

    t.progress.step = 30;
    t.progress.stop_rule.best_step = 20;
    ok(tern_train_local_settle(&t, &err) == 0 && t.checkpoint.local.first == 20,
       "the best checkpoint is to be copied, though a newer one comes");
    t = one();
    t.progress.step = 30;
    t.progress.stop_rule.best_step = 30;
    ok(tern_train_local_settle(&t, &err) == 0 && t.checkpoint.local.first == -1,
       "another one is passed over");
    recipe.checkpoint.keep_every = 40;
    ok(!stays_for_good(&t, 20) && stays_for_good(&t, 80),
       "checkpoint.keep_every keeps its multiples alone");
    recipe.checkpoint.keep_every = 0;
}

int main(void)
{
    test_next();
    test_give_way();
    test_settle();
    return tap_done();
}
