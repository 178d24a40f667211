#!/bin/bash
# A ledger that users share: a folder a user. No other user writes to it, and only files of that
# user are read in it.  Two users and a third with bad intent.
. "$(dirname "$0")/../lib/tap.sh"
unset TERN_LEDGER TERN_RUN_SPOOL
[ "$(id -u)" = 0 ] && setpriv --reuid 65534 --regid 65534 --clear-groups true 2>/dev/null ||
    skip_all "several users want root"
. "$ROOT/tests/lib/reach.sh"
A=42001 B=42002 H=42003 G=42000
chmod 755 "$WORK"; reach $A; PATH=$REACH_BIN:$PATH
as() { setpriv --reuid "$1" --regid "$1" --groups $G env HOME=/ "${@:2}"; }
L=$WORK/ledger
recipe() { # UID NAME [LEDGER KEYS]
    mkdir -p -m 755 w$1; chown $1 w$1
    printf 'version: 1\nname: %s\nledger: {dir: %s%s}\nlaunch: {health: off}\nworkload: {command: [tern, metric, step=1, loss=2.5]}\n' \
        "$2" "$L" "${3-}" >w$1/$2.yaml
}
train() { (cd w$1 && run as $1 timeout 600 tern run $2.yaml; mv out err ..; exit $rc); rc=$?; cmd="tern run $2"; }
mode() { stat -c %a "$1"; }

