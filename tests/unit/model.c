#include "core/model/model.h"

#include "core/base/fs.h"
#include "core/base/str.h"
#include "tests/unit/tap.h"

#include <math.h>
#include <unistd.h>

#define PARSE(text, c, err) tern_model_config_parse(text, strlen(text), "config.json", c, err)
#define BASE                                                                                       \
    "{\"model_type\":\"llama\",\"hidden_size\":64,\"intermediate_size\":192,"                      \
    "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"vocab_size\":256"

#define LLAMA3(more) ",\"rope_scaling\":{\"rope_type\":\"llama3\"," more "}"
#define FACTORS "\"factor\":8,\"low_freq_factor\":1,\"high_freq_factor\":4"

static void defaults(void)
{
    struct tern_model_config c;
    struct tern_err err = {0};

    ok(PARSE(BASE ",\"unheard_of\":[1],\"rope_scaling\":null}", &c, &err) == 0,
       "a bare config is read (%s)", err.text);
    ok(c.kv_heads == 4 && c.head_dim == 16 && c.rope_theta == 10000 && !c.tied && c.bos_id == -1 &&
           c.n_eos == 0 && c.rope == TERN_MODEL_ROPE_PLAIN,
       "absent keys take their defaults");
    ok(PARSE(BASE ",\"head_dim\":24,\"num_key_value_heads\":2,\"eos_token_id\":[7,9],"
                  "\"rope_theta\":500000.0,\"rope_scaling\":{\"rope_type\":\"llama3\","
                  "\"factor\":8.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
                  "\"original_max_position_embeddings\":8192},\"tie_word_embeddings\":true}",
             &c, &err) == 0 &&
           c.head_dim == 24 && c.kv_heads == 2 && c.n_eos == 2 && c.eos_ids[1] == 9 && c.tied &&
           c.rope == TERN_MODEL_ROPE_LLAMA3 && c.rope_original_max_position == 8192,
       "llama3 scaling, head size, several ends of text");
    ok(tern_model_tensors(&c) == 1 + 18 + 1, "tied: no lm_head");
}

/* The spellings of RoPE's settings, as transformers takes them. */
static void rope(void)
{
    static const struct {
        const char *text;
        bool scaled;
        double theta;
        int original;
    } good[] = {
        {BASE ",\"rope_theta\":5e5,\"rope_scaling\":{}}", false, 5e5, 0},
        {BASE ",\"rope_parameters\":{\"rope_theta\":5e5,\"rope_type\":\"default\"}}", false, 5e5,
         0},
        {BASE ",\"rope_scaling\":{\"rope_theta\":5e5,\"type\":\"default\"}}", false, 5e5, 0},
        {BASE ",\"rope_theta\":1e4,\"rope_parameters\":{\"rope_theta\":5e5}}", false, 5e5, 0},
        {BASE ",\"rope_theta\":5e5,\"rope_parameters\":{\"partial_rotary_factor\":1.0}}", false,
         5e5, 0},
        {BASE LLAMA3(FACTORS ",\"rope_theta\":5e5") "}", true, 5e5, 2048},
        {BASE LLAMA3(FACTORS) ",\"rope_theta\":5e5,\"max_position_embeddings\":300}", true, 5e5,
         300},
        {BASE LLAMA3(FACTORS ",\"original_max_position_embeddings\":64") "}", true, 1e4, 64},
        {BASE LLAMA3(FACTORS ",\"original_max_position_embeddings\":64") ",\"original_max_position_"
                                                                         "embeddings\":128}",
         true, 1e4, 128},
        {BASE LLAMA3(FACTORS) ",\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":3}}",
         true, 1e4, 2048},
        {BASE ",\"some\":1000000000000000019884624838656,\"more\":1e999,\"s\":\"\\ud800\","
              "\"n\":\"a\\u0000b\",\"k\\u0000\":1}",
         false, 1e4, 0},
        {BASE ",\"some\":NaN,\"more\":[-Infinity, Infinity],\"text\":\"NaN \\\" NaN\"}", false, 1e4,
         0},
    };

    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct tern_model_config c;
        struct tern_err err = {0};
        int rc = PARSE(good[i].text, &c, &err);
        ok(rc == 0 && (c.rope == TERN_MODEL_ROPE_LLAMA3) == good[i].scaled &&
               c.rope_theta == good[i].theta &&
               (!good[i].scaled || c.rope_original_max_position == good[i].original),
           "RoPE: %s %s", strstr(good[i].text, "256") + 4, err.text);
    }
}

