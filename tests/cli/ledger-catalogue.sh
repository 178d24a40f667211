#!/bin/bash
# ledger.db and run.db are no authority.  A change of them, by a user or a disk, is noticed, reaches no
# answer, and is mended; so are a newer tern's file, and a folder or pipe in the place of one.
. "$(dirname "$0")/../lib/tap.sh"
command -v sqlite3 >/dev/null || skip_all "sqlite3 is not installed"
command -v python3 >/dev/null || skip_all "python3 is not installed"
unset TERN_RUN_SPOOL COLUMNS
export TERN_LEDGER=$WORK/ledger; mkdir ledger
c=ledger/ledger.db
WRITER_NAME=first "$TOOLS/ledger-writer" ledger new 1 0 1 20 done >/dev/null
id=$(WRITER_NAME=second-run "$TOOLS/ledger-writer" ledger new 1 0 1 120 done); id=${id%%[!0-9A-Z]*}; r=ledger/runs/$id
run tern ledger fold; status 0
answers() { timeout 600 tern ledger list -P -n; timeout 600 tern ledger sql -P -n 'select name, last_loss from run order by 1'; timeout 600 tern ledger show "$id" -P -n --attempts; } 2>said
answers >right; [ ! -s said ] && [ "$(grep -c second-run right)" -ge 2 ]; ok $? "the first answers are complete" || cat said right
rows() { sqlite3 $c 'select * from run order by id; select * from attempt order by run_id; select * from checkpoint order by run_id, path'; }
rows >rows.good; cp $c ledger.good; cp $r/run.db run.good
same() { answers >now; cmp -s right now; ok $? "$1: the answers are the spools'" || { head -3 said; diff right now | head -5; }; }
healed() { # NAME: the next fold, and what is there then
    run tern ledger fold; status 0 "$1: a fold goes on" || true; cp err said
    run tern ledger verify; status 0 "$1: the next fold makes it again" || cat said out
    rows | cmp -s rows.good -; ok $? "$1: ledger.db then has the runs' rows"
}
flip() { chmod u+w "$1"; python3 - "$@" <<'P'
import sys
path, at, bit = sys.argv[1:4]
b = bytearray(open(path, 'rb').read())
at = b.index(at.encode()) if not at.lstrip('-').isdigit() else int(at)
b[at] ^= int(bit)
with open(path, 'r+b') as f: f.write(b)
P
chmod a-w "$1"; }
seal() { chmod u+w "$1"; python3 "$ROOT/tests/lib/seal.py" "$1"; chmod a-w "$1"; }

# ---- ledger.db, changed in place
changed() { # NAME
    run tern ledger verify; status 1 "ledger.db, $1: verify finds it"; out_has "$c: is damaged, or was changed. Make it again: tern ledger fold" "ledger.db, $1: verify names the remedy"
    same "ledger.db, $1"; grep -q 'is damaged, or was changed; it is made again' said; ok $? "ledger.db, $1: readers tell it" || cat said
    healed "ledger.db, $1"
}
rewrite $c "UPDATE run SET last_loss = 99, name = 'forged'"; changed "values that SQL updated"
rewrite $c "INSERT INTO run(id, name) VALUES('01ARZ3NDEKTSV4RRFFQ69G5FAV', 'forged')"; changed "a row that SQL inserted"
flip $c second-run 1; changed "a flipped bit of a name"
flip $c -5 1; changed "a flipped bit of its seal"
rewrite $c "PRAGMA user_version = 8"; changed "a version that is none"
rewrite $c "UPDATE run SET last_loss = 99"; run tern ledger verify --json; status 1
python3 - out <<'P'; ok $? "verify --json: ledger.db has a member without a run"
import json, sys
r = json.load(open(sys.argv[1]))
assert [m["damaged"] for m in r] == [0, 0, 1] and r[2]["run"] is None and "ledger.db" in r[2]["findings"], r
P
run tern ledger verify first; status 1 "verify of one run looks at ledger.db, too"
tern ledger fold 2>/dev/null
missed='' wrong='' n=$(long && echo 100 || echo 8)
for ((i = 0; i < n; i++)); do
    size=$(stat -c %s $c); flip $c $((i == 0 ? 99 : (size * i / n + i * 97) % size)) $((1 << i % 8))
    tern ledger verify >/dev/null 2>&1; [ $? = 1 ] || missed="$missed $i"
    answers >now; cmp -s right now || wrong="$wrong $i"
    tern ledger fold 2>/dev/null
done
is "$missed|$wrong" "|" "of $n bits flipped all over ledger.db verify finds each, and none changes an answer"
# Rows that do not come from the runs, under a seal that fits.
rewrite $c "UPDATE attempt SET outcome = 'forged' WHERE run_id = '$id'"; seal $c
run tern ledger verify; status 1 "verify compares ledger.db with the runs"; out_has "$c: does not say what run.db says of run $id"
rewrite $c "INSERT INTO run(id, name) VALUES('01ARZ3NDEKTSV4RRFFQ69G5FAV', 'forged')"; seal $c
run tern ledger verify; out_has "has rows of runs that it does not know"
run tern ledger fold --rebuild; status 0; run tern ledger verify; status 0 "fold --rebuild makes ledger.db of the runs alone"; rows | cmp -s rows.good -; ok $? "the rebuilt ledger.db has the runs' rows"

