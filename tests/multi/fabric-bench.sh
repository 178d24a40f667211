#!/bin/bash
# tern bench fabric: what it prints and refuses, and ranks that sleep or cannot be started.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/fabric.sh"

run tern bench fabric --ranks 2 -b 0 -e 64K -f 16 -n 2 -w 0
status 0
out_has 'out of bounds values: 0 OK'
awk '!/^#/ && $12 < $11 {bad = 1} END {exit bad}' out; ok $? "p99 of two calls is not the faster one" || sed 's/^/# /' out
awk '!/^#/ && $1 > 0 && ($14 !~ /^[0-9.]+$/ || $15 !~ /^[0-9.]+$/) {bad = 1} !/^#/ && $1 > 0 {n++} END {exit bad || n < 8}' out
ok $? "inside a node each row has what memory alone takes, and the share" || sed 's/^/# /' out
run tern bench fabric --ranks 3 -b 1K -e 1K -n 2 --op all_gather -d bf16 --json
status 0
out_has '"op": "all_gather"'
out_has '"bytes": 1020' "a row has what is moved: 3 shares of 170 elements"
out_has '"memory_share"'
run tern bench fabric --ranks 3 --in-place -b 8 -e 1M -f 64 -n 2
status 0 "a rank's share in its place of the whole buffer"
out_has 'after 5, in place; '
out_has 'out of bounds values: 0 OK'
for type in u8 bf16; do # sums up to 262, beyond what these hold
    run tern bench fabric --ranks 75 --op all_reduce -b 64 -e 64 -n 1 -w 0 -d $type
    status 0 "75 ranks: sums in $type that wrap or are rounded are not wrong"
done
TERN_FABRIC_SHARE=1 run tern bench fabric --ranks 2 --op all_gather -b 8 -e 8 -n 2 --explain
awk '!/^#/ && $14 $15 != "--" {bad = 1} END {exit bad}' out; ok $? "between nodes it has not"
status 0; out_has 'ranks a core: measured'; grep -q '^# all_gather  *from 8 B ' out; ok $? "bench prints the algorithm that was chosen"
run tern bench fabric --op all_redcue
status 2; one_line
run env TERN_FABRIC_PROVIDER=nosuch TERN_FABRIC_SHARE=1 tern bench fabric --ranks 2 -e 8
err_has "libfabric has no provider 'nosuch'"
run env SLURM_STEP_NUM_TASKS=4 tern bench fabric -e 8
status 2; one_line; err_has 'srun --mpi=pmix'
if [ -n "${TERN_SANITIZE-}" ]; then
    skip "ranks that cannot be started: the sanitizer wants to be loaded first"
    skip "ranks whose sleeps ended late: the sanitizer wants to be loaded first"
    skip "a remote rank that comes late: the sanitizer wants to be loaded first"
else
    # As on a machine that has no core for a process that wakes up.
    gcc -shared -fPIC -x c -o late.so - -ldl <<'C'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
static int sleeps, yields;
int tern_test_sleeps(void) { return sleeps; }
int tern_test_yields(void) { return yields; }
int sched_yield(void) { return yields++, ((int (*)(void))dlsym(RTLD_NEXT, "sched_yield"))(); }
int nanosleep(const struct timespec *t, struct timespec *left)
{
    struct timespec longer = *t;
    sleeps++;
    if (getenv("TEST_FABRIC_LATE") && t->tv_sec == 0 && t->tv_nsec < 900000000)
        longer.tv_nsec += 3000000;
    return ((int (*)(const struct timespec *, struct timespec *))dlsym(RTLD_NEXT, "nanosleep"))(&longer, left);
}
C
    TEST_FABRIC_LATE=1 LD_PRELOAD=$WORK/late.so run timeout 600 "$R" uneven 4
    status 0; bound "$(sed -n 's,^sleeps: \([0-9]\),\1,p' out)" 20 "ranks whose sleeps ended late: sleeps in the 40 calls after that"
    TERN_FABRIC_SHARE=1 LD_PRELOAD=$WORK/late.so run timeout 600 "$R" paced 2
    status 0; bound "$(sed -n 's,^yields: \([0-9]\),\1,p' out)" 300 "a remote rank that comes late again and again: looks for it in each call"
    gcc -shared -fPIC -x c -o fail.so - -ldl <<'C'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>
static int self, n;
__attribute__((constructor)) static void load(void) { self = getpid(); }
static int fails(const char *what) { return getpid() == self && !strcmp(getenv("FAIL"), what) && n++ == 2; }
pid_t fork(void) { return fails("fork") ? errno = EAGAIN, -1 : ((pid_t(*)(void))dlsym(RTLD_NEXT, "fork"))(); }
int epoll_wait(int fd, struct epoll_event *e, int max, int ms)
{
    return fails("epoll") ? errno = EBADF, -1 : epoll_pwait(fd, e, max, ms, NULL);
}
C
    FAIL=fork LD_PRELOAD=$WORK/fail.so run timeout 600 tern bench fabric --ranks 4 -e 8
    status 75; one_line; err_has 'cannot start rank 2' "a rank that cannot be started ends the others"
    FAIL=epoll LD_PRELOAD=$WORK/fail.so run timeout 600 tern bench fabric --ranks 4 -e 8
    status 1; one_line; err_has 'the rendezvous' "a rendezvous that fails: one line names it"
fi
tap_done
