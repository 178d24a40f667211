/* The trainer on several ranks of this machine, without `tern run`:
 *
 *     train-ranks RECIPE RANKS [KEY=VALUE]...      the losses of all steps, one a line, in full
 *
 * Built twice: in float, and in double as train-ranks-f64.  Exit status: the largest of the ranks'.
 * A run of more than 10 steps says on stderr how often each rank allocated after the tenth, and how
 * many bytes it copied to where its mates read them.  With TERN_FABRIC_DUMP each leaves a dump of
 * its last operations, written in its last step's end.
 */
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/inputs/inputs.h"
#include "core/fabric/fabric.h"
#include "core/wire/rendezvous.h"
#include "core/flight/flight.h"
#include "core/tensor/tensor.h"
#include "core/train/train.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_RANKS = 64, WARM = 10 };

/* ---------------------------------------------------------------- allocations of this process */

static unsigned long long allocations;

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *p, size_t bytes);
void *__libc_memalign(size_t align, size_t bytes);

void *malloc(size_t bytes)
{
    __atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED);
    return __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes)
{
    __atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED);
    return __libc_calloc(n, bytes);
}

void *realloc(void *p, size_t bytes)
{
    __atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED);
    return __libc_realloc(p, bytes);
}

void *aligned_alloc(size_t align, size_t bytes)
{
    __atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED);
    return __libc_memalign(align, bytes);
}
#endif

/* ---------------------------------------------------------------- ranks */

struct watched {
    int rank;
    uint64_t steps, last_step;
    unsigned long long warm, last; /* allocations up to the tenth step, and to the newest */
    struct tern_fabric *fabric;
    unsigned long long warm_staged, staged; /* bytes, likewise */
};

static void watch(void *ctx, uint64_t step, double loss)
{
    struct watched *w = ctx;

    w->last = allocations;
    w->staged = tern_fabric_staged_bytes(w->fabric);
    if (++w->steps == WARM) {
        w->warm = w->last;
        w->warm_staged = w->staged;
    }
    if (step == w->last_step)
        tern_flight_write(false);
    if (w->rank == 0)
        printf("%llu %.17g\n", (unsigned long long)step, loss);
}

static int rank_main(const char *path, const char *const *sets, size_t n_sets,
                     const struct tern_fabric_options *o)
{
    struct tern_err err = {0};
    struct tern_recipe *r = tern_recipe_load(path, sets, n_sets, &err);
    struct tern_fabric *f = NULL;
    struct tern_train_result result;
    int rc = -1;

    if (r && tern_inputs_length(r, &err) == 0 && tern_tensor_start(1, 1, &err) == 0)
        f = tern_fabric_open(o, &err);
    if (f) {
        struct watched w = {.rank = o->rank, .last_step = (uint64_t)r->steps, .fabric = f};
        const struct tern_train_options options = {
            .recipe = r, .fabric = f, .watch = watch, .watch_ctx = &w};
        rc = tern_train_run(&options, &result, &err);
        if (rc == 0 && w.steps > WARM)
            fprintf(stderr, "rank %d: %llu allocations in %llu steps, %llu bytes staged\n", o->rank,
                    w.last - w.warm, (unsigned long long)(w.steps - WARM),
                    w.staged - w.warm_staged);
    }
    if (rc < 0)
        fprintf(stderr, "rank %d: %s\n", o->rank, err.text);
    tern_recipe_free(r);
    fflush(stdout);
    return rc < 0 ? (int)err.code : 0;
}

int main(int argc, char **argv)
{
    int n = argc > 2 ? atoi(argv[2]) : 0, worst = 0, ended = 0, status;
    struct tern_err err = {0};

    if (n < 1 || n > MAX_RANKS) {
        fprintf(stderr, "usage: train-ranks RECIPE RANKS [KEY=VALUE]...\n");
        return 2;
    }
    struct tern_wire_rendezvous *r = tern_wire_rendezvous_open("127.0.0.1", n, &err);
    if (!r) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    for (int i = 0; i < n; i++) {
        if (fork() != 0)
            continue;
        const struct tern_fabric_options o = {.wireup = TERN_WIREUP_SOCKET,
                                              .socket = tern_wire_rendezvous_address(r),
                                              .rank = i,
                                              .size = n};
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(rank_main(argv[1], (const char *const *)argv + 3, (size_t)argc - 3, &o));
    }
    while (ended < n && tern_wire_rendezvous_step(r, &err) == 0) {
        struct pollfd p = {tern_wire_rendezvous_fd(r), POLLIN, 0};
        poll(&p, 1, 10);
        while (waitpid(-1, &status, WNOHANG) > 0) {
            int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
            ended++;
            worst = code > worst ? code : worst;
        }
    }
    tern_wire_rendezvous_close(r);
    return worst;
}
