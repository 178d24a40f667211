#!/bin/bash
# Collectives between processes on this machine, over shared memory and over libfabric's tcp.
#
# alone: what is promised within a deadline holds where its ranks get the processor
. "$(dirname "$0")/../lib/tap.sh"
R=$TOOLS/fabric-ranks
export TERN_DEADLINE=20
unset TERN_RUN_SOCKET

for n in 1 2 3 4 5 7 8; do
    run timeout 60 "$R" random $n "$n" 40
    status 0 "$n ranks in shared memory: random operations agree with the reference"
done
for n in 2 3 5 8; do
    TERN_FABRIC_SHARE=1 run timeout 60 "$R" random $n 1$n 25
    status 0 "$n ranks over libfabric: the same, bit for bit"
done
for n in 2 5; do
    TERN_FABRIC_CACHE=0 run timeout 60 "$R" random $n 4$n 40
    status 0 "$n ranks in shared memory, past the caches: the same"
done
for n in 2 3; do
    run timeout 60 "$R" gather $n
    status 0 "$n ranks gather what is shared and what is private: without copies where all inputs are shared"
    TERN_FABRIC_CACHE=0 run timeout 60 "$R" gather $n
    status 0 "past the caches also where all results are"
done
TERN_FABRIC_CACHE=much run timeout 60 "$R" random 2 1 1
err_has "TERN_FABRIC_CACHE: 'much' is not a number of bytes"
for provider in 'tcp;ofi_rxm' 'udp;ofi_rxd' shm; do
    TERN_FABRIC_PROVIDER=$provider TERN_FABRIC_SHARE=1 run timeout 60 "$R" random 3 5 20
    status 0 "random operations over $provider"
done
TERN_DEADLINE=5 TERN_FABRIC_PROVIDER=shm TERN_FABRIC_SHARE=1 \
    run timeout 60 tern bench fabric --ranks 12 -b 4M -e 4M -n 2 -w 0 --op all_reduce
status 0 "12 ranks over shm: no long message is lost where ranks crowd the cores"
TERN_FABRIC_SHARE=1 run tern bench fabric --ranks 2 -b 8 -e 8 -n 2 --op all_reduce
status 0; ! grep -q rxm out; ok $? "tcp has endpoints of its own"
! grep -q 'one rank alone' err; ok $? "two ranks are a measurement"
run tern bench fabric -b 8 -e 8 -n 2 --op all_reduce
status 0; err_has 'one rank alone'; err_has '--ranks N'
run bash -c 'ulimit -Sn 20; tern bench fabric --ranks 16 -b 8 -e 8 -n 2 --op all_reduce'
status 0 "a low limit of open files is raised for the ranks"
run bash -c 'ulimit -n 20; timeout 20 tern bench fabric --ranks 16 -b 8 -e 8 -n 2 --op all_reduce'
status 1; err_has 'cannot serve 16 ranks: 144 files may have to be open' "one that cannot be is told at once"
TERN_FABRIC_SHARE=1 FI_PROVIDER=tcp run tern bench fabric --ranks 2 -b 8 -e 8 -n 2 --op all_reduce
status 0; ! grep -q rxm out; ok $? "nor does a site's FI_PROVIDER=tcp hide them"
TERN_FABRIC_SHARE=1 FI_PROVIDER=tcp TERN_FABRIC_PROVIDER='tcp;ofi_rxm' run tern bench fabric --ranks 2 -b 8 -e 8 -n 2 --op all_reduce
status 0; out_has 'tcp;ofi_rxm' "who asks for the others has them"
FI_PROVIDER=udp,shm TERN_FABRIC_SHARE=1 run tern bench fabric --ranks 2 -b 8 -e 8 -n 2 --op all_reduce
status 0; out_has 'udp;ofi_rxd' "what FI_PROVIDER names is taken"
TERN_FABRIC_SHARE=2 TEST_FABRIC_ORDER=any run timeout 60 "$R" random 8 21 40
status 0 "four nodes of two: random operations agree"
TERN_FABRIC_SHARE=3 TEST_FABRIC_ORDER=any run timeout 60 "$R" random 7 31 40
status 0 "uneven nodes (3, 3, 1): random operations agree"

# Operations of three groups under way at once, begun and waited for in another order on every rank.
for shape in 8:4 1:2 1:5 2:6 3:7; do
    TERN_FABRIC_SHARE=${shape%:*} run timeout 60 "$R" pending "${shape#*:}" 3 6
    status 0 "${shape#*:} ranks, ${shape%:*} a node: several groups at once"
