/* core/train/grads: each gradient is summed over the data ranks once, and each row is updated by
 * one owner; several ranks play in one process, and the sums are made between their turns. */
#include "core/base/rand.h"
#include "core/train/state.h"

#include "tests/unit/tap.h"

enum { RANKS = 3, OPS = 256 };

enum kind { NOW, ALL, SCATTER, GATHER, SPREAD }; /* NOW: over other groups, not begun but done */
struct op {
    enum kind kind;
    struct tern_comm *comm;
    char *in, *out;
    size_t count, bytes; /* elements of a rank, bytes of one */
};

static struct op ops[RANKS][OPS];
static int n_ops[RANKS], waits[RANKS], now; /* the rank whose turn it is */
static struct tern_model_shard *shard;
static char groups[4]; /* communicators: their addresses alone count */
#define GROUP(i) ((struct tern_comm *)&groups[i])
static struct tern_comm *data_ranks = GROUP(0);

static int note(enum kind kind, struct tern_comm *c, const void *in, void *out, size_t count,
                enum tern_type type)
{
    if (n_ops[now] == OPS)
        abort();
    ops[now][n_ops[now]++] = (struct op){kind, c,     (char *)(uintptr_t)in,
                                         out,  count, type == TERN_BF16 ? 2 : sizeof(tern_real)};
    return 0;
}

/* The other rank of such a group has the same addends. */
static int fake_all_reduce(struct tern_comm *c, void *buf, size_t n, enum tern_type type,
                           enum tern_op op, struct tern_err *err)
{
    tern_real *x = buf;

    (void)op, (void)err;
    for (size_t i = 0; i < n; i++)
        x[i] *= 2;
    return note(NOW, c, buf, buf, n, type);
}

static int fake_all_reduce_begin(struct tern_comm *c, void *buf, size_t n, enum tern_type type,
                                 enum tern_op op, struct tern_pending *p, struct tern_err *err)
{
    (void)op, (void)p, (void)err;
    return note(ALL, c, buf, buf, n, type);
}

static int fake_reduce_scatter_begin(struct tern_comm *c, const struct tern_fabric_scatter *s,
                                     struct tern_pending *p, struct tern_err *err)
{
    (void)p, (void)err;
    return note(SCATTER, c, s->in, s->out, s->count_per_rank, s->type);
}

static int fake_all_gather_begin(struct tern_comm *c, const void *in, void *out, size_t n,
                                 enum tern_type type, struct tern_pending *p, struct tern_err *err)
{
    (void)p, (void)err;
    return note(GATHER, c, in, out, n, type);
}

static int fake_broadcast_begin(struct tern_comm *c, void *buf, size_t n, enum tern_type type,
                                int root, struct tern_pending *p, struct tern_err *err)
{
    (void)root, (void)p, (void)err; /* always the last one */
    return note(SPREAD, c, buf, buf, n, type);
}

static int fake_wait(struct tern_pending *p, struct tern_err *err)
{
    (void)p, (void)err;
    waits[now]++;
    return 0;
}

#define tern_llama_trained(m) shard
#define tern_fabric_all_reduce fake_all_reduce
#define tern_fabric_all_reduce_begin fake_all_reduce_begin
#define tern_fabric_reduce_scatter_begin fake_reduce_scatter_begin
#define tern_fabric_all_gather_begin fake_all_gather_begin
#define tern_fabric_broadcast_begin fake_broadcast_begin
#define tern_fabric_wait fake_wait
#define tern_fabric_progress(f, e) ((void)(f), (void)(e), 0)
#include "core/train/grads.c"

/* ---------------------------------------------------------------- a model on several data ranks */

static struct tern_recipe recipe = {
    .optimizer = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1}};
static struct tern_train_options options;
static struct train ranks[RANKS];

static struct tern_model_config small(void)
{
    return (struct tern_model_config){.dim = 8,
                                      .ffn = 20,
                                      .layers = 2,
                                      .heads = 2,
                                      .kv_heads = 1,
                                      .head_dim = 4,
                                      .vocab = 11,
                                      .max_position = 16,
                                      .norm_eps = 1e-5,
                                      .rope_theta = 1e4};
}

static tern_real *fill(size_t n, uint64_t stream)
{
    tern_real *x = calloc(n, sizeof *x);

    for (size_t i = 0; i < n; i++)
        x[i] = (tern_real)((int)(tern_rand_u64(7, stream, i) % 201) - 100); /* sums are exact */
    return x;
}

