/* The plan of a run as text: `tern train --explain`. */
#include "core/plan/plan.h"

#include <inttypes.h>
#include <stdio.h>

static void print_model(const struct tern_recipe *r, const struct tern_model_config *c,
                        const struct tern_model_adapters *a, struct tern_buf *to)
{
    uint64_t all = tern_model_params(c), adapters = tern_model_adapter_params(c, a);

    tern_buf_printf(to,
                    "%s: %" PRIu64
                    " parameters: %d layers of %d, %d heads of %d over %d key heads, "
                    "ffn %d, vocabulary %d%s\n",
                    r->name, tern_model_params(c), c->layers, c->dim, c->heads, c->head_dim,
                    c->kv_heads, c->ffn, c->vocab, c->tied ? ", tied" : "");
    if (a->rank == 0) {
        tern_buf_printf(to, "trained: all %" PRIu64 " parameters\n", all);
        return;
    }
    tern_buf_printf(to, "trained: %" PRIu64 " parameters (%.4f %%): adapters of rank %d%s beside",
                    adapters, 100 * (double)adapters / (double)(all + adapters), a->rank,
                    a->dora ? " and magnitudes (DoRA)" : "");
    for (int t = 0; t < TERN_LORA_TARGETS; t++)
        if (a->targets >> t & 1)
            tern_buf_printf(to, " %s", tern_recipe_lora_names[t]);
    tern_buf_puts(to, "\n");
}

/* What computes, on the machine that is asked: nodes of another kind have other kernels. */
static void print_compute(const struct tern_recipe *r, struct tern_buf *to)
{
    bool bf16 = r->precision == TERN_PRECISION_BF16;

    if (bf16)
        tern_buf_printf(to, "precision: parameters and activations in bf16%s\n",
                        tern_plan_master(r) ? "; gradients, master copy and moments in fp32"
                                            : "; adapters, their gradients and moments in fp32");
    tern_buf_printf(to, "kernels: %s; unit of the products: %s (of the machine that says this)\n",
                    tern_tensor_kernels_expected(),
                    bf16 ? tern_tensor_bf16_unit_expected() : "fp32");
    if (bf16)
        tern_buf_printf(to, "%s\n", tern_tensor_bf16_describe());
    tern_buf_puts(to, "limit of mfu: the unit's rate in the trainer's own matrix product, measured "
                      "as an attempt begins\n");
}

static void print_layout(const struct tern_recipe *r, const struct tern_plan_rank *p, int64_t ranks,
                         struct tern_buf *to)
{
    const int64_t tokens = r->batch.global * r->batch.seq_len;
    const struct tern_model_place *w = &p->place;

    tern_buf_printf(to, "%" PRId64 " ranks: tensor %d x data %d x pipeline %d", ranks, w->tensor,
                    p->data, w->pipeline);
    if (w->interleave > 1)
        tern_buf_printf(to, ", %d chunks of layers a stage", w->interleave);
    tern_buf_printf(to, "\nrank = tensor + %d x (data + %d x stage)\n", w->tensor, p->data);
    tern_buf_printf(to,
                    "a step: %" PRId64 " sequences x %" PRId64 " = %" PRId64 " tokens: %d data "
                    "ranks x %" PRId64 " micro-batches of %" PRId64 "\n",
                    r->batch.global, r->batch.seq_len, tokens, p->data, p->micro_batches,
                    r->batch.micro);
    tern_buf_printf(to, "the run: %" PRId64 " steps", r->steps);
    if (r->epochs > 0)
        tern_buf_printf(to, " (%g epochs)", r->epochs);
    double all = (double)r->steps * (double)tokens;
    if (all < 1e9)
        tern_buf_printf(to, ", %.0f tokens\n", all);
    else
        tern_buf_printf(to, ", %.4g billion tokens\n", all / 1e9);
    if (w->pipeline > 1)
        tern_buf_printf(to, "of a step's time %.1f %% are the pipeline's filling and draining\n",
                        100.0 * (w->pipeline - 1) /
                            (w->pipeline - 1 + (double)p->micro_batches * w->interleave));
}

/* All-gathers of a layer's backward pass with sequence parallelism: the gradients of both halves,
 * the inputs of trained first weights, and those of recomputation. */
