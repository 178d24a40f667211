#!/bin/bash
# cluster-templates/on-node-configured: what ParallelCluster runs on every node, with its commands
# (aws, dnf) as scripts that write down how they were called.
. "$(dirname "$0")/../lib/tap.sh"
mkdir bin bucket slurm slurm/etc
cat >bin/aws <<'S'
#!/bin/bash
echo "aws $*" >>calls
[ -e down ] && { rm down; exit 1; } # once
eval "to=\${$#}"; from=${@: -2:1}
case $from in */) cp bucket/*.rpm "$to" ;; *) cp "bucket/${from##*/}" "$to" ;; esac
S
printf '#!/bin/sh\necho "dnf $*" >>calls\n' >bin/dnf
printf '#!/bin/sh\n' >bin/sleep
chmod +x bin/*
for p in bash env mktemp rm cp sed grep uname nproc dirname tar gzip; do ln -s "$(command -v $p)" bin/; done
printf 'stack_name=a\ncfn_node_type=HeadNode\n' >head; sed s/HeadNode/ComputeFleet/ head >compute
: >bucket/tern-0.4.0-1.x86_64.rpm
configured() { run env PATH="$WORK/bin" CFNCONFIG="$WORK/$1" TERN_SLURM="$WORK/slurm" "$ROOT/cluster-templates/on-node-configured" "${@:2}"; }

configured head; status 1 "on-node-configured without an argument is refused"; err_has 'what is to be installed?'
configured head s3://b/tern-0.4.0-1.x86_64.rpm; status 0 "on-node-configured takes an RPM package" || cat err
has calls 'aws s3 cp --only-show-errors s3://b/tern-0.4.0-1.x86_64.rpm'; grep -q '^dnf install -y .*/tern-0.4.0-1.x86_64.rpm$' calls; ok $? "the package is installed"
is "$(cat slurm/etc/plugstack.conf)" "include /etc/slurm/plugstack.conf.d/*.conf" "plugstack.conf includes the plugin's folder"
touch down; configured compute s3://b/tern-0.4.0-1.x86_64.rpm; status 0 "a busy S3 is asked again"
configured head s3://b/tern-0.4.0-1.x86_64.rpm; is "$(wc -l <slurm/etc/plugstack.conf)" 1 "a second time changes nothing"
configured compute s3://b/packages/; status 0 "a folder of packages"; grep -q 'aws s3 cp --recursive .* s3://b/packages/' calls && tail -n 1 calls | grep -q '^dnf install -y .*\.rpm$'; ok $? "is installed whole" || cat calls
configured head s3://b/none.rpm; status 1 "what is not there"; err_has 'cannot get s3://b/none.rpm'
configured compute "$WORK/bucket/tern-0.4.0-1.x86_64.rpm"; status 0 "a package on shared storage"
: >bucket/tern-0.4.0.tar.gz
sed s/HeadNode/LoginNode/ head >login; configured login s3://b/tern-0.4.0.tar.gz; status 1 "a login node builds nothing"
configured compute s3://b/tern-0.4.0.tar.gz; status 1 "a compute node does not build a source tarball"; err_has 'did the head node build it?'
mkdir -p slurm/tern/bin; cp bin/dnf slurm/tern/bin/tern
configured compute s3://b/tern-0.4.0.tar.gz; status 0 "a compute node takes what the head node built"

# The head node builds: the tarball's needs and Makefile say what they were asked.
mkdir -p tern-9/plugins/packaging
printf '#!/bin/sh\necho "needs $*" >>%s/calls\n' "$WORK" >tern-9/plugins/packaging/needs; chmod +x tern-9/plugins/packaging/needs
printf '#!/bin/sh\necho "make $*" >>%s/calls\n' "$WORK" >bin/make; chmod +x bin/make
tar -czf bucket/tern-9.tar.gz tern-9
configured head s3://b/tern-9.tar.gz; status 0 "the head node builds" || cat err
grep -q "^make -j[0-9]* SLURM_PREFIX=$WORK/slurm all man$" calls && grep -q "^make SLURM_PREFIX=$WORK/slurm PREFIX=$WORK/slurm/tern PLUGSTACK_DIR=$WORK/slurm/etc/plugstack.conf.d install$" calls
ok $? "the head node builds for the cluster's Slurm, into what all nodes mount" || cat calls
has slurm/etc/plugstack.conf "include $WORK/slurm/etc/plugstack.conf.d/*.conf"

# With dnf, needs prints two commands; an optional package that cannot be had stops no build.
cat >tern-9/plugins/packaging/needs <<'S'
#!/bin/sh
[ "$1" = -i ] && shift
[ ! -e "$TERN_SLURM/needed" ] || { [ -e "$TERN_SLURM/optional" ] || printf 'Not here: o.\n  dnf install -y optional\n' >&2; exit 0; }
printf 'Missing: n.\n  dnf install -y needed\nNot here: o.\n  dnf install -y optional\n' >&2
exit 1
S
cat >bin/dnf <<'S'
#!/bin/bash
echo "dnf $*" >>calls
for word; do case $word in $LACKS) exit 1 ;; esac; done
: >"$TERN_SLURM/${!#}"
S
tar -czf bucket/tern-9.tar.gz tern-9
without() { rm -f calls slurm/needed slurm/optional; LACKS=$1 configured head s3://b/tern-9.tar.gz; }
without none; status 0 "on-node-configured installs by dnf what needs says" || cat err
[ -e slurm/needed ] && [ -e slurm/optional ]; ok $? "dnf installs what is needed and what is optional" || cat calls
without optional; status 0 "an optional package that dnf does not have stops no build" || cat err
[ -e slurm/needed ] && grep -q '^make .* all man$' calls; ok $? "dnf installs what is needed where an optional package cannot be had" || cat calls
without needed; status 1 "without a package that is needed nothing is built"; err_has 'what tern needs could not be installed'
! grep -q '^make' calls; ok $? "make is not called where a needed package cannot be had" || cat calls
tap_done
