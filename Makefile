# tern.  `make` builds into build/; `make demo` and `make check` install what is missing first.
#
#   O=DIR                       build elsewhere
#   SANITIZE=address,undefined  build with sanitizers (in build-<names> unless O says otherwise)
#   V=1                         show commands
#   K=WORD                      with check-<tier>: only tests whose name has the word (a regular expression)
#   LONG=1                      with check-<tier>: only tests that have a long list, with the whole of it
#   SLURM_PREFIX=/opt/slurm     the Slurm to build for; else the one whose scontrol is on PATH, the system's,
#                               or the one in /opt/slurm or /usr/local
#   WITH_TRAINER=no             the tools alone, as for a head node: no train, eval, bench, fabric and link
#   WITH_STORE=no               without object storage (s3://, https://), even where libcurl's headers are
#   WITH_BENCH=yes              `make install` installs `tern bench`, too; it is built in any case, into O/bin
#   DESTDIR= PREFIX=/usr/local  for `make install`, which tells more above its rule

comma := ,
SANITIZE ?=
O ?= build$(if $(SANITIZE),-$(subst $(comma),-,$(SANITIZE)))
# One name for one folder: what depends on what is noted by name.
override O := $(patsubst $(CURDIR)/%,%,$(O))
PREFIX ?= /usr/local
SLURM_PREFIX ?=
V ?= 0
Q := $(if $(filter 1,$(V)),,@)
say = $(if $(filter 1,$(V)),,@printf '  %-6s %s\n' $(1) $(2);)

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.SECONDARY:
MAKEFLAGS += --no-builtin-rules

# ---------------------------------------------------------------- what is needed

# plugins/packaging/needs knows what is needed and what it is called where.  `make deps` installs it on a
# Debian-like machine as root, and elsewhere says what to type.  Tests say what they miss and are skipped.
NEEDS = CC='$(CC)' PKG_CONFIG='$(PKG_CONFIG)' PKG_CONFIG_PATH='$(PKG_CONFIG_PATH)' SLURM_PREFIX='$(SLURM_PREFIX)' \
	CPPFLAGS='$(CPPFLAGS)' CFLAGS='$(CFLAGS)' LDFLAGS='$(LDFLAGS)' plugins/packaging/needs
NEEDS_BUILD := build $(if $(filter no,$(WITH_TRAINER)),,trainer)
# Other people's tools that ours are compared with, as Debian calls them; never needed to build or use tern.
PACKAGES_PEERS := python3-torch libtcmalloc-minimal4 python3-sentencepiece python3-venv debootstrap \
	slurmdbd slurm-wlm-mysql-plugin mariadb-server libomp-dev gcc-aarch64-linux-gnu qemu-user-static chromium

.PHONY: deps deps-peers deps-demo
deps:
	@$(NEEDS) -i $(NEEDS_BUILD) test run?
deps-demo:
	@$(NEEDS) -i $(NEEDS_BUILD) run
deps-peers:
	@$(NEEDS) -p $(PACKAGES_PEERS) || lack=1; bash -c '. tests/lib/venv.sh; if venv_tokenizers; then \
		echo "tokenizers of others: $$VENV/bin/python"; else echo "tokenizers of others: not to be had from PyPI here"; \
		exit 1; fi' && [ -z "$$lack" ]

# ---------------------------------------------------------------- flags