/* The same parameters and other gradients on each of `n` ranks. */
static void begin(const struct tern_model_config *c, int n, bool zero, bool bf16)
{
    struct tern_err err = {0};

    shard = tern_model_shard_new(c, &tern_model_whole, &err);
    recipe.parallel.zero = zero;
    memset(n_ops, 0, sizeof n_ops);
    memset(waits, 0, sizeof waits);
    for (now = 0; now < n; now++) {
        struct train *t = &ranks[now];
        *t = (struct train){.recipe = &recipe, .options = &options, .rank = now, .size = n};
        t->me.place = tern_model_whole;
        t->me.data = n, t->me.data_rank = now;
        t->groups.data = n > 1 ? data_ranks : NULL;
        if (!shard || tern_train_units_open(t, &err) < 0)
            abort();
        t->weights.grads = fill(shard->params, 100 + (uint64_t)now);
        t->weights.params = fill(shard->params, 1);
        t->optimizer.exp_avg = calloc(t->optimizer.n, sizeof(tern_real));
        t->optimizer.exp_avg_sq = calloc(t->optimizer.n, sizeof(tern_real));
        if (bf16) {
            t->optimizer.master = calloc(t->optimizer.n, sizeof(tern_real));
            t->weights.bf16 = calloc(shard->params, sizeof *t->weights.bf16);
            for (size_t i = 0; i < shard->n_units; i++) {
                const struct train_unit *u = &t->optimizer.units[i];
                const struct tern_model_unit *at = &shard->units[i];
                tern_tensor_copy(t->optimizer.master + u->state,
                                 t->weights.params + at->offset + u->from * at->width,
                                 (size_t)((u->to - u->from) * at->width));
            }
        }
    }
    now = 0;
}

static void end(int n)
{
    for (int r = 0; r < n; r++) {
        tern_train_units_close(&ranks[r]);
        free(ranks[r].weights.grads);
        free(ranks[r].weights.params);
        free(ranks[r].weights.bf16);
        free(ranks[r].optimizer.master);
        free(ranks[r].optimizer.exp_avg);
        free(ranks[r].optimizer.exp_avg_sq);
    }
    tern_model_shard_free(shard);
}

/* What the backward pass of rank `r` does: bucket by bucket, from the model's end. */
static int backward(int r)
{
    struct tern_err err = {0};

    now = r;
    for (int b = shard->n_buckets; b-- > 0;)
        if (tern_train_begin_bucket(&ranks[r], b, &err) < 0)
            return -1;
    return tern_train_finish_sums(&ranks[r], &err);
}

static char *base(int r, bool out_of_params)
{
    const struct train_weights *w = &ranks[r].weights;

    return !out_of_params ? (char *)w->grads : w->bf16 ? (char *)w->bf16 : (char *)w->params;
}

static void sum(struct op *const *o, int n)
{
    for (size_t i = 0; i < (o[0]->kind == SCATTER ? o[0]->count * (size_t)n : o[0]->count); i++) {
        tern_real s = 0;
        for (int r = 0; r < n; r++)
            s += ((tern_real *)(void *)o[r]->in)[i];
        for (int r = 0; r < n; r++)
            if (o[0]->kind == ALL)
                ((tern_real *)(void *)o[r]->in)[i] = s;
            else if (i / o[0]->count == (size_t)r) /* others' rows are only addends */
                ((tern_real *)(void *)o[r]->out)[i % o[0]->count] = s;
    }
}

/* Carry out what the data ranks began, in order: did all of them call the same? */
static bool carry_out(int n)
{
    bool same = true;

    for (int r = 1; r < n; r++)
        same = same && n_ops[r] == n_ops[0];
    for (int k = 0; same && k < n_ops[0]; k++) {
        struct op *o[RANKS];
        for (int r = 0; r < n; r++) {
            o[r] = &ops[r][k];
            bool of_params = o[r]->kind >= GATHER;
            same = same && o[r]->kind == o[0]->kind && o[r]->count == o[0]->count &&
                   o[r]->comm == o[0]->comm &&
                   (o[r]->kind == GATHER ? o[r]->out : o[r]->in) - base(r, of_params) ==
                       (o[0]->kind == GATHER ? o[0]->out : o[0]->in) - base(0, of_params);
        }
        if (!same)
            return false;
        if (o[0]->kind == ALL || o[0]->kind == SCATTER)
            sum(o, n);
        const size_t bytes = o[0]->count * o[0]->bytes;
        for (int r = 0; r < n; r++)
            for (int from = 0; from < n; from++) {
                if (o[0]->kind == GATHER)
                    memmove(o[r]->out + (size_t)from * bytes, o[from]->in, bytes);
                else if (o[0]->kind == SPREAD && from == n - 1)
                    memmove(o[r]->in, o[from]->in, bytes);
            }
    }
    memset(n_ops, 0, sizeof n_ops);
    return same;
}

/* Every row of the model that rank `r` updates: adds 1 to its elements' `owners`; is the gradient
 * there `want`? */
