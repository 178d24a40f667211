/* Ranks in network namespaces, for the test of rails.
 *
 *   fabric-rails serve RANKS HOST    the meeting point; prints its address, ends with its input
 *   fabric-rails rank STEPS BYTES    one rank, from TERN_RUN_SOCKET, SLURM_PROCID, SLURM_NTASKS
 *
 * A rank all-reduces BYTES and eight bytes STEPS times and checks the sums; "step N" is printed now
 * and then.  With TEST_UNTIL=FILE the STEPS are counted from when rank 0 sees FILE.  With
 * TEST_PAUSE=S rank 1 computes for S seconds between two of them; with TEST_HOLD=FILE the last rank
 * says "held" and computes until there is a FILE.  Ends with 1 for a wrong sum and 3 for an error.
 */
#include "core/base/clock.h"
#include "core/fabric/fabric.h"
#include "core/wire/rendezvous.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct tern_err err;
enum { SEEN = 1 << 30 }; /* added to a small sum, which stays below it: rank 0 has seen the file */

static int serve(int ranks, const char *host)
{
    struct tern_wire_rendezvous *r = tern_wire_rendezvous_open(host, ranks, &err);
    char byte;

    if (!r) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    printf("%s\n", tern_wire_rendezvous_address(r));
    fflush(stdout);
    for (;;) {
        struct pollfd p[2] = {{tern_wire_rendezvous_fd(r), POLLIN, 0}, {0, POLLIN, 0}};
        poll(p, 2, 100);
        if (tern_wire_rendezvous_step(r, &err) < 0 || (p[1].revents && read(0, &byte, 1) <= 0))
            break;
    }
    tern_wire_rendezvous_close(r);
    return 0;
}

/* *seen: in, for rank 0; out, for everybody. */
static int step(struct tern_comm *c, int32_t *v, size_t n, int k, bool *seen)
{
    int size = tern_fabric_comm_size(c), rank = tern_fabric_comm_rank(c);
    int64_t small = rank + k + (rank == 0 && *seen ? SEEN : 0);

    for (size_t i = 0; i < n; i++)
        v[i] = (int32_t)(i * 7) + rank + k;
    if (tern_fabric_all_reduce(c, v, n, TERN_I32, TERN_SUM, &err) < 0 ||
        tern_fabric_all_reduce(c, &small, 1, TERN_I64, TERN_SUM, &err) < 0)
        return 3;
    *seen = small >= SEEN;
    int32_t more = (int32_t)(size * (size - 1) / 2 + size * k);
    for (size_t i = 0; i < n; i++) {
        if (v[i] != (int32_t)(i * 7) * size + more) {
            fprintf(stderr, "step %d: element %zu is wrong\n", k, i);
            return 1;
        }
    }
    return small == more + (*seen ? SEEN : 0) ? 0 : 1;
}

static int rank_main(int steps, size_t bytes)
{
    struct tern_fabric *f = tern_fabric_open(NULL, &err);
    int32_t *v = f ? tern_fabric_alloc(f, bytes, &err) : NULL;
    const char *pause = getenv("TEST_PAUSE"), *until = getenv("TEST_UNTIL");
    const char *hold = getenv("TEST_HOLD");
    bool seen = !until;
    int rc = v ? 0 : 3;

    if (f)
        printf("%s\n", tern_fabric_about(f));
    int64_t start = tern_clock_boot_ns();
    for (int k = 0; steps > 0 && rc == 0; k++) {
        if (k == 10 && pause && tern_fabric_rank(f) == 1)
            sleep((unsigned)atoi(pause));
        if (k == 10 && hold && tern_fabric_rank(f) == tern_fabric_size(f) - 1) {
            printf("held\n");
            fflush(stdout);
            while (access(hold, F_OK) < 0)
                tern_clock_sleep_ns(10000000);
        }
        start = tern_clock_boot_ns();
        if (until && !seen)
            seen = access(until, F_OK) == 0;
        rc = step(tern_fabric_world(f), v, bytes / 4, k, &seen);
        steps -= seen;
        if (k % 20 == 0) {
            printf("step %d\n", k);
            fflush(stdout);
        }
    }
    if (rc == 3)
        fprintf(stderr, "after %.1f s: code %d: %s\n", (double)(tern_clock_boot_ns() - start) / 1e9,
                (int)err.code, err.text);
    tern_fabric_close(f);
    return rc;
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "serve") == 0)
        return serve(atoi(argv[2]), argv[3]);
    if (argc == 4 && strcmp(argv[1], "rank") == 0)
        return rank_main(atoi(argv[2]), (size_t)atol(argv[3]));
    return 2;
}
