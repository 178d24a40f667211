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

/* A workload with `n` of `metric`. */
static char *many(const char *metric, int n)
{
    struct tern_buf b = {0};

    tern_buf_puts(&b, "workload={command: [a], metrics: [");
    for (int i = 0; i < n; i++)
        tern_buf_printf(&b, "%s%s", i ? ", " : "", metric);
    tern_buf_puts(&b, "]}");
    return b.data;
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
    ok(r->steps == 200 && r->batch.micro == 2 && r->checkpoint.keep == 3,
       "a recipe has its values and defaults");
    ok(tern_str_starts(r->data.stages[0].train.sets[0].path, dir),
       "paths are relative to the recipe");
    is(r->data.stages[0].train.sets[1].path, "/abs/b.tds", "an absolute path stays");
    ok(fabs(tern_recipe_lr(r, 5) - 5e-4) < 1e-12 && fabs(tern_recipe_lr(r, 10) - 1e-3) < 1e-12 &&
           fabs(tern_recipe_lr(r, 105) - 5.5e-4) < 1e-12 &&
           fabs(tern_recipe_lr(r, 200) - 1e-4) < 1e-12,
       "the rate warms up, then follows the cosine");
    ok(tern_recipe_split(r, 4, &data, &micro, &e) == 0 && data == 4 && micro == 1,
       "4 ranks split the batch");
    ok(tern_recipe_split(r, 3, &data, &micro, &e) < 0,
       "3 ranks that do not divide the batch are refused");
    has(e.text, "run.yaml:7: batch.global: 8 sequences do not divide over 3 data-parallel ranks",
        "a batch that does not divide is named with its line");
    char id[2][TERN_SHA256_HEX], full[2][TERN_SHA256_HEX];
    tern_recipe_hashes(r, id[0], full[0]);
    tern_recipe_free(r);
    r = load(good, "checkpoint.every=7");
    tern_recipe_hashes(r, id[1], full[1]);
    ok(strcmp(id[0], id[1]) == 0 && strcmp(full[0], full[1]) != 0,
       "steps and checkpoints may change within a run");
    tern_recipe_free(r);
    r = load(good, "checkpoint.every=auto");
    ok(r && r->checkpoint.every == TERN_RECIPE_AUTO && r->checkpoint.mtbf == 6300,
       "checkpoint.every may be auto");
    tern_recipe_free(r);
    ok(!load(good, "checkpoint.every=often"), "checkpoint.every is a number or auto");
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
    ok(strcmp(id[0], id[1]) != 0, "the learning rate may not change within a run");
    tern_recipe_free(r);
}

/* What runs were called before the keys that came later: they must find themselves again. */
/* As the ledger has it, with what --set changed behind it. */
static void test_recorded(void)
{
    static const char *const more = "steps=70";
    char *text = tern_strf("%s# --set steps=50\n# --set optimizer.lr=2e-3\n", good);
    char *sets[TERN_RECIPE_SETS];
    size_t body, n = tern_recipe_settings(text, sets, &body);

    ok(n == 2 && body == strlen(good) && strcmp(sets[1], "optimizer.lr=2e-3") == 0,
       "settings behind a recorded recipe");
    while (n)
        free(sets[--n]);
    struct tern_recipe *r = tern_recipe_recorded("/runs/run.yaml", text, NULL, 0, &e);
    ok(r && r->steps == 50 && r->optimizer.lr == 2e-3, "a recorded recipe has its settings");
    is(r ? r->checkpoint.dir : "", "/runs/ck", "its paths are from the folder in which it lay");
    tern_recipe_free(r);
    r = tern_recipe_recorded("/runs/run.yaml", text, &more, 1, &e);
    ok(r && r->steps == 70, "further settings come last");
    tern_recipe_free(r);
    ok(!tern_recipe_recorded("/runs/run.yaml", "version: 1\nnme: x\n", NULL, 0, &e) &&
           strstr(e.text, "/runs/run.yaml:"),
       "a mistake in a recorded recipe is reported with its place: %s", e.text);
    free(text);
}

