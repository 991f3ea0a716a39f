# moetitan: one Makefile, no recursion into folders. `make help` lists the targets.
# Everything made lies in build/<variant>/; a change of flags, compiler or probed features rebuilds what it touches.
VERSION := 0.1.0

# What a person may set: make CUDA=0, make CC=clang, make WERROR=1, make install PREFIX=/opt/moetitan
CC := gcc
AR := ar
CUDA ?= auto#       auto: use NVIDIA's headers if they are there; 1: they must be; 0: leave them alone
NCCL ?= auto
MPI ?= auto
SQLITE ?= auto
MPICC ?= mpicc#   the MPI whose compiler wrapper this is
CUDA_HOME ?= /usr/local/cuda
WERROR ?= 0
PREFIX ?= /usr/local
DESTDIR ?=
BUILD ?= build
CFLAGS ?=
LDFLAGS ?=
CLANG ?= clang
FUZZ_SECONDS ?= 60
BENCH ?= full#       make bench: full, quick, or a pattern of the comparisons to make
CROSS_AARCH64 ?= aarch64-linux-gnu-

.DEFAULT_GOAL := release
MAKEFLAGS += --no-builtin-rules
.SUFFIXES:
.SECONDARY:
.DELETE_ON_ERROR:
SHELL := /bin/bash

# ---- variants ------------------------------------------------------------------------------------------------
VARIANTS := release debug asan tsan tsan-plain aarch64 fuzzer
flags_release := -O2 -g
# xxhash insists on inlining what -Og does not inline, unless told not to.
flags_debug := -Og -g3 -DMT_DEBUG -DXXH_NO_INLINE_HINTS=1
# Sanitizers name functions and lines; with -g GCC follows the variables of some tests for minutes.
flags_asan := -O1 -g1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all
# GCC expands a memset or memcpy of known size inline, where ThreadSanitizer does not see it.
flags_tsan := -O1 -g1 -fno-omit-frame-pointer -fsanitize=thread \
              -fno-builtin-memset -fno-builtin-memcpy -fno-builtin-memmove
flags_tsan-plain := $(flags_tsan) -DMT_TSAN_PLAIN
flags_aarch64 := -O2 -g -isystem $(BUILD)/aarch64-sysroot/usr/include
flags_fuzzer := -w -O1 -g -fno-omit-frame-pointer -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all
# The CPU's kernels are the hot loops.
# Nothing looks at errno after a root, and a root that may set it is no vector operation.
hot_release := -O3 -fno-math-errno
hot_aarch64 := -O3 -fno-math-errno
hot_asan := -O2
hot_tsan := -O2
ld_aarch64 := -L$(BUILD)/aarch64-sysroot/usr/lib/aarch64-linux-gnu
ld_fuzzer := -fsanitize=fuzzer
tool_aarch64 := $(CROSS_AARCH64)
cc_aarch64 := $(CROSS_AARCH64)gcc
cc_fuzzer := $(CLANG)
# A fuzz target brings its own main where no fuzzer does.
fuzz_main = $(if $(filter fuzzer,$1),,-DMT_FUZZ_MAIN)

cc = $(or $(cc_$1),$(CC))
ar = $(tool_$1)$(AR)
host_machine := $(firstword $(subst -, ,$(or $(shell $(CC) -dumpmachine 2>/dev/null),$(shell uname -m))))
machine = $(if $(tool_$1),$1,$(host_machine))

# ---- flags ---------------------------------------------------------------------------------------------------
WARN := -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wundef -Wpointer-arith \
        -Wwrite-strings -Wformat=2 -Wdouble-promotion -Wimplicit-fallthrough -Wconversion -Wno-sign-conversion
BASE := -std=c11 -D_GNU_SOURCE -ffp-contract=off -fno-common -pthread $(WARN) $(if $(filter 1,$(WERROR)),-Werror)
LIBS := -Wl,--as-needed -lyaml -lcjson -lpcre2-8 -lutf8proc -lzstd -lm -lpthread -ldl
# The baseline is x86-64-v2; what needs more is in a file named for it, entered only after a look at the processor.
march_x86_64 := -march=x86-64-v2 -mtune=generic

