#!/bin/bash
# Every program answers -h, its man page names the same options, and mistakes are answered in one line.
. "$(dirname "$0")/../lib/tap.sh"

run tern
status 2 "tern alone says how it is used"
out_has "administer"
run tern trian
status 2; err_has "did you mean 'train'?"; one_line
run tern ledger lst
status 2; err_has "did you mean 'list'? See"; one_line
run tern ledger list --jsn
status 2; err_has "did you mean --json? See"; one_line
run tern ledger list --verbatim
status 2; err_has "no such option. See"; one_line
run tern help environment
status 0; out_has "TERN_LEDGER"
run tern help recipe
status 0; out_has "optimizer.lr"
run tern help site
status 0; out_has "ledger.dir"; out_has "plugstack.conf"
run tern --version
status 0; grep -qxE 'tern [0-9]+\.[0-9]+\.[0-9]+' out; ok $? "tern says which it is" || cat out
run tern --help-man
status 0; out_has ".TH TERN 1 "; out_has "\"$(tern --version)\"" "tern's man page has the version"

# ---- topics
run tern help
status 0 "tern help ends well"; cp out list
tern --help-topics >pages; [ -s pages ]; ok $? "tern --help-topics lists pages"
while read -r page; do
    topic=${page#tern-}; topic=${topic%.*}
    has list "  $topic " "tern help lists topic $topic"
    run tern help "$topic"; status 0 "tern help $topic"
    cp out "$topic.topic"
    ! grep -q '^@\|^# \| :: ' out; ok $? "tern help $topic: no mark of the text's source is left" || grep '^@\|^# \| :: ' out
    [ "$(wc -l <out)" -gt 8 ] || [ "$topic" = environment ]; ok $? "tern help $topic is a page"
done <pages
for columns in 60 80; do
    for topic in *.topic; do COLUMNS=$columns tern help "${topic%.topic}" >"$topic.$columns"; done
done
for text in list *.topic.80; do
    wide=$(wider 80 "$text"); [ -z "$wide" ]; ok $? "${text%.topic.80}: no line over 80 columns" || echo "# $wide"
done
for topic in parallel lora precision launch workload env fabric faults recipe site environment; do
    [ -s $topic.topic ]; ok $? "there is a topic $topic"
done
# Every row of a table is on its page.
rows_on() { # TOPIC ROWS...
    local topic=$1 row missing=; shift
    for row in "$@"; do grep -qE -- "^  $row( |\$)" "$topic.topic" || missing="$missing $row"; done
    [ $# -gt 0 ] && [ -z "$missing" ]; ok $? "tern help $topic has each row of its table" || echo "# missing:$missing"
}
# shellcheck disable=SC2046
if [ -e "$ROOT/core/recipe/keys.c" ]; then
    keys() { sed -n 's/^    {"\('"$1"'[a-z_.]*\)", KEY_.*/\1/p' "$ROOT/core/recipe/keys.c"; }
    rows_on recipe version data.train data.stages data.held_out optimizer.betas lora.targets workload.command $(keys '')
    for section in parallel lora launch workload; do rows_on $section $(keys "$section\\."); done
    rows_on environment $(sed -n 's/^    {"\(TERN_[A-Z_]*\)".*/\1/p' "$ROOT/core/base/vars.c")
    rows_on fabric $(sed -n 's/^    {"\(TERN_FABRIC[A-Z_]*\)".*/\1/p' "$ROOT/core/base/vars.c") launch.rails launch.fabric
fi
# shellcheck disable=SC2046
if [ -e "$ROOT/core/rules/words.c" ]; then
    rows_on checks $(sed -n '/tern_rules_node_ids\[\]/,/};/p' "$ROOT/core/rules/words.c" | grep -o '"[a-z]*"' | tr -d '"')
    rows_on checks $(sed -n 's/^    {"\([a-z-]*\)", [A-Z].*/\1/p' "$ROOT"/core/doctor/*.c)
fi
# shellcheck disable=SC2046
rows_on env $(tern env --list | awk '/^[a-z]/ {print $1}')
run tern help run.yaml; status 0 "tern help run.yaml"; cmp -s out recipe.topic; ok $? "run.yaml is another name of topic recipe"
run tern help paralel
status 2 "tern help of a wrong topic"; err_has "'paralel' is neither a topic nor a tern program; did you mean 'parallel'?"; one_line
run tern help qqqqqq
status 2; err_has "'qqqqqq' is neither a topic nor a tern program. "; one_line
run tern help ledger; status 0; out_has "usage: tern ledger VERB" "tern help NAME is tern NAME -h"
run tern help ledger list; status 0; out_has "usage: tern ledger list" "tern help NAME VERB is tern NAME VERB -h"

# ---- README: five doors, and no command in it or in a topic that does not exist
if [ -e "$ROOT/README.md" ]; then
    cp "$ROOT/README.md" readme
    wide=$(wider 100 readme); [ -z "$wide" ]; ok $? "README has no line over 100 columns" || echo "# lines $wide"
    for door in 'A run of your own' 'Your cluster' 'Read the ledger' 'Bring your trainer'; do
        n=$(awk -v d="## $door" '$0 == d {on = 1} /^## / && $0 != d {on = 0} on' readme | wc -l)
        [ "$n" -gt 5 ] && [ "$n" -le 40 ]; ok $? "README: door '$door' has at most 40 lines" || echo "# $n"
    done
    for words in 'data build -t' 'ckpt export checkpoints/latest -o' 'ckpt merge lora/latest -o' 'ckpt export [a-z]* --to nxd --tensor' 'ckpt export [a-z]* --from nxd --config'; do
        sed -n '/^## A run of your own/,/^## Your/p' readme | grep -qE "^    tern $words"; ok $? "README: the researcher's door has a command tern $words"
    done
    # The picture is what `make figures` drew: its own README has it, too.
    block() { awk '/^```$/ {on = !on; text = ""; if (on) next} on {text = text $0 "\n"} index(text, "$ tern ledger plot cpt0") == 1 {print}' "$1"; }
    block "$ROOT/cluster-templates/figures/README.md" >drawn; block readme >shown
    [ "$(wc -l <drawn)" -gt 20 ] && cmp drawn shown; ok $? "README shows the figure as make figures draws it"
    grep -q '`make figures`' readme; ok $? "README names the command that draws the figures"
    # Its recipes and settings have no key that tern does not know.
    awk '/^```yaml/ {n++; on = 1; next} /^```/ {on = 0} on {print >"readme-" n ".yaml"}' readme
    for file in readme-*.yaml; do
        if grep -q '^launch: {profile' "$file"; then run tern --config "$file" env; else run tern run --check "$file"; fi
        ! grep -qE 'unknown key|no number|not one of|YAML' err; ok $? "README: ${file%.yaml} is understood" || cat err
    done
    for target in $(grep -oE '^    make [a-z-]+' readme | awk '{print $2}'); do
        grep -qE "^([a-z-]+ )*$target( [a-z-]+)*:" "$ROOT/Makefile"; ok $? "README: make $target is a target"
    done
    for topic in $(grep -oE 'tern help [a-z-]+' readme | awk '{print $3}' | sort -u); do
        [ -s "$topic.topic" ] || [ "$topic" = lists ]; ok $? "README: tern help $topic exists"
    done
fi
# HACKING: each room, and no path that is not there.
if [ -e "$ROOT/HACKING.md" ]; then
    for room in "$ROOT"/core/*/; do grep -qE "^\| .*\`$(basename "$room")\`" "$ROOT/HACKING.md" || basename "$room"; done >missing
    [ ! -s missing ]; ok $? "HACKING's tour has each room of core/" || sed 's/^/# /' missing
    for path in $(grep -hoE '`?(core|cmd|tests|plugins|cluster-templates)/[A-Za-z0-9_./*-]+' "$ROOT/HACKING.md" "$ROOT/README.md" | tr -d '\`' | sed 's/[.,:]*$//' | grep -v NAME | sort -u); do
        # shellcheck disable=SC2086
        ls -d "$ROOT"/$path >/dev/null 2>&1 || echo "$path"
    done >missing
    [ ! -s missing ]; ok $? "HACKING and README name no path that is not there" || sed 's/^/# /' missing
    wide=$(wider 110 "$ROOT/HACKING.md"; wider 100 "$ROOT/HACKING.md" | grep -v '^[0-9]*:|')
    [ -z "$wide" ]; ok $? "HACKING has no line over 100 columns, and no row of a table over 110" || echo "# lines $wide"
fi
# NEWS, PLATFORMS and the recipe for Spack tell the same as the source and each other.
if [ -e "$ROOT/NEWS" ]; then
    version=$(sed -n 's/^#define TERN_VERSION "\(.*\)"/\1/p' "$ROOT/core/base/version.h")
    is "$(grep -m 1 -xE '[0-9]+\.[0-9]+\.[0-9]+' "$ROOT/NEWS")" "$version" "the first version in NEWS is TERN_VERSION"
    grep -rnF "tern-$version" "$ROOT"/{README.md,HACKING.md,Makefile,cluster-templates,core,cmd,plugins} >typed
    [ ! -s typed ]; ok $? "only NEWS and core/base/version.h name the version: tern-VERSION stands elsewhere" || sed 's/^/# /' typed
fi
spack=$ROOT/plugins/packaging/spack/package.py.in
if [ -e "$spack" ] && [ -e "$ROOT/PLATFORMS.md" ]; then
    for library in libfabric SQLite; do
        told=$(sed -nE "s/^\* tern needs $library ([0-9.]+) or newer.*/\1/p" "$ROOT/PLATFORMS.md")
        [ -n "$told" ]; ok $? "PLATFORMS tells the oldest $library"
        has "$spack" "depends_on(\"${library,,}@$told:\"" "the recipe for Spack takes the oldest $library that PLATFORMS tells"
    done
fi
# Lines of commands: the program, its verb and its options are in -h.
commands_of() { sed -nE 's/^    ([^ ])/\1/p; s/^\$ //p' "$@" | grep -oE '(^|[ (])tern [a-z].*' | sed 's/^[^t]//; s/  *#.*//; s/ -- .*//; s/[`|)"].*//' | sort -u; }
commands_of ${ROOT:+$(ls readme 2>/dev/null)} *.topic >commands
[ "$(wc -l <commands)" -gt 20 ]; ok $? "README and topics have commands"
: >unknown
while read -r line; do
    # shellcheck disable=SC2086
    set -f; set -- $line; set +f
    name=$2; shift 2
    [ "$name" != help ] || continue
    [ -x "$BIN/tern-$name" ] || { echo "$line: no program" >>unknown; continue; }
    verb=
    case ${1-} in [a-z]*) tern "$name" --help-words | grep -qxF "tern $name"$'\t'"$1" && verb=$1 ;; esac
    if [ -z "$verb" ] && tern "$name" -h | grep -q '^verbs:'; then
        case ${1-} in '' | -*) ;; *) echo "$line: no verb $1" >>unknown; continue ;; esac
    fi
    # shellcheck disable=SC2086
    tern "$name" $verb -h >usage
    for word in "$@"; do
        case $word in
        --) break ;;
        -[a-zA-Z]*) word=${word:0:2}; grep -qE -- "^  $word, " usage || [ "$word" = -h ] || echo "$line: no $word" >>unknown ;;
        --*) grep -qE -- " ${word%%=*}( |\$)" usage || echo "$line: no $word" >>unknown ;;
        esac
    done
