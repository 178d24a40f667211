/* From each rank's gradients to the new parameters of all: sums over the data ranks in buckets,
 * while the backward pass goes on; the update.  With ZeRO-1 (Rajbhandari et al. 2020, arXiv
 * 1910.02054) each data rank has the optimizer's state of its own rows alone. */
#include "core/train/state.h"

#include "core/base/assert.h"
#include "core/base/clock.h"
#include "core/base/str.h"

#include <stdlib.h>

/* Bytes of gradients that are worth a sum of their own, as PyTorch's first bucket. Fewer cost their
 * rounds rather than their bytes, and wait for the next bucket. */
enum { SUM_BYTES = 1 << 20 };

struct train_unit {
    int64_t from, to; /* rows whose state is here, and that this rank updates */
    uint64_t state;   /* elements before them in the moments */
    struct tern_pending pending[2];
    int n_pending;
};

/* Buckets of units are what is summed and updated: each trained weight is in one of them. */
static void check_units(const struct tern_model_shard *s)
{
    uint64_t end = 0;

    for (size_t i = 0; i < s->n_units; i++) {
        const struct tern_model_unit *u = &s->units[i];
        tern_assert(u->offset == end && u->rows > 0 && u->width > 0, "unit %zu: at %llu after %llu",
                    i, (unsigned long long)u->offset, (unsigned long long)end);
        tern_assert(u->bucket >= 0 && u->bucket < s->n_buckets, "unit %zu: bucket %d of %d", i,
                    u->bucket, s->n_buckets);
        end += (uint64_t)(u->rows * u->width);
    }
    tern_assert_cmp(end, ==, s->params);
}

int tern_train_units_open(struct train *t, struct tern_err *err)
{
    struct train_optimizer *o = &t->optimizer;
    const struct tern_model_shard *s = tern_llama_trained(t->model);

    check_units(s);
    o->units = tern_alloc(s->n_units, sizeof *o->units, "the optimizer's table", err);
    if (!o->units)
        return -1;
    o->n = 0;
    for (size_t i = 0; i < s->n_units; i++) {
        struct train_unit *u = &o->units[i];
        u->to = s->units[i].rows;
        if (t->recipe->parallel.zero)
            tern_model_unit_cut(&s->units[i], t->me.data_rank, t->me.data, &u->from, &u->to);
        u->state = o->n;
        o->n += (uint64_t)((u->to - u->from) * s->units[i].width);
    }
    return 0;
}

void tern_train_units_close(struct train *t)
{
    free(t->optimizer.units);
}

/* ---------------------------------------------------------------- sums over tensor ranks */

/* The tensor ranks that hold addends of a part's gradients; NULL: this one has the whole. */
static struct tern_comm *partial_holders(const struct train *t, const struct tern_model_part *p)
{
    bool several = t->me.place.tensor > 1;

    if (p->sum == TERN_MODEL_SUM_KV_HEADS)
        return t->groups.kv_heads;
    if (p->sum == TERN_MODEL_SUM_SEQUENCE)
        return several && t->recipe->parallel.sequence ? t->groups.tensor : NULL;
    return several && p->sum == TERN_MODEL_SUM_TENSOR ? t->groups.tensor : NULL;
}

/* Neighbouring parts with the same ranks go together. */
static int sum_partials(struct train *t, const struct tern_model_unit *u, struct tern_err *err)
{
    const struct tern_model_part *p = &tern_llama_trained(t->model)->parts[u->part];

    for (size_t i = 0, n; i < u->parts; i += n) {
        struct tern_comm *with = partial_holders(t, &p[i]);
        uint64_t count = p[i].count;
        for (n = 1; i + n < u->parts && partial_holders(t, &p[i + n]) == with; n++)
            count += p[i + n].count;
        if (with && tern_fabric_all_reduce(with, t->weights.grads + p[i].offset, count, TRAIN_REAL,
                                           TERN_SUM, err) < 0)
            return -1;
    }
    return 0;
}

/* With ZeRO: begin the sum over the data ranks of a unit, each rank's rows for itself. */
static int begin_scatter(struct train *t, size_t i, struct tern_err *err)
{
    const struct tern_model_unit *u = &tern_llama_trained(t->model)->units[i];
    struct train_unit *mine = &t->optimizer.units[i];
    size_t each = (size_t)(u->rows / t->me.data * u->width), all = (size_t)(u->rows * u->width);
    size_t rest = all - each * (size_t)t->me.data;
    tern_real *g = t->weights.grads + u->offset;
    const struct tern_fabric_scatter even = {g, g + each * (size_t)t->me.data_rank, each,
                                             TRAIN_REAL, TERN_SUM};

    if (each > 0 && tern_fabric_reduce_scatter_begin(t->groups.data, &even,
                                                     &mine->pending[mine->n_pending++], err) < 0)
        return -1;
    /* Rows that do not divide are the last one's. */
    return rest > 0 ? tern_fabric_all_reduce_begin(t->groups.data, g + all - rest, rest, TRAIN_REAL,
                                                   TERN_SUM, &mine->pending[mine->n_pending++], err)
                    : 0;
}

