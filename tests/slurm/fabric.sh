#!/bin/bash
# Collectives between virtual nodes: PMIx under srun, libfabric's tcp over their own network.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/pmix.sh"
for p in munged slurmctld slurmd; do
    PATH=$PATH:/usr/sbin command -v $p >/dev/null || skip_all "$p is not installed"
done
mkdir "$WORK/fabric-4"; cp "$ROOT/cluster-templates/trn1-4/cluster.yaml" "$WORK/fabric-4/cluster.yaml"
export TERN_CLUSTER_HOME=$WORK/home TERN_DEADLINE=20
finish() { tern cluster down fabric-4 >/dev/null 2>&1; }
tap_cleanup=finish
on() { run timeout 600 tern cluster exec fabric-4 -- "$@"; }
R=$TOOLS/fabric-ranks

run tern cluster up "$WORK/fabric-4/cluster.yaml"; status 0 "tern cluster up ends well"
[ "$rc" = 0 ] || tap_done
has_pmix tern cluster exec fabric-4 -- || { skip "$NO_PMIX"; tap_done; }
on srun --mpi=pmix -N4 --ntasks-per-node=1 tern bench fabric -b 8 -e 1M -f 16 -n 5
status 0 "bench fabric runs with one rank a node"; out_has '4 ranks in 4 nodes; wire-up: PMIx; libfabric'; out_has 'values: 0 OK'
on srun --mpi=pmix -N4 --ntasks-per-node=2 "$R" random 0 3 40
status 0 "two ranks a node: the same bits as the reference, which knows no nodes"
on srun --mpi=pmix -N2 --ntasks-per-node=2 tern bench fabric -b 8 -e 64K -f 16 -n 5
out_has '4 ranks in 2 nodes' "virtual nodes are distinguished by what can be mapped"
on srun --mpi=none -N2 --ntasks-per-node=1 tern bench fabric -e 8
err_has 'srun --mpi=pmix' "without PMIx: what to do"

# A process dies amid operations: since PMIx is finalized, the others end by themselves and name it.
on srun --mpi=pmix --kill-on-bad-exit=0 -N4 --ntasks-per-node=1 sh -c '
    [ $SLURM_PROCID != 2 ] || { '"$R"' kill 0 2; exit 0; }
    TERN_DEADLINE=8 exec '"$R"' kill 0 2'
[ "$(grep -c 'code 75: rank 2 (trn1-st-trn1-3)' err)" = 3 ]
ok $? "a killed process is named, with its node, by the three others" || sed 's/^/# /' err
run tern cluster down fabric-4; status 0 "tern cluster down ends well"
tap_done
