#!/bin/bash
# `tern cluster doctor`: each thing is broken on a virtual cluster, found, mended, and not found again.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/vcluster.sh"
. "$ROOT/tests/lib/pmix.sh"
. "$ROOT/tests/lib/lustre.sh"
so=${TERN_BUILD:-$ROOT/build}/plugins/tern_spank.so
[ "$(ulimit -n)" = unlimited ] || [ "$(ulimit -n)" -ge 4096 ] || ulimit -n 4096 2>/dev/null || skip_all "no more than $(ulimit -n) files may be opened here"
unset OPENBLAS_CORETYPE TERN_LEDGER TERN_CONFIG
mkdir site; printf 'version: 1\nledger: {dir: /fsx/ledger}\n' >site/tern.yaml
export TERN_CONFIG=$WORK/site/tern.yaml
cluster_up
doctor() { on tern cluster doctor "$@"; }
# The finding's first line: severity, id, nodes.
finds() { # SEVERITY ID NODES NAME
    grep -qE "^$1 +$2 +$3\$" out; ok $? "$4" || sed 's/^/# /' out err
}
nothing='0 errors, 0 warnings'
has_pmix tern cluster exec $CLUSTER -- || nothing='0 errors, 1 warnings' # of that
clean() { doctor; status 0 "${1:-mended}: nothing is wrong any more"; out_has "$nothing"; }

doctor; status 0 "a cluster as it should be"
out_has "4 of 4 nodes answered: $nothing"
doctor --json; status 0; out_has '"nodes_answered": 4'
on ls -A /fsx/ledger; [ ! -s out ]; ok $? "doctor leaves nothing on the shared storage" || cat out
until_true queue_empty; ok $? "doctor leaves no job in the queue"
# Stopped while it waits for its nodes; another was killed long ago.
cat >stop.sh <<'S'
mkdir -p /fsx/ledger/.doctor-killed; touch -d '2 days ago' /fsx/ledger/.doctor-killed
tern cluster doctor >/dev/null & p=$!
for _ in $(seq 5000); do ls /fsx/ledger/.doctor-??????/token >/dev/null 2>&1 && break; sleep 0.01; done
kill -TERM $p; wait $p; echo "ended $?"
S
on bash stop.sh; out_has 'ended 1' "stopped by a signal"; has err 'stopped by a signal'
on ls -A /fsx/ledger; [ ! -s out ]; ok $? "a stopped doctor leaves nothing on the shared storage" || cat out
until_true queue_empty; ok $? "a stopped doctor leaves no job in the queue"
doctor -w 'trn1-st-trn1-[1,3]'; out_has '2 of 2 nodes answered' "--node checks the named nodes"
doctor -w none-1; status 2; err_has "no node 'none-1'"; one_line

# ---- the plugin
conf=$TERN_CLUSTER_HOME/$CLUSTER/etc/plugstack.conf; cp "$conf" kept
: >"$conf"
doctor; status 1; finds error plugin-line '\(here\),trn1-st-trn1-\[1-4\]' "no line for the plugin"
echo "optional $WORK/none/tern_spank.so" >"$conf"; doctor; finds error plugin-file '\(here\),trn1-st-trn1-\[1-4\]' "a line for a plugin that is not there"
sed 's/^optional/required/' kept >"$conf"; doctor; finds warning plugin-required '\(here\),trn1-st-trn1-\[1-4\]' "a plugin that would drain nodes"
# Of another release: the version is a word in the library.
cp "$so" other.so
python3 - other.so <<'P' 2>/dev/null || skip_version=1
import struct, subprocess, sys
f = sys.argv[1]
line = [l for l in subprocess.check_output(['readelf', '-W', '--dyn-syms', f], text=True).splitlines() if l.endswith(' plugin_version')][0]
address = int(line.split()[1], 16)
for l in subprocess.check_output(['readelf', '-W', '-l', f], text=True).splitlines():
    w = l.split()
    if w and w[0] == 'LOAD' and int(w[2], 16) <= address < int(w[2], 16) + int(w[4], 16):
        at = int(w[1], 16) + address - int(w[2], 16)
