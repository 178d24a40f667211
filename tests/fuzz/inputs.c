/* Texts that others wrote: layouts, recipes, config.json, tokenizers.  Each is taken or refused in
 * words, and nothing is read that is not there.  FUZZ_RUNS: how many inputs of each. */
#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/base/yaml.h"
#include "core/layout/layout.h"
#include "core/model/model.h"
#include "core/token/token.h"
#include "tests/fuzz/mutate.h"

#include <unistd.h>

static char work[] = "/tmp/tern-fuzz-inputs-XXXXXX";
static int taken, refused;

static void put(const char *path, const char *data, size_t len)
{
    FILE *f = fopen(path, "w");

    if (!f || fwrite(data, 1, len, f) != len || fclose(f) != 0)
        abort();
}

static void count(bool good, const struct tern_err *err)
{
    taken += good;
    refused += !good;
    if (!good && !err->text[0])
        ok(0, "what is refused is refused in words");
}

static void told(const char *what)
{
    ok(taken > 0 && refused > 0, "%s: %d taken, %d refused", what, taken, refused);
    taken = refused = 0;
}

/* ------------------------------------------------------------------ layouts */

static const char layout[] =
    "Region: us-east-1\nImage: {Os: ubuntu2204}\n"
    "HeadNode:\n  InstanceType: c5.2xlarge\n  Networking: {SubnetId: &a subnet-01234567}\n"
    "Scheduling:\n  Scheduler: slurm\n  SlurmSettings:\n    CustomSlurmSettings:\n"
    "      - PropagateResourceLimits: NONE\n  SlurmQueues:\n    - Name: train\n"
    "      CapacityType: CAPACITY_BLOCK\n      CapacityReservationTarget:\n"
    "        CapacityReservationId: cr-0123456789abcdef0\n      Networking:\n        SubnetIds: "
    "[*a]\n"
    "        PlacementGroup: &b {Enabled: false}\n      ComputeResources:\n        - Name: trn\n"
    "          InstanceType: trn1.32xlarge\n          MinCount: 4\n          MaxCount: 4\n"
    "          Efa: {Enabled: true}\n    - Name: cpu\n      Networking: {SubnetIds: [*a], <<: "
    "{PlacementGroup: *b}}\n"
    "      ComputeResources:\n        - {Name: c, Instances: [{InstanceType: c5.large}], MaxCount: "
    "9}\nSharedStorage:\n  - {Name: fsx, MountDir: /fsx, StorageType: FsxLustre, "
    "FsxLustreSettings: "
    "{StorageCapacity: 1_200}}\n";
static const char *const layout_words[] = {
    "\n",    "  ",          ": ",         "- ",    "{",  "}",   "[",  "]",  ",",  "0",
    "-1",    "99999999999", "null",       "true",  "\"", "'",   "&a", "*a", "*b", "<<: ",
    "!!int", "Name: ",      "MaxCount: ", "Queue", "%",  "|\n", "..", "/",  NULL};

static void fuzz_layouts(int n)
{
    char *path = tern_fs_join(work, "cluster.yaml");
    const struct tern_layout_local local = {.cluster_name = "c",
                                            .head_name = "h",
                                            .head_addr = "10.0.0.1",
                                            .user = "u",
                                            .state = "/s",
                                            .log = "/l",
                                            .spool = "/p",
                                            .pid_dir = "/r",
                                            .munge_socket = "/m",
                                            .conf_dir = "/c",
                                            .port = 6817};

    for (int i = 0; i < n; i++) {
        struct tern_layout_conf conf;
        struct tern_err err = {0};
        size_t len;
        char *data = fuzz_mutate(layout, sizeof layout - 1, layout_words, &len);
        put(path, data, len);
        struct tern_layout *l = tern_layout_load(path, &err);
        bool good = l && tern_layout_render(l, i % 2 ? &local : NULL, &conf, &err) == 0;
        if (good)
            tern_layout_conf_free(&conf);
        count(good, &err);
        tern_layout_free(l);
        free(data);
    }
    free(path);
    told("layouts");
}

