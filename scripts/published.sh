#!/usr/bin/env bash
# scripts/published.sh [PROGRAM]: the published rates of the reference run against `moetitan plan`, and what would lie beyond
# them, as the Markdown tables of docs/plan.md. One set of hardware numbers (configs/clusters/jupiter.yaml) for all rows; a row changes what it names, no more.
set -uo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/plan_numbers.sh
source scripts/plan_numbers.sh

# NAME PUBLISHED OPTIONS...
row() {
    local name=$1 published=$2 fits=yes
    shift 2
    "$program" plan configs/jupiter-952b.yaml --ranks 384 "$@" --json - >"$report" 2>/dev/null
    local rc=$?
    [[ $rc == 0 || $rc == 3 ]] || { echo "published: plan $* failed with $rc" >&2; exit 1; }
    [[ $rc == 0 ]] || fits=no
    printf '| %s | %s | %.1f | %.1f | %.1f | %.0f | %.1f | %.1f | %s |\n' "$name" "$published" "$(number step_s)" \
        "$(number compute_s)" "$(awk "BEGIN { print $(number step_s) - $(number compute_s) }")" "$(number tokens_per_s_per_gpu)" \
        "$(gib device_peak_bytes)" "$(gib host_peak_bytes)" "$fits"
}

head_row() {
    echo '| row | published | step s | compute s | waiting s | tokens/s/GPU | device GiB | host GiB | fits |'
    echo '|---|---|---|---|---|---|---|---|---|'
}

head_row
documents=(--documents 4000:1)                   # uneven: log-normal lengths, a long tail
balanced=(--documents 4000:0)                    # as even as balancing could make them
slow=(cluster.grouped.efficiency=0.2425)         # half of SonicMoE, as measured for the kernels it replaced
on_device=(offload.masters=device offload.moments=device offload.grads=device)
before=(wire.reduce=f32 offload.activations.fraction=0 "${documents[@]}" "${slow[@]}")
base=(train.seq_len=8Ki recompute.policy=selective "${before[@]}")
row '8,192 tokens, selective checkpointing' '83.6 s: 14.3 compute, 68.3 waiting; about 90' "${base[@]}"
row '— gradients reduced in bf16' '' "${base[@]}" wire.reduce=bf16
row '— all of the adapter (25 GB/s)' '' "${base[@]}" cluster.net.efficiency=1
row '— one document a sequence' '' "${base[@]}" --documents full
row '— grouped products as fast as SonicMoE' '' "${base[@]}" cluster.grouped.efficiency=0.485
row '— one level of gathers and reductions' '' "${base[@]}" shard.hierarchy=flat
row '— masters, moments, gradients on the device' '' "${base[@]}" "${on_device[@]}"
full=(train.seq_len=32Ki recompute.policy=full "${before[@]}")
row '32,768 tokens, full recompute' '370' "${full[@]}"
row '— gradients reduced in bf16' '' "${full[@]}" wire.reduce=bf16
row '— all of the adapter (25 GB/s)' '' "${full[@]}" cluster.net.efficiency=1
row '— one document a sequence' '' "${full[@]}" --documents full
row '— grouped products as fast as SonicMoE' '' "${full[@]}" cluster.grouped.efficiency=0.485
row '— one level of gathers and reductions' '' "${full[@]}" shard.hierarchy=flat
all=("${balanced[@]}")                           # the configuration as it is
row '65,536 tokens, everything' 'about 1,300' "${all[@]}"
row '— gradients reduced in f32' '' "${all[@]}" wire.reduce=f32
row '— all of the adapter (25 GB/s)' '' "${all[@]}" cluster.net.efficiency=1
row '— uneven documents' '' "${all[@]}" "${documents[@]}"
row '— one document a sequence' '' "${all[@]}" --documents full
row '— slow grouped products' '' "${all[@]}" "${slow[@]}"
row '— one level of gathers and reductions' '' "${all[@]}" shard.hierarchy=flat
row '— dense weights stay on their node' '' "${all[@]}" shard.reshard_dense=node
row '— masters, moments, gradients on the device' '' "${all[@]}" "${on_device[@]}"
row '— all rows of experts in one round' '' "${all[@]}" moe.buffer_factor=1.25
echo
head_row                                         # predictions: rows that begin with a dash change what they name of the first
fp8=("${all[@]}" wire.gather_experts=fp8)
row '65,536 tokens, everything, experts gathered in fp8' 'prediction' "${fp8[@]}"
row '— receive buffers of 0.15' 'prediction' "${fp8[@]}" moe.buffer_factor=0.15
row '— all of the adapter' 'prediction' "${fp8[@]}" cluster.net.efficiency=1
row '— all rows of experts in one round' 'prediction' "${fp8[@]}" moe.buffer_factor=1.25
row '— dense weights too' 'prediction' "${fp8[@]}" wire.gather_dense=fp8
row '— the last four layers stay gathered' 'prediction' "${fp8[@]}" shard.keep_last=4
row '— the same, receive buffers of 0.25' 'prediction' "${fp8[@]}" shard.keep_last=4 moe.buffer_factor=0.25
row '— gathered experts wait in host memory for backward' 'prediction' "${fp8[@]}" shard.host_weights=experts
kept=(recompute.keep=attention,attn_out recompute.keep_on=host)
row '— results of attention kept on the host' 'prediction' "${fp8[@]}" "${kept[@]}"
row '— dense weights too, one round, attention kept: all three' 'prediction' "${fp8[@]}" "${kept[@]}" wire.gather_dense=fp8 moe.buffer_factor=1.25
