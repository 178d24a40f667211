/* Read-ahead of sets at s3:// and https://.  Threads read the samples of later steps, into nothing.
 * So their blocks lie in the cache (core/store/reader.h) when the step reads them.  Sets on disk
 * need none: the kernel reads ahead. */
#include "core/train/state.h"

#include "core/base/str.h"
#include "core/store/store.h"

#include <pthread.h>
#include <stdlib.h>

/* Each sample may need a block of its own, of 1 MiB. As many may wait for the network at once, and
 * a cache of 16 GiB has room for them with 64 ranks on the node. */
enum { THREADS = 4, SAMPLES = 128 };

struct train_ahead {
    const struct train *t;
    uint64_t per_step, of_rank, skip; /* samples of a step; of them this rank's, behind `skip` */
    pthread_mutex_t lock;             /* of what follows */
    pthread_cond_t moved;
    uint64_t step; /* the present one's first sample */
    uint64_t next; /* of this rank's samples, counted over steps, from the first step on */
    uint64_t base; /* that count at `step` */
    bool *done;    /* [SAMPLES], by count % SAMPLES: it was read */
    bool ending;
    unsigned n;
    pthread_t threads[THREADS];
};

/* The run's number of this rank's sample `count`. */
static uint64_t sample_of(const struct train_ahead *a, uint64_t count)
{
    const uint64_t from = count - a->base;

    return a->step + from / a->of_rank * a->per_step + a->skip + from % a->of_rank;
}

static void *work(void *ctx)
{
    struct train_ahead *a = ctx;
    const size_t len = (size_t)a->t->recipe->batch.seq_len;
    int32_t *tokens = calloc(len + 1, sizeof *tokens);
    uint8_t *mask = calloc(len, 1);
    /* Of concat sets it needs a part of their list of documents. */
    int32_t *starts = a->t->recipe->data.isolate ? calloc(len, sizeof *starts) : NULL;

    pthread_mutex_lock(&a->lock);
    while (tokens && mask && !a->ending) {
        if (a->next >= a->base + SAMPLES) {
            pthread_cond_wait(&a->moved, &a->lock);
            continue;
        }
        const uint64_t count = a->next++, i = sample_of(a, count);
        pthread_mutex_unlock(&a->lock);
        /* The step meets the failure itself, if it stays. */
        const int rc =
            tern_data_stages_sample(a->t->sets.stages, i, tokens, mask, starts, /* err= */ NULL);
        pthread_mutex_lock(&a->lock);
        if (count >= a->base)
            a->done[count % SAMPLES] = rc == 0;
    }
    pthread_mutex_unlock(&a->lock);
    free(tokens);
    free(mask);
    free(starts);
    return NULL;
}

/* Their number.  `halt`: reads of them end. */
static size_t remote_sets(const struct tern_data_stages *s, bool halt)
{
    size_t n = 0;

    for (size_t k = 0; k < tern_data_stages_n(s); k++) {
        const struct tern_data_mix *m = tern_data_stages_mix(s, k);
        for (size_t i = 0; i < tern_data_mix_n_sources(m); i++) {
            n += tern_store_is(tern_data_set_path(tern_data_mix_set(m, i)));
            if (halt)
                tern_data_set_halt(tern_data_mix_set(m, i));
        }
    }
    return n;
}

int tern_train_ahead_open(struct train *t, struct tern_err *err)
{
    if (remote_sets(t->sets.stages, /* halt= */ false) == 0)
        return 0;
    struct train_ahead *a = tern_alloc(1, sizeof *a, "read-ahead", err);
    bool *done = a ? tern_alloc(SAMPLES, sizeof *done, "read-ahead", err) : NULL;
    if (!done) {
        free(a);
        return -1;
    }
    const uint64_t of_rank = (uint64_t)(t->me.micro_batches * t->recipe->batch.micro);
    *a = (struct train_ahead){.t = t,
                              .per_step = (uint64_t)t->recipe->batch.global,
                              .of_rank = of_rank,
                              .skip = (uint64_t)t->me.data_rank * of_rank,
                              .step = t->progress.sample,
                              .done = done};
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->moved, NULL);
    while (a->n < THREADS && pthread_create(&a->threads[a->n], NULL, work, a) == 0)
        a->n++;
    t->ahead = a;
    return 0;
}

void tern_train_ahead_close(struct train *t)
{
    struct train_ahead *a = t->ahead;

    if (!a)
        return;
    pthread_mutex_lock(&a->lock);
    a->ending = true;
    pthread_cond_broadcast(&a->moved);
    pthread_mutex_unlock(&a->lock);
    /* The run ends: its threads wait for no server. */
    remote_sets(t->sets.stages, /* halt= */ true);
    for (unsigned i = 0; i < a->n; i++)
        pthread_join(a->threads[i], NULL);
    pthread_cond_destroy(&a->moved);
    pthread_mutex_destroy(&a->lock);
    free(a->done);
    free(a);
    t->ahead = NULL;
}

void tern_train_ahead_move(struct train *t)
{
    struct train_ahead *a = t->ahead;

    if (!a)
        return;
    pthread_mutex_lock(&a->lock);
    if (t->progress.sample != a->step) {
        const uint64_t steps = (t->progress.sample - a->step) / a->per_step;
        const uint64_t gone = steps * a->of_rank;
        for (uint64_t k = 0; k < gone && k < SAMPLES; k++)
            a->done[(a->base + k) % SAMPLES] = false;
        a->base += gone;
        a->step = t->progress.sample;
        if (a->next < a->base)
            a->next = a->base;
        pthread_cond_broadcast(&a->moved);
    }
    pthread_mutex_unlock(&a->lock);
}

double tern_train_ahead_samples(struct train *t)
{
    struct train_ahead *a = t->ahead;
    uint64_t n = 0;

    if (!a)
        return 0;
    pthread_mutex_lock(&a->lock);
    while (n < SAMPLES && a->done[(a->base + n) % SAMPLES])
        n++;
    pthread_mutex_unlock(&a->lock);
    return (double)(n < a->of_rank ? 0 : n - a->of_rank); /* behind the present step */
}