static void round_trip(void)
{
    struct tern_model_config c, again;
    struct tern_err err = {0};
    char *text, *text2;

    ok(PARSE(BASE ",\"head_dim\":24,\"num_key_value_heads\":2,\"eos_token_id\":[7,9,10,11,12,"
                  "13,14,15,16,17],\"pad_token_id\":3,\"bos_token_id\":1,\"rms_norm_eps\":1e-5,"
                  "\"rope_scaling\":{\"rope_type\":"
                  "\"llama3\",\"factor\":32,\"low_freq_factor\":1,\"high_freq_factor\":4}}",
             &c, &err) == 0,
       "a config is parsed (%s)", err.text);
    text = tern_model_config_json(&c, "float32");
    has(text, "\"rms_norm_eps\": 1e-5,", "a config's numbers are written short");
    ok(PARSE(text, &again, &err) == 0 && tern_model_config_same(&c, &again),
       "a written config reads back the same (%s)", err.text);
    ok(again.n_eos == 10 && again.eos_ids[9] == 17 && again.pad_id == 3,
       "a written config keeps every token id");
    text2 = tern_model_config_json(&again, "float32");
    is(text, text2, "a config written twice has the same bytes");
    again.rope_factor = 8;
    ok(!tern_model_config_same(&c, &again), "another rope factor is another model");
    free(text);
    free(text2);
}

/* As many ends of a text as transformers keeps, in reason. */
static void many_ends(void)
{
    for (int n = 65; n <= TERN_MODEL_EOS_MAX + 1; n = n == 65 ? TERN_MODEL_EOS_MAX : n + 1) {
        struct tern_buf text = {0};
        struct tern_model_config c;
        struct tern_err err = {0};

        tern_buf_puts(&text, BASE ",\"eos_token_id\":[");
        for (int i = 0; i < n; i++)
            tern_buf_printf(&text, "%s%d", i ? "," : "", i % 256);
        tern_buf_puts(&text, "]}");
        const int rc = PARSE(text.data, &c, &err);
        if (n <= TERN_MODEL_EOS_MAX)
            ok(rc == 0 && c.n_eos == n && c.eos_ids[n - 1] == (n - 1) % 256,
               "%d ids that end a text are kept (%s)", n, err.text);
        else
            has(err.text, "tern keeps 4096 at most", "%d ids that end a text are refused", n);
        tern_buf_free(&text);
    }
    struct tern_model_config c;
    struct tern_err err = {0};
    ok(PARSE(BASE ",\"eos_token_id\":[],\"bos_token_id\":null,\"pad_token_id\":-1}", &c, &err) ==
               0 &&
           c.n_eos == 0 && c.bos_id == -1 && c.pad_id == -1,
       "no ids, null and the -1 of older configs are none (%s)", err.text);
}

static void refused(const char *text, const char *word)
{
    struct tern_model_config c = {.dim = 42};
    struct tern_err err = {0};

    ok(PARSE(text, &c, &err) == -1 && c.dim == 42, "refused: %s", word);
    has(err.text, word, "the refusal's message says why");
    ok(err.code == TERN_USAGE, "refused as bad input: %s", word);
}

