#!/bin/bash
# A run streams its token sets from object storage: the same losses as from disk, read-ahead in the
# ledger, faults on the way, no secret in it.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/s3.sh"
. "$ROOT/tests/lib/tiny.sh"
for v in $(compgen -e | grep -E '^(SLURM|TERN_(R|L))'); do unset "$v"; done
tiny_make >made 2>&1 || { cat made; exit 1; }
sed -i 's/^launch: .*/launch: {threads: 1, health: off}/' run.yaml
run tern run run.yaml --set ledger.dir=disk --ranks 2
status 0
tiny_curve disk >disk.curve
for set in train test; do tern data push data/$set.tds s3://corpora/$set.tds 2>/dev/null; done
remote=(--set 'data.train=[{path: "s3://corpora/train.tds"}]' --set 'data.held_out=[{name: held, path: "s3://corpora/test.tds"}]')
fault 503=3 cut=2 reset=2 flip=2 'match=GET /corpora'
run tern run run.yaml "${remote[@]}" --set checkpoint.dir=c3 --set ledger.dir=remote --ranks 2
status 0 "a run on sets at s3://"
tiny_curve remote >remote.curve
[ -s disk.curve ] && cmp -s disk.curve remote.curve; ok $? "sets at s3:// give the losses of sets on disk" || diff disk.curve remote.curve | head -4
ahead=$(tern ledger sql --ledger remote -r latest -n -P "select count(*) from step where name = 'data_ahead_samples' and value >= 0")
is "$ahead" 8 "the ledger has how far the cache was ahead at each step"
is "$(tern ledger sql --ledger disk -r latest -n -P "select count(*) from step where name = 'data_ahead_samples'")" 0 \
    "sets on disk have no such value"
! grep -rqa 'secret+key' remote c3 out err; ok $? "no secret is in the ledger, the checkpoints or the logs"
run tern run run.yaml "${remote[@]}" --set checkpoint.dir=c4 --set ledger.dir=remote4 --set 'data.train=[{path: "s3://corpora/none.tds"}]'
status 2 "a set that is not there is found before the run begins"
err_has 's3://corpora/none.tds: there is no such object'
tap_done