# ---- each table of both files
cp $r/run.db run.good
n=0 missed=
for f in $r/run.db $c; do
    for t in $(sqlite3 $f "select name from sqlite_master where type = 'table'"); do
        n=$((n + 1)); values=$(sqlite3 $f "select group_concat(case type when 'TEXT' then '''forged''' when 'REAL' then '0.5' else '987654' end) from pragma_table_info('$t')")
        [ $f = $c ] || { rm -f $f; cp run.good $f; }
        rewrite $f "INSERT INTO $t VALUES($values)" || missed="$missed (no row for $t)"
        run tern ledger verify "$id"; grep -q "${f##*/}: .*Make it again" out && [ $rc = 1 ] || missed="$missed ${f##*/}:$t"
        tern ledger fold 2>/dev/null
    done
done
is "$(sqlite3 $c 'select count(*) from run')" 2 "a row of another run in run.db does not come into ledger.db"
is "$missed" "" "a row more in any table of run.db or ledger.db is found by verify"; [ $n -ge 15 ]; ok $? "the check went through the tables of both files ($n)"
run tern ledger fold --rebuild; status 0; run tern ledger verify; status 0 "a rebuild makes all of it again" || cat out

# ---- run.db of a newer version, as a flipped bit says or a newer tern
rm -f $r/run.db*; cp run.good $r/run.db; tern ledger fold
flip $r/run.db 63 1; run tern ledger show "$id"; status 0 "a version that a flipped bit made: readers go on"; err_has "is damaged, or was changed; the spools are read instead"
same "run.db, a flipped bit of its version"
run tern ledger verify; status 1; out_has "run.db: is no run's database, is damaged, or was changed"
run tern ledger fold; status 0; run tern ledger verify; status 0 "a flipped bit of run.db's version: the next fold makes it again"; [ -e $r/run.db.bad ]; ok $? "what was there is kept"; rm -f $r/run.db.bad
flip $r/run.db 63 8; cp $r/run.db flipped; run tern ledger fold --rebuild "$id"; status 0; cmp -s flipped $r/run.db.bad; ok $? "a rebuild keeps a run.db with a flipped bit under another name"
run tern ledger verify; status 0 "a rebuild makes a run.db with a flipped bit again"
newer() { rewrite "$1" "ALTER TABLE run ADD COLUMN more TEXT; PRAGMA user_version = 99"; seal "$1"; }
rm -f $r/run.db.bad; newer $r/run.db; cp $r/run.db newer.db; same "run.db of a newer tern"
run tern ledger fold; status 0; err_has "is left to the newer tern"; cmp -s newer.db $r/run.db && [ ! -e $r/run.db.bad ]; ok $? "a fold leaves run.db to a newer tern"
mv $r/spool/1 gone
for verb in "show $id" "fold $id"; do
    run tern ledger $verb; status 1 "tern ledger ${verb% *} refuses a run.db of a newer tern that may be the only copy"; err_has "it holds what the spools have lost. Use a newer tern"; one_error
done
run tern ledger fold --rebuild "$id"; status 2 "a rebuild refuses it, too"; err_has "of which some are gone"; cmp -s newer.db $r/run.db; ok $? "the only copy stays as it is"
run tern ledger list -n -P; status 0; grep -q first out; ok $? "the other runs are listed"
mv gone $r/spool/1
run tern ledger rebuild; status 0; cmp -s newer.db $r/run.db.bad; ok $? "a rebuild puts a newer tern's run.db aside"; run tern ledger verify; status 0
# ---- ledger.db of a newer tern, which seals it as well
chmod u+w $c; python3 - $c <<'P'
import sys
with open(sys.argv[1], 'r+b') as f: f.seek(63); f.write(b'\x63')
P
seal $c; cp -f $c newer.db; same "ledger.db of a newer tern"; grep -q "version 99 is newer than this tern's 7; the runs are read instead" said; ok $? "readers tell of a newer ledger.db" || cat said
run tern ledger fold; status 0; err_has "is left to the newer tern"; cmp -s newer.db $c; ok $? "a fold leaves ledger.db to a newer tern"
run tern ledger fold --rebuild; status 0; rows | cmp -s rows.good -; ok $? "a rebuild makes a newer tern's ledger.db again"

# ---- what is no file
rm -f $r/run.db.bad*
for f in $c $r/run.db; do
    for kind in folder pipe; do
        rm -rf $f $f.bad
        if [ $kind = folder ]; then mkdir $f; echo mine >$f/kept; else mkfifo $f; fi
        same "${f##*/}, a $kind in its place"
        timeout 600 tern ledger verify >out 2>err; is $? 1 "${f##*/}, a $kind in its place: verify finds it"
        run timeout 600 tern ledger fold; status 0 "${f##*/}, a $kind in its place: a fold goes on"; [ -f $f ]; ok $? "${f##*/}, a $kind in its place: it is a file again"
        [ $kind = pipe ] || is "$(cat $f.bad/kept)" mine "${f##*/}, a folder in its place: what is in it is kept"
        run tern ledger verify; status 0 "${f##*/}, a $kind in its place: then all is well" || cat out
    done
done
mkdir -p own/u; mv ledger "own/u/$(id -u)"; export TERN_LEDGER=$WORK/own/u/$(id -u); cd "$TERN_LEDGER" || exit 1
for f in ledger.db "runs/$id/run.db"; do
    mv "$f" other; ln -s "$PWD/other" "$f"; tern ledger fold >"$WORK/out" 2>"$WORK/err"; is $? 0 "in a user's folder of a shared ledger a link in the place of ${f##*/} is replaced" || cat "$WORK/err"
    [ ! -L "$f" ] && [ -f "$f" ]; ok $? "${f##*/} is a file there again"; rm -f other
done
cd "$WORK" || exit 1
tap_done
