#!/bin/bash
# The line of progress: on a terminal, in a file, interrupted; and that each long command has one.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/tiny.sh"
for v in $(compgen -e | grep -E '^(SLURM|TERN_(R|L))'); do unset "$v"; done
command -v script >/dev/null || skip_all "util-linux's script is not installed"
T=$ROOT/tests/golden/spm-bpe-800.model
tiny_make >made 2>&1 || { cat made; exit 1; }
sed -i 's/^launch: .*/launch: {threads: 1, health: off}/' run.yaml
export TERM=xterm

# pty COLUMNS COMMAND: what it wrote to a terminal is ./seen, its status $rc.
pty() { cmd=$2; script -qec "stty cols $1; $2" /dev/null >seen 2>&1 </dev/null; rc=$?; }
# What is on the terminal in the end: text before a line's last clearing is gone.
screen() { sed -e 's/\r$//' -e 's/.*\r\x1b\[K//' seen; }
# What was drawn, one a line.
drawn() { tr '\r' '\n' <seen | sed -n 's/^\x1b\[K\(..*\)/\1/p' | grep -v '^tern'; }
every() { TERN_PROGRESS_MS=0 pty "$@"; }

# ---- on a terminal
cp text.jsonl more.jsonl; TEXTS='train.jsonl text.jsonl test.jsonl more.jsonl'
every 80 "tern data build -t $T -o a.tds $TEXTS"; status 0
drawn | grep -qE '^a\.tds: [0-9]+ %, [0-9.]+ [kMG]?B/s, [0-9]+ s left$'; ok $? "a line has share, rate and time left" || drawn | tail -3
screen >shown; has shown 'tern data: a.tds: 180 documents' "the message of the end is on the screen"
grep -q '%' shown; [ $? = 1 ]; ok $? "no line of progress stays on the screen" || cat -v shown
every 20 "tern data verify a.tds a.tds"; status 0
drawn >lines; [ -s lines ] && [ -z "$(wider 19 lines)" ]; ok $? "lines fit into 20 columns" || cat lines
is "$(screen)" "$(printf 'a.tds: ok\na.tds: ok')" "the screen holds the results alone"
# (Half a second, where nothing is set: unit/progress, with a clock of its own.)
TERN_PROGRESS_MS=60000 pty 80 "tern data verify a.tds"; is "$(tr -d '\r' <seen)" "a.tds: ok" "work that ends before its first line is due has none"
TERM=dumb every 80 "tern data verify a.tds"; has seen 'tern data: a.tds: ' "TERM=dumb: lines are messages"; grep -q $'\x1b' seen; [ $? = 1 ]; ok $? "TERM=dumb: messages move no cursor"

# ---- in a file
run tern data build -t "$T" -o b.tds $TEXTS; status 0; grep -qE '%|left$' err; [ $? = 1 ]; ok $? "a file has no line before a minute has passed" || cat err
run env TERN_PROGRESS_MS=0 tern data build -t "$T" -o b.tds $TEXTS; status 0
grep -qE '^tern data: b\.tds: [0-9]+ %, [0-9.]+ [kMG]?B/s, [0-9]+ s left$' err; ok $? "TERN_PROGRESS_MS=0 prints messages" || cat err
grep -q $'[\r\x1b]' err; [ $? = 1 ]; ok $? "whose lines are whole"
run env TERN_PROGRESS_MS=0 TERN_LOG_LEVEL=warn tern data build -t "$T" -o b.tds $TEXTS; is "$(cat err)" "" "TERN_LOG_LEVEL=warn: no line"

# ---- each command
shows() { # TEXT COMMAND [STATUS]: draws TEXT and a share, and the screen is clean in the end
    every 80 "$2"; status "${3:-0}"
    drawn | grep -qE "^$1: [0-9]+ %(\$|, [0-9.]+ [kMG]? ?[A-Za-z]+/(s|min))"; ok $? "${2%% -*} shows its progress" || { drawn | head -5; cat -v seen | tail -3; }
    screen | grep -qE ': [0-9]+ %(, |$)'; [ $? = 1 ]; ok $? "${2%% -*} leaves no line of it" || screen
}
TERN_PROGRESS_MS=0 run tern run run.yaml; status 0
run tern logs tiny --ledger ledger; has out 'step 8: evaluation on held: ' "evaluations inside a run are in its log"
shows 'ledger' 'tern ledger verify -l ledger'
shows 'ledger' 'tern ledger fold --rebuild -l ledger'
shows 'a\.tds' 'tern data stat a.tds -L 32 -t model'
shows 'training sets' 'tern data overlap a.tds --held-out data/test.tds'
shows 'rows' 'tern data export a.tds -o rows --seq-len 32'
shows 'c\.tds' 'tern data import rows -t model -o c.tds'
shows 'checkpoints/step-00000008' 'tern ckpt verify checkpoints/latest --full'
shows 'checkpoints/step-00000008' 'tern ckpt reshard checkpoints/latest -o again --shards 3'
shows 'arrays' 'tern ckpt diff --full --all checkpoints/step-00000007 checkpoints/step-00000008' 1
shows 'hf' 'tern ckpt export checkpoints/latest -o hf'
shows 'nxd' 'tern ckpt export hf -o nxd --to nxd --tensor 2 --pipeline 2'
shows 'back, finding them' 'tern ckpt export nxd -o back --from nxd --config hf'
drawn | grep -qE '^back: [0-9]+ %'; ok $? "the export shows how much it has written"
shows 'blend' 'tern ckpt blend hf back -o blend'
shows 'hf, held' 'tern eval run.yaml --only --checkpoint hf'
sed -i 's/config: model.config.json/from: hf/' run.yaml
run tern run run.yaml --set name=adapted --set lora.rank=2 --set checkpoint.dir=adapters --set steps=2; status 0
kept='--set name=mirrored --set checkpoint.dir=kept --set checkpoint.mirror=copies'
TERN_PROGRESS_MS=0 run tern run run.yaml $kept --set steps=2; status 0
run tern logs mirrored --ledger ledger; grep -qE ': (.*/)?hf: [0-9]+ %, [0-9.]+ [kM]? ?parameters/s' out; ok $? "a run that reads its weights says in its log how far it is" || head -20 out
rm -rf copies; shows 'mirrored' 'tern ckpt mirror mirrored --ledger ledger'
[ -s copies/step-00000002/manifest.json ]; ok $? "the copy is there"
TERN_PROGRESS_MS=0 run tern run run.yaml $kept --set steps=3; status 0
run tern logs mirrored --ledger ledger --attempt 2; grep -qE "step-00000002, the optimizer's state: [0-9]+ %" out; ok $? "one that goes on says so for the optimizer's state, too" || head -20 out
shows 'merged' 'tern ckpt merge adapters/latest -o merged'
every 80 'tern health quick'; drawn | grep -qE ': [0-9]+ %, [0-9.]+ k? ?checks/(s|min)'; ok $? "tern health shows its progress" || drawn | tail -3

# ---- interrupted
if strace -o /dev/null true 2>/dev/null; then
    every 80 "env ASAN_OPTIONS=detect_leaks=0 strace -o /dev/null -e trace=pread64 -e inject=pread64:signal=INT:when=20 tern ckpt verify --full checkpoints/latest"
    status 130 "Ctrl-C ends a verification"; [ -n "$(drawn)" ]; ok $? "the interrupted verification had drawn its line"
    is "$(screen)" "" "Ctrl-C leaves a clean screen"
else
    skip "strace may not trace here"
fi
tap_done
