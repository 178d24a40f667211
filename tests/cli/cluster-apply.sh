#!/bin/bash
# tern cluster apply and drift: all that is refused before slurmctld is asked.  tests/slurm/apply.sh has
# the rest.
. "$(dirname "$0")/../lib/tap.sh"
template=$ROOT/cluster-templates/trn1-4/cluster.yaml
cp "$template" cluster.yaml
mkdir etc tmp; export SLURM_CONF=$WORK/etc/slurm.conf TMPDIR=$WORK/tmp
# conf LINE...: a slurm.conf of a controller that is not there.
conf() { printf '%s\n' 'ClusterName=c' 'SlurmctldHost=localhost' 'SlurmctldPort=1' 'MessageTimeout=1' "$@" >etc/slurm.conf; }
gres='NodeName=trn1-st-trn1-[1-4] Name=neuron Type=trn1 File=/dev/neuron[0-15]'
# refused NAME WORDS ARGUMENT...: exit status 2 with one line, and nothing is written.
refused() {
    local name=$1 words=$2 before
    shift 2; before=$(ls -l etc; cat etc/*)
    run tern cluster apply "$@"; status 2 "$name: is refused"; err_has "$words" "$name: the error says why"; one_error "$name: by one line"
    is "$(ls -l etc; cat etc/*)" "$before" "$name: nothing is written"
}

run tern cluster apply; status 2 "apply without a layout"; err_has 'which LAYOUT?'
run tern cluster apply --undo cluster.yaml; status 2 "--undo with a layout"
run env SLURM_CONF=/nowhere tern cluster apply cluster.yaml; status 1 "apply without a slurm.conf is an error"; err_has 'no slurm.conf here'; one_line
run env SLURM_CONF=/nowhere tern cluster drift cluster.yaml; status 1 "drift without a slurm.conf"; one_line

conf 'GresTypes=gpu,neuron'; echo "$gres" >etc/gres.conf
sed 's/MaxCount: 4/MaxCount: 3/' cluster.yaml >bad.yaml
run tern cluster apply bad.yaml; status 2 "a layout with errors"; err_has 'bad.yaml:29: error: ' "a layout with errors: its line"
refused "no backup" 'there is no backup to put back' --undo

# ---- other files
conf 'GresTypes=neuron' 'NodeName=other,trn1-st-trn1-3 CPUs=1'
refused "a node of slurm.conf" "etc/slurm.conf:6: node trn1-st-trn1-3 is defined there, and in the layout" cluster.yaml --init
conf 'GresTypes=neuron' 'include more.conf'; printf '# one\nPartitionName=trn1 Nodes=ALL\n' >etc/more.conf
refused "a partition of an included file" "etc/more.conf:2: partition trn1 is defined there" cluster.yaml --init
conf 'GresTypes=neuron' 'Include '"$WORK/etc/gone.conf"
refused "an included file that is not there" "etc/gone.conf: cannot open" cluster.yaml
conf 'include slurm.conf'; refused "a file that includes itself" 'files include each other' cluster.yaml
conf 'GresTypes=neuron' 'include tern-nodes.conf'
refused "an included tern-nodes.conf that is not there" "touch $WORK/etc/tern-nodes.conf" cluster.yaml
touch etc/tern-nodes.conf; echo 'include tern-nodes.conf' >>etc/slurm.conf
refused "two lines that include it" 'etc/slurm.conf:7: includes tern-nodes.conf twice' cluster.yaml
rm etc/tern-nodes.conf etc/more.conf

# ---- devices
conf 'GresTypes=gpu'; refused "GresTypes without neuron" 'GresTypes has no neuron' cluster.yaml --init
conf 'GresTypes=neuron'; printf '%s # 4\n' "${gres/1-4/1-2}" >etc/gres.conf
refused "devices that gres.conf lacks" 'Add the line: NodeName=trn1-st-trn1-[3-4] Name=neuron Type=trn1 File=/dev/neuron[0-15]' cluster.yaml --init
rm etc/gres.conf; refused "no gres.conf" 'NodeName=trn1-st-trn1-[1-4] Name=neuron' cluster.yaml --init

# ---- what libslurm does not read
echo "$gres" >etc/gres.conf
sed 's/          MinCount: 4/          CustomSlurmSettings: {NoSuchKey: 1}\n&/' cluster.yaml >odd.yaml
refused "a key that Slurm does not know" 'Slurm does not take that configuration: ' odd.yaml --init
has err NoSuchKey "a key that Slurm does not know: is named"

# ---- another apply
if command -v flock >/dev/null; then
    run flock -s etc/slurm.conf tern cluster apply cluster.yaml --init; status 2 "two at once"; err_has 'another `tern cluster apply` is at work'; one_line
else
    skip "flock is not installed"
fi

# ---- a controller that does not answer
run timeout 600 tern cluster apply cluster.yaml -n; status 75 "a slurmctld that is down"; one_error
[ ! -e etc/tern-nodes.conf ]; ok $? "a slurmctld that is down: nothing is written"
is "$(ls tmp)" '' "no file is left in TMPDIR"
tap_done
