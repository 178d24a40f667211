#!/bin/bash
# Ranks that are not alike, and the libraries and settings that each finds where it runs.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/fabric.sh"

# Ranks that are not alike: each started by words of its own.
unlike() { # WORDS...: `tern fabric info` behind each of them; what rank 0 prints in `out`
    rm -f address out.* err.*
    "$TOOLS/fabric-faults" meet $# 127.0.0.1 >address & local meet=$! rank=0 pids= words
    tap_cleanup="kill $meet"
    until [ -s address ]; do sleep 0.02; done
    for words; do
        TERN_RUN_SOCKET=$(cat address) SLURM_PROCID=$rank SLURM_NTASKS=$# timeout 600 \
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
# libfabric is loaded when it is needed, and of PSM's libraries, which hold up every start and bind
# it to core 0, empty ones are loaded where no program asks for them.
begun() { LD_DEBUG=files "$@" 2>&1 | sed -n 's/.*calling init: //p'; }
begun "$TOOLS/train-ranks" >libraries; begun tern bench fabric --ranks 2 -b 8 -e 8 -n 2 --op all_reduce >>libraries
grep -q libpmix libraries && ! grep -q libfabric libraries; ok $? "ranks of one node do without libfabric" || cat libraries
begun tern fabric info >libraries
grep -q libfabric libraries && ! grep psm libraries | grep -qv /no-psm/; ok $? "where it is loaded, PSM's libraries are not" || cat libraries
for provider in TERN_FABRIC_PROVIDER=psm2 FI_PROVIDER=psm2,tcp; do
    begun env $provider tern fabric info >libraries
    ! grep -q /no-psm/ libraries; ok $? "unless a variable asks for them: $provider"
done
begun env FI_PROVIDER=^psm,psm2 tern fabric info >libraries
! grep psm libraries | grep -qv /no-psm/; ok $? "PSM's libraries are not loaded where they are forbidden" || cat libraries
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
tap_done
