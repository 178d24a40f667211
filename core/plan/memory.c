/* Bytes that a rank needs: weights, gradients, optimizer, activations. */
#include "core/plan/plan.h"

#include "core/base/assert.h"
#include "core/llama/llama.h"
#include "core/tensor/tensor.h"

#include <math.h>

/* The recipe counts targets as core/model does: q, k, v, o, gate, up, down. */
static struct tern_model_adapters adapters(const struct tern_recipe *r)
{
    double rank = (double)r->lora.rank;

    return (struct tern_model_adapters){
        .rank = (int)r->lora.rank,
        .targets = r->lora.targets,
        .scale = rank > 0 ? r->lora.alpha / (r->lora.rslora ? sqrt(rank) : rank) : 0,
        .dropout = r->lora.dropout,
        .dora = r->lora.dora,
        .seed = (uint64_t)r->data.seed,
    };
}

int tern_plan_rank(const struct tern_recipe *r, int64_t world, int64_t rank,
                   struct tern_plan_rank *ret_rank, struct tern_err *err)
{
    int64_t data, micro_batches, tensor = r->parallel.tensor;

    if (tern_recipe_split(r, world, &data, &micro_batches, err) < 0)
        return -1;
    if (r->parallel.interleave > 1 && micro_batches % r->parallel.pipeline)
        return tern_recipe_fail(r, "parallel.interleave", err,
                                "%lld micro-batches a step and data-parallel rank are no multiple "
                                "of the %lld pipeline stages, as interleaving requires.",
                                (long long)micro_batches, (long long)r->parallel.pipeline);
    *ret_rank = (struct tern_plan_rank){
        .place = {.tensor = (int)tensor,
                  .tensor_rank = (int)(rank % tensor),
                  .pipeline = (int)r->parallel.pipeline,
                  .stage = (int)(rank / (tensor * data)),
                  .interleave = (int)r->parallel.interleave},
        .data = (int)data,
        .data_rank = (int)(rank / tensor % data),
        .micro_batches = micro_batches,
        .adapters = adapters(r),
        .wired = world > r->launch.ranks_per_node,
    };
    return 0;
}

int tern_plan_check_positions(const struct tern_recipe *r, const struct tern_model_config *c,
                              struct tern_err *err)
{
    if (r->batch.seq_len <= c->max_position)
        return 0;
    return tern_recipe_fail(r, "batch.seq_len", err,
                            "%lld tokens, but the model was made for %d "
                            "(max_position_embeddings).",
                            (long long)r->batch.seq_len, c->max_position);
}

void tern_plan_llama(const struct tern_recipe *r, const struct tern_model_config *c,
                     const struct tern_plan_rank *p, const int *slots,
                     struct tern_llama_options *ret_options)
{
    static const enum tern_llama_recompute recompute[] = {
        [TERN_RECOMPUTE_NONE] = TERN_LLAMA_RECOMPUTE_NONE,
        [TERN_RECOMPUTE_SELECTIVE] = TERN_LLAMA_RECOMPUTE_SELECTIVE,
        [TERN_RECOMPUTE_FULL] = TERN_LLAMA_RECOMPUTE_FULL,
    };

    tern_assert(p->place.tensor_rank >= 0 && p->place.tensor_rank < p->place.tensor &&
                    p->place.stage >= 0 && p->place.stage < p->place.pipeline &&
                    p->micro_batches > 0,
                "tensor rank %d of %d, stage %d of %d, %lld micro-batches", p->place.tensor_rank,
                p->place.tensor, p->place.stage, p->place.pipeline, (long long)p->micro_batches);
    *ret_options = (struct tern_llama_options){
        .config = c,
        .place = &p->place,
        .max_batch = (int)r->batch.micro,
        .seq_len = (int)r->batch.seq_len,
        .training = true,
        .sequence = r->parallel.sequence,
        .recompute = recompute[r->parallel.recompute],
        .bf16 = r->precision == TERN_PRECISION_BF16,
        .adapters = &p->adapters,
        .one_micro_batch = p->micro_batches == 1,
        .slots = slots,
    };
}

bool tern_plan_master(const struct tern_recipe *r)
{
    return r->precision == TERN_PRECISION_BF16 && r->lora.rank == 0;
}

enum { PROGRAM_BYTES = 19 << 19, WIRE_BYTES = 6 << 20 };

int tern_plan_peak_side(int threads)
{
    return threads > 1 ? 1536 : 512;
}

/* Two squares, for a moment. */
static uint64_t peak_bytes(int threads)
{
    const uint64_t side = (uint64_t)tern_plan_peak_side(threads);

    return 2 * side * side * sizeof(tern_real);
}

/* A rank's share of a step: tokens, targets and the mask, and where documents begin. */
static uint64_t sample_bytes(const struct tern_recipe *r, const struct tern_plan_rank *p)
{
    const size_t each = 2 * sizeof(int32_t) + sizeof(uint8_t);
    const size_t start = r->data.isolate ? sizeof(int32_t) : 0;

    return (uint64_t)(p->micro_batches * r->batch.micro * r->batch.seq_len) * (each + start);
}

/* Elements of the optimizer's state that one rank holds. */
static uint64_t state_elements(const struct tern_model_shard *s, const struct tern_plan_rank *p,
                               bool zero)
{
    uint64_t n = 0;

    for (size_t i = 0; i < s->n_units; i++) {
        int64_t from = 0, to = s->units[i].rows;
        if (zero)
            tern_model_unit_cut(&s->units[i], p->data_rank, p->data, &from, &to);
        n += (uint64_t)((to - from) * s->units[i].width);
    }
    return n;
}

