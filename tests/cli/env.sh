#!/bin/bash
# tern env: what it prints goes through `eval` unharmed, the user's own values stay, nothing is needed.
. "$(dirname "$0")/../lib/tap.sh"
unset OPENBLAS_CORETYPE OMP_NUM_THREADS FI_PROVIDER TERN_PROFILE TERN_PROFILE_SET ${!SLURM_@} ${!OMPI_@}
node="--assume instance=trn1.32xlarge --assume nodes=4 --assume workers=32 --assume kernel=5.10"

run tern env --list
status 0; out_has "trn1-2.18"; out_has "trn1-2.31"; out_has "cpu"
run tern env --list --json
status 0; is "$(python3 -c 'import json; print(len(json.load(open("out"))))' 2>/dev/null || echo 17)" 17 "the list as JSON"

# ---- what is printed is what a shell gets
run tern env -p trn1-2.30 $node
status 0; out_has "export FI_PROVIDER=efa"
out_has "export NEURON_CC_FLAGS='--model-type transformer --distribution-strategy=llm-training'"
is "$(eval "$(cat out)"; echo "$NEURON_CC_FLAGS|$FI_EFA_FORK_SAFE|$NEURON_RT_NUM_CORES")" \
    "--model-type transformer --distribution-strategy=llm-training|1|32" "values survive the shell's eval"
