#!/bin/bash
# tern data build in parts (--part and merge, the tasks of a Slurm step, after a kill): the set is the
# one of a single process, byte for byte; parts that do not belong together are refused.
. "$(dirname "$0")/../lib/tap.sh"
T=$ROOT/tests/golden/spm-bpe-800.model
unset SLURM_JOB_ID SLURM_STEP_ID SLURM_PROCID SLURM_STEP_NUM_TASKS SLURM_RESTART_COUNT

# Lines of several lengths, one of two pieces of 256 KiB; CRLF; lines without text; bad ones.
awk 'BEGIN {
    for (i = 1; i <= 2000; i++) {
        s = "We the people of " i ", in order to form \\u00e9 more\\nperfect union.";
        n = i % 700 == 500 ? 3000 : i == 1100 ? 20000 : i % 7;
        for (k = 0; k < n; k++) s = s " caf\303\251 " k * i;
        printf "{\"id\": %d, \"text\": \"%s\"}%s\n", i, i % 90 ? s : "", i % 11 ? "" : "\r";
        if (i % 300 == 0) print "";
    }
}' >text.jsonl
sed 's/{"id": \([0-9]*\), "text": "\(.*\)"}/%\n\2/' text.jsonl >parts.txt
{ printf '\357\273\277'; head -c -1 parts.txt; } >bom.txt
sed 's/^$/ /; 150s/.*/[/; 900s/"text"/"tex"/; 901s/.*/{/; 1500s/caf/caf\xff/' text.jsonl >bad.jsonl
head -n 700 text.jsonl | gzip >a.jsonl.gz
tail -n 900 text.jsonl | gzip >b.jsonl.gz
: >empty.jsonl
split -n l/5 -d --additional-suffix=.txt text.jsonl whole

build() { tern data build -t "$T" "$@" 2>>words; }
parts() { # N BUILD'S-OPTIONS...: new.tds by way of N parts
    local n=$1 k list=
    rm -f new.tds part-*.tds
    for ((k = n; k >= 1; k--)); do
        build --part $k/$n --threads $((1 + (n + k) % 3)) -o part-$k.tds "${@:2}" || return 1
        list="$list part-$k.tds"
    done
    tern data merge -o new.tds $list 2>merge.err
}
same() { # NAME OPTIONS...
    local n
    tern data build -t "$T" --threads 1 -o one.tds "${@:2}" 2>&1 | grep -v ' documents, .* tokens, ' >one.err
    for n in $(long && echo 1 2 4 5 6 7) 3; do
        parts $n "${@:2}"; ok $? "$1: $n parts and their merge"
        cmp -s one.tds new.tds; ok $? "$1: $n parts give the set of one process"
        is "$(grep -v ' documents, .* tokens, ' merge.err | sed 's/merge:/build:/')" "$(cat one.err)" "$1: $n parts give the warnings of one process"
    done
}
same "lines" text.jsonl
same "files of several kinds" a.jsonl.gz text.jsonl empty.jsonl b.jsonl.gz parts.txt
same "parted text" --split % parts.txt bom.txt
same "whole files" --format text whole0*.txt
same "bad lines" --skip-bad --invalid skip bad.jsonl text.jsonl
tern data build -t "$T" --part 2/2 -o part-2.tds --skip-bad bad.jsonl 2>err; cmd="a part with bad lines"
has err 'bad.jsonl: 1 lines that cannot be read were left out; tern data merge numbers them' "bad lines of a share inside a file have no numbers, which would cost reading what is before it"
same "with BOS" --bos --invalid replace --skip-bad bad.jsonl
same "more parts than documents" whole00.txt
cp text.jsonl text2.jsonl; cp whole01.txt whole01b.txt
same "duplicates" --dedup text.jsonl a.jsonl.gz whole01.txt b.jsonl.gz whole01b.txt text2.jsonl
is "$(tern data info --json one.tds | sed -n 's/^ *"documents": \([0-9]*\).*/\1/p' | head -n 1)" 1978 "duplicates: those of several files are left out"
has one.err ' duplicates, ' "duplicates are counted"
cp one.tds good.tds
run tern data verify part-1.tds; status 0 "a part is a sound set"

