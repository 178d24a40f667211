# Sourced by .ci/run and tests/all: stages of a long check, each counted and timed.
#
#   stages_begin
#   stage NAME COMMAND...   runs it, unless it is known to have passed (stages_keep) or was not asked for
#   stages_end              the times, what failed, and the line "N passed, N failed, N skipped"
#
# Where COMMAND runs tests/run, that counts; one that counts nothing by nature (a build, the demo)
# counts as one.  Exit status 77 of a COMMAND means "not on this machine", which it has said: skipped.
stages_begin() {
    TERN_RESULTS=$(mktemp)
    export TERN_RESULTS
    trap 'rm -f "$TERN_RESULTS"' EXIT
    stages_start=$SECONDS stages_times='' stages_kept='' stages_wanted=''
}

# FOLDER: results of stages that passed lie there and are taken from there.
stages_keep() { stages_kept=$1; mkdir -p "$stages_kept"; }

stage() {
    local name=$1 before after rc start=$SECONDS kept='' took
    shift
    case " ${stages_wanted:-$name} " in *" $name "*) ;; *) return ;; esac
    [ -z "$stages_kept" ] || kept=$stages_kept/$name
    if [ -n "$kept" ] && [ -s "$kept" ]; then
        sed 1d "$kept" >>"$TERN_RESULTS"
        printf '\n=== %s: passed at this commit before, in %s s\n' "$name" "$(head -n 1 "$kept")"
        stages_times+="$(head -n 1 "$kept") $name (before)"$'\n'
        return
    fi
    printf '\n=== %s: %s\n' "$name" "$*"
    before=$(wc -l <"$TERN_RESULTS")
    "$@"
    rc=$?
    after=$(wc -l <"$TERN_RESULTS")
    if [ $rc = 77 ]; then
        echo "0 0 1" >>"$TERN_RESULTS"
    elif [ "$before" = "$after" ]; then
        if [ $rc = 0 ]; then echo "1 0 0"; else printf '0 1 0\n0 0 0 %s\n' "$name"; fi >>"$TERN_RESULTS"
    elif [ $rc != 0 ] && ! tail -n +$((before + 1)) "$TERN_RESULTS" | awk '$2 > 0 {f = 1} END {exit !f}'; then
        printf '0 1 0\n0 0 0 %s\n' "$name" >>"$TERN_RESULTS" # counted tests passed, and something else did not
    fi
    took=$((SECONDS - start))
    stages_times+="$took $name"$'\n'
    case $rc in
    0) printf '=== %s: passed in %d s\n' "$name" $took
        [ -z "$kept" ] || { echo $took; tail -n +$((before + 1)) "$TERN_RESULTS"; } >"$kept" ;;
    77) printf '=== %s: skipped\n' "$name" ;;
    *) printf '=== %s: FAILED in %d s\n' "$name" $took ;;
    esac
}

stages_end() { # status 0: something passed and nothing failed
    printf '\n'
    printf '%s' "$stages_times" | awk '{printf "%6d s  ", $1; $1 = ""; print substr($0, 2)}'
    printf '%6d s  in all\n' $((SECONDS - stages_start))
    sed -n 's/^0 0 0 /failed: /p' "$TERN_RESULTS"
    awk '{p += $1; f += $2; s += $3} END {printf "%d passed, %d failed, %d skipped\n", p, f, s; exit f > 0 || p == 0}' "$TERN_RESULTS"
}
