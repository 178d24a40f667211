#!/bin/bash
# Ours beside Open MPI's tcp and beside a bare socket, between virtual nodes, one rank on each:
# tests/bench/fabric-nodes.sh [NODES...] (default 2 4).  Both yield when idle.  Then the same between
# two nodes over links shaped to LINK (default 1gbit; "" for none).
# SIZES="-b 8 -e 16M -f 64", OPS and N (calls) may be set.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
export TERN_BUILD=${TERN_BUILD:-$root/build}
for p in munged slurmctld slurmd mpirun tc; do
    PATH=$PATH:/usr/sbin command -v $p >/dev/null || { echo "$p is not installed"; exit 77; }
done
work=$(mktemp -d)
export TERN_CLUSTER_HOME=$work/clusters
PATH=$TERN_BUILD/bin:$PATH
tools=$TERN_BUILD/tests/tools
trap 'tern cluster down bench >/dev/null 2>&1 || true; rm -rf "$work"' EXIT
cd "$work"
tern cluster up -n bench "$root/cluster-templates/trn1-4/cluster.yaml" >up 2>&1 || { cat up; exit 1; }
node() { tern cluster exec --node "trn1-st-trn1-$1" bench -- "${@:2}"; }
export OMPI_MCA_pml=ob1 OMPI_MCA_btl=tcp,self OMPI_MCA_btl_tcp_if_include=eth0
export OMPI_MCA_mpi_yield_when_idle=1 TERN_FABRIC_PROVIDER=${TERN_FABRIC_PROVIDER:-tcp}
read -r -a sizes <<<"${SIZES:--b 8 -e 16M -f 64}"
ops=${OPS:-all_reduce,reduce_scatter,all_gather}
sweep() { # NODES
    tern cluster exec bench -- srun --mpi=pmix -N "$1" --ntasks-per-node=1 \
        tern bench fabric --peer mpi --op "$ops" "${sizes[@]}" -n "${N:-50}"
}
beside() { # BYTES
    node 1 "$tools/raw-sockets" listen 7100 "$1" "${N:-50}" & listener=$!
    node 2 "$tools/raw-sockets" connect trn1-st-trn1-1 7100 "$1" "${N:-50}" >other
    wait $listener
}
# One exchange of BYTES each way, and beside it, in turns, the all-gather of two ranks that moves as
# much: in place, for a socket copies no share of its own to where it belongs.
raw() { # BYTES...
    for bytes in "$@"; do
        for _ in 1 2 3; do
            tern cluster exec bench -- srun --mpi=pmix -N 2 --ntasks-per-node=1 \
                tern bench fabric --op all_gather --in-place -b $((2 * bytes)) -e $((2 * bytes)) -n "${N:-50}" |
                awk -v bytes="$bytes" '!/^#/ {printf "ours %d: %.1f us, %.1f us of cpu\n", bytes, $7, $13}'
            beside "$bytes"
        done
    done
}
read -r -a counts <<<"${*:-2 4}"
for n in "${counts[@]}"; do sweep "$n"; done
echo "# so many bytes both ways at once: an all_gather in place, and a bare socket"
raw 16384 1048576 8388608
if [ -n "${LINK=1gbit}" ]; then
    for n in 1 2; do node $n tc qdisc replace dev eth0 root tbf rate "$LINK" burst 128kb latency 50ms; done
    echo "# links of $LINK"
    sizes=(-b 1M -e 16M -f 4) N=10
    sweep 2
    raw 8388608
fi
