#!/bin/bash
# tern bench data: its passes, its numbers, and the talk with the peers' script.
. "$(dirname "$0")/../lib/tap.sh"
number() { jq -e "$1" out >/dev/null; ok $? "$2" || cat out; }
G=$ROOT/tests/golden/spm-bpe-800.model
for i in 1 2 3; do printf '{"text": "line %d: naïve words\\n"}\n{"text": ""}\n' $i; done >a.jsonl
printf '{"text": "and another one"}\n' >b.jsonl
mkdir sets
bench() { run tern bench data -t "$G" --dir sets "$@"; }

bench --rounds 3 --json a.jsonl b.jsonl; status 0 "tern bench data measures texts without a peer"
number '.rounds == 3 and .cores == "one" and .documents == 4 and .text_bytes == 3 * 21 + 15' "documents and bytes of text"
number '.mb_per_second > 0 and .best_mb_per_second >= .mb_per_second and .cpu_seconds > 0 and .peers == []' "a rate, the best one, seconds of CPU"
tern data build -t "$G" -o set.tds a.jsonl b.jsonl 2>/dev/null
number ".tokens + .documents == $(tern data info --json set.tds | jq .tokens)" "tokens without the ends of documents"
sum=$(jq -r .sha256 out) tokens=$(jq .tokens out)
bench --rounds 1 --cores a.jsonl b.jsonl; status 0 "on all cores"
out_has 'all cores'; out_has 'tern data build'
is "$(ls sets)" "" "no set is left"

# A script in the libraries' place: bash -I SCRIPT PEER MODEL one|all FILE...
cat >bash-I <<'S'
#!/bin/sh
shift
exec sh "$@"
S
chmod +x bash-I
cat >fake <<S
[ "\$1" = gigatoken ] || { echo '{"version": "9", "cannot": "reads no such model"}'; exit; }
[ "\$2 \$3 \$4 \$5" = "$G one a.jsonl b.jsonl" ] && [ "\$RAYON_NUM_THREADS" = 1 ] || exit 1
echo '{"version": "of straw", "seconds": 0.001, "cpu_seconds": 7}'
echo '{"tokens": $tokens, "sha256": "$sum"}'
S
bench --rounds 2 --json --peer gigatoken,tiktoken --python ./bash-I --script fake a.jsonl b.jsonl; status 0 "tern bench data runs a peer's script"
number '[.peers[].name] == ["gigatoken", "tiktoken"] and .peers[1].cannot == "reads no such model"' "one that does not read the model says why"
number '.peers[0] | .version == "of straw" and .cpu_seconds == 7 and .same_ids' "the peer's numbers are its script's"
number '(.peers[0].loaded_mb_per_second / (.text_bytes / 1e3) - 1) | fabs < 1e-9' "a rate from loading on"
number '(.peers[0].ratio * .peers[0].mb_per_second / .mb_per_second - 1) | fabs < 1e-9' "the ratio is of our rate by its"
number '(.peers[0].loaded_ratio * .peers[0].loaded_mb_per_second / .mb_per_second - 1) | fabs < 1e-9' "so is the one from loading on"
bench --rounds 1 --peer gigatoken,tiktoken --python ./bash-I --script fake a.jsonl b.jsonl; status 0
out_has 'gigatoken of straw'; out_has 'ids equal'; out_has "without Python's start"; out_has 'reads no such model'
sed "s/$sum/0$sum/" fake >other
bench --rounds 1 --peer gigatoken --python ./bash-I --script other a.jsonl b.jsonl; status 1 "other ids are a failure"
out_has 'ids DIFFER'; err_has "ids of gigatoken differ from tern's"
echo 'echo words' >mute
bench --rounds 1 --peer gigatoken --python ./bash-I --script mute a.jsonl; status 1 "a script that says something else"
err_has 'something else'
echo 'kill -9 $$' >killed
bench --rounds 1 --peer gigatoken --python ./bash-I --script killed a.jsonl; status 1; err_has 'signal 9 (Killed)'
echo 'exit 3' >fails
bench --rounds 1 --peer gigatoken --python ./bash-I --script fails a.jsonl; status 1; err_has 'make deps-peers'
bench --rounds 1 --peer gigatoken --python /no/python --script fails a.jsonl; status 1; err_has '/no/python: No such file'
echo 'kill -TERM $PPID; sleep 60' >stops
bench --rounds 1 --peer gigatoken --python ./bash-I --script stops a.jsonl; status 1; err_has 'interrupted (signal 15)'
is "$(ls sets)" "" "no set is left behind failures"

bench --peer jax a.jsonl; status 2; err_has "'jax' is not gigatoken"
bench --peer gigatoken,gigatoken a.jsonl; status 2; err_has 'stands twice'
bench --peer gigatoken --script none.py a.jsonl; status 2; err_has 'none.py: No such file'
bench --rounds 0 a.jsonl; status 2; err_has 'from 1 to 1000'
bench none.jsonl; status 2; err_has 'none.jsonl: No such file'
bench --dir none a.jsonl; status 2; err_has '--dir none'
run tern bench data a.jsonl; status 2; err_has '--tokenizer is missing'
echo '{' >bad.jsonl
bench bad.jsonl; status 2 "text that is not JSON is bad input"; err_has 'bad.jsonl:1'
tap_done
