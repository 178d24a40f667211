#!/bin/bash
# What tern-task costs: start, lines and bytes a second, beside the same program without it.
#   tests/bench/task.sh [MiB]
BIN=$(cd "$(dirname "$0")/../.." && pwd)/build/bin
WORK=$(mktemp -d "${TMPDIR:-/tmp}/tern-bench-XXXXXX"); trap 'rm -rf "$WORK"' EXIT
mib=${1:-500}
export TERN_RUN_LOGS=$WORK/logs SLURM_PROCID=0
unset TERN_RUN_SPOOL TERN_RUN_METRICS OMPI_COMM_WORLD_RANK PMIX_RANK
now() { date +%s%N; }
# starts COMMAND...: ms a start, of 200
starts() { local a; a=$(now); for i in $(seq 200); do SLURM_PROCID=$i "$@" /bin/true; done; awk "BEGIN {printf \"%.2f\", ($(now) - $a) / 2e8}"; }
# rate LINE COMMAND...: MB/s of lines like LINE, read by a program that keeps nothing
rate() {
    local line=$1 a; shift
    a=$(now); "$@" sh -c 'yes "$0" | head -c '$((mib * 1048576)) "$line" | cat >/dev/null
    awk "BEGIN {s = ($(now) - $a) / 1e9; printf \"%8.0f MB/s %12.0f lines/s\", $mib * 1.048576 / s, $mib * 1048576 / $((${#line} + 1)) / s}"
}
line=$(printf 'step 1234 loss 2.3456 lr 1.5e-04 %0.s' 1 2 3)
nothing() { "$@"; }
echo "start     without $(starts nothing) ms, with $(starts "$BIN/tern-task" --) ms"
for l in "$line" "${line:0:15}"; do
    printf '%3d bytes  without %s\n' $((${#l} + 1)) "$(rate "$l")"
    printf '           with    %s\n' "$(rate "$l" "$BIN/tern-task" --)"
done
echo "kept      $(du -sk "$WORK/logs" | cut -f1) KiB; lines that were dropped: $(grep -ah ' t .* missing' "$WORK"/logs/* | awk '{n += $3} END {print n + 0}')"
