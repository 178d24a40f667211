#!/bin/bash
# Values that somebody made up: options, paths, texts and environment.  Whatever they are, nothing of
# them runs, nothing of the user's runs as root, terminals get no control characters and nodes stay
# well.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/vcluster.sh"
. "$ROOT/tests/lib/reach.sh"
option=SLURM_SPANK__SLURM_SPANK_OPTION_tern_tern
esc=$(printf '\033') c1=$(printf '\302\233')
chmod 711 "$WORK"
cluster_up
conf=$TERN_CLUSTER_HOME/$CLUSTER/etc/plugstack.conf
cp "$conf" kept
printf 'version: 1\nname: toy\nledger: {dir: ledger}\nworkload: {command: [true]}\n' >good.yaml
calm() { ! grep -E "tern: " err job.out 2>/dev/null | grep -qE "$esc|$c1|$(printf '\a')"; }
well() { [ ! -e pwned ] && ! tern cluster exec $CLUSTER -- sinfo -h -o %t | grep -qE "drain|drng|down|fail"; }

# ---- paths and texts
cp good.yaml '$(touch pwned).yaml'; cp good.yaml 'a b;touch pwned.yaml'; cp good.yaml '%n%s.yaml'; cp good.yaml ./-rf
for path in '$(touch pwned).yaml' 'a b;touch pwned.yaml' '%n%s.yaml' '-rf' "'" '"' '`touch pwned`' '\x'; do
    case $path in "'" | '"' | '-rf' | '\x') long || continue ;; esac
    [ -e "./$path" ] || cp good.yaml "./$path"
    submit -o job.out "--tern=$path" --wrap 'printf "recipe %s\n" "$TERN_RECIPE"'
    until_true job_over "$job"
    has job.out "recipe $WORK/$path" "a recipe of an odd name arrives as it is: $path" || cat err
done
for path in "x${esc}]0;x" "x${c1}31m" "$(printf 'x\ny')" "$(printf 'x\ry')" "$(head -c 4096 /dev/zero | tr '\0' a)" "$(head -c 100000 /dev/zero | tr '\0' a)"; do
    on sbatch "--tern=$path" --wrap true
    [ $rc != 0 ] && calm; ok $? "refused, quietly: $(printf '%.20q' "$path")"
done
printf 'version: 1\nna%sme%s: toy\n%%n%%s: 1\n' "$esc[31m" "$c1" >bad.yaml
on sbatch --tern=bad.yaml --wrap true; [ $rc != 0 ] && calm; ok $? "a recipe's text is printed without control characters" || cat -v err
mkdir "dir$esc"; cp good.yaml "dir$esc/"
(cd "dir$esc" && tern cluster exec $CLUSTER -- sbatch --tern=good.yaml --wrap true) >out 2>err; rc=$?
[ $rc != 0 ] && calm; ok $? "the current folder's name is printed without control characters"
mkfifo fifo; s=$(date +%s); on timeout 300 sbatch --tern=fifo --wrap true
[ $rc != 0 ] && [ $rc != 124 ]; ok $? "a pipe without a writer is refused as a recipe" || cat err
bound $(($(date +%s) - s)) 29 "a pipe without a writer: seconds until the error"
on sbatch --tern=/dev/zero --wrap true; [ $rc != 0 ]; ok $? "/dev/zero is refused as a recipe"
queue_empty && well; ok $? "refused recipes run and queue nothing"

