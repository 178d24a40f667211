#!/bin/bash
# tern ckpt export --to nxd beside PyTorch (Debian's and the newest), other converters, and a forward
# pass rank by rank (nxd.py).
# NXD, OPTIMUM: clones of github.com/aws-neuron/neuronx-distributed (release 2.29) and
# huggingface/optimum-neuron (0.4.5), beside the tree by default.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/venv.sh"
PYTHON=${PYTHON:-/usr/bin/python3}
NXD=${NXD:-$ROOT/../neuronx-distributed} OPTIMUM=${OPTIMUM:-$ROOT/../optimum-neuron}
PATH=$TOOLS:$PATH

layouts() { # PYTHON
    local version; version=$("$1" -c 'import torch; print("PyTorch", torch.__version__)' 2>/dev/null) || return
    rm -rf under at over
    OMP_NUM_THREADS=1 "$1" - "$ROOT" "$NXD" "$OPTIMUM" <"$ROOT/tests/peers/nxd.py" >said 2>err
    while read -r word rest; do
        case $word in
        ok) ok 0 "$version: $rest" ;;
        not) ok 1 "$version: ${rest#ok }" ;;
        skip) skip "$version: $rest" ;;
        esac
    done <said
    [ "$(tail -n 1 said)" = "end of nxd.py" ]; ok $? "$version: nxd.py came to its end" || tail -5 err
}
layouts "$PYTHON" || skip "no PyTorch (apt-get install python3-torch)"
if (venv trainers 'torch, transformers' torch transformers accelerate lightning rich tensorboardX); then
    venv trainers torch; layouts "$VENV/bin/python"
else
    skip "no newest PyTorch: it is not there and cannot be installed"
fi

# 4 GiB and a little: sizes and offsets of zip64.
if long && "$PYTHON" -c 'import torch' 2>/dev/null; then
    pytorch-tool zeros large.pt 4300000000; ok $? "a file beyond 4 GiB is written"
    "$PYTHON" - <<'P'
import torch, zipfile
with zipfile.ZipFile("large.pt") as z:
    a, b = z.getinfo("large/data/0"), z.getinfo("large/data/1")
    assert a.file_size == 4300000000 and b.header_offset > 2 ** 32 and z.read("large/data/1") == b"\x09"
t = torch.load("large.pt", weights_only=True)
assert t["large"].numel() == 4300000000 and t["large"][-1] == 7 and t["large"][:-1].max() == 0 and t["behind"].tolist() == [9]
P
    ok $? "torch.load reads a file beyond 4 GiB"
    rm large.pt
fi
tap_done
