#!/bin/bash
# --tern-health, --tern-restarts and --tern-profile: their ranges, their way to every kind of task,
# and what a profile that cannot be had does.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/vcluster.sh"
so=${TERN_BUILD:-$ROOT/build}/plugins/tern_spank.so
cluster_up
printf 'version: 1\nname: toy\nledger: {dir: ledger}\nworkload: {command: [true]}\n' >good.yaml
conf=$TERN_CLUSTER_HOME/$CLUSTER/etc/plugstack.conf
cp "$conf" kept

# ---- ranges
turn=0
for value in health=Off health=deeper health= restarts=-1 restarts=1000001 restarts=99999999999999999999 restarts=1e3 restarts=0x10 \
    restarts=' 1' restarts= profile=Trn1 profile=a/b profile=../x profile=-x profile= profile='a b' \
    profile="$(printf 'a\nb')" profile="$(printf '\033[31m')" profile='%n%n' profile="$(head -c 33 /dev/zero | tr '\0' a)" \
    health='$(touch pwned)' restarts='`touch pwned`' profile=';touch pwned'; do
    for how in 'sbatch --wrap true' 'salloc true' 'srun --mpi=none true'; do
        # The same code reads it in all three: short, the others take every seventh.
        [ "${how%% *}" = sbatch ] || long || [ $((turn++ % 7)) = 0 ] || continue
        set -- $how; on "$1" "--tern-$value" "${@:2}"
        [ $rc != 0 ] && grep -q "tern: --tern-${value%%=*}[: ]" err && ! grep -q "$(printf '\033')" <(grep 'tern:' err)
        ok $? "$1 refuses --tern-$(printf '%.30q' "$value")" || cat err
    done
done
[ ! -e pwned ] && queue_empty; ok $? "refused options run and queue nothing"
for how in sbatch salloc srun; do
    on $how --help
    grep -q -- '--tern-health=off|quick|deep' out && grep -q -- '--tern-restarts=N' out && grep -q -- '--tern-profile=NAME' out
    ok $? "$how --help tells them" || cat out
done

# ---- their way.  A `tern` whose profiles are this test's; everything else is the real one's.
mkdir bin
cat >bin/tern <<'T'
#!/bin/bash
[ "$1" = env ] || exec "$REAL" "$@"
[ "$2 $4" = "--profile --export0" ] || exit 2
case $3 in
    cpu) printf 'P_ONE=1\0'; [ -n "${P_USER+x}" ] || printf 'P_USER=profile\0'; [ -n "${P_TASK+x}" ] || printf 'P_TASK=%s\0' "$SLURM_PROCID"; printf 'P_WORDS=a b=c\0' ;;
    slow) [ -n "${SLURMD_NODENAME-}" ] && sleep 30 ;;
    sick) [ -z "${SLURMD_NODENAME-}" ] || { echo 'tern env: error: no such device here' >&2; exit 1; } ;;
    words) echo hello there ;;
    cut) printf 'P_ONE=1\0P_TWO' ;;
    long) yes P_X=yyyyyyyyyyyyyyyyyyyyy | tr '\n' '\0' ;;
    *) echo "tern env: error: no profile '$3' (allowed: cpu)" >&2; exit 2 ;;
esac
T
sed -i "s|\$REAL|$BIN/tern|" bin/tern; chmod +x bin/tern
use() { echo "${1-optional} $so tern=$WORK/bin/tern" >"$conf"; }
use
cat >show.sbatch <<'X'
#!/bin/bash
#SBATCH --tern-health=deep
export PATH=/usr/bin:/bin
echo "batch $TERN_HEALTH $TERN_RESTARTS $TERN_PROFILE"
srun --mpi=none --export=ALL -N2 bash -c 'echo "step $TERN_HEALTH $TERN_RESTARTS $TERN_PROFILE"'
srun --mpi=none --export=ALL -N1 -n1 --tern-restarts=3 bash -c 'echo "other $TERN_HEALTH $TERN_RESTARTS $TERN_PROFILE"'
[ "$SLURM_RESTART_COUNT" ] || { touch "$HERE/again"; sleep 60; }
touch "$HERE/over"
X
with_slurm show.sbatch
for export in NONE $(long && echo ALL); do
    rm -f show.out again over
    submit -N2 --requeue --open-mode=append --tern-restarts=5 --tern-restarts=0007 --tern-profile=cpu --export=$export,HERE="$WORK" -o show.out show.sbatch
    until_true [ -e again ]
    on scontrol requeue "$job"
    start_again
    until_true [ -e over ]; until_true job_over "$job"
    [ "$(grep -c '^batch deep 7 cpu$' show.out)" = 2 ]; ok $? "--export=$export: batch script, last value of a repeated option, again after a requeue" || cat show.out
    [ "$(grep -c '^step deep 7 cpu$' show.out)" = 4 ]; ok $? "--export=$export: steps get the options, too" || cat show.out
    [ "$(grep -c '^other deep 3 cpu$' show.out)" = 2 ]; ok $? "--export=$export: an option of the step wins" || cat show.out
