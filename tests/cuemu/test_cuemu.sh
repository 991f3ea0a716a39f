# test: timeout=1200
# The CUDA device under the emulator: every program of tests/cuemu in three builds, plain, ASan + UBSan, and TSan.
set -uo pipefail
cd "$(dirname "$0")/../.."
build=${MT_BUILD:-build/release}
build=${build%/*}/cuemu
export ASAN_OPTIONS=abort_on_error=0 TSAN_OPTIONS=halt_on_error=1:exitcode=66:atexit_sleep_ms=0

if ! made=$("${MAKE:-make}" --no-print-directory -s cuemu 2>&1); then
    printf '%s\n' "$made" "the programs of tests/cuemu do not build" "0 passed, 1 failed"
    exit 1
fi
if grep -q "NVIDIA's headers not found" <<<"$made"; then
    echo "skipped: NVIDIA's headers not found"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi

passed=0 failed=0
run() { # FLAVOUR PROGRAM
    local out rc p f
    # ThreadSanitizer's shadow memory does not fit every random layout.
    out=$(setarch -R "$build/$1/$2" 2>&1)
    rc=$?
    read -r p f < <(sed -nE 's/^([0-9]+) passed, ([0-9]+) failed.*/\1 \2/p' <<<"$out" | tail -n 1)
    p=${p:-0} f=${f:-0}
    [[ $rc == 0 || $f -gt 0 ]] || f=1
    [[ $rc == 0 ]] || printf '%s\n%s %s: exit code %s\n' "$out" "$1" "$2" "$rc"
    passed=$((passed + p)) failed=$((failed + f))
}
for flavour in plain asan tsan; do
    for program in test_wrappers test_lt test_bugs test_kernels test_streams test_ranks test_training test_doctor test_nccl; do
        [[ $program == test_nccl && ! -x $build/plain/test_nccl ]] || run $flavour $program
    done
done
[[ ! -x $build/plain/test_nccl_table ]] || run plain test_nccl_table
echo "$passed passed, $failed failed"
[[ $failed == 0 ]]