CC := gcc
PKG_CONFIG ?= pkg-config
WITH_TRAINER ?=
PKGS := yaml-0.1 jansson libcrypto sqlite3 $(if $(filter no,$(WITH_TRAINER)),,libfabric pmix) zlib
# Where EFA's installer and ParallelCluster put libraries, before the system's.
empty :=
PKG_CONFIG_PATH := $(subst $(empty) ,:,$(strip $(PKG_CONFIG_PATH) $(wildcard $(foreach d,/opt/amazon/efa /opt/pmix,$(d)/lib64/pkgconfig $(d)/lib/pkgconfig))))
# In braces, for dash itself says where there is no pkg-config; needs lists it.
pkg = $(shell { PKG_CONFIG_PATH='$(PKG_CONFIG_PATH)' $(PKG_CONFIG) $(1); } 2>/dev/null)
# The Slurm whose commands are used here.
SLURM_HEADER := include/slurm/slurm.h
ifeq ($(SLURM_PREFIX),)
override SLURM_PREFIX := $(filter-out /usr,$(patsubst %/$(SLURM_HEADER),%,$(wildcard $(patsubst %/bin/scontrol,%/$(SLURM_HEADER),$(realpath $(shell command -v scontrol))))))
ifeq ($(SLURM_PREFIX)$(wildcard /usr/$(SLURM_HEADER)),)
override SLURM_PREFIX := $(firstword $(patsubst %/$(SLURM_HEADER),%,$(wildcard /opt/slurm/$(SLURM_HEADER) /usr/local/$(SLURM_HEADER) /usr/local/slurm/$(SLURM_HEADER))))
endif
endif
# Where core/tensor finds OpenBLAS when it loads it (it is not linked): OpenMP's build, because two
# thread pools in one process would fight over the cores.
BLAS_DIR ?= $(firstword $(wildcard /usr/lib/*/openblas-openmp))
# WERROR=1, which CI sets: warnings are errors.  Never for users, whose compiler may know new ones.
WERROR ?=
WARN := -Wall -Wextra $(if $(WERROR),-Werror) -Wshadow -Wstrict-prototypes -Wmissing-prototypes \
	-Wold-style-definition -Wpointer-arith -Wvla -Wundef -Wno-psabi
# Sanitized code is compiled in half the time this way, and gcc at -O1 warns of what cannot be.
CFLAGS ?= $(if $(SANITIZE),-O1 -g1,-O2 -g)
WARN += $(if $(SANITIZE),-Wno-format-truncation -Wno-maybe-uninitialized)
SANFLAGS := $(if $(SANITIZE),-fsanitize=$(SANITIZE) -fno-sanitize-recover=all -fno-omit-frame-pointer)
# Other people's headers are the system's: what they do is no warning of ours (Slurm's declare a
# function without void).
SLURM_CFLAGS := $(SLURM_PREFIX:%=-isystem %/include)
SLURM_LIBS := $(foreach d,$(wildcard $(SLURM_PREFIX:%=%/lib) $(SLURM_PREFIX:%=%/lib64)),-L$(d) -Wl,-rpath,$(d)) -lslurm
PKGS_CFLAGS := $(patsubst -I%,-isystem %,$(call pkg,--cflags $(PKGS)))
PKGS_LIBS := $(filter-out -lfabric,$(call pkg,--libs $(PKGS)))
PKGS_LIBS += $(patsubst -L%,-Wl$(comma)-rpath$(comma)%,$(filter -L%,$(PKGS_LIBS)))
# Debian 11's pmix.pc names folders that its headers and library are not in.
PMIX_AT := $(if $(and $(filter pmix,$(PKGS)),$(call pkg,--exists pmix && echo yes)),$(if $(wildcard $(call pkg,--variable=includedir pmix)/pmix.h),,$(firstword $(wildcard /usr/lib/*/pmix2))))
PKGS_CFLAGS += $(PMIX_AT:%=-isystem %/include)
PKGS_LIBS += $(PMIX_AT:%=-L%/lib)
# Compressed texts: by the libraries that are here, beside zlib.
PACKED := $(if $(call pkg,--exists libzstd && echo yes),ZSTD:zstd) $(if $(call pkg,--exists liblzma && echo yes),XZ:lzma) \
	$(if $(shell printf '\043include <bzlib.h>\nint main(void){return !BZ2_bzlibVersion();}' | \
	$(CC) $(CPPFLAGS) -x c - -o /dev/null $(LDFLAGS) -lbz2 2>/dev/null && echo yes),BZIP2:bz2)
# Object storage: by libcurl, which is loaded when it is needed.  WITH_STORE=no does without.
WITH_STORE ?=
CURL := $(if $(filter no,$(WITH_STORE)),,$(call pkg,--exists 'libcurl >= 7.61' && echo yes))
# tern ledger serve: by libmicrohttpd, loaded likewise.
MHD := $(call pkg,--exists 'libmicrohttpd >= 0.9.71' && echo yes)
# No errno from roots: a loop that may set it is not made of vectors (AdamW took 2.7 times as long).
ALL_CFLAGS = -std=gnu11 -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -I. $(SLURM_CFLAGS) $(WARN) $(CPPFLAGS) $(CFLAGS) \
	-fopenmp -ffp-contract=off -fno-math-errno $(SANFLAGS) $(PKGS_CFLAGS)
LIBS := -Wl,--as-needed $(PKGS_LIBS) $(foreach p,$(PACKED),-l$(lastword $(subst :, ,$(p)))) $(SLURM_LIBS) $(BLAS_DIR:%=-Wl,-rpath,%) -lm -ldl -lpthread
# Where ccache is installed, a second clone or a second build takes the same objects from the first:
# no path of the tree stands in them.  CCACHE= does without.
CCACHE ?= $(shell command -v ccache)
CCACHE := $(CCACHE)
compile = $(CCACHE) $(CC) $(ALL_CFLAGS) -ffile-prefix-map=$(CURDIR)=. -MMD -MP
# 22.05.8, from the headers: a plugin works in its own release of Slurm only.
SLURM_VERSION := $(shell printf '\043include <slurm/slurm_version.h>\nSLURM_VERSION_NUMBER\n' | \
	$(CC) $(SLURM_CFLAGS) -E -P - 2>/dev/null | tail -n 1 | \
	{ read -r n && printf '%d.%02d.%d' $$((n >> 16)) $$((n >> 8 & 255)) $$((n & 255)); } 2>/dev/null)