# ---- environment.  FORGED=VALUE...: a task either runs as if it were not there, or ends itself.
many=$(head -c 5000 /dev/zero | tr '\0' z)
forge() { # NAME=VALUE ARGUMENT...
    rm -f job.out
    tern cluster exec $CLUSTER -- env "$1" sbatch --parsable -N1 -o "$WORK/job.out" "${@:2}" --wrap 'printf "end %s|%s|%s|%s\n" "$TERN_HEALTH" "$TERN_RESTARTS" "$TERN_PROFILE" "$TERN_RECIPE"' >out 2>err
    job=$(cat out); [ -z "$job" ] || until_true job_over "$job"
}
for value in '$(touch pwned)' "$many" "$(printf 'a\nb')" "$esc[31m" '%n%n%n' '' -1; do
    case $value in '$('* | $esc*) ;; *) long || continue ;; esac
    for name in health restarts profile; do
        forge "${option}_$name=$value"
        calm && well && ! grep -q "^end .*${value:-nothing}" job.out 2>/dev/null
        ok $? "forged --tern-$name=$(printf '%.15q' "$value"): $(cat err job.out 2>/dev/null | grep -o 'tern: .*' | head -1 | cut -c1-60)" || cat -v err job.out
    done
    forge "$option=$value"; calm && well; ok $? "forged --tern=$(printf '%.15q' "$value")" || cat -v err job.out
    forge "SLURM_SPANK_TERN_RECIPE=$value" --tern=good.yaml
    calm && well && grep -q "|$WORK/good.yaml$" job.out; ok $? "a forged path does not replace the recipe's" || cat -v err job.out
done
forge SLURM_SPANK_TERN_REFUSED=1; grep -q '^end' job.out; ok $? "a forged refusal does not affect a job without options"
for name in TERN_HEALTH TERN_RESTARTS TERN_PROFILE; do
    forge "$name=forged" --tern=good.yaml --tern-health=off --tern-restarts=1 --tern-profile=cpu
    has job.out 'end off|1|cpu|' "the option wins over a forged $name"
done
forge TERN_PROFILE_SET="$many$many" --tern-profile=cpu; has job.out 'end ||cpu|' "a forged list of a profile's variables is ignored"
forge TERN_PROFILE_SET="OMP_NUM_THREADS=%n =0 ==" --tern-profile=cpu; has job.out 'end ||cpu|' "a malformed list of a profile's variables is ignored"
well; ok $? "every node is idle after forged variables"

# ---- who runs what.  A library that the user preloads says as whom it runs.
if [ "$(id -u)" = 0 ] && command -v setpriv gcc >/dev/null; then
    reach 65534
    cat >evil.c <<'C'
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
__attribute__((constructor)) static void here(void)
{
    int fd = open(WHERE, O_WRONLY | O_APPEND);
    dprintf(fd, "%d\n", (int)geteuid());
    close(fd);
}
C
    gcc -shared -fPIC -DWHERE="\"$WORK/as\"" -o evil.so evil.c; chmod 755 evil.so
    mkdir -m 755 bin
    cat >bin/tern <<T
#!/bin/bash
echo "\$1 \$(id -u)" >>$WORK/ran
exec $REACH_BIN/tern "\$@"
T
    chmod 755 bin/tern
    : >as; : >ran; chmod 666 as ran
    mkdir -m 777 users; cp good.yaml users; chmod 644 users/good.yaml
    echo "optional $REACH_SO tern=$WORK/bin/tern health=prolog" >"$conf"
    user() { tern cluster exec $CLUSTER -- setpriv --reuid=65534 --regid=65534 --clear-groups env HOME=/ "$@"; }
    (cd users && user LD_PRELOAD="$WORK/evil.so" sbatch --parsable -N2 -o job.out --tern=good.yaml --tern-profile=cpu \
        --wrap 'echo as $(id -u) $TERN_MARKER; srun --mpi=none -N2 id -u') >out 2>err
    job=$(cat out)
    if [ -n "$job" ]; then
        until_true job_over "$job"
        has users/job.out "as 65534 $job.batch" "another user's job runs as that user"
        [ -s as ] && ! grep -qx 0 as; ok $? "a user's preloaded library runs as the user alone" || sort as | uniq -c
        sort -u ran >who
        grep -qx 'run 65534' who && grep -qx 'env 65534' who && grep -qx 'health 0' who && [ "$(wc -l <who)" = 3 ]
        ok $? "the recipe and the profile are read as the user; health alone runs as root" || cat who
    else
        cat err; ok 1 "another user can submit"
    fi
else skip "needs root, setpriv and gcc"; fi
cp kept "$conf"
well; ok $? "every node is idle at the end"
tap_done
