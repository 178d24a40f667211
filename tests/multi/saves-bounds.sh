#!/bin/bash
# The cost of a checkpoint to training: time of all steps, the slowest one, and the speed of writing
# beside dd's.  A model of 3.4 M parameters saves 41 MB.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/tiny.sh"
[ -n "${TERN_TEST_BOUNDS-}" ] || skip_all "it measures alone: make bounds"
tiny_make
STEPS=${SAVES_STEPS:-200}
sed -i 's/"hidden_size": 32/"hidden_size": 256/; s/"intermediate_size": 64/"intermediate_size": 688/; s/"num_hidden_layers": 2/"num_hidden_layers": 4/; s/"num_attention_heads": 4/"num_attention_heads": 8/; s/"max_position_embeddings": 64/"max_position_embeddings": 256/' model/config.json
sed -i "s/^batch: .*/batch: {global: 2, micro: 2, seq_len: 256}/; s/^steps: .*/steps: $STEPS/; s/threads: 1/threads: 0/" run.yaml

# Seconds between the ends of steps: all of them, the median, the slowest, in ./$1; the first five warm up.
steps() { # NAME EVERY
    rm -rf checkpoints
    tern run run.yaml --ranks 1 --set data.held_out='[]' --set checkpoint.every="$2" --set ledger.dir="ledger-$1" 2>err </dev/null || sed 's/^/# /' err
    tern ledger sql --ledger "ledger-$1" -r latest -n -P "select printf('%.9f', (wall_ns - lag(wall_ns) over (order by step)) * 1e-9) from step where name = 'loss' and step > 5 order by step" |
        grep . | sort -n | awk '{v[NR] = $1; s += $1} END {print s, v[int((NR + 1) / 2)], v[NR]}' >"$1"
}
of() { tern ledger sql --ledger "$1" -r latest -n -P "select value from step where name = 'checkpoint_$2' and step < $STEPS order by value" | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }
ratio() { awk -v a="$1" -v b="$2" 'BEGIN {if (a > 0 && b > 0) print a / b; else print "none"}'; }

# By turns, so that a machine that gets slower does not count; the best of each, since others only add.
for i in 1 2; do
    steps without-$i 0
    steps with-$i 20
done
best() { cat "$1"-[12] | sort -n | head -1; }
read -r all median slowest <<<"$(best with)"
read -r none _ _ <<<"$(best without)"
echo "# $STEPS steps with and without saves: $all s, $none s; a step $median s, the slowest $slowest s"
for l in ledger-with-1 ledger-with-2; do echo "# a save: $(of $l copy_seconds) s copied, $(of $l write_seconds) s written, $(of $l stall_seconds) s waited for, $(of $l bytes) bytes"; done
bound "$(ratio "$all" "$none")" 1.02 "$STEPS steps with a save every 20, of the time without"
bound "$(ratio "$slowest" "$median")" 1.25 "the slowest step of them, of the median"

# Beside dd with fsync: nothing else goes on, so that disk and cores are the save's alone.
sed -i "s/^steps: .*/steps: 3/" run.yaml
for i in 1 2 3 4 5; do
    rm -rf checkpoints
    tern run run.yaml --ranks 1 --set data.held_out='[]' --set ledger.dir="ledger-alone-$i" >/dev/null 2>&1 </dev/null
    tern ledger sql --ledger "ledger-alone-$i" -r latest -n -P "select value from step where name = 'checkpoint_write_seconds'" >>alone
    from=${EPOCHREALTIME/./}
    dd if=checkpoints/step-00000003/shard-00000-of-00001.safetensors of=checkpoints/copy bs=4M conv=fsync 2>/dev/null
    echo "$from ${EPOCHREALTIME/./}" | awk '{print ($2 - $1) * 1e-6}' >>dd
done
middle() { sort -n "$1" | sed -n 3p; }
echo "# written and synced: $(middle alone) s; by dd: $(middle dd) s"
bound "$(ratio "$(middle alone)" "$(middle dd)")" 1.11 "a shard digested, written and synced, of the time of dd conv=fsync"
tap_done
