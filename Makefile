# Stretto.  make, make demo, make test; `make info` says what was found, `make help` what there is.
#
# Settings, on the command line or in config.mk:
#   CC MPICC               compiler, MPI's wrapper (links, and compiles comm/)
#   HDF5_ROOT INIPARSER_ROOT ZLIB_ROOT ONEDNN_ROOT CBLAS_ROOT URING_ROOT   for module systems
#   ONEDNN CBLAS URING     auto (used if there), 0, 1 (missing is an error)
#   OPT                    -O2 -g
#   DEBUG=1                address and undefined sanitizers, fault injection: build/debug/stretto
#   FAULTS=1               fault injection alone: build/faults/stretto
#   WERROR=1  V=1          warnings are errors; show commands
-include config.mk

MPICC ?= mpicc
ONEDNN ?= auto
CBLAS ?= auto
URING ?= auto
OPT ?= -O2 -g
MAKEFLAGS += --no-builtin-rules
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += -j$(shell nproc 2>/dev/null || echo 2)
endif
.DEFAULT_GOAL := all
.SUFFIXES:
.DELETE_ON_ERROR:
export OMPI_CC := $(CC)
export MPICH_CC := $(CC)

# One folder a variant, so that their objects never mix.  The default one also makes ./stretto.
VARIANT := $(if $(filter 1,$(DEBUG) $(SANITIZE)),debug,$(if $(filter 1,$(FAULTS)),faults,release))
VARIANT := $(VARIANT)$(if $(filter 0,$(ONEDNN)),-noonednn)$(if $(filter 0,$(CBLAS)),-nocblas)
VARIANT := $(VARIANT)$(if $(filter 0,$(URING)),-nouring)
BUILD := build/$(VARIANT)

# What this machine has: probed once for each setting.  demo and test install what is missing.
SETTINGS = CC='$(CC)' MPICC='$(MPICC)' ONEDNN='$(ONEDNN)' CBLAS='$(CBLAS)' \
	URING='$(URING)' \
	HDF5_ROOT='$(HDF5_ROOT)' INIPARSER_ROOT='$(INIPARSER_ROOT)' ZLIB_ROOT='$(ZLIB_ROOT)' \
	ONEDNN_ROOT='$(ONEDNN_ROOT)' CBLAS_ROOT='$(CBLAS_ROOT)' URING_ROOT='$(URING_ROOT)'
GOALS := $(or $(MAKECMDGOALS),all)
BUILDING := $(filter-out clean lint format help deps,$(GOALS))
ifneq ($(BUILDING),)
ifneq ($(filter demo test test-long check-san,$(GOALS)),)
DEPS_STATUS := $(shell $(SETTINGS) sh tests/deps.sh 1>&2 || echo failed)
$(if $(DEPS_STATUS),$(error the dependencies are not complete, see above))
endif
CONFIG := $(shell $(SETTINGS) sh tests/probe.sh)
include $(CONFIG)
ifneq ($(MISSING),)
ifneq ($(BUILDING),info)
$(error missing: $(MISSING).  `make deps` installs it where there is apt; for a module system say \
	NAME_ROOT=FOLDER; `make info` shows what was found)
endif
endif
endif

# -std=c11 lets gcc contract a*b+c into an fma nowhere, -std=gnu11 everywhere, and other compilers
# do as they like: the same source has to give the same bits in all of them, so it is fixed here.
BITS := -ffp-contract=off
CFLAGS_ALL := -std=c11 -D_GNU_SOURCE $(BITS) -Wall -Wextra -Wshadow -Wstrict-prototypes \
	-Wmissing-prototypes -Wconversion -Wvla -Wundef -Wformat=2 -Wcast-qual -fno-common \
	$(if $(filter 1,$(WERROR)),-Werror) -Isrc
ifneq ($(filter debug%,$(VARIANT)),)
OPT := -O1 -g
VARIANT_FLAGS := -fsanitize=address,undefined -fno-sanitize-recover=undefined \
	-fno-omit-frame-pointer