/* Whatever a person wrote at the end of the file, the settings of the command line are read back.
 */
static void test_recorded_as_given(void)
{
    static const char *const ends[] = {"",
                                       "# the sweep of Monday:\n# --set steps=99\n",
                                       "# --set steps=99",
                                       "# --- the end of the file; settings follow ---\n",
                                       "# --- the end of the file; settings follow ---",
                                       "# --- the end of the file; settings follow ---\n"
                                       "# --set steps=99\n",
                                       "# --set steps=99\n"
                                       "# --- the end of the file; settings follow ---\n"};
    static const char *const given[] = {"steps=50", "optimizer.lr=2e-3"};

    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        for (size_t n_given = 0; n_given <= 2; n_given++) {
            char *file = tern_strf("%s%s", good, ends[i]), *sets[TERN_RECIPE_SETS];
            char *text = tern_recipe_record(file, given, n_given);
            size_t body, n = tern_recipe_settings(text, sets, &body), len = strlen(file);
            bool same = n == n_given;
            for (size_t k = 0; k < n; k++) {
                same = same && strcmp(sets[k], given[k]) == 0;
                free(sets[k]);
            }
            ok(same, "%zu settings behind a file's end %zu are read back, and no others", n_given,
               i);
            ok((body == len || (body == len + 1 && text[len] == '\n')) &&
                   memcmp(text, file, len) == 0,
               "so is the file: %zu bytes of %zu", body, len);
            free(text);
            free(file);
        }
}

static void test_recorded_lines(void)
{
    static const char *const given[] = {"workload.command=[./w.sh, # a word\n  \"5\"]",
                                        "workload.workers_per_task=null\n", "name=\"two\nlines\""};
    static const char *const want[] = {"workload.command=[./w.sh, '5']",
                                       "workload.workers_per_task=null", "name='two lines'"};
    char *text = tern_recipe_record("version: 1\n", given, 3), *sets[TERN_RECIPE_SETS];
    size_t body, n = tern_recipe_settings(text, sets, &body);

    ok(n == 3, "three settings of several lines are three settings (%zu)", n);
    for (size_t i = 0; i < n; i++) {
        if (i < 3)
            is(sets[i], want[i], "setting %zu on one line", i);
        free(sets[i]);
    }
    free(text);
}

static void test_hashes(void)
{
    char id[2][TERN_SHA256_HEX], full[2][TERN_SHA256_HEX];
    struct tern_recipe *r = load(good, NULL);

    tern_recipe_hashes(r, id[0], full[0]);
    tern_recipe_free(r);
    is(id[0], "f3cae7c46c4df171639c5483d4c33461bad8c62eba26d55d6797e1761efcf3b4",
       "a recipe of an older tern keeps its identity");
    is(full[0], "523538d73faacdfb99b9790501096b8843ccf664134630d7e0bd0ea2e3d85a5c",
       "a recipe of an older tern keeps its full hash");
    static const char *const same[] = {"precision=fp32", "parallel.zero=0", "data.isolate=false",
                                       "schedule.start_lr=0", "optimizer.guard.stop_after=5"};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        r = load(good, same[i]);
        tern_recipe_hashes(r, id[1], full[1]);
        ok(strcmp(id[0], id[1]) == 0 && strcmp(full[0], full[1]) == 0, "%s says the same", same[i]);
        tern_recipe_free(r);
    }
    r = load(good, "optimizer.guard.stop_after=6");
    tern_recipe_hashes(r, id[1], full[1]);
    ok(strcmp(id[0], id[1]) == 0 && strcmp(full[0], full[1]) != 0,
       "the guard may change within a run");
    tern_recipe_free(r);
    r = load(good, "schedule.start_lr=1e-5");
    tern_recipe_hashes(r, id[1], full[1]);
    ok(strcmp(id[0], id[1]) != 0, "start_lr may not change within a run");
    tern_recipe_free(r);
    r = load(good, "data.packing=concat");
    tern_recipe_hashes(r, id[1], full[1]);
    ok(strcmp(id[0], id[1]) == 0 && strcmp(full[0], full[1]) == 0,
       "a run from before there were packings keeps its names");
    tern_recipe_free(r);
    r = load(good, "data.packing=best-fit");
    tern_recipe_hashes(r, id[1], full[1]);
    ok(strcmp(id[0], id[1]) != 0, "the packing may not change within a run");
    tern_recipe_free(r);
    r = load(good, "precision=bf16");
    tern_recipe_hashes(r, id[1], full[1]);
    ok(strcmp(id[0], id[1]) != 0, "the precision may not change within a run");
    tern_recipe_free(r);
}

