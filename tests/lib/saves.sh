# Sourced by tests of saves, after tap.sh and tiny.sh: runs whose saves are held, stopped or refused (saves.c).
saves_make() {
    gcc -O1 -fno-builtin -shared -fPIC -o saves.so "$ROOT/tests/lib/saves.c" || exit 1
    export TEST_MARKS=$WORK
}
hold() { printf %s "${2-}" >"held-$(printf %08d "$1")"; } # STEP [WORD]: writers of its shards wait (whose path has the word), until
let_go() { rm -f held-*; }
begin() { # LEDGER ARGS...: a run in the background; variables of saves.c may stand before it
    setsid env LD_PRELOAD="$WORK/saves.so" tern run run.yaml --ranks "${RANKS-2}" --set ledger.dir="$@" 2>err >out </dev/null & pid=$!
}
ended() { wait $pid 2>/dev/null; rc=$? cmd="tern run"; }
sql() { tern ledger sql --ledger "$1" -r latest -n -P "$2"; }
published() { sql "$1" "select step from checkpoint where state = 'published' order by step" | tr '\n' ' '; }
steps_done() { sql "$1" "select coalesce(max(step), 0) from step where name = 'loss'"; }
reached() { [ "$(steps_done "$1")" -ge "$2" ]; }
