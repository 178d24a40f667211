# Sourced by tests that train one small model on many layouts, after tap.sh.
. "$ROOT/tests/lib/tiny.sh"
program=train-ranks # or train-ranks-f64, the same in double

# STEPS: run.yaml, of a model of 9 layers, with 8 query heads and 2 key heads for 8 tensor ranks:
# layers and vocabulary that do not divide.  Beside it large.json, which is large beside its process.
layouts_make() {
    tiny_make || return 1
    sed -i "s/batch: .*/batch: {global: 12, micro: 1, seq_len: 16}/; s/every: 1,/every: 0,/; s/steps: 8/steps: $1/" run.yaml
    sed -i 's/"num_hidden_layers": 2/"num_hidden_layers": 9/; s/"num_attention_heads": 4/"num_attention_heads": 8, "head_dim": 8/; s/"vocab_size": 800/"vocab_size": 803/' model/config.json
    sed 's/"hidden_size": 32/"hidden_size": 288/; s/"intermediate_size": 64/"intermediate_size": 768/; s/"vocab_size": 803/"vocab_size": 16000/; s/"max_position_embeddings": 64/"max_position_embeddings": 256/' model/config.json >large.json
}
constant_lr() { # the number of steps then says nothing about each of them
    sed -i 's/kind: cosine/kind: constant/; s/, min_lr: 1.0e-4//' run.yaml
}

more() { # RANKS [KEY=VALUE]...: goes on from what lies in checkpoints; prints the losses
    timeout 1800 "$TOOLS/$program" "${RECIPE:-run.yaml}" "$@" 2>err </dev/null || { sed 's/^/# /' err >&2; return 1; }
}
train() { rm -rf checkpoints; more "$@" >out; }
double() { local program=train-ranks-f64; train "$@"; }

perplexities() { grep -o 'step.* a token, .*' err; } # before and after, of held-out text

# Largest difference of the losses in two files, if each has $3 of them.
difference() {
    paste -d' ' "$1" "$2" | awk -v n="$3" '{d = $2 - $4; if (d < 0) d = -d; if (!(d <= m)) m = d} END {if (NR == n && NF == 4) print m + 0; else print "nan"}'
}
within() { awk -v d="$1" -v b="$2" 'BEGIN {exit !(d + 0 == d && d <= b)}'; }
beyond() { awk -v d="$1" -v b="$2" 'BEGIN {exit !(d + 0 == d && d > b)}'; }

# The next line of a list, "RANKS SETTING...", in $n and $sets.  A line with a + before it is of the
# long list.
next() {
    while read -r n sets; do
        [ "$n" = + ] || return 0
        long && { read -r n sets <<<"$sets"; return 0; }
    done
    return 1
}
short_sets() { echo "${sets//parallel./}"; }

# PROGRAM LIMIT STEPS LIST: the layouts of a list against its first line, which is of one rank.  That
# one's losses stay in ./one, the last layout's in ./out.
same_curve() {
    local program=$1 first=1 n sets d
    while next; do
        train "$n" $sets
        if [ -n "$first" ]; then
            cp out one; perplexities >one.ppl; first=
            [ "$(wc -l <one)" = "$3" ]; ok $? "$program: one rank${sets:+, $sets}"
            continue
        fi
        d=$(difference one out "$3")
        within "$d" "$2"; ok $? "$program: $n ranks${sets:+, $(short_sets)}: the same $3 losses ($d)"
        [ "$program" = train-ranks ] || { perplexities | cmp -s - one.ppl && [ "$(wc -l <one.ppl)" = 2 ]; ok $? "$program: $n ranks${sets:+, $(short_sets)}: the same perplexities"; }
    done
}