v_avx2 := -mavx2 -mfma
v_avx512 := $(v_avx2) -mavx512f -mavx512bw -mavx512vl -mavx512dq
v_avx512bf16 := $(v_avx512) -mavx512bf16
v_amx := $(v_avx512bf16) -mamx-tile -mamx-bf16
v_neonbf16 := -march=armv8.2-a+bf16
X86_ISAS := avx2 avx512 avx512bf16 amx
ARM_ISAS := neon neonbf16
isa = $(filter $(X86_ISAS) $(ARM_ISAS),$(lastword $(subst _, ,$(basename $(notdir $1)))))
foreign_x86_64 := $(ARM_ISAS)
foreign_aarch64 := $(X86_ISAS)
native = $(foreach s,$2,$(if $(filter $(foreign_$(call machine,$1)),$(call isa,$s)),,$s))

# MPI: the variants that people run have it, where one is found; the files named for it are then compiled.
mpi_variants := release debug
mpi_libs_found := $(if $(filter 0,$(MPI)),,$(shell MPICC=$(MPICC) scripts/mpi.sh libs))
mpi_cflags := $(if $(mpi_libs_found),$(patsubst -I%,-isystem %,$(shell MPICC=$(MPICC) scripts/mpi.sh cflags)))
mpi_found := $(if $(mpi_libs_found),$(shell printf '\043include <mpi.h>\n' | $(CC) -x c -fsyntax-only $(mpi_cflags) - 2>/dev/null && echo yes))
mpi_libs := $(if $(mpi_found),$(mpi_libs_found))
mpi_files := src/comm/mpi%
# MPICH's MPI_STATUSES_IGNORE is the address 1, which GCC takes for a place that is written to.
mpi_quiet := -Wno-stringop-overflow
has_mpi = $(and $(mpi_found),$(filter $(mpi_variants),$1))

# SQLite, for the results of sweeps: in the variants that people run and in those that test memory, where it is found.
sqlite_variants := release debug asan tsan tsan-plain
sqlite_found := $(if $(filter 0,$(SQLITE)),,$(shell printf '\043include <sqlite3.h>\n' | $(CC) -x c -fsyntax-only - 2>/dev/null && echo yes))
sqlite_files := src/sweep/sqlite%
has_sqlite = $(and $(sqlite_found),$(filter $(sqlite_variants),$1))
lacking = $(if $(call has_mpi,$1),,$(mpi_files)) $(if $(call has_sqlite,$1),,$(sqlite_files))

# CUDA: with nvcc and NVIDIA's headers the program gets the device of cuda/. Its runtime is linked in, libraries are opened at
# run time: the program starts on machines that have none of it.
cuda_variants := release debug
NVCC ?= $(or $(wildcard $(CUDA_HOME)/bin/nvcc),$(shell command -v nvcc 2>/dev/null))
cuda_inc := $(firstword $(foreach d,$(CUDA_HOME)/include /usr/include,$(if $(wildcard $d/cublasLt.h),$d)))
cuda_runtime := $(firstword $(wildcard $(CUDA_HOME)/lib64/libcudart_static.a $(CUDA_HOME)/lib/libcudart_static.a \
                                       $(CUDA_HOME)/targets/*/lib/libcudart_static.a /usr/lib/*/libcudart_static.a))
cuda_found := $(if $(filter 0,$(CUDA)),,$(and $(NVCC),$(cuda_inc),$(cuda_runtime)))
# NCCL: where its headers are; the files named for it are then compiled.
nccl_found := $(if $(filter 0,$(NCCL)),,$(if $(cuda_inc),$(shell printf '\043include <nccl.h>\n' | $(CC) -x c -fsyntax-only -isystem $(cuda_inc) - 2>/dev/null && echo yes)))
nccl_files := cuda/nccl%
has_cuda = $(and $(cuda_found),$(filter $(cuda_variants),$1))
cuda_cflags := -I. -Icuda -Icuda/include -isystem $(cuda_inc)
cuda_libs := $(cuda_runtime) -lrt -lpthread -ldl
# A spilled register is an error; nothing of the C++ library is used.
NVCCFLAGS := -std=c++17 -O3 -Xptxas -v,-warn-spills,-Werror -Xcompiler -fno-threadsafe-statics,-fno-exceptions,-fno-rtti \
             -gencode arch=compute_90a,code=sm_90a -Isrc -Icuda -Icuda/include

