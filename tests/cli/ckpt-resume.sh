#!/bin/bash
# A conversion of weights that was cut off goes on behind its whole files: exports, ranks' files, merges and blends, by kill -9
# at every fsync and rename, and by Ctrl-C.  What is there is never taken for another conversion's.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/tiny.sh"
for v in $(compgen -e | grep -E '^(SLURM|TERN_(R|L))'); do unset "$v"; done
strace -o /dev/null true 2>/dev/null || skip_all "strace may not trace here"
tiny_make >made 2>&1 || { cat made; exit 1; }
sed -i 's/^launch: .*/launch: {threads: 1, health: off}/; s/keep: 2/keep: 8/' run.yaml
run tern run run.yaml --set steps=3 --set optimizer.lr=1e-2; status 0
one=checkpoints/step-00000001 two=checkpoints/step-00000002
run tern ckpt export $one -o hf; status 0
run tern run run.yaml --set name=adapted --set checkpoint.dir=adapted --set 'model={from: hf}' --set 'lora={rank: 2}' --set steps=2 --set schedule.warmup=1; status 0

# SIGNAL CALL COUNT COMMAND...: signalled at that call of its main thread.
cut_off() { run env ASAN_OPTIONS=detect_leaks=0 strace -f -o /dev/null -e "trace=$2" -e "inject=$2:signal=$1:when=$3" "${@:4}" 2>/dev/null; }
whole_files() { find "$1" \( -name '*.safetensors' -o -name '*.pt' \) -printf '%P %i %T@\n' 2>/dev/null | sort; } # FOLDER
same_tree() { diff -r "$1" "$2" >differ && [ ! -e "$2.unfinished" ] && [ ! -e "$2/.conversion" ]; }
every() { seq "$1" "$(long && echo 1 || echo "$2")" "$3"; } # FROM STEP TO

# NAME AGAIN COMMAND...: killed at call after call, then made.  AGAIN 1: of files that are written side by side, those of all
# tensor ranks, some may be written again.
goes_on() {
    local name=$1 again=$2 call count n kept=0 bad=0 lost=0; shift 2
    ASAN_OPTIONS=detect_leaks=0 strace -c -f -o calls -e trace=fsync,rename,renameat,renameat2,unlink "$@" -o "reference-$name" 2>err || { ok 1 "$name: made in one go"; cat err; return; }
    for call in $(awk '$NF ~ /^(fsync|rename(at2?)?)$/ {print $NF}' calls); do
        count=$(awk -v c="$call" '$NF == c {print $4}' calls)
        for n in $(every 1 $((again ? 5 : 11)) "$count"); do
            cut_off KILL $call "$n" "$@" -o "cut-$name"
            [ "$rc" = 137 ] || { echo "# $call $n of $count: status $rc"; bad=$((bad + 1)); }
            if [ -e "cut-$name" ]; then # the last rename
                diff -r -x .conversion "reference-$name" "cut-$name" >differ || bad=$((bad + 1))
                rm -rf "cut-$name"*; continue
            fi
            whole_files "cut-$name.unfinished" >before
            [ "$name" != xser ] || sed -i '/\.tensors\//!d' before # the small files of names are always written
            run "$@" -o "cut-$name"; [ "$rc" = 0 ] || { echo "# after $call $n: status $rc"; head -3 err; bad=$((bad + 1)); }
            same_tree "reference-$name" "cut-$name" || { echo "# after $call $n:"; head -3 differ; bad=$((bad + 1)); }
            whole_files "cut-$name" >after
            [ -z "$(comm -23 before after)" ] || lost=$((lost + 1))
            [ -s before ] && kept=$((kept + 1))
            rm -rf "cut-$name"*
        done
    done
    ok $bad "$name: killed at each fsync and rename, the next call makes the same folder"
    [ $kept -gt 0 ]; ok $? "$name: whole files were there ($kept times)"
    [ $lost = 0 ] || [ "$again" = 1 ] && [ $lost -lt $kept ]; ok $? "$name: they were not written again ($lost times some were)"
    cut_off KILL unlink "$(awk '$NF == "unlink" {print $4}' calls)" "$@" -o "cut-$name"
    [ -e "cut-$name/.conversion" ]; ok $? "$name: killed when the folder had its name"
    run "$@" -o "cut-$name"; status 0 "$name: the same command"; err_has 'an earlier call of this command has made it'
    same_tree "reference-$name" "cut-$name"; ok $? "$name: nothing of that call is left" || head -3 differ
    rm -rf "cut-$name"*
}
goes_on export 0 tern ckpt export $two --max-shard-size 20KB --dtype bf16
goes_on merge 0 tern ckpt merge adapted/latest --max-shard-size 40KB
goes_on blend 0 tern ckpt blend hf $two -m ties --base hf --density 0.5 --max-shard-size 40KB
long && goes_on dare 0 tern ckpt blend hf $two -m dare_ties --base hf --density 0.5 --seed 3 --max-shard-size 40KB
goes_on nxd 1 tern ckpt export hf --to nxd --tensor 2 --pipeline 2
goes_on xser 1 tern ckpt export hf --to nxd --tensor 2 --xser --markers
long && goes_on back 0 tern ckpt export reference-nxd --from nxd --config hf --max-shard-size 40KB