done

for n in 2 4; do
    run timeout 20 "$R" leave $n
    status 0 "$n ranks: what rank 0 broadcasts is read where it lies, also when it looks again after the others left"
done
run timeout 60 "$R" quit 2
status 0 "who reads a broadcast of a rank that leaves has all of it, or is told"
run timeout 60 "$R" free 3
status 0 "who has a broadcast frees it while the root computes"
TERN_FABRIC_SHARE=1 run timeout 60 "$R" ahead 3
status 0 "a rank may begin 64 operations before the others come"

# Every way of combining and gathering, on powers of two and not, on even nodes and not.
for a in doubling tree halving direct ring bruck; do
    for shape in 1:5 1:8 2:8 3:7; do
        order=any; [ "${shape%:*}" = 1 ] && order=
        TERN_FABRIC_ALGORITHM=$a TERN_FABRIC_SHARE=${shape%:*} TEST_FABRIC_ORDER=$order \
            run timeout 60 "$R" random "${shape#*:}" 4 12
        status 0 "$a: ${shape#*:} ranks, ${shape%:*} a node"
    done
done

# Every other rank names the victim, within the deadline and a second.
export TERN_DEADLINE=2
for share in 1 2 8; do
    for how in kill stop; do
        [ $share$how = 2stop ] && continue
        TERN_FABRIC_SHARE=$share run timeout 30 "$R" $how 4 2
        [ "$(grep -c 'code 75: rank 2 (' err)" = 3 ] && [ "$rc" = 3 ]
        ok $? "$how, at most $share sharing: the three others name rank 2" || sed 's/^/# /' err
        awk '$2 > 3 {late = 1} END {exit late}' err
        ok $? "$how, at most $share sharing: within the deadline and a second" || sed 's/^/# /' err
    done
done
for share in 1 8; do
    TERN_FABRIC_SHARE=$share run timeout 30 "$R" poll 4 2
    [ "$(grep -c 'code 75: rank 2 (' err)" = 3 ] && [ "$rc" = 3 ] && awk '$2 > 3 {late = 1} END {exit late}' err
    ok $? "kill, at most $share sharing: who never waits, but asks, is told as well" || sed 's/^/# /' err
done
run timeout 30 "$R" mismatch 3
[ "$(grep -c 'rank 2 (.*) called all_gather f32 64 #21 where rank.* called all_reduce f32 sum 200000' err)" = 3 ]
ok $? "ranks that call different things are told who called what" || sed 's/^/# /' err
TERN_FABRIC_SHARE=1 run timeout 30 "$R" mismatch 3
[ "$(grep -c 'rank 2 (.*) called all_gather f32 64 #21 where rank.* called all_reduce f32 sum 200000' err)" = 3 ]
ok $? "the same between nodes" || sed 's/^/# /' err
for share in 4 2 1; do
    TERN_FABRIC_SHARE=$share run timeout 30 "$R" differ 4
    [ "$(grep -c 'rank 3 (.*) called all_gather f32 64 #21 where ranks 0-2 called all_reduce f32 sum 1000 on' err)" = 4 ]
    ok $? "at most $share sharing: nobody is missing among those who called the other thing" || sed 's/^/# /' err
done
for share in 4 2; do # all mapped by memory; told between nodes too
    TERN_FABRIC_ALGORITHM=direct TERN_FABRIC_SHARE=$share run timeout 30 "$R" starve 4 2
    [ "$(grep -c 'rank 2 (.*) cannot go on: .*Too many open files; it was in all_reduce f32 sum 200000 #21' err)" = 4 ]
    ok $? "a rank without descriptors, at most $share sharing: all ranks know why" || sed 's/^/# /' err
done
TERN_FABRIC_SHARE=1 run timeout 30 "$R" cram 3 2
[ "$(grep -c 'rank 2 (.*) cannot go on: 256 shared buffers are in use' err)" = 3 ]
ok $? "a rank that cannot make its part of a split: the same" || sed 's/^/# /' err

run timeout 30 "$R" short 3
[ "$(grep -cE 'not all ranks reached|left while the ranks were meeting' err)" = 2 ]
ok $? "a rank that never comes is an error, not a hang" || sed 's/^/# /' err

