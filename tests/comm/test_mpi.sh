# test: timeout=60
# Collectives between processes: test_mpi.c under mpirun.
source tests/check.sh
source tests/comm/mpirun.sh

for n in 2 3 4; do
    run timeout 30 mpirun -n $n "$MT_BUILD/tests/comm/test_mpi"
    check "$n processes end well" ended 0
    check "$n processes pass their tests" test "$(grep -c '^6 passed, 0 failed$' "$work/out")" = $n
done
finish
