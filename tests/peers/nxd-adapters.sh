#!/bin/bash
# tern ckpt export --from nxd of Optimum Neuron's adapters, beside its own transformations; PEFT loads the
# folder.  OPTIMUM: a clone of github.com/huggingface/optimum-neuron (0.4.5), beside the tree by default.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/venv.sh"
PYTHON=${PYTHON:-/usr/bin/python3}
OPTIMUM=${OPTIMUM:-$ROOT/../optimum-neuron}

if ! "$PYTHON" -c 'import torch' 2>/dev/null; then skip "no PyTorch (apt-get install python3-torch)"; tap_done; exit; fi
OMP_NUM_THREADS=1 "$PYTHON" - "$ROOT" "$OPTIMUM" <"$ROOT/tests/peers/nxd-adapters.py" >said 2>err
while read -r word rest; do
    case $word in
    ok) ok 0 "$rest" ;;
    not) ok 1 "${rest#ok }" ;;
    skip) skip "$rest" ;;
    esac
done <said
[ "$(tail -n 1 said)" = "end of nxd-adapters.py" ]; ok $? "nxd-adapters.py came to its end" || tail -5 err

# The same versions as in adapters-in.sh, which makes the environment.
VENV=${TMPDIR:-/tmp}/tern-peers-peft-$(id -u)
if ! "$VENV/bin/python" -c 'import peft' 2>/dev/null; then skip "PEFT: tests/peers/adapters-in.sh makes its environment"; tap_done; exit; fi
python3 -c "
import sys; sys.path.insert(0, '$ROOT/tests/lib'); import nxd, optimum
nxd.make('base', 8, 2, 4); optimum.make('on', 8, 2, 4, 4, 2, 2, 'fused', xser=True)" || exit 1
run tern ckpt export on -o adapters --from nxd; status 0
run tern ckpt merge adapters -o merged; status 0
"$VENV/bin/python" - >log 2>&1 <<'P'
import torch
from peft import PeftModel
from transformers import LlamaForCausalLM
base = LlamaForCausalLM.from_pretrained("base")
m = PeftModel.from_pretrained(base, "adapters")
own = dict(m.named_parameters())
assert sum(".lora_" in k for k in own) == 4 * 7 * 2, "every matrix has its adapter"
want = LlamaForCausalLM.from_pretrained("merged")
got = m.double().merge_and_unload()
worst = max((a.double() - b.double()).abs().max().item() for a, b in zip(want.state_dict().values(), got.state_dict().values()))
print(f"largest difference {worst:.1e}")
assert worst < 1e-6
P
ok $? "PEFT loads the folder, and merges it as tern does ($(tail -n 1 log))" || tail -5 log
tap_done
