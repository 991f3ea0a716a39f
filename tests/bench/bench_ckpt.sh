#!/usr/bin/env bash
# bench_ckpt.sh MOETITAN FOLDER [PYTHON]: saves of two processes, state under AdamW, a gigabyte of it, while they train: what they add to
# the steps, how long they take, at which share of the disk's own rate; and torch.distributed.checkpoint's asynchronous forms of as
# many bytes, on the same disk, in steps of a like length, if PYTHON has torch. ckpt.verify is off, as torch
# reads nothing back. SAVES=N: how many; LAYERS=N: 126 MB each.
set -euo pipefail
cd "$(dirname "$0")/../.."
bin=$(realpath "$1") python=${3:-}
mkdir -p "$2"
work=$(realpath "$2")
saves=${SAVES:-8} layers=${LAYERS:-8}
half=$((layers * 62914560)) # what a process writes
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader OMPI_MCA_btl_vader_single_copy_mechanism=none
median() { sort -g | awk '{ x[NR] = $1 } END { print NR % 2 ? x[(NR + 1) / 2] : (x[NR / 2] + x[NR / 2 + 1]) / 2 }'; }
drop_caches() {
    sync
    { echo 3 >/proc/sys/vm/drop_caches; } 2>/dev/null || echo "the system's cache cannot be emptied: loads are from memory"
}

# Two at a time, as the processes write: MB/s of both together. The bytes are random, and in memory when it begins.
raw_once() {
    local begun seconds
    rm -f "$work"/raw.*
    begun=$(date +%s.%N)
    for i in 1 2; do dd if="$work/random" of="$work/raw.$i" bs=4M oflag=direct conv=fsync 2>/dev/null & done
    wait
    seconds=$(awk -v a="$begun" -v b="$(date +%s.%N)" 'BEGIN { print b - a }')
    awk -v s="$seconds" -v half=$half 'BEGIN { print 2e-6 * half / s }'
}
raw_rate() {
    head -c $half /dev/urandom >"$work/random"
    for _ in 1 2 3 4 5; do
        cat "$work/random" >/dev/null
        raw_once
    done | median
    rm -f "$work"/raw.* "$work/random"
}

config() {
    "$bin" data pack README.md -o "$work/text" >/dev/null
    cat >"$work/bench.yaml" <<END
model: {vocab: 256, dim: 1024, layers: $layers, heads: 16, kv_heads: 16, head_dim: 64, ffn: 2048}
train: {steps: $((4 * saves + 8)), seq_len: 256, global_batch: 4, micro_batch: 1, dtype: bf16, log_interval: 1000, eval_interval: 0}
optim: {lr: 1e-4, warmup_steps: 1, groups: [{match: '*', optimizer: adamw}]}
data: {train: $work/text, valid: '', valid_fraction: 0}
ckpt: {interval: 4, keep_last: 1, at_end: false, buffer: 4MiB, verify: false}
device: {workers: 1}
run: {dir: $work/run}
END
}
train() { mpirun -n 2 "$bin" train "$work/bench.yaml" "$@"; }

# From metrics.jsonl: a step's seconds by its tokens and rate. The save of step s is under way in s + 1.
added() {
    awk -F'[:,]' '{ for (i = 1; i < NF; i++) if ($i ~ /"tokens_per_s"/) s[NR] = 1024 / $(i + 1) } END {
        for (i = 9; i + 3 <= NR; i += 4) print s[i] - (s[i + 2] + s[i + 3]) / 2 }' "$work/run/metrics.jsonl" | sort -g
}
plain_step() { awk -F'[:,]' '{ for (i = 1; i < NF; i++) if ($i ~ /"tokens_per_s"/ && NR % 4 != 1) print 1024 / $(i + 1) }' "$work/run/metrics.jsonl" | median; }

config
raw=$(raw_rate)
echo "raw       $raw MB/s: two of dd, O_DIRECT, 4 MiB at a time, random bytes, median of 5"
rm -rf "$work/run"
train >"$work/out"
grep '  checkpoint ' "$work/out" | tail -n "$saves" >"$work/saves"
field() { sed -E "s/$1/\\1/" "$work/saves" | median; }
save_s=$(field '.* in ([0-9.]+) s:.*')
rate=$(field '.* at ([0-9]+) MB\/s.*')
mb=$(field '.*: ([0-9.]+) MB at.*')
waited=$(field '.* steps waited ([0-9.]+) s.*')
mine=$(added | median)
echo "moetitan  $mb MB at $rate MB/s, $(awk -v a="$rate" -v b="$raw" 'BEGIN { printf "%.2f", a / b }') of raw; steps of $(plain_step) s;" \
    "added $mine s ($(added | head -n 1) to $(added | tail -n 1)), of which waiting $waited; complete after $save_s s"
drop_caches
train train.steps=$((4 * saves + 9)) ckpt.interval=0 >"$work/out"
load=$(sed -nE 's/^loaded .* in ([0-9.]+) s,.*/\1/p' "$work/out")
echo "moetitan  loaded in $load s"
rm -rf "$work/run"

if [[ -z $python ]] || ! "$python" -c 'import torch' 2>/dev/null; then
    echo "dcp       not measured: name a python with torch (tests/oracle/requirements.txt)"
    exit 0
fi
LAYERS=$((layers * 5 / 2)) "$python" -m torch.distributed.run --nproc-per-node 2 tests/bench/bench_ckpt_dcp.py "$work/dcp" "$saves" 2>"$work/err" | tee "$work/dcp.out" |
    sed 's/^dcp /dcp       /'
awk -v mine="$mine" -v load="$load" '
    $2 == "load" { printf "ratio     load: %.2f of DCP'\''s\n", load / $3; next }
    !best || $4 < best { best = $4; name = $2 }
    END { printf "ratio     added step time: %.3f of the best form'\''s (%s)\n", mine / best, name }' "$work/dcp.out"
