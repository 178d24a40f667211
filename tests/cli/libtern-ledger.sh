#!/bin/bash
# libtern-ledger: programs in C, Fortran and Python log to the ledger; threads, children, a run of
# `tern run`; its symbols and prototypes are those that programs were built with.
. "$(dirname "$0")/../lib/tap.sh"
unset TERN_LEDGER TERN_RUN_SPOOL
S=$ROOT/plugins/libtern-ledger
so=$BIN/../plugins/libtern-ledger.so.0
mkdir -p lib include/tern ledger
cp "$S/ledger.h" include/tern/ && cp "$so" lib/ && ln -s libtern-ledger.so.0 lib/libtern-ledger.so
ok $? "the library is built" || tap_done
export LD_LIBRARY_PATH=$WORK/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
CC=${CC:-gcc}
build() { run "$1" -Wall -Wextra -Werror -Iinclude "${@:2}" -Llib -ltern-ledger; }
sql() { tern ledger sql -l ledger -r "$1" -P -n "$2"; }
values() { sql "$1" "select name, count(*), round(sum(value * step), 6) from step group by name"; }

# ---- an example in each language
build "$CC" -std=c99 -pedantic -o log-c "$S/examples/log.c"; status 0 "the example in C compiles without a warning"
run ./log-c ledger; status 0 "the example in C logs"
is "$(values from-c)" "loss|100|400.0
lr|100|5.05" "its values are in the ledger"
if command -v clang >/dev/null; then build clang -o log-clang "$S/examples/log.c"; status 0 "clang compiles it, too"; else skip "clang is not installed"; fi
if command -v g++ >/dev/null; then
    printf '#include <tern/ledger.h>\nint main() { return tern_log_close(tern_log_open("ledger", "from-c++")); }\n' >log.cc
    build g++ -o log-cc log.cc; status 0 "a program in C++ includes the header"; run ./log-cc; status 0 "a program in C++ logs values"
else skip "g++ is not installed"; fi
if command -v gfortran >/dev/null; then
    build gfortran -o log-f "$S/examples/log.f90"; status 0 "the example in Fortran compiles without a warning"
    run ./log-f ledger; status 0 "the example in Fortran logs"
    is "$(values from-fortran)" "loss|100|400.0" "its values are in the ledger"
else skip "gfortran is not installed"; fi
if python3 -c 'import ctypes' 2>/dev/null; then
    run python3 "$S/examples/log.py" ledger; status 0 "the example in Python logs"
    is "$(values from-python)" "loss|100|400.0" "its values are in the ledger"
else skip "python3 with ctypes is not installed"; fi
is "$(tern ledger list -l ledger -P -n -o name,state,attempts,step | grep '^from-c|')" "from-c|done|1|100" "tern ledger list shows a run before its first fold"
is "$(sql from-c "select kind, outcome, host = '$(uname -n)' from attempt")" "train|done|1" "the attempt of a program that logs is one of training, and is done"

# ---- threads and children: each value once, none lost
if [ -n "${TERN_SANITIZE-}" ]; then cp "$TOOLS/ledger-log" log; else build "$CC" -I"$ROOT" -o log "$ROOT/tests/tools/ledger-log.c" -lpthread; fi
for kind in threads children both; do
    run ./log $kind ledger $kind; status 0 "$kind log to one handle"; [ ! -s err ] || sed 's/^/# /' err
    : >wanted
    [ $kind = threads ] || for i in 0 1 2 3; do echo "child$i|1000|$((i * 1000000 + 500500))"; done >>wanted
    [ $kind = threads ] || for i in 0 1 2 3; do echo "grandchild$i|1000|$((i * 1000000 + 500500))"; done >>wanted
    [ $kind = threads ] || for i in 0 1; do echo "parent$i|1000|$((i * 1000000 + 500500))"; done >>wanted
    [ $kind = children ] || for i in 0 1 2 3 4 5 6 7; do echo "thread$i|1000|$((i * 1000000 + 500500))"; done >>wanted
    sql $kind "select name, count(*), cast(sum(value) as integer) from step group by name" >got
    cmp -s wanted got; ok $? "$kind: every value of every one is there, exact" || diff wanted got
    is "$(tern ledger list -l ledger -P -n -o name,state | grep "^$kind|")" "$kind|done" "$kind: the run ends when its owner closes it"
    run tern ledger verify "$kind" -l ledger; status 0 "$kind: every file of the run is sound"
