#!/bin/bash
# Runs exported to MLflow's own tracking server (SQLite behind it), read back by MLflow's own client:
# every value, params, tags and the status; again after the run has gone on; refused after a rewind.
. "$(dirname "$0")/../lib/tap.sh"
for v in $(compgen -e | grep -E '^(SLURM|TERN_(R|L|M)|MLFLOW)|_proxy$'); do unset "$v"; done
. "$ROOT/tests/lib/venv.sh"
tern ledger export --mlflow http://127.0.0.1:1 -l "$WORK" nothing 2>&1 | grep -q 'built without' && skip_all "built without libcurl"
venv mlflow 'mlflow.server' 'mlflow>=2.10' || skip_all "the Python package mlflow is not there and cannot be installed"
W=$TOOLS/ledger-writer
export TERN_LEDGER=$WORK/l HOME=$WORK; mkdir l
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
URL=http://127.0.0.1:$port
setsid "$VENV/bin/mlflow" server --backend-store-uri "sqlite:///$WORK/m.db" --host 127.0.0.1 --port "$port" --workers 1 >server.log 2>&1 & server=$!
server_end() { kill -- -$server; } 2>/dev/null
tap_cleanup=server_end
up() { python3 -c 'import sys, urllib.request as u; u.build_opener(u.ProxyHandler({})).open(sys.argv[1] + "/health")' "$URL"; }
for _ in 1 2; do until_true up && break; done
up 2>/dev/null || { cat server.log; skip_all "MLflow's server does not start here"; }

export WRITER_NAME=cpt WRITER_RECIPE='version: 1
name: tried
optimizer: {lr: 1e-4, betas: [0.9, 0.95]}
data: {train: [{path: pubmed.tds, weight: 2}]}'
id=$(WRITER_PHASES=1 WRITER_SPEED=0.5 WRITER_DOMAIN=2 "$W" l new 1 0 1 1200); id=${id%%[!0-9A-Z]*}
metric() { TERN_RUN_SPOOL=$WORK/l/runs/$id/spool/1 tern metric "$@"; }
metric step=3 acc=nan up=inf down=-inf '+cmd|x=1' a:b=2 ../x=3 zero=0 tiny=5e-324 'fine name/of.a-metric_1=-1.25e300'
tern ledger tag "$id" paper; tern ledger note "$id" "a remark" >/dev/null
cat >check.py <<'P'
import json, math, sys
from mlflow.tracking import MlflowClient
url, path, status = sys.argv[1:4]
client = MlflowClient(url)
ours = json.load(open(path))[0]
runs = client.search_runs([client.get_experiment_by_name("tern").experiment_id], "tags.`tern.run_id` = '%s'" % ours["id"])

def say(good, what, more=""):
    print(("" if good else "not ") + "ok - " + what)
    if not good and more:
        print("#", more)

say(len(runs) == 1, "one run there has the tag of the ledger's run")
run = runs[0]
theirs = {}
for key in run.data.metrics:
    theirs[key] = sorted((m.step, "nan" if math.isnan(m.value) else m.value) for m in client.get_metric_history(run.info.run_id, key))

def points(rows):
    out = []
    for p in rows:
        v = {0: p["value"], 1: "nan", 2: sys.float_info.max, 3: -sys.float_info.max}[p["class"]]
        out.append((p["step"], v))
    return sorted(out)

wanted = {k: points(v) for k, v in ours["metrics"].items()}
wanted.update({"held_out/%s/perplexity_token" % k: points(v) for k, v in ours["held_out"].items()})
plain = {k: v for k, v in wanted.items() if k in theirs}
odd = sorted(k for k in wanted if k not in theirs)
say(all(theirs[k] == plain[k] for k in plain) and len(plain) > 5, "every value, step by step, in %d metrics" % len(plain),
    [k for k in plain if theirs[k] != plain[k]])
say(odd == ["+cmd|x", "../x", "a:b"], "only names that MLflow does not take are other ones", odd)
rest = [k for k in theirs if k not in wanted and not k.endswith("perplexity_byte")]
say(sorted(str(theirs[k]) for k in rest) == sorted(str(wanted[k]) for k in odd), "their values are there, too", rest)
say(sum(k.endswith("perplexity_byte") for k in theirs) > 0, "perplexities a byte are there")
say(run.data.params == {"version": "1", "name": "tried", "optimizer.lr": "1e-4"} | {k: v for k, v in run.data.params.items() if "_" in k or k[-1] == "]"}
    and sorted(v for k, v in run.data.params.items() if k not in ("version", "name", "optimizer.lr")) == ["0.9", "0.95", "2", "pubmed.tds"],
    "params are the recipe's keys", run.data.params)
tags = run.data.tags
say(tags["tern.tags"] == "paper" and tags["mlflow.note.content"] == "a remark" and tags["mlflow.user"] == "someone",
    "tags have the user's words", tags)
say(run.info.run_name == "cpt" and run.info.status == status, "name and status", (run.info.run_name, run.info.status))
P
check() { tern ledger export "$id" --json >ours.json; tap_lines < <("$VENV/bin/python" check.py "$URL" ours.json "$1" 2>check.err || { echo "not ok - MLflow's client reads it"; sed 's/^/# /' check.err | tail -5; }); }

run tern ledger export "$id" --mlflow "$URL"; status 0; out_has ' (new) of experiment tern'
check RUNNING
run tern ledger export "$id" --mlflow "$URL"; status 0; out_has ' 0 values sent'
is "$(sqlite3 m.db 'select count(*) from runs')" 1 "a second export makes no second run"
"$W" l "$id" 2 1200 1201 1500 done >/dev/null
run tern ledger export "$id" --mlflow "$URL"; status 0
check FINISHED
before=$(sqlite3 m.db 'select count(*) from metrics')
"$W" l "$id" 3 1400 1401 1410 failed >/dev/null
run tern ledger export "$id" --mlflow "$URL"; status 2; one_error; err_has 'MLflow takes no value back'
is "$(sqlite3 m.db 'select count(*) from metrics')" "$before" "after a rewind nothing is sent"
there=$(sqlite3 m.db 'select run_uuid from runs')
MLFLOW_TRACKING_URI=$URL "$VENV/bin/mlflow" runs delete --run-id "$there" >delete.log 2>&1; ok $? "the command that the message names deletes the run" || cat delete.log
run tern ledger export "$id" --mlflow "$URL"; status 0; out_has '(new)'
check FAILED
MLFLOW_TRACKING_URI=$URL "$VENV/bin/mlflow" experiments delete --experiment-id 1 >delete.log 2>&1
run tern ledger export "$id" --mlflow "$URL"; status 2; one_error; err_has 'is deleted there. Restore it'
run tern ledger export "$id" --mlflow "$URL/ajax"; status 2; one_error; err_has 'Is it the URL of an MLflow server?'
tap_done
