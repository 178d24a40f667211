#!/bin/bash
# tern ledger import: event files become a run, with their steps, times and restarts.
. "$(dirname "$0")/../lib/tap.sh"
unset TERN_LEDGER TERN_RUN_SPOOL COLUMNS
export TERN_LEDGER=$WORK/ledger TMPDIR=$WORK/tmp; mkdir ledger tmp
export WRITER_PID=4711 # event files of one second are in the order of their processes
W=$TOOLS/ledger-writer
values() { tern ledger sql -l "$1" -r "$2" -n -P "select name, step, printf('%.17g', value), class from $3 where name in ('loss', 'lr') order by 1, 2, 3"; }
times() { tern ledger sql -l "$1" -r "$2" -n -P "select step, wall_ns from step where name = 'loss' order by step"; }

# There and back: a run with a restart.
id=$(WRITER_NAME=source "$W" ledger new 1 0 1 60 node_fail); id=${id%%[!0-9A-Z]*}
WRITER_NAME=source "$W" ledger "$id" 2 40 41 80 done >/dev/null
run tern ledger export "$id" --tensorboard board; status 0
run tern ledger import board/source-* -l back --name again; status 0; out_has "again: "
new=$(cut -d' ' -f1 out)
is "$(values back "$new" step | wc -l)" 160 "the run has two metrics of 80 steps"
for view in step step_all; do # values are float32 in event files
    paste -d'|' <(values back "$new" $view) <(values ledger "$id" $view) |
        awk -F'|' '$1 != $5 || $2 != $6 || $4 != $8 || ($3 - $7) ^ 2 > 1e-14 * $7 ^ 2 {bad = 1; print "# " $0} END {exit bad || NR < 160}'
    ok $? "values of the view $view are the source's"
done
paste -d'|' <(times back "$new") <(times ledger "$id") | awk -F'|' '$1 != $3 || ($2 - $4) ^ 2 > 1e6 {bad = 1; print "# " $0} END {exit bad || NR < 80}'
ok $? "values have the time at which they were written, to a microsecond"
is "$(tern ledger list -l back -n -P -o name,state,step)" "again|imported|80" "the list shows the run as imported"
run tern ledger verify -l back; status 0
run tern ledger why -l back again; status 0; out_has "ended     imported: "
! grep -q 'tern logs\|no checkpoint' out; ok $? "why of an imported run names no logs, and loses nothing for want of a checkpoint" || cat out
run tern ledger show -l back "$new" -a; status 0
is "$(tern ledger sql -l back -r "$new" -n -P "select group_concat(resumed_step) from attempt")" "0,40" "the second attempt went on from the source's step"
is "$(ls tmp | wc -l)" 0 "nothing is left aside"

# Folders in it, and the default name.
mkdir -p two/train two/eval; cp board/*/events*0001 two/train; cp board/*/events*0001 two/eval; echo no >two/notes.txt
run tern ledger import two; status 0; out_has "two: "
is "$(tern ledger sql -r "$(cut -d' ' -f1 out)" -n -P "select group_concat(distinct name) from step where name like '%loss'" | tr , '\n' | sort | xargs)" "eval/loss train/loss" "a tag has its folder's name before it"
mkdir -p re/a re/b; cp board/*/events* re/a; cp board/*/events* re/b; run tern ledger import re; status 0
is "$(tern ledger sql -r "$(cut -d' ' -f1 out)" -n -P "select count(distinct attempt), count(*) from step_all where name like '%loss'")" "2|200" "each folder counts its own restarts"

# A restart in one folder hides nothing of another; each file has its own times; links do not matter.
mkdir -p half/a half/b; cp board/*/events* half/a; cp "$(ls board/*/events* | head -1)" half/b; ln -s /etc/passwd half/link; mkfifo half/pipe
run tern ledger import half; status 0; r=$(cut -d' ' -f1 out)
n() { tern ledger sql -r "$r" -n -P "select count(*) from step where name = '$1'"; }
is "$(n b/loss) $(n a/loss)" "60 80" "values of a folder without a restart all count"
is "$(tern ledger sql -r "$r" -n -P "select max(abs(a.wall_ns - b.wall_ns)) < 1000 from step_all a join step_all b on a.step = b.step and a.name = 'a/loss' and b.name = 'b/loss' and a.attempt = 1 and b.attempt = 1")" 1 "values of a second file have their own times"

# Damage.
f=$(ls two/train/*); size=$(wc -c <"$f")
for cut in 1 13 100 $((size - 1)); do
    head -c $cut "$f" >two/eval/x.tfevents.1
    run tern ledger import two; status 0 "a file that ends after $cut bytes"
done
rm two/eval/*; cp "$f" whole; printf X | dd of="$f" bs=1 seek=$((size / 2)) conv=notrunc 2>/dev/null
run tern ledger import two; status 0; grep -q "records are damaged, and left out\|damaged at byte" err; ok $? "a damaged record is reported" || cat err
head -c 300 /dev/urandom >"$f"; run tern ledger import two; status 2; err_has "damaged at byte 0"
n=$(tern ledger list -n | wc -l); mkdir empty
rm "$f"; head -c $(($(od -An -tu8 -N8 whole) + 16)) whole >"$f"; run tern ledger import two; status 2; one_line; err_has "have no scalars"
run tern ledger import empty; status 2; one_line; err_has "has no event files"
run tern ledger import nowhere; one_line; [ "$rc" != 0 ]; ok $? "a folder that is not there is an error"
run tern ledger import; status 2; one_line
is "$(tern ledger list -n | wc -l)" "$n" "what cannot be imported leaves no run"
is "$(ls tmp | wc -l)" 0 "failed imports leave nothing aside"
# Names that are no text, or command a terminal.
for name in $'e\e[2Jvil' $'e\u202evil' latest Best -1 .x ../x '' 'a b' "$(printf '%065d' 0)"; do
    run tern ledger import board --name="$name"; status 2 "import --name=$(printf %q "$name") is refused"; one_line; err_has "--name: '"; ! grep -q $'[\e\u202e]' err; ok $? "a refused name is no command of a terminal"
done
is "$(tern ledger list -n | wc -l)" "$n" "a refused name leaves no run"
while IFS='|' read -r folder wanted; do
    folder=$(printf "%b" "$folder"); mkdir -p "odd names/$folder"; cp board/*/events* "odd names/$folder"
    run tern ledger import "odd names/$folder"; status 0; out_has "  $wanted: " "a folder $(printf %q "$folder") makes a run $wanted"; one_line; err_has "The run is called '$wanted'"; ! grep -q $'\e' out err; ok $? "a folder's name is no command of a terminal"
    run tern ledger show "$wanted"; status 0 "the run $wanted is found by its name"
done <<'L'
version 0|version-0
e\e[2Jvil|e--2Jvil
caf\xc3\xa9|caf-
.x|imported-.x
-1|imported--1
latest|imported-latest
L
mkdir -p $'odd/f\e[2J' odd/plain; cp board/*/events* $'odd/f\e[2J'; cp board/*/events* odd/plain; run tern ledger import odd; status 0; err_has "values are left out: a name of more than 200 bytes or with control characters"
is "$(tern ledger sql -r latest -n -P "select count(*) from metric where name not like 'plain/%'")" 0 "names with control characters are left out of an import"
tap_done
