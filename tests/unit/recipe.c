/* core/recipe: what is accepted, what is refused, and with which words. */
#include "tests/unit/tap.h"

#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/recipe/recipe.h"

#include <math.h>
#include <unistd.h>

static char dir[] = "/tmp/tern-recipe-XXXXXX";

static const char *const good =
    "version: 1\n"
    "name: cpt\n"
    "model: {from: base}\n"
    "data:\n"
    "  train: [{path: a.tds, weight: 0.99}, {path: /abs/b.tds, weight: 0.01}]\n"
    "  held_out: [{name: a, path: t.tds}]\n"
    "batch: {global: 8, micro: 2, seq_len: 64}\n"
    "steps: 100\n"
    "optimizer: {lr: 1.0e-3, betas: [0.9, 0.99]}\n"
    "schedule: {kind: cosine, warmup: 10, min_lr: 1.0e-4}\n"
    "checkpoint: {dir: ck, every: 10}\n"
    "ledger: {dir: ledger}\n";

static struct tern_err e;

static struct tern_recipe *load(const char *text, const char *set)
{
    char *path = tern_fs_join(dir, "run.yaml");

    tern_fs_replace(path, text, strlen(text), 0644, NULL);
    struct tern_recipe *r = tern_recipe_load(path, &set, set != NULL, &e);
    free(path);
    return r;
}

/* The message for `good` with `set` applied, without the folder. */
static const char *refused(const char *set)
{
    struct tern_recipe *r = load(good, set);
    const char *at = strstr(e.text, "run.yaml");

    if (r) {
        tern_recipe_free(r);
        return "accepted";
    }
    return at ? at : e.text;
}

static const char *refused_text(const char *text)
{
    struct tern_recipe *r = load(text, NULL);
    const char *at = strstr(e.text, "run.yaml");

    if (r) {
        tern_recipe_free(r);
        return "accepted";
    }
    return at ? at : e.text;
}

static void test_good(void)
{
    struct tern_recipe *r = load(good, "steps=200");
    int64_t data, micro;

    if (!ok(r != NULL, "a good recipe is read")) {
        printf("# %s\n", e.text);
        return;
    }
    ok(r->steps == 200 && r->batch.micro == 2 && r->checkpoint.keep == 3, "values and defaults");
    ok(tern_str_starts(r->data.train.sets[0].path, dir), "paths are relative to the recipe");
    is(r->data.train.sets[1].path, "/abs/b.tds", "or absolute");
    ok(fabs(tern_recipe_lr(r, 5) - 5e-4) < 1e-12 && fabs(tern_recipe_lr(r, 10) - 1e-3) < 1e-12 &&
           fabs(tern_recipe_lr(r, 105) - 5.5e-4) < 1e-12 &&
           fabs(tern_recipe_lr(r, 200) - 1e-4) < 1e-12,
       "warm-up, then cosine");
    ok(tern_recipe_split(r, 4, &data, &micro, &e) == 0 && data == 4 && micro == 1, "4 ranks");
    ok(tern_recipe_split(r, 3, &data, &micro, &e) < 0, "3 ranks do not divide the batch");
    has(e.text, "run.yaml:7: batch.global: 8 sequences do not divide over 3 data-parallel ranks",
        "said at its line");
    char id[2][TERN_SHA256_HEX], full[2][TERN_SHA256_HEX];
    tern_recipe_hashes(r, id[0], full[0]);
    tern_recipe_free(r);
    r = load(good, "checkpoint.every=7");
    tern_recipe_hashes(r, id[1], full[1]);
    ok(strcmp(id[0], id[1]) == 0 && strcmp(full[0], full[1]) != 0,
       "steps and checkpoints may change within a run");
    tern_recipe_free(r);
    char *here = getcwd(NULL, 0);
    if (chdir(dir) < 0)
        abort();
    r = tern_recipe_load("run.yaml", NULL, 0, &e);
    tern_recipe_hashes(r, id[1], full[1]);
    ok(strcmp(id[0], id[1]) == 0, "the folder it is read from does not matter");
    tern_recipe_free(r);
    if (chdir(here) < 0)
        abort();
    free(here);
    r = load(good, "optimizer.lr=2e-3");
    tern_recipe_hashes(r, id[1], full[1]);
    ok(strcmp(id[0], id[1]) != 0, "the learning rate may not");
    tern_recipe_free(r);
}

int main(void)
{
    if (!mkdtemp(dir))
        return 1;
    test_good();
    is(refused("optimiser.lr=1"), "--set optimiser: unknown key. Did you mean 'optimizer'?",
       "an unknown section");
    is(refused("batch.seqlen=64"), "--set batch.seqlen: unknown key. Did you mean 'seq_len'?",
       "an unknown key");
    has(refused("optimizer.lrr=1"), "Did you mean 'lr'?", "a key of a section, nearly");
    has(refused("schedule.warmup=101"), "101 steps of warm-up, but the run has 100", "warm-up");
    has(refused("batch.global=7"), "not a multiple of batch.micro (2)", "batch");
    has(refused("parallel.tensor=8"), "data-parallel", "degrees that are not there");
    has(refused("model.config=x.json"), "either 'from'", "from and config");
    has(refused("steps=0"), "not a whole number from 1", "no steps");
    has(refused("optimizer.lr=nan"), "not a number", "a learning rate that is none");
    has(refused("optimizer.betas=[0.9]"), "two are wanted", "one beta");
    has(refused("data.train=[]"), "data.train: is missing", "no data");
    has(refused("data.train=[{path: x, weight: 0}]"), "more than 0", "a weight of nothing");
    has(refused("data.held_out=[{name: a, path: x}, {name: a, path: y}]"),
        "a second set called 'a'", "held-out names");
    has(refused("name=a b"), "not 1 to 64 letters", "a name with a space");
    has(refused("precision=fp8"), "'fp8' is not one of: fp32", "precision");
    has(refused("model=7"), "is a single value where a map", "a section that is a value");
    is(refused("workload.command=[python3, x.py]"), "accepted", "somebody else's trainer");
    has(refused("workload.command=[]"), "is empty", "no command");
    has(refused("lr"), "is not KEY=VALUE", "--set without a value");
    has(refused_text("name: x\n"), "run.yaml:1: no 'version'", "no version");
    has(refused_text("version: 2\n"), "run.yaml:1: version: 2 is newer than this tern",
        "another version");
    has(refused_text("- a\n"), "is a list where a map", "a list");
    char *path = tern_fs_join(dir, "absent.yaml");
    ok(!tern_recipe_load(path, NULL, 0, &e) && e.code == TERN_USAGE, "an absent file");
    free(path);
    tern_fs_remove_tree(dir, NULL);
    return tap_done();
}
