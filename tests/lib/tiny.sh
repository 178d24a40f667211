# Sourced by tests that train: the smallest whole setting, made in the current folder.

# run.yaml, a tokenizer, token sets of a few KiB, a model of some ten thousand parameters.
tiny_make() {
    mkdir -p model data
    cp "$ROOT"/tests/golden/spm-bpe-800.model model/tokenizer.model
    awk 'BEGIN {srand(7); split("the a cat dog sees runs on in house tree and or old new river stone", w, " ");
        for (d = 0; d < 60; d++) {s = ""; for (i = 0; i < 60; i++) s = s w[1 + int(rand() * 16)] (i % 9 == 8 ? ". " : " "); printf "{\"text\": \"%s\"}\n", s}}' >text.jsonl
    head -n 50 text.jsonl >train.jsonl; tail -n 10 text.jsonl >test.jsonl
    tern data build --tokenizer model -o data/train.tds train.jsonl &&
        tern data build --tokenizer model -o data/test.tds test.jsonl || return 1
    cat >model/config.json <<'J'
{"model_type": "llama", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
 "num_key_value_heads": 2, "vocab_size": 800, "max_position_embeddings": 64, "rms_norm_eps": 1e-05,
 "rope_theta": 10000.0, "tie_word_embeddings": true, "hidden_act": "silu", "bos_token_id": 1, "eos_token_id": 2}
J
    cat >run.yaml <<'Y'
version: 1
name: tiny
model: {config: model/config.json, tokenizer: model}
data:
  train: [{path: data/train.tds}]
  held_out: [{name: held, path: data/test.tds}]
  seed: 5
batch: {global: 8, micro: 2, seq_len: 32}
steps: 8
optimizer: {lr: 1.0e-3}
schedule: {kind: cosine, warmup: 2, min_lr: 1.0e-4}
checkpoint: {dir: checkpoints, every: 1, keep: 2}
ledger: {dir: ledger}
launch: {threads: 1}
Y
}

# Digests of every array of the newest checkpoint: equal when every bit is.
tiny_digests() {
    tern ckpt show checkpoints/latest --json | grep '"sha256"' | sort
}

# Wait (ten minutes at most, not longer than process $2 if that is given) until step $1 or a later one lies there.
tiny_wait_step() {
    for _ in $(seq 30000); do
        newest=$(ls -d checkpoints/step-???????? 2>/dev/null | tail -n 1)
        [ -n "$newest" ] && [ "$((10#${newest##*-}))" -ge "$1" ] && return
        [ -z "${2-}" ] || kill -0 "$2" 2>/dev/null || return
        sleep 0.02
    done
}

# data/long.tds, 3000 rows whose evaluation can be held (held_read.c).
tiny_make_long() {
    for _ in $(seq 40); do cat test.jsonl; done >long.jsonl
    tern data build --tokenizer model -o data/long.tds long.jsonl 2>/dev/null
    rm long.jsonl
    ${CC:-cc} -O1 -shared -fPIC -o held.so "$ROOT/tests/lib/held_read.c" -ldl
}
# COMMAND... in the background, $pid, its stderr in ./err, until an evaluation of that waits for a signal.
tiny_hold() {
    rm -f held
    LD_PRELOAD=$WORK/held.so HELD=$WORK/held HOLD_READ=long.tds "$@" 2>err >out </dev/null & pid=$!
    until_true eval "[ -e held ] || ! kill -0 $pid"
}

# The effective losses of the newest run in ledger $1, one a line, in full precision.
tiny_curve() {
    tern ledger sql --ledger "$1" -r latest -n -P "select printf('%.17g', value) from step where name = 'loss' order by step"
}
