#!/bin/bash
# tern ledger merge: runs of another ledger come in whole, grow, and never contradict what is there.
. "$(dirname "$0")/../lib/tap.sh"
unset TERN_LEDGER TERN_RUN_SPOOL COLUMNS
W=$TOOLS/ledger-writer
export TERN_LEDGER=$WORK/mine; mkdir mine other
make() { id=$(WRITER_NAME=$2 "$W" "$1" new 1 0 1 "$3" ${4-}); id=${id%%[!0-9A-Z]*}; }
steps() { tern ledger sql -r "$1" -n -P "select count(*) from step where name = 'loss'"; }
list() { tern ledger list -l "$1" -n -P --sort id -o id,name,state,step; }

make mine here 10 done; here=$id
make other done 120 done; done=$id
make other going 50; going=$id
mkdir -p "other/runs/$done/logs/1"; echo 'a line' >"other/runs/$done/logs/1/rank0.log"
find other -type f | sort | xargs md5sum >before

run tern ledger merge -n other; status 0; out_has "$done  new: 2 files"; is "$(list mine | wc -l)" 1 "a dry run takes nothing"
run tern ledger merge other; status 0; out_has "$done  new: 2 files"; out_has "$going  new: 1 files"
is "$(list mine | wc -l)" 3 "both runs are in the ledger beside its own"
is "$(steps "$done") $(steps "$going") $(steps "$here")" "120 50 10" "each run has its values"
cmp "other/runs/$done/logs/1/rank0.log" "mine/runs/$done/logs/1/rank0.log"; ok $? "a run's logs come along"
run tern ledger verify; status 0
is "$(find mine -perm /022 | wc -l)" 0 "what came is writable by its owner alone"
is "$(sort before)" "$(find other -type f ! -name '*.db' | sort | xargs md5sum | sort)" "the other ledger is as it was"
run tern ledger merge other; status 0; err_has "2 of 2 runs are here already"; [ ! -s out ]; ok $? "a second merge has nothing to do"

# A private run stays private; links and pipes beside the records do not matter.
make other private 5 done; chmod -R go= "other/runs/$id"; ln -s /etc/passwd "other/runs/$id/out"; mkfifo "other/runs/$id/pipe"
run tern ledger merge other; status 0; out_has "$id  new: 1 files"
is "$(find "mine/runs/$id" -perm /077 | wc -l)" 0 "a run that only its owner can read stays so"
[ ! -e "mine/runs/$id/out" ]; ok $? "what is no record or log stays there"
# Killed between the copy and the fold.
rm -f mine/ledger.db mine/runs/*/run.db; run tern ledger merge other; status 0
[ -f mine/ledger.db ] && [ "$(ls mine/runs/*/run.db | wc -l)" = 3 ]; ok $? "a second merge folds what the first one left"
# Notes on both sides, by processes of one number.
for l in mine other; do unshare -pf --mount-proc sh -c "tern ledger tag -l $l $done of-$l" 2>/dev/null || tern ledger tag -l $l "$done" of-$l; done
run tern ledger merge other "$done"; status 0; is "$(tern ledger list -n -P -o tags --name done)" "of-mine of-other" "tags of both ledgers are there"

# A run that goes on there.
"$W" other "$going" 2 50 51 80 done >/dev/null
cat "mine/runs/$going/spool/1/"*.spool >short; run tern ledger merge other; status 0; out_has "$going  grown: 1 files"
is "$(steps "$going")" 80 "a run that went on grows"
f=$(ls mine/runs/"$done"/spool/1/rank0*.spool); cp "$f" whole; head -c 2000 whole >"$f"; rm -f mine/runs/"$done"/run.db
run tern ledger merge other "$done"; status 0; out_has "1 of them have grown"; cmp whole "$f"; ok $? "a spool that ended early gets its rest"
cp whole "$f"; head -c 2000 "$f" >"other/runs/$done/spool/1/${f##*/}"; run tern ledger merge other; status 0; cmp whole "$f"; ok $? "a shorter spool there takes nothing away"
cp whole "other/runs/$done/spool/1/${f##*/}"

# Named ones.
make other third 5 done; make other fourth 5 done
run tern ledger merge other third; status 0; is "$(list mine | grep -c 'third\|fourth')" 1 "only the run that is named comes"
run tern ledger merge other thrd; status 2; one_line; err_has "did you mean 'third'?"

# What contradicts.
printf X | dd of="$f" bs=1 seek=500 conv=notrunc 2>/dev/null; cp "$f" damaged
mkdir -p "other/runs/$done/logs/2"; echo more >"other/runs/$done/logs/2/x.log"
run tern ledger merge other; status 1; err_has "differ: the run went on in both ledgers"; err_has "1 of 5 runs could not be taken"
cmp damaged "$f" && [ ! -e "mine/runs/$done/logs/2" ]; ok $? "of a run that contradicts nothing is taken"
is "$(list mine | grep -c fourth)" 1 "the other runs are taken all the same"
run tern ledger merge mine; status 2; one_line; err_has "is the ledger itself"
ln -s mine again; run tern ledger merge again; status 2; err_has "is the ledger itself"
run tern ledger merge nowhere; status 2; one_line; err_has "is no ledger"
run tern ledger merge; status 2; one_line
ln -s /etc/passwd "other/runs/$going/spool/1/link.0.spool"; run tern ledger merge other "$going"; [ ! -e "mine/runs/$going/spool/1/link.0.spool" ]; ok $? "a link in the other ledger is not followed"
tap_done