b = bytearray(open(f, 'rb').read()); b[at:at + 4] = struct.pack('<I', 19 << 16 | 5 << 8 | 1); open(f, 'wb').write(b)
P
if [ -z "${skip_version-}" ]; then
    echo "optional $WORK/other.so" | sed 's/other.so/tern_spank-19.05.so/' >"$conf"; mv other.so tern_spank-19.05.so
    doctor; status 1; finds error plugin-release '\(here\),trn1-st-trn1-\[1-4\]' "a plugin for another Slurm"; out_has 'built for Slurm 19.05.1'
else
    skip "no python3 or readelf"
fi
echo "optional $so tern=$WORK/none" >"$conf"; doctor; finds error plugin-tern '\(here\),trn1-st-trn1-\[1-4\]' "the plugin's tern=PATH is not there"
cp kept "$conf"; clean "the plugin's line"
mkdir p; cp "$so" p/tern_spank.so; echo "optional $WORK/p/tern_spank.so" >"$conf"
cp "$so" changed.so; echo x >>changed.so
if run tern cluster exec --node trn1-st-trn1-2 $CLUSTER -- mount --bind "$WORK/changed.so" "$WORK/p/tern_spank.so"; [ "$rc" = 0 ]; then
    doctor; status 1; finds error plugin-build trn1-st-trn1-2 "another build on one node"
    run tern cluster exec --node trn1-st-trn1-2 $CLUSTER -- umount "$WORK/p/tern_spank.so"
    run tern cluster exec --node trn1-st-trn1-2 $CLUSTER -- mount --bind /dev/null "$WORK/p/tern_spank.so"
    doctor; status 1; finds error plugin-file trn1-st-trn1-2 "no plugin on one node"
    run tern cluster exec --node trn1-st-trn1-2 $CLUSTER -- umount "$WORK/p/tern_spank.so"
    run tern cluster exec --node trn1-st-trn1-4 $CLUSTER -- mount --bind /dev/null "$BIN/tern-cluster"
    doctor; status 1; finds error node-answer trn1-st-trn1-4 "no tern on one node"
    out_has '3 of 4 nodes answered' "no tern on one node: the others answer"
    run tern cluster exec --node trn1-st-trn1-4 $CLUSTER -- umount "$BIN/tern-cluster"
    run tern cluster exec --node trn1-st-trn1-4 $CLUSTER -- mount --bind /dev/null "$BIN/tern-run"
    doctor; status 1; finds error tern-build trn1-st-trn1-4 "another build of tern on one node"
    run tern cluster exec --node trn1-st-trn1-4 $CLUSTER -- umount "$BIN/tern-run"
    run tern cluster exec --node trn1-st-trn1-1 $CLUSTER -- mount -t tmpfs none /fsx
    doctor; status 1; finds error storage-shared trn1-st-trn1-1 "the ledger's folder is not shared with one node"
    run tern cluster exec --node trn1-st-trn1-1 $CLUSTER -- umount /fsx
else
    skip "no mounts on a node here"
fi
cp kept "$conf"; clean "builds, mounts"

