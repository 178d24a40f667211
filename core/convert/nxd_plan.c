/* The layout of a Llama on NxD's ranks. */
#include "core/convert/nxd_plan.h"

#include "core/base/assert.h"
#include "core/base/str.h"

#include <stdlib.h>
#include <string.h>

enum { LAYER_TENSORS = 8 }; /* q, k, v (at most three), o, gate_up, down, two norms */

/* ------------------------------------------------------------------ can it be cut */

static int common_divisor(int a, int b)
{
    return b == 0 ? a : common_divisor(b, a % b);
}

/* A count of the config that tensor ranks share evenly. */
static int shared(const char *what, const char *key, int n, int ranks, struct tern_err *err)
{
    return n % ranks == 0 ? 0
                          : tern_err_set(err, TERN_USAGE,
                                         "%s: %s %d is no multiple of the %d tensor ranks, which "
                                         "NxD needs. Choose another --tensor.",
                                         what, key, n, ranks);
}

/* How often each key head is kept, and in which form. */
static int plan_heads(struct tern_convert_nxd_plan *p, const struct tern_convert_nxd *o,
                      const char *what, struct tern_err *err)
{
    const struct tern_model_config *c = &p->config;
    int least = p->tensor / common_divisor(c->kv_heads, p->tensor);

    p->copies = o->kv_replicator ? o->kv_replicator : least;
    if (p->copies % least != 0 || p->tensor % p->copies != 0 ||
        c->heads % (c->kv_heads * p->copies) != 0)
        return tern_err_set(err, TERN_USAGE,
                            "%s: %d copies of its %d key heads cannot be dealt to %d tensor ranks "
                            "with its %d query heads. The fewest are %d (--kv-replicator).",
                            what, p->copies, c->kv_heads, p->tensor, c->heads, least);
    p->slots = c->kv_heads * p->copies / p->tensor;
    p->qkv = o->qkv;
    if (p->qkv == TERN_CONVERT_NXD_AUTO)
        p->qkv = c->heads == c->kv_heads ? TERN_CONVERT_NXD_COALESCED : TERN_CONVERT_NXD_FUSED;
    if (p->qkv == TERN_CONVERT_NXD_COALESCED && c->heads != c->kv_heads)
        return tern_err_set(err, TERN_USAGE,
                            "%s: has %d key heads for %d query heads; NxD coalesces q, k and v "
                            "only where the numbers are equal. Use --qkv fused or split.",
                            what, c->kv_heads, c->heads);
    if (p->qkv == TERN_CONVERT_NXD_SEPARATE && p->copies > 1)
        return tern_err_set(err, TERN_USAGE,
                            "%s: its %d key heads need %d copies for %d tensor ranks, which NxD "
                            "keeps only with --qkv fused or split",
                            what, c->kv_heads, p->copies, p->tensor);
    return 0;
}

int tern_convert_nxd_plan(const struct tern_model_config *c, const struct tern_convert_nxd *o,
                          const char *what, struct tern_convert_nxd_plan *ret_plan,
                          struct tern_err *err)
{
    struct tern_convert_nxd_plan p = {.config = *c, .hw = o->hw};

    p.tensor = o->tensor ? o->tensor : 1;
    p.pipeline = o->pipeline ? o->pipeline : 1;
    p.parts = p.pipeline * (o->interleave ? o->interleave : 1);
    if (c->dim != c->heads * c->head_dim)
        return tern_err_set(err, TERN_USAGE,
                            "%s: hidden_size %d is not its %d heads of %d, as NxD's Llama has them",
                            what, c->dim, c->heads, c->head_dim);
    if (shared(what, "num_attention_heads", c->heads, p.tensor, err) < 0 ||
        shared(what, "intermediate_size", c->ffn, p.tensor, err) < 0 ||
        shared(what, "vocab_size", c->vocab, p.tensor, err) < 0)
        return -1;
    if (c->layers < p.parts)
        return tern_err_set(err, TERN_USAGE,
                            "%s: has %d layers, fewer than %d parts (pipeline ranks x interleave)",
                            what, c->layers, p.parts);
    if (plan_heads(&p, o, what, err) < 0)
        return -1;
    *ret_plan = p;
    return 0;
}

