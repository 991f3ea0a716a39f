# resume.sh: a run killed at a random moment, and started again until it is done. Sourced after tiny.sh.
# shellcheck shell=bash

# attempt FOLDER LIFE: starts the run up to three times, kills it after 20 to 20 + LIFE ms, and then lets it end.
attempt() {
    kills=0
    for _ in 1 2 3; do
        start "$1"
        random=$(((random * 1103515245 + 12345) % 2147483648))
        sleep "$(awk -v x=$((random / 65536)) -v life="$2" 'BEGIN { printf "%.3f", 0.02 + x % life / 1000 }')"
        kill -KILL $pid 2>/dev/null
        rc=0
        wait $pid 2>/dev/null || rc=$?
        [[ $rc == 137 ]] || return 0
        kills=$((kills + 1))
    done
    start "$1"
    rc=0
    wait $pid || rc=$?
}
# killed FOLDER SEED LIFE: the same, with a shorter life where the run was over before it could be killed.
killed() {
    local life=$3
    random=$2
    for _ in 1 2 3 4 5; do
        rm -rf "$1"
        attempt "$1" "$life"
        [[ $kills == 0 ]] || break
        life=$((life / 2 + 1))
    done
    cp "$work/log" "$work/out"
    [[ $rc == 0 && $kills -gt 0 ]]
}

# check_killed TIMES FIRST_SEED   against the undisturbed run in $work/whole, whose milliseconds are $whole_ms
check_killed() {
    local seed all=0
    for ((seed = $2; seed < $2 + $1; seed++)); do
        check "killed, seed $seed: was killed, and ends" killed "$work/cut" "$seed" "$whole_ms"
        check "killed, seed $seed: the same curve" same_curve "$work/whole" "$work/cut"
        check "killed, seed $seed: the same checkpoint" same_checkpoint "$work/whole" "$work/cut" 00000060
        all=$((all + kills))
    done
    echo "killed $all times in $1 runs of $whole_ms ms"
}

whole_run() {
    local start
    start=$(date +%s%N)
    run train "$work/whole"
    whole_ms=$((($(date +%s%N) - start) / 1000000))
    check "an undisturbed run" ended 0
}