/* Begin the sum over the data ranks of the gradients that wait. */
static int begin_held(struct train *t, struct tern_err *err)
{
    struct train_held *h = &t->optimizer.held;
    struct train_unit *first = &t->optimizer.units[h->unit];
    uint64_t n = h->n;

    h->n = 0;
    return n == 0 ? 0
                  : tern_fabric_all_reduce_begin(t->groups.data, t->weights.grads + h->from, n,
                                                 TRAIN_REAL, TERN_SUM,
                                                 &first->pending[first->n_pending++], err);
}

/* A unit's gradients are this rank's whole part.  Backward passes go down in memory: a unit joins
 * the gradients that wait when they are its next neighbours. */
static int begin_sum(struct train *t, size_t i, struct tern_err *err)
{
    const struct tern_model_unit *u = &tern_llama_trained(t->model)->units[i];
    struct train_held *h = &t->optimizer.held;
    uint64_t n = (uint64_t)(u->rows * u->width);

    t->optimizer.units[i].n_pending = 0;
    t->optimizer.begun++;
    if (t->me.data == 1)
        return 0;
    if (t->recipe->parallel.zero)
        return begin_scatter(t, i, err);
    if (h->n > 0 && u->offset + n != h->from && begin_held(t, err) < 0)
        return -1;
    *h = (struct train_held){.unit = i, .from = u->offset, .n = h->n + n};
    return 0;
}

/* Is this the embedding or its copy, whose gradients two stages have parts of? */
static bool is_tied(const struct train *t, const struct tern_model_unit *u)
{
    enum tern_model_kind kind = tern_llama_trained(t->model)->parts[u->part].whole.kind;

    return t->groups.tied && (kind == TERN_MODEL_EMBED || kind == TERN_MODEL_HEAD);
}

static int begin_bucket(struct train *t, int bucket, struct tern_err *err)
{
    const struct tern_model_shard *s = tern_llama_trained(t->model);

    for (size_t i = s->n_units; i-- > 0;) {
        const struct tern_model_unit *u = &s->units[i];
        if (u->bucket != bucket || is_tied(t, u))
            continue;
        if (sum_partials(t, u, err) < 0 || begin_sum(t, i, err) < 0)
            return -1;
    }
    if (t->optimizer.held.n * sizeof(tern_real) >= SUM_BYTES && begin_held(t, err) < 0)
        return -1;
    return tern_fabric_progress(t->options->fabric, err);
}

/* In the middle of a backward pass; the time counts as communication. */
int tern_train_begin_bucket(void *ctx, int bucket, struct tern_err *err)
{
    struct train *t = ctx;
    int64_t from = tern_clock_boot_ns();
    int rc = begin_bucket(t, bucket, err);

    tern_train_add_span(t->profile, TRAIN_SPAN_BUCKET, from, NULL);
    t->meter.phases.inside += (double)(tern_clock_boot_ns() - from) * 1e-9;
    return rc;
}

int tern_train_finish_sums(struct train *t, struct tern_err *err)
{
    const struct tern_model_shard *s = tern_llama_trained(t->model);

    for (size_t i = 0; i < s->n_units; i++) {
        const struct tern_model_unit *u = &s->units[i];
        if (!is_tied(t, u))
            continue;
        if (tern_fabric_all_reduce(t->groups.tied, t->weights.grads + u->offset,
                                   (size_t)(u->rows * u->width), TRAIN_REAL, TERN_SUM, err) < 0 ||
            begin_sum(t, i, err) < 0)
            return -1;
    }
    if (begin_held(t, err) < 0)
        return -1;
    tern_assert_cmp(t->optimizer.begun, ==, s->n_units); /* each gradient once */
    for (size_t i = 0; i < s->n_units; i++)
        for (int k = 0; k < t->optimizer.units[i].n_pending; k++)
            if (tern_fabric_wait(&t->optimizer.units[i].pending[k], err) < 0)
                return -1;
    return 0;
}

double tern_train_sum_squares(const struct train *t)
{
    const struct tern_model_shard *s = tern_llama_trained(t->model);
    double sum = 0;

    for (size_t i = 0; i < s->n_parts; i++) {
        struct train_rows r;
        if (s->parts[i].owner && tern_train_find_rows(t, i, true, &r))
            sum += tern_tensor_sum_squares(t->weights.grads + r.offset, r.count);
    }
    return sum;
}

/* ---------------------------------------------------------------- rows of a part */

bool tern_train_find_rows(const struct train *t, size_t part, bool own, struct train_rows *ret_rows)
{
    const struct tern_model_shard *s = tern_llama_trained(t->model);
    const struct tern_model_part *p = &s->parts[part];
    const struct tern_model_unit *u = &s->units[p->unit];
    const struct train_unit *mine = &t->optimizer.units[p->unit];
    int64_t first = (int64_t)((p->offset - u->offset) / (uint64_t)u->width);
    int64_t from = mine->from, to = mine->to, cut_from = 0, cut_to = u->rows;

    if (own)
        tern_model_unit_cut(u, t->me.data_rank, t->me.data, &cut_from, &cut_to);
    from = from > cut_from ? from : cut_from;
    to = to < cut_to ? to : cut_to;
    from = from > first ? from : first;
    to = to < first + p->shape[0] ? to : first + p->shape[0];
    if (from >= to)
        return false;
    *ret_rows = (struct train_rows){
        .from = from - first,
        .rows = to - from,
        .offset = u->offset + (uint64_t)(from * u->width),
        .state = mine->state + (uint64_t)((from - mine->from) * u->width),
        .count = (uint64_t)((to - from) * u->width),
    };
    return true;
}

