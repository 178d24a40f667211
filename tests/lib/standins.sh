# Sourced by bash in tern's source folder, before a tutorial on a laptop: small things in the place of those that
# the network has or that want NeuronCores.  They go when this shell ends.
#
#   a hub on loopback       hf://meta-llama/...: Llamas of random weights, 8 heads and 8 layers;
#                           hf://datasets/my-org/texts: sentences of a few words
#   a bucket on loopback    s3://my-bucket
#   curl                    a piece of Wikicorpus (raw.en.tgz)
#   torchrun, neuron_parallel_compile and the scripts that these start (tests/lib/neuron)
standins=$(mktemp -d "${TMPDIR:-/tmp}/tern-standins-XXXXXX")
trap 'rm -rf "$standins"' EXIT

# LINES SEED: so many lines of text, each another one.
standins_text() {
    awk -v n="$1" -v seed="$2" 'BEGIN {srand(seed)
        split("the a cat dog sees runs on in house tree and or old new river stone", w, " ")
        while (n--) {s = ""; for (i = 0; i < 120; i++) s = s w[1 + int(rand() * 16)] (i % 9 == 8 ? ". " : " "); print s}}'
}
standins_files() {
    python3 -B - "$PWD/tests/lib" "$standins/hub/meta-llama" <<'P' || return
import sys
sys.path.insert(0, sys.argv[1])
import nxd
nxd.VOCAB = 800
for name in ("Llama-2-7b-hf", "Llama-2-70b-hf", "Meta-Llama-3-8B-Instruct"):
    nxd.make(f"{sys.argv[2]}/{name}", 8, 8, 8)
P
    local model set seed=0
    for model in "$standins"/hub/meta-llama/*; do
        sed -i 's/"max_position_embeddings": 64/"max_position_embeddings": 4096/' "$model/config.json"
        cp tests/golden/spm-bpe-800.model "$model/tokenizer.model"
    done
    for set in pubmed general pubmed-test general-test; do
        seed=$((seed + 1))
        mkdir -p "$standins/hub/my-org/texts/$set"
        standins_text 100 $seed | sed 's/.*/{"text": "&"}/' >"$standins/hub/my-org/texts/$set/part-0.jsonl"
    done
    mkdir -p "$standins/bin" "$standins/raw.en" "$standins/web"
    for seed in 8 9; do
        standins_text 100 $seed | awk '{printf "<doc id=\"%d\" title=\"%d\" nonfiltered=\"%d\" processed=\"%d\" dbindex=\"%d\">\n%s\nENDOFARTICLE.\n</doc>\n", NR, NR, NR, NR, NR, $0}' >"$standins/raw.en/englishText_$(((seed - 8) * 10000))_$(((seed - 7) * 10000))"
    done
    tar czf "$standins/web/raw.en.tgz" -C "$standins/raw.en" .
    printf '#!/bin/sh\nfor url; do :; done\nexec cat %q/web/"${url##*/}"\n' "$standins" >"$standins/bin/curl"
    chmod +x "$standins/bin/curl"
}
# PROGRAM FOLDER...: a server that ends with this shell; its address in $standins_at.
standins_serve() {
    local name=$1 fd i
    shift
    mkfifo "$standins/$name.hold"
    exec {fd}<>"$standins/$name.hold"
    (python3 -B "tests/tools/$name.py" "$standins/$name.port" "$standins/$name.log" "$@" <"$standins/$name.hold" >/dev/null 2>&1 {fd}<&- &)
    for ((i = 0; i < 600; i++)); do
        if [ -e "$standins/$name.port" ]; then break; fi
        sleep 0.1
    done
    standins_at=http://127.0.0.1:$(cat "$standins/$name.port")
}
standins_files
standins_serve hub "$standins/hub"
export HF_ENDPOINT=$standins_at
standins_serve s3
export AWS_ENDPOINT_URL=$standins_at AWS_ACCESS_KEY_ID=AKIDTEST AWS_SECRET_ACCESS_KEY=secret+key/of=tests
export AWS_EC2_METADATA_DISABLED=true TERN_CACHE=$standins/cache PATH=$PWD/tests/lib/neuron:$standins/bin:$PATH
unset AWS_PROFILE AWS_SESSION_TOKEN AWS_REGION AWS_DEFAULT_REGION http_proxy https_proxy all_proxy
