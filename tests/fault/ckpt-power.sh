#!/bin/bash
# Power cuts: the file system forgets everything that was not made durable (ext4's shutdown, without
# flushing its log).  What was acknowledged is there afterwards, and what is visible is whole.
#
# In a mount namespace of its own: whoever else makes one meanwhile (a virtual node) would hold on to
# the file system that has no power, and mounting it again would give the same dead one.
if [ "$(id -u)" = 0 ] && [ -z "${TERN_OWN_MOUNTS-}" ]; then
    export TERN_OWN_MOUNTS=1
    exec unshare --mount "$0" "$@"
fi
. "$(dirname "$0")/../lib/tap.sh"
T=$TOOLS/ckpt-tool
ROUNDS=${CKPT_POWER_ROUNDS:-$(long && echo 15 || echo 4)}
SEED=${CKPT_SEED:-$$}
RANDOM=$SEED
[ "$(id -u)" = 0 ] || skip_all "a power cut needs root (loop mount)"
PATH=$PATH:/sbin:/usr/sbin
"$T" model hf && truncate -s 96M disk && mkfs.ext4 -q -F disk 2>/dev/null && mkdir mnt || skip_all "no mkfs.ext4 here"
mount -o loop disk mnt 2>/dev/null || skip_all "no loop mounts here"
tap_cleanup='umount -q -l mnt'
echo "# seed $SEED, $ROUNDS rounds"

saved() { [ -s acks ] || ! kill -0 "$pid" 2>/dev/null; }
bad=0 lost=0 saves=0 acked=0 cut=0
for ((i = 0; i < ROUNDS; i++)); do
    : >acks
    setsid "$T" loop mnt/run $((1 + RANDOM % 2)) hf >acks 2>errs &
    pid=$!
    until_true saved # then somewhere in one of the next
    sleep "0.$(printf %03d $((RANDOM % 400)))"
    # EXT4_IOC_SHUTDOWN, EXT4_GOING_FLAGS_NOLOGFLUSH
    perl -e 'open(F, "<", "mnt") or exit 1; $a = pack("L", 2); ioctl(F, 0x8004587d, $a) or exit 1' && cut=$((cut + 1))
    kill -9 -- -$pid 2>/dev/null
    wait $pid 2>/dev/null
    until_true umount mnt # the ranks may take a moment to be gone
    mount -o loop disk mnt || { bad=$((bad + 1)); break; }
    saves=$((saves + $(grep -c '^saved ' acks)))
    last=$(sed -n 's/^saved //p' acks | tail -1)
    [ -z "$last" ] || acked=$last
    [ "$acked" = 0 ] && continue
    [ -d "$(printf mnt/run/step-%08d "$acked")" ] || { lost=$((lost + 1)); echo "# round $i lost step $acked"; }
    tern ckpt verify --full mnt/run >out 2>err || { bad=$((bad + 1)); sed "s/^/# round $i: /" err; }
done
echo "# $saves saves acknowledged, last step $acked"
[ $cut = "$ROUNDS" ] && [ "$saves" -gt 0 ]; ok $? "the power went $cut times while saves were at work"
[ $lost = 0 ]; ok $? "none of $saves acknowledged checkpoints was lost"
[ $bad = 0 ]; ok $? "every visible checkpoint verified in full"
tap_done
