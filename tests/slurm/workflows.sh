#!/bin/bash
# Three published workflows, whole, by the commands of the README: Wikicorpus in three languages,
# PubMed with 1 % of general text, instructions with LoRA.  Small texts take the downloads' place.
. "$(dirname "$0")/../lib/tap.sh"
[ -n "$DATA" ] || skip_all "no ../shared/data, the texts"
. "$ROOT/tests/lib/vcluster.sh"
cluster_up

mkdir -p model
cp "$DATA"/tokenizers/mini-spm-4k/tokenizer.model model/
cat >model/config.json <<'J'
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 176,
 "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 4096,
 "max_position_embeddings": 256, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "tie_word_embeddings": true,
 "hidden_act": "silu", "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "float32"}
J
# recipe NAME MODEL 'DATA' 'MORE'
recipe() {
    cat >"$1.yaml" <<Y
version: 1
name: $1
model: {$2}
data:
$3
  seed: 7
batch: {global: 8, micro: 4, seq_len: 128}
optimizer: {name: adamw, lr: 3.0e-3}
schedule: {kind: cosine, warmup: 2, min_lr: 3.0e-4}
checkpoint: {dir: checkpoints/$1, every: 20, keep: 2}
ledger: {dir: ledger}
launch: {ranks_per_node: 1, threads: 1}
$4
Y
}
info() { tern data info "$1" --json | jq -r "$2"; }
trained() { # NAME: submitted to two nodes, to its end
    on tern submit "$1.yaml" -N 2 -- --parsable; status 0 "$1: tern submit"; [ $rc = 0 ] || return; job=$(cat out)
    await_job 2; is "$(job_state "$job")" COMPLETED "$1: the job trains to its end" || tail -20 slurm-"$job".out | sed 's/^/# /'
}
# SET: its perplexity a token of the model begun from (null where weights are random) and of the last checkpoint.
perplexities() { jq -r ".[\"$1\"] | \"\(.before.ppl_token) \(.after.ppl_token)\"" evaluated; }
falls() { # NAME SET
    read -r before after < <(perplexities "$2")
    [ "$before" != null ] || before=4096 # one guess of the vocabulary
    awk -v a="$before" -v b="$after" 'BEGIN {exit !(b > 1 && a > b)}'
    ok $? "$1: the perplexity on $2 falls (${before:-none} to ${after:-none})"
}

# ---- Wikicorpus: raw files in Latin-1, a folder a language
articles() { # LANGUAGE JSONL FROM TO: articles of a raw file
    python3 - "$@" <<'P'
import html, json, sys
name, path, first, last = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
with open(path, encoding="utf-8") as f:
    for i, line in enumerate(f):
        if first <= i < last:
            text = json.loads(line)["text"].encode("latin-1", "replace").decode("latin-1")
            sys.stdout.buffer.write(f'<doc id="{i}" title="{name} {i}" nonfiltered="{i}" processed="{i}" dbindex="{i}">\n{text}\nENDOFARTICLE.\n</doc>\n'.encode("latin-1"))
P
}
mkdir -p raw.ca raw.es raw.en
for l in ca es; do
    n=$(wc -l <"$DATA/multilingual/$l.jsonl")
    articles $l "$DATA/multilingual/$l.jsonl" 0 $((n * 8 / 10)) >raw.$l/${l}_0_10000
    articles $l "$DATA/multilingual/$l.jsonl" $((n * 8 / 10)) $((n * 9 / 10)) | gzip >raw.$l/${l}_10000_20000.gz
    articles $l "$DATA/multilingual/$l.jsonl" $((n * 9 / 10)) "$n" >$l.held
done
articles en "$DATA/general/general_train.jsonl" 0 120 >raw.en/en_0_10000
articles en "$DATA/general/general_val.jsonl" 0 20 >en.held
for l in ca es en; do
    run tern data build --tokenizer model --format wikicorpus -o $l.tds raw.$l; status 0 "a folder of raw Wikicorpus files ($l)"
    run tern data build --tokenizer model --format wikicorpus -o $l-test.tds $l.held; status 0 "articles held out ($l)"
