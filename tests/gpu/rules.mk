# tests/gpu/rules.mk, included by the top Makefile: the CUDA device's tests for a real GPU, and its benchmark.
#   make check-gpu    builds, then runs the tests of tests/cuemu on the GPU
#   make bench-gpu    builds, then measures kernels and a step
#   make gpu-build    builds both, which needs no GPU
# nvcc and a C compiler are all they need: no MPI, no libyaml, cJSON, xxHash and so on (scripts/bare.sh). Without a GPU both
# end with "no GPU here" and status 77 of the script (make's own is 2).
GPU_TESTS := wrappers graphs kernels streams ranks training $(patsubst tests/cuemu/test_%.c,%,$(wildcard tests/cuemu/test_nccl.c))
GPU_DIR := $(BUILD)/gpu
.PHONY: gpu-build check-gpu bench-gpu

ifneq ($(and $(NVCC),$(cuda_inc),$(cuda_runtime)),)
ifneq ($(filter gpu-build check-gpu bench-gpu $(BUILD)/gpu/%,$(MAKECMDGOALS)),)
gpu_bare := $(call native,release,$(shell scripts/bare.sh))
# Those that ask what the program was built with: here, with nothing.
gpu_own := $(shell grep -l '"base/features.h"' $(gpu_bare)) tests/gpu/no_yaml.c
gpu_obj := $(patsubst %.c,$(BUILD)/release/%.o,$(filter-out $(gpu_own),$(gpu_bare))) $(patsubst %.c,$(GPU_DIR)/%.o,$(gpu_own))
gpu_cuda := $(patsubst %,$(BUILD)/release/%.o,$(basename $(CUDA_SRC))) $(GPU_DIR)/tests/cuemu/wrappers.o
gpu_flags = $(BASE) $(march_$(host_machine)) $(flags_release) $(CFLAGS) -I$(GPU_DIR) -Isrc -Itests -Itests/cuemu $(cuda_cflags)

$(GPU_DIR)/base/features.h: $(BUILD)/release/flags scripts/features.sh
	@mkdir -p $(@D)
	@CC="$(CC)" CUDA=1 NCCL=0 MPI=0 SQLITE=0 CUDA_HOME=$(patsubst %/include,%,$(cuda_inc)) VERSION=$(VERSION) scripts/features.sh >$@
$(GPU_DIR)/%.o: %.c $(GPU_DIR)/base/features.h
	@mkdir -p $(@D)
	$(CC) $(gpu_flags) -MMD -MP -c $< -o $@
$(GPU_DIR)/%.o: %.cu $(CUDA_HEADERS)
	@mkdir -p $(@D)
	$(NVCC) $(NVCCFLAGS) -Itests/cuemu -c $< -o $@ >$(@:.o=.log) 2>&1 || { cat $(@:.o=.log); exit 1; }
$(GPU_DIR)/libbare.a: $(gpu_obj)
	@rm -f $@
	@$(AR) rcsD $@ $^

# Neither a library of LIBS nor one of CUDA's but its runtime.
gpu_link = $(CC) $(flags_release) $(LDFLAGS) -o $@ $^ $(cuda_libs) -lm
$(GPU_DIR)/test_%: $(GPU_DIR)/tests/cuemu/test_%.o $(gpu_cuda) $(GPU_DIR)/libbare.a
	$(gpu_link)
$(GPU_DIR)/here $(GPU_DIR)/bench: $(GPU_DIR)/%: $(GPU_DIR)/tests/gpu/%.o $(gpu_cuda) $(GPU_DIR)/libbare.a
	$(gpu_link)
gpu-build: $(GPU_TESTS:%=$(GPU_DIR)/test_%) $(GPU_DIR)/here $(GPU_DIR)/bench
-include $(wildcard $(GPU_DIR)/*/*.d $(GPU_DIR)/*/*/*.d)
endif
gpu-build: ## the CUDA device's tests and benchmark for a real GPU, built
check-gpu: gpu-build ## the CUDA device's tests on this machine's GPU
	@tests/gpu/check.sh $(GPU_DIR)
bench-gpu: gpu-build ## kernels and a step on this machine's GPU; PYTHON=... with torch: beside PyTorch's
	@tests/gpu/bench.sh $(GPU_DIR) $(PYTHON)
else
gpu-build check-gpu bench-gpu:
	@echo "$@: nvcc, its headers and its static runtime are needed; CUDA_HOME is $(CUDA_HOME)"; exit 1
endif
