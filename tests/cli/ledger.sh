#!/bin/bash
# tern ledger and tern metric, as a user types them.
. "$(dirname "$0")/../lib/tap.sh"
unset TERN_LEDGER TERN_RUN_SPOOL
W=$TOOLS/ledger-writer
L=$WORK/ledger
mkdir "$L"

run tern ledger list; status 2; err_has "no ledger is named"; one_line
run tern ledger list -l /nowhere; status 2; err_has "no such ledger folder"; one_line
export TERN_LEDGER=$L
run tern ledger list -n; status 0 "an empty ledger lists nothing"; [ ! -s out ]; ok $? "a list of an empty ledger prints nothing"
run tern ledger show; status 2; err_has "holds no run yet"

# A run of two attempts; the second began at step 250.  Nothing is folded yet.
run "$W" "$L" new 1 0 1 300 node_fail; id=$(head -1 out)
run "$W" "$L" "$id" 2 250 251 400
run tern ledger list; status 0; out_has "tried running  4711      400 "
run tern ledger list -j 4711 -n -o id; [ "$(cat out)" = "$id" ]; ok $? "-j -n -o id"
run tern ledger list -j 4,5 -n; [ ! -s out ]; ok $? "-j of no run"
run tern ledger list -j x; status 2; one_line
run tern ledger list -S now-1hours -P -o name,state,step; out_has "tried|running|400"
run tern ledger list -S 2099-01-01 -n; [ ! -s out ]; ok $? "-S in the future"
run tern ledger list -S yesterdaze; status 2; err_has "is not a time"
run tern ledger list -o nmae; status 2; err_has "did you mean 'name'?"
run tern ledger list --helpformat; out_has "ckpt"
run tern ledger list --json; python3 -c '
import json, sys
r = json.load(open("out"))
sys.exit(not (len(r) == 1 and r[0]["last_step"] == 400 and r[0]["attempts"] == 2))' 2>/dev/null ||
    grep -q '"last_step": 400' out; ok $? "ledger list --json has the last step and the attempts"

