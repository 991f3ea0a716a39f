#!/usr/bin/env bash
# Prints features.h: what this machine's compiler can use, each found out by compiling three lines.
# CUDA, NCCL, MPI, SQLITE = auto|0|1 come from the environment; 1 and absent is an error that names what to install.
set -euo pipefail
: "${CC:=gcc}" "${VERSION:=0}" "${CUDA:=auto}" "${NCCL:=auto}" "${MPI:=auto}" "${SQLITE:=auto}" "${CUDA_HOME:=/usr/local/cuda}"

compiles() { # SOURCE FLAGS...
    local source=$1
    shift
    printf '%b' "$source" | $CC -x c -fsyntax-only "$@" - >/dev/null 2>&1
}

feature() { # NAME WANTED WHAT-TO-INSTALL SOURCE FLAGS...
    local name=$1 wanted=$2 install=$3
    shift 3
    local have=0
    case $wanted in
    0) ;;
    1 | auto) if compiles "$@"; then have=1; fi ;;
    *) echo "make $name=$wanted: expected auto, 0 or 1" >&2 && exit 2 ;;
    esac
    if [[ $wanted == 1 && $have == 0 ]]; then
        echo "make $name=1: a program that includes its headers does not compile: $install, or use $name=auto" >&2
        exit 2
    fi
    echo "#define MT_HAVE_$name $have"
}

mpi_flags=$("${BASH_SOURCE[0]%/*}/mpi.sh" cflags)
echo "/* Made by scripts/features.sh. */"
echo "#define MT_VERSION \"$VERSION\""
feature CUDA "$CUDA" "install the CUDA toolkit's headers and set CUDA_HOME (now $CUDA_HOME)" \
    '#include <cuda_runtime.h>\nint main(void)\n{ return (int)sizeof(cudaStream_t) == 0; }\n' "-I$CUDA_HOME/include"
feature NCCL "$NCCL" "install NCCL's headers (nccl.h), for instance Debian's libnccl-dev" \
    '#include <nccl.h>\nint main(void)\n{ return (int)sizeof(ncclComm_t) == 0; }\n' "-I$CUDA_HOME/include"
# shellcheck disable=SC2086 # the flags are words
feature MPI "$MPI" "install an MPI, for instance Debian's libopenmpi-dev" \
    '#include <mpi.h>\nint main(void)\n{ return (int)sizeof(MPI_Comm) == 0; }\n' $mpi_flags
feature SQLITE "$SQLITE" "install SQLite's headers, for instance Debian's libsqlite3-dev" \
    '#include <sqlite3.h>\nint main(void)\n{ return SQLITE_VERSION_NUMBER == 0; }\n'
