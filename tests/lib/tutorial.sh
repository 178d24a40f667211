# Sourced after tap.sh by tests of tutorials: a page's form, and its commands, run as they are written.
#
#   tutorial llama3-8b-lora    or skips all: the commands of cluster-templates/llama3-8b-lora/TUTORIAL.md
#
# Blocks of a page: "sh" for the cluster and a laptop, "sh laptop" for a laptop alone, "sh aws" for what only
# AWS or the network has, which is checked as far as it can be (on_aws in page.sh).  The laptop's
# `tern cluster exec NAME -- bash` begins a shell on the head node, which has the commands up to `exit`.
# `<!-- test: WORDS -->` stands where a reader waits for something.  The page becomes a script whose lines
# have the page's numbers.
export PAGE_WORK=$WORK
page_of() { page=$ROOT/cluster-templates/$1/TUTORIAL.md; export PAGE=cluster-templates/$1/TUTORIAL.md; }

# FILE: what a page promises its readers, a line of output for each promise that is not kept.
page_form() {
    wider 100 "$1" | sed "s|^\([0-9]*\):.*|$PAGE:\1: more than 100 columns|"
    awk -v page="$PAGE" '
        function bad(words) {print page ":" NR ": " words}
        /^## / {if (index($0, "## " (++steps) ". ") != 1) bad("this is step " steps); there = 0; next}
        /^There: / {there = 1}
        /^```/ {
            open = !open
            if (!open) next
            kind = substr($0, 4)
            if (kind != "sh" && kind != "sh aws" && kind != "sh laptop") bad("a block of no kind: " kind)
            if (kind == "sh aws" && last !~ /(^|[ (])On (AWS|the cluster)/) bad("no word before this block says that it is for AWS")
            if (kind == "sh laptop" && last !~ /(^|[ (])On a laptop/) bad("no word before this block says that it is for a laptop")
            if (steps && !there) bad("step " steps " does not say how it is done there")
            next}
        !open && NF {last = (NR == before + 1 ? last " " : "") $0; before = NR}' "$1"
}
# FILE: ./script of its commands, and ./inner of the head node's.
page_script() {
    local line n=0 kind='' inner=0 begin=0 text from='' joined=''
    printf '. %q\n' "$ROOT/tests/lib/page.sh" >script
    cp script inner
    while IFS= read -r line; do
        n=$((n + 1)) text=
        [ $n -gt 1 ] || continue
        case $kind,$line in
        ,'```sh' | ,'```sh '*) kind=${line#'```sh'} kind=${kind# } begin=$((n + 1)); kind=${kind:-sh} ;;
        *,'```') kind=; text="block_passed $begin $((n - 1))" ;;
        ,'<!-- test: '*' -->') text=${line#'<!-- test: '} text=${text%' -->'} ;;
        aws,*'\') joined=$joined${line%'\'} from=${from:-$n} ;;
        aws,*) text="on_aws ${from:-$n} $(printf %q "$joined$line")" joined= from= ;;
        laptop,'tern cluster exec '*' -- bash') echo "$line '$WORK/inner'" >>script; inner=1; echo >>inner; continue ;;
        laptop,exit) inner=0 ;;
        sh,* | laptop,*) text=$line ;;
        esac
        if [ $inner = 1 ]; then echo "$text" >>inner; echo >>script; else echo "$text" >>script; echo >>inner; fi
    done <"$1"
}
# Runs ./script in the source tree: TAP lines in ./tap, output in ./said.
page_run() {
    rm -f failed
    : >tap
    (cd "$ROOT" && exec bash "$WORK/script") >said 2>&1 </dev/null
}

# ---- with Slurm
tutorial_end() {
    local name
    for name in $(tern cluster list 2>/dev/null | awk 'NR > 1 {print $1}'); do tern cluster down "$name"; done >/dev/null 2>&1
}
tutorial() { # TEMPLATE
    [ -z "${TERN_SANITIZE-}" ] || skip_all "virtual clusters are slow under sanitizers"
    command -v python3 >/dev/null || skip_all "no python3"
    tern data info s3://b/x 2>&1 | grep -q 'built without' && skip_all "built without libcurl"
    . "$ROOT/tests/lib/vcluster.sh"
    local v
    for v in $(compgen -e | grep -E '^(SLURM_|NEURON|AWS_|HF_|TERN_(R|L[^D]|P))'); do [ "$v" = SLURM_PREFIX ] || unset "$v"; done
    tap_cleanup=tutorial_end
    mkdir home
    export HOME=$WORK/home TMPDIR=$WORK
    page_of "$1"
    page_script "$page"
    page_run; rc=$?
    tap_lines <tap
    ok $rc "$PAGE: its commands work from the first to the last" || tail -n 40 said | sed 's/^/# /'
}
