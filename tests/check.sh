# check.sh: the harness of script tests. Sourced; `check WHAT COMMAND...` passes if the command succeeds.
# shellcheck shell=bash
passed=0 failed=0 skipped=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

check() { # WHAT COMMAND...
    if "${@:2}"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $1"
        [[ ! -s $work/out ]] || sed 's/^/    /' "$work/out"
    fi
}
# run COMMAND...: its output in $work/out, its exit code in $rc.
run() {
    rc=0
    "$@" >"$work/out" 2>&1 </dev/null || rc=$?
}
# skip WHY: a part that this machine cannot run.
skip() {
    skipped=$((skipped + 1))
    echo "skipped: $0: $1"
}
says() { grep -qE -- "$1" "$work/out"; }
silent_about() { ! says "$1"; }
ended() { [[ $rc == "$1" ]]; }
finish() {
    echo "$passed passed, $failed failed$([[ $skipped == 0 ]] || echo ", $skipped skipped")"
    [[ $failed == 0 ]]
}