done <commands
[ ! -s unknown ]; ok $? "every command in README and in the topics exists" || sed 's/^/# /' unknown

# ---- man pages: of programs, topics and files
man=${TERN_BUILD:-$ROOT/build}/man
for page in $(cat pages); do
    [ -s "$man/man${page##*.}/$page" ] || echo "$page"
done >missing
for program in "$BIN"/tern "$BIN"/tern-*; do [ -s "$man/man1/${program##*/}.1" ] || echo "${program##*/}"; done >>missing
[ ! -s missing ]; ok $? "every program, topic and file has a man page" || cat missing
date=$(sed -n 's/^#define TERN_RELEASE_DATE "\(.*\)"/\1/p' "$ROOT/core/base/version.h")
for path in "$man"/man[1357]/*; do
    page=${path##*/} lacks=
    title=${page%.*}
    head -n 1 "$path" | grep -q "^\.TH ${title^^} ${page##*.} $date " || lacks="$lacks date"
    sections='NAME DESCRIPTION'
    case $page in *.1 | *.5 | *.7) sections="$sections EXAMPLES FILES" ;; esac
    case $page in *.1) sections="$sections SYNOPSIS OPTIONS" ;; esac
    for section in $sections; do
        # A heading with a line of text below it.
        grep -A 1 "^\.SH $section\$" "$path" | tail -n 1 | grep -q . || lacks="$lacks $section"
    done
    # Examples can be typed, each file has a term of its own.
    case $page in *.5 | *.7)
        for section in EXAMPLES:.nf FILES:.TP; do
            sed -n "/^\.SH ${section%:*}\$/,/^\.SH/p" "$path" | grep -qxF -- "${section#*:}" || lacks="$lacks ${section%:*}(${section#*:})"
        done ;;
    esac
    [ -z "$lacks" ]; ok $? "man page $page has the date and every section that pages like it have" || echo "# lacks:$lacks"
