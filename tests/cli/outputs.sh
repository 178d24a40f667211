#!/bin/bash
# A file that a user names for an output takes the place of nothing but an earlier output: not of a link
# (as /dev/stdout is one), a pipe, a folder, nor of a file that is something else.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/tiny.sh"
tiny_make 2>/dev/null || exit 1
tern run run.yaml --set steps=2 >/dev/null 2>&1 || exit 1
echo keep >kept; cp data/test.tds real.tds; tern ledger report tiny -l ledger -o real.html >/dev/null
ln -s real.tds to-set; ln -s real.html to-page; ln -s kept to-file; ln -s nowhere dangling; ln -s /proc/self/fd/1 stdout
ln -s . here; mkfifo pipe; mkdir folder
links() { readlink to-set to-page to-file dangling stdout | paste -sd,; }
before=$(links) sums=$(sha256sum real.tds real.html kept)

# COMMAND...: refuses each; the output is its last word.
refuses() {
    local out what="$1 $2"
    [ "$2" != data ] || what="$what $3"
    for out in to-set to-page to-file dangling stdout; do
        run "$@" $out; status 2 "$what: -o $out, which is a link"; err_has "$out: is a link, which a file would replace"
    done
    run "$@" pipe; status 2 "$what: -o of a pipe"; err_has "pipe: is a device, pipe or socket"
    run "$@" folder; status 2 "$what: -o of a folder"; err_has "folder: is a folder"
    run "$@" kept; status 2 "$what: -o of another file"; err_has 'kept: exists and is no'
    : >empty; run "$@" empty; status 2 "$what: -o of an empty file"; err_has 'empty: exists and is no'
    [ -f empty ] && [ ! -s empty ]; ok $? "$what: the empty file is as it was"
    is "$(links)" "$before" "$what: the links are as they were"
    is "$(sha256sum real.tds real.html kept)" "$sums" "$what: the linked files are as they were"
    run "$@" here/new-out; status 0 "$what: a link to a folder on the way is none"; [ -f new-out ]; ok $? "$what: the file is there"
    run "$@" new-out; status 0 "$what: an earlier output is replaced"; rm new-out
}
refuses tern data build --tokenizer model test.jsonl -o
tern data build --tokenizer model --part 1/1 -o part.tds test.jsonl 2>/dev/null && tern data export data/test.tds -L 16 -o rows >/dev/null 2>&1
ok $? "a part to merge and rows to import are there"
refuses tern data merge part.tds -o
refuses tern data import rows --tokenizer model -o
refuses tern ledger report tiny -l ledger -o
refuses tern train run.yaml --set steps=4 --set checkpoint.dir=other --profile
cp run.yaml recipe
run tern train run.yaml --set steps=4 --set checkpoint.dir=third --profile run.yaml
status 2 "a profile in the place of its own recipe"; one_line; cmp -s run.yaml recipe; ok $? "the recipe is as it was"
[ ! -e third ]; ok $? "nothing was trained before the refusal"
tap_done
