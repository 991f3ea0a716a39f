#!/usr/bin/env bash
# tests/slurm/train.sh [NODES [RANKS-PER-NODE]]   (make check-slurm: 96 of 4)
#
# Three steps of configs/fake-384.yaml as processes under a real srun, and as ranks of one process: the same bits. Installs
# nothing: says what is missing. 384 processes take 12 GB and, on two quiet cores, six minutes (nearly all of the first step is
# their 73,000 connections), so it is no part of `make check`.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
nodes=${1:-96} per_node=${2:-4}
ranks=$((nodes * per_node))
export MT_BUILD=${BUILD:-build}/release
export MT_BIN=$MT_BUILD/moetitan
source tests/check.sh
source tests/train/tiny.sh

source tests/slurm/cluster.sh
# A rank's process takes about 25 MB beside its share of libraries, a node's two daemons 45.
need=$((ranks * 25 + nodes * 45)) have=$(awk '/MemAvailable/ { print int($2 / 1024) }' /proc/meminfo)
[[ $need -le $have ]] || skip "$ranks ranks on $nodes nodes take about $need MB and $have are free"

tiny_setup
options=(data.train="$work/corpus" data.valid= train.steps=3 train.eval_interval=0 optim.decay_ratio=0
    train.global_batch="$ranks" ckpt.at_end=false run.hang_timeout=20m)
[[ $((384 % ranks)) == 0 ]] || options+=(model.experts="$((ranks * 2))")
found() { grep -o '"\(step\|loss\|grad_norm\|expert_balance\)": [^,}]*' "$work/$1/metrics.jsonl"; }
same_bits() { cmp <(found fake) <(found srun) >"$work/out" && [[ $(found srun | wc -l) -ge 9 ]]; }

run "$MT_BIN" train configs/fake-384.yaml "${options[@]}" device.workers=0 run.dir="$work/fake" --fake-ranks "$ranks"
check "$ranks ranks in one process" ended 0

# How long a waiting rank may sleep: ranks a core.
nap=$((ranks / $(nproc) * 100))
[[ $nap -ge 400 ]] || nap=0
SANDBOX_NAP_US=$nap cluster "$nodes"
began=$SECONDS
run timeout 1800 srun -N "$nodes" --ntasks-per-node="$per_node" --mpi=pmix --kill-on-bad-exit=1 "$(realpath "$MT_BIN")" train \
    "$(realpath configs/fake-384.yaml)" "${options[@]}" device.workers=1 run.dir="$work/srun"
head -n 40 "$work/out" >"$work/first" && mv "$work/first" "$work/out" # one failure has as many echoes as ranks
check "$ranks processes on $nodes nodes" ended 0
echo "  $ranks processes took $((SECONDS - began)) s"
check "the same losses and norms, to the bit" same_bits
finish
