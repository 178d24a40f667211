#!/bin/bash
# What a build needs and does not find is named in the words of the machine's package manager; what
# it does find it takes from where the options say, and nothing from the current folder.
. "$(dirname "$0")/../lib/tap.sh"
cp "$ROOT/plugins/packaging/needs" needs; chmod 755 needs # another user may not reach the tree
NEEDS=$WORK/needs

chmod 755 "$WORK"
# A machine with nothing but a shell's tools and one package manager, where all is missing.
machine() { # MANAGER or ""
    rm -rf bin; mkdir bin
    for p in sh bash env mktemp rm cat grep sed tr sort id echo printf head true false dirname; do ln -s "$(command -v $p)" bin/ 2>/dev/null; done
    [ -z "$1" ] || { printf '#!/bin/sh\necho "$0 $*" >>%s/managed\n' "$WORK" >bin/"$1"; chmod +x bin/"$1"; }
}
system() { printf 'NAME="x"\nID="%s"\nID_LIKE="%s"\nVERSION_ID="%s"\n' "$@" >os; } # ID LIKE VERSION
lacks() { run env -i PATH="$WORK/bin" CC=gcc OS_RELEASE="$WORK/os" "$@"; }
# The command that stands below a line with WORD: its packages.
command_below() { sed -n "/^$1/{n;s/^  //p}" err; }
system fedora '' 42
for m in apt-get dnf zypper; do
    machine $m
    lacks "$NEEDS" build trainer
    status 1 "needs lists all packages, beside $m"
    err_has "a C compiler (gcc)"; err_has "pkg-config"; err_has "libfabric"; err_has "libyaml"
    case $m in
    apt-get) err_has 'apt-get install -y --no-install-recommends'; err_has ' libslurm-dev'; err_has ' libfabric-dev' ;;
    dnf) err_has 'dnf install -y'; err_has ' slurm-devel'; err_has ' libyaml-devel'; ;;
    zypper) err_has 'zypper install -y'; err_has ' libjansson-devel' ;;
    esac
    err_has 'SLURM_PREFIX=/opt/slurm' "where else Slurm may be"
    [ ! -e managed ]; ok $? "nothing is installed unasked" || cat managed
done
# A manager refuses a whole command for one name that it does not know.
for m in 'apt-get libyaml-dev libzstd-dev' 'dnf libyaml-devel libzstd-devel' 'zypper libyaml-devel libzstd-devel'; do
    read -r m must may <<<"$m"
    machine "$m"; lacks "$NEEDS" build
    command_below Missing >must; command_below Not >may
    grep -q "$m install .* $must" must && ! grep -q "$may" must; ok $? "$m: what is needed is one command, without what is not" || cat err
    grep -q "$m install .* $may" may && ! grep -q "$must" may; ok $? "$m: what can be done without is a second command" || cat err
    lacks "$NEEDS" 'build?'
    [ "$(grep -c "$m install" err)" = 1 ]; ok $? "$m: where nothing is needed there is one command" || cat err
