# test: timeout=1200
# The CUDA device under the emulator: every program of tests/cuemu, built with ASan + UBSan.
set -uo pipefail
cd "$(dirname "$0")/../.."
source tests/cuemu/flavour.sh
run_flavour asan
finish
