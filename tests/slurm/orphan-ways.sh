#!/bin/bash
# The node of the batch script dies: README's own script, and jobs whose ranks cannot watch (a spare
# alone, mpirun, an image).
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/vcluster.sh"
. "$ROOT/tests/lib/orphan.sh"
cluster_up
configure 5 5 1
owner=0

# ---- the script of README, as sbatch runs it, and without the words of its #SBATCH line
readme() { # NAME SBATCH-LINE: begins as $name, its batch node in $batch
    recipe "$1" 'restarts: 3'; until_true queue_empty
    printf '#!/bin/bash\n%s\nexec tern run\n' "$2" >train.sbatch
    on env PATH="$BIN:$PATH" sbatch --parsable --exclusive -N2 -o "$name.out" --tern="$name.yaml" train.sbatch; job=$(cat out)
    until_true sh -c "[ \$(wc -l <$name.at) = 2 ]"
    batch=$(tern cluster exec $CLUSTER -- squeue -h -j "$job" -o %B)
}
words=$(sed -n 's/.*has `\(#SBATCH [^`]*\)`.*/\1/p' "$ROOT/README.md"); [ -n "$words" ]; ok $? "README has the #SBATCH words of the script: $words"
readme readme "$words"
grep -q 'empties the output' readme.out; [ $? = 1 ]; ok $? "README's script: its output is kept, and nothing is said of it" || cat readme.out
die $admin
is "$(grep -c ', attempt [12]: 2 nodes' readme.out)" 2 "README's script: the output has both attempts"
readme bare ''
has bare.out 'it empties the output file. Submit with --open-mode=append' "a script without --open-mode=append gets a warning before the first attempt"
die $admin
is "$(grep -c ', attempt 1: 2 nodes' bare.out)" 0 "Slurm has emptied the output of a job without --open-mode=append"
is "$(grep -c 'empties the output' bare.out)" 0 "later attempts give no warning again"

# ---- jobs whose ranks cannot watch, or which have spares: watchers on the other nodes do
watched() {
    until_true sh -c "tern cluster exec $CLUSTER -- squeue -s -h -j $job -o %j | grep -q ^tern-watch"
    ok $? "$name: a step on another node watches that of the batch script"
}
recipe alone 'spares: 1, restarts: 3'; job 1 -N2 --no-kill --requeue; die $admin
! grep -q "no process on another node" alone.out; ok $? "one computing node of two: the spare watches"
if command -v mpirun >/dev/null; then
    recipe mpi 'spares: 1, with: mpirun, restarts: 3'; job 2 -N3 --no-kill --requeue; die $admin
    recipe plain 'with: mpirun, restarts: 3'; job 2 -N2 --requeue
    watched; die $admin
else
    skip "mpirun is not installed"
fi
so=${TERN_BUILD:-$ROOT/build}/tests/pyxis_stub.so
if [ -e "$so" ] && [ -e "$BIN/tern-inside" ]; then # an image has nothing of tern's but tern-inside
    conf=$TERN_CLUSTER_HOME/$CLUSTER/etc/plugstack.conf
    cp "$conf" conf.before; echo "required $so" >>"$conf"; mkdir image
    recipe boxed 'spares: 1, restarts: 3'
    sed -i "s|^workload: {|&container: $WORK/image, |" boxed.yaml
    job 2 -N3 --no-kill --requeue; die $admin
    if long; then
        recipe closed 'restarts: 3'
        sed -i "s|^workload: {|&container: $WORK/image, |" closed.yaml
        job 2 -N2 --requeue
        watched; die $admin
    fi
    cp conf.before "$conf"
else
    skip "no pyxis_stub.so, or no tern-inside: no static libc here"
fi
tap_done
