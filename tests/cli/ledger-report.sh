#!/bin/bash
# tern ledger report: the page's data are those of the ledger, no name of a run is more than a text, and
# no file is lost or half written.  tests/peers/report.sh looks at the page in a browser.
. "$(dirname "$0")/../lib/tap.sh"
unset TERN_LEDGER TERN_RUN_SPOOL COLUMNS
W=$TOOLS/ledger-writer
export TERN_LEDGER=$WORK/ledger; mkdir ledger
# make NAME LR SPEED TO: a run that is done, its id in $id.
make() {
    id=$(WRITER_NAME=$1 WRITER_SPEED=$3 WRITER_PHASES=1 WRITER_SETS=general,pubmed,perl WRITER_RECIPE=$(printf 'version: 1\nname: %s\nsteps: 400\nbatch: {global: 8}\noptimizer: {lr: %s}\ndata:\n  train: [{path: a.tds, weight: 0.8}, {path: b.tds, weight: 0.2}]\n' "$1" "$2") \
        "$W" ledger new 1 0 1 "$4" done); id=${id%%[!0-9A-Z]*}
}
make full 1e-5 4 400; make lora 1e-4 2 300
crash=$(WRITER_NAME=crash WRITER_SPEED=2 WRITER_EVENT="rank 3 reported: the device is gone" WRITER_HEALTH="3 uncorrected errors" WRITER_CAUSE="node trn1-2 is down" "$W" ledger new 1 0 1 330 node_fail); crash=${crash%%[!0-9A-Z]*}
WRITER_NAME=crash WRITER_SPEED=2 "$W" ledger "$crash" 2 300 301 350 >/dev/null
cat >page.py <<'P'
# The data of a page, from its HTML as a browser reads it.
import html.parser, json
class Page(html.parser.HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.kind, self.data, self.tags, self.text = None, {}, [], open(path, encoding="utf-8").read()
        self.feed(self.text)
    def handle_starttag(self, tag, attrs):
        a = dict(attrs)
        self.tags.append((tag, a))
        self.kind = a.get("class") if tag == "script" and a.get("type") == "application/json" else None
    def handle_data(self, text):
        if self.kind:
            self.data.setdefault(self.kind, []).append(json.loads(text))
            self.kind = None
P
page() { python3 -c "import json, subprocess, sys; from page import Page
def sql(run, text): return [l.split('|') for l in subprocess.run(['tern', 'ledger', 'sql', '--max-rows', '0', '-r', run, '-P', '-n', text], capture_output=True, text=True, check=True).stdout.splitlines()]
p = Page(sys.argv[1]); runs = p.data['run']; page, = p.data['page']; r = runs[0]
$2" "$1"; }

# ---- what it writes
run tern ledger report full lora; status 0; [ -s full.html ]; ok $? "report: without -o the file has the first run's name"
is "$(stat -c %a full.html)" 644 "report: the page is writable by its owner alone"
is "$(cut -d: -f1 out)" full.html "report names its file"
page full.html '
assert [r["name"] for r in runs] == ["full", "lora"] and len(p.tags) > 5
assert page["recipe"] == [{"key": "optimizer.lr", "values": ["1e-5", "1e-4"]}], page'; ok $? "page: the runs, and the keys in which their recipes differ"
page full.html '
for r in runs:
    for m in "loss", "tokens_per_second", "backward_seconds", "grad_norm":
        want = sql(r["id"], f"select step, value from step where name = \"{m}\" order by step".replace(chr(34), chr(39)))
        got = r["curves"][m]
        assert got["points"] == len(want) and got["step"] == [int(s) for s, _ in want], m
        assert all(abs(float(v) - g) <= 1e-8 * abs(g) for (_, v), g in zip(want, got["value"])), m
'; ok $? "page: curves have the values that tern ledger sql has"
page full.html '
for r in runs:
    assert [s["set"] for s in r["held_out"]] == ["general", "perl", "pubmed"]
    for s in r["held_out"]:
        want = sql(r["id"], "select step, ppl_token, ppl_byte from eval_effective where set_name = \x27%s\x27 order by step" % s["set"])
        assert s["step"] == [int(w[0]) for w in want] and len(want) >= 3
        assert all(abs(float(w[1]) - a) < 1e-6 and abs(float(w[2]) - b) < 1e-6 for w, a, b in zip(want, s["ppl"], s["ppl_byte"]))
        assert s["tokens"] == [1000 * n for n in s["step"]] and s["seconds"] == [(4 if r["name"] == "full" else 2) * n for n in s["step"]], s
        assert s["ppl_ends"] == {"first_step": 100, "first": s["ppl"][0], "best_step": s["step"][-1], "best": s["ppl"][-1], "last_step": s["step"][-1], "last": s["ppl"][-1]}, s'; ok $? "page: perplexities a token and a byte, at the tokens and seconds of training up to there"
page full.html '
assert [(m["set"], m["planned"], m["samples"]) for m in r["mix"]] == [("b.tds", 0.2, 800), ("data/a.tds", 0.8, 2400)], r["mix"]'; ok $? "page: the mix as planned and as it was"
tern ledger goodput lora full --json >goodput; tern ledger cost lora full --usd-hour 10 --json >cost; tern ledger why crash --json >why
tern ledger report lora crash full --usd-hour 10 -o three.html >/dev/null; page three.html '
near = lambda a, b: a == b or (isinstance(b, float) and abs(a - b) <= 1e-8 * abs(b))
for name, key in (("goodput", "goodput"), ("cost", "cost")):
    for want in json.load(open(name)):
        got, = [r[key] for r in runs if r["id"] == want["id"]]
        assert all(near(got[k], want[k]) for k in want), (got, want)'; ok $? "page: goodput and cost are those of tern ledger goodput and cost"
page three.html '
def same(a, b): # the page has fewer digits
    if isinstance(a, dict): return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list): return isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    return a == b or (isinstance(a, float) and abs(a - b) <= 1e-7 * abs(b))
got, want = runs[1]["attempt_rows"], json.load(open("why"))["attempt_rows"]
assert same(got, want) and got[0]["lost_steps"] == 30 and len(got[0]["evidence"]) == 2, (got, want)'; ok $? "page: attempts with their end, evidence and loss are those of tern ledger why"
page three.html '
c = runs[1]["curves"]["loss"]
assert c["step"] == list(range(1, 351)) and [k["step"] for k in runs[1]["checkpoints"]] == [100, 200, 300] == runs[1]["checkpoint_steps"]'; ok $? "page: superseded values are left out, checkpoints are there"
run tern ledger report -o - crash; status 0; page out 'assert r["name"] == "crash"'; ok $? "report -o -: the page goes to stdout" ; [ ! -s err ]; ok $? "report -o -: no word on stderr"
run tern ledger report lora --baseline full -o base.html; page base.html 'assert [r["baseline"] for r in runs] == [False, True]'; ok $? "report --baseline: the last run is the one to compare with"

# ---- nothing from elsewhere: the policy has the digests of the page's own style and script
page three.html '
import base64, hashlib, re
policy, = [a["content"] for t, a in p.tags if a.get("http-equiv") == "Content-Security-Policy"]
for tag, rule in ("style", "style-src"), ("script", "script-src"):
    text, = re.findall("<%s>(.*?)</%s>" % (tag, tag), p.text, re.S)
    assert f"{rule} \x27sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}\x27;" in policy, policy
assert policy.startswith("default-src \x27none\x27;") and "unsafe" not in policy
assert not [a for t, a in p.tags for k in a if k in ("src", "href", "style") or k.startswith("on")]
assert "http://" not in p.text.replace("http://www.w3.org/2000/svg", "") and "https://" not in p.text'; ok $? "page: it names no other file, and the policy lets its own style and script run alone"

# ---- names that would be more than texts
export TERN_LEDGER=$WORK/odd; mkdir odd
odd=$(printf '</script x><img src=x onerror=alert(1)>&lt;"\047\342\200\250\342\200\256\033[31m\001\303')
WRITER_NAME=$odd WRITER_SETS="$(printf '</script><b>"\342\200\250'),__proto__,constructor" WRITER_SPEED=1 WRITER_CAUSE=$odd WRITER_EVENT=$odd WRITER_HEALTH=$odd WRITER_USER=$odd WRITER_RECIPE="name: '</script x><b>'" "$W" odd new 1 0 1 101 failed >/dev/null
run tern ledger report; status 0 "report of a run with such a name"
file=$(ls ./*script*.html); LC_ALL=C grep -q '[^A-Za-z0-9_.:, -]' <<<"$(cut -d: -f1 out)"; [ $? = 1 ] && [ -s "$file" ]; ok $? "report: the file's name has letters, digits and - _ . alone" || cat -v out
cp "$file" odd.html; page odd.html '
assert r["name"].startswith("</script x><img") and sorted(s["set"] for s in r["held_out"]) == ["</script><b>\"\u2028", "__proto__", "constructor"], r["held_out"]
assert [t for t, a in p.tags].count("script") == 3 and not [t for t, a in p.tags if t in ("img", "b")], p.tags
assert p.text.count("</script>") == 3
for line in p.text.splitlines():
    head = "<script type=\"application/json\" class="
    if line.startswith(head):
        assert not set("<>&") & set(line[len(head):-len("</script>")].split(">", 1)[1]), line[:300]'; ok $? "page: markup in names ends no element and begins none"
! LC_ALL=C grep -q "$(printf '[\001-\010\013-\037\177]')" odd.html && ! grep -qE $'\u202e' odd.html && ! sed "1,/<main/d" odd.html | grep -qE $'\u2028'; ok $? "page: no control character, line separator or mark of direction is in it"
head -c 3000 odd.html | grep -o '<title>.*</title>' | grep -qF '&lt;/script x&gt;&lt;img'; ok $? "page: its title is escaped"
id=$(WRITER_NAME=nan WRITER_SPEED=1 "$W" odd new 1 0 1 3 done); id=${id%%[!0-9A-Z]*}
TERN_RUN_SPOOL=$WORK/odd/runs/$id/spool/1 tern metric step=4 loss=nan; TERN_RUN_SPOOL=$WORK/odd/runs/$id/spool/1 tern metric step=5 loss=-inf
tern ledger report nan -o nan.html >/dev/null; page nan.html '
c = r["curves"]["loss"]
assert c["value"][3:] == [None, None] and c["value_class"] == [0, 0, 0, 1, 3] and "NaN" not in p.text.split("application/json")[1]'; ok $? "page: NaN and infinities are null with their class"
export TERN_LEDGER=$WORK/ledger

# ---- many steps: few points, which keep each extreme
make long 1e-4 0.1 30000; tern ledger report long -o long.html >out; page long.html '
c = r["curves"]["loss"]
want = [(int(s), float(v)) for s, v in sql(r["id"], "select step, value from step where name = \x27loss\x27 order by step")]
assert c["points"] == 30000 and len(c["step"]) == 1000 and sum(c["count"]) == 30000, len(c["step"])
at = 0
for step, value, low, high, n in zip(c["step"], c["value"], c["value_low"], c["value_high"], c["count"]):
    part = [v for s, v in want[at:at + n]]
    assert want[at + n - 1][0] == step, step
    for got, right in (low, min(part)), (high, max(part)), (value, sum(part) / n):
        assert abs(got - right) <= 1e-5 * abs(right) + 1e-9, (step, got, right)
    at += n'; ok $? "page: a long curve is 1,000 means with the least and greatest value of each part"
[ "$(stat -c %s long.html)" -lt 700000 ]; ok $? "page: a run of 30,000 steps is less than 700 kB" || stat -c %s long.html

# ---- mistakes
run tern ledger report lra -o none.html; status 2; err_has "did you mean 'lora'?"; one_line; [ ! -e none.html ]; ok $? "report of an unknown run writes nothing"
run tern ledger report lora --baseline ful -o none.html; status 2; err_has "did you mean 'full'?"; one_line; [ ! -e none.html ]; ok $? "report of an unknown baseline writes nothing"
echo "my notes" >notes.html; run tern ledger report lora -o notes.html; status 2; err_has "exists and is no page of tern ledger report"; one_line; is "$(cat notes.html)" "my notes" "report: another file is left as it is"
run tern ledger report lora -o full.html; status 0; page full.html 'assert r["name"] == "lora"'; ok $? "report: an earlier page is replaced"
mkdir dir.html; run tern ledger report lora -o dir.html; status 2; one_line
run tern ledger report lora -o no/such/page.html; [ "$rc" != 0 ]; ok $? "report into a folder that is not there fails"; one_line
run tern ledger report lora --instance trn1.32xlarg; status 2; err_has "did you mean"; one_line
cp full.html before.html; (ulimit -f 60; trap '' XFSZ; run tern ledger report lora -o full.html; [ "$rc" != 0 ] && cmp -s full.html before.html); ok $? "report: where the page cannot be written whole, the earlier one stays"
ls -A | grep -qE 'full\.html.|\.tmp'; [ $? = 1 ]; ok $? "report: no temporary file is left" || ls -A
if [ -e /dev/full ]; then tern ledger report lora -o - >/dev/full 2>err; [ $? != 0 ]; ok $? "report -o -: a full disk is an error"; one_line; fi
tap_done
