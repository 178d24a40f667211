#!/bin/bash
# tern generate: the same tokens from every form of a model, for any threads and batch; where a text ends; templates;
# what is refused.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/tiny.sh"
for v in $(compgen -e | grep -E '^(SLURM|TERN_(R|L))'); do unset "$v"; done
tiny_make >made 2>&1 || { cat made; exit 1; }
sed -i 's/^launch: .*/launch: {threads: 1, health: off}/; s/lr: 1.0e-3/lr: 3.0e-2/; s/min_lr: 1.0e-4/min_lr: 3.0e-3/; s/^steps: 8/steps: 20/' run.yaml
run tern run run.yaml; status 0
run tern ckpt export checkpoints/latest -o hf; status 0

# ---- one model in all its forms
gen() { run tern generate "$@"; }
gen checkpoints -p 'the cat' -n 12; status 0; cp out greedy
err_has 'keys and values' "generate names its memory before it takes it"
grep -q 'prompts: [0-9]* tokens in .*, [0-9.]* a second; then 11 in .*, [0-9.]* a second' err; ok $? "generate prints the rates of reading and making tokens" || cat err
[ "$(wc -c <greedy)" -gt 12 ]; ok $? "generate prints a text" || cat greedy
for m in checkpoints/latest "checkpoints/$(basename "$(ls -d checkpoints/step-* | tail -1)")" hf; do
    gen "$m" -p 'the cat' -n 12; cmp -s out greedy; ok $? "${m%-*} goes on as the folder of checkpoints does" || cat out err
done
tern ckpt export checkpoints/latest -o bf16 --dtype bf16 2>/dev/null
gen bf16 -p 'the cat' -n 12; status 0; err_has 'in bf16' "weights in bf16 are kept so"
printf 'the cat\n' >text; gen checkpoints -f text -n 12; cmp -s out greedy; ok $? "a prompt in a file, less its last newline"
tern generate checkpoints -n 12 <text >out 2>err; cmp -s out greedy; ok $? "a prompt from standard input"
tern generate checkpoints -n 12 -p '' >out 2>err; ok $? "an empty prompt is BOS alone" || cat err
gen checkpoints -p 'the cat' -n 12 --ids; ids=$(cat out)
is "$(wc -w <out)" 12 "--ids prints ids"
run tern run run.yaml --set name=lora --set checkpoint.dir=lora --set 'model={from: hf}' --set 'lora={rank: 2, targets: [q_proj, down_proj]}' --set steps=4; status 0
run tern ckpt merge lora/latest -o merged; status 0
for m in lora merged; do gen $m -p 'the cat' -p 'a dog' -n 20 --ids; status 0; cp out $m.out; done
[ -s lora.out ] && cmp -s lora.out merged.out; ok $? "a checkpoint's adapters are put into its weights, as a merge does" || diff lora.out merged.out

# ---- the same tokens for any threads and batch
for k in 1 2 3 4 5; do head -c $((k * k * 3)) <(yes 'the old river runs ' | tr -d '\n') >prompt.$k; done
files=$(printf -- '-f prompt.%s ' 1 2 3 4 5)
for how in '' '--temperature 1.5 --seed 7' '--temperature 1 --top-p 0.9 --top-k 40'; do
    # shellcheck disable=SC2086
    for k in 1 2 3 4 5; do tern generate checkpoints -f prompt.$k -n 30 --ids $how --threads 1; done >alone 2>log
    is "$(wc -l <alone)" 5 "five prompts are continued, ${how:-greedy}"
    for more in '--threads 1 -b 2' '--threads 3 -b 1' '--threads 2 -b 5'; do
        # shellcheck disable=SC2086
        gen checkpoints $files -n 30 --ids $how $more
        cmp -s out alone; ok $? "prompts together ($more) give the tokens of each alone, ${how:-greedy}" || diff out alone
    done
