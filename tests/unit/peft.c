/* core/convert: adapters as PEFT writes them: which configs and arrays are taken, and which are
 * refused, by name. */
#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/str.h"
#include "core/convert/export.h"
#include "tests/unit/tap.h"

#include <math.h>

static char work[] = "/tmp/tern-peft-XXXXXX";
static struct tern_err err;

enum { DIM = 8, RANK = 2 };

/* A row of a safetensors file; columns 0: of one dimension. */
struct array {
    const char *name;
    int rows, columns;
};

#define BASE "base_model.model."
#define Q BASE "model.layers.0.self_attn.q_proj"

static const struct array pair[] = {{Q ".lora_A.weight", RANK, DIM},
                                    {Q ".lora_B.weight", DIM, RANK}};

static void put(const char *name, const char *data, size_t len)
{
    char *path = tern_fs_join(work, name);

    if (tern_fs_replace(path, data, len, 0600, &err) < 0)
        abort();
    free(path);
}

/* adapter_model.safetensors: these arrays, of zeros. */
static void put_arrays(const struct array *a, size_t n)
{
    struct tern_buf file = {0}, head = {0};
    size_t at = 0;

    for (size_t i = 0; i < n; i++) {
        const size_t bytes = 4 * (size_t)a[i].rows * (size_t)(a[i].columns ? a[i].columns : 1);
        tern_buf_printf(&head, "%s\"%s\": {\"dtype\": \"F32\", \"shape\": [%d", i ? ", " : "{",
                        a[i].name, a[i].rows);
        if (a[i].columns)
            tern_buf_printf(&head, ", %d", a[i].columns);
        tern_buf_printf(&head, "], \"data_offsets\": [%zu, %zu]}", at, at + bytes);
        at += bytes;
    }
    tern_buf_puts(&head, "}");
    while (head.len % 8)
        tern_buf_puts(&head, " ");
    const uint64_t len = head.len;
    char *zeros = calloc(at, 1);
    tern_buf_add(&file, &len, sizeof len);
    tern_buf_add(&file, head.data, head.len);
    tern_buf_add(&file, zeros, at);
    put("adapter_model.safetensors", file.data, file.len);
    free(zeros);
    tern_buf_free(&head);
    tern_buf_free(&file);
}

/* adapter_config.json: `more` behind what every one has. */
static void put_config(const char *more)
{
    char *text = tern_strf("{\"peft_type\": \"LORA\", \"r\": 9, \"lora_alpha\": 6, "
                           "\"target_modules\": \"all-linear\"%s%s}",
                           *more ? ", " : "", more);

    put("adapter_config.json", text, strlen(text));
    free(text);
}

static struct tern_model_config model(bool tied)
{
    char *text = tern_strf("{\"model_type\": \"llama\", \"hidden_size\": %d, "
                           "\"intermediate_size\": 16, \"num_hidden_layers\": 1, "
                           "\"num_attention_heads\": 2, \"num_key_value_heads\": 1, "
                           "\"vocab_size\": 12, \"max_position_embeddings\": 64, "
                           "\"tie_word_embeddings\": %s}",
                           DIM, tied ? "true" : "false");
    struct tern_model_config c = {0};

    if (tern_model_config_parse(text, strlen(text), "config", &c, &err) < 0)
        abort();
    free(text);
    return c;
}

static struct tern_model_tensor query(const struct tern_model_config *c)
{
    struct tern_model_tensor t = {0};

    for (size_t i = 0; i < tern_model_tensors(c) && t.kind != TERN_MODEL_Q; i++)
        tern_model_tensor(c, i, &t);
    return t;
}

/* The folder, as it is put into a model: 0 with the adapter of q_proj; -1. */
static int read_folder(bool tied, struct tern_model_adapters *ret_adapter)
{
    const struct tern_model_config c = model(tied);
    const struct tern_model_tensor t = query(&c);

    err = (struct tern_err){0};
    struct tern_convert_peft *p = tern_convert_peft_open(work, &err);
    const int rc = !p || tern_convert_peft_check(p, &c, &err) < 0 ||
                           tern_convert_peft_beside(p, &t, ret_adapter, &err) < 0
                       ? -1
                       : 0;
    tern_convert_peft_close(p);
    return rc;
}

static void refused(bool tied, const char *why, const char *what)
{
    struct tern_model_adapters a;

    ok(read_folder(tied, &a) < 0 && err.code == TERN_USAGE, "%s is refused", what);
    has(err.text, why, "%s: the message says so", what);
}

static void taken(double scale, bool dora, const char *what)
{
    struct tern_model_adapters a = {0};
    const int rc = read_folder(false, &a);

    ok(rc == 0 && a.rank == RANK && fabs(a.scale - scale) < 1e-12 && a.dora == dora,
       "%s: rank %d, scale %g", what, a.rank, a.scale);
    if (err.text[0])
        printf("# %s\n", err.text);
}

