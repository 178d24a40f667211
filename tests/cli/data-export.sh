#!/bin/bash
# tern data export and import: rows and documents for other trainers, and back; whole or not at all.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/tiny.sh"
tiny_make 2>/dev/null
S=data/train.tds
left() { ls -d *.tmp-* data/*.tmp-* 2>/dev/null | tr '\n' ' '; }
nothing() { [ -z "$(left)" ] && [ ! -e "${1:-x}" ]; ok $? "${2:-$cmd: leaves nothing}" || left; }
cells() { for f in "$1"/data-*.arrow; do "$TOOLS/arrow-cat" "$f" "$2" | tail -n +2; done; }
n_tokens=$(tern data info --json $S | sed -n 's/^ *"tokens": \([0-9]*\).*/\1/p' | head -n 1)
rows=$(((n_tokens + 63) / 64))

# ---- datasets
run tern data export $S -L 64 -o d --split-name train; status 0; one_line
err_has "d: $rows rows, $n_tokens tokens"
[ ! -s out ]; ok $? "export prints nothing to stdout"
is "$(ls d | tr '\n' ' ')" "data-00000-of-00001.arrow dataset_info.json state.json " "the files of save_to_disk"
is "$(cells d input_ids | wc -l)" "$rows" "each row of the set is one row of the dataset"
has d/state.json '"_split": "train"' "state.json names the split"
has d/dataset_info.json '"_type": "Sequence"' "dataset_info.json has a type that every datasets knows"
run tern data export $S -L 64 -o e; status 0
cmp -s d/data-00000-of-00001.arrow e/data-00000-of-00001.arrow; ok $? "the same set gives the same bytes"
rm -r e
run tern data export $S -L 64 -o e --max-shard 10K; status 0
[ "$(ls e/data-*.arrow | wc -l)" -gt 1 ] && is "$(cells e labels | cksum)" "$(cells d labels | cksum)" "several files, the same rows"
run tern data export $S -L 64 -o f --drop-last; status 0
is "$(cells f input_ids)" "$(cells d input_ids | head -n $((n_tokens / 64)))" "--drop-last leaves out the row that is filled up"
cells d attention_mask | tail -n 1 | grep -q '0\]\]'; ok $? "the last row is filled up"

# ---- what a trainer outside sees is what a step learns
texts() { # DIR: of its rows
    "$TOOLS/arrow-cat" "$1"/data-00000-of-00001.arrow input_ids | tail -n +2 | while read -r line; do
        for id in $(echo "$line" | tr -dc '0-9 ,' | tr , ' '); do printf '%b' "$(printf '\\x%02x\\x%02x\\x%02x\\x%02x' $((id & 255)) $((id >> 8 & 255)) 0 0)"; done | tern data decode -t model; echo
    done
}
sampled() { tern data sample --text "$1" "$2" 2>/dev/null | grep -v '\.tds$' | tail -n +2; }
run tern data export run.yaml --samples 0-7 -o run8; status 0; err_has "run8: 8 rows"
is "$(texts run8)" "$(sampled run.yaml 0-7)" "rows of a recipe have the texts that data sample prints"
for i in $(seq 40); do echo '{"instruction": "the cat sees a dog and the river in the old house", "context": "", "response": "runs"}'; done >records.jsonl
tern data build -t model --template dolly -o data/masked.tds records.jsonl 2>/dev/null
sed 's|^  train: .*|  train: [{path: data/masked.tds}]|' run.yaml >masked.yaml
run tern data export masked.yaml --samples 0-7 -o masked8; status 0
is "$(texts masked8)" "$(sampled masked.yaml 0-7)" "a row that ends in a prompt is printed to its end"
run tern data export run.yaml -o all; status 0; err_has "all: 64 rows"
is "$(cells all input_ids | head -n 8)" "$(cells run8 input_ids)" "without --samples it is the whole run"
run tern data export run.yaml -L 64 -o x; status 2; err_has 'leave out --seq-len'; one_line; nothing
run tern data export run.yaml --samples 60-64 -o x; status 2; err_has 'has 64 samples'; one_line; nothing
run tern data export run.yaml --to megatron -o x; status 2; one_line; nothing

# ---- packed rows of sets with BOS: of no use without the BOS that they begin behind
tern data build --bos -t model -o data/bos.tds train.jsonl 2>/dev/null
sed 's|^  train: .*|  train: [{path: data/bos.tds}]|' run.yaml >bos.yaml
sed 's|^  train: .*|  train: [{path: data/train.tds}, {path: data/bos.tds}]|' run.yaml >second.yaml
for recipe in bos second; do
    for packing in best-fit padded; do
        run tern data export $recipe.yaml --set data.packing=$packing -o x
        status 2; err_has 'data/bos.tds has BOS, which packed rows begin behind'; one_line; nothing
    done
done
run tern data export bos.yaml -o bos; status 0
run tern data export run.yaml --set data.packing=best-fit -o fit; status 0
rm -r bos fit

# ---- names that are not UTF-8
cp $S $'data/\xe9.tds'; cp -r model $'m\xe8'
run tern data export $'data/\xe9.tds' -L 64 -o latin; status 0 "a set's name need not be UTF-8"
has latin/dataset_info.json $'data/\xef\xbf\xbd.tds' "its name in dataset_info.json is made UTF-8"
mv latin $'l\xe4'
run tern data import $'l\xe4' -t $'m\xe8' -o $'b\xe4.tds'; status 0 "names to import need not be UTF-8"
run tern data info --json $'b\xe4.tds'; status 0 "names that info prints have no broken UTF-8"; out_has $'l\xef\xbf\xbd'
run tern data info $'data/\xe9.tds'; out_has 'data/?.tds' "a name that is not UTF-8 does no harm to a terminal"
run tern data export $S -L 64 -o x --split-name $'\xe9'; status 2; err_has 'is no name of a split'; one_line; nothing
run tern data export run.yaml -o x --split-name 'a b'; status 2; err_has "'a b' is no name of a split"; one_line; nothing

# ---- back
run tern data import d -t model -o back.tds; status 0; err_has "$n_tokens tokens"
tokens() { dd if="$1" bs=4096 skip=1 status=none | head -c $((2 * n_tokens)) | cksum; }
is "$(tokens back.tds)" "$(tokens $S)" "rows read back have the set's tokens"
run tern data verify back.tds; status 0
run tern data stat back.tds 2>/dev/null
run tern data head back.tds -t model -n 1; status 0; cp out head.back
run tern data head $S -t model -n 1; cmp -s out head.back; ok $? "its documents are those of the set"

# ---- megatron
run tern data export $S --to megatron -o m; status 0; one_line; err_has "50 documents, $n_tokens tokens"
is "$(ls m | tr '\n' ' ')" "tokens.bin tokens.idx " "the files of Megatron"
is "$(stat -c %s m/tokens.bin)" $((2 * n_tokens)) "Megatron's tokens have two bytes each"
is "$(stat -c %s m/tokens.idx)" $((34 + 12 * 50 + 8 * 51)) "an index of 50 documents"
for from in m m/tokens m/tokens.idx m/tokens.bin; do
    run tern data import "$from" -t model -o back.tds; status 0
    is "$(tokens back.tds)" "$(tokens $S)" "$from read back has the set's tokens"
done
printf '%s\n' '{"messages": [{"role": "user", "content": "the cat"}, {"role": "assistant", "content": "sees"}, {"role": "user", "content": "a dog"}, {"role": "assistant", "content": "runs"}]}' >chats.jsonl
tern data build -t model --template llama2-chat --loss all -o chats.tds chats.jsonl 2>/dev/null
run tern data export chats.tds --to megatron -o chats; status 0
run tern data import chats -t model --bos -o chats-back.tds; status 0; err_has 'chats-back.tds: 1 documents' "EOS between turns ends no document of Megatron's index"
run tern data import chats -t model --bos --documents eos -o chats-back.tds; status 0; err_has 'chats-back.tds: 2 documents' "--documents eos parts them"
run tern data import chats -t model --documents lines -o x.tds; status 2; err_has 'allowed are eos and rows'; one_line; nothing x.tds
cp -r m cut
for n in 0 8 17 33 100 $(($(stat -c %s m/tokens.idx) - 1)); do
    head -c "$n" m/tokens.idx >cut/tokens.idx
    run tern data import cut -t model -o x.tds; status 2 "an index cut at byte $n"; one_line; nothing x.tds
done
cp m/tokens.idx cut; head -c 101 m/tokens.bin >cut/tokens.bin
run tern data import cut -t model -o x.tds; status 2 "a .bin that was cut off"; err_has 'outside the .bin'; nothing x.tds

# ---- a folder that cannot be put in place
mkdir point
for to in . ./ d/.. / "$PWD/." ''; do
    run tern data export $S -L 64 -o "$to"; status 2 "-o '$to' is refused"; one_line; nothing
    run tern data export $S --to megatron -o "$to"; status 2 "--to megatron -o '$to' is refused"; one_line
done
run tern data export run.yaml -o .; status 2; err_has 'Name a folder inside it, such as ./NAME'; one_line; nothing
run tern data export nowhere.yaml -o .; status 2; err_has 'Name a folder inside it' "the folder is looked at before the recipe's sets are packed"
run tern data export nowhere.yaml -o x --split-name 'a b'; status 2; err_has 'no name of a split' "a wrong split's name is refused at once"
run sh -c "cd point && exec tern data export ../$S -L 64 -o \"\$PWD\""
status 2 "the working folder by its name is refused"; err_has 'is the working folder'; one_line; nothing
ln -s point link
run tern data export $S -L 64 -o link; status 2; err_has 'is a symbolic link'; one_line; nothing
run tern data export $S -L 64 -o point; status 0 "an empty folder is filled"
mkdir mounted
if unshare -rm mount -t tmpfs none mounted 2>/dev/null; then
    run unshare -rm sh -c "mount -t tmpfs none mounted && exec tern data export $S -L 64 -o mounted"
    status 2 "a mount point is refused"; err_has 'is a mount point'; one_line; nothing
else skip "no mount in a namespace of its own"; fi

# ---- wrong use
run tern data export $S -o x; status 2; err_has '--seq-len 0'; one_line; nothing
run tern data export $S -L 64; status 2; err_has '--out is missing'
run tern data export $S -L 64 -o d; status 2; err_has 'is there already'; one_line
run tern data export $S -L 64 -o x --to parquet; status 2; err_has 'allowed are datasets and megatron'
run tern data export $S -L 64 -o x --to megatron; status 2; err_has 'documents, not rows'; nothing
run tern data export $S -L 64 -o x --samples 0-1; status 2; err_has 'of a recipe'; nothing
run tern data export text.jsonl -L 64 -o x; status 2; err_has 'not a token set'; one_line; nothing
run tern data export nowhere.tds -L 64 -o x; status 2; one_line; nothing
run tern data import d -o x.tds; status 2; err_has '--tokenizer is missing'; nothing x.tds
run tern data import d -t model -o x.tds --column text; status 2; err_has "no column 'text' (found: input_ids,"; nothing x.tds
run tern data import nowhere -t model -o x.tds; status 2; err_has 'nowhere.idx'; one_line; nothing x.tds
mkdir both && echo '{"splits": ["train"]}' >both/dataset_dict.json
run tern data import both -t model -o x.tds; status 2; err_has 'Name one of them: both/train'; nothing x.tds
cp -r d torn && head -c 5000 d/data-00000-of-00001.arrow >torn/data-00000-of-00001.arrow
run tern data import torn -t model -o x.tds; status 2 "an Arrow file that was cut off"; one_line; nothing x.tds

# ---- files are no larger than is asked for
head -n 50 text.jsonl >some.jsonl; for i in 1 2 3 4 5 6; do cat some.jsonl some.jsonl some.jsonl >more.jsonl; mv more.jsonl some.jsonl; done
tern data build -t model -o some.tds some.jsonl 2>/dev/null
run tern data export some.tds -L 8 -o some --max-shard 1M; status 0
sizes=$(stat -c %s some/data-*.arrow | sort -n)
[ "$(tail -n 1 <<<"$sizes")" -le 1048576 ]; ok $? "no file has more than --max-shard, however short its rows"
[ "$(tail -n 1 <<<"$sizes")" -gt $((1048576 - 13 * 8 - 12 - 24)) ]; ok $? "no file of an export has room for another row"
bytes=$(cat some/* | wc -c)
err_has "$(awk -v b="$bytes" 'BEGIN {printf "%.1f MiB in ", b / 1048576}')" "the summary counts the bytes of all files"

# ---- interrupted, killed, disk full: nothing under the name
yes "$(head -n 50 text.jsonl)" | head -n 60000 >many.jsonl
tern data build -t model -o many.tds many.jsonl 2>/dev/null
for signal in TERM KILL; do
    tern data export many.tds -L 8 -o x --max-shard 1M 2>err &
    pid=$!
    until_true compgen -G 'x.tmp-*/data-00001*'; ok $? "an export under way writes beside its place"
    kill -$signal $pid; wait $pid 2>/dev/null; rc=$?
    [ $rc != 0 ] && [ ! -e x ]; ok $? "SIG$signal: nothing under the name"
    [ $signal = KILL ] || { err_has 'nothing was written'; nothing; }
    rm -rf x.tmp-*
done
(ulimit -f 64; trap '' XFSZ; exec tern data export many.tds -L 8 -o x 2>err); rc=$? cmd="an export without room"
[ $rc != 0 ]; ok $? "an export without room fails"; one_line; nothing
tap_done