done
on salloc -N2 --tern-health=off --tern-profile=cpu bash -c 'echo "shell $TERN_HEALTH $TERN_PROFILE"; srun --mpi=none sh -c "echo step \$TERN_HEALTH \$TERN_PROFILE \$P_ONE"'
out_has 'shell off cpu' "salloc's own shell has the options"
[ "$(grep -c '^step off cpu 1$' out)" = 2 ]; ok $? "salloc's steps have the options" || cat out err
on srun --mpi=none -N2 --tern-health=quick sh -c 'echo "$TERN_HEALTH"'
[ "$(grep -c '^quick$' out)" = 2 ]; ok $? "srun without a job has the options" || cat out err
if command -v mpirun >/dev/null; then
    cat >mpi.sbatch <<'X'
#!/bin/bash
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
mpirun -n 2 --map-by node sh -c 'echo "rank $(hostname) $TERN_HEALTH $P_ONE"'
X
    submit -N2 --tern-health=off --tern-profile=cpu -o mpi.out mpi.sbatch
    until_true job_over "$job"
    [ "$(sort -u mpi.out | grep -c '^rank trn1-st-trn1-[0-9]* off 1$')" = 2 ]; ok $? "ranks of mpirun have the options on each node" || cat mpi.out
else skip "mpirun is not installed"; fi

# ---- a profile, without `tern run`
cat >prof.sbatch <<'X'
#!/bin/bash
echo "batch $P_ONE $P_USER $P_TASK ($P_WORDS)"
srun --mpi=none -n2 -N2 sh -c 'echo "step $P_ONE $P_USER $P_TASK ($P_WORDS)"'
P_TASK=mine srun --mpi=none -n1 -N1 sh -c 'echo "said $P_ONE $P_USER $P_TASK"'
X
export P_USER=own
submit -N2 --tern-profile=cpu -o prof.out prof.sbatch
unset P_USER
until_true job_over "$job"
has prof.out 'batch 1 own 0 (a b=c)' "the batch script has the profile, and the user's own value wins"
has prof.out 'step 1 own 1 (a b=c)' "each task has its own profile: the batch script's is not the user's choice"
has prof.out 'said 1 own mine' "a variable that the script sets is the user's choice"
submit -N2 --tern=good.yaml --tern-profile=cpu -o prof.out prof.sbatch
until_true job_over "$job"
has prof.out 'batch    ()' "with a recipe the batch script's profile is left to tern run"
for profile in $({ long || [ -n "${TERN_TEST_BOUNDS-}" ]; } && echo slow) sick words cut long; do
    s=$(date +%s)
    on timeout 300 srun --mpi=none -N2 --tern-profile=$profile touch ran
    [ $rc = 75 ] && [ ! -e ran ]; ok $? "profile '$profile': the task does not start, status 75" || { echo "# $rc"; cat err; }
    grep -q "tern: profile $profile" err; ok $? "and says why: $(grep -o "tern: profile.*" err | head -1)"
    bound $(($(date +%s) - s)) 19 "profile '$profile': seconds until the error"
done
err_has 'more than 65536 bytes' "a profile is bounded in size"
cp kept "$conf"
on env -u OMP_PROC_BIND OMP_NUM_THREADS=2 OMP_PLACES=sockets srun --mpi=none --tern-profile=cpu sh -c 'echo "$OMP_PROC_BIND $OMP_PLACES"'
out_has 'close sockets' "tern env's own profile arrives, below the user's value"
on sbatch --tern-profile=nope --wrap true; [ $rc != 0 ]; ok $? "a profile that the plugin does not know is refused"; err_has "profile 'nope'"
use
submit --tern-profile=sick -o sick.out --wrap 'echo ran'
until_true job_over "$job"
[ "$(job_state "$job")" = FAILED ]; ok $? "a batch job that cannot have its profile FAILED" || job_state "$job"
has sick.out 'no such device here' "a batch job without its profile has the reason in its output"
on sbatch --tern-profile=trn9 --wrap true
[ $rc != 0 ]; ok $? "an unknown profile is refused at submission"; err_has "no profile 'trn9' (allowed: cpu)"
on sinfo -h -o '%t'; ! grep -qE 'drain|drng|down|fail' out; ok $? "every node is idle at the end" || cat out
cp kept "$conf"
tap_done