static int gathers_backward(const struct tern_recipe *r)
{
    const unsigned attention = 1U << TERN_LORA_Q | 1U << TERN_LORA_K | 1U << TERN_LORA_V;
    const unsigned ffn = 1U << TERN_LORA_GATE | 1U << TERN_LORA_UP;
    const unsigned learn = r->lora.rank ? r->lora.targets : attention | ffn;

    return 2 + !!(learn & attention) + !!(learn & ffn) +
           (r->parallel.recompute == TERN_RECOMPUTE_FULL ? 2 : 0);
}

/* Sums of a layer's backward pass: recomputation makes all of the forward pass but its last sum. */
static int sums_backward(const struct tern_recipe *r)
{
    return r->parallel.recompute == TERN_RECOMPUTE_FULL ? 3 : 2;
}

/* The messages of each group of ranks in a step. */
static int print_traffic(const struct tern_recipe *r, const struct tern_model_config *c,
                         const struct tern_plan_rank *p, struct tern_buf *to, struct tern_err *err)
{
    const struct tern_model_place *w = &p->place;
    struct tern_plan_memory m;
    char bytes[32];
    bool half = r->precision == TERN_PRECISION_BF16;
    uint64_t elements = (uint64_t)(r->batch.micro * r->batch.seq_len * c->dim);
    uint64_t stream = elements * sizeof(tern_real);

    if (tern_plan_host_rank(r, c, p, &m, err) < 0)
        return -1;
    if (w->tensor > 1 && r->parallel.sequence)
        tern_buf_printf(to,
                        "tensor ranks, a layer: 2 all-gathers and 2 reduce-scatters forward, %d "
                        "and %d backward; each of %s\n",
                        gathers_backward(r), sums_backward(r),
                        tern_str_bytes(bytes, sizeof bytes, stream));
    else if (w->tensor > 1)
        tern_buf_printf(to,
                        "tensor ranks, a layer: 2 all-reduces forward, %d backward; each of %s\n",
                        sums_backward(r), tern_str_bytes(bytes, sizeof bytes, stream));
    if (w->tensor > c->kv_heads)
        tern_buf_printf(to, "key heads: each on %d tensor ranks\n", w->tensor / c->kv_heads);
    if (w->pipeline > 1)
        tern_buf_printf(to, "pipeline neighbours: %s a micro-batch and direction\n",
                        tern_str_bytes(bytes, sizeof bytes,
                                       (half ? elements * sizeof(uint16_t) : stream) /
                                           (r->parallel.sequence ? (uint64_t)w->tensor : 1)));
    if (w->pipeline > 1 && c->tied && !p->adapters.rank)
        tern_buf_printf(to,
                        "first and last stage: the gradient of the embedding that is the head, "
                        "too, once a step: %s\n",
                        tern_str_bytes(bytes, sizeof bytes,
                                       (uint64_t)((c->vocab + w->tensor - 1) / w->tensor) *
                                           (uint64_t)c->dim * sizeof(tern_real)));
    if (p->data > 1)
        tern_buf_printf(to,
                        r->parallel.zero
                            ? "data ranks: gradients by reduce-scatter (%s of stage 0), each "
                              "updates its rows (ZeRO-1), parameters by all-gather\n"
                            : "data ranks: gradients by all-reduce (%s of stage 0), all update "
                              "all\n",
                        tern_str_bytes(bytes, sizeof bytes, m.grads));
    return 0;
}

/* The first passes of a stage: F3 is micro-batch 3 forward, B3 backward; F3b in the second chunk.
 */
static void print_passes(const struct tern_plan_pipeline *p, int stage, int interleave,
                         struct tern_buf *to)
{
    enum { COLUMNS = 78 };
    size_t start = to->len, i = 0;

    tern_buf_printf(to, "stage %-3d", stage);
    for (; i < p->n && to->len - start < COLUMNS - 8; i++) {
        const struct tern_plan_step *s = &p->steps[i];
        tern_buf_printf(to, " %c%" PRId64, s->backward ? 'B' : 'F', s->micro);
        if (interleave > 1)
            tern_buf_printf(to, "%c", 'a' + s->chunk % 26);
    }
    tern_buf_puts(to, i < p->n ? " ...\n" : "\n");
}