/* ------------------------------------------------------------------ recipes of a ledger */

/* Every value of a map, as `tern ledger reproduce` compares them. */
static void walk(const struct tern_yaml_node *map, struct tern_buf *b)
{
    for (size_t i = 0; i < tern_yaml_count(map); i++) {
        const struct tern_yaml_node *v = tern_yaml_get(map, tern_yaml_key(map, i));
        tern_yaml_write(b, v);
        if (tern_yaml_kind(v) == TERN_YAML_MAP)
            walk(v, b);
    }
}

static void fuzz_recipes(int n)
{
    static const char *const seeds[] = {
        "version: 1\nname: a\nworkload: {command: [bash, a.sh], tasks_per_node: 3}\n"
        "launch:\n  threads: 2\n",
        "- version: 1\n- name: a\n", "a scalar\n", "[]\n"};

    for (int i = 0; i < n; i++) {
        const char *seed = seeds[(size_t)i % (sizeof seeds / sizeof *seeds)];
        struct tern_err err = {0};
        struct tern_buf b = {0};
        size_t len;
        char *data = fuzz_mutate(seed, strlen(seed), layout_words, &len);
        struct tern_yaml *y = tern_yaml_parse(data, len, "the recipe in the ledger", &err);
        bool good = y && tern_yaml_expect(tern_yaml_root(y), TERN_YAML_MAP, &err) == 0;
        count(good, &err);
        if (good)
            walk(tern_yaml_root(y), &b);
        tern_buf_free(&b);
        tern_yaml_free(y);
        free(data);
    }
    told("recipes");
}

/* ------------------------------------------------------------------ config.json */

static const char config[] =
    "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"hidden_size\": 64,"
    " \"intermediate_size\": 128, \"num_hidden_layers\": 2, \"num_attention_heads\": 4,"
    " \"num_key_value_heads\": 2, \"vocab_size\": 300, \"max_position_embeddings\": 4096,"
    " \"rms_norm_eps\": 1e-05, \"rope_theta\": 500000.0, \"tie_word_embeddings\": false,"
    " \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8.0, \"low_freq_factor\": 1.0,"
    " \"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 1024},"
    " \"hidden_act\": \"silu\", \"eos_token_id\": [2, 7], \"bos_token_id\": 1, \"head_dim\": 16}";
static const char *const config_words[] = {"{",
                                           "}",
                                           "[",
                                           "]",
                                           ",",
                                           ":",
                                           "\"",
                                           "\\",
                                           "\\u0000",
                                           "null",
                                           "true",
                                           "NaN",
                                           "-Infinity",
                                           "0",
                                           "-1",
                                           "1e999",
                                           "16777217",
                                           "99999999999999999999",
                                           "\"factor\": 0",
                                           "\"head_dim\": 3",
                                           NULL};

static void fuzz_configs(int n)
{
    for (int i = 0; i < n; i++) {
        struct tern_model_config c, again;
        struct tern_err err = {0};
        size_t len;
        char *data = fuzz_mutate(config, sizeof config - 1, config_words, &len);
        bool good = tern_model_config_parse(data, len, "config.json", &c, &err) == 0;
        count(good, &err);
        if (good) {
            struct tern_model_tensor t;
            uint64_t params = 0;
            for (size_t k = 0; k < tern_model_tensors(&c); k++) {
                tern_model_tensor(&c, k, &t);
                params += t.count;
            }
            char *json = tern_model_config_json(&c, "float32");
            if (params != tern_model_params(&c) ||
                tern_model_config_parse(json, strlen(json), "written", &again, &err) < 0 ||
                !tern_model_config_same(&c, &again))
                ok(0, "round %d: what was taken is written and read back: %s", i, err.text);
            free(json);
        }
        free(data);
    }
    told("config.json");
}

