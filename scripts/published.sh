#!/usr/bin/env bash
# scripts/published.sh [PROGRAM]: the published rates of the reference run against `moetitan plan`, as the Markdown table of
# docs/plan.md. One set of hardware numbers (configs/clusters/jupiter.yaml) for all rows; a row changes what it names, no more.
set -uo pipefail
cd "$(dirname "$0")/.."
program=${1:-${MT_BIN:-build/release/moetitan}}
report=$(mktemp)
trap 'rm -f "$report"' EXIT

number() { # KEY: the number of that name in the report's JSON
    sed -n "s/^[[:space:]]*\"$1\":[[:space:]]*\([-0-9.e+]*\),\{0,1\}$/\1/p" "$report" | head -n 1
}

# NAME PUBLISHED OPTIONS...
row() {
    local name=$1 published=$2 fits=yes
    shift 2
    "$program" plan configs/jupiter-952b.yaml --ranks 384 "$@" --json - >"$report" 2>/dev/null
    local rc=$?
    [[ $rc == 0 || $rc == 3 ]] || { echo "published: plan $* failed with $rc" >&2; exit 1; }
    [[ $rc == 0 ]] || fits=no
    printf '| %s | %s | %.1f | %.1f | %.1f | %.0f | %.1f | %s |\n' "$name" "$published" "$(number step_s)" \
        "$(number compute_s)" "$(number exposed_communication_s)" "$(number tokens_per_s_per_gpu)" \
        "$(awk "BEGIN { print $(number device_peak_bytes) / 2^30 }")" "$fits"
}

echo '| row | published | step s | compute s | exposed s | tokens/s/GPU | device GiB | fits |'
echo '|---|---|---|---|---|---|---|---|'
documents=(--documents 4000:1)                   # uneven: log-normal lengths, a long tail
balanced=(--documents 4000:0)                    # as even as balancing could make them
slow=(cluster.grouped.efficiency=0.2425)         # half of SonicMoE, as measured for the kernels it replaced
nccl=(--collectives hierarchical)                # what a node needs enters it once
base=(train.seq_len=8Ki recompute.policy=selective "${documents[@]}" "${slow[@]}" "${nccl[@]}")
row '8,192 tokens, selective checkpointing' '83.6 s: 14.3 compute, 68.3 waiting; about 90' "${base[@]}"
row '— gradients reduced in bf16' '' "${base[@]}" wire.reduce=bf16
row '— all of the adapter (25 GB/s)' '' "${base[@]}" cluster.net.efficiency=1
row '— one document a sequence' '' "${base[@]}" --documents full
row '— grouped products as fast as SonicMoE' '' "${base[@]}" cluster.grouped.efficiency=0.485
row '— collectives direct, as this program has them' '' "${base[@]}" --collectives direct
full=(train.seq_len=32Ki recompute.policy=full "${documents[@]}" "${slow[@]}" "${nccl[@]}")
row '32,768 tokens, full recompute' '370' "${full[@]}"
row '— gradients reduced in bf16' '' "${full[@]}" wire.reduce=bf16
row '— all of the adapter (25 GB/s)' '' "${full[@]}" cluster.net.efficiency=1
row '— one document a sequence' '' "${full[@]}" --documents full
row '— grouped products as fast as SonicMoE' '' "${full[@]}" cluster.grouped.efficiency=0.485
all=(train.seq_len=64Ki recompute.policy=full offload.activations.fraction=0.86 wire.reduce=bf16 "${balanced[@]}" "${nccl[@]}")
row '65,536 tokens, everything, bf16 reduction' 'about 1,300' "${all[@]}"
row '— gradients reduced in f32' '' "${all[@]}" wire.reduce=f32
row '— all of the adapter (25 GB/s)' '' "${all[@]}" cluster.net.efficiency=1
row '— uneven documents' '' "${all[@]}" "${documents[@]}"
row '— one document a sequence' '' "${all[@]}" --documents full
row '— slow grouped products' '' "${all[@]}" "${slow[@]}"
row '— 15 blocks kept gathered' '' "${all[@]}" shard.keep_last=15
row '— receive buffers of a fifth, whole gradients of one block' '' "${all[@]}" moe.buffer_factor=0.2 shard.grads=1
row '— experts gathered in fp8' 'prediction' "${all[@]}" wire.gather_experts=fp8
row '— fp8, all of the adapter' 'prediction' "${all[@]}" wire.gather_experts=fp8 cluster.net.efficiency=1
row '— fp8, selective recomputation' 'prediction' "${all[@]}" wire.gather_experts=fp8 recompute.policy=selective
