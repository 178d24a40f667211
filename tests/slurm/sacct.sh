#!/bin/bash
# Accounting: with slurmdbd and a database of this test's own, sacct finds a run by its id.
. "$(dirname "$0")/../lib/tap.sh"
PATH=$PATH:/usr/sbin
for p in slurmdbd mariadbd mariadb-install-db; do
    command -v $p >/dev/null || skip_all "$p is not installed (make deps-peers)"
done
. "$ROOT/tests/lib/vcluster.sh"
cluster_up
etc=$TERN_CLUSTER_HOME/$CLUSTER/etc
who=$(id -un)

# ---- a database, slurmdbd on the head
db=
stop() {
    tern cluster exec $CLUSTER -- scontrol shutdown slurmctld >/dev/null 2>&1
    cluster_down # slurmdbd with it; one whose database has gone would hang
    [ -z "$db" ] || { kill "$db"; wait "$db"; } 2>/dev/null
}
tap_cleanup=stop
mariadb-install-db --no-defaults --datadir="$WORK/db" --user="$who" --auth-root-authentication-method=normal \
    --skip-test-db >db.log 2>&1 || { cat db.log; exit 1; }
mariadbd --no-defaults --datadir="$WORK/db" --user="$who" --socket="$WORK/db.sock" --pid-file="$WORK/db.pid" --skip-networking \
    --innodb-buffer-pool-size=16M --performance-schema=OFF >>db.log 2>&1 </dev/null &
db=$!
until_true test -S db.sock; ok $? "the database answers" || cat db.log
munge=$(sed -n 's/^AuthInfo=socket=\([^,]*\).*/\1/p' "$etc/slurm.conf")
cat >"$etc/slurmdbd.conf" <<E2
AuthType=auth/munge
AuthInfo=$munge
DbdHost=head
SlurmUser=$who
LogFile=$WORK/slurmdbd.log
PidFile=$WORK/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=acct
E2
chmod 600 "$etc/slurmdbd.conf"
tern cluster exec $CLUSTER -- env MYSQL_UNIX_PORT="$WORK/db.sock" slurmdbd >dbd.out 2>&1 </dev/null
# What a site's slurm.conf says of it is what tern renders.
{
    echo "AccountingStorageType=accounting_storage/slurmdbd"
    echo "AccountingStorageHost=head"
    echo "AccountingStoragePass=$munge"
    tern cluster render --to slurm "$LAYOUT" | grep '^AccountingStoreFlags='
} >>"$etc/slurm.conf"
name=$(sed -n 's/^ClusterName=//p' "$etc/slurm.conf")
answers() { tern cluster exec $CLUSTER -- sacctmgr -i add cluster "$name"; }
until_true answers; ok $? "slurmdbd answers after its start" || cat dbd.out slurmdbd.log
on scontrol shutdown slurmctld
gone() { ! tern cluster exec $CLUSTER -- timeout 30 scontrol ping | grep -q 'is UP'; }
up() { tern cluster exec $CLUSTER -- scontrol ping | grep -q 'is UP'; }
until_true gone
on slurmctld; until_true up; ok $? "slurmctld is there again, with accounting" || cat err

# ---- runs
printf 'version: 1\nname: toy\nledger: {dir: ledger}\nworkload: {command: [true]}\n' >toy.yaml
on tern submit toy.yaml -N 1 -- --parsable -o toy.out; status 0; job=$(cat out)
until_true job_over "$job"
id=$(sqlite3 ledger/ledger.db "select distinct id from run where name = 'toy'")
found() { tern cluster exec $CLUSTER -- sacct -X -n -P -o jobid,comment | grep -qx "$1|$2"; }
[ -n "$id" ]; ok $? "the run has an id" || cat toy.out
until_true found "$job" "$id"; ok $? "tern submit: sacct has it as the job's comment" || { on sacct -X -P -o jobid,state,comment; cat out err; }
sed 's/toy/typed/' toy.yaml >typed.yaml
printf '#!/bin/bash\nexec %s/tern run\n' "$BIN" >job.sbatch
submit --exclusive -o typed.out --tern=typed.yaml job.sbatch
until_true job_over "$job"
id=$(sqlite3 ledger/ledger.db "select distinct id from run where name = 'typed'")
until_true found "$job" "$id"; ok $? "sbatch --tern: tern run wrote it there" || { on sacct -X -P -o jobid,state,comment; cat out err typed.out; }
tap_done
