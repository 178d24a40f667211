#!/bin/bash
# tern ledger gc: what is surely garbage goes, on demand; runs that go on and only copies stay.
. "$(dirname "$0")/../lib/tap.sh"
unset TERN_LEDGER TERN_RUN_SPOOL COLUMNS
W=$TOOLS/ledger-writer
export TERN_LEDGER=$WORK/l; mkdir l
make() { id=$(WRITER_NAME=$1 "$W" l new 1 0 1 "$2" ${3-}); id=${id%%[!0-9A-Z]*}; }
make whole 120 done; whole=$id
make going 20; going=$id
tern ledger fold
R=l/runs/$whole
metric() { TERN_RUN_SPOOL=$WORK/$R/spool/1 tern metric step=10 "$@"; }
metric extra=1; tern ledger fold
temp() { local p=$1.tmp-other_host-4026531836-99-AbCdEf; head -c 1000 /dev/zero >"$p"; touch -d "${2:-2 days ago}" "$p"; }
sums() { find l -type f -printf '%P %s\n' | sort; }

# ---- nothing to do
run tern ledger gc; status 0; is "$(cat out)" "nothing would go" "a tidy ledger has no garbage"
run tern ledger gc --remove; status 0; is "$(cat out)" "nothing is to be removed" "gc --remove removes nothing from a tidy ledger"

# ---- temporary files
temp l/ledger.db; temp "$R/run.db"; temp "$R/spool/1/rank0.0.spool"; temp "$R/keep.json" now
temp "l/runs/$going/run.db"; echo mine >"$R/notes.tmp-1"; touch -d '9 days ago' "$R/notes.tmp-1"
sums >before
run tern ledger gc; status 0; out_has "temporary file: $WORK/l/ledger.db.tmp-other_host"
out_has '3 would go, 2.93 KiB. To remove them: tern ledger gc --remove'
is "$(sums)" "$(cat before)" "gc without --remove changes nothing"
run tern ledger gc -n; status 0; out_has '3 would go'
run tern ledger gc --json; status 0
is "$(jq -c '[length, ([.[].bytes] | add), ([.[].kept] | unique)]' out)" '[3,3000,[null]]' "JSON has each with its bytes"
run tern ledger gc --remove; status 0; out_has '3 removed, 2.93 KiB'
is "$(find l -name '*.tmp-other*' | sort | sed 's,.*/,,; s/\.tmp.*//' | tr '\n' ' ')" "keep.json run.db " "a young file stays, and so does one of a run that goes on"
[ -e "$R/notes.tmp-1" ]; ok $? "a file of another name stays"
for x in ledger.db "runs/$whole/run.db"; do [ -s "l/$x" ]; ok $? "gc leaves ${x##*/} in place"; done
run tern ledger verify; status 0
# Of this machine's ended process, however young.
sleep 0 & pid=$!; wait $pid; read -r ns < <(readlink /proc/self/ns/pid | tr -dc '0-9\n')
p=$R/run.db.tmp-$(uname -n | tr -- -/ __)-$ns-$pid-AbCdEf; : >"$p"
run tern ledger gc --remove; [ ! -e "$p" ]; ok $? "a temporary file of a process of this machine that has ended goes at once"
find l -name '*.tmp-other*' -delete; rm "$R/notes.tmp-1"

