/* core/inputs: what a recipe reads, how long its stages last, and what is another run. */
#include "core/inputs/inputs.h"

#include "core/base/fs.h"
#include "core/base/str.h"
#include "tests/unit/recipe_text.h"

#include <sys/stat.h>

static char work[] = "/tmp/tern-inputs-XXXXXX";
static struct tern_err err;

#define CONFIG                                                                                     \
    "{\"model_type\": \"llama\", \"hidden_size\": 16, \"intermediate_size\": 32,"                  \
    " \"num_hidden_layers\": %d, \"num_attention_heads\": 2, \"num_key_value_heads\": 1,"          \
    " \"vocab_size\": 300, \"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-05,"              \
    " \"rope_theta\": 10000.0, \"tie_word_embeddings\": true, \"hidden_act\": \"silu\"}\n"

static const char text[] = "version: 1\n"
                           "name: x\n"
                           "model: {from: base}\n"
                           "data:\n"
                           "  train: [{path: a.tds}]\n"
                           "  held_out: [{name: h, path: h.tds}]\n"
                           "batch: {global: 2, micro: 1, seq_len: 8}\n"
                           "steps: 10\n"
                           "optimizer: {lr: 1.0e-3}\n"
                           "schedule: {kind: constant, warmup: 0}\n"
                           "checkpoint: {dir: ck}\n"
                           "ledger: {dir: ledger}\n";

static void put(const char *path, const char *content)
{
    if (tern_fs_replace(path, content, strlen(content), 0644, &err) < 0)
        abort();
}

/* A set of `n` tokens with EOS, of a vocabulary of `ids` whose hash begins with `hash`. */
static void put_set(const char *path, uint32_t n, uint32_t ids, uint8_t hash)
{
    struct tern_data_set_kind kind = {.n_vocab = ids, .eos = 2, .bos = -1, .vocab_hash = {hash}};
    struct tern_data_set_writer *w = tern_data_set_create(path, &kind, &err);
    uint32_t *tokens = calloc(n + 1, sizeof *tokens);

    if (!w || (n && tern_data_set_add(w, tokens, NULL, n - 1, n, &err) < 0) ||
        tern_data_set_commit(w, "{}", &err) < 0)
        abort();
    free(tokens);
}

static void put_config(const char *path, int layers)
{
    char *config = tern_strf(CONFIG, layers);

    put(path, config);
    free(config);
}

/* ------------------------------------------------------------------ the list */

/* The digest of input `key`; "none" where it is not in the list. */
static const char *digest_of(const char *key)
{
    static char out[2][TERN_SHA256_HEX];
    static int turn;
    struct tern_recipe *r = recipe(text);
    struct tern_inputs list = {0};
    char *to = out[turn ^= 1];

    strcpy(to, "none");
    if (tern_inputs_list(r, &list, &err) < 0)
        strcpy(to, "error");
    for (size_t i = 0; i < list.n; i++)
        if (strcmp(list.v[i].key, key) == 0)
            memcpy(to, list.v[i].sha256, TERN_SHA256_HEX);
    tern_inputs_free(&list);
    tern_recipe_free(r);
    return to;
}

static void test_list(void)
{
    put("base/model.safetensors", "head and weights");
    char *before = tern_strdup(digest_of("model.from"));
    ok(strcmp(before, "none") != 0 && strcmp(digest_of("model.from"), before) == 0,
       "a model has a digest, and each time the same");
    put("base/model.safetensors", "HEAD and weights");
    ok(strcmp(digest_of("model.from"), before) != 0, "weights with another head are another input");
    put("base/model.safetensors", "head and weights");
    rename("base/model.safetensors", "base/other.safetensors");
    ok(strcmp(digest_of("model.from"), before) != 0,
       "weights under another name are another input");
    rename("base/other.safetensors", "base/model.safetensors");
    is(digest_of("model.from"), before, "the same weights are the same input again");
    free(before);

    /* Beyond its head a file counts by its size. */
    char *large = calloc(1, (1 << 20) + 8);
    memset(large, 'x', (1 << 20) + 7);
    put("base/model.safetensors", large);
    before = tern_strdup(digest_of("model.from"));
    large[(1 << 20) + 6] = '\0';
    put("base/model.safetensors", large);
    ok(strcmp(digest_of("model.from"), before) != 0, "weights of another size are another input");
    free(before);
    free(large);

    rename("base/config.json", "base/params.json");
    ok(strcmp(digest_of("model.from"), "none") != 0, "a folder of Meta's is an input");
    rename("base/params.json", "base/config.json");

    rename("h.tds", "away");
    is(digest_of("data.held_out[0]"), "none", "a set that is not there is left out");
    ok(strcmp(digest_of("data.train[0]"), "none") != 0, "the others are in the list");
    rename("away", "h.tds");
}

