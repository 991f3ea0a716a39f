# test: timeout=120
# Nothing is allocated between step 1 and step 1000: malloc, mmap and brk by interposition; and what a run leaves behind.
source tests/check.sh
source tests/train/tiny.sh
tiny_setup
counter=$work/alloc_count.so
check "the counter builds" ${CC:-gcc} -std=c11 -D_GNU_SOURCE -O2 -fPIC -shared -o "$counter" tests/interpose/alloc_count.c -ldl

count() { # NAME STEPS OPTIONS...
    local name=$1 steps=$2
    MT_ALLOC_METRICS=$work/$name/run/metrics.jsonl MT_ALLOC_STEPS=2,$steps MT_ALLOC_REPORT=$work/report LD_PRELOAD=$counter \
        run train "$work/$name" train.steps=$((steps + 1)) train.eval_interval=0 ckpt.interval=0 train.global_batch=2 \
        train.micro_batch=1 "${@:3}"
    check "$name: runs" ended 0
    cp "$work/report" "$work/out"
    check "$name: the counter is in place" awk '$1 == "before" { exit !($2 > 100) }' "$work/report"
    check "$name: every step was counted" grep -qx "last_step $((steps + 1))" "$work/report"
    check "$name: no call for memory from step 2 to step $steps" grep -qx 'during 0' "$work/report"
}
count bf16 1000
count f32 200 train.dtype=f32 moe.buffer_factor=0.1 device.workers=3
host_state=(offload.masters=host offload.moments=host offload.grads=host offload.slot_bytes=16KiB)
count offloaded 100 "${host_state[@]}"
count activations 100 offload.activations.fraction=1 recompute.policy=selective recompute.keep_on=host
count host 100 "${host_state[@]}" optim.compute=host
count watched 60 train.global_batch=4 train.log_interval=1 mesh.replicas=2 guard.replica_hash_interval=3 guard.spike=skip guard.spike_window=4 \
    guard.spike_norm_factor=1.1 guard.straggler_factor=1.0001 --fake-ranks 4
check "watched: steps are left out, too" grep -q '"skipped": "spike"' "$work/watched/run/metrics.jsonl"
run "$MT_BIN" data pack "$work/corpus.idx" --pack-length 32
check "samples of whole documents" ended 0
count packed 200 data.mode=packed data.prefetch=8 train.log_interval=1

run "$MT_BIN" train "$work/tiny.yaml" device.memory=1 run.dir="$work/none"
need=$(sed -nE 's/.*needs ([0-9]+) bytes in the device arena.*/\1/p' "$work/out")
count limits 200 device.memory="$need" host.memory=4MiB host.huge_pages=auto host.numa=auto run.memory=true
run train "$work/memory" train.steps=1 optim.warmup_steps=0 run.memory=true
check "the table of run.memory" says '^  device .*  together, in [0-9]+ bytes: [0-9.]+% of them live'
check "the pages of the arenas" says '^  pages of the arenas here: .*; (on memory node 0|memory nodes are not told)'
check "the ledger is written" grep -q '"name": "host.tokens", "class": "tokens and labels", "arena": "host"' "$work/memory/run/ledger.json"

# What the counter sees if there is something to see: validation and checkpoints are outside of the promise.
MT_ALLOC_METRICS=$work/saving/run/metrics.jsonl MT_ALLOC_STEPS=2,20 MT_ALLOC_REPORT=$work/report LD_PRELOAD=$counter \
    run train "$work/saving" train.steps=21 ckpt.interval=5
check "a checkpoint is seen by the counter" grep -qE 'during [1-9]' "$work/report"

# metrics.jsonl
keys='"step": 1, "tokens": 64, "loss": [0-9.]+, "grad_norm": [0-9.]+, "lr": [0-9.e+-]+, "tokens_per_s": [0-9.]+, "mfu": [0-9.]+, "data_wait_s": [0-9.]+, "device_bytes": [0-9]+, "host_bytes": [0-9]+'
check "the first line has every documented key" grep -qE "^\{$keys" <(head -n 1 "$work/bf16/run/metrics.jsonl")
check "a line a step" test "$(wc -l <"$work/bf16/run/metrics.jsonl")" = 1001
check "the loss fell" awk -F'"loss": ' 'NR <= 20 { a += $2 } NR > 981 { b += $2 } END { exit !(b < 0.7 * a) }' "$work/bf16/run/metrics.jsonl"
check "the resolved configuration is kept" grep -q 'global_batch: 2 *# command line' "$work/bf16/run/config.yaml"
finish