done
if command -v groff >/dev/null; then
    for path in "$man"/man[1357]/*; do groff -man -ww -Tutf8 -z "$path" 2>&1; done >complaints
    [ ! -s complaints ]; ok $? "groff has no warning about a man page" || head complaints
else skip "groff is not installed"; fi
if command -v mandoc >/dev/null; then
    mandoc -T lint -W warning "$man"/man[1357]/* >complaints 2>&1
    [ ! -s complaints ]; ok $? "mandoc has no warning about a man page" || head complaints
else skip "mandoc is not installed"; fi

# Site settings by --config, before the name.
printf 'version: 1\nledger: {dir: %s/site-ledger}\n' "$WORK" >site.yaml
run env -u TERN_LEDGER tern --config site.yaml ledger list
[ $rc != 0 ]; ok $? "a ledger that is not there yet"; err_has "$WORK/site-ledger" "--config FILE: the site's ledger is meant"
printf 'version: 1\nledger: {dri: /x}\n' >site.yaml
run env -u TERN_LEDGER tern --config=site.yaml ledger list
status 2; err_has "site.yaml:2: ledger.dri: unknown key. Did you mean 'dir'?"; one_line
run tern --config none.yaml ledger list
status 2; err_has "none.yaml: No such file"; one_line
run tern --config
status 2; err_has "give the file's path"

for program in "$BIN"/tern-*; do
    name=$(basename "$program"); name=${name#tern-}
    run tern -h; has out "  $name " "tern -h lists $name"
    run tern "$name" -h
    status 0; out_has "usage: tern $name"
    run "$program" --help-words
    status 0
    mv out words
    run "$program" --help-man
    status 0
    sed 's/\\-/-/g' out >man
    # A verb's help and the page have each option; the words for completion are all of them.
    missing= shown=
    while IFS=$'\t' read -r command word; do
        case $word in --*)
            # shellcheck disable=SC2086
            [ "$command" = "$shown" ] || { $command -h >shown 2>&1; shown=$command; }
            grep -qF -- "$word" shown || missing="$missing $command $word (help)"
            grep -qF -- "$word" man || missing="$missing $command $word (man)" ;;
        esac
    done <words
    [ -z "$missing" ]; ok $? "tern $name: help, man page and completion agree" || echo "# $missing"
    [ -z "$(cut -f1,2 words | sort | uniq -d)" ]; ok $? "tern $name: no option twice" || cut -f1,2 words | sort | uniq -d | sed 's/^/# /'
    run tern "$name" --no-such-option
    status 2 "tern $name: an unknown option is a usage error"
    # Libraries that a program links may have put handlers of their own before main().
    if strace -o /dev/null true 2>/dev/null; then
        run strace -o /dev/null -e trace=write -e inject=write:signal=TERM:when=1 "$program" -h
        status 143 "tern $name: SIGTERM ends it at once"
    else
        skip "strace may not trace here"
    fi
done
tap_done
