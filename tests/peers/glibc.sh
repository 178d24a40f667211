#!/bin/bash
# Everything links against glibc 2.28 (RHEL 8), by ziglang's compiler, which knows each glibc's symbols.
# Libraries are this machine's: what they want of a newer glibc is not asked.
. "$(dirname "$0")/../lib/tap.sh"
python=${TERN_PEERS_PYTHON:-python3}
"$python" -m ziglang version >/dev/null 2>&1 || {
    python3 -m venv venv >/dev/null 2>&1 && venv/bin/pip install -q ziglang >/dev/null 2>&1
    python=$WORK/venv/bin/python
}
"$python" -m ziglang version >/dev/null 2>&1 || skip_all "ziglang is not there (PyPI)"
omp=$(ls /usr/lib/llvm-*/lib/clang/*/include/omp.h 2>/dev/null | tail -n 1)
[ -n "$omp" ] || skip_all "clang's OpenMP is not installed (libomp-dev)"
mkdir include; cp "$omp" include/
cat >cc <<S
#!/bin/bash
# It has no -t, and by itself no libomp.
words=(); for word; do [ "\$word" = -Wl,-t,-t ] || words+=("\$word"); done
exec "$python" -m ziglang cc -target x86_64-linux-gnu.2.28 -mcpu=x86_64_v2 "\${words[@]}"
S
chmod +x cc
# Its compiler may be newer than Debian's libomp, which then lacks what does nothing on a CPU.
nm -D "${omp%/lib/clang/*}"/lib/libomp.so* | grep -q __kmpc_dispatch_deinit || omp_lacks='void __kmpc_dispatch_deinit(void *where, int thread) { (void)where, (void)thread; }'
echo "${omp_lacks-}" >lacks.c; ./cc -c lacks.c -o lacks.o || exit 1
system=$(gcc -print-multiarch)
run env -u MAKEFLAGS -u SANITIZE make -C "$ROOT" -j"$(nproc)" -s O="$WORK/o" CC="$WORK/cc" CCACHE= \
    CPPFLAGS="-idirafter $WORK/include -idirafter /usr/include -idirafter /usr/include/$system" \
    LDFLAGS="-L${omp%/lib/clang/*}/lib -L/usr/lib/$system -Wl,--allow-shlib-undefined $WORK/lacks.o -lomp" all
status 0 "all programs link against glibc 2.28" || grep -E 'error|undefined' err | head -n 20
newest=$(for f in o/bin/tern* o/plugins/tern_spank.so; do objdump -T "$f"; done | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -n 1)
[ "$(printf '%s\n' "$newest" GLIBC_2.28 | sort -V | tail -n 1)" = GLIBC_2.28 ]; ok $? "programs built for glibc 2.28 want nothing newer ($newest)"
LD_LIBRARY_PATH=${omp%/lib/clang/*}/lib run o/bin/tern --version; status 0 "programs built for glibc 2.28 run here"
tap_done
