#!/bin/bash
# Measurements of a step: MFU, each rank's times, a profile of one step.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/tiny.sh"
tiny_make
sed -i 's/steps: 8/steps: 5/; s/every: 1,/every: 0,/' run.yaml

sql() { tern ledger sql --ledger "$1" -r latest -n -P "$2"; }
counts() { # RANK NAME: how many spans of that name
    awk -v r="$1" -v n="$2" '$1 == r {c = $NF; sub(/^[0-9]* /, ""); sub(/ [0-9]*$/, ""); if ($0 == n) print c}' spans
}

run env TERN_TRAIN_PROFILE=trace.json tern run run.yaml --ranks 4 --set parallel.tensor=2 --set parallel.pipeline=2
status 0 "four ranks, profiled under tern run"
err_has "trace.json: where the time of step 3 went"
[ "$(ls trace.json*)" = trace.json ]; ok $? "no other file lies beside the profile"
run "$TOOLS/trace-check" trace.json
status 0 "spans lie apart or the model's sums within a pass, and what is received was sent"
cp out spans
for r in 0 1 2 3; do # 4 micro-batches of 2
    [ "$(counts $r forward) $(counts $r backward) $(counts $r send) $(counts $r receive)" = "4 4 4 4" ]
    ok $? "rank $r: each micro-batch forward and backward, sent and received" || sed 's/^/# /' spans
    [ "$(counts $r 'tensor ranks')" -ge 8 ] && [ "$(counts $r data) $(counts $r update)" = "1 1" ]
    ok $? "rank $r: sums of the tensor ranks, data, update"
done
grep -q '"name": "rank 3: stage 1, data 0, tensor 1"' trace.json; ok $? "the profile names each rank's place"
sql ledger "select name from step where step = 5" >names
for r in 0 1 2 3; do for p in data_seconds forward_seconds backward_seconds comm_seconds update_seconds memory_bytes memory_predicted_bytes; do echo "rank$r/$p"; done; done | sort >wanted
grep '^rank' names | sort | cmp -s - wanted; ok $? "each rank's phases and memory are recorded" || cat names
sql ledger "select s.step, r.name, s.value, sum(p.value) from step s, step r, step p where s.name = 'step_seconds' and r.step = s.step and r.name like 'rank_/data_seconds' and p.step = s.step and p.name like substr(r.name, 1, 6) || '%_seconds' group by s.step, r.name" >sums
awk -F'|' '{if (!($4 >= 0.999 * $3)) bad = 1} END {exit !(NR == 20 && !bad)}' sums; ok $? "the phases of a step add up to its time" || cat sums
[ "$(sql ledger "select count(*) from step lo, step mid, step hi where lo.step = mid.step and mid.step = hi.step and lo.name = 'backward_seconds_min' and mid.name = 'backward_seconds_median' and hi.name = 'backward_seconds_max' and lo.value > 0 and lo.value <= mid.value and mid.value <= hi.value")" = 5 ]
ok $? "phases have the least, the median and the most of ranks"
[ "$(sql ledger "select count(*) from step s, step m where s.name = 'backward_seconds_max' and m.step = s.step and m.name like 'rank_/backward_seconds' and m.value = s.value")" -ge 5 ]
ok $? "the least and the most of a phase are values of a rank"
[ "$(sql ledger "select count(*) from step a, step b where a.name = 'comm_seconds' and b.name = 'rank0/comm_seconds' and a.step = b.step and a.value = b.value")" = 5 ]
ok $? "rank 0's time is the same under both names"
[ "$(sql ledger "select count(*) from step m, step s, step r where m.name = 'mfu' and s.name = 'slowest_rank' and r.name = 'step_seconds' and s.step = m.step and r.step = m.step and m.value > 0 and s.value between 0 and 3")" = 5 ]
ok $? "each step has its MFU, and a rank that is the slowest"

# MFU by hand: 6 FLOPs a weight of a product, 4 a position before, forward and twice backward.
flops=$((8 * 32 * 3 * (2 * (2 * (32 * 32 * 2 + 32 * 16 * 2 + 3 * 32 * 64) + 32 * 800) + 2 * 2 * 32 * 32)))
agree() { # LEDGER FLOPS
    sql "$1" "select m.value, s.value, p.value from step m, step s, param p where m.name = 'mfu' and s.name = 'step_seconds' and s.step = m.step and p.name = 'peak_gflops'" |
        awk -F'|' -v f="$2" '{d = $1 * $2 * $3 * 1e9 / f - 1; if (d > 0.02 || d < -0.02) bad = 1} END {exit !(NR == 5 && !bad)}'
}
agree ledger $flops; ok $? "MFU is the step's FLOPs by its time by the peak" || sql ledger "select * from param"
params() { sql "$1" "select name || '=' || value from param where name in ('kernels', 'peak_unit') order by name" | paste -sd' '; }
is "$(params ledger)" "$(tern train run.yaml --explain | sed -n 's/^kernels: \([^;]*\); unit of the products: \([^ ]*\) .*/kernels=\1 peak_unit=\2/p')" "the ledger has the kernels and the unit that --explain names"
case "$(params ledger)" in *peak_unit=fp32) true ;; *) false ;; esac; ok $? "the unit of a run in fp32 is fp32 in the ledger"
rm -rf checkpoints
run tern run run.yaml --ranks 1 --set ledger.dir=ledger16 --set precision=bf16; status 0 "a run in bf16 under tern run"
is "$(params ledger16)" "$(tern train run.yaml --set precision=bf16 --explain | sed -n 's/^kernels: \([^;]*\); unit of the products: \([^ ]*\) .*/kernels=\1 peak_unit=\2/p')" "the ledger of a run in bf16 has the unit that --explain names"
rm -rf checkpoints
run tern run run.yaml --ranks 1 --set ledger.dir=ledger1 --set 'lora={rank: 2, alpha: 2, targets: [q_proj]}'
status 0
agree ledger1 $((flops - 8 * 32 * (2 * (2 * (32 * 32 * 2 + 32 * 16 * 2 + 3 * 32 * 64) + 32 * 800) + 2 * (32 * 32 + 32 * 16 * 2) - 6 * 2 * 2 * (32 + 32))))
ok $? "gradients are of adapters, not of frozen weights"
[ "$(sql ledger1 "select count(*) from step where name like 'rank%/%'")" = 0 ]; ok $? "a single rank's phases are recorded once"

