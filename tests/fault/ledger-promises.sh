#!/bin/bash
# What tests/fault/ledger.sh leaves out of the ledger's promises (HACKING, "What the ledger promises"):
# a writer killed at each system call, power cuts, what a writer never calls, folders and readers that
# stand still.
if [ "$(id -u)" = 0 ] && [ -z "${TERN_OWN_MOUNTS-}" ]; then
    export TERN_OWN_MOUNTS=1 # as tests/fault/ckpt-power.sh
    exec unshare --mount "$0" "$@"
fi
. "$(dirname "$0")/../lib/tap.sh"
unset TERN_LEDGER TERN_RUN_SPOOL
W=$TOOLS/ledger-writer
export TERN_LEDGER=$WORK/ledger; mkdir ledger
PATH=$PATH:/sbin:/usr/sbin
RANDOM=${SEED:=$$}; echo "# SEED=$SEED"
begin() { "$W" "$1" new 1 0 1 "$2" >begun || return; new=$(head -1 begun); } # LEDGER STEPS
steps() { sqlite3 "$1/runs/$2/run.db" "SELECT step FROM step_all WHERE name = 'loss' AND attempt = $3 ORDER BY wall_ns"; }
# LEDGER RUN ATTEMPT ACKS: are those the first of the attempt's steps, and are there N more at most?
kept() {
    steps "$1" "$2" "$3" >got
    local n; n=$(wc -l <"$4")
    head -n "$n" got | cmp -s - "$4" && [ $(($(wc -l <got) - n)) -le "$5" ]
}
content() {
    sqlite3 "ledger/runs/$1/run.db" "SELECT * FROM step_all ORDER BY 1, 2, 4; SELECT * FROM attempt ORDER BY 1;
        SELECT * FROM checkpoint ORDER BY 1; SELECT * FROM eval ORDER BY 1, 2, 3; SELECT * FROM ingest ORDER BY 1"
}
strace -o /dev/null true 2>/dev/null && traces=1 || traces=

# ---- L1: killed at any system call
if [ -n "$traces" ]; then
    begin ledger 1; id=$new
    bad=0 points=0 i=1
    for call in openat mkdir fallocate pwrite64 write fdatasync fsync close; do
        for ((k = 1; k < 200; k++)); do
            i=$((i + 1))
            { WRITER_SYNC=1 strace -f -o /dev/null -e trace=$call -e inject=$call:signal=SIGKILL:when=$k \
                "$W" ledger "$id" $i 1 2 12 done >acks 2>/dev/null; } 2>/dev/null
            [ $? = 137 ] || break
            points=$((points + 1))
            tern ledger fold "$id"
            kept ledger "$id" $i acks 1 || { bad=$((bad + 1)); echo "# $call $k"; }
            long || k=$((k + 2))
        done
    done
    ok $bad "a writer killed at $points system calls: what was acknowledged is there, once and in order, and at most the one under way"
    [ $points -gt 20 ]; ok $? "each kill hit a writer at work"
    run tern ledger verify "$id"; status 0 "writers killed at system calls leave no damage"
else skip "strace cannot trace here"; fi

# ---- L2: power cuts
if [ "$(id -u)" = 0 ] && truncate -s 48M disk && mkfs.ext4 -q -F disk 2>/dev/null && mkdir mnt && mount -o loop disk mnt 2>/dev/null; then
    tap_cleanup='umount -q -l mnt'
    begin mnt/l 1; id=$new; sync -f mnt
    rounds=$(long && echo 15 || echo 4) lost=0 cut=0 acked=0 damage=0
    begun() { [ -s acks ] || ! kill -0 "$pid" 2>/dev/null; }
    for ((i = 2; i < rounds + 2; i++)); do
        : >acks
        WRITER_SYNC=1 setsid "$W" mnt/l "$id" $i 1 2 100000000 >acks 2>/dev/null & pid=$!
        until_true begun
        sleep "0.$(printf %03d $((RANDOM % 200)))"
        # What is acknowledged later comes from a process that would have no power any more.
        cp acks before
        # EXT4_IOC_SHUTDOWN, EXT4_GOING_FLAGS_NOLOGFLUSH
        perl -e 'open(F, "<", "mnt") or exit 1; $a = pack("L", 2); ioctl(F, 0x8004587d, $a) or exit 1' && cut=$((cut + 1))
        kill -9 -- -$pid 2>/dev/null; wait $pid 2>/dev/null
        until_true umount mnt; mount -o loop disk mnt || break
        tern ledger fold -l mnt/l || damage=$((damage + 1))
        sync -f mnt
        kept mnt/l "$id" $i before 100000000 && cmp -s got <(seq 2 $(($(wc -l <got) + 1))) ||
            { lost=$((lost + 1)); echo "# round $i: $(wc -l <before) acknowledged, $(wc -l <got) there"; }
        acked=$((acked + $(wc -l <before)))
        tern ledger verify -l mnt/l >verify 2>&1 || { damage=$((damage + 1)); sed 's/^/# /' verify; }
    done
    [ $cut = "$rounds" ] && [ $acked -gt 0 ]; ok $? "the power went $cut times while a writer was at work"
    ok $lost "each of $acked records that were acknowledged as durable is there after a power cut, and none is left out before the last"
    ok $damage "power cuts leave torn ends, and no damage"
    umount mnt; tap_cleanup=:
else skip "a power cut needs root, mkfs.ext4 and loop mounts"; fi

# ---- L3: no lock, no rename, no file of another's
if [ -n "$traces" ]; then
    begin ledger 1; id=$new
    strace -f -y -o calls -e trace=fcntl,flock,rename,renameat,renameat2,link,linkat,unlink,openat,pwrite64,fdatasync "$W" ledger "$id" 2 1 2 300 done >/dev/null
    ok $? "a writer is traced"
    grep -qE '^[0-9]+ +(flock|rename|link|unlink)' calls || grep -qE 'fcntl\(.*F_(OFD_)?SETLK' calls; [ $? != 0 ]; ok $? "a writer takes no lock, and renames and removes nothing" || grep -E 'flock|rename|link|SETLK' calls | head -3
    is "$(grep -oE 'O_(WRONLY|RDWR)[^)]*\) = [0-9]+<[^>]*>' calls | grep -oE '/ledger/[^>]*' | sort -u | wc -l)" 1 "a writer writes to one file"
    grep -E 'openat.*O_CREAT' calls | grep -q 'O_EXCL.*/ledger/\|/ledger/.*O_EXCL'; ok $? "which it makes itself, for itself alone"
    [ "$(grep -c pwrite64 calls)" -gt 300 ]; ok $? "the trace has the writes"
else skip "strace cannot trace here"; fi

# ---- L4: a folder, or a reader, that stands still
if [ -n "$traces" ]; then
    begin ledger 200; id=$new
    stands() { grep -q -e '--- stopped by SIGSTOP ---' trace; } # strace stops it often; this is for good
    for call in rename fsync; do
        TERN_RUN_SPOOL=$WORK/ledger/runs/$id/spool/1 tern metric step=1 "$call=1"
        rm -f trace
        setsid strace -f -o trace -e trace=$call -e inject=$call:signal=SIGSTOP:when=1 tern ledger fold "$id" 2>/dev/null & tracer=$!
        until_true stands; ok $? "a folder stands still at its $call" || cat trace
        victim=$(awk '/--- stopped by SIGSTOP/ {print $1}' trace)
        [ $call = rename ] && { from=201 attempt=2; } || { from=501 attempt=3; }
        "$W" ledger "$id" $attempt $((from - 1)) $from $((from + 299)) done >acks; is "$(wc -l <acks)" 300 "a writer goes on beside it, for three hundred steps"
        run tern ledger sql -r "$id" -n -P "select max(step) from step"; status 0; is "$(cat out)" $((from + 299)) "a reader has every step"
        run tern ledger fold "$id"; status 0 "another folder's fold ends well"
        kill -CONT "${victim:--$tracer}"; wait $tracer
        content "$id" >a; tern ledger fold "$id"; content "$id" >b; tern ledger rebuild "$id"; content "$id" >c
        cmp -s b c && [ "$(wc -l <b)" -ge "$(wc -l <a)" ]; ok $? "the folder that wakes takes nothing back"
    done
    # A reader in the middle of its answer: the pipe is full.
    mkfifo pipe; exec 8<>pipe
    tern ledger export "$id" --csv >pipe & reader=$!
    sleep 0.2; kill -STOP $reader
    "$W" ledger "$id" 4 800 801 900 done >acks; is "$(wc -l <acks)" 100 "a writer goes on beside a reader that stands still"
    run tern ledger fold "$id"; status 0 "a fold of the ledger goes on beside the stopped reader"
    kill -9 $reader; wait $reader 2>/dev/null; exec 8>&-
    run tern ledger verify "$id"; status 0
else skip "strace cannot trace here"; fi
tap_done