# gcc, with sanitizers, sees truncations that cannot be; the release build warns of the real ones.
VARIANT_FLAGS += $(if $(findstring clang,$(CC)),,-Wno-format-truncation)
endif
ifneq ($(filter debug% faults%,$(VARIANT)),)
VARIANT_FLAGS += -DSTRETTO_FAULTS
endif
CFLAGS_ALL += $(OPT) $(VARIANT_FLAGS) $(CFLAGS)

# A folder sees only the libraries that it is the fence of.
CC_comm := $(MPICC)
CC_main := $(MPICC)
CC_ckpt := $(HDF5_CC)
CC_data := $(HDF5_CC)
FLAGS_ckpt := $(HDF5_CFLAGS)
FLAGS_data := $(HDF5_CFLAGS) $(ZLIB_CFLAGS)
FLAGS_job := $(INIPARSER_CFLAGS)
FLAGS_parallel := $(URING_CFLAGS) $(if $(filter 1,$(HAVE_URING)),-DHAVE_URING)
FLAGS_device := -fopenmp $(ONEDNN_CFLAGS) $(CBLAS_CFLAGS) \
	$(if $(filter 1,$(HAVE_ONEDNN)),-DHAVE_ONEDNN) $(if $(filter 1,$(HAVE_CBLAS)),-DHAVE_CBLAS)
LIBS := $(HDF5_LIBS) $(INIPARSER_LIBS) $(ZLIB_LIBS) $(ONEDNN_LIBS) $(CBLAS_LIBS) $(URING_LIBS) \
	-fopenmp -lm

# Kernels are compiled once for every instruction set and compute dtype, what is in once/ for every
# instruction set, and chosen when the program runs.
MARCH_base :=
MARCH_avx2 := -march=x86-64-v3
MARCH_avx512 := -march=x86-64-v4
KERNEL_FLAGS := $(if $(filter debug%,$(VARIANT)),,-O3) -fno-math-errno -fno-trapping-math

