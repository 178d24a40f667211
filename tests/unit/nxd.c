/* core/convert/nxd_plan.h: every row and column of a Llama is on the rank where NxD's trainer looks
 * for it. */
#include "core/base/str.h"
#include "core/convert/nxd_plan.h"
#include "tests/unit/tap.h"

static struct tern_model_config llama(int heads, int kv_heads, int layers, bool tied)
{
    char *text = tern_strf("{\"model_type\": \"llama\", \"hidden_size\": %d, "
                           "\"intermediate_size\": 192, \"num_hidden_layers\": %d, "
                           "\"num_attention_heads\": %d, \"num_key_value_heads\": %d, "
                           "\"vocab_size\": 128, \"max_position_embeddings\": 64, "
                           "\"tie_word_embeddings\": %s}",
                           heads * 4, layers, heads, kv_heads, tied ? "true" : "false");
    struct tern_model_config c = {0};
    struct tern_err err = {0};

    if (tern_model_config_parse(text, strlen(text), "config", &c, &err) < 0)
        ok(0, "%s", err.text);
    free(text);
    return c;
}

static struct tern_model_tensor of_kind(const struct tern_model_config *c,
                                        enum tern_model_kind kind)
{
    struct tern_model_tensor t = {0};

    for (size_t i = 0; i < tern_model_tensors(c); i++) {
        tern_model_tensor(c, i, &t);
        if (t.kind == kind)
            break;
    }
    return t;
}

/* The heads (of `rows` rows each) on a rank, one by one. */
static int heads_of(const struct tern_convert_nxd_plan *p, enum tern_model_kind kind, int rank,
                    int *to)
{
    struct tern_model_tensor t = of_kind(&p->config, kind);
    struct tern_convert_nxd_run runs[256];
    size_t n = tern_convert_nxd_runs(p, &t, rank, runs);
    int heads = 0, rows = p->config.head_dim;

    for (size_t i = 0; i < n; i++)
        for (int64_t k = 0; k < runs[i].count / rows; k++)
            to[heads++] = (int)(runs[i].start / rows + k);
    return heads;
}

/* NxD's model: of a rank's heads in their order, as many queries as fit share a key head. */
static void test_pairs(int heads, int kv_heads, int tensor, int copies, enum tern_convert_nxd_hw hw)
{
    struct tern_model_config c = llama(heads, kv_heads, 2, false);
    struct tern_convert_nxd o = {.tensor = tensor, .kv_replicator = copies, .hw = hw};
    struct tern_convert_nxd_plan p = {0};
    struct tern_err err = {0};
    int q[256], k[256], o_proj[256], seen[256] = {0}, keys[256] = {0}, wrong = 0, neighbours = 0;

    ok(tern_convert_nxd_plan(&c, &o, "m", &p, &err) == 0,
       "%d query and %d key heads are planned for %d tensor ranks: %s", heads, kv_heads, tensor,
       err.text);
    if (err.code)
        return;
    for (int r = 0; r < tensor; r++) {
        int n_q = heads_of(&p, TERN_MODEL_Q, r, q), n_k = heads_of(&p, TERN_MODEL_K, r, k);
        wrong += n_q != heads / tensor || n_k != kv_heads * p.copies / tensor;
        wrong += heads_of(&p, TERN_MODEL_O, r, o_proj) != n_q ||
                 memcmp(q, o_proj, sizeof *q * (size_t)n_q) != 0;
        for (int i = 0; i < n_q; i++) {
            seen[q[i]]++;
            wrong += k[i / (n_q / n_k)] != q[i] / (heads / kv_heads);
        }
        for (int i = 0; i < n_k; i++)
            keys[k[i]]++;
        int group = hw == TERN_CONVERT_NXD_TRN1 ? r % (tensor / p.copies) : r / p.copies;
        neighbours += k[0] == group * n_k % kv_heads;
    }
    for (int i = 0; i < heads; i++)
        wrong += seen[i] != 1;
    for (int i = 0; i < kv_heads; i++)
        wrong += keys[i] != p.copies;
    ok(wrong == 0,
       "%d query and %d key heads, %d ranks, %s: each query meets its key head, each rank has its "
       "share",
       heads, kv_heads, tensor, hw == TERN_CONVERT_NXD_TRN1 ? "trn1" : "trn2");
    ok(neighbours == tensor,
       "%d query and %d key heads, %d ranks, %s: ranks that share a key head's gradient hold it",
       heads, kv_heads, tensor, hw == TERN_CONVERT_NXD_TRN1 ? "trn1" : "trn2");
}