run tern ledger show; status 0; out_has "node_fail"; out_has "running"; out_has "step-00000400"
run tern ledger show "${id:0:12}" --attempts -P -n -o attempt,outcome,resumed,last
[ "$(cat out)" = "1|node_fail|0|300
2|running|250|400" ]; ok $? "show --attempts -P prints parsable rows"
run tern ledger show tried -c -n -P -o step,effective,attempt
[ "$(cat out)" = "100|yes|1
200|yes|1
300|yes|2
400|yes|2" ]; ok $? "show --checkpoints -P prints parsable rows"
run tern ledger show nobody; status 2; err_has "no run is called 'nobody'"; one_line
run tern ledger show --recipe; out_has "name: tried"
run tern ledger show -o step; status 2; err_has "needs one table"

# Effective values are those of a run that was never interrupted.
run tern ledger sql -r latest -P -n "SELECT count(*), count(DISTINCT step) FROM step WHERE name = 'loss'"
[ "$(cat out)" = "400|400" ]; ok $? "the view step has one value a step"
run tern ledger sql -r latest -P -n "SELECT count(*) FROM step_all WHERE name = 'loss' AND NOT effective"
[ "$(cat out)" = "50" ]; ok $? "superseded values stay queryable"
run tern ledger sql "DELETE FROM run"; status 2; err_has "can only be read"; one_line
run tern ledger sql "SELECT name FROM run" --json; out_has '"name": "tried"'
run tern ledger sql -r latest --max-rows 3 "SELECT * FROM step"; err_has "cut after 3 rows"

run tern ledger sql -P -n "select 0.1 + 0.2, 1.0, 0.5, 1e300 * 10, 2.5e-8, 1/3.0, 7, 9e999"
is "$(cat out)" "0.30000000000000004|1.0|0.5|1e+301|2.5e-08|0.3333333333333333|7|Infinity" "-P: numbers that read back as they are"
run tern ledger list -P -n -o loss; loss=$(cat out); run tern ledger sql -r latest --json "select value from step where name = 'loss' order by step desc limit 1"; out_has "$loss" "list prints the loss in full precision"
run tern ledger plot; status 0; out_has "┤"; out_has "R restart"
run env LC_ALL=C tern ledger plot latest lr loss --rows 10
! LC_ALL=C grep -q '[^ -~]' out; ok $? "plain ASCII in a plain locale"
run tern ledger plot latest lss; status 2; err_has "There are: loss lr"; one_line
run tern ledger plot latest --json; out_has '"attempt": 2'

run tern ledger fold; status 0
for db in ledger.db runs/$id/run.db; do
    [ "$(sqlite3 "$L/$db" 'PRAGMA integrity_check; PRAGMA journal_mode')" = "ok
delete" ]; ok $? "plain sqlite3 reads $db"
    [ "$(stat -c %a "$L/$db")" = 444 ]; ok $? "$db is writable for no user"
    [ "$(od -An -tx1 -j68 -N4 "$L/$db" | tr -d ' ')" = 7465726e ]; ok $? "$db says it is tern's"
done
[ "$(sqlite3 "$L/ledger.db" 'SELECT state, last_step, attempts FROM run')" = "running|400|2" ]
ok $? "the catalogue's row"
[ -z "$(find "$L" -name '*.tmp-*')" ]; ok $? "no temporary is left"

# Somebody else's trainer.
run tern metric step=1 loss=2; status 2; err_has "TERN_RUN_SPOOL is not set"; one_line
export TERN_RUN_SPOOL=$L/runs/$id/spool/2
run tern metric step=401 loss=nan acc=0.5; status 0
run tern metric step=402; status 2; err_has "nothing to record"; one_line
run tern metric loss=1; status 2; err_has "which step?"; one_line
run tern metric step=402 loss=abc; status 2; err_has "is no number"; one_line
run tern metric step=402 loss=1e400; status 2 "more than a double holds"; err_has "is no number"; one_line
for small in 1e-400 -1e-400 0.0001e-999 0.$(printf '%0400d' 1); do
    run tern metric step=402 loss=$small; status 2 "less than a double holds, and no zero: ${small:0:12}"; err_has "is no number" "${small:0:12} is said to be no number"; one_line "${small:0:12}: one clear line"
done
run tern metric step=402 zero=0 minus=-0.0 long=0.000e-400 least=5e-324; status 0 "a zero is a number however it is written, and so is the least double"
is "$(tern ledger sql -r "$id" -P -n "select count(*), count(nullif(value, 0.0)) from step where step = 402")" "4|1" "zeros and the least double are recorded as they are"
run tern metric step=402 loss=1 loss=2; status 2 "a name twice"; err_has "loss is given twice"; one_line
run tern metric step=402 step=403 loss=1; status 2 "a step twice"; err_has "step= is given twice"; one_line
run tern metric step=402 loss; status 2; err_has "wanted NAME=VALUE"; one_line
run tern metric step=402 $'\e]0;x\a=1'; status 2; err_has "control characters"; one_line
run tern metric step=402 $'x\xc2\x9b2J=1'; status 2 "a name of a metric may not hold control characters of C1"
run tern metric step=402 $'caf\xe9=1'; status 2 "a name of a metric may not hold bytes that are not UTF-8"; err_has "a metric's name is UTF-8"; one_line
for word in step resumed_step; do run tern metric $word=9007199254740993 loss=1; status 2; err_has "'$word=9007199254740993': a step is a whole number from 0 to 2^53"; one_line; done
mkdir ck; run tern metric step=402 checkpoint=ck; status 0
run tern metric step=402 checkpoint=none; status 2; one_line
printf 'step=402 loss=3\n\nstep=403 loss=-inf\n' >lines
tern metric --stdin <lines; ok $? "lines of standard input"
TERN_RUN_SPOOL=/tmp run tern metric step=1 loss=1; status 2; err_has "is not a spool folder"; one_line
# NaN is NULL with class 1, the infinities are themselves, for tern's reader and for SQLite's.
run tern metric step=404 loss=inf top=-inf; status 0; run tern metric step=405 loss=nan; status 0
tern_sql() { tern ledger sql -r latest -P -n "$1"; }
plain_sql() { sqlite3 "$L/runs/$id/run.db" "$1"; }
run tern ledger fold; status 0
for ask in tern_sql plain_sql; do
    is "$($ask "SELECT step, class, typeof(value) FROM step WHERE step > 400 AND name = 'loss' ORDER BY step")" "401|1|null
402|0|real
403|3|real
404|2|real
405|1|null" "$ask: NaN and infinity are values"
    is "$($ask "SELECT step FROM step WHERE step > 400 AND name = 'loss' AND value > 1e6")" 404 "$ask: only what is greater is greater"
    is "$($ask "SELECT avg(value), count(value), count(*) FROM step WHERE name = 'loss' AND step BETWEEN 401 AND 402")" "3.0|1|2" "$ask: an average leaves NaN out"
    is "$($ask "SELECT min(value) = -9e999, max(value) = 9e999 FROM step WHERE name = 'loss'")" "1|1" "$ask: the least and the greatest"
    is "$($ask "SELECT count(*) FROM step_all a JOIN metric m USING(name) JOIN point p ON p.metric_id = m.id AND p.attempt = a.attempt AND p.step = a.step WHERE a.value IS p.value AND a.class = p.class")" "$($ask "SELECT count(*) FROM point")" "$ask: in every view"
done
run tern ledger plot latest loss --json; python3 - out <<'P'; ok $? "JSON: null, and the class says what it was"
import json, sys
r = {p["step"]: (p["value"], p["class"]) for p in json.load(open(sys.argv[1]))["loss"]}
assert [r[s] for s in range(401, 406)] == [(None, 1), (3.0, 0), (None, 3), (None, 2), (None, 1)], r
P
run tern ledger sql -r latest --json "SELECT value, class FROM step WHERE step IN (401, 402, 404) AND name = 'loss' ORDER BY step"
is "$(tr -d ' \n' <out)" '[{"value":null,"class":1},{"value":3.0,"class":0},{"value":null,"value_class":2,"class":2}]' "JSON of a query has a class for a value that is not finite"
run tern ledger show --json; out_has '"last_loss": null'; out_has '"last_loss_class": 1'
run tern ledger list --json; out_has '"last_loss_class": 1'
run tern ledger sql --json "SELECT last_loss, last_loss_class FROM run"; is "$(tr -d ' \n' <out)" '[{"last_loss":null,"last_loss_class":1}]' "JSON of the catalogue has a class for a loss that is not finite"
run tern ledger show -c -P -n -o step,state,path; out_has "402|foreign|$WORK/ck"

run tern ledger verify; status 0; out_has "ok: "
spool=$L/runs/$id/spool/1/rank0.0.spool
printf 'X' | dd of="$spool" bs=1 seek=4000 conv=notrunc 2>/dev/null
run tern ledger verify; status 1; out_has "rank0.0.spool: bytes "; out_has "lost"; one_line
cp "$spool" keep; truncate -s 100 "$spool"
run tern ledger verify; status 1; out_has "which run.db has read, are gone"
run tern ledger verify nobody; status 2
cp keep "$spool"

# A database whose version only a newer tern could have, and one that is none, are made again.
cp "$L/runs/$id/run.db" new.db; chmod u+w new.db
sqlite3 new.db 'PRAGMA user_version = 99'; python3 "$ROOT/tests/lib/seal.py" new.db; mv -f new.db "$L/runs/$id/run.db"
run tern ledger fold; status 0; err_has "version 99 is newer than this tern's"; [ -e "$L/runs/$id/run.db.bad" ]; ok $? "a run.db of a version that no tern has is kept under another name"
echo rubbish >new.db; mv -f new.db "$L/runs/$id/run.db"
run tern ledger fold; status 0 "a run.db that is none is made again"
run tern ledger show; out_has "node_fail"

# ---- names that would command a terminal, or turn what it shows
export TERN_LEDGER=$WORK/odd; mkdir odd
bidi=$(printf 'x\342\200\256gnp') c1=$(printf 'y\302\2332J') raw=$(printf 'z\2332J')
run "$W" odd new 1 0 1 3; odd=$(head -1 out)
python3 - "odd/runs/$odd/spool/1" <<'P'
import glob, struct, sys
T = []
for i in range(256):
    c = i
    for _ in range(8): c = c >> 1 ^ (0x82F63B78 if c & 1 else 0)
    T.append(c)
def crc(b):
    c = 0xffffffff
    for x in b: c = T[(c ^ x) & 255] ^ c >> 8
    return c ^ 0xffffffff
path = glob.glob(sys.argv[1] + '/*.spool')[0]
data = open(path, 'rb').read()
at, seq, wall = 0, 0, 0
while at < len(data):
    n = struct.unpack_from('<I', data, at + 4)[0]
    seq, wall = struct.unpack_from('<Qq', data, at + 16)
    at += 40 + n
prev = struct.unpack('<I', data[-4:])[0]
text = lambda b: struct.pack('<I', len(b)) + b
names = [b'x\xe2\x80\xaegnp', b'y\xc2\x9b2J', b'z\x9b2J']
def frame(kind, payload):
    global prev, seq, wall, data
    seq += 1; wall += 1000
    h = struct.pack('<4sIHHIQq', b'TERN', len(payload), kind, 0, prev, seq, wall)
    h += struct.pack('<I', crc(h))
    prev = crc(h + payload)
    data += h + payload + struct.pack('<I', prev)
for step in (1, 2, 3):
    frame(5, struct.pack('<qq', step, 3) + b''.join(text(n) + struct.pack('<d', step) for n in names))
evil = b'q\xc2\x9b31m\xe2\x80\xae\x9b2J'
frame(8, text(evil) + text(b'warn') + text(evil) + text(evil))
frame(2, text(evil) * 4 + text(b'a') * 2 + text(evil) + struct.pack('<q', wall))
frame(3, struct.pack('<qq', 7, 0) + text(evil) * 2 + struct.pack('<qq', 1, 1) + text(b'') + struct.pack('<q', 0) + text(b'b') + text(b'train'))
for step, nll in enumerate((float('nan'), float('inf'), float('-inf'), 20.0), 1):
    frame(6, struct.pack('<q', step) + text(b'odd') + struct.pack('<dqq', nll, 10, 20))
open(path, 'wb').write(data)
run = sys.argv[1].split('/')[2].encode()
data, prev, seq = b'', 0, -1 # another file, whose head has such a host
frame(1, struct.pack('<I', 1) + text(run) + struct.pack('<I', 1) + text(b'w') + struct.pack('<IQQ', 0, 7, 1) + text(evil) + struct.pack('<q', 1))
frame(5, struct.pack('<qq', 4, 1) + text(b'acc') + struct.pack('<d', 0.5))
open(sys.argv[1] + '/w.0.spool', 'wb').write(data)
P
for when in before after; do
    run tern ledger list -P -n -o id,name,user,step,jobid; is "$(cat out)" "$odd|||4|7" "names that are none are left out $when a fold, and their run is there"
    run tern ledger sql -r latest -P -n "select (select group_concat(name, ' ') from (select name from metric order by 1)), (select count(*) from attempt where nodes is null and host is null), (select count(*) from event where node is null)"
    is "$(cat out)" "acc loss lr|1|1" "$when a fold: no such name of a metric or host is taken, and the records around them are"
    run tern ledger verify; status 1 "$when a fold: verify tells names that are none"; is "$(grep -c 'make no sense\|w.0.spool.*damaged' out)" 1 "$when a fold: verify tells of the file whose head has such a host" || cat out
    run tern ledger fold; status 0
done
for t in eval eval_effective; do
    is "$(sqlite3 -readonly "$TERN_LEDGER/runs/$odd/run.db" "select step, class, typeof(nll), nll = 9e999, nll = -9e999, nll = 20.0, typeof(ppl_token) from $t where set_name = 'odd' order by step")" "1|1|null||||null
2|2|real|1|0|0|real
3|3|real|0|1|0|real
4|0|real|0|0|1|real" "plain sqlite3 on $t: NaN is NULL with class 1, the infinities are REAL with classes 2 and 3"
    is "$(sqlite3 -readonly "$TERN_LEDGER/runs/$odd/run.db" "select count(*), count(nll), min(nll) = -9e999, max(nll) = 9e999, max(ppl_token) = 9e999, min(ppl_token) from $t where set_name = 'odd'")" "4|3|1|1|1|0.0" "plain sqlite3 on $t: aggregates skip NaN, and have the infinities"
done
is "$(sqlite3 "$TERN_LEDGER/runs/$odd/run.db" "select count(*) from damage")" 7 "each record with a name that is none is damage that run.db reports"
commands() { LC_ALL=C grep -qE "$(printf '\302[\200-\237]|\342\200[\216\217\252-\256]|\342\201[\246-\251]|[\001-\010\013-\037\177]|(^|[ -~])[\200-\301]')" "$@"; }
printf '%s\n' "$bidi" "$c1" "$raw" | while read -r word; do printf '%s\n' "$word" >word; commands word || echo "$word"; done >unseen; [ ! -s unseen ]; ok $? "the test recognises commands of a terminal"
for words in "ledger list" "ledger list -P" "ledger list --json" "ledger list -o name,user,model --json" "ledger show" "ledger show --json" "ledger plot latest loss $bidi $c1" \
    "ledger plot latest loss $raw" "ledger plot latest nothing" "ledger plot latest $bidi --json" "ledger verify" "ledger sql -r latest 'select name from metric'" "ledger sql -r latest --json 'select * from event'" "ledger show -P"; do
    eval "run tern $words"; cat out err >all; ! commands all; ok $? "tern ${words%% *x*}: no command of a terminal" || cat -v all | head -5
done
# A function of SQL looks at no clock: one cell is bounded.
before=$SECONDS
for sql in "select length(hex(zeroblob(900000000)))" "select length(replace(hex(zeroblob(2000000)), '0', hex(zeroblob(2000000))))" \
    "select 'a' like '%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%ab'"; do
    run tern ledger sql "$sql"; status 2 "a cell of SQL that is too large is refused"; one_line
done
bound $((SECONDS - before)) 10 "seconds of three that are too much"
# These would work for hours within one cell: no user waits for more than was given.
for cell in "instr(zeroblob(4000000), zeroblob(2000000) || x'01')" "replace(hex(zeroblob(1900000)), hex(zeroblob(900000)) || '1', 'b')" \
    "instr(hex(zeroblob(1900000)), hex(zeroblob(900000)) || '1')"; do
    run timeout 600 tern ledger sql --seconds 0.2 "select $cell"; status 1 "a cell of SQL that takes hours is stopped"; err_has "stopped after 0.2 s"; one_line
done
run tern ledger sql --json "select $(printf "zeroblob(4000000) || %d," $(seq 40)) 1"; status 1 "one row of more than is shown"; err_has "a row has more than the 64 MiB"; one_line
run tern ledger sql "select $(printf "hex(zeroblob(1999990)) || %d," $(seq 200)) 1"; [ "$rc" != 0 ]; ok $? "one row of more memory than there should be"; one_line
run tern ledger sql -P -n "select 1, 2.5, 'x', null, x'00ff'"; is "$(cat out)" "1|2.5|x||00ff" "sql prints every kind of value as it is"
export TERN_LEDGER=$L

# ---- a ledger of a tern that made STRICT tables
for version in 2 3 5 6; do
    golden=$ROOT/tests/golden/ledger-v$version.sql
    id2=$(sed -n "s/^INSERT INTO run VALUES('\([^']*\)'.*/\1/p" "$golden")
    export TERN_LEDGER=old$version
    mkdir -p "$TERN_LEDGER/runs/$id2"; db=$TERN_LEDGER/runs/$id2/run.db
    if ! sqlite3 "$db" <"$golden" 2>/dev/null; then
        skip "this sqlite3 has no STRICT tables"
        continue
    fi
    # What was a word in a real's column is NULL now, or infinite.
    rows() { for t in run metric point event health param ingest damage; do
            sqlite3 "$db" "select '$t', * from $t order by 2, 3, 4"; done
        sqlite3 "$db" "select path, attempt, step, bytes, shards, manifest_sha256, made_ns, state, wall_ns from checkpoint;
            select attempt, kind, job_id, nodes, world, resumed_step, begin_ns, end_ns, outcome, cause, first_step, last_step, to_step from attempt;
            select attempt, step, set_name, nullif(nll, 'NaN'), tokens, bytes, nullif(ppl_token, 'NaN'), nullif(ppl_byte, 'NaN'), wall_ns from eval"; }
    rows >before
    run tern ledger list -P -n -o id,state,step; is "$(cat out)" "$id2|completed|14" "a ledger of version $version is read: list"
    run tern ledger show -c -P -n -o step,state; is "$(cat out)" "8|verified" "show of an old ledger's checkpoints"
    run tern ledger sql -r latest -P -n "select step, value from step where name = 'acc'"; is "$(cat out)" "13|0.5" "sql of an old ledger's values"
    sqlite3 "$db" "pragma user_version" >was; is "$(cat was)" "$version" "reading an old ledger changes nothing"
    run tern ledger fold; status 0 "fold makes an old ledger's snapshot anew, also without its spools"
    is "$(sqlite3 "$db" 'pragma user_version; pragma integrity_check')" "7
ok" "a folded old ledger has today's version"
    rows >after; cmp before after; ok $? "a folded old ledger has every row"
    is "$(sqlite3 "$db" "select set_name, class, typeof(nll) from eval order by 1; select name, first_step, last_step from span s join metric on metric_id = id where s.attempt = 2 order by 1")" "broken|1|null
heldout|0|real
acc|13|13
loss|9|14
lr|9|14
top|13|13" "a folded old ledger has the classes and spans that it lacked"
    is "$(sqlite3 "$db" "select count(*), sum(effective) from step_all")" "$(sqlite3 "$db" 'select count(*), count(*) from point')" "all values of a folded old ledger are effective"
    run tern ledger show; status 0; out_has "the test said so"; out_has heldout; run tern ledger sql -r latest -P -n 'select text from health'; is "$(cat out)" fine "a folded old ledger has its health rows"
done
# Types are held where STRICT is not known, too; nothing in the file needs a newer SQLite than RHEL 8's.
for t in "point values(1, 1, 'x', 1.0, 0, 1)" "point values(1, 1, 1, 'x', 0, 1)" "param values(1, x'00', 'v', 1)" \
    "attempt(attempt, job_id) values(9, 1.5)" "attempt(attempt, cause) values(9, x'00')"; do
    cp "$L/runs/$id/run.db" typed.db; chmod u+w typed.db
    run sqlite3 typed.db "insert into $t"; [ $rc != 0 ] && grep -q CHECK err; ok $? "CHECK refuses a value of another type: $t"
done
for f in "$L/runs/$id/run.db" "$L/ledger.db"; do
    ! sqlite3 "$f" .schema | grep -iE 'strict|generated always|iif\('; ok $? "${f##*/}: SQL that SQLite 3.26 reads"
done
tap_done