done
gen checkpoints -p 'the cat' -n 30 --ids --temperature 1.5 --seed 7; cp out seven
gen checkpoints -p 'the cat' -n 30 --ids --temperature 1.5 --seed 8; ! cmp -s out seven; ok $? "another seed gives other tokens"
gen checkpoints -p 'the cat' -n 30 --ids --temperature 5 --top-k 1; cp out one; gen checkpoints -p 'the cat' -n 30 --ids
cmp -s out one; ok $? "--top-k 1 is the most probable token at any temperature"

# ---- JSON
gen checkpoints -p 'the cat' -p 'a "dog"' -n 5 --json --logprobs; status 0
is "$(jq -c '[.row, .prompt, .prompt_tokens > 3, (.ids | length), (.logprobs | map(. <= 0) | all), .end]' out | tr '\n' ' ')" \
    '[0,"the cat",true,5,true,"max-tokens"] [1,"a \"dog\"",true,5,true,"max-tokens"] ' "a line of JSON has prompt, ids, logarithms and why it ended"
is "$(jq -r '.ids | map(tostring) | join(" ")' out | head -1)" "$(cut -d' ' -f1-5 <<<"$ids")" "JSON has the ids that --ids prints"
bos() { gen checkpoints -p 'the cat' -n 1 --json --ids "$@"; jq -c '[.prompt_ids[0] == 1, .prompt_tokens == (.prompt_ids | length)]' out; }
is "$(bos)" '[true,true]' "a prompt begins with BOS where the tokenizer's library puts it"
is "$(bos --no-bos)" '[false,true]' "--no-bos leaves it out"

echo '{"instruction": "the\u0000cat", "response": "a\u0000b"}' >nul.jsonl; gen checkpoints --from nul.jsonl --template dolly -n 1 --json
is "$(jq -c '.prompt | split("\n")[1]' out)" '"the\u0000cat"' "JSON has what stands behind a prompt's NUL"
is "$(jq -c .reference out)" '"a\u0000b"' "a NUL in a reference is printed as it was"
# Every token is a NUL and its number.
jq -n '{added_tokens: [], pre_tokenizer: {type: "ByteLevel", add_prefix_space: false, use_regex: true}, decoder: {type: "ByteLevel"},
        model: {type: "BPE", vocab: ([range(800) | {key: "\u0100\(.)", value: .}] | from_entries), merges: []}}' >nul.json
echo '1 5 6' >ids; gen checkpoints -t nul.json --prompt-ids ids -n 3 --json
is "$(jq -c .text out)" "$(jq -c '.ids | map("\u0000\(.)") | add' out)" "a text has a NUL before each id's text"

# ---- where a text ends
read -r -a made <<<"$ids"
echo "{\"eos_token_id\": [799, ${made[3]}, 798]}" >hf/generation_config.json
first=; for i in 0 1 2 3; do [ "${made[$i]}" = "${made[3]}" ] && { first=$((i + 1)); break; }; done
ends() { gen hf -p 'the cat' -n 12 --json "$@"; jq -r '"\(.ids | length) \(.end)"' out; }
is "$(ends)" "$first eos" "one of several ids of generation_config.json ends a text"
is "$(ends --ignore-eos)" "12 max-tokens" "--ignore-eos goes on"
echo "{\"eos_token_id\": ${made[3]}}" >hf/generation_config.json; is "$(ends)" "$first eos" "a single eos_token_id in generation_config.json ends the text"
echo '{"eos_token_id": null}' >hf/generation_config.json; is "$(ends)" "12 max-tokens" "null there leaves it to config.json"
sed -i "s/\"eos_token_id\": 2/\"eos_token_id\": ${made[3]}/" hf/config.json; is "$(ends)" "$first eos" "whose id ends a text then"
echo '{"eos_token_id": "x"}' >hf/generation_config.json; gen hf -p a; status 2; one_error; err_has 'eos_token_id is no id'
echo '{"eos_token_id"' >hf/generation_config.json; gen hf -p a; status 2; err_has 'generation_config.json'
rm hf/generation_config.json; sed -i "s/\"eos_token_id\": ${made[3]}/\"eos_token_id\": 2/" hf/config.json
text=$(cat greedy); gen checkpoints -p 'the cat' -n 12 --stop "${text:6:3}" --stop never
is "$(cat out)" "${text%%"${text:6:3}"*}" "a text ends before --stop"
gen checkpoints -p 'the cat' -n 5000 --ignore-eos --json
is "$(jq -c '[.prompt_tokens + (.ids | length), .end]' out)" '[64,"context"]' "a text ends where the model's positions are full"

