#!/bin/bash
# Ours beside Open MPI's, ranks of one machine: tests/bench/fabric.sh [RANKS...] (default 2 4).
# SIZES="-b 64K -e 16M -f 4" and N (calls) may be set.  Best of three runs each, taken in turns.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
tern=${TERN_BUILD:-$root/build}/bin/tern
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
command -v mpicc >/dev/null || { echo "mpicc is not installed"; exit 77; }
read -r -a sizes <<<"${SIZES:--b 64K -e 16M -f 4}"
n=${N:-20}
[ "$(id -u)" = 0 ] && export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

cat >"$work/peer.c" <<'C'
/* The same table as `tern bench fabric`: op, bytes, mean microseconds and p50 of the slowest rank. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

int main(int argc, char **argv)
{
    int n, me, calls = atoi(argv[1]);
    static double t[100000];

    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    static const char *const ops[] = {"all_reduce", "reduce_scatter", "all_gather"};
    for (int op = 0; op < 3; op++) {
        for (int a = 2; a < argc; a++) {
            size_t bytes = strtoull(argv[a], NULL, 10);
            int count = (int)(bytes / 4), part = count / n;
            float *in = malloc(bytes), *out = malloc(bytes);
            memset(in, 0, bytes);
            memset(out, 0, bytes);
            double mine[2], worst[2], start = 0;
            for (int i = -5; i < calls; i++) {
                if (i == 0) {
                    MPI_Barrier(MPI_COMM_WORLD);
                    start = MPI_Wtime();
                }
                double before = MPI_Wtime();
                if (op == 0)
                    MPI_Allreduce(MPI_IN_PLACE, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
                else if (op == 1)
                    MPI_Reduce_scatter_block(in, out, part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
                else
                    MPI_Allgather(in, part, MPI_FLOAT, out, part, MPI_FLOAT, MPI_COMM_WORLD);
                if (i >= 0)
                    t[i] = MPI_Wtime() - before;
            }
            mine[0] = (MPI_Wtime() - start) * 1e6 / calls;
            qsort(t, (size_t)calls, sizeof *t, by_value);
            mine[1] = t[calls / 2] * 1e6;
            MPI_Reduce(mine, worst, 2, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
            if (me == 0)
                printf("%s %zu %.2f %.2f\n", ops[op], bytes, worst[0], worst[1]);
            free(in);
            free(out);
        }
    }
    MPI_Finalize();
    return 0;
}
C
mpicc -O2 -o "$work/peer" "$work/peer.c"

for ranks in "${@:-2 4}"; do for r in $ranks; do
    : >"$work/ours"; : >"$work/theirs"
    for _ in 1 2 3; do
        "$tern" bench fabric --ranks "$r" --op all_reduce,reduce_scatter,all_gather "${sizes[@]}" -n "$n" |
            awk '!/^#/ {print $6, $1, $7, $11}' >>"$work/ours"
        bytes=$(awk '$1 == "all_reduce" {print $2}' "$work/ours" | sort -nu)
        # shellcheck disable=SC2086
        mpirun -n "$r" --oversubscribe --mca mpi_yield_when_idle 1 "$work/peer" "$n" $bytes >>"$work/theirs" 2>"$work/err" ||
            { cat "$work/err"; exit 1; }
    done
    echo "# $r ranks, f32, busbw in GB/s by the median call (p50) of the slowest rank, best of three runs"
    printf '%-16s %12s %10s %10s %8s\n' '#op' 'size(B)' tern OpenMPI ratio
    awk -v n="$r" '
        { k = $1 " " $2; if (FNR == NR) { if (!(k in a) || $4 < a[k]) a[k] = $4; if (!(k in seen)) { seen[k] = 1; order[++m] = k } }
          else if (!(k in b) || $4 < b[k]) b[k] = $4 }
        END { for (i = 1; i <= m; i++) { k = order[i]; split(k, p, " ")
                f = p[2] / 1000 * (n - 1) / n * (p[1] == "all_reduce" ? 2 : 1)
                printf "%-16s %12d %10.2f %10.2f %8.2f\n", p[1], p[2], f / a[k], f / b[k], b[k] / a[k] } }' \
        "$work/ours" "$work/theirs"
done; done