done
# What a system's own repositories lack.
machine dnf
lacks "$NEEDS" build trainer
! grep -q 'Enable\|Not from' err; ok $? "Fedora has all packages" || cat err
system rocky 'rhel centos fedora' 9.4; lacks "$NEEDS" build trainer
err_has "  Enable CRB (CodeReady Builder) first, for libyaml-devel jansson-devel pmix-devel libfabric-devel libmicrohttpd-devel." "Rocky 9: CRB is to be enabled, and for which packages"
err_has "  Enable EPEL first, for slurm-devel." "Rocky 9: EPEL is to be enabled, and for which packages"
lacks "$NEEDS" test
! grep -q Enable err; ok $? "Rocky 9: no word of a repository that nothing is missing from" || cat err
system rhel fedora 8.10; lacks "$NEEDS" build
err_has "  Enable PowerTools (CodeReady Builder) first, for libyaml-devel jansson-devel libmicrohttpd-devel." "RHEL 8: its name for CRB"
system amzn fedora 2023; lacks "$NEEDS" build trainer
err_has "  Not from Amazon Linux: slurm-devel pmix-devel libfabric-devel. Slurm," "Amazon Linux: what it has no packages of"
err_has "EFA's installer; else build them from source." "Amazon Linux: where such libraries are from"
command_below Missing >must
grep -q 'dnf install .* libyaml-devel' must && ! grep -qE 'slurm|pmix|libfabric' must; ok $? "Amazon Linux: dnf is asked for no package that is not there" || cat err
system fedora '' 42
machine ''
lacks "$NEEDS" build
status 1 "beside no manager that it knows"
err_has "Debian, Ubuntu:"; err_has "Fedora, RHEL, Amazon Linux:"; err_has "SUSE:"
lacks "$NEEDS" 'build?'
status 0 "what can be done without is no failure"
err_has "done without: a C compiler"
lacks "$NEEDS" nonsense
status 2
# Only Debian's is asked to install, and by root.
machine dnf; lacks "$NEEDS" -i build; status 1; [ ! -e managed ]; ok $? "dnf is never run"
if [ "$(id -u)" = 0 ]; then
    machine apt-get; lacks "$NEEDS" -i build; has managed "install -y -qq --no-install-recommends" "root's apt-get is"
    # ... and what it installed is then found.
    printf '#!/bin/sh\n[ "$1" = update ] || %s %s/bin/\n' "$(command -v ln) -s $(for p in gcc as ld make pkg-config; do command -v $p; done | paste -sd' ')" "$WORK" >bin/apt-get
    lacks PKG_CONFIG=pkg-config SLURM_PREFIX="${SLURM_PREFIX-}" "$NEEDS" -i build; status 0 "nothing is missing any more" || cat err
    # A package that is done without and cannot be had does not keep the others away.
    machine apt-get; rm -f managed
    printf '#!/bin/sh\ncase "$*" in *libzstd-dev*) exit 100 ;; install*) echo "$*" >>%s/managed ;; esac\n' "$WORK" >bin/apt-get
    lacks "$NEEDS" -i build; has managed " libyaml-dev " "where an optional package cannot be had, the needed ones are installed"
    lacks "$NEEDS" -i 'build?'; status 0 "where optional packages alone lack and cannot be had, that is no failure"
    machine apt-get; rm -f managed
    run setpriv --reuid 65534 --regid 65534 --clear-groups env -i PATH="$WORK/bin" "$NEEDS" -i build
    [ ! -e managed ] && grep -q 'sudo apt-get install' err; ok $? "another user gets the line with sudo" || cat err
fi
run "$NEEDS" build; status 0 "here nothing is missing"; [ ! -s err ] && [ ! -s out ]; ok $? "needs prints nothing where nothing is missing" || cat out err

# ---- make
by_make() { run make -C "$ROOT" -s O="$WORK/o" ${TERN_SANITIZE:+SANITIZE="$TERN_SANITIZE"} "$@"; }
by_make SLURM_PREFIX="$WORK/nowhere" all
[ "$rc" != 0 ]; ok $? "a prefix without Slurm"
err_has "SLURM_PREFIX=$WORK/nowhere: there is no include/slurm/slurm.h in it"
[ -z "$(find o -name '*.o' 2>/dev/null)" ]; ok $? "before anything is compiled"
by_make PKG_CONFIG=false all
[ "$rc" != 0 ]; ok $? "no library is found"
err_has "Missing: "; err_has "jansson (jansson)"
by_make PKG_CONFIG=no-such-pkg-config all
[ "$rc" != 0 ] && ! grep 'not found' err; ok $? "without pkg-config, make prints no message of the shell" || cat err
by_make CC=no-such-compiler all
[ "$rc" != 0 ]; ok $? "make without a compiler fails"; err_has "a C compiler (no-such-compiler)"

# ---- what is there, and not enough: one word from needs, and the same from make
too_little() { # WORDS OPTION...: of make and of needs, from the environment
    local words=$1; shift
    run env CC=gcc SLURM_PREFIX="${SLURM_PREFIX-}" "$@" "$NEEDS" build trainer
    [ "$rc" = 1 ] && grep -qxF "Missing: $words." err; ok $? "needs says what is not enough: $words" || cat err
    run env PKG_CONFIG_PATH= "$@" make -C "$ROOT" -s O="$WORK/o" "$@" ready
    [ "$rc" = 2 ] && grep -qxF "Missing: $words." err; ok $? "make says what is not enough: $words" || cat err
}
old() { # MODULE VERSION
    rm -rf old; mkdir old
    printf 'Name: %s\nDescription: an old one\nVersion: %s\nCflags:\nLibs:\n' "$1" "$2" >old/"$1".pc
}
old sqlite3 3.25.3; too_little "SQLite 3.26 or newer (sqlite3, here 3.25.3)" PKG_CONFIG_PATH="$WORK/old"
old libfabric 1.10.1; too_little "libfabric 1.11 or newer (libfabric, here 1.10.1)" PKG_CONFIG_PATH="$WORK/old"
for oldest in 'sqlite3 3.26.0' 'libfabric 1.11.0'; do
    # shellcheck disable=SC2086 # a module and its version
    old $oldest
    run env PKG_CONFIG_PATH="$WORK/old" "$NEEDS" build trainer; status 0 "needs takes $oldest"
    by_make PKG_CONFIG_PATH="$WORK/old" ready; status 0 "make takes $oldest"