/* ------------------------------------------------------------------ layers */

void tern_convert_nxd_part(const struct tern_convert_nxd_plan *p, int i, int *ret_first,
                           int *ret_layers)
{
    int equal = p->config.layers / p->parts, over = p->config.layers % p->parts;
    int larger = i - (p->parts - over); /* parts before this one that have one more */

    tern_assert(i >= 0 && i < p->parts);
    *ret_first = i * equal + (larger > 0 ? larger : 0);
    *ret_layers = equal + (larger >= 0);
}

/* ------------------------------------------------------------------ tensors */

/* The list as it grows. */
struct list {
    const struct tern_convert_nxd_plan *plan;
    struct tern_convert_nxd_tensor *t;
    size_t n;
};

static void add_source(struct list *l, const char *name)
{
    const struct tern_convert_nxd_plan *p = l->plan;
    struct tern_convert_nxd_tensor *t = &l->t[l->n - 1];
    int64_t i = tern_model_tensor_find(&p->config, name);
    struct tern_model_tensor whole;

    tern_assert(i >= 0 && t->sources < 3, "%s", name);
    tern_model_tensor(&p->config, (size_t)i, &whole);
    bool keys = whole.kind == TERN_MODEL_K || whole.kind == TERN_MODEL_V;
    int64_t rows = whole.shape[0];
    if (t->axis == 0)
        rows = rows * (keys ? p->copies : 1) / p->tensor;
    t->source[t->sources++] = (size_t)i;
    t->ndim = whole.ndim;
    t->shape[0] += (uint64_t)rows;
    t->shape[1] = (uint64_t)(t->axis == 1 ? whole.shape[1] / p->tensor : whole.shape[1]);
}

/* `name` of layer `layer` (-1: outside), made of `from`, of which there are up to three. */
static void add(struct list *l, int layer, int axis, const char *name, const char *const from[3])
{
    struct tern_convert_nxd_tensor *t = &l->t[l->n++];
    char source[96];

    *t = (struct tern_convert_nxd_tensor){.axis = axis};
    if (layer < 0)
        snprintf(t->name, sizeof t->name, "%s", name);
    else
        snprintf(t->name, sizeof t->name, "model.layers.%d.%s", layer, name);
    for (int i = 0; i < 3 && from[i]; i++) {
        if (layer < 0)
            snprintf(source, sizeof source, "%s", from[i]);
        else
            snprintf(source, sizeof source, "model.layers.%d.%s", layer, from[i]);
        add_source(l, source);
    }
}

static void add_qkv(struct list *l, int layer)
{
    static const char *const from[3] = {"self_attn.q_proj.weight", "self_attn.k_proj.weight",
                                        "self_attn.v_proj.weight"};
    static const char *const split[3] = {"self_attn.qkv_proj.weight_q",
                                         "self_attn.qkv_proj.weight_k",
                                         "self_attn.qkv_proj.weight_v"};
    enum tern_convert_nxd_qkv qkv = l->plan->qkv;

    if (qkv == TERN_CONVERT_NXD_FUSED || qkv == TERN_CONVERT_NXD_COALESCED) {
        add(l, layer, 0,
            qkv == TERN_CONVERT_NXD_FUSED ? "self_attn.qkv_proj.weight_qkv"
                                          : "self_attn.qkv_proj.weight",
            from);
        return;
    }
    for (int i = 0; i < 3; i++)
        add(l, layer, 0, qkv == TERN_CONVERT_NXD_SPLIT ? split[i] : from[i],
            (const char *const[3]){from[i]});
}