/* ---------------------------------------------------------------- update */

void *tern_train_params_at(const struct train_weights *w, uint64_t offset, enum tern_type *ret_type)
{
    *ret_type = w->bf16 ? TERN_BF16 : TRAIN_REAL;
    return w->bf16 ? (void *)(w->bf16 + offset) : w->params + offset;
}

/* The master copy's rows `w` of a part, rounded to the nearest, or at random by seed, step, tensor
 * and element alone. So every layout and a resumed run round the same. */
static void round_rows(struct train *t, const struct tern_model_part *p, const struct train_rows *w)
{
    const struct train_optimizer *o = &t->optimizer;
    const int64_t columns = p->whole.ndim > 1 ? p->whole.shape[1] : 1, width = p->shape[1];
    const uint64_t stream =
        (t->progress.updates + 1) << 24 | p->index; /* no model has as many tensors */
    const uint64_t seed = (uint64_t)t->recipe->data.seed ^ 0xb0f16;
    int64_t whole = width == columns ? w->rows : 1; /* rows that follow each other there, too */

    if (!t->recipe->optimizer.stochastic_rounding) {
        tern_tensor_to_bf16(t->weights.bf16 + w->offset, o->master + w->state, w->count);
        return;
    }
    for (int64_t r = 0; r < w->rows; r += whole) {
        uint64_t at = (uint64_t)(r * width);
        uint64_t first = (uint64_t)((p->start[0] + w->from + r) * columns + p->start[1]);
        tern_tensor_to_bf16_random(t->weights.bf16 + w->offset + at, o->master + w->state + at,
                                   (size_t)(whole * width), seed, stream, first);
    }
}

/* AdamW on this rank's rows; norms (one dimension) are not decayed. */
void tern_train_update(struct train *t, double lr, double grad_scale)
{
    const struct tern_model_shard *s = tern_llama_trained(t->model);
    const struct tern_recipe *r = t->recipe;

    for (size_t i = 0; i < s->n_parts; i++) {
        const struct tern_tensor_adamw o = {
            .lr = lr,
            .beta1 = r->optimizer.beta1,
            .beta2 = r->optimizer.beta2,
            .eps = r->optimizer.eps,
            .weight_decay = s->parts[i].whole.ndim > 1 ? r->optimizer.weight_decay : 0,
            .grad_scale = grad_scale,
            .step = t->progress.updates + 1,
        };
        struct train_rows w;
        if (!tern_train_find_rows(t, i, false, &w))
            continue;
        tern_real *p =
            t->weights.bf16 ? t->optimizer.master + w.state : t->weights.params + w.offset;
        tern_tensor_adamw(&o, p, t->weights.grads + w.offset, t->optimizer.exp_avg + w.state,
                          t->optimizer.exp_avg_sq + w.state, w.count);
        if (t->weights.bf16)
            round_rows(t, &s->parts[i], &w);
    }
}

int tern_train_gather_params(struct train *t, struct tern_err *err)
{
    const struct tern_model_shard *s = tern_llama_trained(t->model);
    size_t ranks = (size_t)t->me.data;

    if (ranks == 1 || !t->recipe->parallel.zero)
        return 0;
    for (size_t i = 0; i < s->n_units; i++) {
        const struct tern_model_unit *u = &s->units[i];
        struct train_unit *mine = &t->optimizer.units[i];
        size_t each = (size_t)(u->rows / t->me.data * u->width);
        size_t rest = (size_t)(u->rows * u->width) - each * ranks;
        enum tern_type type;
        void *all = tern_train_params_at(&t->weights, u->offset, &type);
        void *own =
            tern_train_params_at(&t->weights, u->offset + each * (size_t)t->me.data_rank, &type);
        void *last = tern_train_params_at(&t->weights, u->offset + each * ranks, &type);

        mine->n_pending = 0;
        if (each > 0 && tern_fabric_all_gather_begin(t->groups.data, own, all, each, type,
                                                     &mine->pending[mine->n_pending++], err) < 0)
            return -1;
        if (rest > 0 &&
            tern_fabric_broadcast_begin(t->groups.data, last, rest, type, (int)ranks - 1,
                                        &mine->pending[mine->n_pending++], err) < 0)
            return -1;
    }
    for (size_t i = 0; i < s->n_units; i++)
        for (int k = 0; k < t->optimizer.units[i].n_pending; k++)
            if (tern_fabric_wait(&t->optimizer.units[i].pending[k], err) < 0)
                return -1;
    return 0;
}
