# test: timeout=240
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
    check "processors that two ranks have: whose, in the same message" \
        says "^binding   .*; ranks 0-1 share processors with other ranks of their node \(rank 0 on $(hostname): "
    check "the phases of the start" says '^phases    launch [0-9.]+ s.*, data [0-9.]+ s.*, first batches [0-9.]+ s'
fi
objcopy --remove-section .note.gnu.build-id "$MT_BIN" "$work/another"
run timeout 60 mpirun -n 1 "$MT_BIN" train "$work/tiny.yaml" run.dir="$work/builds" : -n 1 "$work/another" train "$work/tiny.yaml" \
    run.dir="$work/builds"
check "another build: refused" ended 8
check "another build: by whom" says '^moetitan: rank 1: the program .*differs between ranks: here ".*build ", on rank 0 ".*build [0-9a-f]{40}"'
check "other configurations: nothing was begun" test ! -e other
mkdir other
run timeout 60 mpirun -n 1 "$MT_BIN" train tiny.yaml run.dir=other optim.lr=0.01 : -n 2 "$MT_BIN" train tiny.yaml run.dir=other optim.lr=0.02
check "other configurations: the reason, in a folder that is there" grep -q '^{"code":8,"name":"RANKS","message":"ranks 1-2; rank 1: the configuration differs' other/exit.json
mkdir -p one two
tr w '~' <text >two/text
cp text one/text
for side in one two; do run "$MT_BIN" data pack $side/text -o $side/corpus --document line; done
run timeout 60 mpirun -n 1 -wdir "$work/one" "$MT_BIN" train ../tiny.yaml run.dir="$work/data" data.train=corpus model.vocab=123 : \
    -n 1 -wdir "$work/two" "$MT_BIN" train ../tiny.yaml run.dir="$work/data" data.train=corpus model.vocab=123
check "a token that one rank meets alone: exit code 4" ended 4
check "a token that one rank meets alone: whose" says 'moetitan: rank 1: .*126'
check "a token that one rank meets alone: the reason is that rank's" grep -q '^{"code":4,"name":"DATA","message":.*,"rank":1,' data/exit.json
# a file system that does not answer one rank, here a pipe that nobody writes to
mkdir three
mkfifo three/corpus.idx
run timeout 60 mpirun -n 2 -wdir "$work/one" "$MT_BIN" train ../tiny.yaml run.dir="$work/none" data.train=corpus train.global_batch=6 watchdog.setup=2s : \
    -n 1 -wdir "$work/three" "$MT_BIN" train ../tiny.yaml run.dir="$work/none" data.train=corpus train.global_batch=6 watchdog.setup=2s
check "a rank that stands still in set-up: a hang" ended 9
check "a rank that stands still in set-up: it is named" \
    says 'no progress: set-up is not over after .*: rank 2 \(node .*\) has not entered a reduction between the processes, call [0-9]+, where rank 0 waits'
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
    timeout 60 mpirun -n 2 "$MT_BIN" train tiny.yaml run.dir=long train.steps=1000000 ckpt.interval=0 >"$work/out" 2>&1 &
    launcher=$!
    for _ in $(seq 100); do
        [[ ! -e long/metrics.jsonl || $(wc -l <long/metrics.jsonl) -lt 3 ]] || return 0
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
# A rank under SIGSTOP, of four: the first of those that watch, the last, and one between.
stopped() { # RANK
    local id
    rm -rf long
    timeout 60 mpirun -n 4 "$MT_BIN" train tiny.yaml run.dir=long train.steps=1000000 train.global_batch=8 mesh.ep=2 ckpt.interval=0 \
        run.hang_timeout=2s watchdog.factor=1 >"$work/out" 2>&1 &
    launcher=$!
    for _ in $(seq 100); do
        [[ ! -e long/metrics.jsonl || $(wc -l <long/metrics.jsonl) -lt 3 ]] || break
        sleep 0.1
    done
    for id in $(pgrep -P "$(pgrep -P "$launcher" | head -n 1)"); do
        if tr '\0' '\n' <"/proc/$id/environ" | grep -q "^OMPI_COMM_WORLD_RANK=$1\$"; then kill -STOP "$id"; fi
    done
}
for rank in 2 0 3; do
    stopped $rank
    check "rank $rank stands still: the job ends" ended_within 20
    check "rank $rank stands still: a hang" test "$rc" = 9
    check "rank $rank stands still: it is named" says "^moetitan: rank [0-9]: no progress: a step .* is not over after .*: rank $rank .* does not answer"
    check "rank $rank stands still: so is what waits for it" says "does not answer.*it has not entered (.* of the .* group, stream .*, number|a reduction between the processes, call) [0-9]+, where rank"
    check "rank $rank stands still: alone" silent_about 'more are missing'
    check "rank $rank stands still: the reason is in the folder" grep -q '"code":9,"name":"HANG","message":"no progress.*"step":' long/exit.json
    check "rank $rank stands still: three ranks tell their last collectives" test "$(grep -c '^    last: .* number ' long/hang.txt)" = 3
