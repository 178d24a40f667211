#!/bin/bash
# A rank that is stopped ends its attempt, and the next one makes good for it, to the bit; a run that
# is held as a whole (suspended, its storage hanging, its supervisor stopped) goes on where it was.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/tiny.sh"
tiny_make || skip_all "cannot make the tiny setting"
rows() { sqlite3 -separator ' ' "$1/ledger.db" "select $2 from attempt order by attempt" | paste -sd,; }
begin() { # LEDGER, options: a run of 200 steps at work after step 20; its ranks in $ranks
    local dir=$1; shift
    rm -rf checkpoints "$dir"
    setsid tern run run.yaml --ranks 2 --set steps=200 --set checkpoint.every=20 --set ledger.dir="$dir" "$@" 2>err >out & pid=$!
    tiny_wait_step 20 $pid
    ranks=$(pgrep -P $pid tern-task)
    trainers=$(for r in $ranks; do pgrep -P "$r"; done)
    victim=$(echo $trainers | awk '{print $2}')
}
stop() { # 'VARIABLES' LEDGER, options: begin, and stop those processes; again when the run was over before
    local which=$1 try; shift
    for try in 1 2 3 4 5 6 7 8 9; do
        begin "$@"; kill -STOP $(eval echo "$which") 2>/dev/null && return
        wait $pid
    done
}
end() { wait $pid; rc=$? cmd="$1"; status 0 "$1: the run ends well"; }
same() { tiny_digests | cmp -s - weights; ok $? "$1: the weights are the reference's, to the bit"; }

run tern run run.yaml --ranks 2 --set steps=200 --set checkpoint.every=20 --set ledger.dir=whole
status 0; tiny_digests >weights

export TERN_LIVENESS=2 TERN_DEADLINE=300
stop '$victim' stopped
end "a stopped rank"; same "a stopped rank"
is "$(rows stopped outcome)" "fault,done" "its attempt ends long before the deadline, and the next one is the last"
err_has 'no sign of life'
[ -z "$(rows stopped cause | grep -v 'rank [01] .*no sign of life')" ]; ok $? "the cause of the attempt names the frozen rank" || rows stopped cause

# No other rank is left to look.
named() { [ -n "$(rows $1 cause)" ] && [ -z "$(rows $1 cause | tr , '\n' | grep . | grep -v "$2")" ]; ok $? "$1: the cause of the attempt names the rank" || rows $1 cause; }
stop '$trainers' both
end "both ranks are stopped"; same "both"
is "$(rows both outcome)" "fault,done" "two ranks that are both stopped are ended, and the next attempt is the last"
named both 'rank [01] on .* no sign of life'
stop '$trainers' alone --ranks 1
end "a rank alone is stopped"
is "$(rows alone outcome)" "fault,done" "a rank that runs alone and is stopped is ended, and the next attempt is the last"
named alone 'rank 0 on .* no sign of life'
stop '$ranks' wrapper
end "both tern-tasks are stopped"; same "wrapper"
is "$(rows wrapper outcome)" "done" "stopped tern-tasks are continued, and the run is done in one attempt"
grep -q 'tern-task of rank [01] .* it goes on' err; ok $? "tern run says that it continues them" || cat err

export TERN_DEADLINE=3
stop '$trainers' held
for p in $ranks $pid; do kill -STOP "$p"; sleep 0.1; done
sleep 6
for p in $trainers $ranks $pid; do kill -CONT "$p"; sleep 0.1; done
end "everything is held for 6 s, of a deadline of 3"; same "held"
is "$(rows held outcome)" "done" "the run is done in one attempt"

stop '$pid' supervisor; sleep 5; kill -CONT $pid
end "the supervisor is held"; same "supervisor"
is "$(rows supervisor outcome)" "done" "the run is done in one attempt"

