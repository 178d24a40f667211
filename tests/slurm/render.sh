#!/bin/bash
# Programs of `tern cluster render` on the nodes of a virtual cluster: tern is installed there from a
# package, and runs a job.  AWS's and the system's commands are scripts that do the same on this machine.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/vcluster.sh"
command -v dpkg-deb >/dev/null || skip_all "dpkg-deb is not installed"
cluster_up
version=$(tern --version | cut -d' ' -f2)

# A package with tern's programs; a bucket; commands.
mkdir -p deb/DEBIAN deb/usr/bin bucket bin
cp "$BIN"/tern deb/usr/bin/
printf 'Package: tern\nVersion: %s\nArchitecture: all\nMaintainer: tern <tern@localhost>\nDescription: tern\n' "$version" >deb/DEBIAN/control
dpkg-deb -Znone -b deb "bucket/tern-$version.deb" >/dev/null
cat >bin/aws <<'S'
#!/bin/bash
# aws s3 cp ... s3://BUCKET/KEY TO
from=${@: -2:1} to=${@: -1}
[ "$1 $2" = "s3 cp" ] && cp "$HERE/bucket/${from#s3://*/}" "$to"
S
cat >bin/apt-get <<'S'
#!/bin/bash
# apt-get install ... FILE.deb: into this node's own /tmp.
mkdir -p /tmp/system && dpkg-deb -x "${@: -1}" /tmp/system
S
chmod +x bin/*
# NODE FILE COMMAND...: as root of an instance would run it; the node's kind is in FILE.
node() {
    local at=(--node "$1")
    [ "$1" != head ] || at=()
    run tern cluster exec "${at[@]}" $CLUSTER -- env HERE="$WORK" PATH="$WORK/bin:$PATH" CFNCONFIG="$WORK/$2" TERN_SLURM="$WORK/slurm" "${@:3}"
}
printf 'cfn_node_type=HeadNode\n' >head; printf 'cfn_node_type=ComputeFleet\n' >compute
mkdir -p slurm/etc

# ---- ParallelCluster
printf '{"Bucket": "b", "TernPackage": "s3://b/tern-%s.deb"}' "$version" >values.json
run tern cluster render "$LAYOUT" --to pcluster --vars values.json -o p; status 0 "pcluster: rendered"
arg=$(sed -n "s/^ *- '\(s3:.*deb\)'$/\1/p" p/cluster.yaml | head -n 1)
is "$arg" "s3://b/tern-$version.deb" "pcluster: nodes are told of the package"
node head head p/on-node-configured "$arg"; status 0 "pcluster: the head node installs tern" || cat err
for n in 1 2 3 4; do node trn1-st-trn1-$n compute p/on-node-configured "$arg"; [ "$rc" = 0 ] || break; done
status 0 "pcluster: every compute node does" || cat err
on srun -N4 /tmp/system/usr/bin/tern --version; status 0 "pcluster: a job runs it on all nodes"
is "$(sort -u out; wc -l <out)" "tern $version
4" "pcluster: each node has its own"
has slurm/etc/plugstack.conf 'include /etc/slurm/plugstack.conf.d/*.conf' "pcluster: Slurm takes its plugin"
tap_done
