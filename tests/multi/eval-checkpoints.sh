#!/bin/bash
# tern eval RUN --checkpoints: every checkpoint of a run evaluated, recorded, and not evaluated again.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/tiny.sh"
unset TERN_LEDGER TERN_RUN_SPOOL COLUMNS
tiny_make 2>/dev/null
sed -i 's/keep: 2/keep: 20/; s/^checkpoint:/evaluate: {every: 4, stop: {metric: held, patience: 9}}\n&/' run.yaml
run tern run run.yaml --ranks 1; status 0 "a run of 8 steps, each with a checkpoint"
export TERN_LEDGER=$WORK/ledger
evals() { tern ledger show tiny --evals -P -n -o step,set,ppl,attempt,by "$@"; } # of the ledger, a line each
evals >own; is "$(cut -d'|' -f1 own | paste -sd' ')" "0 4 8" "the run evaluated itself at steps 0, 4 and 8"

# ---- which
run tern eval tiny --checkpoints 2..3; status 0
is "$(awk 'NR > 1 && $1 ~ /^[0-9]/ {print $1}' out | paste -sd' ')" "2 3" "--checkpoints A..B evaluates steps A to B"
grep -qE "^ +2 +512  held +[0-9]+\.[0-9]{4} +[0-9]+\.[0-9]{4}$" out; ok $? "a row has step, tokens of training, set and both perplexities" || cat out
has out "best on held: "; [ -z "$(wider 79 out)" ]; ok $? "the table fits 80 columns"
run tern eval tiny --checkpoints latest; is "$(awk 'NR == 2 {print $1}' out)" 8 "--checkpoints latest evaluates the newest"
run tern eval tiny --checkpoints best; is "$(awk 'NR == 2 {print $1}' out)" 8 "best is that of evaluate.stop"
run tern eval tiny --checkpoints 5; is "$(awk 'NR == 2 {print $1, NF}' out)" "5 5" "--checkpoints STEP evaluates one step"
for which in 9 9..12 x 5..3 .. 1..x ''; do run tern eval tiny --checkpoints "$which"; status 2 "--checkpoints '$which' is refused"; one_line; done
run tern eval tiny --checkpoints 9; err_has "has none of these steps; there are 1 to 8"
run tern eval tny --checkpoints all; status 2; err_has "did you mean 'tiny'?"; one_line
run tern eval run.yaml --only --json --data checkpoint=data/test.tds; status 2; err_has "a held-out set is called checkpoint"; one_line
run tern eval run.yaml --again; status 2; err_has "--again is about --checkpoints"; one_line

# ---- recorded, beside the run's own
run tern eval tiny --checkpoints all; status 0
is "$(awk '/known/ {print $1}' out | paste -sd' ')" "2 3 5 8" "checkpoints that the run or tern eval evaluated are known, and not evaluated again"
run tern eval run.yaml --checkpoints all; status 0 "the run's recipe names it, too"; is "$(grep -c known out)" 8 "nothing is evaluated twice"
evals >now; grep -E '^(0|4|8)\|' now | diff - own; ok $? "what the run measured itself is as it was"
is "$(cut -d'|' -f1 now | paste -sd' ')" "0 1 2 3 4 5 6 7 8" "tern ledger show has all checkpoints"
grep -E '^(1|2|3|5|6|7)\|' now | grep -vqE "\|1\|tern [0-9.]+, [a-z0-9]+ kernels, 1 rank$"; [ $? = 1 ]; ok $? "each says by what it was evaluated" || cat now
run tern ledger plot tiny --held-out --json; python3 -c 'import json; c, = json.load(open("out")); assert [p["step"] for p in c["points"]] == list(range(9)), c'; ok $? "tern ledger plot --held-out has all checkpoints"
run tern ledger show tiny; status 0; ! grep -q checkpoint_sha256 out; ok $? "tern ledger show prints no JSON of events"; [ -z "$(wider 80 out)" ]; ok $? "tern ledger show fits 80 columns"
run tern ledger show tiny --json; python3 - out <<'P'; ok $? "--json: digests of weights and set, precision"
import json, sys
r = json.load(open(sys.argv[1]))
e = {x["step"]: x for x in r["evals"]}
made = {c["step"]: c for c in r["checkpoints"]}
assert "by" not in e[4] and e[5]["precision"] == "fp32" and len(e[5]["set_sha256"]) == 64, e[5]
assert e[5]["checkpoint_sha256"] in made[5].values(), (e[5], made[5])
P
run tern ledger list -P -n -o state; is "$(cat out)" done "an evaluation makes no run look alive"
run tern ledger verify tiny; status 0 "evaluations are sound records"
id=$(tern ledger list -P -n -o id); run tern ledger fold --rebuild "$id"; evals | diff - now; ok $? "a rebuild has the same evaluations"
is "$(sqlite3 "ledger/runs/$id/run.db" "SELECT count(*) FROM eval_effective")" 9 "plain sqlite3 has them"

