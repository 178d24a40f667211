#!/bin/bash
# tern ledger export --mlflow: values, params and tags arrive once; what a server refuses, loses or
# says is reported in one line, and no credential in any.  (tests/peers/mlflow.sh has MLflow's own
# server.)
# waits: for a server that is slow
. "$(dirname "$0")/../lib/tap.sh"
unset TERN_RUN_SPOOL COLUMNS
while read -r name; do unset "$name"; done < <(env | sed -n 's/^\(MLFLOW_[A-Z_]*\|[a-z]*_proxy\)=.*/\1/p')
W=$TOOLS/ledger-writer
export TERN_LEDGER=$WORK/l TERN_STORE_DEADLINE=20; mkdir l srv
mkfifo hold
python3 "$ROOT/tests/tools/mlflow.py" port log srv <hold 2>srv.err & srv_pid=$!
exec 9>hold
srv_end() { kill $srv_pid; } 2>/dev/null
tap_cleanup=srv_end
until_true [ -e port ] || skip_all "no python3 that serves"
URL=http://127.0.0.1:$(cat port)
printf 'version: 1\nname: tried\noptimizer: {lr: 1e-4}\ndata: {train: [{path: a.tds}]}\nlong: %0600d\n' 7 >recipe
export WRITER_RECIPE; WRITER_RECIPE=$(cat recipe)
make() { id=$(WRITER_NAME=$1 WRITER_DOMAIN=2 "$W" l new 1 0 1 "$2" ${3-}); id=${id%%[!0-9A-Z]*}; }
export_to() { run tern ledger export "$@"; }
faults() { printf '%s\n' "$@" >srv/fault; : >log; }
left() { awk '$2 > 0' srv/fault; }
asked() { grep -cE -- "$1" log; }
q() { jq -r "$@" srv/store.json; }
one() { jq -r ".runs[\"00000000000000000000000000000001\"]$1" srv/store.json; }
tern ledger list --mlflow x >out 2>&1; export_to nothing --mlflow "$URL"
grep -q 'built without' err && skip_all "built without libcurl"

# ---- a whole run
make cpt 1250 done; cpt=$id
metric() { TERN_RUN_SPOOL=$WORK/l/runs/$cpt/spool/1 tern metric "$@"; }
metric step=3 acc=nan up=inf down=-inf '+cmd|x=1' 'a:b=2' '../../x=3' 'd//e=4'
tern ledger tag "$cpt" paper; tern ledger note "$cpt" "a remark" >/dev/null
: >log
export_to cpt --mlflow "$URL"; status 0; out_has 'run 00000000000000000000000000000001 (new) of experiment tern'
n=$(tern ledger sql -r "$cpt" -n -P 'select count(*) from step')
e=$(tern ledger sql -r "$cpt" -n -P 'select count(*) + sum(bytes > 0) from eval_effective')
is "$(one '.metrics | map(length) | add')" $((n + e)) "every effective value is there"
out_has "$((n + e)) values sent, 0 were there"
is "$(one '.metrics.loss | map(.[2]) | @csv' | tr , '\n' | awk '{printf "%.17g\n", $1}' | md5sum)" "$(tern ledger sql -r "$cpt" -n -P "select value from step where name = 'loss' order by step" | awk '{printf "%.17g\n", $1}' | md5sum)" "with all their digits"
is "$(one '.metrics | [.acc[0][2], .up[0][2], .down[0][2]] | @csv')" '"NaN","Infinity","-Infinity"' "NaN and infinities have their words"
is "$(one '.metrics["held_out/general/perplexity_token"] | length')" 12 "perplexities of held-out sets are metrics"
is "$(one '.metrics | keys[] | select(test("^_cmd_x|^a_b|^__/__/x|^d/_/e"))' | sed 's/[0-9a-f]\{8\}$//' | sort | tr '\n' ' ')" "__/__/x. _cmd_x. a_b. d/_/e. " "names that MLflow does not take have others"
err_has '4 metrics have names that MLflow does not take'
is "$(one '.params | [."optimizer.lr", ."data.train[0].path", .name] | @csv')" '"1e-4",,"tried"' "params are the recipe's keys"
is "$(one '.params | to_entries[] | select(.key | test("^data.train_0_.path")) | .value')" a.tds "a key with an index, too, under a name that MLflow takes"
is "$(one '.params.long | length')" 500 "a long param is cut"; err_has '1 params or tags were longer'
is "$(one '.tags | [."tern.run_id", ."mlflow.user", ."tern.tags", ."mlflow.note.content", ."tern.state"] | @csv')" "\"$cpt\",\"someone\",\"paper\",\"a remark\",\"done\"" "tags say which run it is, and the user's words"
is "$(one ' | [.status, .end_time > .start_time, .run_name] | @csv')" '"FINISHED",true,"cpt"' "the run there has ended as here"
is "$(asked 'log-batch')" $(( (n + e + 999) / 1000 + 2)) "a thousand values a request"

