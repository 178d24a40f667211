#!/bin/bash
# The plugin built for another release of Slurm than runs here: refused by Slurm, harmless, and named.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/vcluster.sh"
so=${TERN_BUILD:-$ROOT/build}/plugins/tern_spank.so
command -v gcc >/dev/null || skip_all "needs gcc"
cluster_up
conf=$TERN_CLUSTER_HOME/$CLUSTER/etc/plugstack.conf log=$TERN_CLUSTER_HOME/$CLUSTER/log
use() { echo "$1 $2 tern=$BIN/tern" >"$conf"; }
printf '%s\n' '#include <slurm/slurm_version.h>' '#undef SLURM_VERSION_NUMBER' \
    '#define SLURM_VERSION_NUMBER SLURM_VERSION_NUM(20, 11, 0)' >other.h
gcc -std=gnu11 -D_GNU_SOURCE $SLURM_INCLUDE -include other.h -fvisibility=hidden -shared -fPIC -I"$ROOT" \
    -Wl,--version-script="$ROOT/plugins/spank/exports.map" -o other.so "$ROOT"/plugins/spank/*.c || skip_all "cannot build the plugin"
other=$WORK/other.so
printf 'version: 1\nname: toy\nledger: {dir: ledger}\nworkload: {command: [true]}\n' >good.yaml
cat >job.sbatch <<X
#!/bin/bash
echo "batch \${TERN_MARKER:-none}"
srun --mpi=none -N2 sh -c 'echo "step \${TERN_MARKER:-none}"'
PATH=$BIN:${SLURM_PREFIX:+$SLURM_PREFIX/bin:}/usr/bin:/bin tern run
echo "tern run: \$?"
X
wrong="$other: Incompatible plugin version|Incompatible Slurm plugin $other version" # (to 25.05, from 25.11 on)

# ---- on the login host
use optional "$other"
on sbatch --tern=good.yaml -N2 job.sbatch
[ "$rc" != 0 ]; ok $? "--tern is refused"
grep -qE "$wrong" err; ok $? "Slurm gives the reason of the refusal" || cat err; err_has "--tern=good.yaml"
on srun -N2 echo well; status 0 "srun without --tern works"
[ "$(grep -c well out)" = 2 ]; ok $? "srun without --tern runs on both nodes"

# ---- on the nodes alone
use optional "$so"
submit -H -N2 --tern=good.yaml -o job.out job.sbatch
use optional "$other"
on scontrol release "$job"
until_true job_over "$job"
[ "$(job_state "$job")" = COMPLETED ] && grep -q '^batch none' job.out && [ "$(grep -c '^step none' job.out)" = 2 ]
ok $? "optional: the job and its step run without a marker" || cat job.out
has job.out "plugin did not run on node" "optional: tern run logs the missing marker"
has job.out 'tern run: 75' "optional: tern run does not start"
grep -qE "$wrong" "$log"/slurmd-trn1-st-trn1-1.log; ok $? "optional: the node's log names the plugin" || tail -5 "$log"/slurmd-trn1-st-trn1-1.log
[ "$(tern cluster exec $CLUSTER -- sinfo -h -N -o '%t' | sort -u)" = idle ]; ok $? "optional: no node is drained"
# Why it ships as `optional`.
use optional "$so"
submit -H -N2 --tern=good.yaml -o job.out job.sbatch
use required "$other"
on scontrol release "$job"
drained() { tern cluster exec $CLUSTER -- sinfo -h -N -o '%t' | grep -q drain; }
until_true drained; ok $? "required: Slurm drains the nodes"
tap_done
