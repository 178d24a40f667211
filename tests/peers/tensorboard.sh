#!/bin/bash
# Event files of TensorFlow's and PyTorch's kind, written by the tensorboard package and by
# tensorboardX while a run goes on: their scalars come into the ledger.
. "$(dirname "$0")/../lib/tap.sh"
for v in $(compgen -e | grep -E '^(SLURM|TERN_(R|L|M))'); do unset "$v"; done
export TERN_LEDGER=$WORK/ledger
. "$ROOT/tests/lib/venv.sh"
venv tensorboard 'tensorboardX, tensorboard' tensorboard tensorboardX setuptools ||
    skip_all "the Python packages tensorboard and tensorboardX are not there and cannot be installed"

cat >trainer.py <<'PY'
import os, time
import numpy as np
from tensorboardX import SummaryWriter
from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from tensorboard.plugins.scalar.summary import scalar_pb   # the tensor form, as TensorFlow 2 writes it

old = SummaryWriter("tb/old")       # what an earlier attempt left
w = SummaryWriter("tb/lightning_logs/version_0")
for step in range(1, 6):
    w.add_scalar("train/loss", 10.0 / step, step)
    w.add_scalar("learning rate", 1e-4 * step, step)
    w.add_scalars("both", {"val": 100.0 + step, "train": 1.0 * step}, step)   # a folder each, the same tag
    w.add_histogram("weights", np.arange(1000.0), step)
    w.add_text("note", "x" * 2000000 if step == 2 else "y", step)   # longer than a reader's piece
    w.flush()
    time.sleep(0.1)
w.add_scalar("train/loss", float("nan"), 6)
w.close()
if os.path.exists("resume"):
    SummaryWriter("tb/again", purge_step=4).close()   # as trainers do that go on behind a checkpoint
t = EventFileWriter("tb/tensors")
for step in range(1, 4):
    t.add_event(event_pb2.Event(wall_time=time.time(), step=step, summary=scalar_pb("eval_loss", 3.5 - step)))
t.flush(); t.close()
PY
cat >before.py <<'PY'
from tensorboardX import SummaryWriter
w = SummaryWriter("tb/old")
w.add_scalar("stale", 1.0, 1)
w.close()
PY
"$VENV/bin/python" before.py; sleep 0.1
cat >run.yaml <<Y
version: 1
name: tb
ledger: {dir: ledger}
workload: {command: ["$VENV/bin/python", trainer.py], metrics: [{tensorboard: tb}]}
Y
run tern run run.yaml; status 0
value() { tern ledger sql -r latest -n -P "select group_concat(step || ':' || round(value, 6), ' ') from (select * from step where name = '$1' and value is not null order by step)"; }
"$VENV/bin/python" - >want <<'PY'
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
a = EventAccumulator("tb/lightning_logs/version_0", size_guidance={"scalars": 0}); a.Reload()
print(" ".join(f"{e.step}:{e.value:.6g}" for e in a.Scalars("train/loss") if e.value == e.value))
PY
is "$(tern ledger sql -r latest -n -P "select group_concat(step || ':' || printf('%.6g', value), ' ') from (select * from step where name = 'train/loss' and step < 6 order by step)")" \
    "$(cat want)" "simple values are those that TensorBoard shows"
is "$(tern ledger sql -r latest -n -P "select count(*) from step where name = 'train/loss'")" 6 "nan is a value"
is "$(value train/both)" "1:1.0 2:2.0 3:3.0 4:4.0 5:5.0" "a value of add_scalars has its folder's name"
is "$(value val/both)" "1:101.0 2:102.0 3:103.0 4:104.0 5:105.0" "a second value of add_scalars has its own folder's name"
is "$(value eval_loss)" "1:2.5 2:1.5 3:0.5" "tensors, as TensorFlow 2 writes them"
is "$(value learning_rate | cut -d' ' -f1)" "1:0.0001" "a name with a space"
is "$(tern ledger sql -r latest -n -P "select group_concat(distinct name) from step" | tr , '\n' | sort | tr '\n' ' ')" "eval_loss learning_rate train/both train/loss val/both " "nothing else, nor what an earlier attempt left"
# The same files as a run of their own, afterwards.
run tern ledger import tb/lightning_logs/version_0 --name after; status 0
is "$(tern ledger sql -r after -n -P "select group_concat(step || ':' || printf('%.6g', value), ' ') from (select * from step where name = 'train/loss' and step < 6 order by step)")" \
    "$(cat want)" "an import has the values that TensorBoard shows"
touch resume
run tern run run.yaml; status 0
is "$(tern ledger show latest -a -n -P -o resumed)" 3 "purge_step tells what a trainer resumed from"
tap_done
