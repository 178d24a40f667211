#!/bin/bash
# What the ledger promises when processes are killed, disks are full, and several fold at once.
# ROUNDS (50; 300 in the long form) is how often the writer is killed.
. "$(dirname "$0")/../lib/tap.sh"
unset TERN_LEDGER TERN_RUN_SPOOL
W=$TOOLS/ledger-writer
L=$WORK/ledger
ROUNDS=${ROUNDS:-$(long && echo 300 || echo 50)}
mkdir "$L"
export TERN_LEDGER=$L
now() { date +%s%N; }
steps() { sqlite3 "$L/runs/$1/run.db" "SELECT step FROM step_all WHERE name = 'loss' AND attempt = $2 ORDER BY wall_ns"; }
begin() { # LEDGER ATTEMPT RESUMED FROM TO [OUTCOME]: a new run, its id in $new
    "$W" "$1" new "${@:2}" >"$WORK/begun"; new=$(head -1 "$WORK/begun")
}
content() { # RUN: what run.db says, whatever the way it came about
    sqlite3 "$L/runs/$1/run.db" "SELECT * FROM step_all ORDER BY 1, 2, 4; SELECT * FROM attempt ORDER BY 1;
        SELECT * FROM checkpoint ORDER BY 1; SELECT * FROM eval ORDER BY 1, 2, 3;
        SELECT * FROM event ORDER BY 1, 2; SELECT * FROM ingest ORDER BY 1; SELECT * FROM run;"
}

# ---------------------------------------------------------------- kill -9 of the writer
# Each round is an attempt that begins behind the last acknowledged step, goes on for ever and is
# killed 0 to 20 ms after its first acknowledgement.  These, in a file of the test's own, are the
# oracle.
begin "$L" 1 0 1 1; id=$new
echo 1 >"$WORK/acks.1"
last=1 lost=0 extra=0 killed=0 torn=0
seed=${SEED:-$$}; RANDOM=$seed; echo "# SEED=$seed ROUNDS=$ROUNDS"
begun() { for ((k = 0; k < 200000; k++)); do [ -s "$WORK/acks.$1" ] && return; sleep 0.003; done; }
for ((i = 2; i <= ROUNDS + 1; i++)); do
    "$W" "$L" "$id" "$i" "$last" $((last + 1)) 100000000 >"$WORK/acks.$i" 2>/dev/null &
    pid=$!
    begun $i # so that the kill hits the middle
    sleep 0.0$(printf %02d $((RANDOM % 20)))
    [ -s "$WORK/acks.$i" ] && kill -9 $pid && killed=$((killed + 1))
    { kill -9 $pid; wait $pid; } 2>/dev/null
    [ $((i % 7)) = 0 ] && tern ledger fold "$id" # in the middle of things, too
    n=$(grep -c . "$WORK/acks.$i"); [ "$n" = 0 ] || last=$(tail -1 "$WORK/acks.$i")
done
tern ledger fold; ok $? "fold after $killed kills"
is $killed "$ROUNDS" "each kill hit a writer at work"
for ((i = 1; i <= ROUNDS + 1; i++)); do
    steps "$id" "$i" >"$WORK/got"
    n=$(wc -l <"$WORK/acks.$i")
    head -n "$n" "$WORK/got" | cmp -s - "$WORK/acks.$i" || lost=$((lost + 1))
    # Written, killed before it could be acknowledged: at most one.
    more=$(($(wc -l <"$WORK/got") - n))
    [ $more -gt 1 ] && extra=$((extra + 1))
done
acks=$(cat "$WORK"/acks.* | wc -l)
ok $lost "of $acks acknowledged records every one is there, once and in order ($lost attempts differ)"
ok $extra "the ledger has no other records ($extra attempts with more)"
run tern ledger sql -r "$id" -P -n "SELECT count(*) - count(DISTINCT step), min(step), max(step) - count(*) FROM step WHERE name = 'loss'"
[ "$(cat out)" = "0|1|0" ]; ok $? "the effective series is that of a run never killed: no step twice, none missing"
run tern ledger verify; status 0 "killed writers leave no damage"
content "$id" >a; run tern ledger fold --rebuild "$id"; content "$id" >b
cmp -s a b; ok $? "folding in pieces gives what a rebuild gives"