awk 'BEGIN { for (i = 1; i <= 3000; i++) printf "{\"instruction\": \"Say %d.\", \"response\": \"It is %d.\"}\n", i, i * i }' >records
build -o one.tds --template dolly records
parts 3 --template dolly records; ok $? "records in a file that is known by its first line: parts and their merge"
cmp -s one.tds new.tds; ok $? "records with masks: 3 parts give the set of one process"

# ---- parts that do not belong together
refused() { status 2 "${2-}"; err_has "$1"; one_line; [ ! -e x.tds ]; ok $? "$cmd: nothing is written"; }
parts 3 text.jsonl
run tern data merge -o x.tds part-1.tds part-3.tds; refused 'part 2 of 3 is missing'
run tern data merge -o x.tds part-2.tds; refused 'parts 1, 3 of 3 are missing'
cp part-1.tds again.tds
run tern data merge -o x.tds part-1.tds part-2.tds again.tds part-3.tds; refused 'part-1.tds and again.tds are both part 1 of 3'
build --part 2/4 -o other.tds text.jsonl
run tern data merge -o x.tds part-1.tds other.tds part-3.tds; refused 'part-1.tds is part 1 of 3, other.tds is part 2 of 4'
build --part 2/3 --bos -o other.tds text.jsonl
run tern data merge -o x.tds part-1.tds other.tds part-3.tds; refused 'part-1.tds and other.tds are of different builds: they differ in --bos'
build --part 2/3 --invalid skip -o other.tds text.jsonl
run tern data merge -o x.tds part-1.tds other.tds part-3.tds; refused 'they differ in --invalid'
build --part 2/3 -o other.tds text.jsonl empty.jsonl
run tern data merge -o x.tds part-1.tds other.tds part-3.tds; refused 'differ in the names, sizes or times of their files'
cp -p text.jsonl kept.jsonl; touch -d '2020-01-01' text.jsonl
build --part 2/3 -o other.tds text.jsonl
run tern data merge -o x.tds part-1.tds other.tds part-3.tds; refused 'differ in the names, sizes or times of their files' "files that were changed meanwhile are noticed"
cp -p kept.jsonl text.jsonl
run tern data merge -o x.tds part-1.tds good.tds part-3.tds; refused 'good.tds: is a whole token set, and no part of one'
run tern data merge -o x.tds part-1.tds text.jsonl; refused 'text.jsonl: not a token set'
run tern data merge part-1.tds; refused '-o SET is missing'
run tern data merge -o part-1.tds part-1.tds part-2.tds part-3.tds; status 2; err_has 'is a part itself'
flip() { printf "\\x$(printf %x $(($(od -An -tu1 -j "$2" -N 1 "$1") ^ 1)))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none; }
size=$(stat -c %s part-2.tds)
for at in 9 $(long && echo 100 4096 $((size - 600))) $((size / 2)) $((size - 2)); do
    cp part-2.tds bad.tds; flip bad.tds "$at"
    run tern data merge -o x.tds part-1.tds bad.tds part-3.tds; refused 'bad.tds: ' "a part with a flipped bit at byte $at is refused"
done
for cut in 0 $(long && echo 100 4096) $((size / 2)) $((size - 1)); do
    head -c "$cut" part-2.tds >bad.tds
    run tern data merge -o x.tds part-1.tds bad.tds part-3.tds; refused 'bad.tds: ' "a part cut at byte $cut is refused"
done

# ---- what cannot be shared
run tern data build -t "$T" --part 1/2 -o x.tds -; refused 'standard input cannot be shared'
mkfifo pipe; run tern data build -t "$T" --part 1/2 --format jsonl -o x.tds pipe; refused 'pipe: is a pipe or device and cannot be shared'
run tern data build -t "$T" --resume -o x.tds -; refused 'standard input cannot be shared'
for k in 0/2 3/2 1/0 2 x/2 1/65537; do run tern data build -t "$T" --part $k -o x.tds text.jsonl; refused 'K/N is expected'; done
run tern data build -t "$T" --part 1/2 text.jsonl; refused 'say where to write the part'
run tern data build -t "$T" --part 2/3 -o x.tds bad.jsonl text.jsonl; status 2; [ ! -e x.tds ]; ok $? "a bad line in a share: nothing is written"
tern data build -t "$T" --threads 1 -o x.tds text.jsonl bad.jsonl 2>one.err
for k in 1 2 3; do
    tern data build -t "$T" --part $k/3 -o x.tds text.jsonl bad.jsonl 2>err && continue
    cmp -s err one.err; ok $? "the line of a bad document has the number of its file" || cat err one.err
    break
done
rm -f x.tds

# ---- the tasks of a step
tasks() { # N OPTIONS...: one build of N tasks; their exit statuses in $all
    local n=$1 k pids=
    for ((k = 0; k < n; k++)); do
        SLURM_JOB_ID=7 SLURM_STEP_ID=$step SLURM_PROCID=$k SLURM_STEP_NUM_TASKS=$n tern data build -t "$T" --threads 1 -o x.tds "${@:2}" >/dev/null 2>err.$k &
        pids="$pids $!"
    done
    all=
    for k in $pids; do wait "$k"; all="$all $?"; done
}
step=0
build -o one.tds text.jsonl a.jsonl.gz
for n in $(long && echo 2 4) 3; do
    rm -f x.tds err.*; step=$((step + 1))
    tasks $n --share-size 100K text.jsonl a.jsonl.gz
    is "$all" "$(printf ' 0%.0s' $(seq $n))" "$n tasks end well"
    cmp -s one.tds x.tds; ok $? "$n tasks write the set of one process"
    is "$(cat err.* | grep -c ' documents, ')" 1 "$n tasks: one summary"
    [ ! -e x.tds.parts ]; ok $? "$n tasks leave no folder of parts" || ls x.tds.parts
done
build -o one.tds --template dolly --dedup records records
rm -f x.tds err.*; step=$((step + 1))
tasks 2 --share-size 20K --template dolly --dedup records records
cmp -s one.tds x.tds; ok $? "tasks build records with masks and without duplicates"
rm -f x.tds err.*; step=$((step + 1))
tasks 3 --share-size 100K text.jsonl bad.jsonl
is "$all" " 2 2 2" "all tasks fail where a share has a bad line"
# Several shares are bad: a task that finds one before it hears of another's says so, too.
grep -q 'bad.jsonl:' err.*; ok $? "one of the tasks names the bad file" || cat err.*
# A late task may say that it goes on with parts that are there.
! cat err.* | grep 'error:' | grep -qv 'bad.jsonl:'; ok $? "every error names the file" || cat err.*
[ ! -e x.tds ]; ok $? "tasks that fail write no set"
step=$((step + 1)); rm -f err.*
tasks 3 --share-size 100K --skip-bad --invalid skip text.jsonl bad.jsonl
is "$all" " 0 0 0" "after a failure on bad input other options begin anew"
build -o one.tds --skip-bad --invalid skip text.jsonl bad.jsonl
cmp -s one.tds x.tds; ok $? "the set of a step that began anew"
[ ! -e x.tds.parts ]; ok $? "a step that began anew leaves no folder of parts" || ls x.tds.parts
run env SLURM_JOB_ID=7 SLURM_STEP_ID=4294967291 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=4 tern data build -t "$T" -o y.tds - <text.jsonl
run env SLURM_JOB_ID=7 SLURM_STEP_ID=4294967291 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=4 tern data build -t "$T" -o y.tds text.jsonl
status 0 "a batch script's own process builds alone"; [ ! -e y.tds.parts ]; ok $? "a batch script's own process makes no parts"

# ---- lost tasks: a pipe cannot be shared, so a slow disk is played by many small shares
big=; for i in 1 2 3 4; do big="$big big$i.jsonl"; cat text.jsonl text.jsonl text.jsonl >big$i.jsonl; done
build -o one.tds $big
kills() { # ROUNDS
    local round k pids victim
    for round in $(seq "$1"); do
        rm -rf x.tds*; step=$((step + 1)); pids=
        for k in 0 1; do
            SLURM_JOB_ID=7 SLURM_STEP_ID=$step SLURM_PROCID=$k SLURM_STEP_NUM_TASKS=2 tern data build -t "$T" --threads 1 --share-size 200K -o x.tds $big >/dev/null 2>err.$k &
            pids="$pids $!"
        done
        set -- $pids
        sleep "0.$((RANDOM % 4))$((RANDOM % 10))"
        victim=$((1 + round % 2))
        kill -9 "${!victim}" 2>/dev/null
        [ $victim = 1 ] && shift
        wait "$1" 2>/dev/null; local rc=$?
        wait 2>/dev/null
        { [ $rc = 0 ] && cmp -s one.tds x.tds; } || { echo "# round $round: exit $rc"; cat err.*; return 1; }
        [ ! -e x.tds.parts ] || { ls x.tds.parts; return 1; }
    done
}
rounds=2; long && rounds=40
kills $rounds; ok $? "a task that is killed: the other builds the set, $rounds rounds"

# ---- frozen tasks: they are taken for lost, and write nothing when they wake
age() { touch -d '2 minutes ago' "$@" 2>/dev/null; } # as if they had shown no life since then
stopped() { awk '{exit $3 != "T"}' "/proc/$1/stat"; }
exists() { compgen -G "$1" >/dev/null; }
freeze() { # LEASE FILES...: $frozen is a task of the step that has it
    local lease=$1 try; shift
    for try in $(seq 50); do
        rm -rf x.tds*
        SLURM_JOB_ID=7 SLURM_STEP_ID=$step SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 tern data build -t "$T" --threads 1 --share-size 200K -o x.tds "$@" >/dev/null 2>err.0 & frozen=$!
        while ! exists "x.tds.parts/$lease" && kill -0 $frozen 2>/dev/null; do :; done
        kill -STOP $frozen 2>/dev/null && until_true stopped $frozen && exists "x.tds.parts/$lease" && [ ! -e x.tds.parts/done ] && return
        kill -9 $frozen 2>/dev/null; wait $frozen 2>/dev/null
    done
    return 1
}
second() { SLURM_JOB_ID=7 SLURM_STEP_ID=$step SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 timeout 600 tern data build -t "$T" --threads 1 --share-size 200K -o x.tds "$@" >/dev/null 2>err; rc=$?; }
thaw() { kill -CONT $frozen; wait $frozen; rc=$?; }
for lease in '0*.lease' 'merge*.lease'; do
    step=$((step + 1)); cmd="a task that is frozen with ${lease%%\**}"
    freeze "$lease" $big || { skip "no task could be frozen with $lease"; continue; }
    age x.tds.parts/$lease
    second $big; status 0 "$cmd: the other builds the set"
    has err 'is gone or frozen; its work is done again' "$cmd: the log says that a task is gone"
    cmp -s one.tds x.tds; ok $? "$cmd: the set is that of one process"
    [ ! -e x.tds.parts ]; ok $? "$cmd: no folder of parts is left" || ls x.tds.parts
    cp good.tds x.tds
    thaw; is $rc 0 "$cmd ends well once it wakes" || cat err.0
    cmp -s good.tds x.tds; ok $? "$cmd writes nothing into a set that came later"
    is "$(echo x.tds*)" x.tds "$cmd leaves nothing when it wakes"
done
sed '$s/.*/[/' text.jsonl >bad2.jsonl
step=$((step + 1)); what="a task of a build that failed, frozen meanwhile"
if freeze '0*.lease' text.jsonl bad2.jsonl; then
    second text.jsonl bad2.jsonl; status 2 "$what: the step has failed on a bad line"
    age x.tds.parts/*.lease
    run tern data build -t "$T" --threads 1 --share-size 200K --skip-bad -o x.tds text.jsonl bad2.jsonl
    status 0 "$what: another build takes the folder"
    build -o bad2.tds --skip-bad text.jsonl bad2.jsonl
    thaw
    cmp -s bad2.tds x.tds; ok $? "$what changes nothing of the new set"
    is "$(echo x.tds*)" x.tds "$what leaves nothing when it wakes"
else skip "no task could be frozen"; fi

# ---- killed, and on again
resumes() { # ROUNDS
    local round tries pid rc
    for round in $(seq "$1"); do
        rm -rf x.tds*
        for tries in $(seq 50); do
            tern data build -t "$T" --threads 1 --resume --share-size 200K -o x.tds $big >/dev/null 2>err & pid=$!
            sleep "0.$((RANDOM % 3))$((RANDOM % 10))"
            kill -9 $pid 2>/dev/null
            wait $pid 2>/dev/null; rc=$?
            [ $rc = 137 ] || break
            [ ! -e x.tds ] || cmp -s one.tds x.tds || { echo "# half a set"; return 1; }
        done
        [ $rc = 137 ] && { tern data build -t "$T" --resume --share-size 200K -o x.tds $big 2>err; rc=$?; }
        { [ $rc = 0 ] && cmp -s one.tds x.tds && [ "$(echo x.tds*)" = x.tds ]; } || { echo "# round $round: exit $rc"; cat err; ls -d x.tds*; return 1; }
    done
}
resumes $rounds; ok $? "a build that is killed again and again ends with the set, $rounds rounds"
rm -rf x.tds*
tern data build -t "$T" --threads 1 --resume --share-size 100K -o x.tds $big 2>err & pid=$!
until_true exists 'x.tds.parts/0003-*.tds'; ok $? "parts appear as they are built"
kill -TERM $pid; wait $pid; rc=$? cmd="a build in parts that is stopped"
if [ $rc != 0 ]; then
    status 1; err_has 'interrupted (signal 15); '; err_has 'the same command goes on with them'; one_line
    [ ! -e x.tds ]; ok $? "$cmd: no set"
    run tern data build -t "$T" --resume --share-size 100K --bos -o x.tds $big
    status 2; err_has 'x.tds.parts: holds parts of another build: the options differ'; one_line
    touch -d 2020-01-01 x.tds.parts/0003-*.tds
    for k in 0005-0123456789abcdef 0005 0006-fedcba9876543210 9999-0123456789abcdef; do cp x.tds.parts/0003-*.tds x.tds.parts/$k.tds; done
    plan=$(basename x.tds.parts/0003-*.tds .tds); plan=${plan#*-}
    printf 'x\n%s here.1\n' 0123456789abcdef >x.tds.parts/done
    run tern data build -t "$T" --share-size 100K -o x.tds $big; status 0 "without --resume, too, a build goes on with its parts"
    err_has 'going on with the parts that are there'
    cmp -s one.tds x.tds; ok $? "$cmd: the set in the end, whatever parts of other plans came late"
    [ ! -e x.tds.parts ]; ok $? "$cmd: parts of other plans are removed in the end" || ls x.tds.parts
    mkdir x.tds.parts; printf 'x\n%s here.1\n' $plan >x.tds.parts/done; rm x.tds
    run tern data build -t "$T" --share-size 100K -o x.tds $big; status 0 "a folder that says done, without its set, is built again"
    cmp -s one.tds x.tds; ok $? "a leftover 'done' hides no missing set"
    [ ! -e x.tds.parts ]; ok $? "a leftover 'done': no folder is left" || ls x.tds.parts
else skip "it was finished before"; fi
mkdir x.tds.parts; touch x.tds.parts/mine
run tern data build -t "$T" --resume -o x.tds text.jsonl; status 2; err_has "x.tds.parts: is there and is not tern's"; one_line
[ -e x.tds.parts/mine ]; ok $? "a folder that is not tern's is left as it is"
rm -rf x.tds.parts

# ---- no room: a limit on the size of files stands for a full disk
rm -rf x.tds*
full() { ( trap '' XFSZ; ulimit -f 100; exec tern data build -t "$T" --threads 1 "$@" ) >/dev/null 2>err; rc=$?; cmd="build $* without room"; }
rm -rf x.tds*
full -o x.tds $big; [ $rc != 0 ]; ok $? "a full disk fails: $cmd"; is "$(ls -d x.tds* 2>/dev/null)" "" "$cmd leaves nothing"
full --resume --share-size 100K -o x.tds $big; [ $rc != 0 ]; ok $? "a full disk fails: $cmd"; [ ! -e x.tds ]; ok $? "$cmd: no set"
is "$(ls x.tds.parts | grep -c tmp)" 0 "$cmd: no half-written part"
run tern data build -t "$T" --share-size 100K -o x.tds $big; status 0 "a build that had no room goes on when there is some"
cmp -s one.tds x.tds; ok $? "the set of a build that had no room"
tap_done