/* ---------------------------------------------------------------- fields */

static void test_refused_fields(void)
{
    static const char *const names[] = {
        "megatron_config",     "trainable_token_indices",
        "velora_config",       "alora_invocation_tokens",
        "use_qalora",          "monteclora_config",
        "lora_bias",           "layer_replication",
        "target_parameters",   "use_bdlora",
        "arrow_config",        "kasa_config",
        "ensure_weight_tying", "a_field_of_tomorrow",
    };
    static const char *const set[] = {"true", "1", "\"x\"", "[1]", "{\"a\": 1}"};
    static const char *const unset[] = {"null", "false", "[]", "{}"};

    put_arrays(pair, 2);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int wrong = 0;
        for (size_t k = 0; k < sizeof set / sizeof *set; k++) {
            struct tern_model_adapters a;
            char *more = tern_strf("\"%s\": %s", names[i], set[k]);
            put_config(more);
            wrong += read_folder(false, &a) == 0 || !strstr(err.text, names[i]) ||
                     !strstr(err.text, "merge_and_unload()");
            free(more);
        }
        ok(wrong == 0, "%s with any value is refused by its name, and PEFT's own merge is named",
           names[i]);
        for (size_t k = 0; k < sizeof unset / sizeof *unset; k++) {
            struct tern_model_adapters a;
            char *more = tern_strf("\"%s\": %s", names[i], unset[k]);
            put_config(more);
            wrong += read_folder(false, &a) < 0;
            free(more);
        }
        ok(wrong == 0, "%s without a value is no reason to refuse", names[i]);
    }
}

static void test_taken_fields(void)
{
    static const char *const fields[] = {
        "\"rank_pattern\": {\"q_proj\": 2}",
        "\"exclude_modules\": [\"v_proj\"]",
        "\"layers_to_transform\": [0]",
        "\"layers_pattern\": \"layers\"",
        "\"modules_to_save\": [\"norm\"]",
        "\"bias\": \"all\"",
        "\"fan_in_fan_out\": true",
        "\"init_lora_weights\": true",
        "\"init_lora_weights\": false",
        "\"init_lora_weights\": null",
        "\"init_lora_weights\": \"gaussian\"",
        "\"init_lora_weights\": \"eva\"",
        "\"init_lora_weights\": \"orthogonal\"",
        "\"base_model_name_or_path\": \"me/base\"",
        "\"lora_dropout\": 0.5",
        "\"task_type\": \"CAUSAL_LM\"",
        "\"auto_mapping\": {\"a\": 1}",
        "\"peft_version\": \"9.9\"",
        "\"revision\": \"main\"",
        "\"inference_mode\": true",
        "\"megatron_core\": \"megatron.core\"",
        "\"loftq_config\": {\"loftq_bits\": 4}",
        "\"eva_config\": {\"rho\": 2}",
        "\"corda_config\": {\"a\": 1}",
        "\"lora_ga_config\": {\"a\": 1}",
        "\"qalora_group_size\": 16",
        "\"runtime_config\": {\"ephemeral_gpu_offload\": true}",
    };

    put_arrays(pair, 2);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        put_config(fields[i]);
        taken(3, false, fields[i]);
    }
    put_config("\"use_rslora\": true");
    taken(6 / sqrt(2), false, "use_rslora");
    put_config("\"use_dora\": true");
    taken(3, true, "use_dora");
    put_config("\"alpha_pattern\": {\"k_proj\": 9, \"self_attn.q_proj\": 10, \"q_proj\": 4}");
    taken(5, false, "the first alpha_pattern that matches");
    put_config("\"alpha_pattern\": {}");
    taken(3, false, "an empty alpha_pattern");
}

static void test_configs(void)
{
    static const struct {
        const char *text, *why;
    } bad[] = {
        {"{\"lora_alpha\": 6}", "peft_type is absent; tern merges LORA alone"},
        {"{\"peft_type\": 1, \"lora_alpha\": 6}", "peft_type is absent"},
        {"{\"peft_type\": \"LOHA\", \"lora_alpha\": 6}", "peft_type is LOHA"},
        {"{\"peft_type\": \"LORA\"}", "has no lora_alpha"},
        {"{\"peft_type\": \"LORA\", \"lora_alpha\": \"6\"}", "has no lora_alpha"},
        {"{\"peft_type\": \"LORA\", \"lora_alpha\": 6, \"init_lora_weights\": \"pissa\"}",
         "init_lora_weights is pissa: these adapters belong to a changed base"},
        {"{\"peft_type\": \"LORA\", \"lora_alpha\": 6, \"init_lora_weights\": \"loftq\"}",
         "init_lora_weights is loftq"},
        {"{\"peft_type\": \"LORA\", \"lora_alpha\": 6, \"init_lora_weights\": \"corda\"}",
         "init_lora_weights is corda: these adapters belong to a changed base"},
        {"{\"peft_type\": \"LORA\", \"lora_alpha\": 6, \"init_lora_weights\": \"lora_ga\"}",
         "init_lora_weights is lora_ga: these adapters belong to a changed base"},
        {"{\"peft_type\": \"LORA\", \"lora_alpha\": 6, \"init_lora_weights\": 7}",
         "init_lora_weights is of an unknown kind"},
        {"{\"peft_type\": \"LORA\", \"lora_alpha\": 6, \"lora_alpha\": 7}", "duplicate object key"},
        {"[]", "peft_type is absent"},
        {"{", "adapter_config.json"},
    };

    put_arrays(pair, 2);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put("adapter_config.json", bad[i].text, strlen(bad[i].text));
        refused(false, bad[i].why, bad[i].text);
    }
}

