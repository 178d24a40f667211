#!/bin/bash
# A program of another user on a rank's node reaches the ranks' addresses, and knows nothing else: records
# of every kind in every rank's name, writes with keys 1 to 1000, connections by the thousand.  No
# value changes; an attempt that ends names why.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/fabric.sh"
. "$ROOT/tests/lib/reach.sh"
. "$ROOT/tests/lib/tiny.sh"
command -v ss >/dev/null || skip_all "ss is not installed (iproute2)"
unset TERN_FABRIC_MODE TERN_FABRIC_RAILS FI_PROVIDER
tern fabric info | grep -q 'strangers: records begin' || skip_all "this libfabric's messages between nodes are tagged ones: $(tern fabric info | grep strangers)"
as=()
if [ "$(id -u)" = 0 ]; then
    chmod 755 "$WORK"; install -m 755 "$TOOLS/fabric-stranger" "$WORK/stranger"
    as=(setpriv --reuid 65534 --regid 65534 --clear-groups)
else
    cp "$TOOLS/fabric-stranger" stranger
fi
seconds=$(long && echo 30 || echo 4) ranks=4
# Where the ranks' endpoints listen, but not the meeting's socket on loopback.
addresses() {
    local p
    for p in $(pgrep -P "$main"); do ss -ltnpH | grep "pid=$p," | awk '$4 !~ /^127\./ {print $4}'; done | sort -u >at
    [ "$(wc -l <at)" = $ranks ]
}
# Ranks with random operations amid what a stranger does for some seconds: $ended, ranks.out, ranks.err, out.
amid() { # HOW SECONDS SEED
    TERN_FABRIC_SHARE=1 "$R" random $ranks "$3" $((seconds * 500)) >ranks.out 2>ranks.err &
    main=$!
    until_true addresses
    STRANGER=$1 run timeout 600 "${as[@]}" "$WORK/stranger" $ranks "$2" $(cat at)
    wait $main; ended=$?
}
# Whatever comes of it is no wrong value: an error of the fabric, where a connection was lost.
judge() { # WHAT
    if [ $ended = 0 ]; then
        ok 0 "$1: every value is the reference's ($(cat out))"
    else
        [ "$(grep -cE '(^[a-z]+|code 75): rank [0-9] [(]' ranks.err)" -ge 1 ] && ! grep -qE 'wrong|differs|Sanitizer|runtime error' ranks.err ranks.out
        ok $? "$1: the attempt ends, and names a rank ($(cat out))" || head -20 ranks.err
    fi
}
tries=$(long && echo 5 || echo 2)
for try in $(seq "$tries"); do
    amid records "$seconds" $((try + 90))
    judge "try $try"
    grep -q "a message was dropped: it is a stranger's" ranks.err; ok $? "try $try: the ranks report the attack" || { cat out err; head -5 ranks.err; }
    [ "$(grep -c "it is a stranger's" ranks.err)" -le $ranks ]; ok $? "try $try: once a rank"
done
# Another process has another number: libfabric takes it for the rank at that port, started anew.
TERN_DEADLINE=5 amid claim "$seconds" 97
[ "$rc" = 0 ]; ok $? "the ranks' ports are claimed by another process, which hears something" || cat out err
judge "ports are claimed"
# A program that takes two ranks' ports while they wait for a third carries their messages, and may change them.
listening() { : >at; for p in $two; do ss -ltnpH | grep "pid=$p," | awk '$4 !~ /^127\./ {print $4}' | head -1 >>at; done; [ "$(wc -l <at)" = 2 ]; }
amid_words() { grep -qE 'between|refused' changed || ! kill -0 $stranger 2>/dev/null; }
changed() { # BYTES
    local n all= two=
    rm -f address hold go changed out.? err.?; mkfifo hold
    "$TOOLS/fabric-rails" serve 3 127.0.0.1 <hold >address & server=$!
    exec 9>hold
    until_true test -s address
    for n in 0 1 2; do
        TEST_HOLD=$WORK/go TERN_FABRIC_SHARE=1 TERN_DEADLINE=10 SLURM_NTASKS=3 SLURM_PROCID=$n SLURMD_NODENAME=node-$n TERN_RUN_SOCKET=$(cat address) \
            "$TOOLS/fabric-rails" rank 500 "$1" >out.$n 2>err.$n 9>&- &
        all="$all $!"; [ $n = 2 ] || two="$two $!"
    done
    until_true grep -qs held out.2
    until_true listening
    STRANGER=flip timeout 600 "${as[@]}" "$WORK/stranger" 3 5 $(cat at) >changed 2>&1 9>&- & stranger=$!
    until_true amid_words
    : >go
    rcs=; for n in $all; do wait "$n"; rcs=$rcs$?; done
    exec 9>&-; wait $server; wait $stranger
}
# Where a message is under way as he comes, libfabric ends the connection, and the attempt with it.
for bytes in 64 60000; do
    for try in 1 2 3 4 5 6; do changed $bytes && break; done; did=$?
    [ $did = 0 ]; ok $? "messages of $bytes bytes: a stranger between two ranks changes some ($(tail -1 changed))" || cat changed err.?
    [ "$rcs" = 333 ] && [ "$(cat err.? | grep -cE 'code 75: .*rank [012] [(]')" = 3 ]
    ok $? "messages of $bytes bytes: no changed one becomes a value, and the attempt's end names a rank" || { echo "# $rcs"; cat out.? err.?; }
done
if [ "$(ulimit -Hn)" -ge 12000 ]; then
    ulimit -Sn 12000
    amid hold "$seconds" 98
    [ "$rc" = 0 ]; ok $? "10,000 connections that say nothing" || cat out err
    judge "10,000 connections"
else
    skip "10,000 connections want 12,000 open files; the hard limit here is $(ulimit -Hn) (ulimit -Hn)"
fi
# A run goes on from its checkpoint, on ports that no process has taken, as if nothing had been.
if tiny_make >made 2>&1; then
    go="tern run run.yaml --ranks 2 --set steps=3000 --set checkpoint.every=200"
    export TERN_FABRIC_SHARE=1 TERN_DEADLINE=5
    run $go --set ledger.dir=alone; status 0 "a run of two nodes"
    tiny_digests >weights; rm -rf checkpoints
    $go --set ledger.dir=amid >ranks.out 2>ranks.err & run=$!
    tiny_wait_step 200 $run
    : >at; for main in $(pgrep -P $run tern-task); do addresses=$(ranks=1 addresses; cat at) && echo "$addresses" >>all; done; sort -u all >at
    STRANGER=claim run timeout 600 "${as[@]}" "$WORK/stranger" 2 "$seconds" $(cat at)
    wait $run; ended=$?
    is $ended 0 "while a stranger takes its ranks' ports, the run comes to its end" || tail -5 ranks.err
    tiny_digests | cmp -s - weights; ok $? "with the weights of one that was let alone, to the bit ($(sqlite3 amid/ledger.db 'select group_concat(outcome) from attempt'))"
    unset TERN_FABRIC_SHARE TERN_DEADLINE
else
    skip "cannot make the tiny setting"
fi
# Files by which libfabric's shm shares memory are their owner's alone.
touch before
TERN_FABRIC_PROVIDER=shm TERN_FABRIC_SHARE=1 "$R" random $ranks 5 2000 >ranks.out 2>ranks.err &
main=$!
shared() { find /dev/shm -maxdepth 1 -type f -newer before -user "$(id -u)" 2>/dev/null >files; [ "$(wc -l <files)" -ge $ranks ] || ! kill -0 $main 2>/dev/null; }
until_true shared
if [ -s files ]; then
    others=$(while read -r f; do [ -z "$(find "$f" -perm /077 2>/dev/null)" ] || echo "$f"; done <files)
    [ -z "$others" ]; ok $? "shm: no other user may open them" || echo "# $others"
    [ "$(id -u)" != 0 ] || { while read -r f; do "${as[@]}" head -c1 "$f" 2>/dev/null; done <files >got; [ ! -s got ]; ok $? "shm: another user reads nothing"; }
else
    skip "libfabric's shm makes no files here"
fi
wait $main; ok $? "shm: every value is the reference's"
tap_done