done
is "$(info ca.tds .documents)" "$(zgrep -ch '^<doc ' raw.ca/* | awk '{n += $1} END {print n}')" "every article is a document"
tern data head -t model -n 1 ca.tds >head.ca
grep -q 'Fundació' head.ca && ! grep -q 'ENDOFARTICLE\|<doc' head.ca; ok $? "Latin-1 arrives as text, the corpus's own marks go" || head -5 head.ca
recipe wiki "config: model/config.json, tokenizer: model" "  train: [{path: ca.tds}, {path: es.tds}, {path: en.tds}]
  held_out: [{name: ca, path: ca-test.tds}, {name: es, path: es-test.tds}, {name: en, path: en-test.tds}]" "steps: 40"
trained wiki
run tern eval wiki.yaml --json; cp out evaluated; status 0 "tern eval evaluates the wiki model"
for l in ca es en; do falls wiki $l; done
is "$(for l in ca es en; do perplexities $l | cut -d' ' -f2; done | sort -u | wc -l)" 3 "each language has a perplexity of its own"
run tern ckpt export checkpoints/wiki/latest -o wiki-hf; status 0 "the model goes on as a Hugging Face folder"
[ -s wiki-hf/tokenizer.model ]; ok $? "the export of the model has its tokenizer"

# ---- PubMed, with 1 % of general text
head -n 400 "$DATA"/pubmed/pubmed_abstracts_train.jsonl | gzip >pubmed.jsonl.gz
head -n 40 "$DATA"/pubmed/pubmed_abstracts_val.jsonl >pubmed-test.jsonl
head -n 200 "$DATA"/general/general_train.jsonl >general.jsonl
run tern data build --tokenizer wiki-hf -o pubmed.tds --dedup --min-length 64 pubmed.jsonl.gz; status 0 "a token set of the abstracts is built"
run tern data build --tokenizer wiki-hf -o general.tds general.jsonl; status 0 "a token set of the general text is built"
run tern data build --tokenizer wiki-hf -o pubmed-test.tds pubmed-test.jsonl; status 0 "abstracts held out"
run tern data overlap pubmed.tds --held-out pubmed-test.tds; status 0 "how much of the held-out text was trained on is known"
recipe pubmed "from: wiki-hf" "  train: [{path: pubmed.tds, weight: 0.99}, {path: general.tds, weight: 0.01}]
  held_out: [{name: pubmed, path: pubmed-test.tds}, {name: general, path: en-test.tds}]" "steps: 50"
run tern data plan pubmed.yaml; status 0 "tern data plan"; out_has "general.tds"
trained pubmed
run tern eval pubmed.yaml --json; cp out evaluated; status 0 "tern eval evaluates the PubMed model"
falls pubmed pubmed
[ "$(perplexities general | wc -w)" = 2 ]; ok $? "what it does to the general text is measured"
mix=$(tern ledger sql -l ledger -r pubmed -n -P "select value from step where name = 'mix/general.tds/samples' order by step desc limit 1")
is "$mix" 4.0 "400 samples at 1 %: four of general text, as the ledger has it"
run tern ckpt export checkpoints/pubmed/latest -o pubmed-hf; status 0

# ---- instructions, with LoRA
head -n 130 "$DATA"/instruct/dolly_mini.jsonl >dolly.jsonl
tail -n +131 "$DATA"/instruct/dolly_mini.jsonl >dolly-test.jsonl
for s in dolly dolly-test; do
    run tern data build --tokenizer pubmed-hf --template dolly --bos -o $s.tds $s.jsonl; status 0 "records of $s become documents"
done
is "$(info dolly.tds .documents) $(info dolly.tds .mask)" "130 true" "one a record, of which the answer is learnt"
recipe lora "from: pubmed-hf" "  train: [{path: dolly.tds}]
  held_out: [{name: dolly, path: dolly-test.tds}]
  packing: best-fit" "epochs: 2
lora: {rank: 16, alpha: 32, targets: [q_proj, v_proj]}"
trained lora
run tern eval lora.yaml --json; cp out evaluated; status 0 "tern eval evaluates the adapters"
falls lora dolly
run tern ckpt merge checkpoints/lora/latest -o lora-hf; status 0 "the adapters go into the model"
[ -s lora-hf/model.safetensors ] && [ -s lora-hf/tokenizer.model ]; ok $? "the merged model is a Hugging Face folder"
tap_done