# ---- again, and on
cp srv/store.json before; : >log
export_to cpt --mlflow "$URL/"; status 0; out_has "0 values sent, $((n + e)) were there"
is "$(md5sum <srv/store.json)" "$(md5sum <before)" "a second export changes nothing"
run env http_proxy=http://127.0.0.1:1 all_proxy=http://127.0.0.1:1 tern ledger export cpt --mlflow "$URL"; status 0 "a proxy never hears what goes to this machine"
"$W" l "$cpt" 2 1250 1251 1300 failed >/dev/null
export_to cpt --mlflow "$URL"; status 0; out_has "$((n + e)) were there"; is "$(one '.metrics.loss | length')" 1300 "a run that went on gets the rest"
is "$(one .status)" FAILED "a run that went on gets its new end"
"$W" l "$cpt" 3 1200 1201 1210 done >/dev/null; cp srv/store.json before
export_to cpt --mlflow "$URL"; status 2; one_line; err_has "that the ledger's run has not, or not any more"; err_has "mlflow runs delete --run-id 00000000000000000000000000000001"
is "$(md5sum <srv/store.json)" "$(md5sum <before)" "steps that were done again are refused before anything is sent"
export_to cpt --mlflow "$URL" --experiment other; status 0; out_has 'of experiment other'; is "$(q '.runs | length')" 2 "another experiment takes it as a new run"

# ---- passing faults
make b 30 done
faults '500 2 experiments/get' '429 1 runs/search' 'reset 2 log-batch' 'cut 1 runs/get' '503 1 runs/update'
export_to b --mlflow "$URL"; status 0 "faults that pass are waited out"; is "$(left)" "" "each of them was met"
is "$(q '[.runs[] | select(.run_name == "b")] | length')" 1 "one run came of it"
make c 30 done
faults 'lost 1 experiments/create' 'lost 1 runs/create' 'lost 2 log-batch'
export_to c --mlflow "$URL" --experiment lossy; status 0 "answers that are lost are asked for again"; is "$(left)" ""  "each of them was lost"
is "$(q '[.runs[] | select(.run_name == "c")] | length')" 1 "a run whose making was not answered is found again, not made twice"
is "$(q '.runs[] | select(.run_name == "c") | .metrics.loss | length')" 30 "no value is there twice"
faults '500 99 .'
run env TERN_STORE_DEADLINE=1 tern ledger export c --mlflow "$URL"; status 75; one_line; err_has 'tried'; err_has 'the database'
grep -q $'\033' err; [ $? != 0 ]; ok $? "no server's words command a terminal"
run env TERN_STORE_DEADLINE=1 tern ledger export c --mlflow http://127.0.0.1:1; status 75; one_line
faults '500 1 .' 'mute 99 .'
run env TERN_STORE_DEADLINE=10 tern ledger export c --mlflow "$URL"; status 75; one_line; err_has 'the database' "a server that is silent at the end: its last words are printed"
faults 'mute 99 .'
run env TERN_STORE_DEADLINE=0.5 tern ledger export c --mlflow "$URL"; status 75; one_line; err_has 'no answer in time' "a server that is silent all the time"
rm srv/fault

