#!/bin/bash
# From `tern run` to the first training step: tests/bench/launch.sh [NODES...] (default 4 64), RANKS a
# node (default 2), in a virtual cluster of Trn1 nodes with a model of some ten thousand parameters,
# so that what takes time is the launch.  A table a number of nodes: when the first and the last rank
# got so far, in seconds after the supervisor began and after srun was started.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
export TERN_BUILD=${TERN_BUILD:-$root/build}
work=$(mktemp -d)
export TERN_CLUSTER_HOME=$work/clusters
PATH=$TERN_BUILD/bin:$PATH
ROOT=$root
. "$root/tests/lib/tiny.sh"
ranks=${RANKS:-2}
trap 'tern cluster down bench >/dev/null 2>&1 || true; rm -rf "$work"' EXIT
cd "$work"
tiny_make 2>/dev/null
sed -i 's/^  held_out.*/  held_out: []/' run.yaml

for nodes in "${@:-4 64}"; do
    for n in $nodes; do
        sed "s/MinCount: 4/MinCount: $n/; s/MaxCount: 4/MaxCount: $n/" "$root/cluster-templates/trn1-4/cluster.yaml" >cluster.yaml
        tern cluster up -n bench cluster.yaml >up 2>&1 || { cat up; exit 1; }
        sed "s/global: 8, micro: 2/global: $((n * ranks)), micro: 1/; s/^steps:.*/steps: 2/; s/every: 1,/every: 0,/
            s/^launch:.*/launch: {threads: 1, ranks_per_node: $ranks}/; s/checkpoints/checkpoints-$n/" run.yaml >run-$n.yaml
        for try in ${TRIES:-1 2 3}; do
            rm -rf checkpoints-$n
            printf '#!/bin/bash\nexport TERN_LOG_LEVEL=debug\nexec tern run %s %s\n' "$work/run-$n.yaml" "${RUN_OPTIONS:-}" >job.sbatch
            tern cluster exec bench -- sbatch -W --exclusive -N "$n" -o "$n.out" job.sbatch >/dev/null || { tail -20 "$n.out"; exit 1; }
            awk -v nodes="$n" -v ranks="$ranks" -v try="$try" '
                match($0, /debug: [0-9.]+ phase: [a-z]+/) {
                    split(substr($0, RSTART, RLENGTH), w, " ")
                    t = w[2] + 0; p = w[4]
                    if (!(p in low) || t < low[p]) low[p] = t
                    if (!(p in high) || t > high[p]) high[p] = t
                    seen[p]++
                }
                END {
                    n = split("begin launch main pmix fabric model step", order, " ")
                    printf "%d nodes x %d ranks, try %d\n%-8s %5s %12s %12s %12s\n", nodes, ranks, try, "phase", "times", "first", "last", "after launch"
                    for (i = 1; i <= n; i++)
                        if (order[i] in low)
                            printf "%-8s %5d %12.3f %12.3f %12.3f\n", order[i], seen[order[i]], low[order[i]] - low["begin"], high[order[i]] - low["begin"], high[order[i]] - low["launch"]
                }' "$n.out"
        done
        tern cluster down bench >/dev/null
    done
done