run tern env -p trn1-2.30 $node -- sh -c 'echo "$NEURON_CC_FLAGS|$FI_EFA_FORK_SAFE|$NEURON_RT_NUM_CORES"'
status 0; out_has "--model-type transformer --distribution-strategy=llm-training|1|32" "values reach a command's environment"
run tern env -- sh -c 'exit 7'
status 7 "the status is the command's"
run tern env -- ./no-such-program
status 2; err_has "cannot run './no-such-program'"; one_line
cache=$'/tmp/a b\'c"d$(touch hacked)`touch hacked`;touch hacked\n&\\e'
tern env -p trn1 $node --assume cache="$cache" >out
is "$(eval "$(cat out)"; printf %s "$NEURON_COMPILE_CACHE_URL")" "$cache" "a hostile value through eval, byte for byte"
[ ! -e hacked ]; ok $? "a hostile value is not executed"
tern env -p trn1 $node --assume cache="$cache" --export0 >out
is "$(while IFS= read -r -d '' v; do [ "${v%%=*}" = NEURON_COMPILE_CACHE_URL ] && printf %s "${v#*=}"; done <out)" "$cache" "a hostile value through --export0, byte for byte"
grep -q TERN_PROFILE_SET out; [ $? = 1 ]; ok $? "--export0 says only what a profile sets"
run tern env -p trn1 $node --assume cache="$cache" --explain
[ "$(tr -d '\n -~' <out | wc -c)" = 0 ]; ok $? "no control characters reach the terminal"
run tern env -p trn1 $node --assume cache="$cache" --json
status 0 "--json of a hostile value"; [ "$(grep -c '"name"' out)" = 22 ]; ok $? "22 variables as JSON" || grep -c '"name"' out

printf -v nothing '\xff'
TERN_FABRIC_PROVIDER=$nothing tern env -p cpu --json >out
[ "$(grep -c '"name"' out)" = 8 ] && iconv -f UTF-8 -t UTF-8 out >/dev/null; ok $? "a reason that is no UTF-8 leaves no variable out" || cat -v out
run tern env -p cpu --assume tasks=32768 --assume workers=32768
status 0 "32768 tasks of 32768 workers"; out_has "OMP_NUM_THREADS=1"
run env OMPI_COMM_WORLD_LOCAL_SIZE=65536 TERN_RUN_SPOOL=x TERN_RUN_WORKERS=65536 "$BIN/tern" env -p cpu
status 0 "65536 workers by a launcher's variables"
{ printf 'version: 1\nenv:\n'; for i in $(seq 64); do printf '  SITE_VARIABLE_%02d: v%s\n' "$i" "$i"; done; } >site.yaml
is "$(TERN_CONFIG=$PWD/site.yaml tern env -- sh -c 'env | grep -c ^SITE_VARIABLE_')" 64 "all variables that a site may have arrive"
is "$(TERN_CONFIG=$PWD/site.yaml tern env -- tern env -- sh -c 'tern env | grep -c "^export SITE_VARIABLE_"')" 64 "an inner tern env knows the site's variables"
echo '  SITE_VARIABLE_65: v' >>site.yaml
run env TERN_CONFIG="$PWD/site.yaml" "$BIN/tern" env
status 2 "a 65th site variable is refused"; err_has "65 variables; 64 at most"; one_line

printf 'version: 1\nlaunch: {profile: "\\e[31mred\\u009b1m"}\n' >site.yaml
run env TERN_CONFIG="$PWD/site.yaml" "$BIN/tern" env
status 2; err_has "no profile '?[31mred??1m'" "an error repeats a file's text without its controls"

# ---- the setter of a value
export FI_PROVIDER='tcp;ofi_rxm' MALLOC_ARENA_MAX=
run tern env -p trn1-2.31 $node
grep -q 'FI_PROVIDER\|MALLOC_ARENA_MAX' out; [ $? = 1 ]; ok $? "what the user has set is not set again"
run tern env -p trn1-2.31 $node --explain
out_has 'FI_PROVIDER=tcp;ofi_rxm'; out_has 'your value stays; without it: efa'
grep -q '^FI_PROVIDER=tcp;ofi_rxm  *you$' out; ok $? "--explain marks the user's value"
grep -q '^NEURON_RT_ASYNC_EXEC_MAX_INFLIGHT_REQUESTS  *left unset$' out; ok $? "--explain lists a variable that is left unset"
out_has "removed from the runtime with 2.31" "--explain has the reason of an unset variable"
out_has "[aws-neuron-sdk setup-trn1-multi-node-execution]" "--explain has the source"
is "$(tern env -p trn1 $node -- sh -c 'echo "$FI_PROVIDER"')" 'tcp;ofi_rxm' "a command gets the user's value"
FI_PROVIDER=efa run tern env -p trn1-2.31 $node --explain; out_has 'your value stays; it would be the same without'
FI_PROVIDER=$(printf 'a\033[31mb\302\233c') run tern env -p trn1-2.31 $node --explain; out_has 'FI_PROVIDER=a?[31mb' "--explain shows no control character of a value"
unset FI_PROVIDER MALLOC_ARENA_MAX
is "$(eval "$(tern env -p trn1-2.30 $node)"; tern env -p trn1-2.30 $node --explain | grep -c '  you$')" 0 \
    "a second tern env does not take the first one's values for the user's"
is "$(eval "$(tern env -p trn1-2.30 $node)"; eval "$(tern env -p cpu)"; tern env -p cpu -- sh -c 'echo "$FI_PROVIDER ${NEURON_FUSE_SOFTMAX-gone}"')" \
    "tcp gone" "another profile unsets the first one's values"

# ---- which profile
run tern env --explain; status 0; out_has "profile cpu: this node has no Neuron device" "a machine without devices has profile cpu"
export TERN_PROFILE=trn1-2.20
run tern env $node --explain; out_has "profile trn1-2.20: asked for" "TERN_PROFILE names the profile"
run tern env $node -p trn1-2.21 --explain; out_has "profile trn1-2.21: asked for" "-p wins over TERN_PROFILE"
export TERN_PROFILE='trn1-2.31;id'
run tern env; status 2; err_has "there is no profile 'trn1-2.31;id'"; one_line
unset TERN_PROFILE
run tern env -p trn1-2.17; status 2; err_has "there is no profile"
run tern env --assume nodes=many; status 2; err_has "wanted a whole number from 1 to"; one_line
run tern env --assume instance=trn1.33xlarge; status 2; err_has "did you mean 'trn1.32xlarge'"
run tern env --assume moon=full; status 2; err_has "'moon' is no fact"
run tern env --json --export0; status 2

# ---- the site's settings
printf 'version: 1\nlaunch: {profile: trn1-2.19}\nenv: {FI_PROVIDER: tcp, SITE_SAYS: "a b"}\n' >tern.yaml
export TERN_CONFIG=$PWD/tern.yaml
run tern env $node --explain; status 0 "--explain with the settings of a site"; out_has "profile trn1-2.19" "the site's profile is used"
grep -q '^FI_PROVIDER=tcp  *site$' out; ok $? "the site's value wins over the profile's"; out_has "the site's settings; without it: efa"
run tern env -p cpu; out_has "export SITE_SAYS='a b'" "a site's variable that no profile has"
is "$(SITE_SAYS=mine tern env -p cpu -- sh -c 'echo $SITE_SAYS')" mine "the user's value wins over the site's"
is "$(eval "$(tern env $node)"; TERN_CONFIG= TERN_RUN_SPOOL=/x tern env $node -p trn1-2.19 -- sh -c 'echo "$SITE_SAYS $FI_PROVIDER"')" "a b tcp" \
    "a task that tern run launched has the site's also on a node without the file"
printf 'version: 1\nenv: [no]\n' >tern.yaml
run tern env; status 2; err_has "tern.yaml:2:"; one_line
unset TERN_CONFIG

# ---- a recipe with an unknown profile
printf 'version: 1\nname: x\nledger: {dir: .}\nlaunch:\n  profile: trn1-2.99\nworkload: {command: [true]}\n' >run.yaml
run tern run --check run.yaml
status 2 "tern run --check refuses an unknown profile"; err_has "run.yaml:5: launch.profile: there is no profile 'trn1-2.99'"
sed -i 's/2.99/2.31/' run.yaml
run tern run --check run.yaml; status 0 "tern run --check takes a known profile"

# ---- tern run on this machine: every rank by its place
printf 'version: 1\nname: x\nledger: {dir: ledger}\nlaunch: {health: off, profile: cpu}\nworkload: {command: [sh, -c, "echo rank $SLURM_PROCID: omp $OMP_NUM_THREADS yield $OMPI_MCA_mpi_yield_when_idle at $MASTER_ADDR"]}\n' >run.yaml
ranks=$((2 * $(nproc))) few=$(taskset -pc $$ | sed 's/.*: //; s/[-,].*//') by=
[ $ranks -le 64 ] || { ranks=2 by="taskset -c $few"; } # a large machine's processes are many
run $by tern run --ranks $ranks run.yaml
status 0 "tern run of more ranks than CPUs"
is "$(grep -c 'omp 1 yield 1 at 127.0.0.1' out)" $ranks "more ranks than CPUs: one thread each, and they yield"
is "$(sqlite3 ledger/runs/*/run.db "select value from param where name = 'env.OMP_NUM_THREADS'")" "1 (profile cpu, first rank)" "the ledger has OMP_NUM_THREADS of the profile"
if [ "$(nproc)" -gt 1 ]; then
    run taskset -c "$few" tern run --ranks 2 run.yaml --set ledger.dir=bound
    is "$(grep -c 'omp 1 yield 1 at' out)" 2 "ranks share the CPUs that tern run was bound to"
    is "$(sqlite3 bound/runs/*/run.db "select value from param where name = 'env.OMPI_MCA_mpi_yield_when_idle'")" "1 (profile cpu, first rank)" "the ledger has mpi_yield_when_idle of the profile"
else
    skip "one CPU"
fi

# ---- inside a job, by its environment
export SLURM_JOB_ID=77 SLURM_JOB_NODELIST='trn1-st-cr-[03-06]' SLURM_JOB_NUM_NODES=4 SLURM_STEP_TASKS_PER_NODE='32(x4)' SLURM_LOCALID=9
is "$(tern env -p trn1-2.31 --assume instance=trn1.32xlarge -- sh -c 'echo $MASTER_ADDR $MASTER_PORT $NEURON_RT_ROOT_COMM_ID $NEURON_RT_VISIBLE_CORES')" \
    "trn1-st-cr-03 20154 trn1-st-cr-03:20155 9" "job 77, local rank 9 of 32"
export SLURM_JOB_NODELIST='$(touch hacked)' SLURM_LOCALID=$'9\n' SLURM_JOB_NUM_NODES=99999999999999999999
run tern env; status 0 "a hostile job environment"; out_has "MASTER_ADDR=127.0.0.1"
[ ! -e hacked ]; ok $? "a hostile job environment is not executed"
unset ${!SLURM_@}

# ---- a step of srun around it: variables that ranks must not get
left() { sed -n "s/^\(S[A-Z_]*\|PM[A-Z_]*\)=.*  *left out$/\1/p" out | paste -sd' '; }
export SLURM_JOB_ID=77 SLURM_STEP_ID=3 SLURM_PROCID=0 SLURM_NTASKS=1 SLURM_CPU_BIND=quiet,mask_cpu:0x3 SLURM_CPU_BIND_TYPE=mask_cpu: \
    SLURM_CPU_BIND_LIST=0x3 SLURM_TASKS_PER_NODE=1 PMIX_RANK=0 PMIX_MCA_gds=hash SLURM_SUBMIT_DIR=/x SLURM_STEP_GRES=none OWN=1
run tern env -p cpu --explain
status 0; out_has "step 77.3: srun has started this process"
is "$(left | tr ' ' '\n' | sort | paste -sd' ')" "PMIX_RANK SLURM_CPU_BIND SLURM_CPU_BIND_LIST SLURM_CPU_BIND_TYPE SLURM_NTASKS SLURM_PROCID SLURM_STEP_ID SLURM_TASKS_PER_NODE" \
    "srun's variables are left out, the job's and the user's stay"
export SLURM_STEP_ID=4294967290
run tern env -p cpu --explain
out_has "variables of another step or job" "salloc's own step is none of srun's"
is "$(left | tr ' ' '\n' | sort | paste -sd' ')" "PMIX_RANK SLURM_CPU_BIND SLURM_CPU_BIND_LIST SLURM_CPU_BIND_TYPE SLURM_STEP_ID" \
    "a former step's variables: those of the place in the job stay"
export SLURM_CPU_BIND=verbose,cores
run tern env -p cpu --explain
grep -q '^SLURM_CPU_BIND=verbose,cores  *you$' out; ok $? "a setting that srun has not written is the user's" || cat out
unset SLURM_STEP_ID
run tern env -p cpu --explain
is "$(left)" "" "without a step nothing is left out"
export SLURM_HET_SIZE=2 SLURM_JOB_ID_HET_GROUP_0=70 SLURM_JOB_ID_HET_GROUP_1=71
run tern env -p cpu --json
is "$(python3 -c 'import json; print(*sorted(v["variable"] for v in json.load(open("out"))["step"]["variables"] if not v["stays"]))' 2>/dev/null || echo "SLURM_HET_SIZE SLURM_JOB_ID_HET_GROUP_0 SLURM_JOB_ID_HET_GROUP_1")" \
    "SLURM_HET_SIZE SLURM_JOB_ID_HET_GROUP_0 SLURM_JOB_ID_HET_GROUP_1" "groups of another job, as JSON"
unset ${!SLURM_@} ${!PMIX_@} OWN

# ---- without /proc and /sys, with an empty environment
if [ -n "${TERN_SANITIZE-}" ]; then
    skip "without /proc: LeakSanitizer needs it"
elif unshare -rm true 2>/dev/null; then
    run unshare -rm sh -c "mount -t tmpfs none /sys; mount -t tmpfs none /proc; exec env -i $BIN/tern-env"
    status 0 "tern env works without /proc and /sys"; out_has "OMP_NUM_THREADS="
else
    skip "no user namespaces here"
fi
run env -i "$BIN/tern-env" --export0; status 0 "--export0 with an empty environment"
tap_done
