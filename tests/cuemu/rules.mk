# tests/cuemu/rules.mk, included by the top Makefile: the CUDA device's own sources under the emulator, in three
# flavours; and the same kernels through nvcc.
#   make cuemu    builds the test programs (tests/cuemu/test_cuemu_*.sh, part of `make check`, run them)
#   make sm90     compiles cuda/*.cu for sm_90a, where a register spill is an error
# Only NVIDIA's headers are needed; without them both targets say so and do nothing.
CUEMU_INC := $(if $(filter 0,$(CUDA)),,$(cuda_inc))
CUEMU_CXX ?= g++
CUEMU_FLAVOURS := plain asan tsan
CUEMU_TESTS := kernels streams graphs ranks training bugs lt wrappers doctor $(if $(cudnn_found),dnn) $(if $(nccl_found),nccl)
cuemu_more_plain := checkpoint

# The library each flavour links, the flags of kernels and C code, those of the emulator itself: under ThreadSanitizer it
# is not instrumented, since its order is no order of the program.
cuemu_lib_plain := release
cuemu_lib_asan := asan
cuemu_lib_tsan := tsan
cuemu_emu_plain := -O2 -g
cuemu_emu_asan := $(flags_asan) -DCUEMU_WITH_ASAN=1
cuemu_emu_tsan := -O1 -g -DCUEMU_WITH_TSAN=1
cuemu_cc = $(flags_$(cuemu_lib_$1))