/* The example in NxD's converter: 64 heads, 16 key heads, 4 copies. */
static void test_example(void)
{
    struct tern_model_config c = llama(64, 16, 2, false);
    struct tern_convert_nxd o = {.tensor = 64};
    struct tern_convert_nxd_plan p = {0};
    int q[64], k[64], wrong = 0;

    ok(tern_convert_nxd_plan(&c, &o, "m", &p, NULL) == 0 && p.copies == 4 &&
           p.qkv == TERN_CONVERT_NXD_FUSED,
       "16 key heads on 64 ranks have 4 copies; grouped queries are fused");
    for (int r = 0; r < 64; r++) {
        heads_of(&p, TERN_MODEL_Q, r, q + r);
        heads_of(&p, TERN_MODEL_K, r, k + r);
        wrong += q[r] != r % 16 * 4 + r / 16 || k[r] != r % 16;
    }
    ok(wrong == 0, "trn1: Q0 Q4 ... Q60 Q1 ..., with K0 K1 ... K15 K0 ...");
    p.hw = TERN_CONVERT_NXD_TRN2;
    for (int r = 0; r < 64; r++) {
        heads_of(&p, TERN_MODEL_Q, r, q + r);
        heads_of(&p, TERN_MODEL_K, r, k + r);
        wrong += q[r] != r || k[r] != r / 4;
    }
    ok(wrong == 0, "trn2: Q0 Q1 ..., with K0 K0 K0 K0 K1 ...");
}

static void test_parts(void)
{
    static const int want[] = {1, 1, 1, 1, 1, 2, 2, 2};
    struct tern_model_config c = llama(8, 8, 11, false);
    struct tern_convert_nxd o = {.pipeline = 8};
    struct tern_convert_nxd_plan p = {0};
    int first, layers, at = 0, wrong = 0;

    ok(tern_convert_nxd_plan(&c, &o, "m", &p, NULL) == 0,
       "11 layers are planned for 8 pipeline ranks");
    for (int i = 0; i < 8; i++) {
        tern_convert_nxd_part(&p, i, &first, &layers);
        wrong += first != at || layers != want[i];
        at += layers;
    }
    ok(wrong == 0 && at == 11, "of 11 layers on 8 pipeline ranks the last three have one more");
}

static char *names(const struct tern_convert_nxd_plan *p, int pipeline_rank)
{
    struct tern_convert_nxd_tensor *t;
    struct tern_buf b = {0};
    size_t n;

    if (tern_convert_nxd_list(p, pipeline_rank, &t, &n, NULL) < 0)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        tern_buf_printf(&b, "%s", t[i].name);
        for (int d = 0; d < t[i].ndim; d++)
            tern_buf_printf(&b, "%s%d", d ? "x" : " ", (int)t[i].shape[d]);
        tern_buf_puts(&b, t[i].axis == 0 ? " rows\n" : t[i].axis == 1 ? " columns\n" : " whole\n");
    }
    free(t);
    return b.data;
}

static void test_names(void)
{
    struct tern_model_config c = llama(8, 2, 3, true);
    struct tern_convert_nxd o = {.tensor = 4, .pipeline = 2};
    struct tern_convert_nxd_plan p = {0};
    char *got;

    ok(tern_convert_nxd_plan(&c, &o, "m", &p, NULL) == 0, "a tied model is planned");
    got = names(&p, 0);
    is(got,
       "model.embed_tokens.weight 32x32 rows\n"
       "model.layers.0.self_attn.qkv_proj.weight_qkv 16x32 rows\n"
       "model.layers.0.self_attn.o_proj.weight 32x8 columns\n"
       "model.layers.0.mlp.gate_up_proj.weight 96x32 rows\n"
       "model.layers.0.mlp.down_proj.weight 32x48 columns\n"
       "model.layers.0.input_layernorm.weight 32 whole\n"
       "model.layers.0.post_attention_layernorm.weight 32 whole\n",
       "the first pipeline rank has the embedding and the fewer layers");
    free(got);
    got = names(&p, 1);
    has(got, "lm_head.weight 32x32 rows\n", "a tied head is written on the last pipeline rank");
    has(got, "model.norm.weight 32 whole\n", "the last pipeline rank has the norm");
    ok(got && strstr(got, "layers.1.") && strstr(got, "layers.2.") && !strstr(got, "embed"),
       "the last pipeline rank has the other layers, and no embedding");
    free(got);
    static const struct {
        enum tern_convert_nxd_qkv qkv;
        const char *name;
    } forms[] = {{TERN_CONVERT_NXD_SPLIT, "self_attn.qkv_proj.weight_k 4x32 rows\n"},
                 {TERN_CONVERT_NXD_FUSED, "self_attn.qkv_proj.weight_qkv 16x32 rows\n"}};
    for (size_t i = 0; i < 2; i++) {
        o.qkv = forms[i].qkv;
        ok(tern_convert_nxd_plan(&c, &o, "m", &p, NULL) == 0, "form %zu of q, k and v is planned",
           i);
        got = names(&p, 1);
        has(got, forms[i].name, "the trainer's name: %s", forms[i].name);
        free(got);
    }
    c = llama(8, 8, 3, false);
    o = (struct tern_convert_nxd){.tensor = 4};
    ok(tern_convert_nxd_plan(&c, &o, "m", &p, NULL) == 0,
       "a model without grouped queries is planned");
    got = names(&p, 0);
    has(got, "layers.2.self_attn.qkv_proj.weight 24x32 rows\n",
        "without grouped queries, q, k and v are coalesced");
    free(got);
    o.qkv = TERN_CONVERT_NXD_SEPARATE;
    ok(tern_convert_nxd_plan(&c, &o, "m", &p, NULL) == 0, "q, k and v are planned apart");
    got = names(&p, 0);
    has(got, "layers.2.self_attn.k_proj.weight 8x32 rows\n",
        "q, k and v apart have Hugging Face's names");
    free(got);
}

