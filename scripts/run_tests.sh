#!/usr/bin/env bash
# scripts/run_tests.sh VARIANT [tests/DIR | tests/DIR/test_NAME.c ...]   run tests, as many at a time as there are cores
# scripts/run_tests.sh --list VARIANT [tests/DIR ...]                    the C sources of the variant's tests
#
# The first line of a test may say what it needs:
#     /* test: timeout=60 variants=release,asan,tsan alone */        (scripts: the same after #)
# Without: timeout=60 (seconds; times six under sanitizers and qemu); C tests run under release, asan and aarch64,
# fuzz targets under asan, scripts under release. A variant with -slow is left to MT_SLOW=1, which runs no other.
# `alone` keeps other tests off the machine meanwhile.
# A test ends with the line `N passed, N failed[, N skipped]`; one that crashes, hangs or prints no such line counts
# as a failure (a fuzz target's exit code is enough). The output of tests is kept in build/VARIANT/results, that of one
# that failed is shown. The last line is the sum.
# Tests run in the repository root and find MT_BIN (the program), MT_BUILD (its folder) and MT_VARIANT.
set -uo pipefail
cd "$(dirname "$0")/.."

field() { # FILE KEY DEFAULT
    local value
    value=$(sed -n "1s/.*test:.* $2=\([^ ]*\).*/\1/p" "$1")
    echo "${value:-$3}"
}

is_alone() { head -n 1 "$1" | grep -q 'test:.* alone\b'; }

runs_under() { # FILE VARIANT
    local variants=release,asan,aarch64
    case $1 in
    tests/fuzz/*) variants=asan ;;
    *.sh | *.py) variants=release ;;
    esac
    variants=$(field "$1" variants $variants)
    [[ -z ${MT_SLOW:-} ]] || { [[ ,$variants, == *",$2-slow,"* ]]; return; }
    [[ ,$variants, == *",$2,"* || $2 == debug && ,$variants, == *,release,* ]]
}

selected() { # FILE FILTERS...   without a filter: everything but what is slow
    local f=$1 want
    shift
    [[ $# -gt 0 || $f == tests/slow/* ]] || return 0
    for want in "$@"; do [[ $f == "${want%/}"/* || $f == "$want" ]] && return 0; done
    return 1
}

sources() { # VARIANT FILTERS...
    local variant=$1 f
    shift
    for f in tests/*/test_*.c tests/*/test_*.sh tests/*/test_*.py tests/fuzz/fuzz_*.c; do
        # the emulator's programs have rules of their own, and a script that runs them
        [[ $f == tests/cuemu/*.c ]] && continue
        [[ -f $f ]] && selected "$f" "$@" && runs_under "$f" "$variant" && echo "$f"
    done
}

command_of() { # FILE   a fuzz target gets the files of its folder
    local program=$MT_BUILD/${1%.*} sysroot=${MT_BUILD%/*}/aarch64-sysroot seeds=${1%.c}
    seeds=${seeds/fuzz_/}
    case $1:$variant in
    *.sh:*) echo "bash $1" ;;
    *.py:*) echo "python3 $1" ;;
    tests/fuzz/*) echo "$program $(find "$seeds" -type f 2>/dev/null | sort | xargs)" ;;
    *:aarch64) echo "qemu-aarch64-static -cpu max -L /usr/aarch64-linux-gnu" \
        "-E LD_LIBRARY_PATH=$sysroot/usr/lib/aarch64-linux-gnu $program" ;;
    *:tsan*) echo "$fixed_layout $program" ;;
    *) echo "$program" ;;
    esac
}

# Prints what a person should see of a finished test, and writes "passed failed skipped" to RESULT.
judge() { # FILE LOG RESULT EXIT-CODE SECONDS
    local f=$1 log=$2 result=$3 rc=$4 seconds=$5 line passed=0 failed=0 skipped=0
    line=$(grep -E '^[0-9]+ passed, [0-9]+ failed(, [0-9]+ skipped)?$' "$log" | tail -n 1)
    [[ $f != tests/fuzz/* || -n $line || $rc != 0 ]] || line="1 passed, 0 failed"
    [[ -z $line ]] || read -r passed _ failed _ skipped _ <<<"${line//,/} 0"
    [[ $skipped =~ ^[0-9]+$ ]] || skipped=0
    if [[ $rc == 124 || $rc == 137 ]]; then
        line="timed out" failed=$((failed + 1))
    elif [[ -z $line || $rc != 0 && $failed == 0 ]]; then
        line="${line:+$line, but }ended with exit code $rc" failed=$((failed + 1))
    fi
    if [[ $failed -gt 0 ]]; then grep -vE '^[0-9]+ passed' "$log" | tail -n 60; else grep '^skipped: ' "$log"; fi
    printf '%-10s %-44s %6ss  %s\n' "$variant" "${f#tests/}" "$seconds" "$line"
    echo "$passed $failed $skipped" >"$result"
}

run_one() { # FILE
    local f=$1 log start rc said
    log=$out/$(tr / _ <<<"${f#tests/}").log
    if [[ $f == *.py ]] && ! command -v python3 >/dev/null; then
        echo "skipped: $f: no python3 here"
        echo 0 0 1 >"${log%.log}.result"
        return
    fi
    start=$(date +%s%N)
    # shellcheck disable=SC2046 # a command and its words
    timeout -k 5 $(($(field "$f" timeout 60) * factor)) $(command_of "$f") >"$log" 2>&1 </dev/null
    rc=$?
    said=$(judge "$f" "$log" "${log%.log}.result" $rc "$(awk "BEGIN { printf \"%.1f\", ($(date +%s%N) - $start) / 1e9 }")")
    echo "$said"
}

if [[ ${1:-} == --list ]]; then
    shift
    [[ $# -gt 1 ]] || set -- "$1" tests
    sources "$@" | grep '\.c$'
    exit 0
fi

variant=${1:?usage: scripts/run_tests.sh VARIANT [tests/DIR ...]}
shift
export MT_VARIANT=$variant MT_BUILD=${BUILD:-build}/$variant
export MT_BIN=$MT_BUILD/moetitan
export TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=1:exitcode=66}
factor=6
[[ $variant == release || $variant == debug ]] && factor=1
# ThreadSanitizer's shadow memory does not fit every layout of a kernel that randomises more than 28 bits.
fixed_layout=
[[ $(cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null || echo 28) -le 28 ]] || fixed_layout="setarch -R"
out=$MT_BUILD/results
mkdir -p "$out" && rm -f "$out"/*.result "$out"/*.log

together=() alone=()
while read -r f; do
    if is_alone "$f"; then alone+=("$f"); else together+=("$f"); fi
done < <(sources "$variant" "$@")

running=0
for f in "${together[@]}"; do
    if ((running >= $(nproc))); then wait -n && running=$((running - 1)); fi
    run_one "$f" &
    running=$((running + 1))
done
wait
for f in "${alone[@]}"; do run_one "$f"; done

cat "$out"/*.result 2>/dev/null | awk -v tests=$((${#together[@]} + ${#alone[@]})) '
    { passed += $1; failed += $2; skipped += $3 }
    END {
        failed += tests - NR # without a result a test has not run
        printf "%d passed, %d failed", passed, failed
        if (skipped) printf ", %d skipped", skipped
        print ""
        exit failed > 0
    }'
