#!/usr/bin/env bash
# scripts/presets.sh [PROGRAM]: each preset of configs/models planned on JUPITER and on nodes of eight H100, as the Markdown table of
# docs/models.md. Nodes: the fewest of 1, 2, 4, ... that hold the run.
set -uo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/plan_numbers.sh
source scripts/plan_numbers.sh

# All rows: 16 sequences of 4096 tokens a rank and step, in one micro-batch; experts exchanged inside the node; activations between
# blocks in host memory.
all=(train.seq_len=4096 train.micro_batch=16 train.dtype=bf16 wire.reduce=bf16 offload.activations.fraction=1)
usual=(shard.grads=2 moe.buffer_factor=0.5)
large=(shard.grads=1 moe.buffer_factor=0.25 offload.masters=host offload.moments=host offload.grads=host)

# MODEL CLUSTER RANKS_PER_NODE NODES_TO_BEGIN_WITH OPTIONS...
row() {
    local model=$1 cluster=$2 each=$3 nodes=$4 rc=3
    shift 4
    while (( nodes <= 512 )); do
        "$program" plan "configs/models/$model.yaml" --nodes "$nodes" --cluster "$cluster" "${all[@]}" "$@" "mesh.ep=$each" \
            "train.global_batch=$((nodes * each * 16))" --json - >"$report" 2>/dev/null
        rc=$?
        [[ $rc == 3 ]] || break
        nodes=$((2 * nodes))
    done
    [[ $rc == 0 ]] || { echo "presets: plan of $model on $cluster ended with $rc" >&2; exit 1; }
    printf '| %s | %s | %d × %d | %.1f | %.1f | %.1f | %.0f | %.1f |\n' "$model" "$cluster" "$nodes" "$each" \
        "$(gib device_peak_bytes)" "$(gib host_peak_bytes)" "$(number step_s)" \
        "$(number tokens_per_s_per_gpu)" "$(awk "BEGIN { print 100 * $(number mfu) }")"
}

echo '| model | cluster | nodes × GPUs | device GiB | host GiB | step s | tokens/s/GPU | MFU % (causal) |'
echo '|---|---|---|---|---|---|---|---|'
for model in qwen3-30b-a3b qwen3-235b-a22b mixtral-8x7b glm-4.5-air; do
    row "$model" jupiter 4 1 "${usual[@]}"
    row "$model" h100 8 1 "${usual[@]}"
done
for model in deepseek-v3 kimi-k2; do
    row "$model" jupiter 4 16 "${large[@]}"
    row "$model" h100 8 8 "${large[@]}"
done