/* Parts of pipeline ranks that take turns. */
static void test_interleave(void)
{
    struct tern_model_config c = llama(8, 8, 5, false);
    struct tern_convert_nxd o = {.pipeline = 2, .interleave = 2};
    struct tern_convert_nxd_plan p = {0};

    ok(tern_convert_nxd_plan(&c, &o, "m", &p, NULL) == 0,
       "two parts on each of two pipeline ranks are planned");
    char *first = names(&p, 0), *last = names(&p, 1);
    ok(first && strstr(first, "layers.0.") && strstr(first, "layers.2.") &&
           !strstr(first, "layers.1.") && !strstr(first, "layers.3."),
       "the first pipeline rank has parts 0 and 2");
    ok(last && strstr(last, "layers.1.") && strstr(last, "layers.3.") && strstr(last, "layers.4."),
       "the last pipeline rank has parts 1 and 3, and the layer that is left over");
    free(first);
    free(last);
}

static void refused(int heads, int kv_heads, struct tern_convert_nxd o, const char *words)
{
    struct tern_model_config c = llama(heads, kv_heads, 4, false);
    struct tern_convert_nxd_plan p = {.parts = -7};
    struct tern_err err = {0};

    ok(tern_convert_nxd_plan(&c, &o, "m", &p, &err) < 0 && err.code == TERN_USAGE &&
           p.parts == -7 && strstr(err.text, words),
       "export to NxD is refused: %s", err.text);
}

int main(void)
{
    static const int cases[][4] = {{8, 8, 1, 0},   {8, 8, 8, 0},   {16, 4, 4, 0}, {16, 4, 8, 0},
                                   {16, 4, 16, 0}, {16, 8, 2, 0},  {16, 4, 4, 2}, {24, 6, 4, 0},
                                   {64, 8, 32, 4}, {32, 8, 32, 0}, {16, 2, 8, 8}, {16, 1, 8, 0}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int hw = 0; hw < 2; hw++)
            test_pairs(cases[i][0], cases[i][1], cases[i][2], cases[i][3],
                       (enum tern_convert_nxd_hw)hw);
    test_example();
    test_parts();
    test_names();
    test_interleave();
    refused(8, 8, (struct tern_convert_nxd){.tensor = 3}, "num_attention_heads 8 is no multiple");
    refused(20, 20, (struct tern_convert_nxd){.tensor = 5}, "intermediate_size 192 is no multiple");
    refused(12, 12, (struct tern_convert_nxd){.tensor = 3}, "vocab_size 128 is no multiple");
    refused(8, 8, (struct tern_convert_nxd){.pipeline = 5}, "has 4 layers, fewer than 5 parts");
    refused(8, 2, (struct tern_convert_nxd){.tensor = 8, .kv_replicator = 2}, "The fewest are 4");
    refused(12, 2, (struct tern_convert_nxd){.tensor = 2, .kv_replicator = 3}, "cannot be dealt");
    refused(8, 2, (struct tern_convert_nxd){.tensor = 2, .kv_replicator = 8}, "cannot be dealt");
    refused(8, 2, (struct tern_convert_nxd){.qkv = TERN_CONVERT_NXD_COALESCED},
            "only where the numbers are equal");
    refused(8, 2, (struct tern_convert_nxd){.tensor = 4, .qkv = TERN_CONVERT_NXD_SEPARATE},
            "--qkv fused or split");
    return tap_done();
}
