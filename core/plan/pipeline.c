/* The order in which a pipeline stage takes its micro-batches forward and backward. */
#include "core/plan/plan.h"

#include "core/base/assert.h"
#include "core/base/str.h"

#include <stdlib.h>

/* The k-th pass in one direction. Micro-batches go in groups of `stages`, each group through one
 * chunk after the other (Narayanan et al 2021, arXiv 2104.04473, 2.2). */
static struct tern_plan_step pass(const struct tern_plan_stage *s, int64_t k, bool backward)
{
    int64_t width = s->interleave > 1 ? s->stages : 1, whole = width * s->interleave;
    int64_t group = k / whole, at = k % whole;
    int chunk = (int)(at / width);

    return (struct tern_plan_step){
        .backward = backward,
        .chunk = backward ? s->interleave - 1 - chunk : chunk,
        .micro = group * width + at % width,
    };
}

/* Forward passes before the first backward one.  Without interleaving: as many as there are stages
 * behind this one. */
static int64_t warm_up(const struct tern_plan_stage *s, int64_t total)
{
    int64_t behind = s->stages - 1 - s->stage, n = behind;

    if (s->interleave > 1)
        n = 2 * behind + (int64_t)(s->interleave - 1) * s->stages;
    return n < total ? n : total;
}

/* Does the other end of this pass lie on another stage? */
static void find_ends(const struct tern_plan_stage *s, struct tern_plan_step *p)
{
    bool first = s->stage == 0 && p->chunk == 0;
    bool last = s->stage == s->stages - 1 && p->chunk == s->interleave - 1;

    p->receives = p->backward ? !last : !first;
    p->sends = p->backward ? !first : !last;
}

/* Give each micro-batch the lowest free slot of its chunk, and count them.  slot_of is
 * [interleave][micro_batches]. */
static void place(struct tern_plan_pipeline *p, int *slot_of, bool *taken, int64_t micro_batches)
{
    for (size_t i = 0; i < p->n; i++) {
        struct tern_plan_step *s = &p->steps[i];
        bool *of_chunk = taken + (size_t)s->chunk * (size_t)micro_batches;
        int *slot = &slot_of[(size_t)s->chunk * (size_t)micro_batches + (size_t)s->micro];

        if (!s->backward) {
            int free_one = 0;
            while (of_chunk[free_one])
                free_one++;
            *slot = free_one;
            if (free_one >= p->slots[s->chunk])
                p->slots[s->chunk] = free_one + 1;
        }
        of_chunk[*slot] = !s->backward;
        s->slot = *slot;
    }
}

int tern_plan_pipeline(const struct tern_plan_stage *s, struct tern_plan_pipeline *ret_pipeline,
                       struct tern_err *err)
{
    int64_t total = s->micro_batches * s->interleave, warm = warm_up(s, total);
    struct tern_plan_pipeline p = {.n = 2 * (size_t)total};

    /* With a smaller last group two stages would wait for each other. */
    if (s->interleave > 1 && s->micro_batches % s->stages)
        return tern_err_set(err, TERN_USAGE,
                            "%lld micro-batches a step are no multiple of %d pipeline stages, as "
                            "interleaving requires",
                            (long long)s->micro_batches, s->stages);
    size_t cells = (size_t)total;
    int *slot_of = tern_alloc(cells, sizeof *slot_of, "a pipeline's plan", err);
    bool *taken = tern_alloc(cells + 1, sizeof *taken, "a pipeline's plan", err);
    int rc = -1;

    p.steps = tern_alloc(p.n, sizeof *p.steps, "a pipeline's plan", err);
    p.slots = tern_alloc((size_t)s->interleave, sizeof *p.slots, "a pipeline's plan", err);
    if (!slot_of || !taken || !p.steps || !p.slots)
        goto out;
    for (int64_t forward = 0, backward = 0, i = 0; i < (int64_t)p.n; i++) {
        bool back = forward == total || (forward > warm && forward - backward > warm);
        p.steps[i] = back ? pass(s, backward++, true) : pass(s, forward++, false);
        find_ends(s, &p.steps[i]);
    }
    place(&p, slot_of, taken, s->micro_batches);
    *ret_pipeline = p;
    rc = 0;
out:
    if (rc < 0)
        tern_plan_pipeline_free(&p);
    free(slot_of);
    free(taken);
    return rc;
}

/* `slot_of`: of each chunk's micro-batches, 1 + the slot between its passes, -1 behind them;
 * `holder`: of each slot, 1 + the micro-batch that has it. */
static void check_step(const struct tern_plan_step *x, int slots, int *slot_of, int64_t *holder)
{
    tern_assert(x->slot >= 0 && x->slot < slots, "slot %d of %d", x->slot, slots);
    tern_assert_cmp(slot_of[x->micro], ==, x->backward ? x->slot + 1 : 0);
    tern_assert_cmp(holder[x->slot], ==, x->backward ? x->micro + 1 : 0);
    slot_of[x->micro] = x->backward ? -1 : x->slot + 1;
    holder[x->slot] = x->backward ? 0 : x->micro + 1;
}

int tern_plan_pipeline_check(const struct tern_plan_pipeline *p, const struct tern_plan_stage *s,
                             struct tern_err *err)
{
    const size_t chunks = (size_t)s->interleave, micros = (size_t)s->micro_batches;
    int *slot_of = tern_alloc(chunks * micros, sizeof *slot_of, "a pipeline's plan", err);
    /* A micro-batch has a slot of each chunk at most. */
    int64_t *holder = tern_alloc(chunks * micros, sizeof *holder, "a pipeline's plan", err);
    const int rc = slot_of && holder ? 0 : -1;

    tern_assert_cmp(p->n, ==, 2 * chunks * micros);
    for (size_t i = 0; rc == 0 && i < p->n; i++) {
        const struct tern_plan_step *x = &p->steps[i];
        tern_assert(x->chunk >= 0 && x->chunk < s->interleave && x->micro >= 0 &&
                        x->micro < s->micro_batches,
                    "step %zu: micro-batch %lld of chunk %d", i, (long long)x->micro, x->chunk);
        tern_assert((size_t)p->slots[x->chunk] <= micros, "chunk %d: %d slots", x->chunk,
                    p->slots[x->chunk]);
        check_step(x, p->slots[x->chunk], slot_of + (size_t)x->chunk * micros,
                   holder + (size_t)x->chunk * micros);
    }
    free(slot_of);
    free(holder);
    return rc;
}

void tern_plan_pipeline_free(struct tern_plan_pipeline *p)
{
    free(p->steps);
    free(p->slots);
    *p = (struct tern_plan_pipeline){0};
}
