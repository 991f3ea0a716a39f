# test: timeout=240
# Saves while training goes on: when they happen, what stays, the bits they hold, and stores that fail, fill up or hang.
source tests/check.sh
source tests/train/tiny.sh
tiny_setup
faults=$work/store_faults.so
check "the faults build" ${CC:-gcc} -std=c11 -D_GNU_SOURCE -O2 -fPIC -shared -o "$faults" tests/interpose/store_faults.c
ranks=(--fake-ranks 8 train.global_batch=8 train.micro_batch=1 mesh.ep=2 mesh.replicas=2)
steps() { # FOLDER   of the checkpoints there, and whatever else lies beside them
    (cd "$1/run/ckpt" && echo *)
}
has() { # FOLDER STEPS...
    steps "$1" >"$work/out"
    [[ $(steps "$1") == "${*:2}" ]]
}
names() { printf 'step-%08d\n' "$@"; }
valid() { # FOLDER   all of them
    run "$MT_BIN" ckpt ls --verify "$1/run"
    [[ $rc == 0 ]] && ! says 'damaged|incomplete'
}
copies() { # A STEP B   the files of the ranks are alike
    local file n=0
    for file in "$1/run/ckpt/step-$2"/rank-*; do
        cmp "$file" "$3/run/ckpt/step-$2/${file##*/}" >"$work/out" 2>&1 || return 1
        n=$((n + 1))
    done
    [[ $n == 8 ]] # half of the ranks are replicas of the others
}

run train "$work/whole" "${ranks[@]}" ckpt.keep_last=100
check "an undisturbed run" ended 0
check "every seventh step, and the last" has "$work/whole" $(names 7 14 21 28 35 42 49 56 60)
check "all valid" valid "$work/whole"

# The store takes far longer than the steps: the update waits, and the bits are those of the step.
run train "$work/slow" "${ranks[@]}" run.stop_after=15 ckpt.rate_limit=1MB ckpt.buffer=64KiB
check "a slow store" ended 75
check "the steps waited for it" says 'step +7  checkpoint .* steps waited 0\.[1-9]'
for step in 00000007 00000014; do check "a slow store: the bits of step $step" copies "$work/slow" $step "$work/whole"; done
check "the curve goes with it" test "$(wc -l <"$work/slow/run/ckpt/step-00000014/metrics.jsonl")" = 14

# which ones stay
run train "$work/keep" "${ranks[@]}" ckpt.keep_every=14 ckpt.keep_last=2
check "ckpt.keep_every" has "$work/keep" $(names 14 28 42 56 60)
run train "$work/time" "${ranks[@]}" ckpt.interval=0 ckpt.interval_time=0.0001s ckpt.keep_last=100 train.steps=10 run.stop_after=6
check "ckpt.interval_time: each step comes later than that" has "$work/time" $(names 1 2 3 4 5 6)
run train "$work/time" "${ranks[@]}" ckpt.interval=0 ckpt.interval_time=10m train.steps=10 run.stop_after=2
check "ckpt.interval_time: not yet" has "$work/time" $(names 5 6 8)
run train "$work/time" "${ranks[@]}" ckpt.interval=1 ckpt.keep_last=1 train.steps=12
check "what the run went on from stays: ends" ended 0
check "what the run went on from stays" has "$work/time" $(names 8 12)
# One that was passed over for its damage does not push out those that are sound.
run train "$work/hurt" "${ranks[@]}" run.stop_after=16
check "a damaged one: stopped at step 16" has "$work/hurt" $(names 7 14 16)
printf '\377\377\377\377' | dd of="$work/hurt/run/ckpt/step-00000016/rank-00001.safetensors" bs=1 seek=5000 conv=notrunc 2>/dev/null
run train "$work/hurt" "${ranks[@]}" run.stop_after=7
check "a damaged one: passed over" says 'passing over a checkpoint: .*step-00000016/rank-00001'
check "a damaged one: three others stay beside it" has "$work/hurt" $(names 7 14 16 21)