# Without tern run, sums over data ranks, ZeRO-1; the last step where there is no third.
rm -rf checkpoints
run tern train run.yaml --profile one.json --set steps=2
status 0; err_has "one.json: where the time of step 2 went"
run "$TOOLS/trace-check" one.json
status 0; cp out spans
[ "$(counts 0 forward) $(counts 0 backward) $(counts 0 send)" = "4 4 " ]; ok $? "one rank alone sends no message"
rm -rf checkpoints
run env TERN_FABRIC_SHARE=1 TERN_TRAIN_PROFILE=zero.json tern run run.yaml --ranks 2 --set ledger.dir=ledger2 --set parallel.zero=1
status 0 "two ranks without shared memory run"
run "$TOOLS/trace-check" zero.json
status 0; cp out spans
for r in 0 1; do
    [ "$(counts $r 'begin sums')" -ge 1 ] && [ "$(counts $r 'wait for sums') $(counts $r gather)" = "1 1" ]
    ok $? "rank $r: sums over the data ranks, and parameters back" || sed 's/^/# /' spans
    [ "$(counts $r 'begin sums in backward')" -ge 1 ]; ok $? "rank $r: they begin while the backward pass goes on" || sed 's/^/# /' spans
done
grep -q '"pid": 1, "tid": 1' zero.json; ok $? "each rank without shared memory is a node"

# Profiles that cannot be made.
rm -rf checkpoints
run tern train run.yaml --profile none/trace.json
status 0 "a profile that cannot be written ends no run"; err_has "no profile: none/trace.json"
err_has "step 5/5"
run tern train run.yaml --profile late.json
status 0; err_has "no profile: the run ended before step 5"
[ ! -e late.json ]; ok $? "a finished run has no profile"

# Ranks that crowd a core, of which rank 0 oversleeps: their work of that time does not count as done at once.
# No core does 512 GFLOP/s (two 512-bit units at 8 GHz).
if [ -n "${TERN_SANITIZE-}" ]; then
    skip "the peak where rank 0 oversleeps: the sanitizer wants to be loaded first"
else
    gcc -shared -fPIC -x c -o late.so - -ldl <<'C'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
int nanosleep(const struct timespec *t, struct timespec *left)
{
    const char *rank = getenv("PMIX_RANK") ? getenv("PMIX_RANK") : getenv("SLURM_PROCID");
    struct timespec longer = *t;
    if (rank && strcmp(rank, "0") == 0 && t->tv_sec == 0 && t->tv_nsec < 800000000)
        longer.tv_nsec += 150000000;
    return ((int (*)(const struct timespec *, struct timespec *))dlsym(RTLD_NEXT, "nanosleep"))(&longer, left);
}
C
    tries=$(long && echo 4 || echo 2)
    for _ in $(seq "$tries"); do # it oversleeps at that meeting in one run of three
        rm -rf checkpoints
        run env LD_PRELOAD="$WORK/late.so" taskset -c "$(taskset -cp $$ | sed 's/.*: //; s/[,-].*//')" \
            tern run run.yaml --ranks 16 --set batch='{global: 16, micro: 1, seq_len: 32}' --set ledger.dir=late
        sql late "select value from param where name = 'peak_gflops'"
    done >peaks
    awk '!($1 > 0) {bad = 1} END {exit !(NR == n && !bad)}' n="$tries" peaks
    ok $? "a run whose rank 0 oversleeps has a peak" || sed 's/^/# /' peaks err
    bound "$(sort -g peaks | tail -n 1)" 512 "GFLOP/s of the peak of a core whose rank 0 oversleeps"
fi

# Ranks on nodes of their own, whose clocks are 5000 s apart: barriers tell by how much, and how closely.
if [ -n "${TERN_SANITIZE-}" ] || ! command -v mpirun >/dev/null || ! unshare --time --fork --boottime 5000 true 2>/dev/null; then
    skip "a clock of its own for a rank: no time namespace, no mpirun, or a sanitizer that libpmix does not pass"
else
    printf '#!/bin/sh\n[ "$OMPI_COMM_WORLD_RANK" = 1 ] && exec unshare --time --fork --kill-child --boottime 5000 "$@"\nexec "$@"\n' >later
    chmod +x later
    . "$ROOT/tests/lib/mpirun.sh"
    rm -rf checkpoints
    TERN_FABRIC_SHARE=1 run timeout 600 mpirun $root --oversubscribe -n 2 ./later tern train run.yaml --set steps=5 --set parallel.pipeline=2 --set 'data.held_out=[]' --profile apart.json
    status 0 "two ranks whose clocks are 5000 s apart"
    run "$TOOLS/trace-check" apart.json
    status 0 "a message is received after a rank with another clock began to send it"
    [ "$(grep -c '"process_name"' apart.json)" = 2 ] && grep -o '"ts": [-0-9.]*' apart.json | awk '{bad += $2 < 0 || $2 > 6e7} END {exit bad || !NR}'
    ok $? "ranks with different clocks are on one time axis"
fi
tap_done
