# Sourced by the shells that run a tutorial's commands (tests/lib/tutorial.sh): a command that fails ends
# them, with its line.  $PAGE is the page's name, $PAGE_WORK the test's folder.
set -eE -o pipefail
page_failed() { # STATUS LINE COMMAND
    if [ ! -e "$PAGE_WORK/failed" ]; then # (the shell around this one fails, too)
        echo "not ok - $PAGE:$2: '${3%%$'\n'*}' fails as written: exit status $1" >>"$PAGE_WORK/tap"
        : >"$PAGE_WORK/failed"
    fi
    exit 1
}
trap 'page_failed $? $LINENO "$BASH_COMMAND"' ERR
block_passed() { # FIRST LAST
    echo "ok - $PAGE, lines $1 to $2: the commands work as written" >>"$PAGE_WORK/tap"
}
# LINE COMMAND: what only AWS or the network can do.  It parses, and a program of this job's folder is there.
on_aws() {
    local problem= word
    bash -nc "$2" 2>"$PAGE_WORK/parse" || problem=$(cat "$PAGE_WORK/parse")
    read -r word _ <<<"$2"
    case $word in
    aws | cp | docker | git | pcluster) ;;
    [a-zA-Z]*/*)
        [ -x "$word" ] || problem="there is no program $word"
        [ -n "$problem" ] || ! command -v shellcheck >/dev/null || shellcheck "$word" >"$PAGE_WORK/parse" ||
            problem="shellcheck of $word: $(head -n 20 "$PAGE_WORK/parse")" ;;
    *) problem="'$word' is no command of a block for AWS" ;;
    esac
    [ -n "$problem" ] || return 0
    echo "$problem"
    page_failed 1 "$1" "$2"
}
# ---- On the head node, where a reader comes back later.  Each fails after ten minutes.
page_until() { # COMMAND...
    local i
    for ((i = 0; i < 3000; i++)); do
        if "$@" >/dev/null 2>&1; then return 0; fi
        sleep 0.2
    done
    return 1
}
no_jobs() { [ -z "$(squeue -h)" ]; }
jobs_ended() { # and well
    page_until no_jobs || return 1
    if scontrol show job -o | grep -v 'JobState=COMPLETED'; then tail -n 30 slurm-*.out; return 1; fi
}
checkpoint_of() { # ATTEMPT RUN: one of a later attempt counts, too
    [ "$(tern ledger sql -r "$2" -n -P 'select max(attempt) from checkpoint')" -ge "$1" ]
}
