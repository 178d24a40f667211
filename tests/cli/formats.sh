#!/bin/bash
# Another program reads tern's files by the pages of their formats alone.
. "$(dirname "$0")/../lib/tap.sh"
for v in $(compgen -e | grep -E '^(SLURM|TERN_(R|L|C|P))'); do unset "$v"; done
unset COLUMNS
by_page() { run python3 "$ROOT/tests/tools/formats.py" "$@"; }
for topic in ledger-files token-set; do COLUMNS=80 tern help $topic >$topic; done

# ---- spools, and what lies behind the pages of SQLite
id=$(WRITER_SPEED=1 WRITER_EVENT=broken WRITER_HEALTH=slow "$TOOLS/ledger-writer" l new 1 0 1 300 done); id=${id%%[!0-9A-Z]*}
by_page spool ledger-files l/runs/"$id"/spool/1/*.spool; status 0 "every byte of a spool is as its page says"
is "$(cut -d ' ' -f 1 out | sort -u | tr '\n' ' ')" "begin checkpoint end eval event head health param run step " "the spools hold every type of record that the page has"
mv out records
field() { sed -n "s/^$1 //p" records | jq -r "select($2) | $3" | head -n 1; }
tern ledger fold -l l
ask() { sqlite3 "l/runs/$id/run.db" "$1"; }
is "$(field head true .run_id)" "$id" "a head's run_id, read by the page, is the run's"
is "$(field begin true '"\(.pid) \(.world) \(.kind) \(.resumed_step)"')" "$(ask "select pid || ' ' || world || ' ' || kind || ' ' || resumed_step from attempt")" "a begin, read by the page, is the attempt's row"
is "$(field end true '"\(.outcome) \(.exit_code)"')" "$(ask "select outcome || ' ' || exit_code from attempt")" "an end, read by the page, is the attempt's outcome"
same() { # GOT WANTED NAME: the same number, which jq and sqlite3 print to 15 digits or more
    awk -v a="$1" -v b="$2" 'BEGIN {d = a - b; exit !(a != "" && d * d <= 1e-26 * b * b)}'; ok $? "$3" || echo "# got '$1', wanted '$2'"
}
same "$(field step '.step == 7' '.values[] | select(.[0] == "loss") | .[1]')" "$(ask "select printf('%.17g', value) from step where name = 'loss' and step = 7")" "a step's loss, read by the page, is the row's"
same "$(field eval '.step == 100' .nll)" "$(ask "select printf('%.17g', nll) from eval where step = 100")" "an evaluation, read by the page, is the row's"
is "$(field checkpoint '.step == 100' '"\(.path) \(.bytes) \(.state)"')" "$(ask "select path || ' ' || bytes || ' ' || state from checkpoint where step = 100")" "a checkpoint, read by the page, is the row's"
is "$(field health true '"\(.check_id) \(.verdict) \(.text)"')" "$(ask "select check_id || ' ' || verdict || ' ' || text from health")" "a finding, read by the page, is the row's"
by_page parts ledger-files "l/runs/$id/run.db"; status 0 "parts of curves, their index and their foot are as the page says"
by_page seal l/ledger.db; status 0 "the seal of ledger.db is as the page says"

# ---- checkpoints of another trainer
cat >train.sh <<'S'
for s in 10 20 30; do mkdir -p ck/step_$s/model; echo "weights $s" >ck/step_$s/model/r0.pt; ln -s model/r0.pt ck/step_$s/newest; echo 1 >ck/step_$s/done; done
S
cat >ck.yaml <<'Y'
version: 1
name: ck
ledger: {dir: ledger}
launch: {health: off}
workload: {command: [bash, train.sh], progress: {glob: ck/step_*, marker: done}}
checkpoint: {keep: 2, mirror: mirror}
Y
mkdir -p ck/step_5; echo 1 >ck/step_5/done
run tern run ck.yaml; status 0
run_dir=$(echo ledger/runs/*)
by_page external ck "$run_dir"/external/step_*.json; status 0 "records of external checkpoints are as the page says"
is "$(cut -d ' ' -f 1 out | sort | uniq -c | tr -s ' \n' ' ')" " 1 deleted 2 verified " "the states of two that stay and one that was pruned"
page_of() { awk '/^CHECKPOINTS OF OTHER TRAINERS/ {on = 1} /^EXAMPLES/ {on = 0} on' ledger-files; }
for key in $(cut -d ' ' -f 2- out | tr ' ' '\n' | sort -u); do
    page_of | grep -qE "^  ([a-z]+, )*$key(,| |\$)" || echo "$key"
done >missing
[ ! -s missing ]; ok $? "each key of such a record is on the page" || sed 's/^/# /' missing
is "$(jq -c '[.[] | keys[], (.path | sub(".*/"; ""))]' "$run_dir/external/before.json")" '["path","written","step_5"]' "before.json names what was there before the run, with the keys of the page"
page_of | grep -q '^before.json .*'; ok $? "before.json is on the page"
for key in $(jq -r 'keys[]' "$run_dir/keep.json"); do page_of | grep -qw "$key" || echo "$key"; done >missing
[ -s "$run_dir/keep.json" ] && [ ! -s missing ]; ok $? "each key of keep.json is on the page" || sed 's/^/# /' missing

