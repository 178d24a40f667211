#!/bin/bash
# The demo on a machine that is no Debian: neither apt-get nor dpkg-deb, and no spm_train.
. "$(dirname "$0")/../lib/tap.sh"
long || skip_all "of the demo with this machine's own text, the long list alone has a run"
command -v slurmctld >/dev/null || skip_all "slurmctld is not installed"
mkdir bin
for d in /usr/local/sbin /usr/local/bin /usr/sbin /usr/bin /sbin /bin; do
    find -L $d -maxdepth 1 -type f -perm -1 ! -name 'apt*' ! -name 'dpkg*' ! -name 'spm_*' -exec ln -sft bin {} + 2>/dev/null
done
export DEMO_NAME=tern-demo-$$ DEMO_STEPS=3
PATH=${SLURM_PREFIX:+$SLURM_PREFIX/bin:$SLURM_PREFIX/sbin:}$WORK/bin
finish() { "$BIN/tern" cluster down $DEMO_NAME 2>/dev/null; }
tap_cleanup=finish
demo() { run "$ROOT/cluster-templates/trn1-4/demo" "$@" "$BIN"; }

mkdir -p mine/general mine/domain; printf 'too little\n' >mine/general/one
DEMO_TEXT=$WORK/mine demo "$WORK/little"
status 1 "a folder with too little text is refused"
err_has "DEMO_TEXT=FOLDER" "the error says how much text the demo wants, and where"

demo "$WORK/demo"
status 0 "the demo runs without Debian's packages" || tail -n 30 out
out_has "this machine's documentation (general) and Python's library (domain)" "the demo says which texts it trains on"
out_has "800 BPE pieces that were made before" "the demo says whose tokenizer it takes"
grep -qE '^domain +[0-9]+ +[0-9.]+ +[0-9.]+' out; ok $? "the demo prints the domain's perplexity before and after" || tail -n 60 out
grep -qE ' cpt +done ' out; ok $? "the ledger lists the second job's run as done" || tail -n 60 out
demo --clean "$WORK/demo"
status 0 "demo --clean ends well"
[ ! -e demo ]; ok $? "demo --clean leaves nothing"
tap_done