/* "0-9,40-49": of many chunks the first two and the last. */
static void print_layers(const struct tern_model_shard *s, char *text, size_t size)
{
    size_t len = 0;

    for (int k = 0; k < s->n_chunks && len < size; k++) {
        if (k == 2 && s->n_chunks > 3) {
            len += (size_t)snprintf(text + len, size - len, ",..");
            k = s->n_chunks - 1;
        }
        len += (size_t)snprintf(text + len, size - len, "%s%d-%d", k ? "," : "", s->chunks[k].first,
                                s->chunks[k].first + s->chunks[k].layers - 1);
    }
}

/* Columns that layers take: numbers of up to four digits, of many chunks up to three. */
static int layers_width(const struct tern_recipe *r)
{
    return r->parallel.interleave == 1 ? 9 : r->parallel.interleave == 2 ? 19 : 30;
}

static int print_stage(const struct tern_recipe *r, const struct tern_model_config *c,
                       int64_t ranks, int stage, struct tern_buf *to, struct tern_err *err)
{
    struct tern_plan_rank p;
    struct tern_plan_memory m;
    char layers[64] = "", range[32], bytes[7][16];
    int64_t across = ranks / r->parallel.pipeline;

    /* The last rank of a stage has the remainders. */
    if (tern_plan_rank(r, ranks, (stage + 1) * across - 1, &p, err) < 0 ||
        tern_plan_host_rank(r, c, &p, &m, err) < 0)
        return -1;
    struct tern_model_shard *s = tern_model_shard_new(c, &p.place, err);
    if (!s)
        return -1;
    print_layers(s, layers, sizeof layers);
    snprintf(range, sizeof range, "%" PRId64 "-%" PRId64, stage * across, (stage + 1) * across - 1);
    tern_buf_printf(to, "%-5d %-11s %-*s %-2s %9s %9s %9s %11s %8s %8s %8s\n", stage, range,
                    layers_width(r), layers,
                    s->embed_bucket >= 0  ? (s->head_bucket >= 0 ? "eh" : "e")
                    : s->head_bucket >= 0 ? "h"
                                          : "",
                    tern_str_bytes(bytes[0], sizeof *bytes, m.params),
                    tern_str_bytes(bytes[1], sizeof *bytes, m.grads),
                    tern_str_bytes(bytes[2], sizeof *bytes, m.moments),
                    tern_str_bytes(bytes[3], sizeof *bytes, m.activations),
                    tern_str_bytes(bytes[4], sizeof *bytes, m.staging),
                    tern_str_bytes(bytes[5], sizeof *bytes, m.process),
                    tern_str_bytes(bytes[6], sizeof *bytes, m.total));
    tern_model_shard_free(s);
    return 0;
}

int tern_plan_explain(const struct tern_recipe *r, const struct tern_model_config *c, int64_t ranks,
                      struct tern_buf *to, struct tern_err *err)
{
    struct tern_plan_rank p;

    if (tern_plan_rank(r, ranks, 0, &p, err) < 0 || tern_plan_check_positions(r, c, err) < 0 ||
        tern_model_place_check(c, &p.place, r->path, err) < 0)
        return -1;
    print_model(r, c, &p.adapters, to);
    print_compute(r, to);
    print_layout(r, &p, ranks, to);
    if (print_traffic(r, c, &p, to, err) < 0)
        return -1;
    tern_buf_puts(to, "\nMemory of a rank (e: embedding, h: head)\n");
    tern_buf_printf(to, "%-5s %-11s %-*s %9s %9s %9s %11s %8s %8s %8s\n", "stage", "ranks",
                    layers_width(r) + 3, "layers", "weights", "gradients", "optimizer",
                    "activations", "staging", "process", "sum");
    for (int s = 0; s < p.place.pipeline; s++)
        if (print_stage(r, c, ranks, s, to, err) < 0)
            return -1;
    if (p.place.pipeline > 1)
        tern_buf_puts(to, "\nOrder of passes: F forward, B backward, the number is the "
                          "micro-batch's\n");
    for (int s = 0; s < p.place.pipeline && p.place.pipeline > 1; s++) {
        const struct tern_plan_stage stage = {p.place.pipeline, s, p.place.interleave,
                                              p.micro_batches};
        struct tern_plan_pipeline plan;
        if (tern_plan_pipeline(&stage, &plan, err) < 0)
            return -1;
        print_passes(&plan, s, p.place.interleave, to);
        tern_plan_pipeline_free(&plan);
    }
    return tern_buf_check(to, "the explanation", err);
}
