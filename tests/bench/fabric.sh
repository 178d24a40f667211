#!/bin/bash
# Ours beside Open MPI's, ranks of one machine: tests/bench/fabric.sh [RANKS...] (default 2 4).
# SIZES="-b 64K -e 16M -f 4", OPS and N (calls) may be set.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
tern=${TERN_BUILD:-$root/build}/bin/tern
command -v mpirun >/dev/null || { echo "mpirun is not installed"; exit 77; }
read -r -a sizes <<<"${SIZES:--b 64K -e 16M -f 4}"
read -r -a ranks <<<"${*:-2 4}"
for r in "${ranks[@]}"; do
    "$tern" bench fabric --peer mpi --ranks "$r" --op "${OPS:-all_reduce,reduce_scatter,all_gather}" "${sizes[@]}" -n "${N:-50}"
done
