#!/bin/bash
# tern ledger list: filters, order, columns, and names that were not meant for a terminal.
. "$(dirname "$0")/../lib/tap.sh"
unset TERN_LEDGER TERN_RUN_SPOOL COLUMNS
W=$TOOLS/ledger-writer
export TERN_LEDGER=$WORK/ledger; mkdir ledger
# make NAME USER LR FROM TO [OUTCOME]: a run, its id in $id.
make() {
    id=$(WRITER_NAME=$1 WRITER_USER=$2 WRITER_RECIPE=$(printf 'version: 1\nname: x\nsteps: 50\noptimizer: {lr: %s}\ndata:\n  train: [{path: a.tds}]\n' "$3") \
        "$W" ledger new 1 0 "$4" "$5" ${6-}); id=${id%%[!0-9A-Z]*}
}
names() { tern ledger list -P -n -o name "$@" 2>&1 | paste -sd' '; }
make cpt-a ann 1e-4 1 10 done; a=$id
make cpt-b ann 2.0e-4 1 20 node_fail
make sft bob 0.0001 1 30 done
export WRITER_SPEED=2 WRITER_STEPS=1500; make live bob 3e-5 1 40; live=$id; unset WRITER_SPEED

# ---- ./ledger, where no ledger is named
printf 'version: 1\n' >site.yaml; own='env -u TERN_LEDGER TERN_CONFIG='$WORK/site.yaml
run $own tern ledger list -P -n -o name -N sft; status 0 "the folder ledger here is the last resort"; is "$(cat out)" sft "list reads the folder ledger here"
run $own tern ledger show sft; status 0 "show reads it, too"
run $own tern logs sft; err_has 'no logs' "logs finds the run of the folder ledger here"
mkdir elsewhere elsewhere/ledger; (cd elsewhere && run $own tern ledger list; mv out err ..; exit $rc); rc=$?; status 2 "a folder ledger that is no ledger does not count"
err_has 'no ledger is named, and the current folder has none'; one_line
ln -s "$WORK/ledger" linked; mkdir odd-place; ln -s "$WORK/ledger" odd-place/ledger
(cd odd-place && run $own tern ledger list; mv out err ..; exit $rc); rc=$?; status 2 "a link called ledger is not taken unasked"; err_has "the folder ledger here is a link or another user's"
printf 'version: 1\nledger: {dir: %s/odd-place}\n' "$WORK" >far.yaml
run env -u TERN_LEDGER TERN_CONFIG="$WORK/far.yaml" tern ledger list -P -n; is "$(cat out)" '' "the site's ledger wins over the folder ledger here"
rm -r linked odd-place elsewhere

# ---- the default view
run tern ledger list; status 0
has out "running    4711  40/1500 1.6557   500 49 min " "a running run shows its progress, tokens a second and the time that is left"
has out "10/50" "without the trainer's word the recipe has the steps"
[ -z "$(wider 80 out)" ]; ok $? "the default view fits 80 columns" || cat out
run tern ledger list -P -n -N live -o progress,tok/s,left,steps; is "$(cat out)" "40/1500|500.0|2920.0|1500" "-P has the numbers themselves"
run tern ledger list --json -N live; python3 - out <<'P'; ok $? "--json has steps, pace and seconds left"
import json, sys
r, = json.load(open(sys.argv[1]))
assert (r["steps"], r["tokens_per_second"], r["step_seconds"], r["seconds_left"], r["tags"]) == (1500, 500, 2, 2920, []), r
P
run tern ledger list -P; is "$(head -1 out)" "id|name|state|jobid|attempts|step|loss|ckpt|updated" "-P has the columns that scripts know"
run tern ledger list -n; is "$(wc -l <out)" 4 "-n prints no heading"
run tern ledger list -o help; status 0; for f in id name progress tok/s left tags elapsed; do grep -q "^$f " out; ok $? "-o help lists $f"; done
run tern ledger list -o name%-6,state%4 -N sft; is "$(tail -1 out)" "sft    done" "-o takes widths"
run tern ledger list -o name%x; status 2; one_line
run tern ledger list -o nam; status 2; err_has "did you mean 'name'?"