# ---- small JSON files: each key is on the page of its file
keys_on() { # TOPIC HEADING FILE [JQ]: the keys of the object are items, or words of them, in that section
    local key
    COLUMNS=80 tern help "$1" | awk -v h="$2" '$0 == h {on = 1; next} /^[A-Z]/ {if (/^[^a-z]*$/) on = 0} on' >section
    jq -r "${4-.} | keys[]" "$3" >keys
    while read -r key; do grep -qwF -- "$key" section || echo "$key"; done <keys >missing
    [ -s keys ] && [ ! -s missing ]; ok $? "each key of $3 ${4-} is on the page of $1, under $2" || sed 's/^/# /' missing
}
cat >lease.yaml <<'Y'
version: 1
name: lease
ledger: {dir: ledger}
launch: {health: off}
workload: {command: [sh, -c, 'cat own/*-000002 >lease.json'], precompile: {command: ["true"], cache: graphs}}
checkpoint: {dir: own}
Y
run tern run lease.yaml; status 0 "a trainer copies the lease of its run"
keys_on checkpoint LEASES lease.json
is "$(jq -r '"\(.host) \(.boot)"' lease.json)" "$(uname -n) $(cat /proc/sys/kernel/random/boot_id)" "a lease names this machine and its boot, as the page says"
cp graphs/*/complete.json . && keys_on workload "COMPILED GRAPHS" complete.json
is "$(jq -r '.made_of[]' complete.json | sha256sum | cut -d ' ' -f 1)" "$(jq -r .key complete.json)" "the key of compiled graphs is the digest of their lines, as the page says"
is "graphs/$(jq -r .key complete.json | head -c 16)" "$(echo graphs/*)" "the folder of compiled graphs is named by the first digits of its key"
cp "$ROOT/cluster-templates/trn1-4/cluster.yaml" cluster.yaml
run tern cluster render cluster.yaml --to slurm -o rendered; status 0 "Slurm's files of a layout are rendered"
cp rendered/tern-render.json . && keys_on layout TERN-RENDER.JSON tern-render.json
is "$(jq -r '.sha256 | to_entries[] | "\(.value)  rendered/\(.key)"' tern-render.json | sha256sum -c --quiet 2>&1)" "" "tern-render.json has the SHA-256 of each file, as the page says"
printf '{}\n' >cluster.tern.yaml; run tern cluster check cluster.yaml; status 0 "cluster.tern.yaml without keys is right"
COLUMNS=80 tern help layout-settings >settings
sed -nE 's/^  ([a-z]+\.[a-z_]+) .*/\1/p' settings >keys
[ "$(wc -l <keys)" -ge 6 ]; ok $? "the page of cluster.tern.yaml has its keys" || cat settings
while IFS=. read -r section key; do
    printf '%s: {%s: no value of this key}\n' "$section" "$key" >cluster.tern.yaml
    run tern cluster check cluster.yaml; cat out err | grep -q "$section.$key" || echo "$section.$key"
done <keys >missing
[ ! -s missing ]; ok $? "tern cluster check knows each key that the page has" || sed 's/^/# /' missing out err

if [ -x "$BIN/tern-train" ]; then
    . "$ROOT/tests/lib/tiny.sh"
    mkdir tiny; cd tiny || exit 1
    tiny_make
    sed -i 's,held_out: .*,held_out: [{name: held\, path: data/test.tds}\, {name: train\, path: data/train.tds}],' run.yaml
    run tern run run.yaml --set steps=2; status 0 "a run with two held-out sets ends well"
    cp checkpoints/after.json .
    for part in . .after .after.stop .after.stop.others.train; do keys_on checkpoint AFTER.JSON after.json "$part"; done
    is "$(jq -r '"\(.manifest_sha256) \(.after.stop.last_step)"' after.json)" "$(sqlite3 ledger/ledger.db 'select manifest_sha256 from checkpoint where step = 2') 2" "after.json is about the newest checkpoint, as the page says"
    cd .. || exit 1
fi

# ---- parts of a token set, of a build that has failed
for k in $(seq 400); do printf '{"text": "%s"}\n' "$(seq -s ' ' $k)"; done >text.jsonl
{ cat text.jsonl; echo '{'; } >bad.jsonl
run tern data build -t "$ROOT/tests/golden/spm-bpe-800.model" --threads 1 --resume --share-size 50K -o x.tds text.jsonl bad.jsonl
status 2 "a build in parts fails on a bad line"
by_page shares token-set x.tds.parts; status 0 "the page has the name of each file in a folder of parts, and each key of its plan"
has out "0001-P.tds 0002-P.tds" "the folder holds parts by the names that the page has"
if strace -o /dev/null true 2>/dev/null; then
    killed() { # AT: a build is killed as it calls unlink(2) for the AT-th time
        rm -rf x.tds.parts
        { run strace -o /dev/null -e trace=unlink,unlinkat -e inject=unlink,unlinkat:signal=KILL:when="$1" \
            tern data build -t "$ROOT/tests/golden/spm-bpe-800.model" --threads 1 --resume --share-size 100M -o x.tds text.jsonl; } 2>/dev/null
        status 137 "a build is killed at file $1 that it removes"
    }
    cp x.tds.parts/failed failed
    killed 2; by_page shares token-set x.tds.parts; status 0 "the page has the names and the first line of a lease"
    has out " task-" "a process that takes part has its file"; has out "0001-P.lease " "a share that is being built has the lease that the page tells"
    killed 4; by_page shares token-set x.tds.parts; status 0 "the page has the names of a build that merges"
    has out "merge-P.lease" "a process that merges has the lease that the page tells"
    mv failed x.tds.parts/
else skip "strace may not trace here"; fi
is "$(sed -n 2p x.tds.parts/failed | grep -cE '^2 [^ ]+$')" 1 "failed: the exit status and the step stand behind its first line"
tap_done
