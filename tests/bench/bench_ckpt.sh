#!/usr/bin/env bash
# bench_ckpt.sh MOETITAN FOLDER [PYTHON]: saves of two processes, state under AdamW, while they train: what they add to
# the steps, how long they take, at which share of the disk's own rate; and torch.distributed.checkpoint's asynchronous forms of as
# many bytes, on the same disk, in steps of a like length, if PYTHON has torch. ckpt.verify is off, as torch
# reads nothing back. Both are run in turn, ROUNDS=N times (4) with SAVES=N saves each (5): medians over all of them, with quartiles.
# LAYERS=N (2): 129 MB each. The machine must have nothing else to do.
set -euo pipefail
cd "$(dirname "$0")/../.."
bin=$(realpath "$1") python=${3:-}
mkdir -p "$2"
work=$(realpath "$2")
saves=${SAVES:-5} layers=${LAYERS:-2} rounds=${ROUNDS:-4}
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


# Of a column of numbers: median (first quartile to third).
spread() {
    sort -g | awk '{ x[NR] = $1 } function at(q, i) { i = 1 + q * (NR - 1); return x[int(i)] + (i - int(i)) * (x[int(i) + (i < NR)] - x[int(i)]) }
        END { printf "%.4f (%.4f to %.4f)", at(.5), at(.25), at(.75) }'
}
# From metrics.jsonl: a step's seconds by its tokens and rate. A save is begun every fourth step, and must be over two later: what these
# two take longer than the two that follow. The first save is left out.
added() {
    awk -F'[:,]' '{ for (i = 1; i < NF; i++) if ($i ~ /"tokens_per_s"/) s[NR] = 1024 / $(i + 1) } END {
        for (i = 9; i + 3 <= NR; i += 4) print s[i] + s[i + 1] - s[i + 2] - s[i + 3] }' "$work/run/metrics.jsonl"
}
plain_steps() { awk -F'[:,]' '{ for (i = 1; i < NF; i++) if ($i ~ /"tokens_per_s"/ && (NR % 4 == 3 || NR % 4 == 0)) print 1024 / $(i + 1) }' "$work/run/metrics.jsonl"; }

ours() {
    rm -rf "$work/run"
    train >"$work/out"
    grep '  checkpoint ' "$work/out" | tail -n "$saves" >>"$work/saves"
    added >>"$work/added"
    plain_steps >>"$work/plain"
    drop_caches
    train train.steps=$((4 * saves + 9)) ckpt.interval=0 >"$work/out"
    sed -nE 's/^loaded .* in ([0-9.]+) s,.*/\1/p' "$work/out" >>"$work/load"
    rm -rf "$work/run"
}
theirs() {
    LAYERS=$((layers * 5 / 2)) "$python" -m torch.distributed.run --nproc-per-node 2 tests/bench/bench_ckpt_dcp.py "$work/dcp" "$saves" 2>"$work/err" >>"$work/dcp.out"
}
field() { sed -E "s/$1/\\1/" "$work/saves" | median; }
of() { awk -v form="$1" -v column="$2" '$2 == form { print $column }' "$work/dcp.out"; }

config
rm -f "$work"/{saves,added,plain,load,dcp.out}
torch=
[[ -n $python ]] && "$python" -c 'import torch' 2>/dev/null && torch=yes
raw=$(raw_rate)
echo "raw       $raw MB/s: two of dd, O_DIRECT, 4 MiB at a time, random bytes, median of 5"
for _ in $(seq "$rounds"); do
    ours
    [[ -z $torch ]] || theirs
done
rate=$(field '.* at ([0-9]+) MB\/s.*')
mine=$(median <"$work/added")
step=$(median <"$work/plain")
load=$(median <"$work/load")
longest=$(sed -E 's/.* in ([0-9.]+) s:.*/\1/' "$work/saves" | sort -g | tail -n 1)
awk -v a="$longest" -v b="$step" 'BEGIN { exit !(a > 2 * b) }' && echo "moetitan  a save took $longest s, more than two steps: what it added later is not counted"
echo "moetitan  $(field '.*: ([0-9.]+) MB at.*') MB at $rate MB/s, $(awk -v a="$rate" -v b="$raw" 'BEGIN { printf "%.2f", a / b }') of raw, complete after $(field '.* in ([0-9.]+) s:.*') s (median of $(wc -l <"$work/saves"))"
echo "moetitan  added to steps of $step s: $(spread <"$work/added") s, of which waiting $(field '.* steps waited ([0-9.]+) s.*')"
echo "moetitan  loaded in $load s"
if [[ -z $torch ]]; then
    echo "dcp       not measured: name a python with torch (tests/oracle/requirements.txt)"
    exit 0
fi
best='' name=''
for form in thread staged process; do
    theirs=$(of $form 4 | median)
    echo "dcp       $form: $(of $form 3 | median) MB complete after $(of $form 5 | median) s; added to steps of $(of $form 6 | median) s: $(of $form 4 | spread) s"
    awk -v a="$theirs" -v b="${best:-1e9}" 'BEGIN { exit !(a < b) }' && best=$theirs name=$form
done
echo "dcp       loaded in $(of load 3 | median) s"
awk -v mine="$mine" -v best="$best" -v name="$name" -v load="$load" -v theirs="$(of load 3 | median)" 'BEGIN {
    printf "ratio     added step time: %.3f of the best form'\''s (%s)\n", mine / best, name
    printf "ratio     load: %.2f of DCP'\''s\n", load / theirs }'
