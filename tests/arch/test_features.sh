# scripts/features.sh: what is absent is 0 under auto, and an error that says what to install under 1.
source tests/check.sh
export CC="${CC:-gcc} -nostdinc" VERSION=7.8.9 # the compiler, less what this machine has
probe() { run env "$@" scripts/features.sh; }

probe CUDA=auto CUDA_HOME="$work/nowhere" NCCL=0 MPI=0
check "absent and auto: no failure" ended 0
check "absent and auto: 0" says '^#define MT_HAVE_CUDA 0$'
check "the version" says '^#define MT_VERSION "7.8.9"$'

probe CUDA=1 CUDA_HOME="$work/nowhere" NCCL=0 MPI=0
check "absent and 1: an error" ended 2
check "absent and 1: says what to install, and where it looked" says "make CUDA=1.*install.*$work/nowhere"

mkdir -p "$work/cuda/include"
echo 'typedef struct stream *cudaStream_t;' >"$work/cuda/include/cuda_runtime.h"
probe CUDA=1 CUDA_HOME="$work/cuda" NCCL=0 MPI=0
check "there and 1" says '^#define MT_HAVE_CUDA 1$'
probe CUDA=0 CUDA_HOME="$work/cuda" NCCL=0 MPI=0
check "there and 0" says '^#define MT_HAVE_CUDA 0$'
echo 'typedef int other;' >"$work/cuda/include/cuda_runtime.h"
probe CUDA=auto CUDA_HOME="$work/cuda" NCCL=0 MPI=0
check "a header that does not compile is not there" says '^#define MT_HAVE_CUDA 0$'
probe CUDA=yes
check "another word: an error" ended 2
check "another word: the choices" says 'CUDA=yes: expected auto, 0 or 1'
finish