/* ------------------------------------------------------------------ tokenizers */

static void use(const char *path, const char *text, size_t len)
{
    struct tern_err err = {0};
    struct tern_token *t = tern_token_load(path, &err);
    struct tern_token_encoder *e = t ? tern_token_encoder_new(t, &err) : NULL;
    struct tern_buf back = {0};
    const uint32_t *ids;
    size_t n;

    count(t, &err);
    if (e && tern_token_encode(e, text, len, &ids, &n, &err) == 0)
        tern_token_decode(t, ids, n, &back, &err);
    tern_buf_free(&back);
    tern_token_encoder_free(e);
    tern_token_free(t);
}

static void fuzz_models(int n)
{
    static const char *const words[] = {
        "\x0a", "\x12\x03", "\x15", "\xff\xff\xff\xff\x0f", "<0x41>", "\xe2\x96\x81", "\x18\x06",
        "\x80", "<unk>",    NULL};
    static const char text[] = "The quick  brown\tfox \xe2\x96\x81 \xf0\x9f\x90\xa7\n\xff ends.";
    char *path = tern_fs_join(work, "tokenizer.model"), *seed;
    struct tern_err err = {0};
    size_t len, all;

    if (tern_fs_read("tests/golden/spm-bpe-800.model", 1 << 20, &seed, &all, &err) < 0) {
        ok(0, "%s", err.text);
        return;
    }
    for (int i = 0; i < n; i++) {
        char *data = fuzz_mutate(seed, all, words, &len);
        put(path, data, len);
        use(path, text, sizeof text - 1);
        free(data);
    }
    free(seed);
    free(path);
    told("tokenizer.model");
}

#define ADDED(id, content, special)                                                                \
    "{\"id\":" id ",\"content\":\"" content "\",\"special\":" special                              \
    ",\"normalized\":false,\"lstrip\":true,\"rstrip\":true,\"single_word\":true}"
#define MARK "\xe2\x96\x81"

