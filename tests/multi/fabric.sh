#!/bin/bash
# Collectives between processes on this machine, over shared memory and over libfabric's tcp.
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
TERN_FABRIC_SHARE=2 TEST_FABRIC_ORDER=any run timeout 60 "$R" random 8 21 40
status 0 "four nodes of two: random operations agree"
TERN_FABRIC_SHARE=3 TEST_FABRIC_ORDER=any run timeout 60 "$R" random 7 31 40
status 0 "uneven nodes (3, 3, 1): random operations agree"

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
run timeout 30 "$R" mismatch 3
[ "$(grep -c 'called all_gather f32 64 #21.*where rank . called all_reduce\|called all_reduce.*where rank 2 called all_gather f32 64' err)" = 3 ]
ok $? "ranks that call different things are told who called what" || sed 's/^/# /' err
TERN_FABRIC_SHARE=1 run timeout 30 "$R" mismatch 3
[ "$(grep -c 'do all ranks call the same' err)" = 3 ]
ok $? "the same between nodes" || sed 's/^/# /' err
run timeout 30 "$R" short 3
[ "$(grep -cE 'not all ranks reached|left while the ranks were meeting' err)" = 2 ]
ok $? "a rank that never comes is an error, not a hang" || sed 's/^/# /' err

export TERN_DEADLINE=20
run tern bench fabric --ranks 2 -b 0 -e 64K -f 16 -n 2 -w 0
status 0
out_has 'out of bounds values: 0 OK'
run tern bench fabric --ranks 3 -b 1K -e 1K -n 2 --op all_gather -d bf16 --json
status 0
out_has '"op": "all_gather"'
run tern bench fabric --op all_redcue
status 2; one_line
run env TERN_FABRIC_PROVIDER=nosuch TERN_FABRIC_SHARE=1 tern bench fabric --ranks 2 -e 8
err_has "libfabric has no provider 'nosuch'"
run env SLURM_STEP_NUM_TASKS=4 tern bench fabric -e 8
status 2; one_line; err_has 'srun --mpi=pmix'

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
