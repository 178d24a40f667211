#!/bin/bash
# HyperPod's lifecycle script, as root on each new node: mounts FSx for Lustre, installs tern, starts
# Slurm.  provisioning_parameters.json and on-node-configured lie beside it.  It may run again.  What it
# says is in CloudWatch, /aws/sagemaker/Clusters/NAME.
set -euo pipefail
#@values@
say() { echo "on_create (tern): $*"; }
fail() { say "$*" >&2; exit 1; }
[ -z "$missing" ] || fail "values are missing: $missing. Give them: tern cluster render --vars FILE"
here=$(cd "$(dirname "$0")" && pwd)
resources=${SAGEMAKER_RESOURCE_CONFIG_PATH:-/opt/ml/config/resource_config.json}
slurm=${TERN_SLURM:-/opt/slurm}
system=${SYSTEM_ROOT:-}
[ -r "$resources" ] || fail "$resources is not there: is this a node of HyperPod?"

# This node's kind, and the controllers' addresses; then the file system's host and mount name.
facts=$(python3 - "$resources" "$here/provisioning_parameters.json" "$(hostname -I)" <<'P'
import json, sys
groups = json.load(open(sys.argv[1]))["InstanceGroups"]
parameters, mine = json.load(open(sys.argv[2])), sys.argv[3].split()
kinds = {parameters["controller_group"]: "controller", parameters.get("login_group"): "login"}
kind, controllers = "", []
for group in groups:
    for instance in group.get("Instances") or []:
        address = instance.get("CustomerIpAddress")
        if address in mine:
            kind = kinds.get(group["Name"], "compute")
        if group["Name"] == parameters["controller_group"]:
            controllers.append(address)
host, mount = (parameters.get(k) or "none" for k in ("fsx_dns_name", "fsx_mountname"))
if len((host + mount).split()) != 1:
    sys.exit("fsx_dns_name or fsx_mountname has a blank")
print(kind or "none", ",".join(controllers) or "none")
print(host, mount)
P
) || fail "$resources or provisioning_parameters.json cannot be read"
{ read -r kind controllers; read -r fsx_host fsx_mount; } <<<"$facts"
[ "$kind" != none ] || fail "no instance of $resources has an address of this node ($(hostname -I))"
say "$(uname -n): $kind; controller $controllers"

again() { # COMMAND...: the network of a node comes up late, and hundreds of nodes ask at once
    local try
    for try in 1 2 3 4 5; do
        "$@" && return
        say "'$*' failed; again in $((try * 5)) s" >&2
        sleep $((try * 5))
    done
    "$@"
}
mount_fsx() {
    local line="$fsx_host@tcp:/$fsx_mount $mount_dir lustre noatime,flock,_netdev 0 0"
    mkdir -p "$mount_dir"
    grep -qsF "$line" "$system/etc/fstab" || echo "$line" >>"$system/etc/fstab"
    mountpoint -q "$mount_dir" || again mount -t lustre -o noatime,flock "$fsx_host@tcp:/$fsx_mount" "$mount_dir"
}
if [ -n "$mount_dir" ] && [ "$fsx_host" != none ]; then
    case $mount_dir in *[[:space:]]*) fail "'$mount_dir' has a blank, which fstab cannot hold" ;; esac
    mount_fsx || fail "FSx $fsx_host is not mounted: does its security group let this node's in?"
fi

# Every node has a /opt/slurm of its own here, so that each builds or installs for itself.
facts=$(mktemp)
trap 'rm -f "$facts"' EXIT
echo cfn_node_type=HeadNode >"$facts"
CFNCONFIG=$facts TERN_SLURM=$slurm bash "$here/on-node-configured" "$package"

# HyperPod's agent writes the controller's slurm.conf; other nodes ask the controller.
named() { grep -qsF "${controllers%%,*}" "$slurm/etc/slurm.conf"; }
case $kind in
controller)
    for _ in $(seq 60); do ! named || break; sleep 5; done
    named || fail "$slurm/etc/slurm.conf does not name $controllers: HyperPod's agent has not written it"
    systemctl enable --now slurmctld
    ;;
*)
    mkdir -p "$system/etc/systemd/system/slurmd.service.d"
    printf '[Service]\nEnvironment="SLURMD_OPTIONS=--conf-server %s"\n' "$controllers" \
        >"$system/etc/systemd/system/slurmd.service.d/tern.conf"
    systemctl daemon-reload
    systemctl enable --now slurmd
    ;;
esac
say "done on $(uname -n) ($kind)"
