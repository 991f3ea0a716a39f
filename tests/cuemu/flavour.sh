# flavour.sh: runs the programs of tests/cuemu of one build. Sourced by test_cuemu_*.sh, which run at the same time.
# shellcheck shell=bash
build=${MT_BUILD:-build/release}
build=${build%/*}/cuemu
export ASAN_OPTIONS=abort_on_error=0 TSAN_OPTIONS=halt_on_error=1:exitcode=66:atexit_sleep_ms=0
passed=0 failed=0

build_programs() {
    local made
    mkdir -p "$build"
    if ! made=$(flock "$build" "${MAKE:-make}" --no-print-directory -s cuemu 2>&1); then
        printf '%s\n' "$made" "the programs of tests/cuemu do not build" "0 passed, 1 failed"
        exit 1
    fi
    if grep -q "NVIDIA's headers not found" <<<"$made"; then
        echo "skipped: NVIDIA's headers not found"
        echo "0 passed, 0 failed, 1 skipped"
        exit 0
    fi
}

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

run_flavour() { # FLAVOUR
    local program
    build_programs
    for program in test_{wrappers,lt,graphs,dnn,bugs,kernels,streams,ranks,training,doctor,nccl}; do
        # without the headers of cuDNN or NCCL there is no such program
        [[ $program == test_@(dnn|nccl) && ! -x $build/$1/$program ]] || run "$1" "$program"
    done
}

finish() {
    echo "$passed passed, $failed failed"
    [[ $failed == 0 ]]
}
