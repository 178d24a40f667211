/* One step: passes over the batch, sums of gradients, clipping, update. */
#include "core/train/state.h"

#include "core/base/clock.h"
#include "core/base/str.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Seconds since *from, which were spent so; *from becomes now. */
static double lap(struct train *t, enum train_span_kind kind, int64_t *from)
{
    tern_train_add_span(t->profile, kind, *from, NULL);
    int64_t now = tern_clock_boot_ns();
    double s = (double)(now - *from) * 1e-9;

    *from = now;
    return s;
}

/* The first sample of this data rank in the present step. */
static uint64_t first_sample(const struct train *t)
{
    return t->progress.sample +
           (uint64_t)(t->me.data_rank * t->me.micro_batches * t->recipe->batch.micro);
}

struct tern_llama_batch tern_train_batch(const struct train *t, int64_t micro)
{
    const struct train_batch *x = &t->batch;
    const struct tern_recipe *r = t->recipe;
    size_t at = (size_t)(micro * r->batch.micro * r->batch.seq_len);

    return (struct tern_llama_batch){.tokens = x->tokens + at,
                                     .targets = x->targets + at,
                                     .mask = x->mask + at,
                                     .starts = x->starts ? x->starts + at : NULL,
                                     .drops = true,
                                     .sample = first_sample(t) + (uint64_t)(micro * r->batch.micro),
                                     .B = (int)r->batch.micro,
                                     .T = (int)r->batch.seq_len};
}

/* This data rank's share of the global batch.  A rank that cannot read it goes on with an empty
 * one, since others wait for its part of the pass.  At the step's end all ranks learn of it. */
static int load(struct train *t, struct tern_err *err)
{
    const struct train_batch *x = &t->batch;
    const struct tern_recipe *r = t->recipe;
    const size_t len = (size_t)r->batch.seq_len;
    const size_t rows = (size_t)(t->me.micro_batches * r->batch.micro);
    uint64_t first = first_sample(t);
    int rc = 0;

    tern_train_ahead_move(t);
    for (size_t b = 0; b < rows && rc == 0; b++) {
        rc = tern_data_stages_sample(t->sets.stages, first + b, x->row, x->mask + b * len,
                                     x->starts ? x->starts + b * len : NULL, err);
        memcpy(x->tokens + b * len, x->row, len * sizeof *x->row);
        memcpy(x->targets + b * len, x->row + 1, len * sizeof *x->row);
    }
    for (int64_t k = 0; k < t->me.micro_batches && rc == 0; k++) {
        const struct tern_llama_batch b = tern_train_batch(t, k);
        rc = tern_llama_batch_check(t->model, &b, err);
    }
    if (rc < 0) {
        memset(x->tokens, 0, rows * len * sizeof *x->tokens);
        memset(x->targets, 0, rows * len * sizeof *x->targets);
        memset(x->mask, 0, rows * len);
        if (x->starts)
            memset(x->starts, 0, rows * len * sizeof *x->starts);
    }
    return rc;
}

/* Clip and update.  `total` is of the whole batch. */
static int finish(struct train *t, const double total[TRAIN_SUMS], double *lr, double *norm,
                  struct tern_err *err)
{
    const struct tern_recipe *r = t->recipe;
    double unmask = (double)r->batch.global * (double)r->batch.seq_len / total[TRAIN_TARGETS];

    *norm = sqrt(total[TRAIN_SQUARES]) * unmask;
    *lr = tern_recipe_lr(r, (int64_t)t->progress.step + 1);
    char why[TERN_TRAIN_WHY];
    if (!tern_train_guard_judge(&t->progress.guard, total[TRAIN_LOSS] / total[TRAIN_TARGETS], *norm,
                                why))
        return tern_train_skip(t, why, err);
    /* As torch's clip_grad_norm_: the small number keeps a zero gradient from dividing. */
    double clip = r->optimizer.clip > 0 ? r->optimizer.clip / (*norm + 1e-6) : 1;
    tern_train_update(t, *lr, unmask * (clip < 1 ? clip : 1));
    t->progress.updates++;
    return 0;
}

int tern_train_take_step(struct train *t, enum tern_train_stop *stop, struct tern_err *err)
{
    const struct tern_recipe *r = t->recipe;
    /* The mean over the whole batch; finish() makes up for masked targets. */
    const double scale = 1.0 / ((double)r->batch.global * (double)r->batch.seq_len);
    int64_t clock = tern_clock_boot_ns(), begun = clock;
    struct train_phases *ph = &t->meter.phases;
    double lr, norm, total[TRAIN_SUMS] = {0};
    struct tern_llama_loss mine;
    enum tern_train_stop requested;

    tern_train_enter_stage(t);
    *ph = (struct train_phases){0};
    tern_llama_grads_zero(t->model);
    tern_train_set_doing(t, TERN_FABRIC_READS);
    int rc = load(t, err);
    tern_train_set_doing(t, TERN_FABRIC_COMPUTES);
    ph->data = lap(t, TRAIN_SPAN_DATA, &clock);
    if (tern_train_run_passes(t, scale, &mine, rc < 0 ? NULL : err) < 0)
        return -1;
    clock = tern_clock_boot_ns();
    if (tern_train_finish_sums(t, rc < 0 ? NULL : err) < 0)
        return -1;
    ph->comm += lap(t, TRAIN_SPAN_SUMS, &clock);
    if (t->me.place.tensor_rank == 0) { /* the other tensor ranks have the same */
        total[TRAIN_LOSS] = mine.sum;
        total[TRAIN_TARGETS] = (double)mine.n;
    }
    total[TRAIN_SQUARES] = tern_train_sum_squares(t);
    ph->optimizer = lap(t, TRAIN_SPAN_NORM, &clock);
    if (tern_train_agree_step(t, rc, total, &requested, err) < 0)
        return -1;
    ph->comm += lap(t, TRAIN_SPAN_AGREE, &clock);
    t->together = total[TRAIN_TARGETS] == 0;
    if (t->together)
        return tern_err_set(err, TERN_USAGE,
                            "step %" PRIu64 ": no target in the whole batch: its data is masked "
                            "throughout.",
                            t->progress.step + 1);
    rc = finish(t, total, &lr, &norm, err); /* the same on all ranks */
    ph->optimizer += lap(t, TRAIN_SPAN_UPDATE, &clock);
    if (rc == 0 && tern_train_gather_params(t, err) < 0)
        return -1;
    ph->comm += lap(t, TRAIN_SPAN_GATHER, &clock);
    if (t->meter.peak > 0)
        tern_train_measure_memory(&t->meter, t->options->fabric);
    ph->memory = (double)t->meter.memory_bytes;
    ph->predicted = (double)t->meter.predicted_bytes;
    if (tern_fabric_all_gather(t->world, ph, t->meter.ranks, sizeof *ph, TERN_U8,
                               rc < 0 ? NULL : err) < 0)
        return -1;
    t->together = rc < 0;
    lap(t, TRAIN_SPAN_AGREE, &clock); /* tern_train_record_step adds it to what was gathered */
    t->progress.step++;
    t->progress.sample += (uint64_t)r->batch.global;
    t->progress.evaluated = false;
    t->progress.loss = total[TRAIN_LOSS] / total[TRAIN_TARGETS];
    tern_train_set_doing(t, TERN_FABRIC_RECORDS); /* until the next step, with what comes between */
    tern_train_record_step(t, lr, norm, total[TRAIN_TARGETS], (double)(clock - begun) * 1e-9);
    *stop = requested;
    return rc;
}