static bool owned(int r, const tern_real *want, int *owners)
{
    bool right = true;

    for (size_t p = 0; p < shard->n_parts; p++) {
        struct train_rows w;
        if (!tern_train_find_rows(&ranks[r], p, false, &w))
            continue;
        right =
            right && w.state + w.count <= ranks[r].optimizer.n &&
            memcmp(ranks[r].weights.grads + w.offset, want + w.offset, w.count * sizeof *want) == 0;
        for (uint64_t i = 0; i < w.count; i++)
            owners[w.offset + i]++;
    }
    return right;
}

/* The parameters after the step of one rank that has the whole sum: AdamW over each part. */
static tern_real *update_alone(const tern_real *sum_of_all)
{
    const size_t params = shard->params;
    tern_real *p = fill(params, 1), *m = calloc(params, sizeof *m), *v = calloc(params, sizeof *v);

    for (size_t i = 0; i < shard->n_parts; i++) {
        const struct tern_model_part *at = &shard->parts[i];
        struct tern_tensor_adamw o = {.lr = 1e-3,
                                      .beta1 = 0.9,
                                      .beta2 = 0.95,
                                      .eps = 1e-8,
                                      .weight_decay = at->whole.ndim > 1 ? 0.1 : 0,
                                      .grad_scale = 0.5,
                                      .step = 1};
        tern_tensor_adamw(&o, p + at->offset, sum_of_all + at->offset, m + at->offset,
                          v + at->offset, at->count);
    }
    free(m), free(v);
    return p;
}

static void test_sums(int n, bool zero, bool bf16)
{
    struct tern_model_config c = small();
    struct tern_err err = {0};
    const char *how = zero ? bf16 ? "ZeRO, bf16" : "ZeRO" : bf16 ? "bf16" : "plain";

    begin(&c, n, zero, bf16);
    size_t params = shard->params;
    tern_real *want = calloc(params, sizeof *want);
    double squares = 0, counted = 0;
    int *owners = calloc(params, sizeof *owners), rc = 0;
    for (size_t i = 0; i < params; i++) {
        for (int r = 0; r < n; r++)
            want[i] += ranks[r].weights.grads[i];
        squares += (double)want[i] * (double)want[i];
    }
    for (int r = 0; r < n; r++)
        rc |= backward(r);
    int begun = n_ops[0];
    ok(rc == 0 && waits[0] == begun && carry_out(n),
       "%s, %d ranks: all begin the same sums, and wait for each", how, n);
    if (!zero)
        ok(begun == (n > 1), "%s, %d ranks: gradients far below a MiB go in one sum", how, n);
    bool right = true, once = true;
    for (int r = 0; r < n; r++) {
        right = owned(r, want, owners) && right;
        counted += tern_train_sum_squares(&ranks[r]);
    }
    for (size_t i = 0; i < params; i++)
        once = once && owners[i] == (zero ? 1 : n);
    ok(right, "%s, %d ranks: a rank has the whole sum of the rows that it updates", how, n);
    ok(once, "%s, %d ranks: %s", how, n, zero ? "each row has one owner" : "all update all rows");
    ok(counted == squares, "%s, %d ranks: the norm counts each gradient once", how, n);

    for (int r = 0; r < n; r++) {
        now = r;
        tern_train_update(&ranks[r], 1e-3, 0.5);
        rc |= tern_train_gather_params(&ranks[r], &err);
    }
    ok(rc == 0 && (n_ops[0] > 0) == (zero && n > 1) && carry_out(n), "%s, %d ranks: %s", how, n,
       zero && n > 1 ? "all gather the same rows" : "no row is gathered");
    bool same = true;
    size_t bytes = params * (bf16 ? 2 : sizeof(tern_real));
    for (int r = 1; r < n; r++)
        same = same && memcmp(base(r, true), base(0, true), bytes) == 0;
    ok(same, "%s, %d ranks: all have the same parameters after a step", how, n);

    tern_real *p = update_alone(want);
    uint16_t *half = calloc(params, sizeof *half);
    tern_tensor_to_bf16(half, p, params);
    ok(memcmp(base(0, true), bf16 ? (void *)half : (void *)p, bytes) == 0,
       "%s, %d ranks: the step is that of one rank with the whole sum, norms not decayed", how, n);
    free(want), free(owners), free(p), free(half);
    end(n);
}

/* ---------------------------------------------------------------- when a sum begins */

