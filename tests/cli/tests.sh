#!/bin/bash
# The tools that tests are run with: bounds, long lists, stages, layers of rooms, make lint's rules of
# English, and what make links again.
. "$(dirname "$0")/../lib/tap.sh"
unset TERN_TEST_BOUNDS TERN_TEST_LONG TERN_RESULTS

# ---- a bound is an assertion only where bounds are asked for
printf '#!/bin/bash\n. "%s/tests/lib/tap.sh"\nbound "$1" 3 "seconds of it"\nlong && ok 0 "a long list"\ntap_done\n' "$ROOT" >bounds.sh
chmod +x bounds.sh
run ./bounds.sh 2; status 0 "a bound that holds"; out_has '# bound held: seconds of it: 2, at most 3'
run ./bounds.sh 5; status 0 "one that does not, on a busy machine"; out_has '# bound exceeded: seconds of it: 5, at most 3'
run ./bounds.sh ''; status 1 "one for which nothing was measured"
TERN_TEST_BOUNDS=1 run ./bounds.sh 5; status 1 "one that does not hold, where bounds are asked for"
! grep -q 'a long list' out; ok $? "the short form has no long list"
TERN_TEST_LONG=1 run ./bounds.sh 2; out_has 'a long list'

# ---- stages
cat >staged <<'S'
. "$1/tests/lib/stages.sh"
stages_begin
stages_keep kept
stage one sh -c 'echo x >>one; exit "${ONE:-0}"'
stage two sh -c 'echo x >>two; echo "3 0 1" >>"$TERN_RESULTS"'
stage three sh -c 'echo "not here"; exit 77'
stage four sh -c 'echo "2 0 0" >>"$TERN_RESULTS"; exit "${FOUR:-0}"'
stages_end
S
ONE=1 FOUR=1 run bash staged "$ROOT"; status 1 "a stage that fails"
is "$(tail -n 1 out)" "5 passed, 2 failed, 2 skipped" "counts of tests, of stages, and what cannot run here"
out_has 'failed: one'; out_has 'failed: four' "also one whose tests passed and whose command failed"
grep -qE '^ *[0-9]+ s  two$' out; ok $? "each stage's time is printed"
run bash staged "$ROOT"; status 0 "the second call, in which nothing fails, passes"
is "$(wc -l <one) $(wc -l <two)" "2 1" "what passed is not run again, what failed is"
is "$(tail -n 1 out)" "6 passed, 0 failed, 2 skipped" "a stage that is not run again counts"
out_has 'two: passed at this commit before'

# ---- no test is chosen
run "$ROOT/tests/run" -k no-test-has-this-name unit cli multi; status 2 "tests/run of a name that no test has"; one_line
err_has "no test was chosen by -k 'no-test-has-this-name'"

