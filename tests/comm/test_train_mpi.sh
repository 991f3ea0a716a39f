# test: timeout=120
# Training in several processes: the bits, and the checkpoints, of as many ranks in one process.
source tests/check.sh
source tests/comm/mpirun.sh
source tests/train/tiny.sh
tiny_setup
cd "$work" || exit 1

# What a run found, step by step, less times and rates.
found() { grep -o '"\(step\|loss\|grad_norm\|val_loss\|expert_balance\)": [^,}]*' "$1/metrics.jsonl"; }
same_bits() { cmp -s <(found "$1") <(found "$2") && [[ $(found "$1" | wc -l) -ge 33 ]]; }
same_tensors() { # A B   of step 9, file by file
    local f n=0
    for f in "$1"/ckpt/step-00000009/rank-*; do cmp "$f" "$2/ckpt/step-00000009/${f##*/}" && n=$((n + 1)) || return 1; done
    [[ $n -ge 2 && $n == "$(find "$2/ckpt/step-00000009" -name 'rank-*' | wc -l)" ]]
}
train() { run timeout 60 "$MT_BIN" train tiny.yaml "$@"; }
train_mpi() { # N ARGUMENTS...
    run timeout 60 mpirun -n "$1" "$MT_BIN" train tiny.yaml "${@:2}"
}
small=(train.steps=9 train.global_batch=8 train.micro_batch=1 train.eval_interval=3 mesh.ranks_per_node=4 ckpt.interval=5)

compare() { # N OPTIONS...
    rm -rf fake mpi
    train run.dir=fake "${small[@]}" "${@:2}" --fake-ranks "$1"
    check "$*: ranks in one process" ended 0
    train_mpi "$1" run.dir=mpi "${small[@]}" "${@:2}"
    check "$*: ranks in processes" ended 0
    check "$*: one terminal output" test "$(grep -c '^model ' "$work/out")" = 1
    check "$*: the same bits" same_bits fake mpi
    check "$*: the same checkpoint" same_tensors fake mpi
}
compare 1
compare 2
compare 2 mesh.ep=2 train.dtype=f32
compare 4 mesh.ep=2
compare 4 mesh.ep=2 mesh.replicas=2 device.workers=1
compare 4 "shard.groups=[{match: '*.mlp.*', placement: block}, {match: '*.experts.*', gather: fp8}, {match: '*', placement: owned}]"
compare 2 ckpt.interval=2 guard.spike=rollback guard.spike_window=2 guard.spike_norm_factor=0.9 # what rises is left out
check "steps were left out" grep -q '"rollback": 2, "skipped": "spike"' mpi/metrics.jsonl
small+=(mesh.ranks_per_node=2)
compare 4 mesh.ep=2 shard.reshard_dense=node shard.host_weights=all train.global_batch=16 # two levels
small+=(mesh.ranks_per_node=4)
compare 4 mesh.ep=2 data.balance=attention device.workers=1

# the last of these goes on: stopped early by processes, ended by ranks of one process, and the other way round
few=("${small[@]}" mesh.ep=2)
train run.dir=whole "${few[@]}" --fake-ranks 4
train_mpi 4 run.dir=first "${few[@]}" run.stop_after=4
check "stopped early" ended 75
check "stopped early: said once" test "$(grep -c 'stopped after step 4' "$work/out")" = 1
train run.dir=first "${few[@]}" --fake-ranks 4
check "processes, then one process" same_tensors whole first
train run.dir=second "${few[@]}" run.stop_after=4 --fake-ranks 4
train_mpi 4 run.dir=second "${few[@]}"
check "every byte is read once" says '^loaded    second/ckpt/step-00000004: .*; read 1.000 of what is needed'
check "one process, then processes" same_tensors whole second

# by other numbers of processes; damage that one of them finds is heard by all, and the run goes on from the one before
for n in 1 2; do
    rm -rf other && cp -r first other
    train_mpi $n run.dir=other "${small[@]}" mesh.ep=$n train.steps=10
    check "gone on from by $n processes" says '^loaded    other/ckpt/step-00000009: .*; read 1.000 of'
done
rm -rf other && cp -r first other
printf '\x55' | dd of=other/ckpt/step-00000009/rank-00003.safetensors bs=1 seek=6000 conv=notrunc status=none
train_mpi 4 run.dir=other "${few[@]}" train.steps=10
check "damage: the run goes on" ended 0
check "damage: told once" test "$(grep -c "passing over a checkpoint: rank 3: .*rank-00003.safetensors': tensor '" "$work/out")" = 1
check "damage: an older one" says '^loaded    other/ckpt/step-0000000[45]: '
rm other/ckpt/step-0000000[45]*/manifest.json
printf '\x55' | dd of=other/ckpt/step-00000010/rank-00001.json bs=1 seek=60 conv=notrunc status=none
rm -r other/ckpt/step-00000009*
train_mpi 4 run.dir=other "${few[@]}" train.steps=11
check "only damaged ones: exit code" ended 5
check "only damaged ones: told" says 'no checkpoint is valid: step-00000010 of .*ckpt.resume: never'

finish