# ---- sources -------------------------------------------------------------------------------------------------
SRC := $(sort $(wildcard src/*/*.c src/*/*/*.c src/*/*/*/*.c))
HEADERS := $(sort $(wildcard src/*/*.h src/*/*/*.h src/*/*/*/*.h))
CHECKED_HEADERS := $(if $(mpi_found),$(HEADERS),$(filter-out $(mpi_files),$(HEADERS)))
# cuDNN's attention where its headers are.
cudnn_found := $(and $(cuda_inc),$(wildcard $(cuda_inc)/cudnn_graph.h))
CUDA_SRC := $(filter-out $(if $(nccl_found),,$(nccl_files)) \
                $(if $(cudnn_found),cuda/dnn_none.c,$(filter-out cuda/dnn_none.c,$(wildcard cuda/dnn_*.c))),\
                $(sort $(wildcard cuda/*.c cuda/*.cu)))
CUDA_HEADERS := $(wildcard cuda/*.h cuda/include/*) src/device/call.h src/device/op.def
BENCHES := $(sort $(wildcard tests/bench/bench_*.c))
FUZZERS := $(sort $(wildcard tests/fuzz/fuzz_*.c))
# What takes long under an emulator of the processor, and depends on none, is left out there.
folders_aarch64 := tests/base tests/config tests/data tests/device
tests = $(sort $(wildcard $(shell scripts/run_tests.sh --list $1 $(folders_$1))))
FORMATTED := $(wildcard src/*.c) $(SRC) $(HEADERS) $(wildcard tests/*.h tests/*/*.c tests/*/*.h)

# Header files whose coming or going changes what a probe finds.
PROBED := $(cuda_found) $(cudnn_found) $(wildcard $(CUDA_HOME)/include/cuda_runtime.h /usr/include/nccl.h /usr/lib/*/openmpi/include/mpi.h /usr/include/sqlite3.h)

# The two builds under ThreadSanitizer differ in what looks at MT_TSAN_PLAIN; the rest is compiled once.
watching := $(patsubst %.c,%.o,$(shell grep -lE 'exec_watch\.h|MT_TSAN_PLAIN' $(SRC)))
made_in = $(if $(filter tsan-plain,$1),$(if $(filter $(watching),$2),$1,tsan),$1)

# $(call stamp,FILE,TEXT): a file that is touched only when the text changes.
define stamp
$1: FORCE
	@mkdir -p $$(@D); t=$$$$(printf '%s\n' '$(subst ','\'',$2)'); [ "$$$$t" = "$$$$(cat $$@ 2>/dev/null)" ] || echo "$$$$t" >$$@
endef
FORCE:

# ---- rules of one variant ------------------------------------------------------------------------------------
define variant
own_src_$1 := $$(call native,$1,$(filter-out $(call lacking,$1),$(SRC)))
obj_$1 := $$(foreach f,$$(own_src_$1:.c=.o),$(BUILD)/$$(call made_in,$1,$$f)/$$f)
test_src_$1 := $$(call tests,$1)
tests_$1 := $$(patsubst tests/%.c,$(BUILD)/$1/tests/%,$$(test_src_$1))
cuda_obj_$1 := $(if $(call has_cuda,$1),$(patsubst %,$(BUILD)/$1/%.o,$(basename $(CUDA_SRC))))
all_flags_$1 := $(BASE) $(march_$(call machine,$1)) $(flags_$1) $(CFLAGS) -Isrc -I$(BUILD)/$1

$(call stamp,$(BUILD)/$1/flags,$(VERSION) $(call cc,$1) $$(all_flags_$1) $(CUDA) $(NCCL) $(MPI) $(SQLITE) $(mpi_cflags) $(mpi_libs) $(PROBED))
$(call stamp,$(BUILD)/$1/objects,$$(obj_$1))

$(BUILD)/$1/base/features.h: $(BUILD)/$1/flags scripts/features.sh
	@mkdir -p $$(@D)
	@CC="$(call cc,$1)" CUDA=$(CUDA) NCCL=$(NCCL) MPI=$(if $(filter $(mpi_variants),$1),$(MPI),0) MPICC=$(MPICC) \
	    SQLITE=$(if $(filter $(sqlite_variants),$1),$(SQLITE),0) CUDA_HOME=$(CUDA_HOME) VERSION=$(VERSION) \
	    scripts/features.sh >$$@

$(BUILD)/$1/%.o: %.c $(BUILD)/$1/flags Makefile | $(BUILD)/$1/base/features.h
	@mkdir -p $$(@D)
	$(call cc,$1) $$(all_flags_$1) $$(if $$(filter src/device/cpu/% src/base/rng.c,$$<),$(hot_$1)) $$(v_$$(call isa,$$<)) \
	    $$(if $$(filter $(mpi_files),$$<),$(mpi_cflags) $(mpi_quiet)) \
	    $$(if $$(filter cuda/%,$$<),$(cuda_cflags)) \
	    $$(if $$(filter tests/%,$$<),-I. -Itests) $$(if $$(filter tests/fuzz/%,$$<),$(call fuzz_main,$1)) \
	    -MMD -MP -c $$< -o $$@

$(BUILD)/$1/cuda/%.o: cuda/%.cu $(CUDA_HEADERS) $(BUILD)/$1/flags Makefile
	@mkdir -p $$(@D)
	$(NVCC) $(NVCCFLAGS) -c $$< -o $$@ >$$(@:.o=.log) 2>&1 || { cat $$(@:.o=.log); exit 1; }

$(BUILD)/$1/libmoetitan.a: $$(obj_$1) $(BUILD)/$1/objects
	@rm -f $$@
	@$(call ar,$1) rcsD $$@ $$(obj_$1)

$(BUILD)/$1/moetitan: $(BUILD)/$1/src/main.o $$(cuda_obj_$1) $(BUILD)/$1/libmoetitan.a
	$(call cc,$1) $(flags_$1) $(LDFLAGS) $(ld_$1) -o $$@ $$^ $(LIBS) $(if $(call has_mpi,$1),$(mpi_libs)) $(if $(call has_sqlite,$1),-lsqlite3) \
	    $(if $(call has_cuda,$1),$(cuda_libs))

$(BUILD)/$1/tests/%: $(BUILD)/$1/tests/%.o $(BUILD)/$1/libmoetitan.a
	$(call cc,$1) $(flags_$1) $(LDFLAGS) $(ld_$1) -o $$@ $$^ $(LIBS) $(if $(call has_mpi,$1),$(mpi_libs)) $(if $(call has_sqlite,$1),-lsqlite3)

.PHONY: $1 tests-$1
$1: $(BUILD)/$1/moetitan
tests-$1: $$(tests_$1) $(BUILD)/$1/moetitan
-include $$(obj_$1:.o=.d) $$(cuda_obj_$1:.o=.d) $$(tests_$1:=.d) $(BUILD)/$1/src/main.d
endef
$(foreach v,$(VARIANTS),$(eval $(call variant,$v)))
$(BUILD)/aarch64/base/features.h: | $(BUILD)/aarch64-sysroot/.done

# The emulated CUDA device, and a real one, have compile rules of their own.
-include $(wildcard tests/cuemu/rules.mk tests/gpu/rules.mk)

# ---- what people call ----------------------------------------------------------------------------------------
.PHONY: FORCE help info quickstart check check-build check-slow check-slurm check-aarch64 static headers layers rules \
        format format-check fuzz bench bench-ckpt bench-gemm bench-muon bench-offload bench-plan bench-tokenizer install clean
release: ## the program, build/release/moetitan (the default)
debug: ## the same in build/debug, for a debugger
asan: ## the same under AddressSanitizer and UndefinedBehaviorSanitizer
tsan: ## the same under ThreadSanitizer, each op on its stream's own fiber (tsan-plain: as threads)

help: ## this list
	@sed -n 's/^\([a-z0-9-]*\):[^#]*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 18

info: $(BUILD)/release/base/features.h ## what would be built, with what
	@echo "moetitan $(VERSION) for $(host_machine)"
	@echo "compiler   $$($(CC) --version | head -n 1)"
	@echo "flags      $(all_flags_release)"
	@echo "libraries  yaml $$(pkg-config --modversion yaml-0.1), cjson $$(pkg-config --modversion libcjson)"
	@sed -n 's/^#define MT_HAVE_\([A-Z]*\) 1.*/with       \1/p; s/^#define MT_HAVE_\([A-Z]*\) 0.*/without    \1/p' $<
	@echo "sources    $(words $(SRC)) files; tests: release $(words $(tests_release)), asan $(words $(tests_asan)), tsan $(words $(tests_tsan))"

quickstart: ## set up, build, train a small model on real text, sample from it
	@scripts/quickstart.sh

check: ## set up, build, run every test
	@WERROR=1 scripts/check.sh

check-slow: tests-release ## the tests in tests/slow, and those that take long under a sanitizer
	@scripts/run_tests.sh release tests/slow
	@for v in asan tsan-plain; do \
	    MT_SLOW=1 $(MAKE) --no-print-directory tests-$$v && MT_SLOW=1 scripts/run_tests.sh $$v || exit 1; done

check-slurm: release ## 384 processes under a real srun, 96 nodes on this machine, against ranks of one process
	@tests/slurm/train.sh

check-build: tests-release tests-asan tests-tsan tests-tsan-plain $(BUILD)/release/alloc_count.so

check-aarch64: ## cross-build for aarch64 and run the unit tests under qemu
	@scripts/setup.sh aarch64
	@$(MAKE) --no-print-directory tests-aarch64
	@scripts/run_tests.sh aarch64 $(folders_aarch64)

$(BUILD)/aarch64-sysroot/.done: scripts/aarch64_sysroot.sh
	@scripts/aarch64_sysroot.sh $(@D)
	@touch $@

$(BUILD)/release/alloc_count.so: tests/interpose/alloc_count.c $(BUILD)/release/flags
	$(CC) $(BASE) -O2 -g -fPIC -shared -o $@ $< -ldl

static: headers layers rules ## the checks that only read the source

# A header without a guard is a template, which its includers give its parameters.
GUARDED := $(shell grep -ls "^\#ifndef MT_" $(HEADERS) /dev/null)
headers: $(GUARDED:%=$(BUILD)/headers/%.ok) ## every header compiles alone
$(BUILD)/headers/%.ok: % $(HEADERS) $(BUILD)/release/base/features.h
	@mkdir -p $(@D)
	@printf '#include "%s"\n' $(<:src/%=%) | $(CC) $(all_flags_release) $(mpi_cflags) -w -fsyntax-only -x c -
	@touch $@

layers: ## includes follow src/LAYERS
	@scripts/layers.sh

rules: $(BUILD)/release/libmoetitan.a ## no mutable globals, vendor headers in their folders
	@scripts/rules.sh $<

format: ## rewrite the source in the project's style
	@clang-format -i $(FORMATTED)
format-check: ## is the source in the project's style?
	@if command -v clang-format >/dev/null; then clang-format --dry-run -Werror $(FORMATTED); \
	 else echo "format-check: no clang-format here, not checked"; fi

fuzz: $(FUZZERS:%.c=$(BUILD)/fuzzer/%) ## every fuzz target for FUZZ_SECONDS=60 under clang's fuzzer
	@for f in $^; do name=$${f##*/fuzz_}; mkdir -p $$f.corpus; echo "== $$name"; \
	    $$f -max_total_time=$(FUZZ_SECONDS) -timeout=5 -verbosity=0 -print_final_stats=1 \
	        -artifact_prefix=$$f. $$f.corpus $$(ls -d tests/fuzz/$$name 2>/dev/null) || exit 1; done

bench: $(BUILD)/bench/bench_step ## train steps beside PyTorch's, kernels beside their rooflines: bench.json (BENCH=quick: a short one)
	@tests/bench/bench.sh $(BUILD) "$(BENCH)"
bench-gemm: ## dense and grouped bf16 GEMM against the ISA's peak and oneDNN
	@scripts/setup.sh bench
	@$(MAKE) --no-print-directory $(BUILD)/bench/bench_gemm
	@$(BUILD)/bench/bench_gemm
bench-muon: $(BUILD)/bench/bench_muon ## Muon's exchange with owners against gathering everything, 4 fake ranks
	@$<
bench-offload: $(BUILD)/bench/bench_offload ## a step with activations and optimizer state in host memory against one without
	@$<
bench-plan: $(BUILD)/bench/bench_plan $(BUILD)/release/moetitan ## calibrate this machine, then step times predicted against measured
	@$(BUILD)/release/moetitan doctor --calibrate $(BUILD)/bench/here.yaml | tail -n 5
	@$< $(BUILD)/bench/here.yaml
bench-tokenizer: $(BUILD)/release/moetitan ## text into tokens against tiktoken, with published vocabularies (fetched)
	@tests/bench/bench_tokenizer.sh $< $(BUILD)/oracle-tokenizers
bench-ckpt: $(BUILD)/release/moetitan ## what saves add to steps, how long they take; PYTHON=... with torch: beside torch.distributed.checkpoint
	@tests/bench/bench_ckpt.sh $< $(BUILD)/bench/ckpt $(PYTHON)
$(BUILD)/bench/bench_gemm: bench_libs := -ldnnl
$(BUILD)/bench/%: $(BUILD)/release/tests/bench/%.o $(BUILD)/release/libmoetitan.a
	@mkdir -p $(@D)
	$(CC) $(flags_release) $(LDFLAGS) -o $@ $^ $(LIBS) $(mpi_libs) $(if $(sqlite_found),-lsqlite3) $(bench_libs)
-include $(BENCHES:%.c=$(BUILD)/release/%.d)

install: $(BUILD)/release/moetitan ## copy the program, configurations and job scripts to PREFIX (DESTDIR for packagers)
	install -D -m 755 $< $(DESTDIR)$(PREFIX)/bin/moetitan
	@for f in $$(find configs slurm -type f); do install -D -m 644 $$f $(DESTDIR)$(PREFIX)/share/moetitan/$$f; done

clean: ## remove build/
	rm -rf $(BUILD)