# ---- a damaged run.db that a fold has put aside
spoil() { chmod u+w "$1"; printf '\377\377\377\377' | dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null; }
cp "$R/run.db" sound.db
aside() { cp sound.db "$R/run.db.bad"; chmod u+w "$R/run.db.bad"; }
aside
run tern ledger gc; status 0; is "$(cat out)" "nothing would go" "a run.db.bad of today is left to people"
run tern ledger gc --bad-older 0; status 0; out_has "damaged run.db, kept aside: $WORK/$R/run.db.bad"; out_has '1 would go'
# Its spools lose a file that only the damaged one has read.
mkdir gone; mv "$R"/spool/1/metric* gone; rm -f "$R/run.db"; tern ledger fold "$whole"
run tern ledger gc --remove --bad-older 0; status 0; out_has "kept  damaged run.db, kept aside:"
[ -e "$R/run.db.bad" ]; ok $? "a run.db.bad with rows that the spools have lost stays" || cat out
mv gone/* "$R/spool/1"; rm -f "$R/run.db"; tern ledger fold "$whole"
head -c 50 /dev/urandom >"$R/run.db.bad"
run tern ledger gc --remove --bad-older 0; status 0; out_has 'it does not tell what it was made of'
[ -e "$R/run.db.bad" ]; ok $? "a run.db.bad that cannot be read stays"
aside; f=$(ls "$R"/spool/1/rank0*.spool); cp "$f" spool.copy; spoil "$f" 500
run tern ledger gc --remove --bad-older 0; status 0; out_has 'the run does not verify: see tern ledger verify'
[ -e "$R/run.db.bad" ]; ok $? "beside damaged spools a run.db.bad stays"
cp spool.copy "$f"; rm -f "$R"/run.db.bad*; tern ledger rebuild "$whole" 2>/dev/null
# As a fold makes it: a page in the middle is damaged.
cp "$R/run.db" x.db; spoil "$R/run.db" 8192; spoil "$R/run.db" 8200; tern ledger rebuild "$whole" 2>err; tern ledger fold "$whole" 2>>err
aside
run tern ledger gc --remove --bad-older 0; status 0; out_has "1 removed"; [ ! -e "$R/run.db.bad" ]; ok $? "a run.db.bad that the spools have all of goes"
run tern ledger verify; status 0

# ---- folders of runs
half=01ARZ3NDEKTSV4RRFFQ69G5FAV
old() { find "$1" -exec touch -h -d '2 days ago' {} +; }
mkdir -p "l/runs/$half/spool/1" "l/runs/$half/logs/1"; : >"l/runs/$half/spool/1/rank0.0.spool"; echo '{}' >"l/runs/$half/keep.json"
run tern ledger gc; is "$(cat out)" "nothing would go" "the folder of a run that begins now is none"
old "l/runs/$half"
run tern ledger gc; status 0; out_has "folder of a run without records: $WORK/l/runs/$half"; out_has '1 would go'
echo 'the only log' >"l/runs/$half/logs/1/rank0.log"; old "l/runs/$half"
run tern ledger gc --remove; status 0; out_has "$half: nothing else has its logs/1/rank0.log"; [ -s "l/runs/$half/logs/1/rank0.log" ]; ok $? "logs that are left of a run stay"
rm "l/runs/$half/logs/1/rank0.log"; cp sound.db "l/runs/$half/run.db"; old "l/runs/$half"
run tern ledger gc --remove; status 0; [ -e "l/runs/$half/run.db" ]; ok $? "a run.db whose spools are gone stays"
rm -f "l/runs/$half/run.db"; old "l/runs/$half"
run tern ledger gc --remove; status 0; out_has '1 removed'; [ ! -e "l/runs/$half" ]; ok $? "the folder of a run without records goes"
run tern ledger list -n -P -o name; is "$(sort out | tr '\n' ' ')" "going whole " "the other runs are listed"

# ---- a merge that was ended
aside=$R.tmp-AbCdEf; cp -r "$R" "$aside"; rm -f "$aside"/run.db*; echo more >"$aside/spool/1/extra.0.spool"; old "$aside"
run tern ledger gc --remove; status 0; out_has 'the run lacks its spool/1/extra.0.spool: repeat the tern ledger merge'
[ -d "$aside" ]; ok $? "what only the ended merge has stays"
rm "$aside/spool/1/extra.0.spool"; old "$aside"
run tern ledger gc --remove; status 0; out_has 'folder of a merge that was ended'; [ ! -e "$aside" ]; ok $? "a merge whose files are all in the run goes"
ln -s /etc "l/runs/$whole.tmp-GhIjKl"; run tern ledger gc --remove; status 0; [ -L "l/runs/$whole.tmp-GhIjKl" ]; ok $? "a link is no such folder"; rm "l/runs/$whole.tmp-GhIjKl"

# ---- beside checkpoints
T=$TOOLS/ckpt-tool; "$T" model hf || exit 1
for s in 10 20; do "$T" save ckpts $s 2 hf || exit 1; done
metric "checkpoint=$WORK/ckpts/step-00000010"; tern ledger fold "$whole"
mkdir ckpts/.trash-step-00000005-0a0b0c0d ckpts/step-00000030.tmp-1 "ckpts/.x.$whole.trash" ckpts/step-00000008.bad-1
head -c 3000 /dev/zero >ckpts/.trash-step-00000005-0a0b0c0d/shard
run tern ledger sql -r "$whole" -n -P "select count(*) from checkpoint where path like '%/ckpts/%'"; is "$(cat out)" 1 "the ledger knows the checkpoint"
run tern ledger gc; status 0; out_has "half-deleted checkpoint: $WORK/ckpts/.trash-step-00000005-0a0b0c0d"; out_has '3 would go'
"$T" loop ckpts 1 hf >loop.out 2>&1 & pid=$!
until_true grep -q '^saved ' loop.out; kill -STOP $pid; rm -rf "ckpts/.x.$whole.trash"; mkdir -p ckpts/step-00000001.tmp-1
run tern ledger gc --remove; status 0; out_has 'kept  unfinished checkpoints:'
[ "$(wc -l <out)" = 2 ] && tail -n 1 out | grep -q '^nothing is'; ok $? "a folder that another run holds is left to it" || cat out
kill -9 $pid; wait $pid 2>/dev/null; ls ckpts | grep claim >claims; mkdir -p "ckpts/.x.$whole.trash"
run tern ledger gc --remove; status 0
[ -z "$(find ckpts -name '.trash*' -o -name '*.trash' -o -name '*.tmp-1')" ]; ok $? "half-deleted and unfinished checkpoints go" || ls -A ckpts
[ -d ckpts/step-00000010 ] && [ -d ckpts/step-00000020 ] && [ -d ckpts/step-00000008.bad-1 ]; ok $? "good checkpoints and refused ones stay"
is "$(ls ckpts | grep claim)" "$(cat claims)" "no lease of the command stays"

# While files are deleted, a run may begin; what a kill leaves goes with the next one.
if [ -z "${TERN_SANITIZE-}" ]; then
    . "$ROOT/tests/lib/saves.sh"; saves_make
    slow() { # COMMAND...: it stops for good before it deletes the first shard
        rm -rf ckpts/.trash* at; mkdir -p ckpts/step-00000001.tmp-1; echo >ckpts/step-00000001.tmp-1/shard-00000
        LD_PRELOAD=$WORK/saves.so TEST_STOP=pruned:00000001:-1 "$@" >slow.out 2>&1 & slow=$!
        until_true [ -e at ]; ok $? "$*: a deletion has begun" || cat slow.out
        [ ! -e ckpts/step-00000001.tmp-1 ] && ls -A ckpts | grep -q '^.trash-step-00000001.tmp-1-'; ok $? "$*: what it deletes has another name"
    }
    for c in "ledger gc --remove" "ckpt prune --keep 1000 ckpts"; do
        rm loop.out # the next run empties it only when it begins
        slow tern $c; "$T" loop ckpts 1 hf >loop.out 2>&1 & pid=$!
        until_true grep -q '^saved ' loop.out; ok $? "tern $c: a run that begins meanwhile gets the folder" || cat loop.out
        kill -9 $pid $slow; wait $pid $slow 2>/dev/null
        slow tern $c; kill -9 $slow; wait $slow 2>/dev/null
        ls -A ckpts | grep -q '^.trash-'; ok $? "tern $c: a kill leaves a rest"
        run tern $c; status 0; has out ".trash-step-00000001.tmp-1-" "tern $c: the next one tells the rest"
        [ -z "$(ls -A ckpts | grep trash)" ]; ok $? "tern $c: the next one deletes the rest" || ls -A ckpts
    done
else skip "a gc that is stopped: the sanitizer wants to be loaded first"; fi

# ---- others' files
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
    temp "$R/run.db"; chown 12345 "$R"/run.db.tmp-*
    run tern ledger gc --remove; status 0; is "$(cat out)" "nothing is to be removed" "another user's file is none of the caller's"
    rm -f "$R"/run.db.tmp-*
else skip "needs root"; fi

# ---- mistakes
run tern ledger gc --remove -n; status 2; one_line
run tern ledger gc --bad-older -1; status 2; one_line
run tern ledger gc -l nowhere; status 2; one_line
run tern ledger gc extra; status 2; one_line

# ---- other names
run tern ledger fsck; status 0; cp out fsck.out; run tern ledger verify; cmp -s out fsck.out; ok $? "fsck is verify"
rm -f "$R/run.db"; run tern ledger rebuild "$whole"; status 0; [ -s "$R/run.db" ]; ok $? "rebuild makes run.db from the spools"
run tern ledger verify; status 0
mkdir bin; printf '#!/bin/sh\necho "$@"\n' >bin/tern-cluster; chmod +x bin/tern-cluster; cp "$BIN/tern-ledger" bin/
run bin/tern-ledger doctor; status 0; is "$(cat out)" "doctor --ledger $WORK/l" "doctor is tern cluster doctor on the ledger's folder"
run bin/tern-ledger doctor --json; is "$(cat out)" "doctor --ledger $WORK/l --json" "ledger doctor passes on --json"
rm bin/tern-cluster; run bin/tern-ledger doctor; [ $rc != 0 ]; ok $? "ledger doctor fails without tern cluster"; one_line
tap_done
