# mpirun.sh: runs programs as several processes. Sourced after tests/check.sh.
# shellcheck shell=bash
if ! command -v mpirun >/dev/null; then
    echo "skipped: mpirun not found"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
if ! grep -q 'MT_HAVE_MPI 1' "$MT_BUILD/base/features.h"; then
    echo "skipped: built without MPI (its headers were not found)"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
# Containers run as root; two cores carry all processes; there is no network to look for.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
# after a failure the others need no second to end by themselves
export OMPI_MCA_odls_base_sigkill_timeout=0
export OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader OMPI_MCA_btl_vader_single_copy_mechanism=none