static void refusals(void)
{
    static const struct {
        const char *text, *word;
    } bad[] = {
        {"{", "config.json"},
        {"[]", "not a JSON object"},
        {"{\"model_type\":\"mistral\"}", "model_type is mistral; tern computes \"llama\" only"},
        {"{\"hidden_size\":64}", "model_type is absent"},
        {"{\"model_type\":\"llama\"}", "no hidden_size"},
        {BASE ",\"num_key_value_heads\":3}", "no multiple of num_key_value_heads 3"},
        {BASE ",\"head_dim\":15}", "even"},
        {BASE ",\"hidden_act\":\"gelu\"}", "hidden_act"},
        {BASE ",\"attention_bias\":true}", "attention_bias"},
        {BASE ",\"rope_scaling\":{\"type\":\"yarn\"}}", "rope_scaling is yarn"},
        {BASE LLAMA3("\"factor\":8,\"low_freq_factor\":4,\"high_freq_factor\":4") "}",
         "high_freq_factor 4 must be above"},
        {BASE LLAMA3("\"low_freq_factor\":1,\"high_freq_factor\":4") "}", "has no factor"},
        {BASE LLAMA3("\"factor\":8,\"high_freq_factor\":4") "}", "has no low_freq_factor"},
        {BASE LLAMA3("\"factor\":8,\"low_freq_factor\":1") "}", "has no high_freq_factor"},
        {BASE ",\"rope_scaling\":{\"factor\":8,\"low_freq_factor\":1,\"high_freq_factor\":4}}",
         "has factors and no rope_type"},
        {BASE ",\"rope_scaling\":{\"rope_type\":7}}", "of no type"},
        {BASE ",\"rope_scaling\":[]}", "must be an object"},
        {BASE ",\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"default\"}}}",
         "of each kind of layer"},
        {BASE ",\"rope_parameters\":{\"rope_type\":\"default\",\"partial_rotary_factor\":0.5}}",
         "partial_rotary_factor"},
        {BASE ",\"rope_theta\":NaN}", "rope_theta must be a number"},
        {BASE ",\"max_position_embeddings\":\"many\"}", "max_position_embeddings is \"many\""},
        {BASE ",\"rms_norm_eps\":-1}", "rms_norm_eps"},
        {BASE ",\"num_hidden_layers\":2}", "duplicate"},
        {BASE ",\"rope_theta\":1e999}", "rope_theta must be a number"},
        {BASE ",\"max_position_embeddings\":1000000000000000019884624838656}",
         "max_position_embeddings is 1000000000000000019884624838656;"},
        {BASE ",\"hidden_act\":\"a\\u0000\"}", "hidden_act is \"a\\u0000\";"},
        {BASE ",\"eos_token_id\":\"x\"}", "eos_token_id: \"x\" is no id"},
        {BASE ",\"eos_token_id\":[1.0,2]}", "eos_token_id: 1.0 is no id"},
        {BASE ",\"eos_token_id\":[2,null]}", "eos_token_id: null is no id"},
        {BASE ",\"eos_token_id\":{\"a\":2}}", "eos_token_id: {\"a\": 2} is no id"},
        {BASE ",\"eos_token_id\":true}", "eos_token_id: true is no id"},
        {BASE ",\"eos_token_id\":4294967298}", "eos_token_id: 4294967298 is no id"},
        {BASE ",\"eos_token_id\":1e999}", "eos_token_id: 1e999 is no id"},
        {BASE ",\"bos_token_id\":1.0}", "bos_token_id: 1.0 is no id"},
        {BASE ",\"pad_token_id\":\"<pad>\"}", "pad_token_id: \"<pad>\" is no id"},
    };

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        refused(bad[i].text, bad[i].word);
}

/* null where transformers has no default, and a pad id that torch.nn.Embedding refuses. */
static void nulls_and_pads(void)
{
    static const struct {
        const char *text, *word;
    } bad[] = {
        {BASE ",\"pad_token_id\":256}", "pad_token_id is 256; it must be an id of the vocabulary"},
        {BASE ",\"pad_token_id\":-257}", "pad_token_id is -257; it must be an id"},
        {BASE ",\"rope_theta\":null}",
         "rope_theta must be a number above 0 and at most 1e+12. Give"},
        {BASE
         ",\"rope_theta\":5e5,\"rope_scaling\":{\"rope_type\":\"default\",\"rope_theta\":null}}",
         "rope_theta must be a number"},
        {BASE ",\"rope_theta\":5e5,\"rope_parameters\":{\"rope_theta\":null}}",
         "rope_theta must be a number"},
        {BASE LLAMA3("\"factor\":8,\"low_freq_factor\":1,\"high_freq_factor\":4,"
                     "\"original_max_position_embeddings\":null") "}",
         "original_max_position_embeddings is null"},
        {BASE ",\"rms_norm_eps\":null}", "rms_norm_eps must be a number"},
        {BASE ",\"hidden_act\":null}", "hidden_act is no text"},
    };

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        refused(bad[i].text, bad[i].word);
}

static void small_table(void)
{
    struct tern_model_config c;
    struct tern_model_tensor t;
    uint64_t offset = 0;
    int good = 1;

    PARSE(BASE ",\"num_key_value_heads\":2}", &c, NULL);
    for (size_t i = 0; i < tern_model_tensors(&c); i++) {
        tern_model_tensor(&c, i, &t);
        good = good && t.offset == offset && tern_model_tensor_find(&c, t.name) == (int64_t)i &&
               t.count == (uint64_t)(t.shape[0] * (t.ndim == 2 ? t.shape[1] : 1));
        offset += t.count;
    }
    ok(good && offset == tern_model_params(&c), "offsets follow each other; names are found");
    ok(tern_model_params(&c) == 131392 && tern_model_matmul_params(&c) == 114688,
       "parameter counts of the reference's tiny model");
    ok(fabs(tern_model_flops_train(&c, 32) / 1e6 - 0.71) < 0.005,
       "the reference's tiny model takes 0.71 MFLOP a token");
    const struct tern_model_adapters q = {.rank = 3, .targets = 1, .dora = true};
    ok(tern_model_flops_train(&c, 32) - tern_model_flops_adapters(&c, 32, &q) ==
           2.0 * 114688 + 2.0 * (64 * 64 + 2 * 32 * 64) - 6.0 * 2 * 3 * (64 + 64),
       "adapters alone: no gradients of weights, none before the first layer");
    tern_model_tensor(&c, 4, &t);
    ok(t.kind == TERN_MODEL_O && t.split_axis == 1, "o_proj is cut along its inputs");
    tern_model_tensor(&c, 8, &t);
    ok(t.kind == TERN_MODEL_INPUT_NORM && t.split_axis == -1 && t.ndim == 1, "norms are not cut");
    ok(tern_model_tensor_find(&c, "model.layers.2.self_attn.q_proj.weight") == -1,
       "a layer too many is not found");
    ok(tern_model_tensor_bytes(&c, 0, 4) == 256 * 64 * 4,
       "a tensor of 256 x 64 floats has as many bytes");
}

