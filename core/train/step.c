#include "core/train/state.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/str.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Steps in a row without a finite gradient after which more would be a waste: one is a bad batch,
 * five are a broken run. */
enum { BAD_STEPS_MAX = 5 };

/* Where a step's time went, in seconds on this rank. */
struct phases {
    double data, compute, comm, update;
};

static double seconds_since(int64_t *from)
{
    int64_t now = tern_clock_boot_ns();
    double s = (double)(now - *from) * 1e-9;

    *from = now;
    return s;
}

/* Fill the micro-batch buffers with samples `first` and following. */
static int load_batch(struct train *t, uint64_t first, struct tern_err *err)
{
    const size_t len = (size_t)t->recipe->batch.seq_len;

    for (size_t b = 0; b < (size_t)t->recipe->batch.micro; b++) {
        if (tern_mix_sample(t->mix, 0, first + b, t->row, t->mask + b * len, NULL, err) < 0)
            return -1;
        memcpy(t->tokens + b * len, t->row, len * sizeof *t->row);
        memcpy(t->targets + b * len, t->row + 1, len * sizeof *t->row);
    }
    return 0;
}

/* This rank's share of the global batch: gradients of the summed loss in t->grads. */
static int accumulate(struct train *t, struct tern_llama_loss *sum, struct phases *ph,
                      struct tern_err *err)
{
    const struct tern_recipe *r = t->recipe;
    uint64_t first = t->sample + (uint64_t)t->rank * (uint64_t)(t->micro_batches * r->batch.micro);
    /* The mean over the whole batch; what masks leave out is made up for by finish(). */
    const double scale = 1.0 / ((double)r->batch.global * (double)r->batch.seq_len);
    int64_t clock = tern_clock_boot_ns();

    *sum = (struct tern_llama_loss){0};
    tern_llama_grads_zero(t->model);
    for (int64_t k = 0; k < t->micro_batches; k++) {
        struct tern_llama_loss loss;
        if (load_batch(t, first + (uint64_t)(k * r->batch.micro), err) < 0)
            return -1;
        ph->data += seconds_since(&clock);
        if (tern_llama_step(t->model, t->tokens, t->targets, t->mask, (int)r->batch.micro,
                            (int)r->batch.seq_len, scale, &loss, err) < 0)
            return -1;
        sum->sum += loss.sum;
        sum->n += loss.n;
        ph->compute += seconds_since(&clock);
    }
    return 0;
}

/* AdamW on every tensor; norms (one dimension) are not decayed. */
static void update(struct train *t, double lr, double grad_scale)
{
    const struct tern_model_config *c = tern_llama_config(t->model);
    const struct tern_recipe *r = t->recipe;

    for (size_t i = 0; i < tern_model_tensors(c); i++) {
        struct tern_model_tensor w;
        tern_model_tensor(c, i, &w);
        const struct tern_tensor_adamw o = {
            .lr = lr,
            .beta1 = r->optimizer.beta1,
            .beta2 = r->optimizer.beta2,
            .eps = r->optimizer.eps,
            .weight_decay = w.ndim > 1 ? r->optimizer.weight_decay : 0,
            .grad_scale = grad_scale,
            .step = t->opt_step + 1,
        };
        tern_tensor_adamw(&o, t->params + w.offset, t->grads + w.offset, t->exp_avg + w.offset,
                          t->exp_avg_sq + w.offset, w.count);
    }
}

static void record(struct train *t, double loss, double lr, double norm, double tokens,
                   const struct phases *ph)
{
    double seconds = ph->data + ph->compute + ph->comm + ph->update;
    const struct tern_ledger_value values[] = {
        {"loss", loss},
        {"lr", lr},
        {"grad_norm", norm},
        {"tokens", tokens},
        {"tokens_per_second", tokens / seconds},
        {"step_seconds", seconds},
        {"data_seconds", ph->data},
        {"compute_seconds", ph->compute},
        {"comm_seconds", ph->comm},
        {"update_seconds", ph->update},
    };
    struct tern_err err;

    if (tern_spool_step(t->spool, (int64_t)t->step, values, sizeof values / sizeof *values, &err) <
        0)
        tern_warn("%s", err.text);
}

/* Sum gradients over ranks, clip, update.  `total` is the global loss. */
static int finish(struct train *t, const double total[2], double *lr, double *norm,
                  struct phases *ph, struct tern_err *err)
{
    const struct tern_recipe *r = t->recipe;
    int64_t clock = tern_clock_boot_ns();

    if (tern_comm_all_reduce(t->world, t->grads, t->n, sizeof(tern_real) == 8 ? TERN_F64 : TERN_F32,
                             TERN_SUM, err) < 0)
        return -1;
    ph->comm += seconds_since(&clock);
    double unmask = (double)r->batch.global * (double)r->batch.seq_len / total[1];
    *norm = sqrt(tern_tensor_sum_squares(t->grads, t->n)) * unmask;
    *lr = tern_recipe_lr(r, (int64_t)t->step + 1);
    if (!isfinite(*norm) || !isfinite(total[0])) {
        if (++t->bad_steps >= BAD_STEPS_MAX)
            return tern_err_set(err, TERN_FAILED,
                                "loss or gradient was not finite in %d steps in a row, up to step "
                                "%" PRIu64 ". Lower optimizer.lr, or look at the data.",
                                BAD_STEPS_MAX, t->step + 1);
        if (t->rank == 0)
            tern_warn("step %" PRIu64 ": loss %g, gradient norm %g: not finite, no update",
                      t->step + 1, total[0] / total[1], *norm);
    } else {
        /* As torch's clip_grad_norm_: the small number keeps a zero gradient from dividing. */
        double clip = r->optimizer.clip > 0 ? r->optimizer.clip / (*norm + 1e-6) : 1;
        update(t, *lr, unmask * (clip < 1 ? clip : 1));
        t->opt_step++;
        t->bad_steps = 0;
    }
    ph->update += seconds_since(&clock);
    return 0;
}

int tern_train_step(struct train *t, enum tern_train_stop *stop, struct tern_err *err)
{
    struct phases ph = {0};
    struct tern_llama_loss mine;
    double lr, norm, total[2];
    int rc = accumulate(t, &mine, &ph, err);
    int64_t clock = tern_clock_boot_ns();

    if (tern_train_agree(t, rc, err) < 0)
        return -1;
    total[0] = mine.sum;
    total[1] = (double)mine.n;
    enum tern_train_stop wish;
    if (tern_comm_all_reduce(t->world, total, 2, TERN_F64, TERN_SUM, err) < 0 ||
        tern_train_agree_stop(t, &wish, err) < 0)
        return -1;
    ph.comm += seconds_since(&clock);
    if (total[1] == 0)
        return tern_err_set(err, TERN_USAGE,
                            "step %" PRIu64 ": no target in the whole batch: its data is masked "
                            "throughout.",
                            t->step + 1);
    if (finish(t, total, &lr, &norm, &ph, err) < 0)
        return -1;
    t->step++;
    t->sample += (uint64_t)t->recipe->batch.global;
    t->evaluated = false;
    t->loss = total[0] / total[1];
    record(t, t->loss, lr, norm, total[1], &ph);
    *stop = wish;
    return 0;
}
