#!/bin/bash
# The plugin on the nodes: health in the prolog, replaced under running jobs, other versions.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/vcluster.sh"
so=${TERN_BUILD:-$ROOT/build}/plugins/tern_spank.so
n1=trn1-st-trn1-1
slurm() { tern cluster exec $CLUSTER -- "$@"; }
node_state() { slurm sinfo -h -N -n $n1 -o '%t'; }
settled() { job_over "$job" || [ "$(node_state)" = drain ]; }
cluster_up
conf=$TERN_CLUSTER_HOME/$CLUSTER/etc/plugstack.conf log=$TERN_CLUSTER_HOME/$CLUSTER/log/slurmd-$n1.log
cp "$conf" kept
printf 'version: 1\nname: toy\nledger: {dir: ledger}\nworkload: {command: [true]}\n' >good.yaml

# ---- health=prolog.  A `tern` that answers what the test says; what it was called with stands in its file.
mkdir -m 755 bin
cat >bin/tern <<EOT
#!/bin/bash
[ "\$1" = health ] || exec "$BIN/tern" "\$@"
{ echo "args \$*"; env; } >"$WORK/called"
ls /proc/\$\$/fd >"$WORK/fds" # not in a pipe, whose ends are the shell's for a moment
read -r answer <"$WORK/answer"
case \$answer in slow) sleep 60 & wait ;; signal) kill -SEGV \$\$ ;; *) echo "tern health: error: neuron0 is gone" >&2; exit "\$answer" ;; esac
EOT
chmod 755 bin/tern; cp bin/tern bin/kept
use() { echo "$1 $so tern=${2:-$WORK/bin/tern} ${3-health=prolog}" >"$conf"; }
# WORD ANSWER FLAG: a job on the node; its state in $state, the node's in $node.
try() {
    echo "$2" >answer; rm -f called job.out
    use "$3" "${4-}"
    slurm env EVIL=1 LD_PRELOAD=/nowhere.so BASH_ENV=/nowhere SPANK_X=1 \
        sbatch --parsable -w $n1 -o "$WORK/job.out" --tern-health=off --wrap 'echo ran' >out 2>err; job=$(cat out)
    until_true settled; until_true settled; state=$(job_state "$job") node=$(node_state)
    use optional
    slurm scancel "$job" 2>/dev/null; until_true queue_empty
    [ "$node" = idle ] || slurm scontrol update nodename=$n1 state=resume
    until_true eval '[ "$(node_state)" = idle ]'
}
try ok 0 optional
[ "$state $node" = 'COMPLETED idle' ]; ok $? "health=prolog: a good node runs the job" || echo "# $state $node"
has called 'args health quick --prolog' "the prolog runs tern health quick --prolog"
[ "$(grep -c = called)" -le 8 ] && ! grep -qE '^(EVIL|LD_PRELOAD|BASH_ENV|SPANK_|SLURM_SPANK|HOME|USER)' called
ok $? "the prolog's check has a constructed environment" || cat called
[ -s fds ] && ! grep -vxE '[012]|255' fds; ok $? "a task gets no descriptor of the plugin" # 255: the shell's script
try bad 3 required
[ "$state $node" = 'PENDING drain' ]; ok $? "a bad node, required: drained, and the job waits for another" || echo "# $state $node"
has "$log" 'tern: neuron0 is gone' "a bad node's reason is in its log"
try bad 3 optional
[ "$state $node" = 'COMPLETED idle' ]; ok $? "a bad node, optional: the job starts" || echo "# $state $node"
for answer in 75 signal $(long && echo 1 2 4 126); do
    try open $answer required
    [ "$state $node" = 'COMPLETED idle' ] && [ -e called ]; ok $? "answer $answer, required: no verdict, the job starts" || echo "# $state $node"
done
try slow slow required
[ "$state $node" = 'COMPLETED idle' ] && [ -e called ]; ok $? "a check that hangs: ended, the job starts" || echo "# $state $node"
has "$log" 'took more than 10 s and was ended' "a check that hangs is logged"
: >"$log"; try real 0 optional "$BIN/tern"
[ "$state $node" = 'COMPLETED idle' ] && ! grep -q 'ended with 2\|ended by\|cannot check\|needs tern=' "$log"
ok $? "tern's own health check in the prolog" || grep tern: "$log"
use required "$WORK/bin/tern" ''
rm -f called; on srun --mpi=none -w $n1 true; status 0; [ ! -e called ]; ok $? "without health=prolog there is no check"
for how in 'chmod 777 bin/tern' 'chmod 777 bin' 'chown 1 bin/tern' 'chown 1 bin'; do
    case $how in 'chmod 777 bin' | 'chown 1 bin/tern') long || continue ;; esac
    [ "$(id -u)" = 0 ] || [ "${how#chown}" = "$how" ] || { skip "chown needs root"; continue; }
    $how; try unsafe 3 required
    [ "$state $node" = 'COMPLETED idle' ] && [ ! -e called ]; ok $? "$how: it is not run" || echo "# $state $node"
    chown -R "$(id -u)" bin; chmod 755 bin bin/tern