/* Keys that say the run's length, its adapters, its layout. */
static void test_keys(void)
{
    struct tern_recipe *r = load(good, "tokens=100000");

    ok(r && r->steps == 196, "tokens: 100000 are 196 steps of 512");
    tern_recipe_free(r);
    r = load(good, "epochs=3");
    ok(r && r->steps == 0 && tern_recipe_resolve(r, 330, &e) == 0 && r->steps == 125,
       "epochs: 3 times the first set's 330 rows, 99 in 100 samples, are 1000 samples");
    ok(r && tern_recipe_resolve(r, 10, &e) < 0, "epochs shorter than the warm-up are read");
    has(e.text, "10 steps of warm-up, but the run has 4",
        "epochs shorter than the warm-up are refused once the rows are known");
    tern_recipe_free(r);
    has(refused("schedule.epochs=3"),
        "schedule.epochs: the run's length stands at the top, "
        "'epochs: 3' in place of 'steps'",
        "epochs with a schedule that needs steps are refused");
    struct tern_buf b = {0};
    tern_buf_printf(&b, "%sepochs: 2\n", good);
    has(refused_text(b.data), "run.yaml:13: epochs: the run's length is given twice",
        "two lengths are refused");
    tern_buf_free(&b);
    has(refused("lora={alpha: 4}"), "lora.rank: is missing", "adapters of rank 0 are refused");
    is(refused("lora={rank: 4, dora: true}"), "accepted", "lora.dora with a rank is read");
    has(refused("lora={rank: 4, targets: [q_proj, qkv_proj]}"), "'qkv_proj' is not one of: q_proj",
        "an unknown target of lora is refused");
    has(refused("lora={rank: 4, targets: [q_proj, q_proj]}"), "is there twice",
        "a doubled target of lora is refused");
    has(refused("parallel={tensor: 1, sequence: true}"), "parallel.sequence: without",
        "parallel.sequence without parallel.tensor is refused");
    has(refused("parallel={tensor: 3, sequence: true}"), "(128) tokens do not divide over 3",
        "tokens that do not divide over tensor ranks are refused");
    has(refused("parallel={interleave: 2}"), "nothing to interleave",
        "interleave with one pipeline stage is refused");
    has(refused("parallel={recompute: half}"), "'half' is not one of: none, selective, full",
        "an unknown recompute is refused");
    has(refused("evaluate={every: 5, stop: {patience: 2}}"), "evaluate.stop.metric: is missing",
        "a stop without a metric is refused");
    has(refused("evaluate={every: 5, stop: {metric: b}}"), "'b' is not the name of a set",
        "a stop at an unknown metric is refused");
    has(refused("evaluate={stop: {metric: a}}"), "without evaluate.every",
        "a stop without evaluations is refused");
    has(refused("model={config: x, optimizer: keep}"), "random weights have no moments",
        "moments of random weights cannot be kept");
}

static const char *const staged = "version: 1\n"
                                  "name: cpt\n"
                                  "model: {from: base}\n"
                                  "data:\n"
                                  "  stages:\n"
                                  "    - {until: 60, train: [{path: a.tds}]}\n"
                                  "    - {until: %d, train: [{path: b.tds}]}\n"
                                  "    - {train: [{path: %s}]}\n"
                                  "batch: {global: 8, micro: 2, seq_len: 64}\n"
                                  "%s: 100\n"
                                  "checkpoint: {dir: ck, every: 10}\n";

