#!/bin/bash
# Hugging Face's Trainer and Lightning, as they are on PyPI: what comes into the ledger from what they
# print stands at the step that it is of, broken off and resumed or not; what nothing tells the step
# of is left out, with a word.
. "$(dirname "$0")/../lib/tap.sh"
for v in $(compgen -e | grep -E '^(SLURM|TERN_(R|L|M))'); do unset "$v"; done
. "$ROOT/tests/lib/venv.sh"
venv trainers 'torch, transformers, accelerate, lightning, rich, tensorboardX' torch transformers accelerate lightning rich tensorboardX ||
    skip_all "torch, transformers and lightning are not there and cannot be installed"
export PATH=$VENV/bin:$PATH
python3 -c 'from importlib.metadata import version as v; print("# tried:", ", ".join(p + " " + v(p) for p in ("transformers", "torch", "lightning", "rich")))'

cat >hf.py <<'PY'
import json, os, sys
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments, set_seed
from transformers.trainer_utils import get_last_checkpoint

torch.set_num_threads(1)
set_seed(1)

class Rows(torch.utils.data.Dataset):
    def __init__(self, n): self.n = n
    def __len__(self): return self.n
    def __getitem__(self, i):
        x = torch.randint(0, 100, (16,), generator=torch.Generator().manual_seed(i))
        return dict(input_ids=x, labels=x.clone())

class Breaks(TrainerCallback):
    def on_step_end(self, args, state, control, **more):
        if state.global_step == 14 and os.path.exists("break"):
            os.unlink("break"); sys.stdout.flush(); os._exit(75)
    def on_log(self, args, state, control, logs=None, **more):
        if os.environ.get("TALKS"):
            print({"note": 1.5, "at": state.global_step}); print(logs)

model = LlamaForCausalLM(LlamaConfig(hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, vocab_size=100))
options = dict(max_steps=30, per_device_train_batch_size=4, logging_steps=2, save_steps=5, eval_strategy="steps", eval_steps=5,
               learning_rate=1e-3, report_to=[], use_cpu=True, save_total_limit=2)
options.update(json.loads(os.environ["OPTIONS"]))
t = Trainer(model, TrainingArguments("made", **options), train_dataset=Rows(200), eval_dataset=Rows(20), callbacks=[Breaks()])
t.train(resume_from_checkpoint=get_last_checkpoint("made") if os.path.isdir("made") else None)
json.dump({f"{k} {r['step']}": v for r in t.state.log_history for k, v in r.items() if k in ("loss", "eval_loss", "learning_rate", "train_loss")}, open("history.json", "w"))
PY
cat >pl.py <<'PY'
import json, os, sys
import torch
import lightning as L
from lightning.pytorch.callbacks import ModelCheckpoint, RichProgressBar, TQDMProgressBar

torch.set_num_threads(1)
L.seed_everything(1)
options = json.loads(os.environ["OPTIONS"])
history = json.load(open("history.json")) if os.path.exists("history.json") else {}

class Rows(torch.utils.data.Dataset):
    def __len__(self): return 80
    def __getitem__(self, i):
        x = torch.randn(8, generator=torch.Generator().manual_seed(i))
        return x, x.sum()[None]

class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.l = torch.nn.Linear(8, 1)
    def training_step(self, batch, i):
        loss = ((self.l(batch[0]) - batch[1]) ** 2).mean()
        self.log("train_loss", loss, prog_bar=True)
        if options.get("tells"):
            self.log("global_step", float(self.global_step), prog_bar=True)
            self.told = self.global_step
            history.setdefault(f"train_loss {self.global_step}", []).append(float(loss))
        return loss
    def configure_optimizers(self): return torch.optim.SGD(self.parameters(), lr=0.01)
    def on_train_batch_end(self, out, batch, i):
        if self.global_step == 26 and os.path.exists("break"):
            json.dump(history, open("history.json", "w"))
            os.unlink("break"); sys.stdout.flush(); sys.stderr.flush(); os._exit(75)

class Validates(Model):
    def validation_step(self, batch, i):
        self.log("val_loss", ((self.l(batch[0]) - batch[1]) ** 2).mean(), prog_bar=True)
    def on_validation_epoch_end(self):
        if hasattr(self, "told"):
            history.setdefault(f"val_loss {self.told}", []).append(float(self.trainer.callback_metrics["val_loss"]))
    def on_train_epoch_end(self):
        self.log("ended_epoch", float(self.current_epoch), prog_bar=True)

bar = RichProgressBar() if options.get("rich") else TQDMProgressBar(refresh_rate=1)
logger = L.pytorch.loggers.TensorBoardLogger(".") if options.get("logger") else False
t = L.Trainer(max_steps=50, accelerator="cpu", logger=logger, log_every_n_steps=1, enable_model_summary=False,
              callbacks=[ModelCheckpoint(dirpath="made", every_n_train_steps=10, save_top_k=-1), bar], accumulate_grad_batches=options.get("accumulate", 1))
