#!/bin/bash
# Memory as predicted: both numbers of every rank are recorded, and are within 10 % of each other.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/layouts.sh"
[ -z "${TERN_SANITIZE-}" ] || skip_all "a sanitizer takes its own memory"
layouts_make 2 || echo "Bail out! no setting"
constant_lr
sed 's/"vocab_size": 16000/"vocab_size": 803/' large.json >narrow.json
all() { long || [ -n "${TERN_TEST_BOUNDS-}" ]; }

# RANKS SETTING...: "NAME|PREDICTED|MEASURED" of the run and of each of its ranks, in ./numbers.
memory() {
    local n=$1 set sets=()
    for set in "${@:2}"; do sets+=(--set "$set"); done
    rm -rf checkpoints ledger
    tern run run.yaml --ranks "$n" --set model.config=large.json --set 'batch={global: 8, micro: 2, seq_len: 256}' --set data.held_out='[]' "${sets[@]}" 2>err </dev/null || sed 's/^/# /' err
    tern ledger sql --ledger ledger -r latest -n -P "select replace(name, 'predicted_', '') k, max(case when name like '%predicted%' then value end) p, max(case when name not like '%predicted%' then value end) m from step where name in ('memory_bytes', 'memory_predicted_bytes') or name like 'rank%/memory%' group by k" >numbers
}
measured() { awk -F'|' '$1 == "memory_bytes" {print $3}' numbers; }
# RANKS WHAT: of all ranks, the one that is furthest off, by the larger of predicted / measured and its inverse.
check_predicted() {
    local off
    off=$(awk -F'|' '$2 > 0 && $3 > 0 {d = $2 > $3 ? $2 / $3 - 1 : $3 / $2 - 1; w = d > w ? d : w; n++} END {if (n == (N > 1 ? N + 1 : 1)) print w + 0}' N="$1" numbers)
    bound "$off" 0.1 "memory predicted and measured of ranks $1, $2" || sed 's/^/# /' numbers
}
# Of a model that is large beside its process; of one of 1 MiB, beside which that is large; of one
# whose size is in its layers, not its vocabulary.
large() { memory "$1" "$2"; check_predicted "$1" "$2"; }
small() { # RANKS THREADS
    memory "$1" model.config=model/config.json 'batch={global: 8, micro: 2, seq_len: 32}' "launch={threads: $2, ranks_per_node: $1}"
    check_predicted "$1" "threads $2, a small model"
}
narrow() { # SETTING...
    memory 1 model.config=narrow.json 'batch={global: 8, micro: 8, seq_len: 256}' "$@"
    check_predicted 1 "$*, a narrow model"
}

small 2 2
if ! all; then # a model between the two, in a moment
    memory 4 model.config=narrow.json 'batch={global: 8, micro: 2, seq_len: 32}'
    check_predicted 4 "a narrow model"
else
    while next; do large "$n" "$sets"; done <<'L'
1 parallel.recompute=none
1 parallel.recompute=selective
1 parallel.recompute=full
1 data.isolate=true
1 lora={rank: 8, alpha: 8, targets: [q_proj]}
1 lora={rank: 8, dropout: 0.1, dora: true}
4 parallel.zero=0
4 parallel.zero=1
4 parallel.tensor=4
2 parallel.pipeline=2
4 parallel={pipeline: 4, interleave: 2}
L
    export TERN_FABRIC_SHARE=1
    memory 3 parallel.pipeline=3; check_predicted 3 "parallel.pipeline=3, on a node each"
    unset TERN_FABRIC_SHARE
    for threads in 1 2 4; do small 1 $threads; done
    small 4 1
    narrow precision=bf16 parallel.recompute=full
    narrow precision=bf16 'lora={rank: 8, alpha: 8, targets: [q_proj]}'
    narrow precision=bf16; bf16=$(measured)
    narrow precision=fp32; fp32=$(measured)
    bound "$(awk -v a="$bf16" -v b="$fp32" 'BEGIN {if (a > 0 && b > 0) print a / b}')" 0.9 "memory in bf16, of that in fp32"
fi
tap_done
