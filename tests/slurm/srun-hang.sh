#!/bin/bash
# An srun that stays when its ranks have gone, as with Slurm 22.05's PMIx plugin, and one that waits.
# tern looks every 10 s, and ends srun when it has found no step three times in a row.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/vcluster.sh"
. "$ROOT/tests/lib/tiny.sh"
cluster_up
tiny_make || exit 1

mkdir -p stays late
real=$(command -v srun)
# No rank's sign of its end arrives, as where the network lets none through.
printf '#!/bin/bash\ntrap "" TERM\nunset TERN_RUN_BEACON\n%s "$@"\nwhile :; do sleep 1; done\n' "$real" >stays/srun
printf '#!/bin/bash\nsleep 45\nexec %s "$@"\n' "$real" >late/srun # as one that waits for its nodes
chmod +x stays/srun late/srun
sed "s/^name:.*/name: stays/; s/^launch:.*/launch: {threads: 1}/; s/dir: checkpoints/dir: stays-checkpoints/" run.yaml >stays.yaml
for name in stays-workload late; do
    printf "version: 1\nname: %s\nledger: {dir: ledger}\nworkload: {command: ['true']}\nlaunch: {restarts: 0}\n" $name >$name.yaml
done
for name in stays stays-workload $(long && echo late); do
    printf '#!/bin/bash\nPATH=%s/%s:$PATH\nexec %s/tern run\n' "$WORK" "${name%-*}" "$BIN" >$name.sbatch
    submit -N1 --exclusive -o $name.out --tern=$name.yaml $name.sbatch
done
until_true queue_empty
name=stays
has stays.out "srun has not ended, though its step has been gone" "an srun that stays is ended, and that is logged"
is "$(last 'outcome, exit_code, last_step' stays)" "done 0 8" "the trainer's work is done: its checkpoint tells"
name=stays-workload
is "$(last 'outcome, exit_code' stays-workload)" "fault 75" "a workload's status went with srun"
has stays-workload.out "how the ranks ended is not known" "the cause says that the ranks' end is not known"
if long; then
    name=late
    is "$(last 'outcome, exit_code' late)" "done 0" "an srun that waits before its step is left alone"
fi
tap_done