# ---------------------------------------------------------------- kill the folder at any syscall
if ! command -v strace >/dev/null || ! strace -o /dev/null true 2>/dev/null; then
    skip "strace cannot trace here"
else
    begin "$L" 1 0 1 150; small=$new
    rm -f "$L/ledger.db"
    bad=0 points=0
    for call in openat write pwrite64 pread64 fsync rename close fchmod; do
        for ((n = 1; n < 400; n++)); do
            # Something new to fold each time, and an old snapshot that readers hold on to.
            TERN_RUN_SPOOL=$L/runs/$small/spool/1 tern metric step=1$n x=$n
            # (The shell tells of each kill.)
            { strace -f -o /dev/null -e trace=$call -e inject=$call:signal=SIGKILL:when=$n \
                tern ledger fold "$small" >/dev/null; } 2>/dev/null
            [ $? = 137 ] || break
            points=$((points + 1))
            for db in "$L/ledger.db" "$L/runs/$small/run.db"; do
                [ -e "$db" ] || continue
                [ "$(sqlite3 "file:$db?mode=ro" 'PRAGMA integrity_check; SELECT count(*) FROM run' 2>&1 | head -1)" = ok ] || bad=$((bad + 1))
            done
            # Opening libraries takes the first dozens; the later ones are ours.
            long || n=$((n + 3))
            [ $n -ge 60 ] && n=$((n + 6))
        done
    done
    ok $bad "the folder killed at $points places: readers always see whole databases"
    [ $points -gt $(long && echo 60 || echo 15) ]; ok $? "each kill hit a folder at work"
    tern ledger fold "$small"; content "$small" >a
    tern ledger fold --rebuild "$small"; content "$small" >b
    cmp -s a b; ok $? "the fold after killed folders gives what a rebuild gives"
    [ "$(grep -c . a)" -gt 150 ]; ok $? "the rebuild has rows"
    : >"$L/runs/$small/run.db.tmp-elsewhere-n1-7-abcdef"; touch -d '2 hours ago' "$L/runs/$small"/run.db.tmp-elsewhere*
    : >"$L/runs/$small/run.db.tmp-elsewhere-n1-8-abcdef"
    tern ledger fold "$small"
    is "$(cd "$L/runs/$small" && echo run.db.tmp-*)" run.db.tmp-elsewhere-n1-8-abcdef "temporaries of killed folders are swept away, another machine's when they are old"
    rm "$L/runs/$small"/run.db.tmp-*

    # fsync that fails once: what was acknowledged as durable must be in a file that was synced.
    begin "$L" 1 0 1 1; sick=$new
    strace -f -o trace -e trace=fdatasync -e inject=fdatasync:error=EIO:when=1 \
        "$W" "$L" "$sick" 2 1 2 150 >acks 2>err
    ok $? "an fsync that fails once is survived"
    grep -q INJECTED trace; ok $? "an fsync failed"
    [ -e "$L/runs/$sick/spool/2/rank0.1.spool" ]; ok $? "records after a failed fsync are in a new file"
    has err "cannot make it durable"
    rm "$L/runs/$sick/spool/2/rank0.0.spool" # the file that cannot be trusted loses everything
    tern ledger fold "$sick"; steps "$sick" 2 | cmp -s - acks; ok $? "the new file has all records since the last good fsync"

    # A disk that is full at the k-th write: it is reported, counted, and over when there is room.
    worst=0
    for k in 2 $(long && echo "5 9") 100; do
        begin "$L" 1 0 1 1; full=$new
        strace -f -o trace -e trace=pwrite64 -e inject=pwrite64:error=ENOSPC:when=$k..$((k + 20)) \
            "$W" "$L" "$full" 2 1 2 200 >acks 2>err
        tern ledger fold "$full"; steps "$full" 2 | cmp -s - <(seq 2 200) || worst=$k
        [ "$(grep -c . acks)" -lt 199 ] || worst=$k
        gap=$(sqlite3 "$L/runs/$full/run.db" "SELECT count(*) FROM event WHERE kind = 'gap'")
        [ "$gap" = 0 ] || worst=$k
    done
    ok $worst "a disk that is full for a while: what it refused waits, and is written"
fi

