#!/bin/bash
# What a step does beside computing: it allocates nothing, is few operations, and copies next to
# nothing for the mates in its node to read.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/layouts.sh"
layouts_make 50 || echo "Bail out! no setting"

# "rank R: A allocations in S steps, B bytes staged", of the steps after the tenth: the most of any.
steps=$(long && echo 50 || echo 14) ranks=4
most() { # FIELD
    awk -v f="$1" -v n=$ranks -v s=$((steps - 10)) '$1 == "rank" && $4 == "allocations" && $6 == s {k++; if ($f > m) m = $f} END {if (k == n) print m + 0}' err
}
allocations() { most 3; }
staged() { most 8; }

while next; do
    if [ -n "${TERN_SANITIZE-}" ]; then skip "allocations, $sets: a sanitizer makes its own"; continue; fi
    if ldd "$BIN/tern-train" | grep -q libomp; then skip "allocations, $sets: LLVM's OpenMP makes its own"; continue; fi
    if [ "$(gcc -dumpversion | cut -d. -f1)" -lt 11 ]; then skip "allocations, $sets: an OpenMP as old as gcc 10's makes its own"; continue; fi
    train $n $sets steps=$steps
    is "$(allocations)" 0 "4 ranks in one node, $(short_sets): $((steps - 10)) steps allocate nothing"
    # Of what comes early over the wire, once as much has come as ever does.
    TERN_FABRIC_SHARE=1 train $n $sets steps=$steps
    bound "$(allocations)" $((steps - 11)) "allocations in $((steps - 10)) steps of 4 ranks on 4 nodes, $(short_sets)"
done <<'L'
+ 4 parallel.tensor=2 parallel.zero=1
4 parallel.tensor=2 parallel.pipeline=2
L

# What is small goes together: a step is one sum of all gradients, one of what is agreed on, and one
# round of times; the 55 arrays of 9 layers are less than a MiB.
operations() { # STEPS: of all ranks by the end of the last one
    rm -rf dumps; mkdir dumps
    TERN_FABRIC_DUMP=dumps train 4 steps=$1 schedule.warmup=0
    tern fabric flight-report dumps | sed -n 's/^last to come, of \([0-9]*\) operations.*/\1/p'
}
n=$(long && echo 20 || echo 5)
few=$(operations 5) more=$(operations $((5 + n)))
[ $((more - few)) = $((3 * n)) ]; ok $? "$n steps of 4 data ranks are $((3 * n)) operations (after 5: ${few:-none}, after $((5 + n)): ${more:-none})"

# Gradients, parameters and activations lie where mates reach them: a step copies next to nothing
# for them to read, of the megabytes that go through its sums.  The short form's model has fewer
# layers and shorter sequences.
if long; then steps=12 length=256; cp large.json it.json; else
    steps=11 length=128
    sed 's/"num_hidden_layers": 9/"num_hidden_layers": 2/; s/"vocab_size": 16000/"vocab_size": 4000/' large.json >it.json
fi
limit=$((100000 * (steps - 10)))
while next; do
    if [ -n "${TERN_SANITIZE-}" ]; then skip "staged by $n ranks, $sets: the same bytes, in minutes"; continue; fi
    ranks=$n
    train "$n" model.config=it.json "batch={global: 4, micro: 1, seq_len: $length}" steps=$steps 'data.held_out=[]' $sets
    b=$(staged)
    [ -n "$b" ] && [ "$b" -lt $limit ]; ok $? "$n ranks in one node, $(short_sets): nothing is staged ($b bytes in $((steps - 10)) steps)"
done <<'L'
+ 2 parallel.zero=0
4 parallel.zero=1
+ 2 parallel.tensor=2 parallel.sequence=true
+ 4 parallel.tensor=4
+ 2 parallel.tensor=2 lora.rank=64 lora.alpha=6 lora.targets=[q_proj,o_proj]
+ 2 parallel.pipeline=2
4 parallel.tensor=2 parallel.pipeline=2 parallel.sequence=true
L
tap_done
