#!/bin/bash
# Every system call of a save fails or kills, one after the other, until the save passes untouched:
# nothing half-published, nothing left behind, and the error says what happened.  The short form takes
# every third.
. "$(dirname "$0")/../lib/tap.sh"
T=$TOOLS/ckpt-tool
strace -o /dev/null true 2>/dev/null || skip_all "strace may not trace here"
[ -z "${TERN_SANITIZE-}" ] || skip_all "the sanitizers' own system calls would be hit"
"$T" model hf || exit 1
LIMIT=400
STEP=$(long && echo 1 || echo 3)

# Fail the N-th CALL with ERROR for N = 1, 1 + STEP, ... until the save succeeds.
fail_each() { # CALL ERROR RANKS EXIT
    local n lines wrong=0 hits=0
    for ((n = 1; n <= LIMIT; n += STEP)); do
        rm -rf run; mkdir run
        strace -f -o trace -e trace="$1" -e inject="$1:error=$2:when=$n" "$T" save run 1 "$3" hf 2>err
        rc=$?
        grep -q INJECTED trace || break
        hits=$((hits + 1))
        if [ $rc = 0 ]; then # the call may fail unheard (a hint, a file looked for and not needed)
            tern ckpt verify --full run/step-00000001 >/dev/null 2>&1 ||
                { wrong=$((wrong + 1)); echo "# $1 $2 at $n: said yes, and it does not verify"; }
            continue
        fi
        [ -z "$(ls run)" ] || { wrong=$((wrong + 1)); echo "# $1 $2 at $n left: $(ls run)"; sed 's/^/# /' err; }
        [ -z "$4" ] || [ $rc = "$4" ] || { wrong=$((wrong + 1)); echo "# $1 $2 at $n: exit $rc"; sed 's/^/# /' err; }
        # A line a rank; of several, the fault may have hit the write of a line itself.
        lines=$(wc -l <err)
        [ "$lines" -ge 1 ] && [ "$lines" -le "$3" ] ||
            { wrong=$((wrong + 1)); echo "# $1 $2 at $n: $lines lines"; sed 's/^/# /' err; }
    done
    [ $wrong = 0 ] && [ $hits -gt 0 ] && [ $n -le $LIMIT ]
    ok $? "$3 rank(s): $1 fails with $2 at each of $hits places"
}

# Die at the N-th CALL: what is visible verifies, and the next save works.
kill_each() { # CALL
    local n wrong=0 hits=0
    for ((n = 1; n <= LIMIT; n += STEP)); do
        rm -rf run; mkdir run
        "$T" save run 1 1 hf || return
        { strace -f -o trace -e trace="$1" -e inject="$1:signal=KILL:when=$n" "$T" save run 2 1 hf; } 2>/dev/null
        grep -q 'killed by SIGKILL' trace || break
        hits=$((hits + 1))
        tern ckpt verify --full run >out 2>err || { wrong=$((wrong + 1)); echo "# killed at $1 $n:"; sed 's/^/# /' err; }
        [ -d run/step-00000002 ] || "$T" save run 2 1 hf 2>err || { wrong=$((wrong + 1)); echo "# after $1 $n:"; sed 's/^/# /' err; }
        tern ckpt verify --full run/step-00000002 >/dev/null 2>&1 || wrong=$((wrong + 1))
    done
    [ $wrong = 0 ] && [ $hits -gt 0 ] && [ $n -le $LIMIT ]
    ok $? "killed at each of $hits calls of $1"
}

fail_each fsync EIO 1 75
fail_each fsync ENOSPC 1 75
fail_each write ENOSPC 1 75
fail_each write EIO 1 75
fail_each fallocate ENOSPC 1 75
fail_each fallocate EIO 1 75
fail_each mkdir EDQUOT 1 75
fail_each mkdir EIO 1 75
fail_each renameat2 EIO 1 75
fail_each renameat2 ENOSPC 1 75
fail_each openat ENOSPC 1 ''
fail_each close EIO 1 ''
fail_each fsync EIO 3 75
fail_each write ENOSPC 3 75
if long; then
    for e in EIO ENOSPC; do fail_each newfstatat $e 1 ''; done
    fail_each mkdir ENOSPC 1 75
    fail_each openat EIO 1 ''
    fail_each close ENOSPC 1 ''
    fail_each fsync ENOSPC 3 75
    fail_each write EIO 3 75
fi
kill_each write
kill_each fsync
kill_each openat
kill_each close
kill_each renameat2

