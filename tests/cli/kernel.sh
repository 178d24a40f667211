#!/bin/bash
# On a Linux without the system calls that came after 4.18 (RHEL 8), and in a container whose filter
# refuses what it does not know.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/fabric.sh"
K=$TOOLS/old-kernel
"$K" true || skip_all "no seccomp"

for how in '' -p; do
    as="a kernel like 4.18${how:+, refusing with EPERM}"
    run "$K" $how /usr/bin/python3 -c 'import os; os.pidfd_open(1)'
    grep -qE 'Function not implemented|Operation not permitted' err; ok $? "$as: what is refused here"
    run "$K" $how "$TOOLS/../unit/process"
    status 0 "$as: processes and descriptors"
    run "$K" $how "$TOOLS/../unit/pytorch_child"
    status 0 "$as: a process that reads files of PyTorch holds its answer's descriptor alone" || grep '^not ok' out
    TERN_DEADLINE=20 run timeout 600 "$K" $how "$R" kill 4 2
    named 3 'rank 2 \(.*has ended'
    words "$as: the others name a rank that ended"
done
tap_done