/* Of characters, as Llama 2's, and of bytes, as GPT-2's with the steps of Qwen 2 and SmolLM. */
static const char *const tokenizers[] = {
    "{\"version\":\"1.0\",\"added_tokens\":[" ADDED("0", "<unk>", "true") "," ADDED(
        "6", "fox",
        "false") "],\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":["
                 "{\"type\":\"Prepend\",\"prepend\":\"" MARK "\"},{\"type\":"
                 "\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"" MARK
                 "\"}]},\"pre_tokenizer\":null,\"decoder\":{\"type\":\"Sequence\","
                 "\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"" MARK
                 "\"},\"content\":\" \"},{\"type\":\"Fuse\"},{\"type\":\"Strip\","
                 "\"content\":\" \",\"start\":1,\"stop\":0}]},"
                 "\"model\":{\"type\":\"BPE\",\"unk_token\":\"<unk>\",\"fuse_unk\":true,"
                 "\"vocab\":{\"<unk>\":0,\"" MARK "\":1,\"e\":2,\"n\":3,\"en\":4,\"" MARK "en\":5},"
                 "\"merges\":[\"e n\",\"" MARK " en\"]}}",
    "{\"added_tokens\":[" ADDED(
        "4", "quick",
        "false") "],\"normalizer\":{\"type\":\"NFC\"},"
                 "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\","
                 "\"individual_digits\":true},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
                 "\"use_regex\":true}]},\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{"
                 "\"ignore_merges\":true,\"vocab\":{\"\xc4\xa0\":0,\"\\u0065\":1,\"n\":2,\"en\":3},"
                 "\"merges\":[[\"e\",\"n\"]]}}",
    "{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"" MARK
    "\",\"prepend_scheme\":\"first\",\"split\":true},\"model\":{\"vocab\":{\"" MARK
    "\":0,\"q\":1,\"" MARK "q\":2},\"merges\":[[\"" MARK "\",\"q\"]]}}",
};

static void fuzz_json(int n)
{
    static const char text[] = "The quick  brown\tfox " MARK " \xf0\x9f\x90\xa7\n\xff ends.";
    char *path = tern_fs_join(work, "tokenizer.json");

    for (int i = 0; i < n; i++) {
        const char *seed = tokenizers[(size_t)i % (sizeof tokenizers / sizeof tokenizers[0])];
        uint8_t hash[TERN_TOKEN_NAMES][TERN_SHA256_BYTES];
        struct tern_err err = {0};
        size_t len;
        char *data = fuzz_mutate(seed, strlen(seed), config_words, &len);
        put(path, data, len);
        count(tern_token_json_hash(path, hash, &err) >= 0, &err);
        use(path, text, sizeof text - 1);
        free(data);
    }
    free(path);
    told("tokenizer.json");
}

/* The bytes and numbers of as many ranks as Llama 3's file has, in its lines. */
static char *tiktoken_seed(size_t *ret_len)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    struct tern_buf b = {0};

    for (unsigned rank = 0; rank < 128000; rank++) {
        char s[16] = {(char)rank};
        const size_t n = rank < 256 ? 1 : (size_t)snprintf(s, sizeof s, "%u", rank);
        for (size_t i = 0; i < n; i += 3) {
            const uint32_t bits = (uint32_t)(uint8_t)s[i] << 16 |
                                  (i + 1 < n ? (uint32_t)(uint8_t)s[i + 1] << 8 : 0) |
                                  (i + 2 < n ? (uint32_t)(uint8_t)s[i + 2] : 0);
            char four[4] = "===";
            for (size_t k = 0; k < 4; k++)
                four[k] = k <= n - i ? digits[bits >> (18 - 6 * k) & 63] : '=';
            tern_buf_add(&b, four, 4);
        }
        tern_buf_printf(&b, " %u\n", rank);
    }
    *ret_len = b.len;
    return b.data;
}

static void fuzz_tiktoken(int n)
{
    static const char *const words[] = {"\n",     " ",  "=",  "AA== 0\n", "\r\n", "127999",
                                        "128000", "-1", "\0", "MQ==",     "\xff", " 99999999999",
                                        NULL};
    static const char text[] = "The quick  brown\tfox 12345 \xf0\x9f\x90\xa7\n\xff ends.";
    char *path = tern_fs_join(work, "tokenizer.model");
    size_t all, len;
    char *seed = tiktoken_seed(&all);

    put(path, seed, all);
    use(path, text, sizeof text - 1);
    ok(taken == 1, "tiktoken: the file that is changed is taken as it is");
    for (int i = 0; i < n; i++) {
        /* Single bits; and more changes, some in the lines of bytes, which are few. */
        const bool bit = i % 3 == 2;
        const size_t part = i % 3 == 1 ? 2400 : all;
        char *data =
            bit ? memcpy(malloc(all + 1), seed, all) : fuzz_mutate(seed, part, words, &len);
        if (bit) {
            len = all;
            data[fuzz_pick((uint32_t)all)] ^= (char)(1 << fuzz_pick(8));
        }
        data = realloc(data, len + all - part + 1);
        memcpy(data + len, seed + part, all - part);
        put(path, data, len + all - part);
        use(path, text, sizeof text - 1);
        free(data);
    }
    free(seed);
    free(path);
    told("tiktoken");
}

int main(void)
{
    if (!mkdtemp(work))
        return 1;
    fuzz_layouts(fuzz_runs(2000));
    fuzz_recipes(fuzz_runs(2000));
    fuzz_configs(fuzz_runs(20000));
    fuzz_models(fuzz_runs(500));
    fuzz_json(fuzz_runs(5000));
    fuzz_tiktoken(fuzz_runs(40));
    tern_fs_remove_tree(work, NULL);
    return tap_done();
}
