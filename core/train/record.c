/* The values of each step that rank 0 writes into the ledger, and the peak for its MFU. */
#include "core/train/state.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/plan/plan.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum {
    EACH = 64, /* ranks up to which each one's are recorded: 448 values, some 12 KB a step */
    /* Products between two barriers, after one that wakes threads and the processor.  Its wide
     * units are slow for their first millisecond: without a whole product before, the peak is a
     * sixth too low.  A barrier of many more ranks than cores takes longer than the products. */
    TIMES = 2,
    /* From so many ranks a core on, ranks wake the core for each other: one product each, after a
     * few rows of one, is as exact.  128 ranks on two cores begin half a second earlier so. */
    CROWD = 8,
    FIRST_ROWS = 32,
};

static const struct phase {
    const char *name;
    size_t at;
} phases[] = {
    {"data_seconds", offsetof(struct train_phases, data)},
    {"forward_seconds", offsetof(struct train_phases, forward)},
    {"backward_seconds", offsetof(struct train_phases, backward)},
    {"comm_seconds", offsetof(struct train_phases, comm)},
    {"update_seconds", offsetof(struct train_phases, optimizer)},
    {"memory_bytes", offsetof(struct train_phases, memory)},
    {"memory_predicted_bytes", offsetof(struct train_phases, predicted)},
};
enum { PHASES = sizeof phases / sizeof *phases, SPREAD = 3, OWN = 32, NAME = 40 };

static double of(const struct train_phases *p, int phase)
{
    return *(const double *)((const char *)p + phases[phase].at);
}

static double busy(const struct train_phases *p)
{
    return p->data + p->forward + p->backward + p->optimizer;
}

/* ---------------------------------------------------------------- the peak */

/* `rows` of it, by the unit that makes the model's products. */
static void product(const struct train *t, int rows, int side, tern_real *squares)
{
    const struct tern_tensor_gemm g = {.tb = true,
                                       .M = rows,
                                       .N = side,
                                       .K = side,
                                       .alpha = 1,
                                       .rounded = t->recipe->precision == TERN_PRECISION_BF16};

    tern_tensor_gemm(&g, squares, squares, squares + (size_t)side * (size_t)side);
}

int tern_train_measure_peak(struct train *t, int rc, struct tern_err *err)
{
    int side = tern_plan_peak_side(tern_tensor_threads());
    bool crowd = tern_fabric_load(t->options->fabric) >= CROWD;
    int times = crowd ? 1 : TIMES;
    size_t n = (size_t)side * (size_t)side;
    double flops = 2.0 * (double)n * side; /* of all: nodes may have other numbers of threads */
    tern_real *squares = NULL;

    if (!t->options->spool_dir)
        return tern_train_agree(t, rc, err);
    if (rc == 0 && !(squares = tern_alloc(2 * n, sizeof *squares, "the peak's matrices", err)))
        rc = -1;
    for (size_t i = 0; squares && i < 2 * n; i++)
        squares[i] = (tern_real)(i % 13) * (tern_real)0.1;
    if (squares)
        product(t, crowd ? FIRST_ROWS : side, side, squares);
    rc = tern_train_agree_sum(t, rc, &flops, err);
    /* No rank begins before rank 0, whose clock measures: where ranks share cores, others would be
     * done when it goes on from the round before. */
    int64_t from = tern_clock_boot_ns();
    if (rc == 0)
        rc = tern_fabric_broadcast(t->world, &flops, 1, TERN_F64, 0, err);
    for (int k = 0; k < times && rc == 0; k++)
        product(t, side, side, squares);
    if (rc == 0)
        rc = tern_fabric_barrier(t->world, err);
    int64_t took = tern_clock_boot_ns() - from;
    t->meter.peak = times * flops * 1e9 / (double)(took > 0 ? took : 1);
    free(squares);
    return rc;
}

/* The FLOPs of a step; what is computed again does not count. */
static double step_flops(const struct train *t)
{
    const struct tern_recipe *r = t->recipe;
    const struct tern_model_config *c = tern_llama_config(t->model);
    const struct tern_model_adapters *a = tern_llama_adapters(t->model);
    int T = (int)r->batch.seq_len;
    double token = a ? tern_model_flops_adapters(c, T, a) : tern_model_flops_train(c, T);

    return token * (double)(r->batch.global * r->batch.seq_len);
}

/* ---------------------------------------------------------------- a step's values */

struct values {
    struct tern_ledger_value list[OWN + PHASES * (SPREAD + EACH)];
    char names[PHASES * (SPREAD + EACH)][NAME];
    size_t n, named;
};

