#!/bin/bash
# What passes ends nothing: a system call that a signal interrupts, no free descriptor for a moment, a
# handle that a file server has forgotten.  Each call of a program fails so once, one place after the
# other, and what it makes is what it makes otherwise.  Checkpoints: ckpt-inject.sh.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/tiny.sh"
strace -o /dev/null true 2>/dev/null || skip_all "strace may not trace here"
[ -z "${TERN_SANITIZE-}" ] || skip_all "the sanitizers' own system calls would be hit"
for v in $(compgen -e | grep -E '^(SLURM|TERN_(R|L))'); do unset "$v"; done
LIMIT=600
# The loader's and the C library's own files are no concern of ours.
OTHERS='\.so|ld\.so|"/etc/|"/usr/|"/sys/|locale|gconv|/dev/shm'

# passes WHAT CALL ERROR MAKE SAME [STRACE OPTION...]: MAKE with the n-th CALL failing; then SAME.
passes() {
    local what=$1 call=$2 error=$3 make=$4 same=$5 n wrong=0 hits=0 rc; shift 5
    for ((n = 1; n <= LIMIT; n += ${STEP:-1})); do
        strace "$@" -y -o trace -e trace="$call" -e inject="$call:error=$error:when=$n" $make >out 2>err </dev/null
        rc=$?
        grep -q INJECTED trace || break
        grep INJECTED trace | grep -qvE "$OTHERS" || continue
        hits=$((hits + 1))
        [ $rc = 0 ] && $same && continue
        wrong=$((wrong + 1)); echo "# $call $error at $n: exit $rc"; sed 's/^/# /' err | tail -5
        grep INJECTED trace | sed 's/^/# /'
    done
    [ $wrong = 0 ] && [ $hits -gt 0 ] && [ $n -le $LIMIT ]
    ok $? "$what: $call fails once with $error at each of $hits places"
}

# ---- a token set is built and read
T=$ROOT/tests/golden/spm-bpe-800.model
for i in $(seq 200); do printf '{"text":"We the people, %d, of the United States"}\n' "$i"; done >a.jsonl
gzip -c a.jsonl >b.jsonl.gz
tern data build --tokenizer "$T" -o good.tds a.jsonl b.jsonl.gz 2>/dev/null
same_set() { cmp -s new.tds good.tds; }
for e in EINTR EMFILE ESTALE; do passes "tern data build" openat $e "tern data build --tokenizer $T -o new.tds a.jsonl b.jsonl.gz" same_set; done
for c in read pread64 write fsync rename newfstatat; do
    passes "tern data build" $c EINTR "tern data build --tokenizer $T -o new.tds a.jsonl b.jsonl.gz" same_set
done
for e in EINTR ESTALE; do passes "tern data verify" pread64 $e "tern data verify good.tds" true; done

cp good.tds is.tds
run strace -y -o trace -e trace=pread64 -e inject=pread64:error=ESTALE:when=8+ tern data verify is.tds
status 75 "a handle that stays stale: exit 75"
err_has 'is.tds: cannot read: Stale file handle'

STEP=$(long && echo 1 || echo 3)
# ---- the ledger is folded
printf 'version: 1\nname: some\nledger: {dir: ledger}\nworkload: {command: [bash, some.sh]}\nlaunch: {restarts: 0}\n' >some.yaml
printf 'for i in 1 2 3 4 5; do tern metric step=$i loss=$i; done; echo "said it"\n' >some.sh
tern run some.yaml >/dev/null 2>&1
id=$(ls ledger/runs)
rows() { sqlite3 ledger/runs/$id/run.db 'select step, value from step order by step'; }
rows >good.rows
same_rows() { [ "$(rows)" = "$(cat good.rows)" ]; }
for e in EINTR EMFILE ESTALE; do passes "tern ledger fold" openat $e "tern ledger fold --rebuild $id --ledger ledger" same_rows; done
for c in pread64 newfstatat; do
    for e in EINTR ESTALE; do passes "tern ledger fold" $c $e "tern ledger fold --rebuild $id --ledger ledger" same_rows; done
done

# ---- the supervisor of a run (it alone is traced, not what it starts)
ran() { grep -q 'said it' out && [ "$(sqlite3 ledger/ledger.db 'select outcome from attempt order by begin_ns' | tail -1)" = done ]; }
for e in EINTR EMFILE ENFILE ESTALE; do passes "tern run" openat $e "tern run some.yaml" ran; done
for c in pipe2 signalfd4 clone poll wait4 newfstatat pread64; do
    case $c in pipe2 | signalfd4) e=EMFILE ;; clone) e=EAGAIN ;; *) e=EINTR ;; esac
    passes "tern run" $c $e "tern run some.yaml" ran
done

# ---- what a rank does for its program
passes "tern run, a rank" pipe2 EMFILE "tern run some.yaml" ran -f
passes "tern run, a rank" signalfd4 EMFILE "tern run some.yaml" ran -f

# ---- a training run reads its tokens
if tiny_make; then
    tern run run.yaml --set steps=3 --set checkpoint.dir=ck0 --set ledger.dir=l0 >/dev/null 2>&1
    digests() { (cd "$1"/step-00000003 && sha256sum *.safetensors); }
    digests ck0 >good.weights
    wrong=0 hits=0
    for n in 1 3 6 10 15 21 28 40; do
        rm -rf ck1
        strace -f -y -o trace -e trace=pread64 -e inject=pread64:error=ESTALE:when=$n \
            tern run run.yaml --set steps=3 --set checkpoint.dir=ck1 --set ledger.dir=l1 >out 2>err
        rc=$?
        grep INJECTED trace | grep -q '\.tds' || continue
        hits=$((hits + 1))
        [ $rc = 0 ] && digests ck1 | cmp -s - good.weights ||
            { wrong=$((wrong + 1)); echo "# at $n: exit $rc"; sed 's/^/# /' err | tail -5; }
    done
    [ $wrong = 0 ] && [ $hits -gt 0 ]; ok $? "training: a token set's handle goes stale at each of $hits reads, and the weights are the same bits"
else
    skip "cannot make the tiny setting"
fi
tap_done