/* ------------------------------------------------------------------ the vocabulary */

/* The error of the recipe's sets with a vocabulary of 300 ids, by a hash that begins with `hash`
 * (0: not known); "" where all are right. */
static const char *compared(uint8_t hash)
{
    struct tern_inputs_vocabulary v = {.have_config = true, .n_hashes = hash != 0};
    struct tern_recipe *r = recipe(text);

    v.config.vocab = 300;
    v.hash[0][0] = hash;
    strcpy(v.source, "tokenizer.json");
    err = (struct tern_err){0};
    tern_inputs_vocabulary_compare(r, &v, &err);
    tern_recipe_free(r);
    return err.text;
}

static void test_vocabulary(void)
{
    is(compared(7), "", "sets of the model's vocabulary pass");
    put_set("a.tds", 64, 301, 7);
    has(compared(7), "with 301 ids, but the model's vocabulary has 300",
        "a set with more ids than the model is refused");
    put_set("a.tds", 64, 172, 7);
    has(compared(0), "padding cannot explain 128 more",
        "without a tokenizer: 128 ids fewer than the model's are no padding");
    is(compared(7), "", "with the model's tokenizer they may be fewer");
    put_set("a.tds", 64, 173, 7);
    put_set("h.tds", 64, 173, 7);
    is(compared(0), "", "without a tokenizer: 127 ids fewer may be padding");
    put_set("a.tds", 64, 300, 8);
    has(compared(7), "a.tds: was tokenised with another vocabulary",
        "a set of another vocabulary of that size is refused");
    put_set("a.tds", 64, 300, 7);
    put_set("h.tds", 64, 300, 8);
    has(compared(7), "h.tds: was tokenised with another vocabulary",
        "a held-out set of another vocabulary is refused");
    put_set("h.tds", 0, 300, 7);
    has(compared(7), "h.tds: holds no tokens", "a set without tokens is refused");
    put_set("h.tds", 64, 300, 7);
}

/* ------------------------------------------------------------------ the length */

/* The recipe with `train` in the place of data.train, and its stages' ends as text. */
static const char *lengths(const char *train, int64_t steps)
{
    static char out[80];
    char *whole = tern_strf("version: 1\nname: x\nmodel: {from: base}\ndata:\n%s\n"
                            "batch: {global: 2, micro: 1, seq_len: 8}\nsteps: %lld\n"
                            "optimizer: {lr: 1.0e-3}\nschedule: {kind: constant, warmup: 0}\n"
                            "checkpoint: {dir: ck}\nledger: {dir: ledger}\n",
                            train, (long long)steps);
    struct tern_recipe *r = recipe(whole);
    size_t n = 0;

    out[0] = '\0';
    if (r && tern_inputs_length(r, &err) < 0)
        snprintf(out, sizeof out, "%.70s", err.text);
    for (size_t k = 0; r && !out[n] && k < r->data.n_stages; k++)
        n += (size_t)snprintf(out + n, sizeof out - n, "%lld ", (long long)r->data.stages[k].until);
    if (r)
        snprintf(out + n, sizeof out - n, "of %lld", (long long)r->steps);
    tern_recipe_free(r);
    free(whole);
    return out;
}

static void test_length(void)
{
    put_set("a.tds", 80, 300, 7); /* ten rows of 8 tokens: five steps of 2 */
    is(lengths("  train: [{path: a.tds, epochs: 1}]", 20), "0 of 5",
       "a run ends where its set was read once, in the last step that has all rows");
    is(lengths("  train: [{path: a.tds, epochs: 1}]", 5), "0 of 5",
       "a run of just that many steps stays as it is");
    is(lengths("  train: [{path: a.tds, epochs: 2}]", 20), "0 of 10", "twice is twice as long");
    is(lengths(
           "  stages: [{until: 4, train: [{path: a.tds, epochs: 1}]}, {train: [{path: a.tds}]}]",
           20),
       "4 0 of 20", "a set that lasts until its stage ends does not end it before");
    is(lengths(
           "  stages: [{until: 9, train: [{path: a.tds, epochs: 1}]}, {train: [{path: a.tds}]}]",
           20),
       "5 0 of 20", "a stage ends where its set is used up, and the next one begins");
}

