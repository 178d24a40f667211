#!/bin/bash
# A rank of a collective dies, stops, differs or cannot go on: every other one names it.
# waits: for deadlines, most of the time
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/fabric.sh"

# Every other rank names the victim: one that waits, and one (poll) that asks instead.  The deadline is
# long beside what a busy machine makes a rank wait, and signs of life do not end the wait before it.
export TERN_DEADLINE=10 TERN_LIVENESS=25
for case in $(long && echo 8:kill 1:stop 8:poll) 1:kill 8:stop 2:kill 1:poll; do
    share=${case%:*} how=${case#*:}
    TERN_FABRIC_SHARE=$share run timeout 600 "$R" $how 4 2
    named 3 'rank 2 \(' && [ "$rc" = 3 ]
    words "$how, at most $share sharing: the three others name rank 2"
    bound "$(slowest)" 11 "$how, at most $share sharing: seconds, of a deadline of 10"
done
run timeout 600 "$R" mismatch 3
[ "$(grep -c 'rank 2 (.*) called all_gather f32 64 #21 where rank.* called all_reduce f32 sum 200000' err)" = 3 ]
ok $? "ranks that call different operations: the error names the ranks and their calls" || sed 's/^/# /' err
TERN_FABRIC_SHARE=1 run timeout 600 "$R" mismatch 3
[ "$(grep -c 'rank 2 (.*) called all_gather f32 64 #21 where rank.* called all_reduce f32 sum 200000' err)" = 3 ]
ok $? "between nodes the blame names the same two calls" || sed 's/^/# /' err
for share in $(long && echo 4 2 1 || echo 4 1); do
    TERN_FABRIC_SHARE=$share run timeout 600 "$R" differ 4
    [ "$(grep -c 'rank 3 (.*) called all_gather f32 64 #21 where ranks 0-2 called all_reduce f32 sum 1000 on' err)" = 4 ]
    ok $? "at most $share sharing: all ranks that called the other operation are named" || sed 's/^/# /' err
done
for share in 4 2; do # all mapped by memory; messages between nodes too
    TERN_FABRIC_ALGORITHM=direct TERN_FABRIC_SHARE=$share run timeout 600 "$R" starve 4 2
    [ "$(grep -c 'rank 2 (.*) cannot go on: .*Too many open files; it was in all_reduce f32 sum 200000 #21' err)" = 4 ]
    ok $? "a rank without descriptors, at most $share sharing: all ranks know why" || sed 's/^/# /' err
done
TERN_FABRIC_SHARE=1 run timeout 600 "$R" cram 3 2
[ "$(grep -c 'rank 2 (.*) cannot go on: 256 shared buffers are in use' err)" = 3 ]
ok $? "a rank that cannot make its part of a split: the same" || sed 's/^/# /' err

run timeout 600 "$R" short 3
[ "$(grep -cE 'not all ranks reached|left while the ranks were meeting' err)" = 2 ]
ok $? "a rank that never comes is an error, not a hang" || sed 's/^/# /' err

TERN_DEADLINE=5 TEST_FABRIC_ENTERS_LATE=8 run timeout 600 "$R" random 2 1 10
status 0 "a rank that comes after the deadline of waits, within that of the wire-up, is waited for"

# A launcher that takes the connection and never says a word.
if [ -n "${TERN_SANITIZE-}" ]; then
    skip "a mute launcher: libpmix itself leaks under the leak sanitizer"
elif command -v python3 >/dev/null; then
    cat >mute.py <<'P'
import os, socket, subprocess, sys
s = socket.socket()
s.bind(("127.0.0.1", 0))
s.listen(5)
uri = "pmix-server.1;tcp4://127.0.0.1:%d" % s.getsockname()[1]
env = dict(os.environ, PMIX_NAMESPACE="x", PMIX_RANK="0", PMIX_SECURITY_MODE="native", PMIX_GDS_MODULE="hash",
           PMIX_PTL_MODULE="tcp", PMIX_BFROP_BUFFER_TYPE="PMIX_BFROP_BUFFER_NON_DESC", TERN_DEADLINE="1")
for v in "2", "21", "3", "4", "41":
    env["PMIX_SERVER_URI" + v] = uri
sys.exit(subprocess.run(sys.argv[1:], env=env, timeout=100).returncode)
P
    run python3 mute.py tern fabric info
    status 75; err_has 'PMIx: ' "a launcher that does not answer is an error, not a hang"
else
    skip "a mute launcher: no python3"
fi
tap_done
