#!/bin/bash
# What a person names and is not there, is damaged or is another kind of thing: exit status 2 and one
# line, from every program that reads it.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/tiny.sh"
for v in $(compgen -e | grep -E '^(SLURM|TERN_(R|L))'); do unset "$v"; done
T=$ROOT/tests/golden/spm-bpe-800.model
head -c 3000 /dev/zero | tr '\0' '\377' >noise
: >empty
bad=0 n=0
refused() { # COMMAND...: adds to $bad unless it is refused with 2 and says why
    n=$((n + 1))
    timeout 600 "$@" >out 2>err </dev/null; rc=$?
    [ $rc = 2 ] && [ -s err ] && return
    bad=$((bad + 1)); echo "# $*: exit $rc"; sed 's/^/# /' err | head -3
}
for f in nowhere noise empty; do
    for verb in info verify; do refused tern data $verb $f; done
    refused tern data head $f -t "$T"
    refused tern data build --tokenizer $f -o x.tds noise
    for verb in show verify; do refused tern ckpt $verb $f; done
    refused tern ckpt export $f -o x
    for noun in run train submit eval; do refused tern $noun $f; done
    refused tern bench train --recipe $f
    for verb in list verify fold 'show x' 'sql select'; do refused tern ledger $verb --ledger $f; done
    refused tern logs x --ledger $f
    refused tern metric --spool $f a=1
    for verb in check up; do refused tern cluster $verb $f; done
    refused tern fabric flight-report $f
done
refused tern data build --tokenizer "$T" -o x.tds nowhere
refused tern data build --tokenizer "$T" -o x.tds noise
is $bad 0 "a path that is absent, noise or empty: refused with 2 by each of $n commands"

bad=0 n=0
for noun in bench ckpt cluster data env eval fabric generate health ledger link logs metric run submit train; do
    refused tern $noun --no-such-option
    for verb in $(tern $noun -h 2>/dev/null | sed -n '/^verbs:/,/^$/s/^  \([a-z][a-z-]*\) .*/\1/p'); do
        refused tern $noun $verb --no-such-option
    done
done
is $bad 0 "an option that is none: refused with 2 by each of $n programs and verbs"

tiny_make 2>/dev/null || skip_all "cannot make the tiny setting"
tern run run.yaml --set steps=2 >/dev/null 2>&1
bad=0 n=0
head -c 5000 data/train.tds >cut.tds
sed 's,data/train.tds,cut.tds,' run.yaml >cut.yaml
mkdir m2; cp model/* m2; echo '{' >m2/config.json
sed 's,model/config.json,m2/config.json,' run.yaml >config.yaml
for r in cut.yaml config.yaml; do for noun in run 'run --check' train submit; do refused tern $noun $r; done; done
cp -r checkpoints/step-00000002 .; truncate -s -7 step-00000002/shard*
cp -r checkpoints/step-00000002 k; echo x >k/manifest.json
for c in step-00000002 k; do
    refused tern ckpt show $c; refused tern ckpt verify $c; refused tern ckpt export $c -o y
    refused tern eval run.yaml --checkpoint $c
    refused tern generate $c -p a
done
for o in batch.micro=0 nonsense=1 steps=abc data.train=3; do
    for noun in run train submit eval; do refused tern $noun run.yaml --set $o; done
done
head -c 4000 "$T" >cut.model; gzip -c train.jsonl | head -c 900 >cut.gz
refused tern data build --tokenizer cut.model -o x.tds train.jsonl
refused tern data build --tokenizer model -o x.tds cut.gz
refused tern ckpt export checkpoints/latest -o run.yaml
refused tern ckpt export checkpoints/latest -o model
refused tern ledger show nosuch
refused tern ledger sql selec
is $bad 0 "damaged sets, models, checkpoints and texts: refused with 2 by each of $n commands"
tap_done