# What passes is no failure: a signal, no free descriptor for a moment, a handle that a file server
# has forgotten.  CALL fails so at each place that has to do with checkpoints (the dynamic linker's
# own calls are not ours), and the save or the reading ends as if nothing had been.
pass_each() { # CALL ERROR save|read
    local n wrong=0 hits=0 rc
    for ((n = 1; n <= LIMIT; n += STEP)); do
        if [ "$3" = save ]; then
            rm -rf run; mkdir run
            strace -f -y -o trace -e trace="$1" -e inject="$1:error=$2:when=$n" "$T" save run 1 1 hf 2>err
        else
            strace -f -y -o trace -e trace="$1" -e inject="$1:error=$2:when=$n" tern ckpt verify --full run >out 2>err
        fi
        rc=$?
        grep -q INJECTED trace || break
        grep INJECTED trace | grep -q "run" || continue
        hits=$((hits + 1))
        if [ $rc = 0 ] && [ "$3" = save ]; then
            [ "$(ls run)" = step-00000001 ] && tern ckpt verify --full run/step-00000001 >/dev/null 2>&1
            rc=$?
        fi
        [ $rc = 0 ] || { wrong=$((wrong + 1)); echo "# $3: $1 $2 at $n: exit $rc"; sed 's/^/# /' err; grep INJECTED trace | sed 's/^/# /'; }
    done
    [ $wrong = 0 ] && [ $hits -gt 0 ] && [ $n -le $LIMIT ]
    ok $? "$3: $1 fails once with $2 at each of $hits places, and the save goes on"
}
for e in EINTR EMFILE ENFILE ESTALE; do pass_each openat $e save; done
for c in write fsync fallocate mkdir renameat2 newfstatat close; do pass_each $c EINTR save; done
for c in write fsync fallocate mkdir newfstatat renameat2; do pass_each $c ESTALE save; done
for e in EINTR EMFILE ESTALE; do pass_each openat $e read; done
for c in pread64 newfstatat; do pass_each $c EINTR read; pass_each $c ESTALE read; done

# An error that does not pass is reported as one that may pass outside, after a wait.
rm -rf run; mkdir run
strace -f -o trace -P run/step-00000001.tmp-0/manifest.json -e inject=openat:error=EMFILE "$T" save run 1 1 hf 2>err
[ $? = 75 ] && has err 'Too many open files' && [ -z "$(ls run)" ]; ok $? "descriptors that stay out: an error, exit 75, nothing left" || cat err
grep -q 'waiting up to' err; ok $? "a wait for descriptors is reported"

# What a power cut could take is made durable in time: every file and the folder before the rename,
# the folder above after it.
rm -rf run; mkdir run
strace -f -y -o trace -e trace=fsync,renameat2 "$T" save run 1 1 hf
before=$(sed '/renameat2(/,$d' trace | sed -n 's/.*fsync([0-9]*<\(.*\)>).*= 0$/\1/p' | sed 's,.*/run/,,' | sort)
wanted=$(cd run/step-00000001 && find . -type f | sed 's,^\.,step-00000001.tmp-0,'; echo step-00000001.tmp-0)
[ "$before" = "$(echo "$wanted" | sort)" ]; ok $? "every file and its folder is synced before the rename" || echo "# $before"
sed '1,/renameat2(/d' trace | grep -q 'fsync([0-9]*<.*/run>) *= 0'; ok $? "the folder of checkpoints is synced after the rename"

# A rename flag that the file system does not know is no failure.
rm -rf run
strace -f -o trace -e trace=renameat2 -e inject=renameat2:error=EINVAL "$T" save run 1 1 hf
tern ckpt verify --full run/step-00000001 >/dev/null 2>&1 && grep -q INJECTED trace
ok $? "without RENAME_NOREPLACE a plain rename serves"

# A full disk, for real.
if [ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null; then
    mkdir full
    unshare -m sh -c "
        mount -t tmpfs -o size=900k none full && '$T' save full/run 1 1 hf && '$T' save full/run 2 1 hf 2>err2
        echo \$? >rc2; ls full/run >left2
        dd if=/dev/zero of=full/filler bs=1k count=250 2>/dev/null
        '$T' save full/run 3 2 hf 2>err; echo \$? >rc
        ls full/run >left; rm full/filler; tern ckpt verify --full full/run >out 2>&1; echo \$? >rc_verify"
    [ "$(cat rc)" = 75 ]; ok $? "a full disk: exit status 75" || cat err
    grep -q 'free' err && [ "$(wc -l <err)" = 2 ]; ok $? "each rank says how much is needed and free" || cat err
    diff -q left left2 >/dev/null && [ "$(cat rc_verify)" = 0 ]; ok $? "nothing is left of it; what was there verifies"
else
    skip "a full disk needs root"
fi
tap_done