# ---- filters
is "$(names -u ann)" "cpt-a cpt-b" "-u: runs of a user"
is "$(names -u ann,bob)" "cpt-a cpt-b sft live" "-u: of several"
is "$(names -u nobody)" "" "-u: a user of this machine without runs has none"
run tern ledger list -u anne; status 2; err_has "no user 'anne'; did you mean 'ann'?"; one_line
is "$(names --name 'cpt-*')" "cpt-a cpt-b" "--name: a pattern"
is "$(names --name 'x*')" "" "--name: a pattern may fit none"
run tern ledger list --name cpt-c; status 2; err_has "no run 'cpt-c'; did you mean 'cpt-"
is "$(names -u bob -N cpt-a)" "" "two filters: a run of another user is none of this one's"
is "$(names -s done -N cpt-b)" "" "two filters: a run in another state"
is "$(names -s running -w optimizer.lr=2e-4)" "" "two filters: a value that a run in another state has"
run tern ledger list -u bob -N cpt-c; status 2; err_has "no run 'cpt-c'; did you mean 'cpt-"; one_line
is "$(names -s imported)" "" "-s: no run was imported"
is "$(names -s DONE)" "cpt-a sft" "-s: a state, in any case"
is "$(names -s running,node_fail)" "cpt-b live" "-s: several states"
is "$(names -s preempted)" "" "-s: a state that no run is in"
run tern ledger list -s runing; status 2; err_has "'runing' is no state; did you mean 'running'?"; one_line
is "$(names -w optimizer.lr=1e-4)" "cpt-a sft" "--where: a number is equal however it is written"
is "$(names -w 'optimizer.lr<=1e-4')" "cpt-a sft live" "--where: at most"
is "$(names -w 'optimizer.lr>1e-4')" "cpt-b" "--where takes values above a number"
is "$(names -w optimizer.lr!=2e-4 -w data.train[0].path='a*' -u ann)" "cpt-a" "--where: several, a text by a pattern"
run tern ledger list -w optimizer.lrr=1; status 2; err_has "did you mean 'optimizer.lr'?"; one_line
run tern ledger list -w optimizer.lr; status 2; err_has "wanted KEY=VALUE"; one_line
run tern ledger list -w 'optimizer.lr<low'; status 2; err_has "is no number"; one_line
is "$(names --since now-1hours --until now-0hours)" "cpt-a cpt-b sft live" "--since and --until: a time around the runs"
is "$(names --until 2020-01-01)" "" "--until: a time before the runs"
is "$(names -S 2099-01-01T10:00)" "" "--since: a time after the runs"
is "$(names --starttime now-1days --endtime 2099-01-01)" "cpt-a cpt-b sft live" "sacct's names of them"
updated=$(TZ=XST-9 tern ledger list -P -n -o updated -N live)
is "${updated:19}" "+09:00" "times of -P have their zone"
is "$(TZ=UTC0 names -N live -S "$updated")" "live" "--since takes a time as tern prints it, with its zone"
is "$(TZ=UTC0 names -N live -S "${updated/+09:00/-09:00}")" "" "--since: the zone counts"
is "$(names -E 9999-12-31)|$(names -S now-99999weeks)" "cpt-a cpt-b sft live|cpt-a cpt-b sft live" "--since and --until: times beyond what clocks count"
for time in 2026-02-31 2026-04-31T10:00 2025-02-29T00:00:00+00:00 2026-11-27T18:30:06+; do
    run tern ledger list -S $time; status 2; err_has "'$time' is not a time"; one_line
done
is "$(names -S 2024-02-29)" "cpt-a cpt-b sft live" "--since: 29 February of a leap year is a day"
run tern ledger list -E tomorrow; status 2; err_has "is not a time"; one_line

