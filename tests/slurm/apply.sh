#!/bin/bash
# tern cluster apply: nodes and partitions of a running Slurm, from a layout; drift, backups, kills.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/vcluster.sh"
. "$ROOT/tests/lib/reach.sh"
cp "$LAYOUT" cluster.yaml; LAYOUT=$WORK/cluster.yaml
cluster_up
etc=$TERN_CLUSTER_HOME/$CLUSTER/etc
! grep -q NodeHostname "$etc/slurm.conf" || skip_all "nodes of plain mode have ports, which a layout has not"
# The same folder, as the head sees it.
seen=$(dirname "$(tern cluster exec $CLUSTER -- scontrol show config | sed -n 's/^SLURM_CONF *= *//p')")
apply() { on tern cluster apply "$@"; }
files() { (cd "$etc" && ls && cat slurm.conf tern-nodes.conf* 2>/dev/null); }
# unchanged NAME: nothing was written since `before`.
unchanged() { is "$(files)" "$before" "$1: nothing is written"; }
# Of all slurmctlds; only one stops when a node is added here.
cat >restart.sh <<'S'
#!/bin/sh
echo restarted >>restarts
scontrol shutdown slurmctld
until ! scontrol ping | grep -q UP; do sleep 0.05; done
slurmctld
S
chmod +x restart.sh
restarts() { cat restarts 2>/dev/null | wc -l; }
takes=$(tern cluster exec $CLUSTER -- scontrol --version | awk '{split($2, v, "."); print (v[1] * 100 + v[2] >= 2311)}')

# ---- nodes that stand in slurm.conf itself
on tern cluster drift cluster.yaml; status 0 "drift: nodes of slurm.conf are the layout's"; is "$(cat out)" '' "drift: nothing to say"
before=$(files)
apply cluster.yaml --init; status 2 "nodes that slurm.conf defines: refused"; err_has 'slurm.conf:' "with file and line"; unchanged "nodes that slurm.conf defines"

# ---- the first apply
sed -i '/^NodeName/d; /^PartitionName/d' "$etc/slurm.conf"; before=$(files)
apply cluster.yaml; status 2 "without --init a slurm.conf that lacks the line is refused"
err_has 'include tern-nodes.conf' "the error names the line of gres.conf"; unchanged "without --init"
apply cluster.yaml -n --init; status 0 "-n of the first apply"; out_has '+PartitionName=trn1' "-n prints a diff"; out_has '--- /dev/null' "of a new file"
unchanged "-n"
apply cluster.yaml --init; status 0 "the first apply" || cat err
out_has 'Slurm has all 4 nodes and 1 partition of ' "the first apply: Slurm's are compared"
is "$(tail -n 1 "$etc/slurm.conf")" 'include tern-nodes.conf' "the first apply: slurm.conf includes the file"
is "$(ls "$etc" | grep -c '^tern-nodes.conf.1$')" 1 "the first apply: the empty state is a backup"
on tern cluster drift cluster.yaml; status 0 "drift after an apply"
before=$(files); stamp=$(stat -c %Y.%i "$etc/tern-nodes.conf")
apply ./cluster.yaml; status 0 "the second apply"; out_has 'nothing to do: Slurm has all 4 nodes' "the second apply: says so"
unchanged "the second apply"; is "$(stat -c %Y.%i "$etc/tern-nodes.conf")" "$stamp" "the second apply: the file is the same one"

