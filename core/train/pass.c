/* A step's micro-batches through the pipeline, by the plan; and the forward pass alone. */
#include "core/train/state.h"

#include "core/base/clock.h"
#include "core/base/str.h"

#include <stdlib.h>

enum { FORWARD, BACKWARD };

/* A message on its way out of a slot: its output, or the gradient of its input. */
struct train_send {
    struct tern_pending pending;
    bool busy;
};

static struct train_send *send_of(const struct train_passes *p, int direction, int chunk, int slot)
{
    size_t at = 0;

    for (int k = 0; k < chunk; k++)
        at += (size_t)p->plan.slots[k];
    return &p->sends[2 * (at + (size_t)slot) + (size_t)direction];
}

int tern_train_pass_open(struct train *t, struct tern_err *err)
{
    struct train_passes *x = &t->passes;
    const struct tern_model_place *p = &t->me.place;
    const struct tern_plan_stage stage = {p->pipeline, p->stage, p->interleave,
                                          t->me.micro_batches};
    size_t slots = 0;

    if (tern_plan_pipeline(&stage, &x->plan, err) < 0 ||
        tern_plan_pipeline_check(&x->plan, &stage, err) < 0)
        return -1;
    for (int k = 0; k < p->interleave; k++)
        slots += (size_t)x->plan.slots[k];
    x->sends = tern_alloc(2 * slots, sizeof *x->sends, "the pipeline's messages", err);
    return x->sends ? 0 : -1;
}

void tern_train_pass_close(struct train *t)
{
    tern_plan_pipeline_free(&t->passes.plan);
    free(t->passes.sends);
}

/* Wait until a message has left the memory that is about to be written. */
static int settle(struct train *t, struct train_send *s, struct tern_err *err)
{
    int64_t from = tern_clock_boot_ns();

    if (!s->busy)
        return 0;
    s->busy = false;
    int rc = tern_fabric_wait(&s->pending, err);
    tern_train_add_span(t->profile, TRAIN_SPAN_SENT, from, NULL);
    return rc;
}

static int settle_slot(struct train *t, int chunk, int slot, struct tern_err *err)
{
    if (settle(t, send_of(&t->passes, FORWARD, chunk, slot), err) < 0)
        return -1;
    return settle(t, send_of(&t->passes, BACKWARD, chunk, slot), err);
}

static enum tern_type stream_type(const struct train *t)
{
    return t->recipe->precision == TERN_PRECISION_BF16 ? TERN_BF16 : TRAIN_REAL;
}

/* `of`: the step of the plan, NULL in an evaluation. */
static int receive(struct train *t, int direction, void *to, const struct tern_plan_step *of,
                   struct tern_err *err)
{
    int64_t from = tern_clock_boot_ns();
    int rc = tern_fabric_broadcast(t->groups.receive[direction], to, tern_llama_stream(t->model),
                                   stream_type(t), 0, err);

    tern_train_add_span(t->profile, TRAIN_SPAN_RECEIVE, from, of);
    return rc;
}

static int send(struct train *t, int direction, int chunk, int slot, void *from,
                const struct tern_plan_step *of, struct tern_err *err)
{
    struct train_send *s = send_of(&t->passes, direction, chunk, slot);
    int64_t begun = tern_clock_boot_ns();

    if (tern_fabric_broadcast_begin(t->groups.send[direction], from, tern_llama_stream(t->model),
                                    stream_type(t), 0, &s->pending, err) < 0 ||
        tern_fabric_progress(t->options->fabric, err) < 0) /* what comes next computes */
        return -1;
    s->busy = true;
    tern_train_add_span(t->profile, TRAIN_SPAN_SEND, begun, of);
    return 0;
}

/* Add the time since *from to `*phase`, but for the model's own communication in it. */
static void account(struct train_phases *p, int64_t *from, double *phase)
{
    int64_t now = tern_clock_boot_ns();

    *phase += (double)(now - *from) * 1e-9 - p->inside;
    p->comm += p->inside;
    p->inside = 0;
    *from = now;
}

