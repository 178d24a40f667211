#include "core/train/train.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/progress.h"
#include "core/base/str.h"
#include "core/plan/plan.h"
#include "core/train/state.h"

#include <inttypes.h>
#include <math.h>

/* Has any rank of the model-parallel group a stop request? */
static int agree_stop(void *ctx, bool *stop, struct tern_err *err)
{
    struct train *t = ctx;
    int32_t requested = *stop;

    if (tern_fabric_all_reduce(t->groups.model, &requested, 1, TERN_I32, TERN_MAX, err) < 0)
        return -1;
    *stop = requested > 0;
    return 0;
}

/* Perplexity on every held-out set, recorded.  1: a stop request ended it. */
static int evaluate(struct train *t, struct tern_err *err)
{
    struct train_progress *at = &t->progress;
    const struct tern_recipe *r = t->recipe;
    const struct tern_infer_group group = {
        .ctx = t,
        .model = t->model,
        .loss = tern_train_compute_loss,
        .agree_stop = tern_fabric_comm_size(t->groups.model) > 1 ? agree_stop : NULL,
        .stop = t->options->stop,
        .index = t->me.data_rank,
        .groups = t->me.data,
        .counts = t->me.place.tensor_rank == 0,
        .isolate = r->data.isolate,
    };

    at->not_finite_set = NULL;
    for (size_t i = 0; i < r->data.held_out.n; i++) {
        const char *name = r->data.held_out.sets[i].name;
        struct tern_infer_eval e;
        if (t->rank == 0)
            tern_progress_begin("tokens", "step %" PRIu64 ": evaluation on %s", at->step, name);
        int rc = tern_infer_evaluate(&group, t->sets.held_out[i], (uint32_t)r->batch.seq_len,
                                     (int)r->batch.micro, t->world, &e, err);
        tern_progress_end();
        if (tern_train_agree(t, rc, err) < 0)
            return -1;
        if (rc > 0)
            return 1;
        t->together = e.tokens == 0;
        if (e.tokens == 0)
            return tern_recipe_fail(r, "data.held_out", err,
                                    "%s: every target is masked, so that there is no loss.",
                                    r->data.held_out.sets[i].path);
        tern_train_stop_see(&at->stop_rule, name, (int64_t)at->step, e.nll / (double)e.tokens);
        if (!isfinite(e.nll))
            at->not_finite_set = name;
        if (t->rank != 0)
            continue;
        const struct tern_ledger_eval row = {
            .step = (int64_t)at->step,
            .set = name,
            .nll = e.nll,
            .tokens = (int64_t)e.tokens,
            .bytes = (int64_t)e.bytes,
        };
        struct tern_err lost;
        if (tern_ledger_spool_eval(t->spool, &row, &lost) < 0)
            tern_warn("%s", lost.text);
        char a_byte[40] = "";
        if (e.bytes)
            snprintf(a_byte, sizeof a_byte, ", %.3f a byte", exp(e.nll / (double)e.bytes));
        tern_info("step %" PRIu64 ": %s: perplexity %.2f a token%s (%" PRIu64 " tokens)", at->step,
                  name, exp(e.nll / (double)e.tokens), a_byte, e.tokens);
    }
    at->evaluated =
        !at->not_finite_set; /* else the next attempt evaluates again, and says it again */
    return 0;
}

