#!/bin/bash
# The transport over MPI, and MPI as the yardstick, between processes that mpirun starts here.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/tiny.sh"
. "$ROOT/tests/lib/fabric.sh"
plugin=${TERN_BUILD:-$ROOT/build}/plugins/tern_fabric_mpi.so
[ -e "$plugin" ] || skip_all "no mpicc here"

# Only the plugin is linked with MPI.
for f in "$BIN"/tern*; do ldd "$f"; done >linked
! grep -q libmpi linked; ok $? "no program is linked with an MPI library" || grep libmpi linked
ldd "$plugin" | grep -q libmpi; ok $? "the plugin is"

export TERN_FABRIC=mpi
run tern bench fabric -b 8 -e 8 -n 1 --ranks 2
status 0 "ranks that share memory need no MPI"
TERN_FABRIC_SHARE=1 run tern bench fabric -e 8 --ranks 2
err_has "srun --mpi=pmix or mpirun" "ranks that MPI cannot connect: what to do"
TERN_FABRIC=mip run tern bench fabric -e 8
status 2; one_line; err_has "'mip' is neither ofi nor mpi"
PMIX_RANK=0 TERN_FABRIC_MPI_PLUGIN=$WORK/none.so run tern bench fabric -e 8
status 1; one_line; err_has "$WORK/none.so"
gcc -shared -fPIC -x c -o other.so - <<'C' && PMIX_RANK=0 TERN_FABRIC_MPI_PLUGIN=$WORK/other.so run tern bench fabric -e 8
const unsigned tern_mpi_table[64] = {99};
C
err_has "is of another tern" "a plugin of another version"

[ -z "${TERN_SANITIZE-}" ] || { skip "mpirun: MPI itself leaks under the leak sanitizer"; tap_done; }
command -v mpirun >/dev/null || { skip "mpirun is not installed"; tap_done; }
. "$ROOT/tests/lib/mpirun.sh"
export TERN_FABRIC_MPI_PLUGIN=$plugin
mpi() { run timeout 600 mpirun $root --oversubscribe --bind-to none "$@"; }

for n in $(long && echo 2) 4; do
    mpi -n $n "$TOOLS/mpi-messages" $n
    status 0 "$n ranks: messages in any order of tags, all sizes"
done
mpi -n 2 "$TOOLS/mpi-messages" wrong
status 0 "messages of another size and another call fail"
for n in $(long && echo 2 5 8) 3; do
    TERN_FABRIC_SHARE=1 mpi -n $n "$R" random 0 1$n 25
    status 0 "$n ranks over MPI: random operations agree with the reference, bit for bit"
done
if long; then
    TERN_FABRIC_SHARE=1 mpi --mca btl tcp,self --mca btl_tcp_if_include lo -n 3 "$R" random 0 23 25
    status 0 "3 ranks over MPI's tcp: random operations agree with the reference"
fi
TERN_FABRIC_SHARE=2 TEST_FABRIC_ORDER=any mpi -n 8 "$R" random 0 21 20
status 0 "four nodes of two: random operations agree"
TERN_FABRIC_SHARE=1 mpi -n 2 tern bench fabric -b 8 -e 4M -f 8 -n 3
out_has "; MPI (Open MPI v" "what carries the messages is said"
out_has 'values: 0 OK'

# Deadlines hold, whatever MPI does; without --enable-recovery mpirun ends all ranks when one dies.
# 5.0 ends the others once the first of them has given up, so one may not come to say it.
for deadline in 2 8 30; do # MPI_Init has it, too, and may take longer
    TERN_DEADLINE=$deadline TERN_FABRIC_SHARE=1 mpi --enable-recovery -n 4 sh -c 'exec "$0" kill 0 2 2>rank.$OMPI_COMM_WORLD_RANK' "$R"
    cat rank.? >said
    grep -q 'MPI has not started' said || break
done
[ "$(grep -c 'code 75: rank 2 (' said)" -ge 2 ] && ! grep -q 'code 75: rank [013]' said
ok $? "kill: the others name rank 2" || sed 's/^/# /' said
cp said err; bound "$(slowest)" $((deadline + 1)) "kill: seconds, of a deadline of $deadline"
for deadline in 2 8 30; do
    TERN_DEADLINE=$deadline TERN_FABRIC_SHARE=1 mpi -n 4 "$R" stop 0 2
    grep -q 'MPI has not started' err || break
