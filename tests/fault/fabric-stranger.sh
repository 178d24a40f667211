#!/bin/bash
# Another user on a rank's node, who can reach the ranks' addresses and was told nothing else: records of
# every kind in every rank's name, writes with keys 1 to 1000, connections by the thousand.  No value
# changes; an attempt that ends names why.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/fabric.sh"
. "$ROOT/tests/lib/reach.sh"
command -v ss >/dev/null || skip_all "ss is not installed (iproute2)"
unset TERN_FABRIC_MODE TERN_FABRIC_RAILS FI_PROVIDER
tern fabric info | grep -q 'strangers: records begin' || skip_all "this libfabric's messages between nodes are tagged ones: $(tern fabric info | grep strangers)"
as=()
if [ "$(id -u)" = 0 ]; then
    chmod 755 "$WORK"; install -m 755 "$TOOLS/fabric-stranger" "$WORK/stranger"
    as=(setpriv --reuid 65534 --regid 65534 --clear-groups)
else
    cp "$TOOLS/fabric-stranger" stranger
fi
seconds=$(long && echo 30 || echo 4) ranks=4
# Where the ranks' endpoints listen, but not the meeting's socket on loopback.
addresses() {
    local p
    for p in $(pgrep -P "$main"); do ss -ltnpH | grep "pid=$p," | awk '$4 !~ /^127\./ {print $4}'; done | sort -u >at
    [ "$(wc -l <at)" = $ranks ]
}
tries=$(long && echo 5 || echo 2)
for try in $(seq "$tries"); do
    TERN_FABRIC_SHARE=1 TERN_DEADLINE=20 "$R" random $ranks $((try + 90)) $((seconds * 500)) >ranks.out 2>ranks.err &
    main=$!
    until_true addresses
    run timeout 120 "${as[@]}" "$WORK/stranger" $ranks "$seconds" $(cat at)
    wait $main; ended=$?
    if [ $ended = 0 ]; then
        ok 0 "try $try: every value is the reference's ($(cat out))"
    else # a connection of theirs was lost: it is an error of the fabric, never a wrong value
        [ "$(grep -c 'code 75: rank [0-9] (' ranks.err)" -ge 1 ] && ! grep -qE 'wrong|differs|Sanitizer|runtime error' ranks.err ranks.out
        ok $? "try $try: the attempt ends, and names a rank" || head -20 ranks.err
    fi
    grep -q "a message was dropped: it is a stranger's" ranks.err; ok $? "try $try: which is told" || { cat out err; head -5 ranks.err; }
    [ "$(grep -c "it is a stranger's" ranks.err)" -le $ranks ]; ok $? "try $try: once a rank"
done
tap_done