done
id=$(sql children "select id from run")
is "$(find ledger/runs/"$id" -name 'log-*.spool' | wc -l)" 9 "the parent, its children and theirs have a file each"
is "$(sql children "select group_concat(name, ' ') from (select name from step where name like 'parent%' group by name having max(step) = 1000)")" "parent0 parent1" "a child's close leaves the parent's log open"

# ---- a process that ends without a close
cat >kill.c <<'C'
#include <signal.h>
#include <sys/wait.h>
#include <tern/ledger.h>
#include <unistd.h>
int main(void)
{
    struct tern_log *log = tern_log_open("ledger", "killed");
    if (fork() == 0)
        _exit(tern_log_value(log, 6, "loss", 3) < 0 || tern_log_close(log) < 0);
    int status = 1;
    wait(&status);
    return status || tern_log_value(log, 7, "loss", 2.5) < 0 ? 1 : raise(SIGKILL);
}
C
build "$CC" -o kill kill.c; run ./kill; status 137 "a program is killed while it logs"
is "$(sql killed "select step, value from step")" "6|3.0
7|2.5" "the values that it and its child logged are there"
is "$(tern ledger list -l ledger -P -n -o name,state | grep '^killed|')" "killed|running" "its run has no end: the child's close is none"
id=$(sql killed "select id from run")
TERN_RUN_SPOOL=$WORK/ledger/runs/$id/spool/1 run ./log threads - - ; status 0 "a program logs to the attempt that TERN_RUN_SPOOL names"
is "$(sql killed "select count(*), (select outcome from attempt) from step")" "8002|" "its values are there, and its close is not the attempt's end"

# ---- the ledger goes away under a program: its values are written once more, and stderr is the program's
cat >moved.c <<'C'
#include <stdio.h>
#include <tern/ledger.h>
int main(void)
{
    struct tern_log *log = tern_log_open("moving", "moved");
    return tern_log_value(log, 1, "loss", 3) < 0 || rename("moving", "away") < 0 || tern_log_close(log) < 0;
}
C
build "$CC" -o moved moved.c; run ./moved; status 0 "a ledger is moved away while a program logs"
[ ! -s err ]; ok $? "nothing is printed to stderr" || cat err
is "$(tern ledger sql -l moving -r moved -P -n 'select value from step')" 3.0 "the values are written where the ledger was"
rm -rf moving away; TERN_LOG_LEVEL=warn run ./moved; err_has "is not there any more" "with TERN_LOG_LEVEL the warning is printed"

# ---- bad arguments
run ./log bad ledger; status 0 "bad arguments: each is refused, and the log goes on"; cp out refused
[ "$(wc -l <refused)" = 21 ] && ! grep ': taken$' refused; ok $? "each of them is refused" || cat refused
[ ! -s err ]; ok $? "nothing is printed to stderr" || cat err
while IFS='|' read -r call words; do has refused "$call: $words" "refused with its reason: $call"; done <<'END'
never opened|the log is NULL
no name|'NULL' is no name of a run
blank|'a b' is not 1 to 64 letters, digits
dash|'-n' begins with a dash
latest|'latest' is a word of commands
no ledger|no ledger is named: give its folder to tern_log_open(), or set TERN_LEDGER
failed open|no ledger is named
step -1|step -1: wanted 0 to 2^53
a step above 2^53|step 9007199254740993: wanted 0 to 2^53
a name twice|loss is given twice in one call
name NULL|a value's name has 1 to 200 bytes, not 0
name long|a value's name has 1 to 200 bytes, not 201
escape|byte 2 of a value's name is no character
C1|byte 2 of a value's name is no character
second name|byte 4 of a value's name
no names|2 values, and their array is NULL
n -1|-1 values of one step: wanted 0 to 1024
n 1025|1025 values of one step: wanted 0 to 1024
END
is "$(sql bad "select step, substr(name, 1, 4), value, class from step_all order by 1, 2")" "0|xxxx|7.0|0
1|inf|Infinity|2
1|nan||1
9007199254740992|last|-Infinity|3" "NaN, the infinities, step 0 and the greatest step are values, and nothing of a refused call is"

