#!/bin/bash
# tern run on one machine, with somebody else's trainer in the trainer's place; tern submit's line.
. "$(dirname "$0")/../lib/tap.sh"
for v in $(compgen -e | grep -E '^(SLURM|TERN_(R|L))'); do unset "$v"; done

# recipe NAME 'SCRIPT' [TASKS] [MORE]: NAME.yaml, whose workload is a shell's script.
recipe() {
    printf 'version: 1\nname: %s\nledger: {dir: ledger}\nworkload: {command: [bash, %s.sh], tasks_per_node: %s}\n%s\n' \
        "$1" "$1" "${3:-1}" "${4-}" >"$1.yaml"
    printf '%s\n' "$2" >"$1.sh"
}
attempts() { sqlite3 -separator ' ' ledger/ledger.db "select $1 from attempt where run_id in (select id from run where name = '$2') order by begin_ns"; }
last() { attempts "$1" "$2" | tail -1; }
is() { [ "$1" = "$2" ]; ok $? "$3" || echo "# got '$1', wanted '$2'"; }
# A shell's background jobs ignore SIGINT; a person's do not.
supervise() { rm -f pid; env --default-signal=INT tern run "$@" >out 2>err & sup=$!; until_true test -s pid; }
ended() { # its status in $rc; nothing hangs here
    until_true sh -c "! kill -0 $sup" || { kill -9 $sup; echo "# had to be killed"; }
    { wait $sup; rc=$?; } 2>/dev/null; }
until_true() { for _ in $(seq 100); do "$@" >/dev/null 2>&1 && return 0; sleep 0.05; done; return 1; }

# ---- a run, its rows, its environment
recipe good 'echo "rank $SLURM_PROCID of $SLURM_NTASKS"; test -d "$TERN_RUN_SPOOL" && test -d "$TERN_LEDGER" && echo "$TERN_RECIPE" >seen' 3
run tern run good.yaml; status 0
for r in 0 1 2; do out_has "rank $r of 3"; done
is "$(cat seen)" "$WORK/good.yaml" "the ranks are told recipe, ledger and spool"
is "$(last 'outcome, exit_code, world, attempt' good)" "done 0 3 1" "the ledger has the attempt with its outcome"
is "$(sqlite3 ledger/runs/*/run.db 'select recipe from run' | head -1)" "version: 1" "and the recipe's text"
run tern run good.yaml --ranks 2; status 0
out_has 'rank 1 of 2'
is "$(last world good)" 2 "--ranks counts"

# ---- metrics of a trainer that is not tern's
recipe metric 'tern metric step=7 loss=2.31 && tern metric step=8 loss=nan'
run tern run metric.yaml; status 0
run tern ledger sql "select step, value from step where name = 'loss' order by step" --ledger ledger --run metric
out_has 2.31 "tern metric records from the workload"
is "$(last 'first_step, last_step' metric)" "7 8" "and the attempt knows its steps"

# ---- how it ends
recipe ends 'case $1 in "") ;; esac; exit $CODE'
for pair in '1 failed' '3 failed' '2 refused' '75 fault' '76 stopped' '77 halted'; do
    set -- $pair
    CODE=$1 run tern run ends.yaml; status "$1" "status $1 of a workload is tern run's"
    is "$(last 'outcome, exit_code' ends)" "$2 $1" "and the ledger calls it $2"
done
recipe killed '[ $SLURM_PROCID = 1 ] && kill -9 $$; exec sleep 30' 2
start=$SECONDS
run tern run killed.yaml; status 75 "a rank that is killed: 75"
err_has 'rank 1 ended by signal 9' "and it is named"
[ $((SECONDS - start)) -lt 5 ]; ok $? "the other ranks end with it"
is "$(last 'outcome, signal' killed)" "killed 9" "the ledger has outcome and signal"
recipe absent '' 1; sed -i 's/bash, absent.sh/no-such-program/' absent.yaml
run tern run absent.yaml; status 127 "a program that is not there"
err_has "cannot run 'no-such-program': No such file"

# ---- signals
recipe stops 'trap "echo got TERM; exit 76" TERM; trap "echo got INT; exit 77" INT; echo $$ >pid; while :; do sleep 0.05; done'
for pair in 'TERM 76 stopped' 'INT 77 halted'; do
    set -- $pair
    supervise stops.yaml; kill -"$1" $sup; ended
    is $rc "$2" "SIG$1 is passed on; the workload's status comes back"
    out_has "got $1" "the workload got SIG$1"
    is "$(last outcome stops)" "$3" "outcome $3"