static void log_beginning(struct train *t)
{
    const struct tern_recipe *r = t->recipe;
    char bytes[32], peak[32], step[24], steps[24], all[24], trained[24];
    struct tern_plan_memory b = {0};
    bool bf16 = r->precision == TERN_PRECISION_BF16;

    tern_plan_host_rank(r, tern_llama_config(t->model), &t->me, &b, NULL);
    t->meter.predicted_bytes = b.total;
    /* Before memory of node peers is mapped. */
    tern_train_measure_memory(&t->meter, t->options->fabric);
    if (t->rank != 0)
        return;
    tern_info("%s", tern_tensor_describe());
    if (bf16)
        tern_info("%s", tern_tensor_bf16_describe());
    tern_info("%s: %.1f M parameters, %d ranks, %" PRId64 " x %" PRId64 " tokens a step (%" PRId64
              " micro-batches of %" PRId64 " a rank), %s a rank",
              r->name, (double)tern_model_params(tern_llama_config(t->model)) * 1e-6, t->size,
              r->batch.global, r->batch.seq_len, t->me.micro_batches, r->batch.micro,
              tern_str_bytes(bytes, sizeof bytes, b.total));
    if (t->checkpoint.resumed_from)
        tern_info("going on after step %" PRIu64 " from %s", t->progress.step,
                  t->checkpoint.resumed_from);
    else
        tern_info("beginning from %s", /* of DIR/latest: the checkpoint that it was */
                  r->model.from ? t->checkpoint.files_dir : "random weights");
    snprintf(peak, sizeof peak, "%.6g", t->meter.peak * 1e-9);
    snprintf(step, sizeof step, "%" PRIu64, t->progress.step);
    snprintf(steps, sizeof steps, "%" PRId64, r->steps);
    const struct tern_model_config *config = tern_llama_config(t->model);
    const struct tern_model_adapters *adapters = tern_llama_adapters(t->model);
    const uint64_t own = tern_model_params(config);
    const uint64_t added = adapters ? tern_model_adapter_params(config, adapters) : 0;
    snprintf(all, sizeof all, "%" PRIu64, own + added);
    snprintf(trained, sizeof trained, "%" PRIu64, adapters ? added : own);
    const struct {
        const char *name, *value;
    } params[] = {{"kernels", tern_tensor_kernels()},
                  {"blas", tern_tensor_blas()},
                  {"blas_core", tern_tensor_core()},
                  {"peak_gflops", peak},
                  {"peak_unit", bf16 ? tern_tensor_bf16_unit() : "fp32"},
                  {TERN_LEDGER_RESUMED, step},
                  {TERN_LEDGER_STEPS, steps},
                  {TERN_LEDGER_PARAMETERS, all},
                  {TERN_LEDGER_TRAINABLE, trained},
                  {"resumed_from", t->checkpoint.resumed_from ? t->checkpoint.resumed_from : ""}};
    for (size_t i = 0; i < sizeof params / sizeof *params; i++)
        tern_ledger_spool_param(t->spool, params[i].name, params[i].value, NULL);
    tern_train_record_sets(t);
}

/* Evaluate; the time that takes does not count in the next line's tokens a second. */
static int evaluate_aside(struct train *t, int64_t *logged_ns, struct tern_err *err)
{
    int64_t began_ns = tern_clock_boot_ns();

    tern_train_set_doing(t, TERN_FABRIC_EVALUATES);
    int rc = evaluate(t, err);
    *logged_ns += tern_clock_boot_ns() - began_ns;
    return rc;
}

/* At the run's end: the checkpoint was saved before and does not say that it was evaluated. */
static int evaluate_last(struct train *t, int64_t *logged_ns, struct tern_err *err)
{
    int rc = evaluate_aside(t, logged_ns, err);

    if (rc == 0)
        tern_train_save_evaluated(t);
    return rc;
}

/* At most one line a second. */
static void log_step(const struct train *t, int64_t *last_ns, uint64_t *last_step)
{
    const struct train_progress *at = &t->progress;
    int64_t now = tern_clock_boot_ns();
    const struct tern_recipe *r = t->recipe;

    if (t->rank != 0 || (now - *last_ns < 1000000000 && at->step < (uint64_t)r->steps))
        return;
    double steps_per_s = (double)(at->step - *last_step) * 1e9 / (double)(now - *last_ns);
    tern_info("step %" PRIu64 "/%" PRId64 ": loss %.4f, %.0f tokens/s", at->step, r->steps,
              at->loss, steps_per_s * (double)(r->batch.global * r->batch.seq_len));
    *last_ns = now;
    *last_step = at->step;
}

/* Without a supervisor the trainer renews the lease on the checkpoint folder. */
static void renew_lease(struct train *t)
{
    int64_t now = tern_clock_boot_ns();
    struct tern_err err;

    if (!t->checkpoint.lease || t->options->spool_dir ||
        now - t->checkpoint.heartbeat_ns < (int64_t)TERN_CKPT_HEARTBEAT_S * 1000000000)
        return;
    t->checkpoint.heartbeat_ns = now;
    if (tern_ckpt_lease_renew(t->checkpoint.lease, &err) < 0)
        tern_warn("%s", err.text);
}

static bool due(int64_t every, uint64_t step)
{
    return every > 0 && step % (uint64_t)every == 0;
}

static enum tern_train_stop stop_at(const struct train *t)
{
    const uint64_t step = t->progress.step;
    uint64_t at = (uint64_t)t->recipe->launch.stop_at;

    return at && step >= at && step < (uint64_t)t->recipe->steps ? TERN_TRAIN_CONTINUE_LATER
                                                                 : TERN_TRAIN_GO_ON;
}

