#!/bin/bash
# tern cluster up --accounting: sacct and sacctmgr on a virtual cluster, and what they tell of a run.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/reach.sh"
. "$ROOT/tests/lib/vcluster.sh"
. "$ROOT/tests/lib/tiny.sh"
sed 's/Count: 4/Count: 2/' "$LAYOUT" >cluster.yaml
LAYOUT=$WORK/cluster.yaml
run tern cluster up -n $CLUSTER --mode plain --accounting "$LAYOUT"
case $(cat err) in *"not found. Install MariaDB"*) skip_all "MariaDB or slurmdbd is not installed" ;; esac
status 2 "plain mode has no accounting"; one_line; err_has '--accounting needs namespaces'
if long; then # longer than daemons have in a cluster that is up
    mkdir late; printf '#!/bin/sh\nsleep 21\nexec %s "$@"\n' "$(PATH=$PATH:/usr/sbin command -v mariadbd)" >late/mariadbd; chmod +x late/mariadbd
    PATH=$WORK/late:$PATH run tern cluster up -n $CLUSTER --accounting --timeout 300 "$LAYOUT"
    status 0 "a database that is slow to listen is waited for"; cluster_down
fi
cluster_up --accounting
on sacctmgr -n -P show cluster format=cluster; is "$(cat out)" "$CLUSTER" "slurmdbd knows the cluster"
tiny_make || exit 1
on tern submit run.yaml -N 2 -- -o run.out; status 0; job=$(grep -oE '[0-9]+' out | tail -1)
await_job; is "$(job_state "$job")" COMPLETED "a run under accounting"
# slurmctld sends its records a moment later.
told() { on sacct -a -X -n -P -S now-1hour -j "$job" -o state,nnodes,comment; [ "$(cat out)" = "COMPLETED|2|$(sqlite3 ledger/ledger.db 'select id from run')" ]; }
until_true told; ok $? "sacct tells the job's end, its nodes, and the run's id as its comment" || cat out
on sacct -a -n -P -S now-1hour -j "$job" -o jobid,state; grep -q '^[0-9]*\.0|COMPLETED' out; ok $? "sacct has the job's step as completed" || cat out
cluster_down
! ps ax -o args | grep "^[^ ]*mariadbd .*$CLUSTER"; ok $? "the database ends with the cluster"
cluster_up --accounting
on sacct -a -X -n -S now-1hour; is "$(cat out)" "" "a new cluster begins without jobs"
cluster_down
if [ "$(id -u)" = 0 ]; then
    uid=65533; chmod 755 "$WORK"; mkdir user; cp cluster.yaml user; chown -R $uid:$uid user; cd user || exit 1
    as=(setpriv --reuid=$uid --regid=$uid --clear-groups env HOME="$WORK/user" TERN_CLUSTER_HOME="$WORK/user/clusters")
    reach $uid; PATH=$REACH_BIN:$PATH
    cluster_down() { "${as[@]}" tern cluster down $CLUSTER >/dev/null 2>&1; }
    if "${as[@]}" unshare -U true 2>/dev/null; then
        "${as[@]}" tern cluster up -n $CLUSTER --accounting cluster.yaml >up 2>&1; ok $? "an ordinary user has accounting, too" || cat up
        run "${as[@]}" tern cluster exec $CLUSTER -- srun -N2 hostname; status 0
        seen() { "${as[@]}" tern cluster exec $CLUSTER -- sacct -a -X -n -S now-1hour -o state 2>/dev/null | grep -q COMPLETED; }
        until_true seen; ok $? "sacct tells of an ordinary user's job"
    else
        skip "user namespaces are not allowed"
    fi
else
    skip "another user: this is not root"
fi
tap_done