/* Compare with the shapes of the published models, one line a tensor. */
static void published(const char *dir, const char *config, const char *tsv, uint64_t params)
{
    char *path = tern_fs_join(dir, config), *table = tern_fs_join(dir, tsv), *text = NULL, *line;
    struct tern_model_config c;
    struct tern_err err = {0};
    size_t len, i = 0, wrong = 0;

    if (ok(tern_model_config_load(path, &c, &err) == 0, "%s is read (%s)", config, err.text) &&
        tern_fs_read(table, 1 << 20, &text, &len, &err) == 0) {
        for (line = strtok(text, "\n"); line; line = strtok(NULL, "\n"), i++) {
            struct tern_model_tensor t;
            char expected[200];

            if (i >= tern_model_tensors(&c))
                break;
            tern_model_tensor(&c, i, &t);
            if (t.ndim == 2)
                snprintf(expected, sizeof(expected), "%s\t%jdx%jd\t%ju", t.name,
                         (intmax_t)t.shape[0], (intmax_t)t.shape[1], (uintmax_t)t.count);
            else
                snprintf(expected, sizeof(expected), "%s\t%jd\t%ju", t.name, (intmax_t)t.shape[0],
                         (uintmax_t)t.count);
            if (strcmp(expected, line) != 0 && wrong++ == 0)
                printf("# expected %s\n# got  %s\n", line, expected);
        }
        ok(wrong == 0 && i == tern_model_tensors(&c) && tern_model_params(&c) == params,
           "%s: %zu tensors, %ju parameters", tsv, i, (uintmax_t)tern_model_params(&c));
    } else {
        ok(0, "%s: %s", tsv, err.text);
    }
    free(text);
    free(path);
    free(table);
}

int main(void)
{
    const char *dir = "../shared/data/configs";

    defaults();
    rope();
    round_trip();
    many_ends();
    refusals();
    nulls_and_pads();
    small_table();
    if (!tern_fs_exists(dir)) {
        tap_skip("no ../shared/data: published models not compared");
        return tap_done();
    }
    published(dir, "Llama-2-7b-hf.config.json", "tensors_Llama-2-7b.tsv", 6738415616);
    published(dir, "Llama-2-13b-hf.config.json", "tensors_Llama-2-13b.tsv", 13015864320);
    published(dir, "Llama-2-70b-hf.config.json", "tensors_Llama-2-70b.tsv", 68976648192);
    published(dir, "Meta-Llama-3-8B.config.json", "tensors_Llama-3-8B.tsv", 8030261248);
    published(dir, "Meta-Llama-3-70B.config.json", "tensors_Llama-3-70B.tsv", 70553706496);
    published(dir, "TinyLlama-1.1B-3T.config.json", "tensors_TinyLlama-1.1B.tsv", 1100048384);
    published(dir, "SmolLM-135M.config.json", "tensors_SmolLM-135M.tsv", 134515008);
    {
        static const char *const more[] = {
            "arcee/llama2-7b.config.json",   "arcee/llama2-7b-latest-transformers.config.json",
            "neuronx/8B_llama3.config.json", "neuronx/8B_llama3.1.config.json",
            "HLAT/7b_config.json",           "TinyLlama-1.1B-Chat-v1.0.config.json",
        };
        for (size_t i = 0; i < sizeof(more) / sizeof(more[0]); i++) {
            char *path = tern_fs_join(dir, more[i]);
            struct tern_model_config c;
            struct tern_err err = {0};

            ok(tern_model_config_load(path, &c, &err) == 0, "%s is read (%s)", more[i], err.text);
            free(path);
        }
        struct tern_model_config c;
        struct tern_err err = {0};
        ok(tern_model_config_load("../shared/data/configs/Mistral-7B-v0.1.config.json", &c, &err) ==
               -1,
           "Mistral is refused");
        has(err.text, "mistral", "the error names Mistral");
    }
    return tap_done();
}