done

# A rank that does nothing any more but answer: among others, and all ranks of one process.
faults=$work/faults.so
root=$OLDPWD
check "the library of faults builds" ${CC:-gcc} -std=c11 -D_GNU_SOURCE -O2 -fPIC -shared -o "$faults" "$root/tests/interpose/faults.c" -ldl
still=(run.dir=still train.steps=1000000 train.global_batch=8 ckpt.interval=0 train.eval_interval=0 run.hang_timeout=2s watchdog.factor=1)
run timeout 60 mpirun -n 1 "$MT_BIN" train tiny.yaml "${still[@]}" : \
    -n 1 env MT_FAULT_STALL=still/metrics.jsonl,9 LD_PRELOAD="$faults" "$MT_BIN" train tiny.yaml "${still[@]}" : \
    -n 2 "$MT_BIN" train tiny.yaml "${still[@]}"
check "a rank that answers, and no more: a hang" ended 9
check "a rank that answers, and no more: it is named" says 'no progress: a step .*: rank 1 \(node [^ ]*\) (is still at work|has not entered)'
check "a rank that answers, and no more: alone" silent_about 'more are missing'
rm -r still
MT_FAULT_STALL=still/metrics.jsonl,9 LD_PRELOAD=$faults run timeout 60 "$MT_BIN" train tiny.yaml "${still[@]}" --fake-ranks 4
check "ranks of one process: a hang" ended 9
check "ranks of one process: all tell where they stand" test "$(grep -c '^  rank [0-3], node .*: a step, step [0-9]*, for' still/hang.txt)" = 4
check "ranks of one process: the reason is in the folder" grep -q '^{"code":9,"name":"HANG"' still/exit.json

# A bit that flips in one replica's memory; the learning rate leaves the weights of norms at 1.
corrupt=(run.dir=corrupt mesh.replicas=2 train.dtype=f32 train.steps=1000000 train.global_batch=8 optim.lr=1e-30 optim.weight_decay=0
    ckpt.interval=0 train.eval_interval=0 guard.replica_hash_interval=2)
run timeout 60 mpirun -n 1 "$MT_BIN" train tiny.yaml "${corrupt[@]}" : \
    -n 1 env MT_FAULT_FLIP=corrupt/metrics.jsonl,9 LD_PRELOAD="$faults" "$MT_BIN" train tiny.yaml "${corrupt[@]}"
check "a flipped bit was one" says 'faults: a bit flipped in [1-9][0-9]* rows'
check "a flipped bit: exit code 11" ended 11
check "a flipped bit: said once, with rank, unit and the last good step" \
    says '^moetitan: after step [0-9]+, the .* is not the same in all replicas: rank 1 .* holds other weights than rank 0.*all were alike after step'
check "a flipped bit: the reason is in the folder" grep -q '^{"code":11,"name":"CORRUPT","message":"after step' corrupt/exit.json
finish