# ---- again, on several ranks, in another precision
run tern eval tiny --checkpoints all --json; cp out one.json
run tern eval tiny --checkpoints all --again --ranks 3 --json; status 0; python3 - one.json out <<'P'; ok $? "--ranks 3 gives the values of one"
import json, math, sys
a, b = (json.load(open(f)) for f in sys.argv[1:])
assert [c["step"] for c in a["checkpoints"]] == [c["step"] for c in b["checkpoints"]] == list(range(1, 9))
assert b["by"].endswith("3 ranks") and not b["damaged"]
for x, y in zip(a["checkpoints"], b["checkpoints"]):
    x, y = x["sets"]["held"], y["sets"]["held"]
    assert x["known"] and not y["known"] and math.isclose(x["nll"], y["nll"], rel_tol=1e-6) and x["tokens"] == y["tokens"], (x, y)
P
evals | diff - now | grep -q '^> [048]'; [ $? = 1 ]; ok $? "--again leaves what the run measured itself"
evals >now
run tern eval tiny --checkpoints all --set precision=bf16; status 0; ! grep -q known out; ok $? "another precision is evaluated anew"
err_has "is not the run's: recorded, but not among the run's own values"
evals | diff - now; ok $? "values of another precision are not the run's"
run tern eval tiny --checkpoints 1..3 --set precision=bf16; is "$(grep -c known out)" 3 "values of another precision are recorded all the same"
run tern eval tiny --checkpoints 1..2 --set batch.seq_len=16; ! grep -q known out; ok $? "rows of another length are another evaluation"

# ---- other sets
run tern eval tiny --checkpoints 7..8 --data own=data/train.tds; status 0
is "$(grep -c 'held.*known' out) $(grep -c '^ *own ' out)" "2 2" "--data: a further set, and the other is known"
is "$(evals | grep -c '|own|')" 2 "a further set is recorded"
run tern eval tiny --checkpoints all --data own=data/test.tds; status 2; err_has "is not the set 'own' that this run was evaluated on"; one_line
run tern eval tiny --checkpoints all --data held=data/train.tds; status 2; err_has "there is a set of that name already"; one_line
cp data/test.tds kept.tds; cp data/train.tds data/test.tds
run tern eval tiny --checkpoints all; status 2 "a held-out set whose file was changed is refused"; err_has "is not the set 'held' that this run was evaluated on"; one_line
cp kept.tds data/test.tds
for data in data/train.tds =x own=; do run tern eval tiny --checkpoints all --data "$data"; status 2 "--data $data is refused"; one_line; done
run tern eval run.yaml --only --data own=data/train.tds; status 0; out_has "own "