CUEMU_C := $(filter %.c,$(CUDA_SRC))
CUEMU_CU := $(filter %.cu,$(CUDA_SRC))
CUEMU_SELF := $(wildcard tests/cuemu/*.cu)
CUEMU_EMU := $(filter-out $(if $(cudnn_found),,%/dnn.cc) $(if $(nccl_found),,tests/cuemu/src/nccl%),$(wildcard tests/cuemu/src/*.cc))
CUEMU_INCLUDES = -Isrc -I. -Icuda -Icuda/include -Itests -Itests/cuemu -Itests/cuemu/include -isystem $(CUEMU_INC)
CUEMU_CXXFLAGS := -std=c++17 -fno-strict-aliasing -pthread -Wall -Wextra -Wno-unknown-pragmas
.PHONY: cuemu sm90

ifneq ($(CUEMU_INC),)
define cuemu_flavour
cuemu_dir_$1 := $(BUILD)/cuemu/$1
$$(cuemu_dir_$1)/%.o: %.c $(BUILD)/$(cuemu_lib_$1)/flags tests/cuemu/rules.mk | $(BUILD)/$(cuemu_lib_$1)/base/features.h
	@mkdir -p $$(@D)
	$(CC) $(BASE) $(cuemu_cc) $$(CUEMU_INCLUDES) -I$(BUILD)/$(cuemu_lib_$1) -MMD -MP -c $$< -o $$@
$$(cuemu_dir_$1)/%.o: %.cu $(BUILD)/$(cuemu_lib_$1)/flags tests/cuemu/rules.mk
	@mkdir -p $$(@D)
	$(CUEMU_CXX) $(CUEMU_CXXFLAGS) $(cuemu_cc) $$(CUEMU_INCLUDES) -include cuemu.h -MMD -MP -x c++ -c $$< -o $$@
$$(cuemu_dir_$1)/%.o: %.cc $(BUILD)/$(cuemu_lib_$1)/flags tests/cuemu/rules.mk
	@mkdir -p $$(@D)
	$(CUEMU_CXX) $(CUEMU_CXXFLAGS) $$(cuemu_emu_$1) $$(CUEMU_INCLUDES) -MMD -MP -c $$< -o $$@

cuemu_obj_$1 := $$(patsubst %.c,$$(cuemu_dir_$1)/%.o,$(CUEMU_C)) $$(patsubst %.cu,$$(cuemu_dir_$1)/%.o,$(CUEMU_CU) $(CUEMU_SELF)) \
                $$(patsubst %.cc,$$(cuemu_dir_$1)/%.o,$(CUEMU_EMU))
# cuda/library.c finds the stand-ins by name in the program: hence -rdynamic.
$(BUILD)/cuemu/$1/test_%: $(BUILD)/cuemu/$1/tests/cuemu/test_%.o $$(cuemu_obj_$1) $(BUILD)/$(cuemu_lib_$1)/libmoetitan.a
	$(CUEMU_CXX) $(cuemu_cc) -rdynamic $(LDFLAGS) -o $$@ $$^ $(LIBS) $(if $(call has_mpi,$(cuemu_lib_$1)),$(mpi_libs))
# NCCL itself, without the stand-in.
$(BUILD)/cuemu/$1/test_nccl_table: $(BUILD)/cuemu/$1/tests/cuemu/test_nccl_table.o $(BUILD)/cuemu/$1/cuda/nccl_table.o $(BUILD)/cuemu/$1/cuda/library.o $(BUILD)/$(cuemu_lib_$1)/libmoetitan.a
	$(CC) $(cuemu_cc) $(LDFLAGS) -o $$@ $$^ -ldl -lm -lpthread
# The program itself on emulated devices, for several processes.
$(BUILD)/cuemu/$1/moetitan: $(BUILD)/$(cuemu_lib_$1)/src/main.o $$(cuemu_obj_$1) $(BUILD)/$(cuemu_lib_$1)/libmoetitan.a
	$(CUEMU_CXX) $(cuemu_cc) -rdynamic $(LDFLAGS) -o $$@ $$^ $(LIBS) $(if $(call has_mpi,$(cuemu_lib_$1)),$(mpi_libs)) $(if $(call has_sqlite,$(cuemu_lib_$1)),-lsqlite3)
cuemu: $(CUEMU_TESTS:%=$(BUILD)/cuemu/$1/test_%) $(cuemu_more_$1:%=$(BUILD)/cuemu/$1/test_%)
-include $$(cuemu_obj_$1:.o=.d) $(CUEMU_TESTS:%=$(BUILD)/cuemu/$1/tests/cuemu/test_%.d) $(cuemu_more_$1:%=$(BUILD)/cuemu/$1/tests/cuemu/test_%.d)
endef
$(foreach f,$(CUEMU_FLAVOURS),$(eval $(call cuemu_flavour,$f)))
cuemu: $(BUILD)/cuemu/plain/moetitan $(if $(nccl_found),$(BUILD)/cuemu/plain/test_nccl_table)
check-build: cuemu
# What the real cuDNN says of the shapes in configs/: without its stand-in.
ifneq ($(cudnn_found),)
cuemu: $(BUILD)/cuemu/dnn_shapes
endif
$(BUILD)/cuemu/dnn_shapes: $(cuemu_dir_plain)/tests/cuemu/dnn_shapes.o $(filter-out %/dnn.o,$(cuemu_obj_plain)) $(BUILD)/release/libmoetitan.a
	$(CUEMU_CXX) $(LDFLAGS) -o $@ $^ $(LIBS) $(if $(call has_mpi,release),$(mpi_libs))
cuemu: ## the CUDA device's tests under the emulator, built
else
cuemu:
	@echo "cuemu: NVIDIA's headers not found in $(CUDA_HOME)/include (or CUDA=0)"
endif

ifneq ($(NVCC),)
sm90: $(CUEMU_CU:%.cu=$(BUILD)/sm90/%.o) ## the CUDA kernels through nvcc for sm_90a; a spill is an error
	@grep -h Used $(CUEMU_CU:%.cu=$(BUILD)/sm90/%.log) | sort | uniq -c
$(BUILD)/sm90/%.o: %.cu $(CUDA_HEADERS)
	@mkdir -p $(@D)
	$(NVCC) $(NVCCFLAGS) -c $< -o $@ >$(@:.o=.log) 2>&1 || { cat $(@:.o=.log); exit 1; }
else
sm90:
	@echo "sm90: no nvcc here, not compiled"
endif