# ---- two places: for two tests that wait for each other, beside one that waits for both
mkdir -p places/tests/unit; cp "$ROOT/tests/run" places/tests
placed() { # NAME LINE COMMAND
    printf '#!/bin/bash\n# %s\ncd %s || exit 1\n. %s/tests/lib/tap.sh\ncd %s || exit 1\n%s\nok $? "%s"\ntap_done\n' "$2" "$WORK" "$ROOT" "$WORK/places" "$3" "$1" >"places/tests/unit/$1.sh"
    chmod +x "places/tests/unit/$1.sh"
}
placed one 'has a place' ': >one; until_true [ -e two ]'
placed two 'has a place' ': >two; until_true [ -e one ]'
placed three 'waits: for the last' ': >three; until_true [ -e done ] && rm three'
placed last 'has a place' 'until_true [ -e three ] && sleep 1 && : >done'
placed by-itself 'alone: it needs the machine' '[ -e two ] && [ ! -e three ]'
run env -u TERN_BUILD TMPDIR="$WORK" places/tests/run -j 2 unit; status 0 "a test that waits takes no place, one that is alone has all"
is "$(tail -n 1 out)" "5 passed, 0 failed, 0 skipped" "tests of every kind of place are run" || cat out
rm places/tests/unit/*
for t in one two; do placed $t 'has a place' 'mkdir busy && sleep 1 && rmdir busy'; done
run env -u TERN_BUILD TMPDIR="$WORK" places/tests/run -j 1 unit; status 0 "of two tests with one place the second waits for the first" || cat out

mkdir -p tree/tests/mutants tree/tests/fault tree/core
cp "$ROOT/tests/mutants/run" tree/tests/mutants; echo 'int x = 1;' >tree/core/x.c; : >tree/tests/fault/x.sh
printf 'core/x.c\ts/1/2/\t%s\tx is two\n' fault/x.sh ' ' unit/x >tree/tests/mutants/list
mkdir tree/tests/unit; : >tree/tests/unit/x.c
run tree/tests/mutants/run -n; status 1 "mutants whose tests are not run are an error"
out_has 'fault/x.sh is not run here'; out_has 'it names no test'; out_has '3 mutants, 2 lines that fit no more' "one whose test is run fits"

# ---- tests/all
run "$ROOT/tests/all" nonsense; status 2 "tests/all of a stage that is not there"; one_line; err_has 'tests/all -n lists them'

# What passed at a commit passed at the next one, if that changed only what no test reads.
mkdir -p docs/tests/lib docs/tests/bench docs/cluster-templates/a docs/bin
cp "$ROOT/tests/all" docs/tests; cp "$ROOT/tests/lib/stages.sh" docs/tests/lib
for f in README.md HACKING.md PLATFORMS.md tests/bench/train.md cluster-templates/a/TUTORIAL.md NEWS; do echo 'a text' >"docs/$f"; done
printf '#!/bin/sh\necho "made $*"\n' >docs/bin/make; chmod +x docs/bin/make
printf '/build/\n' >docs/.gitignore
committed() { git -C docs add -A && git -C docs -c user.name=a -c user.email=a@b -c commit.gpgsign=false commit -qm "a: change" --no-verify; }
if git init -q docs 2>/dev/null && committed; then
    stage_check() { PATH=$WORK/docs/bin:$PATH run env -u TERN_BUILD "$WORK/docs/tests/all" check; }
    stage_check; status 0 "tests/all of one stage passes"; out_has 'made check' "a stage that is not known is run"
    stage_check; out_has 'check: passed at this commit before' "a stage that passed is not run again"
    for f in PLATFORMS.md tests/bench/train.md; do
        echo 'another text' >>"docs/$f"; committed; stage_check
        out_has 'check: passed at this commit before' "a stage is not run again when only $f has changed, which no test reads"
    done
    for f in README.md HACKING.md cluster-templates/a/TUTORIAL.md NEWS; do
        echo 'another text' >>"docs/$f"; committed; stage_check
        out_has 'made check' "a stage is run again when $f has changed, which tests read"
    done
    echo '* tern needs libfabric 9.9 or newer.' >>docs/PLATFORMS.md; committed; stage_check
    out_has 'made check' "a stage is run again when PLATFORMS.md names another version that tern needs"
    rm docs/tests/bench/train.md; committed; stage_check
    out_has 'made check' "a stage is run again when a document is not there any more"
else
    skip "git is not installed"
fi
is "$(cd "$ROOT" && grep -rlE '(PLATFORMS|bench/[a-z*]+)\.md' tests --include='*.sh' --include='*.py' --include='*.c' | sort | paste -sd' ')" \
    "tests/cli/help.sh tests/cli/tests.sh" "no other test reads documents that tests/all takes as read by no test"

# ---- HACKING's table has each stage of tests/all and no other, and knows which of them CI runs
if [ -e "$ROOT/HACKING.md" ]; then
    table() { awk '/^\| stage \|/ {on = 1} !/^\|/ {on = 0} on' "$ROOT/HACKING.md"; }
    names() { grep -o '`[a-z0-9-]*`' | tr -d '`' | sort; }
    stages() { sed -n 's/^stage \([a-z0-9-]*\) .*/\1/p' "$1" | sort; }
    table | cut -d '|' -f 2 | names >told
    stages "$ROOT/tests/all" >there
    [ "$(wc -l <there)" -gt 10 ]; ok $? "tests/all has stages"
    is "$(comm -13 told there)" "" "each stage of tests/all has a row in HACKING's table"
    is "$(comm -23 told there)" "" "HACKING's table has no stage that tests/all lacks"
    if [ -e "$ROOT/.ci/run" ]; then
        table | awk -F '|' '$5 ~ /[a-z]/' | cut -d '|' -f 2 | names >told
        stages "$ROOT/.ci/run" | grep -xFf there >in_ci
        is "$(comm -13 told in_ci)" "" "each stage of .ci/run is marked in HACKING's table"
        table | cut -d '|' -f 2,5 | names >told
        is "$(stages "$ROOT/.ci/run" | comm -13 told -)" "" "each stage of .ci/run is named in HACKING's table"
        is "$(table | awk -F '|' '$5 ~ /[a-z]/ {sub(",.*", "", $2); print $2}' | names | comm -23 - in_ci)" "" "HACKING's table marks no stage that .ci/run lacks"
    fi
fi