# Ctrl-C.
export_hf() { cut_off INT fsync "$1" tern ckpt export $two --max-shard-size 20KB -o stopped "${@:2}"; }
export_hf 8; status 130 "Ctrl-C: exit status 130"; one_line "an interrupted export prints one clear line"
err_has 'stay in stopped.unfinished, where the same command goes on'; [ ! -e stopped ]; ok $? "Ctrl-C: nothing has the export's name"
n=$(whole_files stopped.unfinished | wc -l); err_has "interrupted; $n whole files stay"; whole_files stopped.unfinished >before
run tern ckpt export $two --max-shard-size 20KB -o reference; status 0
run tern ckpt export $two --max-shard-size 20KB -o stopped; status 0 "the same command goes on with an interrupted export"; err_has "stopped.unfinished: goes on behind $n whole files"
same_tree reference stopped; ok $? "an export that was interrupted is as one that was not"
whole_files stopped >after; is "$(comm -23 before after)" "" "its whole files were not written again"
rm -rf stopped; export_hf 1; status 130; err_has 'nothing was left behind'; [ -z "$(ls -d stopped* 2>/dev/null)" ]; ok $? "Ctrl-C before the first whole file leaves nothing"

# What is there is of another conversion.
anew() { # NAME COMMAND...
    run "${@:2}" -o other; status 0 "$1: it is made"; rm -rf stopped
    run "${@:2}" -o stopped; status 0; err_has 'stopped.unfinished: is of other options, or its source has changed; it begins anew'
    same_tree other stopped; ok $? "$1: nothing of the other conversion is in it" || head -5 differ; rm -rf other stopped
}
export_hf 8; anew "another type" tern ckpt export $two --max-shard-size 20KB --dtype bf16
export_hf 8; anew "another checkpoint" tern ckpt export $one --max-shard-size 20KB
export_hf 8; anew "other files" tern ckpt export $two --max-shard-size 30KB
export_hf 8; anew "ranks' files" tern ckpt export hf --to nxd --tensor 2
cut_off KILL fsync 8 tern ckpt export hf --to nxd --tensor 2 --xser -o stopped; [ -d stopped.unfinished ]; ok $? "ranks' files are cut off"
anew "a folder of Hugging Face where ranks' files were" tern ckpt export hf --max-shard-size 20KB
cp -r hf moving; cut_off INT fsync 8 tern ckpt export moving --max-shard-size 20KB -o stopped; [ -d stopped.unfinished ]; ok $? "an export is cut off"
run tern ckpt export $two -o next; mv next/model.safetensors moving/model.safetensors
anew "its source has changed" tern ckpt export moving --max-shard-size 20KB
cut_off KILL fsync 8 tern ckpt merge adapted/latest --max-shard-size 40KB -o stopped
anew "a merge of other adapters" tern ckpt merge adapted/step-00000001 --max-shard-size 40KB
run tern ckpt export adapted/latest -o peft; status 0
cut_off KILL fsync 8 tern ckpt merge peft --base hf --max-shard-size 40KB -o stopped; jq '.lora_alpha = 7' peft/adapter_config.json >alpha; mv alpha peft/adapter_config.json
anew "a merge by another alpha" tern ckpt merge peft --base hf --max-shard-size 40KB
ties() { cut_off KILL fsync 8 tern ckpt blend hf $two -m ties --base hf --density 0.5 --max-shard-size 40KB -o stopped; }
ties; anew "another density" tern ckpt blend hf $two -m ties --base hf --density 0.6 --max-shard-size 40KB
long && ties && anew "another method" tern ckpt blend hf $two -m dare_ties --base hf --density 0.5 --max-shard-size 40KB
long && ties && anew "another weight" tern ckpt blend hf $two -w 1,2 -m ties --base hf --density 0.5 --max-shard-size 40KB
long && ties && anew "another order" tern ckpt blend $two hf -m ties --base hf --density 0.5 --max-shard-size 40KB