# ---- damaged checkpoints are named and left out
cp -r checkpoints sound
truncate -s -1 "$(ls checkpoints/step-00000003/shard-*)"
printf 'flip' | dd of="$(ls checkpoints/step-00000006/shard-*)" bs=1 seek=20000 conv=notrunc 2>/dev/null
for ranks in $(long && echo 1) 2; do
    run tern eval tiny --checkpoints all --again --ranks $ranks; status 1 "damaged checkpoints give their exit status (ranks $ranks)"
    err_has "2 of 8 checkpoints cannot be read, and were left out"
    is "$(grep -c 'warning.*step-0000000[36].*left out' err)" 2 "each damaged checkpoint is named (ranks $ranks)" || cat err
    is "$(awk 'NR > 1 && $1 ~ /^[0-9]/ {print $1}' out | paste -sd' ')" "1 2 4 5 7 8" "the others are evaluated (ranks $ranks)"
done
run tern eval tiny --checkpoints 3..4 --json; status 1; python3 -c 'import json; r = json.load(open("out")); assert [d["step"] for d in r["damaged"]] == [3] and [c["step"] for c in r["checkpoints"]] == [4], r'; ok $? "--json names the damaged ones"
rm -rf checkpoints; mv sound checkpoints

# ---- what is no damage ends the command
for ranks in $(long && echo 1) 2; do
    run tern eval tiny --checkpoints all --set batch.seq_len=4096 --ranks $ranks; status 2 "rows that are longer than the model takes are a usage error (ranks $ranks)"
    err_has "batch.seq_len: 4096 tokens"; ! grep -q 'left out' err; ok $? "no checkpoint is called damaged then (ranks $ranks)" || cat err
done
if [ -n "${TERN_SANITIZE-}" ]; then
    skip "faults of one rank: the sanitizer wants to be loaded first"
