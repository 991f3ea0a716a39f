# test: timeout=600
# The program as several processes, each with an emulated device of its own, joined over MPI, their collectives over the stand-in
# for NCCL: the bits of ranks in one process; what fails, and who is told, with which exit code.
source tests/check.sh
source tests/comm/mpirun.sh
source tests/train/tiny.sh
emulated=${MT_BUILD%/*}/cuemu/plain/moetitan
if ! "${MAKE:-make}" --no-print-directory -s "$emulated" >/dev/null 2>&1 || ! nm "$emulated" | grep -q ' mt_carrier_nccl$'; then
    echo "skipped: NVIDIA's headers, or NCCL's, not found"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
tiny_setup
MT_BIN=$(realpath "$emulated")
cd "$work" || exit 1
mkdir messages
export CUEMU_NCCL_DIR=$work/messages
small=(device.type=cuda model.layers=1 model.first_dense=0 train.steps=2 train.seq_len=16 train.global_batch=4 train.micro_batch=1
    train.eval_interval=2 train.eval_batches=1 mesh.ranks_per_node=4 ckpt.interval=0 optim.warmup_steps=0 optim.decay_ratio=0)

found() { grep -o '"\(step\|loss\|grad_norm\|val_loss\|expert_balance\)": [^,}]*' "$1/metrics.jsonl"; }
same_bits() { cmp -s <(found "$1") <(found "$2") && [[ $(found "$1" | wc -l) -ge 8 ]]; }
same_tensors() { # A B
    local f n=0
    for f in "$1"/ckpt/step-00000002/rank-*; do cmp "$f" "$2/ckpt/step-00000002/${f##*/}" && n=$((n + 1)) || return 1; done
    [[ $n -ge 2 && $n == "$(find "$2/ckpt/step-00000002" -name 'rank-*' | wc -l)" ]]
}
compare() { # N OPTIONS...
    rm -rf fake nccl
    run "$MT_BIN" train tiny.yaml run.dir=fake "${small[@]}" "${@:2}" --fake-ranks "$1"
    check "$*: ranks in one process" ended 0
    run timeout 180 mpirun -n "$1" "$MT_BIN" train tiny.yaml run.dir=nccl "${small[@]}" "${@:2}"
    check "$*: ranks in processes" ended 0
    check "$*: what was found" says '^device .*cuda/sm90.*; NCCL 2\.[0-9.]+'
    check "$*: the same bits" same_bits fake nccl
    check "$*: the same checkpoint" same_tensors fake nccl
    check "$*: nothing is left behind" test -z "$(ls messages)"
}
compare 2 mesh.replicas=2 wire.reduce=bf16
compare 4 mesh.ep=2 offload.moments=host

# What ends badly: exit code, one who says why, the reason in the run's folder.
ends() { # CODE NAME TEXT
    check "$what: exit code $1" ended "$1"
    check "$what: which collective" says "$3"
    check "$what: the reason is in the folder" grep -q "^{\"code\":$1,\"name\":\"$2\"" bad/exit.json
}
long=("${small[@]}" run.dir=bad train.steps=100000 train.eval_interval=0 mesh.ep=2)
what="a communicator that fails"
CUEMU_NCCL_FAULT=1:30:error run timeout 180 mpirun -n 2 "$MT_BIN" train tiny.yaml "${long[@]}"
ends 8 RANKS "^moetitan: rank 1: .*(gather|scatter|exchange)[a-z_]* (of the [a-z]* group, stream [a-z]*, number [0-9]+ failed|on group [0-9], stream [a-z]*, number [0-9]+).*NCCL: remote process"

rm -rf bad
what="a collective that hangs"
CUEMU_NCCL_FAULT=1:60:hang run timeout 180 mpirun -n 2 "$MT_BIN" train tiny.yaml "${long[@]}" run.hang_timeout=15s watchdog.first_step=15s watchdog.factor=1
ends 9 HANG "no progress: (a|the first) step .*is not over.*all of its group have entered [a-z_]* of the [a-z]* group, stream [a-z]*, number [0-9]+, where rank 0 waits"
check "$what: where each rank stands" test "$(grep -cE '^    stream [a-z]*: operation [0-9]+, [a-z_]+ on group [0-9], stream [a-z]*, number [0-9]+.* of 2 members' bad/hang.txt)" -ge 2

rm -rf bad
what="a rank that stands still"
timeout 180 mpirun -n 2 "$MT_BIN" train tiny.yaml "${long[@]}" run.hang_timeout=15s watchdog.factor=1 >"$work/out" 2>&1 &
launcher=$!
for _ in $(seq 900); do
    [[ ! -e bad/metrics.jsonl || $(wc -l <bad/metrics.jsonl) -lt 2 ]] || break
    sleep 0.1
done
for id in $(pgrep -P "$(pgrep -P "$launcher" | head -n 1)"); do
    if tr '\0' '\n' <"/proc/$id/environ" | grep -q '^OMPI_COMM_WORLD_RANK=1$'; then kill -STOP "$id"; fi
done
rc=0
wait "$launcher" || rc=$?
ends 9 HANG "^moetitan: rank 0: no progress: a step .*: rank 1 .* does not answer.*it has not entered (.* of the [a-z]* group, stream [a-z]*, number|a reduction between the processes, call) [0-9]+, where rank 0 waits"

what="a rank without NCCL's like"
run timeout 180 mpirun -n 1 "$MT_BIN" train tiny.yaml "${small[@]}" run.dir=unlike device.type=auto : \
    -n 1 "$MT_BIN" train tiny.yaml "${small[@]}" run.dir=unlike device.type=cpu
check "$what: exit code 8" ended 8
finish
