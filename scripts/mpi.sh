#!/usr/bin/env bash
# scripts/mpi.sh cflags|libs: how to compile and to link with this machine's MPI, nothing if there is none. The compiler wrapper that
# comes first in PATH decides (MPICC names another), as modules set it: Open MPI's tells on request, that of MPICH and its kin
# (ParaStationMPI) shows a whole command. Without a wrapper pkg-config is asked.
set -uo pipefail
what=${1:?usage: scripts/mpi.sh cflags|libs}
mpicc=${MPICC:-mpicc}

words() { # PATTERN   of the words on the standard input, those that match, in one line
    tr ' ' '\n' | grep -E "$1" | xargs
}
if command -v "$mpicc" >/dev/null; then
    if "$mpicc" --showme:version >/dev/null 2>&1; then
        case $what in
        cflags) "$mpicc" --showme:compile | words '^-[ID]' ;;
        libs) "$mpicc" --showme:link | words '^-(L|l|Wl,)' ;;
        esac
    else
        case $what in
        cflags) "$mpicc" -show -c | words '^-[ID]' ;;
        libs) "$mpicc" -show | words '^-(L|l|Wl,)' ;;
        esac
    fi
else
    for package in ompi-c mpich; do
        pkg-config --exists $package 2>/dev/null && exec pkg-config "--$what" $package
    done
fi
exit 0