else
    # open(2) of a path with $FAIL fails in the third child, rank 2; with $HOLD it waits for a file, "go".
    gcc -shared -fPIC -x c -o open.so - -ldl <<'C' || exit 1
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <fcntl.h>
static int children, self = -1;
pid_t fork(void)
{
    pid_t pid = ((pid_t(*)(void))dlsym(RTLD_NEXT, "fork"))();
    if (pid == 0)
        self = children;
    children++;
    return pid;
}
static int real(const char *path, int flags, int mode)
{
    return ((int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open64"))(path, flags, mode);
}
int open64(const char *path, int flags, ...)
{
    const char *fail = getenv("FAIL"), *hold = getenv("HOLD");
    va_list more;
    va_start(more, flags);
    int mode = flags & O_CREAT ? va_arg(more, int) : 0;
    va_end(more);
    if (fail && self == 2 && strstr(path, fail)) {
        close(real("failed", O_CREAT | O_WRONLY, 0600));
        return errno = atoi(getenv("FAIL_ERRNO")), -1;
    }
    if (hold && strstr(path, hold)) {
        close(real("held", O_CREAT | O_WRONLY, 0600));
        while (access("go", F_OK) < 0)
            usleep(5000);
    }
    return real(path, flags, mode);
}
C
    faulty() { rm -f failed; run env LD_PRELOAD="$WORK/open.so" FAIL="$1" FAIL_ERRNO="$2" tern eval tiny --again --checkpoints "${@:3}"; [ -e failed ]; ok $? "rank 2 cannot open it"; }
    faulty step-00000003/shard 5 2..4 --ranks 3; status 75 "a passing fault of one rank ends all (EIO)"
    is "$(grep -c 'Input/output error' err)" 1 "the cause of the failed evaluation is printed"; ! grep -q 'left out' err; ok $? "a checkpoint with a passing read error is not called damaged" || cat err
    faulty step-00000003/shard 13 2..4 --ranks 3; status 1 "what one rank cannot read is left out"
    err_has "1 of 3 checkpoints cannot be read"; is "$(grep -c 'Permission denied' err)" 1 "the cause is printed, whichever rank has it" || cat err
    is "$(awk 'NR > 1 && $1 ~ /^[0-9]/ {print $1}' out | paste -sd' ')" "2 4" "all ranks go on with the next"

    cp -r checkpoints sound
    printf 'flip' | dd of="$(ls checkpoints/step-00000003/shard-*)" bs=1 seek=20000 conv=notrunc 2>/dev/null
    faulty step-00000003/shard 5 2..4 --ranks 3; status 75 "a passing fault of one rank ends all, damage or not"
    rm -r checkpoints; mv sound checkpoints

    # ---- a run that goes on meanwhile: checkpoints are removed, steps evaluated
    held() { # STEP ARGS...: tern eval, in the background, which waits at the checkpoint of that step
        rm -f held go; env LD_PRELOAD="$WORK/open.so" HOLD="step-0000000$1/shard" tern eval tiny --again --checkpoints "${@:2}" >out 2>err & pid=$!
        cmd="tern eval, held"; until_true test -e held
    }
    let_go() { : >go; wait $pid; rc=$?; }
    cp -r checkpoints sound
    held 2 2..4 --json; rm -r checkpoints/step-00000003; let_go; status 0
    is "$(jq -c '[[.checkpoints[].step], [.removed[].step], .damaged]' out)" '[[2,4],[3],[]]' "--json names what was removed before its turn"; err_has "step-00000003: was removed before it was evaluated"
    held 2 2; rm -r checkpoints/step-00000002; let_go; status 1 "nothing evaluated is a failure"; err_has "nothing was evaluated"
    rm -rf checkpoints; mv sound checkpoints
    cp -r ledger before; held 6 6
    WRITER_NAME=tiny WRITER_EVERY=6 WRITER_SETS=held "$TOOLS/ledger-writer" ledger "$id" 1 0 6 6 >/dev/null; evals | grep '^6|' >own
    let_go; status 0; evals | grep "^6|" | diff - own; ok $? "what the run has evaluated meanwhile stays"
    rm -r ledger; mv before ledger
fi

# ---- killed: what it told is recorded; going on does the rest
# On a busy machine all may have ended by then: a longer set, then.
for size in $(long && echo 40 || echo 12) 100 400; do
    for i in $(seq $size); do cat train.jsonl; done >long.jsonl
    rm -f long.tds told; tern data build --tokenizer model -o long.tds long.jsonl 2>/dev/null
    tern eval tiny --checkpoints all --data long=long.tds >told 2>/dev/null & pid=$!
    until_true grep -qs '^ *long ' told; kill -9 $pid; wait $pid 2>/dev/null
    n=$(grep -c '^ *long ' told); [ "$n" = 8 ] || break
done
[ "$n" -lt 8 ]; ok $? "an evaluation is killed before its end ($n of 8 were printed)"
run tern eval tiny --checkpoints all --data long=long.tds; status 0 "a killed evaluation goes on"
paste -d' ' <(awk '$1 ~ /^[0-9]+$/ {print $1}' out) <(grep '^ *long ' out) >rows
is "$(head -n "$n" rows | grep -c known)" "$n" "the $n of 8 evaluations that it had printed are known" || cat told out
is "$(evals | grep -c '|long|')" 8 "all evaluations are recorded in the end"

# ---- a ledger that takes nothing, and none
chmod a-w ledger/runs/"$id"/spool/1 ledger/runs/"$id"/spool
if [ "$(id -u)" != 0 ]; then run tern eval tiny --checkpoints 1 --again; status 0; err_has "evaluations are not recorded"; fi
chmod u+w ledger/runs/"$id"/spool/1 ledger/runs/"$id"/spool
rm -rf lone; mkdir lone; cp -r model data run.yaml lone; cd lone || exit 1
sed -i '/^ledger:/d; s/^steps: 8/steps: 2/' run.yaml; unset TERN_LEDGER
run tern train run.yaml; status 0
run tern eval run.yaml --checkpoints all; status 0 "a run that no ledger has is evaluated"; err_has "nothing is recorded"; is "$(grep -c ' held ' out)" 2 "both checkpoints of a run that no ledger has are evaluated"
run tern eval tiny --checkpoints all; status 2; err_has "no ledger is named"; one_line
tap_done