static void add_layer(struct list *l, int layer)
{
    add_qkv(l, layer);
    add(l, layer, 1, "self_attn.o_proj.weight", (const char *const[3]){"self_attn.o_proj.weight"});
    add(l, layer, 0, "mlp.gate_up_proj.weight",
        (const char *const[3]){"mlp.gate_proj.weight", "mlp.up_proj.weight"});
    add(l, layer, 1, "mlp.down_proj.weight", (const char *const[3]){"mlp.down_proj.weight"});
    add(l, layer, -1, "input_layernorm.weight", (const char *const[3]){"input_layernorm.weight"});
    add(l, layer, -1, "post_attention_layernorm.weight",
        (const char *const[3]){"post_attention_layernorm.weight"});
}

int tern_convert_nxd_list(const struct tern_convert_nxd_plan *p, int pipeline_rank,
                          struct tern_convert_nxd_tensor **ret_tensors, size_t *ret_n,
                          struct tern_err *err)
{
    static const char embed[] = "model.embed_tokens.weight", head[] = "lm_head.weight";
    struct list l = {.plan = p};
    size_t most = (size_t)p->config.layers * LAYER_TENSORS + 3;
    int first, layers;

    l.t = tern_alloc(most, sizeof *l.t, "list of tensors", err);
    if (!l.t)
        return -1;
    if (pipeline_rank == 0)
        add(&l, -1, 0, embed, (const char *const[3]){embed});
    for (int i = pipeline_rank; i < p->parts; i += p->pipeline) {
        tern_convert_nxd_part(p, i, &first, &layers);
        for (int k = 0; k < layers; k++)
            add_layer(&l, first + k);
    }
    if (pipeline_rank == p->pipeline - 1) {
        add(&l, -1, -1, "model.norm.weight", (const char *const[3]){"model.norm.weight"});
        add(&l, -1, 0, head, (const char *const[3]){p->config.tied ? embed : head});
    }
    tern_assert_cmp(l.n, <=, most);
    *ret_tensors = l.t;
    *ret_n = l.n;
    return 0;
}

/* ------------------------------------------------------------------ rows and columns */

/* Key head of slot `i` of a tensor rank, and which of its copies that is. */
static void slot(const struct tern_convert_nxd_plan *p, int rank, int i, int *head, int *copy)
{
    int row = rank * p->slots + i;

    if (p->hw == TERN_CONVERT_NXD_TRN1) {
        *head = row % p->config.kv_heads;
        *copy = row / p->config.kv_heads;
    } else { /* neighbours hold the same heads */
        *head = rank / p->copies * p->slots + i;
        *copy = rank % p->copies;
    }
}

size_t tern_convert_nxd_runs(const struct tern_convert_nxd_plan *p,
                             const struct tern_model_tensor *t, int rank,
                             struct tern_convert_nxd_run *to)
{
    int64_t queries = (int64_t)p->config.heads / p->config.kv_heads, part = queries / p->copies;
    bool keys = t->kind == TERN_MODEL_K || t->kind == TERN_MODEL_V;
    int64_t all = t->shape[t->kind == TERN_MODEL_O || t->kind == TERN_MODEL_DOWN];
    size_t n = 0;

    tern_assert(rank >= 0 && rank < p->tensor);
    if (!keys && t->kind != TERN_MODEL_Q && t->kind != TERN_MODEL_O) {
        to[0] = (struct tern_convert_nxd_run){all / p->tensor * rank, all / p->tensor};
        return 1;
    }
    for (int i = 0; i < p->slots; i++) {
        int head, copy;
        slot(p, rank, i, &head, &copy);
        int64_t start = keys ? head : head * queries + copy * part, count = keys ? 1 : part;
        start *= p->config.head_dim;
        count *= p->config.head_dim;
        if (n > 0 && to[n - 1].start + to[n - 1].count == start)
            to[n - 1].count += count;
        else
            to[n++] = (struct tern_convert_nxd_run){start, count};
        tern_assert(start >= 0 && start + count <= all, "%s", t->name);
    }
    return n;
}
