#!/bin/bash
# The retention process: copies of tern's own checkpoints, and the wait for the last ones.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/tiny.sh"
for v in $(compgen -e | grep -E '^(SLURM|TERN_(R|L|C|P))'); do unset "$v"; done
states() { sqlite3 -separator ' ' ledger/runs/*/run.db "select step, state from checkpoint where path like '$WORK/$1/%' order by step" | paste -sd,; }
digest() { sha256sum <"$1" | cut -d' ' -f1; }

# ---- tern's own trainer, two ranks
tiny_make || exit 1
sed -i 's/keep: 2}/keep: 2, mirror: copies}/; s/threads: 1/threads: 1, ranks_per_node: 2, health: off/' run.yaml
run tern run run.yaml --set steps=7 # the copy of step 7 is there, however slow the mirror is
run tern run run.yaml; status 0 "training with checkpoint.mirror"
last=step-00000008
compgen -G "ledger/runs/*/spool/*/retention.0.spool" >spools; ok $? "the ledger has a spool of the retention process" || ls ledger/runs/*/spool/*
[ -d copies/$last ]; ok $? "the last checkpoint has its copy" || ls -la copies checkpoints
run tern ckpt verify copies/$last; status 0 "which is sound"
is "$(digest copies/$last/manifest.json)" "$(digest checkpoints/$last/manifest.json)" "the manifest of the copy is that of the checkpoint"
is "$(ls -A copies | grep -c '^\.')" 0 "nothing is left aside"
is "$(states copies | tr , '\n' | tail -1)" "8 verified" "the ledger has a row of the copy"
gone=0; for s in $(states copies | tr , '\n' | cut -d' ' -f1); do [ -d copies/step-$(printf %08d "$s") ] || gone=$((gone + 1)); done
is $gone 0 "each row's copy is there"

rm -rf copies/$last; echo damaged >>"$(ls copies/step-00000007/*.safetensors | head -1)"
mkdir copies/$last; echo else >copies/$last/file
run tern run run.yaml; status 0 "what is no copy lies in the mirror"
err_has "copies/$last: is there already and is not a copy of"
is "$(grep -c 'has no mirror' err)" 2 "trouble with a mirror is logged once, and once more for the damaged copy"
is "$(cat copies/$last/file)" else "what is no copy is left alone"
rm -rf copies/$last
run tern run run.yaml; status 0
run tern ckpt verify copies/$last; status 0 "moved away, the next attempt copies it"
rm -rf lost; mv checkpoints lost; mkdir checkpoints; cp -r copies/$last checkpoints/
run tern run run.yaml --set steps=9; status 0 "a run goes on from its mirror"
err_has 'from step 8'

id=$(cat checkpoints/run.id); rm -rf checkpoints
run tern run run.yaml --set steps=10; status 0 "a run goes on from a folder's copy when its checkpoint.dir is gone"
err_has "comes back from $WORK/copies/step-00000009"; err_has ', from step 9'
is "$(cat checkpoints/run.id)" "$id" "the run keeps its id"
is "$(digest checkpoints/step-00000009/manifest.json)" "$(digest copies/step-00000009/manifest.json)" "the checkpoint is the copy's"
for s in 09 10; do find copies/step-000000$s -name '*.safetensors' -exec sh -c 'printf X | dd of=$0 bs=1 seek=$(($(stat -c %s $0) - 3)) conv=notrunc status=none' {} \;; done
rm -rf checkpoints
run tern run run.yaml --set steps=10; status 1 "no copy is whole: the run does not begin anew"; err_has 'no copy of run'
run tern run run.yaml --set steps=10; status 1 "no copy is whole: the next attempt does not begin anew either"
rm -rf copies/step-00000009 copies/step-00000010 checkpoints; mv lost checkpoints
run tern run run.yaml --set steps=9; status 0

# ---- the wait for the last checkpoint of a finished run: logged, bounded, ended by a signal
mkdir slow; cd slow || exit 1
WORK=$WORK/slow
printf 'version: 1\nname: slow\nledger: {dir: ledger}\nlaunch: {health: off}\nworkload: {command: [sh, -c, "mkdir -p ck/step_10; truncate -s 4T ck/step_10/big; touch ck/step_10/done"], progress: {glob: ck/step_*, marker: done}}\n' >run.yaml
for sig in TERM USR1; do
    rm -f err # the earlier one's words are there until the redirection is made
    tern run run.yaml >out 2>err & pid=$!
    until_true grep -q 'waiting for the last checkpoints' err; ok $? "a wait for the last checkpoints is logged"
    grep -qE "checkpoints: (verifying $WORK/ck/step_10|looking for checkpoints)\." err; ok $? "a wait for the mirror says what it is for"; has err 'SIGTERM ends the wait' "a wait for the mirror says how to end it"
    kill -$sig $pid
    until_true sh -c "! kill -0 $pid" || { kill -9 $pid; echo "# had to be killed"; }
    { wait $pid; rc=$?; } 2>/dev/null
    is $rc 0 "SIG$sig ends it, and the run is done"
    has err 'a signal came: the last checkpoints are not all verified' "the end of the wait by a signal is logged"
    is "$(sqlite3 ledger/runs/*/run.db 'select outcome from attempt order by attempt desc limit 1')" "done" "a signal in the wait: the ledger has the run as done"
    has err "\`tern ckpt mirror $(ls ledger/runs)\` finishes this without holding nodes" "the message names the command that does it, as no attempt comes"
    rm -rf ck ledger
