#!/bin/bash
# ledger.db and run.db are derived: whatever becomes of them, the answers are those of the spools, and
# the next fold makes them again.
. "$(dirname "$0")/../lib/tap.sh"
command -v sqlite3 >/dev/null || skip_all "sqlite3 is not installed"
command -v python3 >/dev/null || skip_all "python3 is not installed"
unset TERN_RUN_SPOOL
export TERN_LEDGER=$WORK/ledger
mkdir ledger
run "$TOOLS/ledger-writer" ledger new 1 0 1 120 node_fail; id=$(head -1 out)
run "$TOOLS/ledger-writer" ledger "$id" 2 100 101 200 done
run tern ledger fold; status 0
r=ledger/runs/$id; cp $r/run.db run.good; cp ledger/ledger.db ledger.good
answers() { # what people ask
    timeout 600 tern ledger list -P -n; timeout 600 tern ledger show -P -n --attempts; timeout 600 tern ledger show -c -P -n
    timeout 600 tern ledger sql -r latest -P -n 'select step, name, value from step order by 1, 2'
    timeout 600 tern ledger sql -r latest -P -n 'select * from eval_effective order by step'
    timeout 600 tern ledger plot --json
} 2>said
answers >right; [ ! -s said ] && [ -s right ]; ok $? "the first answers are complete" || cat said
reset() { rm -f $r/run.db* ledger/ledger.db; cp run.good $r/run.db; cp ledger.good ledger/ledger.db; }
# make FILE SQL: as a user with write permission there could leave it
altered() { chmod 644 "$1"; sqlite3 -cmd ".dbconfig defensive off" "$1" "PRAGMA writable_schema = ON; PRAGMA ignore_check_constraints = ON; $2" 2>&1 | sed 's/^/# /'; }
endless='AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x, x, x, x, x, x, x, x, x FROM c'

rows_of() { sqlite3 ledger/ledger.db 'select * from run; select * from attempt order by 2; select * from checkpoint order by path'; }
rows_of >rows
while IFS='|' read -r name sql; do
    case $name in *end | 'a trigger' | *none | forged*) ;; *) long || continue ;; esac
    reset; altered $r/run.db "$sql"; cmp -s run.good $r/run.db && echo "# not altered: $name"
    run tern ledger verify; status 1 "run.db, $name: verify finds it"
    answers >now; cmp -s right now; ok $? "run.db, $name: the answers are the spools'" || { head -3 said; diff right now | head -5; }
    tern ledger fold 2>said; run tern ledger verify; status 0 "run.db, $name: the next fold makes it again" || cat said out
    [ -e $r/run.db.bad ]; ok $? "run.db, $name: what was there is kept"
    rows_of >now; cmp -s rows now; ok $? "run.db, $name: the next fold brings no such row into ledger.db" || diff rows now
done <<L
a view under a table's name, without end|DROP TABLE event; CREATE VIEW event $endless;
a view under a view's name|DROP VIEW step; CREATE VIEW step AS SELECT 1 AS step, 'loss' AS name, 2.5 AS value, 1 AS attempt, 0 AS wall_ns;
a trigger|CREATE TRIGGER t AFTER INSERT ON param BEGIN DELETE FROM run; END;
a table more|CREATE TABLE more(x);
a table less|DROP TABLE param;
without its checks|UPDATE sqlite_master SET sql = 'CREATE TABLE param(attempt, name, value, wall_ns, PRIMARY KEY(attempt, name)) WITHOUT ROWID' WHERE name = 'param';
forged value|UPDATE point SET value = 99 WHERE step = 3;
forged name|UPDATE run SET name = 'evil';
forged outcome|UPDATE attempt SET outcome = 'failed', cause = 'evil';
forged, and a row less|DELETE FROM point WHERE step = 3;
forged state of a checkpoint|UPDATE checkpoint SET state = 'deleted';
forged evaluation|UPDATE eval SET nll = 1.0, ppl_token = 1.0;
forged, and written anew|UPDATE point SET value = 99 WHERE step = 3; VACUUM;
forged in WAL mode|PRAGMA journal_mode = WAL; UPDATE run SET name = 'evil';
forged, with many rows|WITH RECURSIVE c(x) AS (SELECT 300 UNION ALL SELECT x + 1 FROM c LIMIT 9000) INSERT INTO point SELECT 1, 1, x, 1.0, 0, 1 FROM c;
a schema that is none|UPDATE sqlite_master SET sql = 'CREATE TABLE' WHERE name = 'point';
L
while IFS='|' read -r name sql; do
    reset; altered ledger/ledger.db "$sql"
    answers >now; cmp -s right now; ok $? "ledger.db, $name: the answers are the runs'" || { head -3 said; diff right now | head -5; }
    tern ledger fold 2>said; sqlite3 ledger/ledger.db 'select id from run' >now; [ "$(cat now)" = "$id" ]; ok $? "ledger.db, $name: the next fold makes it again" || cat said