saved = sorted((os.path.join("made", f) for f in os.listdir("made")), key=os.path.getmtime) if os.path.isdir("made") else []
batches = torch.utils.data.DataLoader(Rows(), batch_size=4)
t.fit(*([Validates(), batches, batches] if options.get("validates") else [Model(), batches]), ckpt_path=saved[-1] if saved else None)
json.dump(history, open("history.json", "w"))
PY
# What the ledger has against what the trainer says: how many are there, missing, at no step of theirs.
cat >compare.py <<'PY'
import json, subprocess, sys
want = {k: v if isinstance(v, list) else [v] for k, v in json.load(open("history.json")).items()}
rows = json.loads(subprocess.check_output(["tern", "ledger", "sql", "-r", "latest", "--json", "--max-rows", "0", "select step, name, value from step"]))
names = {k.split()[0] for k in want} | {"train_loss", "loss", "val_loss", "ended_epoch"}
got = {f"{r['name']} {r['step']}": float(r["value"]) for r in rows if r["name"] in names}
close = lambda a, b: abs(a - b) <= 6e-3 * max(abs(b), 0.1)
wrong = [k for k, v in got.items() if not any(close(v, w) for w in want.get(k, []))]
print(len(got), len(set(want) - set(got)), len(wrong), file=sys.stdout)
print("wrong:", [(k, got[k], want.get(k)) for k in sorted(wrong)][:8], "missing:", sorted(set(want) - set(got))[:40], file=sys.stderr)
PY
try() { # NAME SCRIPT METRICS OPTIONS broken|whole
    rm -rf made history.json break lightning_logs; mkdir -p "$1"
    [ "$5" = whole ] || touch break
    export TERN_LEDGER=$WORK/$1/ledger OPTIONS=$4
    printf 'version: 1\nname: %s\nledger: {dir: %s}\nlaunch: {restarts: 2}\nworkload: {command: %s, metrics: [%s]}\n' "$1" "$TERN_LEDGER" "${COMMAND:-[python3, $2]}" "$3" >run.yaml
    run tern run run.yaml; status 0 "a run of the trainer ends well: $1, $5"
    read -r there missing wrong < <(python3 compare.py 2>compared)
    is "$wrong" 0 "$1, $5: no value at a step that is not its own"
    [ "$wrong" = 0 ] || cat compared
}
word() { err_has "$1"; contains "$(tern ledger sql -r latest -n -P "select text from event where kind = 'metrics'")" "$1" "also in the ledger"; }
contains() { case $1 in *"$2"*) ok 0 "$3" ;; *) ok 1 "$3: '$1'" ;; esac; }

for how in whole broken; do
    try bar hf.py hf '{}' $how; is "$missing" 0 "hf with its progress bar: every value is there"
    try accumulates hf.py hf '{"gradient_accumulation_steps": 2, "logging_steps": 3, "max_steps": 21}' $how; is "$missing" 0 "hf with gradient accumulation: every value is there"
    # The bar of an evaluation that is as long as training's.
    try same hf.py hf '{"max_steps": 20, "eval_steps": 2, "logging_steps": 1, "per_device_eval_batch_size": 1, "eval_on_start": true}' $how
    is "$missing" 1 "an evaluation's bar of the same length changes nothing; before the first step there is no step"; word "workload.metrics: hf: "
    try none hf.py hf '{"disable_tqdm": true}' $how; is "$there" 0 "hf without a progress bar: no value is recorded"; word "workload.metrics: hf: "
done
TALKS=1 try talks hf.py hf '{}' broken; is "$missing" 0 "dicts that a callback prints come to no other step"
# Stdout that comes later than the bar on stderr, and both together.
COMMAND='[sh, -c, "python3 hf.py | tee train.log"]' try tee hf.py hf '{}' whole
COMMAND='[sh, -c, "python3 hf.py 2>&1 | tee train.log"]' try both hf.py hf '{}' whole; is "$missing" 0 "both streams through one pipe keep their order"
COMMAND='[sh, -c, "python3 hf.py | sort"]' try held hf.py hf '{}' whole; is "$there" 0 "dicts that a filter holds back get no step"; word "workload.metrics: hf: "
COMMAND='[env, -u, PYTHONUNBUFFERED, python3, hf.py]' try buffered hf.py hf '{}' whole; is "$there" 0 "dicts that a buffer holds back get no step"; word "workload.metrics: hf: "
for how in whole broken; do
    try validates pl.py lightning '{"tells": true, "validates": true}' $how; is "$missing" 0 "a validation's value stands once, at its step"; word "workload.metrics: lightning: "
    try batches pl.py lightning '{}' $how; is "$there" 0 "Lightning's bar alone tells no step"; word "workload.metrics: lightning: "
    try tells pl.py lightning '{"tells": true}' $how; is "$missing" 0 "Lightning's bar with global_step gives every value"
    try four pl.py lightning '{"tells": true, "accumulate": 4}' $how; is "$missing" 0 "Lightning with gradient accumulation: every value is there"
    try rich pl.py lightning '{"rich": true}' $how; is "$there" 0 "lightning with rich's bar: no value is taken"; word "the trainer finished, but no output matched workload.metrics"
done
tap_done
