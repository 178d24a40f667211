#!/bin/bash
# Files of torch.save by PyTorch 1.13 and the newest are read bit for bit, whatever lies in them;
# transformers' pytorch_model.bin comes in as its safetensors do; and Meta's files as transformers'
# own script converts them.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/venv.sh"
F=$TOOLS/torch-tool
debian=${PYTHON:-/usr/bin/python3}

say() { # FILE: its lines "ok - ..." and "not ok - ..."
    while IFS= read -r line; do
        case $line in
        "ok - "*) ok 0 "${line#ok - }" ;;
        "not ok - "*) ok 1 "${line#not ok - }" ;;
        *) echo "$line" ;;
        esac
    done <"$1"
}
read_all() { # PYTHON NAME
    "$1" -I "$ROOT/tests/peers/pytorch.py" make "$2" >log 2>&1 || { ok 1 "$2: the files are made"; tail -3 log; return; }
    for file in "$2"/*.pt; do
        case $file in */module-*) below=module ;; *) below= ;; esac
        "$F" dump "$file" $below >"$file.dump" 2>"$file.err" || { ok 1 "$file is read"; cat "$file.err"; }
    done
    "$1" -I "$ROOT/tests/peers/pytorch.py" compare "$2" >said 2>&1; say said
}
if "$debian" -c 'import torch' 2>/dev/null; then read_all "$debian" debian; else skip "no PyTorch (apt-get install python3-torch)"; fi
if venv trainers 'torch, transformers' torch transformers accelerate lightning rich tensorboardX; then
    read_all "$VENV/bin/python" newest
else
    skip "no newest PyTorch: it is not there and cannot be installed"
fi

# transformers, of the last release that works with Debian's PyTorch, and of the last one that has the
# script and knows Llama 3.
old() {
    "$debian" -c 'import torch' 2>/dev/null && PYTHON=$debian VENV_WITH=--system-site-packages venv peft peft --no-deps peft==0.13.2 \
        transformers==4.40.2 accelerate==0.30.1 huggingface_hub==0.23.5 tokenizers==0.19.1 safetensors==0.4.5 'numpy<2' regex \
        requests tqdm filelock fsspec pyyaml packaging psutil typing_extensions idna urllib3 certifi charset_normalizer
}
llama_3() {
    "$debian" -c 'import torch' 2>/dev/null && PYTHON=$debian VENV_WITH=--system-site-packages venv llama-3 'transformers, accelerate' --no-deps \
        transformers==4.45.2 accelerate==0.30.1 huggingface_hub==0.23.5 tokenizers==0.20.3 safetensors==0.4.5 'numpy<2' regex \
        requests tqdm filelock fsspec pyyaml packaging psutil typing_extensions idna urllib3 certifi charset_normalizer
}
same_dump() { # A B NAME
    "$F" dump "$1" 2>&1 | sort >a.dump; "$F" dump "$2" 2>&1 | sort >b.dump
    [ -s a.dump ] && cmp -s a.dump b.dump; ok $? "$3" || diff a.dump b.dump | head -6
}
meta() {
    "$VENV/bin/python" -I "$ROOT/tests/peers/meta.py" make >made 2>log || { ok 1 "transformers' script runs"; tail -3 log; }
    for name in $(sed -n 's/^made //p' made); do
        same_dump "$name" "$name-hf" "Meta's files, $name: every bit is as transformers' script makes it"
        run tern ckpt export "$name" -o "$name-ours"; status 0
        is "$("$VENV/bin/python" -I "$ROOT/tests/peers/meta.py" config "$name-ours" "$name-hf")" "" "$name: config.json is as the script's"
    done
    [ "$(grep -c ^made made)" -ge 2 ]; ok $? "models of Meta's layout were compared"
}
if old; then
    "$VENV/bin/python" -I "$ROOT/tests/peers/meta.py" bins >log 2>&1 || { ok 1 "transformers saves its models"; tail -3 log; }
    for name in plain tied; do
        run tern ckpt export $name-bin -o $name-ours; status 0
        same_dump $name-st $name-ours "$name: pytorch_model.bin of transformers is exported as its safetensors"
        run tern ckpt export $name-bins -o $name-ours2; status 0
        same_dump $name-st $name-ours2 "$name: so are several files with an index"
    done
    meta
else
    skip "no transformers 4.40 for Debian's PyTorch"
fi
if llama_3; then meta; else skip "no transformers 4.45 for Debian's PyTorch"; fi
tap_done