done <<L
a run that is NULL|UPDATE sqlite_master SET sql = replace(sql, 'NOT NULL', '') WHERE name = 'source'; UPDATE run SET name = NULL, state = NULL;
a view without end|DROP TABLE attempt; CREATE VIEW attempt $endless;
a number for a text|UPDATE run SET name = x'00ff00';
L
for f in $r/run.db ledger/ledger.db; do
    for how in 'head -c 5000 $k' 'cat /dev/null' 'head -c 9000 /dev/zero' 'echo no database' 'head -c 20000 $k; head -c 9000 /dev/zero' 'head -c 100 $k; head -c 30000 /dev/urandom'; do
        case $how in 'head -c 5000'* | echo* | 'head -c 100'*) ;; *) long || continue ;; esac
        k=run.good; [ "${f##*/}" = run.db ] || k=ledger.good
        reset; rm -f $f; eval "$how" >$f
        answers >now; cmp -s right now; ok $? "${f##*/}, $how: the answers are the spools'" || { head -3 said; diff right now | head -5; }
        tern ledger fold 2>said; run tern ledger verify; status 0 "${f##*/}, $how: the next fold makes it again"
    done
done

# The case that made readers crash: a row without an id.
reset; chmod 644 ledger/ledger.db
python3 - ledger/ledger.db <<'P'
import sqlite3, sys
d = sqlite3.connect(sys.argv[1])
d.executescript("PRAGMA writable_schema = ON; UPDATE sqlite_master SET sql = 'CREATE TABLE source(run_id TEXT PRIMARY KEY, inode INT, mtime_ns INT, bytes INT)' WHERE name = 'source'")
P
answers >now; cmp -s right now; ok $? "a catalogue whose rows have no ids gives the right answers"

# A file of the version before had no seal: its rows hold where the spools have lost them, and only there.
older() { altered $r/run.db "$1 VACUUM; PRAGMA user_version = 6;"; }
reset; older "UPDATE point SET value = 99 WHERE step = 3; UPDATE run SET name = 'evil'; UPDATE attempt SET outcome = 'failed';"
answers >now; cmp -s right now; ok $? "a forged run.db of an older version: the answers are the spools'" || { head -3 said; diff right now | head -5; }
run tern ledger verify; status 1 "a forged run.db of an older version: verify finds it"
run tern ledger fold; status 0; rows_of >now; cmp -s rows now && run tern ledger verify && [ "$rc" = 0 ]; ok $? "a forged run.db of an older version: the next fold makes it again" || cat out
reset; older ""; mv $r/spool/1 gone
answers >now; cmp -s right now; ok $? "a run.db of an older version that is the only copy is read" || { head -3 said; diff right now | head -5; }
run tern ledger fold; status 0; answers >now; cmp -s right now && [ ! -e $r/run.db.bad ]; ok $? "a fold takes all of such a run.db" || diff right now | head -5
mv gone $r/spool/1

# Bits anywhere in both files: no reader crashes or hangs, every answer is right, and what verify passes is no change.
flips=$(long && echo 2000 || echo 10)
cat >flip.py <<'P'
import random, sys
good, to, seed = open(sys.argv[1], 'rb').read(), sys.argv[2], int(sys.argv[3])
r = random.Random(seed)
b = bytearray(good)
for _ in range(r.choice((1, 1, 1, 3))):
    b[r.randrange(len(b))] ^= 1 << r.randrange(8)
open(to, 'wb').write(b)
P
passed=0 crashed=0 wrong=0 quick='select count(*), sum(step), total(value), min(value), max(value), count(distinct attempt) from step'
asked() { timeout 600 tern ledger list -P -n; timeout 600 tern ledger sql -r latest -P -n "$quick"; timeout 600 tern ledger show -P -n --attempts; timeout 600 tern ledger show -c -P -n; } 2>said
reset; asked >right
for ((i = 0; i < flips; i++)); do
    f=$r/run.db k=run.good
    ((i % 2)) && f=ledger/ledger.db k=ledger.good
    reset; rm -f $f; python3 flip.py $k $f $i
    asked >now
    cmp -s right now || { wrong=$((wrong + 1)); echo "# flip $i of ${f##*/}: another answer"; diff right now | head -3 | sed 's/^/# /'; }
    timeout 600 tern ledger verify >verified 2>&1; rc=$?
    [ $rc -lt 124 ] || { crashed=$((crashed + 1)); echo "# flip $i of ${f##*/}: verify ended with $rc"; }
    [ $rc = 0 ] && passed=$((passed + 1)) && echo "# flip $i of ${f##*/}: verify says ok"
    grep -qE 'Segmentation|Aborted|Sanitizer' said verified && crashed=$((crashed + 1)) && echo "# flip $i: $(head -1 said)"
