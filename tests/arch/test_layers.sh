# scripts/layers.sh accepts what src/LAYERS allows and names each include that it does not.
source tests/check.sh
mkdir -p "$work"/{scripts,cuda,src/{base,device,comm,cmd}}
cp scripts/layers.sh "$work/scripts"
printf '# a comment\ncmd\ncomm\ndevice launch\nbase\n' >"$work/src/LAYERS"
file() { printf '%b' "$2" >"$work/$1"; } # FILE TEXT
layers() { run "$work/scripts/layers.sh"; }

file src/main.c '#include "cmd/cmd.h"\n'
file src/cmd/run.c '#include "comm/comm.h"\n#include "base/status.h"\n#include <stdio.h>\n'
file src/comm/mpi.c '#include <mpi.h>\n#include "comm/comm.h"\n'
file src/device/registry.c '#if MT_HAVE_CUDA\n#endif\n'
file cuda/stream.cu '#include <cuda_runtime.h>\n#include "device/device.h"\n'
layers
check "a tree in order passes" ended 0

refuses() { # WHAT FILE TEXT EXPECTED
    file "$2" "$3"
    layers
    check "$1: refused" ended 1
    check "$1: names the place and the reason" says "^$2:1: .*$4"
    rm "$work/$2"
}
refuses "an arrow up" src/base/up.c '#include "device/device.h"\n' 'base may not include device'
refuses "an arrow along a line" src/device/side.h '#include "launch/launch.h"\n' 'device may not include launch'
refuses "a folder without a line" src/cmd/lost.c '#include "extra/x.h"\n' 'no line of src/LAYERS has extra'
refuses "a path not from src/" src/base/near.c '#include "status.h"\n' 'relative to src/'
refuses "CUDA outside cuda/" src/device/gpu.c '#include <cuda_runtime.h>\n' 'belong in cuda/'
refuses "cuBLAS outside cuda/" src/device/lt.c '#include <cublasLt.h>\n' 'belong in cuda/'
refuses "NCCL outside cuda/" src/comm/nccl.c '#include <nccl.h>\n' 'belong in cuda/'
refuses "mpi.h outside src/comm/" src/cmd/rank.c '#include <mpi.h>\n' 'src/comm/'
refuses "a feature outside registries" src/cmd/gpu.c '#if MT_HAVE_CUDA\n#endif\n' 'registry.c'
refuses "a feature that is always defined" src/comm/registry.c '#ifdef MT_HAVE_MPI\n#endif\n' 'as #if'
refuses "the model under cuda/" cuda/model.cu '#include "cmd/cmd.h"\n' 'device, comm and base only'
finish