# ---- templates
cat >rows.jsonl <<'J'
{"instruction": "the cat", "context": "", "response": "sees a dog"}
{"instruction": "a house", "response": "so it is"}
{"instruction": "old\u001b[31m river", "response": "no\u0007 stone"}
{"prompt": "x"}
J
gen checkpoints --from rows.jsonl --row 1 --template dolly -n 6; status 0
is "$(grep -A4 -x -e '--- 1: prompt' out | tr '\n' '|')" '--- 1: prompt|### Instruction|a house||### Answer|' "a row's prompt is printed by its template"
is "$(tail -2 out | tr '\n' '|')" '--- reference|so it is|' "a row's reference is printed"
grep -qx -e '--- answer' out; ok $? "between them is the answer"
tern data template dolly >own.yaml; cp out first
gen checkpoints --from rows.jsonl --row 1 --template own.yaml -n 6; cmp -s out first; ok $? "a template may be a file"
gen checkpoints --from rows.jsonl --row 0..2 --template dolly -n 6 -b 3 --json; status 0
is "$(jq -c '[.row, .reference]' out | head -2 | tr '\n' ' ')" '[0,"sees a dog"] [1,"so it is"] ' "several rows are numbered, and come in order"
gen checkpoints --from rows.jsonl --row 3 --template dolly; status 2; one_error; err_has "rows.jsonl: row 3: no field 'instruction'"
gen checkpoints --from rows.jsonl --row 2..9 --template dolly; status 2; one_error; err_has 'rows.jsonl: row 3' "a bad row is named"
head -3 rows.jsonl >good.jsonl
echo '{"instruction": "the cat", "response": ""}' >open.jsonl
gen checkpoints --from open.jsonl --template dolly -n 4 --json; status 0 "a record's answer may be empty"; is "$(jq -c .reference out)" null "a row with an empty answer has no reference"
gen checkpoints --from good.jsonl --row 1..3 --template dolly; status 2; one_line; err_has 'has no row 3: it has 3, counted from 0'
gen checkpoints --from good.jsonl --template nosuch; status 2; one_line; err_has 'nosuch'
gen checkpoints --from good.jsonl --template llama3-chat; status 2; one_line; err_has 'special token'
gen checkpoints -p hi --row 1; status 2; one_line; err_has '--row is for --from'
gen checkpoints --from good.jsonl; status 2; one_line; err_has 'say which --template'
gen checkpoints --from absent.jsonl --template dolly; status 2; one_line; err_has 'absent.jsonl'
for row in x 3..1 -1 1.. ..2; do gen checkpoints --from good.jsonl --template dolly "--row=$row"; status 2; done
gen checkpoints --chat 'the cat' --system 'a dog' -n 4 --json; status 0
err_has 'template llama2-chat is taken' "a template is chosen by the tokenizer"
is "$(jq -r .prompt out)" '[INST] <<SYS>>
a dog
<</SYS>>

the cat [/INST]' "a message and its system's message are put into it"
gen checkpoints --chat 'the cat' --template dolly -n 4 --json; is "$(jq -r .prompt out | head -2 | tail -1)" 'the cat' "--chat fills a template of fields, too"
gen checkpoints --chat 'the cat' --system x --template dolly; status 2; one_line

# ---- a terminal is safe from what a model says
if command -v python3 >/dev/null; then
    cat >terminal.py <<'P'
import os, pty, sys
read = lambda fd: os.read(fd, 4096)
sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:], read)))
P
    python3 terminal.py tern generate checkpoints --from good.jsonl --row 2 --template dolly -n 3 >shown 2>/dev/null </dev/null
    grep -q 'old?\[31m river' shown && grep -q 'no? stone' shown; ok $? "control characters are masked on a terminal" || cat -v shown
    tern generate checkpoints --from good.jsonl --row 2 --template dolly -n 3 2>/dev/null | grep -q $'old\e\\[31m river'
    ok $? "elsewhere they are as they are"
