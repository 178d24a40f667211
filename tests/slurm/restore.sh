#!/bin/bash
# The way back from checkpoint.mirror under Slurm: a job that its time limit ends while a copy comes back is queued again, and
# goes on from that copy.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/vcluster.sh"
. "$ROOT/tests/lib/tiny.sh"
tern data info s3://b/x 2>&1 | grep -q 'built without' && skip_all "built without libcurl"
cluster_up
tiny_make >made 2>&1 || { cat made; exit 1; }
sed -i 's/^launch: .*/launch: {threads: 1, health: off}/' run.yaml
run tern run run.yaml --set steps=3 --set checkpoint.mirror=copies; status 0 "a run with copies"
rm -rf checkpoints
sed -i 's#keep: 2}#keep: 2, mirror: "s3://copies/tiny"}#; s/^steps: .*/steps: 4/' run.yaml
# The node's own server, filled from the copies.  It hangs until there is a file `answers`.
cat >job.sh <<'S'
#!/bin/bash
rm -f hold port; mkfifo hold
(python3 "$S3_PY" port s3.log <hold 2>/dev/null & exec 9>hold; setsid sleep 300 <&- >/dev/null 2>&1 &)
until [ -e port ]; do sleep 0.1; done
export AWS_ENDPOINT_URL=http://127.0.0.1:$(cat port) AWS_EC2_METADATA_DISABLED=true AWS_ACCESS_KEY_ID=AKIDTEST AWS_SECRET_ACCESS_KEY=secret+key/of=tests
for f in copies/step-*/*; do "$STORE_TOOL" put "s3://copies/tiny/${f#copies/}" <"$f" || exit 1; done
[ -e answers ] || python3 -c 'import sys, urllib.request as u; u.build_opener(u.ProxyHandler({})).open(sys.argv[1]).read()' "$AWS_ENDPOINT_URL/_fault?stall=1000&match=GET./copies/tiny/step-.*/shard"
exec tern run run.yaml
S
export S3_PY=$ROOT/tests/tools/s3.py STORE_TOOL=$TOOLS/store-tool
submit --time=1 --exclusive --open-mode=append --requeue -N1 -o job.out job.sh
until_true grep -q 'comes back from s3://copies/tiny/step-00000003' job.out; ok $? "the copy is on its way" || cat job.out
on scancel --batch --signal=USR1 "$job"
until_true grep -q 'a signal came while s3://copies/tiny/step-00000003 was brought back' job.out; ok $? "the signal before the time limit ends the way back"
until_true grep -q "the job's time limit is near; the job is queued again" job.out; ok $? "the job is queued again" || tail -3 job.out
is "$(ls -d checkpoints/step-* 2>/dev/null | wc -l)" 0 "nothing half has a checkpoint's name"
ended() { [ "$(rows 'outcome, exit_code' tiny)" = "done 0,time_limit 76" ]; }
until_true ended; is "$(rows 'outcome, exit_code' tiny)" "done 0,time_limit 76" "the attempt's cause is the time limit"
touch answers; start_again
await_job; ok $? "the job ends" || tail -5 job.out
grep -q 'attempt 3: .*from step 3' job.out; ok $? "a restored run goes on from the copy" || tail -5 job.out
is "$(rows outcome tiny)" "done,time_limit,done" "a restored run comes to its end"
tap_done