# ---------------------------------------------------------------- several at once
begin "$L" 1 0 1 1; many=$new
pids=
for w in 2 3 4; do "$W" "$L" "$many" $w 0 1 3000 done >/dev/null & pids="$pids $!"; done
folds=
for f in 1 2 3; do
    (for i in 1 2 3 4 5 6; do tern ledger fold "$many" || exit 1; done) & folds="$folds $!"
done
bad=0
for ((i = 0; i < 20; i++)); do
    tern ledger list -n >/dev/null || bad=1
    [ -e "$L/runs/$many/run.db" ] && { sqlite3 "$L/runs/$many/run.db" 'PRAGMA integrity_check' | grep -qx ok || bad=1; }
done
for p in $folds; do wait "$p" || bad=1; done
for p in $pids; do wait "$p" || bad=1; done
ok $bad "three writers, three folders and readers at once"
tern ledger fold "$many"; content "$many" >a; tern ledger fold --rebuild "$many"; content "$many" >b
cmp -s a b && [ "$(grep -c '|loss|' a)" = 9001 ]; ok $? "writers, folders and readers at once lose and double nothing"

# ---------------------------------------------------------------- a full disk under the snapshot
if mkdir -p small && mount -t tmpfs -o size=200k tmpfs small 2>/dev/null; then
    tap_cleanup="umount $WORK/small"
    begin "$WORK/small" 1 0 1 400; tiny=$new
    run tern ledger fold -l small; first=$rc
    for n in $(seq 1 6); do "$W" "$WORK/small" "$tiny" $((n + 1)) $((n * 400)) $((n * 400 + 1)) $((n * 400 + 400)) >/dev/null 2>&1; done
    run tern ledger fold -l small
    status 75 "a snapshot that does not fit"; err_has "No space left"; one_line
    [ $first != 0 ] || [ "$(sqlite3 small/runs/*/run.db 'PRAGMA integrity_check')" = ok ]
    ok $? "a fold on a full disk leaves the old snapshot"
    [ -z "$(find small -name '*.tmp-*')" ]; ok $? "a fold on a full disk leaves no temporary"
    run tern ledger show -l small; status 0 "readers read on while a fold fails"
    umount small; tap_cleanup=:
else
    skip "a small file system needs the right to mount"
fi

# ---------------------------------------------------------------- what else the system can say to a write
if strace -qq -e trace=none true 2>/dev/null; then
    begin "$WORK/quota" 1 0 1 400; tiny=$new
    for word in "EDQUOT:Disk quota exceeded" "EIO:Input/output error" "ENOSPC:No space left"; do
        # SQLite writes a snapshot by pwrite64; tern writes by write.
        ASAN_OPTIONS=detect_leaks=0 run strace -f -qq -o trace -e trace=pwrite64 -e inject=pwrite64:error="${word%%:*}" tern ledger fold -l quota
        status 75 "a snapshot is refused with ${word%%:*}"; err_has "${word#*:}"; one_line
    done
    run tern ledger fold -l quota; status 0 "a fold after a full disk writes the snapshot"
else
    skip "no strace"
fi

# ---------------------------------------------------------------- how long it takes (not asserted)
if [ "${LARGE:-$(long && echo 1)}" = 1 ]; then
    begin "$L" 1 0 1 1000000 done; big=$new
    t=$(now); tern ledger fold "$big"; echo "# fold 1,000,000 steps: $((($(now) - t) / 1000000)) ms, $(stat -c %s "$L/runs/$big/run.db") bytes"
    t=$(now); tern ledger plot "$big" >/dev/null; echo "# plot 1,000,000 steps: $((($(now) - t) / 1000000)) ms"
    t=$(now); tern ledger list >/dev/null; echo "# list with it: $((($(now) - t) / 1000000)) ms"
    for ((i = 0; i < 1000; i++)); do "$W" "$WORK/ledger2" new 1 0 1 10 done >/dev/null; done
    t=$(now); tern ledger fold -l "$WORK/ledger2"; echo "# fold 1,000 runs: $((($(now) - t) / 1000000)) ms"
    t=$(now); tern ledger list -l "$WORK/ledger2" >out; echo "# list 1,000 runs: $((($(now) - t) / 1000000)) ms"
    [ "$(wc -l <out)" = 1001 ]; ok $? "a thousand runs are listed"
fi
tap_done