# Failures: told, nothing is left, training goes on to the same curve, and the next save succeeds.
fault() { # NAME FAULT ARGUMENTS...
    export MT_STORE_FAULT=$2 MT_STORE_HITS=$work/hits
    rm -f "$work/hits"
    LD_PRELOAD=$faults run train "$work/$1" "${ranks[@]}" ckpt.keep_last=100 "${@:3}"
    unset MT_STORE_FAULT MT_STORE_HITS
    cp "$work/out" "$work/told"
    check "$1: happened" test -s "$work/hits"
    check "$1: the run goes on" ended 0
    check "$1: told" grep -q "there is no checkpoint of step 7; training goes on" "$work/told"
    check "$1: nothing is left, the next is there" has "$work/$1" $(names 14 21 28 35 42 49 56 60)
    check "$1: the same curve" same_curve "$work/whole" "$work/$1"
    check "$1: the next one is sound" copies "$work/$1" 00000014 "$work/whole"
}
told() { grep -qE -- "$1" "$work/told"; }
fault eio 'pwrite EIO */step-00000007*/rank-00002.safetensors'
check "eio: which file, and why" told "saving the checkpoint of step 7: cannot write to '.*rank-00002.safetensors' at byte .*: Input/output error"
fault quota 'pwrite EDQUOT */step-00000007*'
check "quota: why" told "Disk quota exceeded"
fault readonly 'fsync EROFS */step-00000007*/rank-00001.json.tmp'
check "read-only: why" told "cannot write to '.*rank-00001.json.tmp': Read-only file system"
fault manifest 'fsync EIO */step-00000007*/manifest.json.tmp'
check "manifest: why" told "manifest.json.tmp': Input/output error"
fault name 'rename EIO */step-00000007'
check "name: why" told "cannot rename .* Input/output error"
fault hang 'pwrite hang */step-00000007*' ckpt.timeout=3s
check "hang: given up" told "saving the checkpoint of step 7: (given up after|after 3 s the store)"
fault hang_at_the_end 'fsync hang */step-00000007*/manifest.json.tmp' ckpt.timeout=3s
check "hang at the end: given up" told "saving the checkpoint of step 7: given up after"

# The last one fails: the run says so with its exit code, and the same command saves it.
MT_STORE_FAULT='pwrite EIO */step-00000060*' LD_PRELOAD=$faults run train "$work/last" "${ranks[@]}"
check "the last one fails" ended 6
check "the last one fails: told" says "the run ends at step 60 and its last checkpoint could not be written"
run train "$work/last" "${ranks[@]}"
check "the last one, again" ended 0
check "the last one, again: sound" copies "$work/last" 00000060 "$work/whole"
check "the last one, again: the same curve" same_curve "$work/whole" "$work/last"

# What a run that was killed left is removed by the next.
mkdir -p "$work/left/run/ckpt/step-00000003.saving"
touch "$work/left/run/ckpt/step-00000003.saving/rank-00000.safetensors"
run train "$work/left" "${ranks[@]}" train.steps=10 ckpt.interval=0 ckpt.at_end=false
check "leftovers are no harm" ended 0
check "leftovers are removed" has "$work/left" '*'

# A small file system of its own, which fills up and has room again.
full() {
    mount -t tmpfs -o size=3m tmpfs "$work/full/run" || exit 77
    head -c 2800000 /dev/zero >"$work/full/run/fill"
    (while [[ $(grep -c '"step": [0-9]*, "tokens"' "$work/full/run/metrics.jsonl" 2>/dev/null) -lt 20 ]]; do sleep 0.01; done; rm "$work/full/run/fill") &
    train "$work/full" "${ranks[@]}" ckpt.keep_last=1 ckpt.interval=9 || return 1
    [[ -s $work/full/run/ckpt/step-00000060/manifest.json && $(steps "$work/full") == step-00000060 ]] || return 2
    diff <(curve "$work/whole") <(curve "$work/full")
}
mkdir -p "$work/full/run"
if unshare -m true 2>/dev/null; then
    export -f full train steps curve
    export work MT_BIN
    declare -p ranks >"$work/ranks"
    run unshare -m bash -c "source '$work/ranks'; full"
    if [[ $rc != 77 ]]; then
        check "a full file system" ended 0
        check "a full file system: the numbers" says "the checkpoint takes [0-9]+ bytes, the file system has room for [0-9]+: No space left on device"
        check "a full file system: training goes on" says "there is no checkpoint of step 9; training goes on"
    fi
fi
finish
