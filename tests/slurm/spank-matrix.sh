#!/bin/bash
# What a failing SPANK hook does: hook x context x required or optional, by Slurm version.  tern's
# plugin is built on this table: it refuses in option callbacks, fails on the node only by ending a
# task in task_init, and drains only from the prolog.
#
# The short form takes every fourth row.  SPANK_MATRIX=print prints what was measured, in the table's
# form, and judges nothing.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/vcluster.sh"
so=${TERN_BUILD:-$ROOT/build}/tests/spank_fail.so
n1=trn1-st-trn1-1 n2=trn1-st-trn1-2
slurm() { tern cluster exec $CLUSTER -- "$@"; }

# command  hook  context  flag | status of the command, shown its user, ran, job, node | Slurm versions
#
# sbatch, salloc: one task; srun: two, and the hook fails on the second one's node; step: the same
# srun inside a batch job that goes on after it.  shown: the hook's message reached the terminal or
# the job's output.  ran: none, one or all of the tasks.  job: the batch job's state.  node: where
# the hook was to fail, once the job is over.  * is anything.
# Versions: <2311 are those before 23.11.  Measured with 22.05 and 24.11.
table='
sbatch init                 allocator required | error shown none -         well  |
sbatch init_post_opt        allocator required | error shown none -         well  |
sbatch exit                 allocator required | 0     shown all  COMPLETED well  |
salloc init                 allocator required | error shown none -         well  |
salloc init_post_opt        allocator required | error shown none -         well  |
salloc exit                 allocator required | 0     shown all  -         well  |
srun   init                 local     required | error shown none -         well  |
srun   init_post_opt        local     required | error shown none -         well  |
srun   local_user_init      local     required | error shown none -         well  |
srun   exit                 local     required | 0     shown all  -         well  |
sbatch init                 remote    required | 0     -    none COMPLETED drain | <2311
sbatch init                 remote    required | 0     -    none PENDING   drain | >=2311
sbatch init_post_opt        remote    required | 0     -    none COMPLETED drain | <2311
sbatch init_post_opt        remote    required | 0     -    none PENDING   drain | >=2311
sbatch user_init            remote    required | 0     shown none COMPLETED drain | <2311
sbatch user_init            remote    required | 0     shown none PENDING   drain | >=2311
sbatch task_init_privileged remote    required | 0     shown none FAILED    well  |
sbatch task_init            remote    required | 0     shown none FAILED    well  |
sbatch task_post_fork       remote    required | 0     shown none COMPLETED drain | <2311
sbatch task_post_fork       remote    required | 0     shown none PENDING   drain | >=2311
sbatch task_exit            remote    required | 0     shown all  COMPLETED well  |
sbatch exit                 remote    required | 0     shown all  COMPLETED well  |
srun   init                 remote    required | 0     -    one  -         well  | <2311
srun   init                 remote    required | error -    one  -         well  | >=2311
srun   init_post_opt        remote    required | 0     -    one  -         well  | <2311
srun   init_post_opt        remote    required | error -    one  -         well  | >=2311
srun   user_init            remote    required | 0     shown one  -         well  | <2311
srun   user_init            remote    required | error shown one  -         well  | >=2311
srun   task_init_privileged remote    required | error shown one  -         well  |
srun   task_init            remote    required | error shown one  -         well  |
srun   task_post_fork       remote    required | 0     shown one  -         well  | <2311
srun   task_post_fork       remote    required | error shown one  -         well  | >=2311
srun   task_exit            remote    required | 0     shown all  -         well  |
srun   exit                 remote    required | 0     -    all  -         well  |
step   init                 local     required | error shown none COMPLETED well  |
step   init_post_opt        local     required | error shown none COMPLETED well  |
step   local_user_init      local     required | error shown none COMPLETED well  |
step   exit                 local     required | 0     shown all  COMPLETED well  |
step   init                 remote    required | 0     -    one  COMPLETED well  | <2311
step   init                 remote    required | error -    one  COMPLETED well  | >=2311
step   user_init            remote    required | 0     shown one  COMPLETED well  | <2311
step   user_init            remote    required | error shown one  COMPLETED well  | >=2311
step   task_init            remote    required | error shown one  COMPLETED well  |
step   task_exit            remote    required | 0     shown all  COMPLETED well  |
sbatch job_prolog           script    required | 0     -    none PENDING   drain |
sbatch job_epilog           script    required | 0     -    all  COMPLETED drain |
srun   job_prolog           script    required | error -    *    -         drain |
srun   job_epilog           script    required | 0     -    all  -         drain |
'
# Where it is `optional`, nothing fails, in any version.
optional=$(awk '!seen[$1, $2, $3]++ && NF {
    shown = $3 != "script" && ($3 != "remote" || $2 ~ /^(task|user)/ || ($1 == "sbatch" && $2 == "exit"))
    print $1, $2, $3, "optional |", 0, shown ? "shown" : "-", "all", $1 ~ /^(sbatch|step)$/ ? "COMPLETED" : "-", "well |"
}' <<<"$table")

use() { printf '%s\n' "$@" >"$conf"; }
node_states() { slurm sinfo -h -N -n "$1" -o %t | sort -u; }
all_well() { [ "$(node_states "$n1,$n2")" = idle ]; }
drained() { case $(node_states "$1") in dr*) ;; *) false ;; esac; }
nothing_ends() { [ -z "$(slurm squeue -h -t CG,R)" ]; }
# Sets state.  A job that waits again does so after its node was drained: before, it waited to begin.
settled() {
    local again=false
    drained $n1 && again=true
    nothing_ends || return 1
    state=$(job_state "$job")
    case $state in COMPLETED | FAILED) ;; PENDING) $again ;; *) false ;; esac
}