static void test_stages(void)
{
    struct tern_recipe *r = recipe("version: 1\nname: x\nmodel: {from: base}\ndata:\n"
                                   "  stages: [{until: 4, train: [{path: a.tds}]},"
                                   " {train: [{path: h.tds}]}]\n"
                                   "batch: {global: 2, micro: 1, seq_len: 8}\nsteps: 10\n"
                                   "optimizer: {lr: 1.0e-3}\n"
                                   "schedule: {kind: constant, warmup: 0}\n"
                                   "checkpoint: {dir: ck}\nledger: {dir: ledger}\n");
    struct tern_data_stages *s = r ? tern_inputs_stages_open(r, &err) : NULL;

    ok(s && tern_data_stages_at(s, 7) == 0 && tern_data_stages_at(s, 8) == 1,
       "a stage until step 4 of 2 samples each has the samples 0 to 7");
    tern_data_stages_free(s);

    /* One that went on from another batch size has other samples behind step 4. */
    json_t *meta = json_pack("{s:i,s:i}", "step", 4, "sample", 8);
    ok(r && tern_inputs_same_run(r, "ck", meta, /* accept= */ false, &err) == 0,
       "with stages: a checkpoint of this batch size is taken");
    json_object_set_new(meta, "sample", json_integer(12));
    ok(r && tern_inputs_same_run(r, "ck", meta, /* accept= */ true, &err) < 0,
       "with stages: one of another batch size is refused, whatever is accepted");
    tern_recipe_free(r);
    r = recipe(text);
    ok(r && tern_inputs_same_run(r, "ck", meta, /* accept= */ false, &err) == 0,
       "without stages: one of another batch size is taken");
    json_decref(meta);
    tern_recipe_free(r);
}

/* ------------------------------------------------------------------ the same run */

static bool same(json_t *meta, bool accept)
{
    struct tern_recipe *r = recipe(text);
    const bool taken = r && tern_inputs_same_run(r, "ck/step-1", meta, accept, &err) == 0;

    json_decref(meta);
    tern_recipe_free(r);
    return taken;
}

static json_t *model_of(int layers)
{
    char *config = tern_strf(CONFIG, layers);
    json_t *j = json_loads(config, 0, NULL);

    free(config);
    return j;
}

static void test_same(void)
{
    ok(same(json_object(), false), "a checkpoint that says nothing is not compared");
    ok(!same(json_pack("{s:s}", "identity_hash", "00"), false),
       "a checkpoint of other settings is refused");
    has(err.text, "say --accept", "the refusal says how to take the checkpoint");
    ok(same(json_pack("{s:s}", "identity_hash", "00"), true), "with --accept it is taken");
    ok(same(json_pack("{s:o}", "model", model_of(1)), false), "one of the model that is named");
    ok(!same(json_pack("{s:o}", "model", model_of(2)), false), "one of another model is refused");
    ok(!same(json_pack("{s:n,s:o}", "model", "config", model_of(2)), false),
       "where no model was named, the checkpoint's own counts");
    ok(same(json_pack("{s:{s:s}}", "data", "/elsewhere/b.tds", "00"), false),
       "sets under paths that the recipe does not name are not compared");
    struct tern_recipe *r = recipe(text);
    const char *path = r->data.stages[0].train.sets[0].path;
    ok(!same(json_pack("{s:{s:s}}", "data", path, "00"), false),
       "a checkpoint of another set under that path is refused");
    has(err.text, "is another set than the one that ck/step-1 was trained on", "the set is named");
    tern_recipe_free(r);
}

int main(void)
{
    if (!mkdtemp(work) || chdir(work) < 0 || mkdir("base", 0755) < 0)
        return 1;
    put_config("base/config.json", 1);
    put_set("a.tds", 64, 300, 7);
    put_set("h.tds", 64, 300, 7);
    test_list();
    test_vocabulary();
    test_length();
    test_stages();
    test_same();
    tern_fs_remove_tree(work, NULL);
    return tap_done();
}