# ---- make check-layers
mkdir -p layers/tests/lib layers/cmd layers/plugins layers/core/base layers/core/low layers/core/middle layers/core/high
cp "$ROOT/tests/lib/check-layers" layers/tests/lib
: >layers/Makefile
echo '/* what others may include */' | tee layers/core/low/low.h layers/core/middle/middle.h >layers/core/low/own.h
include() { printf '#include "core/%s"\n' "$2" >"layers/core/$1"; } # FILE HEADER
rooms() { printf '%s\n' "$@" >layers/core/ROOMS; }
layers() { run layers/tests/lib/check-layers; }
include middle/m.c low/low.h
include high/h.c middle/middle.h
rooms 'low:   # includes base alone' 'middle [m.h]: low' 'high: middle low'
layers; status 0 "check-layers passes includes that ROOMS allows"; is "$(cat out)" "layers: ok" "check-layers finds nothing in them"
include low/l.c middle/middle.h
layers; status 1 "check-layers fails at an include against ROOMS"
is "$(cat out)" "check-layers: core/low/l.c includes room 'middle', which core/ROOMS does not allow 'low'" "check-layers names the include and both rooms"
rooms 'low: middle' 'middle: low' 'high: middle'
layers; status 1 "check-layers fails at a circle of two rooms that ROOMS allows"
is "$(cat out)" "check-layers: core/ROOMS allows a circle of rooms: low middle" "check-layers names the two rooms of the circle alone"
rm layers/core/low/l.c
rooms 'low: high  # back to the top' 'middle: low' 'high: middle'
layers; status 1 "check-layers fails at a circle of three rooms, without an include behind it"
is "$(sed 's/.*: //' out | tr ' ' '\n' | sort | paste -sd' ')" "high low middle" "check-layers names the three rooms of the circle"
rooms 'low:' 'middle: low' 'high: middle'
include high/h.c low/own.h
layers; status 1 "check-layers fails at another room's private header"; out_has 'core/high/h.c includes core/low/own.h, which core/ROOMS does not show to other rooms'

# ---- make lint's rules of English: what they find, and what they leave alone
prose() { run python3 "$ROOT/tests/lib/prose.py" "$@"; }
cat >names.sh <<'S'
run true; status 0 "and goes on"
is "$(cat out)" "it" "it prints 'a; b'"
[ -e x ] && ok $? 'x: nor a file'; has out "two words" || cat out
if true; then err_has 'no name'; fi; one_line "one line"
ok $? "all three words"; is "that" "and" "$1 stays"; status 0; echo ok 1 "a text"
S
prose names names.sh; is "$(cut -d: -f2 out | paste -sd' ')" "1 2 3 4" "a shell test's unclear names are found"
cat >names.c <<'S'
ok(f(1, "and") == 2, "it (f) is",
   x);
is(a, "it", "two"
            " words");
has(g(')'), "nor", "a name of words"), ok(1, "%s: no", a);
S
prose names names.c; is "$(cut -d: -f2 out | paste -sd' ')" "1 3" "a unit test's unclear names are found"
words() { printf ' word%.0s' $(seq "$1"); }
printf '/* A%s.  B%s:\n *     C%s\n * D%s. */\n// E%s\n' "$(words 24)" "$(words 24)" "$(words 40)" "$(words 25)" "$(words 40)" >long.h
prose sentences long.h; is "$(cat out)" "long.h:1: a sentence of 26 words: D$(words 25)." "a header's sentence of 26 words is found"
printf 'o = {.help = "a%s "\n"b%s", .x = "c%s"};' "$(words 12)" "$(words 12)" "$(words 40)" >long.c
prose sentences long.c; is "$(cut -d: -f3 out)" " a sentence of 26 words" "a help text's sentence of 26 words is found"

# ---- what make would link again when one file has changed
of=${TERN_BUILD:-$ROOT/build}
of=${of#"$ROOT"/} # as make's variables say
links() { # MAKE'S-OPTIONS...: the programs that it would link
    make -C "$ROOT" -n -s O="$of" ${TERN_SANITIZE:+SANITIZE="$TERN_SANITIZE"} "$@" tests-float 2>err |
        grep -oE -- "-o $of/(bin|tests/unit|tests/tools)/[a-z0-9_-]+ " | sed "s,^-o $of/,,; s, \$,," | sort -u
}
links >anyway # what is not built, or not up to date
again() { # FILE
    links -W "$1" | comm -23 - anyway >links
    sed -n 's,^bin/,,p' links >out
}
# Test programs that hold a global symbol of an object, by nm.  A program of no room depends on all archives.
built=${TERN_BUILD:-$ROOT/build}
of_room() { grep -q '/core/' "$built/used/$1" 2>/dev/null; }
holders() { # OBJECT
    local symbols program
    symbols=$(nm -g --defined-only "$built/$1" | awk 'NF == 3 {print $3}')
    (cd "$built" && ls tests/unit/* tests/tools/*) | grep -v '[.]\|-f64$' | while read -r program; do
        of_room "$program" && nm -g --defined-only "$built/$program" 2>/dev/null | awk '{print $NF}' | grep -qxF "$symbols" && echo "$program"
    done | sort | comm -23 - anyway
}
tests_again() { grep '^tests/' links | while read -r program; do of_room "$program" && echo "$program"; done; }
again core/convert/hf.c
is "$(tr '\n' ' ' <out)" "tern-ckpt " "a file of one program: only its program is linked again"
if long; then
    holders core/convert/hf.o >holders
    is "$(tests_again)" "$(cat holders)" "a file of one room: the test programs that hold it are linked again, and no other"
    [ -s anyway ] || { [ -s holders ] && [ "$(wc -l <holders)" -lt 10 ]; }; ok $? "a file of one room is in few test programs" || cat holders
fi
again core/base/err.c
[ "$(wc -l <out)" -ge 15 ]; ok $? "a file of all programs: all are linked again" || cat out err
again plugins/spank/check.c
[ ! -s out ]; ok $? "a file of the plugin: no program is linked again" || cat out
tap_done
