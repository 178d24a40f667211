#!/bin/bash
# checkpoint.mirror: s3://... and several runs: none copies into another's copy, or takes it for its own.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/mirror.sh"
mine() { tern run run.yaml "--set=checkpoint.dir=$1" "--set=ledger.dir=ledger.$1" "${@:2}"; }
other=01ARZ3NDEKTSV4RRFFQ69G5FAV

# ---- another run copies, or was interrupted: its mark is there, and nothing else yet
echo $other | "$TOOLS/store-tool" put s3://copies/tiny/.step-00000002.$other.new
run mine a --set steps=2; status 0 "a run whose mirror has the mark of another run"
err_has "another run copies a checkpoint of that name there, or was interrupted: its mark is .step-00000002.$other.new"
is "$(names | grep -c '^step-00000002/')" 0 "nothing is sent under a name with another run's mark"
is "$(names | grep '^\.' | paste -sd' ')" .step-00000002.$other.new "the run's own mark is taken back, and the other's stays"

# ---- both runs have a mark and one has begun: neither removes what may be the other's
id=$(cat a/run.id)
echo "$id" | "$TOOLS/store-tool" put s3://copies/tiny/.step-00000009.$id.new
echo $other | "$TOOLS/store-tool" put s3://copies/tiny/.step-00000009.$other.new
echo half | "$TOOLS/store-tool" put s3://copies/tiny/step-00000009/shard
run mine a --set steps=3; status 0
is "$(names | grep -c '^step-00000009/shard')" 1 "a half copy that two runs' marks announce is not removed"
is "$(names | grep -c '^\.step-00000009\.')" 2 "marks of another run's copy are left"
"$TOOLS/store-tool" rm s3://copies/tiny/.step-00000009.$other.new
run mine a --set steps=4; status 0
is "$(names | grep -c 'step-00000009')" 0 "a half copy is removed once the other run's mark is gone"

# ---- another run finishes its copy between this run's look and its mark
fault 503=1000 'match=GET./copies.*race.*step-00000002[.]'
mine r --set checkpoint.mirror=s3://copies/race --set steps=2 >race.out 2>race.err & pid=$!
until_true grep -qE 'GET /copies.*race.*step-00000002[.]' s3.log
echo theirs | "$TOOLS/store-tool" put s3://copies/race/step-00000002/shard-00000-of-00001.safetensors
fault_none
wait $pid; is $? 0 "a run whose step another run copied just then"
has race.err 'is there already and no copy of this run' "the second run finds the objects after it put its mark"
is "$(names race | grep -c 'step-00000002')" 1 "the run that comes second sends nothing"

# ---- members of an array
for m in 0 1; do
    SLURM_ARRAY_TASK_ID=$m run tern run run.yaml --set steps=2 --set checkpoint.mirror=s3://copies/arr --array checkpoint.dir=x,y; status 0
    grep 'has no mirror' err; [ $? = 1 ]; ok $? "member $m of checkpoint.dir=x,y has its copies"
done
is "$(names arr | grep manifest.json | cut -d/ -f1 | sort -u | paste -sd' ')" "checkpoint.dir=x checkpoint.dir=y" "members with a checkpoint.dir of their own have a mirror of their own"
for m in 1 3; do
    SLURM_ARRAY_TASK_ID=$m run tern run run.yaml --set steps=2 --set checkpoint.mirror=s3://copies/two --array checkpoint.dir=x2,y2 --array data.seed=1,2; status 0
done
is "$(names two | grep manifest.json | cut -d/ -f1 | sort -u | paste -sd' ')" "checkpoint.dir=x2,data.seed=2 checkpoint.dir=y2,data.seed=2" "members of an array that share a setting have mirrors of their own"
for m in 0 1; do
    SLURM_ARRAY_TASK_ID=$m run tern run run.yaml --set steps=2 --set checkpoint.dir=z --array checkpoint.mirror=s3://copies/third --array optimizer.lr=1e-3,2e-3; status 0
done
is "$(names third | grep manifest.json | cut -d/ -f1 | sort -u | paste -sd' ')" "optimizer.lr=1e-3 optimizer.lr=2e-3" "members that share a checkpoint.mirror get prefixes below it"
tap_done
