/* Low-rank adapters beside the weights of a layer (LoRA).
 *
 * Of a weight that fans out (q, k, v, gate, up) tensor ranks have all of A and their rows of B; of
 * one that gathers (o, down) their columns of A and all of B: what an adapter adds is summed with
 * the product it is added to, and nothing more is sent but the gradients of what is whole. */
#include "core/llama/layers.h"

#include <math.h>

#include "core/base/rand.h"

/* The sizes and places of one adapter here. */
struct pair {
    const tern_real *a, *b;
    tern_real *da, *db;
    int in, out, rank, first; /* `first`: the first of the weight's inputs that is here */
    uint64_t stream;          /* of what is dropped */
};

static bool find(const struct tern_llama *m, int layer, enum tern_model_kind kind, struct pair *p)
{
    const struct tern_model_shard *s = m->shard;
    int D = m->c.head_dim, target = kind - TERN_MODEL_Q;

    if (!m->lora.rank || m->lora_at[layer].a[target] == SIZE_MAX)
        return false;
    const int in[] = {m->c.dim, m->c.dim, m->c.dim, s->heads * D, m->c.dim, m->c.dim, s->ffn};
    const int out[] = {s->heads * D, s->kv_heads * D, s->kv_heads * D, m->c.dim,
                       s->ffn,       s->ffn,          m->c.dim};
    size_t a = m->lora_at[layer].a[target], b = m->lora_at[layer].b[target];
    *p = (struct pair){
        .a = m->lora_w + a,
        .b = m->lora_w + b,
        .da = m->lora_g ? m->lora_g + a : NULL,
        .db = m->lora_g ? m->lora_g + b : NULL,
        .in = in[target],
        .out = out[target],
        .rank = m->lora.rank,
        .stream = (uint64_t)m->lora_layer[layer] * TERN_LLAMA_TARGETS + (uint64_t)target,
    };
    if (kind == TERN_MODEL_O)
        p->first = m->tensor_rank * p->in;
    if (kind == TERN_MODEL_DOWN)
        p->first = (int)((int64_t)m->c.ffn * m->tensor_rank / m->tensor);
    return true;
}

static bool drops(const struct tern_llama *m, const struct tern_llama_batch *b)
{
    return b->drops && m->lora.dropout > 0;
}

/* to[N,in] = what is left of from (which may be `to`): by seed, sample, layer, weight, position and
 * element alone, the same in every layout. */
static void drop(const struct tern_llama *m, const struct pair *p, const struct tern_llama_batch *b,
                 tern_real *to, const tern_real *from)
{
    for (int r = 0; r < b->B; r++) {
        const struct tern_tensor_dropout d = {
            .rate = m->lora.dropout,
            .seed = m->lora.seed,
            .stream = p->stream,
            .row = (b->sample + (uint64_t)r) * (uint64_t)m->seq_len,
            .column = (uint64_t)p->first,
        };
        size_t at = (size_t)(r * b->T) * (size_t)p->in;

        tern_tensor_dropout(to + at, from + at, &d, b->T, p->in);
    }
}

/* The adapter's input: x, or what is left of it. */
static const tern_real *input(const struct tern_llama *m, const struct pair *p,
                              const struct tern_llama_batch *b, const tern_real *x)
{
    if (!drops(m, b))
        return x;
    drop(m, p, b, m->a.dropped, x);
    return m->a.dropped;
}

void tern_llama_adapt(struct tern_llama *m, int layer, enum tern_model_kind kind,
                      const struct tern_llama_batch *b, tern_real *y, int ldy, const tern_real *x)
{
    int N = b->B * b->T;
    struct pair p;

    if (!find(m, layer, kind, &p))
        return;
    x = input(m, &p, b, x);
    tern_llama_linear(m->a.low, x, p.a, N, p.in, p.rank, 0);
    tern_tensor_gemm(false, true, N, p.out, p.rank, (tern_real)m->lora.scale, m->a.low, p.rank, p.b,
                     p.rank, 1, y, ldy);
}

