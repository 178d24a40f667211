#!/bin/bash
# Collectives between processes on this machine, over shared memory and over libfabric's tcp.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/fabric.sh"
some=$(long && echo 40 || echo 20) few=$(long && echo 12 || echo 6) # operations of random ones

for n in $(long && echo 1 2 3 4 5 7 8 || echo 1 8); do
    run timeout 600 "$R" random $n "$n" 40
    status 0 "$n ranks in shared memory: random operations agree with the reference"
done
for n in $(long && echo 2 3 5 8 || echo 3); do
    TERN_FABRIC_SHARE=1 run timeout 600 "$R" random $n 1$n 15
    status 0 "$n ranks over libfabric: the same, bit for bit"
done
for n in $(long && echo 2) 5; do
    TERN_FABRIC_CACHE=0 run timeout 600 "$R" random $n 4$n 40
    status 0 "$n ranks in shared memory, past the caches: the same"
done
for n in $(long && echo 2) 3; do
    run timeout 600 "$R" gather $n
    status 0 "$n ranks gather what is shared and what is private: without copies where all inputs are shared"
    TERN_FABRIC_CACHE=0 run timeout 600 "$R" gather $n
    status 0 "past the caches also where all results are"
done
TERN_FABRIC_CACHE=much run timeout 600 "$R" random 2 1 1
err_has "TERN_FABRIC_CACHE: 'much' is not a number of bytes"
for provider in 'tcp;ofi_rxm' $(long && echo 'udp;ofi_rxd' shm); do
    TERN_FABRIC_PROVIDER=$provider TERN_FABRIC_SHARE=1 run timeout 600 "$R" random 3 5 20
    status 0 "random operations over $provider"
done
if long; then
    TERN_FABRIC_PROVIDER=shm TERN_FABRIC_SHARE=1 \
        run timeout 600 tern bench fabric --ranks 12 -b 4M -e 4M -n 2 -w 0 --op all_reduce
    status 0 "12 ranks over shm: no long message is lost where ranks crowd the cores"
fi
libfabric=$(tern fabric info | sed -n 's/^ *libfabric \([0-9.]*\),.*/\1/p')
own_endpoints() { # NAME
    if [ "$(printf '%s\n' "$libfabric" 1.15 | sort -V | head -n 1)" = 1.15 ]; then ! grep -q rxm out; ok $? "$1"
    else skip "$1: libfabric $libfabric has none"; fi
}
TERN_FABRIC_SHARE=1 run tern bench fabric --ranks 2 -b 8 -e 8 -n 2 --op all_reduce
status 0; own_endpoints "tcp has endpoints of its own"
! grep -q 'one rank alone' err; ok $? "two ranks are a measurement"
run tern bench fabric -b 8 -e 8 -n 2 --op all_reduce
status 0; err_has 'one rank alone'; err_has '--ranks N'
run bash -c 'ulimit -Sn 20; tern bench fabric --ranks 16 -b 8 -e 8 -n 2 --op all_reduce'
status 0 "a low limit of open files is raised for the ranks"
run bash -c 'ulimit -n 20; timeout 600 tern bench fabric --ranks 16 -b 8 -e 8 -n 2 --op all_reduce'
status 1; err_has 'cannot serve 16 ranks: 144 files may have to be open' "a rendezvous for more ranks than files is refused at once"
TERN_FABRIC_SHARE=1 FI_PROVIDER=tcp run tern bench fabric --ranks 2 -b 8 -e 8 -n 2 --op all_reduce
status 0; own_endpoints "nor does a site's FI_PROVIDER=tcp hide them"
TERN_FABRIC_SHARE=1 FI_PROVIDER=tcp TERN_FABRIC_PROVIDER='tcp;ofi_rxm' run tern bench fabric --ranks 2 -b 8 -e 8 -n 2 --op all_reduce
status 0; out_has 'tcp;ofi_rxm' "tcp;ofi_rxm is used when it is asked for"
FI_PROVIDER=udp,shm TERN_FABRIC_SHARE=1 run tern bench fabric --ranks 2 -b 8 -e 8 -n 2 --op all_reduce
status 0; grep -qi 'udp;ofi_rxd' out; ok $? "what FI_PROVIDER names is taken"
TERN_FABRIC_SHARE=2 TEST_FABRIC_ORDER=any run timeout 600 "$R" random 8 21 $some
status 0 "four nodes of two: random operations agree"
TERN_FABRIC_SHARE=3 TEST_FABRIC_ORDER=any run timeout 600 "$R" random 7 31 $some
status 0 "uneven nodes (3, 3, 1): random operations agree"

# Operations of three groups under way at once, begun and waited for in another order on every rank.
for shape in $(long && echo 8:4 1:2 1:5 3:7) 2:6; do
    TERN_FABRIC_SHARE=${shape%:*} run timeout 600 "$R" pending "${shape#*:}" 3 6
    status 0 "${shape#*:} ranks, ${shape%:*} a node: several groups at once"
done

for n in $(long && echo 2) 4; do
    run timeout 600 "$R" leave $n
    status 0 "$n ranks: what rank 0 broadcasts is read where it lies, also when it looks again after the others left"
done
run timeout 600 "$R" quit 2
status 0 "a rank that reads a broadcast of a leaving rank has all of it, or an error"
run timeout 600 "$R" free 3
status 0 "a rank frees the buffer of a finished broadcast while the root computes"
TERN_FABRIC_SHARE=1 run timeout 600 "$R" ahead 3
status 0 "a rank may begin 64 operations before the others come"

# Every way of combining and gathering, on powers of two and not, on even nodes and not.
for a in doubling tree halving direct ring bruck; do
    for shape in $(long && echo 1:5 1:8 2:8 3:7 || echo 2:5); do
        order=any; [ "${shape%:*}" = 1 ] && order=
        TERN_FABRIC_ALGORITHM=$a TERN_FABRIC_SHARE=${shape%:*} TEST_FABRIC_ORDER=$order \
            run timeout 600 "$R" random "${shape#*:}" 4 $few
        status 0 "$a: ${shape#*:} ranks, ${shape%:*} a node"
    done
done

if [ -n "${TERN_SANITIZE-}" ]; then
    skip "mpirun: libpmix itself leaks under the leak sanitizer"
elif command -v mpirun >/dev/null; then
    . "$ROOT/tests/lib/mpirun.sh"
    run timeout 600 mpirun $root --oversubscribe -n 3 "$R" random 0 5 40
    status 0 "under mpirun, by PMIx: random operations agree"
else
    skip "mpirun is not installed"
fi
tap_done
