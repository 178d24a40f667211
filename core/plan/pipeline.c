/* The order in which a pipeline stage takes its micro-batches forward and backward. */
#include "core/plan/plan.h"

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

void tern_plan_pipeline_free(struct tern_plan_pipeline *p)
{
    free(p->steps);
    free(p->slots);
    *p = (struct tern_plan_pipeline){0};
}
