# test: timeout=120
# How a job of several processes fails: together, with one message and its exit code; and how it is stopped.
source tests/check.sh
source tests/comm/mpirun.sh
source tests/train/tiny.sh
tiny_setup
cd "$work" || exit 1

train_mpi() { # N ARGUMENTS...
    run timeout 60 mpirun -n "$1" "$MT_BIN" train tiny.yaml "${@:2}"
}
said_once() { [[ $(grep -c '^moetitan: ' "$work/out") == 1 ]]; }
run timeout 60 mpirun -n 1 "$MT_BIN" train tiny.yaml run.dir=other optim.lr=0.01 : -n 2 "$MT_BIN" train tiny.yaml run.dir=other optim.lr=0.02
check "other configurations: the exit code" ended 8
check "other configurations: one message" said_once
check "other configurations: which" says 'rank 1: the configuration differs.*"optim.lr: 0.02".*on rank 0 "optim.lr: 0.01"'
if [[ $(nproc) -ge 2 ]] && command -v taskset >/dev/null; then
    few=$(taskset -cp $$ | sed 's/.*: //; s/[-,].*//')
    run timeout 60 mpirun --bind-to none -n 1 "$MT_BIN" train "$work/tiny.yaml" run.dir="$work/bound" train.steps=2 optim.warmup_steps=0 \
        optim.decay_ratio=0 : -n 1 taskset -c "$few" "$MT_BIN" train "$work/tiny.yaml" run.dir="$work/bound" train.steps=2 \
        optim.warmup_steps=0 optim.decay_ratio=0
    check "fewer processors: works" ended 0
    check "fewer processors: whose" says '^binding   rank 1 may use fewer processors'
    check "the phases of the start" says '^phases    launch [0-9.]+ s.*, data [0-9.]+ s.*, first batches [0-9.]+ s'
fi
objcopy --remove-section .note.gnu.build-id "$MT_BIN" "$work/another"
run timeout 60 mpirun -n 1 "$MT_BIN" train "$work/tiny.yaml" run.dir="$work/builds" : -n 1 "$work/another" train "$work/tiny.yaml" \
    run.dir="$work/builds"
check "another build: refused" ended 8
check "another build: by whom" says '^moetitan: rank 1: the program .*differs between ranks: here ".*build ", on rank 0 ".*build [0-9a-f]{40}"'
check "other configurations: nothing was begun" test ! -e other
mine=(train.steps=2 optim.warmup_steps=0 optim.decay_ratio=0 ckpt.at_end=false)
run timeout 60 mpirun -n 1 "$MT_BIN" train tiny.yaml "${mine[@]}" device.workers=1 : -n 1 "$MT_BIN" train tiny.yaml "${mine[@]}"
check "options that each rank may have its own way" ended 0
run timeout 60 mpirun -n 2 "$MT_BIN" train tiny.yaml : -n 1 "$MT_BIN" train absent.yaml
check "a file that one rank lacks: the exit code" ended 2
check "a file that one rank lacks: one message" said_once
check "a file that one rank lacks: whose" says '^moetitan: rank 2: absent.yaml'
train_mpi 2 --fake-ranks 2
check "ranks in ranks" ended 2
check "ranks in ranks: one message" said_once
train_mpi 2 run.dir=/proc/no/such
check "a folder that cannot be made" ended 6
check "a folder that cannot be made: one message" said_once
run env SLURM_STEP_NUM_TASKS=2 "$MT_BIN" train tiny.yaml
check "srun without a process interface" ended 8
check "srun without a process interface: what to do" says 'srun --mpi=pmix'

# starts 2 processes that would run for long; mpirun is $launcher
start_long() {
    rm -rf long
    timeout 60 mpirun -n 2 "$MT_BIN" train tiny.yaml run.dir=long train.steps=1000000 ckpt.interval=0 run.hang_timeout=2s >"$work/out" 2>&1 &
    launcher=$!
    for _ in $(seq 100); do
        [[ $(cat long/metrics.jsonl 2>/dev/null | wc -l) -lt 3 ]] || return 0
        sleep 0.1
    done
    return 1
}
ended_within() { # SECONDS
    local begun=$SECONDS
    rc=0
    wait "$launcher" || rc=$?
    [[ $((SECONDS - begun)) -le $1 ]]
}
check "a long run" start_long
mpirun_id=$(pgrep -P "$launcher" | head -n 1)
kill -9 "$(pgrep -P "$mpirun_id" | tail -n 1)"
check "a killed rank ends the job within seconds" ended_within 10
check "a killed rank: a failure" test $rc -ne 0 -a $rc -ne 124
check "a killed rank is named" says 'process rank [01] .*signal 9'
check "another long run" start_long
kill -USR1 "$(pgrep -P "$launcher" | head -n 1)"
check "a signal to mpirun stops all" ended_within 10
check "a signal to mpirun: to go on" ended 75
check "a signal to mpirun: everything is saved" says 'stopped after step .* everything is saved'
check "a third long run" start_long
kill -STOP "$(pgrep -P "$(pgrep -P "$launcher" | head -n 1)" | tail -n 1)"
check "a rank that stands still ends the job" ended_within 12
check "a rank that stands still: a hang" ended 9
check "a rank that stands still: said by one that waits" says '^moetitan: rank [01]: .*is not over after 2 s'
finish
