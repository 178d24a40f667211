#!/bin/bash
# HyperPod's own restart of a step (srun --auto-resume=1) and tern's: one of the two, and a line says which.
. "$(dirname "$0")/../lib/tap.sh"
for v in $(compgen -e | grep -E '^(SLURM|TERN_(R|L|C|H))'); do unset "$v"; done
# recipe NAME COMMAND RESTARTS: on line 5 the workload
recipe() { printf 'version: 1\nname: %s\nledger: {dir: ledger}\nlaunch: {health: off, restarts: %s}\nworkload: {command: %s}\n' "$1" "$3" "$2" >"$1.yaml"; }
recipe one '[true]' 7
recipe never '[true]' 0
mkdir -p pod/opt/sagemaker_cluster
pod() { run env TERN_HEALTH_ROOT="$WORK/pod" "$@"; }

# ---- which of the two
mkdir none; run env TERN_HEALTH_ROOT="$WORK/none" tern run --check one.yaml; status 0
[ ! -s err ]; ok $? "elsewhere than on HyperPod nothing is said of restarts" || sed 's/^/# /' err
says='HyperPod: tern restarts this run (launch.restarts: 7), and its srun has no --auto-resume'
pod tern run --check one.yaml; status 0; err_has "$says"; one_line "tern run --check on HyperPod: one line says that tern restarts"
pod tern submit --dry-run --no-plugin -N 2 one.yaml; status 0; err_has "$says" "tern submit on HyperPod says that tern restarts"
pod tern run one.yaml; status 0; err_has "$says" "tern run on HyperPod says that tern restarts"
pod tern run --restarts 3 one.yaml; err_has '(launch.restarts: 3)' "tern run says how often, by its own option"
pod tern run --check never.yaml; status 0; err_has 'nothing restarts this run' "without restarts the line says so"
err_has 'srun --auto-resume=1 -N1 -n1 tern run' "the line names HyperPod's way to restart"

# ---- never both
run tern submit --dry-run --no-plugin -N 2 one.yaml -- --auto-resume=1; status 2; one_line
err_has '--auto-resume=1: HyperPod would restart this run, and tern restarts it, too (launch.restarts: 7)'
run tern submit --dry-run --no-plugin -N 2 one.yaml -- --auto-resume 1; status 2 "tern submit refuses the option with its value behind a blank"
run tern submit --dry-run --no-plugin -N 2 one.yaml -- --auto-resume=0; status 0 "tern submit takes --auto-resume=0"
run tern submit --dry-run --no-plugin -N 2 never.yaml -- --auto-resume=1; status 0 "tern submit takes the option where tern does not restart"
run tern submit --dry-run --no-plugin -N 2 one.yaml -- --auto-resume=1 --tern-restarts=0; status 0 "tern submit takes the option where --tern-restarts=0 says so"
run tern submit --dry-run --no-plugin -N 2 one.yaml -- -; [ "$rc" != 139 ]; ok $? "an option of one letter less is no trouble"

recipe both '[srun, -N2, --auto-resume=1, train]' 7
run tern run --check both.yaml; status 2; one_line
err_has 'both.yaml:5: workload.command: srun --auto-resume lets HyperPod restart the ranks, and tern restarts them, too (launch.restarts: 7). Leave the option out, or say launch.restarts: 0.'
run tern run both.yaml; status 2 "tern run refuses a command that restarts itself"
[ ! -e ledger/runs ] || [ -z "$(sqlite3 ledger/ledger.db "select 1 from run where name = 'both'")" ]; ok $? "a refused recipe records no run"
recipe script '[bash, -c, "cd /fsx && srun -l --auto-resume=1 train"]' 7
run tern run --check script.yaml; status 2 "a command in a shell's script is refused, too"
printf 'version: 1\nname: pre\nledger: {dir: ledger}\nworkload: {command: [true], precompile: {command: [srun, --auto-resume=1, compile]}}\n' >pre.yaml
run tern run --check pre.yaml; status 2; err_has 'pre.yaml:4: workload.precompile.command: srun --auto-resume'
for command in '[srun, --auto-resume=0, train]' '[train, --auto-resume=1]' '[srun, train, --auto-resume]' '[bash, -c, "train --auto-resume=1"]'; do
    recipe fine "$command" 7; run tern run --check fine.yaml; status 0 "$command: no restart of HyperPod's"
done
recipe own '[bash, -c, "exit 0; srun --auto-resume=1 train"]' 0
run tern run own.yaml; status 0 "launch.restarts: 0 leaves the restart to the command"
run tern run --restarts 2 own.yaml; status 2; err_has 'launch.restarts: 2' "tern run --restarts is refused beside it"
tap_done