done
# A compiler that refuses one option, as one without OpenMP does, and a linker that does not find a library.
printf '#!/bin/sh\nfor a; do [ "$a" != "$REFUSED" ] || { echo "no $a" >&2; exit 1; }; done\nexec gcc "$@"\n' >refuses; chmod +x refuses
too_little "OpenMP for $WORK/refuses" CC="$WORK/refuses" REFUSED=-fopenmp
too_little "Slurm's library (libslurm.so), whose headers are here" CC="$WORK/refuses" REFUSED=-lslurm

# ---- warnings stop no build but a developer's, and those of other people's headers are not shown
by_make -n WERROR= "$WORK/o/core/base/crc.o"; out_has ' -Wall ' "make -n prints how a file is compiled"
! grep -q -- '-Werror' out; ok $? "without WERROR no warning is an error" || grep -o -- '-Werror[^ ]*' out
by_make -n WERROR=1 "$WORK/o/core/base/crc.o"; out_has ' -Werror ' "with WERROR=1 each warning is an error"
printf '#!/bin/sh\necho gcc -I/opt/mpi/include -I/usr/include -L/opt/mpi/lib -lmpi\n' >mpicc; chmod +x mpicc
by_make -n MPICC="$WORK/mpicc" "$WORK/o/plugins/tern_fabric_mpi.so"
out_has ' -isystem /opt/mpi/include ' "MPI's headers are the system's"
! grep -q -- '-isystem /usr/include ' out; ok $? "the system's own folder keeps its place among the headers" || cat out

# ---- a libfabric in a folder of its own, as EFA's installer leaves it
mkdir -p efa/pkgconfig
printf 'Name: libfabric\nDescription: fabric\nVersion: 1.22.0\nCflags: -I%s/efa/include\nLibs: -L%s/efa/lib -lfabric\n' "$WORK" "$WORK" >efa/pkgconfig/libfabric.pc
for made in core/wire/ofi/ofi.o tests/provider/libternsrd-fi.so; do
    PKG_CONFIG_PATH=$WORK/efa/pkgconfig CPPFLAGS=-DFROM_CPPFLAGS LDFLAGS=-Lfrom-ldflags by_make -n "$WORK/o/$made"
    out_has "-isystem $WORK/efa/include" "$made is compiled with the headers of the libfabric that pkg-config names"
    out_has "-DFROM_CPPFLAGS" "$made is compiled with CPPFLAGS from the environment"
done
out_has "-L$WORK/efa/lib -Wl,-rpath,$WORK/efa/lib -lfabric" "a program of tests is linked with that libfabric, and finds it when it runs"
out_has "-Lfrom-ldflags" "a program of tests is linked with LDFLAGS from the environment"
by_make -n CPPFLAGS= BLAS_DIR= "$WORK/o/bin/tern"
out_has "-o $WORK/o/bin/tern" "make -n prints how tern is linked"
! grep -qE -- '-rpath,( |$)' out; ok $? "without a folder of OpenBLAS there is no empty search path" || grep -oE '.{30}-rpath.{20}' out

# ---- what is up to date is not made again, however many jobs make was given
by_make -j3 "$WORK/o/core/base/crc.o"; status 0 "make -j3 builds one object" || cat err
[ -s o/flags ]; ok $? "the flags it was made with are noted"
touch -r o/core/base/crc.o then; by_make -j3 "$WORK/o/core/base/crc.o"
[ ! o/core/base/crc.o -nt then ]; ok $? "an object is not compiled again when nothing has changed"

# ---- nothing is loaded from the current folder
bad=0
for f in "$BIN"/tern* "$BIN"/../plugins/*.so; do
    readelf -d "$f" 2>/dev/null | sed -nE 's/.*R(UN)?PATH.*\[(.*)\]/\2/p' | tr ':' '\n' | grep -vE '^/' && { bad=1; echo "# $f"; }
done
ok $bad "no search path is empty or relative"
tap_done
