#!/bin/bash
# The output of ranks: passed on unchanged, kept, shown by tern logs; values in it; how tern-task ends.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/reach.sh"
for v in $(compgen -e | grep -E '^(SLURM|TERN_(R|L|M))'); do unset "$v"; done
export TERN_LEDGER=$WORK/ledger

# recipe NAME 'SCRIPT' [TASKS] [MORE OF workload]
recipe() {
    printf 'version: 1\nname: %s\nledger: {dir: ledger}\nworkload: {command: [bash, %s.sh], tasks_per_node: %s%s}\n' \
        "$1" "$1" "${3:-1}" "${4-}" >"$1.yaml"
    printf '%s\n' "$2" >"$1.sh"
}
value() { tern ledger sql -r latest -n -P "select group_concat(step || ':' || value, ' ') from (select * from step where name = '$1' order by step)"; }

# ---- passing on
printf 'a\r\nb\0c\xff no newline' >bytes
run tern task -- sh -c 'cat bytes; cat bytes >&2'
status 0
cmp -s bytes out && cmp -s bytes err; ok $? "bytes pass through tern-task unchanged"
for s in 0 1 7 75 77 255; do run tern task -- sh -c "exit $s"; [ $rc = $s ] || break; done
is $rc 255 "tern-task has the program's exit status"
for s in KILL TERM SEGV; do run sh -c 'ulimit -c 0; exec tern task -- sh -c "kill -$0 \$\$"' $s 2>/dev/null; [ $rc = $((128 + $(kill -l $s))) ] || break; done
is "$s $rc" "SEGV 139" "tern-task ends by the program's signal"
printf '#!/bin/sh\nkill -STOP $$\nsleep 600\n' >tern-train; chmod +x tern-train # a rank that a signal stopped
TERN_LIVENESS=0.1 run tern task -- ./tern-train; status 75 "a stopped rank is ended, for a reason outside the run"
err_has 'was stopped by a signal; it is killed now'
run tern task -- no-such-program; status 127; err_has "cannot run 'no-such-program': No such file"; one_line
run tern task -- sh -c 'read x || echo nothing'; out_has nothing "the program has the launcher's stdin"
run tern task -- sh -c 'exec >&- 2>&-; sleep 0.3; exit 5'; status 5 "a program that closes its streams is waited for"
run timeout 600 tern task -- sh -c 'sleep 3000 & echo $! >daemon; echo done'; status 0 "a child that outlives the program is not waited for"
kill "$(cat daemon)" 2>/dev/null
late() { run tern task -- sh -c '(while kill -0 $$; do sleep 0.01; done 2>/dev/null; echo late) & echo early'; grep -q late out; }
until_true late; out_has late "output within a moment after the program's end is passed on"
run bash -c 'set -o pipefail; tern task -- yes | head -n 1'
is "$(cat out) $rc" "y 141" "when the reader is gone, the program gets SIGPIPE, as without tern-task"
TERN_RUN_LOGS=$WORK/fulllogs tern task bash -c 'for i in 1 2 3 4; do echo "line $i"; sleep 0.1; done; echo went >went' >/dev/full 2>err
is "$? $(cat went)" "0 went" "a full disk behind its output: the program goes on"; one_line
err_has 'No space left on device'; is "$(grep -c 'line [1-4]$' fulllogs/0.log)" 4 "the log has the lines printed before the reader was gone"
if strace -qq -o /dev/null -e trace=clone true 2>/dev/null; then # the program runs before tern-task has gone on
    mkfifo never
    ASAN_OPTIONS=detect_leaks=0 strace -qq -o /dev/null -e trace=clone,clone3 -e inject=clone,clone3:delay_exit=1000000:when=1+ \
        tern task -- bash -c 'trap "echo got TERM; exit 76" TERM; echo $PPID $$ >pids; while :; do read -t 0.05 -u 3; done' 3<>never >out 2>err & traced=$!
    until_true test -s pids; kill -TERM $(cat pids); wait $traced; rc=$?
    status 76 "a signal to the group, as soon as the program runs, does not end tern-task"; out_has "got TERM"
else
    skip "strace may not trace here"
fi
tern task -- sh -c 'echo $$ >pid; exec sleep 30' & task=$!
until_true test -s pid; kill -9 $task; wait $task 2>/dev/null
until_true sh -c '! kill -0 $(cat pid)'; ok $? "kill -9 of tern-task ends the program, too"

