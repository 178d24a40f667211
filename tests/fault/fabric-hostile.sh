#!/bin/bash
# Collectives over a wire as bad as EFA's may be: tests/provider, a libfabric provider without any
# order that demands registered memory and draws faults from a seed.  Results are compared with a
# plain reference; what the provider refuses as misuse is a failure.
#
#   FABRIC_HOSTILE_SECONDS=N  goes on for so long with drawn faults, shapes and seeds
#   FABRIC_HOSTILE_SEED=S     where that begins
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/fabric.sh"
export FI_PROVIDER_PATH=${TERN_BUILD:-$ROOT/build}/tests/provider TERN_FABRIC_PROVIDER=ternsrd
[ -d "$FI_PROVIDER_PATH" ] || skip_all "tests/provider wants libfabric 1.15"
unset TERN_FABRIC_MODE TERN_FABRIC_RAILS

clean() { # NAME: no misuse, no crash in any rank
    ! grep -qE 'ternsrd: refused|Sanitizer|runtime error|bug:' err && [ "$rc" -lt 124 ]
    ok $? "$1: libfabric is used as it may be" || sed 's/^/# /' err | head -30
}
agree() { # FAULTS SHARE RANKS SEED OPERATIONS
    local order=
    [ "$2" = 1 ] || order=any
    TERNSRD=seed=$4,$1 TERN_FABRIC_SHARE=$2 run timeout 600 env ${order:+TEST_FABRIC_ORDER=any} "$R" random "$3" "$4" "$5"
    [ "$rc" = 0 ] && ! grep -q 'ternsrd: refused' err
    ok $? "${TERN_FABRIC_MODE-}: $3 ranks, $2 a node, seed $4, $1: all agree with the reference" || { echo "# status $rc"; sed 's/^/# /' err | head -30; }
}

run tern fabric info
out_has 'mode: rma' "remote writes are chosen where a provider has them"

