#!/bin/bash
# A run on Lustre spreads its shards over storage targets; a full quota is told with what shows it.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/tiny.sh"
. "$ROOT/tests/lib/saves.sh"
. "$ROOT/tests/lib/lustre.sh"
[ -z "${TERN_SANITIZE-}" ] || skip_all "a sanitizer's library must come before the one that stands in for Lustre"
tiny_make; lustre_make; saves_make

run "${lustre[@]}" tern run run.yaml --ranks 2 --set steps=3 --set checkpoint.dir=ck-lustre; status 0 "a run whose checkpoint.dir is on Lustre"
grep -qx 'setstripe -E 100M -c 1 -E .* -E -1 -c 32 .*ck-lustre' asked; ok $? "the folder of shards is spread over storage targets" || cat asked
is "$(grep -c setstripe asked)" 1 "no other folder of the run is spread"
tern ckpt verify --full ck-lustre >/dev/null; ok $? "the checkpoint on Lustre verifies"

TEST_FAILS=write:EDQUOT:step-00000002.tmp-1/shard-00001 begin quota --set steps=3
ended; status 0 "a full quota ends no run that saves later"
has err 'Disk quota exceeded (`quota -s`, on Lustre `lfs quota -h DIR`, shows whose)' "a run tells of a full quota with the commands that show it"
sql quota "select text from event where kind = 'save_failed'" >events
has events 'lfs quota -h DIR' "the ledger has the commands that show a quota, too"
tap_done
