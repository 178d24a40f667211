/* The pipeline's order, played through by all its stages at once. */
#include "core/plan/plan.h"
#include "tests/unit/tap.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STAGES = 6, CHUNKS = 4, MICROS = 20 };

/* What has happened to micro-batch m in global chunk g. */
static struct {
    bool forward, backward, got_input, got_gradient;
} done[STAGES * CHUNKS][MICROS];

/* Can stage `s` take this step now?  Its data must be there, and what was sent from the memory that
 * it is going to overwrite must have been taken. */
static bool possible(const struct tern_plan_pipeline *p, size_t at, int P, int s, int chunks)
{
    const struct tern_plan_step *x = &p->steps[at];
    int g = x->chunk * P + s;

    if (x->backward)
        return done[g][x->micro].forward && (g == chunks - 1 || done[g + 1][x->micro].backward) &&
               (g == chunks - 1 || done[g + 1][x->micro].got_input);
    if (g > 0 && !done[g - 1][x->micro].forward)
        return false;
    /* The earlier owner of the slot sent its gradient from here. */
    for (size_t i = at; i-- > 0;)
        if (p->steps[i].backward && p->steps[i].chunk == x->chunk && p->steps[i].slot == x->slot)
            return g == 0 || done[g - 1][p->steps[i].micro].got_gradient;
    return true;
}

/* 0 when all stages come to their ends. */
static int play(int P, int v, int M)
{
    struct tern_plan_pipeline plan[STAGES] = {0};
    size_t at[STAGES] = {0}, left = 0;
    bool moved = true;
    int wrong = 0;

    memset(done, 0, sizeof done);
    for (int s = 0; s < P; s++) {
        const struct tern_plan_stage stage = {P, s, v, M};
        tern_plan_pipeline(&stage, &plan[s], NULL);
        wrong += tern_plan_pipeline_check(&plan[s], &stage, NULL) < 0;
        left += plan[s].n;
    }
    while (moved) {
        moved = false;
        for (int s = 0; s < P; s++) {
            while (at[s] < plan[s].n && possible(&plan[s], at[s], P, s, P * v)) {
                const struct tern_plan_step *x = &plan[s].steps[at[s]++];
                int g = x->chunk * P + s;
                bool *now = x->backward ? &done[g][x->micro].backward : &done[g][x->micro].forward;
                wrong += *now || x->slot >= plan[s].slots[x->chunk];
                wrong += x->receives != (x->backward ? g < P * v - 1 : g > 0);
                wrong += x->sends != (x->backward ? g > 0 : g < P * v - 1);
                *now = true;
                if (x->backward)
                    done[g][x->micro].got_gradient = true;
                else
                    done[g][x->micro].got_input = true;
                moved = true;
                left--;
            }
            /* It has begun to receive although it cannot go on. */
            if (at[s] < plan[s].n) {
                const struct tern_plan_step *x = &plan[s].steps[at[s]];
                if (x->backward && !done[x->chunk * P + s][x->micro].got_gradient) {
                    done[x->chunk * P + s][x->micro].got_gradient = true;
                    moved = true;
                }
            }
        }
    }
    for (int s = 0; s < P; s++)
        tern_plan_pipeline_free(&plan[s]);
    return wrong + (int)left;
}

/* Sender and receiver of a link must speak of the same micro-batches in the same order. */
static int orders(int P, int v, int M)
{
    struct tern_plan_pipeline plan[STAGES] = {0};
    int wrong = 0;

    for (int s = 0; s < P; s++)
        tern_plan_pipeline(&(struct tern_plan_stage){P, s, v, M}, &plan[s], NULL);
    for (int s = 0; s < P; s++) {
        for (int backward = 0; backward < 2; backward++) {
            int to = backward ? (s + P - 1) % P : (s + 1) % P;
            size_t j = 0;
            for (size_t i = 0; i < plan[s].n; i++) {
                const struct tern_plan_step *x = &plan[s].steps[i], *y;
                if (x->backward != (bool)backward || !x->sends)
                    continue;
                while (j < plan[to].n && (plan[to].steps[j].backward != (bool)backward ||
                                          !plan[to].steps[j].receives))
                    j++;
                y = &plan[to].steps[j++];
                int from = x->chunk * P + s, there = y->chunk * P + to;
                wrong += y->micro != x->micro || there != from + (backward ? -1 : 1);
            }
        }
    }
    for (int s = 0; s < P; s++)
        tern_plan_pipeline_free(&plan[s]);
    return wrong;
}

