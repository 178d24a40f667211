#!/bin/bash
# `make install` into a Slurm that runs, used, renewed under a running job, and undone.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/vcluster.sh"
build=${TERN_BUILD:-$ROOT/build}
version=$(sed -n 's/.*(Slurm \([0-9.]*\)).*/\1/p' "$build/flags")
cluster_up
etc=$TERN_CLUSTER_HOME/$CLUSTER/etc
printf 'include /etc/slurm/plugstack.conf.d/*.conf\n' >"$etc/plugstack.conf"
printf 'version: 1\nname: toy\nledger: {dir: ledger}\nworkload: {command: [true]}\n' >good.yaml
sed 's/ledger:/ledgr:/' good.yaml >bad.yaml
# The same as the Makefile, without asking make what is out of date.
inst() {
    on env BUILD="$build" BUILT_FOR="$version" PREFIX="$WORK/pre" DESTDIR= SLURM_PREFIX= SLURM_CONF=${SLURM_PREFIX:+/etc/slurm/slurm.conf} PLUGSTACK_DIR= WITH_PLUGIN= \
        "$ROOT/plugins/spank/install" "$1"
}

on sbatch --tern=good.yaml --wrap true; [ $rc != 0 ]; ok $? "before it there is no --tern"
inst install; status 0 "make install ends well"; out_has "scontrol show config"; out_has 'wrote   /etc/slurm/plugstack.conf.d/tern.conf'
has "$etc/plugstack.conf.d/tern.conf" "optional $WORK/pre/lib/slurm/tern_spank-${version%.*}.so tern=$WORK/pre/bin/tern"
on sbatch --tern=bad.yaml --wrap true; [ $rc != 0 ]; ok $? "after it --tern refuses"; err_has "bad.yaml:3: ledgr"
on "$WORK/pre/bin/tern" cluster doctor -l /fsx/ledger; status 0 "the doctor finds nothing wrong with it"
submit --tern=good.yaml -o good.out --wrap 'echo "marker $TERN_MARKER"; until [ -e renewed ]; do sleep 0.1; done; srun --mpi=none -N1 sh -c "echo step \$TERN_MARKER"'
until_true grep -q marker good.out
inst install; status 0 "renewed while a job runs"
touch renewed
until_true job_over "$job"
has good.out "marker $job.batch"; has good.out "step $job.0" "the job's later step has its marker too"
[ "$(job_state "$job")" = COMPLETED ]; ok $? "the job after an install ends well"
on sinfo -h -o '%t'; [ "$(sort -u out)" = idle ]; ok $? "no node drained" || cat out
inst uninstall; status 0 "make uninstall ends well"; out_has 'removed /etc/slurm/plugstack.conf.d/tern.conf'
[ ! -e pre ] && [ ! -e "$etc/plugstack.conf.d" ]; ok $? "nothing of it is left"
on sbatch --tern=good.yaml --wrap true; [ $rc != 0 ]; ok $? "--tern is gone"
on srun --mpi=none -N4 true; status 0 "jobs run after an uninstall"
tap_done