done
[ "$(grep -c 'code 75: rank 2 (' err)" -ge 1 ]; ok $? "stop: rank 2 is named" || sed 's/^/# /' err
TERN_FABRIC_SHARE=1 mpi -n 3 "$R" mismatch 0
has err 'called all_gather f32 64 #21' "ranks that call different operations: the error names the call"
bound "$(slowest)" 1 "different calls: seconds until the error"

# Nor does MPI_Init wait for ever; mpirun ends all of them when the first has gone.
TERN_DEADLINE=2 TERN_FABRIC_SHARE=1 mpi -n 3 sh -c '[ $OMPI_COMM_WORLD_RANK = 2 ] && exec sleep 300; tern fabric info; echo "exit $?"'
has err 'MPI has not started within the deadline of 2 s' "a rank that never comes to MPI_Init: the others say so"
grep -qx 'exit 75' out; ok $? "ranks whose mate never comes to MPI_Init end with 75" || sed 's/^/# /' out

start=${EPOCHREALTIME/./}
TERN_FABRIC_SHARE=1 mpi -n 3 sh -c '[ $OMPI_COMM_WORLD_RANK = 2 ] && export TERN_FABRIC_DUMP=/dev/null/d; exec tern fabric info'
has err 'cannot go on: TERN_FABRIC_DUMP' "a rank that cannot write dumps says so"
bound $(((${EPOCHREALTIME/./} - start) / 1000000)) 15 "a rank that cannot write dumps: seconds until the others end"

# MPI's own collectives beside ours.
unset TERN_FABRIC TERN_FABRIC_MPI_PLUGIN
run timeout 600 tern bench fabric --peer mpi --ranks 3 -b 16 -e 64K -f 16 -n 4 --peer-settings default,ring
status 0 "tern bench fabric --peer mpi starts mpirun by itself"
out_has 'of default ring' "in the settings asked for"
out_has 'values: 0 OK'
awk '!/^#/ && (NF < 19 || $13 <= 0 || $18 == "") {bad = 1} !/^#/ {n++} END {exit bad || n != 16}' out
ok $? "each row has the peer's time and the ratio" || sed 's/^/# /' out
run timeout 600 tern bench fabric --peer mpi --ranks 2 -b 1K -e 1K -n 4 --op reduce_scatter -d i32 -o max --peer-settings default --json
status 0
row() { sqlite3 :memory: "select json_extract(cast(readfile('out') as text), '\$.rows[0].$1')"; }
[ "$(row peer.setting) $(row peer.wrong)" = 'default 0' ] && [ "$(row ratio)" != "" ]
ok $? "bench --peer mpi prints JSON, too"
run timeout 600 tern bench fabric --peer mpi --ranks 3 --in-place -b 1K -e 64K -f 64 -n 4 --peer-settings default
status 0 "--in-place measures both in place"
out_has '; in place'
out_has 'values: 0 OK'
mpi -n 2 tern bench fabric --peer mpi -b 8 -e 8 -n 2
status 0 "bench --peer mpi runs inside mpirun"; out_has 'as started'
run tern bench fabric --peer mpi -e 8
status 2; one_line; err_has "--ranks N"
run tern bench fabric --peer mpi -d bf16 --ranks 2
status 2; one_line; err_has "MPI knows no bf16"
run tern bench fabric --peer mpi --ranks 2 --peer-settings nosuch
status 2; one_line; err_has "none of 'nosuch'"
TERN_FABRIC_MPI_PLUGIN=$WORK/none.so run tern bench fabric --peer mpi --ranks 2 -e 8
status 1; one_line "without the plugin: one clear line"
mkdir nothing; PATH=$WORK/nothing run "$BIN/tern" bench fabric --peer mpi --ranks 2 -e 8
status 1; one_line; err_has "mpirun is not installed"

# A training run.
tiny_make
train() { # FABRIC: digests in digests.FABRIC
    rm -rf checkpoints
    TERN_FABRIC_SHARE=1 TERN_FABRIC= mpi -n 4 tern train run.yaml --set launch.fabric=$1
    status 0 "a training run on 4 ranks over $1" || tail -n 3 err
    tiny_digests >digests.$1
    grep -o 'step .*loss [0-9.]*' err >curve.$1
}
train ofi
train mpi
[ -s digests.ofi ] && cmp -s digests.ofi digests.mpi; ok $? "libfabric and MPI give the same weights, bit for bit"
# Which steps are printed depends on the time; the last one always is.
awk 'NR == FNR {loss[$2] = $0; next} $2 in loss {n++; bad += loss[$2] != $0} END {exit bad || !n}' curve.ofi curve.mpi
ok $? "libfabric and MPI give the same losses" || sed 's/^/# /' curve.ofi curve.mpi
tap_done
