# test: timeout=1200
# The CUDA device under the emulator: every program of tests/cuemu, built as it is.
set -uo pipefail
cd "$(dirname "$0")/../.."
source tests/cuemu/flavour.sh
run_flavour plain
run plain test_checkpoint
[[ ! -x $build/plain/test_nccl_table ]] || run plain test_nccl_table
finish
