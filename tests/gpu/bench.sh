#!/usr/bin/env bash
# tests/gpu/bench.sh FOLDER [PYTHON]   kernels and a step on this machine's GPU; with a Python that has torch, PyTorch's attention and
# the same model's step beside them. Exit status 77: there is no GPU.
set -uo pipefail
cd "$(dirname "$0")/../.."
dir=$1 python=${2:-}
"$dir/here" || exit
status=0
model=(vocab=32768 dim=2048 layers=8 heads=16 kv_heads=4 head_dim=128 qk_norm=true first_dense=0 experts=32 top_k=4
    expert_ffn=1024)
"$dir/bench" kernels || status=1
step=$("$dir/bench" step "${model[@]/#/model.}" train.seq_len=4096 train.micro_batch=4 train.global_batch=4 train.dtype=bf16 \
    recompute.policy=none optim.warmup_steps=0) || status=1
printf '%s\n' "$step"
# What a token takes, and the peak, are the same for both.
read -r flops peak < <(sed -nE 's|^MFU: ([0-9.e+]+) FLOPs a token, a peak of ([0-9.e+]+) FLOP/s$|\1 \2|p' <<<"$step")
if [[ -n $python ]]; then "$python" -B tests/gpu/bench_torch.py "${flops:-0}" "${peak:-0}" || status=1; fi
exit $status
