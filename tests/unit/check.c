/* core/check: what a recipe may ask of a NeuronCore's memory; what it is warned of. */
#include "core/check/check.h"

#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/data/data.h"
#include "tests/unit/tap.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char dir[] = "/tmp/tern-check-XXXXXX", warned[4096];
static struct tern_err e;

static void hear(const char *line, size_t len)
{
    snprintf(warned, sizeof warned, "%.*s", (int)len, line);
}

/* At submission, by a cluster of trn1 nodes: a NeuronCore has 16 GiB. */
static int check(const char *path, const char *set)
{
    const struct tern_check_options o = {.submission = true,
                                         .node_memory = UINT64_C(498073) << 20,
                                         .device_memory = UINT64_C(16) << 30};
    struct tern_recipe *r = tern_recipe_load(path, &set, set != NULL, &e);
    int rc = r ? tern_check_recipe(r, &o, &e) : -1;

    tern_recipe_free(r);
    return rc;
}

/* The published workflows run on such nodes. */
static void templates(void)
{
    static const char *const names[] = {"llama2-70b-nxd/nxd", "llama3-8b-lora/optimum",
                                        "torch-ddp/run"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *path = tern_strf("cluster-templates/%s.yaml", names[i]);
        if (!ok(check(path, NULL) == 0, "%s: not refused", names[i]))
            printf("# %s\n", e.text);
        free(path);
    }
}

static void sizes(void)
{
    static const char recipe[] = "version: 1\nname: x\nmodel: {config: config.json}\n"
                                 "batch: {global: 64, micro: 1, seq_len: 4096}\n"
                                 "parallel: {tensor: 8}\nledger: {dir: ledger}\n"
                                 "workload: {command: [x], workers_per_node: 32}\n";
    /* 69e9 parameters: 17.2 GB of bf16 weights on each of 8, half of it on each of 16. */
    char *path = tern_fs_join(dir, "run.yaml"), *config = tern_fs_join(dir, "config.json"), *text;
    size_t len;

    ok(tern_fs_read("cluster-templates/llama2-70b-nxd/config.json", 4096, &text, &len, &e) == 0 &&
           tern_fs_replace(config, text, len, 0644, &e) == 0 &&
           tern_fs_replace(path, recipe, strlen(recipe), 0644, &e) == 0,
       "a recipe of a model of 70B");
    ok(check(path, NULL) < 0 && strstr(e.text, "run.yaml:3: model: ") &&
           strstr(e.text, "weights alone"),
       "weights that fit no NeuronCore are refused: %s", e.text);
    warned[0] = '\0';
    ok(check(path, "parallel.pipeline=2") == 0 && strstr(warned, "run.yaml:3: model: ") &&
           strstr(warned, "gradients"),
       "a trainer that must save memory elsewhere is warned of: %s", warned);
    ok(check(path, "batch.seq_len=128") < 0,
       "weights that exceed the device are refused for short rows, too");
    free(text);
    free(config);
    free(path);
}

/* Degrees that this model of 6 heads, 2 of keys, 4 layers cannot be cut by. */
static void cuts(void)
{
    static const char config[] =
        "{\"model_type\": \"llama\", \"hidden_size\": 48, \"intermediate_size\": 100, "
        "\"num_hidden_layers\": 4, \"num_attention_heads\": 6, \"num_key_value_heads\": 2, "
        "\"vocab_size\": 800, \"max_position_embeddings\": 64}";
    static const char recipe[] = "version: 1\nname: x\nmodel: {config: c6.json}\n"
                                 "data: {train: [{path: none.tds}]}\n"
                                 "batch: {global: 8, micro: 1, seq_len: 32}\nsteps: 4\n"
                                 "checkpoint: {dir: ck}\nlaunch: {ranks_per_node: 24}\n";
    static const struct {
        int64_t tensor, pipeline, interleave;
        const char *words;
    } each[] = {{4, 1, 1, "6 attention heads do not divide over 4 ranks."},
                {3, 1, 1, "2 key and value heads neither divide over 3 ranks"},
                {1, 6, 1, "4 layers for 6 groups"},
                {1, 4, 2, "4 layers for 8 groups"},
                {2, 2, 2, "none.tds"},  /* what comes after */
                {6, 4, 1, "none.tds"}}; /* of the ffn's 100 not all have as many */
    char *path = tern_fs_join(dir, "cuts.yaml"), *json = tern_fs_join(dir, "c6.json");

    tern_fs_replace(json, config, strlen(config), 0644, &e);
    tern_fs_replace(path, recipe, strlen(recipe), 0644, &e);
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        struct tern_recipe *r = tern_recipe_load(path, NULL, 0, &e);
        if (!ok(r != NULL, "a recipe without degrees is read"))
            return;
        r->parallel.tensor = each[i].tensor;
        r->parallel.pipeline = each[i].pipeline;
        r->parallel.interleave = each[i].interleave;
        ok(tern_check_recipe(r, &(struct tern_check_options){0}, &e) < 0 &&
               strstr(e.text, each[i].words),
           "%s: %s", each[i].words, e.text);
        tern_recipe_free(r);
    }
    free(json);
    free(path);
}

