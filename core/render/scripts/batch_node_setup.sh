#!/bin/bash
# User data of each instance, as root at its first start and before the ECS agent: EFA's driver, and FSx
# for Lustre where containers mount it from.  What it says is in /var/log/cloud-init-output.log.  An
# instance that lacks one of them takes no job: containers would write to its own disk.
set -euo pipefail
#@values@
say() { echo "node-setup (tern): $*"; }
fail() { say "$*" >&2; exit 1; }
work=
end() {
    local status=$?
    [ -z "$work" ] || rm -rf "$work"
    [ $status = 0 ] || ! systemctl cat ecs >/dev/null 2>&1 || {
        say "this instance is given back, without its ECS agent" >&2
        systemctl mask --now --no-block ecs || true
        shutdown -h now || true
    }
}
trap end EXIT
[ -z "$missing" ] || fail "values are missing: $missing. Give them: tern cluster render --vars FILE"
system=${SYSTEM_ROOT:-}
again() { # COMMAND...: the network of a node comes up late
    local try
    for try in 1 2 3 4 5; do
        "$@" && return
        say "'$*' failed; again in $((try * 5)) s" >&2
        sleep $((try * 5))
    done
    "$@"
}
devices() { find "$system/dev/infiniband" -name 'uverbs*' 2>/dev/null | wc -l; }
if [ "$efa" -gt 0 ] && [ "$(devices)" -lt "$efa" ]; then
    work=$(mktemp -d)
    again curl -fsSL -o "$work/efa.tar.gz" https://efa-installer.amazonaws.com/aws-efa-installer-latest.tar.gz
    tar -xzf "$work/efa.tar.gz" -C "$work"
    (cd "$work/aws-efa-installer" && ./efa_installer.sh -y)
    [ "$(devices)" -ge "$efa" ] || fail "$(devices) EFA devices, and not $efa: does the launch template have them?"
fi
if [ -n "$mount_dir" ]; then
    case $mount_dir$fsx_host$fsx_mount in
    *[[:space:]]*) fail "'$mount_dir' or '$fsx_host' has a blank, which fstab cannot hold" ;;
    esac
    again dnf install -y lustre-client
    mkdir -p "$mount_dir"
    line="$fsx_host@tcp:/$fsx_mount $mount_dir lustre noatime,flock,_netdev 0 0"
    grep -qsF "$line" "$system/etc/fstab" || echo "$line" >>"$system/etc/fstab"
    mountpoint -q "$mount_dir" || again mount -t lustre -o noatime,flock "$fsx_host@tcp:/$fsx_mount" "$mount_dir" ||
        fail "FSx $fsx_host is not mounted: does its security group let this node's in?"
fi
say "done on $(uname -n)"