static void test_buckets(void)
{
    struct tern_model_config c = small();
    struct tern_err err = {0};

    c.dim = 64, c.head_dim = 32, c.vocab = 8192; /* embedding and head: 2 MiB each in fp32 */
    begin(&c, 2, false, false);
    ok(tern_train_begin_bucket(&ranks[0], shard->n_buckets - 1, &err) == 0 && n_ops[0] == 1 &&
           ops[0][0].count == (size_t)c.vocab * 64 + 64,
       "a MiB of gradients is summed while the backward pass goes on, norm and head as one");
    for (int b = shard->n_buckets - 1; b-- > 1;)
        tern_train_begin_bucket(&ranks[0], b, &err);
    ok(n_ops[0] == 1, "gradients of small layers wait for more");
    ok(tern_train_begin_bucket(&ranks[0], 0, &err) == 0 && n_ops[0] == 2 &&
           ops[0][1].count == shard->params - ops[0][0].count && ops[0][1].comm == data_ranks,
       "the embedding takes the layers with it");
    ok(tern_train_finish_sums(&ranks[0], &err) == 0 && n_ops[0] == 2 && waits[0] == 2,
       "at the end no sum is left to begin");
    end(2);

    c = small();
    begin(&c, 2, false, false);
    for (int b = shard->n_buckets; b-- > 0;)
        if (b != 1)
            tern_train_begin_bucket(&ranks[0], b, &err);
    tern_train_begin_bucket(&ranks[0], 1, &err);
    tern_train_finish_sums(&ranks[0], &err);
    size_t all = 0;
    for (int k = 0; k < n_ops[0]; k++)
        all += ops[0][k].count;
    ok(all == shard->params && n_ops[0] == 3, "gradients that are no neighbours are not one sum");
    end(2);
}

/* ---------------------------------------------------------------- sums over other ranks */

/* Of rank 0: the index of the operation of `kind` that has this part's first element; -1. */
static int find_op(enum kind kind, const struct tern_comm *c, const struct tern_model_part *p)
{
    const char *at = (char *)(ranks[0].weights.grads + p->offset);

    for (int k = 0; k < n_ops[0]; k++) {
        const struct op *o = &ops[0][k];
        if (o->kind == kind && o->comm == c && at >= o->in && at < o->in + o->count * o->bytes)
            return k;
    }
    return -1;
}

static void test_partials(bool sequence)
{
    struct tern_model_config c = small();
    struct train *t = &ranks[0];
    struct tern_comm *kv = GROUP(1), *tensor = GROUP(2);
    bool right = true, before = true;

    begin(&c, 1, false, false);
    tern_model_shard_free(shard);
    shard = tern_model_shard_new(
        &c, &(struct tern_model_place){.tensor = 2, .pipeline = 1, .interleave = 1},
        &(struct tern_err){0});
    tern_train_units_close(t);
    t->me.place.tensor = 2;
    t->me.data = 2;
    t->groups = (struct train_groups){.data = data_ranks, .tensor = tensor, .kv_heads = kv};
    recipe.parallel.sequence = sequence;
    if (!shard || tern_train_units_open(t, &(struct tern_err){0}) < 0 || backward(0) < 0)
        abort();
    for (size_t i = 0; i < shard->n_parts; i++) {
        const struct tern_model_part *p = &shard->parts[i];
        bool by_kv = p->sum == TERN_MODEL_SUM_KV_HEADS;
        bool by_tensor =
            p->sum == TERN_MODEL_SUM_TENSOR || (p->sum == TERN_MODEL_SUM_SEQUENCE && sequence);
        int k = find_op(NOW, kv, p), w = find_op(NOW, tensor, p), d = find_op(ALL, data_ranks, p);
        right = right && (k >= 0) == by_kv && (w >= 0) == by_tensor;
        before = before && d > k && d > w;
    }
    ok(right, "tensor ranks%s: gradients of which each has addends are summed over those ranks",
       sequence ? " with a part of the sequence each" : "");
    ok(before, "tensor ranks%s: the sum over the data ranks comes after that over tensor ranks",
       sequence ? " with a part of the sequence each" : "");
    recipe.parallel.sequence = false;
    end(1);
}

/* Embedding and head on two stages are one tensor: the sum over both waits for the pass's end. */
static void test_tied(void)
{
    struct tern_model_config c = small();
    struct train *t = &ranks[0];
    struct tern_comm *tied = GROUP(3);
    struct tern_err err = {0};

    c.tied = true;
    begin(&c, 2, false, false);
    t->groups.tied = tied;
    const struct tern_model_part *embed = &shard->parts[0];
    for (int b = shard->n_buckets; b-- > 0;)
        tern_train_begin_bucket(t, b, &err);
    ok(find_op(NOW, tied, embed) < 0 && find_op(ALL, data_ranks, embed) < 0,
       "a tied embedding's gradient waits for that of its copy");
    ok(tern_train_finish_sums(t, &err) == 0 && find_op(NOW, tied, embed) >= 0 &&
           find_op(ALL, data_ranks, embed) > find_op(NOW, tied, embed),
       "a tied embedding is summed over both stages, then over the data ranks");
    end(2);
}

int main(void)
{
    for (int n = 1; n <= RANKS; n++)
        for (int how = 0; how < 4; how++)
            test_sums(n, how & 1, how & 2);
    test_buckets();
    test_partials(false);
    test_partials(true);
    test_tied();
    return tap_done();
}
