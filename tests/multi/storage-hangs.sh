#!/bin/bash
# The ledger's storage hangs under a rank until its end: the program ends as always, and the end record,
# list, verify and standard error say how many values are lost, and of which steps.
# waits: for storage that hangs
. "$(dirname "$0")/../lib/tap.sh"
for v in $(compgen -e | grep -E '^(SLURM|TERN_(R|L))'); do unset "$v"; done
[ -z "${TERN_SANITIZE-}" ] || skip_all "sanitizers and a preloaded library"
${CC:-cc} -shared -fPIC -O1 -o hang.so "$ROOT/tests/lib/hang.c" -ldl 2>cc.err || skip_all "no compiler here"

recipe() { # PROGRAM [METRICS]
    printf '%s\n' "$1" >work.sh
    printf "version: 1\nname: h\nledger: {dir: ledger}\nlaunch: {restarts: 0}\nworkload: {command: [sh, work.sh]%s}\n" "${2-}" >run.yaml
}
# The spool's head and the first two records are taken.
hung() { # NAME LOST STEPS TAKEN REFUSED
    rm -rf ledger
    LD_PRELOAD=$WORK/hang.so TAKEN=$4 REFUSED=$5 run timeout 300 tern run run.yaml --ranks 1
    status 0 "$1: the program's end is the run's"
    err_has "the storage does not answer" "$1: standard error says so"
    err_has "tern task: warning: $2 records lost$3: the storage did not answer rank 0 on" "$1: the rank counts what is lost"
    err_has "tern run: warning: the ledger lacks records: $2 records lost$3: the storage did not answer rank 0 on" "$1: so does the run"
    tern ledger sql -l ledger -r latest -P -n 'select cause from attempt' >cause
    has cause "$2 records lost$3: the storage did not answer rank 0 on" "$1: the end record has it"
    is "$(tern ledger list -l ledger -n -P -o state,lost)" "done|$2" "$1: list has the number"
    run tern ledger verify -l ledger; out_has "$2 records lost$3" "$1: verify has it"
}

recipe 'for s in 1 2 3 4 5 6; do echo "step=$s loss=$s" >"$TERN_METRIC_FILE"; done'
hung "a line at a time" 4 " (steps 3 to 6)" 3 0
is "$(tern ledger sql -l ledger -r latest -P -n 'select group_concat(step) from step')" "1,2" "what the storage took is there"
recipe 'for s in 1 2 3 4 5 6; do echo "step=$s loss=$s"; done >lines; cat lines >"$TERN_METRIC_FILE"'
hung "many lines at once" 4 " (steps 3 to 6)" 3 0
hung "records that wait" 4 " (steps 3 to 6)" 3 1
recipe 'for s in 1 2 3 4 5 6; do echo "iter $s cost=$s"; done' ", metrics: [{pattern: 'iter ([0-9]+) cost=(.*)', names: [step, cost]}]"
hung "printed values" 4 " (steps 3 to 6)" 3 0
if long; then
    recipe 'seq 1 400000 | sed "s/.*/step=& loss=1/" >lines; cat lines >"$TERN_METRIC_FILE"; echo "step=900000 loss=1" >"$TERN_METRIC_FILE"'
    rm -rf ledger
    LD_PRELOAD=$WORK/hang.so TAKEN=3 REFUSED=0 run timeout 300 tern run run.yaml --ranks 1; status 0 "more than the memory holds"
    is "$(tern ledger list -l ledger -n -P -o lost)" 399999 "lines that had no room are counted, too"
fi
tap_done