/* Of 69e9 parameters on nodes of 498 GB, 8 ranks each and 16 to a model: all of the optimizer's
 * state is too much for a node, a part of it is not. */
static void zero(void)
{
    static const char recipe[] = "version: 1\nname: x\nmodel: {config: config.json}\n"
                                 "data: {train: [{path: a.tds}]}\n"
                                 "batch: {global: 64, micro: 1, seq_len: 128}\nsteps: 4\n"
                                 "parallel: {tensor: 8, pipeline: 2}\nledger: {dir: ledger}\n"
                                 "checkpoint: {dir: ck}\nlaunch: {ranks_per_node: 8}\n";
    const struct tern_data_set_kind kind = {32000, 2, -1, false, {7}};
    char *path = tern_fs_join(dir, "zero.yaml"), *set = tern_fs_join(dir, "a.tds");
    struct tern_data_set_writer *w = tern_data_set_create(set, &kind, &e);

    ok(w && tern_data_set_add(w, (const uint32_t[]){5}, NULL, 1, 1, &e) == 0 &&
           tern_data_set_commit(w, "{}", &e) == 0 &&
           tern_fs_replace(path, recipe, strlen(recipe), 0644, &e) == 0,
       "a recipe for tern's own trainer");
    ok(check(path, NULL) < 0 && strstr(e.text, "the largest node has"),
       "the optimizer's state on every data-parallel rank is too much: %s", e.text);
    if (!ok(check(path, "parallel.zero=1") == 0,
            "with ZeRO-1 the optimizer's state fits, on enough nodes"))
        printf("# %s\n", e.text);
    free(set);
    free(path);
}

/* A set of two documents, whose notes are these. */
static void put_set(const char *name, const char *notes)
{
    const struct tern_data_set_kind kind = {800, 2, -1, false, {7}};
    char *path = tern_fs_join(dir, name);
    struct tern_data_set_writer *w = tern_data_set_create(path, &kind, &e);

    if (!w || tern_data_set_add(w, (const uint32_t[]){5}, NULL, 1, 1, &e) < 0 ||
        tern_data_set_add(w, (const uint32_t[]){6}, NULL, 1, 1, &e) < 0 ||
        tern_data_set_commit(w, notes, &e) < 0)
        abort();
    free(path);
}

/* Chats that share a row and see each other: said at the check, with what parts them. */
static void records(void)
{
    static const char recipe[] = "version: 1\nname: x\nmodel: {config: c6.json}\n"
                                 "data: {train: [{path: text.tds}, {path: chat.tds}]}\n"
                                 "batch: {global: 8, micro: 1, seq_len: 32}\nsteps: 4\n"
                                 "checkpoint: {dir: ck}\nledger: {dir: ledger}\n";
    static const struct {
        const char *set, *what;
        bool warns;
    } each[] = {
        {NULL, "chats one behind the other", true},
        {"data.packing=best-fit", "whole chats, several in a row", true},
        {"data.isolate=true", "chats that do not attend to each other", false},
        {"data.packing=padded", "one chat a row", false},
        {"data.train=[{path: text.tds}]", "texts", false},
    };
    char *path = tern_fs_join(dir, "records.yaml");

    put_set("text.tds", "{\"files\": []}");
    put_set("chat.tds", "{\"records\": {\"template\": \"llama2-chat\", \"loss\": \"response\"}}");
    tern_fs_replace(path, recipe, strlen(recipe), 0644, &e);
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        warned[0] = '\0';
        if (!ok(check(path, each[i].set) == 0, "%s: the recipe is accepted", each[i].what))
            printf("# %s\n", e.text);
        if (each[i].warns) {
            has(warned, "records.yaml:4: data.train: ", "%s: a warning names the line",
                each[i].what);
            has(warned, "chat.tds: its documents are records of template llama2-chat",
                "%s: it names the set and its template", each[i].what);
            has(warned, "data.isolate: true", "%s: it says what parts them", each[i].what);
        } else {
            ok(!warned[0], "%s: nothing to warn of: '%s'", each[i].what, warned);
        }
    }
    free(path);
}

int main(void)
{
    if (!mkdtemp(dir))
        return 1;
    tern_log_copy(hear);
    templates();
    sizes();
    cuts();
    zero();
    records();
    tern_fs_remove_tree(dir, NULL);
    return tap_done();
}
