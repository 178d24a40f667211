/* Facts of memory and arithmetic.
 *
 * Triad is STREAM's a[i] = b[i] + s * c[i] (McCalpin, https://www.cs.virginia.edu/stream/): three
 * doubles move an element.  Compute is a few steps of a tiny network trained in fp32 with sums in a
 * fixed order and no fused multiply-add.  So IEEE 754 leaves one result, whatever the CPU. */
#include "core/base/clock.h"
#include "core/base/hash.h"
#include "core/base/str.h"
#include "core/health/probe.h"

#include <errno.h>
#include <omp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ------------------------------------------------------------------ triad */

void tern_health_gather_triad(const struct tern_health_probe *p, struct tern_health_facts *f)
{
    /* 3 x 64 MiB: beyond every cache of a node that shares it; deep takes four times that. */
    const bool deep = p->options->stage == TERN_HEALTH_STAGE_DEEP;
    const size_t n = (deep ? (size_t)32 : (size_t)8) << 20;
    const int rounds = deep ? 40 : 10;
    double *a = malloc(n * sizeof *a), *b = malloc(n * sizeof *b), *c = malloc(n * sizeof *c);
    double best = 0;

    f->triad.n = n;
    f->triad.no_memory = !a || !b || !c;
    if (f->triad.no_memory)
        goto out;
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < n; i++) {
        a[i] = 0;
        b[i] = (double)(i % 1000);
        c[i] = 1;
    }
    for (int r = 0; r < rounds; r++) {
        int64_t began = tern_clock_boot_ns();
#pragma omp parallel for schedule(static)
        for (size_t i = 0; i < n; i++)
            a[i] = b[i] + 3.0 * c[i];
        double rate = 3.0 * (double)(n * sizeof *a) / (double)(tern_clock_boot_ns() - began);
        best = rate > best ? rate : best;
    }
    f->triad.gb_s = best;
    for (size_t i = 0; i < n; i++)
        f->triad.wrong += a[i] != (double)(i % 1000) + 3.0;
out:
    free(a);
    free(b);
    free(c);
}

/* ------------------------------------------------------------------ compute */

enum { DIM = 64, BATCH = 16 };

struct network {
    float w1[DIM][DIM], w2[DIM][DIM], x[BATCH][DIM], h[BATCH][DIM], y[BATCH][DIM], g[BATCH][DIM];
};

/* xorshift64*, to numbers in [-0.5, 0.5) that fp32 holds exactly. */
static float draw(uint64_t *s)
{
    *s ^= *s >> 12;
    *s ^= *s << 25;
    *s ^= *s >> 27;
    return (float)(int32_t)(*s * UINT64_C(2685821657736338717) >> 40) / 16777216.0f - 0.5f;
}

/* y = x w, and the same with w transposed: every sum from left to right. */
static void multiply(float y[BATCH][DIM], float x[BATCH][DIM], float w[DIM][DIM], bool transposed)
{
    for (int b = 0; b < BATCH; b++)
        for (int j = 0; j < DIM; j++) {
            float sum = 0;
            for (int i = 0; i < DIM; i++)
                sum += x[b][i] * (transposed ? w[j][i] : w[i][j]);
            y[b][j] = sum;
        }
}

static void update(float w[DIM][DIM], float x[BATCH][DIM], float g[BATCH][DIM])
{
    for (int i = 0; i < DIM; i++)
        for (int j = 0; j < DIM; j++) {
            float sum = 0;
            for (int b = 0; b < BATCH; b++)
                sum += x[b][i] * g[b][j];
            w[i][j] -= 0.01f * sum;
        }
}

/* One step: y = relu(x w1) w2 is to become x. */
static void step(struct network *n)
{
    multiply(n->h, n->x, n->w1, false);
    for (int b = 0; b < BATCH; b++)
        for (int j = 0; j < DIM; j++)
            n->h[b][j] = n->h[b][j] > 0 ? n->h[b][j] : 0;
    multiply(n->y, n->h, n->w2, false);
    for (int b = 0; b < BATCH; b++)
        for (int j = 0; j < DIM; j++)
            n->y[b][j] = (n->y[b][j] - n->x[b][j]) / DIM;
    multiply(n->g, n->y, n->w2, true);
    update(n->w2, n->h, n->y);
    for (int b = 0; b < BATCH; b++)
        for (int j = 0; j < DIM; j++)
            n->g[b][j] = n->h[b][j] > 0 ? n->g[b][j] : 0;
    update(n->w1, n->x, n->g);
}

/* The digest of the weights after `steps` steps. */
static void train(struct network *n, int steps, char hex[TERN_SHA256_HEX])
{
    uint64_t seed = 20240229;
    uint8_t digest[TERN_SHA256_BYTES];

    memset(n, 0, sizeof *n);
    for (int i = 0; i < DIM; i++)
        for (int j = 0; j < DIM; j++) {
            n->w1[i][j] = draw(&seed);
            n->w2[i][j] = draw(&seed);
        }
    for (int s = 0; s < steps; s++) {
        for (int b = 0; b < BATCH; b++)
            for (int j = 0; j < DIM; j++)
                n->x[b][j] = draw(&seed);
        step(n);
    }
    tern_sha256(n, sizeof n->w1 + sizeof n->w2, digest);
    tern_hex(hex, digest, sizeof digest);
}

enum { STEPS = 200 };
static const char golden[] = "2346e1c7455fe3b09f1776c3621bd83d38970ba50c377f8194ccb444d7bb5c88";

enum core { NOT_TRIED, RIGHT, WRONG };

/* The thread moves to `cpu` for it, and back afterwards. */
static enum core try_core(int cpu, int rounds)
{
    struct network *net = malloc(sizeof *net);
    char hex[TERN_SHA256_HEX] = "";
    cpu_set_t one, before;
    enum core found = NOT_TRIED;

    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    if (net && sched_getaffinity(0, sizeof before, &before) == 0 &&
        sched_setaffinity(0, sizeof one, &one) == 0) {
        found = RIGHT;
        for (int r = 0; r < rounds && found == RIGHT; r++) {
            train(net, STEPS, hex);
            found = strcmp(hex, golden) == 0 ? RIGHT : WRONG;
        }
        sched_setaffinity(0, sizeof before, &before);
    }
    free(net);
    return found;
}

/* One thread a CPU that this process may use, each pinned to its own. */
void tern_health_gather_compute(const struct tern_health_probe *p, struct tern_health_facts *f)
{
    cpu_set_t may; /* of CPU_SETSIZE CPUs, 1024: where the kernel has more, the call fails */
    int cpus[CPU_SETSIZE], n = 0;
    const int rounds = p->options->stage == TERN_HEALTH_STAGE_DEEP ? 50 : 2;

    if (sched_getaffinity(0, sizeof may, &may) < 0) {
        f->compute.error = errno;
        return;
    }
    for (int c = 0; c < CPU_SETSIZE; c++)
        if (CPU_ISSET(c, &may))
            cpus[n++] = c;
    f->compute.n = n;
#pragma omp parallel for schedule(static, 1) num_threads(n)
    for (int i = 0; i < n; i++) {
        enum core found = try_core(cpus[i], rounds);
#pragma omp critical
        {
            f->compute.right += found == RIGHT;
            f->compute.bad += found == WRONG;
            if (found == WRONG)
                f->compute.first_bad = cpus[i];
        }
    }
}