bool tern_plan_async(const struct tern_recipe *r)
{
    const int64_t every = r->checkpoint.every;

    /* The last checkpoint is waited for; without a length yet there may be others. */
    return r->checkpoint.async &&
           (every == TERN_RECIPE_AUTO || (every > 0 && (r->steps == 0 || every < r->steps)));
}

/* Of the trained parameters' elements, in fp32 (double): moments, and the master copy. */
static uint64_t state_copies(const struct tern_recipe *r)
{
    return tern_plan_master(r) ? 3 : 2;
}

/* Elements that one rank saves: each row of a part is one data rank's, as in core/train. */
static uint64_t saved_elements(const struct tern_model_shard *s, const struct tern_plan_rank *p)
{
    uint64_t n = 0;

    for (size_t i = 0; i < s->n_parts; i++) {
        const struct tern_model_part *part = &s->parts[i];
        const struct tern_model_unit *u = &s->units[part->unit];
        const int64_t first = (int64_t)((part->offset - u->offset) / (uint64_t)u->width);
        int64_t from = 0, to = u->rows;
        tern_model_unit_cut(u, p->data_rank, p->data, &from, &to);
        from = from > first ? from : first;
        to = to < first + part->shape[0] ? to : first + part->shape[0];
        if (part->owner && from < to)
            n += (uint64_t)((to - from) * u->width);
    }
    return n;
}

/* Trained parameters, moments and master copy. */
static uint64_t staging_bytes(const struct tern_recipe *r, const struct tern_model_shard *s,
                              const struct tern_plan_rank *p)
{
    const uint64_t state = state_copies(r) * sizeof(tern_real);
    const uint64_t param = tern_plan_master(r) ? sizeof(uint16_t) : sizeof(tern_real);

    return tern_plan_async(r) ? saved_elements(s, p) * (state + param) : 0;
}

int tern_plan_host_rank(const struct tern_recipe *r, const struct tern_model_config *c,
                        const struct tern_plan_rank *p, struct tern_plan_memory *ret_memory,
                        struct tern_err *err)
{
    const struct tern_plan_stage stage = {p->place.pipeline, p->place.stage, p->place.interleave,
                                          p->micro_batches};
    struct tern_plan_pipeline pipeline;
    struct tern_model_shard *shard = NULL;
    struct tern_llama_options o;
    struct tern_llama_bytes b;

    if (tern_plan_pipeline(&stage, &pipeline, err) < 0)
        return -1;
    tern_plan_llama(r, c, p, pipeline.slots, &o);
    int threads = tern_tensor_start_threads((int)r->launch.threads, (int)r->launch.ranks_per_node);
    int rc = tern_llama_bytes(&o, threads, &b, err);
    if (rc == 0)
        shard = p->adapters.rank ? tern_model_shard_adapters(c, &p->place, &p->adapters, err)
                                 : tern_model_shard_new(c, &p->place, err);
    if (shard) {
        uint64_t state = state_elements(shard, p, r->parallel.zero > 0) * sizeof(tern_real);
        *ret_memory = (struct tern_plan_memory){
            .params = b.params,
            .grads = b.grads,
            .moments = state_copies(r) * state,
            .activations = b.activations,
            .staging = staging_bytes(r, shard, p),
        };
        uint64_t samples = sample_bytes(r, p), squares = peak_bytes(threads);
        uint64_t model = ret_memory->params + ret_memory->grads + ret_memory->moments +
                         ret_memory->activations + ret_memory->staging;
        ret_memory->process = PROGRAM_BYTES + (p->wired ? WIRE_BYTES : 0) +
                              tern_tensor_room_bytes(threads, o.bf16) +
                              (model + samples < squares ? squares - model : samples);
        ret_memory->total = model + ret_memory->process;
    }
    tern_model_shard_free(shard);
    tern_plan_pipeline_free(&pipeline);
    return shard ? 0 : -1;
}

int tern_plan_host(const struct tern_recipe *r, const struct tern_model_config *c, int64_t data,
                   struct tern_plan_memory *ret_memory, struct tern_err *err)
{
    const int64_t tensor = r->parallel.tensor, pipeline = r->parallel.pipeline;
    struct tern_plan_memory most = {0}, m;
    struct tern_plan_rank p;

    /* The last tensor and data ranks have the remainders. */
    for (int64_t stage = 0; stage < pipeline; stage++) {
        int64_t rank = (stage + 1) * tensor * data - 1;
        if (tern_plan_rank(r, tensor * pipeline * data, rank, &p, err) < 0 ||
            tern_plan_host_rank(r, c, &p, &m, err) < 0)
            return -1;
        if (m.total > most.total)
            most = m;
    }
    *ret_memory = most;
    return 0;
}

void tern_plan_device(const struct tern_recipe *r, const struct tern_model_config *c, int64_t data,
                      struct tern_plan_memory *ret_memory)
{
    enum { WEIGHT = 2, GRADIENT = 4, MASTER = 4, MOMENTS = 8, ACTIVATION = 22 };
    uint64_t cut = (uint64_t)(r->parallel.tensor * r->parallel.pipeline);
    uint64_t params = tern_model_params(c) / cut;
    uint64_t tokens = (uint64_t)(r->batch.micro * r->batch.seq_len);
    /* The first of P stages holds P micro-batches of L / P layers: L layers of one. */
    uint64_t layers = (uint64_t)c->layers;

    *ret_memory = (struct tern_plan_memory){
        .params = params * WEIGHT,
        .grads = params * GRADIENT,
        .moments = data ? params * (MASTER + MOMENTS) / (uint64_t)data : 0,
        .activations =
            tokens * (uint64_t)c->dim * ACTIVATION / (uint64_t)r->parallel.tensor * layers,
    };
    ret_memory->total =
        ret_memory->params + ret_memory->grads + ret_memory->moments + ret_memory->activations;
}