static void add(struct values *v, double value, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void add(struct values *v, double value, const char *fmt, ...)
{
    char *name = v->names[v->named++];
    va_list args;

    va_start(args, fmt);
    vsnprintf(name, NAME, fmt, args);
    va_end(args);
    v->list[v->n++] = (struct tern_ledger_value){name, value};
}

/* Into sorted[n].  qsort(3) would allocate when there are many. */
static void insert(double *sorted, int n, double v)
{
    for (; n > 0 && sorted[n - 1] > v; n--)
        sorted[n] = sorted[n - 1];
    sorted[n] = v;
}

/* Each rank's phases and memory while ranks are few, and how far they lie apart. */
static void add_ranks(const struct train *t, struct values *v)
{
    for (int p = 0; p < PHASES; p++) {
        for (int r = 0; r < t->size; r++) {
            double value = of(&t->meter.ranks[r], p);
            insert(t->meter.sorted, r, value);
            if (t->size <= EACH)
                add(v, value, "rank%d/%s", r, phases[p].name);
        }
        add(v, t->meter.sorted[0], "%s_min", phases[p].name);
        add(v, t->meter.sorted[t->size / 2], "%s_median", phases[p].name);
        add(v, t->meter.sorted[t->size - 1], "%s_max", phases[p].name);
    }
}

/* The peak is new since the last look, and node peers' pages, which do not go away, were at most as
 * many as now. So this rank's own part was at least the difference. */
void tern_train_measure_memory(struct train_meter *m, const struct tern_fabric *f)
{
    struct rusage use = {0};

    getrusage(RUSAGE_SELF, &use);
    uint64_t most = (uint64_t)use.ru_maxrss * 1024;
    if (most <= m->resident_bytes)
        return;
    m->resident_bytes = most;
    uint64_t theirs = tern_fabric_peers_bytes(f);
    uint64_t own = most > theirs ? most - theirs : 0;
    m->memory_bytes = own > m->memory_bytes ? own : m->memory_bytes;
}

/* The step's seconds (rank 0's) that no phase of a rank has. It waited for others at the step's
 * end, in the very message that brings the phases together. */
static void add_wait(struct train_phases *p, double seconds)
{
    double rest = seconds - (p->data + p->forward + p->backward + p->comm + p->optimizer);

    p->comm += rest > 0 ? rest : 0;
}

void tern_train_record_step(struct train *t, double lr, double norm, double tokens, double seconds)
{
    const struct train_phases *ph = &t->meter.ranks[0]; /* rank 0 records */
    int slowest = 0;

    if (!t->spool)
        return;
    for (int r = 0; r < t->size; r++)
        add_wait(&t->meter.ranks[r], seconds);
    for (int r = 1; r < t->size; r++)
        if (busy(&t->meter.ranks[r]) > busy(&t->meter.ranks[slowest]))
            slowest = r;
    const struct tern_ledger_value own[] = {
        {"loss", t->progress.loss},
        {"lr", lr},
        {"grad_norm", norm},
        {"tokens", tokens},
        {"tokens_per_second", tokens / seconds},
        {"mfu", step_flops(t) / seconds / t->meter.peak},
        {"step_seconds", seconds},
        {"data_seconds", ph->data},
        {"compute_seconds", ph->forward + ph->backward},
        {"forward_seconds", ph->forward},
        {"backward_seconds", ph->backward},
        {"comm_seconds", ph->comm},
        {"update_seconds", ph->optimizer},
        {"slowest_rank", slowest},
        {"slowest_rank_seconds", busy(&t->meter.ranks[slowest])},
        {"skipped_steps", (double)t->progress.guard.skipped}, /* of the run, so far */
        {"memory_predicted_bytes", ph->predicted},
        {"memory_bytes", ph->memory}, /* the most so far */
    };
    _Static_assert(sizeof own / sizeof *own < OWN, "room for a step's own values");
    struct values v;
    struct tern_err err;

    memcpy(v.list, own, sizeof own);
    v.n = sizeof own / sizeof *own;
    v.named = 0;
    if (t->ahead)
        v.list[v.n++] =
            (struct tern_ledger_value){"data_ahead_samples", tern_train_ahead_samples(t)};
    if (t->size > 1)
        add_ranks(t, &v);
    if (tern_ledger_spool_step(t->spool, (int64_t)t->progress.step, v.list, v.n, &err) < 0)
        tern_warn("%s", err.text);
}