# ---- a change that every release takes at once
sed 's/InstanceType: trn1.32xlarge/&\n          SchedulableMemory: 400000/' cluster.yaml >memory.yaml
on tern cluster drift memory.yaml; status 1 "drift of another layout"
is "$(cat out)" 'change node trn1-st-trn1-[1-4]: RealMemory 498073 -> 400000' "drift: names nodes and values"
on srun -N4 true; status 0 "a job before the change"
apply memory.yaml; status 0 "a change of memory"; has out "the earlier one is $seen/tern-nodes.conf.2" "a change: the backup is named"
memory() { tern cluster exec $CLUSTER -- scontrol show node trn1-st-trn1-2 | sed -n 's/.*RealMemory=\([0-9]*\).*/\1/p'; }
is "$(memory)" 400000 "slurmctld has the new memory"
on srun -N4 true; status 0 "a job after the change" || cat err
# Someone changes Slurm behind the file's back.
on scontrol update partitionname=trn1 State=DOWN
on tern cluster drift memory.yaml; status 1 "drift of what scontrol changed"; is "$(cat out)" 'change partition trn1: State not UP -> UP' "drift names the change of scontrol"
apply memory.yaml; status 0 "apply takes it back"; on tern cluster drift memory.yaml; status 0 "nothing differs any more"
apply --undo; status 0 "apply --undo ends well"; is "$(memory)" 498073 "--undo: slurmctld has the earlier memory"
is "$(cat "$etc/tern-nodes.conf")" "$(cat "$etc/tern-nodes.conf.2")" "--undo: the file is the backup"
apply --undo; status 0 "--undo of an undo"; is "$(memory)" 400000 "--undo of an undo: slurmctld has the later memory"
apply cluster.yaml; status 0 "the first layout again"

# ---- an ordinary user may look
if [ "$(id -u)" = 0 ]; then
    chmod 755 "$WORK"; reach 12345
    as() { on setpriv --reuid=12345 --regid=12345 --clear-groups "$REACH_BIN/tern" cluster "$@"; }
    before=$(files)
    as apply memory.yaml -n; status 0 "a user: -n" || cat err
    out_has 'RealMemory 498073 -> 400000' "a user: sees the changes"
    as apply memory.yaml; status 2 "a user: an apply is refused"; err_has "only root and Slurm's own user" "a user: the error names root and Slurm's own user"; unchanged "a user"
fi

# ---- partitions of the site
on sh -c "cp $seen/slurm.conf sites; echo 'PartitionName=cpu Nodes=trn1-st-trn1-1 Default=YES' >>$seen/slurm.conf"
on tern cluster drift cluster.yaml; status 1 "a default partition of slurm.conf"; is "$(cat out)" 'change partition trn1: Default YES -> NO' "a default partition of slurm.conf: the layout's is none"
apply cluster.yaml; status 0 "a default partition of slurm.conf: apply"; out_has 'cpu stays the default partition' "the site's partition stays the default"
on sinfo -h -o %P; is "$(sort out | paste -sd' ')" 'cpu* trn1' "slurmctld has both partitions"
cp sites "$etc/slurm.conf"
apply cluster.yaml; status 0 "a partition that no file has any more"; out_has 'remove partition cpu' "the removed partition is named"
on sinfo -h -o %P; is "$(cat out)" 'trn1*' "slurmctld has the layout's alone"

# ---- nodes come
grep -v trn1-st-trn1-5 "$etc/hosts" >hosts; { cat hosts; echo '10.200.9.5 trn1-st-trn1-5'; } >"$etc/hosts"
sed 's/MinCount: 4/MinCount: 5/; s/MaxCount: 4/MaxCount: 6/' cluster.yaml >more.yaml
sed -i 's/trn1-st-trn1-\[1-4\]/trn1-st-trn1-[1-5],trn1-dy-trn1-1/' "$etc/gres.conf"
before=$(files); was=$(cat "$etc/tern-nodes.conf")
if [ "$takes" = 0 ]; then
    apply more.yaml; status 2 "a node more without --restart"; err_has "restarts it: --restart" "the error names the option that is needed"; unchanged "a node more without --restart"
    apply more.yaml -n; status 2 "-n is refused, too"; unchanged "-n"
    # A reconfigure would meet the site's new name, too.
    cp "$etc/slurm.conf" sites; echo 'NodeName=site1 CPUs=1 State=FUTURE' >>"$etc/slurm.conf"; before=$(files)
    apply memory.yaml; status 2 "a new node of slurm.conf: no reconfigure"; err_has "restarts it: --restart" "a new node of slurm.conf: the message names it"; unchanged "a new node of slurm.conf"
    cp sites "$etc/slurm.conf"; before=$(files)
    apply more.yaml --restart 'exit 7'; status 1 "a restart that fails"; err_has "'exit 7' ended with status 7" "a restart that fails: its status"
    err_has 'The earlier nodes are back' "a restart that fails: what became of it"; unchanged "a restart that fails"
    apply more.yaml --restart true --timeout 0.5; status 1 "a restart that is none"
    err_has 'Slurm has not taken it' "a restart that is none: the comparison notices"; unchanged "a restart that is none"
