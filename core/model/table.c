/* The tensors that a config implies, and what a token costs. */
#include "core/model/model.h"

#include <stdio.h>
#include <string.h>

/* One row a kind, in the order of enum tern_model_kind. */
static const struct {
    const char *name; /* inside its layer, or whole */
    int split_axis;   /* out features where it fans out, in features where it gathers */
} kinds[] = {
    [TERN_MODEL_EMBED] = {"model.embed_tokens.weight", 0},
    [TERN_MODEL_Q] = {"self_attn.q_proj.weight", 0},
    [TERN_MODEL_K] = {"self_attn.k_proj.weight", 0},
    [TERN_MODEL_V] = {"self_attn.v_proj.weight", 0},
    [TERN_MODEL_O] = {"self_attn.o_proj.weight", 1},
    [TERN_MODEL_GATE] = {"mlp.gate_proj.weight", 0},
    [TERN_MODEL_UP] = {"mlp.up_proj.weight", 0},
    [TERN_MODEL_DOWN] = {"mlp.down_proj.weight", 1},
    [TERN_MODEL_INPUT_NORM] = {"input_layernorm.weight", -1},
    [TERN_MODEL_POST_NORM] = {"post_attention_layernorm.weight", -1},
    [TERN_MODEL_NORM] = {"model.norm.weight", -1},
    [TERN_MODEL_HEAD] = {"lm_head.weight", 0},
};

enum { FIRST_IN_LAYER = TERN_MODEL_Q, PER_LAYER = TERN_MODEL_POST_NORM - TERN_MODEL_Q + 1 };

/* Sets shape[2] and returns the number of axes. */
static int shape_of(const struct tern_model_config *c, enum tern_model_kind kind, int64_t shape[2])
{
    int64_t q = (int64_t)c->heads * c->head_dim, kv = (int64_t)c->kv_heads * c->head_dim;

    shape[1] = c->dim;
    switch (kind) {
    case TERN_MODEL_EMBED:
    case TERN_MODEL_HEAD:
        shape[0] = c->vocab;
        return 2;
    case TERN_MODEL_Q:
        shape[0] = q;
        return 2;
    case TERN_MODEL_K:
    case TERN_MODEL_V:
        shape[0] = kv;
        return 2;
    case TERN_MODEL_GATE:
    case TERN_MODEL_UP:
        shape[0] = c->ffn;
        return 2;
    case TERN_MODEL_O:
        shape[0] = c->dim;
        shape[1] = q;
        return 2;
    case TERN_MODEL_DOWN:
        shape[0] = c->dim;
        shape[1] = c->ffn;
        return 2;
    case TERN_MODEL_INPUT_NORM:
    case TERN_MODEL_POST_NORM:
    case TERN_MODEL_NORM:
        break;
    }
    shape[0] = c->dim;
    shape[1] = 1;
    return 1;
}

static uint64_t count_of(const struct tern_model_config *c, enum tern_model_kind kind)
{
    int64_t shape[2];

    shape_of(c, kind, shape);
    return (uint64_t)(shape[0] * shape[1]);
}

/* Elements of a layer's tensors before `end`. */
static uint64_t layer_count(const struct tern_model_config *c, enum tern_model_kind end)
{
    uint64_t n = 0;

    for (int k = FIRST_IN_LAYER; k < (int)end; k++)
        n += count_of(c, (enum tern_model_kind)k);
    return n;
}

size_t tern_model_tensors(const struct tern_model_config *c)
{
    return 1 + (size_t)c->layers * PER_LAYER + 1 + (c->tied ? 0 : 1);
}

void tern_model_tensor(const struct tern_model_config *c, size_t i,
                       struct tern_model_tensor *ret_tensor)
{
    uint64_t layer = layer_count(c, TERN_MODEL_NORM), embed = count_of(c, TERN_MODEL_EMBED);
    size_t in_layers = (size_t)c->layers * PER_LAYER;
    struct tern_model_tensor t = {.layer = -1};

    if (i == 0) {
        t.kind = TERN_MODEL_EMBED;
    } else if (i <= in_layers) {
        t.layer = (int)((i - 1) / PER_LAYER);
        t.kind = (enum tern_model_kind)(FIRST_IN_LAYER + (i - 1) % PER_LAYER);
        t.offset = embed + (uint64_t)t.layer * layer + layer_count(c, t.kind);
    } else if (i == in_layers + 1) {
        t.kind = TERN_MODEL_NORM;
        t.offset = embed + (uint64_t)c->layers * layer;
    } else {
        t.kind = TERN_MODEL_HEAD;
        t.offset = embed + (uint64_t)c->layers * layer + count_of(c, TERN_MODEL_NORM);
    }
    if (t.layer >= 0)
        snprintf(t.name, sizeof(t.name), "model.layers.%d.%s", t.layer, kinds[t.kind].name);
    else
        snprintf(t.name, sizeof(t.name), "%s", kinds[t.kind].name);
    t.ndim = shape_of(c, t.kind, t.shape);
    t.split_axis = kinds[t.kind].split_axis;
    t.count = count_of(c, t.kind);
    *ret_tensor = t;
}

int64_t tern_model_tensor_find(const struct tern_model_config *c, const char *name)
{
    struct tern_model_tensor t;
    size_t n = tern_model_tensors(c);

    for (size_t i = 0; i < n; i++) {
        tern_model_tensor(c, i, &t);
        if (strcmp(t.name, name) == 0)
            return (int64_t)i;
    }
    return -1;
}

uint64_t tern_model_params(const struct tern_model_config *c)
{
    return count_of(c, TERN_MODEL_EMBED) * (c->tied ? 1 : 2) +
           (uint64_t)c->layers * layer_count(c, TERN_MODEL_NORM) + count_of(c, TERN_MODEL_NORM);
}

uint64_t tern_model_matmul_params(const struct tern_model_config *c)
{
    return (uint64_t)c->layers * layer_count(c, TERN_MODEL_INPUT_NORM) +
           count_of(c, TERN_MODEL_HEAD);
}

uint64_t tern_model_tensor_bytes(const struct tern_model_config *c, size_t i, int element_bytes)
{
    struct tern_model_tensor t;

    tern_model_tensor(c, i, &t);
    return t.count * (uint64_t)element_bytes;
}

double tern_model_flops_forward(const struct tern_model_config *c, int seq_len)
{
    /* Scores and their product with the values: 2 products, 2 FLOPs each, seq_len / 2 positions. */
    double attention = 2.0 * c->layers * c->heads * (double)c->head_dim * seq_len;

    return 2.0 * (double)tern_model_matmul_params(c) + attention;
}

double tern_model_flops_train(const struct tern_model_config *c, int seq_len)
{
    return 3.0 * tern_model_flops_forward(c, seq_len);
}

double tern_model_flops_adapters(const struct tern_model_config *c, int seq_len,
                                 const struct tern_model_adapters *a)
{
    struct tern_model_adapters matrices = *a;
    const uint64_t qkv = count_of(c, TERN_MODEL_Q) + 2 * count_of(c, TERN_MODEL_K);

    matrices.dora = false;
    return tern_model_flops_train(c, seq_len) - 2.0 * (double)tern_model_matmul_params(c) -
           2.0 * (double)qkv + 6.0 * (double)tern_model_adapter_params(c, &matrices);
}
