#!/bin/bash
# tern ckpt export --to nxd beside PyTorch, other converters, and a forward pass rank by rank (nxd.py).
# NXD, OPTIMUM: clones of github.com/aws-neuron/neuronx-distributed (release 2.29) and
# huggingface/optimum-neuron (0.4.5), beside the tree by default.
. "$(dirname "$0")/../lib/tap.sh"
PYTHON=${PYTHON:-/usr/bin/python3}
NXD=${NXD:-$ROOT/../neuronx-distributed} OPTIMUM=${OPTIMUM:-$ROOT/../optimum-neuron}
"$PYTHON" -c 'import torch' 2>/dev/null || skip_all "no PyTorch (apt-get install python3-torch)"
PATH=$TOOLS:$PATH
echo "# PyTorch $("$PYTHON" -c 'import torch; print(torch.__version__)')"
OMP_NUM_THREADS=1 "$PYTHON" - "$ROOT" "$NXD" "$OPTIMUM" <"$ROOT/tests/peers/nxd.py" >said 2>err
while read -r word rest; do
    case $word in
    ok) ok 0 "$rest" ;;
    not) ok 1 "${rest#ok }" ;;
    skip) skip "$rest" ;;
    esac
done <said
[ "$(tail -n 1 said)" = "end of nxd.py" ]; ok $? "nxd.py came to its end" || tail -5 err

if long; then # 4 GiB and a little: sizes and offsets of zip64
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