static void test_stages(void)
{
    char *text = tern_strf(staged, 60, "c.tds", "steps");

    has(refused_text(text), "run.yaml:7: data.stages[1].until: 60 is not after the stage before",
        "stages out of order are refused");
    free(text);
    text = tern_strf(staged, 80, "c.tds", "epochs");
    has(refused_text(text), "run.yaml:10: epochs: data.stages are counted in steps",
        "epochs with stages are refused");
    free(text);
    has(refused("data.stages=[{train: [{path: a.tds}]}]"), "beside data.train",
        "stages beside data.train are refused");
}

/* A stage, or the run, ends where a set of it is exhausted. */
static void test_exhausted(void)
{
    char *text = tern_strf(staged, 80, "c.tds, exhausted: stop", "steps");
    char id[2][TERN_SHA256_HEX], full[2][TERN_SHA256_HEX];
    struct tern_recipe *r = load(text, NULL);

    free(text);
    ok(r && r->data.stages[2].train.sets[0].epochs == 1 &&
           r->data.stages[0].train.sets[0].epochs == 0,
       "exhausted: stop is one epoch, without it a set is repeated");
    tern_recipe_hashes(r, id[0], full[0]);
    ok(tern_recipe_end_stage(r, 0, 50, r->data.stages[0].train.sets, &e) == 0 &&
           r->data.stages[0].until == 50 && r->steps == 100 && r->data.stages[0].asked == 60,
       "a stage ends earlier, the run does not");
    ok(tern_recipe_end_stage(r, 2, 90, r->data.stages[2].train.sets, &e) == 0 && r->steps == 90 &&
           r->asked_steps == 100,
       "the last stage ends the run");
    tern_recipe_hashes(r, id[1], full[1]);
    ok(strcmp(id[0], id[1]) == 0 && strcmp(full[0], full[1]) == 0,
       "the hashes are of what is written, not of where it ends");
    ok(tern_recipe_end_stage(r, 1, 50, r->data.stages[1].train.sets, &e) < 0,
       "a stage without a whole step is refused");
    has(e.text, "b.tds is exhausted before the first step", "the set of it is named");
    tern_recipe_free(r);
    has(refused("data.train=[{path: a.tds, epochs: 2, exhausted: repeat}]"),
        "'repeat' beside 'epochs'", "epochs of a set that is repeated are refused");
    has(refused("data.train=[{path: a.tds, exhausted: drop}]"),
        "'drop' is not one of: repeat, stop", "an unknown word of exhausted is refused");
    has(refused("data.longer=drop"), "is for packing best-fit and padded",
        "data.longer with concat is refused");
}

static void test_refusals(void)
{
    is(refused("optimiser.lr=1"), "--set optimiser: unknown key. Did you mean 'optimizer'?",
       "an unknown section is refused");
    is(refused("batch.seqlen=64"), "--set batch.seqlen: unknown key. Did you mean 'seq_len'?",
       "an unknown key is refused");
    has(refused("optimizer.lrr=1"), "Did you mean 'lr'?",
        "a mistyped key is refused with the nearest one");
    has(refused("schedule.warmup=101"), "101 steps of warm-up, but the run has 100",
        "a warm-up longer than the run is refused");
    has(refused("batch.global=7"), "not a multiple of batch.micro (2)",
        "a batch that is not a multiple of batch.micro is refused");
    is(refused(
           "parallel={tensor: 8, pipeline: 4, interleave: 2, sequence: true, zero: 1, recompute: "
           "full}"),
       "accepted", "a recipe with all degrees of parallelism is read");
    is(refused("precision=bf16"), "accepted", "precision bf16 is read");
    has(refused("optimizer.stochastic_rounding=true"), "no parameter is rounded",
        "stochastic rounding of fp32 is refused");
    has(refused("model.config=x.json"), "either 'from'",
        "model.from beside model.config is refused");
    has(refused("steps=0"), "not a whole number from 1", "a recipe without a length is refused");
    has(refused("optimizer.lr=nan"), "not a number",
        "a learning rate that is not a number is refused");
    has(refused("optimizer.betas=[0.9]"), "two are expected", "a single beta of AdamW is refused");
    has(refused("data.train=[]"), "data.train: is missing", "a recipe without data is refused");
    has(refused("data.train=[{path: x, weight: 0}]"), "more than 0", "a weight of 0 is refused");
    has(refused("data.held_out=[{name: a, path: x}, {name: a, path: y}]"),
        "a second set called 'a'", "doubled names of held-out sets are refused");
    has(refused("name=a b"), "not 1 to 64 letters", "a run's name with a blank is refused");
    has(refused("precision=fp8"), "'fp8' is not one of: fp32, bf16",
        "an unknown precision is refused");
    has(refused("model=7"), "is a single value where a map",
        "a value in a section's place is refused");
}