# Of a MiB in packets of 32 KiB, whole messages overtake each other; small packets mix within one.
faults=(
    mtu=32768,reorder=256,shuffle=16
    mtu=512,reorder=256,dup=0.2
    reorder=64,delay=300,late=300,dup=0.1
    eagain=0.5,recv_eagain=0.5,reorder=16
    tx=3,cq=4,reorder=8,shuffle=4
    msg=8192,reorder=64,dup=0.1
    msg=65536,dupdata=0.3,reorder=64,late=300
)
seed=0
for mode in rma tagged; do
    export TERN_DEADLINE=30 TERN_FABRIC_MODE=$mode
    for f in "${faults[@]}"; do
        for shape in $(long && echo 1:2 1:5) 1:3 2:4; do
            seed=$((seed + 1))
            agree "$f" ${shape%:*} ${shape#*:} $seed 30
        done
    done

    # A peer that is lost amid operations: the others name it.
    export TERN_DEADLINE=3
    for how in drop die; do
        TERN_FABRIC_SHARE=1 TERNSRD=$how=2@60,reorder=16 run timeout 600 "$R" lose 4
        [ "$rc" = 3 ] && [ "$(grep -c 'code 75: rank 2 (' err)" = 3 ]
        ok $? "$mode, $how: the three others name rank 2" || sed 's/^/# /' err
        [ "$(grep -c '^after' err)" = 4 ]; words "$mode, $how: all four end"
        bound "$(slowest)" 4 "$mode, $how: seconds, of a deadline of 3"
        clean "$mode, $how"
    done
    # Single messages that fail: an error, no hang and no wrong result.
    TERN_FABRIC_SHARE=1 TERNSRD=fail=0.01,reorder=16 run timeout 600 "$R" random 4 3 200
    [ "$rc" = 1 ] && [ "$(grep -c 'Input/output error' err)" -ge 1 ] && ! grep -q wrong err
    ok $? "$mode: failed messages end the operations with an error, and nothing is wrong" || sed 's/^/# /' err
    clean "$mode, failed messages"
    # Data for a rank that has given up comes when its memory is gone.
    TERN_DEADLINE=2 TERN_FABRIC_SHARE=1 TERNSRD=seed=1 run timeout 600 "$R" late 3
    [ "$rc" = 3 ] && [ "$(grep -c 'code 75: rank [0-2] (' err)" = 3 ] && ! grep -q 'with signal' err
    ok $? "$mode: after an error no rank writes to memory that was freed" || sed 's/^/# /' err
done

# By tagged messages anybody may speak in a rank's name: the ranks say so, once for all of them.
said() { grep -c 'messages between nodes are unauthenticated' err; }
TERN_FABRIC_MODE=tagged TERN_FABRIC_SHARE=1 run timeout 600 "$R" random 3 1 10
is "$rc $(said)" "0 1" "tagged: one line of three ranks says that their messages are unauthenticated"
TERN_FABRIC_MODE=rma TERN_FABRIC_SHARE=1 run timeout 600 "$R" random 3 1 10
is "$rc $(said)" "0 0" "rma: no rank says so"

# A rank hears from a mate that it is over when messages of its own have waited for their place for
# more than a second.
export TERN_DEADLINE=6 TERN_FABRIC_MODE=tagged
for seed in 1 $(long && echo 2 3 4); do
    TEST_FABRIC_HASTY=1 TERN_FABRIC_SHARE=2 TERNSRD=seed=$seed,drop=2@60,tx=2,msg=8192 run timeout 600 "$R" lose 4
    [ "$rc" = 3 ] && [ "$(grep -c 'code 75: rank' err)" = 4 ] && ! grep -q 'with signal' err
    ok $? "a mate's word comes while messages wait for their place, seed $seed" || sed 's/^/# /' err
done

# Two rails, one of which fails: EIO of what was sent, of what has even come, silence.
export TERN_DEADLINE=4 TERN_FABRIC_MODE=rma TERN_FABRIC_RAILS=any TERN_FABRIC_SHARE=1 TEST_FABRIC_FAR=1
for f in only=2,fail=0.05 only=2,lie=0.05,late=10000 only=2,lie=0.2,late=10000 only=1,drop=1@40; do
    for seed in 6 $(long && echo 8); do
        TERNSRD=seed=$seed,rails=2,reorder=16,$f run timeout 600 "$R" random 3 $seed 60
        # What came after all leaves nothing to wait for, and so the rail may only be avoided.
        [ "$rc" = 0 ] && { [ "${f#*lie}" != "$f" ] || grep -q 'is given up, 1 left' err; }
        ok $? "two rails, seed $seed, $f: the other one does" || { echo "# status $rc"; sed 's/^/# /' err; }
        clean "two rails"
    done
done
TERNSRD=seed=1,rails=2,reorder=16,late=5000,mtu=32768 run timeout 600 "$R" free 2
[ "$rc" = 0 ] && ! grep -q 'given up' err
ok $? "memory freed when an operation is over ends nothing" || sed 's/^/# /' err
unset TERN_FABRIC_RAILS TERN_FABRIC_SHARE TEST_FABRIC_FAR

TERN_FABRIC_SHARE=1 TERNSRD=mr=1 run timeout 600 "$R" random 2 1 1
err_has 'ulimit -l' "memory that cannot be registered: the limit is named"

until=$((SECONDS + ${FABRIC_HOSTILE_SECONDS:-0}))
RANDOM=${FABRIC_HOSTILE_SEED:-$$}
export TERN_DEADLINE=60
modes=(rma tagged)
while [ $SECONDS -lt $until ] && [ $tap_bad = 0 ]; do
    export TERN_FABRIC_MODE=${modes[RANDOM % 2]}
    f=msg=$((8192 << RANDOM % 8)),reorder=$((1 + RANDOM % 256)),mtu=$((256 << RANDOM % 8)),dup=0.$((RANDOM % 4)),shuffle=$((1 + RANDOM % 64))
    f=$f,delay=$((RANDOM % 4 * 200)),late=$((RANDOM % 4 * 200)),eagain=0.$((RANDOM % 6)),recv_eagain=0.$((RANDOM % 6)),dupdata=0.$((RANDOM % 3)),tx=$((2 + RANDOM % 64)),cq=$((4 + RANDOM % 64))
    agree $f $((1 + RANDOM % 3)) $((2 + RANDOM % 6)) $((RANDOM * 32768 + RANDOM)) $((20 + RANDOM % 60))
done
tap_done
