# test: timeout=300 alone
# A collective of pieces above 2^30 bytes, which MPI counts cannot carry in one message. Takes 8 GB of memory.
source tests/check.sh
source tests/comm/mpirun.sh
export MT_TEST_LARGE_BYTES=1200000000

run timeout 280 mpirun -n 2 "$MT_BUILD/tests/comm/test_mpi"
check "pieces above 2^30 bytes" ended 0
check "pieces above 2^30 bytes arrive" test "$(grep -c '^[1-9][0-9]* passed, 0 failed$' "$work/out")" = 2
finish
