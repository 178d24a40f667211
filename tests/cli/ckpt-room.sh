#!/bin/bash
# tern ckpt du and prune: the room that checkpoints take, and what goes.
. "$(dirname "$0")/../lib/tap.sh"
T=$TOOLS/ckpt-tool
"$T" model hf || exit 1
for s in 10 20 30 40 50 60; do "$T" save run $s 2 hf || exit 1; done
mkdir run/step-00000070.tmp-1 run/.trash-step-00000005-0a0b0c0d run/other
head -c 5000 /dev/zero >run/step-00000070.tmp-1/shard; head -c 3000 /dev/zero >run/.trash-step-00000005-0a0b0c0d/shard
mv run/step-00000060 run/step-00000060.bad-1
bytes() { find "$1" -type f -printf '%s\n' | awk '{s += $1} END {print s}'; }

# ---- du
run tern ckpt du run; status 0
is "$(grep -c step- out)" 8 "a line for each checkpoint, unfinished, refused and half-deleted ones, too"
grep -q '4.88 KiB .*step-00000070.tmp-1$' out && grep -q '2.93 KiB .*.trash-step-00000005-0a0b0c0d$' out; ok $? "ckpt du prints each checkpoint's size" || cat out
tail -n 1 out | grep -q 'in all'; ok $? "the last line has the sum"
run tern ckpt du --json run; status 0
is "$(jq '[.[].bytes] | add' out)" "$(bytes run)" "sizes in JSON are those of the files"
is "$(jq '.[] | select(.name == "step-00000010") | .weights + .optimizer + .other == .bytes' out)" true "the parts of a checkpoint are the whole of it"
is "$(jq '.[] | select(.name == "step-00000010") | .weights' out)" 338112 "weights are the arrays of the model"
run tern ckpt du nowhere; status 2; one_line
run tern ckpt du run/step-00000010; status 2; one_line; err_has 'is one checkpoint; give the folder that holds it'
mkdir links; cp -r run/step-00000010 links/; cp -r run/step-00000010 aside
ln -s ../aside links/step-00000099
run tern ckpt du --json links; status 0
is "$(jq -r '.[].name' out)" step-00000010 "a link with a checkpoint's name is none"
mkdir empty; run tern ckpt du empty; status 0

# ---- prune
run tern ckpt prune -n --keep 2 run; status 0
out_has '3 checkpoints and 2 unfinished would go'; out_has 'run/.trash-step-00000005-0a0b0c0d'; is "$(ls run | grep -c step-)" 7 "--dry-run removes nothing"
run tern ckpt prune --keep 2 --keep-every 20 run; status 0
out_has '2 checkpoints and 2 unfinished removed'; out_has 'run/step-00000010'
is "$(cd run && echo step-*)" "step-00000020 step-00000040 step-00000050 step-00000060.bad-1" "the newest two, milestones and refused ones stay, and nothing half"
[ ! -e run/.trash-step-00000005-0a0b0c0d ] && [ -d run/other ]; ok $? "trash goes, other folders stay"
[ -z "$(ls run | grep claim-)" ]; ok $? "nothing of the prune stays" || ls -A run
run tern ckpt verify --full run; status 0 "what stays verifies"
run tern ckpt prune --keep 3 run; status 0; out_has 'nothing is to be removed'
for bad in 1 0 -3; do run tern ckpt prune --keep "$bad" run; status 2 "prune --keep $bad is refused"; one_line; done
run tern ckpt prune --keep-every -1 run; status 2; one_line
run tern ckpt prune nowhere; status 2; one_line; [ ! -e nowhere ]; ok $? "a folder that is not there is not made"
run tern ckpt prune run/step-00000050; status 2; one_line

# ---- names that people give
cp -r run named; (cd named && ln -s step-00000020 gold && ln -s "$WORK/named/step-00000040" paper && ln -s step-00000070 nothing && ln -s other elsewhere)
run tern ckpt prune -n --keep 2 named; status 0; out_has 'nothing would go' "a dry run knows links, too"
"$T" save named 80 2 hf; run tern ckpt prune --keep 2 named; status 0; out_has 'nothing is to be removed'
"$T" save named 90 2 hf; run tern ckpt prune --keep 2 named; status 0; is "$(cd named && echo step-*)" "step-00000020 step-00000040 step-00000060.bad-1 step-00000080 step-00000090" "those that a symbolic link beside them leads to stay, by a path or by a name"
rm named/gold; run tern ckpt prune --keep 2 named; status 0; is "$(cd named && echo step-*)" "step-00000040 step-00000060.bad-1 step-00000080 step-00000090" "prune removes a checkpoint whose link was removed"

# ---- beside a run that goes on
"$T" loop live 1 hf >loop.out 2>&1 & pid=$!
until_true grep -q '^saved 2$' loop.out
run tern ckpt prune --keep 2 live; [ "$rc" != 0 ]; ok $? "the folder of a run that goes on is refused"; one_line
kill -9 $pid; wait $pid 2>/dev/null
mkdir live/step-99999999.tmp-1
run tern ckpt prune -n --keep 2 live; status 0; out_has 'live/step-99999999.tmp-1' "a dry run lists what the dead attempt was writing"
[ -e live/step-99999999.tmp-1 ]; ok $? "a dry run leaves what the dead attempt was writing"
run tern ckpt prune --keep 2 live; status 0 "the folder of a run that died is pruned"
[ ! -e live/step-99999999.tmp-1 ]; ok $? "what the dead attempt was writing goes"

# ---- Ctrl-C, while the first line of the list waits for its reader
for s in 10 20 30 40 50 60; do "$T" save cut $s 2 hf || exit 1; done
mkfifo pipe; exec 9<>pipe; head -c 65536 /dev/zero >&9
tern ckpt prune --keep 2 cut >pipe 2>err & pid=$!
held() { [ -n "$(ls cut | grep '^claim-.*[0-9]$')" ]; }
until_true held; kill -INT $pid
cat <&9 >drained & cat=$!
wait $pid; rc=$?; kill $cat; wait $cat 2>/dev/null; exec 9>&-; cmd="an interrupted prune"
status 130; one_line; err_has 'interrupted; what is not listed stays'
[ "$(ls cut | grep -c '^step-')" -ge 5 ]; ok $? "an interrupted prune removes no more than it began" || ls -A cut
[ -z "$(ls -A cut | grep -e claim -e trash)" ]; ok $? "an interrupted prune gives the folder back" || ls -A cut
tap_done