# ---- faults that stay
make d 5 done
for f in 'strange 1 experiments/create' 'html 1 get-by-name' 'list 1 get-by-name' 'strange 1 get-by-name' 'strange 1 runs/search' 'strange 1 runs/create' 'html 1 log-batch'; do
    faults "$f"; export_to d --mlflow "$URL" --experiment "odd"; status 2 "an answer that is not MLflow's ($f)"; one_line; err_has "answer is not MLflow's"
done
rm srv/fault; export_to d --mlflow "$URL" --experiment odd; status 0 "what was begun is completed"
faults 'strange 1 get-history'; export_to d --mlflow "$URL" --experiment odd; status 2; one_line; err_has "get-history: the answer is not MLflow's"
faults '400 1 log-batch'; make e 5 done; export_to e --mlflow "$URL"; status 2; one_line; err_has 'runs/log-batch: 400 SOME_ERROR: the database'
faults 'move 1 .'; export_to e --mlflow "$URL"; status 2; one_line; err_has 'elsewhere, to https://elsewhere.example/x'
rm srv/fault; export_to e --mlflow "$URL/nothing/here"; status 0 "a path before the API is the server's"
is "$(q '.runs[] | select(.run_name == "e") | .metrics.loss | length')" 5 "a server below a path gets the whole run"

# ---- credentials
echo 'Bearer right-token' >srv/token
export_to e --mlflow "$URL"; status 2; one_line; err_has 'not allowed (401)'; err_has MLFLOW_TRACKING_TOKEN
run env MLFLOW_TRACKING_TOKEN=right-token tern ledger export e --mlflow "$URL"; status 0 "a token is taken"
run env MLFLOW_TRACKING_TOKEN=wr0ng-token TERN_LOG_LEVEL=debug tern ledger export e --mlflow "$URL"; status 2
printf 'Basic %s' "$(printf 'me:s3cret' | base64)" >srv/token
run env MLFLOW_TRACKING_USERNAME=me MLFLOW_TRACKING_PASSWORD=s3cret MLFLOW_TRACKING_TOKEN=other TERN_LOG_LEVEL=debug tern ledger export e --mlflow "$URL"; status 0 "a user and password come before a token"
! grep -rqE 's3cret|wr0ng-token|right-token|czNjcmV0' out err log l; ok $? "no credential is in a message, a URL or the ledger"
run env MLFLOW_TRACKING_TOKEN=secret-1 tern ledger export e --mlflow http://mlflow.example; status 2; one_line; err_has 'credentials are not sent over http://'
run env MLFLOW_TRACKING_TOKEN=$'a\nX: b' tern ledger export e --mlflow "$URL"; cmd=token; status 2; one_line; err_has 'characters that no token has'
run tern ledger export e --mlflow http://me:pw-9@127.0.0.1; status 2; one_line; ! grep -q pw-9 err; ok $? "a password in the URL is refused, and not repeated"
rm srv/token

# ---- mistakes
for url in x ftp://x 'http://' "http://a b" "http://x/?q" "http://x/#f" "http://x\$y"; do export_to e --mlflow "$url"; status 2 "export refuses --mlflow '$url'"; one_line; done
export_to e --mlflow "$URL" --csv; status 2; one_line
export_to e --mlflow "$URL" -m loss; status 2; one_line
export_to nothing --mlflow "$URL"; status 2; one_line

# ---- Ctrl-C
faults '500 999 .'
tern ledger export e --mlflow "$URL" >out 2>err & pid=$!
until_true grep -q experiments log; kill -INT $pid; wait $pid; is $? 130 "Ctrl-C ends an export that waits"
tap_done