done
n=0; for db in ledger/runs/*/run.db; do
    n=$((n + $(sqlite3 "$db" "select count(*) from event where kind = 'signal'"))); done
is $n 2 "the signals are events in the ledger"
recipe deaf 'trap "" INT TERM; echo $$ >pid; while :; do sleep 0.05; done'
supervise deaf.yaml; kill -INT $sup; sleep 0.3; kill -INT $sup; ended
is $rc 75 "a second Ctrl-C ends ranks that do not listen"
recipe orphan 'echo $$ >pid; exec sleep 60'
supervise orphan.yaml; kill -9 $sup; ended
until_true sh -c '! kill -0 $(cat pid)'; ok $? "when the supervisor is killed, no rank stays"

# ---- the same run again; only one owner
recipe known 'echo >>count; [ -z "$WAIT" ] || { echo $$ >pid; exec sleep 60; }' 1 'checkpoint: {dir: ck}'
run tern run known.yaml; status 0
run tern run known.yaml; status 0
is "$(attempts attempt known | tr '\n' ' ')" "1 2 " "with one checkpoint folder it is one run, with attempts"
is "$(attempts 'distinct run_id' known | wc -l)" 1 "under one id"
rm -f count; WAIT=1 supervise known.yaml
run tern run known.yaml
[ $rc != 0 ]; ok $? "a second owner while the first lives is refused"
one_line; [ ! -s count ] || is "$(wc -l <count)" 1 "and starts nothing"
kill $sup; ended

# ---- mistakes
rm -rf elsewhere; mkdir elsewhere; cd elsewhere || exit 1
printf 'version: 1\nname: x\nledgr: {dir: ledger}\n' >bad.yaml
for c in "run --check" run submit; do
    run tern $c bad.yaml; status 2 "tern $c: a wrong key"; one_line; err_has 'bad.yaml:3: ledgr'
done
run tern run nothing.yaml; status 2 "a recipe that is not there"; one_line
run tern run; status 2 "no recipe"; one_line; err_has '--tern=RECIPE'
SLURM_SPANK__SLURM_SPANK_OPTION_tern_tern=x run tern run; status 75 "--tern, and no plugin on the node"
one_line; err_has 'plugstack.conf'
SLURM_JOB_ID=1 run tern run ../good.yaml; status 2 "a job without its node list"; one_line
run tern run --set name=bad/name ../good.yaml; status 2; one_line
printf 'version: 1\nname: t\nmodel: {config: none.json}\ndata: {train: [{path: t.tds}]}\nbatch: {global: 8, seq_len: 16}\nsteps: 2\noptimizer: {lr: 1e-3}\ncheckpoint: {dir: ck}\nledger: {dir: ledger}\n' >bad.yaml
for c in "run --check" run submit; do
    run tern $c bad.yaml; [ $rc != 0 ]; ok $? "tern $c: a model that is not there"; one_line; err_has none.json
done
[ "$(ls)" = "$(printf 'bad.yaml\nerr\nout')" ]; ok $? "nothing was written" || ls
cd ..
touch file; run tern run good.yaml --set ledger.dir=file; [ $rc != 0 ]; ok $? "a ledger folder that is a file"; one_line

# ---- what --check costs sbatch
start=$(date +%s%N); for _ in 1 2 3 4 5; do tern run --check good.yaml; done
ms=$((($(date +%s%N) - start) / 5000000)); [ $ms -lt 100 ]; ok $? "tern run --check takes $ms ms, under 100"

# ---- tern submit
run tern submit good.yaml -N 4 --set 'name=a-b' --dry-run -- --time=8:00:00
status 0
out_has "sbatch --job-name=a-b --nodes=4 --ntasks-per-node=3 --exclusive --no-kill --requeue --open-mode=append"
out_has "--tern=$WORK/good.yaml --time=8:00:00 '--wrap=exec"
out_has "/tern run --set name=a-b $WORK/good.yaml'"
run tern submit 'good.yaml' --dry-run --no-plugin --set "workload.command=[a, \"it's\"]"
grep -q -- --tern= out; [ $? = 1 ]; ok $? "--no-plugin leaves out --tern"
run env SLURM_CONF=/nonexistent tern submit good.yaml; status 1 "no Slurm"; one_line; err_has 'tern cluster exec NAME'
export SLURM_CONF=$WORK/slurm.conf; : >slurm.conf
mkdir fake; printf '#!/bin/sh\nprintf "<%%s>\\n" "$@"\nexit 7\n' >fake/sbatch; chmod +x fake/sbatch
PATH=$WORK/fake:$PATH run tern submit known.yaml -N 2
status 7 "sbatch's exit status"
out_has "<--comment=$(attempts 'distinct run_id' known)>" "a run that goes on is named in the job's Comment"
PATH=$BIN run "$BIN/tern" submit good.yaml; status 1 "no sbatch"; one_line; err_has 'sbatch'
tap_done
