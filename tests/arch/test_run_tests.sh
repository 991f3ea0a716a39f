# scripts/run_tests.sh counts crashes, time-outs and silence as failures, and keeps to variants and filters.
source tests/check.sh
mkdir -p "$work"/{scripts,tests/{good,bad,slow}}
cp scripts/run_tests.sh "$work/scripts"
script() { printf '%b' "$2" >"$work/tests/$1"; } # NAME TEXT
tests() { run env BUILD=made "$work/scripts/run_tests.sh" "$@"; }

script good/test_two.sh 'echo "2 passed, 0 failed"\n'
script good/test_skip.sh 'echo "skipped: one: no such instruction set"\necho "1 passed, 0 failed, 1 skipped"\n'
script slow/test_slow.sh 'echo "100 passed, 0 failed"\n'
script good/test_other.sh '# test: variants=asan\necho "7 passed, 0 failed"\n'
tests release
check "all pass" ended 0
check "the sum is the last line" test "$(tail -n 1 "$work/out")" = "3 passed, 0 failed, 1 skipped"
check "a skip is shown with its reason" says '^skipped: one: no such instruction set'
tests asan
check "the variant's tests only" test "$(tail -n 1 "$work/out")" = "7 passed, 0 failed"
tests release tests/slow
check "slow tests on demand" test "$(tail -n 1 "$work/out")" = "100 passed, 0 failed"

fails() { # WHAT TEXT EXPECTED-LINE EXPECTED-SUM
    script bad/test_bad.sh "$2"
    tests release tests/bad
    check "$1: exit code" ended 1
    check "$1: named" says "bad/test_bad.sh .*$3"
    check "$1: counted" test "$(tail -n 1 "$work/out")" = "$4"
}
fails "a failure" 'echo "FAILED a (x:1)"\necho "2 passed, 1 failed"\nexit 1\n' '2 passed, 1 failed' '2 passed, 1 failed'
check "what a failed test printed is shown" says '^FAILED a'
fails "a crash" 'echo "2 passed, 0 failed"\nkill -SEGV $$\n' 'but ended with exit code 139' '2 passed, 1 failed'
fails "silence" 'true\n' 'ended with exit code 0' '0 passed, 1 failed'
fails "a hang" '# test: timeout=1\nsleep 60\n' 'timed out' '0 passed, 1 failed'
finish