# ---------------------------------------------------------------- rooms, programs, tests

ROOMS := $(patsubst core/%/,%,$(dir $(wildcard core/*/*.c)))
ROOMS := $(sort $(ROOMS))
# The folders of a room in which its sources lie: itself, and those inside it.
sources = $(wildcard core/$(1)/*.c core/$(1)/*/*.c)
# Of core/wire, without a trainer: the rendezvous of ranks, and an error message.
WIRE_WITHOUT := core/wire/rendezvous.c core/wire/absent.c
# tern-inside runs in containers, of whose libc nothing is known: it is static, and there where the
# compiler can do that.
STATIC := $(if $(SANITIZE),,$(shell printf 'int main(void){return 0;}' | \
	$(CC) -static -x c - -o /dev/null 2>/dev/null && echo yes))
TRAINERS := train eval generate bench fabric link
PROGRAMS := $(filter-out $(if $(STATIC),,inside) $(if $(filter no,$(WITH_TRAINER)),$(TRAINERS)),$(sort $(patsubst cmd/%/main.c,%,$(wildcard cmd/*/main.c))))
UNIT := $(patsubst tests/unit/%.c,$(O)/tests/unit/%,$(wildcard tests/unit/*.c))
FUZZ := $(patsubst tests/fuzz/%.c,$(O)/tests/fuzz/%,$(wildcard tests/fuzz/*.c))
TEST_TOOLS := $(patsubst tests/tools/%.c,$(O)/tests/tools/%,$(wildcard tests/tools/*.c))
# The model's maths and the trainer again in double, for tests alone: these programs exist as NAME
# and NAME-f64.
F64_ROOMS := tensor llama plan infer train
F64_TESTS := $(patsubst %,$(O)/tests/%-f64,unit/tensor unit/tensor_bf16 unit/products unit/llama unit/llama_memory unit/decoder tools/check_reference tools/train-ranks)

ifeq ($(WITH_TRAINER),no)
ROOMS := $(filter-out train infer fabric coll flight,$(ROOMS))
SOURCES_OUT := $(filter-out $(WIRE_WITHOUT),$(call sources,wire)) core/health/link.c
else
SOURCES_OUT := core/wire/absent.c
endif
objs = $(patsubst %.c,$(O)/%.o,$(filter-out $(SOURCES_OUT),$(1)))
bin = $(O)/bin/$(if $(filter tern,$(1)),tern,tern-$(1))
ARCHIVES := $(ROOMS:%=$(O)/lib/libtern-%.a)
BINS := $(foreach p,$(PROGRAMS),$(call bin,$(p)))

.PHONY: all
all: $(BINS) plugin

# Before the first file is compiled: a clear word instead of a header that is not found, or of a
# library that is too old.  needs has the words, and its own list of the versions.
HAVE = $(and $(SLURM_VERSION),$(if $(SLURM_PREFIX),$(wildcard $(SLURM_PREFIX)/$(SLURM_HEADER)),yes),$(call \
	pkg,--exists $(foreach p,$(PKGS),'$(p)$(OLDEST_$(p):%= >= %)') && echo yes),$(shell printf 'int main(void){return 0;}' | \
	$(CC) $(CPPFLAGS) $(CFLAGS) -fopenmp -x c - -o /dev/null $(LDFLAGS) $(SLURM_LIBS) 2>/dev/null && echo yes))
OLDEST_sqlite3 := 3.26
OLDEST_libfabric := 1.11
.PHONY: ready
ready:
	$(if $(HAVE),,@$(NEEDS) $(NEEDS_BUILD))

# Some files are compiled for more than the rest is. They are loops that only -O3 makes vectors of,
# and kernels for instruction sets that a CPU may lack. core/tensor asks the CPU before it calls
# them. An attribute or a pragma in the file would be GCC's alone.
FLAGS = $(foreach f,$(2),$(O)/$(f).o $(O)/f64/$(f).o): ALL_CFLAGS += $(1)
AVX2 := -mavx2
AVX512 := -mavx512f -mavx512dq -mavx512bw -mavx512vl -mprefer-vector-width=512
# Combining 1 MiB took 15 % longer where the order of linking put a loop off a cache line.
$(call FLAGS,-falign-functions=64,core/coll/reduce)
$(call FLAGS,-O3,core/coll/reduce core/data/write cmd/bench/memory core/tensor/kernels_plain core/tensor/kernels_avx2 \
	core/tensor/kernels_avx512 core/tensor/gemm_avx2 core/tensor/gemm_avx512 core/tensor/gemm_bf16 cmd/bench/registers_bf16)
ifneq ($(findstring x86_64,$(shell $(CC) -dumpmachine 2>/dev/null)),)
$(call FLAGS,$(AVX2),core/tensor/kernels_avx2 core/tensor/gemm_avx2)
$(call FLAGS,-mfma,core/tensor/gemm_avx2)
$(call FLAGS,$(AVX512),core/tensor/kernels_avx512 core/tensor/gemm_avx512)
# gcc knows it from 10 on, clang from 9.
$(call FLAGS,$(AVX512) $(shell $(CC) -mavx512bf16 -E -x c /dev/null >/dev/null 2>&1 && echo -mavx512bf16),core/tensor/gemm_bf16 cmd/bench/registers_bf16)
endif

$(O)/%.o: %.c $(O)/flags | ready
	@mkdir -p $(@D)
	$(call say,CC,$<)$(compile) -c $< -o $@

# The files of a report's page, in the program: arrays of bytes, which every compiler and linker takes.
PAGE_FILES := $(addprefix core/report/,page.html page.css plot.js page.js)
$(O)/gen/report_files.h: $(PAGE_FILES)
	@mkdir -p $(@D)
	$(call say,GEN,$@){ for kind in html css js; do \
		printf 'static const char report_page_%s[] = {' $$kind; \
		for f in $(PAGE_FILES); do case $$f in *.$$kind) cat $$f ;; esac; done | od -An -v -tu1 | sed 's/[0-9][0-9]*/&,/g'; \
		echo '0};'; done; } >$@.new && mv -f $@.new $@
$(O)/core/report/page.o: $(O)/gen/report_files.h
$(O)/core/report/page.o: ALL_CFLAGS += -I$(O)/gen

# Programs that `tern cluster render` writes, in the program likewise: scripts/a_b.sh is render_a_b_sh.
RENDER_FILES := $(wildcard core/render/scripts/*) cluster-templates/on-node-configured
$(O)/gen/render_files.h: $(RENDER_FILES)
	@mkdir -p $(@D)
	$(call say,GEN,$@){ for f in $(RENDER_FILES); do \
		printf 'static const char render_%s[] __attribute__((unused)) = {' "$$(basename $$f | tr -c 'a-zA-Z0-9\n' _)"; \
		od -An -v -tu1 $$f | sed 's/[0-9][0-9]*/&,/g'; echo '0};'; done; } >$@.new && mv -f $@.new $@
RENDER_OBJECTS := $(patsubst %,$(O)/core/render/%.o,pcluster cfn hyperpod batch)
$(RENDER_OBJECTS): $(O)/gen/render_files.h
$(RENDER_OBJECTS): ALL_CFLAGS += -I$(O)/gen

define room
$(2)/lib/libtern-$(1).a: $(patsubst $(O)/%,$(2)/%,$(call objs,$(call sources,$(1))))
	@mkdir -p $$(@D)
	$$(call say,AR,$(1))rm -f $$@; ar rcsD $$@ $$^
endef
$(foreach r,$(ROOMS),$(eval $(call room,$(r),$(O))))

# A program is linked from its own objects and those that it takes from the rooms' archives.  The
# linker tells which those were (-t), without their folder inside a room (no two have one name).
# They stand in O/used/PROGRAM. A change of any other object links nothing again.  Archives are made
# first, and do not make a program old themselves.
link = $(call linked,-fopenmp $(SANFLAGS),$(LIBS))
USED = $(O)/used/$(@:$(O)/%=%)
linked = mkdir -p $(dir $(USED)) && $(CC) $(CFLAGS) $(1) $(LDFLAGS) -o $@ $(filter %.o,$(OBJECTS)) \
	-Wl,--start-group $(ARCHIVES) -Wl,--end-group $(2) -Wl,-t,-t >$(USED).trace && \
	sed -nE 's,.*$(O)/((f64/)?)lib/libtern-([a-z0-9]+)\.a[()]+([a-z0-9_]+\.o).*,$(O)/\1core/\3/\4 $(O)/\1core/\3/*/\4,p' $(USED).trace | sort -u | sed "s/^/ls -1 /" | sh 2>/dev/null | \
	awk 'BEGIN {printf "%s:", "$@"} {printf " %s", $$1; l = l "\n" $$1 ":"} END {if (NR == 0) printf " $(ARCHIVES)"; print l}' >$(USED) && \
	rm -f $(USED).trace

define program
$(call bin,$(1)): OBJECTS := $(call objs,$(wildcard cmd/$(1)/*.c)) $(O)/cmd/cmd.o
$(call bin,$(1)): $(call objs,$(wildcard cmd/$(1)/*.c)) $(O)/cmd/cmd.o | $(ARCHIVES)
	@mkdir -p $$(@D)
	$$(call say,LD,$$@)$$(link)
endef
$(foreach p,$(PROGRAMS),$(eval $(call program,$(p))))

$(O)/bin/tern-inside: link = $(call linked,-static,-lm -lpthread)

$(UNIT) $(FUZZ) $(TEST_TOOLS): OBJECTS = $@.o $(OBJECTS_MORE)
$(UNIT) $(FUZZ) $(TEST_TOOLS): %: %.o | $(ARCHIVES)
	$(call say,LD,$@)$(link)
$(O)/tests/unit/spank $(O)/tests/tools/raw-sockets: ARCHIVES := # they need no room
$(O)/tests/tools/fabric-ranks: OBJECTS_MORE := $(O)/tests/lib/fabric_random.o
$(O)/tests/tools/fabric-ranks: $(O)/tests/lib/fabric_random.o
$(O)/tests/tools/ledger-log: OBJECTS_MORE := $(O)/plugins/libtern-ledger/log.o
$(O)/tests/tools/ledger-log: $(O)/plugins/libtern-ledger/log.o

$(O)/f64/%.o: %.c $(O)/flags | ready
	@mkdir -p $(@D)
	$(call say,CC,$< in double)$(compile) -DTERN_REAL=double -c $< -o $@
$(foreach r,$(F64_ROOMS),$(eval $(call room,$(r),$(O)/f64)))
F64_ARCHIVES := $(F64_ROOMS:%=$(O)/f64/lib/libtern-%.a) $(filter-out $(F64_ROOMS:%=$(O)/lib/libtern-%.a),$(ARCHIVES))
$(F64_TESTS): ARCHIVES := $(F64_ARCHIVES)
$(F64_TESTS): OBJECTS = $(@:$(O)/%-f64=$(O)/f64/%.o)
$(F64_TESTS): $(O)/%-f64: $(O)/f64/%.o | $(F64_ARCHIVES)
	$(call say,LD,$@)$(link)

# The plugin links libc alone: Slurm's own symbols resolve in the program that loads it.  It is never
# built with sanitizers, whose runtime cannot be loaded into a slurmd that is built without.
PLUGIN := $(if $(wildcard plugins/spank/*.c),$(O)/plugins/tern_spank.so)
# Everything else does without an MPI library; this is there where mpicc (libopenmpi-dev) is.
MPICC ?= $(firstword $(shell command -v mpicc) $(wildcard /opt/amazon/openmpi/bin/mpicc /usr/lib64/openmpi/bin/mpicc) mpicc)
PLUGIN_MPI := $(if $(and $(filter-out xno,x$(WITH_TRAINER)),$(shell command -v $(MPICC))),$(O)/plugins/tern_fabric_mpi.so)
# libfabric is loaded at run time (core/wire/ofi/libfabric.c): with the version of its symbols that
# a linker would have noted. It is loaded perhaps without the libraries that make it slow to load.
LIBFABRIC := $(if $(filter no,$(WITH_TRAINER)),,$(firstword $(wildcard $(call pkg,--variable=libdir libfabric)/libfabric.so \
	$(shell $(CC) -print-file-name=libfabric.so 2>/dev/null))))
FI_ABI := $(if $(LIBFABRIC),$(shell nm -D $(LIBFABRIC) | sed -n 's/.* fi_getinfo@@//p'))
# Objects depend on a stamp of the flags, so that changing them, Slurm's headers or libfabric, rebuilds.
FLAGS_TEXT := $(CC) $(filter-out -Werror,$(ALL_CFLAGS)) (Slurm $(SLURM_VERSION)) $(FI_ABI)
# (make -n changes nothing.)
ifeq ($(findstring n,$(filter-out --%,$(firstword -$(MAKEFLAGS)))),)
ifneq ($(file <$(O)/flags),$(FLAGS_TEXT))
$(shell mkdir -p $(O))
$(file >$(O)/flags,$(FLAGS_TEXT))
endif
ifneq ($(file <$(O)/packed),$(strip $(PACKED) $(CURL:%=CURL) $(MHD:%=MHD)))
$(shell mkdir -p $(O))
$(file >$(O)/packed,$(strip $(PACKED) $(CURL:%=CURL) $(MHD:%=MHD)))
endif
endif
$(O)/flags $(O)/packed: ;
$(O)/core/text/codec.o $(O)/core/arrow/body.o: $(O)/packed
$(O)/core/text/codec.o $(O)/core/arrow/body.o: ALL_CFLAGS += $(foreach p,$(PACKED),-DTERN_WITH_$(firstword $(subst :, ,$(p))))
$(O)/core/store/http.o $(O)/cmd/ledger/serve_http.o: $(O)/packed
$(O)/cmd/ledger/serve_http.o: ALL_CFLAGS += $(if $(MHD),-DTERN_WITH_MHD $(patsubst -I%,-isystem %,$(call pkg,--cflags libmicrohttpd)))
$(O)/core/store/http.o: ALL_CFLAGS += $(if $(CURL),-DTERN_WITH_CURL $(patsubst -I%,-isystem %,$(call pkg,--cflags libcurl)))
$(O)/core/wire/ofi/libfabric.o: ALL_CFLAGS += $(FI_ABI:%=-DTERN_FI_ABI='"%"')
LIBLEDGER := $(O)/plugins/libtern-ledger.so.0
.PHONY: plugin
plugin: $(PLUGIN) $(PLUGIN_MPI) $(LIBLEDGER) $(if $(LIBFABRIC),$(O)/plugins/no-psm/made)
$(O)/plugins/tern_spank.so: $(wildcard plugins/spank/*.[ch] plugins/spank/*.map) $(O)/flags | ready
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) -std=gnu11 -D_GNU_SOURCE -I. $(SLURM_CFLAGS) $(WARN) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -fvisibility=hidden \
		-shared -fPIC -Wl,--version-script=plugins/spank/exports.map -o $@.new \
		$(filter %.c,$^) && mv -f $@.new $@

$(O)/plugins/no-psm/made: plugins/no-psm/make $(LIBFABRIC)
	$(call say,MAKE,$(@D))sh $< "$(CC)" "$(LIBFABRIC)" $(@D) && touch $@

# The compiler ignores mpicc's own -I of a folder that is a system's.
MPI_CFLAGS = $(patsubst -I%,-isystem %,$(filter-out -I/usr/include,$(filter -I%,$(shell $(MPICC) -show 2>/dev/null))))
$(O)/plugins/tern_fabric_mpi.so: plugins/fabric-mpi/fabric_mpi.c core/wire/mpi/table.h $(O)/flags
	@mkdir -p $(@D)
	$(call say,LD,$@)$(MPICC) -std=gnu11 -D_GNU_SOURCE -I. $(MPI_CFLAGS) $(WARN) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -fvisibility=hidden \
		-shared -fPIC -Wl,-z,defs -o $@.new $< && mv -f $@.new $@

# libtern-ledger, for programs of others: what a writer of spools needs, and libc alone.  whose.c reads
# ledgers, too, and that part of it is left out.  Like the plugin it is never built with sanitizers.
LIBLEDGER_OBJECTS := $(patsubst %,$(O)/pic/%.o,plugins/libtern-ledger/log \
	$(addprefix core/ledger/,frame homes record spool spool_file ulid waiting whose) \
	$(addprefix core/base/,again assert clock crc err folder fs fs_bytes log progress rand str vars))
$(O)/pic/%.o: %.c $(O)/flags | ready
	@mkdir -p $(@D)
	$(call say,CC,$@)$(filter-out $(SANFLAGS),$(compile)) -fPIC -ffunction-sections -c $< -o $@
$(LIBLEDGER): $(LIBLEDGER_OBJECTS) plugins/libtern-ledger/exports.map
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) $(CFLAGS) $(LDFLAGS) -shared -Wl,-soname,$(@F) -Wl,--version-script=plugins/libtern-ledger/exports.map \
		-Wl,-z,defs -Wl,--gc-sections -o $@.new $(LIBLEDGER_OBJECTS) -Wl,--as-needed -lm -lpthread && mv -f $@.new $@

# Others, for tests alone: one fails on demand, one takes a container plugin's options.
PLUGINS_TEST := $(O)/tests/spank_fail.so $(O)/tests/pyxis_stub.so $(O)/tests/serial_blas.so
$(O)/tests/serial_blas.so: tests/lib/serial_blas.c
$(filter-out %/serial_blas.so,$(PLUGINS_TEST)): $(O)/tests/%.so: tests/slurm/%.c
$(PLUGINS_TEST): $(O)/flags
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) -std=gnu11 -D_GNU_SOURCE $(SLURM_CFLAGS) $(WARN) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -shared -fPIC -o $@ $(filter %.c,$^)

# A libfabric provider for tests alone, found by FI_PROVIDER_PATH=$(O)/tests/provider.  It is written
# to what providers are from libfabric 1.15 on.
PROVIDER_TEST := $(if $(call pkg,--exists 'libfabric >= 1.15' && echo yes),$(O)/tests/provider/libternsrd-fi.so)
LIBFABRIC_AT := $(filter -L%,$(call pkg,--libs libfabric))
LIBFABRIC_AT += $(LIBFABRIC_AT:-L%=-Wl$(comma)-rpath$(comma)%)
$(O)/tests/provider/libternsrd-fi.so: $(wildcard tests/provider/*.[ch]) $(O)/flags
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) -std=gnu11 -D_GNU_SOURCE -I. $(WARN) $(CPPFLAGS) $(CFLAGS) $(SANFLAGS) $(PKGS_CFLAGS) -fvisibility=hidden \
		-shared -fPIC -o $@.new $(filter %.c,$^) $(LDFLAGS) $(LIBFABRIC_AT) -lfabric && mv -f $@.new $@

# A file that was moved or removed leaves notes of what it depended on: they go before they are read.
MOVED := $(foreach d,$(shell find $(O)/core $(O)/cmd $(O)/f64 -name '*.d' 2>/dev/null),$(if $(wildcard $(patsubst f64/%,%,$(d:$(O)/%.d=%.c))),,$(d)))
ifneq ($(MOVED),)
$(shell rm -f $(MOVED) $(MOVED:.d=.o))
endif
-include $(shell find $(O) -name '*.d' -o -path '$(O)/used/*' -type f ! -name '*.trace' 2>/dev/null)

# ---------------------------------------------------------------- man pages

.PHONY: man
MAN := $(patsubst $(O)/bin/%,$(O)/man/man1/%.1,$(BINS))
man: $(MAN) $(O)/man/topics $(O)/man/api
$(O)/man/man1/%.1: $(O)/bin/%
	@mkdir -p $(@D)
	@$< --help-man > $@
# Topics and file formats: `tern` says which pages there are (tern-parallel.7).
$(O)/man/topics: $(O)/bin/tern
	@rm -rf $(O)/man/man5 $(O)/man/man7 && mkdir -p $(O)/man/man5 $(O)/man/man7
	@for page in $$($< --help-topics); do \
		$< --help-man $$page > $(O)/man/man$${page##*.}/$$page || exit 1; done && touch $@

# Functions of libtern-ledger, from its header.
$(O)/man/api: plugins/libtern-ledger/man3 plugins/libtern-ledger/ledger.h core/base/version.h
	@rm -rf $(O)/man/man3 && mkdir -p $(O)/man/man3
	@plugins/libtern-ledger/man3 $(O)/man/man3 && touch $@

# ---------------------------------------------------------------- install

# Installs programs, man pages and plugins under PREFIX: lib/slurm/tern_spank-<Slurm release>.so,
# lib/tern/no-psm for libfabric, and libtern-ledger, its header and its .pc. Where mpicc was,
# lib/tern/tern_fabric_mpi.so, too. SPANK's line goes as tern.conf into the folder that the site's
# plugstack.conf includes; where it includes none, the line is printed.  Slurm is asked where that
# is.  `make uninstall` undoes all of it.
#
#   SLURM_PREFIX=DIR   Slurm, when its commands are not on PATH (also what is built against)
#   SLURM_CONF=FILE    its configuration, when that is not where Slurm looks
#   PLUGSTACK_DIR=DIR  the folder for tern.conf, whatever Slurm says (for packages)
#   WITH_PLUGIN=no     the plugin is left out
# By the environment, so that a quote in a path is no shell's business.
install uninstall: export BUILD := $(O)
install uninstall: export BUILT_FOR := $(SLURM_VERSION)
install uninstall: export PREFIX := $(PREFIX)
install uninstall: export DESTDIR := $(DESTDIR)
install uninstall: export SLURM_PREFIX := $(SLURM_PREFIX)
install uninstall: export SLURM_CONF := $(SLURM_CONF)
install uninstall: export PLUGSTACK_DIR := $(PLUGSTACK_DIR)
install uninstall: export WITH_PLUGIN := $(WITH_PLUGIN)
install uninstall: export WITH_BENCH := $(WITH_BENCH)

.PHONY: install uninstall
install: all man
	@plugins/spank/install install
uninstall:
	@plugins/spank/install uninstall

# ---------------------------------------------------------------- packages

# plugins/packaging/package tells what they are; they lie in O/dist.
dist deb rpm: export BUILD := $(O)
dist deb rpm: export BUILT_FOR := $(SLURM_VERSION)
dist deb rpm: export SLURM_PREFIX := $(SLURM_PREFIX)
.PHONY: dist deb rpm
dist:
	@plugins/packaging/package dist
deb rpm: dist
	@plugins/packaging/package $@

# ---------------------------------------------------------------- checks

export TERN_BUILD := $(abspath $(O))
export TERN_SANITIZE := $(SANITIZE)
check check-% bounds: export SLURM_PREFIX := $(SLURM_PREFIX)

.PHONY: check check-all check-bytes check-long check-unit check-cli check-multi check-slurm check-fault check-peers \
	check-fuzz check-layers check-headers bounds tests tests-float lint mutants
ifeq ($(WITH_TRAINER),no)
tests tests-float:
	@echo "The tests want the whole of tern: build without WITH_TRAINER=no." >&2; exit 1
else
tests: tests-float $(F64_TESTS)
	@:
tests-float: all man $(UNIT) $(TEST_TOOLS) $(PLUGINS_TEST) $(PROVIDER_TEST)
	@:
endif

# The README's commands build on all cores, unless make has a -j option.
ALL_CORES = $(if $(findstring -j,$(MAKEFLAGS)),,-j$(shell nproc))

# slurm.conf and plugstack.conf hold no path with blanks.
.PHONY: path
path:
	@case '$(subst ','\'',$(CURDIR))' in *[[:blank:]]*) \
		echo 'The path of this folder has a blank, which Slurm cannot load a plugin from: move it.' >&2; exit 1;; esac

check: path deps
	@$(MAKE) $(ALL_CORES) --no-print-directory tests check-layers check-headers
	@tests/run unit cli multi

RUN_TESTS = tests/run $(if $(LONG),-l) $(if $(K),-k '$(K)')
check-unit check-cli check-multi check-slurm check-fault check-peers: check-%:
	@$(MAKE) $(ALL_CORES) --no-print-directory tests
	@$(RUN_TESTS) $*

# The long lists of those three tiers.
check-long:
	@$(MAKE) $(ALL_CORES) --no-print-directory tests
	@tests/run -l $(if $(K),-k '$(K)') unit cli multi

# The tests of rooms that handle memory, bytes and descriptors, for sanitizers: not the sweeps of
# arithmetic, which take them half an hour.
check-bytes:
	@$(MAKE) $(ALL_CORES) --no-print-directory tests-float
	@tests/run -x '^unit/(tensor|products|llama)' -k '^unit/|^cli/|^multi/(fabric|flight|data|mirror)' unit cli multi

# Mutated input, always under sanitizers.
check-fuzz:
ifeq ($(SANITIZE),)
	@$(MAKE) --no-print-directory SANITIZE=address,undefined check-fuzz
else
	@$(MAKE) $(ALL_CORES) --no-print-directory tests-float $(FUZZ)
	@$(RUN_TESTS) fuzz
endif

# Everything, stage by stage; what passed at this commit is not run again.
check-all:
	@tests/all $(STAGES)

# What is promised of times, rates and memory: on a machine that does nothing else.
bounds:
	@$(MAKE) $(ALL_CORES) --no-print-directory tests
	@tests/run -b $(if $(K),-k '$(K)') unit cli multi slurm fault

check-layers:
	@tests/lib/check-layers

# What a machine can keep of the house's habits.
lint: all
	@tests/lib/lint

# Would the tests notice a broken line?  By hand: an hour and more.
mutants: tests-float
	@tests/mutants/run

# Every header compiles alone.  One that did is not tried again until something in it changes.
HEADERS := $(patsubst %,$(O)/headers/%.ok,$(wildcard core/*/*.h core/*/*/*.h cmd/*.h cmd/*/*.h))
check-headers: $(HEADERS)
	@echo "headers: ok"
$(O)/headers/%.ok: % $(O)/flags
	@mkdir -p $(@D)
	$(Q)printf '#include "%s"\n' $< | $(CC) $(ALL_CFLAGS) -MMD -MP -MF $(@:.ok=.d) -MT $@ -fsyntax-only -x c - && touch $@ \
		|| { echo "$< does not compile alone"; exit 1; }

.PHONY: format clean
format:
	clang-format -i $$(git ls-files '*.c' '*.h')
clean:
	rm -rf $(O)

# ---------------------------------------------------------------- demo

.PHONY: demo demo-clean figures
demo: path deps-demo
	@$(MAKE) $(ALL_CORES) -s --no-print-directory all
	@cluster-templates/trn1-4/demo $(O)/demo $(O)/bin
# Texts in ../shared/data; a half hour of two cores.
figures: path
	@$(MAKE) $(ALL_CORES) -s --no-print-directory all
	@cluster-templates/figures/figures $(O)/figures $(O)/bin ../shared/data
demo-clean:
	@[ ! -x $(O)/bin/tern ] || cluster-templates/trn1-4/demo --clean $(O)/demo $(O)/bin
