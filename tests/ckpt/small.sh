# small.sh: make_small_run [ARGUMENTS...]: a run that leaves checkpoints of steps 2, 4 and 6 in $work/run. Sourced after tests/check.sh.
# shellcheck shell=bash
make_small_run() {
    local i
    for i in {1..400}; do echo "line $i: $((i * i)) is a square"; done >"$work/text.txt"
    cat >"$work/small.yaml" <<END
model: {vocab: 256, dim: 64, layers: 2, heads: 2, kv_heads: 1, head_dim: 32, first_dense: 1, ffn: 64,
        experts: 4, top_k: 2, expert_ffn: 32, shared_ffn: 32}
train: {steps: 6, seq_len: 64, global_batch: 2, micro_batch: 2, dtype: f32}
optim: {warmup_steps: 1}
ckpt: {interval: 2}
data: {train: "$work/text"}
run: {dir: "$work/run"}
END
    "$MT_BIN" data pack "$work/text.txt" -o "$work/text" && "$MT_BIN" train "$work/small.yaml" "$@"
}