/* ---------------------------------------------------------------- arrays */

#define PLACE "has no place in the base model"

/* Beside a whole adapter of q_proj. */
static const struct {
    struct array extra[2];
    bool tied;
    const char *why, *what;
} bad_arrays[] = {
    {{{"model.norm.weight", DIM, 0}}, false, PLACE, "an array without PEFT's prefix"},
    {{{BASE "model.layers.1.self_attn.q_proj.lora_A.weight", RANK, DIM}},
     false,
     PLACE,
     "an adapter of a layer that is not there"},
    {{{Q ".lora_A.default.weight", RANK, DIM}}, false, PLACE, "an adapter with a name of its own"},
    {{{Q ".lora_B.bias", DIM, 0}}, false, PLACE, "an adapter's bias"},
    {{{Q ".bias", DIM, 0}}, false, PLACE, "a bias"},
    {{{BASE "model.embed_tokens.lora_embedding_A", RANK, 12}},
     false,
     PLACE,
     "an adapter of the embedding"},
    {{{Q ".hada_w1_a", RANK, DIM}}, false, PLACE, "an array of LoHa"},
    {{{BASE "model.layers.0.self_attn.k_proj.lora_A.weight", RANK, DIM}},
     false,
     "k_proj.lora_B.weight'",
     "an A without its B"},
    {{{BASE "model.layers.0.self_attn.k_proj.lora_B.weight", DIM / 2, RANK}},
     false,
     "k_proj.lora_A.weight'",
     "a B without its A"},
    {{{BASE "model.norm.lora_A.weight", RANK, DIM}, {BASE "model.norm.lora_B.weight", DIM, RANK}},
     false,
     "stands alone",
     "an adapter of a norm"},
    {{{Q ".lora_magnitude_vector", DIM, 0}},
     false,
     "use_dora is false",
     "DoRA's magnitudes without use_dora"},
    {{{Q ".weight", DIM, DIM}}, false, "and an adapter of it", "a weight beside its adapter"},
    {{{BASE "model.norm.weight", DIM + 1, 0}},
     false,
     "has another shape than in the base model",
     "a trained norm that is longer"},
    {{{BASE "model.norm.weight", DIM, 1}},
     false,
     "has another shape than in the base model",
     "a trained norm that is a matrix"},
    {{{BASE "model.embed_tokens.weight", 12, DIM}},
     true,
     "PEFT parts the two",
     "a trained embedding that is the head, too"},
};

static void test_arrays(void)
{
    put_config("");
    for (size_t i = 0; i < sizeof bad_arrays / sizeof *bad_arrays; i++) {
        const struct array all[] = {pair[0], pair[1], bad_arrays[i].extra[0],
                                    bad_arrays[i].extra[1]};
        put_arrays(all, bad_arrays[i].extra[1].name ? 4 : 3);
        refused(bad_arrays[i].tied, bad_arrays[i].why, bad_arrays[i].what);
    }
    put_arrays((struct array[]){pair[0], pair[1], {BASE "model.norm.weight", DIM, 0}}, 3);
    taken(3, false, "a trained norm beside an adapter");
    put_arrays((struct array[]){pair[0], pair[1], {BASE "model.embed_tokens.weight", 12, DIM}}, 3);
    taken(3, false, "a trained embedding of a model with a head of its own");
    put_arrays((struct array[]){{Q ".lora_A.weight", DIM, 0}, pair[1]}, 2);
    refused(false, "is no matrix", "an A of one dimension");
}

static void test_files(void)
{
    char *arrays = tern_fs_join(work, "adapter_model.safetensors");

    put_config("");
    put("adapter_model.safetensors", "{}", 2);
    refused(false, "adapter_model.safetensors", "a cut off file of arrays");
    remove(arrays);
    refused(false, "adapter_model.bin", "a config without arrays");
    put("adapter_model.bin", "GGUF", 4);
    refused(false, "is a GGUF file", "arrays in another program's file");
    free(arrays);
}

int main(void)
{
    if (!mkdtemp(work))
        return 1;
    test_refused_fields();
    test_taken_fields();
    test_configs();
    test_arrays();
    test_files();
    tern_fs_remove_tree(work, NULL);
    return tap_done();
}