# Files of it that are not whole any more, or were never its own.
export_hf 8; first=$(whole_files stopped.unfinished | awk 'NR == 1 {print $1}'); truncate -s -1 "stopped.unfinished/$first"
echo mine >stopped.unfinished/config.json; mkdir stopped.unfinished/more; echo x >stopped.unfinished/more/x
run tern ckpt export $two --max-shard-size 20KB -o stopped; status 0; rmdir stopped/more
same_tree reference stopped; ok $? "a file that was cut, and files beside, are written again or go" || head -5 differ
rm -rf stopped

# What is no conversion's stays.
into() { run tern ckpt export $two --max-shard-size 20KB -o stopped; }
mkdir stopped.unfinished; echo mine >stopped.unfinished/thesis.pt; into
status 2; one_line; err_has 'stopped.unfinished: is there already, and no conversion left it'; is "$(cat stopped.unfinished/thesis.pt)" mine "a folder of that name that the user made stays"
rm -rf stopped.unfinished; echo mine >stopped.unfinished; into; status 2; one_line; is "$(cat stopped.unfinished)" mine "a file of that name stays"
rm stopped.unfinished; mkdir elsewhere; ln -s elsewhere stopped.unfinished; into; status 2; one_line; is "$(ls -A elsewhere)" "" "nothing goes through a link of that name"
rm stopped.unfinished; mkdir stopped.unfinished; into; status 0 "an empty folder of that name is in no way"; same_tree reference stopped; ok $? "the export into that empty folder is whole"; rm -rf stopped
if [ "$(id -u)" = 0 ]; then
    mkdir -m 777 stopped.unfinished; chown 65534 stopped.unfinished; into; status 2; one_line; err_has 'no folder of yours'; rm -rf stopped.unfinished
fi
# --verify: what is written is read back.  In the last reading of weights two bytes are others.
if strace -qq -o /dev/null -e trace=pread64 -e inject=pread64:poke_exit=@arg2=00:when=1 true 2>/dev/null; then
    verified() { # NAME COMMAND...
        local name=$1; shift
        run "$@" -o "plain-$name"; status 0; run "$@" -o "whole-$name" --verify; status 0 "$name works with --verify"
        same_tree "plain-$name" "whole-$name"; ok $? "$name: with --verify it is the same folder" || head -5 differ
        ASAN_OPTIONS=detect_leaks=0 strace -y -qq -o calls -e trace=pread64 "$@" -o "counted-$name" --verify 2>err
        n=$(grep -nE "counted-$name.unfinished/[^>]*(safetensors|[.]pt)" calls | tail -n 1 | cut -d: -f1)
        [ -n "$n" ]; ok $? "$name: what was written is read"
        run env ASAN_OPTIONS=detect_leaks=0 strace -qq -o /dev/null -e trace=pread64 -e "inject=pread64:poke_exit=@arg2=5555:when=$n" "$@" -o "damaged-$name" --verify
        status 75 "$name --verify: the storage gives back other bytes"; one_line; err_has "are not those that were written there" "$name: says what the storage did"
        [ ! -e "damaged-$name" ]; ok $? "$name: nothing has the name"
    }
    verified export tern ckpt export $two --max-shard-size 20KB --dtype bf16
    verified merge tern ckpt merge adapted/latest
    verified blend tern ckpt blend hf $two -m ties --base hf --density 0.5 --threads 1
    verified nxd tern ckpt export hf --to nxd --tensor 2 --pipeline 2
    verified xser tern ckpt export hf --to nxd --tensor 2 --xser --markers
    export_hf 8; anew "files that were not read back" tern ckpt export $two --max-shard-size 20KB --verify
else
    skip "strace cannot change what is read"
fi

# Two at once.
export_hf 8; exec 9<>stopped.unfinished/.conversion; flock 9
whole_files stopped.unfinished >before; into; status 75 "a folder in which another process writes: exit status 75"; one_line; err_has 'another process is writing there'
is "$(whole_files stopped.unfinished)" "$(cat before)" "the other process keeps its files"
exec 9>&-; into; status 0 "when it has ended, the next call goes on"; same_tree reference stopped; ok $? "the folder of an ended process is taken over"
tap_done
