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
    check "$*: the same checkpoint" cmp fake/ckpt/step-00000009/rank-00000.safetensors mpi/ckpt/step-00000009/rank-00000.safetensors
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
check "processes, then one process" cmp whole/ckpt/step-00000009/rank-00000.safetensors first/ckpt/step-00000009/rank-00000.safetensors
train run.dir=second "${few[@]}" run.stop_after=4 --fake-ranks 4
train_mpi 4 run.dir=second "${few[@]}"
check "one process, then processes" cmp whole/ckpt/step-00000009/rank-00000.safetensors second/ckpt/step-00000009/rank-00000.safetensors

finish
