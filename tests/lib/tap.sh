# Sourced by shell tests: TAP, a private work folder, the programs under test on PATH.
#
#   . "$(dirname "$0")/../lib/tap.sh"
#   run tern data -h;  status 0;  out_has 'usage: tern data'
#   tap_done
#
# $ROOT is the tree, $BIN the built programs, $WORK a folder of this test alone (removed at the end,
# kept when something failed), $DATA the shared test data or empty.
set -u
umask 022 # some users have 002
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
BIN=${TERN_BUILD:-$ROOT/build}/bin
TOOLS=${TERN_BUILD:-$ROOT/build}/tests/tools
PATH=$BIN:${SLURM_PREFIX:+$SLURM_PREFIX/bin:$SLURM_PREFIX/sbin:}$PATH # (the Slurm that was built for)
DATA=$ROOT/../shared/data
[ -d "$DATA" ] || DATA=
export NO_COLOR=1 LC_ALL=C.UTF-8
WORK=$(mktemp -d "${TMPDIR:-/tmp}/tern-test-XXXXXX")
tap_n=0 tap_bad=0 tap_cleanup=:
trap '$tap_cleanup; [ $tap_bad = 0 ] && rm -rf "$WORK"' EXIT
trap 'exit 130' INT TERM
cd "$WORK" || exit 1

ok() { # CONDITION-STATUS NAME
    tap_n=$((tap_n + 1))
    if [ "$1" = 0 ]; then echo "ok $tap_n - $2"; else
        echo "not ok $tap_n - $2"; tap_bad=1; echo "# in $WORK"; return 1; fi
}
# TAP lines of another program, from standard input, become this test's; other lines pass.
tap_lines() {
    local line
    while IFS= read -r line; do
        case $line in
        "ok - "*) ok 0 "${line#ok - }" ;;
        "not ok - "*) ok 1 "${line#not ok - }" ;;
        *) echo "$line" ;;
        esac
    done
}
is() { # GOT WANTED NAME
    [ "$1" = "$2" ]; ok $? "$3" || {
        echo "# got '$1', wanted '$2'"
        [ ! -s err ] || sed 's/^/# the last command: /' err | tail -5
        return 1
    }
}
# wider COLUMNS FILE: the lines of UTF-8 that have more, with their numbers.
wider() { LC_ALL=C.UTF-8 grep -nE "^.{$(($1 + 1))}" "$2"; }
# Until COMMAND succeeds, for ten minutes at most: whether it does is asserted, not when.
until_true() {
    local until_second=$((SECONDS + 600))
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt $until_second ] || return 1
        sleep 0.05
    done
}
# A measured time, rate or memory against what tern promises of it: a benchmark.  That it was measured
# is asserted; that it is at most LIMIT only under `make bounds`, on a machine that does nothing else.
bound() { # VALUE LIMIT NAME
    awk -v v="$1" 'BEGIN {exit !(v ~ /^-?[0-9.]+(e[-+]?[0-9]+)?$/)}'
    ok $? "$3: measured" || { echo "# got '$1'"; return 1; }
    awk -v v="$1" -v l="$2" 'BEGIN {exit !(v + 0 <= l + 0)}'
    set -- "$1" "$2" "$3" $?
    if [ -n "${TERN_TEST_BOUNDS-}" ]; then ok "$4" "$3: $1, at most $2"; else
        echo "# bound $([ "$4" = 0 ] && echo held || echo exceeded): $3: $1, at most $2"; fi
}
# Whether the whole list is asked for (tests/run -l, make check-all), and not the part that every
# `make check` goes through.
long() { [ -n "${TERN_TEST_LONG-}" ]; }
# DATABASE SQL: changes a snapshot, which only root may write to.  Readers see that by its seal.
rewrite() { chmod u+w "$1" && sqlite3 "$1" "$2"; local rc=$?; chmod a-w "$1"; return $rc; }
# RUN.DB SQL: the same of a run's snapshot, with a right seal.
forge() { "$TOOLS/ledger-forge" "$@"; }
run() { # COMMAND...: its stdout in ./out, its stderr in ./err, its status in $rc
    "$@" >out 2>err </dev/null; rc=$?; cmd="$*"; return 0
}
status() { # WANTED [NAME]
    [ "$rc" = "$1" ]; ok $? "${2:-$cmd: exit status $1}" || { echo "# got $rc"; sed 's/^/# /' err | tail -20; return 1; }
}
has() { # FILE TEXT [NAME]
    grep -qF -- "$2" "$1"; ok $? "${3:-$1 says '$2'}" || { sed 's/^/# /' "$1" | tail -20; return 1; }
}
out_has() { has out "$1" "${2:-$cmd: prints '$1'}"; }
err_has() { has err "$1" "${2:-$cmd: says '$1'}"; }
one_line() { [ "$(wc -l <err)" = 1 ]; ok $? "${1:-$cmd: one clear line}" || sed 's/^/# /' err; }
one_error() { # among words of other kinds
    [ "$(grep -c 'error: ' err)" = 1 ]; ok $? "${1:-$cmd: one error line}" || sed 's/^/# /' err
}
skip() { tap_n=$((tap_n + 1)); echo "ok $tap_n # SKIP $1"; }
skip_all() { echo "1..0 # SKIP $1"; exit 0; }
tap_done() { echo "1..$tap_n"; exit $tap_bad; }
