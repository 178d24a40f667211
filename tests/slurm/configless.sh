#!/bin/bash
# A login node of a configless Slurm: no slurm.conf, only SLURM_CONF_SERVER.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/vcluster.sh"
cluster_up
conf=$TERN_CLUSTER_HOME/$CLUSTER/etc/slurm.conf
if grep -q '^SlurmctldParameters=' "$conf"; then sed -i 's/^SlurmctldParameters=.*/&,enable_configless/' "$conf"
else echo 'SlurmctldParameters=enable_configless' >>"$conf"; fi
on scontrol shutdown slurmctld
gone() { ! tern cluster exec $CLUSTER -- scontrol ping | grep -q UP; }
until_true gone
on slurmctld
until_true tern cluster exec $CLUSTER -- sinfo -h
on scontrol show config
server=$(sed -n 's/^SlurmctldHost\[0\] *= *\([^( ]*\).*/\1/p' out):$(sed -n 's/^SlurmctldPort *= *//p' out)
grep -q 'enable_configless' out || skip_all "Slurm here has no configless mode"
# As a machine that has no file: the folders in which one would lie are empty.
login() {
    run tern cluster exec $CLUSTER -- unshare -m sh -c 'for d in /etc/slurm /run/slurm /opt/slurm/etc; do [ ! -d $d ] || mount -t tmpfs none $d || exit 9; done
        unset SLURM_CONF; exec "$@"' sh "$@"
}
login sinfo -h
[ $rc != 0 ] || skip_all "Slurm finds its configuration all the same: $(cat out)"
login env SLURM_CONF_SERVER="$server" sinfo -h
[ $rc = 0 ] || skip_all "sinfo cannot either: $(cat err)"

login tern cluster doctor
status 1 "a command that asks Slurm"; err_has 'no Slurm configuration here' "tern cluster doctor without a configuration says so"
login env SLURM_CONF_SERVER="$server" tern cluster doctor --json --timeout 30
out_has '"conf-' "with it, it tells of Slurm's configuration"; [ -z "$(grep 'no Slurm configuration' err)" ]; ok $? "with SLURM_CONF_SERVER doctor misses no configuration" || cat err
login env SLURM_CONF_SERVER=127.0.0.1:1 tern cluster doctor
status 75 "a controller that does not answer"; err_has 'no Slurm configuration from SLURM_CONF_SERVER (127.0.0.1:1)' "tern cluster doctor without an answer names the controller"
tap_done