void tern_llama_adapt_grads(struct tern_llama *m, int layer, enum tern_model_kind kind,
                            const struct tern_llama_batch *b, const tern_real *dy, int ldy,
                            const tern_real *x)
{
    const tern_real scale = (tern_real)m->lora.scale;
    int N = b->B * b->T;
    struct pair p;

    if (!find(m, layer, kind, &p))
        return;
    tern_real *low = m->a.low, *dlow = low + (size_t)N * (size_t)p.rank;
    x = input(m, &p, b, x);
    tern_llama_linear(low, x, p.a, N, p.in, p.rank, 0);
    tern_tensor_gemm(true, false, p.out, p.rank, N, scale, dy, ldy, low, p.rank, 1, p.db, p.rank);
    tern_tensor_gemm(false, false, N, p.rank, p.out, scale, dy, ldy, p.b, p.rank, 0, dlow, p.rank);
    tern_tensor_gemm(true, false, p.rank, p.in, N, 1, dlow, p.rank, x, p.in, 1, p.da, p.in);
}

void tern_llama_adapt_dx(struct tern_llama *m, int layer, enum tern_model_kind kind,
                         const struct tern_llama_batch *b, tern_real *dx)
{
    int N = b->B * b->T;
    struct pair p;

    if (!find(m, layer, kind, &p))
        return;
    const tern_real *dlow = m->a.low + (size_t)N * (size_t)p.rank;
    if (!drops(m, b)) {
        tern_tensor_gemm(false, false, N, p.in, p.rank, 1, dlow, p.rank, p.a, p.in, 1, dx, p.in);
        return;
    }
    tern_tensor_gemm(false, false, N, p.in, p.rank, 1, dlow, p.rank, p.a, p.in, 0, m->a.dropped,
                     p.in);
    drop(m, &p, b, m->a.dropped, m->a.dropped);
    tern_tensor_add(dx, m->a.dropped, (size_t)N * (size_t)p.in);
}

void tern_llama_adapters_locate(struct tern_llama *m)
{
    const struct tern_model_shard *s = m->lora_shard;

    for (int l = 0; l < m->shard->n_layers; l++)
        for (int k = 0; k < TERN_LLAMA_TARGETS; k++)
            m->lora_at[l].a[k] = m->lora_at[l].b[k] = SIZE_MAX;
    for (int k = 0; k < s->n_chunks; k++)
        for (int l = 0; l < s->chunks[k].layers; l++)
            m->lora_layer[s->chunks[k].at + l] = s->chunks[k].first + l;
    for (size_t i = 0; i + 1 < s->n_parts; i += 2) {
        const struct tern_model_part *a = &s->parts[i];
        int target = a->whole.kind - TERN_MODEL_Q;
        for (int l = 0; l < m->shard->n_layers; l++) {
            if (m->lora_layer[l] != a->whole.layer)
                continue;
            m->lora_at[l].a[target] = a->offset;
            m->lora_at[l].b[target] = s->parts[i + 1].offset;
        }
    }
}

void tern_llama_adapters_init(struct tern_llama *m)
{
    const struct tern_model_shard *s = m->lora_shard;

    for (size_t i = 0; s && i < s->n_parts; i += 2) {
        const struct tern_model_part *a = &s->parts[i];
        double bound = 1 / sqrt((double)a->whole.shape[1]);

        for (int64_t r = 0; r < a->shape[0]; r++)
            for (int64_t c = 0; c < a->shape[1]; c++) {
                uint64_t e = (uint64_t)(r * a->whole.shape[1] + a->start[1] + c);
                double u = tern_rand_unit(m->lora.seed ^ 0x10ca, a->index, e);
                m->lora_w[a->offset + (uint64_t)(r * a->shape[1] + c)] =
                    (tern_real)(bound * (2 * u - 1));
            }
    }
}