mkdir -m 2770 ledger; chgrp $G ledger
for u in $A:ann $B:bob; do recipe ${u%:*} ${u#*:}; train ${u%:*} ${u#*:}; status 0 "a run of ${u#*:}'s in the shared ledger"; done
[ -f $L/u/$A/ledger.db ] && [ -f $L/u/$B/ledger.db ] && [ ! -e $L/runs ] && [ ! -e $L/ledger.db ]
ok $? "each user has runs and a catalogue in a folder of their own"
is "$(find $L/u/$A ! -user $A; find $L/u/$B ! -user $B; find $L/u/* -perm /022)" "" "all in a user's folder is that user's, and no other user may write there"
is "$(find $L/u/$A ! -group $G)" "" "a user's folder has the ledger's group"
[ -k $L/u ]; ok $? "no user may move another's folder"
export TERN_LEDGER=$L
run as $A tern ledger list -P -n -o name; is "$(cat out)" ann "list has the caller's own runs"
run as $A tern ledger list -a -P -n -o user,name; is "$(sort out)" "$A|ann
$B|bob" "-a has everybody's, and whose they are"
run as $A tern ledger list -a --json; out_has '"name": "bob"' "list --json has the caller's own runs"
run as $A tern ledger sql -P -n "select user, name from run"; is "$(cat out)" "$A|ann" "sql queries the caller's own runs"
run as $A tern ledger sql -a -P -n "select user, name, count(*) from run join attempt on run.id = run_id group by 1, 2 order by 1"
is "$(cat out)" "$A|ann|1
$B|bob|1" "sql -a everybody's"
run as $A tern ledger show bob; status 0 "a run of somebody else is read by its name"; out_has "bob"
run as $A tern ledger show -P -n -a -o attempt; is "$(cat out)" 1 "the newest run is the caller's own"
run as $B tern logs ann; status 0 "the newest run's logs are the caller's own"
bob=$(as $B tern ledger list -n -P -o id)
run as $A tern ledger show "${bob:0:20}"; status 0 "another user's run is found by the beginning of its id"
run as $A tern ledger plot "$bob" loss; status 0 "another user's run is found by its id"
run as $A tern ckpt mirror bob; status 2 "only a run's user may mirror its checkpoints"; one_line
run as $A tern ledger verify -a; status 0 "verify -a looks at everybody's"; is "$(grep -c ok out)" 2 "at each run"

# No program writes over another uid's file; root's, too, leaves them alone.
cp -a $L before; rm -f $L/u/$B/runs/$bob/run.db
run as $A tern ledger fold bob; status 2 "a fold of another user's run is refused"; one_line
run tern ledger fold -l $L/u/$B; status 2 "root may not fold the ledger of another user either"; err_has "belongs to $B"
[ ! -e $L/u/$B/runs/$bob/run.db ]; ok $? "a refused fold makes nothing"
run as $B tern ledger fold; status 0 "a run's user folds it"
is "$(stat -c %u $L/u/$B/runs/$bob/run.db)" $B "the folded run.db is its user's"

# The third puts things in the way, and among what is read.
mkdir -p $L/u/$H/runs; chown -R $H $L/u/$H
secret=$WORK/secret; mkdir -m 700 "$secret"; cp -a $L/u/$A/. "$secret"
fake=$L/u/$H/runs
ln -s $secret/runs/* $fake/                                                      # a link to another's run
mkdir $fake/01BX5ZZKBKACTAV9WEVGEMMVRZ; cp -a $L/u/$B/runs/$bob/. $fake/01BX5ZZKBKACTAV9WEVGEMMVRZ # files of bob's
mkdir -p $fake/01BX5ZZKBKACTAV9WEVGEMMVS0/spool/1; mkfifo $fake/01BX5ZZKBKACTAV9WEVGEMMVS0/spool/1/rank0.0.spool \
    $fake/01BX5ZZKBKACTAV9WEVGEMMVS0/run.db
ln -s /etc/passwd $fake/01BX5ZZKBKACTAV9WEVGEMMVS0/spool/1/$'x\e]0;owned\a\u202e.0.spool'
ln -s $L/u/$A/ledger.db $L/u/$H/ledger.db
chown -h $H $fake $fake/* $fake/*S0/* $fake/*S0/spool/* $L/u/$H/ledger.db
run as $A timeout 600 tern ledger list -a -P -n -o user,name
is "$(grep -v "^$H|" out | sort)" "$A|ann
$B|bob" "the others' runs are listed whatever the third puts beside them"
! grep -q "^$H|..*" out; ok $? "no run of a third user appears"
for what in "runs/$(ls $secret/runs): is a link" "ledger.db: is a link" "run.db: belongs to $B, not to $H" "rank0.0.spool: is no file"; do
    err_has "$what" "left out with a word: $what"
done
has err 'x?]0;owned????.0.spool: is a link' "whose name commands no terminal"; ! LC_ALL=C grep -q '[^ -~]' err; ok $? "no message has the planted text"
run as $A timeout 600 tern ledger verify -a; has err "is a link" "verify reports the planted file"
ln -s $L/u/$A $L/u/42009; chown -h $H $L/u/42009; mkdir $L/u/42010; chown $H $L/u/42010
run as $B timeout 600 tern ledger list -a -P -n; err_has "u/42009: is a link"; err_has "u/42010: belongs to $H, not to 42010"
is "$(grep -c '|ann|' out)" 1 "a link makes no run appear twice"
recipe 42010 dan; train 42010 dan; status 2 "a user whose folder another user made gets an error"
err_has "u/42010: is your folder in this shared ledger, and belongs to uid $H"; one_error
is "$(find $L/u/42010 -mindepth 1)" "" "nothing is written to a folder that another user made"
run as 42010 tern run --check w42010/dan.yaml; status 2 "submission refuses a folder that another user made"

# A run of the third's that has another's id, to stand in its place.
as $H mkdir -p $fake/$bob/spool/1; as $H cp $L/u/$B/runs/$bob/spool/1/. -r $fake/$bob/spool/1
run as $A timeout 600 tern ledger list -a -P -n -o user,name 2>/dev/null; is "$(grep '|bob' out | sort)" "$B|bob
$H|bob" "both are listed, each as whose it is"
run as $A timeout 600 tern ledger sql -a -P -n "select user, substr(id, 27) from run where name = 'bob' order by 1"; is "$(cat out)" "$B|
$H|@$H" "sql tells them apart"
run as $A tern ledger show "$bob"; status 2; err_has "is a run in $L/u/$B and in $L/u/$H. Name one with --ledger."
run as $B tern ledger show "$bob"; status 0 "a run's user gets the true run"
rm -rf $fake/$bob

# What others may not read is not read for the third's sake, nor their words taken for another's.
mkdir -p $fake/01BX5ZZKBKACTAV9WEVGEMMVS1/logs/1 $fake/01BX5ZZKBKACTAV9WEVGEMMVS1/spool; cp -r $L/u/$B/runs/$bob/spool/1 $fake/01BX5ZZKBKACTAV9WEVGEMMVS1/spool/
printf '%s\n' "$(head -1 $L/u/$A/runs/*/logs/1/run.log)" '0 o the secret' >secret.log; chown $A secret.log; chmod 600 secret.log
ln -s "$WORK/secret.log" $fake/01BX5ZZKBKACTAV9WEVGEMMVS1/logs/1/0.log; mkfifo $fake/01BX5ZZKBKACTAV9WEVGEMMVS1/logs/1/1.log
chown -hR $H $fake/01BX5ZZKBKACTAV9WEVGEMMVS1
run as $A timeout 600 tern logs 01BX5ZZKBKACTAV9WEVGEMMVS1; ! grep -q secret out; ok $? "logs follows no link"; err_has "0.log: is a link"
rm -r $fake/01BX5ZZKBKACTAV9WEVGEMMVS1/logs/1; ln -s "$(echo $L/u/$A/runs/*/logs/1)" $fake/01BX5ZZKBKACTAV9WEVGEMMVS1/logs/1
run as $A timeout 600 tern logs 01BX5ZZKBKACTAV9WEVGEMMVS1; [ ! -s out ]; ok $? "a folder of logs that is a link is not followed"; err_has "logs/1: is a link"