/* The checkpoint of this step, if there is to be one.  `end`: none may come after it. */
static int save(struct train *t, bool end, struct tern_err *err)
{
    if (end)
        return tern_train_save(t, err);
    return tern_train_save_due(t) ? tern_train_save_periodic(t, err) : 0;
}

static int loop(struct train *t, enum tern_train_stop *stop, struct tern_err *err)
{
    const struct train_progress *at = &t->progress;
    const struct tern_recipe *r = t->recipe;
    int64_t logged_ns = tern_clock_boot_ns();
    uint64_t logged_step = at->step;

    if (t->rank == 0 && (at->step >= (uint64_t)r->steps || at->ended))
        tern_info("nothing is left to do: step %" PRIu64 " of %" PRId64 " is done%s", at->step,
                  r->steps, at->ended ? ", where evaluate.stop ended the run" : "");
    bool last = at->step == (uint64_t)r->steps, first = true;
    int rc = 0;
    if ((at->step == 0 || last || due(r->evaluate.every, at->step)) && !at->evaluated)
        rc = last ? evaluate_last(t, &logged_ns, err) : evaluate_aside(t, &logged_ns, err);
    if (rc < 0 || (rc > 0 && tern_train_agree_stop(t, stop, err) < 0))
        return -1;
    /* Where there is no checkpoint yet, save the model that the run begins with: the next attempt
     * evaluates it. */
    if (rc > 0 && !t->checkpoint.resumed_from && tern_train_save(t, err) < 0)
        return -1;
    if (rc == 0 && !last) /* it was interrupted there, or less patience makes it the end */
        tern_train_check_end(t, /* already= */ true);
    last |= at->ended;
    *stop = *stop == TERN_TRAIN_GO_ON ? stop_at(t) : *stop;
    while (at->step < (uint64_t)r->steps && !at->ended && *stop == TERN_TRAIN_GO_ON) {
        if (tern_train_profile_begin(t, err) < 0 || tern_train_take_step(t, stop, err) < 0 ||
            tern_train_profile_write(t, err) < 0 || tern_train_save_go_on(t, err) < 0)
            return -1;
        *stop = *stop == TERN_TRAIN_GO_ON ? stop_at(t) : *stop;
        if (first)
            tern_debug("phase: step");
        first = false;
        if (t->options->watch)
            t->options->watch(t->options->watch_ctx, at->step, at->loss);
        renew_lease(t);
        log_step(t, &logged_ns, &logged_step);
        rc = 0;
        last = at->step == (uint64_t)r->steps;
        if (!last && *stop == TERN_TRAIN_GO_ON && due(r->evaluate.every, at->step))
            rc = evaluate_aside(t, &logged_ns, err);
        if (rc == 0 && !last)
            tern_train_check_end(t, /* already= */ false);
        bool end = last; /* saved before it is evaluated, which may take long */
        last |= at->ended;
        if (rc < 0 || (rc > 0 && tern_train_agree_stop(t, stop, err) < 0))
            return -1;
        if (save(t, last || *stop != TERN_TRAIN_GO_ON, err) < 0)
            return -1;
        if (end && ((rc = evaluate_last(t, &logged_ns, err)) < 0 ||
                    (rc > 0 && tern_train_agree_stop(t, stop, err) < 0)))
            return -1;
        if (last && rc == 0)
            *stop = TERN_TRAIN_GO_ON; /* the run is done: nothing is left to stop */
    }
    return last && *stop == TERN_TRAIN_GO_ON ? tern_train_check_result(t, err) : 0;
}

int tern_train_run(const struct tern_train_options *options, struct tern_train_result *ret_result,
                   struct tern_err *err)
{
    struct train t = {
        .options = options,
        .recipe = options->recipe,
        .world = tern_fabric_world(options->fabric),
        .rank = tern_fabric_rank(options->fabric),
        .size = tern_fabric_size(options->fabric),
    };
    enum tern_train_stop stop = TERN_TRAIN_GO_ON;

    tern_train_set_doing(&t, TERN_FABRIC_STARTS);
    int rc = tern_train_setup(&t, err);

    if (rc == 0) {
        tern_debug("phase: model");
        log_beginning(&t);
        rc = loop(&t, &stop, err);
    }
    if (rc < 0)
        tern_train_record_failure(&t, err);
    if (rc < 0 && (t.together || t.size == 1))
        tern_train_save_last(&t);
    if (rc == 0 && stop != TERN_TRAIN_CONTINUE_LATER)
        tern_train_local_end(&t);
    if (rc == 0)
        *ret_result = (struct tern_train_result){
            .step = t.progress.step, .loss = t.progress.loss, .stop = stop};
    tern_train_teardown(&t);
    return rc;
}
