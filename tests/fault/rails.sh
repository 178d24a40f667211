#!/bin/bash
# Two nodes (network namespaces) with two networks between them, one of which goes down: by
# TERN_FABRIC_RAILS the run ends with an error that names the rail, or goes on with the other.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/netns.sh"
# Made again for each run: a link that went down runs again a second or so after it came up.
nodes() {
    nodes_remove
    nodes_make || return 1
    for i in 0 1; do
        ip link add a$i netns $A type veth peer name b$i netns $B &&
            ip -n $A addr add 10.77.$i.1/24 dev a$i && ip -n $B addr add 10.77.$i.2/24 dev b$i &&
            ip -n $A link set a$i up && ip -n $B link set b$i up || return 1
    done
    nodes_up 4 '^[ab]'
}
nodes 2>/dev/null || skip_all "no network namespaces here"
export TERN_DEADLINE=8 TERN_FABRIC_SHARE=1 SLURM_NTASKS=2

# Do both ranks say that they have given a rail up?  Waits for that, ten minutes at most.
both_warned() {
    local end=$((SECONDS + 600))
    until grep -qs 'is given up' err.0 && grep -qs 'is given up' err.1; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.05
    done
}
# Both ranks; with an interface of A that goes down when they are under way, and with TEST_UNTIL the
# steps are those after it was noticed.  $rc0, $rc1.
both() { # STEPS BYTES [INTERFACE]
    pids=
    nodes
    serve 10.77.0.1
    rank $A 0 "$1" "$2"; rank $B 1 "$1" "$2"
    if [ $# = 3 ]; then
        until grep -qs "^step 40" out.0 || ! kill -0 ${pids##* } 2>/dev/null; do sleep 0.05; done
        ip -n $A link set "$3" down
        [ -z "${TEST_UNTIL-}" ] || { both_warned; : >"$TEST_UNTIL"; }
    fi
    # shellcheck disable=SC2086
    set -- $pids
    wait "$1"; rc0=$?; wait "$2"; rc1=$?
    serve_end
}

both 60 1048576
[ "$rc0$rc1" = 00 ]
ok $? "two networks: sums are right" || sed 's/^/# /' err.0 err.1
grep -q 'on a0 .*, a1 ' out.0 && grep -q 'on b0 .*, b1 ' out.1
ok $? "both networks are used as rails" || sed 's/^/# /' out.0 out.1
moved=$(ip -n $A -s -s link show a1 | awk '/TX:/ {getline; print $1}')
[ "$moved" -gt 15000000 ]
ok $? "the second rail carries its part of 60 MiB" || echo "# $moved bytes"

# Probes of all that time wait for it, on each rail.
TEST_PAUSE=4 both 20 1048576
[ "$rc0$rc1" = 00 ]
ok $? "a rank that computes for half the deadline loses no rail" || sed 's/^/# /' err.0 err.1

TERN_FABRIC_RAILS=a1,b1 both 20 1048576
[ "$rc0$rc1" = 22 ] || { [ "$rc0$rc1" = 33 ] && grep -q "there is no interface 'b1'" err.0; }
ok $? "a list of rails with an unknown interface is an error" || sed 's/^/# /' err.0 err.1

for down in ${DOWN:-$(long && echo a0) a1}; do
    both 100000 1048576 $down
    grep -q "code 75: .*rail [ab]${down#a} (10.77.${down#a}.[12])" err.0 &&
        grep -q "code 75: .*rail [ab]${down#a} (10.77.${down#a}.[12])" err.1
    ok $? "all, and $down goes down: both ranks name the rail" || sed 's/^/# /' err.0 err.1
    cat err.0 err.1 >err; bound "$(slowest)" 9 "all, and $down goes down: seconds, of a deadline of 8"
    for bytes in 4096 1048576; do
        TERN_FABRIC_RAILS=any TEST_UNTIL=seen both 500 $bytes $down
        [ "$rc0$rc1" = 00 ]
        ok $? "any, and $down goes down amid messages of $bytes bytes: it goes on, with right sums" ||
            sed 's/^/# /' err.0 err.1
        [ "$(cat err.0 err.1 | grep -c 'is given up')" = 2 ]
        ok $? "each rank warns once of a lost rail" || sed 's/^/# /' err.0 err.1
    done
done
tap_done
