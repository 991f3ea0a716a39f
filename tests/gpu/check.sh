#!/usr/bin/env bash
# tests/gpu/check.sh FOLDER   the CUDA device's tests on this machine's GPU, what they stand on first. FOLDER: as `make gpu-build`
# made it. Exit status 77: there is no GPU.
set -uo pipefail
cd "$(dirname "$0")/../.."
dir=$1
"$dir/here" || exit

passed=0 failed=0 skipped=0
run() { # WHAT COMMAND...
    local what=$1 out rc p f s
    shift
    printf '== %s\n' "$what"
    out=$("$@" 2>&1)
    rc=$?
    read -r p f s < <(sed -nE 's/^([0-9]+) passed, ([0-9]+) failed(, ([0-9]+) skipped)?$/\1 \2 \4/p' <<<"$out" | tail -n 1)
    p=${p:-0} f=${f:-0} s=${s:-0}
    [[ $rc == 0 && $((p + s)) -gt 0 || $f -gt 0 ]] || f=1
    printf '%s\n' "$out"
    [[ $rc == 0 ]] || echo "exit status $rc"
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
}
# PTX wrappers; captures; every operation; streams; ranks of one process on one GPU; training beside the cpu; NCCL with one rank
for test in wrappers graphs kernels streams ranks training nccl; do
    if [[ -x $dir/test_$test ]]; then
        run "$test" "$dir/test_$test"
    else
        echo "== $test: not built"
    fi
done
sanitizer=$(command -v compute-sanitizer || ls "${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer" 2>/dev/null)
if [[ -n $sanitizer ]]; then
    for tool in memcheck racecheck synccheck; do
        for test in wrappers kernels; do
            run "$test under $tool" "$sanitizer" --tool "$tool" --error-exitcode 86 "$dir/test_$test"
        done
    done
else
    echo "== compute-sanitizer: not found, not run"
fi
echo "$passed passed, $failed failed, $skipped skipped"
[[ $failed == 0 ]]
