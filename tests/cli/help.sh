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
status 0; out_has ".TH tern 1"; out_has "\"$(tern --version)\"" "and so does its page"

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
    missing=
    while IFS=$'\t' read -r command word; do
        case $word in --*)
            # shellcheck disable=SC2086
            $command -h 2>&1 | grep -qF -- "$word" || missing="$missing $command $word (help)"
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