fi
on srun -N4 true; status 0 "jobs run all the time" || cat err
apply more.yaml --restart ./restart.sh; status 0 "a node more" || cat err
out_has 'Slurm has all 6 nodes and 1 partition' "a node more: Slurm has it"
[ "$takes" = 1 ] || out_has 'restart slurmd on every node' "a node more: what is left to do"
is "$(restarts)" $((takes ? 0 : 1)) "a node more: slurmctld was restarted where this release needs it"
on scontrol show node trn1-st-trn1-5; out_has 'Gres=neuron:trn1:16' "a node more: scontrol shows it"

# ---- nodes go, but not under a job
on sbatch --parsable -N1 -w trn1-st-trn1-4 -o /dev/null --wrap 'sleep 600'; job=$(cat out)
runs() { [ "$(job_state "$job")" = RUNNING ]; }
until_true runs; ok $? "a job runs on a node that shall go"
sed 's/MinCount: 4/MinCount: 3/; s/MaxCount: 4/MaxCount: 3/' cluster.yaml >less.yaml
before=$(files)
apply less.yaml --restart ./restart.sh; status 2 "a node with a job is not removed"
err_has "$job (runs on trn1-st-trn1-4)" "the job and its node are named"; unchanged "a node with a job"
sed 's/Name: trn1$/Name: other/' cluster.yaml >other.yaml
apply other.yaml --init --restart ./restart.sh; status 2 "devices of renamed nodes"; err_has 'Add the line: NodeName=other-st-other-[1-4]' "gres.conf lacks them"; unchanged "devices of renamed nodes"
on scancel "$job"; until_true job_over "$job"
apply less.yaml --restart ./restart.sh; status 0 "nodes go when the job has ended" || cat err
out_has 'remove node ' "nodes go: they are named"
on sinfo -h -N -o %N; is "$(sort -u out | paste -sd' ')" "trn1-st-trn1-1 trn1-st-trn1-2 trn1-st-trn1-3" "nodes go: Slurm has three"
apply cluster.yaml --restart ./restart.sh; status 0 "apply with --restart brings four nodes again" || cat err

# ---- killed at any moment: the file is the one or the other, and the next apply ends it
one=$(cat "$etc/tern-nodes.conf"); apply memory.yaml; other=$(cat "$etc/tern-nodes.conf"); whole=0 ended=0
ends() { tern cluster exec $CLUSTER -- "$BIN/tern-cluster" apply $to >last 2>&1 && tern cluster exec $CLUSTER -- tern cluster drift $to >>last 2>&1; }
for i in 1 2 3 4 5 6 7 8; do
    to=$([ $((i % 2)) = 1 ] && echo cluster.yaml || echo memory.yaml)
    TMPDIR=$WORK tern cluster exec $CLUSTER -- timeout -s KILL 0.0$i "$BIN/tern-cluster" apply $to >/dev/null 2>&1
    now=$(cat "$etc/tern-nodes.conf")
    [ "$now" = "$one" ] || [ "$now" = "$other" ] || break
    whole=$((whole + 1))
    until_true ends || break # what was killed has the lock until it is gone
    ended=$((ended + 1))
done
is "$whole" 8 "killed at eight moments: the file is the earlier or the later one"
is "$ended" 8 "after each of them the next apply ends it"; [ "$ended" = 8 ] || sed 's/^/# /' last
on srun -N4 true; status 0 "a job at the end" || cat err
tap_done