else
    skip "no python3 for a terminal"; skip "no python3"
fi

# ---- Ctrl-C
sed 's/"max_position_embeddings": 64/"max_position_embeddings": 1000000/' hf/config.json >config && cp -r hf long && cp config long/config.json
tern generate long -p 'the cat' -n 900000 --ignore-eos --threads 1 >said 2>err & pid=$!
started() { [ "$(wc -c <said)" -gt 20 ]; }
until_true started; kill -INT $pid; wait $pid
is $? 130 "Ctrl-C ends with status 130"
started && [ "$(tail -c 1 said | od -An -c | tr -d ' ')" = '\n' ]; ok $? "what was made is printed to its end"
grep -q 'prompts: .*; then [0-9]* in' err; ok $? "an interrupted generate prints the rates" || cat err

# ---- what is refused
bad() { # WORDS OPTIONS...
    local words=$1; shift
    gen "$@"
    status 2 "generate refuses ${*:2}"; one_error "refused with one error: ${*:2}"; err_has "$words" "refused with '$words'"
    [ ! -s out ]; ok $? "nothing is printed then"
}
bad 'nowhere: is not there' nowhere -p a
bad 'ledger' ledger -p a
bad 'run.yaml: is no folder' run.yaml -p a
bad '64 positions' checkpoints -p "$(yes 'the cat' | head -40 | tr '\n' ' ')"
bad 'byte 2 is not UTF-8' checkpoints -p $'ab\xff'
printf 'ab\xff' >broken; bad 'broken' checkpoints -f broken
bad 'absent' checkpoints -f absent
bad 'temperature' checkpoints -p a --temperature=-0.5
bad 'temperature' checkpoints -p a --temperature nan
bad '--top-p 0:' checkpoints -p a --top-p 0
bad '--top-p 1.5:' checkpoints -p a --top-p 1.5
bad '--max-tokens 0:' checkpoints -p a -n 0
bad '--batch 0:' checkpoints -p a -b 0
bad '--stop' checkpoints -p a --stop ''
bad 'one place' checkpoints -p a --chat b
bad '--template is for' checkpoints -p a --template dolly
bad '--system is for' checkpoints -p a --system b
bad 'one of them' checkpoints -p a --bos --no-bos
bad '--logprobs is for --json' checkpoints -p a --logprobs
cp -r hf bare && rm bare/tokenizer.*
bad 'has no tokenizer' bare -p a
gen bare -t model -p 'the cat' -n 12; cmp -s out greedy; ok $? "--tokenizer names one" || cat err
echo '1 5 6 7' >ids; echo '1 9' >>ids
gen bare --prompt-ids ids --ids -n 4; status 0; is "$(wc -w <out)" 8 "ids need no tokenizer"
printf '1 5\t6, 7\r\n1 9\r\n' >crlf; cp out lines
gen bare --prompt-ids crlf --ids -n 4; cmp -s out lines; ok $? "their lines may end with CR and LF" || cat out err
echo '1 800' >ids; bad 'id 800 is outside' bare --prompt-ids ids --ids
printf '1 2\n1 x\n' >ids; bad "ids:2: 'x' is not an id" bare --prompt-ids ids --ids
printf '1 2\n\n3\n' >ids; bad "ids:2: an empty prompt" bare --prompt-ids ids --ids
: >ids; bad 'has no prompts' bare --prompt-ids ids --ids
yes '1 5' | head -4096 >ids
sed 's/"max_position_embeddings": 64/"max_position_embeddings": 1000000000/' hf/config.json >bare/config.json
gen bare --prompt-ids ids --ids -n 999999000 -b 4096; status 1; one_error; err_has 'of memory are needed' "more memory than there is: refused before it is taken"
cp -r hf torn && truncate -s -9 torn/model.safetensors; gen torn -p a; status 2; one_error
cp hf/config.json bare/config.json; sed -i 's/"num_hidden_layers": 2/"num_hidden_layers": 3/' bare/config.json
bad 'has no tensor' bare -t model -p a
tap_done
