#!/bin/bash
# kill -9 of tern run while the retention process verifies, mirrors and prunes; and a mirror without room.
. "$(dirname "$0")/../lib/tap.sh"
for v in $(compgen -e | grep -E '^(SLURM|TERN_(R|L|C|P))'); do unset "$v"; done
rows() { sqlite3 -separator ' ' ledger/runs/*/run.db "select step, state from checkpoint where path like '$WORK/$1/%' order by step" | tr '\n' ,; }

# A trainer that goes on from its newest checkpoint; 40 files of 32 KiB each.  It leaves the retention
# process at most ten to do, however slow the machine.
cat >train.sh <<'S'
s=$(ls -d ck/step_*/done 2>/dev/null | sed 's,.*step_\([0-9]*\)/.*,\1,' | sort -n | tail -1)
while s=$((${s:-0} + 10)); [ $s -le ${1:-400} ]; do
    [ -e ck/step_$s/done ] && continue
    while [ "$(ls -d ck/step_*/done 2>/dev/null | wc -l)" -ge 10 ]; do sleep 0.05; done
    mkdir -p ck/step_$s/model
    for f in $(seq 40); do head -c 32768 /dev/urandom >ck/step_$s/model/$f; done
    : >ck/step_$s/done; sleep 0.05 # made in one step: a kill leaves it or does not
done
S
recipe() {
    printf 'version: 1\nname: keep\nledger: {dir: ledger}\nlaunch: {health: off}\ncheckpoint: {dir: run, keep: 2, mirror: mirror}\nworkload: {command: [bash, train.sh, "%s"], progress: {glob: ck/step_*, marker: done}}\n' "$1" >run.yaml
}
recipe 100000
# A whole folder has its marker and 40 files that are not empty.  Any other folder with a checkpoint's
# name is torn, and is printed with the number of its files.
torn() {
    local d n
    for d in "$1"/step_*/; do
        [ -e "$d/done" ] && n=$(find "$d/model" -type f -size 32k | wc -l) && [ "$n" != 40 ] && echo "$d: $n of 40 files"
    done
}
newest() { ls -d ck/step_*/done 2>/dev/null | sed 's,.*step_\([0-9]*\)/.*,\1,' | sort -n | tail -1; }
# The moment of a kill is observed, not timed: N further checkpoints, the retention process copying,
# or deleting (which is short: the test waits at most 6 s for it).
moment() { # N | copy | prune
    local from=$(newest) end=$((SECONDS + 60)) folder=mirror was now
    [ $1 != prune ] || { folder=ck end=$((SECONDS + 6)); }
    was=$(echo $folder/.[!.]*) # an earlier kill may have left something
    while kill -0 $pid && [ $SECONDS -lt $end ]; do
        case $1 in
        copy | prune) now=($folder/.[!.]*); [ -e "${now[0]}" ] && [ "${now[*]}" != "$was" ] ;;
        *) sleep 0.02; [ $(($(newest) - ${from:-0})) -ge $(($1 * 10)) ] ;;
        esac >/dev/null && return
    done
}
killed=0 tears= aside=0
for when in copy 3 prune $(long && echo 0 copy 8 prune 12 1 copy prune 5); do
    setsid tern run run.yaml >out 2>err & pid=$!
    moment $when; kill -9 $pid; wait $pid 2>/dev/null; killed=$((killed + 1))
    until_true sh -c "! pgrep -r DRST -s $pid" # its retention process and its ranks end with it
    ! compgen -G '*/.[!.]*' >/dev/null || aside=$((aside + 1))
    tears=$tears$(torn mirror)$(torn ck)
done
echo "# $aside kills left something aside"
is "$tears" "" "killed $killed times: every folder that has a checkpoint's name is whole"
newest=$(newest)
recipe "$newest"
run tern run run.yaml; status 0 "the last attempt takes up what is unfinished"
is "$(rows ck | tr , '\n' | grep -c -v 'deleted\|^$')" 2 "two are left in the ledger"
is "$(rows ck | tr , '\n' | grep verified | tail -1)" "$newest verified" "the newest is verified"
is "$(ls -d ck/step_*/done | wc -l)" 2 "two checkpoints are left on disk"
is "$(ls -A ck mirror | grep -c '^\.')" 0 "nothing is left aside"
missing=; for s in $(rows ck | tr , '\n' | cut -d' ' -f1); do [ -e "mirror/step_$s/done" ] || missing="$missing $s"; done
is "$missing" "" "every one that was pruned has its copy"
bad=; for d in mirror/step_*; do tern ckpt verify "$d" --run keep --ledger ledger >/dev/null 2>&1 || bad="$bad $d"; done
is "$bad" "" "every copy is what was verified"
run tern ledger verify --ledger ledger; status 0 "the ledger is sound"

# ---- the retention process alone is killed, at a certain moment
if strace -qq -e trace=none true 2>/dev/null; then
    n=$(long && echo 6 || echo 4) # checkpoints
    recipe $((n * 10))
    for point in unlinkat:20 renameat2:1 $(long && echo unlinkat:3 unlinkat:41 unlinkat:43 renameat2:3 fchmod:20); do
        rm -rf ck mirror run ledger
        strace -f -qq -o trace -e trace="${point%:*}" -e inject="${point%:*}:signal=SIGKILL:when=${point#*:}" tern run run.yaml >out 2>err
        was=$(grep -c 'the retention process ended' err)
        is "$was $(torn mirror)$(torn ck)" "1 " "killed at ${point/:/ }: what has a checkpoint's name is whole"
        tern run run.yaml >/dev/null 2>&1
        is "$(rows mirror | tr , '\n' | grep -c verified) $(ls -A ck mirror | grep -c '^\.')" "$n 0" "the attempt after a kill takes the copy up"
    done
else
    skip "no strace"
fi

# ---- a mirror without room, then with
if [ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null; then
    rm -rf ck mirror run ledger; mkdir mirror
    cat >full.sh <<'S'
mount -t tmpfs -o size=2m tmpfs mirror || exit 1
tern run run.yaml; rc=$?
ls mirror >mirror.seen; ls -A mirror | grep '^\.' >mirror.aside
mount -o remount,size=200m mirror && tern run run.yaml || rc=$?
cp -r mirror mirror.kept
exit $rc
S
    recipe 30
    run unshare -m bash full.sh; status 0 "a full mirror does not end the run"
    err_has 'has no mirror: '; err_has ' are free: No space left on device' "no byte is read for a copy that has no room"
    is "$(wc -l <mirror.seen) $(wc -l <mirror.aside)" "1 0" "what fits is whole, what does not is not there"
    is "$(grep -c 'has no mirror' err)" 2 "trouble with a mirror is logged once for each checkpoint"
    is "$(ls mirror.kept | tr '\n' ' ')" "step_10 step_20 step_30 " "with room, the next attempt copies the rest"
    is "$(rows ck)" "10 deleted,20 verified,30 verified," "checkpoints are pruned only after they were copied"
else
    skip "no mount namespace"
fi
tap_done
