#!/bin/bash
# Event files of tern, read by TensorBoard's own loaders: every point, and after a restart what the
# ledger shows.
. "$(dirname "$0")/../lib/tap.sh"
for v in $(compgen -e | grep -E '^(SLURM|TERN_(R|L|M))'); do unset "$v"; done
. "$ROOT/tests/lib/venv.sh"
. "$ROOT/tests/lib/tiny.sh"
venv tensorboard 'tensorboardX, tensorboard' tensorboard tensorboardX setuptools ||
    skip_all "the Python packages tensorboard and tensorboardX are not there and cannot be installed"
export TERN_LEDGER=$WORK/ledger
tiny_make >made 2>&1 || { cat made; exit 1; }
sed -i 's/^ledger: .*/ledger: {dir: ledger, tensorboard: board}/; s/every: 1, keep: 2/every: 2, keep: 9/; s/^  seed: 5/  seed: 5\nevaluate: {every: 2}/' run.yaml
run tern run run.yaml --set steps=6; status 0
rm -rf checkpoints/step-0000000[46] checkpoints/latest
run tern run run.yaml --set steps=8; status 0
is "$(tern ledger show -a -n -P -o resumed | tail -1)" 2 "the second attempt went on from step 2"
run tern ledger export --tensorboard after; status 0
tern ledger sql -r latest -P "select name, step, value from step where class = 0" >effective
tern ledger sql -r latest -P "select name, step, value from step_all where class = 0" >all
tern ledger sql -r latest -P "select 'held_out/' || set_name || '/perplexity_token', step, ppl_token from eval_effective" >>effective
tern ledger sql -r latest -P "select 'held_out/' || set_name || '/perplexity_token', step, ppl_token from eval" >>all
cat >read.py <<'P'
import glob, struct, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

def table(path):
    rows = [line.rstrip("\n").split("|") for line in open(path)]
    return {(r[0], int(r[1]), struct.pack("f", float(r[2]))) for r in rows if len(r) == 3 and r[1].isdigit()}

def say(good, what):
    print(("" if good else "not ") + "ok - " + what)

for board in "board", "after":
    folder, = glob.glob(board + "/*")
    a = EventAccumulator(folder, size_guidance={"scalars": 0})
    a.Reload()
    shown = {(t, e.step, struct.pack("f", e.value)) for t in a.Tags()["scalars"] for e in a.Scalars(t)
             if e.value == e.value and not t.endswith("perplexity_byte")}
    wanted = table("effective")
    say(shown == wanted and len(shown) > 20, f"{board}: TensorBoard shows the ledger's {len(wanted)} values after a restart")
    for row in list(shown ^ wanted)[:4]:
        print("#", row, "shown" if row in shown else "in the ledger")
    points, sessions = set(), []
    for path in sorted(glob.glob(folder + "/events*")):
        for e in LegacyEventFileLoader(path).Load():
            points |= {(v.tag, e.step, struct.pack("f", v.simple_value)) for v in e.summary.value
                       if v.simple_value == v.simple_value and not v.tag.endswith("perplexity_byte")}
            if e.HasField("session_log"):
                sessions.append((e.session_log.status, e.step))
    say(points == table("all"), f"{board}: the files have all {len(points)} points, superseded ones too")
    say(sessions == [(1, 3)], f"{board}: the second attempt's session starts at step 3")
P
tap_lines < <("$VENV/bin/python" -I read.py 2>log || { sed 's/^/# /' log; echo "not ok - TensorBoard reads the files"; })
[ "$tap_n" -ge 10 ]; ok $? "TensorBoard's values of both folders were compared" || tail -5 log
tap_done
