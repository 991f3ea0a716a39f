# kills.sh: a run of eight processes whose processes are killed again and again. Sourced after tiny.sh and tests/comm/mpirun.sh.
# shellcheck shell=bash
eight=(train.global_batch=8 train.micro_batch=1 mesh.ep=2 mesh.replicas=2 mesh.ranks_per_node=4 device.workers=1 ckpt.keep_last=4)
interval=7
random=1
draw() { # N   a number below N in $drawn
    random=$(((random * 1103515245 + 12345) % 2147483648))
    drawn=$((random / 65536 % $1))
}

start_eight() { # FOLDER
    mkdir -p "$1"
    (cd "$1" && exec mpirun -n 8 "$MT_BIN" train "$work/tiny.yaml" "${eight[@]}") >"$work/log" 2>&1 </dev/null &
    pid=$!
}
alive() { kill -0 $pid 2>/dev/null; }

# The step of the newest folder with a manifest; 0: none.
newest_complete() { # FOLDER
    local f newest=0
    for f in "$1"/run/ckpt/step-*[0-9]/manifest.json; do
        [[ -e $f ]] || continue
        f=${f%/manifest.json}
        newest=$((10#${f##*step-}))
    done
    echo $newest
}
last_step() { sed -nE 's/^\{"step": ([0-9]+), "tokens".*/\1/p' "$1/run/metrics.jsonl" 2>/dev/null | tail -n 1; }

# Two of three times in a save, which it has seen begin; else at any time.
wait_for_moment() { # FOLDER
    local i
    draw 3
    if [[ $drawn == 0 ]]; then
        draw 1500
    else
        draw 3
        for ((i = 0; i <= drawn; i++)); do
            until compgen -G "$1/run/ckpt/*.saving" >/dev/null || ! alive; do sleep 0.002; done
            while [[ $i -lt $drawn ]] && compgen -G "$1/run/ckpt/*.saving" >/dev/null && alive; do sleep 0.002; done
        done
        draw 30
    fi
    sleep "$(printf '%d.%03d' $((drawn / 1000)) $((drawn % 1000)))"
}
# One of its processes, or all, and with them the launcher.
kill_some() {
    local ranks
    mapfile -t ranks < <(pgrep -P $pid -x moetitan)
    [[ ${#ranks[@]} -gt 0 ]] || return 0
    draw 4
    if [[ $drawn == 0 ]]; then
        kill -KILL "${ranks[@]}" $pid 2>/dev/null
    else
        draw ${#ranks[@]}
        kill -KILL "${ranks[drawn]}" 2>/dev/null
    fi
}

# Its exit code in $rc. mpirun itself may hang where a process dies while it joins: without processes it is given five seconds.
wait_for_launcher() {
    local alone=0
    while alive && [[ $alone -lt 50 ]]; do
        alone=$((alone + 1))
        ! pgrep -P $pid -x moetitan -r D,R,S,T >/dev/null || alone=0
        sleep 0.1
    done
    kill -KILL $pid 2>/dev/null
    rc=0
    wait $pid 2>/dev/null || rc=$?
}

# What a restart went on from, by its own words; 0: it began.
went_on_from() { sed -nE 's/^start .*going on from .*step-0*([0-9]+)$/\1/p' "$work/log"; }
# Of the run in $work/log: it went on from what was complete when it began, and told of no checkpoint that is not there.
honest() { # FOLDER COMPLETE_BEFORE COMPLETE_NOW
    local told last
    cp "$work/log" "$work/out"
    if grep -q '^start ' "$work/log"; then
        [[ $(went_on_from || true) == "${2#0}" ]] || return 1
    fi
    told=$(sed -nE 's/^step +[0-9]+  checkpoint .*step-0*([0-9]+) in .*/\1/p' "$work/log" | tail -n 1)
    [[ ${told:-0} -le $3 ]] || return 2
    last=$(last_step "$1")
    # a save that is due waits, behind its step, for the one before it
    [[ $((${last:-0} - $3)) -le $((2 * interval)) ]]
}

# Runs the folder's run again until it ends by itself or is killed; counts in $kills.
one_life() { # FOLDER
    local before now
    before=$(newest_complete "$1")
    start_eight "$1"
    wait_for_moment "$1"
    kill_some
    wait_for_launcher
    now=$(newest_complete "$1")
    honest "$1" "$before" "$now" || return 1
    [[ $rc == 0 ]] || kills=$((kills + 1))
}

# check_kills N: against an undisturbed run of eight, which it makes in $work/whole
check_kills() {
    local lives=0 ends=0 bad=0
    start_eight "$work/whole"
    rc=0
    wait $pid || rc=$?
    cp "$work/log" "$work/out"
    check "an undisturbed run" ended 0
    kills=0
    rm -rf "$work/cut"
    while [[ $kills -lt $1 && $bad == 0 ]]; do
        lives=$((lives + 1))
        one_life "$work/cut" || bad=$lives
        [[ $rc == 0 ]] || continue
        ends=$((ends + 1))
        check "end $ends: the same curve" same_curve "$work/whole" "$work/cut"
        check "end $ends: the same checkpoint" same_checkpoint "$work/whole" "$work/cut" 00000060
        rm -rf "$work/cut"
    done
    check "each of $lives starts went on from the newest complete checkpoint, and lost nothing before it" test $bad == 0
    start_eight "$work/cut"
    rc=0
    wait $pid || rc=$?
    cp "$work/log" "$work/out"
    check "the last one is left alone" ended 0
    check "the last one: the same curve" same_curve "$work/whole" "$work/cut"
    check "the last one: the same checkpoint" same_checkpoint "$work/whole" "$work/cut" 00000060
    run "$MT_BIN" ckpt ls --verify "$work/cut/run"
    check "the last one: all valid" ended 0
    echo "killed $kills times in $lives starts; $ends runs came to their end in between"
}