# ---- storage, limits, site
doctor --ledger /tmp/not-shared; status 1; finds error storage-shared 'trn1-st-trn1-\[1-4\]' "a ledger that is on no shared storage"
doctor --ledger /proc/none; status 1; finds error storage-write '\(here\)' "a ledger that cannot be"
run tern cluster exec $CLUSTER -- sh -c 'mkdir -m 777 /fsx/shared && mkdir -p /fsx/shared/u/4711 /fsx/shared/runs/01BX5ZZKBKACTAV9WEVGEMMVRZ &&
    chmod 700 /fsx/shared/runs/* && touch /fsx/shared/ledger.db && chmod 644 /fsx/shared/ledger.db'
doctor --ledger /fsx/shared; finds warning ledger-open '\(here\)' "a catalogue that tells of a private run"
finds error ledger-taken '\(here\)' "a user's folder that is another's"; finds warning ledger-sticky '\(here\)' "a folder for all that is not sticky"
run tern cluster exec $CLUSTER -- rm -r /fsx/shared
# A recipe's folders on Lustre.
if [ -z "${TERN_SANITIZE-}" ]; then # whose library must come before ours
    lustre_make; mkdir -p ck-lustre sets-lustre held
    cat >run.yaml <<'Y'
version: 1
name: stripes
model: {config: model/config.json, tokenizer: model}
data: {train: [{path: sets-lustre/a.tds}, {path: "s3://bucket/lustre/b.tds"}, {path: sets-lustre/c.tds}], held_out: [{name: held, path: held/d.tds}]}
batch: {global: 8, micro: 2, seq_len: 32}
steps: 8
optimizer: {lr: 1.0e-3}
schedule: {kind: constant, warmup: 2}
checkpoint: {dir: ck-lustre, every: 2}
Y
    on "${lustre[@]}" tern cluster doctor --recipe "$WORK/run.yaml"; status 0 "folders of one stripe are a warning, no error"
    is "$(grep -c '^warning *storage-stripes' out)" 2 "a warning for each folder of one stripe" || sed 's/^/# /' out err
    out_has "$WORK/ck-lustre: a new file there lies on one of Lustre's storage targets" "doctor looks at a recipe's checkpoint.dir"
    out_has "$WORK/sets-lustre: a new file there" "doctor looks at the folder of a recipe's token sets"
fi
on tern cluster doctor --recipe none.yaml; status 2 "doctor refuses a recipe that is not there"; one_line
run bash -c 'ulimit -n 512; exec tern cluster exec '$CLUSTER' -- tern cluster doctor'; finds warning limit-nofile '\(here\),trn1-st-trn1-\[1-4\]' "a limit of 512 open files"
on env TERN_FABRIC_MODE=tagged tern cluster doctor; finds info fabric-tagged '\(here\),trn1-st-trn1-\[1-4\]' "messages without proof of their sender"; out_has unauthenticated
on env OPENBLAS_CORETYPE=Prescott tern cluster doctor
grep -q 'tern.s own: plain' out || finds warning blas-core '\(here\),trn1-st-trn1-\[1-4\]' "OPENBLAS_CORETYPE of another CPU"
echo 'ledgr: {dir: /x}' >>site/tern.yaml
doctor; status 1; finds error site '\(here\),trn1-st-trn1-\[1-4\]' "an unknown key in the site settings"; out_has "Did you mean 'ledger'?"
sed -i '$d' site/tern.yaml; chmod 666 site/tern.yaml
doctor; status 1; finds error site '\(here\),trn1-st-trn1-\[1-4\]' "site settings that others may write"
chmod 644 site/tern.yaml; clean "site settings"

# ---- nodes that cannot be asked
submit -N1 -w trn1-st-trn1-1 --exclusive --wrap 'sleep 600'
until_true sh -c "tern cluster exec $CLUSTER -- squeue -h -t R | grep -q ."
doctor; status 4 "a busy node: status 4"; finds info node-busy trn1-st-trn1-1 "a node that works is left alone"
out_has '3 of 3 nodes answered, 1 not idle and not checked: 0 errors'
doctor --json; status 4; out_has '"nodes_not_asked": 1'
on scancel "$job"; until_true queue_empty
on scontrol update nodename=trn1-st-trn1-3 state=drain reason='bad cable'
doctor; finds warning node-state trn1-st-trn1-3 "a drained node is named"; out_has 'bad cable'
on scontrol update nodename=trn1-st-trn1-3 state=drain reason="$(printf 'x\377y\302\2331m')"
doctor --json; out_has '"id": "node-state"' "a reason that is no UTF-8 hides no finding"
doctor; ! grep -q "$(printf '\302\233')" out; ok $? "a reason with a control sequence is printed without it" || cat -v out
on scontrol update nodename=trn1-st-trn1-3 state=resume
rested() { [ "$(tern cluster exec $CLUSTER -- sinfo -h -N -o %t | sort -u)" = idle ]; }
until_true rested
clean "nodes"
for t in 0 -5 1e300 nan; do doctor --timeout $t; status 2 "doctor refuses --timeout $t"; done
on salloc -N2 tern cluster doctor; status 0 "doctor inside a job"; out_has '2 of 2 nodes answered'
run tern cluster node trn1-st-trn1-3 -c $CLUSTER --power off
for t in 20 60 180; do # on a busy machine the other nodes may want longer
    before=$SECONDS; on timeout 300 tern cluster doctor --timeout $t
    grep -qF '3 of' out && break
done
[ $rc != 124 ]; ok $? "doctor answers beside a node without power"
bound $((SECONDS - before)) 40 "a node without power: seconds until the answer"
grep -qE '^(error +node-answer|warning +node-state) +trn1-st-trn1-3$' out && out_has '3 of'; ok $? "a node without power is named" || cat out
run env SLURM_CONF=/nonexistent tern cluster doctor; status 1 "doctor without Slurm is an error"; err_has 'SLURM_CONF'; one_line
tap_done