# ---- order
is "$(names --sort -loss)" "cpt-a cpt-b sft live" "--sort: from the greatest on"
is "$(names --sort loss)" "live sft cpt-b cpt-a" "--sort: from the least on"
is "$(names --sort state,-name)" "sft cpt-a cpt-b live" "--sort: by one field, then another"
is "$(names --sort optimizer.lr,name)" "live cpt-a sft cpt-b" "--sort: by a value of the recipe, as a number"
is "$(names --sort -tok/s)" "live cpt-a cpt-b sft" "--sort: those without a value come last"
run tern ledger list --sort los; status 2; err_has "did you mean 'loss'?"; one_line
run tern ledger list -P -o name,optimizer.lr,recipe.steps,optimizer.nothing -N cpt-a; is "$(cat out)" "name|optimizer.lr|recipe.steps|optimizer.nothing
cpt-a|1e-4|50|" "-o: keys of the recipe"

# ---- names that command a terminal, a shell or a reader of columns
export TERN_LEDGER=$WORK/odd; mkdir odd
odd=$(printf 'a|b\n\033]0;x\007$(touch pwned)`touch pwned`"\047\\')
WRITER_NAME=$odd "$W" odd new 1 0 1 3 >/dev/null
WRITER_NAME=$(head -c 10000 /dev/zero | tr '\0' n) WRITER_USER='u"|' "$W" odd new 1 0 1 3 >/dev/null
run tern ledger list; [ -z "$(wider 80 out)" ]; ok $? "a name of 10 kB leaves the table at 80 columns"; has out "n+" "a long name is marked as cut"
! LC_ALL=C grep -q "$(printf '[\001-\010\013-\037]')" out; ok $? "no control character reaches the terminal"
is "$(wc -l <out)" 3 "a name with a line break takes one line"
run tern ledger list -P -n -o name,attempts; is "$(wc -l <out)" 2 "-P: one line a run"
is "$(awk -F'|' '{print NF}' out | paste -sd' ')" "2 2" "-P: a | in a name is no border"
has out 'a\x7cb??]0;x?$(touch pwned)`touch pwned`"'\''\\|1' "-P: a name is escaped so that it can be read back"
run tern ledger list --json; python3 - out "$(printf '%s' "$odd" | tr '\001-\037' '?')" <<'P'; ok $? "--json: the very name, whose control characters the writer masked"
import json, sys
r = json.load(open(sys.argv[1]))
assert r[0]["name"] == sys.argv[2] and len(r[1]["name"]) == 10000 and r[1]["user"] == 'u"|', r[0]["name"]
P
run tern ledger list -N 'a|b[?]*' -P -n -o attempts; is "$(cat out)" 1 "a pattern finds such a name"
run tern ledger list -N "$(printf '\033]0;x\007')"; status 2; ! grep -q "$(printf '\033')" err; ok $? "an error repeats no command of a terminal"
[ ! -e pwned ]; ok $? "no name was executed"
# ---- a ledger of many runs: its time is printed
export TERN_LEDGER=$WORK/many; mkdir many; N=$(long && echo 10000 || echo 300)
WRITER_SPEED=2 "$W" many new 1 0 1 20 done >id; tern ledger fold
python3 - many "$(head -1 id)" "$N" <<'P'
import os, sqlite3, sys
root, base, n = sys.argv[1], sys.argv[2], int(sys.argv[3])
os.chmod(root + "/ledger.db", 0o644)
db = sqlite3.connect(root + "/ledger.db")
first = "%s/runs/%s/run.db" % (root, base)
st = os.stat(first)
letters = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
run, attempt = (list(db.execute("SELECT * FROM " + t).fetchone()) for t in ("run", "attempt"))
names = [d[1] for d in db.execute("PRAGMA table_info(run)")]
run[names.index("recipe")] += "# a line as long as those that people write, for a recipe of two kB\n" * 28
for i in range(n - 1):
    id = "00" + "".join(letters[i >> 5 * k & 31] for k in range(3, -1, -1)) + base[6:]
    os.mkdir("%s/runs/%s" % (root, id)); os.link(first, "%s/runs/%s/run.db" % (root, id))
    run[0] = attempt[0] = id
    run[names.index("name")] = "run-%d" % (i % 500)
    for t, row in ("run", run), ("attempt", attempt), ("source", [id, st.st_ino, st.st_mtime_ns, st.st_size]):
        db.execute("INSERT INTO %s VALUES(%s)" % (t, ",".join("?" * len(row))), row)