# Storage that takes longer to take a rank's checkpoint, or to give its data, than the deadline.
if strace -f -qq -e trace=fsync -e inject=fsync:delay_enter=1 true 2>/dev/null; then
    export TERN_DEADLINE=1
    rm -rf checkpoints
    run timeout 300 strace -f -qq -o /dev/null -e trace=fsync -e inject=fsync:delay_enter=4000000:when=9 \
        tern run run.yaml --ranks 2 --set steps=3 --set checkpoint.every=3 --set ledger.dir=storage
    status 0 "storage that hangs for longer than the deadline"
    is "$(rows storage outcome)" "done" "the run is done in one attempt"
else
    skip "storage that hangs: strace cannot delay system calls here"
fi
# A rank that lives and does not go on, in the midst of a step: steps have a deadline of their own, from what they
# take.  What reaches storage is announced, and has longer; each call is held once, on every rank that makes it.
unset TERN_LIVENESS TERN_DEADLINE
hold() { # SECONDS CALL PROCESS...: the next such call of each takes so long
    local s=$1 call=$2 p; shift 2
    for p; do strace -f -qq -o /dev/null -p "$p" -e trace="$call" -e inject="$call:delay_enter=${s}000000:when=1" & tracers+=($!); done
}
if strace -f -qq -o /dev/null -e trace=getrusage -e inject=getrusage:delay_enter=1 true 2>/dev/null; then
    begin hung --set steps=2000 --set checkpoint.every=500
    hold 50 getrusage "$victim"
    end "a rank that hangs in a step"
    is "$(rows hung outcome)" "fault,done" "its attempt ends before the 50 s are over, and the next one is the last"
    rows hung cause | grep -q 'rank [01] .* the deadline of .*: it runs, and computes'; ok $? "the cause names the rank, and says that it lives" || rows hung cause
    for call in pwrite64 pread64; do
        begin slow-$call --set steps=2000 --set checkpoint.every=500
        hold 12 $call $trainers
        end "storage that takes 12 s for $call"
        is "$(rows slow-$call outcome)" "done" "$call: the run is done in one attempt"
    done
    wait "${tracers[@]}"
    if long; then # what is promised, with the deadlines that a run has by itself
        long_run=(--set steps=2000 --set checkpoint.every=500)
        begin reference "${long_run[@]}"; end "an undisturbed run"; tiny_digests >long-weights
        begin minute "${long_run[@]}"; tracers=()
        kill -STOP $pid
        for p in $trainers; do # one tracer a process
            strace -f -qq -o /dev/null -p "$p" -e trace=pwrite64,pread64 -e inject=pwrite64:delay_enter=30000000:when=1 \
                -e inject=pread64:delay_enter=30000000:when=1 & tracers+=($!)
        done
        sleep 60; kill -CONT $pid
        end "a supervisor stopped for 60 s, storage held for 30 s"
        is "$(rows minute outcome)" "done" "a supervisor stopped for 60 s, storage held for 30 s: the run is done in one attempt"
        [ "$(rows minute '(end_ns - begin_ns) / 1000000000')" -ge 60 ]; ok $? "a supervisor stopped for 60 s, storage held for 30 s: the run was at work meanwhile"
        tiny_digests | cmp -s - long-weights; ok $? "a supervisor stopped for 60 s, storage held for 30 s: the weights are the reference's, to the bit"
        wait "${tracers[@]}"
    fi
else
    skip "ranks that hang: strace cannot delay system calls here"
fi
# Four ranks a core: each waits long for its turn, and none of them is taken for dead.
ranks=$((4 * $(nproc) < 16 ? 4 * $(nproc) : 16)); times=3; long && times=50
for ((i = 1; i <= times; i++)); do
    rm -rf checkpoints
    tern run run.yaml --ranks $ranks --set steps=20 --set batch.global=$((2 * ranks)) --set checkpoint.every=20 \
        --set ledger.dir=crowd/$i >out 2>&1 || { sed 's/^/# /' out; break; }
done
is "$((i - 1))" "$times" "$ranks ranks on $(nproc) cores: every run ends well"
is "$(for d in crowd/*; do rows $d outcome; done | sort -u)" "done" "each in one attempt"
tap_done
