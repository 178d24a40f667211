#!/bin/bash
# HyperPod's --auto-resume in a real Slurm: a plugin of that name stands for its agent's.  Where srun started tern
# run with it, tern makes one attempt; where the job has it, tern restarts and its srun is without.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/vcluster.sh"
command -v gcc >/dev/null || skip_all "needs gcc"
cat >resume.c <<'C'
#include <slurm/spank.h>
SPANK_PLUGIN(pod_resume, 1)
static int take(int val, const char *text, int remote) { return 0; }
static struct spank_option option = {"auto-resume", "0|1", "restart a failed step", 1, 0, take};
int slurm_spank_init(spank_t sp, int ac, char **av)
{
    return spank_option_register(sp, &option) == ESPANK_SUCCESS ? 0 : -1;
}
C
gcc $SLURM_INCLUDE -shared -fPIC -o resume.so resume.c || skip_all "gcc cannot build a plugin of Slurm here"
cluster_up
echo "required $WORK/resume.so" >>"$TERN_CLUSTER_HOME/$CLUSTER/etc/plugstack.conf"
printf 'version: 1\nname: NAME\nledger: {dir: ledger}\nlaunch: {health: off, restarts: 1}\nworkload: {command: [bash, %s/rank.sh]}\n' "$WORK" >recipe
echo 'env | grep -q SPANK_OPTION.*_auto_resume && echo "a rank is resumed"; echo "a rank runs"; exit 75' >rank.sh
batch() { # NAME SCRIPT [OPTION...]
    sed "s/NAME/$1/" recipe >"$1.yaml"
    printf '#!/bin/bash\n%s\n' "$2" >"$1.sh"
    submit -N1 -o "$1.out" "${@:3}" "$1.sh"
    await_job; ok $? "$1: the job ends"
}
batch plain 'tern run plain.yaml'
is "$(rows outcome plain)" "fault,fault" "without the option tern restarts: two attempts"
batch step 'srun --auto-resume=1 -N1 -n1 tern run step.yaml'
has step.out 'srun --auto-resume has started tern run: HyperPod restarts this run, and tern does not (launch.restarts: 1 is off)'
is "$(rows outcome step)" "fault" "in a step with the option tern makes one attempt"
batch off 'srun --auto-resume=0 -N1 -n1 tern run off.yaml'
is "$(rows outcome off)" "fault,fault" "in a step with --auto-resume=0 tern restarts"
batch job 'tern run job.yaml' --auto-resume=1
has job.out "tern restarts this run (launch.restarts: 1): the job's --auto-resume is off for the ranks' srun"
is "$(rows outcome job)" "fault,fault" "in a job with the option tern restarts"
! grep -q 'a rank is resumed' job.out; ok $? "the ranks' srun does not have --auto-resume"
is "$(grep -c 'a rank runs' job.out)" 2 "each attempt starts the ranks once"
batch inner 'srun -N1 -n1 tern run inner.yaml' --auto-resume=1
is "$(rows outcome inner)" "fault" "a step inherits the job's option: tern makes one attempt"
sed -i 's/restarts: 1/restarts: 0/' recipe
batch theirs 'tern run theirs.yaml' --auto-resume=1
has theirs.out 'the job has --auto-resume: HyperPod restarts this run, and tern does not (launch.restarts: 0)'
has theirs.out 'a rank is resumed' "without restarts of tern's the ranks' srun keeps the option"
# ---- at submission, on a login node of HyperPod
sed -i 's/restarts: 0/restarts: 4/' recipe; sed "s/NAME/sent/" recipe >sent.yaml
mkdir -p pod/opt/sagemaker_cluster
on env TERN_HEALTH_ROOT="$WORK/pod" sbatch --parsable -H --tern=sent.yaml --wrap true; status 0
err_has "HyperPod: tern restarts this run (launch.restarts: 4), and its srun has no --auto-resume" "sbatch --tern says which of the two restarts"
on scancel "$(cat out)"
tap_done