# LEDGER/runs is what anybody of the group can make: it is believed for -a only.
as $H mkdir $L/runs; as $H cp -r $L/u/$A/runs/. $L/runs/; as $H cp $L/u/$A/ledger.db $L/ledger.db
run as $B timeout 600 tern ledger list -P -n -o name; is "$(cat out)" bob "runs that a third user put there are not the caller's"
run as $B timeout 600 tern ledger list -a -P -n -o user,name; is "$(sort -u out)" "$A|ann
$B|bob
$H|ann" "-a shows them under whose they are"
rm -rf $L/runs $L/ledger.db

# A ledger from before it was shared goes on where it is, for its owner.
mkdir -m 755 old; chown $A old; L=$WORK/old; recipe $A first; train $A first; status 0
[ -d old/runs ] && [ ! -e old/u ]; ok $? "a ledger of one user has no folders of users"
chgrp $G old; chmod 2775 old; train $A first; recipe $B other; train $B other; status 0
is "$(ls old/runs | wc -l) $(ls old/u)" "2 $B" "when a ledger becomes shared, its owner's runs stay in it"
run as $A tern ledger list -l old -P -n -o name; is "$(sort -u out)" first "list shows the owner's runs of a ledger that became shared"
run as $B tern ledger list -l old -P -n -o name; is "$(sort -u out)" "first
other" "and to others what was there before"
run as $B tern ledger list -l old -a -P -n -o name; is "$(sort -u out)" "first
other" "-a all, once"
is "$(stat -c %u old/ledger.db)" $A "the catalogue of a ledger that became shared stays its owner's"

# Root's own file system is root's, unless somebody has been there before.
mkdir -m 1777 mounted roots; for l in mounted roots; do
    L=$WORK/$l; recipe 0 $l; [ $l = roots ] && as $H ln -s $WORK/w0 roots/runs
    train 0 $l; status 0 "a run of root's in a ledger of root's that is for all"
done
[ -d mounted/runs ] && [ ! -e mounted/u ]; ok $? "a run of root's in a ledger of root's is in no user's folder"
[ -d roots/u/0/runs ] && [ -z "$(find w0 -name '*.db')" ]; ok $? "a run does not follow a third user's link"

# Sticky for all, and ledger.mode.
mkdir -m 1777 all; L=$WORK/all; recipe $A open; train $A open; status 0
[ -d all/u/$A/runs ] && is "$(mode all/u)" 1777 "a run in a sticky ledger for all users"
L=$WORK/new; chmod 777 "$WORK"; recipe $A grouped ", mode: group"; train $A grouped; status 0; chmod 755 "$WORK"
is "$(mode new) $(mode new/u/$A/runs/*)" "3770 2750" "ledger.mode: group makes a new ledger one to share"
L=$WORK/all; recipe $A hidden ", mode: private"; train $A hidden; status 0
hidden=$(as $A tern ledger list -l all -n -P -o id,name | sed -n 's/|hidden//p')
is "$(mode all/u/$A/runs/$hidden) $(mode all/u/$A/ledger.db)" "700 400" "only its user may read a private run and the catalogue that has it"
run as $B tern ledger list -l all -a; ! grep -q hidden out; ok $? "other users do not see a private run"
run as $B tern ledger show -l all "$hidden"; [ "$rc" != 0 ]; ok $? "other users do not see a private run by its id"
run as $B tern ledger list -l all -a -P -n -o name; is "$(cat out)" open "runs that are not private are listed beside a private one"
printf 'version: 1\nledger: {dir: %s, mode: private}\n' "$WORK/all" >tern.yaml; chmod 644 tern.yaml
printf 'version: 1\nname: settled\nlaunch: {health: off}\nworkload: {command: [true]}\n' >w$B/settled.yaml
(export TERN_CONFIG=$WORK/tern.yaml; train $B settled; exit $rc); rc=$?; status 0 "a run with a site's ledger.mode"
is "$(mode all/u/$B/runs/*)" 700 "a site's ledger.mode holds where the recipe has none"
# ---- ./ledger, where no ledger is named: not another user's
mkdir -m 1777 there; mkdir -p there/ledger/runs; chown -R $H there/ledger
(cd there && run as $A env -u TERN_LEDGER tern ledger list; mv out err ..; exit $rc); rc=$?; status 2 "the folder ledger here that another user made is not taken unasked"; err_has "the folder ledger here is a link or another user's"
chown -R $A there/ledger; (cd there && run as $A env -u TERN_LEDGER tern ledger list; mv out err ..; exit $rc); rc=$?; status 0 "the caller's own folder ledger is taken"

L=$WORK/umask; mkdir -m 755 umask; chown $A umask; recipe $A quiet; (umask 077; train $A quiet; exit $rc); rc=$?; status 0 "a run with umask 077"
is "$(find umask -mindepth 1 -perm /077)" "" "without a mode the umask decides who may read a run"
L=$WORK/wide; mkdir -m 755 wide; chown $A wide; recipe $A loud ", mode: all"; (umask 077; train $A loud; exit $rc); rc=$?; status 0
is "$(find wide/runs/*/ ! -perm -044; mode wide/ledger.db)" "444" "ledger.mode is preferred to the umask" || find wide -ls
chmod -R u+w before; tap_done