static void one_stage(void)
{
    struct tern_plan_pipeline p;

    tern_plan_pipeline(&(struct tern_plan_stage){1, 0, 1, 5}, &p, NULL);
    int good = 1;
    for (size_t i = 0; i < p.n; i++)
        good = good && p.steps[i].backward == i % 2 && p.steps[i].micro == (int64_t)i / 2 &&
               !p.steps[i].sends && !p.steps[i].receives;
    ok(good && p.n == 10 && p.slots[0] == 1, "one stage: each micro-batch forward, then backward");
    tern_plan_pipeline_free(&p);
}

static void memory(void)
{
    struct tern_plan_pipeline p;

    for (int s = 0; s < 4; s++) {
        tern_plan_pipeline(&(struct tern_plan_stage){4, s, 1, 32}, &p, NULL);
        ok(p.slots[0] == 4 - s, "stage %d of 4 holds %d micro-batches", s, p.slots[0]);
        tern_plan_pipeline_free(&p);
    }
    tern_plan_pipeline(&(struct tern_plan_stage){4, 0, 2, 32}, &p, NULL);
    ok(p.slots[0] == 8 && p.slots[1] == 4, "the first of 4 with two chunks: %d and %d", p.slots[0],
       p.slots[1]);
    tern_plan_pipeline_free(&p);
}

/* Does a child abort that would follow a list with the steps `a` and `b` exchanged, or with another
 * slot in `b`? */
static bool aborts(size_t a, size_t b, int slot)
{
    const struct tern_plan_stage stage = {4, 1, 1, 8};
    struct tern_plan_pipeline p;
    int status = 0;

    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        const struct rlimit no_core = {0, 0};
        setrlimit(RLIMIT_CORE, &no_core);
        close(STDERR_FILENO);
        if (tern_plan_pipeline(&stage, &p, NULL) < 0)
            _exit(1);
        const struct tern_plan_step was = p.steps[a];
        p.steps[a] = p.steps[b];
        p.steps[b] = was;
        p.steps[b].slot += slot;
        tern_plan_pipeline_check(&p, &stage, NULL);
        _exit(0);
    }
    return child > 0 && waitpid(child, &status, 0) == child && WIFSIGNALED(status) &&
           WTERMSIG(status) == SIGABRT;
}

static void test_hand_over(void)
{
    ok(!aborts(0, 0, 0), "a list that is right is handed over to the trainer");
    ok(aborts(0, 3, 0), "a list with a backward pass before its forward pass is not followed");
    ok(aborts(1, 1, -1), "a list in which two micro-batches share a slot is not followed");
    ok(aborts(0, 0, 100), "a list with a slot that there is not is not followed");
}

int main(void)
{
    int played = 0, stuck = 0, muddled = 0;

    one_stage();
    memory();
    test_hand_over();
    for (int P = 1; P <= STAGES; P++)
        for (int v = 1; v <= (P > 1 ? CHUNKS : 1); v++)
            for (int M = v > 1 ? P : 1; M <= MICROS; M += v > 1 ? P : 1, played++) {
                stuck += play(P, v, M) != 0;
                muddled += orders(P, v, M) != 0;
            }
    ok(stuck == 0, "%d pipelines of up to 6 stages, 4 chunks and 20 micro-batches come to an end",
       played);
    struct tern_plan_pipeline none;
    struct tern_err err = {0};
    ok(tern_plan_pipeline(&(struct tern_plan_stage){4, 0, 2, 6}, &none, &err) < 0,
       "interleaving wants groups of micro-batches: %s", err.text);
    ok(muddled == 0, "senders and receivers agree on the order");
    return tap_done();
}
