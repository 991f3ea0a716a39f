#!/usr/bin/env bash
# `make check`: set-up, build, every test. Ends with a table of the parts' minutes and, last, `N passed, N failed`.
# AARCH64=1 adds the cross build under qemu. Where CI=true a test that was skipped for want of NVIDIA's headers or of
# a privilege ("headers" or "privilege" in its reason) counts as failed: CI has both.
set -uo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/parts.sh
source scripts/parts.sh
log=$(mktemp)
trap 'rm -f "$log"' EXIT
passed=0 failed=0 skipped=0

finish() {
    print_parts
    local line="$passed passed, $failed failed"
    [[ $skipped == 0 ]] || line+=", $skipped skipped"
    echo "$line"
    [[ $failed == 0 ]]
    exit
}

# A part nothing else can do without.
needed() { # NAME COMMAND...
    begin_part "$1"
    if "${@:2}"; then end_part; else
        failed=$((failed + 1))
        end_part "FAILED"
        finish
    fi
}

# A part whose output has the closing lines of tests; one without any counts as one test, by its exit code.
tested() { # NAME COMMAND...
    local p=0 f=0 s=0 rc lacking=0
    begin_part "$1"
    "${@:2}" 2>&1 | tee "$log"
    rc=${PIPESTATUS[0]}
    read -r p f s < <(awk '/^[0-9]+ passed, [0-9]+ failed(, [0-9]+ skipped)?$/ { n++; p += $1; f += $3; s += $5 }
        END { if (n) print p + 0, f + 0, s + 0 }' "$log") || true
    p=${p:-0} f=${f:-0} s=${s:-0}
    if [[ $((p + f + s)) == 0 && $rc == 0 ]]; then p=1; fi
    if [[ $f == 0 && $rc != 0 ]]; then f=1; fi
    [[ ${CI:-} != true ]] || lacking=$(grep -cE '^skipped: .*(headers|privilege)' "$log")
    passed=$((passed + p)) failed=$((failed + f + lacking)) skipped=$((skipped + s - lacking))
    end_part "$p passed, $f failed, $s skipped$([[ $lacking == 0 ]] || echo ", of these $lacking that CI should run")"
}

folders() { # folders of tests but those named
    local folder
    for folder in tests/*/; do [[ " $* " == *" $(basename "$folder") "* ]] || echo "${folder%/}"; done
}

needed "set-up" scripts/setup.sh check ${AARCH64:+aarch64}
needed "build" make -s -j"$jobs" check-build
tested "static checks" make -s -j"$jobs" static
mapfile -t unit < <(folders train ckpt cmd slow cuemu slurm)
tested "unit tests" scripts/run_tests.sh release "${unit[@]}"
tested "training" scripts/run_tests.sh release tests/train tests/cmd
tested "checkpoints" scripts/run_tests.sh release tests/ckpt
tested "Slurm" scripts/run_tests.sh release tests/slurm
tested "emulated CUDA" scripts/run_tests.sh release tests/cuemu
tested "asan, ubsan" scripts/run_tests.sh asan
tested "tsan" scripts/run_tests.sh tsan
tested "tsan, plain" scripts/run_tests.sh tsan-plain
[[ -z ${AARCH64:-} ]] || tested "aarch64" make -s -j"$jobs" check-aarch64
finish
