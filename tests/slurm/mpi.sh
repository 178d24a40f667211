#!/bin/bash
# launch.fabric: mpi between virtual nodes: what `tern run` starts, and that it trains the same.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/vcluster.sh"
. "$ROOT/tests/lib/tiny.sh"
. "$ROOT/tests/lib/pmix.sh"
[ -e "${TERN_BUILD:-$ROOT/build}/plugins/tern_fabric_mpi.so" ] || skip_all "no mpicc here"
command -v mpirun >/dev/null || skip_all "mpirun is not installed"
[ -z "${TERN_SANITIZE-}" ] || skip_all "MPI itself leaks under the leak sanitizer"
tiny_make
cluster_up
has_pmix tern cluster exec $CLUSTER -- || { skip "$NO_PMIX"; tap_done; }
R=$TOOLS/fabric-ranks
export TERN_DEADLINE=30 TERN_LOG_LEVEL=debug

# train NAME KEY=VALUE...: on four nodes, one rank each; words in NAME.log, losses in NAME.curve
train() {
    local name=$1; shift
    rm -rf checkpoints ledger
    printf '#!/bin/bash\nexec %s/tern run run.yaml%s\n' "$BIN" "$(printf ' --set %s' "$@")" >job.sh
    submit -D "$WORK" -o "$WORK/$name.log" -N4 --ntasks-per-node=1 --exclusive job.sh
    await_job # sbatch --wait looks every 10 s
    [ "$(job_state "$job")" = COMPLETED ]; ok $? "$name: the job completes" || sed 's/^/# /' "$name.log" | tail -n 20
    tiny_curve ledger >"$name.curve"
    tiny_digests >"$name.digests"
}
sed -i 's/micro: 2/micro: 1/' run.yaml
train ofi launch.fabric=ofi
train mpi launch.fabric=mpi
has mpi.log "phase: mpi" "ranks that srun starts meet by MPI"
! grep -q 'phase: pmix' mpi.log; ok $? "no rank meets the others by PMIx"
train mpirun launch.fabric=mpi launch.with=mpirun
has mpirun.log "phase: mpi" "those that mpirun starts too"
[ "$(wc -l <ofi.curve)" = 8 ]; ok $? "MPI's run records eight losses"
for name in mpi mpirun; do
    cmp -s ofi.curve $name.curve && cmp -s ofi.digests $name.digests
    ok $? "$name: losses and weights are those of libfabric, bit for bit" || paste ofi.curve $name.curve
done

mpi() { on timeout 600 env TERN_FABRIC=mpi TERN_FABRIC_MPI_PLUGIN="${TERN_BUILD:-$ROOT/build}/plugins/tern_fabric_mpi.so" "$@"; }
mpi srun --mpi=pmix -N4 --ntasks-per-node=2 "$R" random 0 3 40
status 0 "two ranks a node: the same bits as the reference, which knows no nodes"
mpi srun --mpi=pmix -N2 --ntasks-per-node=2 tern bench fabric -b 8 -e 64K -f 16 -n 5
out_has '4 ranks in 2 nodes; wire-up: Open MPI' "with Open MPI, ranks of a node are found to share memory"
out_has 'values: 0 OK'
mpi srun --mpi=pmix -N2 --ntasks-per-node=1 env -u TERN_FABRIC tern bench fabric --peer mpi -b 64 -e 64K -f 32 -n 5
status 0 "libfabric beside Open MPI between nodes"; out_has '; libfabric'; out_has 'values: 0 OK'
mpi srun --mpi=none -N2 --ntasks-per-node=1 tern bench fabric -e 8
err_has 'srun --mpi=pmix' "without PMIx: what to do"
tap_done
