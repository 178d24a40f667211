#!/bin/bash
# A virtual cluster on a Linux without the system calls that came after 4.18 (RHEL 8).
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/vcluster.sh"
K=$TOOLS/old-kernel
"$K" true || skip_all "no seccomp"
# Slurm, its commands and tern's plugin, too: what a cluster starts keeps the filter.
tern() { "$K" "$(type -P tern)" "$@"; }
cluster_up
on srun -N4 hostname; status 0 "four nodes run a step"
is "$(sort out | tail -1)" trn1-st-trn1-4 "on each of them"
run tern cluster node -c $CLUSTER trn1-st-trn1-4 --power off
run tern cluster node -c $CLUSTER trn1-st-trn1-4 --power on; status 0 "a node goes off and on"
on srun -N4 hostname; status 0 "the cluster runs a step again"
# The check at submission is a child of sbatch, which may hold files that are not the child's.
mkdir bin
cat >bin/tern <<EOT
#!/bin/bash
ls /proc/\$\$/fd >"$WORK/fds"
exec "$BIN/tern" "\$@"
EOT
chmod 755 bin/tern
conf=$TERN_CLUSTER_HOME/$CLUSTER/etc/plugstack.conf
sed -i "s|\(tern_spank.so\).*|\1 tern=$WORK/bin/tern|" "$conf"
printf 'version: 1\nname: toy\nledger: {dir: ledger}\nworkload: {command: [true]}\n' >good.yaml
on sh -c 'exec 7<good.yaml; exec sbatch --parsable -o job.out --tern=good.yaml --wrap "tern run"'; status 0 "sbatch --tern takes a recipe"; job=$(cat out)
[ -s fds ] && ! grep -vxE '[012]|255' fds; ok $? "its check gets no file of sbatch" || cat fds # 255: the shell's script
await_job; is "$(job_state "$job")" COMPLETED "the job runs to its end" || cat job.out
run tern cluster down $CLUSTER; status 0 "tern cluster down ends well"
run tern cluster list; ! grep -q "$CLUSTER.*up" out; ok $? "the cluster is not listed as up any more"
tap_done