done
for path in tern $(long && echo "bin/tern $WORK/bin/none"); do
    try path 3 required "$path"
    [ "$state $node" = 'COMPLETED idle' ] && [ ! -e called ]; ok $? "tern=$path: it is not run" || echo "# $state $node"
done
has "$log" 'health=prolog needs tern=/PATH' "the log names the rule for tern= in the prolog"
cp kept "$conf"

# ---- replaced while jobs run, and the slurmd that has it loaded
cp "$so" live.so
echo "optional $WORK/live.so tern=$BIN/tern" >"$conf"
tern cluster node $n1 -c $CLUSTER --power off >/dev/null 2>&1; tern cluster node $n1 -c $CLUSTER --power on >/dev/null 2>&1
has_loaded() { for p in $(pgrep -x slurmd); do grep -qF "$1" "/proc/$p/maps" 2>/dev/null && return 0; done; return 1; }
until_true has_loaded "$WORK/live.so"; ok $? "a slurmd has loaded the .so at its start"
until_true eval '[ "$(node_state)" = idle ]'
submit -N2 --tern=good.yaml -o running.out --wrap "touch $WORK/started; while [ ! -e $WORK/go ]; do sleep .1; done; srun --mpi=none -N2 sh -c 'echo step \$TERN_MARKER'"
first=$job
until_true [ -e started ]
cp "$so" new.so && mv -f new.so live.so
has_loaded "$WORK/live.so (deleted)"; ok $? "the plugin is replaced by rename while slurmd has the old one"
submit -N2 --tern=good.yaml -o next.out --wrap 'echo "next $TERN_MARKER"'
until_true grep -q next next.out
touch go; job=$first; until_true job_over "$job"
[ "$(grep -c "^step $job.0." running.out)" = 2 ] && grep -q "^next .*.batch." next.out
ok $? "the .so is replaced by rename under a running job: it goes on, and so does the next" || cat running.out next.out
[ "$(job_state "$job")" = COMPLETED ]; ok $? "a job over a replaced .so ends well"
submit -w $n1 --tern=good.yaml -o last.out --wrap 'echo "last $TERN_MARKER"'; until_true job_over "$job"
has last.out "last $job.batch." "the slurmd that has the old one runs further jobs"; is "$(node_state)" idle "every node stays idle after the .so is replaced"

# ---- a login host and a node one version apart
build() { gcc -std=gnu11 -D_GNU_SOURCE $SLURM_INCLUDE -DTERN_SPANK_MINOR="$1" -fvisibility=hidden -shared -fPIC -I"$ROOT" \
    -Wl,--version-script="$ROOT/plugins/spank/exports.map" -o "$WORK/minor$1.so" "$ROOT"/plugins/spank/*.c; }
if command -v gcc >/dev/null && build 0 && build 2; then
    cat >skew.sbatch <<X
#!/bin/bash
export PATH=/usr/bin:/bin
echo "batch \$TERN_MARKER \$TERN_HEALTH"
srun --mpi=none --export=ALL -N2 sh -c 'echo "step \$TERN_MARKER \$TERN_HEALTH"'
PATH=$BIN:${SLURM_PREFIX:+$SLURM_PREFIX/bin:}/usr/bin:/bin tern run
echo "tern run: \$?"
X
    with_slurm skew.sbatch
    for node in 0 2; do
        for export in ALL NONE; do
            case $node$export in 0ALL | 2NONE) ;; *) long || continue ;; esac
            echo "optional $so tern=$BIN/tern" >"$conf"
            submit -H -N2 --tern=good.yaml --tern-health=off --export=$export -o skew.out skew.sbatch
            echo "optional $WORK/minor$node.so tern=$BIN/tern" >"$conf"
            on scontrol release "$job"
            until_true job_over "$job"
            grep -q "^batch $job.batch.1.$node" skew.out && [ "$(grep -c "^step $job.0.1.$node" skew.out)" = 2 ]
            ok $? "1.1 on the login host, 1.$node on the nodes, --export=$export: the recipe arrives" || cat skew.out
            has skew.out 'tern run: 0' "a job between plugin versions runs"
            [ $node = 0 ] && word=older || word=newer
            has skew.out "is $word (1.$node) than this tern" "a difference of plugin versions is logged"
        done
    done
    echo "optional $WORK/minor0.so tern=$BIN/tern" >"$conf"
    submit -H -N2 --tern=good.yaml -o skew.out skew.sbatch
    echo "optional $so tern=$BIN/tern" >"$conf"
    on scontrol release "$job"; until_true job_over "$job"
    has skew.out 'tern run: 0' "1.0 on the login host, 1.1 on the nodes"
else skip "gcc cannot build the plugin here"; fi
cp kept "$conf"
on sinfo -h -o '%t'; ! grep -qE 'drain|drng|down|fail' out; ok $? "every node is idle at the end" || cat out
tap_done
