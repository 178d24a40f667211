#!/bin/bash
# checkpoint.local on nodes with a /dev/shm each: after a crash the next attempt goes on from what the nodes
# have; after the loss of a node, on a spare one, from checkpoint.dir, or from the copies of its partner.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/vcluster.sh"
. "$ROOT/tests/lib/tiny.sh"
. "$ROOT/tests/lib/saves.sh"
[ -z "${TERN_SANITIZE-}" ] || skip_all "the sanitizer wants to be loaded first"
cluster_up
tiny_make >made 2>&1 || { cat made; exit 1; }
saves_make
sed -i 's/^steps: .*/steps: 16/; s/every: 1, keep: 2/every: 2, keep: 9/' run.yaml
run tern run run.yaml --ranks 2 --set ledger.dir=whole; status 0 "a run without it"
tiny_digests >weights; rm -rf checkpoints
sed -i 's#keep: 9}#keep: 9, local: /dev/shm/tern-local}#; s/^launch: .*/launch: {threads: 1, health: off, restarts: 3}/' run.yaml
cat >job.sh <<'S'
#!/bin/bash
(until [ -e crash ]; do sleep 0.1; done; kill -9 $(pgrep -x tern-train); touch crashed) &
export LD_PRELOAD=$PWD/saves.so TEST_MARKS=$PWD
exec tern run run.yaml
S
# Step 2 is in checkpoint.dir; steps 4 to 10 are on the nodes; step 12 does not end, and step 14 waits for it.
there() { [ "$(steps_done ledger)" = 14 ] && [ "$(published ledger)" = "2 " ]; }
go() { # JOB'S OPTIONS
    rm -rf checkpoints ledger crash crashed
    for s in 4 6 8 10; do hold $s /checkpoints/; done; hold 12 /dev/shm/
    submit --exclusive --open-mode=append -o job.out "$@" job.sh
    until_true there; ok $? "a job with $*: the run is on its way" || tail -5 job.out
}
over() { await_job; ok $? "$name: the job ends" || tail -5 job.out; tiny_digests | cmp -s - weights; ok $? "$name: with the weights of a run without it"; }

name="a crash"
go -N2 --requeue
touch crash; until_true test -e crashed; let_go; over # what waits for checkpoint.dir must not come there first
has job.out "checkpoint level local: the nodes have step 1" "$name: the next attempt takes the nodes' checkpoint" # 10, or 12
is "$(rows outcome tiny)" "killed,done" "$name: by itself"

name="a lost node"
rm -f job.out
sed -i 's/restarts: 3/restarts: 3, spares: 1/' run.yaml
go -N3 -w 'trn1-st-trn1-[1-3]' --no-kill --no-requeue
run tern cluster node --power off -c $CLUSTER trn1-st-trn1-2; status 0
let_go; over
is "$(rows outcome tiny)" "node_fail,done" "$name: a spare one takes its place"
has job.out "of its " "$name: it says why the nodes' checkpoint is not taken"
has job.out "checkpoint level shared: $WORK/checkpoints has step " "$name: the next attempt goes on from checkpoint.dir"

name="a lost node with a partner"
run tern cluster node --power on -c $CLUSTER trn1-st-trn1-2
until_true sh -c "tern cluster exec $CLUSTER -- sinfo -h -n trn1-st-trn1-2 -o %t | grep -qx idle"
rm -rf checkpoints ledger whole job.out
sed -i 's/^steps: .*/steps: 60/; s/every: 2/every: 10/' run.yaml
run tern run run.yaml --ranks 2 --set ledger.dir=whole --set checkpoint.local=null --set launch.spares=0; status 0 "a longer run without it"
tiny_digests >weights; rm -rf checkpoints
sed -i 's#local: /dev/shm/tern-local#&, partner: true#' run.yaml
for s in 10 20; do hold $s /checkpoints/; done; hold 30 /dev/shm/
submit --exclusive --open-mode=append -o job.out -N3 -w 'trn1-st-trn1-[1-3]' --no-kill --no-requeue job.sh
waits() { [ "$(steps_done ledger)" = 40 ]; } # for the save of step 30; step 10 at least has its copies
until_true waits; ok $? "$name: the run is on its way" || tail -5 job.out
run tern cluster node --power off -c $CLUSTER trn1-st-trn1-2; status 0
let_go; over
is "$(rows outcome tiny)" "node_fail,done" "$name: a spare one takes its place"
grep -q "checkpoint level local: the nodes have step [123]0, and $WORK/checkpoints has none" job.out
ok $? "$name: the next attempt goes on from the partner's copies" || grep 'checkpoint\|passed' job.out
tap_done
