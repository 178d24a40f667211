#include "core/infer/sample.h"

#include "core/base/rand.h"
#include "core/base/str.h"

#include <math.h>
#include <stdlib.h>

struct tern_infer_sampler {
    struct tern_infer_sampling how;
    int n;
    double *weight; /* [n]: exp((logit - largest) / temperature) */
    int32_t *heap;  /* [n] tokens, the most probable one first */
    int32_t *taken; /* [n] tokens in order */
};

struct tern_infer_sampler *tern_infer_sampler_new(const struct tern_infer_sampling *how, int n,
                                                  struct tern_err *err)
{
    struct tern_infer_sampler *s = tern_alloc(1, sizeof *s, "a sampler", err);

    if (!s)
        return NULL;
    s->how = *how;
    s->n = n;
    s->weight = tern_alloc((size_t)n, sizeof *s->weight, "a sampler", err);
    s->heap = tern_alloc((size_t)n, sizeof *s->heap, "a sampler", err);
    s->taken = tern_alloc((size_t)n, sizeof *s->taken, "a sampler", err);
    if (s->weight && s->heap && s->taken)
        return s;
    tern_infer_sampler_free(s);
    return NULL;
}

void tern_infer_sampler_free(struct tern_infer_sampler *s)
{
    if (!s)
        return;
    free(s->taken);
    free(s->heap);
    free(s->weight);
    free(s);
}

/* The largest logit's token, the first of equals; -1: not all are finite. */
static int32_t largest(const tern_real *logits, int n)
{
    int32_t best = 0;
    bool finite = true;

    for (int i = 0; i < n; i++) {
        finite &= isfinite(logits[i]) != 0;
        if (logits[i] > logits[best])
            best = i;
    }
    return finite ? best : -1;
}

/* ---- a heap of tokens: the most probable on top, the lower id of equals ---- */

static bool before(const struct tern_infer_sampler *s, int32_t a, int32_t b)
{
    return s->weight[a] > s->weight[b] || (s->weight[a] == s->weight[b] && a < b);
}

static void sink(struct tern_infer_sampler *s, int at, int n)
{
    int32_t moved = s->heap[at];

    for (int child = 2 * at + 1; child < n; child = 2 * at + 1) {
        if (child + 1 < n && before(s, s->heap[child + 1], s->heap[child]))
            child++;
        if (!before(s, s->heap[child], moved))
            break;
        s->heap[at] = s->heap[child];
        at = child;
    }
    s->heap[at] = moved;
}

static void make_heap(struct tern_infer_sampler *s)
{
    for (int i = 0; i < s->n; i++)
        s->heap[i] = i;
    for (int i = s->n / 2 - 1; i >= 0; i--)
        sink(s, i, s->n);
}

static int32_t pop(struct tern_infer_sampler *s, int *n)
{
    int32_t top = s->heap[0];

    s->heap[0] = s->heap[--*n];
    sink(s, 0, *n);
    return top;
}

/* The tokens to draw from, the most probable ones first, into s->taken: how many, and their
 * weights' sum.  `all` is the sum of all. */
static int choose(struct tern_infer_sampler *s, double all, double *ret_sum)
{
    const int k = s->how.top_k > 0 && s->how.top_k < s->n ? s->how.top_k : s->n;
    int left = s->n, taken = 0, most = 0;
    double sum = 0;

    make_heap(s);
    if (k < s->n) { /* top_p is a share of these */
        for (all = 0; most < k; most++)
            all += s->weight[s->taken[most] = pop(s, &left)];
        for (; taken < k && (taken == 0 || sum < s->how.top_p * all); taken++)
            sum += s->weight[s->taken[taken]];
    } else {
        for (; taken < s->n && (taken == 0 || sum < s->how.top_p * all); taken++)
            sum += s->weight[s->taken[taken] = pop(s, &left)];
    }
    *ret_sum = sum;
    return taken;
}

int32_t tern_infer_sample(struct tern_infer_sampler *s, const tern_real *logits, uint64_t stream,
                          uint64_t place, struct tern_err *err)
{
    const int32_t best = largest(logits, s->n);
    double sum = 0;
    int n = s->n;

    if (best < 0) {
        tern_err_set(err, TERN_FAILED,
                     "a logit is not a number or infinite: the weights are damaged");
        return -1;
    }
    if (s->how.temperature == 0)
        return best;
    for (int i = 0; i < s->n; i++)
        sum += s->weight[i] = exp(((double)logits[i] - (double)logits[best]) / s->how.temperature);
    const bool some = s->how.top_p < 1 || (s->how.top_k > 0 && s->how.top_k < s->n);
    if (some)
        n = choose(s, sum, &sum);
    double left = tern_rand_unit(s->how.seed, stream, place) * sum;
    for (int i = 0; i < n; i++) {
        int32_t id = some ? s->taken[i] : i;
        if (left < s->weight[id])
            return id;
        left -= s->weight[id];
    }
    return best; /* rounding left a crumb */
}

double tern_infer_logprob(const tern_real *logits, int n, int32_t id)
{
    double max = (double)logits[0], sum = 0;

    for (int i = 1; i < n; i++)
        max = fmax(max, (double)logits[i]);
    for (int i = 0; i < n; i++)
        sum += exp((double)logits[i] - max);
    return (double)logits[id] - max - log(sum);
}