static void test_workloads(void)
{
    is(refused("workload.command=[python3, x.py]"), "accepted", "a workload is read");
    has(refused("workload.command=[]"), "is empty", "a workload without a command is refused");
    is(refused("workload={command: [a], tasks_per_node: 1, workers_per_node: 32, metrics: [nxd, "
               "{pattern: 'l=(.*)', names: [loss]}, {tensorboard: tb}], precompile: {command: [b], "
               "steps: 5, cache: c}, progress: {glob: out/step_*, marker: done}, container: ./x}"),
       "accepted", "a workload with all its keys is read");
    char *list = many("{pattern: \"l=(.)\", names: [l]}", TERN_RECIPE_PATTERNS);
    char *more = tern_strf("%.*s, {pattern: \"m=(.)\", names: [m]}]}", (int)strlen(list) - 2, list);
    is(refused(list), "accepted", "64 patterns of metrics are read");
    has(refused(more), "is more than can be read (at most 64 patterns",
        "a 65th pattern is refused with its line");
    free(list);
    free(more);
    list = many("{tensorboard: t}", TERN_RECIPE_EVENTS + 1);
    has(refused(list), "8 folders of event files", "too many folders of event files are refused");
    free(list);
    has(refused("workload={command: [a], metrics: [nxd, hf, nxd]}"), "is there twice",
        "a known trainer given twice is refused");
    has(refused("workload={command: [a], metrics: [nemo]}"), "'nemo' is not one of: nxd, hf",
        "an unknown trainer is refused");
    has(refused("workload={command: [a], metrics: [{pattern: x}]}"), "has no 'names'",
        "a pattern whose groups have no names is refused");
    has(refused("workload={command: [a], metrics: [{pattern: x, tensorboard: y, names: [z]}]}"),
        "neither or both", "a metric with two sources is refused");
    has(refused("workload={command: [a], tasks_per_node: 3, workers_per_node: 32}"),
        "32 workers do not divide over 3 tasks",
        "ranks of a node beside workers_per_node are refused");
}

int main(void)
{
    if (!mkdtemp(dir))
        return 1;
    test_good();
    test_recorded();
    test_recorded_as_given();
    test_recorded_lines();
    test_hashes();
    test_keys();
    test_stages();
    test_exhausted();
    test_refusals();
    test_workloads();
    is(refused("launch={restarts: 0, spares: 1, health: deep, mapping: block, with: mpirun, "
               "fabric: mpi, "
               "profile: cpu}"),
       "accepted", "the keys of launch are read");
    has(refused("launch.health=full"), "'full' is not one of: off, quick, deep",
        "an unknown health level is refused");
    has(refused("lr"), "is not KEY=VALUE", "--set without a value is refused");
    has(refused_text("name: x\n"), "run.yaml:1: no 'version'",
        "a recipe without a version is refused");
    has(refused_text("version: 2\n"), "run.yaml:1: version: 2 is newer than this tern",
        "a recipe of another version is refused");
    has(refused_text("- a\n"), "is a list where a map", "a list as a recipe is refused");
    char *path = tern_fs_join(dir, "absent.yaml");
    ok(!tern_recipe_load(path, NULL, 0, &e) && e.code == TERN_USAGE,
       "a missing recipe is bad input");
    free(path);
    tern_fs_remove_tree(dir, NULL);
    return tap_done();
}