done
[ $crashed = 0 ]; ok $? "$flips times bits flipped in run.db or ledger.db: nothing crashes or hangs"
[ $wrong = 0 ]; ok $? "with flipped bits every answer is the spools'"
[ $passed = 0 ]; ok $? "verify finds all of the flipped bits"

# Where the spools are not whole run.db is the only copy of what it holds.
reset; mv $r/spool/1 gone
run tern ledger fold --rebuild; status 2 "a rebuild from spools that are gone is refused"; err_has 'of which some are gone'; one_line
cmp -s run.good $r/run.db; ok $? "a refused rebuild leaves run.db"
run tern ledger fold; status 0; cmp -s run.good $r/run.db; ok $? "a fold without all spools leaves run.db"
head -c 5000 run.good >cut; rm -f $r/run.db; cp cut $r/run.db
tern ledger fold 2>said; cmp -s cut $r/run.db.bad; ok $? "a damaged run.db is kept under another name"
rm -f $r/run.db; echo again >$r/run.db; tern ledger fold 2>said; cmp -s cut $r/run.db.bad && [ "$(cat $r/run.db.bad.2)" = again ]; ok $? "each damaged run.db is kept under a name of its own"
mv gone $r/spool/1
if strace -qq -e trace=none true 2>/dev/null; then
    reset; rm $r/run.db; cp cut $r/run.db
    LSAN_OPTIONS=detect_leaks=0 ASAN_OPTIONS=detect_leaks=0 strace -f -qq -o /dev/null -e inject=link,linkat:error=EPERM tern ledger fold 2>said
    cmp -s cut $r/run.db.bad && run tern ledger verify && [ "$rc" = 0 ]; ok $? "a damaged run.db is kept also where there are no links" || cat said
else
    skip "strace is not installed, or may not trace"
fi

# A user without write permission there reads the same.
if [ "$(id -u)" = 0 ]; then
    . "$ROOT/tests/lib/reach.sh"
    chmod 755 "$WORK"; reach 65534; reset; rm $r/run.db; cp cut $r/run.db; chmod -R go+rX ledger
    asked >right2; PATH=$REACH_BIN:$PATH
    { setpriv --reuid 65534 --regid 65534 --clear-groups tern ledger list -P -n; setpriv --reuid 65534 --regid 65534 --clear-groups tern ledger sql -r latest -P -n "$quick"; } >now 2>said
    head -2 right | cmp -s - now; ok $? "a reader that may not write reads the spools instead of a damaged run.db" || { cat said; diff right now; }
    cmp -s cut $r/run.db; ok $? "a reader that may not write leaves run.db as it is"
else
    skip "another user's reading wants root"
fi
# ---- pictures of a long run come from parts of its curves, behind the pages of run.db, or from its values
export TERN_LEDGER=$WORK/long; mkdir long
"$TOOLS/ledger-writer" long new 1 0 1 3000 node_fail >ids; id=$(head -1 ids)
"$TOOLS/ledger-writer" long "$id" 2 2200 2201 4000 done >/dev/null
pictures() {
    for o in "" --log --ascii "--rows 40"; do
        COLUMNS=90 LC_ALL=C.UTF-8 tern ledger plot latest loss $o; LC_ALL=C.UTF-8 tern ledger plot latest loss lr $o
    done
}
r=long/runs/$id/run.db
pictures >every; [ ! -e $r ] && [ -s every ]; ok $? "a run of 4,000 steps is drawn before its first fold"
run tern ledger fold; status 0
is "$(tail -c 40 $r | head -c 8)" ternpart "a fold puts parts of curves behind the pages of run.db"
is "$(sqlite3 -readonly $r 'PRAGMA integrity_check')" ok "sqlite3 finds run.db sound with them"
pictures >now; cmp -s every now; ok $? "plot: pictures from parts of curves are those from every value" || diff every now | head -20
chmod 600 $r; printf '\125' | dd of=$r bs=1 seek=$(($(stat -c %s $r) - 5000)) conv=notrunc 2>/dev/null
pictures >now; cmp -s every now; ok $? "plot: where parts of curves are damaged, pictures are those from every value" || diff every now | head -20
run tern ledger verify; status 1 "verify finds the damage"; has out "its parts of curves, from which pictures are drawn, are not what its rows say"
run tern ledger fold; status 0; run tern ledger verify; status 0 "the next fold makes these parts again"
chmod 600 $r; sqlite3 $r 'update point set value = 99 where step between 1000 and 1500'
pictures >now; cmp -s every now; ok $? "plot: values that SQL updated are in no picture" || diff every now | head -20
run tern ledger fold; status 0
sqlite3 -readonly $r ".backup copy.db"; chmod 600 $r; cp copy.db $r
pictures >now; cmp -s every now; ok $? "plot: a copy by sqlite3, which has no parts of curves, is drawn from every value"
run tern ledger verify; status 1 "verify finds that such a copy is not what tern wrote"
run tern ledger fold; status 0; is "$(tail -c 40 $r | head -c 8)" ternpart "the next fold makes its parts"

tap_done