# ---- a signal reaches the program once
cat >once.sh <<'S'
n=0; trap 'n=$((n + 1))' TERM; touch ready
while [ $n = 0 ]; do sleep 0.05; done; sleep 0.3; echo "got $n"
S
rm -f ready; setsid tern task -- bash once.sh >out & task=$!
until_true test -e ready; kill -TERM -- -$task; wait $task
is "$? $(cat out)" "0 got 1" "a signal to the group reaches the program once, and tern-task lives on"

# ---- kept
recipe talk 'for i in 1 2 3; do echo "rank $SLURM_PROCID line $i"; sleep 0.1; done; echo "oops $SLURM_PROCID" >&2; printf "\033[31mred\033[0m\a \302\233 caf\303\251 \377\n"' 3
run tern run talk.yaml; status 0
for r in 0 1 2; do out_has "rank $r line 3"; done
run tern logs; status 0
is "$(grep -c 'line [123]$' out)" 9 "tern logs shows every rank's lines"
cut -c1-29 out | sort -c; ok $? "tern logs shows lines in the order of their times"
grep -Eq '^20[0-9-]+T[0-9:]+\.[0-9]{3}[+-][0-9:]{5} +1 [^ ]+ o rank 1 line 2$' out; ok $? "time, rank, node, stream, text" || sed 's/^/# /' out
grep -q ' run [^ ]* t tern run: run ' out; ok $? "tern logs shows the supervisor's lines"
out_has '^[[31mred^[[0m^G \xc2\x9b café \xff' "control characters are made visible, letters stay"
run tern logs --rank 1,run --no-time --grep 'line 2|attempt 1'
is "$(awk '{print $1}' out | sort -u | tr '\n' ' ')" "1 run " "--rank and --grep choose"
run tern logs -r 0-1 --tail 2 --no-time; is "$(grep -c . out)" 2 "--tail shows the last lines"
run tern logs --rank 0 --raw; is "$(head -n 1 out)" "rank 0 line 1" "--raw is the text alone"
run tern logs --json --rank 2 --grep oops
python3 -c 'import json,sys; d=json.load(open("out")); assert (d["rank"],d["stream"],d["text"],d["attempt"])==("2","stderr","oops 2",1)' 2>/dev/null
ok $? "--json is a JSON object a line" || cat out
run tern logs --since now-1hours --rank 0; out_has 'line 1'
run tern logs --since 2100-01-01; is "$(wc -l <out)" 0 "--since leaves out what is older"
run tern logs --node nowhere; is "$(wc -l <out)" 0 "--node leaves out other nodes"
status 2 "a node that has no log"; one_line; err_has 'none of the 4 logs is of nowhere'
run tern logs --rank 3-9 --tail 2; status 2 "ranks that are not there"; one_line; err_has 'none of the 4 logs is of that rank'
run tern logs --rank 1 --grep 'no such text'; status 0 "--grep for a text that does not occur prints no line"
logs=$(ls -d ledger/runs/*/logs/1 | tail -1)
if [ "$(id -u)" != 0 ] || setpriv --reuid 65534 --regid 65534 --clear-groups true 2>/dev/null; then
    reach 65534
    other() { if [ "$(id -u)" = 0 ]; then PATH=$REACH_BIN:$PATH run setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; else run "$@"; fi; }
    chmod a+rx . ledger; chmod 000 "$logs/1.log"; other tern logs; status 1 "a log that may not be read"; one_line; err_has '/1.log: cannot be read: Permission denied'; out_has 'rank 2 line 3'
    chmod 644 "$logs/1.log"; chmod 000 "$logs"; other tern logs; status 1 "a folder that may not be read"; one_line; err_has 'cannot look for logs: Permission denied'
    chmod 755 "$logs"
else
    skip "root cannot be somebody else here"
fi
run tern logs nothing; status 2; one_line
run tern logs --rank x; status 2; one_line; err_has '0,4-7'
run tern logs --attempt 7; status 2; one_line; err_has 'has no attempt 7'
run tern logs --grep '('; status 2; one_line
mkdir -p bare; (cd bare && TERN_LEDGER='' run tern logs; mv out err ..; exit $rc); rc=$?; status 2 "tern logs without a ledger"; one_line; err_has TERN_LEDGER

# ---- attempts
recipe again 'echo "attempt of $(cat n)"; exit ${CODE:-0}' 1 ; printf 'checkpoint: {dir: ck}\nlaunch: {restarts: 0}\n' >>again.yaml
for n in 1 2; do echo $n >n; run tern run again.yaml; done
run tern logs again --rank 0 --no-time; out_has 'attempt of 2'; ! grep -q 'of 1' out; ok $? "tern logs shows the newest attempt by default"
run tern logs again --attempt 1 --rank 0; out_has 'attempt of 1'
run tern logs again --attempt all --rank 0; is "$(grep -c 'attempt of' out)" 2 "--attempt all shows every attempt"
run tern logs again --attempt all --rank 0 --tail 5; is "$(grep -c 'attempt of' out)" 2 "--tail with --attempt all shows the last lines of all"
run tern logs again --attempt 1 -f --rank 0; status 0; err_has 'attempt 1 has ended'
run tern logs 01ARZ3NDEKTSV4RRFFQ69G5FAV; status 2; one_line; err_has 'has no attempts yet, or is not there'
cp again.yaml $'x\e[31m.yaml'; run tern run $'x\e[31m.yaml'; run tern ledger show; out_has 'x?[31m.yaml' "no escapes of a name reach the terminal"

# ---- a ledger without room
if [ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null; then
    recipe full 'seq -f "line %09.0f of very many lines that nobody will ever read again" 60000'; mkdir small
    run unshare -m sh -c 'mount -t tmpfs -o size=300k tmpfs small && tern run full.yaml --set ledger.dir=small && cat small/runs/*/logs/1/0*.log >kept'
    status 0 "a full ledger does not end the run"
    is "$(grep -c '^line' out)" 60000 "a full ledger does not delay the program's output"
    # Room that comes back for a moment, as when a fold ends: the log says what is missing before
    # it.
    here=$(sed -n 's/^[0-9]* t \([0-9]*\) lines are missing here:.*/\1/p' kept | awk '{n += $1} END {print n + 0}')
    err_has "the last $((60000 - $(grep -c ' o line' kept) - here)) lines are missing in its log" "the log's missing lines are counted exactly"
else
    skip "no mount namespace"
fi

# ---- following
recipe live 'for i in 1 2 3 4 5 6; do echo "beat $i"; sleep 0.2; done'
tern run live.yaml >/dev/null 2>&1 & sup=$!
until_true sh -c 'tern logs live'
run timeout 600 tern logs live -f --attempt 1 --rank 0; status 0 "tern logs -f ends with the run"
is "$(grep -c 'beat [1-6]' out)" 6 "-f shows all of it"; err_has 'done'
wait $sup
recipe lost 'echo here; exec sleep 300'
tern run lost.yaml >/dev/null 2>&1 & sup=$!
until_true sh -c 'tern logs lost | grep here'
kill -9 $sup; wait $sup 2>/dev/null
run timeout 600 tern logs lost -f --rank 0; status 0 "-f ends when the supervisor was killed"; err_has 'its supervisor is gone'

# ---- bounded
recipe big 'seq -f "line %09.0f of very many lines that nobody will ever read again" 60000'
TERN_LOG_BYTES=1M run tern run big.yaml; status 0
is "$(wc -l <out)" 60000 "a long output is passed on whole"
[ "$(cat ledger/runs/*/logs/1/0*.log | wc -c)" -gt 2000000 ]; bigger=$?
dir=$(ls -td ledger/runs/*/logs | head -n 1)/1
size=$(cat "$dir"/0*.log | wc -c); [ "$size" -le 1048576 ] && [ "$bigger" != 0 ]; ok $? "TERN_LOG_BYTES bounds what is kept: $size"
run tern logs big --rank 0; out_has 'line 000000001'; out_has 'line 000060000'; out_has 'lines are left out here'
TERN_LOG_BYTES=0 run tern run talk.yaml; status 0; run tern logs; status 2 "TERN_LOG_BYTES=0 keeps nothing"; one_line

# ---- a log that cannot be written, and a storage that hangs
mkdir -p hang/1; mkfifo hang/1/fifo
recipe nolog 'echo fine'
TERN_RUN_LOGS=/proc/nowhere run tern task -- echo fine; status 0; out_has fine; err_has 'has no log'; one_line
if ! long; then :; elif strace -o /dev/null true 2>/dev/null; then
    start=$(date +%s%N)
    ASAN_OPTIONS=detect_leaks=0 TERN_RUN_LOGS=$WORK/slow run strace -f -o trace -e trace=pwrite64 -e inject=pwrite64:delay_enter=9000000:when=2+ \
        tern task -- sh -c 'seq 300000; date +%s%N >done'
    status 0 "a storage that hangs does not stop the program"
    is "$(tail -n 1 out)" 300000 "output arrives when the log's storage hangs"
    bound $((($(cat done) - start) / 1000000)) 8000 "milliseconds of a program whose log hangs for 9000"
    err_has 'does not answer' "lines lost to a hanging storage are logged"
else
    skip "a storage that hangs: no strace"
fi

# ---- values
recipe values 'echo "step 4 step_time 1.5s throughput 20.5 seq/s loss 2.25 grad norm 0.5"
[ $SLURM_PROCID = 0 ] || exit 0
echo "iter 7 cost=nan"; python3 -c "print()" 2>/dev/null
echo "step=9 fd=1.5" >&"$TERN_METRIC_FD"
(exec 3>"$TERN_METRIC_FILE"; echo "step=10 file=-inf" >&3); mkdir -p made; echo "step=11 checkpoint=made" >"$TERN_METRIC_FILE"
for i in 1 2 3; do echo "this is nonsense" >"$TERN_METRIC_FILE"; done; head -c 100000 /dev/zero | tr "\0" x >"$TERN_METRIC_FILE"; echo >"$TERN_METRIC_FILE"' 2 \
    ", metrics: [nxd, {pattern: 'iter ([0-9]+) cost=(.*)', names: [step, cost]}, {tensorboard: tb}]"
run tern run values.yaml; status 0
is "$(value loss)" "4:2.25" "values of a known trainer's lines are recorded"
is "$(tern ledger sql -r latest -n -P "select step, name, value, class from step where name = 'cost'")" "7|cost||1" "a pattern of the recipe gives values, nan among them"
is "$(value fd)" "9:1.5" "values of TERN_METRIC_FD are recorded"
is "$(value file)" "10:-Inf" "values of TERN_METRIC_FILE are recorded"
is "$(tern ledger sql -r latest -n -P 'select step, path from checkpoint')" "11|$WORK/made" "a checkpoint of TERN_METRIC_FD is registered"
is "$(grep -c TERN_METRIC_FD err)" 2 "bad lines are logged once and counted"
# A value without a certain step gets none.
recipe unplaced 'for i in 3 2; do echo "loss=$i"; done' 1 ", metrics: [{pattern: 'loss=([0-9.]+)', names: [loss]}, lightning]"
run tern run --check unplaced.yaml; status 0; err_has "pattern 'loss=([0-9.]+)': none of its names is 'step'"; err_has "lightning: its progress bar counts batches"
# transformers' Trainer without its progress bar: nothing tells the step.
barless() { # OPTION...: the check's words for a command with it
    printf "version: 1\nname: barless\nledger: {dir: ledger}\nworkload: {command: [python3, train.py, $(printf '%s, ' "$@")--lr, 1], metrics: [hf]}\n" >barless.yaml
    run tern run --check barless.yaml; status 0
}
for option in --disable_tqdm '--disable_tqdm, "True"' '--disable_tqdm=true' '--disable-tqdm, "1"' '--disable_tqdm, "False", --disable_tqdm'; do
    barless "$option"; err_has "--disable_tqdm takes that away" "--check: hf with $option in the command gets a word"
done
for option in '--disable_tqdm, "False"' --disable_tqdm=no --disable_tqdm_never --tqdm; do
    barless "$option"; ! grep -q 'takes that away' err; ok $? "--check: hf with $option in the command gets none"
done
sed 's/command: .*, metrics/command: [sh, -c, "python3 train.py --disable_tqdm True | tee x"], metrics/' barless.yaml >shell.yaml; run tern run --check shell.yaml
err_has "--disable_tqdm takes that away" "--check: hf with --disable_tqdm in a shell's script gets a word"
run tern run unplaced.yaml; status 0; err_has "workload.metrics: 2 lines that match a pattern"
is "$(tern ledger sql -r latest -n -P "select count(*) from step")" 0 "lines without a step give no value"
run tern ledger show latest --events -P; out_has "2 lines that match a pattern without a group 'step' are left out" "the ledger has the event of lines without values"
recipe silent 'echo nothing' 1 ", metrics: [hf]"
run tern run silent.yaml; status 0; err_has "finished, but no output matched workload.metrics"
# More lines at once than can be recorded: lost ones are counted, all others are there.
recipe burst 'python3 -c "
import os
with open(os.environ[\"TERN_METRIC_FILE\"], \"w\", buffering=1 << 20) as f:
    for i in range(1, int(os.environ[\"VALUES\"]) + 1): f.write(f\"step={i} loss=1\\n\")
"'
export VALUES=$(long && echo 1000000 || echo 200000)
run tern run burst.yaml; status 0
there=$(tern ledger sql -r latest -n -P "select count(*) from step where name = 'loss'")
gone=$(tern ledger sql -r latest -n -P "select coalesce(sum(cast(text as int)), 0) from event where kind = 'gap'")
[ $((there + gone)) = $VALUES ]; ok $? "$VALUES lines at once: $there recorded, $gone counted as lost"
is "$(tern ledger list -n -P -o lost | tail -n 1)" "$gone" "tern ledger list shows the lost values, too"
# One early value of a later attempt hides no other metric; it may report the step that it resumed from.
for told in "" resumed_step=5; do
    rm -f once; recipe sanity "
if [ ! -e once ]; then touch once; for s in 1 2 3 4 5 6 7 8 9 10; do tern metric step=\$s loss=\$s.1 lr=0.1; done; exit 75; fi
[ -z '$told' ] || tern metric $told
tern metric step=0 val_loss=3.5
for s in 6 7 8 9; do tern metric step=\$s loss=\$s.2 lr=0.1; done"
    printf 'launch: {restarts: 2}\n' >>sanity.yaml
    run tern run sanity.yaml; status 0
    is "$(tern ledger sql -r latest -n -P "select group_concat(step || ':' || attempt, ' ') from (select * from step where name = 'loss' order by step)")" \
        "1:1 2:1 3:1 4:1 5:1 6:2 7:2 8:2 9:2" "a sanity evaluation at step 0${told:+, $told}"
    is "$(value val_loss)" "0:3.5" "values of the later attempt are shown, too"
    is "$(tern ledger show latest -a -n -P -o attempt,resumed | tail -1)" "2|${told#*=}" "the ledger has the step that the attempt resumed from"
done
for bad in "{pattern: '(', names: [a]}" "{pattern: 'a', names: [a]}" "{pattern: '(a)'}" "megatron"; do
    recipe bad 'exit 0' 1 ", metrics: [$bad]"
    run tern run --check bad.yaml; status 2 "workload.metrics: $bad is refused"; one_line; err_has 'bad.yaml:4'
done
# Killed for memory: by the cgroup's limit, which the cause names.
group=
for base in /sys/fs/cgroup/memory /sys/fs/cgroup; do
    [ -e $base/memory.limit_in_bytes ] || { [ -e $base/cgroup.controllers ] && grep -qw memory $base/cgroup.subtree_control; } || continue
    mkdir $base/tern-test-$$ 2>/dev/null && group=$base/tern-test-$$ && break
done
limit() { echo 100M >$group/memory.limit_in_bytes 2>/dev/null || { echo 100M >$group/memory.max && echo 0 >$group/memory.swap.max; } 2>/dev/null; }
if [ -n "$group" ] && limit; then
    recipe eats 'python3 -c "x = bytearray(400 << 20); print(len(x))"'
    printf 'launch: {restarts: 0}\n' >>eats.yaml
    run sh -c "echo \$\$ >$group/cgroup.procs; exec tern run eats.yaml"; status 75
    err_has "rank 0 on "; err_has "was killed for memory: its job's limit there, 100 MiB was reached"
    tern ledger sql -r latest -n -P 'select outcome, cause from attempt' >cause; has cause 'killed|rank 0 on ' "the ledger's cause is the kill for memory"
    recipe dies 'kill -9 $$'; printf 'launch: {restarts: 0}\n' >>dies.yaml
    run sh -c "echo \$\$ >$group/cgroup.procs; exec tern run dies.yaml"; status 75; grep -q 'for memory' err; [ $? = 1 ]; ok $? "another kill is not taken for a kill for memory"
    rmdir $group
else
    skip "killed for memory: no cgroup of memory can be made here"
fi

# ---- a progress bar, which writes over its line
# It moves until one of its lines is recorded: that takes two reads a second apart.
recipe bar 'for i in $(seq 600); do printf "bar $i of 600\r"; sleep 0.1; tern logs bar --progress 2>/dev/null | grep -q "bar [0-9]* of" && break; done; echo end'
run tern run bar.yaml; status 0 "a program with a progress bar ends well"
run tern logs bar; out_has ' o end'; is "$(grep -c 'bar [0-9]* of' out)" 0 "tern logs leaves out lines that a progress bar overwrote"
run tern logs bar --progress; grep -q 'bar [0-9]* of 600$' out; ok $? "tern logs --progress has some lines that a progress bar overwrote" || cat out
recipe wide 'head -c 200000 /dev/zero | tr "\0" x; echo'
run tern run wide.yaml; status 0 "a program with a line of 200,000 bytes ends well"
tern logs wide --json --rank 0 >out; is "$(jq -sc '[length > 3, (.[:-1] | all(.partial == true)), .[-1].partial]' out)" '[true,true,null]' "JSON says which lines are a part of a longer one"
tap_done