# ---- storage that refuses
echo file >plain
run ./log threads plain/ledger no; status 1 "a ledger below a file: an error, no crash"; err_has "plain: is there already, and is no folder"; one_line
run ./log threads /proc/none no; status 1 "a folder that cannot be made: likewise"; err_has "/proc/none"; one_line
TERN_RUN_SPOOL=/tmp run ./log threads - no; status 1; err_has "is not a spool folder" "a wrong TERN_RUN_SPOOL is reported"; one_line
TERN_LEDGER=$WORK/ledger run ./log threads - by-variable; status 0 "TERN_LEDGER names the ledger"
is "$(sql by-variable 'select count(*) from step')" 8000 "the values go to the ledger that TERN_LEDGER names"

# ---- inside a run of tern run
cat >run.yaml <<END
version: 1
name: inside
workload: {command: [./log, both, elsewhere, ignored]}
ledger: {dir: ledger}
END
run tern run run.yaml; status 0 "a workload of tern run logs by the library" || tail -n 5 err
is "$(sql inside 'select count(*), count(distinct name), max(attempt) from step where name glob "*[0-9]"')" "18000|18|1" "its values are the run's, with those of threads and children"
[ ! -e elsewhere ]; ok $? "the folder and name that it gave are not used"
is "$(sql inside "select count(*), max(outcome) from attempt")" "1|done" "the attempt's end is tern run's"

# ---- the library itself
ldd "$so" | awk '{print $1}' | grep -vE '^(linux-vdso|linux-gate|libc|libm|libpthread|ld-linux|/.*ld-linux|/.*ld64)' >others
[ ! -s others ]; ok $? "the library needs libc alone: no libfabric, OpenBLAS, Slurm or SQLite" || cat others
{
    nm -D --defined-only --with-symbol-versions "$so" | awk '{print $2, $3}'
    printf '#include <tern/ledger.h>\n' | $CC -Iinclude -E -P - | grep -v '^ *#' | tr -s ' \n\t' ' ' | sed 's/; */;\n/g' | grep -i tern_log_ | sed 's/^ *//'
    echo "soname $(objdump -p "$so" | awk '$1 == "SONAME" {print $2}')"
} | LC_ALL=C sort >abi
cmp -s abi "$ROOT/tests/golden/libtern-ledger.abi"; ok $? "the symbols and prototypes are those of tests/golden/libtern-ledger.abi" || {
    diff "$ROOT/tests/golden/libtern-ledger.abi" abi | sed 's/^/# /'
    echo "# A new function: TERN_LOG_VERSION grows by 1, and its line goes to exports.map and to the golden file."
    echo "# A changed or removed one would break programs that are built: give the new one another name."
    cp abi "${TERN_ABI_OUT:-/dev/null}"
}

# ---- a man page for each function: its prototype, its contract and the others' names
man=$BIN/../man/man3
plain() { sed '/^\.PP/d; s/\\f[BR]//g; s/\\-/-/g; s/\\e/\\/g; s/\\ //g; s/^\.BR* //' "$1" | tr -s ' \n' '  '; echo; }
exported=$(sed -n 's/^ *\(tern_log_[a-z_]*\);/\1/p' "$S/exports.map")
[ "$(wc -w <<<"$exported")" -ge 6 ]; ok $? "the library exports functions"
for f in $exported; do
    [ -s "$man/$f.3" ] || { ok 1 "$f has a man page"; continue; }
    plain "$man/$f.3" >page
    proto=$(grep -v '^ \*\|^/\*' "$S/ledger.h" | tr -s ' \n' '  ' | grep -oE "[a-z_ ]+\*?$f\([^;]*\);" | tail -n 1 | sed 's/^ //')
    [ -n "$proto" ] && has page "$proto" "the page of $f has its prototype"
    contract=$(awk -v f="$f(" '/^\/\*/ {c = ""} {l = $0; sub(/ *\*\/$/, "", l); sub(/^ ?\/?\*+ ?/, "", l); gsub(/`/, "", l); c = c " " l} index($0, f) && /^[a-z]/ {print p; exit} {p = c}' "$S/ledger.h" | tr -s ' ' ' ' | sed 's/^ //; s/ $//')
    [ "${#contract}" -gt 40 ] && has page "$contract" "the page of $f has the whole contract of the header"
    for other in $exported; do [ "$other" = "$f" ] || grep -q "$other(3)\|$other (3)" page || echo "$other"; done >lacks
    [ ! -s lacks ]; ok $? "the page of $f names the other functions" || cat lacks
    has "$man/libtern-ledger.3" ".BR $f (3)" "libtern-ledger(3) lists $f"
done
is "$(cd "$man" && echo *.3 | tr ' ' '\n' | grep -c tern_log)" "$(wc -w <<<"$exported")" "no page is of a function that is not there"
tap_done
