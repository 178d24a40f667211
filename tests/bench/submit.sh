#!/bin/bash
# What the plugin adds to a submission: tests/bench/submit.sh [TIMES] (default 31), on a virtual
# cluster of its own.  sbatch is timed without any option of tern's and with each set of them, in
# turns, so that a slow moment of the machine hits all; medians are compared.  The jobs are held.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
PATH=${TERN_BUILD:-$root/build}/bin:$PATH
times=${1:-31}
work=$(mktemp -d)
export TERN_CLUSTER_HOME=$work/clusters
trap 'tern cluster down bench$$ >/dev/null 2>&1; rm -rf "$work"' EXIT
tern cluster up -n bench$$ "$root/cluster-templates/trn1-4/cluster.yaml" >/dev/null || exit 1
cd "$work" || exit 1
printf 'version: 1\nname: toy\nledger: {dir: ledger}\nworkload: {command: [true]}\n' >run.yaml
cat >bench <<'X'
sets=('' '--tern=run.yaml' '--tern-health=off --tern-restarts=3' '--tern-profile=cpu' '--tern=run.yaml --tern-health=off --tern-restarts=3 --tern-profile=cpu')
for i in $(seq 0 "$1"); do
    for s in "${!sets[@]}"; do
        a=${EPOCHREALTIME/./}
        sbatch -H -n1 ${sets[s]} --wrap true >/dev/null || exit 1
        [ "$i" = 0 ] || echo $((${EPOCHREALTIME/./} - a)) >>"times.$s" # the first finds cold caches
    done
    scancel -u "$(id -u)"
done
for s in "${!sets[@]}"; do
    sort -n "times.$s" | awk -v set="${sets[s]:-(none)}" '{ t[NR] = $1 / 1000 }
        END { printf "%s\t%.1f\t%.1f\t%.1f\n", set, t[int((NR + 1) / 2)], t[1], t[NR] }'
done
X
tern cluster exec bench$$ -- bash bench "$times" | awk -F'\t' -v n="$times" '
    NR == 1 { plain = $2; printf "%-72s %9s %9s %9s %9s\n", "sbatch, " n " times each", "median ms", "added", "least", "most" }
    { printf "%-72s %9.1f %9.1f %9.1f %9.1f\n", $1, $2, $2 - plain, $3, $4 }'