# The node's slurmd ends and another begins.
restart() { for n; do tern cluster node -c $CLUSTER "$n" --power off && tern cluster node -c $CLUSTER "$n" --power on; done >/dev/null 2>&1; }

# COMMAND HOOK CONTEXT FLAG: does it and says what came of it.
measure() {
    local node=$n1 state=- tasks=1 shown=- word=well tasks_ran=one
    rm -f ran.* job.out
    case $1 in srun | step) node=$n2 ;; esac
    use "$4 $so hook=$2 ctx=$3$(case $3 in remote | script) echo " node=$node" ;; esac)"
    case $1 in
        sbatch)
            submit -w $n1 -o "$WORK/job.out" --wrap "touch $WORK/ran.0"
            [ $rc != 0 ] || { until_true settled; } ;;
        salloc) on salloc -w $n1 touch ran.0 ;;
        step)
            tasks=2; submit -w "$n1,$n2" -N2 -o "$WORK/job.out" \
                --wrap "timeout -k 1 30 srun --mpi=none -n2 sh -c 'touch $WORK/ran.\$SLURM_PROCID'; echo \"status \$?\""
            until_true settled; grep -qx 'status 0' job.out; rc=$? ;;
        srun) tasks=2; on timeout -k 1 30 srun --mpi=none -w "$n1,$n2" -n2 sh -c 'touch ran.$SLURM_PROCID' ;;
    esac
    until_true nothing_ends
    # The epilog's word arrives after the job's end.
    [ "$2 $4" != 'job_epilog required' ] || until_true drained $node
    cat err job.out 2>/dev/null | grep -q "spank_fail: $2" && shown=shown
    drained $node && word=drain
    case $(find . -name 'ran.*' | wc -l) in 0) tasks_ran=none ;; "$tasks") tasks_ran=all ;; esac
    echo "$([ $rc = 0 ] && echo 0 || echo error) $shown $tasks_ran $state $word"
    use
    slurm scancel -u "$(id -un)"
    until_true queue_empty
    slurm scontrol update nodename=$n1,$n2 state=resume
    until_true all_well
}

cluster_up
conf=$TERN_CLUSTER_HOME/$CLUSTER/etc/plugstack.conf log=$TERN_CLUSTER_HOME/$CLUSTER/log/slurmd-$n1.log
version=$(slurm scontrol --version | sed 's/^[^0-9]*\([0-9]*\)\.\([0-9]*\).*/\1\2/')
# slurmd asks once, at its start, whether any plugin has a prolog and an epilog.
use "optional $so hook=none"
logs=${log%"$n1.log"}
: >"$logs$n1.log"; : >"$logs$n2.log"; restart $n1 $n2
both_started() { grep -q 'slurmd started on' "$logs$n1.log" && grep -q 'slurmd started on' "$logs$n2.log"; }
until_true both_started && until_true all_well; ok $? "Slurm $version: two nodes that know the plugin" || slurm sinfo -N
row=0
while IFS='|' read -r what want when; do
    read -r command hook context flag <<<"$what"
    want=$(echo $(echo "$want" | sed 's/\*/ANY/')) when=$(echo $when)
    [ "$command" ] || continue
    [ "${SPANK_MATRIX-}" = print ] || case $when in '<'*) [ "$version" -lt "${when#<}" ] || continue ;; '>='*) [ "$version" -ge "${when#>=}" ] || continue ;; esac
    [ "${SPANK_MATRIX-}" = print ] || long || [ $((row++ % 4)) = 0 ] || continue
    got=$(measure "$command" "$hook" "$context" "$flag" 2>/dev/null)
    if [ "${SPANK_MATRIX-}" = print ]; then
        printf '%-6s %-20s %-9s %-8s | %-5s %-4s %-4s %-9s %-5s |\n' $command $hook $context $flag $got
        continue
    fi
    [[ $got == ${want/ANY/*} ]]
    ok $? "$command, $flag, $hook fails ($context): $got" || { echo "# expected: $want"; sed 's/^/# /' err job.out; }
done <<<"$table$optional"
[ "${SPANK_MATRIX-}" != print ] || { tap_done; exit; }

# ---- slurmd itself, which loads the plugins for as long as it runs
for flag in required $(long && echo optional); do
    use "$flag $so hook=init ctx=slurmd"; : >"$log"; restart $n1
    until_true grep -qE 'initialization failed|slurmd started on' "$log"
    [ $flag = required ] && want='initialization failed' || want='slurmd started on'
    grep -q 'spank_fail: init slurmd' "$log" && grep -q "$want" "$log"; ok $? "slurmd, $flag, init fails: $want" || sed 's/^/# /' "$log"
    use "$flag $so hook=slurmd_exit ctx=slurmd"; : >"$log"; restart $n1
    until_true grep -q 'slurmd started on' "$log"; until_true all_well; : >"$log"
    tern cluster exec --node $n1 $CLUSTER -- sh -c 'kill $(pgrep -x slurmd)' # its processes alone are seen there
    until_true grep -q 'shutdown completing' "$log"
    grep -q 'spank_fail: slurmd_exit slurmd' "$log" && grep -q 'shutdown completing' "$log"
    ok $? "slurmd, $flag, slurmd_exit fails: it ends all the same" || sed 's/^/# /' "$log"
done
use; restart $n1; until_true all_well; ok $? "every node is well after all that"
tap_done