# Ranks that are not alike: each started by words of its own.
unlike() { # WORDS...: `tern fabric info` behind each of them; what rank 0 prints in `out`
    rm -f address out.* err.*
    "$TOOLS/fabric-faults" meet $# 127.0.0.1 >address & local meet=$! rank=0 pids= words
    tap_cleanup="kill $meet"
    until [ -s address ]; do sleep 0.02; done
    for words; do
        TERN_RUN_SOCKET=$(cat address) SLURM_PROCID=$rank SLURM_NTASKS=$# timeout 20 \
            env $words tern fabric info >out.$rank 2>err.$rank & pids="$pids $!"
        rank=$((rank + 1))
    done
    rc=0; for words in $pids; do wait $words || rc=$?; done
    kill $meet; wait $meet 2>/dev/null; tap_cleanup=:
    mv out.0 out; cat err.* >err; cmd="tern fabric info on $# ranks"
}
export TERN_FABRIC_SHARE=1
set --
for c in $(seq 0 127); do [ $# -lt 2 ] && taskset -c $c true 2>/dev/null && set -- "$@" $c; done
if [ $# = 2 ]; then
    unlike "taskset -c $1" A= A= A= A=
    status 0 "5 ranks, one bound to a core: all decide alike whether to measure"
    out_has ' ranks a core: measured'
    unlike "taskset -c $1" "taskset -c $2"
    status 0; out_has ', 1 ranks a core: measured' "ranks bound to cores of their own do not crowd"
    unlike A= "taskset -c $1" "taskset -c $1"
    status 0; out_has ', 2 ranks a core: measured' "those on one core do"
else
    skip "one core: ranks cannot be bound apart"
fi
for share in 1 3; do
    TERN_FABRIC_SHARE=$share unlike A= A= TERN_FABRIC_DUMP=/dev/null/dumps
    [ "$(grep -c 'rank 2 (.*) cannot go on: TERN_FABRIC_DUMP' err)" = 3 ]
    ok $? "one rank cannot write dumps, at most $share sharing: the others learn it" || sed 's/^/# /' err
done
unset TERN_FABRIC_SHARE
run env TERN_FABRIC_PROVIDER=tcp tern fabric info
out_has 'provider: tcp: TERN_FABRIC_PROVIDER says so' "why this provider is said"
run env FI_PROVIDER=shm tern fabric info
out_has 'provider: shm: FI_PROVIDER names it first'
# libfabric is loaded when it is needed, and of PSM's libraries, which hold up every start and bind it to
# core 0, empty ones are taken where nobody asks for them.
begun() { LD_DEBUG=files "$@" 2>&1 | sed -n 's/.*calling init: //p'; }
begun "$TOOLS/train-ranks" >libraries; begun tern bench fabric --ranks 2 -b 8 -e 8 -n 2 --op all_reduce >>libraries
grep -q libpmix libraries && ! grep -q libfabric libraries; ok $? "ranks of one node do without libfabric" || cat libraries
begun tern fabric info >libraries
grep -q libfabric libraries && ! grep psm libraries | grep -qv /no-psm/; ok $? "where it is loaded, PSM's libraries are not" || cat libraries
for provider in TERN_FABRIC_PROVIDER=psm2 FI_PROVIDER=psm2,tcp; do
    begun env $provider tern fabric info >libraries
    ! grep -q /no-psm/ libraries; ok $? "unless somebody asks for them: $provider"
done
begun env FI_PROVIDER=^psm,psm2 tern fabric info >libraries
! grep psm libraries | grep -qv /no-psm/; ok $? "nor where they are forbidden" || cat libraries
FI_PROVIDER='' run tern fabric info
! grep -q 'FI_PROVIDER=,net' out; ok $? "an empty FI_PROVIDER hides nothing"
# PREFIX may lie in a folder where anybody may put files.
mkdir -p open/tern/bin open/plugins/no-psm
cp "$(command -v tern-fabric)" open/tern/bin
gcc -shared -o open/plugins/no-psm/libpsm_infinipath.so.1 -x c /dev/null
begun open/tern/bin/tern-fabric info >libraries
grep -q libfabric libraries && ! grep -q open/.*/no-psm/ libraries; ok $? "nothing is loaded from beside where tern lies" || cat libraries
mkdir broken; echo none >broken/libfabric.so.1
run env LD_LIBRARY_PATH=broken TERN_FABRIC_SHARE=1 tern bench fabric --ranks 2 -b 8 -e 8
status 1; err_has 'cannot load libfabric: broken/libfabric.so.1: file too short. Install it'
gcc -shared -o broken/libfabric.so.1 -x c /dev/null
run env LD_LIBRARY_PATH=broken tern fabric info
status 0; out_has 'nothing: libfabric.so.1 here is older than what this tern was built with (FABRIC_1.'
run env TERN_FABRIC_SHARE=x tern fabric info
status 2; one_line; err_has "TERN_FABRIC_SHARE: 'x'"
run env TERN_FABRIC_ALGORITHM=dubling tern fabric info
status 2; one_line; err_has "'dubling' is none of doubling, tree, halving, direct, ring, bruck"
run env TERN_FABRIC_ALGORITHM=dubling tern fabric plan all_reduce 4
status 2; one_line

export TERN_DEADLINE=20
run tern bench fabric --ranks 2 -b 0 -e 64K -f 16 -n 2 -w 0
status 0
out_has 'out of bounds values: 0 OK'
awk '!/^#/ && $12 < $11 {bad = 1} END {exit bad}' out; ok $? "of two calls, p99 is not the faster one" || sed 's/^/# /' out
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
status 0; out_has 'ranks a core: measured'; grep -q '^# all_gather  *from 8 B ' out; ok $? "and what was chosen"
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
    # As on a machine that has no core for whoever wakes up.
    gcc -shared -fPIC -x c -o late.so - <<'C'
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
    for _ in 1 2 3 4 5; do # else the machine may be busy
        TEST_FABRIC_LATE=1 LD_PRELOAD=$WORK/late.so run timeout 20 "$R" uneven 4
        awk '$1 == "sleeps:" && $2 >= 0 && $2 < 20 {good = 1} END {exit !good}' out && break
    done
    ok $? "ranks whose sleeps ended late do not sleep in each call from then on" || sed 's/^/# /' out err
    TERN_FABRIC_SHARE=1 LD_PRELOAD=$WORK/late.so run timeout 20 "$R" paced 2
    awk '$1 == "yields:" && $2 > 0 && $2 < 300 {good = 1} END {exit !good}' out
    ok $? "a remote rank that comes late again and again is not looked for all the time" || sed 's/^/# /' out err
    gcc -shared -fPIC -x c -o fail.so - <<'C'
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
    FAIL=fork LD_PRELOAD=$WORK/fail.so run timeout 10 tern bench fabric --ranks 4 -e 8
    status 1; one_line; err_has 'cannot start rank 2' "a rank that cannot be started ends the others"
    FAIL=epoll LD_PRELOAD=$WORK/fail.so run timeout 10 tern bench fabric --ranks 4 -e 8
    status 1; one_line; err_has 'the rendezvous' "and so does a meeting that fails"
fi

# A launcher that takes the connection and never says a word.
if [ -n "${TERN_SANITIZE-}" ]; then
    skip "a mute launcher: libpmix itself leaks under the leak sanitizer"
elif command -v python3 >/dev/null; then
    cat >mute.py <<'P'
import os, socket, subprocess, sys
s = socket.socket()
s.bind(("127.0.0.1", 0))
s.listen(5)
uri = "pmix-server.1;tcp4://127.0.0.1:%d" % s.getsockname()[1]
env = dict(os.environ, PMIX_NAMESPACE="x", PMIX_RANK="0", PMIX_SECURITY_MODE="native", PMIX_GDS_MODULE="hash",
           PMIX_PTL_MODULE="tcp", PMIX_BFROP_BUFFER_TYPE="PMIX_BFROP_BUFFER_NON_DESC", TERN_DEADLINE="1")
for v in "2", "21", "3", "4", "41":
    env["PMIX_SERVER_URI" + v] = uri
sys.exit(subprocess.run(sys.argv[1:], env=env, timeout=30).returncode)
P
    run python3 mute.py tern fabric info
    status 75; err_has 'PMIx: ' "a launcher that does not answer is an error, not a hang"
else
    skip "a mute launcher: no python3"
fi

if [ -n "${TERN_SANITIZE-}" ]; then
    skip "mpirun: libpmix itself leaks under the leak sanitizer"
elif command -v mpirun >/dev/null; then
    root=; [ "$(id -u)" = 0 ] && root=--allow-run-as-root
    run timeout 60 mpirun $root --oversubscribe -n 3 "$R" random 0 5 40
    status 0 "under mpirun, by PMIx: random operations agree"
else
    skip "mpirun is not installed"
fi
tap_done