db.execute("INSERT INTO source VALUES('7ZZZZZZZZZZZZZZZZZZZZZZZZZ', 1, 1, 1)")  # gone: the next fold writes all
db.commit(); bytes = db.execute("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size").fetchone()[0]; db.close()
with open(root + "/ledger.db", "r+b") as f: f.seek(bytes); f.write(b"ternseal" + bytearray(8))
P
python3 "$ROOT/tests/lib/seal.py" many/ledger.db; chmod 444 many/ledger.db
tern ledger fold "$(head -1 id)" # by tern, with its seal
[ "$(tail -c 16 many/ledger.db | head -c 8)" = ternseal ]; ok $? "ledger.db ends in a seal"
began=$(date +%s%N); run tern ledger list -n; is "$(wc -l <out)" "$N" "a ledger of $N runs lists all"
bound $((($(date +%s%N) - began) / 1000000)) 50 "milliseconds of a list of $N runs"
is "$(tern ledger list -n -N run-7 | wc -l)" $(((N - 1 + 492) / 500)) "a pattern finds its runs among them"
# A recipe that is none.
export TERN_LEDGER=$WORK/broken; mkdir broken
WRITER_RECIPE='steps: [' "$W" broken new 1 0 1 3 >/dev/null; WRITER_RECIPE=$(head -c 20000 /dev/zero | tr '\0' '{') "$W" broken new 1 0 1 3 >/dev/null
run tern ledger list; status 0 "recipes that are no YAML are listed"
run tern ledger list -w steps=1; status 2 "no recipe that is YAML has the key"; one_line

# ---- behind the last planned step, a rate without end, keys that differ in the case
export TERN_LEDGER=$WORK/past; mkdir past
id=$(WRITER_SPEED=2 WRITER_STEPS=30 WRITER_RECIPE='env: {path: a, PATH: b}' "$W" past new 1 0 1 40); id=${id%%[!0-9A-Z]*}
run tern ledger list -P -n -o left,env.path,env.PATH; is "$(cat out)" "0.0|a|b" "no time is left behind the last planned step; keys that differ in the case are two"
run tern ledger list -n -o left; is "$(cat out)" "0 s" "the time left is never below zero"
TERN_RUN_SPOOL=$WORK/past/runs/$id/spool/1 tern metric step=41 tokens_per_second=inf step_seconds=inf
run tern ledger list -n -o tok/s; is "$(cat out)" "inf" "a rate without end has no unit"
run tern ledger list; status 0 "a run without end is listed"

# ---- OpenMetrics
run tern ledger list --openmetrics; status 0
is "$(tail -n 1 out)" "# EOF" "OpenMetrics text ends as the format says"
is "$(grep -c '^tern_run_info{' out)" "$(tern ledger list -n -P -o id | wc -l)" "OpenMetrics: every run has its line"
tern ledger list -l odd --openmetrics >odd-text
cat >shape.py <<'P'
import re, sys
seen, family = set(), None
for line in open(sys.argv[1]).read().split("\n")[:-2]:
    if line.startswith("# TYPE "):
        family = line.split()[2]
        assert family not in seen, family
        seen.add(family)
    elif not line.startswith("#"):
        m = re.fullmatch(r'([a-z_]+)\{((?:[a-z]+="(?:[^"\\\n]|\\.)*",?)+)\} (\S+)', line)
        assert m and m[1] == family, line
        float(m[3])
assert len(seen) == 10, seen
P
for f in out odd-text; do python3 shape.py $f; ok $? "OpenMetrics of $f: families stand together, each with its type, and lines have the format's shape"; done
run tern ledger list --openmetrics --state done; status 0; ! grep -q 'state="running"' out; ok $? "OpenMetrics: filters hold"
run tern ledger list --openmetrics --json; status 2; one_line
tap_done
