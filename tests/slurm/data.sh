#!/bin/bash
# srun tern data build: the tasks of a step share the work; the set is the one of a single process,
# also when a task or a node is lost.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/vcluster.sh"
T=$ROOT/tests/golden/spm-bpe-800.model
cluster_up
awk 'BEGIN {
    for (i = 1; i <= 60000; i++) {
        s = "We the people of " i ", in order to form";
        for (k = 0; k < i % 40; k++) s = s " words " k * i;
        printf "{\"text\": \"%s\"}\n", s;
    }
}' >text.jsonl
gzip -c text.jsonl >text.jsonl.gz
tern data build -t "$T" -o one.tds text.jsonl text.jsonl.gz text.jsonl 2>err
files="text.jsonl text.jsonl.gz text.jsonl"
gone() { [ ! -e x.tds.parts ]; ok $? "$1: no folder of parts is left" || ls x.tds.parts; }

on srun -N4 --overlap tern data build -t "$T" --share-size 1M -o x.tds $files
status 0 "four nodes build one set"
cmp -s one.tds x.tds; ok $? "the set of four nodes is that of one process"
is "$(grep -c ' documents, ' err)" 1 "four nodes: one summary"
gone "four nodes"
rm -f x.tds
on srun -N2 -n4 --overlap tern data build -t "$T" --share-size 1M -o x.tds $files nowhere.jsonl
[ "$rc" != 0 ]; ok $? "a file that is not there fails the step"
[ ! -e x.tds ]; ok $? "a failed step writes no set"
sed '30000s/"text"/"tex"/' text.jsonl >bad.jsonl
on srun -N2 -n4 --overlap tern data build -t "$T" --share-size 1M -o x.tds text.jsonl bad.jsonl
status 2 "a bad line fails the step"
is "$(grep -c 'bad.jsonl:' err)" 1 "one task reports a bad line" || cat err
[ ! -e x.tds ]; ok $? "a bad line: no set"
rm -rf x.tds.parts

# One of two tasks of a node dies once it has leased a share.
cat >lost.sh <<END
tern data build -t "$T" --threads 1 --share-size 200K -o x.tds $files & pid=\$!
if [ "\$SLURM_PROCID" = 1 ]; then
    until ls x.tds.parts/*.lease >/dev/null 2>&1 || ! kill -0 \$pid 2>/dev/null; do :; done
    kill -9 \$pid
fi
wait \$pid
END
on srun -N2 -n4 --overlap --kill-on-bad-exit=0 bash lost.sh
cmp -s one.tds x.tds; ok $? "a task is killed: the others build the set" || cat err
gone "a task is killed"

# All tasks of a node stop, as on a node that is cut off.
if long; then
    rm -f x.tds
    sed -i 's/kill -9/kill -STOP/; s/^wait.*/[ "$SLURM_PROCID" = 1 ] \&\& { sleep 90; kill -CONT $pid; }; wait $pid/' lost.sh
    on srun -N2 -n2 --overlap --kill-on-bad-exit=0 bash lost.sh
    status 0 "a task on a node of its own is frozen, and wakes when all is done"
    cmp -s one.tds x.tds; ok $? "a task on a node of its own is frozen: the other builds the set" || cat err
    gone "a task is frozen"
fi
tap_done
