#!/bin/bash
# kill -9 of one of eight ranks, or of the whole run, at each stage of a save that goes on beside training:
# the checkpoint before it or the new one loads, the ledger says which, and the run ends with the bits of
# a run that was left alone.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/tiny.sh"
. "$ROOT/tests/lib/saves.sh"
[ -z "${TERN_SANITIZE-}" ] || skip_all "the sanitizer wants to be loaded first"
tiny_make || skip_all "cannot make the tiny setting"
saves_make
sed -i 's/^batch: .*/batch: {global: 8, micro: 1, seq_len: 32}/' run.yaml
export RANKS=8
args=(--set steps=8 --set checkpoint.every=2 --set checkpoint.keep=2 --set launch.restarts=0 --set parallel.zero=1)
on_disk() { ls checkpoints | sed -n 's/^step-0*\([0-9]*\)$/\1/p' | tr '\n' ' '; }
all_states() { sql "$1" "select step || ' ' || state from checkpoint order by step" | tr '\n' ','; }
strays() { ls -A checkpoints | grep -c 'tmp\|trash'; }

begin whole "${args[@]}"; ended; status 0 "eight ranks that are left alone"
is "$(on_disk)" "6 8 " "eight ranks leave two checkpoints"
is "$(all_states whole)" "2 deleted,4 deleted,6 published,8 published," "the ledger has the state of each checkpoint"
tiny_digests >weights; tiny_curve whole >curve

# STAGE:STEP:RANK (saves.c), the processes that are killed, the steps on disk then, their states where they are not
# published: copy:2 is of the second save, that of step 4, as the others; at pruned step 2 goes, and 4
# and 6 are there.
n=0
while read -r also stop who there; do
    long || [ "$also" = . ] || continue
    n=$((n + 1)) l=led-$n what="$who at $stop"
    rm -rf checkpoints at
    TEST_STOP=$stop begin $l "${args[@]}"
    until_true [ -s at ] || { ok 1 "$what: the save gets there"; sed 's/^/# /' err; kill -9 -- -$pid; ended; continue; }
    case $who in
    rank) kill -9 "$(cat at)" ;;
    # the supervisor first, which could say more than a run of which nothing is left
    all) kill -9 $pid; kill -9 "$(cat at)" $(pgrep -s $pid) 2>/dev/null; until_true sh -c "! pgrep -r DRST -s $pid" ;;
    esac
    ended
    [ $rc != 0 ]; ok $? "$what: the run does not end well"
    is "$(on_disk)" "$there " "$what: these checkpoints are there"
    tern ckpt verify --full checkpoints >out 2>err2; ok $? "$what: the checkpoints verify" || sed 's/^/# /' err2
    if [ "$who" = rank ]; then
        is "$(published $l)" "$there " "$what: the ledger has those alone"
    else
        case $stop in
        renamed:*) is "$(all_states $l)" "2 published,4 writing," "$what: the row was there before the checkpoint" ;;
        esac
    fi
    run tern run run.yaml --ranks 8 --set ledger.dir=$l "${args[@]}"
    status 0 "$what: the next attempt ends the run"
    err_has "going on after step ${there##* }" "$what: from the newest one"
    tiny_digests | cmp -s - weights; ok $? "$what: with the weights of a run without a kill"
    tiny_curve $l | cmp -s - curve; ok $? "$what: with the losses of a run without a kill"
    is "$(on_disk) $(published $l)" "6 8  6 8 " "$what: then folder and ledger have the same two"
    is "$(sql $l "select count(*) from checkpoint where state = 'writing'") $(strays)" "0 0" "$what: nothing stays half done"
done <<'L'
+ copy:00000002:0 rank 2
. copy:00000002:5 rank 2
+ copy:00000002:7 all 2
. write:00000004:3 rank 2
+ write:00000004:0 rank 2
+ write:00000004:7 all 2
. fsync:00000004:6 all 2
+ fsync:00000004:0 rank 2
+ fsync:00000004:1 rank 2
. named:00000004:0 rank 2
+ named:00000004:0 all 2
. renamed:00000004:0 rank 2 4
. renamed:00000004:0 all 2 4
. pruned:00000002:0 rank 4 6
+ pruned:00000002:0 all 4 6
L
tap_done
