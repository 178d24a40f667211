#!/bin/bash
# tern cluster smoke where no job of it can begin: it fails, and names Slurm's reason.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/vcluster.sh"
cluster_up
mkdir bin
smoke() { run timeout 600 tern cluster smoke $CLUSTER --timeout 3 -w 'trn1-st-trn1-[1-2]'; }
refused() { # REASON NAME
    status 75 "smoke, $2: it fails"
    is "$(grep -c "^trn1-st-trn1-[12]: busy: job [0-9]*: PENDING ($1) after 3 s$" out)" 2 "smoke, $2: each node's line has Slurm's reason" || cat out
    err_has "nothing was tried" "smoke, $2: it says that nothing was tried"
    until_true queue_empty; ok $? "smoke, $2: its jobs are gone"
}

printf '#!/bin/sh\nexec %s --hold "$@"\n' "$(command -v sbatch)" >bin/sbatch; chmod +x bin/sbatch
PATH=$PWD/bin:$PATH smoke
refused JobHeldUser "its jobs are held"

on sinfo -h -o %R; partition=$(sort -u out)
on scontrol update partitionname="$partition" state=down; status 0
smoke
refused PartitionDown "the partition is down"
tap_done