SOURCES := $(wildcard src/*.c src/*/*.c src/device/cpu/*.c)
DTYPES := f32 bf16 f16
KERNELS := $(wildcard src/device/cpu/kernels/*.c)
KERNELS_ONCE := $(wildcard src/device/cpu/kernels/once/*.c)
OBJECTS := $(SOURCES:src/%.c=$(BUILD)/%.o) \
	$(foreach isa,$(ISAS),$(KERNELS_ONCE:src/%.c=$(BUILD)/%.$(isa).o) \
	$(foreach dtype,$(DTYPES),$(KERNELS:src/%.c=$(BUILD)/%.$(isa).$(dtype).o)))
PARTS := $(filter-out $(BUILD)/main.o,$(OBJECTS))
TESTS := $(patsubst tests/unit/%.c,$(BUILD)/tests/%,$(wildcard tests/unit/test_*.c))

# Files whose content is a setting: written when it changes, so that make builds what depends on it.
FLAGS_NOW := $(CC) $(MPICC) $(CFLAGS_ALL) $(FLAGS_device) $(FLAGS_parallel) $(KERNEL_FLAGS) \
	$(LIBS) $(LDFLAGS)
stamp = $(if $(BUILDING),$(shell mkdir -p $(dir $1); \
	printf '%s\n' '$2' | cmp -s - $1 || printf '%s\n' '$2' >$1))
$(call stamp,$(BUILD)/flags,$(FLAGS_NOW))
$(call stamp,$(BUILD)/parts,$(sort $(OBJECTS)))

Q := $(if $(filter 1,$(V)),,@)
say = $(if $(filter 1,$(V)),,@printf '  %-5s %s\n' '$1' '$2')
folder = $(firstword $(subst /, ,$*))

.PHONY: all tests faults demo bench bench-programs bench-offload fuzz test test-long check-san \
	lint format info deps clean help
ifneq ($(filter release%,$(VARIANT)),)
all: stretto
endif
all: $(BUILD)/stretto

$(call stamp,build/chosen,$(BUILD))
stretto: $(BUILD)/stretto build/chosen
	$(Q)cp $< $@.tmp && mv -f $@.tmp $@

$(BUILD)/stretto: $(OBJECTS) $(BUILD)/parts
	$(call say,LINK,$@)
	$(Q)$(MPICC) $(VARIANT_FLAGS) $(LDFLAGS) -o $@ $(OBJECTS) $(LIBS)

# $1: instruction set, $2: .dtype or nothing, $3: the option that says it
define kernel_rule
$(BUILD)/device/cpu/kernels/%.$1$2.o: src/device/cpu/kernels/%.c $(BUILD)/flags
	@mkdir -p $$(@D)
	$$(call say,CC,$$< ($1$2))
	$$(Q)$$(CC) $$(CFLAGS_ALL) $$(FLAGS_device) $$(KERNEL_FLAGS) $$(MARCH_$1) -DKERNEL_ISA=$1 $3 \
		-MMD -MP -c -o $$@ $$<
endef
$(foreach isa,$(ISAS),$(eval $(call kernel_rule,$(isa))) \
	$(foreach dtype,$(DTYPES),$(eval $(call kernel_rule,$(isa),.$(dtype),-DKERNEL_DTYPE=$(dtype)))))

$(BUILD)/%.o: src/%.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(or $(CC_$(folder)),$(CC)) $(CFLAGS_ALL) $(FLAGS_$(folder)) -MMD -MP -c -o $@ $<

tests: $(TESTS)
$(BUILD)/tests/%: tests/unit/%.c $(PARTS) $(BUILD)/parts
	@mkdir -p $(@D)
	$(call say,TEST,$@)
	$(Q)$(MPICC) $(CFLAGS_ALL) $(FLAGS_ckpt) $(FLAGS_data) $(FLAGS_job) $(FLAGS_device) -Itests \
		-MMD -MP -MF $@.d -MT $@ $(LDFLAGS) -o $@ $< $(PARTS) $(LIBS)

# The two commands of the README.
demo: all
	. tests/mpi_env.sh && mpirun -n 2 ./stretto train jobs/quickstart.ini
	./stretto generate checkpoints/quickstart

# The executable that can be told to fail, for the tests of failing.
faults: $(BUILD)/stretto
	+$(Q)$(MAKE) FAULTS=1 DEBUG=0 SANITIZE=0 all

test: all tests faults
	sh tests/run.sh $(BUILD)

test-long: all tests faults
	STRETTO_LONG=1 sh tests/run.sh $(BUILD)

# Ours, the bare matrix product and other people's programs on the same jobs, in turns.  Settings:
# ROUNDS CASES PRECISIONS PROGRAMS THREADS STEPS ISA, and where peers are: TORCH_VENV LLMC
# NANOGPT (folders).
BENCH := $(BUILD)/bench/bench $(BUILD)/bench/gemm_peak
bench-programs: all $(BENCH)
bench: bench-programs
	@$(BUILD)/bench/bench stretto=./$(BUILD)/stretto gemm_peak=$(BUILD)/bench/gemm_peak \
		rounds=$(ROUNDS) cases=$(CASES) precisions=$(PRECISIONS) programs=$(PROGRAMS) \
		threads=$(THREADS) steps=$(STEPS) isa=$(ISA) torch_venv=$(TORCH_VENV) \
		llmc=$(LLMC) nanogpt=$(NANOGPT)

BENCH_SOURCES := $(filter-out %/gemm_peak.c %/offload.c,$(wildcard tests/bench/*.c))
BENCH_PARTS := $(filter $(BUILD)/base/%.o,$(PARTS))
BENCH_CC = $(CC) $(CFLAGS_ALL) $(FLAGS_device) $(LDFLAGS) -o $@ $(filter %.c,$^) $(BENCH_PARTS)
$(BUILD)/bench/bench: $(BENCH_SOURCES) tests/bench/bench.h $(BENCH_PARTS) $(BUILD)/parts
	@mkdir -p $(@D)
	$(call say,BENCH,$@)
	$(Q)$(BENCH_CC) -lm
$(BUILD)/bench/gemm_peak: tests/bench/gemm_peak.c $(BENCH_PARTS) $(BUILD)/parts
	@mkdir -p $(@D)
	$(call say,BENCH,$@)
	$(Q)$(BENCH_CC) $(ONEDNN_LIBS) -fopenmp -lm

# Arrays on disk by each way to read and write them, in FOLDER.
bench-offload: $(BUILD)/bench/offload
	$(BUILD)/bench/offload $(or $(FOLDER),build)
$(BUILD)/bench/offload: tests/bench/offload.c $(PARTS) $(BUILD)/parts
	@mkdir -p $(@D)
	$(call say,BENCH,$@)
	$(Q)$(MPICC) $(CFLAGS_ALL) $(LDFLAGS) -o $@ $< $(PARTS) $(LIBS)

# Fuzz the readers of foreign files with clang's libFuzzer, FUZZ_S seconds each.
FUZZ := build/fuzz
FUZZ_SOURCES := $(wildcard $(foreach d,base tensor ckpt comm,src/$d/*.c))
FUZZ_PARTS := $(FUZZ_SOURCES:src/%.c=$(FUZZ)/%.o)
FUZZ_PROGRAMS := $(patsubst tests/fuzz/%.c,$(FUZZ)/%,$(wildcard tests/fuzz/fuzz_*.c))
FUZZ_CC = OMPI_CC=clang MPICH_CC=clang $(MPICC) -std=c11 -D_GNU_SOURCE $(BITS) -Isrc -Itests \
	-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined $(FLAGS_ckpt)
$(FUZZ)/%.o: src/%.c
	@mkdir -p $(@D)
	$(call say,FUZZ,$<)
	$(Q)$(FUZZ_CC) -fsanitize=fuzzer-no-link -MMD -MP -c -o $@ $<
$(FUZZ)/fuzz_%: tests/fuzz/fuzz_%.c tests/fuzz/fuzz.h $(FUZZ_PARTS)
	$(call say,FUZZ,$<)
	$(Q)$(FUZZ_CC) -fsanitize=fuzzer -o $@ $< $(FUZZ_PARTS) $(LDFLAGS) $(LIBS)
.SECONDARY: $(FUZZ_PARTS)
fuzz: all $(FUZZ_PROGRAMS)
	sh tests/fuzz/run.sh $(FUZZ) $(BUILD)/stretto $(or $(FUZZ_S),60)

# Unit tests under the sanitizers, in the debug variant's folder.
ifneq ($(filter debug%,$(VARIANT)),)
check-san: all tests
	sh tests/run.sh -u $(BUILD)
else
check-san:
	+$(Q)$(MAKE) DEBUG=1 check-san
endif

lint:
	$(Q)sh tests/lint.sh --all

format:
	clang-format -i $(shell find src tests -name '*.[ch]')

deps:
	$(Q)$(SETTINGS) sh tests/deps.sh

info:
	@echo "machine   $(MACHINE), kernels for: $(ISAS)"
	@echo "compiler  $(CC), MPI by $(MPICC): $(if $(filter 1,$(HAVE_MPI)),found,MISSING)"
	$(foreach lib,HDF5 INIPARSER ZLIB,@printf '%-10s%s\n' $(lib) \
		'$(if $(filter 1,$(HAVE_$(lib))),$($(lib)_CFLAGS) $($(lib)_LIBS),MISSING)'$(newline))
	$(foreach lib,ONEDNN CBLAS URING,@printf '%-10s%s\n' $(lib) \
		'$(if $(filter 1,$(HAVE_$(lib))),$($(lib)_CFLAGS) $($(lib)_LIBS),not used)'$(newline))
	@echo "variant   $(BUILD)"
	@echo "flags     $(CFLAGS_ALL)"

help:
	@sed -n '1,/^-include/{/^#/s/^# \{0,1\}//p}' Makefile
	@echo 'targets: all tests demo bench bench-programs bench-offload fuzz test test-long check-san'
	@echo '         lint format info deps clean'

clean:
	rm -rf build stretto stretto.tmp

define newline


endef

-include $(OBJECTS:.o=.d) $(FUZZ_PARTS:.o=.d) $(TESTS:=.d)