static int forward(struct train *t, const struct tern_plan_step *s, struct tern_err *err)
{
    const struct tern_llama_batch b = tern_train_batch(t, s->micro);
    const struct tern_llama_pass pass = {s->chunk, s->slot, &b};
    struct train_phases *p = &t->meter.phases;
    int64_t clock = tern_clock_boot_ns();

    if (settle_slot(t, s->chunk, s->slot, err) < 0 ||
        (s->receives &&
         receive(t, FORWARD, tern_llama_in(t->model, s->chunk, s->slot), s, err) < 0))
        return -1;
    account(p, &clock, &p->comm);
    if (tern_llama_chunk_forward(t->model, &pass, err) < 0)
        return -1;
    tern_train_add_span(t->profile, TRAIN_SPAN_FORWARD, clock, s);
    account(p, &clock, &p->forward);
    if (s->sends && send(t, FORWARD, s->chunk, s->slot, tern_llama_out(t->model, s->chunk, s->slot),
                         s, err) < 0)
        return -1;
    account(p, &clock, &p->comm);
    return 0;
}

static int backward(struct train *t, const struct tern_plan_step *s, double scale,
                    struct tern_llama_loss *sum, struct tern_err *err)
{
    const struct tern_llama_ready ready = {t, tern_train_begin_bucket};
    const struct tern_llama_batch b = tern_train_batch(t, s->micro);
    const struct tern_llama_pass pass = {s->chunk, s->slot, &b};
    bool last = s->micro == t->me.micro_batches - 1;
    struct tern_llama_loss loss = {0};
    struct train_phases *p = &t->meter.phases;
    int64_t clock = tern_clock_boot_ns();

    if (settle_slot(t, s->chunk, s->slot, err) < 0 ||
        (s->receives &&
         receive(t, BACKWARD, tern_llama_out(t->model, s->chunk, s->slot), s, err) < 0))
        return -1;
    account(p, &clock, &p->comm);
    if (tern_llama_chunk_backward(t->model, &pass, scale, &loss, last ? &ready : NULL, err) < 0)
        return -1;
    tern_train_add_span(t->profile, TRAIN_SPAN_BACKWARD, clock, s);
    account(p, &clock, &p->backward);
    if (s->sends && send(t, BACKWARD, s->chunk, s->slot, tern_llama_in(t->model, s->chunk, s->slot),
                         s, err) < 0)
        return -1;
    account(p, &clock, &p->comm);
    sum->sum += loss.sum;
    sum->n += loss.n;
    return 0;
}

int tern_train_run_passes(struct train *t, double scale, struct tern_llama_loss *sum,
                          struct tern_err *err)
{
    *sum = (struct tern_llama_loss){0};
    t->optimizer.begun = 0;
    for (size_t i = 0; i < t->passes.plan.n; i++) {
        const struct tern_plan_step *s = &t->passes.plan.steps[i];
        if ((s->backward ? backward(t, s, scale, sum, err) : forward(t, s, err)) < 0)
            return -1;
    }
    for (int k = 0; k < t->me.place.interleave; k++)
        for (int slot = 0; slot < t->passes.plan.slots[k]; slot++)
            if (settle_slot(t, k, slot, err) < 0)
                return -1;
    return 0;
}

/* ---------------------------------------------------------------- evaluation */

int tern_train_compute_loss(void *ctx, const struct tern_llama_batch *b,
                            struct tern_llama_loss *ret_loss, struct tern_err *err)
{
    struct train *t = ctx;
    const struct tern_model_place *p = &t->me.place;

    *ret_loss = (struct tern_llama_loss){0};
    for (int k = 0; k < p->interleave; k++) {
        const struct tern_llama_pass pass = {.chunk = k, .slot = 0, .b = b};
        bool first = k == 0 && p->stage == 0;
        bool last = k == p->interleave - 1 && p->stage == p->pipeline - 1;
        if (settle_slot(t, k, 0, err) < 0 ||
            (!first && receive(t, FORWARD, tern_llama_in(t->model, k, 0), NULL, err) < 0) ||
            tern_llama_chunk_forward(t->model, &pass, err) < 0)
            return -1;
        if (last)
            return tern_llama_chunk_loss(t->model, &pass, ret_loss, err);
        if (send(t, FORWARD, k, 0, tern_llama_out(t->model, k, 0), NULL, err) < 0)
            return -1;
    }
    return 0;
}