done

# ---- that command
printf 'version: 1\nname: late\nledger: {dir: ledger}\nlaunch: {health: off}\ncheckpoint: {dir: run, mirror: mirror}\nworkload: {command: [sh, -c, "mkdir -p ck/step_10; for f in 1 2 3; do echo $$f >ck/step_10/$$f; done; touch ck/step_10/done"], progress: {glob: ck/step_*, marker: done}}\n' >run.yaml
echo wall >mirror
run tern run run.yaml; status 0 "a mirror that cannot be written"; err_has 'has no mirror: '
id=$(ls ledger/runs)
run tern ckpt mirror late --ledger ledger; status 75 "tern ckpt mirror"; err_has 'has no mirror: '; err_has '1 checkpoints of run'
rm mirror; mkdir -p mirror/.step_10.$id.new; cp -p ck/step_10/1 mirror/.step_10.$id.new/; inode=$(stat -c %i mirror/.step_10.$id.new/1)
run sh -c 'cd / && tern ckpt mirror late --ledger "$0"' "$WORK/ledger"; status 0 "ckpt mirror finishes a copy from another folder"
out_has "$id: 1 copied to $WORK/mirror"; diff -r ck/step_10 mirror/step_10; ok $? "a whole copy"
is "$(stat -c %i mirror/step_10/1)" "$inode" "a copy that the retention process began is continued"
is "$(ls -A mirror)" step_10 "nothing is left aside"
is "$(states ck) $(states mirror)" "10 verified 10 verified" "the ledger has both as verified"
run tern ckpt mirror late --ledger ledger; status 0 "there is nothing more to do"; out_has 'has its copy'
mkdir -p mirror/.step_7.$id.new ck/step_20; touch ck/step_20/done
run tern ckpt mirror late --ledger ledger; status 0; out_has '1 copied' "one that came last of all"
run tern ckpt mirror nobody --ledger ledger; status 2; one_line
run tern ledger verify --ledger ledger; status 0
run tern run run.yaml; status 0; is "$(ls -A mirror | paste -sd' ')" "step_10 step_20" "an attempt removes half copies that no process will finish"

cd .. || exit 1
rm -rf copies/step-*; run tern ckpt mirror tiny --ledger ledger; status 0 "tern's own checkpoints, too"
[ -d copies/step-00000009 ] && [ "$(ls copies | wc -l)" = "$(ls -d checkpoints/step-* | wc -l)" ]; ok $? "all of tern's own checkpoints are copied" || ls copies checkpoints

# ---- damaged, set aside, trained again: the copy of the damaged one gives way
last=step-00000009
find checkpoints/$last -type f -size +4k -exec truncate -s -8 {} +
run tern run run.yaml --set steps=9; status 0 "a damaged checkpoint is trained again"
[ -d checkpoints/$last.bad-1 ]; ok $? "a damaged checkpoint is set aside" || ls checkpoints
grep -q 'has no mirror' err; [ $? = 1 ]; ok $? "its copy takes the place of the old one" || cat err
is "$(digest copies/$last/manifest.json)" "$(digest checkpoints/$last/manifest.json)" "the copy of the checkpoint made again is the same"
# Also when the retention process listed the folder before the old one was set aside, and opens it
# after.  Every process stops as it opens the folder before it in the list; all but the retention
# process, which alone has nice 19, go on at once.
cat >aside.sh <<'S'
while sleep 0.05; do
    for p in $(pgrep -r Tt -s 0); do
        case $(ps -o ni= -p $p) in *19) [ -d "$1.bad-1" ] && [ -e "$1/manifest.json" ] || continue ;; esac
        kill -CONT $p
    done
done 2>/dev/null
S
if [ "$(nice)" = 19 ]; then
    skip "a retention process that is held up: all processes here are as nice as it"
elif strace -qq -e trace=none true 2>/dev/null; then
    rm -rf checkpoints/$last.bad-1
    find checkpoints/$last -type f -size +4k -exec truncate -s -8 {} +
    cat >slowly.sh <<'S'
bash aside.sh "$PWD/$1" & pid=$!
strace -f -qq -o trace -P "$PWD/checkpoints/step-00000008/manifest.json" -e trace=openat -e inject=openat:signal=SIGSTOP tern run run.yaml --set steps=9
rc=$?; kill $pid; exit $rc
S
    # LeakSanitizer gives up where a tracer is already.
    ASAN_OPTIONS=detect_leaks=0 run timeout 600 setsid -w bash slowly.sh checkpoints/$last; status 0 "a damaged copy is replaced also when the retention process is held up"
    [ -d checkpoints/$last.bad-1 ] && ! grep 'has no mirror' err; ok $? "a checkpoint that has a mirror is not reported as without one"
    is "$(digest copies/$last/manifest.json)" "$(digest checkpoints/$last/manifest.json)" "the manifest of the copy is that of the checkpoint"
else
    skip "no strace"
fi
tap_done
